"""Shared memory itself: mapped regions, atomic words, which process is alive."""

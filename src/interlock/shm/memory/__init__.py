"""Shared memory: mapped regions, atomic words, and which process is alive."""

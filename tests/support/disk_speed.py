"""Disks that count as quick or slow on every machine: whether a lone caller commits in its own thread."""

from __future__ import annotations

from interlock.stores.threads.inline_policy import InlinePolicy


class Quick(InlinePolicy):
    """A disk that is quick on every machine."""

    is_quick = True


class Slow(InlinePolicy):
    """A disk that is slow on every machine."""

    is_quick = False


QUICK, SLOW = Quick(), Slow()
"""For many stores: who is under way is counted over all of them."""

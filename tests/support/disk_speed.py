"""Disks that are quick, or slow, on every machine: whether a lone caller waits for them in place."""

from __future__ import annotations

from interlock.stores.threads.inline_policy import InlinePolicy


class Quick(InlinePolicy):
    """A disk that is quick on every machine."""

    is_quick = True


class Slow(InlinePolicy):
    """A disk that is not."""

    is_quick = False


QUICK, SLOW = Quick(), Slow()
"""For many stores: who is under way is counted over all of them."""

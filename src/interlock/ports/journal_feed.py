"""The feed of a store: the entries of all its entities in the order in which they were written.

A feed is for observation. It does not check links; `read` and `verify` do.
"""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct

from interlock.model.journal.entry import Entry


class FeedEntry(Struct, frozen=True):
    """An entry and its entity."""

    entity: str
    entry: Entry


class FeedPage(Struct, frozen=True):
    """Entries in the order in which they were written, and the position of the last one read."""

    told: tuple[FeedEntry, ...]
    after: int


class JournalFeed(Protocol):
    """The entries of a store that numbers them over all entities."""

    async def feed(self, after: int, *, limit: int) -> FeedPage:
        """Return the entries after a position, the oldest first."""

    async def place_at(self, time_ms: int) -> int:
        """Return the position before the entries from this time on; clocks of several writers may differ a little."""

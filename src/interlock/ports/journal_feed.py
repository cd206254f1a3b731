"""What a store may offer to those who look on: the entries of all its entities in the order in which they were kept.

Rule: a feed is for looking. It proves nothing: whether links hold is for `read` and `verify` to say.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from msgspec import Struct

from interlock.model.journal.entry import Entry


class FeedEntry(Struct, frozen=True):
    """An entry, and whose it is."""

    entity: str
    entry: Entry


class FeedPage(Struct, frozen=True):
    """Entries in the order of their keeping, and the place of the last that was looked at."""

    told: tuple[FeedEntry, ...]
    after: int


@runtime_checkable
class JournalFeed(Protocol):
    """A store that numbers its entries over all entities."""

    async def feed(self, after: int, *, limit: int) -> FeedPage:
        """The entries behind a place, the oldest first."""

    async def place_at(self, time_ms: int) -> int:
        """The place behind which the entries from this time on stand; clocks of several writers may differ a little."""

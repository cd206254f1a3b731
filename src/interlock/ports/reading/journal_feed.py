"""The feed of a store: the entries of all its entities, in an order in which none is missed.

Rule 1: every entry is delivered at least once, also when it was in progress while later ones were read. Entries of one
entity come in the order of their versions. On SQLite and in memory the order is that of the commits; on PostgreSQL
entries of different entities that were committed at the same time may come in any order, and on files they come about
in the order in which they were written.
Rule 2: a cursor is opaque text. It stays valid for as long as the store exists, whatever is archived meanwhile.
Rule 3: a feed is for reading on. It does not check links; `read` and `verify` do. It does not contain entries that were
released to an archive.
"""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct

from interlock.errors import UsageError
from interlock.model.journal.entry import Entry


class FeedEntry(Struct, frozen=True):
    """An entry, its entity, and the cursor after it: a feed from there on starts with the next one.

    `head` is the hash of its record, as it is stored.
    """

    entity: str
    entry: Entry
    cursor: str = ""
    head: str = ""


class FeedPage(Struct, frozen=True):
    """Entries in order, and the cursor after the last one read. `is_last`: there are no more at this moment."""

    entries: tuple[FeedEntry, ...]
    after: str
    is_last: bool


class JournalFeed(Protocol):
    """The entries of a store that keeps their order."""

    async def feed(self, after: str | None, *, kinds: tuple[str, ...] | None = None, limit: int) -> FeedPage:
        """Return the entries after a cursor, or from the first one; entries of other kinds are passed over.

        At most `limit`. Raises UsageError for a cursor of another store (`feed.cursor`).
        """

    async def cursor_at(self, time_ms: int) -> str:
        """Return the cursor before the entries from this time on; clocks of several writers may differ a little."""


def invalid_feed_cursor(text: str) -> UsageError:
    """Return the error for text that is not a cursor of this feed."""
    hint = "pass the `cursor` of an entry of this store unchanged, or None for the first entry"
    return UsageError(f"invalid feed cursor `{text[:60]}`", code="feed.cursor", hint=hint)


def numbered_cursor(scheme: str, position: int) -> str:
    """Return the cursor after a position of a store that numbers its entries."""
    return f"{scheme}.{position}"


def read_numbered_cursor(scheme: str, text: str | None) -> int:
    """Return the position that a cursor names; 0 before the first entry. Raises UsageError (`feed.cursor`)."""
    if text is None:
        return 0
    own, _, number = text.partition(".")
    if own != scheme or not (number.isascii() and number.isdigit() and len(number) <= 19):
        raise invalid_feed_cursor(text)
    return int(number)


def cursor_ahead(position: int, newest: int) -> UsageError:
    """Return the error for a cursor after the newest entry: the store was restored from an older copy."""
    message = f"the feed cursor is at {position:,}, but the newest entry is {newest:,}: the store is an older copy"
    return UsageError(message, code="feed.ahead", hint="read the feed from its start, or from a time, into a new table")

"""Follow the entries of all entities of a store: `Runtime.feed`.

Rule 1: an entry is delivered at least once. A consumer that stores the cursor of the last entry that it has handled
continues after it, in any process.
Rule 2: entries of this process are read immediately, those of others within `POLL_MS`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from interlock.effects.waiting import first_of
from interlock.errors import UsageError
from interlock.ports.clock import Clock, wait_to_poll
from interlock.ports.journal_feed import FeedEntry, JournalFeed
from interlock.ports.store import Store

PAGE = 1_000
"""Entries of one read: a few milliseconds on SQLite."""

POLL_MS = 500
"""The wait between two reads while following."""


def feed_of(store: Store) -> JournalFeed:
    """Return the feed of a store. Raises UsageError (`feed.unsupported`) for one that keeps no order of its entries."""
    if store.journal_feed is None:
        hint = "a feed on files needs a folder that can be written; `watch` follows one entity on every store"
        raise UsageError("this store has no feed of all entries", code="feed.unsupported", hint=hint)
    return store.journal_feed


async def follow_feed(
    source: JournalFeed,
    clock: Clock,
    *,
    after: str | None,
    kinds: tuple[str, ...] | None,
    follow: bool,
    changed: asyncio.Event | None = None,
) -> AsyncGenerator[FeedEntry, None]:
    """Yield the entries after a cursor; with `follow`, wait for more. `changed` is set when this process appends."""
    while True:  # ends with the last entry, or with its caller
        if changed is not None:
            changed.clear()
        page = await source.feed(after, kinds=kinds, limit=PAGE)
        for each in page.entries:
            yield each
        after = page.after
        if not page.is_last:
            continue
        if not follow:
            return
        wait = wait_to_poll(clock, POLL_MS)
        await (wait if changed is None else first_of(changed.wait(), wait))


def check_kinds(kinds: object) -> tuple[str, ...] | None:
    """Return the kinds of a filter. Raises UsageError for anything but a list of strings."""
    if kinds is None:
        return None
    if isinstance(kinds, str) or not isinstance(kinds, list | tuple | set | frozenset):
        hint = 'write kinds=["order"]'
        raise UsageError(f"`kinds` must be a list of kinds, got {kinds!r:.60}", code="feed.kinds", hint=hint)
    if not all(isinstance(each, str) for each in kinds):
        raise UsageError("`kinds` contains something else than strings", code="feed.kinds")
    return tuple(kinds)

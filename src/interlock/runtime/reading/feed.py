"""Follow the entries of all entities of a store: `Runtime.feed`.

Rule 1: an entry is delivered at least once. A consumer that stores the cursor of the last entry that it has handled
continues after it, in any process.
Rule 2: entries of this process are read immediately. Those of others are read at their signal; a signal may be lost,
and is not possible everywhere, so the feed is also read at intervals.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Self

from interlock.effects.waiting import first_of
from interlock.errors import UsageError
from interlock.ports.clock import Clock, wait_to_poll
from interlock.ports.reading.journal_feed import FeedEntry, JournalFeed
from interlock.ports.store import Store
from interlock.ports.wakeups import Following

PAGE = 1_000
"""Entries of one read: a few milliseconds on SQLite."""

POLL_MS = 500
"""The wait between two reads while following, where there are no signals."""

SIGNALLED_POLL_MS = 5_000
"""The same wait where there are signals: for what a process wrote that cannot give them."""

SETTLING_POLLS = 5
"""Polls at the shorter interval before senders are sure to have noticed a new reader (`FOLLOWER_SECONDS`)."""


class EntryWaiter:
    """Waits for new entries of any process. An asynchronous context manager.

    `changed` is set by the entries of this process, and by signals of others.
    """

    def __init__(self, store: Store, clock: Clock, changed: asyncio.Event) -> None:
        self.changed = changed
        self._wakeups = store.wakeups
        self._clock = clock
        self._following: Following | None = None
        self._polls = 0

    async def __aenter__(self) -> Self:
        if self._wakeups is not None:
            self._following = await self._wakeups.follow(self.changed.set)
        return self

    async def __aexit__(self, *error: object) -> None:
        if self._following is not None:
            await self._following.close()

    async def wait(self) -> None:
        """Wait for a signal, or for the next poll."""
        is_sure = self._following is not None and self._polls >= SETTLING_POLLS
        self._polls += 1
        every_ms = SIGNALLED_POLL_MS if is_sure else POLL_MS
        await first_of(self.changed.wait(), wait_to_poll(self._clock, every_ms))


def feed_of(store: Store) -> JournalFeed:
    """Return the feed of a store. Raises UsageError (`feed.unsupported`) for one that keeps no order of its entries."""
    if store.journal_feed is None:
        hint = "a feed on files needs a folder that can be written; `watch` follows one entity on every store"
        raise UsageError("this store has no feed of all entries", code="feed.unsupported", hint=hint)
    return store.journal_feed


async def follow_feed(
    source: JournalFeed, *, after: str | None, kinds: tuple[str, ...] | None, waiter: EntryWaiter | None
) -> AsyncGenerator[FeedEntry, None]:
    """Yield the entries after a cursor; with a waiter, wait for more."""
    while True:  # ends with the last entry, or with its caller
        if waiter is not None:
            waiter.changed.clear()
        page = await source.feed(after, kinds=kinds, limit=PAGE)
        for each in page.entries:
            yield each
        after = page.after
        if not page.is_last:
            continue
        if waiter is None:
            return
        await waiter.wait()


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

"""The file store: journals in plain files, durable and safe between processes, with nothing to install or run.

Rule 1: the store is synchronous code (`files_journals` and what it uses); each request is one hop to a thread, where a
flush may take its time. An append that comes alone to a quick disk (`pace`) is done in place, where the hop costs more.
Rule 2: many processes may open one root.
Rule 3: a forked child opens its journals anew: an inherited descriptor would share its parent's lock.
Rule 4: work is performed by one process at a time (`work.dispatcher`).

It lists entities by walking its directories, which is right for thousands and slow for millions; a database store
keeps an index.

Keys are remembered for the last 10,000 entries of an entity, however old they are: `state.json` must stay readable in
one go. The window that stores promise in general is 30 days; an entity that takes more than 10,000 entries in 30 days
forgets its oldest keys sooner here, and belongs into a database store. Up to when they are forgotten is known: an event
whose sender says that it is from then, under a key that is not known, is not taken (`Forgotten`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar
from urllib.parse import parse_qs, unquote, urlsplit

from interlock.errors import UnavailableError, UsageError
from interlock.model.journal.record import JournalRecord
from interlock.model.journal.work import Lane, WorkId
from interlock.ports.fork import after_fork
from interlock.ports.leases import Downtime, Lease
from interlock.ports.store import (
    PAGE_MAX,
    Append,
    Appended,
    AppendResult,
    Duplicate,
    EntityPage,
    EntityQuery,
    Loaded,
    Refusal,
)
from interlock.ports.threads import in_thread_or_here
from interlock.ports.work import Claim, Settlement, WorkPage, WorkQuery
from interlock.stores.files.direct_layout import DirectLayout
from interlock.stores.files.filesystem import FileSystem, OperatingSystem
from interlock.stores.files.journal.durable_io import LOCKED, SEGMENT_BYTES_MAX, Settings
from interlock.stores.threads.inline_policy import InlinePolicy
from interlock.stores.threads.pool import ThreadPool

THREADS_MAX = 16
"""Threads of a store: they wait for the disk, which groups their flushes; sixteen gave twice the rate of four."""

OPTIONS = {"tenant"}
"""What may stand behind the `?` of an address."""

T = TypeVar("T")


class FileStore:
    """Journals below a directory.

    Any number of processes may write to it.

    Raises UsageError for a format or file system that it does not support; UnavailableError when the directory cannot
    be opened.
    """

    def __init__(
        self,
        root: str | Path | DirectLayout,
        *,
        fs: FileSystem | None = None,
        tenant: str = "",
        store_key: bytes = b"",
        snapshot_every: int = 400,
        lock_ms_max: int = 5_000,
        segment_bytes_max: int = SEGMENT_BYTES_MAX,
        handles_max: int | None = None,
    ) -> None:
        settings = Settings(
            tenant=tenant,
            store_key=store_key,
            snapshot_every=snapshot_every,
            lock_ms_max=lock_ms_max,
            segment_bytes_max=segment_bytes_max,
        )
        if not isinstance(root, DirectLayout):
            root = DirectLayout(str(root), fs or OperatingSystem(), settings, count_max=handles_max)
        self._journals = root
        self._dispatch = self._journals.dispatch()
        self._leases = self._journals.leases()
        self._guard = Lock()  # of `_closed`: callers may be in several threads
        self._pace = InlinePolicy()
        self._threads = _threads()
        self._closed = False
        after_fork(self, FileStore._after_fork)

    async def append(self, append: Append) -> AppendResult:
        """Keep one step, if the entity still is at the expected version and its key is new."""
        pace = self._pace
        with pace.guard:
            pace.under_way += 1
        try:
            if pace.is_quick:
                if pace.is_turn_over(time.perf_counter_ns()):
                    await asyncio.sleep(0)  # others first: many at once are better served side by side, by threads
                if pace.under_way == 1 and not self._closed:
                    answer = self._timed(self._journals.append_at_once, append)
                    if answer is not None:
                        return answer
            return await self._hop(lambda: self._timed(self._journals.append, append))
        finally:
            with pace.guard:
                pace.under_way -= 1

    def _timed(self, rule: Callable[[Append], T], append: Append) -> T:
        """Tells the pace of what was flushed, or could not be: an answer without a flush says nothing of the disk."""
        began = time.perf_counter_ns()
        is_of_disk = False
        try:
            answer = rule(append)
            is_of_disk = isinstance(answer, Appended)
        except UnavailableError as error:  # a disk that dies takes its time for each of its last answers
            is_of_disk = error.code != LOCKED
            raise
        finally:
            if is_of_disk:
                self._pace.took(time.perf_counter_ns() - began)
        return answer

    async def load(self, entity: str, *, key: str | None = None) -> Loaded | Duplicate | None:
        """The entity as it is; None when there is none. With `key`: `Duplicate` when that key was kept before."""
        return await self._hop(lambda: self._journals.load(entity, key))

    async def read(self, entity: str, *, after: int = 0, limit: int = PAGE_MAX) -> tuple[JournalRecord, ...]:
        """The verified records after a version, in order. Raises CorruptionError at the first bad link."""
        return await self._hop(lambda: self._journals.read(entity, after=after, limit=limit))

    async def find(self, query: EntityQuery) -> EntityPage:
        """Entities by kind, state, age and tag, oldest in their state first, page by page."""
        return await self._hop(lambda: self._journals.find(query))

    async def names(self) -> tuple[str, ...]:
        """Every entity that has a folder, readable or not, sorted."""
        return await self._hop(self._journals.names)

    async def kinds(self) -> tuple[str, ...]:
        """The kinds that there are entities of, sorted."""
        return await self._hop(self._journals.kinds)

    async def adopt(self, append: Append, records: tuple[JournalRecord, ...]) -> int:
        """Keep verified records as they are, byte for byte, after those already here; give the version reached."""
        return await self._hop(lambda: self._journals.adopt(append, records))

    async def release(self, entity: str, *, version: int, archive: str) -> bool:
        """Drop the records of an ended entity that is still at this version; False when it is not."""
        return await self._hop(lambda: self._journals.release(entity, version=version, archive=archive))

    async def refuse(self, refusals: tuple[Refusal, ...]) -> None:
        """Keep refusals, as well as can be."""
        await self._hop(lambda: self._journals.refuse(refusals))

    async def lease(self, name: str, *, owner: str, now_ms: int, until_ms: int) -> Lease | None:
        """Take a name, or hold it longer; None while another holds it."""
        return await self._hop(lambda: self._leases.lease(name, owner=owner, now_ms=now_ms, until_ms=until_ms))

    async def give_back(self, lease: Lease) -> bool:
        """Let go of a name at once; False when it was no longer ours."""
        return await self._hop(lambda: self._leases.give_back(lease))

    async def alive(self, *, now_ms: int, gap_ms: int) -> Downtime | None:
        """Note that a worker is alive; the downtime that ends with this, if it does."""
        return await self._hop(lambda: self._leases.alive(now_ms=now_ms, gap_ms=gap_ms))

    async def downtimes(self, *, since_ms: int) -> tuple[Downtime, ...]:
        """The downtimes that ended after a time, in order."""
        return await self._hop(lambda: self._leases.downtimes(since_ms=since_ms))

    async def correct_clock(self, *, now_ms: int) -> None:
        """Forget signs of life and downtimes that are stamped in the future."""
        await self._hop(lambda: self._leases.correct(now_ms=now_ms))

    async def claim(
        self, lane: Lane, names: tuple[str, ...] | None, *, owner: str, now_ms: int, until_ms: int, limit: int
    ) -> tuple[Claim, ...]:
        """Take up work that is due, oldest first; none while another process performs."""
        rule = partial(self._dispatch.claim, lane, names, owner=owner, now_ms=now_ms, until_ms=until_ms, limit=limit)
        return await self._hop(rule)

    async def renew(self, claims: tuple[Claim, ...], *, until_ms: int) -> tuple[Claim | None, ...]:
        """Hold claims longer."""
        return await self._hop(lambda: self._dispatch.renew(claims, until_ms=until_ms))

    async def settle(self, settled: tuple[Settlement, ...], *, now_ms: int) -> tuple[bool, ...]:
        """Let go of claims."""
        return await self._hop(lambda: self._dispatch.settle(settled, now_ms=now_ms))

    async def note(self, claim: Claim, error: Any) -> bool:
        """Keep what is told of work in hand; False when it is no longer ours."""
        return await self._hop(lambda: self._dispatch.note(claim, error))

    async def soonest(self, lane: Lane, names: tuple[str, ...] | None) -> int | None:
        """When the next work is due; None while another process performs."""
        return self._dispatch.soonest(lane, names)

    async def works(self, query: WorkQuery) -> WorkPage:
        """Work by lane, name and entity, page by page."""
        return await self._hop(lambda: self._dispatch.works(query))

    async def revive(self, entity: str, place: WorkId, *, now_ms: int, audit: Refusal | None = None) -> bool:
        """Let dead work be tried again, from its first attempt."""
        return await self._hop(lambda: self._dispatch.revive(entity, place, now_ms=now_ms, audit=audit))

    async def requeue(self, settled: Settlement, *, now_ms: int, audit: Refusal | None = None) -> bool:  # noqa: ARG002 - the time is in `settled`
        """Let work that is not dead be tried again; False when it has changed since."""
        return await self._hop(lambda: self._dispatch.requeue(settled, audit=audit))

    async def drop(self, entity: str, place: WorkId, *, audit: Refusal | None = None) -> bool:
        """Forget work."""
        return await self._hop(lambda: self._dispatch.drop(entity, place, audit=audit))

    async def close(self) -> None:
        """Let go of everything. Appends under way end first; later calls raise UnavailableError."""
        with self._guard:
            if self._closed:
                return
            self._closed = True
        await in_thread_or_here(self._close_now)

    def _close_now(self) -> None:
        self._threads.close()
        self._dispatch.close()
        self._leases.close()
        self._journals.close()

    async def _hop(self, rule: Callable[[], T]) -> T:
        if self._closed:
            raise UnavailableError("the store is closed", code="store.closed")
        return await self._threads.run(rule)

    def _after_fork(self) -> None:
        was_closed, self._closed = self._closed, True  # until nothing is the parent's: there may be no descriptor left
        self._guard, self._pace = Lock(), InlinePolicy()
        with suppress(OSError, UnavailableError):  # then it stays closed
            self._dispatch.abandon()
            self._leases.abandon()
            self._journals.abandon()
            self._threads = _threads()
            self._closed = was_closed


def _threads() -> ThreadPool:
    return ThreadPool(THREADS_MAX, "interlock-files")


def open_store(url: str) -> FileStore:
    """The store that a URL such as `file:///var/lib/orders` names.

    `?tenant=name` makes a new one that tenant's, and insists on it for one that is there; without it the folder is
    opened as what it is. Raises UsageError for any other URL, and for a folder of another tenant.
    """
    parts = urlsplit(url)
    options = parse_qs(parts.query, keep_blank_values=True)
    if "layout" in options:
        hint = "remove it from the URL; for group commit use a store such as sqlite:///orders.db"
        raise UsageError(f"`{url}`: file stores no longer have a layout option", code="store.layout", hint=hint)
    if parts.scheme != "file" or parts.netloc not in {"", "localhost"} or not parts.path or set(options) - OPTIONS:
        hint = "write file:///path/to/directory, perhaps with ?tenant=name"
        raise UsageError(f"`{url}` names no directory", code="store.url", hint=hint)
    return FileStore(unquote(parts.path), tenant=options.get("tenant", [""])[-1])

"""Clock repair: after a wrong clock, work and timers that were delayed too far become due again.

A clock that was ahead leaves times in the store that are far in the future once it is right again: leases, waits before
the next try, and the timers of entities that were stepped meanwhile.

Rule 1: when a worker starts, it checks the entities that the store knows to be stamped in the future. When the clock of
this process went back, or the last worker heartbeat is in the future, it checks all work. When an entity is stepped
while its time is ahead, it checks the work of that entity.
Rule 2: only due times are changed. A worker that still holds a lease has the length of a lease to renew it. A timer
that is not due is postponed again; `EntityDelivery.fire_timers` shifts one that was set by the wrong clock.
Rule 3: the worker heartbeats in the store are corrected last: when a worker dies before that, the next one sees them.
Rule 4: where due times use a server's clock, no runtime's clock has delayed them, and none may judge them.
See ADR 0047.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator

from msgspec import Struct
from msgspec.structs import replace

from interlock.effects.wait_limits import is_postponed_too_far
from interlock.effects.waiting import log_failure
from interlock.model.backoff import Backoff
from interlock.model.limits import CLOCK_AHEAD_MS_MAX, FUTURE_ENTITIES_MAX, LEASE_MS
from interlock.ports.clock import Clock
from interlock.ports.store import PAGE_MAX, EntityQuery, Loaded, Store
from interlock.ports.work import Claim, Settlement, WorkPage, WorkQuery, WorkQueue, WorkRow

ENTITIES_WALKED_MAX = 50_000
"""Entities that are read in a store without an index, when an operator asks which are ahead."""

PAGE_ROWS = 1_000
"""Pieces of work in one page."""

_BACKOFF = Backoff(200, 60_000, jitter=0.0)
"""The wait before the next try: another process runs the work, or the store is unavailable."""

_log = logging.getLogger("interlock.runtime")


class FutureStamped(Struct, frozen=True):
    """What is stamped in the future: entities, work that waits too long or is leased too long, timers, and downtimes.

    `is_partial`: there may be more; the search stopped at its limit.
    """

    entities: tuple[str, ...] = ()
    work: tuple[WorkRow, ...] = ()
    leases: tuple[WorkRow, ...] = ()
    timers: tuple[WorkRow, ...] = ()
    downtimes: int = 0
    is_partial: bool = False


async def find_future_stamped(store: Store, *, now_ms: int, limit: int = PAGE_MAX) -> FutureStamped:
    """Return what is stamped in the future in a store. It changes nothing."""
    latest_ms = now_ms + CLOCK_AHEAD_MS_MAX
    by_server = store.clock_stamps is not None and store.clock_stamps.server_clock
    entities, is_partial = await _entities_ahead(store, latest_ms, limit)
    work, leases, timers = list[WorkRow](), list[WorkRow](), list[WorkRow]()
    if store.work is not None:
        async for page in _pages(store.work, WorkQuery()):
            is_partial |= page.is_partial
            far = [row for row in page.rows if not by_server and is_postponed_too_far(row, now_ms)]
            leases += [row for row in far if row.owner is not None]
            work += [row for row in far if row.owner is None]
            if len(work) + len(leases) >= limit:
                is_partial = True
                break
        for entity in entities:
            async for page in _pages(store.work, WorkQuery(entity=entity, lane="timer")):
                timers += [row for row in page.rows if row.next_ms is not None and row.next_ms > latest_ms]
    downtimes = await store.leases.downtimes(since_ms=latest_ms) if store.leases is not None else ()
    return FutureStamped(entities, tuple(work), tuple(leases), tuple(timers), len(downtimes), is_partial)


async def _entities_ahead(store: Store, latest_ms: int, limit: int) -> tuple[tuple[str, ...], bool]:
    """Return entities whose last entry is stamped after a time, and whether there may be more."""
    if store.clock_stamps is not None:
        found = await store.clock_stamps.entities_stamped_after(latest_ms, limit=limit)
        return found, len(found) >= limit
    names, walked = list[str](), 0
    for kind in await store.kinds():
        cursor: str | None = None
        while walked < ENTITIES_WALKED_MAX and len(names) < limit:
            page = await store.find(EntityQuery(kind=kind, after=cursor, limit=PAGE_MAX))
            names += [row.entity for row in page.rows if row.changed_ms > latest_ms]
            walked, cursor = walked + len(page.rows), page.after
            if cursor is None:
                break
    return tuple(names[:limit]), walked >= ENTITIES_WALKED_MAX or len(names) >= limit


class ClockRepair:
    """Corrects the times of one store, from `start` to `stop`. `lease_ms`: how long a worker has to renew a lease."""

    def __init__(self, store: Store, work: WorkQueue, clock: Clock, *, lease_ms: int = LEASE_MS) -> None:
        self._store = store
        self._work = work
        self._clock = clock
        self._lease_ms = lease_ms
        self._by_server = store.clock_stamps is not None and store.clock_stamps.server_clock
        self._entities: dict[str, None] = {}
        self._seen: set[str] = set()
        self._is_all = False
        self._reported = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Check known timestamps in the future, and react to reports from now on."""
        self._task = asyncio.ensure_future(self._run())
        if self._store.clock_stamps is not None:
            self._reported.set()
        else:
            self.report(None)

    async def stop(self) -> None:
        """Stop."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def report(self, entity: str | None) -> None:
        """Report an entity whose time is ahead of the clock; None: the clock went back, or was ahead before."""
        if entity is None:
            self._is_all = True
            self._seen.clear()
        elif entity in self._seen:
            return
        else:
            if len(self._seen) >= FUTURE_ENTITIES_MAX:
                self._seen.clear()
            self._seen.add(entity)
            self._entities[entity] = None
        self._reported.set()

    async def _run(self) -> None:
        """The loop is endless on purpose; `stop` cancels it."""
        is_first, failures = True, 0
        while True:
            await self._reported.wait()
            self._reported.clear()
            entities, is_all = tuple(self._entities), self._is_all
            self._entities, self._is_all = {}, False
            try:
                if is_first:
                    entities = (*entities, *await self._find_stamped())
                is_left = not self._by_server and not await self._repair(entities, is_all=is_all)
                if is_all and not is_left and self._store.leases is not None:
                    await self._store.leases.correct_clock(now_ms=self._clock.now_ms())
                is_first, failures = False, failures + 1 if is_left else 0
            except Exception as error:  # noqa: BLE001 - whatever a store raises, it is tried again
                is_left, failures = True, failures + 1
                log_failure(_log, "times in the future cannot be corrected", error)
            if is_left:
                self._entities |= dict.fromkeys(entities)
                self._is_all |= is_all
                await self._clock.sleep_ms(_BACKOFF.wait_ms(failures - 1, 1.0))
                self._reported.set()

    async def _find_stamped(self) -> tuple[str, ...]:
        """Return the entities that the store finds by an index."""
        if self._by_server or self._store.clock_stamps is None:
            return ()
        latest_ms = self._clock.now_ms() + CLOCK_AHEAD_MS_MAX
        return await self._store.clock_stamps.entities_stamped_after(latest_ms, limit=FUTURE_ENTITIES_MAX)

    async def _repair(self, entities: tuple[str, ...], *, is_all: bool) -> bool:
        """Make due what was delayed too far; False when some of it could not be changed."""
        queries = [WorkQuery()] if is_all else [WorkQuery(entity=each) for each in dict.fromkeys(entities)]
        ahead, leased = dict[str, bool](), list[WorkRow]()
        is_complete = True
        for query in queries:
            async for page in _pages(self._work, query):
                is_complete &= not page.is_partial
                now_ms = self._clock.now_ms()
                wrong = [row for row in page.rows if await self._is_wrong(row, now_ms, ahead)]
                leased += [row for row in wrong if row.owner is not None]
                is_complete &= await self._make_due([row for row in wrong if row.owner is None])
        if leased:
            await self._clock.sleep_ms(self._lease_ms)  # a worker that is still alive renews its lease meanwhile
            is_complete &= await self._make_due([row for row in leased if await self._is_unchanged(row)])
        return is_complete

    async def _make_due(self, rows: list[WorkRow]) -> bool:
        if not rows:
            return True
        now_ms = self._clock.now_ms()
        settlements = tuple(
            Settlement(_as_claim(row), "again", now_ms, row.error, without_failure=True) for row in rows
        )
        changed = await self._work.settle(settlements, now_ms=now_ms)
        _log.warning("work that a wrong clock had delayed is due now", extra={"count": sum(changed)})
        return all(changed)

    async def _is_unchanged(self, row: WorkRow) -> bool:
        page = await self._work.list_work(WorkQuery(entity=row.entity, id=row.work.id))
        return bool(page.rows) and (page.rows[0].next_ms, page.rows[0].attempts) == (row.next_ms, row.attempts)

    async def _is_wrong(self, row: WorkRow, now_ms: int, ahead: dict[str, bool]) -> bool:
        if is_postponed_too_far(row, now_ms):
            return True
        latest_ms = now_ms + CLOCK_AHEAD_MS_MAX
        is_late_timer = row.work.id.lane == "timer" and row.next_ms is not None and row.next_ms > latest_ms
        if not is_late_timer or row.owner is not None or row.dead_ms is not None:
            return False
        if row.entity not in ahead:
            loaded = await self._store.load(row.entity)
            ahead[row.entity] = isinstance(loaded, Loaded) and loaded.time_ms > latest_ms
        return ahead[row.entity]


async def _pages(work: WorkQueue, query: WorkQuery) -> AsyncIterator[WorkPage]:
    cursor: str | None = None
    while True:  # ends with the last page
        page = await work.list_work(replace(query, after=cursor, limit=PAGE_ROWS))
        yield page
        cursor = page.after
        if cursor is None:
            return


def _as_claim(row: WorkRow) -> Claim:
    return Claim(row.entity, row.work, row.attempts, row.failures, row.cancelled)

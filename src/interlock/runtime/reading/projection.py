"""Run projections: read the feed, hand entries to a function, and move the position in the same transaction.

Rule 1: one runner of a name at a time, by a lease. The lease saves work; it is the cursor that keeps a late runner from
writing (`ports.projections`).
Rule 2: an entry is never skipped. After an error the same entries are tried again, later and later, and after
`FAILURES_MAX` failures in a row the projection stops, with its error, until a runtime starts it again.
Rule 3: a rebuild is a second name into a second table: both are filled, then readers change over.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar, cast

from interlock.errors import InterlockError, UnavailableError, UsageError
from interlock.model.backoff import Backoff
from interlock.model.encoding.storable import describe
from interlock.model.limits import LEASE_MS
from interlock.ports.clock import wait_to_poll
from interlock.ports.leases import Lease, Leases
from interlock.ports.reading.projections import Projections, ProjectionStatus, Projector
from interlock.ports.store import Store
from interlock.runtime.entities.entities import Entities
from interlock.runtime.reading.feed import EntryWaiter, check_kinds, feed_of

FAILURES_MAX = 10
"""Failures in a row before a projection stops: about five minutes, longer than a restart of a database."""

RETRY = Backoff(200, 60_000)
"""The waits between them."""

NAME_BYTES_MAX = 100

BATCH_MAX = 10_000
"""Entries of one transaction: on SQLite it delays every other writer."""

P = TypeVar("P", bound=Projector)

_log = logging.getLogger("interlock.projection")


class ProjectionRunner:
    """Runs one projection in this process while it has the lease."""

    def __init__(
        self, entities: Entities, name: str, projector: Projector, kinds: tuple[str, ...] | None, batch: int
    ) -> None:
        self.name = name
        self._entities = entities
        self._clock = entities.clock
        self._projector = projector
        self._kinds = kinds
        self._batch = batch
        self._projections, self._leases = capabilities(entities.store)
        self._owner = entities.clock.token()
        self._writing: asyncio.Future[bool] | None = None
        self._task = asyncio.ensure_future(self._run())

    async def stop(self) -> None:
        """Stop after the transaction in progress, and release the lease."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        if self._writing is not None:
            await asyncio.gather(self._writing, return_exceptions=True)
        lease = await self._lease()
        if lease is not None:
            await self._leases.release_lease(lease)

    async def _run(self) -> None:
        """Take batches while this process has the lease. Endless on purpose: it ends when it is cancelled or stops."""
        with self._entities.announcements.following() as changed:
            async with EntryWaiter(self._entities.store, self._clock, changed) as waiter:
                await self._take_batches(waiter)

    async def _take_batches(self, waiter: EntryWaiter) -> None:
        failures = 0
        while True:
            waiter.changed.clear()
            try:
                if await self._lease() is None:
                    await wait_to_poll(self._clock, LEASE_MS / 3)
                    continue
                is_last = await self._take()
                failures = 0
            except UnavailableError as error:  # the store: the position is not known
                self._log_failure(error)
                await self._clock.sleep_ms(RETRY.wait_ms(failures, self._clock.jitter()))
                failures = min(failures + 1, FAILURES_MAX)
                continue
            except Exception as error:  # noqa: BLE001 - whatever the function raises
                failures += 1
                if await self._record(error, is_stopped=failures >= FAILURES_MAX):
                    return
                await self._clock.sleep_ms(RETRY.wait_ms(failures, self._clock.jitter()))
                continue
            if is_last:
                await waiter.wait()

    async def _take(self) -> bool:
        """Take one batch; return whether it was the last one at this moment."""
        before = await self._cursor()
        page = await feed_of(self._entities.store).feed(before, kinds=self._kinds, limit=self._batch)
        if page.entries or page.after != before:
            work = self._projections.project(self.name, self._projector, page.entries, before=before, after=page.after)
            self._writing = asyncio.ensure_future(work)
            await asyncio.shield(self._writing)  # a transaction ends, also when the runner is stopped
        return page.is_last

    async def _cursor(self) -> str | None:
        found = await find_projection(self._projections, self.name)
        return None if found is None else found.cursor

    async def _record(self, error: Exception, *, is_stopped: bool) -> bool:
        """Store a failure; return whether the projection stops."""
        self._log_failure(error)
        try:
            await self._projections.record_failure(
                self.name, cursor=await self._cursor(), error=describe(error, repr), stopped=is_stopped
            )
        except InterlockError as second:
            self._log_failure(second)
        if is_stopped:
            _log.error("a projection has stopped", extra={"projection": self.name})
        return is_stopped

    async def _lease(self) -> Lease | None:
        now_ms = self._clock.now_ms()
        return await self._leases.acquire_lease(
            f"projection/{self.name}", owner=self._owner, now_ms=now_ms, until_ms=now_ms + LEASE_MS
        )

    def _log_failure(self, error: Exception) -> None:
        _log.warning("a projection failed", exc_info=error, extra={"projection": self.name})


def capabilities(store: Store) -> tuple[Projections, Leases]:
    """Return what a projection needs of a store. Raises UsageError (`projection.unsupported`)."""
    if store.projections is None or store.leases is None or store.journal_feed is None:
        hint = "use SQLite or PostgreSQL; on other stores read `runtime.feed` and store its cursor yourself"
        raise UsageError("this store cannot keep projections", code="projection.unsupported", hint=hint)
    return store.projections, store.leases


async def find_projection(projections: Projections, name: str) -> ProjectionStatus | None:
    """Return a projection; None for one that has not taken anything yet."""
    return next((each for each in await projections.projections() if each.name == name), None)


def register_projection(
    entities: Entities,
    name: str,
    kinds: object,
    batch: int,
    started: dict[str, ProjectionRunner],
    on_close: Callable[[Callable[[], Awaitable[object]]], None],
) -> Callable[[P], P]:
    """Return the decorator that starts a projection. Raises UsageError for an invalid name, kinds, batch or store."""
    if not (isinstance(cast("object", name), str) and name.isprintable() and 0 < len(name.encode()) <= NAME_BYTES_MAX):
        hint = "use up to 100 bytes, such as open_orders"
        raise UsageError(f"invalid name of a projection: {name!r:.60}", code="projection.name", hint=hint)
    if type(batch) is not int or not 1 <= batch <= BATCH_MAX:
        message = f"batch={batch!r:.40} is not between 1 and {BATCH_MAX:,}"
        raise UsageError(message, code="projection.batch", hint="the default is 500 entries of one transaction")
    wanted = check_kinds(kinds)
    projections, _ = capabilities(entities.store)

    def start(projector: P) -> P:
        if name in started:
            message, hint = f"the projection `{name}` is registered twice", "give one of them another name"
            raise UsageError(message, code="projection.twice", hint=hint)
        is_async = inspect.iscoroutinefunction(projector)
        if not callable(cast("object", projector)) or is_async is not projections.is_async:
            form = "a coroutine function: `async def`" if projections.is_async else "a plain function: `def`"
            message = f"a projection on this store is {form}"
            raise UsageError(message, code="projection.function", hint="its arguments are a connection and entries")
        runner = started[name] = ProjectionRunner(entities, name, projector, wanted, batch)
        on_close(runner.stop)
        return projector

    return start

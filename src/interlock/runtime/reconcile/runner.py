"""Reconcilers: loops that ask a function about entities that stay in a state for too long, and send them its events.

Rule 1: one loop per reconciler, in the process that holds its lease. When that process dies, the lease expires and
another process continues.
Rule 2: each pass lists the entities again, oldest first, page by page. Only failures are remembered, and where a pass
with too many entities stopped.
Rule 3: a result is for the version that was seen: its key is made from that version, and an entity that has changed
meanwhile does not get it. Two concurrent loops would therefore do no harm; the lease only reduces the load on the
service.
Rule 4: a function that raises, hangs or returns something invalid delays its own entity, longer each time, and no
other.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

from interlock.effects.user_functions import call_in_loop, result_of
from interlock.effects.waiting import first_of, log_failure, wait_or_timeout
from interlock.errors import ConflictError, NotFoundError, RejectedError, UnavailableError, UsageError
from interlock.model.keys import reconcile_key
from interlock.model.limits import LEASE_MS, RECONCILE_PAGE, RECONCILE_PASS_MAX, STOP_MS_MAX
from interlock.ports.admission import AdmissionPermit
from interlock.ports.clock import wait_to_poll
from interlock.ports.leases import Lease, Leases
from interlock.ports.store import EntityQuery, EntityRow
from interlock.runtime.reconcile.definition import Reconciler, ReconcileRequest, ReconcileResult
from interlock.runtime.reconcile.queue import KeyedQueue
from interlock.runtime.runtime import Runtime

_log = logging.getLogger("interlock.reconcile")


class PassReport(Struct, frozen=True):
    """The counts of one pass: entities asked about, events sent, entities that had changed, and failures."""

    entities: int = 0
    events_sent: int = 0
    changed_meanwhile: int = 0
    failures: int = 0
    duration_ms: int = 0


class ReconcilerGroup:
    """Runs the reconcilers of a runtime, from `start` to `stop`."""

    def __init__(self, runtime: Runtime, reconcilers: tuple[Reconciler, ...], *, lease_ms: int = LEASE_MS) -> None:
        leases = runtime.store.leases
        if leases is None:
            message = f"{type(runtime.store).__name__} has no leases, which reconcilers need"
            raise UnavailableError(message, code="store.leases", hint="run reconcilers on a store with leases")
        owner = runtime.clock.token()
        self._loops = [ReconcilerLoop(runtime, leases, each, owner=owner, lease_ms=lease_ms) for each in reconcilers]
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Start the loops."""
        self._tasks = [asyncio.ensure_future(each.run()) for each in self._loops]

    async def stop(self) -> None:
        """Stop the loops and release their leases, so that other processes continue immediately."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(each.release() for each in self._loops))


class ReconcilerLoop:
    """The loop of one reconciler in one process."""

    def __init__(
        self, runtime: Runtime, leases: Leases, reconciler: Reconciler, *, owner: str, lease_ms: int = LEASE_MS
    ) -> None:
        self._runtime = runtime
        self._leases = leases
        self._reconciler = reconciler
        self._owner = owner
        self._lease_ms = lease_ms
        self._clock = runtime.clock
        self._lease: Lease | None = None
        self._until_ms = 0
        self._queue: KeyedQueue[EntityRow] = KeyedQueue(rate=reconciler.rate)
        self._running: set[asyncio.Task[None]] = set()
        self._counts: Counter[str] = Counter()
        self._cursor: str | None = None
        self.last = PassReport()

    # The lease

    async def run(self) -> None:
        """Make passes while this process has the lease. The loop is endless on purpose; it ends when cancelled."""
        while True:
            if not await self._acquire():
                await wait_to_poll(self._clock, self._lease_ms / 3, at_most_ms=self._lease_ms / 3)
                continue
            loops = asyncio.ensure_future(self._renew_lease()), asyncio.ensure_future(self._make_passes())
            try:
                await first_of(*loops)
            finally:
                await asyncio.gather(*loops, return_exceptions=True)

    async def release(self) -> None:
        """Release the lease, if this process has it."""
        lease, self._lease = self._lease, None
        if lease is not None:
            try:
                await self._leases.release_lease(lease)
            except Exception as error:  # noqa: BLE001 - the lease expires anyway
                self._log_failure("a lease cannot be released", error)

    async def _acquire(self) -> bool:
        """Acquire or renew the lease; False when another process has it, or the store is unavailable."""
        now_ms = self._clock.now_ms()
        until_ms = now_ms + self._lease_ms
        name = f"reconcile/{self._reconciler.name}"
        try:
            lease = await self._leases.acquire_lease(name, owner=self._owner, now_ms=now_ms, until_ms=until_ms)
        except Exception as error:  # noqa: BLE001 - whatever a store raises, the loop continues
            self._log_failure("a lease cannot be acquired", error)
            return False
        self._lease = lease
        if lease is not None:
            self._until_ms = until_ms  # by our own clock, from before the call: the store may use another
        return lease is not None

    async def _renew_lease(self) -> None:
        """Renew the lease; ends when it is lost, or may be lost before it can be renewed."""
        while self._lease is not None:
            await wait_to_poll(self._clock, self._lease_ms / 3, at_most_ms=self._lease_ms / 3)
            if not await self._acquire() and self._clock.now_ms() + self._lease_ms / 3 >= self._until_ms:
                return

    # Passes

    async def _make_passes(self) -> None:
        """Make one pass after the other. Endless on purpose; it ends with the lease, and starts with the next one."""
        self._queue, self._cursor = KeyedQueue(rate=self._reconciler.rate), None
        try:
            while True:
                started_ms = self._clock.now_ms()
                try:
                    await self._pass()
                except Exception as error:  # noqa: BLE001 - whatever a store raises, the loop continues
                    self._log_failure("a reconciler cannot list entities", error)
                until_ms = started_ms + self._reconciler.every_ms
                await self._ask(lambda: not (self._queue.waiting or self._running), until_ms)
                self._report(self._clock.now_ms() - started_ms)
                await self._ask(lambda: False, until_ms)
        finally:
            for task in self._running:
                task.cancel()
            await asyncio.gather(*self._running, return_exceptions=True)

    async def _pass(self) -> None:
        """Ask about all entities that stay too long, up to a limit per pass."""
        reconciler, listed = self._reconciler, 0
        before_ms = self._clock.now_ms() - reconciler.older_ms
        while listed < RECONCILE_PASS_MAX:
            query = EntityQuery(
                kind=reconciler.kind,
                state=reconciler.state,
                entered_before_ms=before_ms + 1,
                after=self._cursor,
                limit=RECONCILE_PAGE,
            )
            page = await self._runtime.list(query)
            for row in page.rows:
                self._queue.add(row.entity, row)
            listed += len(page.rows)
            await self._ask(lambda: not self._queue.waiting)
            self._cursor = page.after
            if page.after is None:
                return

    async def _ask(self, is_enough: Callable[[], bool], until_ms: float | None = None) -> None:
        """Ask about the entities in the queue, until it is enough or the time is over; running calls then continue."""
        while True:
            now_ms = self._clock.now_ms()
            while len(self._running) < self._reconciler.running_max and (found := self._queue.take(now_ms)):
                task = asyncio.ensure_future(self._reconcile(*found))
                self._running.add(task)
                task.add_done_callback(self._running.discard)
            if is_enough() or (until_ms is not None and not 0 < until_ms - now_ms <= self._reconciler.every_ms):
                return
            is_full = len(self._running) >= self._reconciler.running_max
            next_ms = None if is_full else self._queue.next_ms()
            # No sleep is longer than the pause between passes: a later time comes from a clock that was ahead.
            longest_ms = self._reconciler.every_ms
            sleep: Awaitable[object] | None = None
            if next_ms is not None and (until_ms is None or next_ms <= until_ms):
                sleep = self._clock.sleep_ms(min(next_ms - now_ms, longest_ms))
            elif until_ms is not None:
                wait_ms = min(until_ms - now_ms, longest_ms)
                sleep = wait_to_poll(self._clock, wait_ms, at_most_ms=wait_ms)
            await wait_or_timeout(sleep, *self._running)

    # One entity

    async def _reconcile(self, entity: str, row: EntityRow) -> None:
        """Ask about one entity, and send it the resulting event."""
        gate = self._runtime.gate
        permit: AdmissionPermit | None = nullcontext() if gate is None else gate.try_enter()
        if permit is None:  # the process is stopping
            self._queue.done(entity)
            return
        self._counts["entities"] += 1
        with permit:
            try:
                self._counts[await self._outcome(row)] += 1
            except Exception as error:  # noqa: BLE001 - whatever the function raises concerns this entity only
                self._counts["failures"] += 1
                now_ms, chance = self._clock.now_ms(), self._clock.jitter()
                next_ms = self._queue.failed(entity, row, now_ms=now_ms, chance=chance)
                self._log_failure("a reconciler failed", error, entity_id=entity, next_ms=round(next_ms))
            else:
                self._queue.done(entity)

    async def _outcome(self, row: EntityRow) -> str:
        try:
            snapshot = await self._runtime.state(row.entity)
        except NotFoundError:
            return "changed_meanwhile"
        if snapshot.version != row.version:
            return "changed_meanwhile"  # the next pass decides whether it still stays too long
        desired = None if self._reconciler.desired is None else _at(snapshot.context, self._reconciler.desired)
        request = ReconcileRequest(
            row.entity,
            row.version,
            row.configuration,
            snapshot.context,
            row.entered_ms,
            self._clock.now_ms(),
            desired,
        )
        result = self._result(request, await self._call(request))
        return "content" if result is None else await self._send(request, result)

    def _result(self, request: ReconcileRequest, found: Any) -> ReconcileResult | None:
        """Return the event that the function wants to send. Raises RejectedError when it returned something else."""
        if self._reconciler.desired is not None:
            if found == request.desired:
                return None
            return ReconcileResult(self._reconciler.drift, {"desired": request.desired, "observed": found})
        if found is None or isinstance(found, ReconcileResult):
            return found
        hint = "return interlock.ReconcileResult(event, payload), or None"
        message = f"expected a ReconcileResult or None, got {found!r:.60}"
        raise RejectedError(message, code="reconcile.answer", hint=hint)

    async def _send(self, request: ReconcileRequest, result: ReconcileResult) -> str:
        name = self._reconciler.name
        if self._lease is None or self._until_ms <= self._clock.now_ms():
            return "changed_meanwhile"  # to another process, which asks again
        try:
            receipt = await self._runtime.submit(
                request.entity,
                result.event,
                result.payload,
                key=reconcile_key(name, request.version),
                expected=request.version,
                principal={"id": f"reconciler/{name}", "kind": "system", "roles": ["system"]},
            )
        except ConflictError:
            return "changed_meanwhile"
        except UsageError as error:
            if error.code != "key.reused":
                raise
            return "changed_meanwhile"  # another process saw this version too, and its event came first
        if receipt.outcome in ("rejected", "denied"):
            message = receipt.explanation or f"`{result.event}` was {receipt.outcome}: {receipt.reason}"
            hint = "let the chart accept this event, from the role `system`"
            raise RejectedError(message, code="reconcile.refused", hint=hint)
        return "events_sent"

    async def _call(self, request: ReconcileRequest) -> Any:
        """Return what the function returns. Raises UnavailableError when it takes too long; then it is stopped."""
        call = asyncio.ensure_future(call_in_loop(self._reconciler.function, request))
        try:
            await wait_or_timeout(self._clock.sleep_ms(self._reconciler.timeout_ms), call)
            if call.done() and not call.cancelled():
                return result_of(call)
        finally:
            await self._stop_call(call)
        message = f"no result in {self._reconciler.timeout_ms} ms"
        raise UnavailableError(message, code="reconcile.timeout", hint="set a longer `timeout`, or do less per call")

    async def _stop_call(self, call: asyncio.Future[Any]) -> None:
        """Cancel a call; one that ignores its cancellation is left running."""
        if call.done():
            return
        call.cancel()
        try:
            await wait_or_timeout(self._clock.sleep_ms(STOP_MS_MAX), call)
        finally:
            call.add_done_callback(lambda each: each.cancelled() or each.exception())  # mark it as retrieved

    # Logging

    def _report(self, duration_ms: int) -> None:
        counts, self._counts = self._counts, Counter()
        self.last = PassReport(
            counts["entities"], counts["events_sent"], counts["changed_meanwhile"], counts["failures"], duration_ms
        )
        facts = {"reconciler": self._reconciler.name, "kind": self._reconciler.kind, **asdict(self.last)}
        _log.info("a reconciler made a pass", extra=facts)

    def _log_failure(self, message: str, error: Exception, **fields: object) -> None:
        log_failure(_log, message, error, reconciler=self._reconciler.name, **fields)


def _at(value: Any, path: tuple[str, ...]) -> Any:
    """Return the value at a path of a context; None when it is missing."""
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value

"""Reconcilers: loops that ask about entities which rest in a state for too long, and give them the answers.

Rule 1: one runner per reconciler, whoever holds its lease; when that one dies the lease lapses and another goes on.
Rule 2: what is asked about is listed anew each pass, oldest first, page by page. Nothing is remembered but failures,
and where a pass that had too much to do left off.
Rule 3: an answer is for the version that was seen: its key is made from that, and an entity that went on meanwhile does
not get it. Two runners at once could therefore do no harm; the lease only spares the service that is asked.
Rule 4: a function that raises, hangs or talks nonsense delays its own entity, longer each time, and nobody else.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

from interlock.effects.retry import failure_from
from interlock.effects.user_functions import call_in_loop, result_of
from interlock.errors import ConflictError, InterlockError, NotFoundError, RejectedError, UnavailableError, UsageError
from interlock.model.keys import reconcile_key
from interlock.model.limits import LEASE_MS, RECONCILE_PAGE, RECONCILE_PASS_MAX, STOP_MS_MAX
from interlock.ports.admission import AdmissionPermit
from interlock.ports.clock import wait_to_poll
from interlock.ports.leases import Lease, LeaseStore
from interlock.ports.reconcile import Reconciler, ReconcileRequest, ReconcileResult
from interlock.ports.store import EntityQuery, EntityRow
from interlock.runtime.reconcile.queue import KeyedQueue
from interlock.runtime.runtime import Runtime

_log = logging.getLogger("interlock.reconcile")


class PassReport(Struct, frozen=True):
    """What one pass came to: entities asked about, answers given, entities that had moved on, and failures."""

    asked: int = 0
    answered: int = 0
    moved: int = 0
    failed: int = 0
    duration_ms: int = 0


class ReconcilerGroup:
    """Runs the reconcilers of a runtime, from `start` to `stop`."""

    def __init__(self, runtime: Runtime, reconcilers: tuple[Reconciler, ...], *, lease_ms: int = LEASE_MS) -> None:
        if not isinstance(runtime.store, LeaseStore):
            message = f"a {type(runtime.store).__name__} keeps no leases"
            raise UnavailableError(message, code="store.leases", hint="run reconcilers on a store that keeps them")
        owner = runtime.clock.token()
        self._runners = [
            ReconcilerLoop(runtime, runtime.store, each, owner=owner, lease_ms=lease_ms) for each in reconcilers
        ]
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Begin to look."""
        self._tasks = [asyncio.ensure_future(each.run()) for each in self._runners]

    async def stop(self) -> None:
        """Look no more, and let others take over at once."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(each.give_back() for each in self._runners))


class ReconcilerLoop:
    """The loop of one reconciler in one process."""

    def __init__(
        self, runtime: Runtime, leases: LeaseStore, reconciler: Reconciler, *, owner: str, lease_ms: int = LEASE_MS
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

    # Who runs

    async def run(self) -> None:
        """Look whenever the lease is ours. An endless loop by intent; it ends when it is cancelled."""
        while True:
            if not await self._take():
                await wait_to_poll(self._clock, self._lease_ms / 3, at_most_ms=self._lease_ms / 3)
                continue
            loops = {asyncio.ensure_future(self._holding()), asyncio.ensure_future(self._looking())}
            try:
                await asyncio.wait(loops, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for each in loops:
                    each.cancel()
                await asyncio.gather(*loops, return_exceptions=True)

    async def give_back(self) -> None:
        """Let go of the lease, if it is ours."""
        lease, self._lease = self._lease, None
        if lease is not None:
            try:
                await self._leases.give_back(lease)
            except Exception as error:  # noqa: BLE001 - it lapses by itself
                self._say("a lease cannot be given back", error)

    async def _take(self) -> bool:
        """Take the lease, or hold it longer; False when it is another's, or nobody can say."""
        now_ms = self._clock.now_ms()
        until_ms = now_ms + self._lease_ms
        name = f"reconcile/{self._reconciler.name}"
        try:
            lease = await self._leases.lease(name, owner=self._owner, now_ms=now_ms, until_ms=until_ms)
        except Exception as error:  # noqa: BLE001 - whatever a store raises, the loop goes on
            self._say("a lease cannot be taken", error)
            return False
        self._lease = lease
        if lease is not None:
            self._until_ms = until_ms  # by our own clock, from before we asked: the store may go by another
        return lease is not None

    async def _holding(self) -> None:
        """Hold the lease; ends when it is lost, or may be lost before it can be renewed."""
        while self._lease is not None:
            await wait_to_poll(self._clock, self._lease_ms / 3, at_most_ms=self._lease_ms / 3)
            if not await self._take() and self._clock.now_ms() + self._lease_ms / 3 >= self._until_ms:
                return

    # What is asked about

    async def _looking(self) -> None:
        """One pass after the other. Endless by intent; it ends with the lease, and begins anew with the next."""
        self._queue, self._cursor = KeyedQueue(rate=self._reconciler.rate), None
        try:
            while True:
                began_ms = self._clock.now_ms()
                try:
                    await self._pass()
                except Exception as error:  # noqa: BLE001 - whatever a store raises, the loop goes on
                    self._say("a reconciler cannot list entities", error)
                until_ms = began_ms + self._reconciler.every_ms
                await self._ask(lambda: not (self._queue.waiting or self._running), until_ms)
                self._tell(self._clock.now_ms() - began_ms)
                await self._ask(lambda: False, until_ms)
        finally:
            for task in self._running:
                task.cancel()
            await asyncio.gather(*self._running, return_exceptions=True)

    async def _pass(self) -> None:
        """Ask about all that rests too long, or about so many of them that others get their turn."""
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

    async def _ask(self, enough: Callable[[], bool], until_ms: float | None = None) -> None:
        """Ask about what is in the queue, until that is enough or a time has come; what is in hand then goes on."""
        while True:
            now_ms = self._clock.now_ms()
            while len(self._running) < self._reconciler.running_max and (found := self._queue.take(now_ms)):
                task = asyncio.ensure_future(self._asked(*found))
                self._running.add(task)
                task.add_done_callback(self._running.discard)
            if enough() or (until_ms is not None and not 0 < until_ms - now_ms <= self._reconciler.every_ms):
                return
            full = len(self._running) >= self._reconciler.running_max
            next_ms = None if full else self._queue.next_ms()
            waits: set[asyncio.Future[Any]] = set(self._running)
            # No sleep is longer than the pause between passes: a later time comes from a clock that was ahead.
            longest_ms = self._reconciler.every_ms
            sleep: asyncio.Future[Any] | None = None
            if next_ms is not None and (until_ms is None or next_ms <= until_ms):
                sleep = asyncio.ensure_future(self._clock.sleep_ms(min(next_ms - now_ms, longest_ms)))
            elif until_ms is not None:
                wait_ms = min(until_ms - now_ms, longest_ms)
                sleep = asyncio.ensure_future(wait_to_poll(self._clock, wait_ms, at_most_ms=wait_ms))
            if sleep is not None:
                waits.add(sleep)
            try:
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            finally:
                if sleep is not None:
                    sleep.cancel()

    # One entity

    async def _asked(self, entity: str, row: EntityRow) -> None:
        """Ask about one entity, and give it the answer."""
        permit: AdmissionPermit | None = nullcontext() if self._runtime.door is None else self._runtime.door.try_enter()
        if permit is None:  # the process is to stop
            self._queue.done(entity)
            return
        self._counts["asked"] += 1
        with permit:
            try:
                self._counts[await self._outcome(row)] += 1
            except Exception as error:  # noqa: BLE001 - whatever the function raises concerns this entity only
                self._counts["failed"] += 1
                now_ms, jitter = self._clock.now_ms(), self._clock.jitter()
                next_ms = self._queue.failed(entity, row, now_ms=now_ms, jitter=jitter)
                self._say("a reconciler failed", error, entity_id=entity, next_ms=round(next_ms))
            else:
                self._queue.done(entity)

    async def _outcome(self, row: EntityRow) -> str:
        try:
            snapshot = await self._runtime.state(row.entity)
        except NotFoundError:
            return "moved"
        if snapshot.version != row.version:
            return "moved"  # whether it still rests too long is for the next pass to say
        desired = None if self._reconciler.desired is None else _at(snapshot.context, self._reconciler.desired)
        seen = ReconcileRequest(
            row.entity,
            row.version,
            row.configuration,
            snapshot.context,
            row.entered_ms,
            self._clock.now_ms(),
            desired,
        )
        answer = self._answer(seen, await self._called(seen))
        return "content" if answer is None else await self._given(seen, answer)

    def _answer(self, seen: ReconcileRequest, found: Any) -> ReconcileResult | None:
        """What the function wants the entity to have. Raises RejectedError when that is no answer."""
        if self._reconciler.desired is not None:
            if found == seen.desired:
                return None
            return ReconcileResult(self._reconciler.drift, {"desired": seen.desired, "observed": found})
        if found is None or isinstance(found, ReconcileResult):
            return found
        hint = "return interlock.Answer(event, payload), or None"
        raise RejectedError(f"{found!r:.60} is no answer", code="reconcile.answer", hint=hint)

    async def _given(self, seen: ReconcileRequest, answer: ReconcileResult) -> str:
        name = self._reconciler.name
        if self._lease is None or self._until_ms <= self._clock.now_ms():
            return "moved"  # to another runner, which asks again
        try:
            receipt = await self._runtime.submit(
                seen.entity,
                answer.event,
                answer.payload,
                key=reconcile_key(name, seen.version),
                expected=seen.version,
                principal={"id": f"reconciler/{name}", "kind": "system", "roles": ["system"]},
            )
        except ConflictError:
            return "moved"
        except UsageError as error:
            if error.code != "key.reused":
                raise
            return "moved"  # another runner saw this version too, and what it was told came first
        if receipt.outcome in ("rejected", "denied"):
            message = f"`{answer.event}` is {receipt.outcome}: {receipt.reason}"
            raise RejectedError(message, code="reconcile.refused", hint="let the chart take it, from the role `system`")
        return "answered"

    async def _called(self, seen: ReconcileRequest) -> Any:
        """What the function gives. Raises UnavailableError when it takes too long; then it is stopped."""
        work = asyncio.ensure_future(call_in_loop(self._reconciler.function, seen))
        late = asyncio.ensure_future(self._clock.sleep_ms(self._reconciler.timeout_ms))
        try:
            await asyncio.wait({work, late}, return_when=asyncio.FIRST_COMPLETED)
            if work.done() and not work.cancelled():
                return result_of(work)
        finally:
            late.cancel()
            await self._stopped(work)
        message = f"no answer in {self._reconciler.timeout_ms} ms"
        raise UnavailableError(message, code="reconcile.timeout", hint="give it a longer `timeout`, or a shorter task")

    async def _stopped(self, work: asyncio.Future[Any]) -> None:
        """End a call; one that swallows its cancellation is left to itself."""
        if work.done():
            return
        work.cancel()
        patience = asyncio.ensure_future(self._clock.sleep_ms(STOP_MS_MAX))
        try:
            await asyncio.wait({work, patience}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            patience.cancel()
            work.add_done_callback(lambda each: each.cancelled() or each.exception())  # it is nobody's any more

    # What is told

    def _tell(self, duration_ms: int) -> None:
        counts, self._counts = self._counts, Counter()
        self.last = PassReport(counts["asked"], counts["answered"], counts["moved"], counts["failed"], duration_ms)
        facts = {"reconciler": self._reconciler.name, "kind": self._reconciler.kind, **asdict(self.last)}
        _log.info("a reconciler looked", extra=facts)

    def _say(self, message: str, error: Exception, **facts: object) -> None:
        """Tell what went wrong; with its traceback when nobody expected it."""
        expected = isinstance(error, InterlockError)
        facts |= {"reconciler": self._reconciler.name, "code": failure_from(error).code}
        _log.warning(message, exc_info=None if expected else error, extra=facts)


def _at(value: Any, path: tuple[str, ...]) -> Any:
    """The value at a path of a context; None where there is none."""
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value

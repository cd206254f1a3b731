"""The activities: one attempt of a handler, an event for another entity, a look at one, and a write to the mirror.

Rule 1: an attempt is run by the same `HandlerRunner` as in our own worker, which also decides whether it is tried
again. The delay is handed to Temporal with the failure.
Rule 2: how often an attempt failed, and the details that its handler reported, are in the details of the heartbeats:
Temporal keeps them from one attempt to the next. It counts attempts itself.
Rule 3: a heartbeat is sent at a third of the lease. A worker that gives none for a lease is dead.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace
from temporalio import activity
from temporalio.exceptions import ApplicationError

from interlock.effects.handlers import HandlerRunner, Success
from interlock.effects.lanes import RunningWork
from interlock.effects.pauses import HandlerPauses
from interlock.engines.temporal.child_plan import ChildPlanner
from interlock.engines.temporal.host import Host
from interlock.engines.temporal.store import TemporalStore
from interlock.engines.temporal.wire import (
    CHILD,
    DELIVER,
    EFFECT,
    EXAMINE,
    MIRROR,
    ChildCall,
    ChildPlan,
    Delivered,
    Delivery,
    EffectCall,
    EffectResult,
    EntityView,
    MirrorCall,
)
from interlock.errors import UsageError
from interlock.model.journal.entry import Receipt
from interlock.model.journal.work import WorkId
from interlock.model.limits import POLL_MS_MAX
from interlock.ports.clock import Clock, SystemClock
from interlock.ports.delivery import Child, TimersFired
from interlock.ports.engine import EngineWorker
from interlock.ports.work import Claim, Settlement, WorkPage, WorkQuery, WorkRow
from interlock.runtime.worker.process_pool import ProcessPool

RETRY = "interlock.retry"
"""The type of the error after which Temporal tries an effect again, at the time that our policy says."""


class Beat(Struct, frozen=True, omit_defaults=True):
    """The details of a heartbeat: failed attempts, attempts that were never started, and their state."""

    failures: int = 0
    skipped: int = 0
    facts: dict[str, Any] | None = None


class EffectActivities:
    """Runs handlers for Temporal."""

    def __init__(self, worker: EngineWorker, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._beat_s = worker.lease_ms / 3_000
        self._processes = ProcessPool(self._clock.token())
        self._reported = _Reported()
        self._runner = HandlerRunner(
            worker.handlers,
            _NoDelivery(),
            self._clock,
            key_prefix=worker.key_prefix,
            cpu_handlers=worker.cpu_handlers,
            run_in_process=self._processes.run,
            heartbeats=worker.heartbeats,
            defaults=worker.defaults,
            work=self._reported,  # type: ignore[arg-type]  # it answers the one question that a runner asks
            pauses=HandlerPauses(self._clock, None),
        )

    async def close(self) -> None:
        """End the processes of CPU handlers."""
        await self._processes.close()

    @activity.defn(name=EFFECT)
    async def effect(self, call: EffectCall) -> EffectResult:
        """Run one attempt of an effect."""
        info = activity.info()
        before = _last_beat(info.heartbeat_details)
        if not self._runner.has(call.work.name):
            skipped = replace(before, skipped=before.skipped + 1)
            self._postpone(skipped, POLL_MS_MAX, f"no handler `{call.work.name}` here")
        attempts = call.attempts + info.attempt - before.skipped
        failures = call.failures + before.failures
        work = RunningWork(Claim(call.entity, call.work, attempts, failures))
        with self._reported.holding(work.claim, before.facts):
            beating = asyncio.ensure_future(self._beat(work, before))
            try:
                ended = await self._run(work)
            finally:
                beating.cancel()
        if isinstance(ended, Success):
            return EffectResult(ended.value, attempts=attempts, failures=failures)
        if not isinstance(ended, Settlement):
            failure = msgspec.to_builtins(ended.failure)
            return EffectResult(failure=failure, attempts=attempts, failures=failures, facts=work.facts())
        if ended.verdict == "done":
            return EffectResult(attempts=attempts, failures=failures, is_settled=True)
        beat = Beat(
            before.failures + (not ended.without_failure),
            before.skipped + (not ended.started),
            ended.error if isinstance(ended.error, dict) else None,
        )
        message = "" if beat.facts is None else str(beat.facts.get("message", ""))
        return self._postpone(beat, ended.next_ms - self._clock.now_ms(), message)

    def _postpone(self, beat: Beat, wait_ms: int, message: str) -> EffectResult:
        """Raise the error by which Temporal tries the effect again later."""
        activity.heartbeat(beat)
        delay = timedelta(milliseconds=max(1, wait_ms))
        raise ApplicationError(message or "tried again later", type=RETRY, next_retry_delay=delay)

    async def _run(self, work: RunningWork) -> Any:
        """Run an attempt. When Temporal cancels it, the handler is notified as by our worker; its outcome counts."""
        running = asyncio.ensure_future(self._runner.run(work))
        while True:
            try:
                return await asyncio.shield(running)
            except asyncio.CancelledError:
                details = activity.cancellation_details()
                if running.cancelled() or details is None or not details.cancel_requested:
                    running.cancel()  # the worker stops, or the attempt is another worker's by now
                    raise
                work.update(replace(work.claim, cancelled=True))

    async def _beat(self, work: RunningWork, before: Beat) -> None:
        while True:  # it is cancelled when the attempt ends; one that ends sooner gives no heartbeat
            await asyncio.sleep(self._beat_s)
            facts = work.facts() or before.facts
            activity.heartbeat(replace(before, facts=facts))


class EntityActivities:
    """Delivers events to entities and entries to the mirror."""

    def __init__(self, store: TemporalStore, host: Host) -> None:
        self._store = store
        self._planner = ChildPlanner(host, store)

    @activity.defn(name=CHILD)
    async def child(self, call: ChildCall) -> ChildPlan:
        """Return the creation of a child."""
        return await self._planner.plan(call)

    @activity.defn(name=DELIVER)
    async def deliver(self, delivery: Delivery) -> Delivered:
        """Deliver an event to another entity."""
        outcome = await self._store.receive(delivery, attempt=activity.info().attempt)
        if outcome.outcome == "later":
            raise ApplicationError("the receiver is not ready", type=RETRY, next_retry_delay=timedelta(seconds=1))
        return outcome

    @activity.defn(name=EXAMINE)
    async def examine(self, entity: str) -> EntityView | None:
        """Return an entity."""
        return await self._store.view(entity)

    @activity.defn(name=MIRROR)
    async def mirror(self, call: MirrorCall) -> None:
        """Write entries to the mirror."""
        await self._store.write_mirror(call)


def _last_beat(details: Sequence[Any]) -> Beat:
    with suppress(msgspec.ValidationError):
        return msgspec.convert(details[0], Beat) if details else Beat()
    return Beat()


class _Reported:
    """What earlier attempts reported, as a runner asks for it."""

    def __init__(self) -> None:
        self._facts: dict[tuple[str, WorkId], WorkRow] = {}

    def holding(self, claim: Claim, facts: dict[str, Any] | None) -> _Holding:
        """For a block, know what was reported for a claim."""
        row = WorkRow(claim.entity, claim.work, claim.attempt, claim.failures, None, error=facts)
        return _Holding(self._facts, row)

    async def list_work(self, query: WorkQuery) -> WorkPage:
        """Return the details of one piece of work."""
        assert query.entity is not None
        assert query.id is not None
        row = self._facts.get((query.entity, query.id))
        return WorkPage(() if row is None else (row,))


class _Holding:
    def __init__(self, rows: dict[tuple[str, WorkId], WorkRow], row: WorkRow) -> None:
        self._rows, self._row = rows, row

    def __enter__(self) -> None:
        self._rows[self._row.entity, self._row.work.id] = self._row

    def __exit__(self, *_: object) -> None:
        self._rows.pop((self._row.entity, self._row.work.id), None)


class _NoDelivery:
    """The delivery of a runner whose results are delivered by the workflow."""

    async def has_chart(self, entity: str) -> bool:
        """Return True: the workflow has it."""
        return bool(entity)

    async def opened(self, value: Any) -> Any:
        """Return the input as it is: charts with personal data do not run on an engine."""
        return value

    async def deliver(self, *_: Any, **__: Any) -> Receipt:
        """Raise UsageError."""
        raise _for_the_workflow()

    async def fire_timers(self, *_: Any, **__: Any) -> TimersFired:
        """Raise UsageError."""
        raise _for_the_workflow()

    async def start_child(self, *_: Any, **__: Any) -> Child:
        """Raise UsageError."""
        raise _for_the_workflow()

    async def find_child(self, *_: Any, **__: Any) -> Child | None:
        """Raise UsageError."""
        raise _for_the_workflow()


def _for_the_workflow() -> UsageError:
    return UsageError("results are delivered by the workflow of the entity", code="engine.unsupported")

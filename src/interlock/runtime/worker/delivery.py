"""Delivery to entities: results, timers, messages and children, each an event through the sender.

Rule 1: every delivery has a key of the runtime, made from the work it finishes: repeated, it counts once.
Rule 2: timers fire in the order in which they are due, one step each, on the snapshot of that moment.
Rule 3: a timer that downtime shifts is shifted by a separate entry before it fires, so that replay sees the same.
Where the store records no downtime, every timer keeps its deadline, unless a hold of its kind shifted it. In a held
entity no timer fires.
Rule 4: a timer that counts from a time in the future was set under a wrong clock. It is shifted likewise, to count from
now. Only an entity whose time is ahead of the clock can have one.
"""

from __future__ import annotations

import logging
from collections.abc import Container, Coroutine, Mapping
from typing import Any, Protocol

from interlock.effects.timers import shift_for_times
from interlock.errors import CompactedError, NotFoundError, RejectedError, UnavailableError
from interlock.kernel.step import Kernel
from interlock.model.actor import whom_of
from interlock.model.driver_events import timer_fired, timer_moved
from interlock.model.event import Event
from interlock.model.held import HELD_FIELD
from interlock.model.journal.attempts import PastAttempt
from interlock.model.journal.cause import NO_CAUSES, Cause, cause_of
from interlock.model.journal.entry import CREATE, Entry, Receipt
from interlock.model.journal.work import EPOCH, WorkId
from interlock.model.limits import CHILD_DEPTH_MAX, CLOCK_AHEAD_MS_MAX, TIMERS_MAX
from interlock.model.personal_token import KEY_FIELD, contains_token
from interlock.model.snapshot import Parent, Snapshot, Timer
from interlock.ports.clock import Clock
from interlock.ports.delivery import Child, TimersFired
from interlock.ports.leases import Downtime
from interlock.ports.work import Claim
from interlock.runtime.charts.registry import check_child_depth, child_context, child_entity
from interlock.runtime.charts.revisions import Revisions
from interlock.runtime.entities.entities import Entities
from interlock.runtime.entities.mover import EntityMover
from interlock.runtime.entities.sender import EntitySender
from interlock.runtime.history.removed import beginning
from interlock.runtime.vault import missing_keyring
from interlock.runtime.worker.downtime import DowntimeMonitor

_log = logging.getLogger("interlock.runtime")

_COMPENSATED = "compensated"
"""The reason of an entry that compensates a step whose result came after the saga was left."""


class DeliveryHost(Protocol):
    """What a delivery needs of the driver that it delivers for: a `Runtime`, or an entity in an engine."""

    @property
    def entities(self) -> Entities:
        """The entities of its connection."""

    @property
    def revisions(self) -> Revisions:
        """Which chart runs an entity."""

    @property
    def clock(self) -> Clock:
        """Its clock."""

    @property
    def mover(self) -> EntityMover:
        """Moves entities to another revision."""

    @property
    def sender(self) -> EntitySender:
        """Sends events to entities."""

    async def state(self, entity: str) -> Snapshot:
        """Return the entity now."""

    async def journal(self, entity: str, *, after: int = 0, limit: int | None = None) -> tuple[Entry, ...]:
        """Return the entries after a version."""


class EntityDelivery:
    """Delivers the results of work to entities."""

    def __init__(self, runtime: DeliveryHost, downtime: DowntimeMonitor | None = None) -> None:
        self._runtime = runtime
        self._sender = runtime.sender
        self._mover = runtime.mover
        self._entities = runtime.entities
        self._clock = runtime.clock
        self._downtime = downtime

    def has_chart(self, entity: str) -> Coroutine[Any, Any, bool]:
        """Whether this process has the entity's chart."""
        return self._entities.has_chart(entity)

    def deliver(
        self,
        entity: str,
        event: Event,
        *,
        key: str,
        finishes: WorkId | None = None,
        fence: int | None = None,
        cause: Cause | None = None,
        attempts: tuple[PastAttempt, ...] = (),
    ) -> Coroutine[Any, Any, Receipt]:
        """Send an entity an event of the runtime itself."""
        return self._sender.deliver(
            entity, event, key=key, finishes=finishes, fence=fence, cause=cause, attempts=attempts
        )

    # Personal data

    async def opened(self, value: Any) -> Any:
        """Return the input of a handler with its personal values opened."""
        vault = self._entities.process.vault
        if vault is not None:
            return await vault.open(value, fails=True)
        if contains_token(value):
            raise missing_keyring()
        return value

    # Timers

    async def fire_timers(self, entity: str, *, causes: Mapping[WorkId, Cause] = NO_CAUSES) -> TimersFired:
        """Fire every timer that is due."""
        fired: set[WorkId] = set()
        waiting: dict[WorkId, int] = {}
        refused: dict[WorkId, RejectedError] = {}
        for _ in range(3 * TIMERS_MAX):  # each may be shifted, twice, and each may fire
            try:
                await self._mover.upgrade(entity)  # first: the timers of the newest chart may be others
                snapshot, last_ms = await self._entities.load_snapshot(entity)
            except NotFoundError:
                return TimersFired(frozenset(fired), {})
            if last_ms > self._clock.now_ms() + CLOCK_AHEAD_MS_MAX and await self._rebase_timer(snapshot, refused):
                continue
            waiting = {WorkId("timer", each.version, each.ordinal): each.due_ms for each in snapshot.timers}
            if HELD_FIELD in snapshot.context:
                break
            timer = _next_due(snapshot, self._clock.now_ms(), refused)
            if timer is None:
                break
            work_id = WorkId("timer", timer.version, timer.ordinal)
            moved = await self._moved_event(entity, timer)
            cause = causes.get(work_id)
            if cause is None and causes:  # it is due together with one that has a cause
                cause = await self._cause_of(entity, timer)
            try:
                if moved is not None:
                    key = f"_moved{work_id.result_key}/{moved.data['since_ms']}"
                    receipt = await self.deliver(entity, moved, key=key, cause=cause)
                else:
                    event = timer_fired(timer, time_ms=timer.due_ms)
                    receipt = await self.deliver(entity, event, key=work_id.result_key, finishes=work_id, cause=cause)
            except RejectedError as error:  # the step would be too large: the other timers still fire
                refused[work_id] = error
                continue
            if receipt.version <= snapshot.version:  # another process fired it first, or it has just been cancelled
                break
            if moved is None:
                fired.add(work_id)
                meter = self._entities.process.meter
                if meter is not None:
                    meter.fired(snapshot.kind, max(0, self._clock.now_ms() - timer.due_ms))
        return TimersFired(frozenset(fired), waiting, refused)

    async def _cause_of(self, entity: str, timer: Timer) -> Cause | None:
        """Return the cause of a timer whose work was not claimed: it is that of the entry which set it."""
        try:
            (entry,) = await self._runtime.journal(entity, after=timer.version - 1, limit=1)
        except NotFoundError:  # it is archived
            return None
        return Cause(entry.trace, entry.event.time_ms, entry.originator or whom_of(entry.event.principal))

    async def _rebase_timer(self, snapshot: Snapshot, refused: dict[WorkId, RejectedError]) -> bool:
        """Shift the first timer that counts from the future, to count from now; whether there was one."""
        now_ms = self._clock.now_ms()
        for timer in snapshot.timers:
            work_id = WorkId("timer", timer.version, timer.ordinal)
            if timer.due_ms <= now_ms or work_id in refused:
                continue
            since_ms = await self._since_ms(snapshot.entity, timer)
            if since_ms <= now_ms + CLOCK_AHEAD_MS_MAX:
                continue
            moved = timer_moved(timer, due_ms=now_ms + max(0, timer.due_ms - since_ms), since_ms=now_ms)
            try:
                receipt = await self.deliver(snapshot.entity, moved, key=f"_moved{work_id.result_key}/{now_ms}")
            except RejectedError as error:  # the step would be too large
                refused[work_id] = error
                continue
            facts = {"entity_id": snapshot.entity, "timer": timer.name, "ahead_ms": since_ms - now_ms}
            _log.warning("a timer that was set by a wrong clock is shifted", extra=facts)
            return receipt.version > snapshot.version
        return False

    async def _since_ms(self, entity: str, timer: Timer) -> int:
        """Return from when a timer counts."""
        if timer.since_ms is not None:
            return timer.since_ms
        (entry,) = await self._runtime.journal(entity, after=timer.version - 1, limit=1)
        return entry.event.time_ms

    async def _moved_event(self, entity: str, timer: Timer) -> Event | None:
        """Return the event by which downtime and holds of the kind shift a timer that is due; None when it fires."""
        keeps_deadline = timer.restore == "deadline"
        past = self._entities.holds.past(entity.partition("/")[0])
        times = [Downtime(each.started_ms, each.ended_ms) for each in past if each.shifts or not keeps_deadline]
        has_downtime = self._downtime is not None and not keeps_deadline
        if not times and not has_downtime:
            return None
        since_ms = await self._since_ms(entity, timer)
        if has_downtime and self._downtime is not None:
            times += await self._downtime.downtimes(since_ms=since_ms)
        shift = shift_for_times(times, timer, since_ms)
        return None if shift is None else timer_moved(timer, due_ms=shift.due_ms, since_ms=shift.since_ms)

    # Sagas

    async def is_compensation(self, claim: Claim) -> bool:
        """Whether a saga asked for this work, to compensate one of its steps.

        For an invoke the chart says which states do that. A call does if its entry came from a late result. When the
        entity, the entry or the state no longer exists, because of an archive or another revision, it counts as one.
        """
        body, version = claim.work.body, claim.work.id.version
        try:
            if "id" not in body:
                entries = await self._runtime.journal(claim.entity, after=version - 1, limit=1)
                return all(entry.version != version or entry.reason == _COMPENSATED for entry in entries)
            snapshot = await self._runtime.state(claim.entity)
        except NotFoundError:
            return True
        states = (await self._runtime.revisions.chart(snapshot.kind, snapshot.revision)).states
        sagas = (each.saga_unwind for each in states if each.saga_unwind is not None)
        compensating = {states[each.state].id for saga in sagas for each in saga.compensations}
        return body["state"] in compensating or all(each.id != body["state"] for each in states)

    # Children

    async def start_child(self, parent: str, work_id: WorkId, payload: Any, *, restarts: int) -> Child:
        """Return the child of an invoke, created if it does not exist."""
        above, _ = await self._entities.load_snapshot(parent)
        await self._check_depth(above)
        kernel = await self._child_kernel(above, payload)
        key = work_id.key(parent, epoch=payload.get(EPOCH, 0))
        entity = child_entity(kernel.chart.kind, payload["id"], key, restarts=restarts)
        invoke = Parent(parent, payload["id"], key)
        context, owner = child_context(kernel, payload.get("input")), above.context.get(KEY_FIELD)
        cause = cause_of(payload)
        created = await self._sender.create(entity, kernel, context, parent=invoke, owner=owner, cause=cause)
        self._entities.count(CREATE, created)
        child = await self._child(entity, invoke)
        if child is None:
            raise RejectedError(f"`{entity}` already exists and is not a child of this invoke", code="child.taken")
        return child

    async def find_child(self, parent: str, work_id: WorkId, payload: Any, *, restarts: int) -> Child | None:
        """Return the child that an invoke started, if it exists."""
        try:
            above = await self._runtime.state(parent)
        except NotFoundError:
            return None
        try:
            kernel = await self._child_kernel(above, payload)
        except NotFoundError as error:  # another process may have that chart, and have started the child
            raise UnavailableError(error.message, code=error.code, hint=error.hint) from error
        key = work_id.key(parent, epoch=payload.get(EPOCH, 0))
        entity = child_entity(kernel.chart.kind, payload["id"], key, restarts=restarts)
        try:
            return await self._child(entity, Parent(parent, payload["id"], key))
        except NotFoundError:
            return None

    async def _child_kernel(self, parent: Snapshot, payload: Any) -> Kernel:
        revisions = self._runtime.revisions
        return revisions.for_child(await revisions.for_reading(parent.kind, parent.revision), payload["src"])

    async def _child(self, entity: str, invoke: Parent) -> Child | None:
        """Return the entity if that invoke created it: ids can be guessed, and another caller may have created it."""
        try:
            (created,) = await self._runtime.journal(entity, limit=1)
            created_ms = created.event.time_ms
        except CompactedError as error:
            created_ms = (await beginning(self._runtime.entities.store, error, entity)).created_ms
        snapshot = await self._runtime.state(entity)
        return Child(entity, created_ms, snapshot.ended is not None) if snapshot.parent == invoke else None

    async def _check_depth(self, above: Snapshot) -> None:
        """Raise RejectedError when invokes are nested too deeply."""
        depth, parent = 1, above.parent
        while parent is not None and depth <= CHILD_DEPTH_MAX:
            above = await self._runtime.state(parent.entity)
            depth, parent = depth + 1, above.parent
        check_child_depth(depth)


def _next_due(snapshot: Snapshot, now_ms: int, refused: Container[WorkId]) -> Timer | None:
    late = (each for each in snapshot.timers if each.due_ms <= now_ms)
    due = [each for each in late if WorkId("timer", each.version, each.ordinal) not in refused]
    return min(due, key=lambda each: (each.due_ms, each.version, each.ordinal), default=None)

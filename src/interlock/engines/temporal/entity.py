"""An entity inside its workflow: the sender of `runtime` on a store of one entity, and the work that its steps create.

Rule 1: a step never waits, so the Updates of an entity run one after the other, and a history repeats them so.
Rule 2: the policy is asked by the validator of an Update, whose verdict the history has. Repeating a step does not ask
again: roles may be others by then.
Rule 3: work is a row in the table of the entity, as in any store. The workflow claims all rows that are due and runs
each in a task. The state of a row is part of what one history hands to the next.
Rule 4: an activity whose work was cancelled is notified; its outcome counts as in any runtime.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from datetime import timedelta
from typing import Any, TypeVar

from msgspec.structs import replace
from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, CancelledError

from interlock.effects.children import Children
from interlock.effects.handlers import HandlerRunner, Success
from interlock.effects.lanes import RunningWork
from interlock.effects.outbox import OutboxRelay, Received
from interlock.effects.retry import Failure, GiveUp, failure_from
from interlock.effects.timers import Timers
from interlock.engines.temporal.delivery import WorkflowDelivery, definition_of
from interlock.engines.temporal.entity_store import EntityStore
from interlock.engines.temporal.functions import check_functions
from interlock.engines.temporal.host import Host
from interlock.engines.temporal.search import REVISION, STATE, TAG
from interlock.engines.temporal.wire import (
    EFFECT,
    MIRROR,
    Answer,
    Call,
    Carried,
    EffectCall,
    EffectResult,
    MirrorCall,
    Start,
    error_facts,
)
from interlock.errors import ConflictError, InterlockError, UnavailableError
from interlock.kernel.step import Kernel
from interlock.model.event import Event
from interlock.model.journal.cause import Cause
from interlock.model.journal.entry import Entry, Receipt
from interlock.model.journal.work import CHILD_WORK, LANES, WorkId
from interlock.model.limits import (
    ATTEMPTS_MAX,
    ENGINE_MIRROR_ENTRIES,
    ENGINE_MIRROR_MS,
    ENGINE_RUNNING_MAX,
    POLL_MS_MAX,
)
from interlock.model.snapshot import Snapshot
from interlock.ports.store import Append, Appended
from interlock.ports.work import Claim, Settlement
from interlock.runtime.charts.revisions import Revisions
from interlock.runtime.charts.rollouts import Rollouts
from interlock.runtime.charts.upgrades import Upgrades
from interlock.runtime.direct_calls import drive
from interlock.runtime.entities.entities import Entities, ProcessState
from interlock.runtime.entities.holds import KnownHolds
from interlock.runtime.entities.mover import EntityMover
from interlock.runtime.entities.send_request import SendRequest
from interlock.runtime.entities.sender import EntitySender
from interlock.runtime.history.replay import entries_after
from interlock.runtime.message_setting import MessageSetting

T = TypeVar("T")

NEVER_MS = 2**62
"""Until when the workflow holds its claims: it settles each of them itself."""

ATTEMPT_MAX = timedelta(days=365)
"""The longest time of an attempt. A dead worker is noticed by its heartbeats, and a timeout is the handler's."""

RETRIES = RetryPolicy(initial_interval=timedelta(milliseconds=100), backoff_coefficient=1.0)
"""How Temporal tries an activity again whose worker died. After a failure our own policy names the delay."""


class WorkflowClock:
    """The time of the workflow, or that of the caller if its runtime has its own clock."""

    def __init__(self) -> None:
        self.given_ms: int | None = None

    def now_ms(self) -> int:
        """Return the time of the caller, else the time of the workflow task."""
        return workflow.time_ns() // 1_000_000 if self.given_ms is None else self.given_ms

    async def sleep_ms(self, ms: float) -> None:
        """Wait for a timer of Temporal."""
        await asyncio.sleep(ms / 1000)

    def jitter(self) -> float:
        """Return a random number that a replay gives again."""
        return workflow.random().random()

    def token(self) -> str:
        """Return a new name that a replay gives again."""
        return workflow.uuid4().hex


class WorkflowEntity:
    """One entity."""

    def __init__(self, host: Host, start: Start) -> None:
        self.start = start
        self.settings = start.settings
        self.entity = start.entity
        self.is_dirty = True
        self.clock = WorkflowClock()
        self.store = EntityStore(host.definitions, self._appended, mirrored=start.settings.mirrored)
        self._carry_definition(host, start)
        self.revisions = Revisions(host.charts, self.store, host.clock, known=host.known, is_direct=True)
        process = ProcessState(host.charts, self.clock, keeps_work=True)
        process.listed, process.epoch = host.listed, 0
        rollouts = Rollouts(None, self.clock)
        self.entities = Entities(
            self.store,
            process,
            self.revisions,
            Upgrades(host.charts, self.revisions, host.rules, rollouts),
            MessageSetting(None, self.clock),
            rollouts,
            host.audit,
            KnownHolds(None, self.clock),
            tries_max=1,
        )
        self.mover = EntityMover(self.entities)
        self.sender = EntitySender(self.entities, self.mover, authorizes=False)
        self._asking = EntitySender(self.entities, self.mover)
        self.delivery = WorkflowDelivery(self)
        self.relay = OutboxRelay(self.store, self.delivery, self.clock, receiver=self)
        self._timers = Timers(self.delivery, self.clock)
        self._children = Children(self.delivery, self.clock, work=self.store)
        self._results = HandlerRunner({}, self.delivery, self.clock)
        self._running: dict[WorkId, _Piece] = {}
        self._alarm: tuple[int, asyncio.Task[None]] | None = None
        self._mirroring: asyncio.Task[None] | None = None
        self._listed: tuple[Any, ...] | None = None
        kernel = _now(self._kernel(start.entity.partition("/")[0], start.revision))
        check_functions(kernel, start.functions)
        if start.carried is None:
            self._create(start, kernel)
        else:
            self.store.restore(start.carried)
        self._listed = self._listing()

    @staticmethod
    def _carry_definition(host: Host, start: Start) -> None:
        carried = start.definition
        if carried is not None:
            host.definitions.carry(definition_of(carried))

    def _create(self, start: Start, kernel: Kernel) -> None:
        """Write entry 1, as the caller has computed it."""
        assert start.event is not None
        data, event = start.event.data, start.event
        parent = self.delivery.parent_of(data)
        step = kernel.start(data["context"], entity=start.entity, time_ms=event.time_ms, parent=parent)
        append = self.entities.appends.build(kernel, None, step, event, start.key, start.trace, reason=start.reason)
        result = _now(self.entities.append(append, step, kernel))
        assert isinstance(result, Appended)

    async def _kernel(self, kind: str, revision: str) -> Kernel:
        return await self.revisions.register(await self.revisions.for_repeating(kind, revision))

    # Updates

    def validate(self, call: Call) -> Answer | None:
        """Return why an Update is refused, which leaves no trace in the history; None when it is accepted."""
        self.clock.given_ms = call.request.time_ms
        try:
            sender = self.sender if call.request.authorized else self._asking
            receipt = _now(sender.dry_run(self.entity, _request(call)))
        except InterlockError as error:
            return Answer(call.call, error=error_facts(error))
        finally:
            self.clock.given_ms = None
            self.entities.snapshots.clear()
        if receipt.outcome == "duplicate":
            return Answer(call.call, self._as_repeated(call, receipt))
        return None if receipt.version > self.store.version else Answer(call.call, receipt)

    def send(self, call: Call) -> Answer:
        """Step the entity."""
        self.clock.given_ms, self.store.call = call.request.time_ms, call.call
        try:
            receipt = _now(self.sender.send(self.entity, _request(call)))
            return Answer(call.call, self._as_repeated(call, receipt))
        except InterlockError as error:
            return Answer(call.call, error=error_facts(error))
        finally:
            self.clock.given_ms = self.store.call = None

    def _as_repeated(self, call: Call, receipt: Receipt) -> Receipt:
        """Return the receipt of a call that Temporal hands over a second time: its own entry is no duplicate."""
        if receipt.outcome != "duplicate":
            return receipt
        if self.store.call_of(receipt.version) != call.call:
            return receipt
        return replace(receipt, outcome="applied", snapshot=self.store.snapshot)

    async def receive(
        self, sender: str, key: str, target: str, event: Event, *, cause: Cause | None = None
    ) -> Received:
        """Deliver an event to this entity, or to the workflow of another one, which does not get the cause."""
        if target == self.entity:
            return await self.relay.receive(sender, key, target, event, cause=cause)
        return await self.delivery.hand_over(sender, f"_sent/{key}", target, event)

    # What a delivery needs of its driver

    async def state(self, entity: str) -> Snapshot:
        """Return the entity."""
        assert entity == self.entity
        return self.store.snapshot

    async def journal(self, entity: str, *, after: int = 0, limit: int | None = None) -> tuple[Entry, ...]:
        """Return the entries after a version."""
        return await entries_after(self.store, entity, after=after, limit=limit)

    # Work

    def _appended(self, append: Append) -> None:
        self.is_dirty = True
        for work_id in append.work.cancelled:
            piece = self._running.get(work_id)
            if piece is not None:
                piece.cancel()

    def run_due_work(self) -> None:
        """Start a task for each piece of work that is due, and set the timer for the next one."""
        self.is_dirty = False
        now_ms, due_ms = workflow.time_ns() // 1_000_000, NEVER_MS
        for lane in LANES:
            room = ENGINE_RUNNING_MAX - len(self._running)
            for claim in self.store.table.claim(
                lane, None, owner=self.entity, now_ms=now_ms, until_ms=NEVER_MS, limit=room
            ):
                piece = self._running[claim.work.id] = _Piece(claim)
                piece.task = asyncio.create_task(self._run(piece))
            due_ms = min(due_ms, self.store.table.next_due_ms(lane, None) or NEVER_MS)
        self._set_alarm(now_ms, due_ms)
        self._list()
        self._mirror()

    def _set_alarm(self, now_ms: int, due_ms: int) -> None:
        """Have a timer of Temporal for the next due work; one that exists for the same time is kept."""
        if len(self._running) >= ENGINE_RUNNING_MAX:
            due_ms = NEVER_MS  # the end of a task wakes it
        if self._alarm is not None:
            set_ms, task = self._alarm
            if set_ms == due_ms and not task.done():
                return
            task.cancel()
            self._alarm = None
        if due_ms < NEVER_MS:
            self._alarm = due_ms, asyncio.create_task(self._wake_in(max(1, due_ms - now_ms)))

    async def _wake_in(self, ms: int) -> None:
        await asyncio.sleep(ms / 1000)
        self.is_dirty = True

    async def _run(self, piece: _Piece) -> None:
        """Run a piece of work, and settle its claim."""
        work = piece.work
        try:
            settlement = await self._perform(piece)
        except InterlockError as error:
            settlement = self._postpone(work, error)
        finally:
            self._running.pop(work.claim.work.id, None)
            self.is_dirty = True
        if settlement is not None:
            self.store.table.settle((replace(settlement, claim=work.claim),), now_ms=self.clock.now_ms())

    def _perform(self, piece: _Piece) -> Coroutine[Any, Any, Settlement | None]:
        work = piece.work
        match work.claim.work.id.lane:
            case "timer":
                return self._timers.perform(work)
            case "outbox":
                return self.relay.perform(work)
            case _:
                is_child = work.claim.work.name == CHILD_WORK
                return self._children.perform(work) if is_child else self._call_handler(piece)

    def _postpone(self, work: RunningWork, error: InterlockError) -> Settlement:
        if work.claim.attempt >= ATTEMPTS_MAX and not isinstance(error, ConflictError | UnavailableError):
            failure = failure_from(error)
            return Settlement(work.claim, "dead", error={"code": failure.code, "message": failure.message})
        return Settlement(work.claim, "again", self.clock.now_ms() + POLL_MS_MAX, without_failure=True)

    async def _call_handler(self, piece: _Piece) -> Settlement | None:
        """Run an effect as an activity, and deliver its result."""
        work, claim = piece.work, piece.work.claim
        if claim.cancelled and not claim.work.is_saga_step:
            return Settlement(claim, "done")  # the state was left before it could start
        given = EffectCall(self.entity, claim.work, claim.attempt - 1, claim.failures)
        piece.activity = workflow.start_activity(
            EFFECT,
            given,
            result_type=EffectResult,
            start_to_close_timeout=ATTEMPT_MAX,
            heartbeat_timeout=timedelta(milliseconds=self.settings.lease_ms),
            retry_policy=RETRIES,
            cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
            summary=f"{claim.work.name} {claim.key}"[:400],
        )
        try:
            result: EffectResult = await piece.activity
        except ActivityError as error:
            if isinstance(error.cause, CancelledError):
                return Settlement(claim, "done")
            failure = Failure("lapsed", "Temporal gave up the activity")
            result = EffectResult(failure={"code": failure.code, "message": failure.message}, attempts=claim.attempt)
        finally:
            piece.activity = None
        row = self.store.table.state(self.entity, claim.work.id)
        if row is None:
            return None  # the entity was cancelled meanwhile
        work.update(self.store.table.count_attempts(claim, attempts=result.attempts, failures=result.failures))
        if result.facts is not None:
            work.restore(result.facts)
        work.deliver_result()
        if result.is_settled:
            return Settlement(work.claim, "done")
        ended = Success(result.value) if result.failure is None else GiveUp(Failure(**result.failure))
        return await self._results.conclude(work, ended)

    @property
    def is_idle(self) -> bool:
        """Whether no piece of work is running, and nothing is being written to the mirror."""
        return not self._running and self._mirroring is None

    @property
    def has_ended(self) -> bool:
        """Whether nothing is left to do for the entity, now or later."""
        if self.store.snapshot.ended is None or not self.is_idle or self.is_dirty:
            return False
        return not self.store.has_work() and not (self.settings.mirrored and self.store.unmirrored)

    def carried(self) -> Carried:
        """Return the entity for the next history."""
        return self.store.carried()

    def stop(self) -> None:
        """Cancel the timer and what still runs: the next history starts both again."""
        if self._alarm is not None:
            self._alarm[1].cancel()
        for piece in self._running.values():
            if piece.task is not None:
                piece.task.cancel()

    # Lists and the mirror

    def _listing(self) -> tuple[Any, ...]:
        return self.store.snapshot.revision, self.store.active, self.store.tags

    def _list(self) -> None:
        """Update the states under which Temporal lists the entity, if they changed."""
        listed, before = self._listing(), self._listed
        if not self.settings.lists or listed == before or before is None:
            return
        self._listed = listed
        changes = [(REVISION, listed[0]), (STATE, listed[1]), (TAG, listed[2])]
        workflow.upsert_search_attributes(
            [key.value_set(new) for (key, new), old in zip(changes, before, strict=True) if new != old]  # type: ignore[attr-defined]  # keys of two types
        )

    def _mirror(self) -> None:
        if self.settings.mirrored and self.store.unmirrored and self._mirroring is None:
            self._mirroring = asyncio.create_task(self._write_mirror())

    async def _write_mirror(self) -> None:
        """Write the entries that the mirror lacks, several in one write."""
        try:
            if self.store.unmirrored < ENGINE_MIRROR_ENTRIES and self.store.snapshot.ended is None:
                await workflow.wait_condition(
                    lambda: self.store.unmirrored >= ENGINE_MIRROR_ENTRIES or self.store.snapshot.ended is not None,
                    timeout=timedelta(milliseconds=ENGINE_MIRROR_MS),
                )
        except TimeoutError:
            pass
        try:
            previous, lines = self.store.mirror_lines()
            await workflow.execute_activity(
                MIRROR,
                MirrorCall(self.entity, lines, previous, self.store.snapshot),
                start_to_close_timeout=timedelta(minutes=5),
                retry_policy=RetryPolicy(initial_interval=timedelta(seconds=1), maximum_interval=timedelta(minutes=1)),
            )
            self.store.unmirrored -= len(lines)
        finally:
            self._mirroring = None
            self.is_dirty = True


class _Piece:
    """A piece of work that runs, its task, and its activity if it has one."""

    def __init__(self, claim: Claim) -> None:
        self.work = RunningWork(claim)
        self.task: asyncio.Task[None] | None = None
        self.activity: asyncio.Task[Any] | None = None

    def cancel(self) -> None:
        """Notify it that its result is not needed. The outcome of a step of a saga must be known."""
        claim = self.work.claim
        self.work.update(replace(claim, cancelled=True))
        if self.activity is not None and not claim.work.is_saga_step:
            self.activity.cancel()


def _request(call: Call) -> SendRequest:
    asked = call.request
    return SendRequest(
        asked.event,
        asked.key,
        asked.expected,
        asked.trace,
        asked.refusal,
        asked.reason,
        asked.finishes,
        asked.fence,
        sent_ms=asked.sent_ms,
    )


def _now(call: Coroutine[Any, Any, T]) -> T:
    """Return the result of a call: everything that it asks is in the memory of the workflow."""
    return drive(call, what="a step of a workflow", code="engine.waited")


def plain_event(event: Event) -> bool:
    """Whether an event is delivered as it is, and does not end the work of a child."""
    return not (event.type == "platform" and event.last)

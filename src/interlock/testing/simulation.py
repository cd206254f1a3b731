"""A driver for tests: entities in memory, a clock that only the test advances, and a fixed order of deliveries.

Rule 1: the kernel computes every step, `work_delta` the work of a step, and `model.driver_events` the events that come
back. The runtime uses the same functions, so an entity gets the same events in both.
Rule 2: work is done in the order in which it was created, across all entities; timers with the same due time fire in
the order in which they were set.
Rule 3: calls and invokes without a handler, and invokes of unknown charts, stay `pending` until the test completes
them, or until their state is left. A pending step of a saga stays: its late result is compensated.
Rule 4: registered guards and assign functions are called twice; a difference is an error (`testing.purity`).
Rule 5: roles and permits apply as in a runtime: to what the test sends, and to what entities send to each other.
Rule 6: a handler that raises, or times out, is called again by the retry policy of its effect, when the clock has been
advanced that far; half of the jitter is chosen. A failed child is not restarted.
Rule 7: an entity that is in a state for longer than its chart expects gets the event of `expect.then`, after the timers
that are due at the same time.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from inspect import iscoroutine
from typing import Any

from msgspec.structs import replace

from interlock.assemble.charts import BoundChart
from interlock.effects.handler_calls import call_asynchronous, call_plain, is_asynchronous
from interlock.effects.handlers import Attempt, Handler, attempt_key, handler_result
from interlock.effects.pauses import pause_end_ms
from interlock.effects.retry import (
    Failure,
    GiveUp,
    HandlerDefaults,
    decide_retry,
    failure_from,
    policy_of,
    timeout_failure,
)
from interlock.effects.work_delta import CANCEL, invoke_of_address, is_answer, outbox_event, work_delta
from interlock.errors import InterlockError, NotFoundError, UsageError
from interlock.kernel.step import Kernel
from interlock.model.actor import Actor, whom_of
from interlock.model.charts.expected_events import ExpectedEvent, events_of_chart
from interlock.model.charts.sendable_events import knows_event, payload_mistake, unknown_event
from interlock.model.driver_events import call_failed, invoke_done, invoke_failed, state_overdue, timer_fired
from interlock.model.effect import Effect
from interlock.model.encoding.json_value import json_payload
from interlock.model.event import Event, check_sendable
from interlock.model.journal.cause import Cause, cause_of
from interlock.model.journal.work import CHILD_WORK, Work, WorkId
from interlock.model.keys import expect_key
from interlock.model.snapshot import Parent, Snapshot, Timer
from interlock.model.step import Step
from interlock.runtime.charts.registry import (
    check_child_depth,
    child_context,
    child_entity,
    inline_kernels,
    unknown_kind,
)
from interlock.testing.purity import PurityCheck
from interlock.trust.authorization import ChartPolicy

STEPS_MAX = 100_000
"""Steps of one `settle`, `advance` or `run`: two entities that keep answering each other would never end."""

CHANCE = 0.5
"""The jitter of every wait before a retry, as `VirtualClock` has it: the same test is the same run."""

RUN_MS_MAX = 86_400_000
"""How far `run` advances the clock by default: one day."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationRecord:
    """One step: its time, entity, event (None for the creation) and result."""

    time_ms: int
    entity: str
    event: Event | None
    step: Step


@dataclass(frozen=True, slots=True, order=True)
class _Due:
    """When a timer fires, or when an attempt of a call or invoke times out or, with `is_retry`, starts."""

    due_ms: int
    order: int
    entity: str = field(compare=False)
    work_id: WorkId = field(compare=False)
    attempt: int = field(compare=False, default=0)
    is_retry: bool = field(compare=False, default=False)


@dataclass(frozen=True, slots=True, order=True)
class _Overdue:
    """When an entity gets the event of a state that it has been in since a time."""

    due_ms: int
    order: int
    entity: str = field(compare=False)
    since_ms: int = field(compare=False)
    expected: ExpectedEvent = field(compare=False)


@dataclass(slots=True)
class _Row:
    """An unfinished call or invoke: the child that it started, whether it waits for the test, and its attempts."""

    entity: str
    work: Work
    effect: Effect
    child: str | None = None
    is_pending: bool = False
    attempt: int = 1
    failures: int = 0


class Simulation:
    """Runs entities of one or more charts, deterministically.

    The handlers of a chart that `load` returned are used. `handlers` adds others by name; as in a runtime, what a
    handler returns is the result, and an exception is the error. `charts` can be invoked by name, in addition to the
    given kernels. `compile` returns the kernel of a computed `src`. One call may lead to `steps_max` steps.
    `check_roles=False`: the test may send any event, as any principal.
    """

    def __init__(
        self,
        *kernels: Kernel | BoundChart,
        time_ms: int = 0,
        handlers: Mapping[str, Handler] | None = None,
        charts: Mapping[str, Kernel | BoundChart] | None = None,
        compile: Callable[[str], Kernel] | None = None,
        steps_max: int = STEPS_MAX,
        check_roles: bool = True,
    ) -> None:
        self.time_ms = time_ms
        self._steps_max = steps_max
        self._check_roles = check_roles
        self._defaults: dict[str, HandlerDefaults] = {}
        self.snapshots: dict[str, Snapshot] = {}
        self.trace: list[SimulationRecord] = []
        self.logs: list[tuple[str, str | None, Any]] = []
        self.messages: list[tuple[str, str, Any]] = []
        self.handlers: dict[str, Handler] = {}
        self.charts: dict[str, Kernel] = {}
        self._purity = PurityCheck()
        for given in kernels:
            self.charts[given.chart.kind] = self._kernel_of(given)
        self.charts = {name: self._purity.kernel(kernel) for name, kernel in self.charts.items()}
        self._first = next(iter(self.charts.values()), None)
        more = {name: self._kernel_of(given) for name, given in (charts or {}).items()}
        self.charts |= {name: self._purity.kernel(kernel) for name, kernel in more.items()}
        self.handlers |= handlers or {}
        self._compile = compile
        self._kernels: dict[str, Kernel] = {}
        self._queue: deque[tuple[str, Work]] = deque()
        self._rows: dict[str, _Row] = {}
        self._due: list[_Due] = []
        self._overdue: list[_Overdue] = []
        self._since: dict[str, dict[str, int]] = {}
        self._expected: dict[int, tuple[ExpectedEvent, ...]] = {}
        self._timers: dict[tuple[str, WorkId], Work] = {}
        self._paused: dict[str, int] = {}
        self._order = 0
        self._inline: dict[int, dict[str, Kernel]] = {}
        self._policies: dict[int, ChartPolicy] = {}
        self._steps = 0

    def _kernel_of(self, given: Kernel | BoundChart) -> Kernel:
        """Return the kernel of a chart, whose handlers and defaults are used from now on."""
        if not isinstance(given, BoundChart):
            return given
        self.handlers |= given.handlers
        if given.handler_defaults is not None:
            self._defaults[given.chart.kind] = given.handler_defaults
        return given.kernel

    # The interface of a test

    @property
    def pending(self) -> list[tuple[str, Effect]]:
        """The invokes and calls without a result, each with its entity, in order."""
        return [(each.entity, each.effect) for each in self._rows.values() if each.is_pending]

    def create(self, entity: str, context: Mapping[str, Any] | None = None, *, kind: str | None = None) -> Step:
        """Create an entity. Its chart is `kind`, or the part of its id before the `/`, or the first chart."""
        if entity in self.snapshots:
            raise UsageError(f"the entity `{entity}` already exists", code="entity.exists")
        kernel = self.charts.get(kind or entity.partition("/")[0])
        if kernel is None and kind is None:
            kernel = self._first
        if kernel is None:
            raise unknown_kind(kind or entity.partition("/")[0], self.charts)
        return self._start(kernel, entity, context, None)

    def send(self, entity: str, name: str, data: Any = None, **fields: Any) -> Step:
        """Send an event to an entity: one step. Its effects wait for `settle`.

        `fields` are further fields of the Event, such as `principal={"id": "ada", "roles": ["support"]}`. A principal
        that may not send it gets the outcome `denied`. As `Runtime.send`, it raises UsageError for a mistake of the
        program: a reserved name, an event that the chart does not have, a payload that has no JSON form or that the
        declaration of the event refuses. With `type="platform"` or a `source` it is an event of the driver.
        """
        if fields.get("type") != "platform" and "source" not in fields and entity in self.snapshots:
            data = self._check_sent(entity, name, data)
        return self.try_send(entity, name, data, **fields)

    def try_send(self, entity: str, name: str, data: Any = None, **fields: Any) -> Step:
        """Send an event as `send` does; return the step that rejects it when the chart does not know it."""
        if entity not in self.snapshots:
            raise NotFoundError(f"no entity `{entity}`", code="entity.unknown")
        self._steps = 0
        if fields.get("type") != "platform" and "source" not in fields:
            check_sendable(name)
        fields.setdefault("id", fields.get("key"))
        event = Event(name, data, time_ms=self.time_ms, **fields)
        if self._check_roles and event.type != "platform" and event.source is None:
            refusal = self._refusal(entity, event)
            if refusal is not None:
                return self._record(entity, event, Step(self.snapshots[entity], (), "denied", refusal))
        return self._step(entity, event)

    def _check_sent(self, entity: str, name: str, data: Any) -> Any:
        """Return the payload of an event that the test sends as JSON."""
        check_sendable(name)
        chart = self._kernels[entity].chart
        if not knows_event(chart, name):
            raise unknown_event((chart,), name)
        data = json_payload(data, what="the payload", code="event.payload")
        mistake = payload_mistake(chart, name, data)
        if mistake is not None:
            raise mistake
        return data

    def settle(self) -> None:
        """Run every effect that is due now, and the effects of those, in order."""
        self._steps = 0
        self._settle()

    def advance(self, ms: int) -> None:
        """Advance the clock; fire timers when they are due, and settle after each."""
        if ms < 0:
            raise UsageError("the clock only moves forward", code="clock.backwards")
        self._steps = 0
        target = self.time_ms + ms
        self._until(target)
        self.time_ms = target

    def run(self, limit_ms: int = RUN_MS_MAX) -> None:
        """Settle and advance the clock from timer to timer, until no timer is left or the limit is reached."""
        self._steps = 0
        self._until(self.time_ms + limit_ms)

    def complete(self, key: str, result: Any = None) -> None:
        """Complete a pending invoke or call."""
        self._succeed(self._take_pending(key), result)

    def fail(self, key: str, code: str = "failed", message: str = "") -> None:
        """Let a pending invoke or call fail permanently."""
        self._fail(self._take_pending(key), Failure(code, message, "no"))

    def kernel_of(self, entity: str) -> Kernel:
        """Return what runs an entity. Raises NotFoundError for an unknown entity."""
        if entity not in self._kernels:
            raise NotFoundError(f"no entity `{entity}`", code="entity.unknown")
        return self._kernels[entity]

    def children(self, entity: str) -> dict[str, str]:
        """Return the child entities of active invokes, by invoke id."""
        rows = ((each.id, self._rows.get(each.key)) for each in self.snapshots[entity].invokes)
        return {name: row.child for name, row in rows if row is not None and row.child is not None}

    # Steps

    def _start(
        self, kernel: Kernel, entity: str, context: Any, parent: Parent | None, whom: Actor | None = None
    ) -> Step:
        step = kernel.start(context, entity=entity, time_ms=self.time_ms, parent=parent)
        self._purity.raise_problem()
        self._kernels[entity] = kernel
        return self._record(entity, None, step, whom)

    def _step(self, entity: str, event: Event, whom: Actor | None = None) -> Step:
        """Step an entity. `whom`: for whom an event without a principal happens."""
        self._steps += 1
        if self._steps > self._steps_max:
            raise UsageError(f"more than {self._steps_max:,} steps: the entities never settle", code="simulation.steps")
        event = replace(event, time_ms=self.time_ms)
        step = self._kernels[entity].step(self.snapshots[entity], event)
        self._purity.raise_problem()
        return self._record(entity, event, step, whom if event.principal is None else whom_of(event.principal))

    def _record(self, entity: str, event: Event | None, step: Step, whom: Actor | None = None) -> Step:
        before = self.snapshots.get(entity)
        self.snapshots[entity] = step.snapshot
        self.trace.append(SimulationRecord(time_ms=self.time_ms, entity=entity, event=event, step=step))
        if before is None or step.snapshot.version > before.version:  # otherwise a runtime stores nothing
            self._apply(before, step, None if whom is None else Cause(whom=whom))
            self._expect(step.snapshot)
        return step

    def _apply(self, before: Snapshot | None, step: Step, cause: Cause | None) -> None:
        """Create and cancel the work of a step."""
        entity, delta = step.snapshot.entity, work_delta(before, step, self.time_ms, cause=cause)
        effects = {each.ordinal: each for each in step.effects}
        for work in delta.created:
            if work.id.lane == "timer":
                assert work.due_ms is not None  # a timer waits for nothing but the clock
                self._schedule(entity, work.due_ms, work.id)
                self._timers[entity, work.id] = work
                continue
            if work.id.lane == "effect":
                self._rows[work.id.key(entity)] = _Row(entity, work, effects[work.id.ordinal])
            self._queue.append((entity, work))
        for work_id in delta.cancelled:
            row = self._rows.get(work_id.key(entity))
            if row is not None and not (row.is_pending and row.work.is_saga_step):  # the result of that one counts
                self._finish(row)
        for effect in step.effects:
            if effect.type == "message":
                self.messages.append((entity, effect.payload["type"], effect.payload.get("data")))
            elif effect.type == "log":
                self.logs.append((entity, effect.payload.get("label"), effect.payload.get("value")))

    def _settle(self) -> None:
        while self._queue:
            entity, work = self._queue.popleft()
            if work.id.lane == "outbox":
                self._deliver(entity, work)
            elif (row := self._rows.get(work.id.key(entity))) is not None:
                self._run_effect(row)

    # The clock

    def _schedule(self, entity: str, due_ms: int, work_id: WorkId, *, attempt: int = 0, is_retry: bool = False) -> None:
        self._order += 1
        heappush(self._due, _Due(due_ms, self._order, entity, work_id, attempt, is_retry))

    def _expect(self, snapshot: Snapshot) -> None:
        """Note when the states of an entity that have an event for overdue entities were entered."""
        kernel, entity = self._kernels[snapshot.entity], snapshot.entity
        events = self._expected.get(id(kernel))
        if events is None:
            events = self._expected[id(kernel)] = events_of_chart(kernel.chart)
        if not events:
            return
        before = self._since.get(entity, {})
        active = frozenset[str]() if snapshot.ended is not None else {each.id for each in kernel.active(snapshot)}
        self._since[entity] = {state: before.get(state, self.time_ms) for state in active}
        for each in events:
            if each.state in active and each.state not in before:
                self._order += 1
                due_ms = self.time_ms + each.overdue_ms
                heappush(self._overdue, _Overdue(due_ms, self._order, entity, self.time_ms, each))

    def _send_overdue(self, overdue: _Overdue) -> None:
        """Send the event of an overdue state, if the entity is still in it."""
        entity, state = overdue.entity, overdue.expected.state
        if self._since[entity].get(state) != overdue.since_ms:
            return
        self.time_ms = max(self.time_ms, overdue.due_ms)
        self._step(entity, state_overdue(overdue.expected.event, expect_key(state, overdue.since_ms)))
        self._settle()

    def _until(self, target: int) -> None:
        self._settle()
        while True:  # ends at the target, or after `steps_max` steps
            due_ms = self._due[0].due_ms if self._due else target + 1
            if self._overdue and self._overdue[0].due_ms <= target and self._overdue[0].due_ms < due_ms:
                self._send_overdue(heappop(self._overdue))
                continue
            if due_ms > target:
                return
            due = heappop(self._due)
            timer, row = self._timer(due), self._rows.get(due.work_id.key(due.entity))
            if timer is None and (row is None or row.attempt != due.attempt):
                continue
            self.time_ms = max(self.time_ms, due.due_ms)
            if timer is not None:
                whom = _whom(self._timers.pop((due.entity, due.work_id)))
                self._step(due.entity, timer_fired(timer, time_ms=self.time_ms), whom)
            elif row is not None and due.is_retry:
                self._run_effect(row)
            elif row is not None:
                self._time_out(row)
            self._settle()

    def _timer(self, due: _Due) -> Timer | None:
        """The timer that fires, if it still waits."""
        timers = self.snapshots[due.entity].timers
        return next((each for each in timers if WorkId("timer", each.version, each.ordinal) == due.work_id), None)

    def _time_out(self, row: _Row) -> None:
        failure = timeout_failure(self._timeout_ms(row) or 0)
        if row.work.name != CHILD_WORK:
            self._fail_attempt(row, failure)
            return
        if row.child is not None:
            self._step(row.child, Event(CANCEL, type="platform"), _whom(row.work))
        self._fail(row, failure)

    def _timeout_ms(self, row: _Row) -> int | None:
        """Return the time limit of an attempt: of the chart, or the default of handlers."""
        timeout_ms: int | None = row.work.body.get("timeout_ms")
        defaults = self._defaults_of(row)
        return defaults.timeout_ms if timeout_ms is None and defaults is not None else timeout_ms

    def _defaults_of(self, row: _Row) -> HandlerDefaults | None:
        return None if row.work.name == CHILD_WORK else self._defaults.get(self.snapshots[row.entity].kind)

    # Deliveries

    def _deliver(self, entity: str, work: Work) -> None:
        """Deliver what an entity sends to another, to its parent or to a child."""
        event, invoke = outbox_event(work), invoke_of_address(work.name)
        if invoke is not None:
            self._deliver_to_child(entity, work, event, self._rows.get(invoke.key(entity)))
            return
        target = work.name.removeprefix("entity/")
        if event.type == "platform" and event.last:
            row = self._rows.get((event.source or "").removeprefix("invoke/"))
            if row is None or row.child != entity:
                return  # the invoke has finished, or was cancelled
            self._finish(row)
            self._step(target, event, _whom(work))
        elif target not in self.snapshots:
            self._report_undeliverable(entity, work, event, "undeliverable")
        elif self._is_denied(target, event):
            self._report_undeliverable(entity, work, event, "denied")
        else:
            self._step(target, event, _whom(work))

    def _deliver_to_child(self, entity: str, work: Work, event: Event, row: _Row | None) -> None:
        if row is None:  # it has finished
            return
        if row.work.name != CHILD_WORK:
            self._report_undeliverable(entity, work, event, "undeliverable")
            return
        if event.name == CANCEL:
            self._finish(row)
        if row.child is not None and not self._is_denied(row.child, event):  # without the chart there is no child
            self._step(row.child, event, _whom(work))

    def _is_denied(self, entity: str, event: Event) -> bool:
        return self._refusal(entity, event) is not None

    def _refusal(self, entity: str, event: Event) -> str | None:
        """Return why the principal of an event may not send it; None when it may."""
        kernel = self._kernels[entity]
        policy = self._policies.get(id(kernel))
        if policy is None:
            policy = self._policies[id(kernel)] = ChartPolicy(kernel.chart)
        return policy.role_refusal(event) or policy.permit_refusal(event, self.snapshots[entity])

    def _report_undeliverable(self, entity: str, work: Work, event: Event, code: str) -> None:
        if not is_answer(event):
            failed = call_failed("send", work.id.key(entity), code, sendid=event.sendid)
            self._step(entity, failed, _whom(work))

    # Handlers and children

    def _run_effect(self, row: _Row) -> None:
        end_ms = self._paused.get(row.work.name, 0)
        if end_ms > self.time_ms:
            self._schedule(row.entity, end_ms, row.work.id, attempt=row.attempt, is_retry=True)
            return
        timeout_ms = self._timeout_ms(row)
        if timeout_ms is not None:
            self._schedule(row.entity, self.time_ms + timeout_ms, row.work.id, attempt=row.attempt)
        if row.work.name == CHILD_WORK:
            self._start_child(row)
        elif (handler := self.handlers.get(row.work.name)) is None:
            row.is_pending = True
        else:
            self._call_handler(row, handler)

    def _call_handler(self, row: _Row, handler: Handler) -> None:
        body, name = row.work.body, row.work.name
        key = attempt_key(row.work, row.entity, row.attempt)
        limit_ms, cancelled = self._timeout_ms(row), asyncio.Event()
        attempt = Attempt(row.entity, name, body.get("input"), key, row.attempt, limit_ms, cancelled)
        try:
            if is_asynchronous(handler):
                result = _run_coroutine(call_asynchronous(handler, attempt))
            else:
                result = call_plain(handler, attempt)
            if iscoroutine(result):
                result = _run_coroutine(result)
        except Exception as error:  # noqa: BLE001  # any exception of a handler is its result
            self._fail_attempt(row, failure_from(error))
            return
        stored = handler_result(name, result)
        if isinstance(stored, Failure):
            self._fail(row, stored)
        else:
            self._succeed(row, stored)

    def _fail_attempt(self, row: _Row, failure: Failure) -> None:
        """An attempt failed: the next one starts when the policy of the effect says so, if there is one.

        One that paused its handler starts again when the pause ends, and has no timeout until then.
        """
        if failure.is_pause:
            end_ms = pause_end_ms(self.time_ms, wait_ms=failure.pause_ms, until_ms=failure.pause_until_ms)
            self._paused[row.work.name] = max(end_ms, self._paused.get(row.work.name, 0))
            attempt = row.entity, row.work.id, row.attempt
            self._due = [each for each in self._due if (each.entity, each.work_id, each.attempt) != attempt]
            heapify(self._due)
            self._schedule(row.entity, self._paused[row.work.name], row.work.id, attempt=row.attempt, is_retry=True)
            return
        decision = decide_retry(
            policy_of(row.work, self._defaults_of(row)),
            failure,
            failures=row.failures,
            attempts=row.attempt,
            now_ms=self.time_ms,
            chance=CHANCE,
        )
        if isinstance(decision, GiveUp):
            self._fail(row, decision.failure)
            return
        row.failures, row.attempt, row.is_pending = row.failures + 1, row.attempt + 1, False
        self._schedule(row.entity, decision.next_ms, row.work.id, attempt=row.attempt, is_retry=True)

    def _take_pending(self, key: str) -> _Row:
        row = self._rows.get(key)
        if row is None or not row.is_pending:
            raise NotFoundError(f"no pending effect `{key}`", code="effect.unknown")
        return row

    def _finish(self, row: _Row) -> None:
        self._rows.pop(row.effect.key, None)

    def _succeed(self, row: _Row, result: Any) -> None:
        self._finish(row)
        if row.effect.type == "invoke":
            self._step(row.entity, invoke_done(row.work.body["id"], row.effect.key, result), _whom(row.work))

    def _fail(self, row: _Row, failure: Failure) -> None:
        self._finish(row)
        if row.effect.type == "invoke":
            name, key = row.work.body["id"], row.effect.key
            event = invoke_failed(name, key, failure.code, failure.message, done=failure.done, attempts=row.attempt)
        else:
            event = call_failed(row.work.name, attempt_key(row.work, row.entity, row.attempt), failure.code)
        self._step(row.entity, event, _whom(row.work))

    def _start_child(self, row: _Row) -> None:
        entity, key, body = row.entity, row.effect.key, row.work.body
        try:
            kernel = self._chart(entity, body.get("src"))
            if kernel is None:
                row.is_pending = True
                return
            check_child_depth(self._depth(entity) + 1)
            row.child = child_entity(kernel.chart.kind, body["id"], key)
            context = child_context(kernel, body.get("input"))
            self._start(kernel, row.child, context, Parent(entity, body["id"], key), _whom(row.work))
        except InterlockError as error:
            self._fail(row, failure_from(error))

    def _chart(self, entity: str, src: Any) -> Kernel | None:
        """The kernel of a `src`: an inline chart of the invoking chart, a known chart, or the result of `compile`."""
        kernel = self._kernels[entity]
        inline = self._inline.get(id(kernel))
        if inline is None:
            inline = self._inline[id(kernel)] = inline_kernels(kernel)
        if src in inline:
            return inline[src]
        if src in self.charts:
            return self.charts[src]
        return None if self._compile is None else self._compile(str(src))

    def _depth(self, entity: str) -> int:
        depth, parent = 0, self.snapshots[entity].parent
        while parent is not None:
            depth, parent = depth + 1, self.snapshots[parent.entity].parent
        return depth


def _whom(work: Work) -> Actor | None:
    """Return for whom work is done."""
    cause = cause_of(work.body)
    return None if cause is None else cause.whom


def _run_coroutine(coroutine: Coroutine[Any, Any, object]) -> object:
    """The result of a coroutine handler; the simulation waits for it."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(coroutine)
    coroutine.close()
    raise UsageError(
        "a coroutine handler cannot run here", code="simulation.loop", hint="simulate outside an event loop"
    )

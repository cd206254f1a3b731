"""A driver for tests: entities in memory, a clock that only the test advances, and a fixed order of deliveries.

Rule 1: the kernel computes every step; this module only carries values to and from it.
Rule 2: effects run in the order in which they were requested, across all entities; timers with the same due time fire
in the order in which they were set.
Rule 3: an event that cannot be delivered comes back to its sender as `error.communication`. Calls and invokes without a
handler stay `pending`. A handler is called once: there are no retries. Timeouts of invokes use the same clock.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from heapq import heappop, heappush
from inspect import iscoroutine
from typing import Any

from interlock.assemble.charts import BoundChart
from interlock.effects.handlers import Attempt, Handler
from interlock.effects.retry import Failure, failure_from
from interlock.errors import InterlockError, NotFoundError, UsageError
from interlock.kernel.step import Kernel
from interlock.model.driver_events import call_failed, invoke_done, invoke_failed
from interlock.model.effect import CHART_TYPES, Effect
from interlock.model.event import SCXML_PROCESSOR, Event, check_sendable
from interlock.model.json_value import payload_refusal
from interlock.model.limits import CHILD_DEPTH_MAX
from interlock.model.snapshot import Parent, Snapshot
from interlock.model.step import Step
from interlock.runtime.chart_registry import child_context, child_entity, inline_kernels

STEPS_MAX = 100_000
"""Steps of one `settle`, `advance` or `run`: two entities that keep answering each other would never end."""

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
    """A timer, or the timeout of the invoke with this `key`."""

    due_ms: int
    order: int
    entity: str = field(compare=False)
    name: str = field(compare=False)
    version: int = field(compare=False)
    key: str | None = field(compare=False, default=None)


class Simulation:
    """Runs entities of one or more charts, deterministically.

    The handlers of a chart that `load` returned are used. `handlers` adds others by name; as in a runtime, what a
    handler returns is the result, and an exception is the error. `charts` can be invoked by name, in addition to the
    given kernels. `compile` returns the kernel of a computed `src`. One call may lead to `steps_max` steps.
    """

    def __init__(
        self,
        *kernels: Kernel | BoundChart,
        time_ms: int = 0,
        handlers: Mapping[str, Handler] | None = None,
        charts: Mapping[str, Kernel] | None = None,
        compile: Callable[[str], Kernel] | None = None,
        steps_max: int = STEPS_MAX,
    ) -> None:
        self.time_ms = time_ms
        self._steps_max = steps_max
        self.snapshots: dict[str, Snapshot] = {}
        self.trace: list[SimulationRecord] = []
        self.logs: list[tuple[str, str | None, Any]] = []
        self.messages: list[tuple[str, str, Any]] = []
        self._pending: dict[str, tuple[str, Effect]] = {}
        self.handlers: dict[str, Handler] = {}
        self.charts: dict[str, Kernel] = {}
        for given in kernels:
            if isinstance(given, BoundChart):
                self.handlers |= given.handlers
            self.charts[given.chart.kind] = given.kernel if isinstance(given, BoundChart) else given
        self._first = next(iter(self.charts.values()), None)
        self.handlers |= handlers or {}
        self.charts |= charts or {}
        self._compile = compile
        self._kernels: dict[str, Kernel] = {}
        self._queue: deque[tuple[str, Effect]] = deque()
        self._due: list[_Due] = []
        self._order = 0
        self._children: dict[str, str] = {}
        self._inline: dict[int, dict[str, Kernel]] = {}
        self._steps = 0

    # The interface of a test

    @property
    def pending(self) -> list[tuple[str, Effect]]:
        """The invokes and calls without a result, each with its entity, in order."""
        return list(self._pending.values())

    def create(self, entity: str, context: Mapping[str, Any] | None = None, *, kind: str | None = None) -> Step:
        """Create an entity. Its chart is `kind`, or the part of its id before the `/`, or the first chart."""
        if entity in self.snapshots:
            raise UsageError(f"the entity `{entity}` already exists", code="entity.exists")
        kernel = self.charts.get(kind or entity.partition("/")[0])
        if kernel is None and kind is None:
            kernel = self._first
        if kernel is None:
            known = ", ".join(self.charts) or "none"
            raise NotFoundError(f"no chart `{kind or entity}`; charts: {known}", code="kind.unknown")
        return self._start(kernel, entity, context, None)

    def send(self, entity: str, name: str, data: Any = None, **fields: Any) -> Step:
        """Send an event to an entity: one step. Its effects wait for `settle`.

        `fields` are further fields of the Event. Raises UsageError (`event.reserved`) for a reserved name, unless
        `type="platform"` or a `source` makes it an event of the driver.
        """
        if entity not in self.snapshots:
            raise NotFoundError(f"no entity `{entity}`", code="entity.unknown")
        self._steps = 0
        if fields.get("type") != "platform" and "source" not in fields:
            check_sendable(name)
        return self._step(entity, Event(name, data, time_ms=self.time_ms, **fields))

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
        entity, effect = self._take_pending(key)
        self._result(entity, effect, result)

    def fail(self, key: str, code: str = "failed", message: str = "") -> None:
        """Let a pending invoke or call fail permanently."""
        entity, effect = self._take_pending(key)
        self._failure(entity, effect, Failure(code, message, "no"))

    def children(self, entity: str) -> dict[str, str]:
        """Return the child entities of active invokes, by invoke id."""
        invokes = self.snapshots[entity].invokes
        return {each.id: self._children[each.key] for each in invokes if each.key in self._children}

    # Steps

    def _start(self, kernel: Kernel, entity: str, context: Any, parent: Parent | None) -> Step:
        step = kernel.start(context, entity=entity, time_ms=self.time_ms, parent=parent)
        self._kernels[entity] = kernel
        return self._record(entity, None, step)

    def _step(self, entity: str, event: Event) -> Step:
        self._steps += 1
        if self._steps > self._steps_max:
            raise UsageError(f"more than {self._steps_max:,} steps: the entities never settle", code="simulation.steps")
        return self._record(entity, event, self._kernels[entity].step(self.snapshots[entity], event))

    def _record(self, entity: str, event: Event | None, step: Step) -> Step:
        before = self.snapshots.get(entity)
        self.snapshots[entity] = step.snapshot
        self.trace.append(SimulationRecord(time_ms=self.time_ms, entity=entity, event=event, step=step))
        self._queue.extend((entity, effect) for effect in step.effects)
        ends = before is None or before.ended is None
        if ends and step.snapshot.ended == "failed" and step.snapshot.parent is not None:
            why = f"the chart of `{entity}` failed"
            problem = {"code": "child_failed", "message": why, "attempts": 1, "done": "unknown"}
            self._queue.append((entity, Effect("done", len(step.effects), "", {"error": problem})))
        return step

    def _settle(self) -> None:
        while self._queue:
            entity, effect = self._queue.popleft()
            self._perform(entity, effect)

    def _until(self, target: int) -> None:
        self._settle()
        while self._due and self._due[0].due_ms <= target:
            due = heappop(self._due)
            if self._is_active(due):
                self.time_ms = max(self.time_ms, due.due_ms)
                self._fire(due)
                self._settle()

    def _is_active(self, due: _Due) -> bool:
        snapshot = self.snapshots[due.entity]
        if due.key is not None:
            return any(each.key == due.key for each in snapshot.invokes)
        return any(each.name == due.name and each.version == due.version for each in snapshot.timers)

    def _fire(self, due: _Due) -> None:
        if due.key is None:
            self._fire_timer(due)
        else:
            self._fire_timeout(due.entity, due.key)

    def _fire_timer(self, due: _Due) -> None:
        timers = self.snapshots[due.entity].timers
        timer = next(each for each in timers if each.name == due.name and each.version == due.version)
        source = f"timer/{timer.name}/{timer.version}"
        self._step(
            due.entity, self._internal_event(due.entity, timer.event, timer.data, source=source, sendid=timer.id)
        )

    def _fire_timeout(self, entity: str, key: str) -> None:
        invoke = next(each for each in self.snapshots[entity].invokes if each.key == key)
        self._pending.pop(key, None)
        why = "the invoke took too long"
        self._step(entity, invoke_failed(invoke.id, key, "timeout", why, done="unknown", time_ms=self.time_ms))
        self._cancel(key)

    # Effects

    def _perform(self, entity: str, effect: Effect) -> None:
        payload = effect.payload
        match effect.type:
            case "send":
                self._deliver(entity, effect)
            case "timer":
                self._schedule(entity, payload["due_ms"], name=payload["name"], version=payload["version"])
            case "invoke":
                self._invoke(entity, effect)
            case "invoke_cancel":
                self._pending.pop(payload["key"], None)
                self._cancel(payload["key"])
            case "forward":
                self._forward(entity, effect)
            case "done":
                self._done(entity, payload)
            case "call":
                self._call_handler(entity, effect)
            case "message":
                self.messages.append((entity, payload["type"], payload.get("data")))
            case "log":
                self.logs.append((entity, payload.get("label"), payload.get("value")))
            case _:
                # A cancelled timer is not in the snapshot, which is checked when the timer is due.
                assert effect.type == "timer_cancel"

    def _schedule(self, entity: str, due_ms: int, *, name: str = "", version: int = 0, key: str | None = None) -> None:
        self._order += 1
        heappush(self._due, _Due(due_ms, self._order, entity, name, version, key))

    def _internal_event(self, entity: str, name: str, data: Any, **fields: Any) -> Event:
        """An event of an entity or of the driver, with its origin and the system as principal."""
        fields.setdefault("origin", f"#_scxml_{entity}")
        fields.setdefault("origintype", SCXML_PROCESSOR)
        fields.setdefault("principal", {"id": entity, "kind": "system", "roles": ["system"]})
        return Event(name, data, time_ms=self.time_ms, **fields)

    def _deliver(self, entity: str, effect: Effect) -> None:
        payload = effect.payload
        fields: dict[str, Any] = {
            name: payload[name] for name in ("sendid", "id", "key", "principal") if name in payload
        }
        target: str | None = payload["to"]
        if target == "#_parent":
            snapshot = self.snapshots[entity]
            parent = snapshot.parent
            assert parent is not None
            target, last = parent.entity, snapshot.ended == "done"
            fields |= {"invokeid": parent.invokeid, "source": f"invoke/{parent.key}", "last": last}
        elif target is not None and target.startswith("#_"):
            target = self.children(entity).get(target[2:])
        if target in self.snapshots:
            self._step(target, self._internal_event(entity, payload["event"], payload.get("data"), **fields))
        else:
            data = {"effect": "send", "key": effect.key, "code": "undeliverable"}
            error = self._internal_event(
                entity, "error.communication", data, type="platform", sendid=payload.get("sendid")
            )
            self._step(entity, error)

    def _forward(self, entity: str, effect: Effect) -> None:
        child = self.children(entity).get(effect.payload["id"])
        if child is not None:
            event = Event(**effect.payload["event"], time_ms=self.time_ms, forwarded=True)
            self._step(child, event)

    # Handlers and children

    def _call_handler(self, entity: str, effect: Effect) -> None:
        handler = self.handlers.get(effect.name or "")
        if handler is None:
            self._pending[effect.key] = (entity, effect)
            return
        timeout_ms, key = effect.payload.get("timeout_ms"), effect.payload.get("key") or effect.key
        attempt = Attempt(entity, effect.name or "", effect.input, key, 1, timeout_ms, asyncio.Event())
        try:
            result = handler(attempt)
            if iscoroutine(result):
                result = _run_coroutine(result)
        except Exception as error:  # noqa: BLE001  # any exception of a handler is its result
            self._failure(entity, effect, failure_from(error))
        else:
            problem = payload_refusal(result)
            if problem is None:
                self._result(entity, effect, result)
            else:
                self._failure(entity, effect, Failure("result.malformed", problem))

    def _take_pending(self, key: str) -> tuple[str, Effect]:
        if key not in self._pending:
            raise NotFoundError(f"no pending effect `{key}`", code="effect.unknown")
        return self._pending.pop(key)

    def _result(self, entity: str, effect: Effect, result: Any) -> None:
        if effect.type == "invoke":
            self._step(entity, invoke_done(effect.payload["id"], effect.key, result, time_ms=self.time_ms))

    def _failure(self, entity: str, effect: Effect, failed: Failure) -> None:
        code, done, now = failed.code, failed.done, self.time_ms
        if effect.type == "invoke":
            name = effect.payload["id"]
            self._step(entity, invoke_failed(name, effect.key, code, failed.message, done=done, time_ms=now))
        else:
            self._step(entity, call_failed(effect.name, effect.key, code, time_ms=now))

    def _invoke(self, entity: str, effect: Effect) -> None:
        timeout = effect.payload.get("timeout_ms")
        if timeout is not None:
            self._schedule(entity, self.time_ms + timeout, key=effect.key)
        if effect.payload.get("type", "handler") in CHART_TYPES:
            self._invoke_chart(entity, effect)
        else:
            self._call_handler(entity, effect)

    def _invoke_chart(self, entity: str, effect: Effect) -> None:
        try:
            kernel = self._chart(entity, effect.payload.get("src"))
            if kernel is None:
                self._pending[effect.key] = (entity, effect)
                return
            if self._depth(entity) >= CHILD_DEPTH_MAX:
                raise UsageError(f"charts invoke charts more than {CHILD_DEPTH_MAX} deep", code="invoke.depth")
            invokeid = effect.payload["id"]
            child = child_entity(kernel.chart.kind, invokeid, effect.key)
            self._children[effect.key] = child
            parent = Parent(entity, invokeid, effect.key)
            self._start(kernel, child, child_context(kernel, effect.payload.get("input")), parent)
        except InterlockError as error:
            self._children.pop(effect.key, None)
            self._failure(entity, effect, failure_from(error))

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

    def _cancel(self, key: str) -> None:
        child = self._children.pop(key, None)
        if child is not None and self.snapshots[child].ended is None:
            self._step(child, Event("_cancel", time_ms=self.time_ms, type="platform"))

    def _done(self, entity: str, payload: Mapping[str, Any]) -> None:
        """Send the result of an ended child to its parent, as its last event."""
        parent = self.snapshots[entity].parent
        assert parent is not None
        word = "error" if "error" in payload else "done"
        data = payload.get("error", payload.get("data"))
        fields = {"type": "platform", "invokeid": parent.invokeid, "source": f"invoke/{parent.key}", "last": True}
        self._step(
            parent.entity, self._internal_event(parent.entity, f"{word}.invoke.{parent.invokeid}", data, **fields)
        )


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

"""A chart simulated act by act: one entity on a virtual clock. `interlock simulate` and the console's simulator use it.

Rule 1: the same acts always give the same steps; undo replays all acts but the last.
Rule 2: no handlers run: calls and invokes stay pending until an act completes or fails them.
Rule 3: of a chart given as `BoundChart`, functions that are not registered are assumed: a guard is true until an act
sets it, an assign writes nothing. Events are sent with every role that the chart names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from interlock.assemble.charts import BoundChart
from interlock.errors import UsageError
from interlock.kernel.step import Kernel
from interlock.model.charts.chart import Chart
from interlock.model.effect import Effect
from interlock.model.event import Event
from interlock.model.snapshot import Snapshot
from interlock.observe.acceptance import Acceptance, acceptances, every_role
from interlock.testing.simulation import Simulation, SimulationRecord
from interlock.trust.authorization import ChartPolicy

STEPS_MAX = 10_000
"""Steps of one act, timers included: hourly timers of a year, without a long wait."""


@dataclass(frozen=True, slots=True)
class SendEvent:
    """Send an event to the entity."""

    event: str
    payload: Any = None


@dataclass(frozen=True, slots=True)
class AdvanceClock:
    """Advance the clock, by default to the next timer or timeout."""

    ms: int | None = None


@dataclass(frozen=True, slots=True)
class CompleteEffect:
    """Complete a pending invoke or call, named by id, key, handler name, or the last part of its id."""

    effect: str
    result: Any = None


@dataclass(frozen=True, slots=True)
class FailEffect:
    """Let a pending invoke or call fail."""

    effect: str
    code: str = "failed"
    message: str = ""


@dataclass(frozen=True, slots=True)
class SetGuard:
    """Set the value of an assumed guard."""

    guard: str
    value: bool


Act = SendEvent | AdvanceClock | CompleteEffect | FailEffect | SetGuard


@dataclass(frozen=True, slots=True, kw_only=True)
class DueItem:
    """What happens when the clock reaches a time: a timer (`name` is its event), or the timeout of an invoke."""

    entity: str
    name: str
    due_ms: int
    is_timeout: bool = False


class _OpenPolicy(ChartPolicy):
    """Roles and permits that are named and refuse no event: the player may send all of them."""

    def role_refusal(self, event: Event) -> str | None:  # noqa: ARG002 - the same for every event
        """Return None."""
        return None

    def refusal_by_entity(self, *_: object) -> str | None:
        """Return None."""
        return None


class Playback:
    """One entity of a chart, the acts so far, and the steps they led to.

    `new_trace` creates the list of steps; a subclass of `list` may limit it. Raises RejectedError if the chart refuses
    the context.
    """

    def __init__(
        self,
        chart: BoundChart | Kernel,
        context: Mapping[str, Any] | None = None,
        *,
        entity: str | None = None,
        steps_max: int = STEPS_MAX,
        new_trace: Callable[[], list[SimulationRecord]] = list,
    ) -> None:
        self.acts: list[Act] = []
        self.guards: dict[str, bool] = {}
        self.assumed_assigns: tuple[str, ...] = ()
        self.kernel = self._with_assumed_functions(chart) if isinstance(chart, BoundChart) else chart
        self.chart = self.kernel.chart
        self.entity = entity or f"{self.chart.kind}/1"
        self.principal = {"id": "player", "kind": "user", "roles": every_role(self.chart)}
        self._context = context
        self._steps_max = steps_max
        self._new_trace = new_trace
        self.simulation = self._start()

    def _with_assumed_functions(self, bound: BoundChart) -> Kernel:
        """Return a kernel with the registered functions, and assumed ones for the others. `bound` is not changed."""
        charts = list(_with_inline(bound.chart))
        self.guards = {name: True for each in charts for name in each.guards if name not in bound.guards}
        assigns = {name for each in charts for name in each.assigns}
        self.assumed_assigns = tuple(sorted(assigns - set(bound.assigns)))
        return Kernel(
            bound.chart,
            guards={**bound.guards, **{name: partial(self._assumed_guard, name) for name in self.guards}},
            assigns={**bound.assigns, **dict.fromkeys(self.assumed_assigns, _assign_nothing)},
        )

    def _assumed_guard(self, name: str, *_: object) -> bool:
        return self.guards[name]

    def _start(self) -> Simulation:
        simulation = Simulation(self.kernel, steps_max=self._steps_max, check_roles=False)
        simulation.trace = self._new_trace()
        simulation.create(self.entity, self._context, kind=self.chart.kind)
        simulation.settle()
        return simulation

    @property
    def snapshot(self) -> Snapshot:
        """The entity now."""
        return self.simulation.snapshots[self.entity]

    def chart_of(self, entity: str) -> Chart:
        """Return the chart of the entity, or of a child that it started."""
        return self.simulation.kernel_of(entity).chart

    def active(self) -> tuple[str, ...]:
        """Return the ids of the active states, in document order."""
        return tuple(each.id for each in self.kernel.active(self.snapshot))

    def visited(self) -> set[str]:
        """Return the ids of all states that were active so far."""
        records = (record for record in self.simulation.trace if record.entity == self.entity)
        return {state.id for record in records for state in self.kernel.active(record.step.snapshot)}

    def acceptances(self) -> tuple[Acceptance, ...]:
        """Return which events are accepted now, and why others are not."""
        policy = _OpenPolicy(self.chart)
        return acceptances(self.kernel, self.snapshot, self.principal, policy, time_ms=self.simulation.time_ms)

    def pending(self) -> list[tuple[str, Effect]]:
        """Return the calls and invokes without a result, each with its entity."""
        return list(self.simulation.pending)

    def due_items(self) -> list[DueItem]:
        """Return what waits for the clock, soonest first."""
        found = [
            DueItem(entity=entity, name=timer.event, due_ms=timer.due_ms)
            for entity, snapshot in self.simulation.snapshots.items()
            for timer in snapshot.timers
        ]
        created_ms = {effect.key: record.time_ms for record in self.simulation.trace for effect in record.step.effects}
        for entity, effect in self.pending():
            timeout = effect.payload.get("timeout_ms")
            if timeout is not None:
                due_ms = created_ms[effect.key] + timeout
                found.append(DueItem(entity=entity, name=effect.payload["id"], due_ms=due_ms, is_timeout=True))
        return sorted(found, key=lambda each: each.due_ms)

    def apply(self, act: Act) -> list[SimulationRecord]:
        """Perform an act and return the steps it led to.

        Raises UsageError if the act is not possible now. Steps taken before the error remain; `replay` removes them.
        """
        before = len(self.simulation.trace)
        self._perform(act)
        self.simulation.settle()
        self.acts.append(act)
        return self.simulation.trace[before:]

    def undo(self) -> Act:
        """Undo the last act and return it. Raises UsageError if there is none."""
        if not self.acts:
            raise UsageError("nothing to undo", code="play.beginning")
        last = self.acts.pop()
        self.replay()
        return last

    def replay(self) -> None:
        """Start again and perform all acts so far."""
        self.guards.update(dict.fromkeys(self.guards, True))
        self.simulation = self._start()
        for act in self.acts:
            self._perform(act)
            self.simulation.settle()

    def _perform(self, act: Act) -> None:
        match act:
            case SendEvent(event, payload):
                self.simulation.try_send(self.entity, event, payload, principal=self.principal)
            case AdvanceClock(ms):
                self.simulation.advance(self._next_due_ms() if ms is None else ms)
            case CompleteEffect(effect, result):
                self.simulation.complete(self._pending_key(effect), result)
            case FailEffect(effect, code, message):
                self.simulation.fail(self._pending_key(effect), code, message)
            case SetGuard(guard, value):
                self._check_guard(guard)
                self.guards[guard] = value

    def _next_due_ms(self) -> int:
        due = self.due_items()
        if not due:
            raise UsageError("no timers; give a duration, as in: advance 30s", code="play.advance")
        return max(0, due[0].due_ms - self.simulation.time_ms)

    def _pending_key(self, name: str) -> str:
        pending = self.pending()
        for _, effect in pending:
            if name in (effect.payload.get("id"), effect.key, effect.name):
                return effect.key
        ending = [each for _, each in pending if str(each.payload.get("id")).endswith(f".{name}")]
        if len(ending) == 1:
            return ending[0].key
        known = ", ".join(str(effect.payload.get("id") or effect.name) for _, effect in pending)
        hint = f"pending: {known}" if known else "nothing is pending"
        raise UsageError(f'no pending invoke or call "{name}"; {hint}', code="play.pending")

    def _check_guard(self, guard: str) -> None:
        if guard not in self.guards:
            known = ", ".join(self.guards) or "none"
            raise UsageError(f'no assumed guard "{guard}"; assumed guards: {known}', code="play.guard")


def _with_inline(chart: Chart) -> Iterator[Chart]:
    """Yield a chart and its inline charts, which use the same functions."""
    yield chart
    for _, inline in chart.inline:
        yield from _with_inline(inline)


def _assign_nothing(*_: object) -> dict[str, Any]:
    return {}

"""What changes while one step of the reference interpreter runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from interlock.model import limits
from interlock.model.charts.chart import Chart, Invoke
from interlock.model.effect import Effect, EffectType
from interlock.model.event import Event
from interlock.model.snapshot import Invocation, Parent, Snapshot, Timer
from interlock.model.step import Fault
from tests.properties.reference.evaluator import Evaluator, Failure
from tests.properties.reference.structure import History, Structure

Function = Callable[..., Any]


def fresh(value: Any) -> Any:
    """A copy of a JSON value that shares nothing with it."""
    if isinstance(value, dict):
        return {key: fresh(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [fresh(each) for each in value]
    return value


class StepFailed(Exception):
    """The whole step is given up: a limit was passed, or an error came under `errors: raise`."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


@dataclass(kw_only=True)
class Progress:
    """The configuration, the context and everything else that one step may change."""

    chart: Chart
    structure: Structure
    guards: Mapping[str, Function]
    assigns: Mapping[str, Function]
    kind: str
    entity: str
    version: int
    time_ms: int
    context: dict[str, Any]
    parent: Parent | None = None
    configuration: list[int] = field(default_factory=list)
    history: History = field(default_factory=dict)
    timers: list[Timer] = field(default_factory=list)
    invokes: list[Invocation] = field(default_factory=list)
    deferred: list[Event] = field(default_factory=list)
    entered: list[int] = field(default_factory=list)
    event: Event | None = None
    outside: Event | None = None
    internal_queue: list[Event] = field(default_factory=list)
    internal_count: int = 0
    microsteps: int = 0
    states_to_invoke: list[int] = field(default_factory=list)
    effects: list[Effect] = field(default_factory=list)
    ordinal: int = 0
    chosen: list[int] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    writes: int = 0
    records: int = 0
    refused: bool = False
    matched: Event | None = None
    busy: bool = False
    running: bool = True
    ended: Literal["done", "cancelled", "failed"] | None = None
    last: tuple[str, ...] = ()
    output: Any = None

    @classmethod
    def of(cls, chart: Chart, snapshot: Snapshot, *, time_ms: int, **functions: Mapping[str, Function]) -> Progress:
        """Return the start of a step from a snapshot. It shares nothing with the snapshot."""
        structure = Structure(chart)
        active: set[int] = set()
        for name in snapshot.configuration:
            number = structure.number(name)
            active |= {number, *structure.get_proper_ancestors(number)}
        return cls(
            chart=chart,
            structure=structure,
            guards=functions["guards"],
            assigns=functions["assigns"],
            kind=snapshot.kind,
            entity=snapshot.entity,
            version=snapshot.version + 1,
            time_ms=time_ms,
            context=fresh(snapshot.context),
            parent=snapshot.parent,
            configuration=sorted(active),
            history=dict(snapshot.history or {}),
            timers=list(snapshot.timers),
            invokes=list(snapshot.invokes),
            deferred=list(snapshot.deferred),
            entered=[structure.number(each) for each in snapshot.entered],
        )

    def evaluator(self) -> Evaluator:
        """What an expression sees now."""
        entity = {"id": self.entity, "kind": self.kind, "version": self.version}
        active = [self.structure.state(each).id for each in self.configuration]
        return Evaluator(self.context, self.event, entity, active)

    def atomic_ids(self) -> tuple[str, ...]:
        """The configuration as it is stored: the atomic states in document order."""
        atomic = [each for each in sorted(self.configuration) if self.structure.is_atomic_state(each)]
        return tuple(self.structure.state(each).id for each in atomic)

    def key(self) -> str:
        """The key of the effect that comes next."""
        return f"{self.entity}/{self.version}/{self.ordinal}"

    def add_effect(self, type: EffectType, payload: dict[str, Any]) -> Effect:
        """Put one more effect at the end."""
        if self.ordinal >= limits.EFFECTS_MAX and type not in ("timer_cancel", "invoke_cancel", "done"):
            raise StepFailed("step.effects_max")
        effect = Effect(type, self.ordinal, self.key(), fresh(payload))
        self.ordinal += 1
        self.effects.append(effect)
        return effect

    def enqueue(self, event: Event) -> None:
        """Put an event at the end of the internal queue."""
        self.internal_count += 1
        if self.internal_count > limits.INTERNAL_EVENTS_MAX:
            raise StepFailed("step.internal_events_max")
        self.internal_queue.append(event)

    def platform_error(self, name: str, failure: Failure, *, sendid: str | None = None) -> None:
        """S23, S33, S34: an error becomes an event, or ends the step where errors are raised."""
        if self.chart.dialect.errors == "raise":
            raise StepFailed(failure.code)
        data = {"code": failure.code, "message": str(failure)}
        self.enqueue(Event(name, data=data, time_ms=self.time_ms, type="platform", sendid=sendid))

    def invoke_of(self, invocation: Invocation) -> Invoke:
        """Return the invoke of the chart that an active invocation belongs to."""
        return self.structure.state(self.structure.number(invocation.state)).invokes[invocation.position]

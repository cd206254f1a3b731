"""The sagas of a chart, and the progress of one entity in them.

Rule: a saga compiles to ordinary states (ADR 0008). It is recognised by the context field that records which steps are
done, and its steps by their states, so this shows exactly what the kernel runs.
"""

from __future__ import annotations

from dataclasses import dataclass

from msgspec import Struct

from interlock.kernel.step import Kernel
from interlock.model.chart import Chart, State
from interlock.model.snapshot import Snapshot

_RESERVED = frozenset({"completed", "compensated", "blocked", "compensation"})
_COMPENSATION_SUFFIX = "_compensation"


class StepView(Struct, frozen=True):
    """A step of a saga.

    `status` is `waiting`, `running`, `done`, `compensating`, `clear` (nothing to compensate) or `skipped` (a later
    step is already running).
    """

    id: str
    status: str
    compensates: bool


class SagaView(Struct, frozen=True):
    """A saga that an entity is in. `phase` is `forward`, `compensation` or `blocked`."""

    state: str
    phase: str
    steps: tuple[StepView, ...]


@dataclass(frozen=True, slots=True)
class Saga:
    """A saga of a chart: its state, the context field with its progress, its steps, and those with a compensation."""

    state: State
    field: str
    steps: tuple[str, ...]
    compensated: frozenset[str]


def sagas(chart: Chart) -> tuple[Saga, ...]:
    """Return the sagas of a chart, in document order."""
    found = []
    for state in chart.states:
        field = next((each.name for each in state.context if each.name.startswith("saga_")), None)
        inside = list(chart.states[state.index + 1 : state.last + 1])
        keys = [each.key for each in inside]
        if field is None or "completed" not in keys:
            continue
        compensated = frozenset(
            key.removesuffix(_COMPENSATION_SUFFIX) for key in keys if key.endswith(_COMPENSATION_SUFFIX)
        )
        steps = tuple(
            key
            for key in keys
            if key not in _RESERVED and not key.endswith(_COMPENSATION_SUFFIX) and _invokes(inside, key)
        )
        found.append(Saga(state, field, steps, compensated))
    return tuple(found)


def _invokes(inside: list[State], key: str) -> bool:
    return any(each.key == key and each.invokes for each in inside)


def saga_views(kernel: Kernel, snapshot: Snapshot) -> tuple[SagaView, ...]:
    """Return the sagas that an entity is in now."""
    active = {each.id: each for each in kernel.active(snapshot)}
    return tuple(_view(saga, active, snapshot) for saga in sagas(kernel.chart) if saga.state.id in active)


def _view(saga: Saga, active: dict[str, State], snapshot: Snapshot) -> SagaView:
    inside = {each.key for each in active.values() if saga.state.index < each.index <= saga.state.last}
    progress = snapshot.context.get(saga.field)
    listed = progress.get("done") if isinstance(progress, dict) else None
    done = {key for key, result in listed.items() if result is not None} if isinstance(listed, dict) else set()
    is_compensating = any(
        key.endswith(_COMPENSATION_SUFFIX) or key in ("compensation", "compensated") for key in inside
    )
    phase = "blocked" if "blocked" in inside else "compensation" if is_compensating else "forward"
    reached = max((at for at, each in enumerate(saga.steps) if each in inside or each in done), default=0)
    steps = (
        StepView(each, _status(each, inside, done, phase, passed=at < reached), each in saga.compensated)
        for at, each in enumerate(saga.steps)
    )
    return SagaView(saga.state.id, phase, tuple(steps))


def _status(step: str, inside: set[str], done: set[str], phase: str, *, passed: bool) -> str:
    if step + _COMPENSATION_SUFFIX in inside:
        return "compensating"
    if step in inside:
        return "running"
    if step in done:
        return "done"
    if phase != "forward":
        return "clear"
    return "skipped" if passed else "waiting"

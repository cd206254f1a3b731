"""The sagas of a chart, and the progress of one entity in them.

Rule: a saga compiles to ordinary states (ADR 0008), and the compiler names them in `State.saga`. The progress of an
entity is read from its active states and from the field that records which steps are done.
"""

from __future__ import annotations

from msgspec import Struct

from interlock.kernel.step import Kernel
from interlock.model.charts.chart import Chart, SagaInfo, SagaStepInfo, State
from interlock.model.snapshot import Snapshot


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


def sagas(chart: Chart) -> tuple[tuple[State, SagaInfo], ...]:
    """Return the sagas of a chart, each with its state, in document order."""
    return tuple((each, each.saga) for each in chart.states if each.saga is not None)


def saga_views(kernel: Kernel, snapshot: Snapshot) -> tuple[SagaView, ...]:
    """Return the sagas that an entity is in now."""
    active = {each.index for each in kernel.active(snapshot)}
    return tuple(
        _view(state.id, saga, active, snapshot) for state, saga in sagas(kernel.chart) if state.index in active
    )


def _view(state: str, saga: SagaInfo, active: set[int], snapshot: Snapshot) -> SagaView:
    progress = snapshot.context.get(saga.field)
    listed = progress.get("done") if isinstance(progress, dict) else None
    done = {key for key, result in listed.items() if result is not None} if isinstance(listed, dict) else set()
    is_compensating = saga.compensated in active or any(each.compensation in active for each in saga.steps)
    phase = "blocked" if saga.blocked in active else "compensation" if is_compensating else "forward"
    reached = max((at for at, each in enumerate(saga.steps) if each.state in active or each.id in done), default=0)
    steps = (
        StepView(each.id, _status(each, active, done, phase, passed=at < reached), each.compensation is not None)
        for at, each in enumerate(saga.steps)
    )
    return SagaView(state, phase, tuple(steps))


def _status(step: SagaStepInfo, active: set[int], done: set[str], phase: str, *, passed: bool) -> str:
    if step.compensation in active:
        return "compensating"
    if step.state in active:
        return "running"
    if step.id in done:
        return "done"
    if phase != "forward":
        return "clear"
    return "skipped" if passed else "waiting"

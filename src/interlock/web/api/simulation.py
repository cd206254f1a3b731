"""Simulate a chart without a store. The client sends all acts so far and gets the resulting steps.

Rule 1: the same acts give the same result: the clock is virtual, and the client completes effects itself.
Rule 2: the simulated principal has every role that the chart names.
Rule 3: the number of steps is limited, and other requests are handled between two acts: the simulation runs on the
server.
Rule 4: the size of a result is limited, and few simulations run at the same time (`SimulationQueue`): a short request
can produce a large result.
"""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct
from starlette.responses import Response

from interlock.errors import InterlockError, UsageError
from interlock.kernel.step import Kernel
from interlock.model.encoding.codec import encode
from interlock.model.limits import SIMULATION_BYTES_MAX, TIMERS_MAX
from interlock.observe.acceptance import Acceptance
from interlock.testing.playback import Act as PlaybackAct
from interlock.testing.playback import AdvanceClock, CompleteEffect, FailEffect, Playback, SendEvent
from interlock.testing.simulation import SimulationRecord
from interlock.web.api.views import (
    TimerView,
    TransitionView,
    chart_file,
    platform_fields,
    timers_view,
    transition_views,
)
from interlock.web.http.endpoint import Endpoint, RequestContext

ACTS_MAX = 200
ADVANCE_MS_MAX = 400 * 86_400_000
ACT_STEPS_MAX = 500
"""Steps of one act: a timer that repeats every second would take some millions in a year."""

STEPS_MAX = 1_000
"""Steps of a simulation; later acts are ignored."""


class Act(Struct, frozen=True):
    """One action of the client: send an event, advance the clock, complete an effect, or let it fail."""

    event: str | None = None
    payload: Any = None
    advance_ms: Annotated[int, Meta(ge=0, le=ADVANCE_MS_MAX)] | None = None
    done: str | None = None
    failed: str | None = None
    result: Any = None


class SimulateBody(Struct, frozen=True):
    """A simulation: the initial context and all acts."""

    acts: Annotated[tuple[Act, ...], Meta(max_length=ACTS_MAX)] = ()
    context: dict[str, Any] | None = None
    revision: str | None = None


class Turn(Struct, frozen=True):
    """One step of a simulation."""

    time_ms: int
    event: str
    outcome: str
    before: tuple[str, ...]
    after: tuple[str, ...]
    context: dict[str, Any]
    transitions: tuple[TransitionView, ...]
    effects: tuple[dict[str, Any], ...]
    reason: str | None = None
    guards: tuple[dict[str, Any], ...] = ()
    faults: tuple[str, ...] = ()
    data: Any = None
    platform: dict[str, Any] = {}


class SimulationView(Struct, frozen=True):
    """The steps and the current state of a simulation. `problem`: why the last act failed."""

    kind: str
    revision: str
    time_ms: int
    turns: tuple[Turn, ...]
    configuration: tuple[str, ...]
    active: tuple[str, ...]
    context: dict[str, Any]
    accepted: tuple[Acceptance, ...]
    timers: tuple[TimerView, ...]
    pending: tuple[dict[str, Any], ...]
    ended: str | None = None
    problem: str | None = None
    file: str | None = None


class _LimitedTrace(list[SimulationRecord]):
    """The steps of a simulation, limited in bytes."""

    def __init__(self) -> None:
        super().__init__()
        self._bytes = 0

    def append(self, record: SimulationRecord) -> None:
        """Add a step. Raises UsageError at the limit."""
        super().append(record)
        data = None if record.event is None else record.event.data
        self._bytes += len(encode(record.step)) + len(encode(data))
        if self._bytes > SIMULATION_BYTES_MAX:
            message = f"the steps of a simulation are limited to {SIMULATION_BYTES_MAX:,} bytes"
            raise UsageError(message, code="lab.size", hint="simulate fewer steps, or use a smaller context")


async def simulate(request: RequestContext) -> Response:
    """Simulate a chart."""
    async with request.console.simulations.turn(request.user.name):
        body = msgspec.json.encode(await _simulate(request))
    return Response(body, media_type="application/json", headers={"Cache-Control": "no-store"})


async def _simulate(request: RequestContext) -> SimulationView:
    body, kind = request.body, request.path("kind")
    request.console.chart_for(request.user, kind, body.revision)
    kernel = request.console.kernel(kind, body.revision)
    entity = f"{kind}/lab"
    playback = Playback(kernel, body.context, entity=entity, steps_max=ACT_STEPS_MAX, new_trace=_LimitedTrace)
    simulation = playback.simulation
    problem = None
    for act in body.acts:
        await asyncio.sleep(0)
        if len(simulation.trace) >= STEPS_MAX:
            problem = f"a simulation is limited to {STEPS_MAX:,} steps"
            break
        try:
            step = _playback_act(act)
            if step is not None:
                playback.apply(step)
        except InterlockError as error:
            problem = error.message
            if error.code == "lab.size":
                break
    snapshot = playback.snapshot
    return SimulationView(
        kind=kind,
        file=chart_file(kernel.chart),
        revision=kernel.chart.revision,
        time_ms=simulation.time_ms,
        turns=_turns(kernel, [each for each in simulation.trace if each.entity == entity], body.context or {}),
        configuration=snapshot.configuration,
        active=playback.active(),
        context=kernel.chart.visible_context(snapshot.context),
        accepted=playback.acceptances(),
        timers=timers_view(snapshot, None)[:TIMERS_MAX],
        pending=tuple(
            {"key": effect.key, "name": effect.name, "type": effect.type, "input": effect.input}
            for owner, effect in simulation.pending
            if owner == entity
        ),
        ended=snapshot.ended,
        problem=problem,
    )


def _playback_act(act: Act) -> PlaybackAct | None:
    if act.event is not None:
        return SendEvent(act.event, act.payload)
    if act.advance_ms is not None:
        return AdvanceClock(act.advance_ms)
    if act.done is not None:
        return CompleteEffect(act.done, act.result)
    return None if act.failed is None else FailEffect(act.failed)


def _turns(kernel: Kernel, records: list[SimulationRecord], initial: dict[str, Any]) -> tuple[Turn, ...]:
    turns: list[Turn] = []
    before: tuple[str, ...] = ()
    for record in records:
        step, event = record.step, record.event
        turns.append(
            Turn(
                time_ms=record.time_ms,
                event="create" if event is None else event.name,
                outcome=step.outcome,
                before=before,
                after=step.snapshot.configuration,
                context=kernel.chart.visible_context(step.snapshot.context),
                transitions=transition_views(kernel.chart, step.transitions),
                effects=tuple(msgspec.to_builtins(each) for each in step.effects),
                reason=step.reason,
                guards=tuple(
                    {"guard": each.guard, "values": each.values, "error": each.error} for each in step.failed_guards
                ),
                faults=tuple(each.message for each in step.faults),
                data={"context": initial} if event is None else event.data,
                platform={} if event is None else platform_fields(event),
            )
        )
        before = step.snapshot.configuration
    return tuple(turns)


ENDPOINTS = (
    Endpoint(
        method="POST",
        path="/kinds/{kind}/simulate",
        summary="Simulate a chart without a store",
        handler=simulate,
        body=SimulateBody,
        answer=SimulationView,
        read_only=True,
    ),
)

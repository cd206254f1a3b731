"""The lab: a chart played without a store. The client sends everything that was done, and gets what it led to.

Rule 1: the same acts give the same play: the clock is virtual, and handlers are the player.
Rule 2: the player has every role that the chart names.
Rule 3: a play has few steps, whatever its timers do, and requests go between its acts: it is played on the server.
Rule 4: what a play tells is limited in bytes, and few are played at once: a chart can make much of a short request.
Others wait, a few of each person.
"""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct
from starlette.responses import Response

from interlock.errors import InterlockError, UsageError
from interlock.kernel.step import Kernel
from interlock.model.codec import encode
from interlock.model.limits import LAB_BYTES_MAX, TIMERS_MAX
from interlock.observe.acceptance import Acceptance
from interlock.testing.playback import Act as PlaybackAct
from interlock.testing.playback import AdvanceClock, CompleteEffect, FailEffect, Playback, SendEvent
from interlock.testing.simulation import SimulationRecord
from interlock.web.api.views import Passed, TimerView, own_fields, passed_view, timers_view
from interlock.web.http.endpoint import Endpoint, RequestContext

ACTS_MAX = 200
ADVANCE_MS_MAX = 400 * 86_400_000
STEPS_MAX = 500
"""Steps of one act: a timer that comes every second would take some millions in a year."""

TURNS_MAX = 1_000
"""Steps of a play; acts beyond are not taken."""


class Act(Struct, frozen=True):
    """One thing the player did: sent an event, moved the clock, or answered an effect."""

    event: str | None = None
    payload: Any = None
    advance_ms: Annotated[int, Meta(ge=0, le=ADVANCE_MS_MAX)] | None = None
    done: str | None = None
    failed: str | None = None
    result: Any = None


class LabBody(Struct, frozen=True):
    """A play: the context to begin with, and what was done since."""

    acts: Annotated[tuple[Act, ...], Meta(max_length=ACTS_MAX)] = ()
    context: dict[str, Any] | None = None
    revision: str | None = None


class Turn(Struct, frozen=True):
    """One step of the play."""

    time_ms: int
    event: str
    outcome: str
    before: tuple[str, ...]
    after: tuple[str, ...]
    context: dict[str, Any]
    took: tuple[Passed, ...]
    effects: tuple[dict[str, Any], ...]
    reason: str | None = None
    guards: tuple[dict[str, Any], ...] = ()
    faults: tuple[str, ...] = ()
    data: Any = None
    own: dict[str, Any] = {}


class LabView(Struct, frozen=True):
    """The play as it stands. `problem`: why the last act was not taken."""

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


class _Trace(list[SimulationRecord]):
    """The steps of a play, within a limit of bytes."""

    def __init__(self) -> None:
        super().__init__()
        self._bytes = 0

    def append(self, record: SimulationRecord) -> None:
        """Add a step. Raises UsageError when it is the last that is told."""
        super().append(record)
        data = None if record.event is None else record.event.data
        self._bytes += len(encode(record.step)) + len(encode(data))
        if self._bytes > LAB_BYTES_MAX:
            message = f"a simulation ends when its steps have {LAB_BYTES_MAX:,} bytes"
            raise UsageError(message, code="lab.size", hint="play a shorter part, or with a smaller context")


async def lab(asked: RequestContext) -> Response:
    """Play a chart."""
    async with asked.console.lab_queue.turn(asked.person.name):
        told = msgspec.json.encode(await _played(asked))
    return Response(told, media_type="application/json", headers={"Cache-Control": "no-store"})


async def _played(asked: RequestContext) -> LabView:
    body, kind = asked.body, asked.path("kind")
    asked.console.chart_for(asked.person, kind, body.revision)
    kernel = asked.console.kernel(kind, body.revision)
    entity = f"{kind}/lab"
    playback = Playback(kernel, body.context, entity=entity, steps_max=STEPS_MAX, new_trace=_Trace)
    play = playback.simulation
    problem = None
    for act in body.acts:
        await asyncio.sleep(0)
        if len(play.trace) >= TURNS_MAX:
            problem = f"a play ends after {TURNS_MAX:,} steps"
            break
        try:
            performed = _act(act)
            if performed is not None:
                playback.apply(performed)
        except InterlockError as error:
            problem = error.message
            if error.code == "lab.size":
                break
    snapshot = playback.snapshot
    return LabView(
        kind=kind,
        revision=kernel.chart.revision,
        time_ms=play.time_ms,
        turns=_turns(kernel, [each for each in play.trace if each.entity == entity], body.context or {}),
        configuration=snapshot.configuration,
        active=playback.active(),
        context=snapshot.context,
        accepted=playback.acceptances(),
        timers=timers_view(snapshot, None)[:TIMERS_MAX],
        pending=tuple(
            {"key": effect.key, "name": effect.name, "type": effect.type, "input": effect.input}
            for owner, effect in play.pending
            if owner == entity
        ),
        ended=snapshot.ended,
        problem=problem,
    )


def _act(act: Act) -> PlaybackAct | None:
    if act.event is not None:
        return SendEvent(act.event, act.payload)
    if act.advance_ms is not None:
        return AdvanceClock(act.advance_ms)
    if act.done is not None:
        return CompleteEffect(act.done, act.result)
    return None if act.failed is None else FailEffect(act.failed)


def _turns(kernel: Kernel, records: list[SimulationRecord], first: dict[str, Any]) -> tuple[Turn, ...]:
    turns: list[Turn] = []
    before: tuple[str, ...] = ()
    for record in records:
        step = record.step
        turns.append(
            Turn(
                record.time_ms,
                "create" if record.event is None else record.event.name,
                step.outcome,
                before,
                step.snapshot.configuration,
                step.snapshot.context,
                passed_view(kernel.chart, step.transitions),
                tuple(msgspec.to_builtins(each) for each in step.effects),
                step.reason,
                tuple({"guard": each.guard, "values": each.values, "error": each.error} for each in step.trials),
                tuple(each.message for each in step.faults),
                {"context": first} if record.event is None else record.event.data,
                {} if record.event is None else own_fields(record.event),
            )
        )
        before = step.snapshot.configuration
    return tuple(turns)


ENDPOINTS = (
    Endpoint(
        method="POST",
        path="/kinds/{kind}/lab",
        summary="Play a chart without a store",
        handler=lab,
        body=LabBody,
        answer=LabView,
        keeps=True,
    ),
)

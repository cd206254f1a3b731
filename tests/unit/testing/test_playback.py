"""A playback: the same acts give the same steps, undo removes the last act, and effects are completed by hand."""

import pytest

from interlock.assemble.charts import loads
from interlock.errors import UsageError
from interlock.testing.playback import (
    Act,
    AdvanceClock,
    CompleteEffect,
    FailEffect,
    Playback,
    SendEvent,
    SetGuard,
)

JOB = """\
interlock: 1
kind: job
context: {n: {type: integer, default: 0}}
initial: idle
states:
  idle:
    on:
      add: {actions: [{assign: {n: "= context.n + event.data.n"}}]}
      start: {target: busy, guard: is_allowed}
  busy:
    entry: [{send: {event: tick, delay: 5s, id: t}}]
    invoke:
      - {id: main.work, src: work.do, timeout: 30s, onDone: ready, onError: idle}
      - {id: child, type: chart, src: {kind: inner, states: {a: {on: {go: {guard: inner_guard}}}}}}
    on: {tick: {}}
  ready: {type: final, output: "= context.n"}
"""


@pytest.fixture
def playback() -> Playback:
    """A chart with a guard in code, an invoke, a child and a timer."""
    return Playback(loads(JOB))


def state(playback: Playback) -> tuple[object, ...]:
    """All that an undo restores."""
    return playback.snapshot, playback.simulation.time_ms, playback.pending(), dict(playback.guards)


def test_undo_restores_snapshot_clock_effects_and_guards(playback: Playback) -> None:
    acts: list[Act] = [
        SendEvent("add", {"n": 2}),
        SendEvent("start"),
        AdvanceClock(3_000),
        SetGuard("is_allowed", False),
    ]
    states = [state(playback)]
    for act in acts:
        playback.apply(act)
        states.append(state(playback))

    for act, before in zip(reversed(acts), reversed(states[:-1]), strict=True):
        assert act == playback.undo()
        assert before == state(playback)


def test_undo_without_an_act_is_refused(playback: Playback) -> None:
    with pytest.raises(UsageError) as found:
        playback.undo()

    assert "play.beginning" == found.value.code


def test_functions_of_the_chart_and_of_inline_charts_are_assumed(playback: Playback) -> None:
    assert {"is_allowed": True, "inner_guard": True} == playback.guards


def test_registered_functions_are_used_and_the_chart_is_not_changed() -> None:
    chart = loads(JOB)

    @chart.guard("is_allowed")
    def is_allowed(context: object, event: object) -> bool:
        return False

    playback = Playback(chart)
    playback.apply(SendEvent("start"))

    assert (("idle",), {"inner_guard": True}) == (playback.snapshot.configuration, playback.guards)
    assert {"is_allowed": is_allowed} == chart.guards


def test_assigns_that_are_not_registered_write_nothing() -> None:
    text = "interlock: 1\nkind: k\ncontext: {n: {type: integer, default: 1}}\n"
    chart = loads(text + "states: {a: {on: {go: {actions: [{assign: known}, {assign: other}]}}}}\n")
    chart.assign("known")(lambda context, event: {"n": 2})
    playback = Playback(chart)
    playback.apply(SendEvent("go"))

    assert ({"n": 2}, ("other",)) == (playback.snapshot.context, playback.assumed_assigns)


def test_an_assumed_guard_can_be_set(playback: Playback) -> None:
    playback.apply(SetGuard("is_allowed", False))
    playback.apply(SendEvent("start"))

    assert ("idle",) == playback.snapshot.configuration


@pytest.mark.parametrize("name", ["main.work", "work", "work.do", "job/1/2/1"])
def test_an_effect_is_named_by_id_last_part_handler_or_key(playback: Playback, name: str) -> None:
    playback.apply(SendEvent("start"))
    playback.apply(CompleteEffect(name))

    assert "done" == playback.snapshot.ended


def test_a_failed_effect_has_code_and_message(playback: Playback) -> None:
    playback.apply(SendEvent("start"))
    event = playback.apply(FailEffect("work", "busy", "come back later"))[0].event

    assert event is not None
    assert ("error.invoke.main.work", "busy", "come back later") == (
        event.name,
        event.data["code"],
        event.data["message"],
    )


def test_due_items_are_timers_and_timeouts_soonest_first(playback: Playback) -> None:
    playback.apply(SendEvent("start"))

    assert [("tick", 5_000, False), ("main.work", 30_000, True)] == [
        (each.name, each.due_ms, each.is_timeout) for each in playback.due_items()
    ]


def test_without_a_duration_the_clock_advances_to_the_next_due_item(playback: Playback) -> None:
    playback.apply(SendEvent("start"))
    times = []
    for _ in range(2):
        playback.apply(AdvanceClock())
        times.append(playback.simulation.time_ms)

    assert [5_000, 30_000] == times


@pytest.mark.parametrize(
    ("act", "code"),
    [
        (AdvanceClock(), "play.advance"),
        (CompleteEffect("nothing"), "play.pending"),
        (FailEffect("nothing"), "play.pending"),
        (SetGuard("unknown", True), "play.guard"),
        (SendEvent("_create"), "event.reserved"),
    ],
)
def test_an_impossible_act_changes_nothing(playback: Playback, act: Act, code: str) -> None:
    before = state(playback)
    with pytest.raises(UsageError) as found:
        playback.apply(act)

    assert (code, before, []) == (found.value.code, state(playback), playback.acts)


def test_replay_removes_the_steps_of_an_act_that_never_settles() -> None:
    playback = Playback(loads("interlock: 1\nkind: k\nstates: {a: {on: {x: {actions: [{send: {event: x}}]}}}}\n"))
    before = state(playback)
    with pytest.raises(UsageError) as found:
        playback.apply(SendEvent("x"))
    playback.replay()

    assert ("simulation.steps", before, []) == (found.value.code, state(playback), playback.acts)


def test_visited_states_include_those_that_were_left(playback: Playback) -> None:
    playback.apply(SendEvent("start"))

    assert ({"idle", "busy"}, ("busy",)) == (playback.visited(), playback.active())

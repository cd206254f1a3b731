"""The events of a hold: the entity remembers it, steps go on, and a resume moves the timers that it names."""

from interlock.assemble.charts import loads
from interlock.model.event import Event
from interlock.model.held import HELD_FIELD, Held, held_of
from interlock.model.snapshot import Snapshot

CHART = loads("""
interlock: 1
kind: member
context: {n: {type: integer, default: 1}}
states: {a: {on: {go: b, count: {actions: [{assign: {n: "= context.n + 1"}}]}}, after: {1h: b}}, b: {type: final}}
""").kernel
HOLD = Event("_hold", {"by": "ann", "reason": "case 118"}, type="platform", time_ms=7_000)
RESUME = Event("_resume", type="platform", time_ms=9_000)


def started() -> Snapshot:
    return CHART.start({}, entity="member/1", time_ms=1_000).snapshot


def held() -> Snapshot:
    return CHART.step(started(), HOLD).snapshot


def test_a_hold_is_remembered_and_nothing_else_changes() -> None:
    before = started()
    step = CHART.step(before, HOLD)

    assert ("applied", "held", ()) == (step.outcome, step.reason, step.effects)
    assert Held(7_000, "ann", "case 118") == held_of(step.snapshot.context)
    assert (before.configuration, before.timers) == (step.snapshot.configuration, step.snapshot.timers)


def test_a_second_hold_and_a_resume_without_one_change_nothing() -> None:
    for snapshot, event, reason in ((held(), HOLD, "held"), (started(), RESUME, "not_held")):
        step = CHART.step(snapshot, event)
        assert ("ignored", reason, snapshot) == (step.outcome, step.reason, step.snapshot)


def test_steps_during_a_hold_keep_it() -> None:
    step = CHART.step(held(), "count")

    assert (2, Held(7_000, "ann", "case 118")) == (step.snapshot.context["n"], held_of(step.snapshot.context))


def test_a_resume_forgets_the_hold_and_moves_the_timers_that_it_names() -> None:
    before = held()
    (timer,) = before.timers
    moved = {"name": timer.name, "version": timer.version, "due_ms": 99_000, "since_ms": 9_000}
    other = {**moved, "version": 77}

    step = CHART.step(before, Event("_resume", {"timers": [moved, other]}, type="platform", time_ms=9_000))

    assert ("applied", {"n": 1}) == (step.outcome, step.snapshot.context)
    assert [(99_000, 9_000)] == [(each.due_ms, each.since_ms) for each in step.snapshot.timers]


def test_an_entity_that_ended_while_held_can_be_resumed_and_not_held_again() -> None:
    ended = CHART.step(held(), "go").snapshot
    resumed = CHART.step(ended, RESUME)

    assert ("applied", False) == (resumed.outcome, HELD_FIELD in resumed.snapshot.context)
    assert "rejected" == CHART.step(resumed.snapshot, HOLD).outcome


def test_only_the_driver_holds() -> None:
    for name in ("_hold", "_resume"):
        step = CHART.step(held(), Event(name))
        assert ("rejected", "reserved") == (step.outcome, step.reason)

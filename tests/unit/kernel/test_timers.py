"""Timers: names, setting, cancelling, moving and firing (S36-S39)."""

import pytest

from interlock.assemble.charts import timer_event
from interlock.model.driver_events import timer_moved
from interlock.model.event import Event
from interlock.model.snapshot import Snapshot, Timer
from tests.unit.kernel.charts import (
    ENTITY,
    PARENT,
    effect_of,
    faults,
    fired,
    kernel_of,
    last_step,
    payloads,
    started,
)

SENDS = """
states:
  a:
    on:
      named: {actions: [{send: {event: due, id: reminder, delay: 5s, data: {n: 1}}}]}
      nameless: {actions: [{send: {event: due, delay: 5s}}]}
      computed: {actions: [{send: {event: due, delay: "= event.data"}}]}
      elsewhere: {actions: [{send: {event: due, id: later, delay: 1s, to: order/7, data: 3}}]}
      anywhere: {actions: [{send: {event: due, delay: 1s, to: order/7}}]}
      stop: {actions: [{cancel: reminder}]}
      due: {actions: [{do: told, with: {data: "= event.data", sendid: "= event.sendid"}}]}
"""


def names(snapshot: Snapshot) -> list[str]:
    """The names of the pending timers, in the order set."""
    return [timer.name for timer in snapshot.timers]


def test_a_delayed_send_is_a_timer_and_an_effect() -> None:
    """S36: it is in the snapshot and in an effect for the driver."""
    step = last_step(kernel_of(SENDS), Event("named", time_ms=100))

    assert (Timer("reminder", "due", 5_100, 2, 0, "reminder", {"n": 1}),) == step.snapshot.timers
    assert {"name": "reminder", "event": "due", "due_ms": 5_100, "version": 2} == effect_of(step, "timer").payload


def test_a_timer_without_id_is_named_by_version_and_ordinal() -> None:
    """S36: the same on replay; `cancel` cannot reach it."""
    step = last_step(kernel_of(SENDS), "nameless")

    assert [("send.2.0", None)] == [(timer.name, timer.id) for timer in step.snapshot.timers]


def test_a_second_timer_of_an_id_gets_a_name_of_its_own() -> None:
    """S36: SCXML lets a send id repeat."""
    step = last_step(kernel_of(SENDS), "named", "named")

    assert ["reminder", "reminder~3.0"] == names(step.snapshot)
    assert ["reminder", "reminder"] == [timer.id for timer in step.snapshot.timers]


def test_cancel_drops_every_timer_of_the_id() -> None:
    """S36: each with an effect for the driver."""
    step = last_step(kernel_of(SENDS), "named", "named", "nameless", "stop")

    assert ["send.4.0"] == names(step.snapshot)
    assert [{"name": "reminder", "version": 2}, {"name": "reminder~3.0", "version": 3}] == payloads(
        step, "timer_cancel"
    )


def test_cancelling_what_is_not_there_does_nothing() -> None:
    """S25: only this entity's timers not yet fired are reached."""
    step = last_step(kernel_of(SENDS), "stop")

    assert ("applied", ()) == (step.outcome, step.effects)


@pytest.mark.parametrize(("delay", "due_ms"), [(250, 250), ("1m30s", 90_000)])
def test_a_computed_delay_may_be_milliseconds_or_a_text(delay: object, due_ms: int) -> None:
    """S36: counted from the event's own time."""
    step = last_step(kernel_of(SENDS), Event("computed", delay))

    assert [due_ms] == [timer.due_ms for timer in step.snapshot.timers]


@pytest.mark.parametrize("delay", [0, None, "0s"])
def test_no_delay_is_no_timer(delay: object) -> None:
    """S24: it is an effect then."""
    step = last_step(kernel_of(SENDS), Event("computed", delay))

    assert ((), ["send"]) == (step.snapshot.timers, [effect.type for effect in step.effects])


def test_a_timer_that_fires_is_handled_like_an_event_and_removed() -> None:
    """S37: data and send id are those of the send."""
    kernel = kernel_of(SENDS)
    before = last_step(kernel, "named").snapshot
    step = kernel.step(before, fired(before, "reminder"))

    assert {"data": {"n": 1}, "sendid": "reminder"} == effect_of(step, "call").input
    assert () == step.snapshot.timers


def test_the_package_makes_the_same_firing() -> None:
    """`interlock.firing` is what drivers use."""
    kernel = kernel_of(SENDS)
    before = last_step(kernel, "named").snapshot

    assert kernel.step(before, fired(before, "reminder")) == kernel.step(before, timer_event(before.timers[0]))


def test_an_unhandled_timer_is_removed() -> None:
    """S37: otherwise it would fire again and again."""
    kernel = kernel_of("states: {a: {on: {go: {target: b, actions: [{send: {event: due, id: t, delay: 1s}}]}}}, b: {}}")
    before = last_step(kernel, "go").snapshot
    step = kernel.step(before, fired(before, "t"))

    assert ("ignored", "no_transition") == (step.outcome, step.reason)
    assert ((), before.version + 1) == (step.snapshot.timers, step.snapshot.version)


def test_a_timer_handled_without_actions_is_removed() -> None:
    """The author declared it done already; the timer is spent."""
    kernel = kernel_of("states: {a: {on: {go: {actions: [{send: {event: due, id: t, delay: 1s}}]}, due: {}}}}")
    before = last_step(kernel, "go").snapshot
    step = kernel.step(before, fired(before, "t"))

    assert ("ignored", "no_content", ()) == (step.outcome, step.reason, step.snapshot.timers)


def test_a_firing_whose_step_fails_still_removes_its_timer() -> None:
    """A failed step leaves everything as it was, but for the timer whose event it was."""
    kernel = kernel_of("""
        errors: raise
        states: {a: {after: {1s: {target: b, actions: [{log: {value: "= 1 // 0"}}]}}}, b: {}}
    """)
    before = started(kernel)
    step = kernel.step(before, fired(before, "after.1s.a"))

    assert ("rejected", "failed") == (step.outcome, step.reason)
    assert (("a",), (), 2) == (step.snapshot.configuration, step.snapshot.timers, step.snapshot.version)


@pytest.mark.parametrize("source", ["timer/reminder/1", "timer/other/2", "timer/reminder", "timer/"])
def test_an_unknown_timer_is_ignored(source: str) -> None:
    """S37: cancelled, fired twice, of another version, or no name at all."""
    kernel = kernel_of(SENDS)
    before = last_step(kernel, "named").snapshot
    step = kernel.step(before, Event("due", source=source))

    assert ("ignored", "timer_gone") == (step.outcome, step.reason)
    assert before is step.snapshot


def test_a_timer_for_another_entity_sends_when_it_fires() -> None:
    """S37: the firing selects nothing; the step returns the send."""
    kernel = kernel_of(SENDS)
    before = last_step(kernel, "elsewhere", "anywhere").snapshot
    first = kernel.step(before, fired(before, "later"))
    second = kernel.step(first.snapshot, fired(first.snapshot, "send.3.0"))

    assert ("applied", "sent", ()) == (second.outcome, second.reason, second.snapshot.timers)
    assert {"event": "due", "to": "order/7", "data": 3, "sendid": "later"} == effect_of(first, "send").payload
    assert {"event": "due", "to": "order/7"} == effect_of(second, "send").payload


def test_a_delayed_send_to_the_parent_keeps_its_address() -> None:
    """187: `#_parent` is resolved when it is sent, by the driver."""
    kernel = kernel_of("states: {a: {entry: [{send: {event: e, id: t, to: parent, delay: 1s}}]}}")

    assert ["#_parent"] == [timer.to for timer in started(kernel, parent=PARENT).timers]


def test_a_delayed_send_to_itself_by_id_is_its_own() -> None:
    """S37: it is an event of this entity, not a send."""
    kernel = kernel_of(f"states: {{a: {{entry: [{{send: {{event: e, to: {ENTITY}, delay: 1s}}}}]}}}}")

    assert [None] == [timer.to for timer in started(kernel).timers]


AFTER = """
context: {wait: {type: any, default: 2000}}
states:
  a:
    entry: [hello]
    after:
      1s: [{target: b, guard: "= context.wait == 0"}, {actions: [late]}]
      "= context.wait": {target: b, onRestore: remaining}
    on: {leave: b, again: {target: a, reenter: true}, set: {actions: [{assign: {wait: "= event.data"}}]}}
  b: {on: {back: a}}
"""


def test_after_sets_its_timers_behind_the_entry_actions() -> None:
    """S38: named by delay and state, an expression by its number."""
    step = last_step(kernel_of(AFTER))

    assert ["call", "timer", "timer"] == [effect.type for effect in step.effects]
    assert [("after.1s.a", 1_000, "deadline", "a"), ("after.0.a", 2_000, "remaining", "a")] == [
        (timer.name, timer.due_ms, timer.restore, timer.state) for timer in step.snapshot.timers
    ]


def test_leaving_the_state_cancels_its_timers() -> None:
    """S38: at the end of exit."""
    step = last_step(kernel_of(AFTER), "leave")

    assert () == step.snapshot.timers
    assert ["after.1s.a", "after.0.a"] == [each["name"] for each in payloads(step, "timer_cancel")]


def test_entering_again_restarts_its_timers() -> None:
    """S38: they belong to the new entry."""
    step = last_step(kernel_of(AFTER), Event("again", time_ms=500))

    assert [("after.1s.a", 1_500, 2), ("after.0.a", 2_500, 2)] == [
        (timer.name, timer.due_ms, timer.version) for timer in step.snapshot.timers
    ]


def test_an_after_does_not_fire_again() -> None:
    """S38: a guard that is false when it fires leaves the state where it is."""
    kernel = kernel_of(AFTER)
    before = started(kernel)
    step = kernel.step(before, fired(before, "after.1s.a"))

    assert (("a",), ["after.0.a"]) == (step.snapshot.configuration, names(step.snapshot))
    assert "late" == effect_of(step, "call").name


@pytest.mark.parametrize("wait", ["soon", -1, None])
def test_a_delay_that_is_none_sets_no_timer(wait: object) -> None:
    step = last_step(kernel_of(AFTER), Event("set", wait), "again")

    assert ([] if wait is None else ["send.delay"]) == faults(step)
    assert (["after.1s.a", "after.0.a"] if wait is None else ["after.1s.a"]) == names(step.snapshot)


def test_a_delayed_send_has_a_restore_policy() -> None:
    """S39: as an `after` does; `deadline` where it says nothing."""
    kernel = kernel_of("""
states:
  a:
    entry:
      - {send: {event: e, delay: 1s, id: one, onRestore: remaining}}
      - {send: {event: e, delay: 1s, id: two}}
      - {send: {event: e, delay: 1s, id: three, onRestore: restart, to: order/7}}
""")

    assert ["remaining", "deadline", "restart"] == [each.restore for each in kernel.start(entity="k/1").snapshot.timers]


def moved(**data: object) -> Event:
    """The driver's event that moves a timer after downtime."""
    return Event("_timer.moved", data, type="platform")


def test_a_timer_can_be_moved() -> None:
    """S39: only its due time changes; the entity does not see it."""
    kernel = kernel_of(SENDS)
    before = last_step(kernel, "named", "nameless").snapshot
    step = kernel.step(before, moved(name="reminder", version=2, due_ms=9_000))

    assert ("applied", "moved", before.version + 1) == (step.outcome, step.reason, step.snapshot.version)
    assert Timer("reminder", "due", 9_000, 2, 0, "reminder", {"n": 1}) == step.snapshot.timers[0]
    assert before.timers[1:] == step.snapshot.timers[1:]


def test_a_moved_timer_remembers_from_when_it_counts() -> None:
    """S39: no downtime is counted twice; a move that says nothing of it leaves it as it was."""
    kernel = kernel_of(SENDS)
    before = last_step(kernel, "named").snapshot
    once = kernel.step(before, timer_moved(before.timers[0], due_ms=9_000, since_ms=4_000)).snapshot
    again = kernel.step(once, moved(name="reminder", version=2, due_ms=9_500)).snapshot

    assert [(9_000, 4_000), (9_500, 4_000)] == [
        (each.timers[0].due_ms, each.timers[0].since_ms) for each in (once, again)
    ]


@pytest.mark.parametrize("since_ms", ["4s", True, 1.5])
def test_a_moved_timer_counts_from_whole_milliseconds(since_ms: object) -> None:
    """Anything else would make a snapshot that cannot be decoded again."""
    kernel = kernel_of(SENDS)
    before = last_step(kernel, "named").snapshot
    step = kernel.step(before, moved(name="reminder", version=2, due_ms=9_000, since_ms=since_ms))

    assert ("rejected", "undeclared", before) == (step.outcome, step.reason, step.snapshot)


@pytest.mark.parametrize("data", [{"name": "other", "version": 2}, {"name": "reminder", "version": 9}, {"name": []}])
def test_an_unknown_timer_cannot_be_moved(data: dict[str, object]) -> None:
    """S39: ignored, as its firing would be."""
    kernel = kernel_of(SENDS)
    before = last_step(kernel, "named").snapshot
    step = kernel.step(before, moved(due_ms=9_000, **data))

    assert ("ignored", "timer_gone") == (step.outcome, step.reason)
    assert before is step.snapshot


@pytest.mark.parametrize("data", [None, [], {}, {"name": "reminder", "version": 2}, {"due_ms": "9s"}, {"due_ms": True}])
def test_a_moved_without_its_due_time_is_refused(data: object) -> None:
    """The event is a driver's; a malformed one changes nothing."""
    kernel = kernel_of(SENDS)
    before = last_step(kernel, "named").snapshot
    step = kernel.step(before, Event("_timer.moved", data, type="platform"))

    assert ("rejected", "undeclared") == (step.outcome, step.reason)
    assert before is step.snapshot


def test_reserved_names_belong_to_the_kernel() -> None:
    """V6: a sender cannot reach a chart's `*` with one."""
    kernel = kernel_of("states: {a: {on: {'*': b}}, b: {}}")
    step = last_step(kernel, "_secret")

    assert ("rejected", "reserved", ("a",)) == (step.outcome, step.reason, step.snapshot.configuration)


def test_a_name_made_for_a_timer_is_never_that_of_another() -> None:
    """S36: an author may have used the id that distinguishes a repeated one."""
    sends = ", ".join(f"{{send: {{event: x, delay: 1s, id: {each}}}}}" for each in ("q", "q~1.2", "q"))
    timers = kernel_of(f"states: {{a: {{entry: [{sends}]}}}}").start(entity=ENTITY).snapshot.timers

    assert ["q", "q~1.2", "q~1.2~1.2"] == [each.name for each in timers]

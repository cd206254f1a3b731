"""S36 to S39: delayed events."""

from __future__ import annotations

from tests.conformance.semantics.life import PARENT, Life


def test_s36_a_delayed_send_puts_a_timer_into_the_snapshot() -> None:
    """With its data as evaluated, when it is due, and which version and effect set it."""
    life = Life("states: {a: {entry: [{send: {event: t, delay: 1m30s, id: mine, data: '= 1 + 1'}}]}}", time_ms=500)
    timer = life.timer("mine")

    assert ("t", 2, 90_500, 1, 1, "mine") == (
        timer.event,
        timer.data,
        timer.due_ms,
        timer.version,
        timer.ordinal,
        timer.id,
    )
    assert {"name": "mine", "event": "t", "due_ms": 90_500, "version": 1} == life.effects("timer")[0].payload


def test_s36_due_is_counted_from_the_time_of_the_event() -> None:
    life = Life("states: {a: {on: {e: {actions: [{send: {event: t, delay: 1s, id: t}}]}}}}")
    life.time_ms = 70
    life.send("e")

    assert 1_070 == life.timer("t").due_ms


def test_s36_a_send_id_may_repeat() -> None:
    life = Life("states: {a: {on: {e: {actions: [{send: {event: t, delay: 1s, id: t}}]}}}}")
    life.send_all("e", "e")

    assert ["t", "t~3.0"] == [each.name for each in life.step.snapshot.timers]
    assert ["t", "t"] == [each.id for each in life.step.snapshot.timers]


def test_s36_timers_stay_in_the_order_set() -> None:
    life = Life("states: {a: {entry: [{send: {event: x, delay: 1s, id: b}}, {send: {event: y, delay: 1s, id: a}}]}}")

    assert ["b", "a"] == [each.name for each in life.step.snapshot.timers]


def test_s37_a_firing_is_an_external_event_and_spends_the_timer() -> None:
    life = Life("""
        states:
          a:
            entry: [{send: {event: t, delay: 1s, id: mine, data: 5}}]
            on: {t: {actions: [{log: "= event.data"}, {log: "= event.sendid"}]}}
        """)

    assert "5 mine" == life.fire(life.timer("mine"))
    assert () == life.step.snapshot.timers


def test_s37_a_timer_that_is_gone_is_ignored() -> None:
    life = Life("""
        states:
          a: {entry: [{send: {event: t, delay: 1s, id: t}}], on: {t: {actions: [x]}, c: {actions: [{cancel: t}]}}}
        """)
    timer = life.timer("t")
    life.send("c")
    before = life.step.snapshot
    life.fire(timer)

    assert ("ignored timer_gone", before) == (life.verdict, life.step.snapshot)


def test_s37_a_timer_for_somebody_else_becomes_a_send_when_it_fires() -> None:
    """It selects nothing here (W3C 187)."""
    life = Life(
        """
        states:
          a: {entry: [{send: {event: t, delay: 1s, id: mine, to: parent, data: 1}}], on: {t: {actions: [wrong]}}}
        """,
        parent=PARENT,
    )

    assert "" == life.fire(life.timer("mine"))
    assert "applied sent" == life.verdict
    assert {"event": "t", "to": "#_parent", "data": 1, "sendid": "mine"} == life.effects("send")[0].payload


AFTER = """
context: {ok: {type: boolean, default: false}}
states:
  a:
    entry: [mine]
    exit: [bye]
    after: {30s: {target: z, guard: "= context.ok"}}
    on: {again: {target: a, reenter: true}, leave: z}
  z: {}
"""


def test_s38_after_sets_a_timer_at_the_end_of_entry() -> None:
    life = Life(AFTER)

    assert ["log", "call", "timer"] == [each.type for each in life.step.effects]
    assert "after.30s.a" == life.timer("after.30s.a").event


def test_s38_leaving_cancels_it_at_the_end_of_exit() -> None:
    life = Life(AFTER)
    life.send("leave")

    assert ["log", "call", "timer_cancel", "log"] == [each.type for each in life.step.effects]
    assert () == life.step.snapshot.timers


def test_s38_entering_again_restarts_it() -> None:
    life = Life(AFTER)
    life.time_ms = 10_000
    life.send("again")

    assert [40_000] == [each.due_ms for each in life.step.snapshot.timers]


def test_s38_a_false_guard_when_it_fires_leaves_the_state_where_it_is() -> None:
    life = Life(AFTER)
    life.fire(life.timer("after.30s.a"))

    assert ("ignored no_transition", "a", ()) == (life.verdict, life.states, life.step.snapshot.timers)


def test_s38_a_delay_may_be_an_expression() -> None:
    life = Life("""
        context: {n: {type: integer, default: 7}}
        states: {a: {after: {"= 1 // 0": z, "= context.n * 10": z}}, z: {}}
        """)

    assert [("after.1.a", 70)] == [(each.event, each.due_ms) for each in life.step.snapshot.timers]
    assert ["expression.zero_division"] == life.faults


def test_s39_the_policy_is_kept_with_the_timer() -> None:
    """`deadline` unless said otherwise."""
    life = Life("states: {a: {after: {1s: z, 2s: {target: z, onRestore: restart}}}, z: {}}")

    assert ["deadline", "restart"] == [each.restore for each in life.step.snapshot.timers]


def test_s39_moving_a_timer_changes_its_due_time_and_nothing_else() -> None:
    life = Life("states: {a: {after: {1s: z}, on: {'*': {actions: [wrong]}}}, z: {}}")
    data = {"name": "after.1s.a", "version": 1, "due_ms": 9_000}

    assert "" == life.send("_timer.moved", data, type="platform")
    assert ("applied moved", 2, 9_000) == (life.verdict, life.step.snapshot.version, life.timer("after.1s.a").due_ms)
    life.send("_timer.moved", {**data, "version": 5}, type="platform")
    assert "ignored timer_gone" == life.verdict

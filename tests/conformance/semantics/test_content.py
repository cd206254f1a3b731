"""S23 to S25: blocks, raise and send, assign, foreach, cancel."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.semantics.life import PARENT, Life, codes

ERROR = "{log: '= 1 // 0'}"


def test_s23_an_error_skips_the_rest_of_its_block_only() -> None:
    """The next block runs, and `error.execution` is queued (W3C 159, 376)."""
    life = Life(
        f"states: {{a: {{entry: [[one, {ERROR}, lost], [two]], on: {{error.execution: {{actions: [told]}}}}}}}}"
    )

    assert "+a one two told" == life.trace


def test_s23_what_a_failed_block_did_before_the_error_stays() -> None:
    life = Life(
        f"context: {{n: {{type: integer, default: 0}}}}\nstates: {{a: {{entry: [{{assign: {{n: 1}}}}, {ERROR}]}}}}"
    )

    assert ({"n": 1}, ["expression.zero_division"]) == (life.context, life.faults)


def test_s23_an_error_inside_if_or_foreach_ends_the_outer_block() -> None:
    life = Life(f"states: {{a: {{entry: [{{foreach: {{in: [1, 2], item: x, do: [turn, {ERROR}]}}}}, lost]}}}}")

    assert "+a turn" == life.trace


def test_s24_raise_and_send_to_internal_join_the_queue_in_order() -> None:
    life = Life("""
        states:
          a:
            on:
              e: {actions: [{send: {event: x, to: internal}}, {raise: y}]}
              x: {actions: [x]}
              y: {actions: [y]}
        """)

    assert "x y" == life.send("e")


def test_s24_a_send_to_itself_is_not_run_in_the_same_step() -> None:
    """It is an effect, written with the step, and comes back from outside (W3C 189, 190)."""
    life = Life("states: {a: {on: {e: {actions: [{send: {event: x, data: 1}}]}, x: {actions: [x]}}}}")

    assert "" == life.send("e")
    assert {"event": "x", "to": "tale/1", "data": 1} == life.effects("send")[0].payload


def test_s24_arguments_are_evaluated_when_the_action_runs() -> None:
    """Later assignments do not change what was sent (W3C 186)."""
    life = Life("""
        context: {n: {type: integer, default: 1}}
        states: {a: {on: {e: {actions: [{send: {event: x, data: "= context.n", delay: 1s, id: t}}, {assign: {n: 2}}]}}}}
        """)
    life.send("e")

    assert 1 == life.timer("t").data


@pytest.mark.parametrize(
    ("action", "code"),
    [
        ("{assign: {n: \"= 'x' + ''\"}}", "assign.refused"),
        ("{assign: {n: '= context.n + 99'}}", "assign.refused"),
        ("{assign: {o.gone.deep: 1}}", "assign.path"),
        ("{foreach: {in: '= context.n', item: x, do: []}}", "foreach.items"),
        ("{send: {event: x, type: pigeon}}", "send.type"),
        ("{send: {event: x, delay: \"= 'soon'\"}}", "send.delay"),
        ("{send: {event: '= context.n'}}", "send.event"),
    ],
)
def test_s25_what_cannot_be_done_is_an_error_of_execution(action: str, code: str) -> None:
    """The value stays as it was and the rest of the block is skipped (W3C 286, 194, 152)."""
    life = Life(f"""
        context: {{n: {{type: integer, default: 1, max: 10}}, o: {{type: object, default: {{}}}}}}
        states: {{a: {{on: {{e: {{actions: [{action}, lost]}}}}}}}}
        """)
    life.send("e")

    assert ("", {"n": 1, "o": {}}) == (life.trace, life.context)
    assert [code] == life.faults


def test_s25_an_undeclared_field_is_refused_at_load() -> None:
    assert "assign.unknown_field" in codes("states: {a: {entry: [{assign: {nobody: 1}}]}}")


def test_s25_foreach_walks_a_shallow_copy() -> None:
    """Changing the list inside does not change the walk (W3C 525)."""
    life = Life("""
        context: {xs: {type: array, default: [1, 2]}}
        states: {a: {entry: [{foreach: {in: "= context.xs", item: x, do: [{assign: {xs: "= context.xs + [9]"}}]}}]}}
        """)

    assert [1, 2, 9, 9] == life.context["xs"]


def test_s25_foreach_declares_item_and_index() -> None:
    """They become fields of the context and stay after the loop (W3C 151)."""
    life = Life(
        "states: {a: {entry: [{foreach: {in: [5, 6], item: x, index: i, do: [{log: '= context.x + context.i'}]}}]}}"
    )

    assert "+a 5 7" == life.trace
    assert {"x": 6, "i": 1} == life.context


def test_s25_foreach_over_nothing_does_nothing() -> None:
    life = Life("states: {a: {entry: [{foreach: {in: [], item: x, do: [turn]}}, after]}}")

    assert ("+a after", {}) == (life.trace, life.context)


@pytest.mark.parametrize("to", ["parent", "nobody", "\"= '#_scxml_nobody'\""])
def test_s25_what_is_visibly_undeliverable_is_an_error_of_communication_at_once(to: str) -> None:
    """No parent, no such invoke, no such entity: queued inside, with the send id (W3C 496, 521, 332)."""
    life = Life(f"""
        states:
          a:
            on:
              e: {{actions: [{{send: {{event: x, to: {to}, id: mine}}}}, lost]}}
              error.communication: {{actions: [{{log: "= event.sendid"}}]}}
        """)

    assert "mine" == life.send("e")


def test_s25_an_error_in_an_argument_carries_the_send_id_too() -> None:
    """The id says which send it was (W3C 332)."""
    life = Life("""
        states:
          a:
            on:
              e: {actions: [{send: {event: x, id: mine, type: pigeon}}]}
              error.execution: {actions: [{log: "= event.sendid"}]}
        """)

    assert "mine" == life.send("e")


def test_s25_a_send_reaches_parent_invoke_and_other_entities() -> None:
    life = Life(
        """
        states:
          a:
            invoke: {id: job, src: w}
            on:
              e:
                actions:
                  - {send: {event: x, to: parent}}
                  - {send: {event: x, to: job}}
                  - {send: {event: x, to: "= 'k/1'"}}
        """,
        parent=PARENT,
    )
    life.send("e")

    assert ["#_parent", "#_job", "k/1"] == [each.payload["to"] for each in life.effects("send")]


def test_s25_cancel_drops_every_pending_timer_of_the_id() -> None:
    life = Life("""
        states:
          a:
            entry:
              - {send: {event: x, delay: 1s, id: t}}
              - {send: {event: y, delay: 2s, id: t}}
              - {send: {event: z, delay: 3s, id: other}}
            on: {e: {actions: [{cancel: t}, {cancel: nobody}]}}
        """)
    life.send("e")

    assert (["z"], 2) == ([each.event for each in life.step.snapshot.timers], len(life.effects("timer_cancel")))


def test_s25_scripts_are_refused() -> None:
    assert "script.untrusted" in codes("states: {a: {entry: [{script: 'x = 1'}]}}")


def test_s25_registered_functions_assign_by_mapping() -> None:
    def both(context: Any, event: Any) -> dict[str, Any]:
        return {"n": 2, "m": "x"}

    life = Life(
        "context: {n: {type: integer, default: 1}, m: {}}\nstates: {a: {entry: [{assign: both}]}}",
        assigns={"both": both},
    )

    assert {"n": 2, "m": "x"} == life.context


def test_s33_an_if_whose_guard_fails_goes_on_to_the_next_branch() -> None:
    life = Life("states: {a: {entry: [{if: '= 1 // 0 == 1', then: [no], else: [other]}, more]}}")

    assert ("+a other more", ["expression.zero_division"]) == (life.trace, life.faults)

"""Errors of content: each ends its block only, has a code, and leaves what it could not do undone (S23, S25, S33)."""

import pytest

from interlock.model.event import Event
from interlock.model.step import Fault
from tests.unit.kernel.charts import calls, faults, kernel_of, last_step, payloads

CONTEXT = """
context:
  n: {type: integer, default: 0, max: 9}
  text: {type: string, default: ok}
  short: {type: string, default: '', length_max: 3}
  tree: {type: any, default: {a: {b: 1}, list: [1, [2, 3]]}}
"""


def after(actions: str, data: object = None, *, dialect: str = "interlock") -> tuple[list[str], list[str | None]]:
    """Return the codes of the faults of a block, and the named actions that still ran."""
    kernel = kernel_of(f"dialect: {dialect}\n{CONTEXT}\nstates: {{a: {{on: {{go: {{actions: [{actions}, rest]}}}}}}}}")
    step = last_step(kernel, Event("go", data))
    return faults(step), calls(step)


@pytest.mark.parametrize(
    ("actions", "data", "code"),
    [
        ("{assign: {n: '= event.data'}}", "x", "assign.refused"),
        ("{assign: {n: '= event.data'}}", True, "assign.refused"),
        ("{assign: {n: '= event.data'}}", 10, "assign.refused"),
        ("{assign: {text: '= event.data'}}", None, "assign.refused"),
        ("{assign: {short: '= event.data'}}", "long", "assign.refused"),
        ("{assign: {tree.x.y: 1}}", None, "assign.path"),
        ("{assign: {tree.a.b.c: 1}}", None, "assign.path"),
        ("{assign: {tree.list.2: 1}}", None, "assign.path"),
        ("{assign: {tree.list.x: 1}}", None, "assign.path"),
        ("{assign: {text.x: 1}}", None, "assign.path"),
        ("{raise: '= event.data'}", 5, "raise.event"),
        ("{raise: '= event.data'}", "", "raise.event"),
        ("{send: {event: '= event.data'}}", 5, "send.event"),
        ("{send: {event: '= event.data'}}", "", "send.event"),
        ("{send: {event: e, id: '= event.data'}}", 5, "send.id"),
        ("{send: {event: e, type: '= event.data'}}", "smtp", "send.type"),
        ("{send: {event: e, type: '= event.data'}}", 5, "send.type"),
        ("{cancel: '= event.data'}", 5, "cancel.id"),
        ("{foreach: {in: '= event.data', item: i, do: [x]}}", 5, "foreach.items"),
        ("{foreach: {in: '= event.data', item: i, do: [x]}}", {}, "foreach.items"),
        ("{foreach: {in: [x], item: n, do: [x]}}", None, "assign.refused"),
        ("{log: {value: '= context.none'}}", None, "expression.missing_key"),
        ("{do: f, with: {x: '= 1 // 0'}}", None, "expression.zero_division"),
        ("{emit: {type: t, data: '= event.data.x'}}", None, "expression.type"),
    ],
)
def test_an_error_ends_its_block(actions: str, data: object, code: str) -> None:
    """S23: the remaining actions are skipped, and an error that no transition takes is a fault (S33)."""
    assert ([code], []) == after(actions, data)


def test_an_index_of_foreach_fits_its_field() -> None:
    """S25: a declared field accepts only its type, from any writer."""
    found = after("{foreach: {in: [x], item: i, index: text, do: []}}")

    assert (["assign.refused"], []) == found


@pytest.mark.parametrize("delay", [-1, 1.5, "soon", "", True, [], "10"])
def test_a_delay_is_a_duration_or_whole_milliseconds(delay: object) -> None:
    found = after("{send: {event: e, delay: '= event.data'}}", delay)

    assert (["send.delay"], []) == found


@pytest.mark.parametrize("name", ["not a name", "1x", "a.b"])
def test_an_item_of_foreach_has_a_usable_name(name: str) -> None:
    """152, in a dialect in which that is an error of the step."""
    found = after(f"{{foreach: {{in: [1], item: {name!r}, do: [x]}}}}", dialect="scxml")

    assert (["foreach.name"], []) == found


def test_an_index_of_foreach_has_a_usable_name() -> None:
    found = after("{foreach: {in: [1], item: i, index: '2', do: [x]}}", dialect="scxml")

    assert (["foreach.name"], []) == found


def test_an_undeclared_field_cannot_be_assigned() -> None:
    """286, in a dialect that lets it load."""
    found = after("{assign: {other: 1}}", dialect="scxml")

    assert (["assign.unknown_field"], []) == found


def test_a_constant_that_the_field_refuses_fails_when_it_is_assigned() -> None:
    """In a dialect that lets it load; the message is the same as for a computed value."""
    found = after("{assign: {n: 10}}", dialect="scxml")

    assert (["assign.refused"], []) == found


def test_a_malformed_expression_fails_when_it_is_evaluated() -> None:
    """S35: in SCXML it is an error of the step, not of the definition."""
    found, ran = after("{log: {value: '= 1 +'}}", dialect="scxml")

    assert (["expression.syntax"], []) == (found, ran)


def test_a_nested_write_copies_its_path_and_nothing_else() -> None:
    """P7: what the old snapshot holds is never changed in place."""
    kernel = kernel_of(
        f"{CONTEXT}\nstates: {{a: {{on: {{go: {{actions: [{{assign: {{tree.list.1.0: 9, tree.new: 5}}}}]}}}}}}}}"
    )
    before = last_step(kernel).snapshot
    step = kernel.step(before, Event("go"))

    assert {"a": {"b": 1}, "list": [1, [9, 3]], "new": 5} == step.snapshot.context["tree"]
    assert {"a": {"b": 1}, "list": [1, [2, 3]]} == before.context["tree"]
    assert before.context["tree"]["a"] is step.snapshot.context["tree"]["a"]


def test_a_field_that_foreach_made_can_be_assigned() -> None:
    """`item` and `index` become fields where they are none (151), and stay."""
    kernel = kernel_of("""
        states:
          a:
            on:
              go: {actions: [{foreach: {in: [7, 8], item: i, index: at, do: [{do: f, with: {i: "= context.i"}}]}}]}
              set: {actions: [{assign: {i: 1}}]}
    """)

    assert [7, 8] == [each["input"]["i"] for each in payloads(last_step(kernel, "go"), "call")]
    assert {"i": 8, "at": 1} == last_step(kernel, "go").snapshot.context
    assert {"i": 1, "at": 1} == last_step(kernel, "go", "set").snapshot.context


def test_foreach_walks_a_copy() -> None:
    """525: what the block does to the list does not change the walk."""
    kernel = kernel_of("""
        context: {list: {type: array, default: [1, 2]}}
        states:
          a: {on: {go: {actions: [{foreach: {in: "= context.list", item: i, do: [{assign: {list: []}}, seen]}}]}}}
    """)
    step = last_step(kernel, "go")

    assert ["seen", "seen"] == calls(step)
    assert [] == step.snapshot.context["list"]


def test_an_error_in_one_turn_ends_the_whole_block() -> None:
    """S23: turns before it have happened."""
    kernel = kernel_of("""
        states:
          a:
            on:
              go: {actions: [{foreach: {in: [1, 0, 1], item: i, do: [{do: f, with: {x: "= 1 // context.i"}}]}}, rest]}
    """)
    step = last_step(kernel, "go")

    assert ["f"] == calls(step)
    assert ["expression.zero_division"] == faults(step)


IF = """
context: {n: {type: integer, default: 0}}
states:
  a:
    on:
      go:
        actions:
          - if: "= 1 // event.data > 0"
            then: [one]
            elif: [{if: "= event.data == 0", then: [two]}, {if: "= event.data == 5", then: []}]
            else: [three]
          - rest
      pick: {actions: [{if: "= event.data", then: [{if: "= context.n == 0", then: [inner]}], else: []}]}
"""


@pytest.mark.parametrize(
    ("data", "ran", "codes"),
    [
        (1, ["one", "rest"], []),
        (0, ["two", "rest"], ["expression.zero_division"]),
        (5, ["rest"], []),
        (2, ["three", "rest"], []),
        ("x", ["three", "rest"], ["expression.type"]),
    ],
)
def test_a_failing_branch_counts_as_false_and_the_next_is_tried(data: object, ran: list[str], codes: list[str]) -> None:
    """S33 holds for the guards of `if`; no further one is asked once one holds."""
    step = last_step(kernel_of(IF), Event("go", data))

    assert (ran, codes) == (calls(step), faults(step))


@pytest.mark.parametrize(("data", "ran"), [(True, ["inner"]), (False, [])])
def test_an_if_may_stand_in_an_if(data: bool, ran: list[str]) -> None:
    assert ran == calls(last_step(kernel_of(IF), Event("pick", data)))


def test_each_block_fails_alone() -> None:
    """S23: several entry blocks of one state have nothing to do with each other."""
    kernel = kernel_of("""
        states: {a: {on: {go: b}}, b: {entry: [[{log: {value: "= 1 // 0"}}, lost], [kept]]}}
    """)

    assert ["kept"] == calls(last_step(kernel, "go"))


def test_an_error_event_carries_code_and_message() -> None:
    """S23: the chart may handle it, and then it is not a fault."""
    kernel = kernel_of("""
        states:
          a:
            on:
              go: {actions: [{log: {value: "= 1 // 0"}}]}
              error.execution: {actions: [{do: told, with: {data: "= event.data"}}]}
    """)
    step = last_step(kernel, "go")

    assert [{"data": {"code": "expression.zero_division", "message": "division by zero"}}] == [
        each["input"] for each in payloads(step, "call")
    ]
    assert [] == faults(step)


def test_an_error_event_without_data_is_a_fault_with_its_name() -> None:
    """The driver may report one that says nothing else."""
    event = Event("error.communication", type="platform")
    step = last_step(kernel_of("unhandled: ignore\nstates: {a: {}}"), event)

    assert (Fault("error.communication", ""),) == step.faults


def test_a_fault_has_its_own_place() -> None:
    """An error that the chart raises itself has none, though others came and went before it."""
    kernel = kernel_of("""
        dialect: scxml
        states:
          a:
            on:
              go: {actions: [{log: {value: "= 1 // 0"}}]}
              error.execution: {actions: [{raise: error.one}]}
              error.one: {actions: [{raise: error.two}]}
              alone: {actions: [{raise: error.two}]}
    """)

    assert (Fault("error.two", ""),) == last_step(kernel, "alone").faults
    assert (Fault("error.two", ""),) == last_step(kernel, "go").faults


def test_under_errors_raise_the_first_error_ends_the_step() -> None:
    """S34: nothing is committed; the caller gets code, message and place."""
    kernel = kernel_of("errors: raise\nstates: {a: {on: {go: b}}, b: {entry: [{log: {value: '= 1 // 0'}}]}}")
    before = last_step(kernel).snapshot
    step = kernel.step(before, Event("go"))

    assert ("rejected", "failed", ()) == (step.outcome, step.reason, step.effects)
    assert (Fault("expression.zero_division", "division by zero", "b.entry"),) == step.faults
    assert before is step.snapshot


def test_under_errors_raise_a_failing_guard_ends_the_step() -> None:
    """X10: later candidates are not tried."""
    kernel = kernel_of("""
        errors: raise
        states: {a: {on: {go: [{target: b, guard: "= 1 // 0 > 0"}, c]}}, b: {}, c: {}}
    """)

    assert (Fault("expression.zero_division", "division by zero", "states.a.on.go[0].guard"),) == last_step(
        kernel, "go"
    ).faults

"""XState 4: translated when the caller says so, refused otherwise, never guessed."""

from __future__ import annotations

from typing import Any

import pytest

from interlock.definition.xstate.format import FORMAT_V4
from interlock.errors import UsageError
from interlock.model.document.actions import Do, GuardAll, GuardIn, GuardName, If, Raise
from interlock.model.document.document import Document, Invoke, State, Transition
from tests.unit.definition.xstate_cases import Json, codes, read, simple


def state_of(a: Json, **more: Any) -> State:
    """The state `a` of a definition of version 4."""
    return read(simple(a, **more), 4).root.states[0]


def transition_of(written: Any) -> Transition:
    """The transition of `a` for E."""
    return state_of({"on": {"E": written}, "initial": "x", "states": {"x": {}}}).transitions[0]


@pytest.mark.parametrize(
    ("written", "targets", "reenter"),
    [
        ("a", ("#a",), True),
        ("b", ("#b",), None),
        (".x", ("#a.x",), None),
        ({"target": "a", "internal": True}, ("#a",), None),
        ({"target": ".x", "internal": False}, ("#a.x",), True),
        ({"target": "#m.a.x"}, ("#a.x",), True),
        ({"target": ["#m.a.x"]}, ("#a.x",), True),
        ({"target": "", "internal": True}, (), None),
        ({"actions": "x"}, (), None),
    ],
)
def test_transitions_leave_their_source_unless_they_say_internal(
    written: Any, targets: tuple[str, ...], reenter: bool | None
) -> None:
    """External is the default of version 4; it matters only where the source is a target or holds one."""
    made = transition_of(written)

    assert (targets, reenter) == (made.targets, made.reenter)


def test_several_targets_stay_a_list() -> None:
    assert ("#a", "#b") == transition_of({"target": ["a", "b"]}).targets


@pytest.mark.parametrize(
    ("written", "guard"),
    [
        ({"cond": "ok"}, GuardName(name="ok")),
        ({"cond": {"type": "ok", "n": 1}}, GuardName(name="ok", arguments={"n": 1})),
        ({"in": "#m.b"}, GuardIn(state="b")),
        ({"cond": "ok", "in": "b"}, GuardAll(guards=(GuardName(name="ok"), GuardIn(state="b")))),
    ],
)
def test_conditions_become_guards(written: Json, guard: Any) -> None:
    """`cond` and `in` hold together."""
    assert guard == transition_of(written).guard


def test_keys_next_to_the_type_become_arguments() -> None:
    """Version 4 has no `params`."""
    state = state_of(
        {"entry": [{"type": "note", "n": 1}, {"type": "plain"}], "exit": {"type": "done", "params": {"n": 2}}}
    )

    assert ((Do(name="note", arguments={"n": 1}), Do(name="plain")),) == state.entry
    assert ((Do(name="done", arguments={"n": 2}),),) == state.exit


def test_a_choice_becomes_an_if() -> None:
    """`xstate.choose` with branches, the last one without a condition."""
    choose = {
        "type": "xstate.choose",
        "conds": [{"cond": "ok", "actions": ["x"]}, {"actions": {"type": "xstate.raise", "event": "E"}}],
    }
    expected = If(branches=((GuardName(name="ok"), (Do(name="x"),)),), otherwise=(Raise(event="E"),))

    assert ((expected,),) == state_of({"entry": choose}).entry


def test_a_choice_needs_conditions() -> None:
    """Without any there is nothing to choose, and no branch follows one without a condition."""
    behind = {"type": "xstate.choose", "conds": [{"cond": "g"}, {"actions": "x"}, {"cond": "h"}]}

    assert ["action.if"] == codes(simple({"entry": {"type": "xstate.choose"}}), 4)
    assert ["xstate.version"] == codes(simple({"entry": behind}), 4)


def test_eventless_transitions_stood_under_an_empty_event() -> None:
    """They become `always`; both together are refused."""
    made = state_of({"on": {"": [{"target": "b", "cond": "ok"}]}}).transitions[0]

    assert ("always", GuardName(name="ok")) == (made.origin, made.guard)
    assert ["xstate.version"] == codes(simple({"on": {"": "b"}, "always": "b"}), 4)


def test_events_of_version_four_have_other_names() -> None:
    """`done.invoke.ID`, `error.platform.ID` and `done.state.ID`."""
    on = {"done.invoke.job": "b", "error.platform.job": "b", "done.state.m.a": "b", "E": "b"}
    found = [each.events[0] for each in state_of({"on": on}).transitions]

    assert ["done.invoke.job", "error.invoke.job", "done.state.a", "E"] == found


def test_partial_wildcards_are_refused() -> None:
    """Version 4 has none: the key would be an event of exactly that name."""
    assert ["xstate.version"] == codes(simple({"on": {"foo.*": "b"}}), 4)


def test_data_becomes_output_and_input() -> None:
    document = read(
        {
            "id": "m",
            "initial": "a",
            "data": 3,
            "states": {"a": {"invoke": {"src": "job", "data": {"n": 1}}}, "b": {"type": "final"}},
        },
        4,
    )

    assert {"n": 1} == document.root.states[0].invokes[0].input
    assert 3 == document.root.states[1].output


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("job", Invoke(src="job")),
        ({"src": {"type": "job"}}, Invoke(src="job")),
        ({"src": "job", "autoForward": True}, Invoke(src="job", autoforward=True)),
        ({"src": "job", "onDone": "b"}, Invoke(src="job", done=(Transition(targets=("#b",)),))),
    ],
)
def test_invokes(written: Any, expected: Invoke) -> None:
    assert (expected,) == state_of({"invoke": written}).invokes


def test_activities_are_invokes() -> None:
    state = state_of({"activities": ["beep", {"type": "blink"}], "invoke": [{"src": "job"}]})

    assert ["job", "beep", "blink"] == [each.src for each in state.invokes]
    assert ["beep"] == [each.src for each in state_of({"activities": "beep"}).invokes]


def test_a_definition_in_place_is_of_the_same_version() -> None:
    child = simple({"on": {"E": {"target": "a", "cond": "ok"}}}, id="child")
    src = state_of({"invoke": {"src": child}}).invokes[0].src

    assert isinstance(src, Document)
    assert GuardName(name="ok") == src.root.states[0].transitions[0].guard


def test_the_root_finds_its_children_without_a_dot() -> None:
    """Version 4 lets it; the transition leaves the root, as external ones do."""
    document = read(simple(on={"E": "b", "F": "#m.b", "G": ".b"}), 4)
    found = [(each.targets, each.reenter) for each in document.root.states[0].transitions]

    assert [(("#m.b",), True), (("#m.b",), True), (("#m.b",), None)] == found


def test_delays_done_and_initial_content_are_translated() -> None:
    state = state_of({
        "initial": {"target": "x", "actions": {"type": "note", "n": 1}},
        "states": {"x": {}},
        "after": {"10": {"target": "b", "cond": "ok"}},
        "onDone": {"target": "b", "cond": "ok"},
        "always": {"target": "b", "cond": "ok"},
    })  # fmt: skip

    assert [GuardName(name="ok")] * 3 == [each.guard for each in state.transitions]
    assert state.initial is not None
    assert (Do(name="note", arguments={"n": 1}),) == state.initial.actions


@pytest.mark.parametrize("key", ["onEntry", "onExit", "parallel", "delimiter"])
def test_keys_from_before_are_refused(key: str) -> None:
    assert ["xstate.version"] == codes(simple({key: "x"}), 4)


@pytest.mark.parametrize("key", ["predictableActionArguments", "preserveActionOrder", "strict"])
def test_settings_of_version_four_mean_nothing_here(key: str) -> None:
    assert [] == codes(simple() | {key: True}, 4)


@pytest.mark.parametrize(
    "definition",
    [
        [],
        simple({"on": 3, "after": 3, "states": 3, "initial": 3}),
        simple({"on": {"E": 3}, "entry": 3, "invoke": 3}),
        {"id": "m", "initial": "a", "states": {"a": 3, "b": {}}},
        simple(on={"E": {"target": [3]}}),
        simple({"entry": {"type": "xstate.choose", "conds": [3]}}),
    ],
)
def test_wrong_shapes_are_left_to_the_reader(definition: Any) -> None:
    assert codes(definition, 4)


def test_xstate_4_is_only_read() -> None:
    assert FORMAT_V4.is_read_only
    with pytest.raises(UsageError) as caught:
        FORMAT_V4.write(Document(kind="k", root=State()))
    assert "format.read_only" == caught.value.code

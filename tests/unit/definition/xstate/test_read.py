"""XState JSON to documents: structure, targets, and all problems at once."""

from __future__ import annotations

import json
from typing import Any

import pytest

from interlock.definition.xstate.format import FORMAT, read_xstate
from interlock.model.document.actions import Do, Expression, GuardName
from interlock.model.document.document import Document, Initial, Invoke, State, Transition
from interlock.model.document.field import Field
from tests.unit.definition.xstate_cases import Json, codes, read, read_state, simple


def test_a_small_definition_becomes_a_document() -> None:
    """Kind, revision, context, states, transitions and texts come out as the model names them."""
    definition = {
        "id": "order",
        "version": "1.2",
        "context": {"n": 1, "text": "x"},
        "initial": "open",
        "states": {
            "open": {
                "on": {"PAY": {"target": "paid", "guard": "ok", "actions": ["note"], "description": "d"}},
                "tags": "t",
            },
            "paid": {"type": "final", "description": "end", "meta": {"color": "red"}},
        },
    }
    pay = Transition(
        events=("PAY",), targets=("#paid",), guard=GuardName(name="ok"), actions=(Do(name="note"),), description="d"
    )
    document = read(definition)
    opened, paid = document.root.states

    assert ("order", "1.2", "xstate", "ignore") == (
        document.kind,
        document.revision,
        document.dialect,
        document.unhandled,
    )
    assert (Field(name="n", default=1), Field(name="text", default="x")) == document.root.context
    assert Initial(targets=("open",)) == document.root.initial
    assert (pay,) == opened.transitions
    assert ("t",) == opened.tags
    assert State(key="paid", type="final", description="end", meta={"color": "red"}) == paid


def test_the_format_is_registered_under_its_name() -> None:
    reading = FORMAT.read(json.dumps(simple()), source="m.json", loader=None)

    assert "xstate" == FORMAT.name
    assert reading.document is not None
    assert '"id": "m"' in FORMAT.write(reading.document).text


def test_text_that_is_not_json_gives_no_document() -> None:
    reading = read_xstate("{a: 1}", source="m.json")

    assert reading.document is None
    assert reading.diagnostics


@pytest.mark.parametrize("text", ["[]", '"x"', "null"])
def test_a_definition_is_an_object(text: str) -> None:
    reading = read_xstate(text, source="m.json")

    assert reading.document is None
    assert ["xstate.root"] == [each.code for each in reading.diagnostics]


def test_a_description_is_a_text_be_it_empty() -> None:
    empty, said, wrong = (simple({"description": each}) for each in ("", "why", 1))

    assert ["", "why"] == [read(each).root.states[0].description for each in (empty, said)]
    assert ([], [], ["value.type"]) == (codes(empty), codes(said), codes(wrong))


def test_the_inner_form_of_a_machine_is_refused() -> None:
    """What `machine.toJSON()` gives has lost its eventless transitions."""
    assert ["xstate.definition"] == codes(simple(order=-1, transitions=[]))


@pytest.mark.parametrize(
    ("given", "source", "kind"),
    [
        ({"id": "order"}, "x.json", "order"),
        ({"id": "vm.resize"}, "x.json", "vm.resize"),
        ({"id": "My order!"}, "x.json", "My_order"),
        ({"id": "!!"}, "x.json", "chart"),
        ({}, "charts/order.machine.json", "order"),
        ({}, "", "chart"),
    ],
)
def test_the_kind_is_the_id_else_the_name_of_the_file(given: Json, source: str, kind: str) -> None:
    document = read_xstate(json.dumps({"initial": "a", "states": {"a": {}, "b": {}}, **given}), source=source).document

    assert document is not None
    assert kind == document.kind


def test_an_id_that_is_not_a_text_is_an_error() -> None:
    assert ["value.type"] == codes(simple(id=3))


# Root (X3)


@pytest.mark.parametrize(
    "more",
    [
        {"entry": "x"},
        {"exit": "x"},
        {"on": {"E": ".a"}},
        {"always": {"guard": "g", "actions": "x"}},
        {"after": {"10": ".a"}},
        {"invoke": {"src": "job"}},
        {"type": "parallel"},
    ],
)
def test_a_root_that_acts_is_below_a_synthetic_one(more: Json) -> None:
    """The document's root then has exactly one child: XState's root, under the kind's name."""
    definition = simple(**more)
    if "type" in more:
        del definition["initial"]
    document = read(definition)

    assert ["m"] == [each.key for each in document.root.states]
    assert Initial(targets=("m",)) == document.root.initial
    assert ["a", "b"] == [each.key for each in document.root.states[0].states]


def test_a_root_that_only_contains_is_the_root() -> None:
    assert ["a", "b"] == [each.key for each in read(simple(entry=[], on={})).root.states]


@pytest.mark.parametrize("target", ["#m", "#m."])
def test_a_root_that_is_a_target_is_below_a_synthetic_one(target: str) -> None:
    """XState would enter it without leaving it; here it is left and entered, and the reader says so."""
    definition = simple({"on": {"E": target}})

    assert ["#m"] == list(read(definition).root.states[0].states[0].transitions[0].targets)
    assert ["xstate.root_target"] == codes(definition)


@pytest.mark.parametrize("states", [{}, {"a": {}}])
def test_a_root_with_fewer_than_two_children_is_below_a_synthetic_one(states: Json) -> None:
    """One child of the document's root always means XState's root."""
    document = read({"id": "m", "states": states, **({"initial": "a"} if states else {})})

    assert ["m"] == [each.key for each in document.root.states]


def test_the_key_of_a_hidden_root_has_no_dots() -> None:
    document = read({"id": "vm.resize", "initial": "a", "states": {"a": {}}})

    assert ("vm.resize", "vm_resize") == (document.kind, document.root.states[0].key)


def test_a_root_may_name_itself_by_a_transition() -> None:
    assert [] == codes(simple(on={"E": {"target": "#m", "reenter": True}}))


@pytest.mark.parametrize("given", [{"type": "final"}, {"history": "deep"}])
def test_the_root_cannot_be_a_leaf(given: Json) -> None:
    assert ["state.type"] == codes({"id": "m", **given})


# Keys, ids, order


def test_order_is_that_of_javascript() -> None:
    """X4: keys that are array indices come first; those with a leading zero or too large do not count."""
    states: Json = {"b": {}, "10": {}, "2": {}, "02": {}, "4294967295": {}}
    document = read({"id": "m", "initial": "b", "states": states})

    assert ["2", "10", "b", "02", "4294967295"] == [each.key for each in document.root.states]


def test_keys_become_keys_of_ours() -> None:
    definition = {"id": "m", "initial": "New state", "states": {"New state": {"on": {"E": "."}}, "x.y": {}, "!": {}}}
    document = read(definition)

    assert ["New_state", "x_y", "state"] == [each.key for each in document.root.states]
    assert ("#New_state",) == document.root.states[0].transitions[0].targets
    assert ["state.key"] * 3 == codes(definition)


def test_two_keys_that_become_one_are_an_error() -> None:
    definition = {"id": "m", "initial": "a b", "states": {"a b": {}, "a_b": {}}}

    assert ["state.key", "state.key"] == codes(definition)


def test_ids_become_ids_of_ours() -> None:
    document = read(
        {"id": "m", "initial": "a", "states": {"a": {"on": {"E": "#my id"}}, "b": {"id": "my id"}, "c": {"id": "."}}}
    )

    assert ["my_id", "state"] == [each.id for each in document.root.states[1:]]
    assert ("#my_id",) == document.root.states[0].transitions[0].targets


@pytest.mark.parametrize("given", ["", 3])
def test_an_id_must_be_a_text(given: Any) -> None:
    assert ["value.type"] == codes(simple({"id": given}))


# Targets (X2)

NESTED: Json = {
    "id": "m",
    "initial": "a",
    "states": {
        "a": {"initial": "x", "states": {"x": {}, "y": {"id": "why", "initial": "q", "states": {"q": {}}}}},
        "b": {},
        "c.d": {},
    },
}


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("b", "#b"),
        ("a", "#a"),
        ("a.x", "#a.x"),
        ("a.y.q", "#a.y.q"),
        (".x", "#a.x"),
        (".y.q", "#a.y.q"),
        ("#why", "#why"),
        ("#why.q", "#a.y.q"),
        ("#m.b", "#b"),
        ("#m.a.y", "#why"),
        ("c\\.d", "#c_d"),
        ("#m\\.b", "#b"),
    ],
)
def test_a_target_is_resolved_as_xstate_does(target: str, expected: str) -> None:
    """Siblings by key, children by `.key`, anything by `#id` and a path behind it; a backslash takes a dot as it is."""
    definition = json.loads(json.dumps(NESTED))
    definition["states"]["a"]["on"] = {"E": target}
    document = read(definition)

    assert (expected,) == document.root.states[0].transitions[0].targets


@pytest.mark.parametrize(
    ("target", "hint"),
    [
        ("bb", 'did you mean "b"?'),
        (".xx", 'did you mean "x"?'),
        ("#whyy", 'did you mean "#why"?'),
        ("#why.z", '"z"'),
        ("#nothing-like-it", '"nothing-like-it"'),
        ("far-away", '"far-away"'),
    ],
)
def test_an_unknown_target_is_reported_with_a_similar_name(target: str, hint: str) -> None:
    definition = json.loads(json.dumps(NESTED))
    definition["states"]["a"]["on"] = {"E": target}
    found = [
        each for each in read_xstate(json.dumps(definition), source="m.json").diagnostics if each.severity == "error"
    ]

    assert ["target.unknown"] == [each.code for each in found]
    assert hint in found[0].message


@pytest.mark.parametrize(("target", "hint"), [("b", '".b"'), ("bb", '".b"'), ("far-away", '"far-away"')])
def test_the_root_has_no_siblings(target: str, hint: str) -> None:
    """XState refuses a target of the root without a dot."""
    reading = read_xstate(json.dumps(simple(on={"E": target})), source="m.json")

    assert ["target.unknown"] == [each.code for each in reading.diagnostics]
    assert hint in reading.diagnostics[0].message


# Transitions


def test_transitions_come_in_all_their_forms() -> None:
    """A target, a list, several targets, none, and an empty one that takes the event."""
    state = read_state(
        {"on": {"A": "b", "B": ["b", {"guard": "g"}], "C": {"target": ["b", "#m.a"]}, "D": {}, "F": [], "G": ""}}
    )
    found = [(each.events[0], each.targets) for each in state.transitions]

    assert [("A", ("#b",)), ("B", ("#b",)), ("B", ()), ("C", ("#b", "#a")), ("D", ()), ("G", ())] == found


def test_eventless_delayed_and_done_transitions_stand_before_the_others() -> None:
    state = read_state(
        {"on": {"E": "b"}, "onDone": "b", "after": {"1500": "b", "= context.n": "b", "10": "b"}, "always": "b"}
    )
    found = [(each.origin, each.delay) for each in state.transitions]

    assert [
        ("always", None),
        ("after", "10ms"),
        ("after", "1s500ms"),
        ("after", Expression("context.n")),
        ("onDone", None),
        ("on", None),
    ] == found


@pytest.mark.parametrize("given", [True, False, None])
def test_reenter_is_kept_as_said(given: bool | None) -> None:
    said = {} if given is None else {"reenter": given}

    assert given is read_state({"on": {"E": {"target": "a", **said}}}).transitions[0].reenter


@pytest.mark.parametrize(
    ("descriptor", "event"),
    [
        ("pay", "pay"),
        ("pay.*", "pay.*"),
        ("*", "*"),
        ("xstate.done.state.m.a", "done.state.a"),
        ("xstate.done.state.m.a.*", "done.state.a.*"),
        ("xstate.done.state.m.*", "done.state.*"),
        ("xstate.done.state.*", "done.state.*"),
        ("xstate.done.actor.job", "done.invoke.job"),
        ("xstate.error.actor.job", "error.invoke.job"),
        ("xstate.error.actor.*", "error.invoke.*"),
        ("xstate.after.1500.m.a", "after.1s500ms.a"),
        ("xstate.after.*", "after.*"),
        ("xstate.done.*", "done.*"),
        ("error.network", "error.network"),
    ],
)
def test_events_that_xstate_makes_have_names_of_ours(descriptor: str, event: str) -> None:
    """X19: names and state ids are translated."""
    assert (event,) == read_state({"on": {descriptor: "b"}}).transitions[0].events


@pytest.mark.parametrize(
    "descriptor",
    [
        "xstate.snapshot.x",
        "xstate.*",
        "xstate.done.state.m",
        "xstate.done.state.none",
        "xstate.after.x.m.a",
        "xstate.after.5.q",
    ],
)
def test_events_that_never_come_are_reported(descriptor: str) -> None:
    definition = simple({"on": {descriptor: "b"}})

    assert ["event.foreign"] == codes(definition)
    assert (descriptor,) == read(definition).root.states[0].transitions[0].events


@pytest.mark.parametrize(
    ("key", "code"),
    [
        ("", "name.invalid"),
        ("a b", "name.invalid"),
        ("a..b", "name.invalid"),
        ("a.*.b", "name.invalid"),
        ("done.invoke.x", "event.reserved"),
        ("after.x", "event.reserved"),
    ],
)
def test_bad_event_names_are_errors(key: str, code: str) -> None:
    """Names of XState 4 are reserved here: read as version 4 they would be translated."""
    assert [code] == codes(simple({"on": {key: "b"}}))


def test_what_a_state_handles_under_its_own_key_replaces_on() -> None:
    """XState overwrites the entry of `on` for its own done events."""
    state = {
        "initial": "x",
        "states": {"x": {}},
        "onDone": "b",
        "invoke": [{"src": "job", "id": "j", "onDone": "b", "onError": "b"}, {"src": "other"}],
        "on": {"xstate.done.state.m.a": ".x", "xstate.done.actor.j": ".x", "xstate.error.actor.j": ".x", "E": ".x"},
    }
    definition = simple(state)

    assert ["transition.replaced"] * 3 == codes(definition)
    assert [(), ("E",)] == [each.events for each in read(definition).root.states[0].transitions]


@pytest.mark.parametrize(
    ("a", "expected"),
    [
        ({"on": {"E": None}}, ["transition.null"]),
        ({"on": {"E": 3}}, ["value.type"]),
        ({"on": []}, ["value.type"]),
        ({"on": {"E": {"target": 3}}}, ["value.type"]),
        ({"on": {"E": {"reenter": "yes"}}}, ["value.type"]),
        ({"on": {"E": {"meta": "x"}}}, ["value.type"]),
        ({"on": {"E": {"traget": "b"}}}, ["key.unknown"]),
        ({"on": {"E": {"cond": "ok"}}}, ["xstate.version"]),
        ({"after": []}, ["value.type"]),
        ({"after": {"soon": "b"}}, ["delay.name"]),
        ({"after": {"1.5": "b"}}, ["delay.name"]),
        ({"entrance": "x"}, ["key.unknown"]),
        ({"activities": "x"}, ["xstate.version"]),
        ({"type": "odd"}, ["state.type"]),
        ({"type": 3}, ["value.type"]),
        ({"type": "final", "states": {"x": {}}}, ["state.type"]),
        ({"type": "parallel"}, ["state.type"]),
        ({"type": "compound", "states": {}}, ["state.type"]),
        ({"states": []}, ["value.type"]),
        ({"states": {"x": {}, "y": {}}}, ["initial.missing"]),
        ({"initial": "z", "states": {"x": {}}}, ["target.unknown"]),
        ({"initial": 3, "states": {"x": {}}}, ["value.type"]),
        ({"initial": {"actions": "x"}, "states": {"x": {}}}, ["value.type"]),
        ({"initial": {"target": "x", "action": "y"}, "states": {"x": {}}}, ["key.unknown"]),
        ({"initial": "x"}, ["initial.idle"]),
        ({"type": "parallel", "initial": "x", "states": {"x": {}, "y": {}}}, ["initial.idle"]),
        ({"initial": {"target": "x", "actions": "y"}}, ["initial.idle"]),
        ({"invoke": "job"}, ["value.type"]),
        ({"invoke": {"id": "x"}}, ["invoke.src"]),
        ({"invoke": {"src": {"type": "job"}}}, ["value.type"]),
        ({"invoke": {"src": "job", "onSnapshot": "b"}}, ["invoke.snapshot"]),
        ({"invoke": {"src": "job", "systemId": "x"}}, ["invoke.system_id"]),
        ({"tags": [3]}, ["value.type"]),
    ],
)  # fmt: skip
def test_problems_have_codes(a: Json, expected: list[str]) -> None:
    assert expected == codes(simple(a))


def test_a_state_must_be_a_mapping() -> None:
    reading = read_xstate(json.dumps({"id": "m", "initial": "a", "states": {"a": 3, "b": {}}}), source="m.json")

    assert ["value.type"] == [each.code for each in reading.diagnostics]
    assert reading.document is not None
    assert State(key="a") == reading.document.root.states[0]


def test_all_problems_are_reported_together_with_their_places() -> None:
    text = '{"id": "m", "initial": "a", "states": {\n "a": {"on": {"E": "x"}},\n "b": {"after": {"soon": "a"}}\n}}'
    found = read_xstate(text, source="m.json").diagnostics

    assert [("target.unknown", 2, 20), ("delay.name", 3, 18)] == [
        (each.code, each.place.line, each.place.column) for each in found
    ]
    assert "states.a.on.E" == found[0].place.path


def test_a_context_must_be_a_mapping() -> None:
    assert ["value.type"] == codes(simple(context=[1]))


# History (X17)


def _history(history: Json, **parent: Any) -> State:
    a = {"initial": "x", "states": {"x": {}, "y": {}, "h": {"type": "history", **history}}, **parent}
    return read_state(a).states[-1]


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        ({}, "shallow"),
        ({"history": "deep"}, "deep"),
        ({"history": "shallow"}, "shallow"),
        ({"history": True}, "shallow"),
        ({"history": False}, "shallow"),
    ],
)
def test_a_history_is_shallow_unless_it_says_deep(given: Json, kind: str) -> None:
    """`true` means shallow."""
    assert kind == _history(given).history


def test_a_history_may_be_known_by_its_key_alone() -> None:
    """`history` without `type` makes one."""
    assert "history" == read_state({"initial": "x", "states": {"x": {}, "h": {"history": "deep"}}}).states[1].type


def test_a_state_with_children_is_not_a_history() -> None:
    """`history: false` and states: a compound state."""
    assert "state" == read_state({"history": "deep", "initial": "x", "states": {"x": {}}}).type


def test_the_default_of_a_history_is_its_target() -> None:
    assert ("#a.y",) == _history({"target": "y"}).targets
    assert ("#a.x",) == _history({"target": "#m.a.x"}).targets
    assert ("#a.x", "#a.y") == _history({"target": ["x", "y"]}).targets


def test_without_target_it_leads_to_where_the_parent_starts() -> None:
    """With the content of that `initial`."""
    made = _history({}, initial={"target": "y", "actions": "init"})

    assert (("#a.y",), (Do(name="init"),)) == (made.targets, made.actions)


def test_the_history_of_a_parallel_state_leads_to_that_state() -> None:
    """XState falls back to the parallel state itself."""
    state = read_state({"type": "parallel", "states": {"x": {}, "h": {"type": "history"}}})

    assert ("#a",) == state.states[1].targets


def test_the_history_of_a_parallel_root_is_reported() -> None:
    """XState would enter its root without leaving it."""
    definition = {"id": "m", "type": "parallel", "states": {"x": {}, "y": {}, "h": {"type": "history"}}}

    assert ["xstate.root_target"] == codes(definition)


@pytest.mark.parametrize(
    ("history", "parent", "expected"),
    [
        ({"target": ".x"}, {}, ["target.unknown"]),
        ({"target": "z"}, {}, ["target.unknown"]),
        ({"target": 3}, {}, ["value.type"]),
        ({"history": "wide"}, {}, ["state.history"]),
        ({}, {"initial": "h"}, ["history.cycle"]),
        ({}, {"initial": "none"}, ["target.unknown"]),
    ],
)
def test_problems_of_a_history(history: Json, parent: Json, expected: list[str]) -> None:
    a = {"initial": "x", "states": {"x": {}, "h": {"type": "history", **history}}, **parent}

    assert expected == codes(simple(a))


# Output, invokes


def test_the_output_of_the_whole_is_that_of_the_root() -> None:
    states = {
        "a": {"initial": "f", "states": {"f": {"type": "final", "output": 1}}},
        "b": {"type": "final", "output": 2},
    }
    document = read({"id": "m", "initial": "a", "states": states, "output": {"x": "= context.n"}})

    assert 1 == document.root.states[0].states[0].output
    assert {"x": Expression("context.n")} == document.root.states[1].output


def test_an_output_that_xstate_would_not_give_is_reported() -> None:
    """Without an output of the root, XState's machine has none."""
    definition = {"id": "m", "initial": "a", "states": {"a": {}, "b": {"type": "final", "output": 2}}}

    assert ["xstate.output"] == codes(definition)
    assert 2 == read(definition).root.states[1].output


def test_an_invoke_has_a_source_an_id_an_input_and_two_endings() -> None:
    """As XState writes it."""
    invoke = {"src": "job", "id": "j", "input": {"n": "= context.n"}, "onDone": "b", "onError": [{"target": "b"}]}
    expected = Invoke(
        src="job",
        id="j",
        input={"n": Expression("context.n")},
        done=(Transition(targets=("#b",)),),
        error=(Transition(targets=("#b",)),),
    )

    assert (expected,) == read_state({"invoke": invoke}).invokes


def test_an_invoke_may_hold_a_whole_definition() -> None:
    invoke = read_state({"invoke": {"src": simple(id="child")}}).invokes[0]

    assert isinstance(invoke.src, Document)
    assert ("child", "chart") == (invoke.src.kind, invoke.type)

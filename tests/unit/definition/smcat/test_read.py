"""Reading smcat: names, types and UML's pseudo-states become states and transitions of the vocabulary."""

import pytest

from interlock.definition.format import ReadResult
from interlock.definition.smcat.format import FORMAT
from interlock.errors import Diagnostic
from interlock.model.document.actions import Do, Expression, GuardExpression, GuardName
from interlock.model.document.document import Document, Invoke, State, Transition
from interlock.model.document.targets import TargetIndex


def read(text: str, source: str = "chart.smcat") -> ReadResult:
    """What the reader makes of a text."""
    return FORMAT.read(text, source=source)


def document(text: str) -> Document:
    """The document of a text without errors."""
    reading = read(text)
    assert [] == [each for each in reading.diagnostics if each.severity == "error"]
    assert reading.document is not None
    return reading.document


def states(text: str) -> dict[str, State]:
    """All states of a text by id; every target in it is resolved, so that it names a state."""
    tree = TargetIndex(document(text))
    for index, state in enumerate(tree.states):
        parent = tree.parents[index]
        for transition in state.transitions:
            assert all(isinstance(tree.resolve_target(index, each), int) for each in transition.targets)
        assert all(isinstance(tree.resolve_child(parent, each), int) for each in state.targets)
        assert state.initial is None or all(
            isinstance(tree.resolve_child(index, each), int) for each in state.initial.targets
        )
    return dict(zip(tree.ids, tree.states, strict=True))


def transition(text: str) -> Transition:
    """The one transition of state `a`."""
    (found,) = states(text)["a"].transitions
    return found


def diagnostics(text: str) -> list[tuple[str, str]]:
    """Severity and code of what is found."""
    return [(each.severity, each.code) for each in read(text).diagnostics]


def only(text: str, code: str) -> Diagnostic:
    """The one diagnostic of this code."""
    (found,) = [each for each in read(text).diagnostics if each.code == code]
    return found


def test_the_format_has_its_name_and_suffix() -> None:
    assert ("smcat", (".smcat",)) == (FORMAT.name, FORMAT.suffixes)


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        ("charts/order.smcat", "order"),
        (r"c:\x y.v2.smcat", "x_y"),
        ("<definition>", "definition"),
        ("-.smcat", "-"),
        ("", "chart"),
    ],
)
def test_the_kind_is_the_name_of_the_source(source: str, kind: str) -> None:
    found = read("a -> b: go;", source).document

    assert found is not None
    assert kind == found.kind


def test_a_text_without_states_is_refused() -> None:
    assert [("error", "smcat.empty")] == diagnostics("// nothing")


def test_states_that_are_only_mentioned_exist() -> None:
    """They are in the body in which they are mentioned first, inner bodies before outer ones."""
    found = states("a { x -> y: go; }, b; a -> z: stop; b -> x: jump;")

    assert ["", "a", "a.x", "a.y", "b", "z"] == list(found)
    assert ("a.x",) == found["b"].transitions[0].targets


def test_a_name_that_is_not_a_key_is_changed_and_kept_as_description() -> None:
    text = '# why\n"cool state!" [label="Cool"]: some words, "cool-state", "!"; "cool state!" -> "!": go;'
    found = states(text)

    assert ["", "cool_state", "cool-state", "state"] == list(found)
    assert "Cool\nwhy\nsome words" == found["cool_state"].description
    assert found["cool-state"].description is None
    assert "!" == found["state"].description
    assert [("info", "smcat.renamed")] * 2 == diagnostics(text)


def test_keys_are_made_unique_among_siblings() -> None:
    found = states('"a b", "a!b", a_b;')

    assert ["", "a_b", "a_b_2", "a_b_3"] == list(found)


def test_a_name_that_starts_with_its_parents_is_cut() -> None:
    """`first.thing` in `first` is `thing`; so is the whole path."""
    found = states("o { first { first.thing, o.first.thang; }; };")

    assert ["", "o", "o.first", "o.first.thing", "o.first.thang"] == list(found)
    assert found["o.first.thing"].description is None


def test_a_repeated_name_means_the_nearest_state() -> None:
    """state-machine-cat would draw them as one, so it is reported."""
    text = "a { x; x -> y: go; }, b { x; x -> y2: go; }, c { d; d -> x: go; };"
    found = states(text)

    assert ("y",) == found["a.x"].transitions[0].targets
    assert ("y2",) == found["b.x"].transitions[0].targets
    assert ("a.x",) == found["c.d"].transitions[0].targets
    assert "warning" == only(text, "smcat.name_repeated").severity


def test_a_target_found_at_two_levels_is_written_by_id() -> None:
    """Its key alone would be ambiguous."""
    found = states("a { x { b -> c: go; }, y; b -> y: stop; }, y [type=final]; a -> y: end;")

    assert ("#a.y",) == found["a.x.b"].transitions[1].targets


def test_a_label_is_event_guard_and_actions() -> None:
    found = transition("a; a -> b: go [is ready] / beep, log it\n boop;")

    assert ("on", ("go",), ("b",)) == (found.origin, found.events, found.targets)
    assert GuardName(name="is ready") == found.guard
    assert (Do(name="beep"), Do(name="log it"), Do(name="boop")) == found.actions
    assert found.guard.place.column == 16


def test_a_guard_with_an_equals_sign_is_an_expression() -> None:
    """Brackets and quotes inside it do not end it; its place is that of its first character."""
    found = transition("a; a -> b: go [= context.a[0] == ']' ]/ x;")

    assert GuardExpression(expression=Expression("context.a[0] == ']'")) == found.guard
    assert (18, 37) == (found.guard.expression.place.column, found.guard.expression.place.end_column)
    assert (Do(name="x"),) == found.actions


@pytest.mark.parametrize(
    ("label", "events"),
    [
        ("a, b.*", ("a", "b.*")),
        ("a\nb", ("a", "b")),
        ("*", ("*",)),
        ("switch flicked", ("switch_flicked",)),
        ("a.b, a.b", ("a.b",)),
        ("f(x, y)", ("f_x_y",)),
        (".a. b*.", ("a.b",)),
    ],
)
def test_the_event_part_is_one_or_several_names(label: str, events: tuple[str, ...]) -> None:
    found = transition(f"a; a -> b: {label};")

    assert ("on", events) == (found.origin, found.events)


def test_an_event_of_which_nothing_remains_is_refused() -> None:
    assert [("error", "smcat.name")] == diagnostics("a -> b: =;")


@pytest.mark.parametrize(
    ("label", "origin", "delay"),
    [
        ("after 5m", "after", "5m"),
        ("after(1h 30m)", "after", "1h30m"),
        ("after = context.wait", "after", Expression("context.wait")),
        ("after lunch", "on", None),
        ("onDone", "onDone", None),
        ("always", "always", None),
        ("", "always", None),
        ("/ x", "always", None),
        ("[g]", "always", None),
    ],
)
def test_some_words_in_the_place_of_the_event_have_a_meaning(label: str, origin: str, delay: object) -> None:
    found = transition(f"a; a -> b: {label};")

    assert (origin, delay) == (found.origin, found.delay)


def test_text_after_the_guard_is_reported() -> None:
    assert "warning" == only("a -> b: go [x] y / z;", "smcat.label").severity


@pytest.mark.parametrize("guard", ["[x", "[= x[0]", "[= ']'"])
def test_a_guard_that_is_not_closed_is_an_error(guard: str) -> None:
    """Guessing where it ends would change the meaning."""
    assert "error" == only(f"a -> b: go {guard};", "smcat.label").severity


def test_an_empty_guard_is_none() -> None:
    assert transition("a; a -> b: go [ ];").guard is None


def test_commas_in_brackets_and_quotes_do_not_part_actions() -> None:
    found = transition("a; a -> b: go / f(1, [2, 3]), say 'a, b', the customer's x, y), =z, =;")

    expected = ["f(1, [2, 3])", "say 'a, b'", "the customer's x", "y)", "z"]
    assert expected == [each.name for each in found.actions if isinstance(each, Do)]


def test_activities_run_on_entry_on_exit_and_while_the_state_is_active() -> None:
    found = states('a: "entry/ x, y\nexit / z\n do/ spin\nactivity/ hum\nentry/ w\n\n ...";')["a"]

    assert ((Do(name="x"), Do(name="y"), Do(name="w")),) == found.entry
    assert ((Do(name="z"),),) == found.exit
    assert (Invoke(src="spin"), Invoke(src="hum")) == found.invokes
    assert "..." == found.description


def test_a_self_loop_enters_again_and_an_internal_one_stays() -> None:
    again, stays = states("a; a -> a: x; a -> a [type=internal]: y / z;")["a"].transitions

    assert (("a",), True) == (again.targets, again.reenter)
    assert ((), None) == (stays.targets, stays.reenter)


def test_a_transition_into_its_own_source_says_whether_it_enters_again() -> None:
    """Internal stays inside, but only in a compound state (S16)."""
    found = states(
        "a { x; }, p [type=parallel] { r { y; }, q; }; a -> x: i; a -> x [type=internal]: j; p -> y [type=internal]: k;"
    )

    assert [True, False] == [each.reenter for each in found["a"].transitions]
    assert [(".x",), (".x",)] == [each.targets for each in found["a"].transitions]
    assert [True] == [each.reenter for each in found["p"].transitions]


def test_an_internal_transition_elsewhere_is_an_ordinary_one() -> None:
    """`reenter` may not be said there (V2)."""
    assert transition("a; a -> b [type=internal]: go;").reenter is None


def test_notes_of_a_transition_are_its_description() -> None:
    assert "one\ntwo" == transition("a;\n# one\n# two\na -> b: go;").description


def test_what_is_only_drawing_is_kept_in_meta() -> None:
    """Nothing is lost that the writer could write again."""
    found = states('a [color="red" active class="x"]; a -> b [color="blue" width=2]: go;')["a"]

    assert {"smcat": {"color": "red", "active": True, "class": "x"}} == found.meta
    assert {"smcat": {"color": "blue", "width": 2.0}} == found.transitions[0].meta


def test_places_carry_the_path_of_keys() -> None:
    found = states("a { x -> y: go; y -> x: after 5s; x -> y; };")
    paths = [each.place.path for key in ("a.x", "a.y") for each in found[key].transitions]

    assert "states.a.states.x" == found["a.x"].place.path
    assert ["states.a.states.x.always", "states.a.states.x.on.go", "states.a.states.y.after.5s"] == paths

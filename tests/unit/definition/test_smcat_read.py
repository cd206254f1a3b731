"""Reading smcat: names, types and UML's pseudo-states become states and transitions of the vocabulary."""

import pytest

from interlock.definition.format import Reading
from interlock.definition.smcat import FORMAT
from interlock.errors import Diagnostic
from interlock.model.action import Do, Expression, GuardExpression, GuardName
from interlock.model.document import Document, Initial, Invoke, State, Transition
from interlock.model.tree import Tree


def read(text: str, source: str = "chart.smcat") -> Reading:
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
    tree = Tree(document(text))
    for index, state in enumerate(tree.states):
        parent = tree.parents[index]
        for transition in state.transitions:
            assert all(isinstance(tree.target(index, each), int) for each in transition.targets)
        assert all(isinstance(tree.inner(parent, each), int) for each in state.targets)
        assert state.initial is None or all(isinstance(tree.inner(index, each), int) for each in state.initial.targets)
    return dict(zip(tree.ids, tree.states, strict=True))


def transition(text: str) -> Transition:
    """The one transition of state `a`."""
    (found,) = states(text)["a"].transitions
    return found


def findings(text: str) -> list[tuple[str, str]]:
    """Severity and code of what is found."""
    return [(each.severity, each.code) for each in read(text).diagnostics]


def only(text: str, code: str) -> Diagnostic:
    """The one finding of this code."""
    (found,) = [each for each in read(text).diagnostics if each.code == code]
    return found


def test_the_format_has_its_name_and_suffix() -> None:
    """Files are recognised by them."""
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
    """A smcat text does not name its chart."""
    found = read("a -> b: go;", source).document

    assert found is not None
    assert kind == found.kind


def test_a_text_without_states_is_refused() -> None:
    """state-machine-cat draws nothing then; a chart has at least one state."""
    assert [("error", "smcat.empty")] == findings("// nothing")


def test_states_that_are_only_mentioned_exist() -> None:
    """They stand in the body in which they are mentioned first, inner bodies before outer ones."""
    found = states("a { x -> y: go; }, b; a -> z: stop; b -> x: jump;")

    assert ["", "a", "a.x", "a.y", "b", "z"] == list(found)
    assert ("a.x",) == found["b"].transitions[0].targets


def test_a_name_that_is_no_key_is_changed_and_kept_as_description() -> None:
    """And it is told."""
    text = '# why\n"cool state!" [label="Cool"]: some words, "cool-state", "!"; "cool state!" -> "!": go;'
    found = states(text)

    assert ["", "cool_state", "cool-state", "state"] == list(found)
    assert "Cool\nwhy\nsome words" == found["cool_state"].description
    assert found["cool-state"].description is None
    assert "!" == found["state"].description
    assert [("info", "smcat.renamed")] * 2 == findings(text)


def test_keys_are_made_unique_among_siblings() -> None:
    """Two names may become one key."""
    found = states('"a b", "a!b", a_b;')

    assert ["", "a_b", "a_b_2", "a_b_3"] == list(found)


def test_a_name_that_begins_with_its_parents_is_cut() -> None:
    """`first.thing` in `first` is `thing`; so is the whole path."""
    found = states("o { first { first.thing, o.first.thang; }; };")

    assert ["", "o", "o.first", "o.first.thing", "o.first.thang"] == list(found)
    assert found["o.first.thing"].description is None


def test_a_repeated_name_means_the_nearest_state() -> None:
    """state-machine-cat would draw them as one, so it is told."""
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
    """Each with its place."""
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
    """What is no name is made one."""
    found = transition(f"a; a -> b: {label};")

    assert ("on", events) == (found.origin, found.events)


def test_an_event_of_which_nothing_remains_is_refused() -> None:
    """There is no name to listen for."""
    assert [("error", "smcat.name")] == findings("a -> b: =;")


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
    """Time, completion, and no event at all."""
    found = transition(f"a; a -> b: {label};")

    assert (origin, delay) == (found.origin, found.delay)


def test_words_behind_the_guard_are_not_read() -> None:
    """And it is told."""
    assert "not read" in only("a -> b: go [x] y / z;", "smcat.label").message


@pytest.mark.parametrize("guard", ["[x", "[= x[0]", "[= ']'"])
def test_a_guard_that_is_not_closed_is_an_error(guard: str) -> None:
    """Guessing where it ends would change the meaning."""
    assert "not closed" in only(f"a -> b: go {guard};", "smcat.label").message


def test_an_empty_guard_is_none() -> None:
    """Brackets without words say nothing."""
    assert transition("a; a -> b: go [ ];").guard is None


def test_commas_in_brackets_and_quotes_do_not_part_actions() -> None:
    """An apostrophe is no quote."""
    found = transition("a; a -> b: go / f(1, [2, 3]), say 'a, b', the customer's x, y), =z, =;")

    expected = ["f(1, [2, 3])", "say 'a, b'", "the customer's x", "y)", "z"]
    assert expected == [each.name for each in found.actions if isinstance(each, Do)]


def test_activities_run_on_entry_on_exit_and_while_the_state_is_active() -> None:
    """Other lines are words for people."""
    found = states('a: "entry/ x, y\nexit / z\n do/ spin\nactivity/ hum\nentry/ w\n\n ...";')["a"]

    assert ((Do(name="x"), Do(name="y"), Do(name="w")),) == found.entry
    assert ((Do(name="z"),),) == found.exit
    assert (Invoke(src="spin"), Invoke(src="hum")) == found.invokes
    assert "..." == found.description


def test_a_self_loop_enters_again_and_an_internal_one_stays() -> None:
    """Internal self-loops have no target."""
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
    """All lines of them."""
    assert "one\ntwo" == transition("a;\n# one\n# two\na -> b: go;").description


def test_what_is_only_drawing_is_kept_in_meta() -> None:
    """Nothing is lost that the writer could write again."""
    found = states('a [color="red" active class="x"]; a -> b [color="blue" width=2]: go;')["a"]

    assert {"smcat": {"color": "red", "active": True, "class": "x"}} == found.meta
    assert {"smcat": {"color": "blue", "width": 2.0}} == found.transitions[0].meta


def test_an_initial_state_says_where_its_parent_begins() -> None:
    """Deep inside too, with actions."""
    found = states("initial, a { a.initial -> x: / hi; x -> y: go; }; initial -> y;")

    assert Initial(targets=("a.y",)) == found[""].initial
    assert Initial(targets=("x",), actions=(Do(name="hi"),)) == found["a"].initial
    assert ["", "a", "a.x", "a.y"] == list(found)


def test_an_initial_state_may_not_lead_out() -> None:
    """A compound state begins inside itself."""
    assert "leads out" in only("a { a.initial; a.initial -> b; }, b;", "smcat.initial").message


def test_without_an_initial_state_a_state_begins_with_its_first() -> None:
    """A final or history state in front is passed over."""
    assert states("a -> b: go;")[""].initial is None
    assert Initial(targets=("a",)) == states("final, a; a -> final: go;")[""].initial
    assert states("final;")[""].initial is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("initial -> a: go;", "event and guard"),
        ("initial -> a: [x]; initial -> b: [y];", "event and guard"),
        ("initial -> a; a -> initial: go;", "leads to it"),
        ("initial { x; };", "states inside"),
        ("initial -> a; my.initial -> b;", '"initial" is the initial state here'),
        ("p.parallel { initial, a, b; initial -> a; };", "all regions"),
        ("finalised -> a: go;", "transitions leave it"),
        ("parallel;", "no regions"),
        ("order_history -> a: go;", "event or a guard"),
        ("a -> ]x; b -> ]x;", "without an event leaves it"),
        ("a -> ]x: go; ]x -> b: e; ]x -> c;", "without event and guard"),
    ],
)
def test_a_type_guessed_from_a_name_is_withdrawn(text: str, words: str) -> None:
    """When the use contradicts it, the state is an ordinary one."""
    found = only(text, "smcat.guess")

    assert "warning" == found.severity
    assert words in found.message
    assert read(text).document is not None


def test_an_explicit_type_is_not_withdrawn() -> None:
    """Then the contradiction is an error."""
    found = only("x [type=final]; x -> a: go;", "smcat.final")

    assert "error" == found.severity
    assert "transitions leave it" in found.message


def test_an_explicit_type_wins_over_the_name() -> None:
    """The cure that findings name."""
    assert "state" == states("initialised [type=regular]; initialised -> a: go;")["initialised"].type


def test_final_and_parallel_states_are_such() -> None:
    """By name or by type."""
    found = states("p.parallel { a, b; }, x [type=final], q [type=parallel] { c, d; };")

    assert ["parallel", "final", "parallel"] == [found[each].type for each in ("p_parallel", "x", "q")]


def test_a_history_has_its_arrows_as_default() -> None:
    """Deep by name or type, with content, several targets in regions."""
    found = states(
        "p [type=parallel] { r { x -> y: go; }, q { z -> w: go; }, deep.history;"
        "deep.history -> y: / hi; deep.history -> w; };"
    )["p.deep_history"]

    assert ("history", "deep", ("r.y", "q.w")) == (found.type, found.history, found.targets)
    assert (Do(name="hi"),) == found.actions
    assert () == found.transitions


@pytest.mark.parametrize(
    ("text", "targets"),
    [
        ("a { history, x, y; };", ("x",)),
        ("a { history, x, i [type=initial], y; i -> y; };", ("y",)),
        ("a { history, x, i [type=initial]; i -> history; };", ("x",)),
        ("a [type=parallel] { history, x, y; };", ("x", "y")),
        ("a { history, x; history -> b; }, b;", ("#b",)),
    ],
)
def test_a_history_without_arrows_begins_as_its_parent_does(text: str, targets: tuple[str, ...]) -> None:
    """As in UML."""
    assert targets == states(text)["a.history"].targets


def test_a_history_with_nothing_to_remember_is_an_error() -> None:
    """It needs a sibling."""
    assert "error" == only("a { history; };", "smcat.history").severity


def test_a_choice_is_a_state_with_eventless_transitions() -> None:
    """`[else]` and a bare arrow come last, whatever the order drawn; its words are kept."""
    found = states("^c: which?; a -> ^c: go; ^c -> x: [else]; ^c -> y: [yes]; ^c -> z: [= context.n > 1]/ hi;")["c"]

    assert ["y", "z", "x"] == [each.targets[0] for each in found.transitions]
    assert {"always"} == {each.origin for each in found.transitions}
    assert found.transitions[2].guard is None
    assert "^c\nwhich?" == found.description


def test_a_choice_by_event_is_told() -> None:
    """UML has guards there; probably the brackets are missing."""
    found = only("^c; a -> ^c: go; ^c -> x: yes;", "smcat.choice")

    assert "warning" == found.severity
    assert "write a guard: `[yes]`" == found.hint


def test_a_choice_by_time_is_told() -> None:
    """A choice does not wait."""
    assert 'waits for "after"' in only("^c; ^c -> x: after 5m;", "smcat.choice").message


def test_a_junction_is_read_like_a_choice() -> None:
    """Several arrows in, several out."""
    found = states("a -> ]j: go; b -> ]j: go; ]j -> x: [p]; ]j -> y;")["j"]

    assert ["x", "y"] == [each.targets[0] for each in found.transitions]


def test_a_fork_becomes_several_targets() -> None:
    """Actions of all arrows are kept; the fork is gone; an initial state may lead to one."""
    found = states(
        "initial, p [type=parallel] { r { x; }, q { y; }; };"
        "initial -> ]f: / one; ]f -> x: / two; ]f -> y: / three; s -> ]g: go; ]g -> x; ]g -> y;"
    )

    names = tuple(Do(name=each) for each in ("one", "two", "three"))
    assert Initial(targets=("p.r.x", "p.q.y"), actions=names) == found[""].initial
    assert ("p.r.x", "p.q.y") == found["s"].transitions[0].targets
    assert "f" not in found


def test_a_fork_may_lead_to_a_fork() -> None:
    """In either order of declaration."""
    text = "p [type=parallel] { r { x; }, q { y; }, o { z; }; }; s -> ]f: go; ]f -> x; ]f -> ]g; ]g -> y; ]g -> z;"

    assert ("p.r.x", "p.q.y", "p.o.z") == states(text)["s"].transitions[0].targets


def test_a_fork_that_leads_to_itself_is_an_error() -> None:
    """There is nowhere to go."""
    assert "error" == only("f [type=fork], s; s -> f: go; f -> f; f -> a;", "smcat.fork").severity


def test_a_join_becomes_the_completion_of_the_parallel_state() -> None:
    """A state that only waits at the join is final; guard and actions of the join stay."""
    found = states(
        "p [type=parallel] { r { x -> x2: go; }, q { y -> y2: go; }; }; x2 -> ]j; y2 -> ]j; ]j -> end: [ok]/ hi;"
    )

    assert ["final", "final"] == [found["p.r.x2"].type, found["p.q.y2"].type]
    (done,) = found["p"].transitions
    assert ("onDone", ("end",), GuardName(name="ok"), (Do(name="hi"),)) == (
        done.origin,
        done.targets,
        done.guard,
        done.actions,
    )
    assert "j" not in found


def test_a_join_of_states_that_do_more_gets_final_states_of_its_own() -> None:
    """Arrows with events, guards or actions, and states that have other arrows, lead to a new final state."""
    found = states(
        "p [type=parallel] { r { x -> x2: go; }, q { y; }; }; x2 -> ]j: ready; y -> ]j; y -> y: go; ]j -> end;"
    )

    assert ("j",) == found["p.r.x2"].transitions[0].targets
    assert ["final", "final"] == [found["p.r.j"].type, found["p.q.j"].type]
    assert ["always", "on"] == [each.origin for each in found["p.q.y"].transitions]


def test_a_region_at_a_join_gets_itself_inside() -> None:
    """A region without states cannot end; one with states ends when it leads to the join."""
    found = states("p [type=parallel] { r, q { y -> y2: go; }; }; r -> ]j: a; q -> ]j: b; ]j -> end;")

    assert ["", "p", "p.r", "p.r.r", "p.r.j", "p.q", "p.q.q", "p.q.q.y", "p.q.q.y2", "p.q.j"] == list(found)[:10]
    assert ("j",) == found["p.q.q"].transitions[0].targets


@pytest.mark.parametrize(
    "text",
    [
        "a -> ]j: x; b -> ]j: y; ]j -> c;",
        "p [type=parallel] { r { x; }, q { y; }, o { z; }; }; x -> ]j; y -> ]j; ]j -> c;",
        "p [type=parallel] { r { x, w; }, q { y; }; }; x -> ]j; w -> ]j; ]j -> c;",
        "p [type=parallel] { r { x; }, q { y; }; }; x -> ]j; c -> ]j; ]j -> d;",
    ],
)
def test_a_join_that_gathers_no_parallel_state_is_an_error(text: str) -> None:
    """It cannot be said as the completion of one."""
    assert "error" == only(text, "smcat.join").severity


def test_terminating_ends_the_whole_chart() -> None:
    """Only a final child of the root does that, so it moves there."""
    found = states("t [type=terminate], a { x, u [type=terminate]; x -> u: die; };")

    assert ["", "t", "a", "a.x", "u"] == list(found)
    assert ["final", "final"] == [found["t"].type, found["u"].type]
    assert ("u",) == found["a.x"].transitions[0].targets


def test_an_arrow_without_event_from_a_state_that_can_complete_waits_for_it() -> None:
    """UML's completion; `always` says otherwise."""
    found = states("a { x -> final: go; }, p [type=parallel] { r, q; }; a -> b; a -> c: always [g]; p -> b; b -> c;")

    assert ["always", "onDone"] == [each.origin for each in found["a"].transitions]
    assert ["onDone"] == [each.origin for each in found["p"].transitions]
    assert ["always"] == [each.origin for each in found["b"].transitions]


def test_places_carry_the_path_of_keys() -> None:
    """As findings of the YAML reader do."""
    found = states("a { x -> y: go; y -> x: after 5s; x -> y; };")
    paths = [each.place.path for key in ("a.x", "a.y") for each in found[key].transitions]

    assert "states.a.states.x" == found["a.x"].place.path
    assert ["states.a.states.x.always", "states.a.states.x.on.go", "states.a.states.y.after.5s"] == paths

"""The pseudo-states of UML in smcat: initial, history, choice, junction, fork, join, terminate, and guessed types."""

import pytest

from interlock.model.document.actions import Do, GuardName
from interlock.model.document.document import Initial
from interlock.model.limits import EFFECTS_MAX
from tests.unit.definition.smcat.test_read import only, read, states


def test_an_initial_state_says_where_its_parent_starts() -> None:
    found = states("initial, a { a.initial -> x: / hi; x -> y: go; }; initial -> y;")

    assert Initial(targets=("a.y",)) == found[""].initial
    assert Initial(targets=("x",), actions=(Do(name="hi"),)) == found["a"].initial
    assert ["", "a", "a.x", "a.y"] == list(found)


def test_an_initial_state_may_not_lead_out() -> None:
    assert "error" == only("a { a.initial; a.initial -> b; }, b;", "smcat.initial").severity


def test_without_an_initial_state_a_state_starts_with_its_first() -> None:
    assert states("a -> b: go;")[""].initial is None
    assert Initial(targets=("a",)) == states("final, a; a -> final: go;")[""].initial
    assert states("final;")[""].initial is None


@pytest.mark.parametrize(
    "text",
    [
        "initial -> a: go;",
        "initial -> a: [x]; initial -> b: [y];",
        "initial -> a; a -> initial: go;",
        "initial { x; };",
        "initial -> a; my.initial -> b;",
        "p.parallel { initial, a, b; initial -> a; };",
        "finalised -> a: go;",
        "parallel;",
        "order_history -> a: go;",
        "a -> ]x; b -> ]x;",
        "a -> ]x: go; ]x -> b: e; ]x -> c;",
    ],
)
def test_a_type_guessed_from_a_name_is_dropped_if_the_use_contradicts_it(text: str) -> None:
    found = only(text, "smcat.guess")

    assert "warning" == found.severity
    assert read(text).document is not None


def test_an_explicit_type_is_not_withdrawn() -> None:
    found = only("x [type=final]; x -> a: go;", "smcat.final")

    assert "error" == found.severity


def test_an_explicit_type_wins_over_the_name() -> None:
    assert "state" == states("initialised [type=regular]; initialised -> a: go;")["initialised"].type


def test_final_and_parallel_states_are_such() -> None:
    found = states("p.parallel { a, b; }, x [type=final], q [type=parallel] { c, d; };")

    assert ["parallel", "final", "parallel"] == [found[each].type for each in ("p_parallel", "x", "q")]


def test_a_history_has_its_arrows_as_default() -> None:
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
def test_a_history_without_arrows_starts_as_its_parent_does(text: str, targets: tuple[str, ...]) -> None:
    assert targets == states(text)["a.history"].targets


def test_a_history_with_nothing_to_remember_is_an_error() -> None:
    assert "error" == only("a { history; };", "smcat.history").severity


def test_a_choice_is_a_state_with_eventless_transitions() -> None:
    """`[else]` and a bare arrow come last, whatever the order drawn; its words are kept."""
    found = states("^c: which?; a -> ^c: go; ^c -> x: [else]; ^c -> y: [yes]; ^c -> z: [= context.n > 1]/ hi;")["c"]

    assert ["y", "z", "x"] == [each.targets[0] for each in found.transitions]
    assert {"always"} == {each.origin for each in found.transitions}
    assert found.transitions[2].guard is None
    assert "^c\nwhich?" == found.description


def test_a_choice_by_event_is_reported() -> None:
    found = only("^c; a -> ^c: go; ^c -> x: yes;", "smcat.choice")

    assert "warning" == found.severity
    assert "write a guard: `[yes]`" == found.hint


def test_a_choice_by_time_is_reported() -> None:
    assert "warning" == only("^c; ^c -> x: after 5m;", "smcat.choice").severity


def test_a_junction_is_read_like_a_choice() -> None:
    found = states("a -> ]j: go; b -> ]j: go; ]j -> x: [p]; ]j -> y;")["j"]

    assert ["x", "y"] == [each.targets[0] for each in found.transitions]


def test_a_fork_becomes_several_targets() -> None:
    found = states(
        "initial, p [type=parallel] { r { x; }, q { y; }; };"
        "initial -> ]f: / one; ]f -> x: / two; ]f -> y: / three; s -> ]g: go; ]g -> x; ]g -> y;"
    )

    names = tuple(Do(name=each) for each in ("one", "two", "three"))
    assert Initial(targets=("p.r.x", "p.q.y"), actions=names) == found[""].initial
    assert ("p.r.x", "p.q.y") == found["s"].transitions[0].targets
    assert "f" not in found


def test_a_fork_may_lead_to_a_fork() -> None:
    text = "p [type=parallel] { r { x; }, q { y; }, o { z; }; }; s -> ]f: go; ]f -> x; ]f -> ]g; ]g -> y; ]g -> z;"

    assert ("p.r.x", "p.q.y", "p.o.z") == states(text)["s"].transitions[0].targets


def test_a_fork_that_leads_to_itself_is_an_error() -> None:
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
    assert "error" == only(text, "smcat.join").severity


def test_terminating_ends_the_whole_chart() -> None:
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


def test_forks_that_double_their_actions_are_stopped() -> None:
    """Thirty forks, each with two arrows to the next, would make a thousand million actions."""
    count = 30
    names = [f"f{each} [type=fork]" for each in reversed(range(count))]
    arrows = [f"f{each} -> f{each + 1}: / x;" * 2 for each in range(count - 1)]
    text = ",".join([*names, "a", "s"]) + "; s -> f0: go;" + "".join(arrows) + f"f{count - 1} -> a: / x;"
    reading = read(text)

    assert {"smcat.fork"} == {each.code for each in reading.diagnostics}
    assert reading.document is not None
    assert len(reading.document.root.states[1].transitions[0].actions) <= EFFECTS_MAX

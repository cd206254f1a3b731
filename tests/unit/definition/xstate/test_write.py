"""Documents to XState JSON: the output, and what is reported as lost or different there."""

from __future__ import annotations

from typing import Any

import pytest

from interlock.definition.xstate.events import to_xstate
from interlock.model.document.actions import Assign, AssignCall, Do, Expression, GuardExpression, GuardIn, GuardName
from interlock.model.document.document import Document, Initial, Invoke, Saga, SagaCall, SagaStep, State, Transition
from interlock.model.document.field import Field
from tests.unit.definition.xstate_cases import Json, losses, written

N = Expression("context.n")
X = Do(name="x")


def own(*states: State, **more: Any) -> Document:
    """A document of dialect `interlock` that reports only what is tested."""
    root = more.pop("root", {})
    return Document(kind="m", unhandled="ignore", errors="raise", root=State(states=states, **root), **more)


def on(*transitions: Transition, **more: Any) -> Document:
    """A document whose state `a` has these transitions."""
    return own(State(key="a", transitions=transitions, **more), State(key="b"))


def written_a(*transitions: Transition, **more: Any) -> Json:
    """The state `a` of such a document, as JSON."""
    made: Json = written(on(*transitions, **more))["states"]["a"]
    return made


def test_a_small_document_is_small() -> None:
    """No empty keys, a single target as a text, and an initial state for each compound state."""
    document = own(
        State(key="a", transitions=(Transition(events=("pay",), targets=("b",)),)), State(key="b", type="final")
    )

    assert {
        "id": "m",
        "initial": "a",
        "states": {"a": {"on": {"pay.*": "b"}}, "b": {"type": "final"}},
        "meta": {"interlock": {"errors": "raise"}},
    } == written(document)


@pytest.mark.parametrize(
    ("events", "expected"),
    [("pay", "pay.*"), ("pay.*", "pay.*"), ("pay.", "pay.*"), ("*", "*"), ("done.invoke.j", "xstate.done.actor.j.*")],
)
def test_descriptors_of_ours_are_wildcards_there(events: str, expected: str) -> None:
    """`foo` of ours takes `foo.bar`."""
    assert [expected] == list(written_a(Transition(events=(events,)))["on"])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("done.state.a", "xstate.done.state.m.a"),
        ("done.state.none", "done.state.none"),
        ("after.1m.a", "xstate.after.60000.m.a"),
        ("after.1m.none", "after.1m.none"),
        ("after.soon", "after.soon"),
        ("after.1x.a", "after.1x.a"),
        ("error.invoke.j", "xstate.error.actor.j"),
        ("error.*", "xstate.error.*"),
        ("pay", "pay"),
    ],
)
def test_events_that_the_kernel_makes_have_names_of_xstate(text: str, expected: str) -> None:
    """X19, the other way; what names nothing stays as it is."""
    assert expected == to_xstate(text, {"a": "m.a"})


@pytest.mark.parametrize(
    ("targets", "reenter", "expected"),
    [
        (("a",), None, True),
        (("a",), False, True),
        ((".x",), None, True),
        ((".x",), False, None),
        ((".x",), True, True),
        (("b",), None, None),
        ((), None, None),
    ],
)
def test_leaving_the_source_is_said(targets: tuple[str, ...], reenter: bool | None, expected: bool | None) -> None:
    """XState stays in the source if possible, Interlock exits it by default."""
    state = State(
        key="a",
        states=(State(key="x"),),
        transitions=(Transition(events=("E",), targets=targets, reenter=reenter, actions=(X,)),),
    )

    assert expected is written(own(state, State(key="b")))["states"]["a"]["on"]["E.*"].get("reenter")


def test_transitions_of_the_root_never_leave_it() -> None:
    document = own(State(key="a"), State(key="b"), root={"transitions": (Transition(events=("E",), targets=("b",)),)})

    assert {"E.*": ".b"} == written(document)["on"]


def test_targets_are_short_where_they_can_be() -> None:
    """A sibling's key, a child's key with a dot, else the id; an id with dots has them escaped."""
    inner = State(key="x", transitions=(Transition(events=("E",), targets=("b", "#far.away", "x")),))
    state = State(key="a", states=(inner,), transitions=(Transition(events=("F",), targets=(".x",)),))
    made = written(own(state, State(key="b"), State(key="c", id="far.away")))

    assert ["#m.b", "#far\\.away", "x"] == made["states"]["a"]["states"]["x"]["on"]["E.*"]["target"]
    assert ".x" == made["states"]["a"]["on"]["F.*"]["target"]


def test_targets_that_name_nothing_are_left_out() -> None:
    history = State(key="h", type="history", targets=("none",))
    made = written(
        on(Transition(events=("E",), targets=("none",)), initial=Initial(targets=("none",)), states=(history,))
    )

    assert {"E.*": {}} == made["states"]["a"]["on"]
    assert {"type": "history"} == made["states"]["a"]["states"]["h"]


@pytest.mark.parametrize("target", ["#a", "#b", "#m"])
def test_an_initial_state_outside_is_left_out(target: str) -> None:
    """In the state itself, next to it, or at the root: the compiler reports it; the writer does not search further
    up.
    """
    made = written_a(initial=Initial(targets=(target,)), states=(State(key="x"), State(key="y")))

    assert ["x", "y"] == list(made["states"])
    assert "initial" not in made


def test_a_guard_with_an_unknown_state_keeps_its_text() -> None:
    guard = written_a(Transition(events=("E",), guard=GuardIn(state="none")))["on"]["E.*"]["guard"]

    assert {"type": "xstate.stateIn", "params": {"stateValue": "none"}} == guard


def test_a_guard_finds_its_state_from_at_its_position() -> None:
    """`In` looks outward from the source, as a target does."""
    inner = State(key="x", transitions=(Transition(events=("E",), guard=GuardIn(state="y")),))
    made = written(own(State(key="a", states=(inner, State(key="y"))), State(key="b")))
    guard = made["states"]["a"]["states"]["x"]["on"]["E.*"]["guard"]

    assert "#m.a.y" == guard["params"]["stateValue"]


def test_names_used_by_assigns_only_are_ordinary_actions() -> None:
    document = own(
        State(
            key="a",
            entry=((AssignCall(name="bump"), AssignCall(name="both"), Do(name="both")),),
            invokes=(Invoke(src="job", finalize=(AssignCall(name="last"),)),),
        ),
        State(key="b"),
    )
    made = written(document)

    assert ["bump", "last"] == made["meta"]["interlock"]["assigns"]
    assert ["bump", {"type": "interlock.assign", "params": {"name": "both"}}, "both"] == made["states"]["a"]["entry"]


def test_a_delay_that_is_not_a_duration_is_written_as_it_is() -> None:
    assert {"soon": "b"} == written_a(Transition(origin="after", delay="soon", targets=("b",)))["after"]


def test_an_output_that_all_finals_share_is_the_root_s() -> None:
    """There XState takes it from; finals that differ keep theirs, and XState gives none."""
    same = own(State(key="a", type="final", output=1), State(key="b", type="final", output=1))
    other = own(State(key="a", type="final", output=1), State(key="b", type="final"))

    assert (1, {"type": "final"}) == (written(same)["output"], written(same)["states"]["a"])
    assert [] == losses(same)[1:]
    assert {"type": "final", "output": 1} == written(other)["states"]["a"]
    assert "export.output" in losses(other)


def test_outputs_of_deeper_finals_are_their_own() -> None:
    inner = State(key="f", type="final", output={"n": N})
    document = own(State(key="a", states=(State(key="x"), inner)), State(key="b"))

    assert {"type": "final", "output": {"n": "= context.n"}} == written(document)["states"]["a"]["states"]["f"]


def test_true_is_not_one() -> None:
    document = own(State(key="a", type="final", output=1), State(key="b", type="final", output=True))

    assert "output" not in written(document)


@pytest.mark.parametrize(
    ("targets", "expected"), [(("#p",), {"type": "history"}), (("r",), {"type": "history", "target": "#m.p.r"})]
)
def test_the_history_of_a_parallel_state(targets: tuple[str, ...], expected: Json) -> None:
    """The fallback to the parallel state itself is XState's own; any other default is written."""
    history = State(key="h", type="history", targets=targets)
    parallel = State(key="p", type="parallel", states=(State(key="r"), State(key="s"), history))

    assert expected == written(own(parallel, State(key="b")))["states"]["p"]["states"]["h"]


# Losses

PARALLEL = State(key="p", type="parallel", states=(State(key="r", states=(State(key="a"),)), State(key="s")))


@pytest.mark.parametrize(
    ("document", "code"),
    [
        (Document(kind="m", errors="raise", root=State(states=(State(key="a"),))), "export.unhandled"),
        (on(Transition(events=("E",), guard=GuardExpression(expression=N))), "export.actions"),
        (on(Transition(origin="after", delay=N)), "export.after"),
        (on(Transition(origin="always", actions=(X,))), "export.always"),
        (on(Transition(origin="transitions", actions=(X,))), "export.always"),
        (on(Transition(origin="always", targets=("b",)), invokes=(Invoke(src="j"),)), "export.transient_invoke"),
        (
            on(saga=Saga(steps=(SagaStep(id="s", do=SagaCall(src="j")),), compensation="parallel")),
            "export.transient_invoke",
        ),
        (on(invokes=(Invoke(src="j"),), states=(State(key="x"),)), "export.invoke_order"),
        (on(Transition(events=("*",)), Transition(events=("pay",))), "export.descriptors"),
        (on(Transition(events=("pay",)), Transition(events=("go", "pay.cash"))), "export.descriptors"),
        (on(entry=((X,), (X,))), "export.blocks"),
        (on(meta=[1]), "export.meta"),
        (on(meta={"interlock": 1}), "export.meta"),
        (on(initial=Initial(targets=("x.y",)), states=(State(key="x", states=(State(key="y"),)),)), "export.initial"),
        (
            on(states=(State(key="h", type="history", targets=("x",), actions=(X,)), State(key="x"))),
            "export.content_of_a_history",
        ),
        (on(invokes=(Invoke(src=N),)), "export.computed_src"),
        (
            on(invokes=(Invoke(src=Document(kind="c", root=State(states=(State(key="a"),))), type="chart"),)),
            "export.invoke",
        ),
        (on(saga=Saga(steps=(SagaStep(id="s", do=SagaCall(src="j")),))), "export.saga"),
        (on(Transition(events=("E",), roles=("x",))), "export.roles"),
        (own(State(key="b"), State(key="1")), "export.order"),
        (
            own(State(key="a"), State(key="b"), root={"context": (Field(name="n", type="integer", default=1),)}),
            "export.typed_context",
        ),
        (
            own(
                State(
                    key="p",
                    type="parallel",
                    states=(
                        State(
                            key="r",
                            states=(State(key="a", transitions=(Transition(events=("E",), targets=("#p.s.b",)),)),),
                        ),
                        State(key="s", states=(State(key="b"),)),
                    ),
                )
            ),
            "export.region_to_region",
        ),
        (
            own(
                State(
                    key="p",
                    type="parallel",
                    transitions=(Transition(events=("E",)),),
                    states=(
                        State(key="r", transitions=(Transition(events=("E.x",), targets=("#p.s",)),)),
                        State(key="s"),
                    ),
                )
            ),
            "export.select",
        ),
        (
            own(
                State(
                    key="p",
                    type="parallel",
                    transitions=(Transition(origin="onDone", targets=("z",)),),
                    states=(PARALLEL,),
                ),
                State(key="z"),
            ),
            "export.nested_parallel",
        ),
    ],
)
def test_what_is_lost_or_different_is_reported(document: Document, code: str) -> None:
    assert code in losses(document)


def test_a_document_without_such_parts_tells_nothing_else() -> None:
    """No false alarms: neither for a plain chart nor for transitions that only look alike."""
    inner = State(key="x", transitions=(Transition(events=("E",), targets=("b",)),))
    document = own(
        State(
            key="a",
            states=(inner,),
            transitions=(
                Transition(events=("E",), actions=(X,)),
                Transition(events=("pay.cash",), targets=("none",)),
                Transition(events=("pay",)),
            ),
        ),
        State(key="b", invokes=(Invoke(src="j"),)),
        State(key="p", type="parallel", transitions=(Transition(events=("F",)),), states=(inner, State(key="y"))),
    )

    assert ["export.errors"] == losses(document)


@pytest.mark.parametrize(
    ("transition", "entry", "told"),
    [
        (Transition(events=("E",), guard=GuardName(name="g")), (), True),
        (Transition(events=("E",), guard=GuardExpression(expression=N)), (), True),
        (Transition(events=("E",), guard=GuardIn(state="b")), (), False),
        (Transition(events=("E",), actions=(AssignCall(name="f"),)), (), True),
        (Transition(), (Assign(values=(("n", N),)),), True),
        (Transition(), (Assign(values=(("n", 1),)), X), False),
    ],
)
def test_errors_differ_where_something_can_fail(transition: Transition, entry: Any, told: bool) -> None:
    """X10, X18: an error is an event here and the end of the actor there."""
    state = State(key="a", transitions=(transition,), entry=(entry,))
    document = Document(kind="m", unhandled="ignore", root=State(states=(state, State(key="b"))))

    assert told is ("export.errors" in losses(document))


def test_a_document_of_xstate_means_what_xstate_means() -> None:
    """Only what XState ignores is reported."""
    document = Document(
        kind="m",
        dialect="xstate",
        unhandled="ignore",
        root=State(
            initial=Initial(targets=("a",)),
            states=(State(key="a", transitions=(Transition(origin="always", actions=(X,)),)), State(key="b")),
        ),
    )

    assert [] == losses(document)

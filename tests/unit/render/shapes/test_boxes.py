"""Which boxes and wires a chart has."""

from dataclasses import replace

import pytest

from interlock.model.document.actions import Do
from interlock.model.document.document import Document, Initial, State, Transition
from interlock.render.shapes.boxes import Box, BoxTree, Wire, drop_undrawable_wires, make_box_tree
from tests.unit.render.charts import compiled, expression, flat, nested, on, parallel_root
from tests.unit.render.pictures import chart_of


def wires(made: BoxTree) -> list[tuple[str, str]]:
    """The ends of all wires."""
    return [(wire.source, wire.target) for wire in made.wires]


def notes(made: BoxTree, key: str) -> list[str]:
    """The texts inside a box."""
    return [note.text for note in made.boxes[key].notes]


def test_a_flat_chart_has_a_dot_its_states_and_their_wires() -> None:
    """Document order throughout; finals are finals, and the title names the revision."""
    made = make_box_tree(flat())

    assert ["s/", "i/", "s/unpaid", "s/paid", "s/expired"] == list(made.boxes)
    assert [("i/", "s/unpaid"), ("s/unpaid", "s/expired"), ("s/unpaid", "s/paid")] == wires(made)
    assert ("order 1.0.0", "final") == (made.title, made.boxes["s/paid"].kind)


def test_transitions_with_the_same_ends_are_one_wire_with_a_label_each() -> None:
    made = make_box_tree(nested())
    (wire,) = [wire for wire in made.wires if wire.source == "s/live.health.good"]

    assert [("bad", ("live.health.good", 0)), ("worse", ("live.health.good", 1))] == [
        (label.event, label.id) for label in wire.labels
    ]


def test_what_the_root_answers_is_noted_in_the_frame() -> None:
    made = make_box_tree(nested())

    assert ["delete [context.failures < 9] → gone", "ping / pong"] == notes(made, "s/")
    assert ("", 1) == made.boxes["s/"].notes[1].id


def test_a_transition_to_the_root_is_a_note() -> None:
    chart = chart_of(State(key="a", transitions=(on("all", "a"),)))
    made = make_box_tree(replace(chart, transitions=(replace(chart.transitions[0], targets=(0,)),)))

    assert ["all → sample"] == notes(made, "s/a")


def test_several_targets_are_reached_through_a_bar() -> None:
    made = make_box_tree(nested())
    fork = "f/s/paused/1"

    assert ("fork", "s/") == (made.boxes[fork].kind, made.boxes[fork].parent)
    assert fork in made.boxes["s/"].children
    assert [("s/paused", False), (fork, True), (fork, True)] == [
        (wire.source, wire.arrow) for wire in made.wires if fork in (wire.source, wire.target)
    ]


def test_a_bar_for_the_beginning_has_no_number() -> None:
    regions = tuple(State(key=name, states=(State(key=f"{name}1"), State(key=f"{name}2"))) for name in "xy")
    inner = State(key="p", type="parallel", states=regions)
    made = make_box_tree(chart_of(inner, initial=Initial(targets=("p.x.x2", "p.y.y2"))))

    assert [("i/", "f/i//"), ("f/i//", "s/p.x.x2"), ("f/i//", "s/p.y.y2")] == wires(made)[:3]


def test_histories_of_a_parallel_state_stand_in_a_niche() -> None:
    """It has no other place for them; what they lead to in several regions is a note."""
    made = make_box_tree(nested())

    assert ("niche", ("s/live.last",)) == (made.boxes["h/live"].kind, made.boxes["h/live"].children)
    assert ("H*", "h/live", False) == (
        made.boxes["s/live.last"].name,
        made.boxes["s/live.last"].parent,
        made.boxes["s/live.last"].region,
    )
    assert "H* → steady, good" in notes(made, "s/live")


def test_the_default_of_a_history_is_a_dashed_wire() -> None:
    made = make_box_tree(nested())
    (wire,) = [wire for wire in made.wires if wire.source == "s/setup.before"]

    assert (True, [("/ begin", None)]) == (wire.dashed, [(label.text, label.id) for label in wire.labels])


def test_only_questions_make_a_choice() -> None:
    """Its labels are the guards, and `else` for the last; a state with anything else in it is a state."""
    one = Transition(origin="always", targets=("y",), guard=expression("1 < 2"))
    other = Transition(origin="always", targets=("z",))
    ends = (State(key="y"), State(key="z"))
    asked = make_box_tree(chart_of(State(key="x", transitions=(one, other)), *ends))
    busy = make_box_tree(chart_of(State(key="x", transitions=(one, other), entry=((Do(name="act"),),)), *ends))
    single = make_box_tree(chart_of(State(key="x", transitions=(one,)), *ends))
    evented = make_box_tree(chart_of(State(key="x", transitions=(one, on("e", "z"))), *ends))

    assert "choice" == asked.boxes["s/x"].kind
    assert ["[1 < 2]", "else"] == [wire.labels[0].text for wire in asked.wires if wire.source == "s/x"]
    assert ["state"] * 3 == [made.boxes["s/x"].kind for made in (busy, single, evented)]


def test_between_whole_regions_there_are_notes() -> None:
    """A parallel state's level has no room for a label; lines from inside a region have one."""
    left = State(key="l", states=(State(key="a", transitions=(on("x", "#r"),)),), transitions=(on("y", "#d"),))
    right = State(
        key="r", id="r", states=(State(key="c"), State(key="d", id="d")), transitions=(on("me", "#r", reenter=True),)
    )
    both = State(
        key="p", type="parallel", states=(left, right), transitions=(on("in", "#d", reenter=True), on("r", "#r"))
    )
    made = make_box_tree(chart_of(both))

    assert (["y → d"], ["me → r"], ["r → r"]) == (notes(made, "s/p.l"), notes(made, "s/r"), notes(made, "s/p"))
    assert [("s/p", "s/d"), ("s/p.l.a", "s/r")] == [ends for ends in wires(made) if ends[0][0] == "s"]


def test_what_runs_in_parallel_states_only_is_a_note() -> None:
    """Regions in regions touch the border around all of them: a line to one would have no length."""
    inner = State(key="q", type="parallel", states=(State(key="r", id="r"), State(key="s", id="s")))
    deep = State(key="g", states=(State(key="c", id="c", transitions=(on("z", "#r"),)),))
    more = replace(inner, transitions=(on("a", "#r"),), states=(*inner.states, deep))
    left = replace(
        more, states=(replace(inner.states[0], transitions=(on("b", "#p"), on("d", "#t"))), *more.states[1:])
    )
    both = State(
        key="p",
        id="p",
        type="parallel",
        states=(left, State(key="t", id="t")),
        transitions=(on("e", "#r"), on("f", "#c")),
    )
    made = make_box_tree(chart_of(both))

    assert (["e → r"], ["b → p", "d → t"]) == (notes(made, "s/p"), notes(made, "s/r"))
    assert [("s/p", "s/c"), ("s/c", "s/r")] == [ends for ends in wires(made) if ends[0][0] == "s"]


def test_a_final_region_has_its_own_niche() -> None:
    final = State(key="end", id="end", type="final")
    both = State(key="p", type="parallel", states=(final, State(key="q", states=(State(key="x"),))))
    start = State(key="a", transitions=(on("go", "#end"),))
    made = make_box_tree(compiled(Document(kind="sample", dialect="xstate", root=State(states=(start, both)))))

    assert ("h/end", "s/p.q") == made.boxes["s/p"].children
    assert ("niche", True, ("s/end",)) == (
        made.boxes["h/end"].kind,
        made.boxes["h/end"].region,
        made.boxes["h/end"].children,
    )
    assert ("final", False, "h/end") == (
        made.boxes["s/end"].kind,
        made.boxes["s/end"].region,
        made.boxes["s/end"].parent,
    )
    assert ("s/a", "s/end") in wires(made)


def test_a_parallel_root_is_the_frame_of_its_regions() -> None:
    made = make_box_tree(parallel_root())

    assert ("parallel", ["entry / hello", "reset → b"]) == (made.root.kind, notes(made, "s/"))
    assert ("s/left.a", "s/right.d") in wires(made)


@pytest.mark.parametrize(
    ("source", "target", "container"),
    [("s/setup", "s/setup.ready", "s/setup"), ("s/live.power.busy", "s/live", "s/live"), ("i/setup", "s/gone", "s/")],
)
def test_the_container_is_an_end_that_holds_the_other_or_the_innermost_around_both(
    source: str, target: str, container: str
) -> None:
    assert container == make_box_tree(nested()).container(source, target)


def test_a_wire_without_a_way_becomes_a_note() -> None:
    """Boxes that were shut or joined may leave such: from a final one, or from a region as a whole."""
    boxes = {
        "s/": Box(key="s/", kind="parallel", state="", children=("s/a", "s/b")),
        "s/a": Box(key="s/a", kind="state", name="a", state="a", parent="s/", region=True),
        "s/b": Box(key="s/b", kind="final", name="b", state="b", parent="s/", region=True),
    }
    label = make_box_tree(flat()).wires[1].labels
    ends = [("s/a", "s/b"), ("s/b", "s/a"), ("s/a", "s/a"), ("s/", "s/a")]
    made = drop_undrawable_wires(
        BoxTree(title="t", boxes=boxes, wires=tuple(Wire(source=a, target=b, labels=label) for a, b in ends))
    )

    assert () == made.wires
    assert (["after 48h → b", "after 48h → a"], ["after 48h → a"]) == (notes(made, "s/a"), notes(made, "s/b"))

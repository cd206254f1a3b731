"""Two revisions in one drawing, boxes that are shut, and drawings as values."""

import pytest

from interlock.errors import UsageError
from interlock.model.charts.chart import Chart
from interlock.model.document.document import Document, State
from interlock.model.snapshot import Snapshot
from interlock.render.drawing import Drawing, draw_diff_svg, lay_out, make_drawing
from interlock.render.shapes.boxes import BoxTree, make_box_tree
from interlock.render.shapes.collapse import STATES_SHOWN_MAX, collapse_boxes
from interlock.render.shapes.compare import compare_trees
from tests.unit.render.charts import compiled, flat, nested, on, parallel_root
from tests.unit.render.pictures import chart_of


def both(old: Chart, new: Chart) -> BoxTree:
    """The tree of both, which can be laid out."""
    made = compare_trees(make_box_tree(old), make_box_tree(new))

    assert "" == lay_out(made).fallback_reason
    return made


def marks(made: BoxTree) -> dict[str, str]:
    """The marks of all boxes that have one."""
    return {key: box.mark for key, box in made.boxes.items() if box.mark}


def test_a_chart_does_not_differ_from_itself() -> None:
    made = both(nested(), nested())

    assert {} == marks(made)
    assert make_box_tree(nested()).wires == made.wires


def test_what_was_added_removed_and_changed_is_marked() -> None:
    old = chart_of(State(key="a", transitions=(on("x", "b"), on("same", "b"))), State(key="b"), State(key="gone"))
    new = chart_of(
        State(key="a", transitions=(on("y", "b"), on("same", "b"), on("z", "new"))), State(key="b"), State(key="new")
    )
    made = both(old, new)
    (wire,) = [wire for wire in made.wires if wire.target == "s/b"]

    assert {"s/new": "added", "s/gone": "removed"} == marks(made)
    assert [("y", "added", ("a", 0)), ("same", "", ("a", 1)), ("x", "removed", None)] == [
        (label.event, label.mark, label.id) for label in wire.labels
    ]


def test_an_event_with_other_words_has_changed_and_both_are_shown() -> None:
    from interlock.model.document.actions import Do

    old = chart_of(State(key="a", transitions=(on("x", "b"),)), State(key="b"))
    new = chart_of(State(key="a", transitions=(on("x", "b", actions=(Do(name="act"),)),)), State(key="b"))
    (wire,) = [wire for wire in both(old, new).wires if wire.source == "s/a"]

    assert [("x / act", "changed"), ("x", "changed")] == [(label.text, label.mark) for label in wire.labels]


def test_a_removed_wire_is_drawn_as_removed_and_notes_are_compared() -> None:
    old = chart_of(State(key="a", transitions=(on("x", "b"), on("noted"))), State(key="b"))
    new = chart_of(State(key="a", transitions=(on("other"),)), State(key="b", type="final"))
    made = both(old, new)
    (wire,) = [wire for wire in made.wires if wire.source == "s/a"]

    assert ("removed", {"s/a": "changed", "s/b": "changed"}) == (wire.mark, marks(made))
    assert [("other", "added"), ("noted", "removed")] == [(note.text, note.mark) for note in made.boxes["s/a"].notes]


def test_a_compound_that_became_a_leaf_still_holds_what_it_lost() -> None:
    """And what fits nowhere any more is left out: a dot or a ring in what is now parallel, a niche in what is not."""
    inside = (State(key="x", transitions=(on("n", "y"), on("end", "z"))), State(key="y"), State(key="z", type="final"))
    old = chart_of(State(key="c", states=inside), State(key="d"))
    new = chart_of(State(key="c"), State(key="d"))
    leaf = both(old, new)

    assert ("group", "removed") == (leaf.boxes["s/c"].kind, leaf.boxes["s/c.x"].mark)

    regions = tuple(State(key=key, states=(State(key=f"{key}1"),)) for key in "xy")
    parallel = chart_of(
        State(
            key="c",
            type="parallel",
            states=(*regions, State(key="h", type="history", targets=("x.x1", "y.y1"))),
        ),
        State(key="d", transitions=(on("r", "c.h"),)),
    )
    turned, back = both(old, parallel), both(parallel, old)

    assert {"i/c", "s/c.z"}.isdisjoint(turned.boxes)
    assert "h/c" not in back.boxes


def test_charts_with_nothing_in_common_are_drawn_all_the_same() -> None:
    both(parallel_root(), flat())
    both(flat(), parallel_root())
    both(nested(), flat())


def test_a_diff_is_painted_with_signs() -> None:
    text = draw_diff_svg(chart_of(State(key="a"), State(key="b")), chart_of(State(key="a"), State(key="c"))).svg

    assert "+ c" in text
    assert "- b" in text


def test_a_closed_box_counts_its_states_and_keeps_lines_across_its_border() -> None:
    made = collapse_boxes(make_box_tree(nested()), depth=1)

    assert (2 + 2 + 3, 3) == (made.boxes["s/live"].hidden, made.boxes["s/setup"].hidden)
    assert not any(key.startswith("s/live.") for key in made.boxes)
    assert 1 == len([wire for wire in made.wires if (wire.source, wire.target) == ("s/paused", "s/live")])
    assert [("s/setup", "s/setup")] == [(w.source, w.target) for w in made.wires if w.source == w.target]


def test_states_are_closed_by_name_but_not_the_root() -> None:
    made = collapse_boxes(make_box_tree(nested()), states=frozenset({"setup", ""}))

    assert ("state", "parallel") == (made.boxes["s/setup"].kind, made.boxes["s/live"].kind)


def test_regions_that_were_shut_leave_notes_where_a_line_has_no_way() -> None:
    left = State(key="l", states=(State(key="a", transitions=(on("x", "#d"),)),))
    right = State(key="r", states=(State(key="c"), State(key="d", id="d")))
    made = collapse_boxes(make_box_tree(chart_of(State(key="p", type="parallel", states=(left, right)))), depth=2)

    assert ["x → r"] == [note.text for note in made.boxes["s/p.l"].notes]
    assert "" == lay_out(made).fallback_reason


def test_too_many_states_are_closed_from_the_deepest_level_on() -> None:
    def group(name: str, count: int, *more: State) -> State:
        return State(key=name, states=(*(State(key=f"{name}{each}") for each in range(count)), *more))

    deep = chart_of(group("a", 20, group("b", 30)), group("c", 25))
    all_flat = compiled(Document(kind="flat", root=State(states=tuple(State(key=f"f{n}") for n in range(80)))))
    made = collapse_boxes(make_box_tree(deep))

    assert (30, "group") == (made.boxes["s/a.b"].hidden, made.boxes["s/a"].kind)
    assert 81 == len([box for box in collapse_boxes(make_box_tree(all_flat)).boxes.values() if box.state is not None])
    assert STATES_SHOWN_MAX < 80


def test_a_drawing_gives_a_notebook_svg_and_text() -> None:
    picture = make_drawing(flat(), ["paid"], theme="light")
    one, other = picture._repr_mimebundle_(), picture._repr_mimebundle_()

    assert {"image/svg+xml", "text/plain"} == one.keys()
    assert one["image/svg+xml"] != other["image/svg+xml"]
    assert picture.svg == picture.svg
    assert "● paid" in one["text/plain"] == str(picture)


def test_a_depiction_lights_the_states_of_a_snapshot() -> None:
    snapshot = Snapshot(entity="order/1", kind="order", version=1, revision="1", configuration=("unpaid",), context={})

    assert frozenset({"unpaid", "paid"}) == make_drawing(flat(), [snapshot, "paid"]).options.active
    with pytest.raises(UsageError):
        make_drawing(flat(), ["piad"])
    with pytest.raises(UsageError):
        make_drawing(flat(), [], theme="drak")


def test_a_drawing_shows_the_differences_from_an_earlier_revision() -> None:
    changed = Drawing(chart=chart_of(State(key="b"))).against(chart_of(State(key="a")))

    assert "- a" in changed.svg
    assert "- a" in changed._repr_mimebundle_()["image/svg+xml"]

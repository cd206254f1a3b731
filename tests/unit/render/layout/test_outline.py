"""What a drawing falls back to, and the chart in words."""

import pytest

from interlock.errors import UsageError
from interlock.model.charts.chart import Chart
from interlock.model.document.document import State
from interlock.render.drawing import Options, draw_svg, lay_out, text_tree
from interlock.render.layout.invariants import broken_rules
from interlock.render.layout.level import Budget
from interlock.render.layout.outline import outline, outline_text
from interlock.render.shapes.boxes import BoxTree, make_box_tree
from interlock.render.shapes.geometry import Area, Picture
from tests.unit.render.charts import flat, nested, parallel_root
from tests.unit.render.pictures import chart_of, picture_of


@pytest.mark.parametrize("chart", [flat(), nested(), parallel_root()], ids=["flat", "nested", "parallel"])
def test_an_outline_keeps_the_rules_about_boxes(chart: Chart) -> None:
    """Nested boxes in rows, none over another, no lines; every transition is a note."""
    picture = outline(make_box_tree(chart), "for a test")

    assert [] == list(broken_rules(picture))
    assert () == picture.paths
    assert "for a test" == picture.fallback_reason


def test_every_transition_is_listed_with_where_it_leads() -> None:
    text = outline_text(make_box_tree(nested()))

    assert "· split → busy, poor" in text
    assert "· initial / probe → good" in text
    assert "live (parallel)" in text
    assert "gone (final)" in text


def test_marks_show_what_is_active_and_what_was_visited() -> None:
    lines = text_tree(nested(), active=frozenset({"live.power.busy"})).splitlines()
    visited = outline_text(make_box_tree(flat()), active=frozenset({"paid"}), visited=frozenset({"unpaid"}))

    assert ["● live (parallel)", "● power", "● busy"] == [line.strip() for line in lines if "●" in line]
    assert "○ unpaid" in visited
    assert "● paid (final)" in visited


def test_a_layout_that_fails_is_drawn_as_an_outline_that_says_so() -> None:
    def failing(tree: BoxTree, budget: Budget) -> Picture:
        raise ZeroDivisionError

    def overlapping(tree: BoxTree, budget: Budget) -> Picture:
        whole = picture_of(State(key="a"), State(key="b"))
        frames = [
            frame
            if frame.box.key == "s/"
            else type(frame)(box=frame.box, area=Area(x=20, y=20, width=9, height=9), title=1)
            for frame in whole.frames
        ]
        return Picture(tree=whole.tree, width=90.0, height=90.0, frames=tuple(frames), paths=())

    broken = lay_out(make_box_tree(flat()), lay=failing)
    bad = lay_out(make_box_tree(chart_of(State(key="a"), State(key="b"))), lay=overlapping)

    assert "ZeroDivisionError in the layout" in broken.fallback_reason
    assert "overlaps" in bad.fallback_reason
    assert "please report it with the chart" in bad.fallback_reason
    assert [] == list(broken_rules(broken))


def test_a_chart_that_takes_too_much_work_is_drawn_as_an_outline() -> None:
    """The work is counted, so the same chart is always drawn the same way, on any machine."""
    assert "the chart is too large to be laid out" == lay_out(make_box_tree(nested()), work=10).fallback_reason


def test_an_active_or_closed_state_must_exist() -> None:
    for attempt in (
        lambda: draw_svg(flat(), Options(active=frozenset({"piad"}))),
        lambda: draw_svg(flat(), Options(shut=frozenset({"piad"}))),
        lambda: text_tree(flat(), active=frozenset({"piad"})),
    ):
        with pytest.raises(UsageError) as caught:
            attempt()

        assert ("state.unknown", True) == (caught.value.code, "paid" in (caught.value.hint or ""))

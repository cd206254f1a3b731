"""What is drawn is decided once, for all formats."""

import pytest

from interlock.errors import UsageError
from interlock.model.charts.chart import DIALECTS, Chart, Descriptor, State, Transition
from interlock.render.diagram.model import LABEL_LINES_MAX, make_diagram
from tests.unit.render.charts import flat, nested, parallel_root


def test_edges_between_the_same_states_become_one_with_a_line_each() -> None:
    lines = {edge.lines for edge in make_diagram(nested()).edges}

    assert ("bad", "worse") in lines


def test_an_edge_with_many_lines_counts_the_rest() -> None:
    transitions = tuple(
        Transition(index=number, source=1, targets=(2,), descriptors=(Descriptor(f"e{number}", (f"e{number}",)),))
        for number in range(10)
    )
    states = (
        State(index=0, id="", key="", type="compound", parent=-1, last=2, depth=0, children=(1, 2), initial=(1,)),
        State(index=1, id="a", key="a", type="atomic", parent=0, last=1, depth=1, transitions=tuple(range(10))),
        State(index=2, id="b", key="b", type="atomic", parent=0, last=2, depth=1),
    )
    chart = Chart(kind="k", revision="0", dialect=DIALECTS["interlock"], states=states, transitions=transitions)

    edge = make_diagram(chart).edges[-1]

    assert LABEL_LINES_MAX == len(edge.lines)
    assert ("e0", "e1", "e2", "e3", "e4", "+5") == edge.lines


def test_a_transition_without_target_is_a_line_inside_its_state() -> None:
    plan = make_diagram(nested())
    live = next(state for state in plan.chart.states if state.id == "live")

    assert "note / note" in plan.lines[live.index]


def test_the_default_of_a_history_is_a_dashed_edge_with_its_content() -> None:
    dashed = [edge for edge in make_diagram(nested()).edges if edge.dashed]

    assert [("/ begin",), ()] == [edge.lines for edge in dashed]
    assert [1, 2] == [len(edge.targets) for edge in dashed]


def test_an_edge_between_regions_belongs_outside_the_parallel_state() -> None:
    """Written inside one region it would pull the other region's state over."""
    plan = make_diagram(parallel_root())
    edge = next(edge for edge in plan.edges if edge.lines == ("x",))

    assert 0 == plan.scope(edge)


def test_the_title_is_the_kind_and_the_label_of_the_revision() -> None:
    assert "order 1.0.0" == make_diagram(flat()).title()
    assert "vm" == make_diagram(nested()).title()


def test_an_active_state_must_exist() -> None:
    with pytest.raises(UsageError, match="paid") as caught:
        make_diagram(flat(), frozenset({"payd"}))

    assert "state.unknown" == caught.value.code

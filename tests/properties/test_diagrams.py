"""Random charts: every one is laid out and keeps the invariants.

`INTERLOCK_DRAWINGS=10000` draws that many; a failing seed is named and repeats itself.
"""

import os
from random import Random

import pytest

from interlock.compiler.build import compile_document
from interlock.model.document.document import Document, State, Transition
from interlock.model.limits import STATES_MAX
from interlock.render.drawing import draw_svg, lay_out
from interlock.render.shapes.boxes import make_box_tree
from interlock.render.shapes.collapse import collapse_boxes
from interlock.render.shapes.compare import compare_trees
from interlock.render.svg.painter import Look, svg
from tests.properties.charts import document
from tests.properties.generated_diagrams import generated

DRAWINGS = int(os.environ.get("INTERLOCK_DRAWINGS", "300"))
PARTS = 10


@pytest.mark.parametrize("part", range(PARTS))
def test_a_chart_made_by_chance_is_drawn_within_the_rules(part: int) -> None:
    count, troubles = 0, []
    for seed in range(part, DRAWINGS, PARTS):
        chart = generated(seed)
        if chart is not None:
            picture = lay_out(collapse_boxes(make_box_tree(chart)))
            count += 1
            if picture.fallback_reason:
                troubles.append((seed, picture.fallback_reason))

    assert [] == troubles
    assert count > DRAWINGS / PARTS * 0.8


@pytest.mark.parametrize("seed", [19, 20, 93, 142, 247, 263, 322, 1415])
def test_a_chart_with_regions_of_every_sort_is_drawn_within_the_rules(seed: int) -> None:
    """Charts made by chance for the kernel: parallel states in parallel states, final states as regions."""
    chart = compile_document(document(Random(seed))).chart
    assert chart is not None
    for depth in (None, 1, 2):
        picture = lay_out(collapse_boxes(make_box_tree(chart), depth=depth))

        assert "" == picture.fallback_reason
        assert svg(picture, Look(theme="bare")).startswith("<svg")


def test_the_largest_chart_is_drawn() -> None:
    """As many states as there may be, each with several transitions to others: an outline, but a drawing."""
    names = [f"s{number}" for number in range(STATES_MAX - 1)]
    states = []
    for number, name in enumerate(names):
        targets = [names[(number * step + 7) % len(names)] for step in (3, 11, 29)]
        leaving = tuple(Transition(events=(f"e{step}",), targets=(target,)) for step, target in enumerate(targets))
        states.append(State(key=name, transitions=leaving))
    chart = compile_document(Document(kind="large", dialect="scxml", root=State(states=tuple(states)))).chart
    assert chart is not None
    made = draw_svg(chart)

    assert "the chart is too large to be laid out" == made.fallback_reason
    assert "Drawn as an outline" in made.svg


@pytest.mark.parametrize("part", range(2))
def test_two_charts_made_by_chance_are_drawn_as_one(part: int) -> None:
    for seed in range(part, 40, 2):
        one, other = generated(seed), generated(seed + 1000)
        if one is not None and other is not None:
            picture = lay_out(collapse_boxes(compare_trees(make_box_tree(one), make_box_tree(other))))

            assert svg(picture, Look(theme="bare")).startswith("<svg")

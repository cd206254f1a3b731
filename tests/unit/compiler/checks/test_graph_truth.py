"""What the compiler says about the graph is true of every step that the kernel takes, over random charts and events."""

from collections.abc import Iterator
from random import Random

import pytest

from interlock.compiler.build import compile_document
from interlock.compiler.checks.graph import Graph
from interlock.errors import RejectedError
from interlock.kernel.step import Kernel
from interlock.model.charts.chart import Chart
from interlock.model.step import Step
from tests.properties.charts import document
from tests.properties.contents import ASSIGNS, GUARDS
from tests.properties.sequences import Sender

BLOCKS = 2
CHARTS = 30
STEPS = 25


def chart_of(random: Random) -> Chart:
    """A random chart."""
    chart = compile_document(document(random)).chart

    assert chart is not None
    return chart


def steps(chart: Chart, random: Random) -> Iterator[Step]:
    """The steps of a random entity; none when its very first one fails."""
    kernel, sender = Kernel(chart, guards=GUARDS, assigns=ASSIGNS), Sender(random)
    try:
        step = kernel.start({}, **sender.start())
    except RejectedError:
        return
    for _ in range(STEPS):
        yield step
        step = kernel.step(step.snapshot, sender.event(step.snapshot))


@pytest.mark.slow
@pytest.mark.parametrize("block", range(BLOCKS))
def test_every_active_state_is_reachable_for_the_compiler(block: int) -> None:
    """Every state that is active is reachable, and every transition that is taken may be taken."""
    for seed in range(block * CHARTS, (block + 1) * CHARTS):
        random = Random(seed)
        chart = chart_of(random)
        graph = Graph(chart)
        reachable = {chart.states[each].id for each in graph.reachable()}
        possible = {transition.index for _, transition, _ in graph.walk_reachable(graph.initial_states(), memory=False)}

        for step in steps(chart, random):
            assert reachable.issuperset(step.snapshot.configuration), seed
            assert possible.issuperset(step.transitions), seed


@pytest.mark.slow
@pytest.mark.parametrize("block", range(BLOCKS))
def test_what_a_step_enters_is_what_its_transitions_enter(block: int) -> None:
    """No transition leads where the graph does not see it lead, histories and regions counted."""
    for seed in range(block * CHARTS, (block + 1) * CHARTS):
        random = Random(seed)
        chart = chart_of(random)
        graph = Graph(chart)
        before: set[str] | None = None

        for step in steps(chart, random):
            after = set(step.snapshot.configuration)
            entered = {
                chart.states[state].id
                for number in step.transitions
                for state in graph.entered(chart.transitions[number], memory=True)
            }
            assert before is None or after - before <= entered, seed
            before = after

"""The charts whose drawings are kept: one for each thing a drawing must be able to show."""

from collections.abc import Callable
from pathlib import Path

import interlock
from interlock.compiler.build import compile_document
from interlock.model.charts.chart import Chart
from interlock.model.document.document import Document, State, Transition
from tests.tidy.tracked import ROOT

FOLDER = Path(__file__).parent
CHARTS = FOLDER / "charts"


def hundred() -> Chart:
    """Makes a chart of a hundred states: five groups of nineteen in rings, so that boxes are closed automatically."""
    groups = []
    for group in range(5):
        names = [f"g{group}_{number}" for number in range(19)]
        inside = tuple(
            State(key=name, transitions=(Transition(events=("next",), targets=(names[(number + 1) % 19],)),))
            for number, name in enumerate(names)
        )
        leaving = (Transition(events=("leave",), targets=(f"group_{(group + 1) % 5}",)),)
        groups.append(State(key=f"group_{group}", states=inside, transitions=leaving))
    chart = compile_document(Document(kind="hundred", root=State(states=tuple(groups)))).chart
    assert chart is not None
    return chart


def example(name: str) -> Callable[[], Chart]:
    """Gives the chart of an example when called."""
    return lambda: interlock.load(ROOT / "examples" / f"{name}.interlock.yaml").chart


SAMPLES: dict[str, Callable[[], Chart]] = {
    **{f"example_{name}": example(name) for name in ("door", "order", "player", "trip", "vm", "delivery")},
    **{
        path.name.split(".")[0]: (lambda path=path: interlock.load(path).chart)  # type: ignore[misc]  # bound immediately
        for path in sorted(CHARTS.glob("*.yaml"))
    },
    "hundred": hundred,
}

"""The form of every suite: what it measures, how its tables look, and its goals.

Rule 1: a goal is a ratio within one run wherever possible. Absolute times are for the reader.
Rule 2: a goal that was not measured is not met.
Rule 3: a quick run has no verdicts, because its sizes are too small.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from bench.measure import Measurement
from bench.results import Figure, Run

Cell = Callable[[Run, str, Figure], str]
"""Returns the text of a cell; the text argument is the name of the workload."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a workload's table. A column without any text is not shown."""

    heading: str
    cell: Cell


def number(value: float) -> str:
    """Format with three significant digits."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def median(heading: str, measure: str, form: str | None = None) -> Column:
    """Return a column with the median of a measure; `form` is a format such as `,.1f`."""

    def cell(run: Run, workload: str, figure: Figure) -> str:
        if measure not in figure.samples:
            return ""
        found = figure.median(measure)
        return number(found) if form is None else format(found, form)

    return Column(heading, cell)


def spread(measure: str, form: str | None = None) -> Column:
    """Return a column with the lowest and the highest sample."""

    def cell(run: Run, workload: str, figure: Figure) -> str:
        samples = figure.samples.get(measure, [])
        if len(samples) < 2:
            return ""
        low, high = (number(each) if form is None else format(each, form) for each in (min(samples), max(samples)))
        return f"{low}..{high}"

    return Column("spread", cell)


def relative(heading: str, measure: str, base: str, form: Callable[[float], str]) -> Column:
    """Return a column with the ratio of the medians to the line `base`."""

    def cell(run: Run, workload: str, figure: Figure) -> str:
        theirs = run.median(workload, base, measure)
        return "" if theirs is None or measure not in figure.samples else form(figure.median(measure) / theirs)

    return Column(heading, cell)


def count(heading: str = "in a round") -> Column:
    """Return a column with the size of a round."""
    return Column(heading, lambda run, workload, figure: f"{figure.count:,}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A workload and its table: one row per line. `label` is the heading of the first column."""

    name: str
    title: str
    columns: tuple[Column, ...]
    label: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """A table over several workloads: the median of one measure, with the ratio to the line `base`."""

    title: str
    introduction: str
    workloads: tuple[str, ...]
    measure: str
    base: str


class Found(NamedTuple):
    """The figure of a goal and its text. Without a value, the text is the reason why it was not measured."""

    value: float | None
    text: str = ""


@dataclass(frozen=True, slots=True)
class Goal:
    """A goal: its bar, such as `<= 2x` or `>= 1,000 steps/s`, and the function that finds its figure in a run."""

    name: str
    bar: str
    find: Callable[[Run], Found]

    def verdict(self, run: Run) -> Verdict:
        """Compare the figure with the bar."""
        found = self.find(run)
        if found.value is None:
            return Verdict(goal=self.name, bar=self.bar, figure=found.text, met=None)
        sign, bar = _bar(self.bar)
        return Verdict(goal=self.name, bar=self.bar, figure=found.text, met=_SIGNS[sign](found.value, bar))


_SIGNS: dict[str, Callable[[float, float], bool]] = {"<=": operator.le, "<": operator.lt, ">=": operator.ge}


def _bar(text: str) -> tuple[str, float]:
    parts = re.match(r"(<=|<|>=) ([\d,.]+)", text)
    assert parts is not None, text
    return parts[1], float(parts[2].replace(",", ""))


def value(workload: str, key: str, measure: str, unit: str, form: str = ",.1f") -> Callable[[Run], Found]:
    """Find the median of a measure."""

    def find(run: Run) -> Found:
        found = run.median(workload, key, measure)
        return Found(None, run.missing(workload, key)) if found is None else Found(found, f"{found:{form}} {unit}")

    return find


def ratio(workload: str, key: str, to: str, measure: str, *, form: str, unit: str) -> Callable[[Run], Found]:
    """Find the ratio of two lines, round by round, and show both medians."""

    def find(run: Run) -> Found:
        found = run.ratio(workload, key, to, measure)
        if found is None:
            return Found(None, run.missing(workload, key, to))
        ours, theirs = (run.median(workload, each, measure) for each in (key, to))
        return Found(found, f"{found:.2f}x ({ours:{form}} to {theirs:{form}} {unit})")

    return find


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One goal after a run; `met` is None if it was not measured."""

    goal: str
    bar: str
    figure: str
    met: bool | None

    @property
    def word(self) -> str:
        """Return the verdict in one word."""
        return "not measured" if self.met is None else "pass" if self.met else "MISS"


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """A suite. `run` measures and fills the measurement; its effort is one of `efforts`: whole, quick.

    `choices` are the names that `--only` accepts besides the name of the suite.
    """

    name: str
    title: str
    introduction: str
    method: str
    run: Callable[[Measurement[Any]], None]
    efforts: tuple[Any, Any]
    choices: tuple[str, ...]
    workloads: tuple[Workload, ...]
    goals: tuple[Goal, ...]
    overviews: tuple[Overview, ...] = ()

    def verdicts(self, run: Run) -> list[Verdict]:
        """Return a verdict per goal; none for a quick run."""
        return [] if run.quick else [goal.verdict(run) for goal in self.goals]

    def is_missed(self, run: Run) -> bool:
        """Whether a goal is not met. In a whole run this includes goals that were not measured."""
        return any(each.met is False or (each.met is None and not run.partial) for each in self.verdicts(run))

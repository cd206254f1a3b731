"""The parts of a run beside the one in process, all of one shape: measured, judged, printed, kept, shown on the page.

A new part is a folder with `suite`, `goals`, `results` and `report`, and a line in `PARTS`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from bench.durable import goals as durable_goals
from bench.durable import measure as durable_measure
from bench.durable import report as durable_report
from bench.durable import results as durable_results
from bench.durable import suite as durable_suite
from bench.fleet import goals as pages_goals
from bench.fleet import report as pages_report
from bench.fleet import results as pages_results
from bench.fleet import suite as pages_suite
from bench.goals import Verdict
from bench.http import goals as http_goals
from bench.http import report as http_report
from bench.http import results as http_results
from bench.http import suite as http_suite
from bench.measure import tell
from bench.results import Dated, Machine
from bench.shm import goals as shm_goals
from bench.shm import measure as shm_measure
from bench.shm import report as shm_report
from bench.shm import results as shm_results
from bench.shm import suite as shm_suite
from bench.timers import goals as timers_goals
from bench.timers import report as timers_report
from bench.timers import results as timers_results
from bench.timers import suite as timers_suite


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the command line wants of a part. `repeats`: None for as many as the part thinks right."""

    names: list[str]
    quick: bool
    repeats: int | None
    commit: str
    computer: Callable[[float], Machine]


class Suite(Protocol):
    """The module that measures: names, an effort where it has some, and keywords give a run."""

    @property
    def measured(self) -> Callable[..., Any]: ...


class Goals(Protocol):
    """The module that judges."""

    @property
    def verdicts(self) -> Callable[[Any], list[Verdict]]: ...


class Results(Protocol):
    """The module that keeps runs."""

    @property
    def write(self) -> Callable[[Any, Path], Path]: ...
    @property
    def read(self) -> Callable[[Path], Any]: ...
    @property
    def newest(self) -> Callable[[Path], Path | None]: ...


class Report(Protocol):
    """The module that shows them."""

    @property
    def text(self) -> Callable[[Any], str]: ...
    @property
    def section(self) -> Callable[[Any], list[str]]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One part: its modules, the type of its runs, and how much it does, whole and quick, where it counts in rounds."""

    run: type[Any]
    suite: Suite
    goals: Goals
    results: Results
    report: Report
    efforts: tuple[Any, Any] | None = None

    def measured_and_kept(self, asked: Asked, folder: Path) -> Dated:
        """A run, printed and kept."""
        load_before = os.getloadavg()[0]
        efforts = []
        if self.efforts is not None:
            effort = self.efforts[asked.quick]
            efforts.append(effort if asked.repeats is None else replace(effort, rounds=asked.repeats))
        run: Dated = self.suite.measured(
            asked.names, *efforts, quick=asked.quick, commit=asked.commit, computer=lambda: asked.computer(load_before)
        )
        print(self.report.text(run))
        tell(f"bench: wrote {self.results.write(run, folder).name}")
        return run

    def newest_section(self, folder: Path) -> list[str]:
        """The newest whole run as parts of the page; nothing when there is none."""
        path = self.results.newest(folder)
        return [] if path is None else self.report.section(self.results.read(path))


PARTS = {
    "durable": Part(
        run=durable_results.DurableRun,
        suite=durable_suite,
        goals=durable_goals,
        results=durable_results,
        report=durable_report,
        efforts=(durable_measure.FULL, durable_measure.QUICK),
    ),
    "shm": Part(
        run=shm_results.SharedRun,
        suite=shm_suite,
        goals=shm_goals,
        results=shm_results,
        report=shm_report,
        efforts=(shm_measure.FULL, shm_measure.QUICK),
    ),
    "timers": Part(
        run=timers_results.TimersRun,
        suite=timers_suite,
        goals=timers_goals,
        results=timers_results,
        report=timers_report,
    ),
    "http": Part(
        run=http_results.HttpRun,
        suite=http_suite,
        goals=http_goals,
        results=http_results,
        report=http_report,
        efforts=(http_suite.FULL, http_suite.QUICK),
    ),
    "pages": Part(
        run=pages_results.PagesRun,
        suite=pages_suite,
        goals=pages_goals,
        results=pages_results,
        report=pages_report,
    ),
}
"""Every part by its name, in the order in which a whole run does them, behind the one in process."""

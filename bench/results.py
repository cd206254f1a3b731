"""One run of a suite as a value, and its file `results/<date>-<suite>.json`. All suites use this format.

A figure is what one line (an implementation, an engine, a size) did in one workload: named measures, such as `ns` or
`rate`, with one sample per round. The file contains every sample, so that another ratio or spread needs no new run.
"""

from __future__ import annotations

import statistics
from pathlib import Path

import msgspec


class Line(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of the tables. `unsupported` maps each workload that the line cannot do to the reason."""

    name: str
    version: str = ""
    workloads: list[str] = []
    unsupported: dict[str, str] = {}

    @property
    def label(self) -> str:
        """Return the name with the version."""
        return f"{self.name} {self.version}".strip()


class Figure(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The samples of one line in one workload, by measure. `error` is the reason why there are none.

    `count` is the size of one round: events, orders, tasks or entities.
    """

    count: int = 0
    samples: dict[str, list[float]] = {}
    error: str | None = None

    def add(self, answer: dict[str, float]) -> None:
        """Add the measures of one round."""
        for measure, value in answer.items():
            self.samples.setdefault(measure, []).append(value)

    def fail(self, error: str) -> None:
        """Drop all samples: a line that failed once has no figure."""
        self.error, self.samples = error, {}

    def median(self, measure: str) -> float:
        """Return the median of a measure."""
        return statistics.median(self.samples[measure])


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """The computer: enough to judge the figures, not enough to identify it."""

    system: str
    architecture: str
    processors: int
    memory_gib: float
    load_before: float
    load_after: float

    @property
    def was_busy(self) -> bool:
        """Whether other programs were running. CPU time hides most of that, but not shared caches."""
        return self.load_before > 0.5 * self.processors


class Run(msgspec.Struct, kw_only=True):
    """A whole run. The figures of a `quick` or a `partial` run are not published.

    `facts` are sentences about this run, such as the file system and the versions of servers.
    """

    suite: str
    date: str
    quick: bool
    partial: bool
    rounds: int
    python: str
    commit: str
    machine: Machine
    facts: list[str]
    lines: dict[str, Line]
    left_out: dict[str, str]
    figures: dict[str, dict[str, Figure]]

    def figure(self, workload: str, key: str, measure: str) -> Figure | None:
        """Return the figure of a line in a workload, or None if the measure was not taken."""
        found = self.figures.get(workload, {}).get(key)
        return found if found is not None and measure in found.samples else None

    def median(self, workload: str, key: str, measure: str) -> float | None:
        """Return the median of a measure, or None if it was not taken."""
        found = self.figure(workload, key, measure)
        return None if found is None else found.median(measure)

    def ratio(self, workload: str, key: str, to: str, measure: str) -> float | None:
        """Return the median of the ratios of two lines, round by round."""
        ours, theirs = self.figure(workload, key, measure), self.figure(workload, to, measure)
        if ours is None or theirs is None:
            return None
        return paired(ours.samples[measure], theirs.samples[measure])

    def missing(self, workload: str, *keys: str) -> str:
        """Return the reason why one of these lines has no figure, or an empty string if none is known."""
        for key in keys:
            figure = self.figures.get(workload, {}).get(key)
            reason = self.left_out.get(key) or (figure.error if figure is not None else None)
            if reason is not None:
                return reason
        return ""


def paired(ours: list[float], theirs: list[float]) -> float:
    """Return the median of the ratios, round by round: both were measured in each round."""
    return statistics.median(our / their for our, their in zip(ours, theirs, strict=True))


def write(run: Run, folder: Path) -> Path:
    """Write a run under its date. A quick or partial run has its own name and is never mistaken for a whole one."""
    folder.mkdir(parents=True, exist_ok=True)
    kind = "-partial" if run.partial else "-quick" if run.quick else ""
    path = folder / f"{run.date}-{run.suite}{kind}.json"
    path.write_bytes(msgspec.json.format(msgspec.json.encode(run), indent=1) + b"\n")
    return path


def read(path: Path) -> Run:
    """Read a run."""
    return msgspec.json.decode(path.read_bytes(), type=Run)


def newest(folder: Path, suite: str) -> Run | None:
    """Return the newest whole run of a suite, if there is one. File names start with the date."""
    path = max(folder.glob(f"*-{suite}.json"), default=None)
    return None if path is None else read(path)

"""One run of the suite as a value: what was measured, on what, and how it goes to and from `results/*.json`.

Rule: a file holds every sample, so that any later reading (another ratio, another spread) needs no new run.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

import msgspec


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One implementation: its name and version as it gave them, and what it can express."""

    name: str
    version: str
    workloads: list[str]


class Figure(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What one implementation took for one workload: nanoseconds of CPU per event or entity, one sample per repeat.

    `count` is the number of events or entities in a repeat. `error` says why there are no samples.
    """

    count: int = 0
    samples: list[float] = []
    bytes: list[float] = []
    error: str | None = None

    @property
    def ns(self) -> float:
        """The median."""
        return statistics.median(self.samples)

    @property
    def bytes_each(self) -> float:
        """The median of resident bytes per entity."""
        return statistics.median(self.bytes)


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """The computer: enough to judge the figures, not enough to find it."""

    system: str
    architecture: str
    processors: int
    memory_gib: float
    load_before: float
    load_after: float

    @property
    def was_busy(self) -> bool:
        """Whether others worked beside the suite. CPU time hides most of that, shared caches and clocks it does not."""
        return self.load_before > 0.5 * self.processors


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    """How far memory grew while so many events were folded: resident bytes after against before, and the peak."""

    count: int
    resident: int
    peak: int


class Run(msgspec.Struct, kw_only=True):
    """All of one run. `imports` are CPU milliseconds beyond the bare interpreter, by what was imported.

    A `quick` run shows that the suite works, a `partial` one was asked for some lines only; neither stands for more.
    """

    date: str
    quick: bool
    partial: bool
    repeats: int
    python: str
    commit: str
    machine: Machine
    lines: dict[str, Line]
    left_out: dict[str, str]
    figures: dict[str, dict[str, Figure]]
    imports: dict[str, list[float]]
    memory: Memory | None = None

    def ns(self, workload: str, key: str) -> float | None:
        """The median of an implementation for a workload, if it was measured."""
        figure = self.figures.get(workload, {}).get(key)
        return figure.ns if figure is not None and figure.samples else None


class Dated(Protocol):
    """What every kind of run has, by which it is named."""

    date: str
    quick: bool
    partial: bool


def keep(run: Dated, folder: Path, suite: str) -> Path:
    """Keep a run under its date. A quick or partial one has a name of its own, so that it never stands for a whole."""
    folder.mkdir(parents=True, exist_ok=True)
    kind = "-partial" if run.partial else "-quick" if run.quick else ""
    path = folder / f"{run.date}-{suite}{kind}.json"
    path.write_bytes(msgspec.json.format(msgspec.json.encode(run), indent=1) + b"\n")
    return path


def newest_whole(folder: Path, suite: str) -> Path | None:
    """The newest whole run of a suite, if there is one. Names begin with the date."""
    return max(folder.glob(f"*-{suite}.json"), default=None)


def write(run: Run, folder: Path) -> Path:
    """Keep a run of the suite in one process."""
    return keep(run, folder, "inprocess")


def read(path: Path) -> Run:
    """A run that was kept."""
    return msgspec.json.decode(path.read_bytes(), type=Run)


def newest(folder: Path) -> Path | None:
    """The newest whole run, or the newest quick one while there is no whole one."""
    return newest_whole(folder, "inprocess") or newest_whole(folder, "inprocess-quick")


def median(samples: Iterable[float]) -> float:
    """The middle sample."""
    return statistics.median(samples)

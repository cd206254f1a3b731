"""A run of shared memory as a value, and how it goes to and from `results/<date>-shm.json`. Every sample is kept."""

from __future__ import annotations

import statistics
from pathlib import Path

import msgspec

from bench.results import Line, Machine, keep, newest_whole


class Figure(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What one line did in one workload: one sample per round, in the workload's unit. `error` says why there is none.

    `count` is how much was done in a round; `beside` are further figures of the same rounds.
    """

    count: int = 0
    samples: list[float] = []
    beside: dict[str, list[float]] = {}
    error: str | None = None

    @property
    def median(self) -> float:
        """The middle of the samples."""
        return statistics.median(self.samples)


class SharedRun(msgspec.Struct, kw_only=True):
    """All of one run. A `quick` one shows that the suite works, a `partial` one was asked for some lines only."""

    date: str
    quick: bool
    partial: bool
    rounds: int
    python: str
    commit: str
    machine: Machine
    lines: dict[str, Line]
    left_out: dict[str, str]
    figures: dict[str, dict[str, Figure]]

    def figure(self, workload: str, key: str) -> Figure | None:
        """What a line did in a workload, if it was measured."""
        found = self.figures.get(workload, {}).get(key)
        return found if found is not None and found.samples else None

    def ratio(self, workload: str, key: str, to: str) -> float | None:
        """How many times the figure of another line: the median of the rounds' ratios, both asked in each round."""
        ours, theirs = self.figure(workload, key), self.figure(workload, to)
        if ours is None or theirs is None:
            return None
        return statistics.median(our / their for our, their in zip(ours.samples, theirs.samples, strict=True))


def write(run: SharedRun, folder: Path) -> Path:
    """Keep a run."""
    return keep(run, folder, "shm")


def read(path: Path) -> SharedRun:
    """A run that was kept."""
    return msgspec.json.decode(path.read_bytes(), type=SharedRun)


def newest(folder: Path) -> Path | None:
    """The newest whole run, if there is one."""
    return newest_whole(folder, "shm")

"""A durable run as a value, and how it goes to and from `results/<date>-durable.json`. Every sample is kept."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Literal

import msgspec

from bench.results import Line, Machine, keep, newest_whole

Attribute = Literal["rate", "p50_ms", "p99_ms", "cpu_us", "server_cpu_us"]


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """One question: steps a second, latencies, and CPU time per step of the caller's process and of the server."""

    rate: float
    p50_ms: float
    p99_ms: float
    cpu_us: float
    server_cpu_us: float = 0.0


class Figure(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What one engine did in one workload: one sample per round. `error` says why there are none.

    `count` is the number of events (seq1) or of orders (fleet) of a round.
    """

    count: int = 0
    samples: list[Sample] = []
    error: str | None = None

    def median(self, attribute: Attribute) -> float:
        """The middle of the samples."""
        return float(statistics.median(getattr(each, attribute) for each in self.samples))

    def spread(self, attribute: Attribute) -> tuple[float, float]:
        """The lowest and the highest."""
        found = [getattr(each, attribute) for each in self.samples]
        return min(found), max(found)


class Recovery(msgspec.Struct, kw_only=True):
    """Milliseconds to load an entity with so many entries, from its whole journal and from its snapshot."""

    entries: int
    journal_ms: list[float]
    snapshot_ms: list[float]


class Scale(msgspec.Struct, kw_only=True):
    """Microseconds of CPU per step in a store that holds so many entities: of the newest ones, and of any."""

    entities: int
    megabytes: float
    recent_us: list[float]
    anywhere_us: list[float]


class DurableRun(msgspec.Struct, kw_only=True):
    """All of one run. A `quick` or `partial` run shows that the suite works, and stands for nothing else."""

    date: str
    quick: bool
    partial: bool
    rounds: int
    python: str
    commit: str
    file_system: str
    servers: dict[str, str]
    machine: Machine
    lines: dict[str, Line]
    left_out: dict[str, str]
    figures: dict[str, dict[str, Figure]]
    recovery: dict[str, Recovery] = {}
    scale: list[Scale] = []

    def rate(self, workload: str, key: str) -> float | None:
        """Steps a second of an engine, the median, if it was measured."""
        figure = self.figures.get(workload, {}).get(key)
        return figure.median("rate") if figure is not None and figure.samples else None

    def ratio(self, workload: str, key: str, to: str) -> float | None:
        """How many times the rate of another engine: the median of the rounds' ratios, both asked in each round."""
        figures = self.figures.get(workload, {})
        ours, theirs = figures.get(key), figures.get(to)
        if ours is None or theirs is None or not ours.samples or not theirs.samples:
            return None
        pairs = zip(ours.samples, theirs.samples, strict=True)
        return statistics.median(our.rate / their.rate for our, their in pairs)


def write(run: DurableRun, folder: Path) -> Path:
    """Keep a run."""
    return keep(run, folder, "durable")


def read(path: Path) -> DurableRun:
    """A run that was kept."""
    return msgspec.json.decode(path.read_bytes(), type=DurableRun)


def newest(folder: Path) -> Path | None:
    """The newest whole run, if there is one."""
    return newest_whole(folder, "durable")

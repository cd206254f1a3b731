"""A run of the HTTP interface as a value, and how it goes to and from `results/<date>-http.json`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from bench.results import Machine, keep, median, newest_whole


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """One load: answers a second, how long they took, and CPU time per request of the server and of the load.

    `latencies_ms` maps a share of the answers, such as `0.99`, to the time that it did not exceed; `own_latencies_ms`
    and `hot_latencies_ms` are the same of events for clients' own entities and for shared ones, empty without any.
    `load_share` is the part of a processor that the load itself took: near 1 it would have measured itself.
    """

    answers: int
    seconds: float
    cpu_us: float
    load_cpu_us: float
    load_share: float
    latencies_ms: dict[str, float]
    own_latencies_ms: dict[str, float]
    hot_latencies_ms: dict[str, float]

    @property
    def rate(self) -> float:
        """Answers a second."""
        return self.answers / self.seconds


class Line(msgspec.Struct, kw_only=True):
    """A server in all rounds; `error` says why a round is missing."""

    samples: list[Sample] = []
    error: str | None = None

    @property
    def rate(self) -> float:
        """The median of the rounds."""
        return median(each.rate for each in self.samples)

    @property
    def cpu_us(self) -> float:
        """The median of the rounds."""
        return median(each.cpu_us for each in self.samples)

    def latency_ms(self, share: str) -> float:
        """The median of the rounds, of the time that a share of the answers did not exceed."""
        return median(each.latencies_ms[share] for each in self.samples)

    def own_latency_ms(self, share: str) -> float | None:
        """The same of events for clients' own entities; None when there was none."""
        return _median(each.own_latencies_ms.get(share) for each in self.samples)

    def hot_latency_ms(self, share: str) -> float | None:
        """The same of events for shared entities."""
        return _median(each.hot_latencies_ms.get(share) for each in self.samples)

    @property
    def load_cpu_us(self) -> float:
        """The median of the rounds."""
        return median(each.load_cpu_us for each in self.samples)


def _median(figures: Iterable[float | None]) -> float | None:
    found = [each for each in figures if each is not None]
    return median(found) if found else None


class Killed(msgspec.Struct, frozen=True, kw_only=True):
    """What became of events under whose load the server was killed and started again.

    `in_doubt`: without an answer when the connection broke; `in_doubt_kept` of them had been kept, as the second send
    under the same key was told. `unsent`: entries that nobody sent. `damaged`: entities whose journal is not proven.
    `back_s`: from the first broken connection to the first receipt for what was sent again.
    """

    seconds: float
    acknowledged: int
    in_doubt: int
    in_doubt_kept: int
    lost: int
    doubled: int
    unsent: int
    damaged: int
    back_s: float | None


class HttpRun(msgspec.Struct, kw_only=True):
    """All of one run. A `quick` one shows that the suite works, and stands for nothing else.

    `stack` names what serves both lines, with versions.
    """

    date: str
    quick: bool
    partial: bool
    rounds: int
    clients: int
    python: str
    commit: str
    file_system: str
    stack: dict[str, str]
    machine: Machine
    left_out: dict[str, str]
    lines: dict[str, Line]
    minute: Sample | None = None
    killed: Killed | None = None


def write(run: HttpRun, folder: Path) -> Path:
    """Keep a run."""
    return keep(run, folder, "http")


def read(path: Path) -> HttpRun:
    """A run that was kept."""
    return msgspec.json.decode(path.read_bytes(), type=HttpRun)


def newest(folder: Path) -> Path | None:
    """The newest whole run, if there is one."""
    return newest_whole(folder, "http")

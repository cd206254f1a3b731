"""A run of timers as a value, and how it goes to and from `results/<date>-timers.json`."""

from __future__ import annotations

from pathlib import Path

import msgspec

from bench.results import Machine, keep, newest_whole

KEPT = (0.5, 0.9, 0.99, 1.0)
"""Which of the latenesses are kept: a million samples would be no result any more."""


class Firing(msgspec.Struct, kw_only=True):
    """What firing among so many pending timers came to.

    `late_ms` maps a share of the firings, such as `0.99`, to the lateness that it did not exceed.
    """

    entities: int
    timers: int
    due: int
    per_second: int
    fill_s: float
    megabytes: float
    resident_before_mb: float
    resident_after_mb: float
    cpu_us: float
    late_ms: dict[str, float]


class TimersRun(msgspec.Struct, kw_only=True):
    """All of one run. A `quick` one shows that the suite works, and stands for nothing else."""

    date: str
    quick: bool
    partial: bool
    python: str
    commit: str
    file_system: str
    machine: Machine
    left_out: dict[str, str]
    firings: list[Firing]


def shares(late_ms: list[float]) -> dict[str, float]:
    """The latenesses that are kept, of all that were measured."""
    ordered = sorted(late_ms)
    return {str(share): ordered[min(len(ordered) - 1, int(share * len(ordered)))] for share in KEPT}


def write(run: TimersRun, folder: Path) -> Path:
    """Keep a run."""
    return keep(run, folder, "timers")


def read(path: Path) -> TimersRun:
    """A run that was kept."""
    return msgspec.json.decode(path.read_bytes(), type=TimersRun)


def newest(folder: Path) -> Path | None:
    """The newest whole run, if there is one."""
    return newest_whole(folder, "timers")

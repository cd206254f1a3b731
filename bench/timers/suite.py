"""The timers part of a run: files of several sizes, each filled and fired in a process of its own, then deleted."""

from __future__ import annotations

import datetime as dt
import json
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from bench.durable.measure import without_folders
from bench.durable.suite import disk, file_system
from bench.measure import ROOT, environment, tell
from bench.results import Machine
from bench.timers.results import Firing, TimersRun, shares

SECONDS_MAX = 900


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """One file: how many entities with how many timers each, and how many come due at which rate."""

    entities: int
    timers_each: int
    due: int
    per_second: int

    @property
    def name(self) -> str:
        """As `--only timers,...` may say it."""
        return str(self.entities * self.timers_each)


FULL = (
    Size(entities=1_000, timers_each=10, due=1_000, per_second=200),
    Size(entities=10_000, timers_each=10, due=6_000, per_second=200),
    Size(entities=100_000, timers_each=10, due=6_000, per_second=200),
)
QUICK = (Size(entities=200, timers_each=10, due=100, per_second=200),)


def measured(names: list[str], *, quick: bool, commit: str, computer: Callable[[], Machine]) -> TimersRun:
    """One run. `names` are sizes, such as 1000000; without names, all. Raises SystemExit on a name of none."""
    sizes = QUICK if quick else FULL
    known = [each.name for each in sizes]
    for name in names:
        if name not in known:
            raise SystemExit(f"bench: there is no size {name!r} of timers; there are {', '.join(known)}")
    left_out: dict[str, str] = {}
    firings: list[Firing] = []
    with tempfile.TemporaryDirectory(dir=disk(), prefix="bench-", ignore_cleanup_errors=True) as folder:
        kind = file_system(disk())
        for size in sizes:
            if names and size.name not in names:
                continue
            tell(f"bench: timers, {int(size.name):,} pending ...")
            found = _fired(folder, size, left_out)
            if found is not None:
                late_ms = shares(found.pop("late_ms"))
                firings.append(msgspec.convert({**found, "late_ms": late_ms}, Firing))
    return TimersRun(
        date=dt.datetime.now(dt.UTC).date().isoformat(),
        quick=quick,
        partial=bool(names),
        python=platform.python_version(),
        commit=commit,
        file_system=kind,
        machine=computer(),
        left_out=left_out,
        firings=firings,
    )


def _fired(folder: str, size: Size, left_out: dict[str, str]) -> dict[str, Any] | None:
    """What a process of its own found; None when it failed, which is told."""
    with tempfile.TemporaryDirectory(dir=folder, ignore_cleanup_errors=True) as place:
        numbers = (size.entities, size.timers_each, size.due, size.per_second)
        command = [sys.executable, "-m", "bench.timers.workload", place, *map(str, numbers)]
        try:
            done = subprocess.run(
                command,
                env=environment(),
                cwd=ROOT,
                capture_output=True,
                text=True,
                timeout=SECONDS_MAX,
                check=False,
            )
        except subprocess.TimeoutExpired:
            left_out[size.name] = f"it took more than {SECONDS_MAX} s"
            tell(f"FAILED: timers: {left_out[size.name]}")
            return None
    if done.returncode != 0:
        last_words = (done.stderr.strip().splitlines() or ["it ended without a word"])[-1]
        left_out[size.name] = without_folders(last_words)[:200]
        tell(f"FAILED: timers: {left_out[size.name]}")
        return None
    found: dict[str, Any] = json.loads(done.stdout)
    return found

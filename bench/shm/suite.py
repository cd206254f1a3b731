"""The shared-memory part of a run: lines in rounds, workload by workload; every process it starts, it ends."""

from __future__ import annotations

import datetime as dt
import platform
import time
from collections.abc import Callable

from bench.measure import tell
from bench.results import Machine
from bench.shm import measure
from bench.shm.results import Figure, SharedRun

NAMES = (*measure.WORKLOADS, *measure.COMMANDS)
"""What `--only shm,...` may name; a name stands for all that begin with it."""


def chosen(names: list[str]) -> tuple[list[str], list[str]]:
    """The workloads and lines that these names stand for; without names, all.

    Raises SystemExit on a name that stands for none.
    """
    for name in names:
        if not any(each.startswith(name) for each in NAMES):
            raise SystemExit(f"bench: nothing of shared memory is named {name!r}; there are {', '.join(NAMES)}")
    workloads = [each for each in measure.WORKLOADS if any(each.startswith(name) for name in names)]
    keys = [each for each in measure.COMMANDS if any(each.startswith(name) for name in names)]
    return workloads or list(measure.WORKLOADS), keys or list(measure.COMMANDS)


def measured(
    names: list[str],
    effort: measure.Effort,
    *,
    quick: bool,
    commit: str,
    computer: Callable[[], Machine],
) -> SharedRun:
    """One run. `computer` describes the machine when the run is over."""
    workloads, keys = chosen(names)
    began = time.monotonic()
    running, left_out = measure.started(keys)
    figures: dict[str, dict[str, Figure]] = {}
    try:
        for workload in workloads:
            tell(f"bench: shared memory, {workload} ...")
            found = measure.driven(workload, running, effort)
            if found:
                figures[workload] = found
    finally:
        for process in running.values():
            process.close()
    tell(f"bench: the shared-memory part took {time.monotonic() - began:.0f} s")
    return SharedRun(
        date=dt.datetime.now(dt.UTC).date().isoformat(),
        quick=quick,
        partial=bool(names),
        rounds=effort.rounds,
        python=platform.python_version(),
        commit=commit,
        machine=computer(),
        lines={key: process.line for key, process in running.items()},
        left_out=left_out,
        figures=figures,
    )

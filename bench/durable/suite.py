"""The durable part of a run: servers, engines in rounds, recovery, scale; everything that it made is deleted."""

from __future__ import annotations

import datetime as dt
import json
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from bench.durable import measure, servers
from bench.durable.results import DurableRun, Figure, Recovery, Scale
from bench.measure import ROOT, environment, tell
from bench.results import Machine

LARGE = ("recovery-file", "recovery-sqlite", "scale")
LARGE_SECONDS_MAX = 400
NAMES = (*measure.WORKLOADS, *LARGE, *measure.COMMANDS)
"""What `--only durable,...` may name; a name stands for all that begin with it."""

MEMORY_FILE_SYSTEMS = frozenset({"tmpfs", "ramfs"})


def chosen(names: list[str]) -> tuple[list[str], list[str], list[str]]:
    """The workloads, engines and large workloads that these names stand for; without names, all.

    Raises SystemExit on a name that stands for none.
    """
    for name in names:
        if not any(each.startswith(name) for each in NAMES):
            raise SystemExit(f"bench: nothing durable is named {name!r}; there are {', '.join(NAMES)}")
    workloads = [each for each in measure.WORKLOADS if any(each.startswith(name) for name in names)]
    engines = [each for each in measure.COMMANDS if any(each.startswith(name) for name in names)]
    large = [each for each in LARGE if any(each.startswith(name) for name in names)]
    if not names:
        return list(measure.WORKLOADS), list(measure.COMMANDS), list(LARGE)
    if workloads or engines:
        return workloads or list(measure.WORKLOADS), engines or list(measure.COMMANDS), large
    return [], [], large


def measured(
    names: list[str],
    effort: measure.Effort,
    *,
    quick: bool,
    commit: str,
    computer: Callable[[], Machine],
) -> DurableRun:
    """One run. `computer` describes the machine when the run is over."""
    workloads, engines, large = chosen(names)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(dir=disk(), prefix="bench-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        kind = file_system(folder)
        wanted = {server for key in engines if (server := measure.COMMANDS[key].server) is not None}
        with servers.started(folder, wanted) as running_servers:
            running, left_out = measure.started(engines, running_servers, folder)
            try:
                figures: dict[str, dict[str, Figure]] = {}
                for workload in workloads:
                    tell(f"bench: durable {workload} ...")
                    figures[workload] = measure.driven(workload, running, effort)
            finally:
                for process in running.values():
                    process.close()
        recovery: dict[str, Recovery] = {}
        scale: list[Scale] = []
        for each in large:
            tell(f"bench: durable {each} ...")
            found = _large(each, folder, effort, left_out)
            if found is None:
                continue
            if each == "scale":
                scale = msgspec.convert(found, list[Scale])
            else:
                recovery[each.removeprefix("recovery-")] = msgspec.convert(found, Recovery)
    tell(f"bench: the durable part took {time.monotonic() - began:.0f} s")
    return DurableRun(
        date=dt.datetime.now(dt.UTC).date().isoformat(),
        quick=quick,
        partial=bool(names),
        rounds=effort.rounds,
        python=platform.python_version(),
        commit=commit,
        file_system=kind,
        servers=running_servers.versions,
        machine=computer(),
        lines={key: process.line for key, process in running.items()},
        left_out=left_out,
        figures=figures,
        recovery=recovery,
        scale=scale,
    )


def _large(what: str, folder: Path, effort: measure.Effort, left_out: dict[str, str]) -> Any:
    """What a large workload found, in a process of its own; None when it failed, which is told."""
    count = effort.steps if what == "scale" else effort.entries
    numbers = [count, effort.rounds, *(effort.entities if what == "scale" else ())]
    command = [sys.executable, "-m", "bench.durable.large", what, str(folder), *map(str, numbers)]
    try:
        done = subprocess.run(
            command,
            env=environment(),
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=LARGE_SECONDS_MAX,
            check=False,
        )
    except subprocess.TimeoutExpired:
        left_out[what] = f"it took more than {LARGE_SECONDS_MAX} s"
        tell(f"FAILED: {what}: {left_out[what]}")
        return None
    if done.returncode != 0:
        last_words = (done.stderr.strip().splitlines() or ["it ended without a word"])[-1]
        left_out[what] = measure.without_folders(last_words)[:200]
        tell(f"FAILED: {what}: {left_out[what]}")
        return None
    return json.loads(done.stdout)


def disk() -> Path:
    """Where stores are made: the folder for temporary files, unless that is memory; then beside the code."""
    place = Path(tempfile.gettempdir())
    return ROOT if file_system(place) in MEMORY_FILE_SYSTEMS else place


def file_system(path: Path, mounts: str = "/proc/self/mounts") -> str:
    """The kind of file system that a path lies on; `unknown` where the system does not tell."""
    best, found = -1, "unknown"
    try:
        lines = Path(mounts).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return found
    for line in lines:
        fields = line.split(" ")
        if len(fields) >= 3 and path.resolve().is_relative_to(fields[1]) and len(fields[1]) >= best:
            best, found = len(fields[1]), fields[2]
    return found

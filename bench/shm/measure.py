"""Measure shared memory: every line is a process of its own, asked round after round in turn.

Rule 1: in each round every line of a workload is asked once: a slow spell of the machine hits all of them.
Rule 2: only figures of one run are compared, as ratios within a round.
Rule 3: a line that is missing, fails or gives a wrong result is reported, and ends nothing.
Rule 4: what is over in microseconds is asked for in many short rounds: a slow spell then spoils a few of many ratios,
where it would spoil one of five. No line does less for it.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bench.durable.measure import without_folders
from bench.measure import PeerUnavailableError, Process, tell
from bench.shm.results import Figure

WORKLOADS = (
    "pair",
    "with",
    "lanes-64-1",
    "lanes-64-2",
    "lanes-1024-1",
    "lanes-1024-2",
    "wake",
    "callback",
    "pool-1ms",
    "pool-10us",
    "operations",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A line: its module and way, and how much it does in a round, by the beginning of the workload's name.

    Where rounds are shorter, that much is done in as many of them as make up one.
    """

    module: str
    way: str
    counts: Mapping[str, int]

    def count(self, workload: str) -> int:
        """How much of a workload is one round."""
        found = self.counts.get(workload)
        return self.counts[workload.partition("-")[0]] if found is None else found


SHORTER = {"wake": 16}
"""Rounds of these workloads are so many times as many, and as short.

Neighbours of a virtual machine slow it down for tenths of a second at a time, which is the length of such a round.
"""

_POOL = {"pool-1ms": 600, "pool-10us": 6_000}

COMMANDS: dict[str, Command] = {
    "c-gate": Command(module="c_loop", way="gate", counts={"pair": 20_000_000}),
    "c-lifecycle": Command(module="c_loop", way="life", counts={"pair": 20_000_000}),
    "interlock-gate-bare": Command(module="doors", way="gate-bare", counts={"pair": 4_000_000}),
    "interlock-lifecycle-bare": Command(module="doors", way="life-bare", counts={"pair": 4_000_000}),
    "interlock-gate": Command(module="doors", way="gate-permit", counts={"pair": 3_000_000, "with": 1_000_000}),
    "interlock-lifecycle": Command(module="doors", way="life-permit", counts={"pair": 3_000_000, "with": 1_000_000}),
    "atomicshm": Command(module="atomicshm_cells", way="swap", counts={"pair": 4_000_000}),
    "atomicshm-add": Command(module="atomicshm_cells", way="add", counts={"pair": 4_000_000}),
    "lock-gate": Command(module="lock_gate", way="lock", counts={"with": 300_000}),
    "interlock-lanes": Command(module="queues", way="lanes", counts={"lanes": 2_000_000}),
    "pipe": Command(module="queues", way="pipe", counts={"lanes": 400_000}),
    "faster-fifo": Command(module="faster_fifo_queue", way="fifo", counts={"lanes": 100_000}),
    "queue": Command(module="queues", way="queue", counts={"lanes": 40_000}),
    "interlock-inbox": Command(module="wakes", way="inbox", counts={"wake": 2_000}),
    "threadsafe": Command(module="wakes", way="threadsafe", counts={"wake": 2_000}),
    "threadsafe-task": Command(module="wakes", way="threadsafe-task", counts={"wake": 2_000}),
    "executor-queue": Command(module="wakes", way="executor", counts={"wake": 2_000}),
    "interlock-callback": Command(module="callbacks", way="inbox", counts={"callback": 3_000_000}),
    "interlock-pool": Command(module="pools", way="tasks", counts=_POOL),
    "executor-pool": Command(module="pools", way="executor", counts=_POOL),
    "interlock-native": Command(module="fallbacks", way="native", counts={"operations": 1_000_000}),
    "interlock-flock": Command(module="fallbacks", way="flock", counts={"operations": 50_000}),
    "raw-flock": Command(module="fallbacks", way="raw-flock", counts={"operations": 150_000}),
}
"""The lines, in the order of the tables."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How much work a run puts into each figure."""

    rounds: int
    share: float
    """Of the counts of a whole run."""

    def rounds_of(self, workload: str) -> int:
        """How many rounds a workload gets."""
        return self.rounds * SHORTER.get(workload, 1)

    def count(self, key: str, workload: str) -> int:
        """How much of a workload a line does in a round."""
        return max(10, int(self.share * COMMANDS[key].count(workload)) // SHORTER.get(workload, 1))


FULL = Effort(rounds=5, share=1.0)
QUICK = Effort(rounds=1, share=0.01)


def started(keys: list[str]) -> tuple[dict[str, Process], dict[str, str]]:
    """The lines that could be started, and why the others could not."""
    running: dict[str, Process] = {}
    left_out: dict[str, str] = {}
    for key in keys:
        command = COMMANDS[key]
        module = f"bench.shm.lines.{command.module}"
        try:
            running[key] = Process(key, [sys.executable, "-m", "bench.shm.worker", module, command.way])
        except PeerUnavailableError as error:
            left_out[key] = without_folders(str(error))
            tell(f"LEFT OUT: {key}: {left_out[key]}")
    return running, left_out


def driven(workload: str, running: Mapping[str, Process], effort: Effort) -> dict[str, Figure]:
    """A workload by all lines that can do it, in turn. The first round is not kept: it warms caches and memory."""
    figures = {
        key: Figure(count=effort.count(key, workload))
        for key, process in running.items()
        if workload in process.line.workloads
    }
    for number in range(effort.rounds_of(workload) + 1):
        for key, figure in figures.items():
            if figure.error is None:
                warming = number == 0
                count = max(10, figure.count // 4) if warming else figure.count
                _add(figure, running[key].ask(workload, count), key, warming=warming)
    return figures


def _add(figure: Figure, answer: dict[str, Any], key: str, *, warming: bool) -> None:
    error = answer.pop("error", None)
    if error is not None:
        tell(f"FAILED: {key}: {error}")
        figure.error = without_folders(str(error))
        figure.samples, figure.beside = [], {}
    elif not warming:
        figure.samples.append(answer.pop("value"))
        for name, value in answer.items():
            figure.beside.setdefault(name, []).append(value)

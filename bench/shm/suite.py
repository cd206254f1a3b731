"""The shared-memory suite: permits, queues, wake-ups and pools between processes of one machine.

Rule 1: goals are ratios between lines of one run, round by round, wherever possible. Pools are not judged.
Rule 2: a workload that takes microseconds has many short rounds, so that a slow moment of the machine affects few of
them. No line does less because of this.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from bench.measure import Measurement, report, run_rounds
from bench.results import Run
from bench.suite import Found, Goal, Suite, Workload, count, median, ratio, spread
from interlock.shm.queue.inbox import DRAIN_US_MAX

TITLES = {
    "pair": ("pair: enter and exit", "CPU ns per pair"),
    "with": ("with: a permit by `with`", "CPU ns per block"),
    "rings-64-1": ("rings-64-1: messages of 64 bytes, one producer, one consumer", "thousand messages/s"),
    "rings-64-2": ("rings-64-2: messages of 64 bytes, two producers, one consumer", "thousand messages/s"),
    "rings-1024-1": ("rings-1024-1: messages of 1 KiB, one producer, one consumer", "thousand messages/s"),
    "rings-1024-2": ("rings-1024-2: messages of 1 KiB, two producers, one consumer", "thousand messages/s"),
    "wake": ("wake: into a sleeping event loop, a message per millisecond", "p50 us"),
    "callback": ("callback: the longest callback of an event loop that two producers saturate", "max CPU us"),
    "pool-1ms": ("pool-1ms: tasks of a millisecond", "tasks/s"),
    "pool-10us": ("pool-10us: tasks of ten microseconds", "tasks/s"),
    "operations": ("operations: a load, an addition or a swap in each mode", "CPU us per operation"),
}
"""What each workload is, and the unit of its figures."""

WORKLOADS = tuple(TITLES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A line: its module and variant, and the size of its rounds, by the first part of the workload's name."""

    module: str
    way: str
    counts: Mapping[str, int]

    def count(self, workload: str) -> int:
        """Return the size of a round of a workload."""
        found = self.counts.get(workload)
        return self.counts[workload.partition("-")[0]] if found is None else found


SHORTER = {"wake": 16}
"""These workloads have so many times as many rounds, each so many times shorter.

Other virtual machines of the host slow this one down for tenths of a second, which is the length of a whole round.
"""

_POOL = {"pool-1ms": 600, "pool-10us": 6_000}

COMMANDS: dict[str, Command] = {
    "c-gate": Command(module="c_loop", way="gate", counts={"pair": 20_000_000}),
    "c-lifecycle": Command(module="c_loop", way="life", counts={"pair": 20_000_000}),
    "interlock-gate-unchecked": Command(module="gates", way="gate-unchecked", counts={"pair": 4_000_000}),
    "interlock-lifecycle-unchecked": Command(module="gates", way="lifecycle-unchecked", counts={"pair": 4_000_000}),
    "interlock-gate": Command(module="gates", way="gate-permit", counts={"pair": 3_000_000, "with": 1_000_000}),
    "interlock-lifecycle": Command(
        module="gates", way="lifecycle-permit", counts={"pair": 3_000_000, "with": 1_000_000}
    ),
    "atomicshm": Command(module="atomicshm_cells", way="swap", counts={"pair": 4_000_000}),
    "atomicshm-add": Command(module="atomicshm_cells", way="add", counts={"pair": 4_000_000}),
    "lock-gate": Command(module="lock_gate", way="lock", counts={"with": 300_000}),
    "interlock-rings": Command(module="queues", way="rings", counts={"rings": 2_000_000}),
    "pipe": Command(module="queues", way="pipe", counts={"rings": 400_000}),
    "faster-fifo": Command(module="faster_fifo_queue", way="fifo", counts={"rings": 100_000}),
    "queue": Command(module="queues", way="queue", counts={"rings": 40_000}),
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
    """How much work a run does for each figure; `share` is the part of the sizes of a whole run."""

    rounds: int
    share: float


FULL = Effort(rounds=5, share=1.0)
QUICK = Effort(rounds=1, share=0.01)


def run(measurement: Measurement[Effort]) -> None:
    """Measure the chosen workloads and lines."""
    effort = measurement.effort
    keys = measurement.chosen(COMMANDS) or list(COMMANDS)
    with measurement.processes({key: partial(command, COMMANDS[key]) for key in keys}) as running:
        for workload in measurement.chosen(WORKLOADS) or list(WORKLOADS):
            report(f"bench: shared memory, {workload} ...")
            asks = {
                key: partial(each.ask, workload) for key, each in running.items() if workload in each.line.workloads
            }
            shorter = SHORTER.get(workload, 1)
            counts = {key: max(10, int(effort.share * COMMANDS[key].count(workload)) // shorter) for key in asks}
            measurement.figures[workload] = run_rounds(asks, counts, effort.rounds * shorter)


def command(line: Command) -> list[str]:
    """Return the command of a line."""
    return [sys.executable, "-m", "bench.shm.worker", f"bench.shm.lines.{line.module}", line.way]


# Goals

RINGS = ("rings-64-1", "rings-64-2", "rings-1024-1", "rings-1024-2")


def _times(workload: str, key: str, to: str, unit: str = "ns", form: str = ",.1f") -> Callable[[Run], Found]:
    return ratio(workload, key, to, "value", form=form, unit=unit)


def _rings(key: str) -> Callable[[Run], Found]:
    """Find the ratio in the workload in which Interlock is least ahead."""

    def find(run: Run) -> Found:
        ratios = []
        for workload in RINGS:
            found = run.ratio(workload, "interlock-rings", key, "value")
            if found is None:
                return Found(None, run.missing(workload, "interlock-rings", key))
            ratios.append((found, workload))
        worst, where = min(ratios)
        return Found(worst, f"{worst:.1f}x on {where} (best {max(ratios)[0]:.1f}x)")

    return find


def _callback(run: Run) -> Found:
    figure = run.figure("callback", "interlock-callback", "value")
    if figure is None:
        return Found(None, run.missing("callback", "interlock-callback"))
    found, worst = figure.median("value") / DRAIN_US_MAX, max(figure.samples["value"]) / DRAIN_US_MAX
    return Found(found, f"{found:.2f}x of {DRAIN_US_MAX} us (in the worst round {worst:.2f}x)")


GOALS = (
    Goal(
        "enter and exit, lifecycle, to the C loop",
        "<= 5x",
        _times("pair", "interlock-lifecycle-unchecked", "c-lifecycle"),
    ),
    Goal("enter and exit, gate, to the C loop", "<= 5x", _times("pair", "interlock-gate-unchecked", "c-gate")),
    Goal(
        "enter and exit, lifecycle, to two operations of atomicshm",
        "<= 1.1x",
        _times("pair", "interlock-lifecycle-unchecked", "atomicshm"),
    ),
    Goal(
        "enter and exit, gate, to two operations of atomicshm",
        "<= 1.1x",
        _times("pair", "interlock-gate-unchecked", "atomicshm"),
    ),
    Goal(
        "`with` permit, lifecycle, to a gate with threading.Lock",
        "<= 0.35x",
        _times("with", "interlock-lifecycle", "lock-gate"),
    ),
    Goal(
        "`with` permit, gate, to a gate with threading.Lock", "<= 0.35x", _times("with", "interlock-gate", "lock-gate")
    ),
    Goal(
        "process to event loop, p50, to call_soon_threadsafe",
        "<= 1.2x",
        _times("wake", "interlock-inbox", "threadsafe", "us"),
    ),
    Goal(
        "the same, to call_soon_threadsafe and a waiting task",
        "<= 1x",
        _times("wake", "interlock-inbox", "threadsafe-task", "us"),
    ),
    Goal("the same, to Queue.get in an executor", "<= 0.3x", _times("wake", "interlock-inbox", "executor-queue", "us")),
    Goal(
        "an operation of the fallback flock, to its two system calls",
        "<= 2.5x",
        _times("operations", "interlock-flock", "raw-flock", "us", ",.2f"),
    ),
    Goal("rings to multiprocessing.Queue, on the worst of sizes and producers", ">= 15x", _rings("queue")),
    Goal("rings to faster-fifo, get_many, on the worst of sizes and producers", ">= 5x", _rings("faster-fifo")),
    Goal("rings to os.pipe, raw, on the worst of sizes and producers", ">= 2x", _rings("pipe")),
    Goal("CPU of the longest callback under saturation, to its budget", "<= 2x", _callback),
)

METHOD = """\
- Ratios are taken round by round. wake has more and shorter rounds, so that a slow moment of the machine affects few.
- pair, with and operations are CPU time of the process. The C loop is the package's own `core.h`, compiled for the run.
- "Unchecked" is `enter_unchecked()` and `exit_unchecked()`. "Permit" creates a permit, which is valid for one exit.
- atomicshm does a swap and a subtraction on a cell, its fastest form, without a check of phase or overflow.
  Two additions are cheaper, but a gate cannot be built from them.
- "a gate with threading.Lock" works for the threads of one process; Interlock's works between processes too.
- rings are wall time, from the start of the producers to the last message received; every message is a `bytes` object
  in the consumer. All queues have room for 1 MiB. The pipe is raw: one size, no frames. faster-fifo carries bytes
  without pickling, received with `get_many`.
- wake is wall time from send to receipt of eight bytes. `call_soon_threadsafe` is called by a thread of the same
  process, and its callback is the receipt, without a task; "to a task" adds an `asyncio.Queue` from which a task
  receives, as a task receives from Interlock's inbox. The other lines send from another process.
- "two calls of flock" are the system calls of one operation of that fallback, made from Python.
- callback is CPU time of each callback that the event loop runs, the longest of a round. The consumer only counts.
- Pools have as many workers as the machine has processors, and 64 callers that each await their task. Their workers are
  started before the measurement.
- Two producers and a consumer share the processors: figures on few processors are lower."""

SHARED_MEMORY = Suite(
    name="shm",
    title="Shared memory",
    introduction="Permits, queues and pools between processes of one machine, called from Python as users call them.",
    method=METHOD,
    run=run,
    efforts=(FULL, QUICK),
    choices=(*WORKLOADS, *COMMANDS),
    workloads=tuple(
        Workload(
            name=name,
            title=title,
            columns=(
                median(unit, "value"),
                spread("value"),
                median("p99 us", "p99"),
                median("thousand messages/s", "messages_per_ms"),
                count(),
            ),
        )
        for name, (title, unit) in TITLES.items()
    ),
    goals=GOALS,
)

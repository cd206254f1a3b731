"""A run of the shared memory as tables: printed by `make bench`, and a part of the page `docs/benchmarks.md`."""

from __future__ import annotations

from statistics import median

from bench.report import Table, aligned, goals_table, machine_facts, markdown, printed, rounds_told
from bench.shm.goals import verdicts
from bench.shm.results import Figure, SharedRun

TITLES = {
    "pair": ("pair: enter and exit", "CPU ns per pair"),
    "with": ("with: a permit by `with`", "CPU ns per block"),
    "lanes-64-1": ("lanes-64-1: messages of 64 bytes, one producer, one consumer", "thousand messages/s"),
    "lanes-64-2": ("lanes-64-2: messages of 64 bytes, two producers, one consumer", "thousand messages/s"),
    "lanes-1024-1": ("lanes-1024-1: messages of 1 KiB, one producer, one consumer", "thousand messages/s"),
    "lanes-1024-2": ("lanes-1024-2: messages of 1 KiB, two producers, one consumer", "thousand messages/s"),
    "wake": ("wake: into a sleeping event loop, a message a millisecond", "p50 us"),
    "callback": ("callback: the longest callback of an event loop that two producers saturate", "max CPU us"),
    "pool-1ms": ("pool-1ms: tasks of a millisecond", "tasks/s"),
    "pool-10us": ("pool-10us: tasks of ten microseconds", "tasks/s"),
    "operations": ("operations: a load, an addition or a swap in each mode", "CPU us per operation"),
}
"""What each workload is, and the unit of its figures."""

BESIDE = {"p99": "p99 us", "messages_per_ms": "thousand messages/s"}


def workload_table(run: SharedRun, workload: str) -> Table:
    """Every line: the median with its spread, what is shown beside it, and how much was done in a round."""
    figures = run.figures[workload]
    beside = [name for name in BESIDE if any(name in each.beside for each in figures.values())]
    rows: Table = [("", TITLES[workload][1], "spread", *[BESIDE[name] for name in beside], "in a round")]
    for key, figure in figures.items():
        line = run.lines[key]
        rows.append((f"{line.name} {line.version}".strip(), *_cells(figure, beside)))
    return rows


def _cells(figure: Figure, beside: list[str]) -> tuple[str, ...]:
    if not figure.samples:
        return f"FAILED: {figure.error}", "", *["" for _ in beside], ""
    low, high = min(figure.samples), max(figure.samples)
    further = [_number(median(figure.beside[name])) if name in figure.beside else "" for name in beside]
    return _number(figure.median), f"{_number(low)}..{_number(high)}", *further, f"{figure.count:,}"


def _number(value: float) -> str:
    """Three digits that tell something."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def facts(run: SharedRun) -> list[str]:
    """Where, when and with what: sentences."""
    found = machine_facts(run.date, run.commit, run.python, run.machine)
    found.append(f"{rounds_told(run.rounds, run.figures)}.")
    found += [f"Left out: {key} ({reason})." for key, reason in run.left_out.items()]
    return found


def text(run: SharedRun) -> str:
    """The run as it is printed."""
    parts = ["\n".join(line.replace("**", "") for line in facts(run))]
    parts += [f"{TITLES[each][0]}\n{aligned(workload_table(run, each))}" for each in TITLES if each in run.figures]
    return printed(parts, verdicts(run))


def section(run: SharedRun) -> list[str]:
    """The run as parts of the page, below a heading of their own."""
    parts = ["## Shared memory", INTRODUCTION, "\n".join(f"- {fact}" for fact in facts(run))]
    judged = verdicts(run)
    if judged:
        parts += ["### Goals of shared memory", markdown(goals_table(judged))]
    for workload in (each for each in TITLES if each in run.figures):
        parts += [f"### {TITLES[workload][0]}", markdown(workload_table(run, workload))]
    return [*parts, "### Method of shared memory", METHOD]


INTRODUCTION = """\
Permits, queues and pools between processes of one machine, called from Python as users call them."""

METHOD = """\
- Every line is a process of its own; in each round every line is asked once, and ratios are taken round by round.
  wake has more rounds, and shorter ones: a slow spell of the machine, which lasts about as long, spoils few of them.
- pair, with and operations are CPU time of the process. The C loop is the package's own `core.h`, compiled for the run.
- "Bare pair" is `bare()`: enter and exit without a permit. "Permit" makes one, which is good for one exit.
- atomicshm does a swap and a subtraction on a cell, its fastest form, without a check of phase or overflow.
  Two additions are cheaper, but no gate can be made of them.
- "a gate with threading.Lock" is for the threads of one process; ours is for processes too.
- lanes are wall time, from letting the producers go to the last message taken, every message a `bytes` object in the
  consumer. All queues have room for 1 MiB. The pipe is raw: one size, no frames. faster-fifo carries bytes without
  pickling, taken by `get_many`.
- wake is wall time from send to receipt of eight bytes. `call_soon_threadsafe` is called by a thread of the loop's own
  process, and its bare callback is the receipt, which no task waits for; "to a task" is the same with an
  `asyncio.Queue` behind it, of which a task gets, as a task gets from ours. The other lines come from another process.
- "two calls of flock" is what the kernel takes of each operation of that fallback, made from Python.
- callback is CPU time of each callback that the event loop runs, the longest of a round. The consumer only counts.
- Pools have as many workers as the machine has processors, and 64 callers that each await their task. Their workers are
  started before the clock.
- With more busy processes than processors, two producers and a consumer share: figures on few processors are lower.

Samples of a run are in `bench/results/<date>-shm.json`."""

"""The goals of shared memory, judged on one run.

Rule 1: goals are ratios between lines of one run, round by round, wherever they can be.
Rule 2: pools are shown and not judged.
Rule 3: what was not measured is not a pass.
"""

from __future__ import annotations

from bench.goals import Verdict
from bench.shm.results import SharedRun
from interlock.shm.queue.inbox import DRAIN_US_MAX

AT_MOST: tuple[tuple[str, str, str, str, float], ...] = (
    ("enter and exit, lifecycle, to the C loop", "pair", "interlock-lifecycle-bare", "c-lifecycle", 5.0),
    ("enter and exit, gate, to the C loop", "pair", "interlock-gate-bare", "c-gate", 5.0),
    ("enter and exit, lifecycle, to two operations of atomicshm", "pair", "interlock-lifecycle-bare", "atomicshm", 1.1),
    ("enter and exit, gate, to two operations of atomicshm", "pair", "interlock-gate-bare", "atomicshm", 1.1),
    ("`with` permit, lifecycle, to a gate with threading.Lock", "with", "interlock-lifecycle", "lock-gate", 0.35),
    ("`with` permit, gate, to a gate with threading.Lock", "with", "interlock-gate", "lock-gate", 0.35),
    ("process to event loop, p50, to call_soon_threadsafe", "wake", "interlock-inbox", "threadsafe", 1.2),
    ("the same, to call_soon_threadsafe with a task behind it", "wake", "interlock-inbox", "threadsafe-task", 1.0),
    ("the same, to Queue.get in an executor", "wake", "interlock-inbox", "executor-queue", 0.3),
    ("an operation of the fallback flock, to its two system calls", "operations", "interlock-flock", "raw-flock", 2.5),
)
"""Goal, workload, whose time, to whose, at most."""

LANES = ("lanes-64-1", "lanes-64-2", "lanes-1024-1", "lanes-1024-2")
LANES_AT_LEAST = {"queue": 15.0, "faster-fifo": 5.0, "pipe": 2.0}

CALLBACK_RATIO_MAX = 2.0
"""Of the budget."""


def verdicts(run: SharedRun) -> list[Verdict]:
    """Every goal, judged. A quick run has none: its sizes say nothing."""
    if run.quick:
        return []
    return [
        *[_at_most(run, *each) for each in AT_MOST],
        *[_lanes(run, key, bar) for key, bar in LANES_AT_LEAST.items()],
        _callback(run),
    ]


def _at_most(run: SharedRun, goal: str, workload: str, key: str, to: str, bar: float) -> Verdict:
    wanted = f"<= {bar:g}x"
    found = run.ratio(workload, key, to)
    ours, theirs = run.figure(workload, key), run.figure(workload, to)
    if found is None or ours is None or theirs is None:
        return Verdict(goal=goal, bar=wanted, figure=_missing(run, workload, key, to), met=None)
    unit = "us" if workload in {"wake", "operations"} else "ns"
    digits = 2 if workload == "operations" else 1
    figure = f"{found:.2f}x ({ours.median:,.{digits}f} to {theirs.median:,.{digits}f} {unit})"
    return Verdict(goal=goal, bar=wanted, figure=figure, met=found <= bar)


def _lanes(run: SharedRun, key: str, bar: float) -> Verdict:
    """Judged where we are least ahead."""
    name = run.lines[key].name if key in run.lines else key
    goal, wanted = f"lanes to {name}, on the worst of sizes and producers", f">= {bar:g}x"
    ratios = []
    for workload in LANES:
        found = run.ratio(workload, "interlock-lanes", key)
        if found is None:
            figure = _missing(run, workload, "interlock-lanes", key)
            return Verdict(goal=goal, bar=wanted, figure=figure, met=None)
        ratios.append((found, workload))
    worst, where = min(ratios)
    figure = f"{worst:.1f}x on {where} (best {max(ratios)[0]:.1f}x)"
    return Verdict(goal=goal, bar=wanted, figure=figure, met=worst >= bar)


def _callback(run: SharedRun) -> Verdict:
    goal, wanted = "CPU of the longest callback under saturation, to its budget", f"<= {CALLBACK_RATIO_MAX:g}x"
    figure = run.figure("callback", "interlock-callback")
    if figure is None:
        return Verdict(goal=goal, bar=wanted, figure=_missing(run, "callback", "interlock-callback"), met=None)
    found, worst = figure.median / DRAIN_US_MAX, max(figure.samples) / DRAIN_US_MAX
    told = f"{found:.2f}x of {DRAIN_US_MAX} us (in the worst round {worst:.2f}x)"
    return Verdict(goal=goal, bar=wanted, figure=told, met=found <= CALLBACK_RATIO_MAX)


def _missing(run: SharedRun, workload: str, *keys: str) -> str:
    """Why a line has no figure: left out, or failed."""
    for key in keys:
        figure = run.figures.get(workload, {}).get(key)
        reason = run.left_out.get(key) or (figure.error if figure is not None else None)
        if reason is not None:
            return reason
    return ""

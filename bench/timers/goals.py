"""The goals of timers, judged on one run.

Rule 1: lateness is judged where a million timers are pending; the smaller sizes stand beside it for comparison.
Rule 2: what was not measured is not a pass.
"""

from __future__ import annotations

from bench.goals import Verdict
from bench.timers.results import Firing, TimersRun

TIMERS_MIN = 1_000_000
ENTITIES_MIN = 100_000
LATE_P50_MS_MAX = 50.0
LATE_P99_MS_MAX = 500.0
"""Half a second: people set timers in minutes, and Temporal's own development server was 30 ms late with one."""
RESIDENT_MB_MAX = 256.0
"""Pending timers rest in the file: a process holds the snapshots that it has lately used, and no timer."""


def verdicts(run: TimersRun) -> list[Verdict]:
    """Every goal, judged. A quick run has none: its sizes say nothing."""
    if run.quick:
        return []
    found = next((each for each in run.firings if _is_large(each)), None)
    late_ms: dict[str, float] = {} if found is None else found.late_ms
    resident_mb = None if found is None else found.resident_after_mb
    return [
        _judged("lateness of a firing, p50", LATE_P50_MS_MAX, "ms", late_ms.get("0.5"), run),
        _judged("lateness of a firing, p99", LATE_P99_MS_MAX, "ms", late_ms.get("0.99"), run),
        _judged("memory of the process that fires", RESIDENT_MB_MAX, "MB", resident_mb, run),
    ]


def _is_large(firing: Firing) -> bool:
    return firing.timers >= TIMERS_MIN and firing.entities >= ENTITIES_MIN


def _judged(goal: str, bar: float, unit: str, figure: float | None, run: TimersRun) -> Verdict:
    name, wanted = f"{TIMERS_MIN:,} timers pending: {goal}", f"<= {bar:g} {unit}"
    if figure is None:
        return Verdict(goal=name, bar=wanted, figure="; ".join(run.left_out.values()), met=None)
    return Verdict(goal=name, bar=wanted, figure=f"{figure:,.1f} {unit}", met=figure <= bar)

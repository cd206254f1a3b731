"""The goals of durable speed, judged on one run.

Rule 1: goals are ratios between engines of one run, round by round, wherever they can be.
Rule 2: Temporal and Restate are shown and never judged: a networked server is not like for like.
Rule 3: what was not measured is not a pass.
"""

from __future__ import annotations

import statistics

from bench.durable.results import DurableRun
from bench.goals import Verdict

RATIOS: tuple[tuple[str, str, str, str, float], ...] = (
    ("files, one caller, to raw write + fdatasync", "seq1", "interlock-file", "raw-file", 0.75),
    ("SQLite, one caller, to a raw insert per transaction", "seq1", "interlock-sqlite", "raw-sqlite", 0.5),
    ("SQLite, 64 callers, to a commit per step", "fleet", "interlock-sqlite", "interlock-sqlite-each", 4.0),
    ("SQLite, 64 callers, to DBOS on SQLite", "fleet", "interlock-sqlite", "dbos-sqlite", 100.0),
    ("PostgreSQL, 64 callers, to a statement per step", "fleet", "interlock-postgres", "interlock-postgres-each", 2.5),
)
"""Goal, workload, whose rate, to whose, at least."""

JOURNAL_MS_MAX = 2_000.0
SNAPSHOT_MS_MAX = 50.0
ENTRIES_MIN = 100_000
FLAT_MAX = 1.25
"""A step among the most entities may cost this many times one among the fewest."""
ENTITIES_MIN = 1_000_000


def verdicts(run: DurableRun) -> list[Verdict]:
    """Every goal, judged. A quick run has none: its sizes say nothing."""
    if run.quick:
        return []
    return [
        *[_ratio(run, *each) for each in RATIOS],
        *[each for store in ("file", "sqlite") for each in _recovery(run, store)],
        _flat(run),
    ]


def _ratio(run: DurableRun, goal: str, workload: str, key: str, to: str, bar: float) -> Verdict:
    wanted = f">= {bar:g}x"
    found = run.ratio(workload, key, to)
    if found is None:
        missing = run.left_out.get(key) or run.left_out.get(to) or ""
        return Verdict(goal=goal, bar=wanted, figure=missing, met=None)
    rates = f" ({run.rate(workload, key):,.0f} to {run.rate(workload, to):,.0f} steps/s)"
    return Verdict(goal=goal, bar=wanted, figure=f"{found:.2f}x{rates}", met=found >= bar)


def _recovery(run: DurableRun, store: str) -> list[Verdict]:
    goals = (
        (f"{store}: {ENTRIES_MIN:,} entries recovered from the journal", JOURNAL_MS_MAX),
        (f"{store}: the same from the snapshot", SNAPSHOT_MS_MAX),
    )
    found = run.recovery.get(store)
    if found is None:
        return [Verdict(goal=goal, bar=f"< {bar:g} ms", figure="", met=None) for goal, bar in goals]
    judged = []
    for (goal, bar), samples in zip(goals, (found.journal_ms, found.snapshot_ms), strict=True):
        took = statistics.median(samples)
        met = took < bar and found.entries >= ENTRIES_MIN
        judged.append(Verdict(goal=goal, bar=f"< {bar:g} ms", figure=f"{took:,.1f} ms", met=met))
    return judged


def _flat(run: DurableRun) -> Verdict:
    """Round by round: the stores are asked in turn."""
    goal = f"SQLite: CPU of a step of the newest entities, {ENTITIES_MIN:,} in the file to 1,000"
    bar = f"<= {FLAT_MAX:g}x"
    if len(run.scale) < 2 or run.scale[-1].entities < ENTITIES_MIN:
        return Verdict(goal=goal, bar=bar, figure="", met=None)
    few, many = run.scale[0], run.scale[-1]
    recent, anywhere = (
        statistics.median(after / before for before, after in zip(small, large, strict=True))
        for small, large in ((few.recent_us, many.recent_us), (few.anywhere_us, many.anywhere_us))
    )
    figure = f"{recent:.2f}x (entities picked anywhere {anywhere:.2f}x)"
    return Verdict(goal=goal, bar=bar, figure=figure, met=recent <= FLAT_MAX)

"""The goal of the console's pages, judged on one run.

Rule 1: it is judged where ten million entities are; the smaller sizes stand beside it for comparison.
Rule 2: what was not measured is not a pass.
"""

from __future__ import annotations

from bench.fleet.results import PagesRun
from bench.goals import Verdict

ENTITIES_MIN = 10_000_000
PAGE_MS_MAX = 100.0


def verdicts(run: PagesRun) -> list[Verdict]:
    """The goal, judged. A quick run has none: its sizes say nothing."""
    if run.quick:
        return []
    goal, bar = f"the slowest page among {ENTITIES_MIN:,} entities", f"<= {PAGE_MS_MAX:g} ms"
    fleet = next((each for each in run.fleets if each.entities >= ENTITIES_MIN), None)
    if fleet is None:
        return [Verdict(goal=goal, bar=bar, figure="; ".join(run.left_out.values()), met=None)]
    return [Verdict(goal=goal, bar=bar, figure=f"{fleet.most_ms:,.1f} ms", met=fleet.most_ms <= PAGE_MS_MAX)]

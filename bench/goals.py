"""The goals of in-process speed, judged on one run.

Rule 1: goals are ratios inside one run wherever they can be; absolute times are for the reader.
Rule 2: the inner step is judged (for W6 the fold), the public step is reported beside it.
Rule 3: what was not measured is not a pass.
"""

from __future__ import annotations

from dataclasses import dataclass

from bench.measure import FOLD_COUNT
from bench.results import Run, median

STEPPED = ("W1", "W2", "W3", "W4")
INNER = dict.fromkeys(STEPPED, "interlock-inner") | {"W6": "interlock-fold"}
"""The line that is judged, by workload."""

HAND_RATIO_MAX = {"W1": 2.0, "W2": 2.0, "W3": 2.5, "W4": 2.0, "W6": 2.0}
PEERS_WITH_HIERARCHY = ("transitions", "xstate-statemachine", "sismic", "python-statemachine")
PEER_RATIO_MIN = 20.0
XSTATE_RATIO_MIN = 5.0
PUBLIC_NS_MAX = 150.0
CREATE_NS_MAX = 3_000.0
CREATE_BYTES_MAX = 600.0
FOLD_GROWTH_MAX = 2**20
"""Flat: a million events kept would be 8 MB of references alone; an allocator's own pages stay far below this."""
IMPORT_MS_MAX = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One goal: its bar, the figure found, and whether it is met; None when it could not be judged."""

    goal: str
    bar: str
    figure: str
    met: bool | None

    @property
    def word(self) -> str:
        """The verdict as it is printed."""
        return "not measured" if self.met is None else "pass" if self.met else "MISS"


def verdicts(run: Run) -> list[Verdict]:
    """Every goal, judged. A quick run has none: its sizes say nothing."""
    if run.quick:
        return []
    return [
        *[_to_hand(run, workload, bar) for workload, bar in HAND_RATIO_MAX.items()],
        *[_public(run, workload) for workload in STEPPED],
        *[_to_peer(run, key, PEER_RATIO_MIN) for key in PEERS_WITH_HIERARCHY],
        _to_peer(run, "xstate-actor", XSTATE_RATIO_MIN),
        *_create(run),
        *_replay(run),
        _import(run),
    ]


def _to_hand(run: Run, workload: str, bar: float) -> Verdict:
    goal, wanted = f"{workload}: inner step to hand-written", f"<= {bar:g}x"
    hand, ours, public = (run.ns(workload, key) for key in ("hand-written", INNER[workload], "interlock-step"))
    if hand is None or ours is None:
        return Verdict(goal=goal, bar=wanted, figure="", met=None)
    beside = "" if public is None else f" (public step {public / hand:.2f}x)"
    return Verdict(goal=goal, bar=wanted, figure=f"{ours / hand:.2f}x{beside}", met=ours / hand <= bar)


def _public(run: Run, workload: str) -> Verdict:
    """The difference is taken repeat by repeat: the two are asked one after the other."""
    goal, wanted = f"{workload}: public step beyond the inner one", f"< {PUBLIC_NS_MAX:g} ns"
    figures = run.figures.get(workload, {})
    inner, public = figures.get("interlock-inner"), figures.get("interlock-step")
    if inner is None or public is None or not inner.samples or not public.samples:
        return Verdict(goal=goal, bar=wanted, figure="", met=None)
    more = median(after - before for before, after in zip(inner.samples, public.samples, strict=True))
    return Verdict(goal=goal, bar=wanted, figure=f"{more:.0f} ns", met=more < PUBLIC_NS_MAX)


def _to_peer(run: Run, key: str, bar: float) -> Verdict:
    """Judged on the workload where we are least ahead."""
    name = run.lines[key].name if key in run.lines else key
    goal, wanted = f"faster than {name}, on the worst of W1-W4 and W6", f">= {bar:g}x"
    ratios, public = [], []
    for workload, inner in INNER.items():
        theirs, ours, step = (run.ns(workload, each) for each in (key, inner, "interlock-step"))
        if theirs is None or ours is None or step is None:
            return Verdict(goal=goal, bar=wanted, figure=run.left_out.get(key, ""), met=None)
        ratios.append((theirs / ours, workload))
        public.append(theirs / step)
    worst, where = min(ratios)
    figure = f"{worst:.1f}x on {where} (public step {min(public):.1f}x)"
    return Verdict(goal=goal, bar=wanted, figure=figure, met=worst >= bar)


def _create(run: Run) -> list[Verdict]:
    goals = ("W5: create an entity", "W5: resident memory per entity")
    bars = (f"<= {CREATE_NS_MAX / 1e3:g} us", f"<= {CREATE_BYTES_MAX:g} bytes")
    figure = run.figures.get("W5", {}).get("interlock-step")
    if figure is None or not figure.samples:
        return [Verdict(goal=goal, bar=bar, figure="", met=None) for goal, bar in zip(goals, bars, strict=True)]
    written = run.figures["W5"].get("interlock-written")
    beside = f" ({written.bytes_each:.0f} once it has written)" if written is not None and written.bytes else ""
    each = figure.bytes_each
    return [
        Verdict(goal=goals[0], bar=bars[0], figure=f"{figure.ns / 1e3:.2f} us", met=figure.ns <= CREATE_NS_MAX),
        Verdict(goal=goals[1], bar=bars[1], figure=f"{each:.0f} bytes{beside}", met=each <= CREATE_BYTES_MAX),
    ]


def _replay(run: Run) -> list[Verdict]:
    figure = run.figures.get("W6", {}).get("interlock-fold")
    goal, bar = "W6: events folded in one go", f">= {FOLD_COUNT:,}"
    if figure is None or not figure.samples:
        folded = Verdict(goal=goal, bar=bar, figure="", met=None)
    else:
        told = f"{figure.count:,} in {figure.ns * figure.count / 1e9:.2f} s"
        folded = Verdict(goal=goal, bar=bar, figure=told, met=figure.count >= FOLD_COUNT)
    goal, bar = "W6: memory stays flat", f"< {FOLD_GROWTH_MAX / 2**20:g} MiB"
    if run.memory is None:
        return [folded, Verdict(goal=goal, bar=bar, figure="", met=None)]
    grown, risen, count = run.memory.resident, run.memory.peak, run.memory.count
    told = f"{grown / 1024:+.0f} KiB, peak {risen / 1024:+.0f} KiB over {count:,} events"
    return [folded, Verdict(goal=goal, bar=bar, figure=told, met=max(grown, risen) < FOLD_GROWTH_MAX)]


def _import(run: Run) -> Verdict:
    goal, bar = "`import interlock` beyond the interpreter", f"< {IMPORT_MS_MAX:g} ms CPU"
    samples = run.imports.get("import interlock")
    if not samples:
        return Verdict(goal=goal, bar=bar, figure="", met=None)
    first = run.imports.get("first chart loaded")
    beside = "" if not first else f" (with the first chart loaded {median(first):.0f} ms)"
    cost = median(samples)
    return Verdict(goal=goal, bar=bar, figure=f"{cost:.1f} ms{beside}", met=cost < IMPORT_MS_MAX)

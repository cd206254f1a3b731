"""A run as text: the tables that are printed, and the page `docs/benchmarks.md`. Both say the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from bench.goals import Verdict, verdicts
from bench.results import Figure, Machine, Run, median
from bench.workloads import WORKLOADS

TITLES = {
    "W1": "toggle: two states, no guard, no action",
    "W2": "order: ten states, a guard and an action on every transition",
    "W3": "nested: three levels, an entry and an exit action on every state",
    "W4": "regions: one event moves four parallel regions",
    "W5": "create: make and start an entity of W2's chart",
    "W6": "replay: fold the events of W2 over one entity",
}
BASE = "hand-written"

Table = list[tuple[str, ...]]
"""Rows of cells, the heading first."""


def goals_table(judged: list[Verdict]) -> Table:
    """The verdicts."""
    return [("goal", "bar", "found", "verdict"), *[(each.goal, each.bar, each.figure, each.word) for each in judged]]


def overview(run: Run) -> Table:
    """Median per event and ratio to hand-written, one line per implementation."""
    measured = [each for each in WORKLOADS if each in run.figures and each != "W5"]
    rows: Table = [("", *measured)]
    for key, line in run.lines.items():
        if any(key in run.figures[workload] for workload in measured):
            rows.append((f"{line.name} {line.version}", *[_cell(run, workload, key) for workload in measured]))
    return rows


def _cell(run: Run, workload: str, key: str) -> str:
    if workload not in run.lines[key].workloads:
        return "-"
    ns = run.ns(workload, key)
    return "FAILED" if ns is None else f"{ns:,.0f}{_ratio(run, workload, ns, ' ({})')}"


def _ratio(run: Run, workload: str, ns: float, form: str) -> str:
    base = run.ns(workload, BASE)
    if base is None:
        return ""
    ratio = ns / base
    return form.format(f"{ratio:,.0f}x" if ratio >= 100 else f"{ratio:.1f}x")


def workload_table(run: Run, workload: str) -> Table:
    """Everything about one workload: median, spread, ratio, and how much was done in a repeat."""
    creating = workload == "W5"
    rows: Table = [
        ("", "ns per entity" if creating else "ns per event", "spread", "to hand-written", "in a repeat")
        + (("bytes per entity",) if creating else ())
    ]
    for key, figure in run.figures[workload].items():
        rows.append((run.lines[key].name, *_cells(run, workload, figure), *(_bytes(figure) if creating else ())))
    return rows


def _cells(run: Run, workload: str, figure: Figure) -> tuple[str, ...]:
    if not figure.samples:
        return f"FAILED: {figure.error}", "", "", ""
    low, high = min(figure.samples), max(figure.samples)
    ratio = _ratio(run, workload, figure.ns, "{}")
    return f"{figure.ns:,.0f}", f"{low:,.0f}..{high:,.0f}", ratio, f"{figure.count:,}"


def _bytes(figure: Figure) -> tuple[str, ...]:
    return (f"{figure.bytes_each:,.0f}" if figure.bytes else "",)


def imports_table(run: Run) -> Table:
    """What imports cost."""
    rows: Table = [("CPU beyond the bare interpreter", "ms", "spread")]
    for name, samples in run.imports.items():
        rows.append((name, f"{median(samples):.1f}", f"{min(samples):.1f}..{max(samples):.1f}"))
    return rows


def facts(run: Run) -> list[str]:
    """Where, when and with what: sentences."""
    found = machine_facts(run.date, run.commit, run.python, run.machine)
    found.insert(2, f"Median of {run.repeats} repeats.")
    found += [f"Left out: {key} ({reason})." for key, reason in run.left_out.items()]
    return found


class _Sampled(Protocol):
    @property
    def samples(self) -> Sequence[object]:
        """One for each round."""


def rounds_told(rounds: int, figures: Mapping[str, Mapping[str, _Sampled]]) -> str:
    """How many rounds the medians are of, and which workloads had more."""
    counts = {
        workload: max((len(each.samples) for each in row.values()), default=0) for workload, row in figures.items()
    }
    others = "".join(f", of {workload} {count}" for workload, count in counts.items() if count > rounds)
    return f"Median of {rounds} rounds{others}"


def machine_facts(date: str, commit: str, python: str, machine: Machine) -> list[str]:
    """When and on what."""
    found = [
        f"{date}, commit {commit}, CPython {python}.",
        f"{machine.system} on {machine.architecture}, {machine.processors} processors, {machine.memory_gib:.0f} GiB.",
    ]
    if machine.was_busy:
        found.append(
            f"**The machine was busy** (load {machine.load_before:.1f} on {machine.processors} processors before it "
            "began): do not quote these figures."
        )
    return found


def text(run: Run) -> str:
    """The run as it is printed."""
    parts = ["\n".join(line.replace("**", "") for line in facts(run))]
    parts += [
        f"{workload} {TITLES[workload]}\n{aligned(workload_table(run, workload))}"
        for workload in WORKLOADS
        if workload in run.figures
    ]
    if run.imports:
        parts.append(aligned(imports_table(run)))
    return printed(parts, verdicts(run))


def printed(parts: list[str], judged: list[Verdict]) -> str:
    """Parts of a run as they are printed, its goals and their count behind them. A quick run has none."""
    if not judged:
        return "\n\n".join([*parts, "bench: a quick run; nothing was judged"]) + "\n"
    missed = sum(each.met is False for each in judged)
    unmeasured = sum(each.met is None for each in judged)
    count = f"bench: {len(judged) - missed - unmeasured} pass, {missed} MISS, {unmeasured} not measured"
    return "\n\n".join([*parts, aligned(goals_table(judged)), count]) + "\n"


def aligned(table: Table) -> str:
    """A table as text: columns side by side."""
    widths = [max(len(cell) for cell in column) for column in zip(*table, strict=True)]
    lines = []
    for row in table:
        first, *rest = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        lines.append("  ".join(["  " + first, *rest]).rstrip())
    return "\n".join(lines)


def page(run: Run, durable: Sequence[str] = ()) -> str:
    """The run as a page of the documentation, with the parts about durable steps, if there are any."""
    parts = [
        "# Benchmarks",
        "Written by `make bench`; do not edit.",
        _standing(run),
        "\n".join(f"- {fact}" for fact in facts(run)),
    ]
    judged = verdicts(run)
    if judged:
        parts += ["## Goals", markdown(goals_table(judged))]
    parts += [
        "## Overview",
        OVERVIEW,
        markdown(overview(run)),
    ]
    for workload in (each for each in WORKLOADS if each in run.figures):
        parts += [f"## {workload} {TITLES[workload]}", markdown(workload_table(run, workload))]
    if run.imports:
        parts += ["## Imports", markdown(imports_table(run))]
    parts += ["## Method", METHOD, *durable]
    return "\n\n".join(part for part in parts if part) + "\n"


def _standing(run: Run) -> str:
    if not run.quick:
        return ""
    return (
        "**This is a quick run**: tiny sizes, to see that the suite works.\n"
        "Its figures say nothing about speed, and no goal was judged on them.\n"
        "`make bench` on a quiet machine replaces this page."
    )


def markdown(table: Table) -> str:
    """A table as markdown."""
    heading, *rows = table
    lines = [heading, tuple("---" for _ in heading), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', '/') for cell in row)} |" for row in lines)


OVERVIEW = """\
Nanoseconds of CPU per event, the median; in brackets the ratio to hand-written code in the same run.
`-`: the implementation cannot express the workload, or the line is not about it."""

METHOD = """\
- All implementations run in one run, each in a process of its own, asked in turn: a slow spell of the machine hits all.
- Times are CPU time of that process; garbage is collected before every repeat; the first seconds are warm-up.
- Every repeat ends with a check of the configuration, of the context, and of the number of entry and exit actions.
- W5 has a fresh process for each repeat; its bytes are the growth of resident memory over the entities kept.
- W6 folds 1,000,000 events, W5 makes 100,000 entities; slow peers do fewer, as "in a repeat" tells.
- "Inner step" is the kernel's generated function over plain values, found by event and called as `fold()` does it: the
  goals stand on it. "Public step()" is `chart.step(snapshot, event)`, with the Step and Snapshot values it makes.
  "General path" is the step without the tier of generated functions.
- Interlock's guards and assigns are expressions of its own language, checked against the declared types of the fields;
  the peers' are functions of their host language. One line has Python functions in interlock too.
- An entity of interlock shares the defaults of its context until it writes; "started and stepped once" has its own.
- Time on Node.js includes V8's own threads, so those figures are upper bounds.
- automat has neither guards nor hierarchy: its choices enter again by a private input.
- xstate-statemachine logs on the hot path; logging is switched off. transitions makes entities by `add_model`.

The suite is in `bench/`, with every sample of a run in `bench/results/`."""

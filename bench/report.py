"""Runs as text: the tables that `make bench` prints, and the page `docs/benchmarks.md`. Both have the same contents."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from bench.results import Figure, Run
from bench.suite import Overview, Suite, Verdict, Workload

Table = list[tuple[str, ...]]
"""Rows of cells; the first row is the heading."""


def goals_table(verdicts: list[Verdict]) -> Table:
    """Return the verdicts as a table."""
    return [("goal", "bar", "found", "verdict"), *[(each.goal, each.bar, each.figure, each.word) for each in verdicts]]


def workload_table(run: Run, workload: Workload) -> Table:
    """Return the figures of all lines in a workload, without columns that are empty."""
    rows: Table = [(workload.label, *[column.heading for column in workload.columns])]
    for key, figure in run.figures[workload.name].items():
        rows.append((run.lines[key].label, *_cells(run, workload, figure)))
    shown = [any(row[index] for row in rows[1:]) for index in range(len(rows[0]))]
    return [tuple(cell for cell, show in zip(row, shown, strict=True) if show) for row in rows]


def _cells(run: Run, workload: Workload, figure: Figure) -> tuple[str, ...]:
    if not figure.samples:
        return f"FAILED: {figure.error}", *["" for _ in workload.columns[1:]]
    return tuple(column.cell(run, workload.name, figure) for column in workload.columns)


def unsupported(run: Run, workload: str) -> str:
    """Return one sentence per line that cannot do a workload and gives the reason."""
    reasons = {line.name: line.unsupported[workload] for line in run.lines.values() if workload in line.unsupported}
    return "\n".join(f"- Not expressible in {name}: {reason}." for name, reason in reasons.items())


def overview_table(run: Run, overview: Overview) -> Table:
    """Return the medians of several workloads, one row per line, with the ratio to the base."""
    measured = [each for each in overview.workloads if each in run.figures]
    rows: Table = [("", *measured)]
    for key, line in run.lines.items():
        if any(key in run.figures[workload] for workload in measured):
            rows.append((line.label, *[_overview_cell(run, overview, workload, key) for workload in measured]))
    return rows


def _overview_cell(run: Run, overview: Overview, workload: str, key: str) -> str:
    if key not in run.figures[workload]:
        return "-"
    found, base = (run.median(workload, each, overview.measure) for each in (key, overview.base))
    if found is None:
        return "FAILED"
    return f"{found:,.0f}" + ("" if base is None else f" ({times(found / base)})")


def times(ratio: float) -> str:
    """Format a ratio."""
    return f"{ratio:,.0f}x" if ratio >= 100 else f"{ratio:.1f}x"


def facts(run: Run) -> list[str]:
    """Return sentences about the machine, the versions and what was left out."""
    machine = run.machine
    found = [
        f"{run.date}, commit {run.commit}, CPython {run.python}.",
        f"{machine.system} on {machine.architecture}, {machine.processors} processors, {machine.memory_gib:.0f} GiB.",
    ]
    if machine.was_busy:
        found.append(
            f"**The machine was busy** (load {machine.load_before:.1f} on {machine.processors} processors before the "
            "run): do not quote these figures."
        )
    found += [*_rounds(run), *run.facts]
    return [*found, *(f"Left out: {key} ({reason})." for key, reason in run.left_out.items())]


def _rounds(run: Run) -> list[str]:
    """Say how many rounds the medians have, and which workloads have more."""
    if run.rounds < 2:
        return []
    counts = {
        workload: max((len(each) for figure in row.values() for each in figure.samples.values()), default=0)
        for workload, row in run.figures.items()
    }
    more = "".join(f", of {workload} {count}" for workload, count in counts.items() if count > run.rounds)
    return [f"Median of {run.rounds} rounds{more}."]


def text(suite: Suite, run: Run) -> str:
    """Return the run as it is printed."""
    parts = ["\n".join(line.replace("**", "") for line in facts(run))]
    parts += ["\n".join(filter(None, part)) for part in _tables(suite, run, aligned)]
    verdicts = suite.verdicts(run)
    if not verdicts:
        return "\n\n".join([*parts, "bench: a quick run; no goal was checked"]) + "\n"
    missed = sum(each.met is False for each in verdicts)
    unmeasured = sum(each.met is None for each in verdicts)
    summary = f"bench: {len(verdicts) - missed - unmeasured} pass, {missed} MISS, {unmeasured} not measured"
    return "\n\n".join([*parts, aligned(goals_table(verdicts)), summary]) + "\n"


def _tables(suite: Suite, run: Run, form: Callable[[Table], str]) -> Iterable[tuple[str, str, str, str]]:
    """Yield title, introduction, table and remarks of every table of a run."""
    for overview in suite.overviews:
        if any(each in run.figures for each in overview.workloads):
            yield overview.title, overview.introduction, form(overview_table(run, overview)), ""
    for workload in suite.workloads:
        if workload.name in run.figures:
            yield workload.title, "", form(workload_table(run, workload)), unsupported(run, workload.name)


def aligned(table: Table) -> str:
    """Return a table as text with aligned columns."""
    widths = [max(len(cell) for cell in column) for column in zip(*table, strict=True)]
    lines = []
    for row in table:
        first, *rest = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        lines.append("  ".join(["  " + first, *rest]).rstrip())
    return "\n".join(lines)


def page(runs: list[tuple[Suite, Run]]) -> str:
    """Return the page of the documentation."""
    parts = ["# Benchmarks", "Written by `make bench`; do not edit.", METHOD]
    for suite, run in runs:
        parts += section(suite, run)
    return "\n\n".join(part for part in parts if part) + "\n"


def section(suite: Suite, run: Run) -> list[str]:
    """Return the part of the page about one suite."""
    parts = [f"## {suite.title}", suite.introduction, "\n".join(f"- {fact}" for fact in facts(run))]
    verdicts = suite.verdicts(run)
    if verdicts:
        parts += [f"### {suite.title}: goals", markdown(goals_table(verdicts))]
    for title, introduction, table, remarks in _tables(suite, run, markdown):
        parts += [f"### {title}", introduction, table, remarks]
    return [*parts, f"### {suite.title}: method", suite.method]


def markdown(table: Table) -> str:
    """Return a table as markdown."""
    heading, *rows = table
    lines = [heading, tuple("---" for _ in heading), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', '/') for cell in row)} |" for row in lines)


METHOD = """\
Every line is its own process, and in each round every line is asked once, so that a slow moment of the machine affects
all lines. Only figures of the same run are compared. Every sample is in `bench/results/`."""

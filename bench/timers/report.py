"""A run of timers as a table: printed by `make bench`, and a part of the page `docs/benchmarks.md`."""

from __future__ import annotations

from bench.report import Table, aligned, goals_table, machine_facts, markdown, printed
from bench.timers.goals import verdicts
from bench.timers.results import TimersRun

TITLE = "timers: firings among many that are pending, SQLite"


def table(run: TimersRun) -> Table:
    """How late firings are, and what the process holds, by how many timers are pending."""
    heading = ("pending timers", "entities", "due", "a second", "late p50 ms", "p99 ms", "most ms")
    rows: Table = [(*heading, "CPU us a firing", "memory, MB", "file, MB")]
    for each in run.firings:
        late = tuple(f"{each.late_ms[share]:,.0f}" for share in ("0.5", "0.99", "1.0"))
        counts = tuple(f"{number:,}" for number in (each.timers, each.entities, each.due, each.per_second))
        rows.append((*counts, *late, f"{each.cpu_us:,.0f}", f"{each.resident_after_mb:,.0f}", f"{each.megabytes:,.0f}"))
    return rows


def facts(run: TimersRun) -> list[str]:
    """Where, when and with what: sentences."""
    found = machine_facts(run.date, run.commit, run.python, run.machine)
    found.append(f"Files on {run.file_system}.")
    return [*found, *(f"Left out: {key} ({reason})." for key, reason in run.left_out.items())]


def text(run: TimersRun) -> str:
    """The run as it is printed."""
    parts = ["\n".join(line.replace("**", "") for line in facts(run)), f"{TITLE}\n{aligned(table(run))}"]
    return printed(parts, verdicts(run))


def section(run: TimersRun) -> list[str]:
    """The run as parts of the page, below a heading of their own."""
    parts = ["## Timers", INTRODUCTION, "\n".join(f"- {fact}" for fact in facts(run))]
    judged = verdicts(run)
    if judged:
        parts += ["### Goals of timers", markdown(goals_table(judged))]
    return [*parts, f"### {TITLE}", markdown(table(run)), "### Method of timers", METHOD]


INTRODUCTION = """\
Pending timers are rows of the store: a process holds none of them, and finds those that are due by an index."""

METHOD = """\
- One process with one worker, as `interlock.open` makes it, on a file in which every entity has ten pending timers.
- The timers that come due are spread evenly over the time, and over the entities in another order.
- Lateness is from the due time to the moment at which the entry of the firing is durable.
- Memory is what the process holds when the last one has fired.

A run is in `bench/results/<date>-timers.json`."""

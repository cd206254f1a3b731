"""A run of the console's pages as a table: printed by `make bench`, and a part of the page `docs/benchmarks.md`."""

from __future__ import annotations

from bench.fleet.goals import verdicts
from bench.fleet.results import Fleet, PagesRun
from bench.report import Table, aligned, goals_table, machine_facts, markdown, printed
from bench.results import median

TITLE = "pages: what the console asks, milliseconds (median, and the most)"


def table(run: PagesRun) -> Table:
    """Every question, by how many entities there are."""
    rows: Table = [("", *(f"{each.entities:,} entities" for each in run.fleets))]
    for name in dict.fromkeys(name for each in run.fleets for name in each.pages):
        rows.append((name, *(_cell(each, name) for each in run.fleets)))
    return rows


def _cell(fleet: Fleet, name: str) -> str:
    taken = fleet.pages.get(name)
    return "" if not taken else f"{median(taken):,.1f} ({max(taken):,.1f})"


def facts(run: PagesRun) -> list[str]:
    """Where, when and with what: sentences."""
    found = machine_facts(run.date, run.commit, run.python, run.machine)
    for each in run.fleets:
        written = "" if each.fill_s is None else f", written in {each.fill_s:,.0f} s"
        found.append(f"{each.entities:,} entities: {each.gigabytes:,.1f} GB{written}.")
    found.append(f"Files on {run.file_system}.")
    return [*found, *(f"Left out: {key} ({reason})." for key, reason in run.left_out.items())]


def text(run: PagesRun) -> str:
    """The run as it is printed."""
    parts = ["\n".join(line.replace("**", "") for line in facts(run)), f"{TITLE}\n{aligned(table(run))}"]
    return printed(parts, verdicts(run))


def section(run: PagesRun) -> list[str]:
    """The run as parts of the page, below a heading of their own."""
    parts = ["## Pages of the console", INTRODUCTION, "\n".join(f"- {fact}" for fact in facts(run))]
    judged = verdicts(run)
    if judged:
        parts += ["### Goal of pages", markdown(goals_table(judged))]
    return [*parts, f"### {TITLE}", markdown(table(run)), "### Method of pages", METHOD]


INTRODUCTION = """\
A page is answered along an index, whatever the size of the table: its time is that of what it shows."""

METHOD = """\
- `interlock serve` on a SQLite file that `bench/fleet/make_fleet.py` filled, as a process of its own.
- Each question is what a page of the console asks for, over loopback; its time ends with the last byte of the answer.
- The questions are asked in turn, nine times; the first time of each is in the most.

A run is in `bench/results/<date>-pages.json`."""

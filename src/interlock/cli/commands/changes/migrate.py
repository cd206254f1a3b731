"""`interlock migrate`: move all entities of a kind to a newer chart, while they are in use."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import click

from interlock.assemble.charts import BoundChart
from interlock.assemble.mappings import load_mapping
from interlock.cli import exit_codes
from interlock.cli.options import common, duration_ms, example, json_option, pass_terminal, user_name, words
from interlock.cli.output.progress import Progress
from interlock.cli.output.terminal import Line, Terminal
from interlock.cli.output.values import count_text, json_text
from interlock.cli.project import load_charts, split_words
from interlock.cli.session import open_for_reading, open_for_writing, run
from interlock.errors import UsageError
from interlock.model.duration import format_duration
from interlock.model.encoding.codec import to_builtins
from interlock.operate.migrations.draft import draft_mappings
from interlock.operate.migrations.migration import Migration
from interlock.operate.migrations.record import (
    MigrationStatus,
    migrations,
    pause_migration,
    resume_migration,
)
from interlock.operate.migrations.report import MigrationGroup, MigrationReport
from interlock.operate.migrations.undo import MigrationUndo
from interlock.ports.reading.paging import pages
from interlock.ports.store import PAGE_MAX, EntityQuery

GROUPS_SHOWN_MAX = 20
"""Groups that are printed; `--json` has all."""

chart_argument = click.option(
    "--chart", "--to", "chart", required=True, metavar="FILE", help="The newest chart: a definition, or module:name."
)
mapping_option = click.option(
    "--mapping",
    "mappings",
    multiple=True,
    metavar="FILE",
    help="A mapping, in YAML or Python; one for each old revision.",
)
spread_option = click.option(
    "--spread", default="10m", metavar="TIME", help="Spread timers that are then overdue over this time (default 10m)."
)
reason_option = click.option("--reason", metavar="TEXT", help="The reason, for the record.")
principal_option = click.option("--principal", metavar="ID", help="Your name in the record (default: your user name).")


@example(
    "interlock migrate plan sqlite:///orders.db --to order.yaml",
    "interlock migrate apply sqlite:///orders.db --to order.yaml",
)
@click.group
@common
def migrate() -> None:
    """Each entity moves completely, or stays on its revision. With `upgrade: safe` in the chart, the same happens
    before an entity's next step.
    """


@example(
    "interlock migrate plan sqlite:///orders.db --to order.yaml",
    "interlock migrate plan sqlite:///orders.db --to order.yaml --write mapping.yaml",
    "interlock migrate plan --to shop:order --mapping mapping.yaml",
)
@migrate.command
@words("")
@chart_argument
@mapping_option
@spread_option
@click.option("--write", metavar="FILE", help="Write a draft of a mapping, with its open questions, to this file.")
@json_option
@common
@pass_terminal
def plan(
    terminal: Terminal,
    words: tuple[str, ...],
    *,
    chart: str,
    mappings: tuple[str, ...],
    spread: str,
    write: str | None,
    as_json: bool,
) -> int:
    """Nothing is written to the store. Exit code 0 if all entities can move, 10 if some stay."""
    url, _ = split_words(words)
    new = _only_chart(chart)
    given = [load_mapping(each) for each in mappings]
    spread_ms = _spread_ms(spread)

    async def work() -> MigrationReport:
        async with open_for_reading(url, [new]) as runtime:
            if write is not None:
                _write_drafts(terminal, await draft_mappings(runtime, new.chart.kind), Path(write))
            migration = Migration(runtime, new.chart.kind, mappings=given, spread_ms=spread_ms)
            await _follow(terminal, migration, migration.plan(), "can move")
            return migration.report()

    return _print_report(terminal, run(work()), verb="can move", as_json=as_json)


@example(
    "interlock migrate apply sqlite:///orders.db --to order.yaml --mapping mapping.yaml --reason 'ticket 4711'",
    "interlock migrate apply --to shop:order --rate 500",
)
@migrate.command
@words("")
@chart_argument
@mapping_option
@spread_option
@click.option(
    "--rate",
    default="auto",
    metavar="N",
    help="Moves per second, `full` for no limit, or `auto`: half of the time (default).",
)
@click.option("--once", is_flag=True, help="Make one pass; ignore entities that are created meanwhile.")
@reason_option
@principal_option
@json_option
@common
@pass_terminal
def apply(
    terminal: Terminal,
    words: tuple[str, ...],
    *,
    chart: str,
    mappings: tuple[str, ...],
    spread: str,
    rate: str,
    once: bool,
    reason: str | None,
    principal: str | None,
    as_json: bool,
) -> int:
    """The others stay on their revision. You can interrupt the command and run it again at any time. Exit code 0 if all
    entities moved, 10 if some stay.
    """
    url, _ = split_words(words)
    new = _only_chart(chart)
    given = [load_mapping(each) for each in mappings]
    options: dict[str, Any] = {"rate": _rate(rate), "spread_ms": _spread_ms(spread), "reason": reason}

    async def work() -> MigrationReport:
        async with open_for_writing(url, [new]) as runtime:
            who = principal or user_name()
            migration = Migration(runtime, new.chart.kind, mappings=given, who=who, **options)
            await _follow(terminal, migration, migration.apply(once=once), "moved")
            return migration.report()

    return _print_report(terminal, run(work()), verb="moved", as_json=as_json)


@example("interlock migrate status sqlite:///orders.db order", "interlock migrate status order --json")
@migrate.command
@words("KIND")
@json_option
@common
@pass_terminal
def status(terminal: Terminal, words: tuple[str, ...], *, as_json: bool) -> int:
    """Counts living entities by revision, in the order in which the store got the revisions, and lists the migrations
    of the kind.
    """
    url, (kind,) = split_words(words, "KIND")
    assert kind is not None

    async def work() -> tuple[list[dict[str, object]], tuple[MigrationStatus, ...]]:
        async with open_for_reading(url) as runtime:
            counts: Counter[str] = Counter()
            async for page in pages(runtime.store.find, EntityQuery(kind=kind, by_id=True, limit=PAGE_MAX)):
                counts.update(each.revision for each in page.rows if each.ended is None)
            order: dict[str, int] = {}
            for edition in await runtime.revisions.editions(kind):
                for name in (edition.revision, *edition.names):
                    order.setdefault(name, edition.sequence)
            names = sorted(
                {*counts, *(each.revision for each in await runtime.revisions.editions(kind))},
                key=lambda each: (order.get(each, 0), each),
            )
            rows: list[dict[str, object]] = [
                {"revision": each, "label": await runtime.revisions.label(kind, each), "entities": counts[each]}
                for each in names
            ]
            return rows, await migrations(runtime, kind)

    found, done = run(work())
    if as_json:
        terminal.data(json_text({"kind": kind, "revisions": found, "migrations": [_facts(each) for each in done]}))
        return exit_codes.OK
    for row in found:
        label = "" if row["label"] is None else f"  {row['label']}"
        terminal.report((f"{row['entities']:>9,}  ", "bold"), f"{row['revision']}{label}")
    for each in done:
        terminal.report((f"{each.status:>9}  ", "bold"), _status_text(each))
    if not found:
        terminal.report(f"no entities and no definitions of `{kind}`")
    return exit_codes.OK


@example("interlock migrate pause sqlite:///orders.db order --reason 'slow database'")
@migrate.command
@words("KIND")
@reason_option
@principal_option
@common
@pass_terminal
def pause(terminal: Terminal, words: tuple[str, ...], *, reason: str | None, principal: str | None) -> int:
    """The process of the migration waits. Entities continue on the revision that they have."""
    return _report_act(terminal, words, pause_migration, "paused", principal=principal, reason=reason)


@example("interlock migrate resume sqlite:///orders.db order")
@migrate.command
@words("KIND")
@reason_option
@principal_option
@common
@pass_terminal
def resume(terminal: Terminal, words: tuple[str, ...], *, reason: str | None, principal: str | None) -> int:
    """Continues it in its own process. If that process has ended, run `interlock migrate apply` again."""
    return _report_act(terminal, words, resume_migration, "resumed", principal=principal, reason=reason)


@example("interlock migrate undo sqlite:///orders.db order --reason 'wrong mapping'")
@migrate.command
@words("KIND")
@reason_option
@principal_option
@json_option
@common
@pass_terminal
def undo(
    terminal: Terminal, words: tuple[str, ...], *, reason: str | None, principal: str | None, as_json: bool
) -> int:
    """Moves entities that have had no event since the newest migration back to their former revision, and lists the
    others. Exit code 0 if all moved back, 10 if some stay.
    """
    url, (kind,) = split_words(words, "KIND")
    assert kind is not None

    async def work() -> MigrationReport:
        async with open_for_writing(url) as runtime:
            migration = MigrationUndo(runtime, kind, who=principal or user_name(), reason=reason)
            await _follow(terminal, migration, migration.apply(), "returned")
            return migration.report()

    return _print_report(terminal, run(work()), verb="returned", as_json=as_json)


def _report_act(
    terminal: Terminal,
    words: tuple[str, ...],
    act: Callable[..., Awaitable[MigrationStatus]],
    done: str,
    *,
    principal: str | None,
    reason: str | None,
) -> int:
    """Pause or resume the newest migration of a kind, and print what was done."""
    url, (kind,) = split_words(words, "KIND")

    async def work() -> MigrationStatus:
        async with open_for_writing(url) as runtime:
            return await act(runtime, kind, who=principal or user_name(), reason=reason)

    terminal.report(f"{run(work()).id} is {done}")
    return exit_codes.OK


def _only_chart(name: str) -> BoundChart:
    found = load_charts([name])
    if len(found) != 1:
        kinds = ", ".join(each.chart.kind for each in found)
        raise UsageError(f"--chart {name} has several charts: {kinds}", code="migrate.charts", hint="name one of them")
    return found[0]


def _rate(text: str) -> float | None:
    """The moves per second; None: automatic."""
    if text == "auto":
        return None
    try:
        rate = math.inf if text == "full" else float(text)
    except ValueError:
        rate = math.nan
    if not rate > 0:
        raise UsageError(f"--rate {text:.40} is not a positive number", code="migrate.rate", hint="500, auto or full")
    return rate


def _spread_ms(text: str) -> int:
    return 0 if text == "0" else duration_ms(text, "--spread")


def _write_drafts(terminal: Terminal, drafts: dict[str, tuple[str, int]], path: Path) -> None:
    """Write a mapping for each revision: the first under this name, the others numbered."""
    for number, (revision, (text, questions)) in enumerate(drafts.items(), 1):
        file = path if number == 1 else path.with_name(f"{path.stem}-{number}{path.suffix}")
        if file.exists():
            raise UsageError(f"{file} exists already", code="migrate.write", hint="choose another name, or remove it")
        file.write_text(text, encoding="utf-8")
        terminal.message(f"{file}: from {revision}, {count_text(questions, 'question', 'questions')}")
    if not drafts:
        terminal.message("no mapping is needed: the store has no earlier revision")


async def _follow(
    terminal: Terminal, migration: Migration | MigrationUndo, walk: AsyncIterator[None], verb: str
) -> None:
    with Progress(terminal, "entities") as progress:
        async for _ in walk:
            moved, stays = migration.progress
            progress.at(moved + stays, f"{moved:,} {verb}, {stays:,} stay{_speed(migration)}")


def _speed(migration: Migration | MigrationUndo) -> str:
    if isinstance(migration, MigrationUndo) or migration.moves_per_second == 0:
        return ""
    left = "" if migration.remaining_ms is None else f", {format_duration(migration.remaining_ms)} left"
    return f", {migration.moves_per_second:,.0f} per second{left}"


def _facts(status: MigrationStatus) -> dict[str, object]:
    facts = to_builtins(status)
    for each in facts["plan"].get("mappings", ()):
        each.pop("text", None)
    return {str(name): value for name, value in facts.items()}


def _status_text(status: MigrationStatus) -> str:
    progress, plan = status.progress, status.plan
    counts = f"{progress.get('moved', 0):,} moved, {progress.get('stays', 0):,} stay"
    if "returned" in progress:
        counts = f"{progress['returned']:,} returned, {progress['stays']:,} stay"
    rate = progress.get("moves_per_second")
    speed = f", {rate:,.0f} per second" if rate and status.status == "running" else ""
    why = "" if plan.reason is None else f": {plan.reason}"
    return f"{status.id}  to {plan.to}  {counts}{speed}  by {plan.who}{why}"


def _print_report(terminal: Terminal, report: MigrationReport, *, verb: str, as_json: bool) -> int:
    if as_json:
        terminal.data(json_text(to_builtins(report)))
    else:
        for group in report.groups[:GROUPS_SHOWN_MAX]:
            for line in _group_lines(group, verb):
                terminal.report(*line)
        hidden = len(report.groups) - GROUPS_SHOWN_MAX
        if hidden > 0:
            terminal.message((f"{count_text(hidden, 'more group', 'more groups')}; --json shows all", "dim"))
        for each in report.unreadable:
            terminal.report((f"unreadable  {each}", "red"))
        if report.overdue:
            terminal.report(f"{count_text(report.overdue, 'timer is', 'timers are')} overdue by the move")
        if report.new:
            created = count_text(report.new, "entity was", "entities were")
            terminal.message((f"{created} created on an older revision meanwhile, and moved", "yellow"))
            terminal.message(("deploy the new chart to all processes, then migrate once more", "dim"))
        others = f"{report.newest:,} were on {report.revision}"
        if verb == "returned":
            others = f"{report.newest:,} were not moved by it"
        terminal.report((f"{report.kind}: {report.moved:,} {verb}, {report.stays:,} stay, {others}", "bold"))
    return exit_codes.WITH_CARE if report.stays or report.unreadable else exit_codes.OK


def _group_lines(group: MigrationGroup, verb: str) -> Iterator[Line]:
    word = ("stay", "yellow") if group.reasons else (verb, "green")
    states = ", ".join(group.configuration)
    yield (f"{group.entities:>9,}  ", word, f"  {states}", (f"  {group.revision}  {', '.join(group.samples)}", "dim"))
    for each in group.reasons:
        yield (f"{'':>11}{each}",)
    for each in group.dropped:
        yield ((f"{'':>11}ends {each}", "dim"),)
    for sample in group.examples[:1]:
        if sample.after is not None and sample.after["configuration"] != sample.before["configuration"]:
            goal = ", ".join(sample.after["configuration"])
            yield (f"{'':>11}{sample.entity}: {', '.join(sample.before['configuration'])} → {goal}",)

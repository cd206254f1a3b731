"""`interlock migrate`: move all entities of a kind to a newer chart, while they are in use."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterator

import click

from interlock.assemble.charts import BoundChart
from interlock.cli import exit_codes
from interlock.cli.options import common, example, json_option, pass_terminal, words
from interlock.cli.output.progress import Progress
from interlock.cli.output.terminal import Line, Terminal
from interlock.cli.output.values import count_text, json_text
from interlock.cli.project import load_charts, split_words
from interlock.cli.session import open_for_reading, open_for_writing, run
from interlock.errors import UsageError
from interlock.model.codec import to_builtins
from interlock.operate.migration import Migration, MigrationGroup, MigrationReport
from interlock.ports.paging import pages
from interlock.ports.store import PAGE_MAX, EntityQuery

GROUPS_SHOWN_MAX = 20
"""Groups that are printed; `--json` has all."""

chart_argument = click.option(
    "--chart", "chart", required=True, metavar="FILE", help="The newest chart: a definition, or module:name."
)


@click.group
@common
def migrate() -> None:
    """An entity is carried whole or stays on its revision. `upgrade: safe` does the same at its next step."""


@example("interlock migrate plan sqlite:///orders.db --chart order.yaml", "interlock migrate plan --chart shop:order")
@migrate.command
@words("")
@chart_argument
@json_option
@common
@pass_terminal
def plan(terminal: Terminal, words: tuple[str, ...], *, chart: str, as_json: bool) -> int:
    """Says which entities would move to the chart, and why others stay. Nothing is written.

    Exit code 0 if all can move, 10 if some stay.
    """
    url, _ = split_words(words)
    new = _only_chart(chart)

    async def work() -> MigrationReport:
        async with open_for_reading(url, [new]) as runtime:
            migration = Migration(runtime, new.chart.kind)
            await _follow(terminal, migration, migration.plan(), "can move")
            return migration.report()

    return _print_report(terminal, run(work()), verb="can move", as_json=as_json)


@example(
    "interlock migrate apply sqlite:///orders.db --chart order.yaml",
    "interlock migrate apply --chart shop:order --rate 500",
)
@migrate.command
@words("")
@chart_argument
@click.option("--rate", type=click.FloatRange(min=0, min_open=True), metavar="N", help="At most N moves per second.")
@click.option("--once", is_flag=True, help="Walk once; do not look for entities that were created meanwhile.")
@json_option
@common
@pass_terminal
def apply(
    terminal: Terminal, words: tuple[str, ...], *, chart: str, rate: float | None, once: bool, as_json: bool
) -> int:
    """Moves every entity that can be carried to the chart; the others stay on their revision.

    It can be interrupted and started again at any time. Exit code 0 if none stays, 10 if some do.
    """
    url, _ = split_words(words)
    new = _only_chart(chart)

    async def work() -> MigrationReport:
        async with open_for_writing(url, [new]) as runtime:
            migration = Migration(runtime, new.chart.kind, rate=rate)
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
    """Counts the living entities of a kind by revision, in the order in which the store got the revisions."""
    url, (kind,) = split_words(words, "KIND")
    assert kind is not None

    async def work() -> list[dict[str, object]]:
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
            return [
                {"revision": each, "label": await runtime.revisions.label(kind, each), "entities": counts[each]}
                for each in names
            ]

    found = run(work())
    if as_json:
        terminal.data(json_text({"kind": kind, "revisions": found}))
        return exit_codes.OK
    for each in found:
        label = "" if each["label"] is None else f"  {each['label']}"
        terminal.report((f"{each['entities']:>9,}  ", "bold"), f"{each['revision']}{label}")
    if not found:
        terminal.report(f"no entities and no definitions of `{kind}`")
    return exit_codes.OK


def _only_chart(name: str) -> BoundChart:
    found = load_charts([name])
    if len(found) != 1:
        kinds = ", ".join(each.chart.kind for each in found)
        raise UsageError(f"--chart {name} has several charts: {kinds}", code="migrate.charts", hint="name one of them")
    return found[0]


async def _follow(terminal: Terminal, migration: Migration, walk: AsyncIterator[None], verb: str) -> None:
    with Progress(terminal, "entities") as progress:
        async for _ in walk:
            moved, stays = migration.progress
            progress.at(moved + stays, f"{moved:,} {verb}, {stays:,} stay")


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
        counts = f"{report.moved:,} {verb}, {report.stays:,} stay, {report.newest:,} were on {report.revision}"
        terminal.report((f"{report.kind}: {counts}", "bold"))
    return exit_codes.WITH_CARE if report.stays or report.unreadable else exit_codes.OK


def _group_lines(group: MigrationGroup, verb: str) -> Iterator[Line]:
    word = ("stay", "yellow") if group.reasons else (verb, "green")
    states = ", ".join(group.configuration)
    yield (f"{group.entities:>9,}  ", word, f"  {states}", (f"  {group.revision}  {', '.join(group.samples)}", "dim"))
    for each in group.reasons:
        yield (f"{'':>11}{each}",)
    for each in group.dropped:
        yield ((f"{'':>11}ends {each}", "dim"),)

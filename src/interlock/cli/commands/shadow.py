"""`interlock shadow`: what a new definition would do with the events that a store has recorded."""

from __future__ import annotations

import click

from interlock.cli import exit_codes
from interlock.cli.options import common, example, json_option, pass_terminal, since_time_ms, words
from interlock.cli.output.progress import Progress
from interlock.cli.output.shadow import report_json, report_lines
from interlock.cli.output.terminal import Terminal
from interlock.cli.output.values import json_text
from interlock.cli.project import load_charts, load_known_charts, load_one_chart, split_words
from interlock.cli.session import open_for_reading, run
from interlock.evolve.shadow import ShadowReport
from interlock.runtime.history.shadow import ShadowReplay

_EXIT_CODES = {"none": exit_codes.OK, "divergent": exit_codes.FINDINGS, "unknown": exit_codes.NO_VERDICT}


@click.group
@common
def shadow() -> None:
    """No effect is performed, and nothing is written."""


@example(
    "interlock shadow replay --chart order.v2.yaml",
    "interlock shadow replay sqlite:///orders.db --chart shop:order --recorded order.v1.yaml --since 30d",
)
@shadow.command
@words("")
@click.option("--chart", "chart", required=True, metavar="FILE", help="The new chart: a definition, or module:name.")
@click.option(
    "--recorded",
    multiple=True,
    metavar="FILE",
    help="A chart that wrote entries, if it is not in the store (default: those of the project). May be repeated.",
)
@click.option(
    "--since",
    default="start",
    metavar="WHEN",
    help="Only entities created since: an age such as 30d, or a time such as 2026-11-15T12:00Z (default: all).",
)
@json_option
@common
@pass_terminal
def replay(
    terminal: Terminal,
    words: tuple[str, ...],
    *,
    chart: str,
    recorded: tuple[str, ...],
    since: str,
    as_json: bool,
) -> int:
    """Gives every recorded event of the chart's kind to the new chart too, and groups the steps that differ.

    Exit code 0 if no step differs and the evidence is complete, 1 if steps differ, 12 if there is no verdict: entries
    could not be compared, or no entity lived its whole life in the window.
    """
    url, _ = split_words(words)
    since_time_ms(since, now_ms=0)  # an error before the store is opened
    new = load_one_chart(chart, code="shadow.charts")
    given = load_charts(recorded) if recorded else load_known_charts(recorded)

    async def work() -> ShadowReport:
        async with open_for_reading(url, given) as runtime:
            now_ms = runtime.clock.now_ms()
            compared = ShadowReplay(runtime.store, new.kernel, runtime.revisions, now_ms=now_ms)
            since_ms = since_time_ms(since, now_ms=now_ms)
            with Progress(terminal, "entities") as progress:
                async for _ in compared.run(since_ms=since_ms):
                    tally = compared.tally
                    progress.at(tally.entities, f"{tally.divergences} differences in {tally.entries} entries")
            return compared.tally.report()

    report = run(work())
    if as_json:
        terminal.data(json_text(report_json(report)))
    else:
        for line in report_lines(report, quiet=terminal.quiet):
            terminal.report(*line)
    return _EXIT_CODES[report.verdict]

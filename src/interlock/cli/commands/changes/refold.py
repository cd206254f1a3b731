"""`interlock refold`: what entities would be if a corrected chart had run their whole life, and the correction."""

from __future__ import annotations

import click

from interlock.cli import exit_codes
from interlock.cli.options import (
    common,
    example,
    json_option,
    pass_terminal,
    since_time_ms,
    user_name,
    words,
)
from interlock.cli.output.progress import Progress
from interlock.cli.output.refold import report_json, report_lines
from interlock.cli.output.terminal import Terminal
from interlock.cli.output.values import json_text
from interlock.cli.project import load_charts, load_known_charts, load_one_chart, split_words
from interlock.cli.saved_reports import save_option, save_result
from interlock.cli.session import open_for_reading, open_for_writing, run
from interlock.evolve.refold import RefoldReport
from interlock.runtime.trials.refold import Refold, RefoldSettings


@example(
    "interlock refold sqlite:///orders.db --chart order.fixed.yaml",
    'interlock refold --chart order.fixed.yaml --write --reason "refunds were added" --rate 500',
)
@click.command
@words("")
@click.option("--chart", "chart", required=True, metavar="FILE", help="The corrected chart: a file, or module:name.")
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
@click.option("--write", "writes", is_flag=True, help="Write corrections; without it, nothing is written.")
@click.option(
    "--reason", metavar="TEXT", help="The reason, for the journal of each corrected entity. Required with --write."
)
@click.option("--principal", metavar="ID", help="Your name in the journals (default: your user name).")
@click.option("--rate", type=click.FloatRange(min=0, min_open=True), metavar="N", help="At most N entities per second.")
@click.option("--restart", "restarts", is_flag=True, help="Start again at the first entity after an interruption.")
@save_option
@json_option
@common
@pass_terminal
def refold(
    terminal: Terminal,
    words: tuple[str, ...],
    *,
    chart: str,
    recorded: tuple[str, ...],
    since: str,
    writes: bool,
    reason: str | None,
    principal: str | None,
    rate: float | None,
    restarts: bool,
    saves: bool,
    as_json: bool,
) -> int:
    """Replays the journals of all entities of the kind with the corrected chart, and prints how the results differ.

    With --write, an entity gets its corrected context if nothing else differs. Exit code 0 if no entity differs, or all
    were corrected; 1 if some differ; 12 if some could not be replayed.
    """
    url, _ = split_words(words)
    since_time_ms(since, now_ms=0)  # an error before the store is opened
    if writes and not (reason or "").strip():
        raise click.UsageError("--write needs --reason: it is kept in the journal of each corrected entity")
    if not writes and (reason is not None or principal is not None or restarts):
        raise click.UsageError("--reason, --principal and --restart need --write")
    new = load_one_chart(chart, code="refold.charts")
    given = [*(load_charts(recorded) if recorded else load_known_charts(recorded)), new]

    async def work() -> tuple[RefoldReport, bool]:
        opened = open_for_writing if writes else open_for_reading
        async with opened(url, given) as runtime:
            began_ms = runtime.clock.now_ms()
            settings = RefoldSettings(
                writes=writes,
                reason=reason,
                principal={"id": principal or user_name()},
                rate=rate,
                since_ms=since_time_ms(since, now_ms=began_ms),
                restarts=restarts,
            )
            found = Refold(runtime.entities, runtime.mover, new.chart.kind, settings)
            with Progress(terminal, "entities") as progress:
                async for _ in found.run():
                    tally = found.tally
                    differing = tally.correctable + tally.corrected + tally.blocked
                    progress.at(tally.entities, f"{differing:,} differ, {tally.corrected:,} corrected")
            if saves or writes:
                await save_result(runtime, "refold", found.report(), found.recorded, began_ms=began_ms)
            return found.report(), found.is_continued

    report, is_continued = run(work())
    if is_continued:
        terminal.message("continued behind the last entities of an interrupted refold; --restart reads all")
    if as_json:
        terminal.data(json_text(report_json(report)))
    else:
        for line in report_lines(report, quiet=terminal.quiet):
            terminal.report(*line)
    if report.correctable or report.blocked:
        return exit_codes.FINDINGS
    return exit_codes.OK if report.is_complete else exit_codes.NO_VERDICT

"""`interlock shadow`: what a new definition would do with the events that a store has recorded."""

from __future__ import annotations

import asyncio

import click

from interlock.cli import exit_codes
from interlock.cli.options import (
    common,
    duration_ms,
    example,
    json_option,
    pass_terminal,
    since_time_ms,
    user_name,
    words,
)
from interlock.cli.output.progress import REDRAW_SECONDS, Progress
from interlock.cli.output.shadow import report_json, report_lines
from interlock.cli.output.terminal import Terminal
from interlock.cli.output.values import json_text
from interlock.cli.project import load_charts, load_known_charts, load_one_chart, split_words
from interlock.cli.saved_reports import save_option, save_result
from interlock.cli.session import open_for_reading, run
from interlock.effects.waiting import first_of
from interlock.evolve.shadow import ShadowReport
from interlock.operate.shadow_follower import ShadowFollower
from interlock.runtime.history.shadow import ShadowReplay
from interlock.runtime.shutdown import Signals
from interlock.runtime.trials.shadow_run import SHARE

_EXIT_CODES = {"none": exit_codes.OK, "divergent": exit_codes.FINDINGS, "unknown": exit_codes.NO_VERDICT}


chart_option = click.option(
    "--chart", "chart", required=True, metavar="FILE", help="The new chart: a definition, or module:name."
)
recorded_option = click.option(
    "--recorded",
    multiple=True,
    metavar="FILE",
    help="A chart that wrote entries, if it is not in the store (default: those of the project). May be repeated.",
)


@example(
    "interlock shadow replay sqlite:///orders.db --chart order.v2.yaml",
    "interlock shadow run sqlite:///orders.db --chart order.v2.yaml --for 1h",
)
@click.group
@common
def shadow() -> None:
    """No effect runs, and no entity changes."""


@example(
    "interlock shadow replay --chart order.v2.yaml",
    "interlock shadow replay sqlite:///orders.db --chart shop:order --recorded order.v1.yaml --since 30d",
)
@shadow.command
@words("")
@chart_option
@recorded_option
@click.option(
    "--since",
    default="start",
    metavar="WHEN",
    help="Only entities created since: an age such as 30d, or a time such as 2026-11-15T12:00Z (default: all).",
)
@save_option
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
    saves: bool,
    as_json: bool,
) -> int:
    """Sends every recorded event of the kind to the new chart, and groups the steps that differ.

    Exit code 0 if no step differs and the evidence is complete; 1 if steps differ; 12 if there is no verdict, because
    entries could not be compared, or no entity lived its whole life in the window.
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
            found = compared.tally.report()
            if saves:
                await save_result(runtime, "shadow.replay", found, compared.recorded, began_ms=now_ms)
            return found

    return _print_report(terminal, run(work()), as_json=as_json)


@example(
    "interlock shadow run --chart order.v2.yaml --for 1h",
    "interlock shadow run sqlite:///orders.db --chart shop:order",
)
@shadow.command("run")
@words("")
@chart_option
@recorded_option
@click.option("--for", "lasts", metavar="DURATION", help="Stop after this time (default: at Ctrl-C or SIGTERM).")
@click.option(
    "--share",
    type=click.FloatRange(0, 1, min_open=True),
    default=SHARE,
    metavar="N",
    help=f"The fraction of a core that the new chart may use (default {SHARE}).",
)
@json_option
@common
@pass_terminal
def run_command(
    terminal: Terminal,
    words: tuple[str, ...],
    *,
    chart: str,
    recorded: tuple[str, ...],
    lasts: str | None,
    share: float,
    as_json: bool,
) -> int:
    """Compares what all processes write to the store from now on, and prints the report when it is stopped.

    It does not slow down these processes. The report is saved every few seconds, and the console shows it. Exit codes
    are those of `interlock shadow replay`.
    """
    url, _ = split_words(words)
    lasts_ms = None if lasts is None else duration_ms(lasts, "--for")
    new = load_one_chart(chart, code="shadow.charts")
    given = load_charts(recorded) if recorded else load_known_charts(recorded)

    async def work() -> ShadowReport:
        loop, stop = asyncio.get_running_loop(), asyncio.Event()
        async with open_for_reading(url, given) as runtime:
            follower = ShadowFollower(runtime, new.kernel, share=share, who=user_name())
            with Signals(lambda _: loop.call_soon_threadsafe(stop.set)):
                following = asyncio.ensure_future(follower.follow())
                terminal.message(("running", "bold green"), f": {new.chart.kind} {new.chart.revision}; Ctrl-C stops it")
                limit = [] if lasts_ms is None else [runtime.clock.sleep_ms(lasts_ms)]
                with Progress(terminal, "entries") as progress:
                    ended = asyncio.ensure_future(first_of(stop.wait(), asyncio.wait({following}), *limit))
                    while not ended.done():
                        report = follower.run.report()
                        progress.at(report.evidence.entries, f"{report.divergences} differences")
                        await asyncio.wait({ended}, timeout=REDRAW_SECONDS)
                if following.done():
                    await following  # raises why the store cannot be followed
                following.cancel()
                await follower.run.settled()
                return await follower.run.stop()

    return _print_report(terminal, run(work()), as_json=as_json)


def _print_report(terminal: Terminal, report: ShadowReport, *, as_json: bool) -> int:
    if as_json:
        terminal.data(json_text(report_json(report)))
    else:
        for line in report_lines(report, quiet=terminal.quiet):
            terminal.report(*line)
    return _EXIT_CODES[report.verdict]

"""`interlock tail`: what happens on a store, as it happens."""

from __future__ import annotations

import click

from interlock.cli import exit_codes
from interlock.cli.commands.history import duration_ms
from interlock.cli.options import common, example, json_option, pass_terminal
from interlock.cli.output import values
from interlock.cli.output.terminal import Terminal
from interlock.cli.session import kind_note, opened, run, split_words, words
from interlock.errors import UsageError
from interlock.model.codec import plain
from interlock.model.duration import parse_duration
from interlock.ports.journal_feed import FeedEntry
from interlock.runtime.history.replay import time_ms
from interlock.runtime.history.tail import tail as tailed


@example("interlock tail -f", "interlock tail order --from 10m -v")
@click.command(short_help="Show what happens on a store, as it happens.")
@words("[KIND]")
@click.option("--follow", "-f", is_flag=True, help="Go on with what is kept from now on, until interrupted.")
@click.option(
    "--from",
    "begin",
    default="1h",
    metavar="WHEN",
    help="Begin there: a time ago such as 10m, a time such as 2026-11-15T12:00Z, `start` or `now` (1h).",
)
@json_option
@common
@pass_terminal
def tail(terminal: Terminal, words: tuple[str, ...], *, follow: bool, begin: str, as_json: bool) -> int:
    """Show the entries of all entities, or of those of one kind, in the order in which they were kept. Needs no chart.

    With -v what each carried and caused; with --json one JSON object to a line. It reads journals, and needs no bus.
    """
    url, (kind,) = split_words(words, "KIND", optional=1)
    ago_ms = _ago_ms(begin)

    async def work() -> None:
        async with opened(url) as runtime:
            note = await kind_note(runtime, kind)
            if note:
                terminal.message(f"nothing yet{note}")
            since = time_ms(begin) if ago_ms is None else max(0, runtime.clock.now_ms() - ago_ms)
            async for told in tailed(runtime.store, runtime.clock, kind=kind, since_ms=since, follow=follow):
                _show(terminal, told, as_json=as_json)

    run(work())
    return exit_codes.OK


def _ago_ms(begin: str) -> int | None:
    """How long ago to begin; None for a time of the calendar. Raises UsageError when it is neither."""
    if begin in ("start", "now"):
        return 0 if begin == "now" else 2**62
    if parse_duration(begin) is not None:
        return duration_ms(begin, "--from")
    try:
        time_ms(begin)
    except UsageError as error:
        hint = "write 10m, 2h, 2026-11-15T12:00Z, start or now"
        raise UsageError(f"--from is no time: `{begin}`", code="time.malformed", hint=hint) from error
    return None


def _show(terminal: Terminal, told: FeedEntry, *, as_json: bool) -> None:
    if as_json:
        terminal.data(values.json_line({"entity": told.entity, "entry": plain(told.entry)}))
        return
    version, time, *rest = values.entry_line(told.entry)
    terminal.report(time, "  ", (told.entity, "bold"), f" v{str(version).strip()}", *rest)
    if terminal.verbose:
        for line in values.entry_details(told.entry):
            terminal.report(*line)

"""`interlock top`: entities per state, time in a state, stuck entities and steps per second, live.

Rule 1: on a terminal it runs until Ctrl-C; otherwise, or with --once, it prints once and ends.
Rule 2: the lines are a function of values and a width, so every screen can be tested.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Any

import click

from interlock.assemble.charts import BoundChart
from interlock.cli import exit_codes
from interlock.cli.options import (
    chart_option,
    common,
    duration_ms,
    example,
    json_option,
    parse_principal,
    pass_terminal,
    reader_option,
    words,
)
from interlock.cli.output.terminal import Line, Part, Terminal, escape_line
from interlock.cli.output.values import age_text, bar, json_text, short_number
from interlock.cli.project import load_known_charts, split_words
from interlock.cli.session import open_for_reading, run
from interlock.errors import UsageError
from interlock.observe.population import Overview, Population, StatePopulation, overview, overview_for
from interlock.ports.store import PAGE_MAX
from interlock.runtime.entities.permissions import Reader
from interlock.runtime.runtime import Runtime

if TYPE_CHECKING:
    from rich.text import Text

INTERVAL_MS_MIN = 200
WIDTH_MIN, CELL_WIDTH, WIDE_CELL_WIDTH = 40, 60, 100
"""Columns of the narrowest screen, of one state with p95, and of one with p50, p95, p99 and p99.9. A wider screen shows
several states in a row."""

NAME_WIDTH_MAX, NAME_WIDTH_IN_ROW = 30, 20
"""Columns of the name of a state, alone in a row and with others."""

AGE_WIDTH = 7
BAR_CELLS = 8


@example("interlock top", "interlock top order --once", "interlock top account --once --principal ada:customer")
@click.command
@words("[KIND]")
@click.option("--once", is_flag=True, help="Print once and exit; the default without a terminal.")
@click.option("--interval", default="2s", metavar="DURATION", help="Time between two updates (default 2s).")
@reader_option
@chart_option
@json_option
@common
@pass_terminal
def top(
    terminal: Terminal,
    words: tuple[str, ...],
    *,
    once: bool,
    interval: str,
    principal: str | None,
    charts: tuple[str, ...],
    as_json: bool,
) -> int:
    """For every kind, or for one: entities per state, how long they stay, stuck entities, and steps per second.

    With a chart it also shows which states are final and which entities are stuck. Ctrl-C ends it. --json prints one
    document.
    """
    url, (kind,) = split_words(words, "KIND", optional=1)
    interval_ms = duration_ms(interval, "--interval")
    if interval_ms < INTERVAL_MS_MIN:
        message = f"--interval must be at least {INTERVAL_MS_MIN}ms"
        raise UsageError(message, code="duration.malformed", hint="write 1s or more")
    bound = load_known_charts(charts)
    reader = parse_principal(principal)
    if as_json or once or not sys.stdout.isatty():
        found = run(_read(url, bound, kind, reader))
        if as_json:
            terminal.data(json_text(_json(found)))
            return exit_codes.OK
        for line in overview_lines(found, max(WIDTH_MIN, get_terminal_size().columns)):
            terminal.report(*line)
        return exit_codes.OK
    run(_show_live(terminal, url, bound, kind, interval_ms, reader))
    return exit_codes.OK


async def _read(url: str, charts: Sequence[BoundChart], kind: str | None, reader: Reader | None) -> Overview:
    async with open_for_reading(url, charts) as runtime:
        return await _overview(runtime, kind, reader)


async def _overview(runtime: Runtime, kind: str | None, reader: Reader | None) -> Overview:
    return await (overview(runtime, kind) if reader is None else overview_for(runtime, kind, reader))


async def _show_live(
    terminal: Terminal,
    url: str,
    charts: Sequence[BoundChart],
    kind: str | None,
    interval_ms: int,
    reader: Reader | None,
) -> None:
    """Draw the screen until interrupted."""
    from rich.console import Console
    from rich.live import Live

    console = Console(no_color=not terminal.has_color(sys.stdout), highlight=False, emoji=False, markup=False)
    async with open_for_reading(url, charts) as runtime:
        with Live(console=console, screen=True, auto_refresh=False) as live:
            while True:  # ends with Ctrl-C
                found = await _overview(runtime, kind, reader)
                live.update(_screen(found, console.width, console.height), refresh=True)
                await runtime.clock.sleep_ms(interval_ms)


def _screen(found: Overview, width: int, height: int) -> Text:
    """The lines that fit on the screen, for rich."""
    from rich.text import Text

    lines = list(overview_lines(found, max(WIDTH_MIN, width)))
    screen = Text(no_wrap=True, overflow="crop")
    for line in [*lines[: height - 1], (("press Ctrl-C to stop", "dim"),)]:
        for part in line:
            screen.append(*((escape_line(part),) if isinstance(part, str) else (escape_line(part[0]), part[1])))
        screen.append("\n")
    return screen


# Lines


def overview_lines(found: Overview, width: int) -> Iterator[Line]:
    """The whole screen, for a width."""
    for number, each in enumerate(found.kinds):
        if number:
            yield ("",)
        yield _kind_line(each)
        yield from _state_lines(each, width)
    if not found.kinds:
        yield ("no entities yet",)
    if found.dead_letters:
        more = "+" if found.dead_letters >= PAGE_MAX else ""
        yield ("",)
        letters = "dead letter" if found.dead_letters == 1 else "dead letters"
        yield (("✗ ", "red"), f"{found.dead_letters:,}{more} {letters}: interlock effects ls --dead")


def _kind_line(each: Population) -> Line:
    parts: list[Part] = [(each.kind, "bold")]
    if each.revision is not None:
        parts.append((f" {each.label or each.revision.partition('+')[0]}", "dim"))
    if each.entities is not None:
        entities = "entity" if each.entities == 1 else "entities"
        parts.append(f"   {short_number(each.entities)}{'' if each.is_complete else '+'} {entities}")
    if each.steps_per_second is not None:
        parts.append(f"   {rate_text(each.steps_per_second)} steps/s")
    if each.conflict_share:
        parts.append(f"   conflicts {each.conflict_share:.1%}")
    if each.stuck:
        parts.append((f"   ⚠ {short_number(each.stuck)}{'+' if each.stuck_more else ''} stuck", "bold yellow"))
    if each.revision is None:
        parts.append(("   chart not loaded (use --chart)", "dim"))
    return tuple(parts)


def shown_states(kind: Population) -> list[StatePopulation]:
    """The populated leaf states, and populated states with an `expect`: other states only repeat their children."""
    parents = {each.parent for each in kind.states}
    return [each for each in kind.states if each.entities and (each.id not in parents or each.expect_ms is not None)]


def _state_lines(kind: Population, width: int) -> Iterator[Line]:
    """States in rows of as many as fit; the last line has the states in which entities have ended."""
    states = shown_states(kind)
    active = [each for each in states if not each.is_ended]
    ended = [each for each in states if each.is_ended]
    has_all = width >= WIDE_CELL_WIDTH
    cell_width = WIDE_CELL_WIDTH if has_all else CELL_WIDTH
    per_row = max(1, width // cell_width)
    most = max((each.entities for each in active), default=0)
    longest = NAME_WIDTH_IN_ROW if has_all else NAME_WIDTH_MAX
    name_width = min(longest, max((len(each.id) for each in active), default=0))
    for first in range(0, len(active), per_row):
        parts: list[Part] = []
        for each in active[first : first + per_row]:
            cell = list(_cell(each, most, name_width, has_all=has_all))
            parts += cell
            length = sum(len(part) if isinstance(part, str) else len(part[0]) for part in cell)
            parts.append(" " * (cell_width - length))
        yield _strip_end(parts)
    if ended:
        text = ", ".join(f"{each.id} {short_number(each.entities)}" for each in ended)
        yield (("  ended: ", "dim"), text if len(text) <= width - 9 else f"{text[: width - 10]}…")


def _strip_end(parts: list[Part]) -> Line:
    """The parts of a line without trailing blanks."""
    while parts and not (parts[-1] if isinstance(parts[-1], str) else parts[-1][0]).strip():
        parts.pop()
    last = parts.pop()
    return (*parts, last.rstrip() if isinstance(last, str) else (last[0].rstrip(), last[1]))


def _cell(each: StatePopulation, most: int, name_width: int, *, has_all: bool) -> Iterator[Part]:
    """One state: its name, a bar, the number of entities, time in the state, and stuck entities."""
    name = each.id if len(each.id) <= name_width else f"{each.id[: name_width - 1]}…"
    yield f"  {name:<{name_width}} "
    yield (bar(each.entities / most, BAR_CELLS), "cyan")
    yield f" {short_number(each.entities):>6}"
    quantiles = (("p50", each.p50_ms), ("p95", each.p95_ms), ("p99", each.p99_ms), ("p99.9", each.p999_ms))
    for label, ms in quantiles if has_all else quantiles[1:2]:
        text = "" if ms is None else f"{label} ≈{age_text(ms)}"
        yield (f"  {text:<{len(label) + 1 + AGE_WIDTH}}", "dim")
    if each.stuck:
        yield (f" ⚠ {short_number(each.stuck)}{'+' if each.stuck_more else ''}", "bold yellow")


def rate_text(rate: float) -> str:
    """Return steps per second as the console writes them (`components.js`)."""
    if rate >= 100:
        return f"{rate:,.0f}"
    return f"{rate:.1f}" if rate >= 0.05 else "0"


def _json(found: Overview) -> dict[str, Any]:
    return {
        "kinds": [
            {
                "kind": each.kind,
                "revision": each.revision,
                "label": each.label,
                "entities": each.entities,
                "more": not each.is_complete,
                "steps_per_second": each.steps_per_second,
                "conflicts": each.conflict_share,
                "stuck": each.stuck,
                "stuck_more": each.stuck_more,
                "states": [
                    {
                        "state": state.id,
                        "entities": state.entities,
                        "p50_ms": state.p50_ms,
                        "p95_ms": state.p95_ms,
                        "p99_ms": state.p99_ms,
                        "p999_ms": state.p999_ms,
                        "stuck": state.stuck,
                        "stuck_more": state.stuck_more,
                        "is_final": state.is_ended,
                    }
                    for state in shown_states(each)
                ],
            }
            for each in found.kinds
        ],
        "now_ms": found.now_ms,
        "dead": found.dead_letters,
    }

"""`interlock top`: how many are where, how long they stay, and what is stuck, live.

Rule 1: on a terminal it goes on until Ctrl-C; anywhere else, or with --once, it tells the moment and ends.
Rule 2: the lines are made for a width, by a function of values alone, so that every screen can be looked at in a test.
Rule 3: it asks seldom and draws only what it was told: a screen that nobody looks at must cost nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from shutil import get_terminal_size
from typing import TYPE_CHECKING

import click
from msgspec import to_builtins

from interlock.assemble.charts import BoundChart
from interlock.cli import exit_codes
from interlock.cli.commands.history import duration_ms
from interlock.cli.options import common, example, json_option, pass_terminal
from interlock.cli.output import values
from interlock.cli.output.progress import bar
from interlock.cli.output.scene import Line
from interlock.cli.output.terminal import Part, Terminal, in_line
from interlock.cli.session import chart_option, known_charts, opened, run, split_words, words
from interlock.errors import UsageError
from interlock.observe.fleet import FleetSummary, KindSummary, StateSummary, fleet
from interlock.ports.store import PAGE_MAX
from interlock.runtime.runtime import Runtime

if TYPE_CHECKING:
    from rich.text import Text

EVERY_MS_MIN = 200
WIDTH_MIN, CELL_WIDTH = 40, 60
"""Columns of the narrowest screen, and of one state: what is wider shows several states beside each other."""

NAME_WIDTH_MAX, NAME_WIDTH_BESIDE = 30, 20
"""Columns of a state's name, alone and beside others: then every cell keeps to its width."""

AGE_WIDTH = 7
BAR_CELLS = 8


@example("interlock top", "interlock top order --once")
@click.command(short_help="Show how many entities are where, live.")
@words("[KIND]")
@click.option("--once", is_flag=True, help="Tell the moment and end, as it does without a terminal.")
@click.option("--every", default="2s", metavar="DURATION", help="How often it looks (2s).")
@chart_option
@json_option
@common
@pass_terminal
def top(
    terminal: Terminal,
    words: tuple[str, ...],
    *,
    once: bool,
    every: str,
    charts: tuple[str, ...],
    as_json: bool,
) -> int:
    """Show the entities of every kind, or of one: how many are in which state, the time that 95 of 100 stayed there at
    most, how many are there for longer than expected, and steps a second.

    With a chart it knows which states are final and what is stuck. Ctrl-C ends it. With --json one document, once.
    """
    url, (kind,) = split_words(words, "KIND", optional=1)
    every_ms = duration_ms(every, "--every")
    if every_ms < EVERY_MS_MIN:
        raise UsageError(f"--every is below {EVERY_MS_MIN}ms", code="duration.malformed", hint="write 1s or more")
    bound = known_charts(charts)
    if as_json or once or not sys.stdout.isatty():
        found = run(_seen(url, bound, kind))
        if as_json:
            terminal.data(values.json_text(to_builtins(found)))
            return exit_codes.OK
        for line in fleet_lines(found, max(WIDTH_MIN, get_terminal_size().columns)):
            terminal.report(*line)
        return exit_codes.OK
    run(_shown(terminal, url, bound, kind, every_ms))
    return exit_codes.OK


async def _seen(url: str, charts: Sequence[BoundChart], kind: str | None) -> FleetSummary:
    async with opened(url, charts) as runtime:
        return await fleet(runtime, kind)


async def _shown(terminal: Terminal, url: str, charts: Sequence[BoundChart], kind: str | None, every_ms: int) -> None:
    """Draw over and over, until interrupted."""
    from rich.console import Console
    from rich.live import Live

    colors = terminal.colorful(sys.stdout)
    console = Console(no_color=not colors, highlight=False, emoji=False, markup=False)
    async with opened(url, charts) as runtime:
        with Live(console=console, screen=True, auto_refresh=False) as live:
            while True:  # ends with Ctrl-C
                live.update(await _screen(runtime, kind, console.width, console.height), refresh=True)
                await runtime.clock.sleep_ms(every_ms)


async def _screen(runtime: Runtime, kind: str | None, width: int, height: int) -> Text:
    """What fits on the screen now, for rich."""
    from rich.text import Text

    lines = list(fleet_lines(await fleet(runtime, kind), max(WIDTH_MIN, width)))
    screen = Text(no_wrap=True, overflow="crop")
    for line in [*lines[: height - 1], (("Ctrl-C ends it", "dim"),)]:
        for part in line:
            screen.append(*((in_line(part),) if isinstance(part, str) else (in_line(part[0]), part[1])))
        screen.append("\n")
    return screen


# What it looks like


def fleet_lines(found: FleetSummary, width: int) -> Iterator[Line]:
    """The whole screen, for a width."""
    for number, each in enumerate(found.kinds):
        if number:
            yield ("",)
        yield _head(each)
        yield from _state_lines(each, width)
    if not found.kinds:
        yield ("no entities yet",)
    if found.dead:
        many = "+" if found.dead >= PAGE_MAX else ""
        yield ("",)
        letters = "dead letter" if found.dead == 1 else "dead letters"
        yield (("✗ ", "red"), f"{found.dead:,}{many} {letters}: interlock effects ls --dead")


def _head(each: KindSummary) -> Line:
    """One kind in a line."""
    parts: list[Part] = [(each.kind, "bold")]
    if each.revision is not None:
        parts.append((f" {each.revision.partition('+')[0]}", "dim"))
    if each.entities is not None:
        entities = "entity" if each.entities == 1 else "entities"
        parts.append(f"   {short(each.entities)}{'+' if each.more else ''} {entities}")
    if each.steps_per_second is not None:
        parts.append(f"   {_rate_text(each.steps_per_second)} steps/s")
    if each.conflicts:
        parts.append(f"   conflicts {each.conflicts:.1%}")
    if each.stuck:
        parts.append((f"   ⚠ {short(each.stuck)}{'+' if each.stuck_more else ''} stuck", "bold yellow"))
    if each.revision is None:
        parts.append(("   no chart here: name it with --chart", "dim"))
    return tuple(parts)


def _state_lines(kind: KindSummary, width: int) -> Iterator[Line]:
    """States beside each other as far as they fit; those that entities only end in stand in the last line."""
    going = [each for each in kind.states if not each.is_final]
    ended = [each for each in kind.states if each.is_final]
    across = max(1, width // CELL_WIDTH)
    most = max((each.entities for each in going), default=0)
    longest = NAME_WIDTH_MAX if across == 1 else NAME_WIDTH_BESIDE
    name_width = min(longest, max((len(each.state) for each in going), default=0))
    for first in range(0, len(going), across):
        parts: list[Part] = []
        for each in going[first : first + across]:
            cell = list(_cell(each, most, name_width))
            parts += cell
            length = sum(len(part) if isinstance(part, str) else len(part[0]) for part in cell)
            parts.append(" " * (CELL_WIDTH - length))
        yield _without_end(parts)
    if ended:
        told = ", ".join(f"{each.state} {short(each.entities)}" for each in ended)
        yield (("  ended: ", "dim"), told if len(told) <= width - 9 else f"{told[: width - 10]}…")


def _without_end(parts: list[Part]) -> Line:
    """The parts of a line without the blanks at its end."""
    while parts and not (parts[-1] if isinstance(parts[-1], str) else parts[-1][0]).strip():
        parts.pop()
    last = parts.pop()
    return (*parts, last.rstrip() if isinstance(last, str) else (last[0].rstrip(), last[1]))


def _cell(each: StateSummary, most: int, name_width: int) -> Iterator[Part]:
    """One state: its name, a bar, how many, how long, and how many for too long."""
    name = each.state if len(each.state) <= name_width else f"{each.state[: name_width - 1]}…"
    yield f"  {name:<{name_width}} "
    yield (bar(each.entities / most, BAR_CELLS), "cyan")
    yield f" {short(each.entities):>6}"
    p95 = "" if each.p95_ms is None else f"p95 ≤{values.age_text(each.p95_ms)}"
    yield (f"  {p95:<{4 + AGE_WIDTH}}", "dim")
    if each.stuck:
        yield (f" ⚠ {short(each.stuck)}{'+' if each.stuck_more else ''}", "bold yellow")


def short(count: int) -> str:
    """A number in at most six characters: 9,999, then 12.3k, then 4.5M."""
    if count < 10_000:
        return f"{count:,}"
    for unit, size in (("k", 10**3), ("M", 10**6), ("G", 10**9)):
        value = count / size
        if value < 999.5 or unit == "G":
            return f"{value:.1f}{unit}" if value < 99.95 else f"{value:.0f}{unit}"
    raise AssertionError("the last unit takes all")


def _rate_text(rate: float) -> str:
    return f"{rate:.1f}" if rate < 10 else f"{rate:,.0f}"

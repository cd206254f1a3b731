"""`interlock stuck`: what does not make progress, worst first, with the next command."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import click
from msgspec import Struct, to_builtins

from interlock.assemble.charts import BoundChart
from interlock.cli import exit_codes
from interlock.cli.options import (
    PAGE_ROWS_MAX,
    chart_option,
    common,
    example,
    json_option,
    pass_terminal,
    words,
)
from interlock.cli.output.terminal import Line, Terminal
from interlock.cli.output.values import age_text, json_text
from interlock.cli.output.work import work_json, work_lines
from interlock.cli.project import load_known_charts, split_words
from interlock.cli.session import open_for_reading, run
from interlock.effects.unsupported_work import runs_effects
from interlock.observe.population import check_kind
from interlock.observe.stuck import (
    WORK_ROWS_MAX,
    StuckEntity,
    dead_letters,
    judged_charts,
    overdue_work,
    stuck_entities,
)
from interlock.observe.work_status import work_status
from interlock.operate.dead_letters import key_of
from interlock.ports.work import WorkRow
from interlock.runtime.charts.registry import BUILTIN_KINDS

LIMIT = 20


class StuckReport(Struct, frozen=True):
    """What does not make progress. `is_complete` is False if there is more work than was searched.

    `unjudged` are the kinds with entities whose chart is neither loaded nor in the store.
    """

    now_ms: int
    entities: tuple[StuckEntity, ...]
    work: tuple[WorkRow, ...]
    dead: tuple[WorkRow, ...]
    is_complete: bool
    runs_effects: bool
    unjudged: tuple[str, ...] = ()


@example("interlock stuck", "interlock stuck order --limit 5")
@click.command
@words("[KIND]")
@click.option(
    "--limit",
    type=click.IntRange(1, PAGE_ROWS_MAX),
    default=LIMIT,
    metavar="N",
    help=f"Maximum rows of each list (default {LIMIT}).",
)
@chart_option
@json_option
@common
@pass_terminal
def stuck(terminal: Terminal, words: tuple[str, ...], *, limit: int, charts: tuple[str, ...], as_json: bool) -> int:
    """An entity is stuck if it has been in a state for longer than the `expect` of that state.

    Prints the worst first, each with the next command to run. Uses the loaded chart of a kind, or else the newest
    definition in the store; without either, it only lists work.
    """
    url, (kind,) = split_words(words, "KIND", optional=1)
    bound = load_known_charts(charts)
    found = run(_report(url, bound, kind, limit))
    if not found.runs_effects:
        terminal.message(("warning", "yellow"), ": this store does not run effects, so it has no work")
    if as_json:
        terminal.data(json_text(_json(found)))
        return exit_codes.OK
    for line in _lines(found):
        terminal.report(*line)
    if not (found.entities or found.work or found.dead):
        terminal.message("nothing stuck")
    if found.unjudged:
        kinds = ", ".join(found.unjudged)
        terminal.message((f"no chart of {kinds}, so their states are not judged (use --chart)", "dim"))
    if not found.is_complete:
        terminal.message((f"only the first {WORK_ROWS_MAX:,} items of work were searched", "dim"))
    return exit_codes.OK


async def _report(url: str, charts: Sequence[BoundChart], kind: str | None, limit: int) -> StuckReport:
    async with open_for_reading(url, charts) as runtime:
        await check_kind(runtime, kind)
        entities = await stuck_entities(runtime, kind, limit)
        judged = await judged_charts(runtime, kind)
        kinds = await runtime.store.kinds() if kind is None else (kind,)
        work, is_complete = await overdue_work(runtime, kind)
        dead = await dead_letters(runtime, kind)
        return StuckReport(
            runtime.clock.now_ms(),
            tuple(entities),
            tuple(work[:limit]),
            tuple(dead[:limit]),
            is_complete,
            runs_effects(runtime.store),
            tuple(each for each in kinds if each not in judged and each not in BUILTIN_KINDS),
        )


def _lines(found: StuckReport) -> Iterator[Line]:
    if found.entities:
        yield (("longer than expected", "bold yellow"),)
        yield from _entity_lines(found.entities)
    if found.work:
        yield (("overdue work", "bold yellow"),)
        yield from _indent(work_lines(found.work, found.now_ms, None))
        yield (("  next: interlock run, with these handlers and the charts of these entities", "dim"),)
    if found.dead:
        yield (("dead letters", "bold red"),)
        yield from _indent(work_lines(found.dead, found.now_ms, None))
        yield ((f"  next: interlock effects retry {key_of(found.dead[0])}, or drop", "dim"),)


def _entity_lines(entities: Sequence[StuckEntity]) -> Iterator[Line]:
    width = max(len(each.entity) for each in entities)
    state_width = max(len(each.state) for each in entities)
    age_width = max(len(age_text(each.age_ms)) for each in entities)
    expect_width = max(len(age_text(each.expect_ms)) for each in entities)
    for each in entities:
        age, expected = age_text(each.age_ms), age_text(each.expect_ms)
        yield (
            "  ",
            (f"{each.entity:<{width}}", "bold"),
            f"  {each.state:<{state_width}}  for {age:<{age_width}}  expected {expected:<{expect_width}}",
            (f"  accepts {', '.join(each.events) or 'no external event'}", "dim"),
        )
    first = entities[0]
    command = f"interlock effects ls --entity {first.entity}"  # it waits for a result or a timer
    if first.events:
        principal = f" --principal you:{first.roles[0]}" if first.roles else ""
        command = f"interlock send {first.entity} {first.events[0]}{principal}"
    yield ((f"  next: interlock show {first.entity}, then {command}", "dim"),)


def _indent(lines: Iterator[Line]) -> Iterator[Line]:
    for line in lines:
        yield ("  ", *line)


def _json(found: StuckReport) -> dict[str, Any]:
    def rows_json(rows: Sequence[WorkRow]) -> list[dict[str, Any]]:
        return [work_json(row, work_status(row, now_ms=found.now_ms)) for row in rows]

    return {
        "now_ms": found.now_ms,
        "entities": [{**to_builtins(each), "late_ms": each.late_ms} for each in found.entities],
        "work": rows_json(found.work),
        "dead": rows_json(found.dead),
        "partial": not found.is_complete,
    }

"""`interlock stuck`: what rests longer than it should, worst first, and what to do about it.

Rule 1: three things are stuck: entities in a state beyond its `expect`, work that is due and nobody takes up, and dead
letters. Each is told with the command that goes on with it.
Rule 2: a list stops at its limit and says so; the walk over work stops, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import click
from msgspec import Struct, to_builtins

from interlock.assemble.charts import BoundChart
from interlock.cli import exit_codes
from interlock.cli.commands.effects import OVERDUE_MS, overdue_ms, work_json, work_lines
from interlock.cli.options import common, example, json_option, pass_terminal
from interlock.cli.output import values
from interlock.cli.output.scene import Line
from interlock.cli.output.terminal import Terminal
from interlock.cli.session import chart_option, known_charts, opened, run, split_words, words
from interlock.effects.work_status import work_status
from interlock.observe.fleet import Stuck, check_kind, stuck_entities
from interlock.ports.store import PAGE_MAX
from interlock.ports.work import WorkQuery, WorkRow, WorkStore
from interlock.runtime.runtime import Runtime
from interlock.runtime.worker.work_operations import key_of

LIMIT = 20
WALK_MAX = 5 * PAGE_MAX
"""Pieces of work that are looked at for those that nobody takes up."""


class Found(Struct, frozen=True):
    """What is stuck: entities, work that is due or lapsed, and dead letters. `is_partial`: the walk ended early.

    `keeps_work` False: the store keeps none, so none of it can be late.
    """

    now_ms: int
    entities: tuple[Stuck, ...] = ()
    work: tuple[WorkRow, ...] = ()
    dead: tuple[WorkRow, ...] = ()
    is_partial: bool = False
    keeps_work: bool = True


@example("interlock stuck", "interlock stuck order --limit 5")
@click.command(short_help="Show what rests longer than it should, worst first.")
@words("[KIND]")
@click.option(
    "--limit", type=click.IntRange(1, PAGE_MAX), default=LIMIT, metavar="N", help=f"Of each at most ({LIMIT})."
)
@chart_option
@json_option
@common
@pass_terminal
def stuck(terminal: Terminal, words: tuple[str, ...], *, limit: int, charts: tuple[str, ...], as_json: bool) -> int:
    """Show entities that are in a state for longer than its `expect` says, work that nobody takes up, and dead letters:
    worst first, with what to do next.

    Which states expect what is known from charts; without one only work is judged.
    """
    url, (kind,) = split_words(words, "KIND", optional=1)
    bound = known_charts(charts)
    found = run(_found(url, bound, kind, limit))
    if not found.keeps_work:
        told = "this store keeps no work: nobody performs what entities leave, and none of it can be told here"
        terminal.message((told, "yellow"))
    if as_json:
        terminal.data(values.json_text(_json(found)))
        return exit_codes.OK
    for line in _lines(found):
        terminal.report(*line)
    if not (found.entities or found.work or found.dead):
        terminal.message("nothing is stuck")
    if not bound:
        terminal.message(("no chart here: which states last too long is not known; name it with --chart", "dim"))
    if found.is_partial:
        terminal.message((f"there is more work than the first {WALK_MAX:,} that were looked at", "dim"))
    return exit_codes.OK


async def _found(url: str, charts: Sequence[BoundChart], kind: str | None, limit: int) -> Found:
    async with opened(url, charts) as runtime:
        await check_kind(runtime, kind)
        judged = kind is None or kind in runtime.charts.kinds()
        late = await stuck_entities(runtime, kind, limit) if judged else []
        waiting, is_partial = await waiting_work(runtime, kind)
        dead = await dead_letters(runtime, kind)
        return Found(
            runtime.clock.now_ms(),
            tuple(late),
            tuple(waiting[:limit]),
            tuple(dead[:limit]),
            is_partial,
            isinstance(runtime.store, WorkStore),
        )


async def waiting_work(runtime: Runtime, kind: str | None) -> tuple[list[WorkRow], bool]:
    """Work that is due and nobody takes up, or whose lease lapsed, longest first; and whether the walk ended early."""
    now_ms, found, seen, cursor = runtime.clock.now_ms(), list[WorkRow](), 0, None
    if not isinstance(runtime.store, WorkStore):
        return [], False
    while True:  # ends with the last page, or at the bound
        page = await runtime.store.works(WorkQuery(after=cursor, limit=PAGE_MAX))
        found += [row for row in page.rows if _is_of(row, kind) and is_waiting(row, now_ms)]
        seen, cursor = seen + len(page.rows), page.after
        if cursor is None or seen >= WALK_MAX:
            return sorted(found, key=lambda row: (row.next_ms or 0, row.entity)), cursor is not None


def is_waiting(row: WorkRow, now_ms: int) -> bool:
    """Whether somebody should have taken it up long ago."""
    stands = work_status(row, now_ms=now_ms)
    return stands.word in ("due", "scheduled", "retry", "in_hand") and overdue_ms(row, stands, now_ms) > OVERDUE_MS


async def dead_letters(runtime: Runtime, kind: str | None) -> list[WorkRow]:
    """Dead letters, the oldest first."""
    if not isinstance(runtime.store, WorkStore):
        return []
    page = await runtime.store.works(WorkQuery(dead=True, limit=PAGE_MAX))
    return sorted((row for row in page.rows if _is_of(row, kind)), key=lambda row: (row.dead_ms or 0, row.entity))


def _is_of(row: WorkRow, kind: str | None) -> bool:
    return kind is None or row.entity.partition("/")[0] == kind


# What it looks like


def _lines(found: Found) -> Iterator[Line]:
    if found.entities:
        yield (("longer than expected", "bold yellow"),)
        yield from _entity_lines(found.entities)
    if found.work:
        yield (("due, and nobody takes it up", "bold yellow"),)
        yield from _indented(work_lines(found.work, found.now_ms, None))
        yield (("  next: interlock run, with these handlers and the charts of these entities", "dim"),)
    if found.dead:
        yield (("dead letters", "bold red"),)
        yield from _indented(work_lines(found.dead, found.now_ms, None))
        yield ((f"  next: interlock effects retry {key_of(found.dead[0])}, or drop", "dim"),)


def _entity_lines(entities: Sequence[Stuck]) -> Iterator[Line]:
    width = max(len(each.entity) for each in entities)
    states = max(len(each.state) for each in entities)
    ages = max(len(values.age_text(each.age_ms)) for each in entities)
    waits = max(len(values.age_text(each.expect_ms)) for each in entities)
    for each in entities:
        age, expected = values.age_text(each.age_ms), values.age_text(each.expect_ms)
        told = f"  {each.state:<{states}}  for {age:<{ages}}  expected {expected:<{waits}}"
        yield (
            "  ",
            (f"{each.entity:<{width}}", "bold"),
            told,
            (f"  takes {', '.join(each.events) or 'no event of a person'}", "dim"),
        )
    first = entities[0]
    then = f"interlock effects ls --entity {first.entity}"  # it waits for an answer, or for a timer
    if first.events:
        who = f" --principal you:{first.roles[0]}" if first.roles else ""
        then = f"interlock send {first.entity} {first.events[0]}{who}"
    yield ((f"  next: interlock show {first.entity}, then {then}", "dim"),)


def _indented(lines: Iterator[Line]) -> Iterator[Line]:
    for line in lines:
        yield ("  ", *line)


def _json(found: Found) -> dict[str, Any]:
    def told(rows: Sequence[WorkRow]) -> list[dict[str, Any]]:
        return [work_json(row, work_status(row, now_ms=found.now_ms)) for row in rows]

    return {
        "now_ms": found.now_ms,
        "entities": [{**to_builtins(each), "late_ms": each.late_ms} for each in found.entities],
        "work": told(found.work),
        "dead": told(found.dead),
        "partial": found.is_partial,
    }

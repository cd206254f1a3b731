"""`interlock effects`: what entities left to do, how it stands, and what a person may do about it.

Rule: the line of a piece of work begins with its key, which `retry` and `drop` take.
"""

from __future__ import annotations

import getpass
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

import click
from msgspec.structs import replace

from interlock.cli import exit_codes
from interlock.cli.options import common, example, json_option, pass_terminal
from interlock.cli.output import values
from interlock.cli.output.scene import Line
from interlock.cli.output.terminal import Part, Terminal
from interlock.cli.session import chart_option, check_store, loaded_charts, run, split_names, split_words, words
from interlock.effects.work_status import WorkStatus, work_status
from interlock.errors import RejectedError
from interlock.model.journal.work import CHILD_WORK, Lane
from interlock.ports.clock import SystemClock
from interlock.ports.store import PAGE_MAX
from interlock.ports.work import WorkPage, WorkQuery, WorkRow, WorkStore
from interlock.runtime.chart_registry import child_entity
from interlock.runtime.request_checks import check_entity
from interlock.runtime.worker.work_operations import Act, WorkOperations, checked_key, key_of
from interlock.stores.registry import open_store

LANES = ("effect", "timer", "outbox", "message")
OVERDUE_MS = 10_000
"""Work that is due for longer than this has found nobody: looks are a second apart."""

_DEAD = click.option("--dead", is_flag=True, help="Only dead letters.")
_NAME = click.option("--name", metavar="NAME", help="Of this handler, or to this address.")
_ENTITY = click.option("--entity", metavar="KIND/ID", help="Left by this entity.")
_LANE = click.option("--lane", type=click.Choice(LANES), help="Calls and invokes, timers, sends, or messages.")
_ALL = click.option("--all", "whole", is_flag=True, help="All dead letters that the other options mean.")
_YES = click.option("--yes", is_flag=True, help="With --all: do it, and not only say how many.")
_FORCE = click.option("--force", is_flag=True, help="Also what is no dead letter.")
_WHO = click.option("--principal", metavar="ID", help="Who does it, for the audit. Otherwise your user name.")


@click.group(short_help="List, retry or drop what entities left to do.", invoke_without_command=True)
@common
@click.pass_context
def effects(context: click.Context) -> None:
    """List, retry or drop what entities left to do: calls and invokes, timers, sends, messages."""
    if context.invoked_subcommand is None:
        raise click.UsageError("say what to do: ls, retry or drop")


@example(
    "interlock effects ls --dead",
    "interlock effects ls --entity order/A-1",
    "interlock effects ls --chart orders:charts",
)
@effects.command(short_help="List what entities left to do.")
@words("")
@_DEAD
@_NAME
@_ENTITY
@_LANE
@click.option("--limit", type=click.IntRange(1, PAGE_MAX), default=50, metavar="N", help="Rows at most (50).")
@click.option("--after", metavar="CURSOR", help="Go on after the last page.")
@chart_option
@json_option
@common
@pass_terminal
def ls(
    terminal: Terminal,
    words: tuple[str, ...],
    *,
    dead: bool,
    name: str | None,
    entity: str | None,
    lane: str | None,
    limit: int,
    after: str | None,
    charts: tuple[str, ...],
    as_json: bool,
) -> int:
    """List work with its key, what it is, how it stands, its age, and why it last failed.

    Needs no chart. With --chart module:name it also says which handlers are missing there.
    """
    url, _ = split_words(words)
    if entity is not None:
        check_entity(entity)
    handlers = _handlers(charts)
    query = WorkQuery(
        lane=cast("Lane | None", lane),
        name=name,
        entity=entity,
        dead=True if dead else None,
        after=after,
        limit=limit,
    )

    async def work() -> tuple[WorkPage, int]:
        async with _desk(url) as (_, store, clock):
            page = await store.works(query)
            while not page.rows and page.after is not None:  # ends with a row or the last page: one may be empty
                page = await store.works(replace(query, after=page.after))
            return page, clock.now_ms()

    page, now_ms = run(work())
    if as_json:
        rows = [work_json(row, work_status(row, now_ms=now_ms, handlers=handlers)) for row in page.rows]
        terminal.data(values.json_text({"rows": rows, "after": page.after}))
        return exit_codes.OK
    for line in work_lines(page.rows, now_ms, handlers):
        terminal.report(*line)
    _advise(terminal, page.rows, now_ms, handlers)
    if page.after is not None:
        terminal.message((f"more: --after '{page.after}'", "dim"))
    if not page.rows:
        terminal.message("no dead letters" if dead else "nothing is left to do")
    return exit_codes.OK


def _acting(act: Act, verb: str) -> Callable[..., int]:
    """The body of `retry` and `drop`: they differ in what is done and how it is called."""

    def body(terminal: Terminal, words: tuple[str, ...], **options: Any) -> int:
        url, keys = split_names(words)
        if bool(keys) == options["whole"]:
            raise click.UsageError("name the work by its key, or all dead letters with --all")
        if options["whole"] and options["force"]:
            raise click.UsageError("--force goes with a key, not with --all")
        for key in keys:
            checked_key(key)
        if options["entity"] is not None:
            check_entity(options["entity"])
        who = options["principal"] or _user()

        async def work() -> int:
            async with _desk(url) as (desk, _, _):
                if keys:
                    for key in keys:
                        await desk.act(act, await desk.found(key), principal=who, force=options["force"])
                        terminal.report((key, "bold"), f" {verb}")
                    return exit_codes.OK
                found = _dead(options)
                count = sum([1 async for _ in desk.all(found)])
                if not options["yes"]:
                    told = values.counted(count, "dead letter", "dead letters")
                    terminal.report(f"{told} would be {verb}; add --yes to do it")
                    return exit_codes.FINDINGS
                return await _each(terminal, desk, found, lambda row: desk.act(act, row, principal=who), verb)

        return run(work())

    return body


async def _each(
    terminal: Terminal, desk: WorkOperations, query: WorkQuery, done: Callable[[WorkRow], Awaitable[None]], verb: str
) -> int:
    # Read first: what is retried leaves the list while it is walked.
    rows, kept = [row async for row in desk.all(query)], 0
    for row in rows:
        try:
            await done(row)
        except RejectedError as error:  # the others are done all the same
            kept += 1
            terminal.failure(str(error))
            continue
        if terminal.verbose:
            terminal.report((key_of(row), "bold"), f" {verb}")
    terminal.report(f"{values.counted(len(rows) - kept, 'dead letter', 'dead letters')} {verb}")
    return exit_codes.REJECTED if kept else exit_codes.OK


@example("interlock effects retry order/A-1/3/0", "interlock effects retry --all --name receipt.mail --yes")
@effects.command(short_help="Let dead letters be tried again.")
@words("[KEY...]")
@_ALL
@_DEAD
@_NAME
@_ENTITY
@_LANE
@_YES
@_FORCE
@_WHO
@common
@pass_terminal
def retry(terminal: Terminal, /, words: tuple[str, ...], **options: Any) -> int:
    """Let dead letters be tried again, each under its own key and from its first attempt.

    KEY is kind/id/version/ordinal. With --all every dead letter that --name, --entity and --lane mean: without --yes it
    only says how many, and ends with 1. With --force also work that waits for its next try, or that a worker holds: its
    lease is broken. A worker that is still alive may then run beside the next one for a while.
    """
    return _acting("retry", "retried")(terminal, words, **options)


@example("interlock effects drop order/A-1/3/0")
@effects.command(short_help="Forget dead letters.")
@words("[KEY...]")
@_ALL
@_DEAD
@_NAME
@_ENTITY
@_LANE
@_YES
@_FORCE
@_WHO
@common
@pass_terminal
def drop(terminal: Terminal, /, words: tuple[str, ...], **options: Any) -> int:
    """Forget dead letters: they are not tried again.

    With --force also living work; a chart that waits for its result then waits until somebody sends it an event.
    """
    return _acting("drop", "dropped")(terminal, words, **options)


def _dead(options: dict[str, Any]) -> WorkQuery:
    return WorkQuery(lane=options["lane"], name=options["name"], entity=options["entity"], dead=True)


def _handlers(charts: tuple[str, ...]) -> frozenset[str] | None:
    """The handlers that the named charts bring; None when no chart was named, or none of them has code."""
    if not charts:
        return None
    found = loaded_charts(charts)
    return frozenset(name for each in found for name in each.handlers)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user id without a name, as in many containers
        return f"uid {os.getuid()}"


@asynccontextmanager
async def _desk(url: str) -> AsyncIterator[tuple[WorkOperations, WorkStore, SystemClock]]:
    await check_store(url)
    store, clock = await open_store(url), SystemClock()
    try:
        desk = WorkOperations(store, clock)
        assert isinstance(store, WorkStore)  # else there is no desk
        yield desk, store, clock
    finally:
        await store.close()


def _advise(terminal: Terminal, rows: Sequence[WorkRow], now_ms: int, handlers: frozenset[str] | None) -> None:
    """What to do next about what does not go on by itself."""
    stand = [(row, work_status(row, now_ms=now_ms, handlers=handlers)) for row in rows]
    dead = sum(each.word == "dead" for _, each in stand)
    if dead:
        letters = values.counted(dead, "dead letter waits", "dead letters wait")
        terminal.message((f"{letters} for a person: interlock effects retry KEY, or drop KEY", "dim"))
    missing = dict.fromkeys(_what(row).removeprefix("child ") for row, each in stand if each.missing)
    if missing:
        told = f"nobody here performs {', '.join(missing)}: run a process that does, with interlock run"
        terminal.message((told, "dim"))


# What work looks like


def work_lines(rows: Sequence[WorkRow], now_ms: int, handlers: frozenset[str] | None) -> Iterator[Line]:
    """A line for each: key, what it is, how it stands, age, and why it failed."""
    told = [(row, work_status(row, now_ms=now_ms, handlers=handlers)) for row in rows]
    texts = [(key_of(row), _what(row), _state(row, stands, now_ms)) for row, stands in told]
    widths = [max((len(each[column]) for each in texts), default=0) for column in range(3)]
    for (row, stands), (key, what, state) in zip(told, texts, strict=True):
        style = {"dead": "bold red", "retry": "yellow", "called_off": "dim"}.get(stands.word, "")
        painted: Part = (f"{state:<{widths[2]}}", style) if style else f"{state:<{widths[2]}}"
        yield (
            (f"{key:<{widths[0]}}", "bold"),
            f"  {what:<{widths[1]}}  ",
            painted,
            f"  {_age(row, now_ms)}{_why(row)}",
        )


def troubled_lines(entity: str, rows: Sequence[WorkRow], now_ms: int) -> Iterator[Line]:
    """Work of one entity that failed, is dead, or that nobody takes up, and where to go on."""
    stand = [(row, work_status(row, now_ms=now_ms)) for row in rows]
    found = [row for row, each in stand if _is_troubled(row, each, now_ms)]
    for line in work_lines(found, now_ms, None):
        yield (("  work     ", "bold yellow"), *line)
    if found:
        yield ((f"  next     interlock effects ls --entity {entity}", "dim"),)


def _is_troubled(row: WorkRow, stands: WorkStatus, now_ms: int) -> bool:
    overdue = stands.word in ("due", "scheduled", "in_hand") and overdue_ms(row, stands, now_ms) > OVERDUE_MS
    return stands.word in ("dead", "retry") or stands.missing or overdue


def _what(row: WorkRow) -> str:
    lane, name = row.work.place.lane, row.work.name
    if name == CHILD_WORK:
        src = row.work.body.get("src") if isinstance(row.work.body, dict) else None
        return f"child {src}"
    return name if lane == "effect" else f"{lane} {name}"


def overdue_ms(row: WorkRow, stands: WorkStatus, now_ms: int) -> int:
    """For how long somebody should have taken it up, or renewed it; below zero where its time has not come.

    What is put off by every process that looks at it, for want of its chart, comes due again and again without being
    begun: it counts from the first time.
    """
    at_ms = now_ms if stands.at_ms is None else stands.at_ms
    first_ms, is_timer = row.work.due_ms, row.work.place.lane == "timer"
    never_begun = row.error is None and (row.attempts == 0 or is_timer) and row.work.name != CHILD_WORK
    if stands.word in ("due", "scheduled") and never_begun and first_ms is not None and at_ms <= now_ms + OVERDUE_MS:
        at_ms = min(at_ms, first_ms)
    return now_ms - at_ms


def _state(row: WorkRow, stands: WorkStatus, now_ms: int) -> str:
    at_ms = stands.at_ms or 0
    late_ms = overdue_ms(row, stands, now_ms)
    if stands.word in ("due", "scheduled") and late_ms > OVERDUE_MS:
        text = f"due for {values.age_text(late_ms)}, nobody took it up"
        return f"{text}; nobody here performs it" if stands.missing else text
    text = {
        "dead": f"dead for {values.age_text(now_ms - at_ms)}",
        "called_off": "called off",
        "in_hand": f"in hand by {(row.owner or '')[:12]}, {_until(at_ms, now_ms)}",
        "retry": f"retry {stands.tries}/{stands.tries_max} {_when(at_ms, now_ms)}",
        "due": "waiting",
        "scheduled": f"due {_when(at_ms, now_ms)}",
        "child": f"waits for its child{_child(row)}",
        "behind": "waits for those before it",
    }[stands.word]
    return f"{text}; nobody here performs it" if stands.missing else text


def _child(row: WorkRow) -> str:
    """Which entity it is, where that can be told from the row: a chart written in place has a kind of its own."""
    src, invokeid = row.work.body.get("src"), row.work.body.get("id")
    if not isinstance(src, str) or not isinstance(invokeid, str) or "." in src:
        return ""
    return f" {child_entity(src, invokeid, key_of(row), restarts=row.failures)}"


def _when(at_ms: int, now_ms: int) -> str:
    return f"in {values.age_text(at_ms - now_ms)}" if at_ms > now_ms else "now"


def _until(at_ms: int, now_ms: int) -> str:
    left = at_ms - now_ms
    return f"{values.age_text(left)} left" if left > 0 else f"lapsed {values.age_text(-left)} ago"


def _age(row: WorkRow, now_ms: int) -> str:
    """How long ago it was born; of a timer, nothing: its time is all that is known."""
    if row.work.due_ms is None or row.work.place.lane == "timer":
        return "-"
    return f"{values.age_text(now_ms - row.work.due_ms)} old"


def _why(row: WorkRow) -> str:
    if not isinstance(row.error, dict) or "code" not in row.error:
        return ""
    message, hint = (str(row.error.get(part) or "").replace("\n", "\\n") for part in ("message", "hint"))
    why = f"  {row.error['code']}: {message}" if message else f"  {row.error['code']}"
    return f"{why} ({hint})" if hint else why


def work_json(row: WorkRow, stands: WorkStatus) -> dict[str, Any]:
    """A row for programs. What it was given is left out: it may be secret, and stands in the journal."""
    return {
        "key": key_of(row),
        "entity": row.entity,
        "lane": row.work.place.lane,
        "version": row.work.place.version,
        "ordinal": row.work.place.ordinal,
        "name": row.work.name,
        "state": stands.word,
        "missing": stands.missing,
        "attempts": row.attempts,
        "failures": row.failures,
        "next_ms": row.next_ms,
        "owner": row.owner,
        "dead_ms": row.dead_ms,
        "cancelled": row.cancelled,
        "error": row.error,
    }

"""`interlock effects`: list, retry or drop work.

Rule: each line starts with the key of the work, which `retry` and `drop` take.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

import click

from interlock.cli import exit_codes
from interlock.cli.options import (
    chart_option,
    common,
    example,
    json_option,
    page_options,
    pass_terminal,
    user_name,
    words,
)
from interlock.cli.output.terminal import Terminal
from interlock.cli.output.values import count_text, json_text
from interlock.cli.output.work import failed_attempt_lines, handler_text, work_json, work_lines
from interlock.cli.project import load_charts, split_names, split_words
from interlock.cli.session import check_exists, check_readable, run
from interlock.effects.unsupported_work import work_unsupported
from interlock.errors import RejectedError
from interlock.model.journal.work import Lane
from interlock.observe.work_status import work_status
from interlock.operate.dead_letters import Act, WorkOperations, key_of, parse_key
from interlock.ports.clock import SystemClock
from interlock.ports.reading.paging import first_page
from interlock.ports.store import Store
from interlock.ports.work import WorkPage, WorkQuery, WorkRow
from interlock.runtime.request_checks import check_entity
from interlock.stores.registry import open_store as open_store_url

LANES = ("effect", "timer", "outbox", "message")

_NAME = click.option("--name", metavar="NAME", help="Only work of this handler, or to this address.")
_ENTITY = click.option("--entity", metavar="KIND/ID", help="Only work of this entity.")
_LANE = click.option(
    "--lane", type=click.Choice(LANES), help="effect: calls and invokes; outbox: events for other entities."
)
_ALL = click.option("--all", "all_rows", is_flag=True, help="All dead letters that match the other options.")
_YES = click.option("--yes", is_flag=True, help="With --all: make the change; without --yes, only count.")
_FORCE = click.option("--force", is_flag=True, help="Also act on work that is not a dead letter.")
_PRINCIPAL = click.option("--principal", metavar="ID", help="Your name in the audit log (default: your user name).")


@example(
    "interlock effects ls --dead",
    "interlock effects retry order/A-1/3/0",
)
@click.group(invoke_without_command=True)
@common
@click.pass_context
def effects(context: click.Context) -> None:
    """Work is what entities requested: calls and invokes, timers, events for other entities, and messages."""
    if context.invoked_subcommand is None:
        raise click.UsageError("missing command: ls, retry or drop")


@example(
    "interlock effects ls --dead",
    "interlock effects ls --entity order/A-1",
    "interlock effects ls --chart orders:charts",
)
@effects.command
@words("")
@click.option("--dead", is_flag=True, help="Only dead letters.")
@_NAME
@_ENTITY
@_LANE
@page_options
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
    """Prints the key, handler, status, age and last error of each item.

    Needs no chart. With --chart module:name it also shows for which work that chart lacks a handler. With -v it also
    shows each failed attempt.
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
        await check_readable(url)
        async with _open_store(url) as store:
            if store.work is None:
                raise work_unsupported()
            return await first_page(store.work.list_work, query), SystemClock().now_ms()

    page, now_ms = run(work())
    if as_json:
        rows = [work_json(row, work_status(row, now_ms=now_ms, handlers=handlers)) for row in page.rows]
        terminal.data(json_text({"rows": rows, "after": page.after}))
        return exit_codes.OK
    for row, line in zip(page.rows, work_lines(page.rows, now_ms, handlers), strict=True):
        terminal.report(*line)
        if terminal.verbose:
            for each in failed_attempt_lines(row):
                terminal.report(*each)
    _print_advice(terminal, page.rows, now_ms, handlers)
    if page.after is not None:
        terminal.message((f"more: --after '{page.after}'", "dim"))
    if not page.rows:
        terminal.message("no dead letters" if dead else "no pending work")
    return exit_codes.OK


@example("interlock effects retry order/A-1/3/0", "interlock effects retry --all --name receipt.mail --yes")
@effects.command
@words("[KEY...]")
@_ALL
@_NAME
@_ENTITY
@_LANE
@_YES
@_FORCE
@_PRINCIPAL
@common
@pass_terminal
def retry(terminal: Terminal, /, words: tuple[str, ...], **options: Any) -> int:
    """A dead letter is work that failed too often to be tried again. It is retried from the first attempt, with the
    same key. KEY is kind/id/version/ordinal, as `interlock effects ls` prints it.

    --all selects every dead letter that matches --name, --entity and --lane. Without --yes it only counts them, with
    exit code 1.

    --force also retries work that waits for its next attempt, or is running: it breaks the lease. The worker that still
    runs it may then overlap with the next attempt.
    """
    return _act("retry", "retried", terminal, words, options)


@example("interlock effects drop order/A-1/3/0")
@effects.command
@words("[KEY...]")
@_ALL
@_NAME
@_ENTITY
@_LANE
@_YES
@_FORCE
@_PRINCIPAL
@common
@pass_terminal
def drop(terminal: Terminal, /, words: tuple[str, ...], **options: Any) -> int:
    """Dropped work is never retried, and the entity gets no result.

    --force also drops work that is not a dead letter. A chart that waits for its result then waits until it receives
    another event.
    """
    return _act("drop", "dropped", terminal, words, options)


def _act(act: Act, verb: str, terminal: Terminal, words: tuple[str, ...], options: dict[str, Any]) -> int:
    """Retry or drop the named work, or all dead letters."""
    url, keys = split_names(words)
    if bool(keys) == options["all_rows"]:
        raise click.UsageError("give keys of work, or --all for all dead letters")
    if options["all_rows"] and options["force"]:
        raise click.UsageError("--force needs a key and cannot be used with --all")
    for key in keys:
        parse_key(key)
    if options["entity"] is not None:
        check_entity(options["entity"])
    principal = options["principal"] or user_name()
    query = WorkQuery(lane=options["lane"], name=options["name"], entity=options["entity"], dead=True)

    async def work() -> int:
        await check_exists(url)
        async with _open_store(url) as store:
            operations = WorkOperations(store, SystemClock())
            if keys:
                for key in keys:
                    row = await operations.find(key)
                    await operations.act(act, row, principal=principal, force=options["force"])
                    terminal.report((key, "bold"), f" {verb}")
                return exit_codes.OK
            rows = [row async for row in operations.all(query)]
            if not options["yes"]:
                count = count_text(len(rows), "dead letter", "dead letters")
                terminal.report(f"{count} would be {verb}; add --yes to do it")
                return exit_codes.FINDINGS
            return await act_on_rows(terminal, rows, lambda row: operations.act(act, row, principal=principal), verb)

    return run(work())


async def act_on_rows(
    terminal: Terminal, rows: Sequence[WorkRow], act: Callable[[WorkRow], Awaitable[None]], verb: str
) -> int:
    """Act on each row and print how many succeeded. A rejected row does not stop the others."""
    rejected = 0
    for row in rows:
        try:
            await act(row)
        except RejectedError as error:
            rejected += 1
            terminal.failure(error.message, error.hint)
            continue
        if terminal.verbose:
            terminal.report((key_of(row), "bold"), f" {verb}")
    terminal.report(f"{count_text(len(rows) - rejected, 'dead letter', 'dead letters')} {verb}")
    return exit_codes.REJECTED if rejected else exit_codes.OK


@asynccontextmanager
async def _open_store(url: str) -> AsyncIterator[Store]:
    store = await open_store_url(url)
    try:
        yield store
    finally:
        await store.close()


def _handlers(charts: tuple[str, ...]) -> frozenset[str] | None:
    """The handlers of the given charts; None if no chart is given."""
    if not charts:
        return None
    return frozenset(name for each in load_charts(charts) for name in each.handlers)


def _print_advice(terminal: Terminal, rows: Sequence[WorkRow], now_ms: int, handlers: frozenset[str] | None) -> None:
    """Print what to do about work that needs attention."""
    statuses = [(row, work_status(row, now_ms=now_ms, handlers=handlers)) for row in rows]
    dead = sum(each.word == "dead" for _, each in statuses)
    if dead:
        letters = count_text(dead, "dead letter needs", "dead letters need")
        terminal.message((f"{letters} attention: interlock effects retry KEY, or drop KEY", "dim"))
    missing = dict.fromkeys(handler_text(row).removeprefix("child ") for row, each in statuses if each.handler_missing)
    if missing:
        text = f"no handler for {', '.join(missing)}: start a worker that has it, with interlock run"
        terminal.message((text, "dim"))

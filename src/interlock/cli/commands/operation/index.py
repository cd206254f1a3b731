"""`interlock db index`: build, drop and show the indexes on context fields of a store."""

from __future__ import annotations

import click

from interlock.cli import exit_codes
from interlock.cli.options import chart_option, common, example, json_option, pass_terminal, words
from interlock.cli.output.progress import Progress
from interlock.cli.output.terminal import Terminal
from interlock.cli.output.values import json_text
from interlock.cli.project import load_known_charts, split_words
from interlock.cli.session import open_for_reading, open_for_writing, run
from interlock.errors import NotFoundError, UsageError
from interlock.model.encoding.codec import to_builtins
from interlock.ports.reading.field_indexes import FieldIndexes, IndexStatus
from interlock.runtime.runtime import Runtime

BUILD_PAGE = 500
"""Entities of one transaction: some tens of milliseconds, in which other writers of SQLite wait."""

DROP_PAGE = 2_000
"""Rows deleted in one transaction."""


@example("interlock db index status", "interlock db index build sqlite:///orders.db order")
@click.group(invoke_without_command=True)
@common
@click.pass_context
def index(context: click.Context) -> None:
    """A chart declares an index with `index: true` on a context field; from then on every step maintains it."""
    if context.invoked_subcommand is None:
        raise click.UsageError("missing command: build, drop or status")


@example("interlock db index build", "interlock db index build order customer --chart order.interlock.yaml")
@index.command
@words("[KIND] [FIELD]")
@chart_option
@json_option
@common
@pass_terminal
def build(terminal: Terminal, words: tuple[str, ...], *, charts: tuple[str, ...], as_json: bool) -> int:
    """Adds the entities that existed before the index. Indexes that the charts declare and the store lacks are created
    first.

    Other processes can send meanwhile. You can interrupt the command and repeat it.
    """
    url, (kind, field) = split_words(words, "KIND", "FIELD", optional=2)
    bound = load_known_charts(charts)

    async def work() -> list[IndexStatus]:
        async with open_for_writing(url, bound) as runtime:
            indexes = _indexes_of(runtime)
            chosen = _chosen(await indexes.indexes(), kind, field)
            return [await _build(terminal, indexes, each) for each in chosen]

    found = run(work())
    _print(terminal, found, as_json=as_json)
    return exit_codes.OK


async def _build(terminal: Terminal, indexes: FieldIndexes, status: IndexStatus) -> IndexStatus:
    with Progress(terminal, f"entities of {status.kind} by {status.field}") as progress:
        while status.state == "building":
            after = await indexes.build_index(status.kind, status.field, limit=BUILD_PAGE)
            if after is None:
                raise _unknown(status.kind, status.field)
            status = after
            progress.at(status.done)
    return status


@example("interlock db index drop order customer")
@index.command
@words("KIND FIELD")
@json_option
@common
@pass_terminal
def drop(terminal: Terminal, words: tuple[str, ...], *, as_json: bool) -> int:
    """First remove `index: true` from the chart: a process that opens the chart creates the index again.

    Other processes can send meanwhile. You can interrupt the command and repeat it.
    """
    url, (kind, field) = split_words(words, "KIND", "FIELD")
    assert kind is not None
    assert field is not None

    async def work() -> None:
        async with open_for_writing(url) as runtime:
            indexes = _indexes_of(runtime)
            _chosen(await indexes.indexes(), kind, field)
            while await indexes.drop_index(kind, field, limit=DROP_PAGE) is not None:
                pass

    run(work())
    if as_json:
        terminal.data(json_text({"kind": kind, "field": field, "dropped": True}))
    else:
        terminal.report(f"dropped the index on {kind}.{field}")
    return exit_codes.OK


@example("interlock db index status")
@index.command
@words("[KIND]")
@json_option
@common
@pass_terminal
def status(terminal: Terminal, words: tuple[str, ...], *, as_json: bool) -> int:
    """Exit code 1 if an index is not complete."""
    url, (kind,) = split_words(words, "KIND", optional=1)

    async def work() -> list[IndexStatus]:
        async with open_for_reading(url) as runtime:
            found = await _indexes_of(runtime).indexes()
            return [each for each in found if kind in (None, each.kind)]

    found = run(work())
    _print(terminal, found, as_json=as_json)
    return exit_codes.OK if all(each.state == "ready" for each in found) else exit_codes.FINDINGS


def _indexes_of(runtime: Runtime) -> FieldIndexes:
    indexes = runtime.store.field_indexes
    if indexes is None:
        hint = "it finds entities by reading them one by one; use SQLite or PostgreSQL for indexes"
        raise UsageError("this store has no indexes on fields", code="index.unsupported", hint=hint)
    return indexes


def _chosen(indexes: tuple[IndexStatus, ...], kind: str | None, field: str | None) -> list[IndexStatus]:
    """The indexes of a kind or of all kinds, or one of them. Raises NotFoundError for one that does not exist."""
    found = [each for each in indexes if kind in (None, each.kind) and field in (None, each.field)]
    if not found and field is not None:
        raise _unknown(kind or "", field)
    return found


def _unknown(kind: str, field: str) -> NotFoundError:
    hint = "`interlock db index status` lists the indexes; `index: true` on a context field declares one"
    return NotFoundError(f"the store has no index on {kind}.{field}", code="index.unknown", hint=hint)


def _print(terminal: Terminal, found: list[IndexStatus], *, as_json: bool) -> None:
    if as_json:
        terminal.data(
            json_text(
                [{name: value for name, value in to_builtins(each).items() if name != "cursor"} for each in found]
            )
        )
        return
    for each in found:
        progress = f", {each.done:,} entities so far" if each.state == "building" else ""
        terminal.report((f"{each.kind}.{each.field}", "bold"), f"  {each.form}  {each.state}{progress}")
    if not found:
        terminal.message("no indexes")

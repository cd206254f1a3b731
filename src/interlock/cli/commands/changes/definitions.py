"""`interlock db definitions`: the definitions that a store keeps."""

from __future__ import annotations

import click

from interlock.assemble.charts import format_writer, load
from interlock.cli import exit_codes
from interlock.cli.options import common, example, json_option, pass_terminal, words
from interlock.cli.output.terminal import Terminal
from interlock.cli.output.values import json_text, time_text
from interlock.cli.project import split_names, split_words
from interlock.cli.session import open_for_reading, open_for_writing, run
from interlock.errors import NotFoundError, UsageError
from interlock.model.encoding.codec import to_builtins
from interlock.ports.definitions import Definitions, Edition
from interlock.ports.store import Store
from interlock.runtime.charts.revisions import make_definition


@example("interlock db definitions list", "interlock db definitions add order.interlock.yaml")
@click.group(invoke_without_command=True)
@common
@click.pass_context
def definitions(context: click.Context) -> None:
    """A store keeps the definitions of all charts that wrote to it: every text of every revision."""
    if context.invoked_subcommand is None:
        raise click.UsageError("missing command: list, show or add")


@example("interlock db definitions list", "interlock db definitions list sqlite:///orders.db order")
@definitions.command("list")
@words("[KIND]")
@json_option
@common
@pass_terminal
def list_definitions(terminal: Terminal, words: tuple[str, ...], *, as_json: bool) -> int:
    """Oldest first: sequence number, revision, label, time, and other names."""
    url, (kind,) = split_words(words, "KIND", optional=1)

    async def work() -> tuple[Edition, ...]:
        async with open_for_reading(url) as runtime:
            return await _kept_definitions(runtime.store).list_definitions(kind)

    found = run(work())
    if as_json:
        terminal.data(json_text(to_builtins(found)))
        return exit_codes.OK
    for each in found:
        names = ", ".join(name for name in each.names if name != each.written_name)
        written = "" if each.written_name == each.revision else f"  written as {each.written_name}"
        facts = f"  {each.label or '-'}  {time_text(each.saved_ms)}{written}{f'  also {names}' if names else ''}"
        terminal.report((f"{each.sequence:4}  ", "dim"), (each.kind, "bold"), f"  {each.revision}{facts}")
    if not found:
        terminal.message("no definitions")
    return exit_codes.OK


@example("interlock db definitions show order", "interlock db definitions show order 1.0.0 --to yaml")
@definitions.command("show")
@words("KIND [REVISION]")
@click.option("--to", "target", default="json", metavar="FORMAT", help="A format of `convert` (default json).")
@common
@pass_terminal
def show_definition(terminal: Terminal, words: tuple[str, ...], *, target: str) -> int:
    """REVISION is a name or a label; the default is the newest revision."""
    url, (kind, revision) = split_words(words, "KIND", "REVISION", optional=1)
    assert kind is not None
    write = format_writer(target)

    async def work() -> str:
        async with open_for_reading(url) as runtime:
            editions = await _kept_definitions(runtime.store).list_definitions(kind)
            if not editions:
                raise NotFoundError(f"the store has no definition of kind `{kind}`", code="kind.unknown")
            labelled = [each.revision for each in editions if revision in (None, each.label)]
            name = labelled[-1] if labelled else revision
            assert name is not None
            chart = await runtime.revisions.chart(kind, name)
            assert chart.document is not None
            return write(chart.document).text

    terminal.data(run(work()))
    return exit_codes.OK


@example("interlock db definitions add order-1.0.0.yaml")
@definitions.command("add")
@words("FILE...")
@json_option
@common
@pass_terminal
def add_definitions(terminal: Terminal, words: tuple[str, ...], *, as_json: bool) -> int:
    """Use it for a revision that the store lacks. Saving a definition again changes nothing.

    Every process can then step entities of that revision, if it has the Python functions that the definition names.
    """
    url, files = split_names(words)
    if not files:
        raise click.UsageError("missing argument 'FILE'")
    made = [make_definition(load(each).chart) for each in files]

    async def work() -> list[Edition]:
        async with open_for_writing(url) as runtime:
            kept, now_ms = _kept_definitions(runtime.store), runtime.clock.now_ms()
            return [await kept.save_definition(each, now_ms=now_ms) for each in made if each is not None]

    found = run(work())
    if as_json:
        terminal.data(json_text(to_builtins(found)))
        return exit_codes.OK
    for each in found:
        terminal.report((each.kind, "bold"), f"  {each.revision}  {each.label or '-'}  number {each.sequence}")
    return exit_codes.OK


def _kept_definitions(store: Store) -> Definitions:
    if store.definitions is None:
        raise UsageError("this store keeps no definitions", code="store.definitions", hint="use sqlite: or file:")
    return store.definitions

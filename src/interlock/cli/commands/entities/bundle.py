"""`interlock bundle`: one entity with its journal, its children and their definitions as one file."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from interlock.cli import exit_codes
from interlock.cli.options import chart_option, common, example, json_option, pass_terminal, words
from interlock.cli.output.terminal import Terminal
from interlock.cli.output.values import count_text, json_text
from interlock.cli.project import load_charts, load_known_charts, split_words
from interlock.cli.session import open_for_reading, open_or_create, run
from interlock.errors import NotFoundError
from interlock.model.encoding.codec import to_builtins
from interlock.model.limits import BUNDLE_LINE_BYTES_MAX
from interlock.runtime.history.bundle import BundleReader, BundleSummary, export_bundle, import_bundle


@example(
    "interlock bundle export order/A-1 -o A-1.bundle",
    "interlock bundle import sqlite:///laptop.db A-1.bundle",
)
@click.group
@common
def bundle() -> None:
    """A bundle is one file. It contains every payload of the entity: protect it like the store."""


@example("interlock bundle export order/A-1 -o A-1.bundle")
@bundle.command("export")
@words("KIND/ID")
@click.option("-o", "--output", required=True, metavar="FILE", help="The file to write; an existing one is replaced.")
@click.option("--no-children", is_flag=True, help="Do not include the child entities that it invoked.")
@chart_option
@json_option
@common
@pass_terminal
def export_command(
    terminal: Terminal,
    words: tuple[str, ...],
    *,
    output: str,
    no_children: bool,
    charts: tuple[str, ...],
    as_json: bool,
) -> int:
    """The definitions come from the store, --chart and the project. Exit code 7 if the definition of an entry is
    missing.
    """
    url, (entity,) = split_words(words, "KIND/ID")
    assert entity is not None
    bound = load_charts(charts) if charts else load_known_charts(charts)

    async def work(write: Callable[[bytes], Any]) -> BundleSummary:
        async with open_for_reading(url, bound) as runtime:
            now_ms = runtime.clock.now_ms()
            return await export_bundle(
                runtime.store, entity, runtime.revisions, write, now_ms=now_ms, children=not no_children
            )

    path = Path(output)
    partial = path.with_name(f"{path.name}.part")
    try:
        with open(partial, "wb", opener=_private) as file:
            summary = run(work(file.write))
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    finally:
        with suppress(FileNotFoundError):
            partial.unlink()
    _report(terminal, summary, f"wrote {output}", as_json=as_json)
    return exit_codes.OK


def _private(path: str, flags: int) -> int:
    """Open a file that only its owner can read."""
    return os.open(path, flags | os.O_TRUNC, 0o600)


@example("interlock bundle import sqlite:///laptop.db A-1.bundle")
@bundle.command("import")
@words("FILE")
@click.option("--with-work", is_flag=True, help="Let workers run its pending timers and invokes.")
@chart_option
@json_option
@common
@pass_terminal
def import_command(
    terminal: Terminal, words: tuple[str, ...], *, with_work: bool, charts: tuple[str, ...], as_json: bool
) -> int:
    """Replays every entry before it writes any. Repeating an import changes nothing; a store that does not exist is
    created.

    The bundle contains the definitions. If they name Python functions, pass the code with --chart module:name. Exit
    code 3 if the store has the entity with other entries, 8 if the bundle is damaged.
    """
    url, (name,) = split_words(words, "FILE")
    assert name is not None
    path = Path(name)
    if not path.is_file():
        raise NotFoundError(f"file {name} does not exist", code="file.not_found")
    reader = BundleReader(lambda: _lines(path))
    bound = load_charts(charts) if charts else load_known_charts(charts)

    async def work() -> BundleSummary:
        async with open_or_create(url, bound) as runtime:
            now_ms = runtime.clock.now_ms()
            return await import_bundle(runtime.store, reader, runtime.revisions, now_ms=now_ms, with_work=with_work)

    summary = run(work())
    _report(terminal, summary, f"imported {summary.entity}", as_json=as_json)
    if summary.held and not as_json:
        held = count_text(summary.held, "timer or invoke is", "timers and invokes are")
        terminal.message(f"{held} pending, and no worker will run them; --with-work would")
    return exit_codes.OK


def _lines(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while line := file.readline(BUNDLE_LINE_BYTES_MAX):
            yield line


def _report(terminal: Terminal, summary: BundleSummary, done: str, *, as_json: bool) -> None:
    if as_json:
        terminal.data(json_text(to_builtins(summary)))
        return
    entities = count_text(len(summary.entities), "entity", "entities")
    entries = count_text(summary.entries, "entry", "entries")
    present = f", {summary.present:,} were there before" if summary.present else ""
    definitions = count_text(summary.definitions, "definition", "definitions")
    terminal.report((done, "bold"), f": {entities}, {entries}{present}, {definitions}")

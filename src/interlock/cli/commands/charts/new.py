"""`interlock new`: a project with a chart, its handlers and a test that passes.

Rule 1: nothing is overwritten and no folder is half complete: the files are written to a temporary folder, which is
then renamed.
Rule 2: the result is an ordinary project of few files; nothing has to be generated again.
"""

from __future__ import annotations

import re
import shutil
from importlib.resources import files
from pathlib import Path
from tempfile import mkdtemp

import click

from interlock.cli import exit_codes
from interlock.cli.options import common, example, pass_terminal
from interlock.cli.output.terminal import Terminal
from interlock.cli.output.values import json_text
from interlock.definition.schema import json_schema
from interlock.errors import NotFoundError, UsageError

TEMPLATES = ("order", "blank")
SUFFIX = ".in"
SCHEMA = "interlock.schema.json"

NEXT = "cd {folder} && pip install -r requirements.txt && python -m pytest, then README.md"
"""The requirements come first: a pytest of another environment would not find interlock."""

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,62}")


@example("interlock new shop", "interlock new parcels/return --template blank")
@click.command
@click.argument("folder", metavar="NAME", type=click.Path(path_type=Path))
@click.option(
    "--template",
    type=click.Choice(TEMPLATES),
    default="order",
    help="A complete order, or a small chart (default order).",
)
@common
@pass_terminal
def new(terminal: Terminal, folder: Path, *, template: str) -> int:
    """NAME is the new folder, or a path to it; an existing folder must be empty.

    The template `order` is a complete example; `blank` is a small chart with the name of the folder.
    """
    name = folder.name
    if not _NAME.fullmatch(name):
        hint = "use letters, digits, _ and -, starting with a letter, such as parcel-return"
        raise UsageError(f"invalid chart name `{name}`", code="new.name", hint=hint)
    _check_free(folder)
    try:
        temporary = Path(mkdtemp(prefix=f".{name}-", dir=folder.parent))
    except OSError as error:  # with the name that the user gave
        raise OSError(error.errno, error.strerror, str(folder)) from error
    try:
        written = _fill(temporary, template, name)
        temporary.chmod(0o755)  # mkdtemp makes it private
        temporary.replace(folder)  # replaces an empty folder; fails if it has files now
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    for each in written:
        terminal.report(("  ", "dim"), f"{folder / each}")
    terminal.message(("created", "bold green"), f" {folder}; next: {NEXT.format(folder=folder)}")
    return exit_codes.OK


def _check_free(folder: Path) -> None:
    """Raise UsageError if the folder exists and is not empty, NotFoundError if its parent does not exist."""
    if not folder.parent.is_dir():
        raise NotFoundError(f"the folder {folder.parent} does not exist", code="file.not_found", hint="create it first")
    if folder.is_dir() and not any(folder.iterdir()):
        return
    if folder.exists() or folder.is_symlink():
        raise UsageError(f"{folder} already exists", code="file.exists", hint="use another name, or move it away")


def _fill(folder: Path, template: str, name: str) -> list[str]:
    """Write the files of a template and the JSON Schema for editors; return their names."""
    chart = name if template == "blank" else template  # the project `shop` has orders
    kind = chart.replace("-", "_")
    written = {SCHEMA: json_text(json_schema())}
    for each in (files("interlock.cli") / "templates" / template).iterdir():
        target = each.name.removesuffix(SUFFIX).replace("chart.", f"{chart}.").replace("test_life", f"test_{kind}")
        text = each.read_text(encoding="utf-8")
        for word, value in (("@name@", name), ("@chart@", chart), ("@kind@", kind)):
            text = text.replace(word, value)
        written[target] = text
    for target, text in written.items():
        (folder / target).write_text(text, encoding="utf-8")
    return sorted(written)

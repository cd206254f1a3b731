"""`interlock new`: a project to begin with: a chart, its handlers, a test that passes, and what to do next.

Rule 1: nothing is overwritten, and nothing half made: the folder is filled beside its place, and then put there.
Rule 2: what it writes is an ordinary project of few files; nothing has to be generated again, ever.
"""

from __future__ import annotations

import re
import shutil
from importlib.resources import files
from pathlib import Path
from tempfile import mkdtemp

import click
import msgspec

from interlock.cli import exit_codes
from interlock.cli.options import common, example, pass_terminal
from interlock.cli.output.terminal import Terminal
from interlock.definition.schema import json_schema
from interlock.errors import NotFoundError, UsageError

TEMPLATES = ("order", "blank")
SUFFIX = ".in"
SCHEMA = "interlock.schema.json"

NEXT = "cd {folder} && pip install -r requirements.txt && python -m pytest, then README.md"
"""The environment of a demo has no pytest; one from elsewhere would be found, and find no interlock."""

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,62}")


@example("interlock new shop", "interlock new parcels/return --template blank")
@click.command(short_help="Make a project: a chart, its handlers and a test.")
@click.argument("folder", metavar="NAME", type=click.Path(path_type=Path))
@click.option(
    "--template", type=click.Choice(TEMPLATES), default="order", help="A whole order, or almost nothing (order)."
)
@common
@pass_terminal
def new(terminal: Terminal, folder: Path, *, template: str) -> int:
    """Make the folder NAME with a chart of that name, its handlers, a test that passes, and a README.

    NAME may be a path; its last part is the name. A folder that has something in it is left alone.
    """
    name = folder.name
    if not _NAME.fullmatch(name):
        hint = "letters, digits, _ and -, beginning with a letter, such as parcel-return"
        raise UsageError(f"`{name}` cannot be the name of a chart", code="new.name", hint=hint)
    _check_free(folder)
    try:
        made = Path(mkdtemp(prefix=f".{name}-", dir=folder.parent))
    except OSError as error:  # it would tell of a name that nobody has given
        raise OSError(error.errno, error.strerror, str(folder)) from error
    try:
        written = _fill(made, template, name)
        made.chmod(0o755)  # mkdtemp keeps others out; a project is an ordinary folder
        made.replace(folder)  # an empty folder gives way; one that was filled meanwhile does not
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise
    for each in written:
        terminal.report(("  ", "dim"), f"{folder / each}")
    terminal.message(("made", "bold green"), f" {folder}; next: {NEXT.format(folder=folder)}")
    return exit_codes.OK


def _check_free(folder: Path) -> None:
    """Raises UsageError when something is there already, NotFoundError when there is no place for it."""
    if not folder.parent.is_dir():
        raise NotFoundError(f"there is no folder {folder.parent}", code="file.not_found", hint="make it first")
    if folder.is_dir() and not any(folder.iterdir()):
        return
    if folder.exists() or folder.is_symlink():
        raise UsageError(f"{folder} is there already", code="file.exists", hint="take another name, or move it away")


def _fill(folder: Path, template: str, name: str) -> list[str]:
    """Write every file of a template, and the schema that editors look for; their names."""
    kind = name.replace("-", "_")
    written = {SCHEMA: msgspec.json.format(msgspec.json.encode(json_schema()), indent=2).decode() + "\n"}
    for each in (files("interlock.cli") / "templates" / template).iterdir():
        target = each.name.removesuffix(SUFFIX).replace("chart.", f"{name}.").replace("test_life", f"test_{kind}")
        written[target] = each.read_text(encoding="utf-8").replace("@name@", name).replace("@kind@", kind)
    for target, text in written.items():
        (folder / target).write_text(text, encoding="utf-8")
    return sorted(written)

"""How every command ends: one line and a documented code, never a traceback, never half a file."""

import errno
import os
import re
import shlex
from importlib import import_module
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import click
import pytest

from interlock.cli import exit_codes
from interlock.cli.exit_codes import exit_code
from interlock.cli.main import commands
from interlock.errors import (
    ConflictError,
    CorruptionError,
    DefinitionError,
    DeniedError,
    Diagnostic,
    InterlockError,
    InternalError,
    MissingExtraError,
    NotFoundError,
    RejectedError,
    UnavailableError,
    UsageError,
)
from tests.support.cli import Caller

CODES = [
    (DefinitionError([Diagnostic(code="a.b", message="m")]), 1),
    (UsageError("m"), 2),
    (ConflictError("m"), 3),
    (DeniedError("m"), 4),
    (RejectedError("m"), 5),
    (NotFoundError("m"), 6),
    (UnavailableError("m"), 7),
    (CorruptionError("m"), 8),
    (MissingExtraError("m"), 9),
    (InternalError("m"), 70),
    (FileNotFoundError(errno.ENOENT, "no such file", "x"), 6),
    (PermissionError(errno.EACCES, "permission denied", "x"), 2),
    (IsADirectoryError(errno.EISDIR, "is a directory", "x"), 2),
    (OSError(errno.ENOSPC, "no space left", "x"), 7),
    (ZeroDivisionError("m"), 70),
]


@pytest.mark.parametrize(("error", "code"), CODES, ids=lambda value: type(value).__name__)
def test_every_error_class_has_its_code(error: Exception, code: int) -> None:
    assert code == exit_code(error)


def test_no_error_class_is_forgotten() -> None:
    classes = set(InterlockError.__subclasses__())
    known = {type(error) for error, _ in CODES}

    assert set() == classes - known


@pytest.mark.parametrize(("error", "code"), CODES, ids=lambda value: type(value).__name__)
def test_every_error_has_a_line_and_an_exit_code(
    error: Exception, code: int, call: Caller, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("interlock.cli.commands.charts.check.read_source", _raising(error))

    ended = call("check", "lamp.yaml")

    assert code == ended.code
    assert "" == ended.out
    assert [each for each in ended.err.splitlines() if not each.startswith("hint: ")][-1].startswith("error: ")
    assert "Traceback" not in ended.err


def test_an_internal_error_explains_how_to_report_it(
    call: Caller, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("interlock.cli.commands.charts.check.read_source", _raising(ZeroDivisionError("nothing")))

    quiet, loud = call("check", "lamp.yaml"), call("-v", "check", "lamp.yaml")

    assert (70, 70) == (quiet.code, loud.code)
    assert "please report it" in quiet.err
    assert "Traceback" not in quiet.err
    assert "Traceback" in loud.err


def test_an_interrupt_is_130(call: Caller, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("interlock.cli.commands.charts.check.read_source", _raising(KeyboardInterrupt()))

    ended = call("check", "lamp.yaml")

    assert 130 == ended.code
    assert "interrupted" in ended.err


def test_a_closed_pipe_is_a_quiet_end(call: Caller, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "interlock.cli.commands.charts.check.read_source", _raising(BrokenPipeError(errno.EPIPE, "closed"))
    )

    ended = call("check", "lamp.yaml")

    assert (0, "", "") == (ended.code, ended.out, ended.err)


def test_every_command_is_listed_and_imports(call: Caller) -> None:
    context = click.Context(commands)
    listed = call("--help").out

    for name in commands.list_commands(context):
        command = commands.get_command(context, name)
        assert command is not None
        assert command.name == name
        assert command.short_help is not None
        assert command.short_help in listed


def _all_commands() -> dict[str, click.Command]:
    """Every command by what one types for it; of a group, those in it."""
    context, found = click.Context(commands), dict[str, click.Command]()
    for name in commands.list_commands(context):
        command = commands.get_command(context, name)
        assert command is not None
        inner = command.commands if isinstance(command, click.Group) else {}
        found |= {f"{name} {each}": inner[each] for each in inner} or {name: command}
    return found


@pytest.mark.parametrize(("name", "command"), _all_commands().items())
def test_every_command_shows_examples_that_its_options_allow(name: str, command: click.Command, call: Caller) -> None:
    lines = [each.strip() for each in call(*name.split(), "--help").out.splitlines()]
    examples = [each for each in lines if each.startswith("interlock ")]

    assert examples
    for each in examples:
        words = shlex.split(each.partition(" | ")[0])
        path = ["interlock", *name.split()]

        assert path == words[: len(path)]
        command.make_context(name, words[len(path) :])  # raises for an option that is not there


@pytest.mark.parametrize("name", commands.list_commands(click.Context(commands)))
def test_every_command_has_help_and_the_common_options(name: str, call: Caller) -> None:
    ended = call(name, "--help")

    assert 0 == ended.code
    assert all(option in ended.out for option in ("--quiet", "--verbose", "--color"))


def test_an_unknown_command_is_not_found(call: Caller) -> None:
    assert commands.get_command(click.Context(commands), "nothing") is None


def test_the_version_of_a_package_that_is_not_installed_is_unknown(
    call: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(_: str) -> str:
        raise PackageNotFoundError

    monkeypatch.setattr("importlib.metadata.version", missing)

    assert "interlock unknown (not installed)\n" == call("--version").out


def test_the_version_is_that_of_the_package(call: Caller) -> None:
    assert re.fullmatch(r"interlock \S+\n", call("--version").out)


def test_the_reference_lists_every_code() -> None:
    page = (Path(__file__).parents[3] / "docs" / "reference" / "cli.md").read_text(encoding="utf-8")
    rows = {int(code) for code in re.findall(r"^\| (\d+) \|", page, re.MULTILINE)}
    codes = {value for name, value in vars(exit_codes).items() if name.isupper() and isinstance(value, int)}

    assert codes <= rows


def test_no_command_is_imported_before_it_is_called() -> None:
    assert "rich" not in vars(import_module("interlock.cli.main"))
    assert "interlock.assemble.charts" not in vars(import_module("interlock.cli.main"))


def test_an_unreadable_file_is_an_error(call: Caller, folder: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("SKIPPED: root may read every file")
    (folder / "lamp.yaml").chmod(0)

    ended = call("check", "lamp.yaml")

    assert (2, "error: lamp.yaml: Permission denied\n") == (ended.code, ended.err)


def _raising(error: BaseException) -> object:
    def raises(*_: object, **__: object) -> None:
        raise error

    return raises

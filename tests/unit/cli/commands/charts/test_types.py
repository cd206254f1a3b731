"""`types` and `draw` with --check: what is written, and when a file is out of date."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from tests.support.cli import LAMP, Caller

WAYS = [("types", "lamp_types.py"), ("draw", "lamp.svg"), ("draw", "lamp.png"), ("draw", "lamp.mmd")]
every_way = pytest.mark.parametrize(("command", "output"), WAYS)


def test_types_are_printed_or_written(call: Caller, folder: Path) -> None:
    printed = call("types", "lamp.yaml")
    written = call("types", "lamp.yaml", "-o", "lamp_types.py")

    assert (0, 0, "wrote lamp_types.py\n") == (printed.code, written.code, written.err)
    assert printed.out == (folder / "lamp_types.py").read_text(encoding="utf-8")


def test_a_chart_with_errors_has_no_types(call: Caller, folder: Path) -> None:
    assert (1, False) == (call("types", "bad.yaml", "-o", "x.py").code, (folder / "x.py").exists())


@every_way
def test_a_fresh_file_is_up_to_date(call: Caller, folder: Path, command: str, output: str) -> None:
    call(command, "lamp.yaml", "-o", output)
    before = (folder / output).stat().st_mtime_ns

    assert 0 == call(command, "lamp.yaml", "-o", output, "--check").code
    assert before == (folder / output).stat().st_mtime_ns


@every_way
def test_a_changed_chart_makes_a_file_stale(call: Caller, folder: Path, command: str, output: str) -> None:
    call(command, "lamp.yaml", "-o", output)
    before = (folder / output).read_bytes()
    (folder / "lamp.yaml").write_text(LAMP.replace("press", "push"), encoding="utf-8")

    ended = call(command, "lamp.yaml", "-o", output, "--check")

    assert (1, before) == (ended.code, (folder / output).read_bytes())


@every_way
def test_a_missing_file_is_stale(call: Caller, folder: Path, command: str, output: str) -> None:
    assert (1, False) == (call(command, "lamp.yaml", "-o", output, "--check").code, (folder / output).exists())


@pytest.mark.parametrize(
    "words",
    [
        ("types", "lamp.yaml", "-o", "a b.py"),
        ("types", "lamp.yaml", "-o", "x.py", "--from", "yaml", "--allow-src"),
        ("draw", "lamp.yaml", "-o", "lamp.svg", "--active", "dark", "--active", "bright"),
        ("draw", "lamp.yaml", "-o", "lamp.svg", "--collapse", "1", "--theme", "dark"),
        ("draw", "lamp.yaml", "-o", "lamp.out", "--format", "dot", "--json"),
    ],
)
def test_the_command_that_is_named_makes_the_check_succeed(call: Caller, folder: Path, words: tuple[str, ...]) -> None:
    stale = call(*words, "--check")
    named = shlex.split(stale.err.partition("run: ")[2])

    assert (1, "interlock") == (stale.code, named[0])
    assert 0 == call(*named[1:]).code
    assert 0 == call(*words, "--check").code


@pytest.mark.parametrize(
    "words",
    [
        ("types", "lamp.yaml", "--check"),
        ("types", "lamp.yaml", "--check", "-o", "-"),
        ("draw", "lamp.yaml", "--check"),
        ("draw", "lamp.yaml", "--check", "-o", "-"),
        ("draw", "lamp.yaml", "--check", "--watch", "-o", "lamp.svg"),
    ],
)
def test_a_check_needs_a_file(call: Caller, folder: Path, words: tuple[str, ...]) -> None:
    assert 2 == call(*words).code

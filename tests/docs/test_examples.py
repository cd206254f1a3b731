"""Runs every example on every page and compares its output.

Rule 1: the blocks of a page run in order, in one empty folder; Python blocks share one namespace.
Rule 2: output that the page shows is compared; a line `...` matches any lines.
Rule 3: a command that exits with another code than 0 is followed by `echo $?`.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import Block, Command, blocks, commands, pages
from tests.tidy.tracked import name

OURS = re.compile(r"^(?:interlock|python3? (?:-m (?:interlock|alembic)|manage\.py|try_it\.py))\b")
ASKS_FOR_EXIT_CODE = "echo $?"


@pytest.mark.parametrize("page", pages(), ids=name)
def test_examples_of_a_page_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "page"
    folder.mkdir()
    monkeypatch.chdir(folder)
    namespace: dict[str, object] = {"__name__": "__page__"}
    environment = _environment(tmp_path)
    for block in blocks(page):
        if block.file:
            _write(folder / block.file, block)
        elif block.skip:
            continue
        elif block.language == "python":
            _run_python(block, page=page, namespace=namespace)
        elif block.language == "console":
            _run_console(block, environment=environment, place=f"{name(page)}:{block.line}")


def _write(path: Path, block: Block) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(block.text, encoding="utf-8")


def _run_python(block: Block, *, page: Path, namespace: dict[str, object]) -> None:
    # The empty lines make a traceback show the line number of the page.
    exec(compile("\n" * (block.line - 1) + block.text, str(page), "exec", dont_inherit=True), namespace)


def _run_console(block: Block, *, environment: dict[str, str], place: str) -> None:
    exit_code: int | None = None
    for command, following in _paired(commands(block)):
        if command.text == ASKS_FOR_EXIT_CODE:
            if exit_code is not None:
                assert f"{exit_code}\n" == command.output, place
            continue
        if not OURS.match(command.text):
            exit_code = None
            continue
        done = subprocess.run(
            ["sh", "-c", command.text],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env=environment,
            text=True,
            check=False,
        )
        exit_code = done.returncode
        if command.output is not None:
            assert _matches(command.output, done.stdout), f"{place}: $ {command.text}\n{done.stdout}"
        if following is None or following.text != ASKS_FOR_EXIT_CODE:
            assert exit_code == 0, f"{place}: $ {command.text}\n{done.stdout}"


def _paired(found: list[Command]) -> list[tuple[Command, Command | None]]:
    return list(zip(found, [*found[1:], None], strict=True))


def _matches(expected: str, actual: str) -> bool:
    pattern = "".join("(?:.*\n)*" if line == "..." else f"{re.escape(line)}\n" for line in _lines(expected))
    return re.fullmatch(pattern, "".join(f"{line}\n" for line in _lines(actual))) is not None


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.rstrip().splitlines()]


def _environment(folder: Path) -> dict[str, str]:
    """Returns an environment in which `interlock` and `python` are the ones under test, with plain output."""
    programs = folder / "bin"
    programs.mkdir()
    for program, arguments in {"interlock": "-m interlock", "python": "", "python3": ""}.items():
        script = programs / program
        script.write_text(f'#!/bin/sh\nexec "{sys.executable}" {arguments} "$@"\n', encoding="utf-8")
        script.chmod(0o755)
    paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    return os.environ | {
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join(str(Path(path).resolve()) for path in paths),
        "COLUMNS": "100",
        "NO_COLOR": "1",
        "TERM": "dumb",
    }


@pytest.mark.parametrize(
    ("expected", "actual", "same"),
    [
        ("a\nb\n", "a\nb\n", True),
        ("a\n...\nd\n", "a\nb\nc\nd\n", True),
        ("a\n...\n", "a\n", True),
        ("a  \n", "a\n\n", True),
        ("a\n", "a\nb\n", False),
        ("a.c\n", "abc\n", False),
    ],
)
def test_shown_output_is_compared_line_by_line(expected: str, actual: str, same: bool) -> None:
    assert same == _matches(expected, actual)


def test_commands_carry_the_output_shown_below_them() -> None:
    text = "$ interlock check a.yaml \\\n    --json\nfine\n$ echo $?\n0\n$ interlock schema\n"
    block = Block(language="console", text=text, line=1, skip=None, file=None)

    expected = [
        Command(text="interlock check a.yaml \\\n    --json", output="fine\n"),
        Command(text="echo $?", output="0\n"),
        Command(text="interlock schema", output=None),
    ]
    assert expected == commands(block)

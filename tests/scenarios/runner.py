"""Reads scenario files, runs their commands in a temporary folder, and rewrites them.

A file is a list of blocks. A block is a command line, any lines of input, `----`, and the output up to a blank line.
Output with a blank line is between doubled separators. Lines that start with `#` between blocks are comments.

    file order.yaml         write the input to this file
    interlock check ...     run the command line; the input is its stdin
    cat order.yaml          print the file
    advance 5m              advance the clock, which starts on 1 January 2026 and otherwise does not move

stdout and stderr are mixed as on a terminal of 80 columns; the URL of the folder is written `file:///here`. An exit
code other than 0 follows in its own line.
"""

from __future__ import annotations

import io
import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from interlock.cli.main import main
from interlock.model.duration import parse_duration
from interlock.ports.clock import SystemClock

SEPARATOR = "----"


START_MS = 1_767_225_600_000
"""The start of 2026."""


class StillClock:
    """The clock and the tokens of a scenario: the same commands give the same times and keys."""

    def __init__(self) -> None:
        self.time_ms = START_MS
        self.tokens = 0

    @contextmanager
    def patched(self) -> Iterator[None]:
        """Replace the clock of the machine."""

        def now_ms(_: SystemClock) -> int:
            return self.time_ms

        def token(_: SystemClock) -> str:
            self.tokens += 1
            return f"token-{self.tokens}"

        with mock.patch.object(SystemClock, "now_ms", now_ms), mock.patch.object(SystemClock, "token", token):
            yield


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One command with its input and expected output; `before` are the lines above it."""

    before: tuple[str, ...]
    command: str
    input: tuple[str, ...]
    output: tuple[str, ...]


def parse(text: str) -> list[Block]:
    """Return the blocks of a scenario file."""
    blocks = []
    lines = text.splitlines()
    position = 0
    while position < len(lines):
        start = position
        while position < len(lines) and (not lines[position] or lines[position].startswith("#")):
            position += 1
        if position == len(lines):
            break
        before, command = tuple(lines[start:position]), lines[position]
        separator = lines.index(SEPARATOR, position)
        given = tuple(lines[position + 1 : separator])
        output, position = _output(lines, separator + 1)
        blocks.append(Block(before=before, command=command, input=given, output=output))
    return blocks


def _output(lines: list[str], start: int) -> tuple[tuple[str, ...], int]:
    """The output that starts here, and the line after it."""
    if start < len(lines) and lines[start] == SEPARATOR:
        end = next(each for each in range(start + 1, len(lines)) if lines[each : each + 2] == [SEPARATOR, SEPARATOR])
        return tuple(lines[start + 1 : end]), end + 2
    end = next((each for each in range(start, len(lines)) if not lines[each]), len(lines))
    return tuple(lines[start:end]), end


def format_blocks(blocks: list[Block]) -> str:
    """Return the text of a scenario file."""
    lines: list[str] = []
    for block in blocks:
        lines += [*block.before, block.command, *block.input, SEPARATOR]
        doubled = any(not line or line == SEPARATOR for line in block.output)
        lines += [SEPARATOR, *block.output, SEPARATOR, SEPARATOR] if doubled else block.output
    return "\n".join(lines) + "\n"


def run(block: Block, clock: StillClock) -> tuple[str, ...]:
    """Run the command of a block in the current folder and return its output."""
    word, _, rest = block.command.partition(" ")
    match word:
        case "file":
            Path(rest).write_text("".join(f"{line}\n" for line in block.input), encoding="utf-8")
            return ()
        case "cat":
            return tuple(Path(rest).read_text(encoding="utf-8").splitlines())
        case "interlock":
            with clock.patched():
                return _run_command(shlex.split(rest), "".join(f"{line}\n" for line in block.input))
        case "advance":
            clock.time_ms += parse_duration(rest) or 0
            return ()
        case _:
            raise AssertionError(f"expected file, cat, advance or interlock, got: {block.command}")


def _run_command(arguments: list[str], given: str) -> tuple[str, ...]:
    stream = io.StringIO()
    stdin = io.TextIOWrapper(io.BytesIO(given.encode()), encoding="utf-8")
    columns = mock.patch.dict(os.environ, {"COLUMNS": "80"})
    with redirect_stdout(stream), redirect_stderr(stream), mock.patch("sys.stdin", stdin), columns:
        code = main(arguments)
    lines = stream.getvalue().replace(Path.cwd().as_uri(), "file:///here").splitlines()
    return (*lines, f"exit {code}") if code else tuple(lines)

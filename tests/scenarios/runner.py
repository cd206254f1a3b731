"""Reads scenario files, runs their commands in a folder of their own, and writes them anew.

A file is a list of blocks. A block is a command line, any lines of input, `----`, and the output up to a blank line.
Output that holds a blank line stands between doubled separators. Lines that begin with `#` between blocks are comments.

    file order.yaml         the input becomes this file
    interlock check ...     runs the command line; the input is its stdin
    cat order.yaml          the output is what the file holds
    advance 5m              the clock moves; it begins with the year 2026 and stands still otherwise

stdout and stderr come together as on a terminal; the folder's own address is written `file:///here`. A code other than
0 follows in a line of its own.
"""

from __future__ import annotations

import io
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


BEGINNING_MS = 1_767_225_600_000
"""The first moment of 2026."""


class StillClock:
    """The clock of a scenario, and its chance: the same commands give the same times and keys."""

    def __init__(self) -> None:
        self.time_ms = BEGINNING_MS
        self.tokens = 0

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Stand in for the machine's own clock."""

        def now_ms(_: SystemClock) -> int:
            return self.time_ms

        def token(_: SystemClock) -> str:
            self.tokens += 1
            return f"token-{self.tokens}"

        with mock.patch.object(SystemClock, "now_ms", now_ms), mock.patch.object(SystemClock, "token", token):
            yield


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One command with its input and the output that is expected of it; `before` are the lines above it."""

    before: tuple[str, ...]
    command: str
    input: tuple[str, ...]
    output: tuple[str, ...]


def parse(text: str) -> list[Block]:
    """The blocks of a scenario file."""
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
    """The output that begins here, and where the next block may begin."""
    if start < len(lines) and lines[start] == SEPARATOR:
        end = next(each for each in range(start + 1, len(lines)) if lines[each : each + 2] == [SEPARATOR, SEPARATOR])
        return tuple(lines[start + 1 : end]), end + 2
    end = next((each for each in range(start, len(lines)) if not lines[each]), len(lines))
    return tuple(lines[start:end]), end


def written(blocks: list[Block]) -> str:
    """The text of a scenario file."""
    lines: list[str] = []
    for block in blocks:
        lines += [*block.before, block.command, *block.input, SEPARATOR]
        doubled = any(not line or line == SEPARATOR for line in block.output)
        lines += [SEPARATOR, *block.output, SEPARATOR, SEPARATOR] if doubled else block.output
    return "\n".join(lines) + "\n"


def run(block: Block, clock: StillClock) -> tuple[str, ...]:
    """What a block's command really gives, in the current folder, at the clock's time."""
    word, _, rest = block.command.partition(" ")
    match word:
        case "file":
            Path(rest).write_text("".join(f"{line}\n" for line in block.input), encoding="utf-8")
            return ()
        case "cat":
            return tuple(Path(rest).read_text(encoding="utf-8").splitlines())
        case "interlock":
            with clock.in_place():
                return _run_command(shlex.split(rest), "".join(f"{line}\n" for line in block.input))
        case "advance":
            clock.time_ms += parse_duration(rest) or 0
            return ()
        case _:
            raise AssertionError(f"a scenario knows file, cat, advance and interlock, not: {block.command}")


def _run_command(arguments: list[str], given: str) -> tuple[str, ...]:
    stream = io.StringIO()
    stdin = io.TextIOWrapper(io.BytesIO(given.encode()), encoding="utf-8")
    with redirect_stdout(stream), redirect_stderr(stream), mock.patch("sys.stdin", stdin):
        code = main(arguments)
    lines = stream.getvalue().replace(Path.cwd().as_uri(), "file:///here").splitlines()
    return (*lines, f"exit {code}") if code else tuple(lines)

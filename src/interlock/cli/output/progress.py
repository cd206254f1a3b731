"""Signs of life while a command works: one line on a terminal's stderr that overwrites itself, and goes in the end.

Rule 1: only a terminal sees it, and only when messages are wanted; a file or a pipe never does.
Rule 2: what a command prints meanwhile is never mixed with it: the line is wiped before, and comes back after.
Rule 3: it is drawn a few times a second at most, however often it is told.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from shutil import get_terminal_size
from time import monotonic
from types import TracebackType
from typing import ParamSpec, Self, TypeVar

from interlock.cli.output.terminal import Terminal, in_line

EVERY_SECONDS = 0.2
BAR_CELLS = 24
_EIGHTHS = " ▏▎▍▌▋▊▉"
_WIPE = "\r\x1b[K"

P = ParamSpec("P")
R = TypeVar("R")


def bar(part: float, cells: int) -> str:
    """A bar of so many cells, filled to a part of 0 to 1 in eighths of a cell."""
    eighths = round(max(0.0, min(1.0, part)) * cells * 8)
    full, rest = divmod(eighths, 8)
    return ("█" * full + (_EIGHTHS[rest] if rest else "")).ljust(cells)


class Progress:
    """`with Progress(terminal, "entities") as progress: progress.at(3)`. Without a terminal it does nothing.

    `total` is how many there will be, where that is known: then there is a bar.
    """

    def __init__(self, terminal: Terminal, what: str, total: int | None = None) -> None:
        self._shown = not terminal.quiet and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._colors = terminal.colorful(sys.stderr)
        self._what = what
        self._total = total
        self._drawn = 0.0
        self._is_drawn = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.wipe()

    def at(self, count: int, note: str = "") -> None:
        """So many are done; drawn when it is time again."""
        if self._shown and monotonic() - self._drawn >= EVERY_SECONDS:
            self._draw(self._text(count, note))

    def line(self, text: str) -> None:
        """Show a line of one's own instead; drawn at once."""
        if self._shown:
            self._draw(text)

    def over(self, printing: Callable[P, R], *given: P.args, **named: P.kwargs) -> R:
        """Do something that may print where the line is: on a terminal that both share, it makes room."""
        if sys.stdout.isatty():
            self.wipe()
        return printing(*given, **named)

    def wipe(self) -> None:
        """Take the line away, because something else is printed, or it is over."""
        if self._is_drawn:
            sys.stderr.write(_WIPE)
            sys.stderr.flush()
            self._is_drawn = False

    def _draw(self, text: str) -> None:
        fitting = in_line(text)[: get_terminal_size().columns - 1]
        sys.stderr.write(f"{_WIPE}\x1b[2m{fitting}\x1b[0m" if self._colors else f"{_WIPE}{fitting}")
        sys.stderr.flush()
        self._is_drawn, self._drawn = True, monotonic()

    def _text(self, count: int, note: str) -> str:
        if self._total:
            share = min(1.0, count / self._total)
            told = f"▕{bar(share, BAR_CELLS)}▏ {share:4.0%}  {count:,} of {self._total:,} {self._what}"
        else:
            told = f"{count:,} {self._what}"
        return f"{told}  {note}" if note else told

"""A status line on stderr while a command runs. It overwrites itself and is erased at the end.

Rule 1: it appears on a terminal only, and not if the command is quiet.
Rule 2: other output never mixes with it: the line is erased before and drawn again after.
Rule 3: it is drawn a few times per second at most.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from shutil import get_terminal_size
from time import monotonic
from types import TracebackType
from typing import ParamSpec, Self, TypeVar

from interlock.cli.output.terminal import Terminal, escape_line
from interlock.cli.output.values import bar

REDRAW_SECONDS = 0.2
BAR_CELLS = 24
_ERASE = "\r\x1b[K"

P = ParamSpec("P")
R = TypeVar("R")


class Progress:
    """A progress line, for example `with Progress(terminal, "entities") as progress: progress.at(3)`.

    With a `total` there is a bar. Without a terminal it does nothing.
    """

    def __init__(self, terminal: Terminal, what: str, total: int | None = None) -> None:
        self._is_enabled = not terminal.quiet and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._colors = terminal.has_color(sys.stderr)
        self._what = what
        self._total = total
        self._drawn_s = 0.0
        self._is_visible = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.erase()

    def at(self, count: int, note: str = "") -> None:
        """Show that `count` are done, at most every `REDRAW_SECONDS`."""
        if self._is_enabled and monotonic() - self._drawn_s >= REDRAW_SECONDS:
            self._draw(self._text(count, note))

    def line(self, text: str) -> None:
        """Show this text immediately."""
        if self._is_enabled:
            self._draw(text)

    def over(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Call a function that may print to stdout; the line is erased first if both share a terminal."""
        if sys.stdout.isatty():
            self.erase()
        return function(*args, **kwargs)

    def erase(self) -> None:
        """Erase the line."""
        if self._is_visible:
            sys.stderr.write(_ERASE)
            sys.stderr.flush()
            self._is_visible = False

    def _draw(self, text: str) -> None:
        fitted = escape_line(text)[: get_terminal_size().columns - 1]
        sys.stderr.write(f"{_ERASE}\x1b[2m{fitted}\x1b[0m" if self._colors else f"{_ERASE}{fitted}")
        sys.stderr.flush()
        self._is_visible, self._drawn_s = True, monotonic()

    def _text(self, count: int, note: str) -> str:
        if self._total:
            share = min(1.0, count / self._total)
            text = f"▕{bar(share, BAR_CELLS)}▏ {share:4.0%}  {count:,} of {self._total:,} {self._what}"
        else:
            text = f"{count:,} {self._what}"
        return f"{text}  {note}" if note else text

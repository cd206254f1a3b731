r"""Where a command's words go: data and reports to stdout, messages to stderr, in colour only where colour is wanted.

Rule 1: colour is decided once: `--color`, then NO_COLOR, then FORCE_COLOR, then whether the stream is a terminal.
Rule 2: without colour nothing of rich is imported, and a line is exactly its text.
Rule 3: text that came from a file or a store cannot steer the terminal: control characters are shown, not sent, also
those that turn the direction of writing.
Rule 4: a line that people read is one line. A line feed in a principal's id or an error's code is shown as `\n`, so
that nothing a sender or a handler wrote looks like a line of ours. What has several lines is written line by line.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TextIO

if TYPE_CHECKING:
    from rich.console import Console

Color = Literal["auto", "always", "never"]
Part = str | tuple[str, str]
"""A piece of a line: text, or text with a style such as `bold red`."""

_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if code not in (ord("\n"), ord("\t"))}
_CONTROLS |= {
    code: f"\\u{code:04x}" for code in (0x61C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A))
}
"""What moves the cursor or changes colours, what turns the direction of writing (`A-1` must not look like `1-A`), and
what separates lines and paragraphs."""

_IN_LINE = {**_CONTROLS, ord("\n"): "\\n", ord("\r"): "\\r", ord("\t"): "\\t"}
"""The same, and what ends a line or moves to the next column."""


def harmless(text: str) -> str:
    """The text with control characters written out, so that a file cannot move the cursor or rename the window.

    What is no text at all, such as the bytes of a strange file name, is written out too.
    """
    return text.translate(_CONTROLS).encode("utf-8", "backslashreplace").decode()


def in_line(text: str) -> str:
    """The text with control characters written out, line feeds and tabs too: a part of one line."""
    return text.translate(_IN_LINE).encode("utf-8", "backslashreplace").decode()


@dataclass(slots=True)
class Terminal:
    """The two streams of a command, and how loud and how colourful it may be. Made once per command line."""

    color: Color = "auto"
    quiet: bool = False
    verbose: bool = False
    _console: Console | None = None

    def data(self, text: str) -> None:
        """Write what the command was asked for: as it is to a file or a pipe, harmless to a terminal."""
        sys.stdout.write(harmless(text) if sys.stdout.isatty() else text)

    def report(self, *parts: Part) -> None:
        """Write one line that people read, to stdout."""
        self._write(sys.stdout, parts)

    def message(self, *parts: Part) -> None:
        """Write one line about what happened, to stderr; not when quiet."""
        if not self.quiet:
            self._write(sys.stderr, parts)

    def note(self, *parts: Part) -> None:
        """Write one line to stderr even when quiet: it belongs to a failure."""
        self._write(sys.stderr, parts)

    def failure(self, text: str) -> None:
        """Write the one line that says why the command failed, to stderr; one, whatever a file is called."""
        self._write(sys.stderr, (("error:", "bold red"), f" {text}"))

    def colorful(self, stream: TextIO) -> bool:
        """Whether lines to this stream carry colour."""
        if self.color != "auto":
            return self.color == "always"
        if os.environ.get("NO_COLOR"):
            return False
        if os.environ.get("FORCE_COLOR"):
            return True
        return stream.isatty() and os.environ.get("TERM") != "dumb"

    def _write(self, stream: TextIO, parts: tuple[Part, ...]) -> None:
        safe = [in_line(part) if isinstance(part, str) else (in_line(part[0]), part[1]) for part in parts]
        if self.colorful(stream):
            stream.write(self._painted(safe))
        else:
            stream.write("".join(part if isinstance(part, str) else part[0] for part in safe) + "\n")

    def _painted(self, parts: list[Part]) -> str:
        """The line with its colours. rich only paints: it would end the process by itself when a pipe is closed."""
        from rich.console import Console
        from rich.text import Text

        if self._console is None:
            self._console = Console(force_terminal=True, color_system="standard", legacy_windows=False)
        with self._console.capture() as capture:
            self._console.print(Text.assemble(*parts), soft_wrap=True, highlight=False)
        return capture.get()

r"""The two streams of a command: data and reports to stdout, messages to stderr, in colour where colour is wanted.

Rule 1: colour follows `--color`, then NO_COLOR, then FORCE_COLOR, then whether the stream is a terminal.
Rule 2: without colour rich is not imported, and a line is exactly its text.
Rule 3: text from a file or a store cannot control the terminal: control characters are escaped, including the
characters that change the direction of writing.
Rule 4: a line for people is one line. A line feed in a principal's id or in an error code is shown as `\n`, so that
text of a sender or a handler cannot imitate a line of the command.
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
"""A part of a line: text, or text with a style such as `bold red`."""

Line = tuple[Part, ...]

_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if code not in (ord("\n"), ord("\t"))}
_CONTROLS |= {
    code: f"\\u{code:04x}" for code in (0x61C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A))
}
"""Characters that move the cursor or change colours, that change the direction of writing (`A-1` must not look like
`1-A`), and that separate lines and paragraphs."""

_IN_LINE = {**_CONTROLS, ord("\n"): "\\n", ord("\r"): "\\r", ord("\t"): "\\t"}
"""The same, with line ends and tabs."""


def escape(text: str) -> str:
    """Return the text with control characters escaped, so that a file cannot move the cursor or rename the window.

    Bytes that are not valid text, such as those of some file names, are escaped too.
    """
    return text.translate(_CONTROLS).encode("utf-8", "backslashreplace").decode()


def escape_line(text: str) -> str:
    """Return the text with control characters, line feeds and tabs escaped, for a part of one line."""
    return text.translate(_IN_LINE).encode("utf-8", "backslashreplace").decode()


@dataclass(slots=True)
class Terminal:
    """The two streams of a command, with its verbosity and colour. There is one for each command line."""

    color: Color = "auto"
    quiet: bool = False
    verbose: bool = False
    _console: Console | None = None

    def data(self, text: str) -> None:
        """Write the result of the command to stdout; control characters are escaped on a terminal."""
        sys.stdout.write(escape(text) if sys.stdout.isatty() else text)

    def report(self, *parts: Part) -> None:
        """Write one line for people to stdout."""
        self._write(sys.stdout, parts)

    def message(self, *parts: Part) -> None:
        """Write one line to stderr, unless the command is quiet."""
        if not self.quiet:
            self._write(sys.stderr, parts)

    def note(self, *parts: Part) -> None:
        """Write one line to stderr, also if the command is quiet: it explains a failure."""
        self._write(sys.stderr, parts)

    def failure(self, text: str, hint: str | None = None) -> None:
        """Write an `error:` line to stderr, and a `hint:` line if there is a hint."""
        self._write(sys.stderr, (("error:", "bold red"), f" {text}"))
        if hint:
            self._write(sys.stderr, (("hint:", "green"), f" {hint}"))

    def has_color(self, stream: TextIO) -> bool:
        """Return whether lines to this stream have colour."""
        if self.color != "auto":
            return self.color == "always"
        if os.environ.get("NO_COLOR"):
            return False
        if os.environ.get("FORCE_COLOR"):
            return True
        return stream.isatty() and os.environ.get("TERM") != "dumb"

    def _write(self, stream: TextIO, parts: tuple[Part, ...]) -> None:
        safe = [escape_line(part) if isinstance(part, str) else (escape_line(part[0]), part[1]) for part in parts]
        if self.has_color(stream):
            stream.write(self._colored(safe))
        else:
            stream.write("".join(part if isinstance(part, str) else part[0] for part in safe) + "\n")

    def _colored(self, parts: list[Part]) -> str:
        """The line with escape codes. rich does not write it: it would end the process when a pipe is closed."""
        from rich.console import Console
        from rich.text import Text

        if self._console is None:
            self._console = Console(force_terminal=True, color_system="standard", legacy_windows=False)
        with self._console.capture() as capture:
            self._console.print(Text.assemble(*parts), soft_wrap=True, highlight=False)
        return capture.get()

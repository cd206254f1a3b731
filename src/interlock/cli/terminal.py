"""Where a command's words go: data and reports to stdout, messages to stderr, in colour only where colour is wanted.

Rule 1: colour is decided once: `--color`, then NO_COLOR, then FORCE_COLOR, then whether the stream is a terminal.
Rule 2: without colour nothing of rich is imported, and a line is exactly its text.
Rule 3: text that came from a file cannot steer the terminal: control characters are shown, not sent.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TextIO

if TYPE_CHECKING:
    from rich.console import Console

Color = Literal["auto", "always", "never"]
Part = str | tuple[str, str]
"""A piece of a line: text, or text with a style such as `bold red`."""

_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if code not in (ord("\n"), ord("\t"))}


def harmless(text: str) -> str:
    """The text with control characters written out, so that a file cannot move the cursor or rename the window."""
    return text.translate(_CONTROLS)


@dataclass(slots=True)
class Terminal:
    """The two streams of a command, and how loud and how colourful it may be. Made once per command line."""

    color: Color = "auto"
    quiet: bool = False
    verbose: bool = False
    _consoles: dict[str, Console] = field(default_factory=dict)

    def data(self, text: str) -> None:
        """Write what the command was asked for, as it is."""
        sys.stdout.write(text)

    def report(self, *parts: Part) -> None:
        """Write one line that people read, to stdout."""
        self._write(sys.stdout, "stdout", parts)

    def message(self, *parts: Part) -> None:
        """Write one line about what happened, to stderr; not when quiet."""
        if not self.quiet:
            self._write(sys.stderr, "stderr", parts)

    def failure(self, text: str) -> None:
        """Write the one line that says why the command failed, to stderr."""
        self._write(sys.stderr, "stderr", (("error:", "bold red"), f" {text}"))

    def note(self, *parts: Part) -> None:
        """Write one line to stderr even when quiet: it belongs to a failure."""
        self._write(sys.stderr, "stderr", parts)

    def colorful(self, stream: TextIO) -> bool:
        """Whether lines to this stream carry colour."""
        if self.color != "auto":
            return self.color == "always"
        if os.environ.get("NO_COLOR"):
            return False
        if os.environ.get("FORCE_COLOR"):
            return True
        return stream.isatty() and os.environ.get("TERM") != "dumb"

    def _write(self, stream: TextIO, name: str, parts: tuple[Part, ...]) -> None:
        safe = [harmless(part) if isinstance(part, str) else (harmless(part[0]), part[1]) for part in parts]
        if not self.colorful(stream):
            stream.write("".join(part if isinstance(part, str) else part[0] for part in safe) + "\n")
            return
        from rich.text import Text

        self._console(stream, name).print(Text.assemble(*safe), soft_wrap=True, highlight=False)

    def _console(self, stream: TextIO, name: str) -> Console:
        """One console per stream, made at the first coloured line: rich takes longer to import than most commands run."""
        console = self._consoles.get(name)
        if console is None or console.file is not stream:
            from rich.console import Console

            console = Console(file=stream, force_terminal=True, color_system="standard", legacy_windows=False)
            self._consoles[name] = console
        return console

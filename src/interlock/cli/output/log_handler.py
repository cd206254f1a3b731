"""What is logged while a command works, shown on stderr: the level, the message, and its facts.

Rule 1: a message of ours is a constant, and its facts are fields; a line without them says nothing.
Rule 2: an application that has set up logging itself is left alone.
Rule 3: the same line again within seconds is counted, not shown, except with -v: a thousand of them say no more than
one.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

from interlock.cli.output import values
from interlock.cli.output.terminal import Terminal

_log = logging.getLogger("interlock")
_TIME_MS_MIN = 10**12
"""Numbers of milliseconds from here on are times since 1970; below it, durations."""
_USUAL = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


REPEATED_S = 10.0
REPEATED_MAX = 1_000
"""How long the same line is not shown again, and how many lines are remembered for that."""


class LogHandler(logging.Handler):
    """Shows what is logged, a line each: the level, the message, and its facts; with -v the traceback too."""

    def __init__(self, terminal: Terminal) -> None:
        super().__init__(logging.INFO if terminal.verbose else logging.WARNING)
        self._terminal = terminal
        self._shown: dict[str, tuple[float, int]] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """Show one record."""
        level = record.levelname.lower()
        facts = "".join(_fact(name, value) for name, value in vars(record).items() if name not in _USUAL)
        error = record.exc_info[1] if record.exc_info else None
        why = "" if error is None else f": {type(error).__name__}: {error}"
        style = "bold red" if record.levelno >= logging.ERROR else "yellow"
        text = f": {record.getMessage()}{why}{facts}"
        since, more = self._shown.get(text, (None, 0))
        if since is not None and record.created - since < REPEATED_S and not self._terminal.verbose:
            self._shown[text] = (since, more + 1)
            return
        if len(self._shown) >= REPEATED_MAX:
            self._shown.clear()
        self._shown[text] = (record.created, 0)
        self._terminal.note((level, style), text, (f" ({more:,} more like it)" if more else "", "dim"))
        if error is not None and self._terminal.verbose:
            for line in "".join(traceback.format_exception(error)).splitlines():
                self._terminal.note((f"  {line}", "dim"))


def _fact(name: str, value: object) -> str:
    """A fact of a record; a time in milliseconds as people read it."""
    if name.endswith("_ms") and isinstance(value, int) and value > _TIME_MS_MIN:
        return f" {name.removesuffix('_ms')}={values.time_text(value)}"
    return f" {name}={value}"


@contextmanager
def shown_logs(terminal: Terminal) -> Iterator[None]:
    """What is logged inside is shown, unless somebody else takes care of it."""
    if logging.getLogger().handlers or _log.handlers:
        yield
        return
    handler, level = LogHandler(terminal), _log.level
    _log.addHandler(handler)
    _log.setLevel(handler.level)
    try:
        yield
    finally:
        _log.removeHandler(handler)
        _log.setLevel(level)

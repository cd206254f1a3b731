"""Log records on stderr while a command runs: the level, the message, and the fields.

Rule 1: our messages are constants and their values are fields, so a line shows both.
Rule 2: if the application configured logging, nothing is added.
Rule 3: a repeated line is counted for some seconds instead of shown, except with -v.
Rule 4: an error of a handler, or of another function of the user, is shown with the traceback of the user's code.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from interlock.cli.output.terminal import Terminal
from interlock.cli.output.tracebacks import user_traceback
from interlock.cli.output.values import time_text

_log = logging.getLogger("interlock")
_TIME_MS_MIN = 10**12
"""Milliseconds from this value on are a time since 1970; smaller ones are a duration."""
_STANDARD_FIELDS = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}

_USER_FIELDS = frozenset({"handler", "reconciler"})
"""The fields that name a function of the user, with the error that it raised."""

REPEAT_SECONDS = 10.0
REPEATS_REMEMBERED_MAX = 1_000
"""How long a repeated line is only counted, and how many lines are remembered for that."""


class LogHandler(logging.Handler):
    """Writes each record as one line, level, message and fields, and the traceback of rule 4; with -v every one."""

    def __init__(self, terminal: Terminal) -> None:
        super().__init__(logging.INFO if terminal.verbose else logging.WARNING)
        self._terminal = terminal
        self._shown: dict[str, tuple[float, int]] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record."""
        level = record.levelname.lower()
        fields = "".join(
            _field_text(name, value) for name, value in vars(record).items() if name not in _STANDARD_FIELDS
        )
        error = record.exc_info[1] if record.exc_info else None
        why = "" if error is None else f": {type(error).__name__}: {error}"
        style = "bold red" if record.levelno >= logging.ERROR else "yellow"
        text = f": {record.getMessage()}{why}{fields}"
        since, repeats = self._shown.get(text, (None, 0))
        if since is not None and record.created - since < REPEAT_SECONDS and not self._terminal.verbose:
            self._shown[text] = (since, repeats + 1)
            return
        if len(self._shown) >= REPEATS_REMEMBERED_MAX:
            self._shown.clear()
        self._shown[text] = (record.created, 0)
        self._terminal.note((level, style), text, (f" ({repeats:,} repeated)" if repeats else "", "dim"))
        if error is not None and (self._terminal.verbose or _USER_FIELDS & vars(record).keys()):
            for line in user_traceback(error):
                self._terminal.note((f"  {line}", "dim"))


def _field_text(name: str, value: object) -> str:
    """One field; a time in milliseconds as ISO 8601."""
    if name.endswith("_ms") and isinstance(value, int) and value > _TIME_MS_MIN:
        return f" {name.removesuffix('_ms')}={time_text(value)}"
    return f" {name}={value}"


@contextmanager
def show_logs(terminal: Terminal) -> Iterator[None]:
    """Show log records inside this block, unless logging is configured already."""
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

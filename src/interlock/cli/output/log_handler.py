"""Log records on stderr while a command runs: the level, the message, and the fields.

Rule 1: our messages are constants and their values are fields, so a line shows both.
Rule 2: if the application configured logging, nothing is added, except with `--log`.
Rule 3: a repeated line is counted for some seconds instead of shown, except with -v.
Rule 4: an error of a handler, or of another function of the user, is shown with the traceback of the user's code.
Rule 5: with `--log`, transitions are shown too, and a thread writes the lines, so that a slow terminal delays no step.
A line that finds the queue full is counted and dropped.
"""

from __future__ import annotations

import logging
import queue
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from enum import Enum
from logging.handlers import QueueHandler, QueueListener

from interlock.cli.output.terminal import Terminal
from interlock.cli.output.tracebacks import user_traceback
from interlock.cli.output.values import time_text
from interlock.observe.log_format import JsonLines, record_fields
from interlock.runtime.entities.transition_log import LOGGER as TRANSITIONS

_log = logging.getLogger("interlock")
_TIME_MS_MIN = 10**12
"""Milliseconds from this value on are a time since 1970; smaller ones are a duration."""

_USER_FIELDS = frozenset({"handler", "reconciler"})
"""The fields that name a function of the user, with the error that it raised."""

REPEAT_SECONDS = 10.0
REPEATS_REMEMBERED_MAX = 1_000
"""How long a repeated line is only counted, and how many lines are remembered for that."""


LINES_WAITING_MAX = 10_000
"""Lines that wait for a slow terminal: some seconds of a busy worker, in a few megabytes."""


class LogForm(Enum):
    """How `--log` writes lines."""

    CONSOLE = "console"
    JSON = "json"


def _is_shown(record: logging.LogRecord, *, verbose: bool) -> bool:
    return verbose or record.levelno >= logging.WARNING or record.name == TRANSITIONS


class LogHandler(logging.Handler):
    """Writes each record as one line, level, message and fields, and the traceback of rule 4; with -v every one."""

    def __init__(self, terminal: Terminal) -> None:
        super().__init__(logging.INFO)
        self.addFilter(lambda record: _is_shown(record, verbose=terminal.verbose))
        self._terminal = terminal
        self._shown: dict[str, tuple[float, int]] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record."""
        level = record.levelname.lower()
        fields = "".join(_field_text(name, value) for name, value in record_fields(record).items())
        error = record.exc_info[1] if record.exc_info else None
        why = "" if error is None else f": {type(error).__name__}: {error}"
        style = (
            "dim" if record.levelno < logging.WARNING else "bold red" if record.levelno >= logging.ERROR else "yellow"
        )
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


class _Waiting(QueueHandler):
    """Puts records into a queue; one that finds it full is counted."""

    def __init__(self, waiting: queue.Queue[object]) -> None:
        super().__init__(waiting)
        self.dropped = 0

    def prepare(self, record: logging.LogRecord) -> logging.LogRecord:
        """Return the record with its error: the queue is in this process."""
        return record

    def enqueue(self, record: logging.LogRecord) -> None:
        """Put a record into the queue, or count it."""
        try:
            self.queue.put_nowait(record)
        except queue.Full:
            self.dropped += 1


class _Writing(QueueListener):
    """The thread that writes. What waits when it stops is still written."""

    def __init__(self, waiting: queue.Queue[object], handler: logging.Handler) -> None:
        super().__init__(waiting, handler, respect_handler_level=True)
        self._waiting = waiting

    def enqueue_sentinel(self) -> None:
        """Wait for room: the queue may be full."""
        self._waiting.put(None)  # what QueueListener stops at


@contextmanager
def _in_thread(handler: logging.Handler) -> Iterator[logging.Handler]:
    """Give a handler whose records a thread passes on."""
    waiting: queue.Queue[object] = queue.Queue(LINES_WAITING_MAX)
    first, thread = _Waiting(waiting), _Writing(waiting, handler)
    thread.start()
    try:
        yield first
    finally:
        thread.stop()
        if first.dropped:
            extra = {"dropped": first.dropped}
            handler.handle(
                _log.makeRecord(_log.name, logging.WARNING, "", 0, "log lines were dropped", (), None, extra=extra)
            )


@contextmanager
def show_logs(terminal: Terminal, form: LogForm | None = None) -> Iterator[None]:
    """Show log records inside this block. Without a form, unless logging is configured already."""
    if form is None and (logging.getLogger().handlers or _log.handlers):
        yield
        return
    transitions = logging.getLogger(TRANSITIONS)
    levels, propagates = (_log.level, transitions.level), _log.propagate
    with ExitStack() as stack:
        handler: logging.Handler = LogHandler(terminal)
        if form is LogForm.JSON:
            handler = logging.StreamHandler()
            handler.setFormatter(JsonLines())
            handler.addFilter(lambda record: _is_shown(record, verbose=terminal.verbose))
        if form is not None:
            handler = stack.enter_context(_in_thread(handler))
            transitions.setLevel(logging.INFO)
            _log.propagate = False
        _log.addHandler(handler)
        _log.setLevel(logging.INFO if terminal.verbose else logging.WARNING)
        try:
            yield
        finally:
            _log.removeHandler(handler)
            _log.propagate = propagates
            _log.setLevel(levels[0])
            transitions.setLevel(levels[1])

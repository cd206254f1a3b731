"""A filter for loggers: the same kind of trouble is logged once in a while, with a count of what was left out.

A kind is the level, the constant text of the message and the class of the exception. Whoever can make a server log
could otherwise fill its disk.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from interlock.model.limits import LOG_REPEAT_MS

KINDS_MAX = 1_000
"""Kinds that are remembered: messages are constants, so there are few; one that is not must not fill the memory."""


class Repeats(logging.Filter):
    """Passes one record of each kind in ten seconds; `repeated` of the next one says how many were left out."""

    def __init__(self) -> None:
        super().__init__()
        self._seen: dict[object, tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether to log this record."""
        error = record.exc_info[0] if record.exc_info else None
        kind = (record.levelno, str(record.msg), error, getattr(record, "endpoint", None))
        since, repeated = self._seen.get(kind, (None, 0))
        if since is not None and 0 <= record.created - since < LOG_REPEAT_MS / 1000:
            self._seen[kind] = (since, repeated + 1)
            return False
        if len(self._seen) >= KINDS_MAX:
            self._seen.clear()
        self._seen[kind] = (record.created, 0)
        if repeated:
            record.repeated = repeated
        return True


@contextmanager
def limited_logs(names: Iterable[str]) -> Iterator[None]:
    """Limit these loggers while the block runs."""
    loggers, repeats = [logging.getLogger(each) for each in names], Repeats()
    for each in loggers:
        each.addFilter(repeats)
    try:
        yield
    finally:
        for each in loggers:
            each.removeFilter(repeats)

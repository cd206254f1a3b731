"""A logging filter that limits repeated records, so that clients cannot fill the disk by causing errors.

Records are alike if they have the same level, constant message, exception class and endpoint.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from interlock.model.limits import LOG_REPEAT_MS

RECORDS_MAX = 1_000
"""Distinct records that are remembered. Messages are constants, so there are few; the limit protects the memory."""


class RepeatFilter(logging.Filter):
    """Passes one of several like records in ten seconds; `repeated` of the next one counts the suppressed ones."""

    def __init__(self) -> None:
        super().__init__()
        self._seen: dict[object, tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether to log this record."""
        error = record.exc_info[0] if record.exc_info else None
        key = (record.levelno, str(record.msg), error, getattr(record, "endpoint", None))
        since, repeated = self._seen.get(key, (None, 0))
        if since is not None and 0 <= record.created - since < LOG_REPEAT_MS / 1000:
            self._seen[key] = (since, repeated + 1)
            return False
        if len(self._seen) >= RECORDS_MAX:
            self._seen.clear()
        self._seen[key] = (record.created, 0)
        if repeated:
            record.repeated = repeated
        return True


@contextmanager
def limited_logs(names: Iterable[str]) -> Iterator[None]:
    """Apply the filter to these loggers within the block."""
    loggers, repeat_filter = [logging.getLogger(each) for each in names], RepeatFilter()
    for each in loggers:
        each.addFilter(repeat_filter)
    try:
        yield
    finally:
        for each in loggers:
            each.removeFilter(repeat_filter)

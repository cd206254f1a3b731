"""Log records as JSON, one line each, for programs and for the command line."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import Any

_STANDARD_FIELDS = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def record_fields(record: logging.LogRecord) -> dict[str, Any]:
    """Return the fields of a record that its logger added: our messages are constants, and their values are fields."""
    return {name: value for name, value in vars(record).items() if name not in _STANDARD_FIELDS}


class JsonLines(logging.Formatter):
    """Formats a record as one line of JSON: `time`, `level`, `logger`, `message`, its fields, and `error` if any.

    handler.setFormatter(JsonLines())
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, without a line break."""
        error = record.exc_info[1] if record.exc_info else None
        found = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")[:-6] + "Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if error is not None:
            found["error"] = f"{type(error).__name__}: {error}"
        found = {**found, **{name: value for name, value in record_fields(record).items() if name not in found}}
        return json.dumps(found, default=str)  # ASCII: even a lone surrogate in a text is one valid line

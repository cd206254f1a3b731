"""A connection to SQLite that fails, or waits, where a test says."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from typing import Any


class Faulty:
    """A connection that notes its statements and fails, or waits, where the test says."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self.statements: list[str] = []
        self.faults: dict[str, Callable[[], None]] = {}

    def held(self, statement: str) -> tuple[threading.Event, threading.Event]:
        """Stop at a statement: the first event says that it was reached, the second lets it continue."""
        started, go = threading.Event(), threading.Event()

        def hold() -> None:
            started.set()
            go.wait()

        self.faults[statement] = hold
        return started, go

    def execute(self, statement: str, *values: Any) -> sqlite3.Cursor:
        """As the connection, after the fault of this statement."""
        self.statements.append(statement)
        fault = self.faults.get(statement)
        if fault is not None:
            fault()
        return self.connection.execute(statement, *values)

    def executemany(self, statement: str, rows: list[Any]) -> sqlite3.Cursor:
        """As the connection, after the fault of this statement."""
        self.statements.append(statement)
        fault = self.faults.get(statement)
        if fault is not None:
            fault()
        return self.connection.executemany(statement, rows)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.connection, name)


def failing(code: int) -> Callable[[], None]:
    """Raises as SQLite would with this result code."""

    def fail() -> None:
        error = sqlite3.OperationalError("injected")
        error.sqlite_errorcode = code
        raise error

    return fail

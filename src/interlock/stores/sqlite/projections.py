"""Projections in a SQLite file: the program's function on a separate connection, one transaction for a batch.

Rule 1: the transaction takes the write lock first, so nothing that the function reads changes before its commit.
Rule 2: a projection is as durable as a step: `synchronous=FULL`, and it never checkpoints.
"""

from __future__ import annotations

import inspect
import sqlite3
from contextlib import closing
from pathlib import Path

from interlock.errors import UsageError
from interlock.ports.reading.journal_feed import FeedEntry
from interlock.ports.reading.projections import Projector
from interlock.stores.sqlite.connection import begin, open_projector, translate_error
from interlock.stores.sqlite.files import CALLS
from interlock.stores.sqlite.prefix import prefixed

SELECT_CURSOR = "SELECT cursor FROM projection WHERE tenant = ? AND name = ?"
MOVE_CURSOR = """
    INSERT INTO projection (tenant, name, cursor, entries) VALUES (?, ?, ?, ?)
    ON CONFLICT (tenant, name) DO UPDATE
    SET cursor = excluded.cursor, entries = entries + excluded.entries, failures = 0, error = NULL, stopped = 0"""


def project_batch(
    path: Path,
    place: tuple[str, str],
    projector: Projector,
    entries: tuple[FeedEntry, ...],
    before: str | None,
    after: str,
    *,
    prefix: str = "",
) -> bool:
    """Run a projector and move its cursor in one transaction; False when the cursor is elsewhere. Blocks.

    `prefix` is that of the store's tables. The statements of the function are not rewritten.
    """
    with CALLS, closing(open_projector(path)) as connection:
        try:
            begin(connection)
            found = connection.execute(prefixed(SELECT_CURSOR, prefix), place).fetchone()
        except sqlite3.Error as error:
            raise translate_error(error, path) from error
        try:
            if (None if found is None else found[0]) != before:
                return False
            answer = projector(connection, entries) if entries else None
            if inspect.isawaitable(answer):
                raise awaitable_error()
            if not connection.in_transaction:
                hint = "remove `commit` and `rollback` from the function: the runner commits with the cursor"
                raise UsageError("the projection ended its transaction", code="projection.transaction", hint=hint)
            connection.execute(prefixed(MOVE_CURSOR, prefix), (*place, after, len(entries)))
            connection.execute("COMMIT")
            return True
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")


def awaitable_error() -> UsageError:
    """Return the error for a coroutine function where a plain one is expected."""
    hint = "write `def` instead of `async def`; the connection is a sqlite3.Connection"
    return UsageError("a projection on SQLite is a plain function", code="projection.function", hint=hint)

"""What the writer of a SQLite file does beside steps: it releases archived journals, and forgets old keys.

Rule 1: each is one transaction, under the same lock as steps.
Rule 2: a journal is released whole, or not at all; what says where it went is written in the same transaction.
Rule 3: a key is forgotten when it is from before a boundary (`boundary`), which is at least `KEY_WINDOW_MS` behind this
machine's clock and the newest entry that this writer has written, and which moves with the time that passes: the clock
stamps the entries, too, and alone is no witness.
Rule 4: the boundary is written down when it moved by `MOVE_MS`, not at every quiet moment: that would cost a flush.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import Callable
from typing import Any, NamedTuple

from interlock.errors import InterlockError
from interlock.model.limits import KEY_WINDOW_MS
from interlock.stores.key_expiry import KeyExpiry
from interlock.stores.sql.commit_plan import split_entity
from interlock.stores.threads.wakeup import LoopEntryQueue

PURGE_MAX = 500
"""Keys forgotten in one transaction: some milliseconds, so that a step that arrives meanwhile does not wait long."""

MOVE_MS = 60_000
"""How far the boundary moves before that is written down: a process that ends loses less than so much of it."""

SELECT_ENTITY_HEAD = "SELECT version, ended, head FROM entity WHERE tenant = ? AND kind = ? AND id = ?"
SELECT_ARCHIVE = "SELECT version, head, archive FROM entity_archive WHERE tenant = ? AND kind = ? AND id = ?"
UPSERT_ARCHIVE = """
    INSERT INTO entity_archive (tenant, kind, id, version, head, archive) VALUES (?, ?, ?, ?, ?, ?)
    ON CONFLICT (tenant, kind, id)
    DO UPDATE SET version = excluded.version, head = excluded.head, archive = excluded.archive"""
DELETE_JOURNAL = "DELETE FROM journal WHERE tenant = ? AND kind = ? AND id = ? AND version <= ?"
SELECT_OLD_KEYS = """
    SELECT tenant, kind, id, key FROM event_key WHERE tenant = ? AND time_ms < ? ORDER BY time_ms LIMIT ?"""
DELETE_KEY = "DELETE FROM event_key WHERE tenant = ? AND kind = ? AND id = ? AND key = ?"
SELECT_OLDEST_KEY = "SELECT min(time_ms) FROM event_key WHERE tenant = ?"
SELECT_BOUNDARY = "SELECT time_ms FROM key_boundary WHERE tenant = ?"
UPSERT_BOUNDARY = """
    INSERT INTO key_boundary (tenant, time_ms) VALUES (?, ?)
    ON CONFLICT (tenant) DO UPDATE SET time_ms = max(time_ms, excluded.time_ms)"""


class WriteJob(NamedTuple):
    """Something for the writer that is no step, and who waits for its answer."""

    work: Callable[[sqlite3.Connection], Any]
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]


class Archived(NamedTuple):
    """Up to which version a journal was released, the hash of that record, and where it is."""

    version: int
    head: str
    archive: str


def release(connection: sqlite3.Connection, tenant: str, entity: str, version: int, archive: str) -> bool:
    """Drop the records of an ended entity that is at this version; False when it is not, or not ended."""
    name = (tenant, *split_entity(entity))
    found = connection.execute(SELECT_ENTITY_HEAD, name).fetchone()
    if found is None or found[0] != version or found[1] is None:
        return False
    known = archived(connection, name)
    if known is None or known.version != version:  # otherwise it was released before, to the place that is known
        connection.execute(UPSERT_ARCHIVE, (*name, version, found[2], archive))
        connection.execute(DELETE_JOURNAL, (*name, version))
    return True


def archived(connection: sqlite3.Connection, name: tuple[str, str, str]) -> Archived | None:
    """What is known of a journal that was released; None while it is here."""
    found = connection.execute(SELECT_ARCHIVE, name).fetchone()
    return None if found is None else Archived(*found)


class KeyRetention:
    """What a writer forgets of the keys of its tenant. It begins with the boundary that it finds."""

    def __init__(self, connection: sqlite3.Connection, tenant: str) -> None:
        self._tenant = tenant
        self._written_ms = 0
        self._boundary: KeyExpiry | None = None
        with contextlib.suppress(sqlite3.Error):  # keeping house stops no store from opening: it is read later then
            self._boundary = self._read(connection)

    def forget(self, connection: sqlite3.Connection, window_ms: int) -> bool:
        """Forget some of the keys from before the boundary, in a transaction; True when there may be more."""
        boundary = self._boundary = self._boundary or self._read(connection) or self._begun(connection, window_ms)
        before_ms = boundary.moved(window_ms)
        old = connection.execute(SELECT_OLD_KEYS, (self._tenant, before_ms, PURGE_MAX)).fetchall()
        connection.executemany(DELETE_KEY, old)
        if not old:
            boundary.skip_to(self._oldest_ms(connection, window_ms))
        if boundary.time_ms - self._written_ms >= MOVE_MS:
            connection.execute(UPSERT_BOUNDARY, (self._tenant, boundary.time_ms))
            self._written_ms = boundary.time_ms
        return len(old) == PURGE_MAX

    def _read(self, connection: sqlite3.Connection) -> KeyExpiry | None:
        found = connection.execute(SELECT_BOUNDARY, (self._tenant,)).fetchone()
        if found is None:
            return None
        self._written_ms = found[0]
        return KeyExpiry(found[0])

    def _begun(self, connection: sqlite3.Connection, window_ms: int) -> KeyExpiry:
        """The boundary of a tenant that is new: its oldest key tells better than a clock when it began."""
        return KeyExpiry(self._oldest_ms(connection, window_ms))

    def _oldest_ms(self, connection: sqlite3.Connection, window_ms: int) -> int:
        """The window before the oldest key; at most where the window begins now."""
        (oldest_ms,) = connection.execute(SELECT_OLDEST_KEY, (self._tenant,)).fetchone()
        return window_ms if oldest_ms is None else min(window_ms, oldest_ms - KEY_WINDOW_MS)


def tell(loops: LoopEntryQueue, chore: WriteJob, answer: object) -> None:
    """Answer a chore in its own event loop."""
    loops.call(chore.loop, _resolve, chore.future, answer)


def _resolve(future: asyncio.Future[Any], answer: object) -> None:
    if future.done():
        return
    if isinstance(answer, InterlockError):
        future.set_exception(answer)
    else:
        future.set_result(answer)

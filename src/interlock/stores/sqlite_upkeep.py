"""What the writer of a SQLite file does beside steps: it releases archived journals, and forgets old keys.

Rule 1: each is one transaction, under the same lock as steps.
Rule 2: a journal is released whole, or not at all; what says where it went is written in the same transaction.
Rule 3: a key is forgotten only when it is older than `KEY_WINDOW_MS` by two clocks: this machine's, and the time of the
newest entry that this writer has seen. A clock that runs ahead makes nobody forget.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from typing import Any, NamedTuple

from interlock.errors import InterlockError, NotFoundError
from interlock.model.limits import KEY_WINDOW_MS
from interlock.stores.bells import Loops
from interlock.stores.sqlite_batch import split

PURGE_MAX = 500
"""Keys forgotten in one transaction: some milliseconds, so that a step that arrives meanwhile does not wait long."""

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


class Chore(NamedTuple):
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
    name = (tenant, *split(entity))
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


def gone(entity: str, version: int, archive: str) -> NotFoundError:
    """The answer to whoever reads what was released."""
    message = f"the journal of `{entity}` up to version {version} is in the archive {archive}"
    return NotFoundError(message, code="journal.archived", hint="open the archive to read it")


def expired_before_ms(now_ms: int, newest_ms: int) -> int:
    """The time before which keys are forgotten."""
    return min(now_ms, newest_ms) - KEY_WINDOW_MS


def purge_keys(connection: sqlite3.Connection, tenant: str, before_ms: int) -> int:
    """Forget some of the keys from before a time; gives how many they were."""
    old = connection.execute(SELECT_OLD_KEYS, (tenant, before_ms, PURGE_MAX)).fetchall()
    connection.executemany(DELETE_KEY, old)
    return len(old)


def tell(loops: Loops, chore: Chore, answer: object) -> None:
    """Answer a chore in its own event loop."""
    loops.call(chore.loop, _resolve, chore.future, answer)


def _resolve(future: asyncio.Future[Any], answer: object) -> None:
    if future.done():
        return
    if isinstance(answer, InterlockError):
        future.set_exception(answer)
    else:
        future.set_result(answer)

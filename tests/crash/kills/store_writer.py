"""A process that sends to entities of any store until it is killed, and reports every receipt.

It sends a line `asked <key> <entity>` before a send, and `kept <key> <entity> <version> <outcome>` after its receipt.
Each line is one message of a pipe, so that a killed process has reported all that it knew.

If an address ends with `#rotating`, the file store rotates its journals every few entries.

Faults that must be detected: `early` answers before COMMIT (SQLite), `lockless` does not lock (files), `unsynced` does
not flush (both; only a power cut reveals it).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sqlite3
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from unittest.mock import patch
from urllib.parse import urlsplit

from interlock.assemble.charts import loads
from interlock.assemble.runtimes import open as opening
from interlock.errors import ConflictError, InterlockError, UnavailableError
from interlock.model.journal.entry import Receipt
from interlock.runtime.runtime import Runtime
from interlock.stores.files import store
from interlock.stores.files.durable_io import Settings
from interlock.stores.files.filesystem import OperatingSystem
from interlock.stores.files.names import JOURNAL, segment_first_version
from interlock.stores.sqlite import connection as sqlite_connect
from interlock.stores.sqlite import store as sqlite
from interlock.stores.sqlite.writer import COMMIT
from interlock.testing.store_suite.samples import PARCEL

ENTITIES = 2
TASKS = 2
TRIES_MAX = 20
"""How often a key is sent. A conflict comes after many lost swaps already, so this often is never on a sound store."""


ROTATING = "#rotating"
SEGMENT_BYTES = 2_000


def plain(url: str) -> str:
    """Return the address without our suffix."""
    return url.removesuffix(ROTATING)


def settled(url: str) -> str:
    """Return the address without our suffix, and configure this process as the suffix says."""
    if url.endswith(ROTATING):
        small = {"segment_bytes_max": SEGMENT_BYTES, "snapshot_every": 10}
        patch.object(store, "Settings", lambda **given: Settings(**{**given, **small})).start()
    return plain(url)


def unsealed(url: str) -> list[str]:
    """Return the entities of a rotating store that have no sealed segment: for them, nothing was tested."""
    if not url.endswith(ROTATING):
        return []
    journals = Path(urlsplit(plain(url)).path).glob(f"resources/*/*/{JOURNAL}")
    names = {each.parent.name: {other.name for other in each.parent.iterdir()} for each in journals}
    return [
        f"other: {each} sealed no segment"
        for each, found in names.items()
        if not any(map(segment_first_version, found))
    ]


def parcels() -> Any:
    """Return the chart of the entities."""
    return loads(PARCEL.format(kind="parcel", revision="1.0.0"))


def entity_of(number: int) -> str:
    """Return the id of one of the entities."""
    return f"parcel/{number % ENTITIES}"


def writes(pipe: Connection, url: str, name: str, starts: tuple[int, ...], fault: str) -> None:
    """Send until the process is killed, with one task per first key."""
    logging.disable(logging.WARNING)  # what fails here does so on purpose
    if fault == "early":
        _answer_early()
    elif fault == "lockless":
        _lock_nothing()
    elif fault == "unsynced":
        _flush_nothing()
    try:
        asyncio.run(_writing(pipe, settled(url), name, starts))
    except InterlockError as error:
        pipe.send_bytes(f"failed {error}".encode())


async def _writing(pipe: Connection, url: str, name: str, starts: tuple[int, ...]) -> None:
    async with opening(url, charts=[parcels()]) as runtime:
        await asyncio.gather(*(_task(pipe, runtime, name, task, at) for task, at in enumerate(starts)))


async def _task(pipe: Connection, runtime: Runtime, name: str, task: int, at: int) -> None:
    while True:  # until it is killed
        key, entity = f"{name}.{task}.{at}", entity_of(task + at)
        pipe.send_bytes(f"asked {key} {entity}".encode())
        receipt = await _sent(runtime, entity, key)
        pipe.send_bytes(f"kept {key} {entity} {receipt.version} {receipt.outcome}".encode())
        at += 1


async def _sent(runtime: Runtime, entity: str, key: str) -> Receipt:
    """Send with the same key until there is a receipt."""
    for _ in range(TRIES_MAX - 1):
        with contextlib.suppress(ConflictError, UnavailableError):
            return await runtime.send(entity, "noted", key=key)
    return await runtime.send(entity, "noted", key=key)


class _Early:
    """A connection that delays COMMIT until the next statement: callers get their receipts too early."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._owes = False

    def execute(self, statement: str, *values: Any) -> sqlite3.Cursor:
        """As the connection, but COMMIT is delayed."""
        if self._owes:
            self._owes = False
            self._connection.execute(COMMIT)
        if statement == COMMIT:
            self._owes = True
            return self._connection.cursor()
        return self._connection.execute(statement, *values)

    @property
    def in_transaction(self) -> bool:
        """Report a committed transaction."""
        return self._connection.in_transaction and not self._owes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


def _answer_early() -> None:
    real = sqlite_connect.open_writer
    patch.object(sqlite, "open_writer", lambda path, **options: _Early(real(path, **options))).start()


def _lock_nothing() -> None:
    """Disable locks, and write slowly, so that appends of several processes overlap."""
    real = OperatingSystem.write_at

    def slow(self: OperatingSystem, file: int, offset: int, data: bytes) -> int:
        time.sleep(0.01)
        return real(self, file, offset, data)

    patch.object(OperatingSystem, "lock", lambda self, directory, ms_max: None).start()
    patch.object(OperatingSystem, "write_at", slow).start()


def _flush_nothing() -> None:
    for name in ("fdatasync", "fsync", "sync_directory"):
        patch.object(OperatingSystem, name, lambda self, file: None).start()
    pragmas = tuple(each.replace("synchronous = FULL", "synchronous = OFF") for each in sqlite_connect._WRITER)
    patch.object(sqlite_connect, "_WRITER", pragmas).start()
    patch.object(sqlite_connect, "_flush", lambda path: None).start()

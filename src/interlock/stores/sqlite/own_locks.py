"""Whether this process itself holds the write lock of a SQLite file, outside the store: the wait may never end then.

A program that sends inside its own open transaction waits for itself: the transaction ends after the send, and the send
waits for the end of the transaction.

Rule 1: it is recognized by the operating system's list of locks. The database and its shared memory are never opened to
ask: closing such a descriptor would drop every lock that SQLite has on the file in this process.
Rule 2: only a lock that stays is reported: seen at `LOOKS` looks one after the other, while nothing was committed. A
transaction of another thread that ends soon is waited for.
Rule 3: connections of our own stores do not count: their transactions always end.
"""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from interlock.stores.sqlite.files import Connection, connections_to, identity_at

LOCKS = "/proc/locks"
"""Where Linux lists the locks on files. Elsewhere nothing is recognized, and the wait ends with its timeout."""

WRITE_LOCK_BYTE = 120
"""The byte of the shared memory that SQLite locks for the one writer in WAL mode."""

LOOKS = 12
"""How often the lock must be seen: with the tries for the lock in between, a little more than a tenth of a second."""

DATA_VERSION = "PRAGMA data_version"


class OwnTransactionError(sqlite3.OperationalError):
    """The write lock is held by a transaction of the program itself."""

    sqlite_errorcode = sqlite3.SQLITE_BUSY
    sqlite_errorname = "SQLITE_BUSY"


class OwnLockDetector:
    """Looks at the lock of one file between the tries to get it."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._data_version: int | None = None
        self._looks = 0

    def look(self) -> None:
        """Raises OwnTransactionError when the program itself has held the lock for several looks."""
        connection = self._connection
        if not isinstance(connection, Connection) or not is_locked_here(connection):
            self._looks = 0
            return
        (data_version,) = connection.execute(DATA_VERSION).fetchone()
        self._looks = self._looks + 1 if data_version == self._data_version else 1
        self._data_version = data_version
        if self._looks >= LOOKS:
            raise OwnTransactionError("locked by a transaction of this process")


def is_locked_here(connection: Connection) -> bool:
    """Whether this process holds the write lock of the file, and none of our own connections does."""
    if any(each.in_transaction for each in connections_to(connection.identity) if each is not connection):
        return False
    shared = identity_at(f"{connection.path}-shm")
    if shared is None:
        return False
    device = f"{os.major(shared.device):02x}:{os.minor(shared.device):02x}:{shared.inode}"
    owner = str(os.getpid())
    try:
        with Path(LOCKS).open(encoding="ascii") as locks:
            lines = [line.split() for line in locks if device in line]
    except OSError:
        return False
    return any(
        fields[1:5] == ["POSIX", "ADVISORY", "WRITE", owner]
        and fields[5] == device
        and int(fields[6]) <= WRITE_LOCK_BYTE
        and fields[7] != "EOF"
        and int(fields[7]) >= WRITE_LOCK_BYTE
        for fields in lines
        if len(fields) == 8
    )

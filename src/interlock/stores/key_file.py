"""The data keys of a store in a file next to it: of SQLite databases and of folders. A small SQLite database.

Rule 1: keys are not in the file of the journals: a backup that contains both defeats an erasure. The key file has a
separate backup policy.
Rule 2: what is deleted is overwritten (`secure_delete`), and destroying a key empties the log as well
(`wal_checkpoint(TRUNCATE)`). A connection that reads at this moment prevents that; the answer says so.
Rule 3: the file is created with mode 600, by the first key that is stored.
Rule 4: a forked child opens its own connection.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from pathlib import Path
from threading import Lock
from typing import TypeVar

from interlock.errors import UnavailableError
from interlock.ports.threads import in_thread
from interlock.ports.trust.data_keys import DATA_KEYS_PAGE, DataKey, Destroyed, DestroyedKey

T = TypeVar("T")

SUFFIX = ".keys"
"""What the name of the key file adds to that of the database or the folder."""

BUSY_MS = 5_000
"""How long a write waits for another process: each takes a few milliseconds."""

_SCHEMA = """
CREATE TABLE IF NOT EXISTS data_key (
  store TEXT NOT NULL, kid TEXT NOT NULL, epoch INTEGER NOT NULL, wrapped BLOB, created_ms INTEGER NOT NULL,
  destroyed_ms INTEGER, PRIMARY KEY (store, kid)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS data_key_epoch (store TEXT PRIMARY KEY, oldest INTEGER NOT NULL) WITHOUT ROWID;
"""
ADD_KEY = "INSERT INTO data_key (store, kid, epoch, wrapped, created_ms) VALUES (?, ?, ?, ?, ?)"
OLDEST_EPOCH = "SELECT oldest FROM data_key_epoch WHERE store = ?"
FIND_KEY = "SELECT epoch, wrapped, created_ms, destroyed_ms FROM data_key WHERE store = ? AND kid = ?"
DESTROY_KEY = """
    INSERT INTO data_key (store, kid, epoch, wrapped, created_ms, destroyed_ms) VALUES (?1, ?2, 0, NULL, ?3, ?3)
    ON CONFLICT (store, kid) DO UPDATE SET wrapped = NULL, destroyed_ms = coalesce(destroyed_ms, excluded.destroyed_ms)
"""
DESTROYED_KEYS = """
    SELECT kid, destroyed_ms FROM data_key WHERE store = ? AND kid > ? AND destroyed_ms IS NOT NULL
    ORDER BY kid LIMIT ?"""
RETIRE_EPOCHS = """
    INSERT INTO data_key_epoch (store, oldest) VALUES (?1, ?2)
    ON CONFLICT (store) DO UPDATE SET oldest = max(oldest, excluded.oldest)"""
KEYS_BEFORE = """
    SELECT kid, epoch, wrapped, created_ms FROM data_key WHERE store = ? AND epoch < ? AND wrapped IS NOT NULL
    ORDER BY kid LIMIT ?"""
REPLACE_KEY = "UPDATE data_key SET epoch = ?, wrapped = ? WHERE store = ? AND kid = ? AND wrapped IS NOT NULL"
COUNT_KEYS = "SELECT epoch, count(*) FROM data_key WHERE store = ? AND wrapped IS NOT NULL GROUP BY epoch"


class KeyFile:
    """The data keys of one store. `store` names the tenant, and the prefix of its tables, in a file of several."""

    def __init__(self, path: Path, store: str) -> None:
        self.path = path
        self.tenant = store
        self._guard = Lock()
        self._connection: sqlite3.Connection | None = None
        self._process = 0

    async def add_keys(self, keys: tuple[DataKey, ...]) -> bool:
        """Store keys; False if an epoch of them is retired."""
        return await in_thread(lambda: self._change(lambda connection: self._add(connection, keys)))

    async def find_key(self, kid: str) -> DataKey | DestroyedKey | None:
        """Return a key, or that it was destroyed."""
        return await in_thread(lambda: self._read(lambda connection: self._find(connection, kid), None))

    async def destroy_key(self, kid: str, *, now_ms: int) -> Destroyed:
        """Destroy a key, and remove its bytes from the log."""

        def destroy() -> Destroyed:
            self._change(lambda connection: connection.execute(DESTROY_KEY, (self.tenant, kid, now_ms)))
            return self._call(_empty_log)

        return await in_thread(destroy)

    async def destroyed_keys(self, *, after: str = "", limit: int = DATA_KEYS_PAGE) -> tuple[DestroyedKey, ...]:
        """Return destroyed keys by id."""
        values = (self.tenant, after, limit)
        return await in_thread(
            lambda: self._read(
                lambda each: tuple(DestroyedKey(*row) for row in each.execute(DESTROYED_KEYS, values)), ()
            )
        )

    async def retire_epochs(self, before: int) -> None:
        """Accept no key of an older epoch any more."""
        await in_thread(lambda: self._change(lambda each: each.execute(RETIRE_EPOCHS, (self.tenant, before))))

    async def keys_before(self, epoch: int, *, limit: int = DATA_KEYS_PAGE) -> tuple[DataKey, ...]:
        """Return keys that are wrapped under an older epoch."""
        values = (self.tenant, epoch, limit)
        return await in_thread(
            lambda: self._read(lambda each: tuple(DataKey(*row) for row in each.execute(KEYS_BEFORE, values)), ())
        )

    async def replace_keys(self, keys: tuple[DataKey, ...]) -> None:
        """Store new wraps, and remove the old ones from the log."""
        rows = [(each.epoch, each.wrapped, self.tenant, each.kid) for each in keys]

        def replace() -> None:
            self._change(lambda connection: connection.executemany(REPLACE_KEY, rows))
            self._call(_empty_log)

        await in_thread(replace)

    async def count_keys(self) -> dict[int, int]:
        """Return how many keys each epoch has."""
        return await in_thread(lambda: self._read(lambda each: dict(each.execute(COUNT_KEYS, (self.tenant,))), {}))

    def close(self) -> None:
        """Close the connection of this process."""
        with self._guard:
            connection, self._connection = self._connection, None
            if connection is not None and self._process == os.getpid():
                connection.close()

    # Blocking

    def _add(self, connection: sqlite3.Connection, keys: Iterable[DataKey]) -> bool:
        row = connection.execute(OLDEST_EPOCH, (self.tenant,)).fetchone()
        if row is not None and any(each.epoch < row[0] for each in keys):
            return False
        rows = [(self.tenant, each.kid, each.epoch, each.wrapped, each.created_ms) for each in keys]
        connection.executemany(ADD_KEY, rows)
        return True

    def _find(self, connection: sqlite3.Connection, kid: str) -> DataKey | DestroyedKey | None:
        row = connection.execute(FIND_KEY, (self.tenant, kid)).fetchone()
        if row is None:
            return None
        epoch, wrapped, created_ms, destroyed_ms = row
        return DestroyedKey(kid, destroyed_ms) if wrapped is None else DataKey(kid, epoch, wrapped, created_ms)

    def _read(self, call: Callable[[sqlite3.Connection], T], absent: T) -> T:
        """Call a function that only reads; without a file the answer is `absent`."""
        return self._call(call) if self.path.exists() else absent

    def _change(self, call: Callable[[sqlite3.Connection], T]) -> T:
        """Call a function in a transaction."""

        def change(connection: sqlite3.Connection) -> T:
            connection.execute("BEGIN IMMEDIATE")
            try:
                answer = call(connection)
            except BaseException:
                connection.execute("ROLLBACK")
                raise
            connection.execute("COMMIT")
            return answer

        return self._call(change)

    def _call(self, call: Callable[[sqlite3.Connection], T]) -> T:
        with self._guard:
            try:
                return call(self._open())
            except sqlite3.Error as error:
                message = f"the key file {self.path} cannot be used: {error}"
                raise UnavailableError(message, code="keys.unavailable", hint="send again with the same key") from error

    def _open(self) -> sqlite3.Connection:
        if self._connection is not None and self._process == os.getpid():
            return self._connection
        with suppress(FileExistsError):
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        connection = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False, timeout=BUSY_MS / 1_000)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA secure_delete = ON")
        connection.execute("PRAGMA temp_store = MEMORY")
        connection.executescript(_SCHEMA)
        self._connection, self._process = connection, os.getpid()
        return connection


def _empty_log(connection: sqlite3.Connection) -> Destroyed:
    """Copy the log into the file and truncate it."""
    with closing(connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")) as cursor:
        is_busy, _, _ = cursor.fetchone()
    return Destroyed.PENDING if is_busy else Destroyed.FINAL

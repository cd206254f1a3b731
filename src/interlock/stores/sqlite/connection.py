"""Connections to a SQLite file: how they are opened, what they guarantee, and how errors are translated.

Rule 1: WAL with `synchronous=FULL`: a COMMIT that returned is on stable storage. NORMAL would lose the last ones.
Rule 2: one connection writes and checkpoints; readers are `query_only` and never checkpoint.
Rule 3: a file of another program, or of a newer release, is refused before anything in it is touched.
Rule 4: migrations run in one transaction under the write lock.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from interlock.errors import (
    CorruptionError,
    InterlockError,
    InternalError,
    NotFoundError,
    UnavailableError,
    UsageError,
)
from interlock.stores.sql.database import Questions
from interlock.stores.sql.schema import (
    OLDEST_READER,
    SELECT_OLDEST_READER,
    SELECT_SCHEMA,
    SchemaState,
    check_schema,
    newest_schema,
    pending_migrations,
    record_migration,
)
from interlock.stores.sqlite.files import CALLS, Connection, connect
from interlock.stores.sqlite.own_locks import OwnLockDetector, OwnTransactionError
from interlock.stores.sqlite.prefix import (
    APPLICATION_ID,
    VERSIONS,
    PrefixedConnection,
    check_prefix,
    find_prefix,
    prefixed,
    use_prefix,
)

T = TypeVar("T")

BUSY_MS = 5_000
"""How long a connection waits for the write lock of another process: the longest batch plus a slow flush."""

BUSY_MS_EACH = 10
"""How long one try for the write lock lasts. SQLite's own wait polls less and less often, up to every 100 ms, and then
starves while another process commits one batch after the other; many short waits get their turn."""

BUSY = "store.busy"
"""The error code when another process holds the write lock."""

BEGIN = "BEGIN IMMEDIATE"

CACHE_KIB = 16_384
"""The page cache of the writer: the pages of a busy batch; SQLite's default of 2 MiB would be read repeatedly."""

LIBRARY_MIN = (3, 37, 0)
"""The first SQLite with STRICT tables."""

LIBRARY_CHECKPOINTS_SAFELY = (3, 51, 3)
"""The first SQLite where a checkpoint of one connection and a write of another cannot damage the file."""

MOUNTS = "/proc/self/mounts"
"""Where Linux lists the mounted file systems."""

NETWORK_FILE_SYSTEMS = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "fuse.sshfs", "afs", "ceph", "glusterfs"}
)
"""File systems where locks and shared memory of WAL do not work between hosts."""

SELECT_TABLE = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?"

_COMMON = (
    "PRAGMA foreign_keys = ON",
    "PRAGMA trusted_schema = OFF",
    "PRAGMA wal_autocheckpoint = 0",
)
_WRITER = (
    f"PRAGMA cache_size = -{CACHE_KIB}",
    f"PRAGMA busy_timeout = {BUSY_MS_EACH}",
    "PRAGMA synchronous = FULL",
    "PRAGMA fullfsync = ON",
    "PRAGMA checkpoint_fullfsync = ON",
)
_POISONING = frozenset({sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})


def open_writer(path: Path, *, prefix: str | None = None, migrates: bool = True) -> Connection:
    """Open the connection that writes, on a file with the newest schema; create the file (0600) if needed.

    Raises NotFoundError when its folder is missing, UsageError when the file belongs to another program or a newer
    release, or was open in the parent of this process when it forked (`store.forked`); and, without `migrates`, when
    its schema is older (`schema.older`).
    """
    if sqlite3.sqlite_version_info < LIBRARY_MIN:
        raise UsageError(f"SQLite {sqlite3.sqlite_version} is too old; expected 3.37 or newer", code="sqlite.version")
    check_file_system(path)
    if not path.parent.is_dir():
        raise NotFoundError(f"the folder {path.parent} does not exist", code="store.folder", hint="create it first")
    if not (migrates or path.exists()):
        hint = f"run `interlock db upgrade {address_of(path, prefix)}`, which creates it"
        raise NotFoundError(f"the store {path} does not exist", code="store.not_found", hint=hint)
    with CALLS:
        try:
            connection = connect(path, busy_ms=BUSY_MS, create=migrates)
        except sqlite3.Error as error:
            raise translate_error(error, path) from error
        try:
            for pragma in (*_COMMON, *_WRITER):
                connection.execute(pragma)
            use_prefix(connection, find_prefix(connection, path, prefix))
            _return_free_pages(connection)
            if not migrates:
                check_schema("sqlite", schema_state(connection), place=str(path), url=address_of(path, prefix))
            _enable_wal(connection, path)
            _migrate(connection, path)
            _flush(path)
        except sqlite3.Error as error:
            connection.close()
            raise translate_error(error, path) from error
        except BaseException:
            connection.close()
            raise
    return connection


def address_of(path: Path, prefix: str | None) -> str:
    """Return the address of a file, for commands in hints."""
    return f"sqlite:///{quote(str(path))}" + (f"?prefix={prefix}" if prefix else "")


def open_projector(path: Path) -> Connection:
    """Open a connection that writes tables of the program, as durable as steps. Called inside `CALLS`."""
    connection = connect(path, busy_ms=BUSY_MS_EACH)
    try:
        for pragma in (*_COMMON, *_WRITER):
            connection.execute(pragma)
    except BaseException:
        connection.close()
        raise
    return connection


def open_reader(path: Path, *, prefix: str = "") -> Connection:
    """Open a connection that can only read. Raises as `files.connect` does."""
    with CALLS:
        connection = connect(path, busy_ms=BUSY_MS)
        try:
            for pragma in (*_COMMON, "PRAGMA query_only = ON"):
                connection.execute(pragma)
            use_prefix(connection, prefix)
        except BaseException:
            connection.close()
            raise
    return connection


def _return_free_pages(connection: sqlite3.Connection) -> None:
    """Create a new file so that its free pages can be cut off in steps. In any other file this would need VACUUM."""
    if connection.execute("PRAGMA page_count").fetchone()[0] == 0:
        with suppress(sqlite3.OperationalError):  # another process creates the file at this moment
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")


def _enable_wal(connection: sqlite3.Connection, path: Path) -> None:
    mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
    if mode != "wal":
        raise UnavailableError(f"{path} cannot use WAL mode (its mode is {mode})", code="store.journal_mode")


def _migrate(connection: Connection, path: Path) -> None:
    """Upgrade the schema; of several processes that open a new file at the same time, one does it."""
    if not pending_migrations("sqlite", schema_state(connection), place=str(path)):
        return  # without the write lock, for which busy processes would make this one wait
    begin(connection)
    try:
        state = schema_state(connection)
        _run_migrations(connection, state, place=str(path))
        if state.current == 0 and not connection.prefix:
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def migrate_joined(connection: sqlite3.Connection, prefix: str) -> int:
    """Create or upgrade the tables of a store on a connection of the caller, in its transaction; return the number.

    A connection in autocommit has no transaction: the migration is a separate one, and committed here. Alembic uses
    such connections for SQLite. Raises UsageError when the tables are of a newer release, or the prefix is invalid.
    """
    check_prefix(prefix)
    commits = not connection.in_transaction and is_autocommit(connection)
    if not connection.in_transaction:
        connection.execute(BEGIN)
    ours = PrefixedConnection(connection, prefix)
    try:
        _run_migrations(ours, schema_state(ours), place="the file")
    except BaseException:
        if commits:
            connection.execute("ROLLBACK")
        raise
    if commits:
        connection.execute("COMMIT")
    return newest_schema("sqlite")


def is_autocommit(connection: sqlite3.Connection) -> bool:
    """Whether the driver starts no transaction automatically, in either of its two ways to say so."""
    autocommit = getattr(connection, "autocommit", None)  # Python 3.12; -1: as `isolation_level` says
    return autocommit is True or (autocommit in {None, -1} and connection.isolation_level is None)


def upgrade_statements(state: SchemaState, prefix: str, *, place: str) -> list[str]:
    """Return the statements that upgrade a schema in one transaction, for a person or another tool."""
    found = []
    for each in pending_migrations("sqlite", state, place=place):
        statements = (prefixed(text, prefix).strip("\n") for text in _statements(each.text))
        found += [f"-- {each.number:04} {each.name}", *statements]
        found.append(prefixed(f"{record_migration('sqlite', each)};", prefix))
    if found and state.current == 0 and not prefix:
        found.append(f"PRAGMA application_id = {APPLICATION_ID};")
    return found


def upgrade_script(state: SchemaState, prefix: str, *, place: str) -> str:
    """Return a script that upgrades a schema; empty when there is nothing to do."""
    statements = upgrade_statements(state, prefix, place=place)
    lines = ("PRAGMA journal_mode = WAL;", f"{BEGIN};", *statements, "COMMIT;", "")
    return "\n".join(lines) if statements else ""


def _run_migrations(connection: Connection | PrefixedConnection, state: SchemaState, *, place: str) -> None:
    for each in pending_migrations("sqlite", state, place=place):
        for statement in _statements(each.text):
            connection.execute(statement)
        connection.execute(record_migration("sqlite", each))


def schema_state(connection: Connection | PrefixedConnection) -> SchemaState:
    """Return the schema number of a file, and the oldest that a release must know to use it."""
    current = schema_number(connection)
    columns = {row[1] for row in connection.execute(f"PRAGMA table_info({connection.prefix}{VERSIONS})")}
    if OLDEST_READER not in columns:
        return SchemaState(current)
    return SchemaState(current, connection.execute(SELECT_OLDEST_READER).fetchone()[0])


def schema_number(connection: Connection | PrefixedConnection) -> int:
    """Return the number of the store's schema in a file; 0 when it has none."""
    if connection.execute(SELECT_TABLE, (f"{connection.prefix}{VERSIONS}",)).fetchone() is None:
        return 0
    current: int = connection.execute(SELECT_SCHEMA).fetchone()[0]
    return current


def run_questions(connection: sqlite3.Connection, questions: Questions[T]) -> T:
    """Run the questions of a rule on a connection, and return their result."""
    rows: Any = None
    while True:
        try:
            statement, values, many = questions.send(rows)
        except StopIteration as done:
            result: T = done.value
            return result
        if many is None:
            rows = connection.execute(statement, values).fetchall()
        else:
            rows = [row for each in many for row in connection.execute(statement, (*values, *each)).fetchall()]


def begin(connection: sqlite3.Connection, *, waits: bool = True) -> None:
    """Start a transaction that writes; wait for other processes up to `BUSY_MS`, or just for one short try.

    Raises OwnTransactionError when the program itself holds the lock and keeps it.
    """
    detector = OwnLockDetector(connection)
    for _ in range(BUSY_MS // BUSY_MS_EACH - 1 if waits else 0):
        try:
            connection.execute(BEGIN)
        except sqlite3.OperationalError as error:
            if primary_code(error) != sqlite3.SQLITE_BUSY:
                raise
            detector.look()
        else:
            return
    connection.execute(BEGIN)


def _statements(text: str) -> Iterator[str]:
    # `executescript` would commit the transaction that makes a migration whole.
    statement = ""
    for line in text.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


def _flush(path: Path) -> None:
    """Flush what recovery may have read from the page cache only, and the directory entries.

    A writer killed between its write and its flush leaves whole frames that SQLite recovers without a flush of its
    own; a `duplicate` answered from them would acknowledge what a power cut can still lose. The database file itself
    is never opened here: closing it would drop every lock that SQLite has on it in this process.
    """
    for each in (path.with_name(path.name + "-wal"), path.parent):
        try:
            descriptor = os.open(each, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        except FileNotFoundError:
            continue  # the last process that closed the file deleted its WAL
        except OSError as error:
            raise UnavailableError(f"{each} cannot be flushed: {error.strerror}", code="store.io") from error


def check_file_system(path: Path, mounts: str = MOUNTS) -> None:
    """Raises UsageError when the file would be on a network file system, where that can be known."""
    found = file_system(path, mounts)
    if found in NETWORK_FILE_SYSTEMS:
        message = f"{path} is on {found}; the write-ahead log of SQLite needs a local disk"
        raise UsageError(message, code="store.network", hint="use a local file, or PostgreSQL")


def file_system(path: Path, mounts: str = MOUNTS) -> str | None:
    """Return the type of file system that a file is on, such as ext4; None when it is unknown."""
    try:
        lines = Path(mounts).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    parent = path.resolve().parent
    best, found = -1, None
    for line in lines:
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        point = fields[1].replace("\\040", " ")
        if parent.is_relative_to(point) and len(point) >= best:
            best, found = len(point), fields[2]
    return found


def poisons(error: sqlite3.Error) -> bool:
    """Return whether the connection can no longer be trusted."""
    return primary_code(error) in _POISONING


def translate_error(error: sqlite3.Error, path: Path) -> InterlockError:
    """Return the error as one of ours, by what the caller should do next."""
    if isinstance(error, OwnTransactionError):
        message = f"{path.name} is locked by an open transaction of this process"
        hint = "use runtime.join(connection) to send in that transaction, or commit it first"
        return UsageError(message, code="store.own_transaction", hint=hint)
    match primary_code(error):
        case sqlite3.SQLITE_FULL:
            return UnavailableError(f"no space left for {path.name}", code="store.full", hint="free some space")
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return UnavailableError(f"{path.name} was locked by another process for too long", code=BUSY)
        case sqlite3.SQLITE_PROTOCOL:
            return UnavailableError(f"{path.name} cannot be locked: {error}", code="store.lock")
        case sqlite3.SQLITE_IOERR:
            message = f"disk error on {path.name}: {error}"
            return UnavailableError(message, code="store.io", hint="check the disk, then restart the process")
        case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_NOTADB:
            message = f"{path.name} is damaged, or is not a SQLite file: {error}"
            return CorruptionError(message, code="store.corrupt", hint="keep the file as evidence")
        case sqlite3.SQLITE_NOMEM:
            return UnavailableError(f"{path.name} cannot be used: {error}", code="store.open")
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_PERM:
            hint = "the file and its folder must be writable, even for reading: SQLite creates files next to it"
            return UnavailableError(f"{path.name} cannot be used: {error}", code="store.open", hint=hint)
        case _:
            return InternalError(f"SQLite rejected a statement of the store: {error}", code="store.statement")


def primary_code(error: sqlite3.Error) -> int:
    """Return SQLite's code of an error, without what it adds to it."""
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF

"""The files of a SQLite database that this process has open: who may use them after a fork, and whether they are still
the files at their paths.

SQLite uses POSIX locks, which belong to a process, and its own list of files and locks in memory. A forked child
inherits that list, but none of the locks: it believes that it holds locks that others can take, and the other processes
delete or restart the write-ahead log that it writes to. Acknowledged entries are lost, and no error is raised.

Rule 1: every connection of this package is opened here, and is registered until it is closed.
Rule 2: a forked child refuses (`store.forked`) a database that was open in its parent at the moment of the fork. It is
recognized by device and inode: another path or a link leads to the same file. Other databases work as usual.
Rule 3: a forked child never runs a statement on an inherited connection, and never closes it, not even when the
interpreter exits: closing the last connection deletes the write-ahead log.
Rule 4: a fork waits until no thread is inside SQLite (`CALLS`), for `FORK_WAIT_MS_MAX` at most: a mutex of the library
that a thread held at that moment would stay locked in the child. If a thread stays inside, the child refuses every
database.
Rule 5: nothing is acknowledged that is in a file that lost its path (`DatabaseFiles`). Closing such a database does no
harm: SQLite deletes the write-ahead log only if the database is still at its path.
"""

from __future__ import annotations

import os
import sqlite3
import time
from pathlib import Path
from threading import Event, Lock, get_ident
from typing import NamedTuple, NoReturn

from interlock.errors import InterlockError, UsageError
from interlock.model.limits import FORK_PAUSE_US, FORK_WAIT_MS_MAX, REPLACED_ATTEMPTS_MAX
from interlock.ports.fork import FORKED_HINT, forked_error, keep_forever
from interlock.stores.file_identity import replaced_error


class Identity(NamedTuple):
    """Device and inode: they identify a file, whatever its paths are."""

    device: int
    inode: int


def identity_at(path: Path | str) -> Identity | None:
    """Return the identity of the file at a path; None when there is none, or it cannot be read."""
    try:
        found = os.stat(path)  # noqa: PTH116 - no `Path` is needed
    except OSError:
        return None
    return Identity(found.st_dev, found.st_ino)


class Calls:
    """`with CALLS:` around everything that runs inside SQLite. Waits while a thread of this process forks.

    It uses no lock: Ctrl-C may be raised between any two instructions, and the next call of the same thread corrects
    what it left behind. Calls are not nested.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Start again in a forked child: the other threads do not exist here."""
        self._inside: dict[int, None] = {}
        self._forking: dict[int, None] = {}
        self._over = Event()

    def __enter__(self) -> None:
        inside, me = self._inside, get_ident()
        inside[me] = None  # before the check: a fork that starts now sees it
        while self._forking and me not in self._forking:
            inside.pop(me, None)
            if not self._over.wait(
                2 * FORK_WAIT_MS_MAX / 1000
            ):  # the end of the fork was interrupted before it was signalled
                self._forking.clear()
            inside[me] = None

    def __exit__(self, *error: object) -> None:
        self._inside.pop(get_ident(), None)

    def others_inside(self) -> bool:
        """Return whether another thread is inside SQLite."""
        me = get_ident()
        return any(each != me for each in list(self._inside))

    def before_fork(self) -> None:
        """Keep other threads out, and wait until no thread is inside."""
        self._over.clear()
        self._forking[get_ident()] = None
        for _ in range(FORK_WAIT_MS_MAX * 1000 // FORK_PAUSE_US):
            if not self.others_inside():
                return
            time.sleep(FORK_PAUSE_US / 1_000_000)

    def after_fork(self) -> None:
        """Let threads in again, in the process that forked."""
        self._forking.pop(get_ident(), None)
        if not self._forking:
            self._over.set()


CALLS = Calls()
"""The calls of SQLite in this process."""


class Connection(sqlite3.Connection):
    """A connection that knows which file it has open. Created by `connect`."""

    path: Path
    identity: Identity
    prefix: str = ""
    """What every name of a table starts with; see `prefix`."""

    def close(self) -> None:
        """Close and unregister it."""
        super().close()
        _open.pop(id(self), None)

    def inherit(self) -> None:
        """Refuse every use in a forked child, without a call of SQLite."""
        keep_forever(self)
        for name in ("execute", "executemany", "executescript", "cursor", "commit", "rollback", "backup"):
            setattr(self, name, _refuse)
        setattr(self, "close", _leave)  # noqa: B010 - a type checker rejects the assignment


def _refuse(*_: object, **__: object) -> NoReturn:
    raise forked_error("this connection")


def _leave() -> None:
    """Do nothing: an inherited connection is never closed."""


_open: dict[int, Connection] = {}
"""The open connections of this process, by their ids. The reference keeps them open when a caller drops them."""

_inherited: set[Identity] = set()
"""The files that were open in a parent of this process when it forked."""

_process = os.getpid()
_is_tainted = False
"""Whether a thread of a parent was inside SQLite at the fork: then a mutex of the library may be locked forever."""

_opening = Lock()
"""Held while a file is created and opened. Closing a descriptor drops all POSIX locks of this process on its file, so
no other connection may have a new file open before the descriptor that created it is closed."""


def connect(path: Path, *, busy_ms: int, create: bool = False) -> Connection:
    """Open a connection to a database file; with `create`, create a missing file (0600). Called inside `CALLS`.

    Raises UsageError (`store.forked`) for a file that a parent of this process had open when it forked, sqlite3.Error
    when it cannot be opened, UnavailableError (`store.replaced`) when it is replaced meanwhile.
    """
    if os.getpid() != _process:  # a fork without the hooks of Python, such as one in a C library
        _become_child()
    if _is_tainted:
        message = f"{path} cannot be opened: another thread was inside SQLite when this process was forked"
        raise UsageError(message, code="store.forked", hint=FORKED_HINT)
    for _ in range(REPLACED_ATTEMPTS_MAX):
        with _opening:
            connection = _try_connect(path, busy_ms=busy_ms, create=create)
        if connection is not None:
            return connection
    raise replaced_error(f"{path} was replaced repeatedly")


def _try_connect(path: Path, *, busy_ms: int, create: bool) -> Connection | None:
    """Try once; None when the file was replaced meanwhile."""
    if create:
        _create(path)
    found = identity_at(path)
    if found in _inherited:
        raise forked_error(str(path))
    # Transactions are started and ended explicitly (isolation_level None). A connection is used by one thread at a
    # time, but may be closed by another one.
    connection = sqlite3.connect(
        f"{path.as_uri()}?mode=rw",
        uri=True,
        isolation_level=None,
        check_same_thread=False,
        timeout=busy_ms / 1000,
        factory=Connection,
    )
    if found is None or identity_at(path) != found:
        sqlite3.Connection.close(connection)  # nothing was read or written yet
        return None
    connection.path, connection.identity = path, found
    _open[id(connection)] = connection
    return connection


def _create(path: Path) -> None:
    """Create an empty file that only its owner can read. SQLite gives the log and the shared memory the same mode."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except OSError:
        return  # it exists; or it cannot be created, and SQLite says why
    os.close(descriptor)


def connections_to(identity: Identity) -> list[Connection]:
    """Return the open connections of this package to a file."""
    return [each for each in list(_open.values()) if each.identity == identity]


class DatabaseFiles:
    """The database, its write-ahead log and its shared memory, as a connection that writes has them open.

    SQLite neither deletes nor replaces one of them while a connection is open.
    """

    def __init__(self, connection: Connection) -> None:
        self.identity = connection.identity
        self._path = connection.path
        companions = [f"{self._path}{suffix}" for suffix in ("-wal", "-shm")]
        self._known = [(str(self._path), self.identity), *((each, identity_at(each)) for each in companions)]

    def problem(self) -> InterlockError | None:
        """Return why nothing that is written now can be acknowledged; None when all paths lead to the open files."""
        for path, identity in self._known:
            try:
                found = os.stat(path)  # noqa: PTH116 - called at every commit; `Path.stat` takes twice as long
            except OSError:
                return replaced_error(f"{path} was moved or deleted")
            if identity is None or found.st_ino != identity.inode or found.st_dev != identity.device:
                return replaced_error(f"{path} was replaced")
        return None


def _become_child() -> None:
    global _process, _is_tainted, _opening  # noqa: PLW0603 - what this process has open is one state for the process
    _process, _opening = os.getpid(), Lock()
    connections = list(_open.values())
    _is_tainted = _is_tainted or CALLS.others_inside()
    _inherited.update(each.identity for each in connections)
    for each in connections:
        each.inherit()
    _open.clear()
    CALLS.reset()


os.register_at_fork(before=CALLS.before_fork, after_in_parent=CALLS.after_fork, after_in_child=_become_child)

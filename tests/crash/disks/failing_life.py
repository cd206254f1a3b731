"""A short run of a store in a separate process, during which a system call may fail or kill the process.

Arguments: the store (`files`, `rotating` or `sqlite`), its path, the keys to send. The process prints `asked <key>`
before a send, `kept <key> <version>` after its receipt, and `refused <key> <code>` after an error. Each line is one
write, so that a killed process has printed all that it knew. A refused key is sent once more, and then the run ends.
The last line `ended <ms>` gives the duration of the slowest call.

Every error that is not UnavailableError ends the process with a traceback, which the caller counts as a finding.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, TypeVar

from interlock.errors import UnavailableError
from interlock.model.journal.record import JournalRecord
from interlock.ports.clock import SystemClock
from interlock.ports.store import (
    Append,
    Appended,
    AppendResult,
    Duplicate,
    Loaded,
)
from interlock.stores.files.blocking_store import BlockingFileStore
from interlock.stores.files.durable_io import Settings
from interlock.stores.files.filesystem import OperatingSystem
from interlock.stores.sqlite import connection
from interlock.stores.sqlite.store import SqliteStore
from tests.crash.life import ENTITY, StuckError, step
from tests.support.disk_speed import QUICK, SLOW

TRIES = 2
NAME = "store"
LOCK_MS = 1_000
"""How long a store waits here for a lock: some faults leave one behind for the life of the process."""

SETTINGS = {
    "files": Settings(snapshot_every=3, lock_ms_max=LOCK_MS),
    "rotating": Settings(snapshot_every=3, lock_ms_max=LOCK_MS, segment_bytes_max=800),
}
T = TypeVar("T")


class Plain(Protocol):
    """The calls of a store that a run needs, without `await`."""

    def load(self, entity: str) -> Loaded | Duplicate | None:
        """Load the entity."""

    def append(self, append: Append) -> AppendResult:
        """Append one step."""

    def read(self, entity: str, *, after: int = 0) -> tuple[JournalRecord, ...]:
        """Read a page of records."""

    def close(self) -> None:
        """Close the store."""


class Counting(SystemClock):
    """Temporary files have sequential names, so that the tracer knows the paths in advance."""

    def __init__(self) -> None:
        self._count = 0

    def token(self) -> str:
        """Return the next name."""
        self._count += 1
        return f"t{self._count}"


class Waited:
    """A SQLite store with blocking calls. Every other step is committed in the thread of the caller, on any disk."""

    def __init__(self, path: Path) -> None:
        self._runner = asyncio.Runner()
        try:
            self._store = SqliteStore(path)
        except BaseException:
            self._runner.close()
            raise

    def load(self, entity: str) -> Loaded | Duplicate | None:
        """Load the entity."""
        return self._runner.run(self._store.load(entity))

    def append(self, append: Append) -> AppendResult:
        """Append one step."""
        self._store.database.queue.policy = QUICK if append.entry.version % 2 else SLOW
        return self._runner.run(self._store.append(append))

    def read(self, entity: str, *, after: int = 0) -> tuple[JournalRecord, ...]:
        """Read a page of records."""
        return self._runner.run(self._store.read(entity, after=after))

    def close(self) -> None:
        """Close the store."""
        try:
            self._runner.run(self._store.close())
        finally:
            self._runner.close()


def opened(store: str, place: Path, *, counting: bool = False) -> Plain:
    """Open the store at a path."""
    if store == "sqlite":
        return Waited(place / NAME)
    fs = OperatingSystem(Counting()) if counting else OperatingSystem()
    return BlockingFileStore(str(place / NAME), fs, SETTINGS[store], shard_digits=0)


class Timed:
    """A store that measures its slowest call."""

    def __init__(self, store: Plain) -> None:
        self.ms_max = 0
        self.read = store.read
        self.close = store.close
        self._store = store

    def load(self, entity: str) -> Loaded | Duplicate | None:
        """Load the entity."""
        return self._timed(lambda: self._store.load(entity))

    def append(self, append: Append) -> AppendResult:
        """Append one step."""
        return self._timed(lambda: self._store.append(append))

    def _timed(self, call: Callable[[], T]) -> T:
        started = time.monotonic()
        try:
            return call()
        finally:
            self.ms_max = max(self.ms_max, round(1000 * (time.monotonic() - started)))


def sent(store: Plain, key: str) -> Appended | Duplicate:
    """Load, step and append, as a driver does; repeat after a conflict."""
    for _ in range(5):
        loaded = store.load(ENTITY)
        version = loaded.version if isinstance(loaded, Loaded) else 0
        answer = store.append(step(version + 1, key, filler="x" * 200))
        if isinstance(answer, Appended | Duplicate):
            return answer
    raise StuckError("the swap was lost five times without a rival")


def main(name: str, place: str, *keys: str) -> None:
    """Run once."""
    connection.BUSY_MS = LOCK_MS
    store: Timed | None = None
    for key in keys:
        _say("asked", key)
        tries = TRIES
        while tries:
            tries -= 1
            try:
                store = store or Timed(opened(name, Path(place), counting=True))
                version = sent(store, key).version
            except UnavailableError as error:
                _say("refused", key, error.code)
                if name == "sqlite" and error.code == "store.lock":
                    tries = 0  # SQLite has lost a lock for good: the second try would wait as long, for nothing
            else:
                _say("kept", key, version)
                break
        else:
            break
    if store is not None:
        store.close()
    _say("ended", 0 if store is None else store.ms_max)


def _say(*words: object) -> None:
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


if __name__ == "__main__":
    main(*sys.argv[1:])

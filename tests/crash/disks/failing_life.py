"""One short life of a store, in a process of its own, during which some system call may fail or kill.

Arguments: the store (`files`, `rotating` or `sqlite`), its place, the keys to send. Before each send the
line `asked <key>` goes out, after its receipt `kept <key> <version>`, after an error `refused <key> <code>`; all are
written at once, so what a killed process said is what it knew. A key that was refused is sent once more, and then the
life ends. In the end `ended <ms>` tells how long the slowest call took.

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
from interlock.ports.store import Append, Appended, Conflict, Duplicate, KeyExpired, Loaded, StaleAttempt
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
    """What a life needs of a store, as plain calls."""

    def load(self, entity: str) -> Loaded | Duplicate | None:
        """The entity as it is."""

    def append(self, append: Append) -> Appended | Duplicate | Conflict | StaleAttempt | KeyExpired:
        """Keep one step."""

    def read(self, entity: str, *, after: int = 0) -> tuple[JournalRecord, ...]:
        """A page of records."""

    def close(self) -> None:
        """Let go of everything."""


class Counting(SystemClock):
    """Names of temporary files are counted, so that whoever watches knows the paths beforehand."""

    def __init__(self) -> None:
        self._count = 0

    def token(self) -> str:
        """The next name."""
        self._count += 1
        return f"t{self._count}"


class Waited:
    """A SQLite store whose answers are waited for. Every other step is committed in place, whatever disk it is."""

    def __init__(self, path: Path) -> None:
        self._runner = asyncio.Runner()
        try:
            self._store = SqliteStore(path)
        except BaseException:
            self._runner.close()
            raise

    def load(self, entity: str) -> Loaded | Duplicate | None:
        """The entity as it is."""
        return self._runner.run(self._store.load(entity))

    def append(self, append: Append) -> Appended | Duplicate | Conflict | StaleAttempt | KeyExpired:
        """Keep one step."""
        self._store.database.queue.policy = QUICK if append.entry.version % 2 else SLOW
        return self._runner.run(self._store.append(append))

    def read(self, entity: str, *, after: int = 0) -> tuple[JournalRecord, ...]:
        """A page of records."""
        return self._runner.run(self._store.read(entity, after=after))

    def close(self) -> None:
        """Let go of everything."""
        try:
            self._runner.run(self._store.close())
        finally:
            self._runner.close()


def opened(store: str, place: Path, *, counting: bool = False) -> Plain:
    """The store at a place, opened anew."""
    if store == "sqlite":
        return Waited(place / NAME)
    fs = OperatingSystem(Counting()) if counting else OperatingSystem()
    return BlockingFileStore(str(place / NAME), fs, SETTINGS[store], shard_digits=0)


class Timed:
    """A store that notes how long its slowest call took."""

    def __init__(self, store: Plain) -> None:
        self.ms_max = 0
        self.read = store.read
        self.close = store.close
        self._store = store

    def load(self, entity: str) -> Loaded | Duplicate | None:
        """The entity as it is."""
        return self._timed(lambda: self._store.load(entity))

    def append(self, append: Append) -> Appended | Duplicate | Conflict | StaleAttempt | KeyExpired:
        """Keep one step."""
        return self._timed(lambda: self._store.append(append))

    def _timed(self, call: Callable[[], T]) -> T:
        begun = time.monotonic()
        try:
            return call()
        finally:
            self.ms_max = max(self.ms_max, round(1000 * (time.monotonic() - begun)))


def sent(store: Plain, key: str) -> Appended | Duplicate:
    """What a driver does: load, step, append, and again when the swap was lost."""
    for _ in range(5):
        loaded = store.load(ENTITY)
        version = loaded.version if isinstance(loaded, Loaded) else 0
        answer = store.append(step(version + 1, key, filler="x" * 200))
        if isinstance(answer, Appended | Duplicate):
            return answer
    raise StuckError("the swap was lost five times without a rival")


def main(name: str, place: str, *keys: str) -> None:
    """The life."""
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

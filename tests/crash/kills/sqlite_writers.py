"""Processes that write to a SQLite store and die at a chosen place. Run as a script.

torn ADDRESS                   a batch, then another one, then kill -9 of itself; prints the log's size after each
inside FOLDER COUNT            a child per statement of a batch of so many, killed before it; prints how many statements
                               (a batch of one is committed in place, in the thread of its caller)
"""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from interlock.stores.sqlite.store import SqliteStore, open_store
from interlock.testing.store_suite.samples import Life
from tests.support.disk_speed import QUICK, SLOW

BATCH = 8


def say(*words: object) -> None:
    """Print one line in one write; it is shorter than the buffer of a pipe."""
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


async def torn(address: str) -> None:
    """Commit two batches in two transactions, then kill this process."""
    store = open_store(address)
    log = store.database.path.with_name(store.database.path.name + "-wal")
    lives = [Life(f"parcel/{each}") for each in range(BATCH)]
    for step in ("created", "stepped"):
        appends = [life.created() if step == "created" else life.stepped("shipped", key="s") for life in lives]
        await asyncio.gather(*map(store.append, appends))
        say(log.stat().st_size)
    os.kill(os.getpid(), signal.SIGKILL)


class Deadly:
    """A connection that kills its process before the k-th statement of the second batch."""

    def __init__(self, connection: sqlite3.Connection, kill_at: int) -> None:
        self.connection = connection
        self.left = kill_at
        self.armed = False

    def execute(self, statement: str, *values: Any) -> sqlite3.Cursor:
        """As the connection, until the count is reached."""
        self._live()
        return self.connection.execute(statement, *values)

    def executemany(self, statement: str, rows: Iterable[Any]) -> sqlite3.Cursor:
        """As the connection; each row counts as a statement."""
        return self.connection.executemany(statement, map(self._run_life, rows))

    def _run_life(self, row: Any) -> Any:
        self._live()
        return row

    def _live(self) -> None:
        if self.armed:
            if self.left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            self.left -= 1

    def __getattr__(self, name: str) -> Any:
        return getattr(self.connection, name)


async def second_batch(path: Path, count: int, kill_at: int) -> int:
    """Append a batch, then one during which the process is killed; return how many statements were left."""
    store = SqliteStore(path)
    deadly = Deadly(store.database.queue.writer._connection, kill_at)
    store.database.queue.writer._connection = deadly  # type: ignore[assignment]  # it is one in all that matters
    lives = [Life(f"parcel/{each}") for each in range(count)]
    await asyncio.gather(*(store.append(life.created()) for life in lives))
    deadly.armed = True
    store.database.queue.policy = QUICK if count == 1 else SLOW
    await asyncio.gather(*(store.append(life.stepped("shipped", key="s")) for life in lives))
    return deadly.left


def inside(folder: Path, count: int) -> None:
    """Kill a child before each statement, until one finishes the batch."""
    for kill_at in range(1_000):
        child = os.fork()
        if child == 0:
            left = asyncio.run(second_batch(folder / f"{kill_at}.db", count, kill_at))
            os._exit(0 if left >= 0 else 1)
        _, ending = os.waitpid(child, 0)
        if not os.WIFSIGNALED(ending):
            say(kill_at, os.waitstatus_to_exitcode(ending))
            return


if __name__ == "__main__":
    command, *arguments = sys.argv[1:]
    if command == "torn":
        asyncio.run(torn(arguments[0]))
    else:
        inside(Path(arguments[0]), int(arguments[1]))

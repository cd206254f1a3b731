"""Processes that write to a SQLite store until they are killed. Run as a script; every acknowledgement is one line.

storm ADDRESS NAME START...    a task per START, each sending under keys NAME.<task>.<number> from START on
torn ADDRESS                   a batch, then another one, then kill -9 of itself; prints the log's size after each
inside FOLDER                  a child per statement of a batch, killed before it; prints how many statements
"""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import sys
from pathlib import Path
from typing import Any

from interlock.errors import ConflictError, InterlockError, UnavailableError
from interlock.ports.clock import SystemClock
from interlock.ports.store import Refusal
from interlock.runtime.charts import Charts
from interlock.runtime.send import Runtime
from interlock.stores.sqlite import SqliteStore, open_store
from interlock.stores.sqlite_batch import Counts
from interlock.stores.sqlite_connect import begin
from interlock.stores.sqlite_writer import COMMIT, Answer, Waiting, Writer
from interlock.testing.store_samples import Life, kernel

ENTITIES = 6
BATCH = 8


def say(*words: object) -> None:
    """One line, whole or not at all: it is shorter than a pipe's buffer."""
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


async def storm(address: str, name: str, starts: list[int]) -> None:
    """Send for ever; a key is given up only once it is acknowledged."""
    runtime = Runtime(open_store(address), Charts([kernel()]), SystemClock())

    async def task(number: int, at: int) -> None:
        while True:  # until it is killed
            key, entity = f"{name}.{number}.{at}", f"parcel/{(number + at) % ENTITIES}"
            try:
                receipt = await runtime.send(entity, "noted", key=key)
            except (UnavailableError, ConflictError):
                continue
            say(key, entity, receipt.version, receipt.outcome)
            at += 1

    await asyncio.gather(*(task(number, at) for number, at in enumerate(starts)))


def written_early(
    self: Writer, batch: list[Waiting], refusals: list[Refusal]
) -> list[tuple[Waiting, Answer | InterlockError]]:
    """A transaction whose callers are told before it is durable: the fault that the promise is about."""
    counts: Counts = {}
    begin(self._connection)
    self._answer([(each, self._step(each, counts)) for each in batch])
    self._connection.execute(COMMIT)
    return []


async def torn(address: str) -> None:
    """Two batches in two transactions, then the end."""
    store = open_store(address)
    log = store._path.with_name(store._path.name + "-wal")
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
        """As the connection, while there is time."""
        if self.armed:
            if self.left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            self.left -= 1
        return self.connection.execute(statement, *values)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.connection, name)


async def second_batch(path: Path, kill_at: int) -> int:
    """A batch that is acknowledged, then one during which the process dies; how many statements were left."""
    store = SqliteStore(path)
    deadly = Deadly(store._writer._connection, kill_at)
    store._writer._connection = deadly  # type: ignore[assignment]  # it is one in all that matters
    lives = [Life(f"parcel/{each}") for each in range(3)]
    await asyncio.gather(*(store.append(life.created()) for life in lives))
    deadly.armed = True
    await asyncio.gather(*(store.append(life.stepped("shipped", key="s")) for life in lives))
    return deadly.left


def inside(folder: Path) -> None:
    """Kill a child before each statement, until one gets through the batch."""
    for kill_at in range(1_000):
        child = os.fork()
        if child == 0:
            left = asyncio.run(second_batch(folder / f"{kill_at}.db", kill_at))
            os._exit(0 if left >= 0 else 1)
        _, ending = os.waitpid(child, 0)
        if not os.WIFSIGNALED(ending):
            say(kill_at, os.waitstatus_to_exitcode(ending))
            return


if __name__ == "__main__":
    command, *arguments = sys.argv[1:]
    if command == "storm":
        asyncio.run(storm(arguments[0], arguments[1], [int(each) for each in arguments[2:]]))
    elif command == "early":
        Writer._written = written_early  # type: ignore[method-assign]  # the fault
        asyncio.run(storm(arguments[0], arguments[1], [int(each) for each in arguments[2:]]))
    elif command == "torn":
        asyncio.run(torn(arguments[0]))
    else:
        inside(Path(arguments[0]))

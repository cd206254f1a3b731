"""A projection that is built from the feed while 32 clients send, by runners that are killed in the middle of batches.

Four processes with eight clients each create entities and send to them. Meanwhile one runner after the other is forked
and killed: when its function has written a batch, or a moment later, in or after the commit. At the end the table must
equal the store: each entity at its version, each of its entries counted once.

    make torture-projection KILLS=100      100 kills on SQLite and on PostgreSQL, a line for each
"""

from __future__ import annotations

import asyncio
import mmap
import os
import random
import select
import signal
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import interlock
from interlock.ports.reading.journal_feed import FeedEntry
from tests.crash.kills.join_storm import forked, in_child, on_both
from tests.support.eventually import PATIENCE_SECONDS
from tests.support.postgres_server import asked

PROCESSES, CLIENTS_EACH = 4, 8

ENTRIES_BEFORE = 200
"""Entries that exist before the projection starts: it is a rebuild."""

BATCH, LAST_BATCH = 20, 1_000
"""Entries of a transaction: few while runners are killed, many at the end."""

NAME = "counts"

LAMP = """
interlock: 1
kind: lamp
context: {presses: {type: integer, default: 0}}
initial: dark
states: {dark: {}}
on: {press: {actions: [{assign: {presses: "= context.presses + 1"}}]}}
"""

Rows = list[tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a storm takes place: the store, how its tables are asked, and the function that fills the own table."""

    url: str
    ask: Callable[[str], Rows]
    table: str
    projector: Callable[[int, bool], Any]


@dataclass(slots=True)
class ProjectionOutcome:
    """What a storm did, and what it found."""

    kills: int = 0
    entries: int = 0
    entities: int = 0
    missing: int = 0
    doubled: int = 0
    problems: tuple[str, ...] = ()

    @property
    def is_clean(self) -> bool:
        """Whether the table equals the store, and clients did send meanwhile."""
        return self.entries > ENTRIES_BEFORE and not (self.missing or self.doubled or self.problems)


def sqlite_place(folder: Path) -> Place:
    """A SQLite file with the tables of the store and of the projection."""
    file = folder / "lamps.db"
    upsert = """
        INSERT INTO lamp_versions VALUES (?, ?, 1)
        ON CONFLICT (entity) DO UPDATE SET version = excluded.version, entries = entries + 1"""

    def ask(statement: str) -> Rows:
        with closing(sqlite3.connect(file, timeout=60)) as connection, connection:
            return connection.execute(statement).fetchall()

    def projector(writing: int, apart: bool) -> Any:
        def count(connection: sqlite3.Connection, entries: Sequence[FeedEntry]) -> None:
            for each in entries:
                connection.execute(upsert, (each.entity, each.entry.version))
            if apart:
                connection.execute("COMMIT")
            os.write(writing, b"!")
            if apart:
                connection.execute("BEGIN IMMEDIATE")

        return count

    return Place(f"sqlite:///{file}", ask, "lamp_versions", projector)


def postgres_place(url: str) -> Place:
    """A schema of a PostgreSQL server for the store, and a table in `public`. Raises NoServerError."""
    _, _, schema = url.partition("?schema=")
    table = f"public.lamp_versions_{schema}"
    upsert = f"""
        INSERT INTO {table} AS l VALUES ($1, $2, 1)
        ON CONFLICT (entity) DO UPDATE SET version = excluded.version, entries = l.entries + 1"""

    def projector(writing: int, apart: bool) -> Any:
        async def count(connection: Any, entries: Sequence[FeedEntry]) -> None:
            for each in entries:
                await connection.execute(upsert, each.entity, each.entry.version)
            if apart:
                await connection.execute("COMMIT")
            os.write(writing, b"!")
            if apart:
                await connection.execute("BEGIN")

        return count

    # Without TLS: a forked child may find a lock of OpenSSL held by a thread that is not in it.
    return Place(f"{url}&sslmode=disable", partial(asked, url), table, projector)


def storm(place: Place, *, kills: int, seed: int = 1, with_commits_between: bool = False) -> ProjectionOutcome:
    """Fill the table by runners that are killed, and compare it with the store.

    `with_commits_between` is the control: the table is committed apart from the position, which must be found.
    """
    outcome = ProjectionOutcome()
    chance = random.Random(seed)
    in_child(partial(_prepare, place.url))
    place.ask(f"CREATE TABLE {place.table} (entity text PRIMARY KEY, version bigint NOT NULL, entries bigint NOT NULL)")
    is_over = mmap.mmap(-1, 1)
    clients = [forked(partial(_send, place.url, number, is_over)) for number in range(PROCESSES)]
    try:
        for number in range(kills):
            batches = chance.randrange(1, 4)
            wait = chance.choice((0.0, chance.uniform(0.0, 0.01)))
            runner, reading = _start_runner(place, apart=with_commits_between)
            _read_batches(reading, batches)
            time.sleep(wait)
            os.kill(runner, signal.SIGKILL)
            _, status = os.waitpid(runner, 0)
            os.close(reading)
            outcome.kills += int(os.WIFSIGNALED(status))
            place.ask("UPDATE lease SET until_ms = 0")  # as if it had expired
            if number == kills - 1:
                is_over[0] = 1
    finally:
        is_over[0] = 1
        for client in clients:
            _, status = os.waitpid(client, 0)
            if status:
                outcome.problems += (f"a client ended with {status}",)
    runner, reading = _start_runner(place, apart=False, batch=LAST_BATCH)
    try:
        _compare(place, outcome)
    finally:
        os.kill(runner, signal.SIGKILL)
        os.waitpid(runner, 0)
        os.close(reading)
    return outcome


def _start_runner(place: Place, *, apart: bool, batch: int = BATCH) -> tuple[int, int]:
    """Fork a runner; return its process id and the pipe that gets a byte for each batch."""
    reading, writing = os.pipe()
    runner = forked(partial(_run, place, writing, apart, batch))
    os.close(writing)
    return runner, reading


def _read_batches(reading: int, count: int) -> None:
    for _ in range(count):
        ready, _, _ = select.select([reading], [], [], PATIENCE_SECONDS)
        assert ready, "the runner takes nothing"
        assert os.read(reading, 1), "the runner ended"


def _compare(place: Place, outcome: ProjectionOutcome) -> None:
    """Wait until the last runner has taken everything, and compare."""
    wanted = {f"lamp/{row[0]}": int(row[1]) for row in place.ask("SELECT id, version FROM entity")}
    outcome.entities, outcome.entries = len(wanted), sum(wanted.values())
    end = time.monotonic() + PATIENCE_SECONDS
    while True:
        found = {row[0]: row[1:] for row in place.ask(f"SELECT entity, version, entries FROM {place.table}")}
        if all(found.get(entity, (0, 0))[0] >= version for entity, version in wanted.items()):
            break
        if time.monotonic() > end:
            outcome.problems += ("the last runner does not reach the end",)
            break
        time.sleep(0.1)
    outcome.missing = sum(found.get(entity, (0, 0))[0] < version for entity, version in wanted.items())
    outcome.doubled = sum(row != (wanted.get(entity),) * 2 for entity, row in found.items()) - outcome.missing
    rows = place.ask(f"SELECT entries, error FROM projection WHERE name = '{NAME}'")
    if [(outcome.entries, None)] != [tuple(row) for row in rows]:
        outcome.problems += (f"the projection has taken {rows}, and the store has {outcome.entries}",)


# In the children


def _prepare(url: str) -> None:
    with interlock.connect(url, charts=[interlock.loads(LAMP)]) as lamps:
        lamps.create("lamp/before")
        for _ in range(ENTRIES_BEFORE - 1):
            lamps.send("lamp/before", "press")


def _send(url: str, process: int, is_over: mmap.mmap) -> None:
    async def client(lamps: interlock.Runtime, number: int) -> None:
        entities = [f"lamp/{process}-{number}-{each}" for each in range(2)]
        for entity in entities:
            await lamps.create(entity)
        while not is_over[0]:
            for entity in entities:
                await lamps.send(entity, "press")
            await asyncio.sleep(0.2)  # the runner needs the file, too

    async def main() -> None:
        async with interlock.open(url, charts=[interlock.loads(LAMP)], work=False) as lamps:
            await asyncio.gather(*(client(lamps, number) for number in range(CLIENTS_EACH)))

    asyncio.run(main())


def _run(place: Place, writing: int, apart: bool, batch: int) -> None:
    with interlock.connect(place.url, charts=[interlock.loads(LAMP)]) as lamps:
        lamps.projection(NAME, batch=batch)(place.projector(writing, apart))
        threading.Event().wait()


if __name__ == "__main__":
    sys.exit(on_both(sqlite_place, postgres_place, partial(storm, kills=int(sys.argv[1]))))

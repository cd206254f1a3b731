"""Programs that are killed between their own write, their joined send and their COMMIT.

A process that has imported everything forks a program for each round: a fresh interpreter would take ten times as long.
A program writes a row into its own table and creates an entity or sends to one, in one transaction, again and again,
until it is killed: by itself, at one of the points between two of these, or by the round at a random moment. Meanwhile
another program sends to the same store without a transaction. At the end, each row has its entry and each entry its
row: the name of the row is the key of the entry.

    make torture-join JOINS=500      500 rounds on SQLite and on PostgreSQL, a line for each
"""

from __future__ import annotations

import logging
import os
import random
import select
import signal
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

import psycopg

import interlock
from interlock.runtime.blocking import BlockingRuntime
from interlock.testing.join_suite import ORDER
from tests.support.eventually import PATIENCE_SECONDS
from tests.support.postgres_server import NoServerError, asked, new_schema

ENTITIES = 6
"""Existing entities that joined and plain sends share."""

TRANSACTIONS_MAX = 40
"""Transactions of a program that is killed at a random moment, so that it ends even if it is not."""

POINTS = ("begun", "row written", "sent", "before commit", "committed")
"""Where a program kills itself: after each of these."""

CREATE = "CREATE TABLE IF NOT EXISTS booking (name text NOT NULL)"


P = TypeVar("P")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a storm takes place: the store, and how its program connects and reads its own table."""

    url: str
    connect: Callable[[], Any]
    execute: Callable[[Any, str, str], None]
    names: Callable[[], list[str]]
    setup: Callable[[], None]


@dataclass(slots=True)
class JoinOutcome:
    """What a storm did, and what it found."""

    rounds: int = 0
    kills: int = 0
    transactions: int = 0
    rows_without_entry: int = 0
    entries_without_row: int = 0
    problems: tuple[str, ...] = ()

    @property
    def is_clean(self) -> bool:
        """Whether nothing was lost, doubled or damaged, and the programs did commit something."""
        return self.transactions > 0 and not (self.rows_without_entry or self.entries_without_row or self.problems)


def sqlite_place(folder: Path) -> Place:
    """A SQLite file with the tables of the store and of the program."""
    file = folder / "program.db"

    def run(call: Callable[[sqlite3.Connection], Any]) -> Any:
        with closing(sqlite3.connect(file, timeout=60)) as connection, connection:
            return call(connection)

    return Place(
        f"sqlite:///{file}",
        lambda: sqlite3.connect(file, timeout=60),
        lambda connection, statement, name: connection.execute(statement.replace("%s", "?"), (name,)),
        lambda: [row[0] for row in run(lambda each: each.execute("SELECT name FROM booking").fetchall())],
        lambda: run(lambda each: each.execute(CREATE)),
    )


def postgres_place(url: str) -> Place:
    """A schema of a PostgreSQL server for the store, and one for the program. Raises NoServerError."""
    dsn, _, schema = url.partition("?schema=")
    table = f"{schema}_program.booking"

    def setup() -> None:
        asked(dsn, f"CREATE SCHEMA {schema}_program")
        asked(dsn, CREATE.replace("booking", table))

    return Place(
        f"{url}&sslmode=disable",  # a forked child may find a lock of OpenSSL held by a thread that is not in it
        lambda: psycopg.connect(dsn, sslmode="disable"),
        lambda connection, statement, name: connection.execute(statement.replace("booking", table), (name,)),
        lambda: [row[0] for row in asked(dsn, f"SELECT name FROM {table}")],
        setup,
    )


def storm(place: Place, *, rounds: int, seed: int = 1, with_commits_between: bool = False) -> JoinOutcome:
    """Run and kill programs, one after the other, and compare at the end.

    `with_commits_between` is the control: a program that commits its row before it sends, which must be found.
    """
    outcome = JoinOutcome(rounds=rounds)
    chance = random.Random(seed)
    in_child(lambda: _prepare(place))
    place.setup()
    plain = forked(lambda: _send_plain(place))
    try:
        for number in range(rounds):
            point = chance.choice(POINTS) if chance.random() < 0.6 else None
            after = chance.randrange(3)
            wait = chance.uniform(0.0, 0.05)
            reading, writing = os.pipe()
            program = forked(partial(_run, place, number, point, after, writing, with_commits_between))
            os.close(writing)
            outcome.kills += _end(program, reading, None if point is not None else wait)
            os.close(reading)
    finally:
        os.kill(plain, signal.SIGKILL)
        os.waitpid(plain, 0)
    _compare(place, outcome)
    return outcome


def forked(work: Callable[[], None]) -> int:
    """Run in a child of this process, which ends with it; return its process id."""
    pid = os.fork()
    if pid:
        return pid
    try:
        logging.disable(logging.CRITICAL)
        work()
    except BaseException as error:  # noqa: BLE001 - the child must end here, whatever happens
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        os._exit(3)
    os._exit(0)


def in_child(work: Callable[[], None]) -> None:
    """Run in a separate child: the process that forks never opens the store."""
    _, status = os.waitpid(forked(work), 0)
    assert status == 0, f"the child ended with {status}"


def _end(program: int, reading: int, wait: float | None) -> int:
    """Wait until a program has started, kill it after a while or let it kill itself; 1 if it was killed."""
    ready, _, _ = select.select([reading], [], [], PATIENCE_SECONDS)
    assert ready, "the program did not start in time"
    if wait is not None and os.read(reading, 1):
        time.sleep(wait)
        os.kill(program, signal.SIGKILL)
    _, status = os.waitpid(program, 0)
    assert not os.WIFEXITED(status) or os.WEXITSTATUS(status) == 0, "a program ended with an error"
    return int(os.WIFSIGNALED(status))


# In the children


def _open(place: Place) -> BlockingRuntime:
    return interlock.connect(place.url, charts=[interlock.loads(ORDER)])


def _prepare(place: Place) -> None:
    with _open(place) as orders:
        for number in range(ENTITIES):
            orders.create(f"order/shared-{number}")


def _send_plain(place: Place) -> None:
    """Send to the entities that the programs use as well, until killed."""
    with _open(place) as orders:
        for number in range(10**9):
            orders.send(f"order/shared-{number % ENTITIES}", "noted", key=f"plain-{os.getpid()}-{number}")
            time.sleep(0.002)  # others need the file, too


def _run(place: Place, number: int, point: str | None, after: int, writing: int, commits_between: bool) -> None:
    def reach(name: str, transaction: int) -> None:
        if name == point and transaction == after:
            os.kill(os.getpid(), signal.SIGKILL)

    connection = place.connect()
    with _open(place) as orders:
        os.write(writing, b"!")
        for each in range(TRANSACTIONS_MAX):
            name = f"joined-{number}-{each}"
            reach("begun", each)
            place.execute(connection, "INSERT INTO booking (name) VALUES (%s)", name)
            if commits_between:
                connection.commit()
            reach("row written", each)
            joined = orders.join(connection)
            if each % 3 == 2:
                joined.create(f"order/{name}", key=name).expect()
            else:
                joined.send(f"order/shared-{(number + each) % ENTITIES}", "noted", key=name).expect()
            reach("sent", each)
            reach("before commit", each)
            connection.commit()
            reach("committed", each)
    connection.close()


def _compare(place: Place, outcome: JoinOutcome) -> None:
    """Compare rows and entries, and verify the store, in a process that has not opened it before."""
    reading, writing = os.pipe()

    def read() -> None:
        with _open(place) as orders, os.fdopen(writing, "w") as lines:
            for found in orders.verify_all():
                if found.problem is not None:
                    print("problem", found.entity, found.problem, file=lines)
            entities = [f"order/shared-{number}" for number in range(ENTITIES)]
            page_after: str | None = None
            while True:
                page = orders.list(interlock.EntityQuery(kind="order", prefix="joined-", after=page_after, limit=1000))
                entities += [row.entity for row in page.rows]
                page_after = page.after
                if page_after is None:
                    break
            for entity in entities:
                for entry in orders.journal(entity):
                    if entry.key.startswith("joined-"):
                        print("entry", entry.key, file=lines)

    reader = forked(read)
    os.close(writing)
    with os.fdopen(reading) as lines:
        found = [line.split(maxsplit=1) for line in lines]
    os.waitpid(reader, 0)
    keys = [rest.strip() for what, rest in found if what == "entry"]
    names = place.names()
    outcome.transactions = len(keys)
    outcome.rows_without_entry = len(set(names) - set(keys))
    outcome.entries_without_row = len(set(keys) - set(names)) + len(keys) - len(set(keys))
    outcome.problems = tuple(rest.strip() for what, rest in found if what == "problem")


class Outcome(Protocol):
    """The result of a storm, which is printed in one line."""

    @property
    def is_clean(self) -> bool: ...


def on_both(sqlite: Callable[[Path], P], postgres: Callable[[str], P], run: Callable[[P], Outcome]) -> int:
    """Run on both databases, and print a line for each; return 1 if one was not clean."""
    failed = 0
    with tempfile.TemporaryDirectory(prefix="interlock-storm-") as folder:
        places: dict[str, Callable[[], P]] = {
            "sqlite": lambda: sqlite(Path(folder)),
            "postgres": lambda: postgres(new_schema()),
        }
        for name, place in places.items():
            try:
                outcome = run(place())
            except NoServerError as error:
                print(f"{name}: SKIPPED: {error}")
                continue
            failed += not outcome.is_clean
            print(f"{name}: {outcome}", flush=True)
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(on_both(sqlite_place, postgres_place, partial(storm, rounds=int(sys.argv[1]))))

"""A program that sends inside its own open transaction: an error immediately, not a hang."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread

import pytest

import interlock
from interlock.errors import UnavailableError, UsageError
from interlock.stores.sqlite import connection as sqlite_connection
from interlock.stores.sqlite import own_locks
from interlock.testing.join_suite import ORDER

pytestmark = pytest.mark.skipif(not Path(own_locks.LOCKS).exists(), reason="this system does not list its locks")

TRIES_MAX = 100_000_000
"""Milliseconds: longer than any test may take, so that only the detection ends the wait."""


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of a store that waits for its file without end."""
    monkeypatch.setattr(sqlite_connection, "BUSY_MS", TRIES_MAX)
    return f"sqlite:///{tmp_path}/orders.db"


@pytest.fixture
def open_transaction(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    """A connection of the program, to be used after the store was opened."""
    connection = sqlite3.connect(tmp_path / "orders.db", check_same_thread=False)
    yield connection
    connection.close()


def test_a_blocking_send_inside_the_own_transaction_raises(url: str, open_transaction: sqlite3.Connection) -> None:
    with interlock.connect(url, charts=[interlock.loads(ORDER)]) as orders:
        orders.create("order/1")
        open_transaction.execute("BEGIN IMMEDIATE")
        with pytest.raises(UsageError) as caught:
            orders.send("order/1", "noted")
        open_transaction.rollback()
        receipt = orders.send("order/1", "noted")

    assert "store.own_transaction" == caught.value.code
    assert 2 == receipt.version


async def test_an_asynchronous_send_inside_the_own_transaction_raises(
    url: str, open_transaction: sqlite3.Connection
) -> None:
    async with interlock.open(url, charts=[interlock.loads(ORDER)], work=False) as orders:
        await orders.create("order/1")
        open_transaction.execute("BEGIN IMMEDIATE")
        with pytest.raises(UsageError) as caught:
            await orders.send("order/1", "noted")
        open_transaction.rollback()

    assert "store.own_transaction" == caught.value.code


def test_a_joined_transaction_that_is_still_open_is_recognized(url: str, open_transaction: sqlite3.Connection) -> None:
    with interlock.connect(url, charts=[interlock.loads(ORDER)]) as orders:
        orders.create("order/1")
        orders.join(open_transaction).send("order/1", "noted")
        with pytest.raises(UsageError) as caught:
            orders.send("order/1", "noted")
        open_transaction.commit()
        versions = orders.state("order/1").version

    assert "store.own_transaction" == caught.value.code
    assert 2 == versions


def test_transactions_of_another_thread_that_end_are_waited_for(url: str, open_transaction: sqlite3.Connection) -> None:
    """One after the other: the lock is seen at every look, but it is never the same transaction for long."""
    stop = Event()

    def write() -> None:
        while not stop.is_set():
            open_transaction.execute("BEGIN IMMEDIATE")
            open_transaction.execute("CREATE TABLE IF NOT EXISTS mine (a)")
            open_transaction.execute("INSERT INTO mine VALUES (1)")
            open_transaction.commit()

    with interlock.connect(url, charts=[interlock.loads(ORDER)]) as orders:
        orders.create("order/1")
        thread = Thread(target=write)
        thread.start()
        try:
            versions = [orders.send("order/1", "noted").version for _ in range(20)]
        finally:
            stop.set()
            thread.join()

    assert list(range(2, 22)) == versions


HOLD = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
connection.execute("BEGIN IMMEDIATE")
print("held", flush=True)
sys.stdin.read()
"""


def test_a_transaction_of_another_process_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until the usual timeout, with the usual error."""
    monkeypatch.setattr(sqlite_connection, "BUSY_MS", 500)
    file = tmp_path / "orders.db"
    with interlock.connect(f"sqlite:///{file}", charts=[interlock.loads(ORDER)]) as orders:
        orders.create("order/1")
        with subprocess.Popen(
            [sys.executable, "-c", HOLD, str(file)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as other:
            assert other.stdout is not None
            assert "held\n" == other.stdout.readline()
            with pytest.raises(UnavailableError) as caught:
                orders.send("order/1", "noted")
            other.kill()

    assert "store.busy" == caught.value.code


async def test_two_stores_of_one_process_wait_for_each_other(url: str) -> None:
    """A batch of the one is not a transaction of the program."""
    charts = [interlock.loads(ORDER)]
    async with (
        interlock.open(url, charts=charts, work=False) as first,
        interlock.open(url, charts=charts, work=False) as second,
    ):
        await asyncio.gather(*(first.create(f"order/{each}") for each in range(40)))
        sends = [each.send(f"order/{n}", "noted") for n in range(40) for each in (first, second)]
        receipts = await asyncio.gather(*sends)

    assert {"applied"} == {each.outcome for each in receipts}

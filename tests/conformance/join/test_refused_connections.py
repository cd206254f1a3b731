"""Connections that cannot be joined: the error names what is wrong, and nothing was written."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiosqlite
import asyncpg  # type: ignore[import-untyped]  # it ships no types
import psycopg
import pytest
import sqlalchemy
from sqlalchemy.orm import Session

import interlock
from interlock.errors import ConflictError, UsageError
from interlock.runtime.blocking import BlockingRuntime
from interlock.testing.join_suite import ORDER
from tests.conformance.join.programs import DjangoProgram
from tests.support.postgres_server import asked, database_or_skip, store_or_skip


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The file of the store."""
    return tmp_path / "orders.db"


@pytest.fixture
def orders(file: Path) -> Iterator[BlockingRuntime]:
    """A runtime on a SQLite file with one entity."""
    with interlock.connect(f"sqlite:///{file}", charts=[interlock.loads(ORDER)]) as runtime:
        runtime.create("order/1")
        yield runtime


def refused(code: str, runtime: BlockingRuntime, connection: Any) -> None:
    """A send on this connection raises this UsageError, and writes nothing."""
    before = runtime.state("order/1").version
    with pytest.raises(UsageError) as caught:
        runtime.join(connection).send("order/1", "noted")
    assert (code, before) == (caught.value.code, runtime.state("order/1").version)


def test_a_sqlite_connection_in_autocommit(orders: BlockingRuntime, file: Path) -> None:
    connection = sqlite3.connect(file, isolation_level=None)
    refused("join.autocommit", orders, connection)
    connection.execute("BEGIN")
    receipt = orders.join(connection).send("order/1", "noted")
    connection.execute("COMMIT")
    connection.close()

    assert 2 == receipt.version == orders.state("order/1").version


def test_another_file_and_a_copy_of_the_file(orders: BlockingRuntime, file: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"
    own = sqlite3.connect(file)
    other = sqlite3.connect(copy)
    own.backup(other)
    memory = sqlite3.connect(":memory:")
    refused("join.other_database", orders, other)
    refused("join.other_database", orders, memory)
    for each in (own, other, memory):
        each.close()


def test_a_sqlite_connection_that_does_not_flush(orders: BlockingRuntime, file: Path) -> None:
    connection = sqlite3.connect(file)
    connection.execute("PRAGMA synchronous = NORMAL")
    refused("join.durability", orders, connection)
    connection.close()


def test_a_sqlite_connection_that_only_reads(orders: BlockingRuntime, file: Path) -> None:
    connection = sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True)
    connection.execute("BEGIN")
    refused("join.read_only", orders, connection)
    connection.close()


def test_what_is_no_connection(orders: BlockingRuntime) -> None:
    refused("join.unsupported", orders, "sqlite:///orders.db")
    refused("join.unsupported", orders, object())


def test_an_asynchronous_connection_in_a_blocking_runtime(orders: BlockingRuntime, file: Path) -> None:
    async def opened() -> None:
        async with aiosqlite.connect(file) as connection:
            await asyncio.to_thread(refused, "join.connection", orders, connection)

    asyncio.run(opened())


async def test_a_blocking_connection_in_an_asynchronous_runtime(file: Path) -> None:
    async with interlock.open(f"sqlite:///{file}", charts=[interlock.loads(ORDER)], work=False) as orders:
        connection: Any = sqlite3.connect(file)
        with pytest.raises(UsageError) as caught:
            orders.join(connection)
        connection.close()

    assert "join.connection" == caught.value.code


async def test_a_joined_call_would_stop_an_event_loop(file: Path) -> None:
    orders = await asyncio.to_thread(interlock.connect, f"sqlite:///{file}", charts=[interlock.loads(ORDER)])
    connection = sqlite3.connect(file)
    with pytest.raises(UsageError) as caught:
        orders.join(connection).create("order/1")
    connection.close()
    await asyncio.to_thread(orders.close)

    assert "runtime.running_loop" == caught.value.code


@pytest.mark.parametrize("url", ["memory:", "file:{folder}/orders"])
def test_a_store_without_transactions_of_callers(url: str, tmp_path: Path) -> None:
    with interlock.connect(url.format(folder=tmp_path), charts=[interlock.loads(ORDER)]) as orders:
        connection = sqlite3.connect(tmp_path / "other.db")
        with pytest.raises(UsageError) as caught:
            orders.join(connection)
        connection.close()

    assert "join.unsupported" == caught.value.code


def test_another_driver_behind_sqlalchemy(orders: BlockingRuntime) -> None:
    """A name of a database that Interlock has no store for; the engine never connects."""

    class Dialect:
        name, driver, is_async = "oracle", "oracledb", False

    class Connection:
        dialect = Dialect()
        dbapi_connection = driver_connection = None

        @property
        def connection(self) -> Any:
            return self

        def in_transaction(self) -> bool:
            return True

    Connection.__module__ = "sqlalchemy.engine.base"
    refused("join.unsupported", orders, Connection())


def test_django_outside_atomic(file: Path) -> None:
    program = DjangoProgram(f"sqlite:///{file}", {"ENGINE": "django.db.backends.sqlite3", "NAME": str(file)})
    try:
        program.runtime.create("order/1")
        refused("join.autocommit", program.runtime, program.connection)
    finally:
        program.close()


def test_a_deferred_transaction_that_has_read_is_told_how_to_begin(orders: BlockingRuntime, file: Path) -> None:
    connection = sqlite3.connect(file)
    connection.execute("BEGIN")
    connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    orders.send("order/1", "noted")
    with pytest.raises(ConflictError) as caught:
        orders.join(connection).send("order/1", "noted")
    connection.close()

    assert "conflict.joined" == caught.value.code
    assert "BEGIN IMMEDIATE" in (caught.value.hint or "")


def test_a_join_in_a_thread_of_the_program(orders: BlockingRuntime, file: Path) -> None:
    """Each thread with its own connection; every one of them counts."""
    failures: list[BaseException] = []

    def work(number: int) -> None:
        connection = sqlite3.connect(file, timeout=120)
        try:
            for each in range(5):
                with connection:
                    orders.join(connection).create(f"order/t{number}-{each}").expect()
        except BaseException as error:  # noqa: BLE001 - the test asserts that there is none
            failures.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [] == failures
    page = orders.list(interlock.EntityQuery(kind="order", limit=100))
    assert 1 + 4 * 5 == len(page.rows)


# PostgreSQL


@pytest.fixture
def url() -> str:
    """The address of an empty store."""
    return store_or_skip()


@pytest.fixture
def dsn(url: str) -> str:
    """The address of its database."""
    return url.partition("?")[0]


@pytest.fixture
def server(url: str) -> Iterator[BlockingRuntime]:
    """A runtime on a server with one entity."""
    with interlock.connect(url, charts=[interlock.loads(ORDER)]) as runtime:
        runtime.create("order/1")
        yield runtime


def test_psycopg_in_autocommit(server: BlockingRuntime, dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        refused("join.autocommit", server, connection)
        with connection.transaction():
            server.join(connection).send("order/1", "noted")

    assert 2 == server.state("order/1").version


def test_a_session_in_autocommit(server: BlockingRuntime, dsn: str) -> None:
    address = f"postgresql+psycopg://{dsn.partition('://')[2]}"
    engine = sqlalchemy.create_engine(address, isolation_level="AUTOCOMMIT")
    with Session(engine) as session:
        refused("join.autocommit", server, session)
    engine.dispose()


async def test_asyncpg_outside_a_transaction(url: str, dsn: str) -> None:
    async with interlock.open(url, charts=[interlock.loads(ORDER)], work=False) as orders:
        connection = await asyncpg.connect(dsn)
        with pytest.raises(UsageError) as caught:
            await orders.join(connection).create("order/1")
        await connection.close()

    assert "join.autocommit" == caught.value.code


def test_another_database_and_a_copy_of_the_database(server: BlockingRuntime) -> None:
    empty = database_or_skip()
    with psycopg.connect(empty) as connection:
        refused("join.other_database", server, connection)


def test_a_copy_of_the_database() -> None:
    """A template copies the identity of the store as well, but not the name of the database."""
    url = database_or_skip()
    with interlock.connect(url, charts=[interlock.loads(ORDER)]) as runtime:
        runtime.create("order/1")
    name = url.rpartition("/")[2]
    other = f"{url.rpartition('/')[0]}/postgres"
    asked(other, f'CREATE DATABASE "{name}_copy" TEMPLATE "{name}"')
    try:
        with (
            interlock.connect(url, charts=[interlock.loads(ORDER)]) as runtime,
            psycopg.connect(f"{url}_copy") as connection,
        ):
            refused("join.other_database", runtime, connection)
    finally:
        asked(other, f'DROP DATABASE "{name}_copy" WITH (FORCE)')


def test_the_other_kind_of_database(server: BlockingRuntime, orders: BlockingRuntime, file: Path, dsn: str) -> None:
    connection = sqlite3.connect(file)
    refused("join.other_database", server, connection)
    connection.close()
    with psycopg.connect(dsn) as other:
        refused("join.other_database", orders, other)


def test_a_read_only_and_a_failed_transaction(server: BlockingRuntime, dsn: str) -> None:
    with psycopg.connect(dsn) as connection:
        connection.execute("SET TRANSACTION READ ONLY")
        refused("join.read_only", server, connection)
        refused("join.failed", server, connection)


def test_a_locked_entity_without_waiting(server: BlockingRuntime, dsn: str) -> None:
    with psycopg.connect(dsn) as first, psycopg.connect(dsn) as second:
        server.join(first).send("order/1", "noted")
        server.join(first).create("order/2")
        with pytest.raises(ConflictError) as sent:
            server.join(second, wait=False).send("order/1", "noted")
        second.rollback()
        with pytest.raises(ConflictError) as created:
            server.join(second, wait=False).create("order/2")

    assert {"conflict.joined"} == {sent.value.code, created.value.code}


def test_a_transaction_that_does_not_wait_for_its_flush_is_made_to(server: BlockingRuntime, dsn: str) -> None:
    with psycopg.connect(dsn) as connection:
        connection.execute("SET synchronous_commit = off")
        connection.commit()
        server.join(connection).send("order/1", "noted")
        inside = connection.execute("SHOW synchronous_commit").fetchone()
        connection.commit()
        server.join(connection).create("order/2")
        created = connection.execute("SHOW synchronous_commit").fetchone()
        connection.rollback()
        after = connection.execute("SHOW synchronous_commit").fetchone()

    assert [("on",), ("on",), ("off",)] == [inside, created, after]


def test_a_stale_snapshot_is_a_conflict(server: BlockingRuntime, dsn: str) -> None:
    with psycopg.connect(dsn) as connection:
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        connection.execute("SELECT 1 FROM pg_class LIMIT 1")
        server.send("order/1", "noted")
        with pytest.raises(ConflictError) as caught:
            server.join(connection).send("order/1", "noted")

    assert "conflict.joined" == caught.value.code
    assert "40001" in str(caught.value)

"""The tables of a store in the database of an application: its tools leave them alone, and can create them."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

import interlock
from interlock.contrib.tables import include_name, upgrade, upgrade_statements
from interlock.errors import UsageError
from interlock.stores.sql.schema import newest_schema
from interlock.testing.join_suite import ORDER
from tests.conformance.join.programs import DjangoProgram
from tests.support.postgres_server import database_or_skip

MODELS = sqlalchemy.MetaData()
sqlalchemy.Table("payment", MODELS, sqlalchemy.Column("id", sqlalchemy.Integer, primary_key=True))


def differences(connection: sqlalchemy.Connection, **options: Any) -> list[str]:
    """What Alembic would change: the first word of each operation."""
    context = MigrationContext.configure(connection, opts={"include_schemas": True, **options})
    return [each[0] for each in compare_metadata(context, MODELS)]


def used(url: str) -> int:
    """Open the store without migrations, and use it; the version that an entity reaches."""
    with interlock.connect(url, charts=[interlock.loads(ORDER)], migrate=False) as orders:
        orders.create("order/1")
        assert orders.verify("order/1").problem is None
        return orders.send("order/1", "paid").version


def test_alembic_leaves_the_tables_in_a_file_alone(tmp_path: Path) -> None:
    file = tmp_path / "shop.db"
    engine = sqlalchemy.create_engine(f"sqlite:///{file}")
    MODELS.create_all(engine)
    with interlock.connect(f"sqlite:///{file}", charts=[interlock.loads(ORDER)]) as orders:
        orders.create("order/1")
    with engine.connect() as connection:
        without = differences(connection)
        found = differences(connection, include_name=include_name)
    engine.dispose()

    assert "remove_table" in without
    assert [] == found


def test_alembic_leaves_the_schema_of_a_store_alone() -> None:
    url = database_or_skip()
    engine = sqlalchemy.create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    MODELS.create_all(engine)
    with interlock.connect(url, charts=[interlock.loads(ORDER)]) as orders:
        orders.create("order/1")
    with engine.connect() as connection:
        without = differences(connection)
        found = differences(connection, include_name=include_name)
    engine.dispose()

    assert "remove_table" in without
    assert [] == found


def test_a_migration_of_the_application_creates_the_tables_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "shop.db"
    engine = sqlalchemy.create_engine(f"sqlite:///{file}")
    MODELS.create_all(engine)
    with engine.begin() as connection:
        number = upgrade(connection)
        again = upgrade(connection)
    engine.dispose()

    assert newest_schema("sqlite") == number == again
    assert 2 == used(f"sqlite:///{file}")


def test_a_migration_that_is_rolled_back_creates_nothing(tmp_path: Path) -> None:
    file = tmp_path / "shop.db"
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("CREATE TABLE mine (a)")
        upgrade(connection)
        connection.rollback()
        tables = connection.execute("SELECT name FROM sqlite_master").fetchall()

    assert [("mine",)] == tables


def test_a_migration_of_the_application_creates_the_tables_on_a_server() -> None:
    url = database_or_skip()
    with psycopg.connect(url) as connection:
        upgrade(connection)
        path = connection.execute("SHOW search_path").fetchone()
        connection.rollback()
        nothing = connection.execute("SELECT to_regnamespace('interlock')").fetchone()
        number = upgrade(connection)
        again = upgrade(connection)

    assert (('"$user", public',), (None,)) == (path, nothing)
    assert newest_schema("postgres") == number == again
    assert 2 == used(url)


def test_a_file_in_autocommit_gets_its_tables_in_one_transaction_of_their_own(tmp_path: Path) -> None:
    file = tmp_path / "shop.db"
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        upgrade(connection)
        is_open = connection.in_transaction

    assert not is_open
    assert 2 == used(f"sqlite:///{file}?prefix=interlock_")


def test_a_server_connection_in_autocommit_is_refused() -> None:
    """Each statement would be its own transaction, in which the search path of the store does not hold."""
    with psycopg.connect(database_or_skip(), autocommit=True) as connection:
        with pytest.raises(UsageError) as caught:
            upgrade(connection)
        tables = connection.execute("SELECT count(*) FROM pg_tables WHERE schemaname IN ('public', 'interlock')")
        found = tables.fetchone()

    assert ("join.autocommit", (0,)) == (caught.value.code, found)


def test_a_connection_of_another_kind_is_refused() -> None:
    for each in (object(), psycopg.AsyncConnection):
        with pytest.raises(UsageError) as caught:
            upgrade(each)
        assert "join.unsupported" == caught.value.code
    with pytest.raises(UsageError):
        upgrade_statements("mysql")


def test_django_creates_the_tables(tmp_path: Path) -> None:
    """As `RunPython` calls it, with the connection of the schema editor."""
    program_file, file = tmp_path / "other.db", tmp_path / "shop.db"
    place = {"ENGINE": "django.db.backends.sqlite3", "NAME": str(file)}
    program = DjangoProgram(f"sqlite:///{program_file}", place)
    try:
        program.begin()
        program.execute("CREATE TABLE mine (a)")
        upgrade(program.connection)
        program.commit()
    finally:
        program.close()

    assert 2 == used(f"sqlite:///{file}")

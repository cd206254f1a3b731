"""A SQLite file that has tables of an application as well."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

import interlock
from interlock.errors import UsageError
from interlock.stores.registry import schema_of
from interlock.stores.sql.schema import migrations
from interlock.stores.sqlite.prefix import prefixed
from interlock.stores.sqlite.statements import STATEMENTS
from interlock.testing.join_suite import ORDER

OWN = ("entity", "journal", "work", "schema_version")
"""Names that the application has as well."""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file of an application, in its default journal mode, with tables named as ours."""
    path = tmp_path / "shop.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        for name in OWN:
            connection.execute(f"CREATE TABLE {name} (mine INTEGER)")
            connection.execute(f"INSERT INTO {name} VALUES (7)")
    return path


def tables(path: Path) -> set[str]:
    """The tables and indexes of a file."""
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute("SELECT name FROM sqlite_master WHERE name NOT LIKE 'sqlite_%'").fetchall()
    return {name for (name,) in rows}


def mine(path: Path) -> list[int]:
    """What the application has stored."""
    with closing(sqlite3.connect(path)) as connection:
        return [connection.execute(f"SELECT mine FROM {name}").fetchone()[0] for name in OWN]


async def test_the_tables_of_a_store_are_put_next_to_the_others(file: Path) -> None:
    before = tables(file)
    async with interlock.open(f"sqlite:///{file}", charts=[interlock.loads(ORDER)]) as orders:
        await orders.create("order/1")
    async with interlock.open(f"sqlite:///{file}", charts=[interlock.loads(ORDER)]) as orders:  # it finds them
        await orders.send("order/1", "noted")
        page = await orders.list(interlock.EntityQuery(kind="order", state="open"))
        checked = [each.problem async for each in orders.verify_all()]
    added = tables(file) - before
    schema = await schema_of(f"sqlite:///{file}")

    assert [None] == checked
    assert ["order/1"] == [each.entity for each in page.rows]
    assert added
    assert all(each.startswith("interlock_") for each in added)
    assert [7] * 4 == mine(file)
    assert schema is not None
    assert schema.current == schema.newest


def test_a_join_uses_the_prefix(file: Path) -> None:
    with (
        interlock.connect(f"sqlite:///{file}", charts=[interlock.loads(ORDER)]) as orders,
        closing(sqlite3.connect(file)) as connection,
    ):
        with connection:
            connection.execute("UPDATE work SET mine = 8")
            orders.join(connection).create("order/1")
            orders.join(connection).send("order/1", "paid")
        problem = orders.verify("order/1").problem
        version = orders.state("order/1").version

    assert (None, 2, [7, 7, 8, 7]) == (problem, version, mine(file))


async def test_another_prefix(file: Path) -> None:
    async with interlock.open(f"sqlite:///{file}?prefix=chart_", charts=[interlock.loads(ORDER)]) as orders:
        await orders.create("order/1")

    assert {"chart_entity", "chart_journal"} <= tables(file)


async def test_a_file_of_its_own_has_no_prefix(tmp_path: Path) -> None:
    file = tmp_path / "orders.db"
    async with interlock.open(f"sqlite:///{file}", charts=[interlock.loads(ORDER)]):
        pass
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("CREATE TABLE mine (a)")
    async with interlock.open(f"sqlite:///{file}", charts=[interlock.loads(ORDER)]):  # still its own
        pass
    with pytest.raises(UsageError) as caught:
        await interlock.open(f"sqlite:///{file}?prefix=chart_", charts=[interlock.loads(ORDER)])

    assert "entity" in tables(file)
    assert "store.prefix" == caught.value.code


async def test_a_file_that_another_program_marks_as_its_own_is_refused(file: Path) -> None:
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("PRAGMA application_id = 1196444487")  # GeoPackage
    before = tables(file)
    with pytest.raises(UsageError) as caught:
        await interlock.open(f"sqlite:///{file}", charts=[interlock.loads(ORDER)])

    assert ("store.foreign", before) == (caught.value.code, tables(file))


@pytest.mark.parametrize("option", ["prefix=1a", "prefix=A", "prefix=a b", "migrate=2", "migrat=0"])
async def test_an_invalid_option_is_refused(file: Path, option: str) -> None:
    with pytest.raises(UsageError) as caught:
        await interlock.open(f"sqlite:///{file}?{option}", charts=[interlock.loads(ORDER)])

    assert "url.option" == caught.value.code


async def test_without_migrations_an_older_schema_is_refused(file: Path, tmp_path: Path) -> None:
    charts = [interlock.loads(ORDER)]
    with pytest.raises(UsageError) as older:
        await interlock.open(f"sqlite:///{file}?migrate=0", charts=charts)
    untouched = tables(file)
    async with interlock.open(f"sqlite:///{file}", charts=charts):
        pass
    async with interlock.open(f"sqlite:///{file}?migrate=0", charts=charts) as orders:
        await orders.create("order/1")

    assert ("schema.older", set(OWN)) == (older.value.code, untouched)


def test_every_table_in_every_statement_gets_the_prefix() -> None:
    """A database that has only prefixed tables prepares all of them."""
    texts = [each for each in (getattr(STATEMENTS, name) for name in STATEMENTS.__slots__) if isinstance(each, str)]
    with closing(sqlite3.connect(":memory:")) as connection:
        for each in migrations("sqlite"):
            connection.executescript(prefixed(each.text, "interlock_"))
        for text in texts:
            connection.execute(f"EXPLAIN {prefixed(text, 'interlock_')}", [None] * parameter_count(text))
        names = {
            name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE name NOT LIKE 'sqlite_%'")
        }

    assert len(texts) > 30
    assert all(name.startswith("interlock_") for name in names)


def parameter_count(statement: str) -> int:
    """How many values a statement takes."""
    numbered = [int(each) for each in re.findall(r"\?(\d+)", statement)]
    return max(numbered) if numbered else statement.count("?")

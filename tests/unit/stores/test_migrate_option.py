"""Opening without migrations, and the statements of a migration for another tool to run."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

import interlock
from interlock.errors import NotFoundError, UsageError
from interlock.stores.registry import schema_of, upgrade_script, without_migrations
from interlock.testing.join_suite import ORDER
from tests.support.cli import Caller
from tests.support.postgres_server import database_or_skip


def opened(url: str) -> int:
    """Open a store without migrations and use it; the version that an entity reaches."""
    with interlock.connect(url, charts=[interlock.loads(ORDER)], migrate=False) as orders:
        orders.create("order/1")
        return orders.send("order/1", "paid").version


def refused(url: str) -> UsageError:
    """The error of an opening without migrations."""
    with pytest.raises(UsageError) as caught:
        opened(url)
    return caught.value


def test_a_file_without_tables_is_refused_with_the_command(tmp_path: Path) -> None:
    file = tmp_path / "my shop.db"
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("CREATE TABLE mine (a)")
    error = refused(f"sqlite:///{file}")
    with closing(sqlite3.connect(file)) as connection:
        tables = connection.execute("SELECT name FROM sqlite_master").fetchall()

    assert ("schema.older", [("mine",)]) == (error.code, tables)
    assert f"interlock db upgrade sqlite:///{tmp_path}/my%20shop.db" in (error.hint or "")


def test_a_missing_file_is_not_created(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError) as caught:
        opened(f"sqlite:///{tmp_path}/shop.db")

    assert ("store.not_found", []) == (caught.value.code, list(tmp_path.iterdir()))
    assert "interlock db upgrade sqlite:///" in (caught.value.hint or "")


def test_a_schema_on_a_server_is_refused_without_its_password() -> None:
    url = database_or_skip()
    error = refused(f"{url}?schema=shop")

    assert "schema.older" == error.code
    assert "not-a-secret" not in f"{error} {error.hint}"
    assert "?schema=shop" in (error.hint or "")


def test_stores_without_a_schema_have_nothing_to_upgrade(tmp_path: Path) -> None:
    assert [2, 2] == [opened(each) for each in ("memory:", f"file://{tmp_path}/orders")]


def test_an_address_that_says_the_opposite_is_refused() -> None:
    assert "store.migrate" == refused("sqlite:///orders.db?migrate=1").code
    assert "sqlite:///a.db?tenant=x&migrate=0" == without_migrations("sqlite:///a.db?tenant=x")
    assert "sqlite:///a.db?migrate=0" == without_migrations("sqlite:///a.db?migrate=0")


@pytest.mark.parametrize("prefix", ["", "interlock_"])
async def test_the_printed_statements_make_a_file_that_opens(prefix: str, tmp_path: Path) -> None:
    file = tmp_path / "shop.db"
    url = f"sqlite:///{file}" + (f"?prefix={prefix}" if prefix else "")
    script = await upgrade_script(url)
    assert script
    assert not file.exists()
    with closing(sqlite3.connect(file)) as connection:
        connection.executescript(script)
    found = await schema_of(url)

    assert found is not None
    assert found.current == found.newest
    assert "" == await upgrade_script(url)


def test_a_file_made_by_the_printed_statements_is_used(tmp_path: Path, call: Caller) -> None:
    file = tmp_path / "shop.db"
    printed = call("db", "upgrade", f"sqlite:///{file}", "--dry-run")
    with closing(sqlite3.connect(file)) as connection:
        connection.executescript(printed.out)

    assert 2 == opened(f"sqlite:///{file}")


def test_a_schema_made_by_the_printed_statements_is_used(call: Caller) -> None:
    url = f"{database_or_skip()}?schema=shop"
    printed = call("db", "upgrade", url, "--dry-run")
    with psycopg.connect(url.partition("?")[0], autocommit=True) as connection:
        before = connection.execute("SELECT to_regnamespace('shop')").fetchone()
        connection.execute(printed.out.encode())
    again = call("db", "upgrade", url, "--dry-run")

    assert ((None,), 2, (0, "")) == (before, opened(url), (again.code, again.out))


def test_a_store_without_a_schema_has_no_statements(call: Caller) -> None:
    assert 2 == call("db", "upgrade", "memory:", "--dry-run").code

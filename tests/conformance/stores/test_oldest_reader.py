"""A store that a newer release changed: it says which release may still use it, and this one keeps to that."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

import interlock
from interlock.errors import UsageError
from interlock.stores.sql.schema import Migration, migrations, newest_schema, record_migration
from tests.support.postgres_server import asked, store_or_skip

pytestmark = pytest.mark.conformance

LAMP = "interlock: 1\nkind: lamp\nstates: {dark: {on: {press: bright}}, bright: {on: {press: dark}}}"
Later = Callable[[int | None], None]
"""Records a schema or format that a newer release wrote, and the oldest that a release must know, if it says so."""

LATER = 999


def _sqlite(folder: Path) -> tuple[str, Later]:
    def later(oldest: int | None) -> None:
        with closing(sqlite3.connect(folder / "x.db")) as connection, connection:
            connection.execute("DELETE FROM schema_version WHERE version = ?", (LATER,))
            connection.execute("INSERT INTO schema_version VALUES (?, 'later', ?)", (LATER, oldest))

    return f"sqlite:///{folder}/x.db", later


def _postgres(_: Path) -> tuple[str, Later]:
    url = store_or_skip()

    def later(oldest: int | None) -> None:
        asked(url, f"DELETE FROM schema_version WHERE version = {LATER}")
        asked(url, f"INSERT INTO schema_version VALUES ({LATER}, 'later', {'NULL' if oldest is None else oldest})")

    return url, later


def _files(folder: Path) -> tuple[str, Later]:
    def later(oldest: int | None) -> None:
        file = folder / "x" / "format.json"
        found = json.loads(file.read_text())
        found |= {"format": LATER, "compression": ["later"]}
        found.pop("oldest_reader", None)
        file.write_text(json.dumps(found if oldest is None else found | {"oldest_reader": oldest}))

    return f"file://{folder}/x", later


NEWEST = {"sqlite": newest_schema("sqlite"), "postgres": newest_schema("postgres"), "files": 1}
PLACES = {"sqlite": _sqlite, "postgres": _postgres, "files": _files}


@pytest.fixture(params=PLACES)
def store(tmp_path: Path, request: pytest.FixtureRequest) -> tuple[str, str, Later]:
    """A store with an entity, and how a newer release changes it."""
    url, later = PLACES[request.param](tmp_path)
    with interlock.connect(url, charts=[interlock.loads(LAMP)]) as lamps:
        lamps.create("lamp/1")
    return request.param, url, later


def test_a_store_that_this_release_may_use_is_used(store: tuple[str, str, Later]) -> None:
    name, url, later = store
    later(NEWEST[name])
    with interlock.connect(url, charts=[interlock.loads(LAMP)]) as lamps:
        sent = lamps.send("lamp/1", "press")
        problems = [each.problem for each in lamps.verify_all()]

    assert ("applied", [None]) == (sent.outcome, problems)


@pytest.mark.parametrize("says", [True, False])
def test_a_store_that_needs_a_newer_release_is_refused_and_unchanged(store: tuple[str, str, Later], says: bool) -> None:
    name, url, later = store
    later(NEWEST[name] + 1 if says else None)
    with pytest.raises(UsageError) as refused:
        interlock.connect(url, charts=[interlock.loads(LAMP)])
    later(NEWEST[name])
    with interlock.connect(url, charts=[interlock.loads(LAMP)]) as lamps:
        version = lamps.state("lamp/1").version

    assert refused.value.code in ("schema.newer", "store.format")
    assert str(NEWEST[name] + 1 if says else LATER) in refused.value.message
    assert 1 == version


@pytest.mark.parametrize("dialect", ["sqlite", "postgres"])
def test_a_migration_records_its_own_number_unless_its_file_says_otherwise(dialect: str) -> None:
    last = migrations(dialect)[-1]
    own = Migration(last.number + 1, "later", "-- A new table.\n")
    compatible = Migration(last.number + 1, "later", f"-- A new table.\n-- oldest reader: {last.number}\n")

    assert f"({last.number + 1}, 'later', {last.number + 1})" in record_migration(dialect, own)
    assert f"({last.number + 1}, 'later', {last.number})" in record_migration(dialect, compatible)

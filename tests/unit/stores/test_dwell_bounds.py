"""Stored times in states of an earlier release: each old bucket becomes the first new one that is not smaller."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from interlock.ports.reading.statistics import DWELL_BOUNDS_MS
from interlock.stores.sql.schema import migrations
from interlock.stores.sqlite.store import open_store
from tests.support.old_stores import return_sqlite_to_schema

OLD_BOUNDS_MS = (
    *(100, 1_000, 10_000, 60_000, 600_000, 3_600_000, 21_600_000, 86_400_000, 259_200_000, 604_800_000),
    2_592_000_000,
)
"""The bounds of releases before schema 14."""


async def test_old_buckets_keep_their_counts_in_new_ones(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    await open_store(f"sqlite:///{path}").close()
    return_sqlite_to_schema(path, _observation() - 1)
    rows = [("", "parcel", 0, "packed", bucket, bucket + 1) for bucket in range(len(OLD_BOUNDS_MS) + 1)]
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executemany("INSERT INTO state_dwell VALUES (?, ?, ?, ?, ?, ?)", rows)
    store = open_store(f"sqlite:///{path}")
    assert store.statistics is not None
    (found,) = await store.statistics.dwell_times("parcel", since_ms=0)
    await store.close()

    expected = [0] * (len(DWELL_BOUNDS_MS) + 1)
    for bucket, bound in enumerate(OLD_BOUNDS_MS):
        new = next(number for number, each in enumerate(DWELL_BOUNDS_MS) if each >= bound)
        assert expected[new] == 0  # no two fall together
        expected[new] = bucket + 1
    expected[-1] = len(OLD_BOUNDS_MS) + 1
    assert expected == list(found.stays)


def _observation() -> int:
    return next(each.number for each in migrations("sqlite") if each.name == "observation")


def test_both_databases_have_the_same_rule() -> None:
    rules = [
        each.text.partition("-- Section: dwell")[2].partition("-- Section:")[0].strip()
        for store in ("sqlite", "postgres")
        for each in migrations(store)
        if each.name == "observation"
    ]

    assert 2 == len(rules)
    assert rules[0] == rules[1] != ""

"""Free pages of a SQLite file are returned in steps, if the file was created for that."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from interlock.ports.trust.retention import Tombstone
from interlock.stores.sqlite.prefix import APPLICATION_ID
from interlock.stores.sqlite.store import SqliteStore, open_store
from interlock.testing.store_suite.samples import SampleEntity

ENTITIES = 60


async def _fill_and_prune(store: SqliteStore) -> None:
    for number in range(ENTITIES):
        sample = SampleEntity(f"parcel/{number:03}")
        for append in (
            sample.create(context={"text": "x" * 3_000}),
            sample.step("shipped", key="s"),
            sample.step("delivered", key="d"),
        ):
            await store.append(append)
    await store.append(SampleEntity("parcel/new").create())
    for number in range(ENTITIES):
        entity = f"parcel/{number:03}"
        removal = await store.prune(Tombstone(entity, *await store.tip(entity), pruned_ms=5_000), rows=1_000)
        assert removal.is_done
        assert removal.blocked is None


def _pages(path: Path) -> tuple[int, int]:
    """Pages of the file, and free ones among them."""
    with closing(sqlite3.connect(path)) as connection:
        return tuple(connection.execute(f"PRAGMA {each}").fetchone()[0] for each in ("page_count", "freelist_count"))


async def test_a_new_file_becomes_smaller_in_steps(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    store = open_store(f"sqlite:///{path}")
    await _fill_and_prune(store)
    full, free = _pages(path)
    assert free > 20
    steps = 0
    while await store.reclaim(pages=8):
        steps += 1
    assert steps >= free // 8
    assert _pages(path) == (full - free, 0)
    await store.close()
    assert path.stat().st_size == (full - free) * 4_096


async def test_a_file_of_an_earlier_release_keeps_its_pages_until_it_is_converted(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    with closing(sqlite3.connect(path)) as connection:  # as earlier releases left it
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    store = open_store(f"sqlite:///{path}")
    await _fill_and_prune(store)
    full, free = _pages(path)
    assert free > 20
    assert await store.reclaim(pages=8) == 0
    await store.close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        connection.execute("VACUUM")
    assert _pages(path)[0] < full
    store = open_store(f"sqlite:///{path}")
    await store.append(SampleEntity("parcel/later").create())
    await store.close()
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA auto_vacuum").fetchone() == (2,)

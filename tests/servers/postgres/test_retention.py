"""What retention does on a server apart from the suite of stores: partitions, and creations that race with a prune."""

from __future__ import annotations

import asyncio

from interlock.ports.store import Appended, Conflict, Pruned
from interlock.ports.trust.retention import Tombstone
from interlock.stores.postgres.store import PostgresStore
from interlock.testing.store_suite.samples import SampleEntity
from tests.conformance.stores.test_store_suite import opened_postgres
from tests.support.postgres_server import store_or_skip

OLD_MONTHS = """
    CREATE TABLE journal_2019_01 PARTITION OF journal
      FOR VALUES FROM ('2019-01-01 00:00+00') TO ('2019-02-01 00:00+00');
    CREATE TABLE journal_2019_02 PARTITION OF journal
      FOR VALUES FROM ('2019-02-01 00:00+00') TO ('2019-03-01 00:00+00');
    INSERT INTO journal (tenant, kind, id, version, record, at) VALUES ('other', 'k', 'i', 1, '', '2019-02-03');
"""
PARTITIONS = "SELECT to_regclass('journal_2019_01') IS NULL, to_regclass('journal_2019_02') IS NULL"


async def _opened(url: str) -> PostgresStore:
    store = await asyncio.to_thread(opened_postgres, url)
    assert isinstance(store, PostgresStore)
    return store


async def test_a_month_is_dropped_once_nothing_is_left_in_it() -> None:
    store = await _opened(store_or_skip())
    async with store.database.connections().pool.connection() as connection:
        await connection.execute(OLD_MONTHS)
    assert await store.reclaim(pages=1) == 1
    assert await store.reclaim(pages=1) == 0
    async with store.database.connections().pool.connection() as connection:
        assert tuple(await connection.fetchrow(PARTITIONS)) == (True, False)
        await connection.execute("DELETE FROM journal_2019_02")
    assert await store.reclaim(pages=1) == 1
    await store.close()


async def test_creations_that_race_with_a_prune_never_revive_an_entity() -> None:
    """Each entity is created again and again, by two handles, while a third prunes it."""
    url = store_or_skip()
    store, second, third = await _opened(url), await _opened(url), await _opened(url)
    names = [f"parcel/{number}" for number in range(40)]
    tombstones = []
    for name in names:
        sample = SampleEntity(name)
        for append in (sample.create(), sample.step("shipped", key="s"), sample.step("delivered", key="d")):
            assert isinstance(await store.append(append), Appended)
        tombstones.append(Tombstone(name, *await store.tip(name), pruned_ms=5_000))
    answers: list[object] = []

    async def create(handle: PostgresStore, name: str) -> None:
        sample = SampleEntity(name, time_ms=9_000)
        answers.extend([await handle.append(sample.create(f"again{number}")) for number in range(20)])

    await asyncio.gather(
        *(create(handle, name) for name in names for handle in (store, second)),
        *(third.prune(each, rows=1_000) for each in tombstones),
    )
    assert {type(each) for each in answers} <= {Conflict, Pruned}
    for name in names:
        assert await store.load(name) is None
        assert await second.append(SampleEntity(name, time_ms=9_000).create("last")) == Pruned(3)
    assert await store.differences() == ()
    for each in (store, second, third):
        await each.close()

"""The feed of a PostgreSQL server: no entry is missed, whatever is in progress while it is read."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import AsyncIterator
from typing import Any

import asyncpg  # type: ignore[import-untyped]  # it ships no types
import pytest
from msgspec.structs import replace

from interlock.errors import UsageError
from interlock.model.encoding.codec import encode
from interlock.ports.reading.journal_feed import FeedEntry
from interlock.stores.postgres import feed
from interlock.stores.postgres.connection import SETTINGS
from interlock.stores.postgres.opening import open_store
from interlock.stores.postgres.store import PostgresStore
from interlock.testing.store_suite.samples import SampleEntity
from interlock.testing.store_suite.subject import append_all
from tests.support.postgres_server import asked, store_or_skip

INSERT = "INSERT INTO journal (tenant, kind, id, version, record, at) VALUES ('', 'parcel', $1, $2, $3, now())"
ENTRY = SampleEntity("parcel/x").create().entry


@pytest.fixture
def url() -> str:
    """The address of an empty store."""
    return store_or_skip()


@pytest.fixture
async def store(url: str) -> AsyncIterator[PostgresStore]:
    """A store, closed at the end."""
    opened = await open_store(url)
    yield opened
    await opened.close()


async def _connected(url: str) -> Any:
    bare, _, options = url.partition("?")
    return await asyncpg.connect(bare, server_settings={"search_path": options.partition("=")[2]})


async def _read(store: PostgresStore, after: str | None = None, *, limit: int = 3) -> list[FeedEntry]:
    """Read until there is no more."""
    found: list[FeedEntry] = []
    while True:
        page = await store.feed(after, limit=limit)
        found += page.entries
        after = page.after
        if page.is_last:
            return found


def _record(version: int) -> bytes:
    return b'{"e":' + encode(replace(ENTRY, version=version)) + b',"h":""}'


def _names(entries: list[FeedEntry]) -> list[tuple[str, int]]:
    return [(each.entity, each.entry.version) for each in entries]


async def _fill(store: PostgresStore, count: int = 5) -> None:
    for number in range(count):
        sample = SampleEntity(f"parcel/{number}")
        await append_all(store, sample.create(), sample.step(key="a"), sample.step(key="b"))


async def test_a_feed_continues_after_any_entry(store: PostgresStore) -> None:
    assert [] == await _read(store)
    await _fill(store)
    found = await _read(store)
    assert [(f"parcel/{number}", version) for number in range(5) for version in (1, 2, 3)] == _names(found)
    for number, each in enumerate(found, start=1):
        assert _names(found)[number:] == _names(await _read(store, each.cursor))
    assert [] == _names(await _read(store, found[-1].cursor))


async def test_an_entry_that_is_committed_late_is_not_missed(store: PostgresStore, url: str) -> None:
    """Its position is lower than that of entries that were read before its commit (trap 11)."""
    early = await _connected(url)
    transaction = early.transaction()
    await transaction.start()
    await early.execute(INSERT, "late", 1, _record(1))
    await _fill(store, 2)
    found = await _read(store)
    assert ("parcel/late", 1) not in _names(found)
    assert 6 == len(found)
    cursor = found[-1].cursor
    assert [] == _names(await _read(store, cursor))
    await transaction.commit()
    await early.close()
    assert [("parcel/late", 1)] == _names(await _read(store, cursor))


async def test_a_feed_goes_on_beside_a_transaction_that_has_written_and_stays_open(
    store: PostgresStore, url: str
) -> None:
    """And reads only its own new rows, however long that transaction stays open (trap 12)."""
    early = await _connected(url)
    transaction = early.transaction()
    await transaction.start()
    await early.execute("CREATE TEMPORARY TABLE idle AS SELECT 1 AS one")
    await _fill(store, 4)
    found = await _read(store)
    assert 12 == len(found)
    cursor = (await store.feed(found[-1].cursor, limit=10)).after
    sample = SampleEntity("parcel/new")
    await append_all(store, sample.create())
    page = await store.feed(cursor, limit=10)
    assert [("parcel/new", 1)] == _names(list(page.entries))
    window = feed._window_cursor(page.after)
    old, new = feed.Snapshot.parse(window.old), feed.Snapshot.parse(window.new)
    ((rows,),) = asked(url, f"SELECT count(*) FROM journal WHERE xid >= {old.xmax} AND xid < {new.xmax}")
    assert rows == 1
    await transaction.rollback()
    await early.close()


async def test_versions_are_in_order_when_a_transaction_began_before_an_earlier_version(
    store: PostgresStore, url: str
) -> None:
    """A transaction of a caller takes its number, another step is committed, then it steps the entity (trap 13)."""
    joined = await _connected(url)
    transaction = joined.transaction()
    await transaction.start()
    await joined.fetchval("SELECT pg_current_xact_id()")
    sample = SampleEntity("parcel/1")
    await append_all(store, sample.create())
    await joined.execute(INSERT, "1", 2, _record(2))
    await transaction.commit()
    await joined.close()
    assert [("parcel/1", 1), ("parcel/1", 2)] == _names(await _read(store, limit=1))


@pytest.mark.parametrize("seed", [1, 2])
async def test_nothing_is_missed_doubled_or_out_of_order_while_many_write(
    store: PostgresStore, url: str, seed: int
) -> None:
    """Writers with early transaction numbers, rollbacks and pauses; a reader that starts again from its cursor."""
    writers, done = 6, asyncio.Event()
    versions: dict[str, int] = {}
    locks = {f"{number}": asyncio.Lock() for number in range(5)}
    committed: set[tuple[str, int]] = set()

    async def write(number: int) -> None:
        choose = random.Random(seed * 100 + number)
        connection = await _connected(url)
        for _ in range(40):
            own = choose.choice(sorted(locks))
            transaction = connection.transaction()
            await transaction.start()
            if choose.random() < 0.5:  # its number is lower than that of transactions that commit before
                await connection.fetchval("SELECT pg_current_xact_id()")
                await asyncio.sleep(0)
            async with locks[own]:  # as the row of the entity is locked
                version = versions.get(own, 0) + 1
                await connection.execute(INSERT, own, version, _record(version))
                if choose.random() < 0.2:
                    await transaction.rollback()
                else:
                    await transaction.commit()
                    versions[own] = version
                    committed.add((f"parcel/{own}", version))
        await connection.close()

    async def read() -> list[tuple[str, int]]:
        found: list[tuple[str, int]] = []
        after: str | None = None
        choose = random.Random(seed)
        while True:
            was_done = done.is_set()
            page = await store.feed(after, limit=7)
            handled = page.entries[: choose.randint(0, 7)] if page.entries else ()  # a crash after some of them
            found += _names(list(handled))
            after = handled[-1].cursor if handled else page.after if not page.entries else after
            if page.is_last and was_done:
                return found

    async def write_all() -> None:
        await asyncio.gather(*(write(number) for number in range(writers)))
        done.set()

    found, _ = await asyncio.gather(read(), write_all())
    assert committed == set(found)
    assert len(committed) == len(found)
    for own in locks:
        mine = [version for entity, version in found if entity == f"parcel/{own}"]
        assert sorted(mine) == mine


async def test_kinds_and_tenants_are_passed_over(store: PostgresStore, url: str) -> None:
    await _fill(store, 2)
    await append_all(store, SampleEntity("letter/1").create())
    other = await open_store(f"{url}&tenant=other")
    await append_all(other, SampleEntity("parcel/theirs").create())
    page = await store.feed(None, kinds=("letter",), limit=10)
    assert [("letter/1", 1)] == _names(list(page.entries))
    assert [] == _names(await _read(store, page.after))
    assert [("parcel/theirs", 1)] == _names(await _read(other))
    await other.close()


async def test_entries_from_before_positions_come_first(store: PostgresStore, url: str) -> None:
    """A store of an earlier release, upgraded."""
    await _fill(store, 3)
    asked(url, "UPDATE journal SET xid = NULL, position = NULL")
    await append_all(store, SampleEntity("parcel/new").create())
    found = await _read(store, limit=2)
    assert [*((f"parcel/{number}", version) for number in range(3) for version in (1, 2, 3)), ("parcel/new", 1)] == (
        _names(found)
    )
    for number, each in enumerate(found, start=1):
        assert _names(found)[number:] == _names(await _read(store, each.cursor, limit=2))


async def test_a_feed_starts_at_a_time(store: PostgresStore, url: str) -> None:
    await _fill(store, 2)
    ((now_ms,),) = asked(url, "SELECT clock_ms()")
    assert [] == _names(await _read(store, await store.cursor_at(now_ms + 60_000)))
    assert 6 == len(await _read(store, await store.cursor_at(0)))


async def test_a_store_that_was_restored_elsewhere_is_refused(store: PostgresStore, url: str) -> None:
    await _fill(store, 1)
    asked(url, "UPDATE journal SET xid = xid + 1000000000")
    with pytest.raises(UsageError) as raised:
        await store.feed(None, limit=5)
    assert "feed.restored" == raised.value.code


@pytest.mark.parametrize(
    "after", ["", "x", "sqlite.5", "postgres.", "postgres.1:1:/1:1:", "postgres.9:9:/1:1:/0", "postgres-old.{}"]
)
async def test_a_cursor_of_another_store_is_refused(store: PostgresStore, after: str) -> None:
    with pytest.raises(UsageError) as raised:
        await store.feed(after, limit=5)
    assert "feed.cursor" == raised.value.code


async def test_a_window_is_found_by_two_ranges_of_the_index(store: PostgresStore, url: str) -> None:
    """The plan that a connection of the store keeps: every part of the journal by `xid`, none by the position."""
    bare, _, options = url.partition("?")
    settings = SETTINGS | {"search_path": options.partition("=")[2], "plan_cache_mode": "force_generic_plan"}
    connection = await asyncpg.connect(bare, server_settings=settings)
    await connection.execute(f"PREPARE kept AS {feed.SELECT_WINDOW}")
    rows = await connection.fetch(f"EXPLAIN EXECUTE kept ({', '.join(['NULL'] * 8)})")
    await connection.close()
    plan = "\n".join(row[0] for row in rows)
    scans = re.findall(r"Scan .*journal", plan)
    assert scans
    assert [] == re.findall(r"Seq Scan.*|Bitmap.*", plan)
    assert len(scans) == len(re.findall(r"Index Cond: \(+xid", plan)), plan

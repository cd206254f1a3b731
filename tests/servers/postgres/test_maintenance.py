"""Maintenance of a PostgreSQL store: partitions are created in advance, old keys expire."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import asyncpg  # type: ignore[import-untyped]  # it ships no types
import pytest

from interlock.ports.store import Append, Duplicate
from interlock.stores import key_boundary
from interlock.stores.postgres import maintenance
from interlock.stores.postgres.opening import open_store
from interlock.stores.postgres.store import PostgresStore
from interlock.stores.sql import expired_keys, schema
from interlock.testing.store_suite.samples import SampleEntity
from interlock.testing.store_suite.subject import append_all
from tests.support.postgres_server import asked, store_or_skip

MONTHS = "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = 'journal'::regclass ORDER BY 1"


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


async def test_partitions_are_created_during_steps(store: PostgresStore, url: str) -> None:
    """Once an hour a batch takes the upkeep with it: a partition that is missing is made."""
    sample = SampleEntity("parcel/1")
    await append_all(store, sample.create())
    name = asked(url, MONTHS)[3][0]
    asked(url, f"DROP TABLE {name}")
    store.database.connections().writer._housekeeping_at = 0
    await append_all(store, sample.step(key="a"))
    await store.database.connections().writer.drain()

    assert name.startswith("journal_2")
    assert [(name,)] == asked(url, f"SELECT to_regclass('{name}')::text")


HOUR_MS, DAY_MS = 3_600_000, 86_400_000


async def upkeep(store: PostgresStore, append: Append) -> None:
    """Append a step an hour later, which starts the maintenance."""
    store.database.connections().writer._housekeeping_at = 0
    await append_all(store, append)
    await store.database.connections().writer.drain()


@pytest.mark.parametrize(
    ("aged", "ahead_ms", "left"),
    [("31 days", 0, 3), ("29 days", 0, 6), ("31 days", -30 * DAY_MS, 6), ("29 days", 90 * DAY_MS, 6)],
)
async def test_keys_older_than_the_window_are_forgotten(
    store: PostgresStore, url: str, aged: str, ahead_ms: int, left: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(expired_keys, "DELETE_MAX", 2)
    (seconds,) = asked(url, "SELECT extract(epoch FROM now())::bigint")[0]
    sample = SampleEntity("parcel/0", time_ms=seconds * 1_000 + ahead_ms)
    await append_all(store, sample.create(), *(sample.step(key=f"k{each}") for each in range(3)))
    asked(url, f"UPDATE event_key SET at = at - interval '{aged}' WHERE key <> 'k2'")
    await upkeep(store, sample.step(key="new"))
    (read_only,) = asked(url, "SELECT count(*) FROM event_key")
    await upkeep(store, sample.step(key="newer"))

    assert (5,) == read_only
    assert [(left,)] == asked(url, "SELECT count(*) FROM event_key")
    assert (left == 6) is (Duplicate(2) == await store.load("parcel/0", key="k0"))


class Server:
    """A server whose clock is wrong, and the local clock."""

    def __init__(self, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ticks_ms = 1_000
        self._url = url
        self._patch = monkeypatch
        monkeypatch.setattr(key_boundary, "monotonic_ns", lambda: self.ticks_ms * 1_000_000)

    def jump(self, ms: int) -> None:
        """Set its clock ahead by this time."""
        self._patch.setattr(maintenance, "SELECT_NOW", f"SELECT clock_ms() + {ms}")

    def boundary_ms(self) -> int:
        """Return how far the boundary has moved."""
        (row,) = asked(self._url, "SELECT extract(epoch FROM at - (SELECT at FROM started)) * 1000 FROM key_boundary")
        return int(row[0])


@pytest.fixture
def server(store: PostgresStore, url: str, monkeypatch: pytest.MonkeyPatch) -> Server:
    """The server of a new store."""
    assert store is not None
    asked(url, "UPDATE key_boundary SET at = date_trunc('second', at)")
    asked(url, "CREATE TABLE started AS SELECT at FROM key_boundary")
    return Server(url, monkeypatch)


async def test_clocks_that_jump_ahead_take_no_fresh_keys_with_them(
    store: PostgresStore, url: str, server: Server
) -> None:
    """Server and client may be one machine: then the entries say no more than the clock. Time must pass."""
    (now_ms,) = asked(url, "SELECT clock_ms()")[0]
    sample = SampleEntity("parcel/0", time_ms=now_ms)
    await upkeep(store, sample.create(key="pay"))
    server.jump(365 * DAY_MS)
    await upkeep(store, sample.step(key="jumped", after_ms=365 * DAY_MS))
    at_once = server.boundary_ms()
    for number in range(2):
        server.ticks_ms += HOUR_MS
        await upkeep(store, sample.step(key=f"later {number}"))

    assert Duplicate(1) == await store.load("parcel/0", key="pay")
    assert (0, 2.5 * HOUR_MS) == (at_once, server.boundary_ms())


async def test_two_processes_move_the_boundary_no_faster_than_one(
    store: PostgresStore, url: str, server: Server
) -> None:
    (now_ms,) = asked(url, "SELECT clock_ms()")[0]
    server.jump(365 * DAY_MS)
    other = await open_store(url)
    for number in range(3):
        for name, each in (("one", store), ("two", other)):
            sample = SampleEntity(f"parcel/{name}-{number}", time_ms=now_ms + 365 * DAY_MS)
            await upkeep(each, sample.create())
        server.ticks_ms += HOUR_MS
    await other.close()

    assert 2.5 * HOUR_MS == server.boundary_ms()


async def test_a_schema_of_an_earlier_release_begins_at_its_oldest_key(
    store: PostgresStore, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = schema.migrations("postgres")
    monkeypatch.setattr(schema, "migrations", lambda _: tuple(each for each in known if each.number <= 5))
    await append_all(store, SampleEntity("parcel/1").create(), SampleEntity("parcel/2").create())
    asked(url, "UPDATE event_key SET at = at - interval '40 days' WHERE id = '1'")
    asked(url, "DROP TABLE key_boundary")
    asked(url, "DELETE FROM schema_version WHERE version >= 5")
    for each in (url, f"{url}&tenant=two"):
        await (await open_store(each)).close()
    of_old = asked(url, "SELECT at = (SELECT min(at) FROM event_key) FROM key_boundary WHERE tenant <> 'two'")
    of_new = asked(url, "SELECT now() - at - interval '30 days' FROM key_boundary WHERE tenant = 'two'")

    assert [(True,)] == of_old
    assert timedelta(0) <= of_new[0][0] < timedelta(minutes=5)


async def test_what_one_chore_lacks_stops_no_other(store: PostgresStore, url: str) -> None:
    sample = SampleEntity("parcel/1")
    await append_all(store, sample.create())
    name = asked(url, MONTHS)[3][0]
    asked(url, f"DROP TABLE {name}")
    asked(url, "DROP TABLE key_boundary")
    await upkeep(store, sample.step(key="a"))
    made = asked(url, f"SELECT to_regclass('{name}')::text")
    asked(url, f"DROP TABLE {name}")
    await (await open_store(url)).close()

    assert [[(name,)]] * 2 == [made, asked(url, f"SELECT to_regclass('{name}')::text")]


async def test_upkeep_that_fails_stops_no_step(store: PostgresStore, url: str) -> None:
    asked(url, "DROP FUNCTION keep_partitions")
    sample = SampleEntity("parcel/1")
    for append in (sample.create(), sample.step(key="a")):
        store.database.connections().writer._housekeeping_at = 0
        await append_all(store, append)
        await store.database.connections().writer.drain()
    await (await open_store(url)).close()

    assert 2 == len(await store.read("parcel/1"))


async def test_a_migration_is_bound_by_no_limit_of_a_step(
    store: PostgresStore, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It walks whole tables: given up after some seconds, a large database could never be opened again."""
    migrations = schema.migrations("postgres")
    text = "CREATE TABLE limits AS SELECT name, setting FROM pg_settings WHERE name = 'statement_timeout'"
    execute, allowed = asyncpg.Connection.execute, list[Any]()

    async def executed(connection: Any, query: str, *values: Any, **options: Any) -> str:
        if query == text:
            allowed.append(options.get("timeout"))
        answer: str = await execute(connection, query, *values, **options)
        return answer

    more = (*migrations, schema.Migration(migrations[-1].number + 1, "limits", text))
    monkeypatch.setattr(schema, "migrations", lambda _: more)
    monkeypatch.setattr(asyncpg.Connection, "execute", executed)
    await (await open_store(url)).close()

    assert [maintenance.MIGRATE_SECONDS] == allowed
    assert [("statement_timeout", "0")] == asked(url, "SELECT name, setting FROM limits")

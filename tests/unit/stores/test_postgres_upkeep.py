"""What a PostgreSQL store does beside steps: months are made ahead, old keys forgotten."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import asyncpg  # type: ignore[import-untyped]  # it ships no types
import pytest

from interlock.ports.store import Duplicate
from interlock.stores import postgres_upkeep
from interlock.stores.postgres import open_store
from interlock.stores.postgres_store import PostgresStore
from interlock.testing.store_samples import Life
from interlock.testing.store_subject import kept
from tests.support.postgres_server import asked, store_or_skip


@pytest.fixture
def url() -> str:
    """Where the store of a test lies."""
    return store_or_skip()


@pytest.fixture
async def store(url: str) -> AsyncIterator[PostgresStore]:
    """A store, closed in the end."""
    opened = await open_store(url)
    yield opened
    await opened.close()


async def test_partitions_are_kept_up_beside_the_steps(store: PostgresStore, url: str) -> None:
    """Once an hour a batch takes the upkeep with it: a partition that is missing is made."""
    life = Life("parcel/1")
    await kept(store, life.created())
    months = "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = 'journal'::regclass ORDER BY 1"
    name = asked(url, months)[3][0]
    asked(url, f"DROP TABLE {name}")
    store._line().writer._upkeep_at = 0
    await kept(store, life.stepped(key="a"))
    await store._line().writer.drain()

    assert name.startswith("journal_2")
    assert [(name,)] == asked(url, f"SELECT to_regclass('{name}')::text")


@pytest.mark.parametrize(
    ("aged", "ahead_ms", "left"),
    [("31 days", 0, 2), ("29 days", 0, 5), ("31 days", -30 * 86_400_000, 5), ("29 days", 90 * 86_400_000, 5)],
)
async def test_keys_older_than_the_window_are_forgotten(
    store: PostgresStore, url: str, aged: str, ahead_ms: int, left: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the server's clock and by that of the entries: one that runs ahead makes nobody forget."""
    monkeypatch.setattr(postgres_upkeep, "PURGE_MAX", 2)
    (seconds,) = asked(url, "SELECT extract(epoch FROM now())::bigint")[0]
    life = Life("parcel/0", time_ms=seconds * 1_000 + ahead_ms)
    await kept(store, life.created(), *(life.stepped(key=f"k{each}") for each in range(3)))
    asked(url, f"UPDATE event_key SET at = at - interval '{aged}' WHERE key <> 'k2'")
    store._line().writer._upkeep_at = 0
    await kept(store, life.stepped(key="new"))
    await store._line().writer.drain()

    assert [(left,)] == asked(url, "SELECT count(*) FROM event_key")
    assert (left == 5) is (Duplicate(2) == await store.load("parcel/0", key="k0"))


async def test_upkeep_that_fails_stops_no_step(store: PostgresStore, url: str) -> None:
    """Somebody took the function away: the step is kept, and the next one too."""
    asked(url, "DROP FUNCTION keep_partitions")
    life = Life("parcel/1")
    for append in (life.created(), life.stepped(key="a")):
        store._line().writer._upkeep_at = 0
        await kept(store, append)
        await store._line().writer.drain()
    await (await open_store(url)).close()

    assert 2 == len(await store.read("parcel/1"))


async def test_a_migration_is_bound_by_no_limit_of_a_step(
    store: PostgresStore, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It walks whole tables: given up after some seconds, a large database could never be opened again."""
    migrations = dict(postgres_upkeep._migrations())
    text = "CREATE TABLE limits AS SELECT name, setting FROM pg_settings WHERE name = 'statement_timeout'"
    execute, allowed = asyncpg.Connection.execute, list[Any]()

    async def executed(connection: Any, query: str, *values: Any, **options: Any) -> str:
        if query == text:
            allowed.append(options.get("timeout"))
        answer: str = await execute(connection, query, *values, **options)
        return answer

    more = {**migrations, max(migrations) + 1: ("limits", text)}
    monkeypatch.setattr(postgres_upkeep, "_migrations", more.items)
    monkeypatch.setattr(asyncpg.Connection, "execute", executed)
    await (await open_store(url)).close()

    assert [postgres_upkeep.MIGRATE_SECONDS] == allowed
    assert [("statement_timeout", "0")] == asked(url, "SELECT name, setting FROM limits")

"""Work on a PostgreSQL server under test: steps that leave some, workers that claim it, and somebody in their way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg  # type: ignore[import-untyped]  # it ships no types
from msgspec.structs import replace

from interlock.model.journal.work import Lane, Work, WorkDelta, WorkId
from interlock.ports.store import Append
from interlock.ports.work import Claim
from interlock.stores.postgres.store import PostgresStore
from interlock.testing.store_suite.samples import Life
from interlock.testing.store_suite.subject import kept
from tests.support.eventually import eventually

CHARGE = WorkId("effect", 2, 0)
LEASE_MS = 30_000


@asynccontextmanager
async def raw(url: str, **settings: str) -> AsyncIterator[Any]:
    """A connection of somebody else, who can hold a transaction open."""
    bare, _, schema = url.partition("?schema=")
    connection = await asyncpg.connect(bare, server_settings={"search_path": schema, **settings})
    try:
        yield connection
    finally:
        await connection.close()


def effect(place: WorkId = CHARGE, *, due_ms: int = 0, name: str = "charge") -> Work:
    """Work for a handler."""
    return Work(place, name, {"name": name}, due_ms)


def sent(version: int) -> Work:
    """Something in an outbox."""
    return Work(WorkId("outbox", version, 0), "entity/door/1", {}, 0)


def leaving(append: Append, *born: Work, **others: Any) -> Append:
    """The same append, with work."""
    return replace(append, left=WorkDelta(born=born), **others)


async def taken(
    store: PostgresStore, lane: Lane = "effect", *, now_ms: int = 0, owner: str = "w1", limit: int = 10
) -> list[Claim]:
    """What is claimed now, for half a minute."""
    names = ("charge",) if lane == "effect" else None
    return list(await store.claim(lane, names, owner=owner, now_ms=now_ms, until_ms=now_ms + LEASE_MS, limit=limit))


async def ordered(store: PostgresStore, *born: Work, entity: str = "parcel/1") -> Life:
    """An entity whose first step left work."""
    life = Life(entity)
    await kept(store, life.created())
    await kept(store, leaving(life.stepped(key="first"), *born))
    return life


async def until_blocked(url: str, task: asyncio.Future[Any]) -> None:
    """Wait until somebody waits for a lock, or the task has ended without."""
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    async with raw(url) as connection:

        async def is_blocked() -> bool:
            return task.done() or bool(await connection.fetchval(waiting))

        await eventually(is_blocked)

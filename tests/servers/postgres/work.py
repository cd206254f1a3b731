"""Helpers for work on a PostgreSQL server: steps that create it, claims, and another connection that blocks them."""

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
from interlock.testing.store_suite.samples import SampleEntity
from interlock.testing.store_suite.subject import append_all
from tests.support.eventually import eventually

CHARGE = WorkId("effect", 2, 0)
LEASE_MS = 30_000


@asynccontextmanager
async def raw(url: str, **settings: str) -> AsyncIterator[Any]:
    """Another connection, which can keep a transaction open."""
    bare, _, schema = url.partition("?schema=")
    connection = await asyncpg.connect(bare, server_settings={"search_path": schema, **settings})
    try:
        yield connection
    finally:
        await connection.close()


def effect(work_id: WorkId = CHARGE, *, due_ms: int = 0, name: str = "charge") -> Work:
    """Work for a handler."""
    return Work(work_id, name, {"name": name}, due_ms)


def sent(version: int) -> Work:
    """Work of an outbox."""
    return Work(WorkId("outbox", version, 0), "entity/door/1", {}, 0)


def leaving(append: Append, *born: Work, **others: Any) -> Append:
    """The same append, with work."""
    return replace(append, work=WorkDelta(created=born), **others)


async def taken(
    store: PostgresStore, lane: Lane = "effect", *, now_ms: int = 0, owner: str = "w1", limit: int = 10
) -> list[Claim]:
    """Claim work for half a minute."""
    names = ("charge",) if lane == "effect" else None
    return list(await store.claim(lane, names, owner=owner, now_ms=now_ms, until_ms=now_ms + LEASE_MS, limit=limit))


async def ordered(store: PostgresStore, *born: Work, entity: str = "parcel/1") -> SampleEntity:
    """An entity whose first step left work."""
    sample = SampleEntity(entity)
    await append_all(store, sample.create())
    await append_all(store, leaving(sample.step(key="first"), *born))
    return sample


async def until_blocked(url: str, task: asyncio.Future[Any]) -> None:
    """Wait until a connection waits for a lock, or the task has ended."""
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    async with raw(url) as connection:

        async def is_blocked() -> bool:
            return task.done() or bool(await connection.fetchval(waiting))

        await eventually(is_blocked)

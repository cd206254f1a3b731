"""What is kept with claimed work, and work that cannot be read: it does not block other work."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from interlock.model.journal.work import Lane, Work, WorkDelta, WorkId
from interlock.ports.store import Store
from interlock.ports.work import Settlement, WorkQuery
from interlock.stores.memory import MemoryStore
from interlock.stores.sqlite.store import open_store
from interlock.testing.store_suite.samples import SampleEntity


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    """A store that keeps notes."""
    found: Store = MemoryStore() if request.param == "memory" else open_store(f"sqlite:///{tmp_path}/work.db")
    yield found
    await found.close()


def charge(ordinal: int, lane: Lane = "effect") -> Work:
    """Work for the handler `charge`."""
    return Work(WorkId(lane, 1, ordinal), "charge", {"n": ordinal}, 5)


async def _left(store: Store, *born: Work) -> None:
    await store.append(replace(SampleEntity("order/1").create(), work=WorkDelta(born)))


async def test_a_note_stands_beside_the_work_until_the_next_one(store: Store) -> None:
    """It changes neither hands nor numbers, and is seen in lists."""
    assert store.work is not None
    assert store.work is not None
    await _left(store, charge(0))
    (claim,) = await store.work.claim("effect", ("charge",), owner="w1", now_ms=5, until_ms=10, limit=9)
    kept = await store.work.save_details(claim, {"details": {"page": 7}})
    (row,) = (await store.work.list_work(WorkQuery())).rows
    cleared = await store.work.save_details(claim, None)
    (after,) = (await store.work.list_work(WorkQuery())).rows

    assert (True, {"details": {"page": 7}}, 1, 0, "w1", 10) == (
        kept,
        row.error,
        row.attempts,
        row.failures,
        row.owner,
        row.next_ms,
    )
    assert (True, None) == (cleared, after.error)


async def test_a_note_of_an_old_attempt_is_not_kept(store: Store) -> None:
    """Another worker has the work now; nor of dead or removed work."""
    assert store.work is not None
    assert store.work is not None
    await _left(store, charge(0))
    (old,) = await store.work.claim("effect", ("charge",), owner="w1", now_ms=5, until_ms=10, limit=9)
    (new,) = await store.work.claim("effect", ("charge",), owner="w2", now_ms=10, until_ms=20, limit=9)
    late = await store.work.save_details(old, "old")
    await store.work.settle((Settlement(new, "dead", error="why"),), now_ms=11)
    dead = await store.work.save_details(new, "dead")
    (row,) = (await store.work.list_work(WorkQuery())).rows
    await store.work.settle((Settlement(new, "done"),), now_ms=12)

    assert (False, False, "why", False) == (late, dead, row.error, await store.work.save_details(new, "gone"))


@pytest.mark.parametrize("lane", ["effect", "outbox"])
async def test_one_row_that_cannot_be_read_stops_no_other(tmp_path: Path, lane: Lane) -> None:
    """It is set aside as a dead letter that says so; those behind it are taken up."""
    store = open_store(f"sqlite:///{tmp_path}/work.db")
    try:
        await _left(store, charge(0, lane), charge(1, lane))
        with closing(sqlite3.connect(tmp_path / "work.db")) as connection, connection:
            connection.execute("UPDATE work SET body = ?, error = ? WHERE ordinal = 0", (b"\xff{", b"{"))
        listed = (await store.list_work(WorkQuery())).rows
        names = ("charge",) if lane == "effect" else None
        claims = [
            *await store.claim(lane, names, owner="w1", now_ms=5, until_ms=10, limit=9),
            *await store.claim(lane, names, owner="w1", now_ms=5, until_ms=10, limit=9),
        ]
        (dead,) = (await store.list_work(WorkQuery(dead=True))).rows
        with closing(sqlite3.connect(tmp_path / "work.db")) as connection, connection:
            connection.execute("UPDATE work SET body = ?", (b"{",))  # while it is claimed
        renewed = await store.renew(tuple(claims), until_ms=20)
    finally:
        await store.close()

    assert renewed == tuple(claims)
    assert [(None, None), ({"n": 1}, None)] == [(each.work.body, each.error) for each in listed]
    assert [1] == [each.work.id.ordinal for each in claims]
    assert (0, 5, "work.unreadable") == (dead.work.id.ordinal, dead.dead_ms, dead.error["code"])

"""Wake-ups through a PostgreSQL server: notifications, lost connections, and workers of this host that die."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import interlock
from interlock.model.journal.work import LANES, Lane, WorkId
from interlock.ports.work import Settlement
from interlock.stores.postgres.opening import open_store
from interlock.stores.postgres.store import PostgresStore
from interlock.stores.postgres.wakeups import channel_of
from interlock.testing.store_suite.samples import SampleEntity
from interlock.testing.store_suite.subject import append_all
from tests.processes.stores.test_wakeups import ORDER, Worker, is_in
from tests.servers.postgres.work import LEASE_MS, effect, leaving, taken
from tests.support.eventually import eventually
from tests.support.postgres_server import asked, store_or_skip

EFFECT: frozenset[Lane] = frozenset({"effect"})
ALL = frozenset(LANES)


@pytest.fixture
def url() -> str:
    """The address of an empty store."""
    return store_or_skip()


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[PostgresStore]:
    """A store, closed at the end of the block."""
    store = await open_store(url)
    try:
        yield store
    finally:
        await store.close()


async def test_signals_of_a_process_reach_other_processes_together(url: str) -> None:
    heard: list[frozenset[Lane]] = []
    own: list[frozenset[Lane]] = []
    async with opened(url) as worker, opened(url) as sender, opened(f"{url}&tenant=other") as other:
        await worker.wakeups.listen("w" * 32, heard.append)
        await sender.wakeups.listen("s" * 32, own.append)
        await eventually(lambda: ALL in heard and ALL in own)  # each looks once when it listens
        heard.clear()
        own.clear()
        other.wakeups.ring(ALL)
        for lane in LANES:
            sender.wakeups.ring(frozenset({lane}))
        await eventually(lambda: frozenset().union(*heard) == ALL)

    assert 2 == len(heard)  # the first immediately, the others together
    assert [] == own


async def test_a_worker_listens_again_after_a_lost_connection(url: str) -> None:
    heard: list[frozenset[Lane]] = []
    async with opened(url) as worker, opened(url) as sender:
        await worker.wakeups.listen("w" * 32, heard.append)
        await eventually(lambda: heard == [ALL])
        kill = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN %' AND datname = "
        await asyncio.to_thread(asked, url, f"{kill} current_database()")
        await eventually(lambda: heard == [ALL, ALL])  # it looks for what it may have missed
        sender.wakeups.ring(EFFECT)
        await eventually(lambda: heard == [ALL, ALL, EFFECT])


async def test_notifications_of_others_on_the_channel_are_ignored(url: str) -> None:
    heard: list[frozenset[Lane]] = []
    async with opened(url) as worker:
        await worker.wakeups.listen("w" * 32, heard.append)
        await eventually(lambda: heard == [ALL])
        channel = channel_of(worker.database.address)
        for payload in ("", "x:y:", "²:a:", "-1:a:", "1:someone:other"):
            await asyncio.to_thread(asked, url, f"SELECT pg_notify('{channel}', '{payload}')")
        await asyncio.to_thread(asked, url, f"SELECT pg_notify('{channel}', '1:someone:')")
        await eventually(lambda: len(heard) > 1)

    assert [ALL, EFFECT] == heard


async def test_the_claims_of_a_dead_worker_are_due_and_its_late_result_is_refused(url: str) -> None:
    async with opened(url) as store:
        for number in range(2):
            sample = SampleEntity(f"parcel/{number}")
            await append_all(store, leaving(sample.create(), effect(WorkId("effect", 1, 0))))
        (dead,) = await taken(store, owner="dead", limit=1)
        (alive,) = await taken(store, owner="alive", limit=1)
        released = await store.database.change_work(lambda: store.database.work.release_owner("dead"))
        (again,) = await taken(store, owner="next", limit=9)
        late = await store.settle((Settlement(dead, "again", 0),), now_ms=0)
        renewed = await store.renew((alive,), until_ms=LEASE_MS)

    assert (1, dead.entity, 2) == (released, again.entity, again.attempt)
    assert ((False,), True) == (late, renewed[0] is not None)


async def test_work_starts_by_the_signal_and_that_of_a_killed_worker_at_once(url: str, tmp_path: Path) -> None:
    (tmp_path / "order.yaml").write_text(ORDER, encoding="utf-8")
    workers: list[Worker] = []
    try:
        async with interlock.open(url, charts=[interlock.load(tmp_path / "order.yaml")], work=False) as orders:
            workers.append(Worker(url, tmp_path, "hangs"))
            assert "ready" == await workers[0].line()
            await orders.create("order/1")
            await orders.send("order/1", "pay")
            assert "started 1" == await workers[0].line()
            workers.append(Worker(url, tmp_path, "works"))
            assert "ready" == await workers[1].line()
            workers[0].kill()
            assert "started 2" == await workers[1].line()
            await eventually(lambda: is_in(orders, "order/1", "paid"))
    finally:
        for each in workers:
            each.kill()
            each.out.close()


async def test_that_notifications_arrive_can_be_tested(url: str) -> None:
    async with opened(url) as store:
        assert await store.wakeups.arrive()


async def test_facts_are_rows_of_the_tenant(url: str) -> None:
    async with opened(url) as store, opened(f"{url}&tenant=other") as other:
        await store.save_fact("messages", "a")
        await store.save_fact("messages", "b")

        assert ({"messages": "b"}, {}) == (await store.read_facts(), await other.read_facts())
        await store.save_fact("messages", None)
        assert {} == await store.read_facts()

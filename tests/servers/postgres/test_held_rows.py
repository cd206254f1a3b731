"""Rows that another transaction holds: what is unrelated to them does not wait."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from interlock.errors import UnavailableError
from interlock.ports.store import Appended, Conflict
from interlock.ports.work import Settlement
from interlock.stores.postgres import work, writer
from interlock.stores.postgres.commit import CREATION_LOCK, JOINED_STRIPE
from interlock.stores.postgres.opening import open_store
from interlock.stores.postgres.store import PostgresStore
from interlock.testing.store_suite.samples import SampleEntity
from interlock.testing.store_suite.subject import append_all
from tests.servers.postgres.work import effect, ordered, raw, taken, until_blocked
from tests.support.eventually import eventually
from tests.support.postgres_server import asked, store_or_skip

PATIENT_MS = 600_000
HOLD = "SELECT FROM entity WHERE id = $1 FOR UPDATE"


@pytest.fixture
def url() -> str:
    """The address of an empty store."""
    return store_or_skip()


@pytest.fixture(params=["auto", "group", "one"])
async def store(url: str, request: pytest.FixtureRequest) -> AsyncIterator[PostgresStore]:
    """A store, closed at the end, with each way to commit."""
    opened = await open_store(f"{url}&commit={request.param}")
    yield opened
    await opened.close()


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let locked steps and settlements wait for as long as a slow machine needs."""
    monkeypatch.setattr(writer, "BUSY_MS_MAX", PATIENT_MS)


async def parcels(store: PostgresStore, count: int) -> list[SampleEntity]:
    """Entities at version 1."""
    lives = [SampleEntity(f"parcel/{each}") for each in range(count)]
    await asyncio.gather(*(append_all(store, each.create()) for each in lives))
    return lives


async def all_but(tasks: list[asyncio.Task[Any]], held: asyncio.Task[Any]) -> list[Any]:
    """What the others answer while one is held."""
    return list(await asyncio.gather(*(each for each in tasks if each is not held)))


async def test_a_held_row_delays_no_other_entity_of_its_batch(store: PostgresStore, url: str) -> None:
    """The row is held until the 19 others have their answers, however long that takes."""
    lives = await parcels(store, 20)
    async with raw(url) as other:
        async with other.transaction():
            await other.fetch(HOLD, "7")
            tasks = [asyncio.create_task(store.append(each.step(key="a"))) for each in lives]
            others = await all_but(tasks, tasks[7])
            for key in "bcd":  # later batches neither
                others += await asyncio.gather(
                    *(store.append(each.step(key=key)) for each in lives if each is not lives[7])
                )
            was_held = not tasks[7].done()
        answer = await tasks[7]

    assert was_held
    assert [Appended] * (19 * 4) == [type(each) for each in others]
    assert Appended is type(answer)


async def test_single_steps_to_held_rows_do_not_stop_the_writer(store: PostgresStore, url: str) -> None:
    """Each is a separate statement, and there are fewer statements at a time than held rows here."""
    lives = await parcels(store, 40)
    async with raw(url) as other:
        async with other.transaction():
            await other.fetch("SELECT FROM entity WHERE id::integer < 30 FOR UPDATE")
            held = []
            for each in lives[:30]:
                held.append(asyncio.create_task(store.append(each.step(key="a"))))
                await asyncio.sleep(0)
            others = [await store.append(each.step(key="a")) for each in lives[30:]]
            is_waiting = [not each.done() for each in held]
        answers = await asyncio.gather(*held)

    assert all(is_waiting)
    assert {Appended} == {type(each) for each in [*others, *answers]}


async def test_a_row_that_stays_held_is_an_error_that_names_its_entity(
    store: PostgresStore, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "BUSY_MS_MAX", 50)
    lives = await parcels(store, 2)
    async with raw(url) as other:
        async with other.transaction():
            await other.fetch(HOLD, "0")
            with pytest.raises(UnavailableError, match="parcel/0") as caught:
                await store.append(lives[0].step(key="a"))
        lives[0] = SampleEntity("parcel/0")
        lives[0].create()
        again = await store.append(lives[0].step(key="a"))

    assert "store.busy" == caught.value.code
    assert Appended is type(again)


async def test_a_held_row_whose_holder_changes_it_is_a_conflict(store: PostgresStore, url: str) -> None:
    lives = await parcels(store, 1)
    async with raw(url) as other:
        async with other.transaction():
            await other.fetch("UPDATE entity SET version = 2, head = 'x' WHERE id = '0' RETURNING 1")
            task = asyncio.create_task(store.append(lives[0].step(key="a")))
            await eventually(lambda: bool(store.database.connections().writer._pauses))
        answer = await task

    assert Conflict(2) == answer


async def test_the_next_step_of_a_held_entity_waits_for_the_first(store: PostgresStore, url: str) -> None:
    """Steps of one entity keep their order, and the store can be closed while they wait."""
    (life,) = await parcels(store, 1)
    async with raw(url) as other:
        async with other.transaction():
            await other.fetch(HOLD, "0")
            tasks = [asyncio.create_task(store.append(life.step(key=key))) for key in "abc"]
            await eventually(lambda: bool(store.database.connections().writer._pauses))
            closing = asyncio.create_task(store.close())
            await asyncio.sleep(0)
        answers = await asyncio.gather(*tasks)
        await closing

    assert [2, 3, 4] == [each.version for each in answers if isinstance(each, Appended)]


async def test_a_creation_elsewhere_delays_no_other_creation(store: PostgresStore, url: str) -> None:
    lives = [SampleEntity(f"parcel/{each}") for each in range(12)]
    schema = url.partition("?schema=")[2]
    lock = CREATION_LOCK.format(schema="$1::text", tenant="''", kind="'parcel'", id="'3'")
    async with raw(url) as other:
        transaction = other.transaction()
        await transaction.start()
        await other.fetch(f"SELECT pg_advisory_xact_lock({lock})", schema)
        await other.execute(
            """
            INSERT INTO entity (tenant, kind, id, version, revision, configuration, active, tags, snapshot, head,
                                journal_bytes, created_ms, entered_ms, changed_ms, created_at, last_at)
            VALUES ('', 'parcel', '3', 1, '', '', '', '', '', '', 0, 0, 0, 0, now(), now())"""
        )
        tasks = [asyncio.create_task(store.append(each.create())) for each in lives]
        others = await all_but(tasks, tasks[3])
        was_held = not tasks[3].done()
        await transaction.rollback()
        answer = await tasks[3]

    assert was_held
    assert {Appended} == {type(each) for each in [*others, answer]}


# Work


async def test_a_held_row_of_work_delays_no_other_settlement_or_renewal(url: str) -> None:
    store = await open_store(url)
    try:
        for each in range(4):
            await ordered(store, effect(), entity=f"parcel/{each}")
        claims = await taken(store)
        held = next(each for each in claims if each.entity == "parcel/1")
        async with raw(url) as other, other.transaction():
            await other.fetch("SELECT FROM work WHERE id = '1' FOR UPDATE")
            renewed = await store.renew(tuple(claims), until_ms=90_000)
            still_due = asked(url, "SELECT id FROM work WHERE next_ms < clock_ms() + 60000")
            settled = await store.settle(tuple(Settlement(each, "done") for each in claims), now_ms=0)
        left = asked(url, "SELECT id, attempts FROM work")
        (later,) = await store.settle((Settlement(held, "done"),), now_ms=0)
    finally:
        await store.close()

    assert 4 == len([each for each in renewed if each is not None])
    assert [("1",)] == still_due
    assert [each.entity != "parcel/1" for each in claims] == list(settled)
    assert [("1", 1)] == left
    assert later


async def test_a_settlement_waits_for_a_short_lock(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Our own lock lasts as long as a flush: a settlement that gave up on it would run work twice."""
    monkeypatch.setattr(work, "SETTLE_PATIENCE_MS", PATIENT_MS)
    store = await open_store(url)
    try:
        await ordered(store, effect())
        (claim,) = await taken(store)
        async with raw(url) as other:
            async with other.transaction():
                await other.fetch("SELECT FROM work FOR UPDATE")
                task = asyncio.create_task(store.settle((Settlement(claim, "done"),), now_ms=0))
                await until_blocked(url, task)
                is_waiting = not task.done()
            answer = await task
    finally:
        await store.close()

    assert is_waiting
    assert (True,) == answer
    assert [(0,)] == asked(url, "SELECT count(*) FROM work")


# Counters and time


async def test_transactions_that_stay_open_count_on_rows_of_their_own(url: str) -> None:
    """Two of them, and a batch of the store, change one counter; none waits for another."""
    store = await open_store(url)
    count = f"""
        INSERT INTO state_count AS c (tenant, kind, revision, state, stripe, entities)
        VALUES ('', 'parcel', $1, 'packed', {JOINED_STRIPE}, 1)
        ON CONFLICT (tenant, kind, revision, state, stripe) DO UPDATE SET entities = c.entities + 1"""
    try:
        await parcels(store, 1)
        ((revision,),) = asked(url, "SELECT revision FROM entity")
        async with raw(url) as first, raw(url) as second, first.transaction(), second.transaction():
            for connection in (first, second, first, second):
                await connection.execute(count, revision)
            lives = [SampleEntity(f"parcel/new{each}") for each in range(5)]
            await asyncio.gather(*(append_all(store, each.create()) for each in lives))
        before = {each.state: each.entities for each in await store.count_states("parcel")}
        mine = store.database.connections().writer
        mine.merge_counts_soon()
        await mine.drain()
        after = {each.state: each.entities for each in await store.count_states("parcel")}
    finally:
        await store.close()

    assert before["packed"] == after["packed"] == 1 + 4 + 5
    assert [(0,)] == asked(url, "SELECT count(*) FROM state_count WHERE stripe < 0")


async def test_times_are_those_of_the_statement(url: str) -> None:
    store = await open_store(url)
    try:
        async with raw(url) as other, other.transaction():
            first = await other.fetchval("SELECT clock_ms()")
            await other.fetch("SELECT pg_sleep(0.02)")
            second, began = await other.fetchrow("SELECT clock_ms(), floor(extract(epoch FROM now()) * 1000)")
    finally:
        await store.close()

    assert began <= first < second

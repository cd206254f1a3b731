"""Concurrent workers on a PostgreSQL server: claims at the same time, different clocks, broken connections."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from msgspec.structs import replace

from interlock.errors import UnavailableError
from interlock.model.journal.work import WorkDelta, WorkId
from interlock.ports.store import Appended
from interlock.ports.work import Claim, Settlement, WorkQuery
from interlock.stores.postgres import store as postgres_store
from interlock.stores.postgres import work as postgres_work
from interlock.stores.postgres.connection import SETTINGS
from interlock.stores.postgres.opening import open_store
from interlock.stores.postgres.store import PostgresStore
from interlock.testing.store_suite.samples import SampleEntity
from interlock.testing.store_suite.subject import append_all
from tests.conformance.stores.work_tables import CLOCK
from tests.servers.postgres.work import CHARGE, LEASE_MS, effect, leaving, ordered, raw, sent, taken, until_blocked
from tests.support.eventually import eventually
from tests.support.postgres_server import asked, store_or_skip

HOUR_MS = 3_600_000


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


# Many workers


async def test_many_workers_take_each_piece_up_once(store: PostgresStore) -> None:
    lives = [SampleEntity(f"parcel/{each:03}") for each in range(60)]
    await asyncio.gather(
        *(append_all(store, leaving(sample.create(), effect(WorkId("effect", 1, 0)))) for sample in lives)
    )
    found: list[Claim] = []
    for _ in range(60):  # rows that another just looked at are passed over, and found the next time
        rounds = await asyncio.gather(*(taken(store, owner=f"w{each}", limit=4) for each in range(6)))
        found += [claim for claims in rounds for claim in claims]
        if len(found) == len(lives):
            break

    assert {each.entity for each in lives} == {each.entity for each in found}
    assert [1] * 60 == [each.attempt for each in found]


async def test_what_another_just_takes_up_is_passed_over(store: PostgresStore, url: str) -> None:
    await ordered(store, effect(), effect(WorkId("effect", 2, 1)))
    async with raw(url) as other, other.transaction():
        await other.fetch("SELECT FROM work WHERE ordinal = 0 FOR UPDATE")

        assert [1] == [each.work.id.ordinal for each in await taken(store)]


async def test_what_is_sent_while_the_first_is_delivered_is_let_in(store: PostgresStore, url: str) -> None:
    await ordered(store, sent(2))
    (first,) = await taken(store, "outbox")
    async with raw(url) as other:
        stepping = other.transaction()
        await stepping.start()
        await other.execute(KEEP_WORK)
        settling = asyncio.ensure_future(store.settle((Settlement(first, "done"),), now_ms=0))
        await until_blocked(url, settling)
        await stepping.commit()

        assert (True,) == await settling
    assert [3] == [each.work.id.version for each in await taken(store, "outbox")]


async def test_what_is_sent_after_the_first_was_delivered_is_let_in(store: PostgresStore, url: str) -> None:
    sample = await ordered(store, sent(2))
    async with raw(url) as other:
        settling = other.transaction()
        await settling.start()
        await other.execute("SELECT drop_work('', 'parcel', '1', 'outbox', 2, 0)")
        stepping = asyncio.ensure_future(store.append(leaving(sample.step(key="b"), sent(3))))
        await until_blocked(url, stepping)
        await settling.commit()

        assert isinstance(await stepping, Appended)
    assert [3] == [each.work.id.version for each in await taken(store, "outbox")]


KEEP_WORK = """
    SELECT keep_work('', ARRAY[1::bigint], ARRAY['parcel'], ARRAY['1'],
                     ARRAY[1::bigint], ARRAY['outbox'], ARRAY[3::bigint], ARRAY[0::bigint], ARRAY[''], ARRAY['x'],
                     ARRAY['{}'::bytea], ARRAY[0::bigint], ARRAY[0::bigint],
                     '{}', '{}', '{}', '{}', '{}')"""


async def test_work_that_its_step_ends_while_it_is_renewed_is_gone(store: PostgresStore, url: str) -> None:
    sample = await ordered(store, effect())
    await taken(store)
    async with raw(url) as other:
        renewing = other.transaction()
        await renewing.start()
        await other.execute("UPDATE work SET next_ms = next_ms + 1")
        appending = asyncio.ensure_future(
            store.append(replace(sample.step(key="answer"), work=WorkDelta(finished=(CHARGE,))))
        )
        await until_blocked(url, appending)
        await renewing.commit()

        assert isinstance(await appending, Appended)
    assert () == (await store.list_work(WorkQuery())).rows


async def test_workers_and_steps_on_the_same_rows_never_wait_in_a_circle(store: PostgresStore) -> None:
    """Entities send to and fro while their work is settled in batches, in whatever order it is given."""
    lives = [SampleEntity(f"parcel/{each}") for each in range(8)]
    await asyncio.gather(*(append_all(store, sample.create()) for sample in lives))
    gone = 0

    async def step(round_: int) -> None:
        await asyncio.gather(
            *(append_all(store, leaving(sample.step(key=f"k{round_}"), sent(round_ + 2))) for sample in lives)
        )

    async def deliver(owner: str) -> int:
        claims = await taken(store, "outbox", owner=owner, limit=5)
        settled = await store.settle(tuple(Settlement(each, "done") for each in reversed(claims)), now_ms=0)
        return sum(settled)

    for round_ in range(5):
        stepping = asyncio.ensure_future(step(round_))
        gone += sum(await asyncio.gather(*(deliver(f"w{each}") for each in range(3))))
        await stepping
    for _ in range(100):
        if gone == 40:
            break
        gone += await deliver("w")

    assert (40, ()) == (gone, (await store.list_work(WorkQuery())).rows)


# Clocks


@pytest.fixture
async def at_noon(store: PostgresStore, url: str) -> PostgresStore:
    """A store whose server's clock shows 1,000,000."""
    async with raw(url) as connection:
        await connection.execute(CLOCK)
        await connection.execute("UPDATE set_clock SET ms = 1000000")
    return store


async def _set(url: str, ms: int) -> None:
    async with raw(url) as connection:
        await connection.execute("UPDATE set_clock SET ms = $1", ms)


@pytest.mark.parametrize("behind_ms", [-HOUR_MS, 0, HOUR_MS])
async def test_work_is_due_at_once_whatever_the_clock_of_its_host(at_noon: PostgresStore, behind_ms: int) -> None:
    """A host an hour ahead or behind leaves work; another takes it up without waiting for that hour."""
    sample = SampleEntity("parcel/1", time_ms=1_000_000 - behind_ms)
    await append_all(at_noon, leaving(sample.create(), effect(due_ms=sample.time_ms)))

    assert 1 == len(await taken(at_noon, now_ms=1_000_000))


@pytest.mark.parametrize("ahead_ms", [-HOUR_MS, 0, HOUR_MS])
async def test_a_lease_is_not_lost_to_a_host_whose_clock_is_ahead(
    at_noon: PostgresStore, url: str, ahead_ms: int
) -> None:
    """It lasts as long as was asked for, by the server's clock; renewed, from then on."""
    sample = SampleEntity("parcel/1", time_ms=1_000_000)
    await append_all(at_noon, leaving(sample.create(), effect(due_ms=sample.time_ms)))
    (claim,) = await taken(at_noon, now_ms=1_000_000 + ahead_ms)
    stolen = await taken(elsewhere(at_noon), now_ms=1_000_000 + HOUR_MS)
    await _set(url, 1_020_000)
    renewed = await at_noon.renew((claim,), until_ms=1_020_000 + ahead_ms + LEASE_MS)
    await _set(url, 1_049_999)
    early = await taken(elsewhere(at_noon), now_ms=5)
    await _set(url, 1_050_000)
    lapsed = await taken(elsewhere(at_noon), now_ms=5)

    assert ([], (claim,), []) == (stolen, renewed, early)
    assert [2] == [each.attempt for each in lapsed]


def elsewhere(store: PostgresStore) -> PostgresStore:
    """A store of another host, which has not yet compared the clocks; closed with the first one."""
    other = PostgresStore(store.database.address)
    other.database.loops = store.database.loops
    return other


@pytest.mark.parametrize("ahead_ms", [-HOUR_MS, 0, HOUR_MS])
async def test_the_next_poll_is_returned_in_the_time_of_the_host(at_noon: PostgresStore, ahead_ms: int) -> None:
    """Too early it would ask without end, too late it would oversleep."""
    here = 1_000_000 + ahead_ms
    sample = SampleEntity("parcel/1", time_ms=here)
    await append_all(at_noon, leaving(sample.create(), effect(due_ms=here + 700)))
    early = await taken(at_noon, now_ms=here)

    assert ([], here + 700) == (early, await at_noon.next_due_ms("effect", ("charge",)))


@pytest.mark.parametrize("ahead_ms", [-HOUR_MS, 0, HOUR_MS])
async def test_what_is_put_off_waits_as_long_as_was_said(at_noon: PostgresStore, url: str, ahead_ms: int) -> None:
    here = 1_000_000 + ahead_ms
    sample = SampleEntity("parcel/1", time_ms=here)
    await append_all(at_noon, leaving(sample.create(), effect(due_ms=here)))
    (claim,) = await taken(at_noon, now_ms=here)
    await at_noon.settle((Settlement(claim, "again", here + 500),), now_ms=here)
    (row,) = (await at_noon.list_work(WorkQuery())).rows

    assert 1_000_500 == row.next_ms


async def test_the_clock_of_the_schema_is_the_servers(store: PostgresStore, url: str) -> None:
    """In milliseconds since 1970."""
    ((clock, now),) = asked(url, "SELECT clock_ms(), extract(epoch FROM statement_timestamp()) * 1000")

    assert 0 <= now - clock < 1


# What is lost or held up


Hands = Callable[[PostgresStore, Claim], Any]


@pytest.mark.parametrize(
    "change",
    [
        lambda store, claim: taken(store),
        lambda store, claim: store.renew((claim,), until_ms=LEASE_MS),
        lambda store, claim: store.settle((Settlement(claim, "again", 0, without_failure=True),), now_ms=0),
        lambda store, claim: store.acquire_lease("name", owner="w1", now_ms=0, until_ms=9),
        lambda store, claim: store.record_heartbeat(now_ms=0, gap_ms=9),
    ],
    ids=["claim", "renew", "settle", "lease", "alive"],
)
async def test_workers_continue_after_all_connections_were_ended(store: PostgresStore, url: str, change: Hands) -> None:
    await ordered(store, effect())
    (claim,) = await taken(store)
    asked(
        url,
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE pid <> pg_backend_pid() AND datname = current_database()",
    )
    await change(store, claim)


class Impatient:
    """A store whose server soon stops waiting for a lock, and the number of its calls."""

    def __init__(self, store: PostgresStore) -> None:
        self.store = store
        self.tries = 0
        link = store.database.connections().pool
        real = link.ask_with_retry

        async def asked(question: Any) -> Any:
            self.tries += 1
            return await real(question)

        link.ask_with_retry = asked  # type: ignore[method-assign]  # counted on the way


@pytest.fixture
async def impatient(url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Impatient]:
    """A store with a short lock timeout."""
    monkeypatch.setitem(SETTINGS, "lock_timeout", "20ms")
    store = await open_store(url)
    yield Impatient(store)
    await store.close()


async def test_what_a_lock_holds_up_is_tried_again(
    impatient: Impatient, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_store, "CHANGE_TRIES", 10_000)
    await ordered(impatient.store, effect())
    (claim,) = await taken(impatient.store)
    async with raw(url) as other:
        holding = other.transaction()
        await holding.start()
        await other.fetch("SELECT FROM work FOR UPDATE")
        impatient.tries = 0
        saving = asyncio.ensure_future(impatient.store.save_details(claim, {"done": 1}))
        await eventually(lambda: impatient.tries >= 2 or saving.done())
        await holding.rollback()

        assert await saving


async def test_a_lock_that_is_never_granted_is_reported_in_the_end(impatient: Impatient, url: str) -> None:
    asked(url, "INSERT INTO lease VALUES ('', 'name', 'w9', 1, 0)")
    async with raw(url) as other, other.transaction():
        await other.fetch("SELECT FROM lease FOR UPDATE")
        with pytest.raises(UnavailableError) as raised:
            await impatient.store.acquire_lease("name", owner="w1", now_ms=0, until_ms=9)

    assert ("store.busy", postgres_store.CHANGE_TRIES) == (raised.value.code, impatient.tries)


async def test_a_settlement_holds_no_row_while_it_waits_for_another(
    store: PostgresStore, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So batches that overlap never wait for each other in a circle."""
    monkeypatch.setattr(postgres_work, "SETTLE_PATIENCE_MS", 600_000)
    await ordered(store, effect(), effect(WorkId("effect", 2, 1)))
    first, second = sorted(await taken(store), key=lambda each: each.work.id)
    async with raw(url) as other, raw(url) as third:
        holding = other.transaction()
        await holding.start()
        await other.fetch("SELECT FROM work WHERE ordinal = 1 FOR UPDATE")
        back = tuple(Settlement(each, "again", 0, without_failure=True) for each in (second, first))
        settling = asyncio.ensure_future(store.settle(back, now_ms=0))
        await until_blocked(url, settling)
        free = await third.fetch("SELECT FROM work WHERE ordinal = 0 FOR UPDATE SKIP LOCKED")
        await holding.commit()

        assert (1, (True, True)) == (len(free), await settling)

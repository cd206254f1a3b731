"""Leases and downtimes on a PostgreSQL server: the suite, and that the server's clock alone decides."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial

import pytest

from interlock.ports.leases import Downtime, Lease, Leases
from interlock.ports.store import Store
from interlock.stores.postgres import statements
from interlock.stores.postgres.opening import open_store
from interlock.stores.postgres.store import PostgresStore
from interlock.testing.store_suite.suite import Case, StoreSubject, lease_cases
from tests.conformance.stores.work_tables import CLOCK
from tests.servers.postgres.scene import raw, until_blocked
from tests.support.postgres_server import asked, store_or_skip

HOUR_MS = 3_600_000


def _named(case: Case) -> str:
    return getattr(case, "__name__", repr(case))


def _opened(url: str) -> Store:
    return asyncio.run(open_store(url))


@pytest.mark.parametrize("case", lease_cases(durable=True, shared=True), ids=_named)
async def test_the_postgres_store_leases(case: Case) -> None:
    await case(StoreSubject(open=partial(_opened, store_or_skip())))


class Server:
    """A store, and the clock of its server."""

    def __init__(self, store: PostgresStore, url: str) -> None:
        self.store = store
        self.url = url
        for statement in CLOCK.split(";"):
            asked(url, statement)

    def at(self, ms: int) -> PostgresStore:
        """The store, now that the server's clock shows this."""
        asked(self.url, f"UPDATE set_clock SET ms = {ms}")
        return self.store


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    """A store whose server's clock the test sets."""
    url = store_or_skip()
    store = await open_store(url)
    yield Server(store, url)
    await store.close()


async def taken(store: Leases, owner: str, *, now_ms: int = 0, length_ms: int = 1_000) -> Lease | None:
    """The name, asked for by an owner whose clock shows `now_ms`."""
    return await store.lease("name", owner=owner, now_ms=now_ms, until_ms=now_ms + length_ms)


@pytest.mark.parametrize("ahead_ms", [-HOUR_MS, 0, HOUR_MS])
async def test_a_lease_lasts_as_long_as_was_asked_for(server: Server, ahead_ms: int) -> None:
    held = await taken(server.at(HOUR_MS), "ada", now_ms=HOUR_MS + ahead_ms)
    early = await taken(server.at(HOUR_MS + 999), "bob", now_ms=9 * HOUR_MS)
    late = await taken(server.at(HOUR_MS + 1_000), "bob", now_ms=5)

    assert (Lease("name", "ada", 1, HOUR_MS + ahead_ms + 1_000), None) == (held, early)
    assert Lease("name", "bob", 2, 1_005) == late


async def test_a_server_clock_that_goes_back_takes_nothing_from_its_holder(server: Server) -> None:
    await taken(server.at(10_000), "ada")

    assert None is await taken(server.at(10), "bob")


async def test_downtime_is_more_silence_than_allowed_by_the_servers_clock(server: Server) -> None:
    """From the last sign of life to the next one; the hosts' own times say nothing."""
    assert None is await server.at(1_000).alive(now_ms=7, gap_ms=30)
    assert None is await server.at(1_030).alive(now_ms=HOUR_MS, gap_ms=30)
    assert Downtime(1_030, 1_061) == await server.at(1_061).alive(now_ms=8, gap_ms=30)
    assert (Downtime(1_030, 1_061),) == await server.store.downtimes(since_ms=1_060)


async def test_a_clock_that_goes_back_and_forth_makes_no_downtime(server: Server) -> None:
    await server.at(10_000).alive(now_ms=0, gap_ms=30)

    assert None is await server.at(5_000).alive(now_ms=0, gap_ms=30)
    assert None is await server.at(10_030).alive(now_ms=0, gap_ms=30)
    assert () == await server.store.downtimes(since_ms=0)


async def test_of_many_who_come_back_at_once_one_notes_the_downtime(server: Server) -> None:
    await server.at(0).alive(now_ms=0, gap_ms=30)
    store = server.at(100)
    async with raw(server.url) as other:
        noting = other.transaction()
        await noting.start()
        await other.fetch("SELECT * FROM note_alive('', 30, 9)")
        others = asyncio.gather(*(store.alive(now_ms=0, gap_ms=30) for _ in range(4)))
        await until_blocked(server.url, others)
        await noting.commit()

        assert [None] * 4 == await others
    assert (Downtime(0, 100),) == await store.downtimes(since_ms=0)


async def test_old_downtimes_are_forgotten(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statements, "DOWNTIMES_MAX", 3)
    for time_ms in range(0, 60, 10):
        await server.at(time_ms).alive(now_ms=0, gap_ms=5)

    assert [30, 40, 50] == [each.ended_ms for each in await server.store.downtimes(since_ms=0)]


async def test_tenants_hold_names_of_their_own() -> None:
    url = store_or_skip()
    stores = [await open_store(f"{url}&tenant={each}") for each in ("one", "two")]
    leases = [await taken(store, owner, length_ms=HOUR_MS) for store, owner in zip(stores, "ab", strict=True)]
    await stores[0].alive(now_ms=0, gap_ms=5)
    await stores[0].alive(now_ms=0, gap_ms=-1)
    downtimes = [len(await store.downtimes(since_ms=0)) for store in stores]
    for each in stores:
        await each.close()

    assert ([1, 1], [1, 0]) == ([each and each.fence for each in leases], downtimes)

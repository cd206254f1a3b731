"""What pages about many entities ask a PostgreSQL server: the same answers as from memory, along counters and keys."""

from __future__ import annotations

import asyncio
import gc
import re
from collections.abc import AsyncIterator

import pytest
from msgspec.structs import replace

from interlock.ports.refusals import Refusal, RefusalVerification
from interlock.ports.statistics import DAY_MS, DWELL_DAYS, MINUTE_MS, DwellTimes, MinuteRates
from interlock.ports.store import Conflict, Store
from interlock.stores.memory import MemoryStore
from interlock.stores.postgres import statistics
from interlock.stores.postgres.connection import SETTINGS
from interlock.stores.postgres.opening import open_store
from interlock.stores.postgres.statements import STATEMENTS
from interlock.stores.postgres.store import PostgresStore
from interlock.testing.store_suite.samples import Life
from interlock.testing.store_suite.subject import kept
from tests.servers.postgres.scene import raw
from tests.support.eventually import eventually
from tests.support.postgres_server import asked, store_or_skip

NOON_MS = 100 * DAY_MS + 12 * 3_600_000


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


def refusal(number: int, principal: str | None = "ada") -> Refusal:
    """An attempt that changed nothing."""
    return Refusal("parcel/1", f"event{number}", "rejected", "unhandled", NOON_MS, principal)


async def lived(store: Store) -> None:
    """Some parcels: moved after a while, one cancelled, one lost swap, refusals."""
    lives = [Life(f"parcel/{each}", time_ms=NOON_MS) for each in range(5)]
    other = Life("parcel/9", revision="2.0.0", time_ms=NOON_MS + MINUTE_MS)
    await kept(store, *(life.created() for life in (*lives, other)))
    for number, life in enumerate(lives[:3]):
        await kept(store, life.stepped("shipped", key="s", after_ms=50 * 30**number))
    await kept(store, lives[0].stepped("boarded", key="b", after_ms=5_000), lives[0].stepped(key="n", after_ms=DAY_MS))
    await kept(store, lives[2].cancelled(key="off", after_ms=5_000))
    late = lives[4].stepped(key="late")
    lost = await store.append(replace(late, expected=7, entry=replace(late.entry, version=8)))
    assert isinstance(lost, Conflict)


async def told(store: Store) -> None:
    """Wait until the statistics of a store on a server are written."""
    if isinstance(store, PostgresStore):
        await store.database.connections().statistics.drain()


async def test_a_server_sees_what_memory_sees(store: PostgresStore) -> None:
    """Populations by revision, stays by state and length, steps and lost swaps by minute, and who is overdue."""
    memory = MemoryStore()
    answers = []
    for each in (memory, store):
        assert each.statistics is not None
        await lived(each)
        await each.refuse((refusal(1), refusal(2)))
        await told(each)
        answers.append(
            (
                await each.counts("parcel"),
                await each.counts("letter"),
                await each.dwell("parcel", since_ms=NOON_MS),
                await each.dwell("parcel", since_ms=NOON_MS + DAY_MS),
                await each.rates("parcel", since_ms=0),
                await each.rates("parcel", since_ms=NOON_MS + 1),
                [
                    await each.overdue("parcel", "packed", before_ms=NOON_MS + before)
                    for before in (0, 1, MINUTE_MS + 1)
                ],
            )
        )

    assert answers[0] == answers[1]
    assert 3 == len(answers[0][2])


async def test_statistics_of_two_processes_add_up(url: str) -> None:
    one, two = await open_store(url), await open_store(url)
    for number, each in enumerate((one, two, two)):
        life = Life(f"parcel/{number}", time_ms=NOON_MS)
        await kept(each, life.created(), life.stepped("shipped", key="s", after_ms=0))
    await one.close()
    await two.close()
    third = await open_store(url)
    rates, dwell = await third.rates("parcel", since_ms=0), await third.dwell("parcel", since_ms=0)
    await third.close()

    assert ((MinuteRates(NOON_MS, 6, 0, 0),), (DwellTimes("packed", (3, *[0] * 11)),)) == (rates, dwell)


async def test_statistics_are_written_without_being_asked_for(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(statistics, "WRITE_SECONDS", 0.01)
    life = Life("parcel/1", time_ms=NOON_MS)
    for steps, append in enumerate((life.created(), life.stepped(key="a", after_ms=0)), start=1):
        await kept(store, append)

        async def is_written(steps: int = steps) -> bool:
            return (MinuteRates(NOON_MS, steps, 0, 0),) == await store.rates("parcel", since_ms=0)

        await eventually(is_written)


async def test_statistics_that_cannot_be_written_stop_no_step(store: PostgresStore, url: str) -> None:
    asked(url, "DROP TABLE kind_minute")
    heard: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: heard.append(context))
    life = Life("parcel/1", time_ms=NOON_MS)
    await kept(store, life.created())
    await told(store)
    await kept(store, life.stepped(key="a"))
    gc.collect()

    assert [] == heard


async def test_old_statistics_are_forgotten(store: PostgresStore) -> None:
    for life in (Life("parcel/1", time_ms=NOON_MS), Life("parcel/2", time_ms=NOON_MS + (DWELL_DAYS + 1) * DAY_MS)):
        await kept(store, life.created(), life.stepped("shipped", key="s", after_ms=0))
        await told(store)
    rates, dwell = await store.rates("parcel", since_ms=0), await store.dwell("parcel", since_ms=0)

    assert [(NOON_MS + (DWELL_DAYS + 1) * DAY_MS, 2)] == [(each.minute_ms, each.steps) for each in rates]
    assert (DwellTimes("packed", (1, *[0] * 11)),) == dwell


async def test_refusals_are_read_back_newest_first(store: PostgresStore) -> None:
    assert store.refusal_history is not None
    await store.refuse(tuple(refusal(each, "ada" if each % 2 else "bob") for each in range(6)))
    await store.database.connections().refusals.drain()
    first = await store.refusals_before(None, limit=2)
    second = await store.refusals_before(first[-1].sequence, limit=3)
    adas = await store.refusals_before(None, principal="ada")

    assert ["event5", "event4"] == [each.refusal.event for each in first]
    assert ["event3", "event2", "event1"] == [each.refusal.event for each in second]
    assert ["event5", "event3", "event1"] == [each.refusal.event for each in adas]


async def test_tenants_see_their_own(url: str) -> None:
    one, two = await open_store(f"{url}&tenant=one"), await open_store(f"{url}&tenant=two")
    await kept(one, Life("parcel/1", time_ms=NOON_MS).created())
    for each in (one, two):
        await each.refuse((refusal(1),))
        await each.database.connections().refusals.drain()
        await told(each)
    found = [(len(await each.counts("parcel")), len(await each.refusals_before(None))) for each in (one, two)]
    rates = [await each.rates("parcel", since_ms=0) for each in (one, two)]
    proof = await two.prove_refusals()
    await one.close()
    await two.close()

    assert [(1, 1), (0, 1)] == found
    assert [(MinuteRates(NOON_MS, 1, 0, 1),), (MinuteRates(NOON_MS, 0, 0, 1),)] == rates
    assert RefusalVerification(2) == proof


@pytest.mark.parametrize(
    ("damage", "linked"),
    [
        ("UPDATE audit_refusal SET body = replace(encode(body, 'escape'), 'event2', 'event9')::bytea", 2),
        ("DELETE FROM audit_refusal WHERE body::text LIKE '%' || encode('event2', 'hex') || '%'", 2),
        (
            "UPDATE audit_refusal SET head = '0' WHERE sequence = (SELECT max(sequence) FROM audit_refusal)",
            4,
        ),
    ],
    ids=["changed", "taken out", "another hash"],
)
async def test_a_chain_of_refusals_shows_where_it_is_broken(
    store: PostgresStore, url: str, damage: str, linked: int
) -> None:
    await store.refuse(tuple(refusal(each) for each in range(5)))
    await store.database.connections().refusals.drain()
    whole = await store.prove_refusals()
    asked(url, damage)
    ((broken,),) = asked(url, f"SELECT sequence FROM audit_refusal ORDER BY sequence LIMIT 1 OFFSET {linked}")

    assert (RefusalVerification(5), RefusalVerification(linked, broken)) == (whole, await store.prove_refusals())


FILLED = """
    INSERT INTO entity_state SELECT '', 'parcel', 'packed', n, n::text FROM generate_series(1, 3000) AS n;
    INSERT INTO kind_minute SELECT '', 'k' || n % 7, n, 1, 0, 0 FROM generate_series(1, 3000) AS n;
    INSERT INTO state_dwell SELECT '', 'k' || n % 7, n, 's', 1, 1 FROM generate_series(1, 3000) AS n;
    INSERT INTO audit_refusal (tenant, kind, id, principal, time_ms, body, head)
      SELECT 't' || n % 3, 'k', '1', 'p' || n % 9, n, 'x', 'x' FROM generate_series(1, 3000) AS n;
    ANALYZE entity_state, kind_minute, state_dwell, audit_refusal"""


@pytest.mark.parametrize("filled", [False, True])
async def test_no_page_scans_a_table(store: PostgresStore, url: str, filled: bool) -> None:
    names = ("counts", "dwell", "rates", "count_overdue", "delete_dwell", "delete_minutes")
    refusals = ("refusals", "refusals_by_principal", "refusal_chain")
    statements = {name: getattr(STATEMENTS, name) for name in (*names, *refusals)}
    async with raw(url, **SETTINGS, plan_cache_mode="force_generic_plan") as connection:
        for statement in FILLED.split(";") if filled else ():
            await connection.execute(statement)
        for name, statement in statements.items():
            await connection.execute(f"PREPARE {name} AS {statement}")
            count = max(int(each) for each in re.findall(r"\$(\d+)", statement))
            rows = await connection.fetch(f"EXPLAIN EXECUTE {name} ({', '.join(['NULL'] * count)})")
            plan = "\n".join(row[0] for row in rows)

            assert [] == re.findall(r"Seq Scan.*|Bitmap.*", plan), plan
            assert "Index Cond" in plan, plan
            assert name not in refusals or "Sort" not in plan, plan

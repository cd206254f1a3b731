"""Statistics on a PostgreSQL server: the same results as in memory, read from counters and indexes."""

from __future__ import annotations

import asyncio
import gc
import re
from collections.abc import AsyncIterator

import pytest
from msgspec.structs import replace

from interlock.model.audit import AuditRow
from interlock.model.event import Event
from interlock.model.limits import SEEN_DAYS, SEEN_NAMES_MAX
from interlock.ports.reading.statistics import (
    DAY_MS,
    DWELL_DAYS,
    MINUTE_MS,
    OTHER_NAMES,
    DwellTimes,
    LastSeen,
    MinuteRates,
)
from interlock.ports.store import Conflict, Store
from interlock.stores.memory import MemoryStore
from interlock.stores.postgres import statistics
from interlock.stores.postgres.connection import SETTINGS, run_questions
from interlock.stores.postgres.opening import open_store
from interlock.stores.postgres.statements import STATEMENTS
from interlock.stores.postgres.store import PostgresStore
from interlock.stores.sql.statistics import write_statistics
from interlock.stores.statistics_buffer import StatisticsBuffer
from interlock.testing.store_suite.samples import SampleEntity
from interlock.testing.store_suite.subject import append_all
from interlock.trust.audit_chain import verify_chain
from tests.servers.postgres.work import raw
from tests.support.eventually import eventually
from tests.support.postgres_server import asked, store_or_skip

NOON_MS = 100 * DAY_MS + 12 * 3_600_000


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


def refusal(number: int, actor: str | None = "ada") -> AuditRow:
    """An attempt that changed nothing."""
    return AuditRow("parcel/1", f"event{number}", "rejected", "unhandled", NOON_MS, actor=actor)


async def lived(store: Store) -> None:
    """Some parcels: moved after a while, one cancelled, one lost swap, refusals."""
    lives = [SampleEntity(f"parcel/{each}", time_ms=NOON_MS) for each in range(5)]
    other = SampleEntity("parcel/9", revision="2.0.0", time_ms=NOON_MS + MINUTE_MS)
    await append_all(store, *(sample.create() for sample in (*lives, other)))
    for number, sample in enumerate(lives[:3]):
        await append_all(store, sample.step("shipped", key="s", after_ms=50 * 30**number))
    await append_all(store, lives[0].step("boarded", key="b", after_ms=5_000), lives[0].step(key="n", after_ms=DAY_MS))
    await append_all(store, lives[2].cancel(key="off", after_ms=5_000))
    late = lives[4].step(key="late")
    lost = await store.append(replace(late, expected=7, entry=replace(late.entry, version=8)))
    assert isinstance(lost, Conflict)


async def until_written(store: Store) -> None:
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
        await each.append_audit((refusal(1), refusal(2)))
        await until_written(each)
        answers.append(
            (
                await each.count_states("parcel"),
                await each.count_states("letter"),
                await each.dwell_times("parcel", since_ms=NOON_MS),
                await each.dwell_times("parcel", since_ms=NOON_MS + DAY_MS),
                await each.process_stays(),
                await each.minute_rates("parcel", since_ms=0),
                await each.minute_rates("parcel", since_ms=NOON_MS + 1),
                [
                    await each.count_overdue("parcel", "packed", before_ms=NOON_MS + before)
                    for before in (0, 1, MINUTE_MS + 1)
                ],
            )
        )

    assert answers[0] == answers[1]
    assert 3 == len(answers[0][2])


async def test_statistics_of_two_processes_add_up(url: str) -> None:
    one, two = await open_store(url), await open_store(url)
    for number, each in enumerate((one, two, two)):
        sample = SampleEntity(f"parcel/{number}", time_ms=NOON_MS)
        await append_all(each, sample.create(), sample.step("shipped", key="s", after_ms=0))
    await one.close()
    await two.close()
    third = await open_store(url)
    rates, dwell = await third.minute_rates("parcel", since_ms=0), await third.dwell_times("parcel", since_ms=0)
    await third.close()

    assert ((MinuteRates(NOON_MS, 6, 0, 0),), (DwellTimes("packed", (3, *[0] * 14)),)) == (rates, dwell)


async def test_statistics_are_written_without_being_asked_for(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(statistics, "WRITE_SECONDS", 0.01)
    sample = SampleEntity("parcel/1", time_ms=NOON_MS)
    for steps, append in enumerate((sample.create(), sample.step(key="a", after_ms=0)), start=1):
        await append_all(store, append)

        async def is_written(steps: int = steps) -> bool:
            return (MinuteRates(NOON_MS, steps, 0, 0),) == await store.minute_rates("parcel", since_ms=0)

        await eventually(is_written)


async def test_what_was_seen_is_what_memory_has_seen(store: PostgresStore) -> None:
    memory = MemoryStore()
    for each in (memory, store):
        await lived(each)
        assert each.audit is not None
        await each.audit.append_audit((refusal(1), refusal(1), refusal(2)))
    await until_written(store)
    found = await memory.last_seen("parcel")

    assert {"state", "event", "refused"} == {each.what for each in found}
    assert found == await store.last_seen("parcel")


def ring(buffer: StatisticsBuffer, day: int, name: str = "ring") -> None:
    """Note an event on a day."""
    buffer.count_step("bell", (), (), Event(name, time_ms=day * DAY_MS))


async def test_days_and_names_beyond_the_limits_are_not_kept(store: PostgresStore) -> None:
    buffers = [StatisticsBuffer() for _ in range(3)]
    for day in (0, 1):
        ring(buffers[0], day)
        ring(buffers[0], day, "old")
    for number in range(SEEN_NAMES_MAX - 2):
        ring(buffers[1], SEEN_DAYS + 1, f"x{number}")
    for number in range(50):
        ring(buffers[2], SEEN_DAYS + 2, f"y{number}")
    ring(buffers[2], SEEN_DAYS + 2)
    async with store.database.connections().pool.connection() as connection:
        for each in buffers:
            await run_questions(connection, write_statistics(STATEMENTS, "", each))
    found = {each.name: each for each in await store.last_seen("bell")}

    assert SEEN_NAMES_MAX + 1 == len(found)
    assert LastSeen("event", "old", DAY_MS, 1, DAY_MS) == found["old"]
    assert LastSeen("event", "ring", (SEEN_DAYS + 2) * DAY_MS, 1, (SEEN_DAYS + 2) * DAY_MS) == found["ring"]
    assert 50 == found[OTHER_NAMES].count


async def test_statistics_that_cannot_be_written_stop_no_step(store: PostgresStore, url: str) -> None:
    asked(url, "DROP TABLE kind_minute")
    heard: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: heard.append(context))
    sample = SampleEntity("parcel/1", time_ms=NOON_MS)
    await append_all(store, sample.create())
    await until_written(store)
    await append_all(store, sample.step(key="a"))
    gc.collect()

    assert [] == heard


async def test_old_statistics_are_forgotten(store: PostgresStore) -> None:
    for sample in (
        SampleEntity("parcel/1", time_ms=NOON_MS),
        SampleEntity("parcel/2", time_ms=NOON_MS + (DWELL_DAYS + 1) * DAY_MS),
    ):
        await append_all(store, sample.create(), sample.step("shipped", key="s", after_ms=0))
        await until_written(store)
    rates, dwell = await store.minute_rates("parcel", since_ms=0), await store.dwell_times("parcel", since_ms=0)

    assert [(NOON_MS + (DWELL_DAYS + 1) * DAY_MS, 2)] == [(each.minute_ms, each.steps) for each in rates]
    assert (DwellTimes("packed", (1, *[0] * 14)),) == dwell


async def test_tenants_see_their_own(url: str) -> None:
    one, two = await open_store(f"{url}&tenant=one"), await open_store(f"{url}&tenant=two")
    await append_all(one, SampleEntity("parcel/1", time_ms=NOON_MS).create())
    for each in (one, two):
        await each.append_audit((refusal(1),))
        await until_written(each)
    found = [(len(await each.count_states("parcel")), len(await each.audit_before(None))) for each in (one, two)]
    rates = [await each.minute_rates("parcel", since_ms=0) for each in (one, two)]
    proof = await verify_chain(two)
    await one.close()
    await two.close()

    assert [(1, 1), (0, 1)] == found
    assert [(MinuteRates(NOON_MS, 1, 0, 1),), (MinuteRates(NOON_MS, 0, 0, 1),)] == rates
    assert (1, None) == (proof.linked, proof.broken)


@pytest.mark.parametrize(
    ("damage", "linked", "broken"),
    [
        ("UPDATE audit SET body = replace(encode(body, 'escape'), 'event2', 'event9')::bytea", 4, 3),
        ("UPDATE audit SET actor = 'eve' WHERE sequence = 3", 4, 3),
        ("DELETE FROM audit WHERE sequence = 3", 3, 3),
        ("UPDATE audit SET head = '0' WHERE sequence = 5", 4, 5),
    ],
    ids=["changed", "another actor", "taken out", "another hash"],
)
async def test_a_chain_of_refusals_shows_where_it_is_broken(
    store: PostgresStore, url: str, damage: str, linked: int, broken: int
) -> None:
    """The first bad number, and how many rows hold: those after it, too, except the next one after a gap."""
    await store.append_audit(tuple(refusal(each) for each in range(5)))
    whole = await verify_chain(store)
    for statement in ("ALTER TABLE audit DISABLE TRIGGER USER", damage, "ALTER TABLE audit ENABLE TRIGGER USER"):
        asked(url, statement)
    found = await verify_chain(store)

    assert (5, None) == (whole.linked, whole.broken)
    assert (linked, broken) == (found.linked, found.broken)


FILLED = """
    INSERT INTO entity_state SELECT '', 'parcel', 'packed', n, n::text FROM generate_series(1, 3000) AS n;
    INSERT INTO kind_minute SELECT '', 'k' || n % 7, n, 1, 0, 0 FROM generate_series(1, 3000) AS n;
    INSERT INTO state_dwell SELECT '', 'k' || n % 7, n, 's', 1, 1 FROM generate_series(1, 3000) AS n;
    INSERT INTO seen SELECT '', 'k' || n % 7, 'event', n::text, 1, 1, 1 FROM generate_series(1, 3000) AS n;
    INSERT INTO audit (tenant, sequence, actor, time_ms, body, head, former)
      SELECT 't' || n % 3, n, 'p' || n % 9, n, 'x', 'x', nullif(n % 2 * n, 0) FROM generate_series(1, 3000) AS n;
    ANALYZE entity_state, kind_minute, state_dwell, seen, audit"""


@pytest.mark.parametrize("filled", [False, True])
async def test_no_page_scans_a_table(store: PostgresStore, url: str, filled: bool) -> None:
    counters = ("counts", "dwell", "rates", "count_overdue", "count_work", "delete_dwell", "delete_minutes")
    names = (*counters, "last_seen", "seen_names", "delete_seen")
    rows = ("last_audit", "audit_before", "audit_of_actor_before", "audit_after", "former_audit_after")
    statements = {name: getattr(STATEMENTS, name) for name in (*names, *rows)}
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
            assert name not in rows or "Sort" not in plan, plan

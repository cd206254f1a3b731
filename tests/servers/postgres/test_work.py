"""Work on a PostgreSQL server: stored with its step, protected by a fence, found by an index."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec.structs import replace

from interlock.errors import UnavailableError, UsageError
from interlock.model.journal.work import ORDERED_LANES, WorkDelta, WorkId
from interlock.ports.reading.journal_feed import FeedEntry
from interlock.ports.store import Appended, Conflict, Duplicate, EntityQuery, StaleAttempt
from interlock.ports.work import Settlement, WorkQuery
from interlock.stores.postgres import commit, work, writer
from interlock.stores.postgres.commit import COMMIT_STEP_WITH_WORK, COMMIT_STEPS_WITH_WORK
from interlock.stores.postgres.connection import SETTINGS
from interlock.stores.postgres.opening import open_store
from interlock.stores.postgres.statements import STATEMENTS
from interlock.stores.postgres.store import PostgresStore
from interlock.stores.sql import work_lists
from interlock.stores.sql.schema import migrations
from interlock.testing.store_suite.samples import SampleEntity
from interlock.testing.store_suite.subject import append_all, journal
from tests.servers.postgres.test_writer import Wire, breaks
from tests.servers.postgres.work import CHARGE, effect, leaving, ordered, raw, sent, taken, until_blocked
from tests.support.old_stores import return_postgres_to_schema
from tests.support.postgres_server import asked, store_or_skip


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


async def test_a_store_on_a_server_keeps_work(store: PostgresStore) -> None:
    assert store.work is not None


async def test_the_server_knows_the_ordered_lanes(store: PostgresStore, url: str) -> None:
    assert [(list(ORDERED_LANES),)] == asked(url, "SELECT ordered_lanes()")


# With its step


async def test_a_step_that_leaves_nothing_is_kept_as_before(store: PostgresStore) -> None:
    """Its statement does not even name work; one that leaves something is a statement, too, and one round trip."""
    sample = SampleEntity("parcel/1")
    await append_all(store, sample.create())
    wire = Wire(store)
    await append_all(store, sample.step(key="a"), leaving(sample.step(key="b"), effect()))

    assert ["step", COMMIT_STEP_WITH_WORK] == wire.statements
    bare = ("COMMIT_STEP", "COMMIT_STEP_WITH_LISTS", "COMMIT_STEPS", "COMMIT_STEPS_WITH_LISTS", "COMMIT_CREATIONS")
    assert [] == [each for each in bare if "work" in getattr(commit, each)]


async def test_a_batch_leaves_the_work_of_each_of_its_steps(store: PostgresStore) -> None:
    lives = [SampleEntity(f"parcel/{each}") for each in range(6)]
    await asyncio.gather(
        *(append_all(store, leaving(sample.create(), effect(WorkId("effect", 1, 0)))) for sample in lives[:3])
    )
    await asyncio.gather(*(append_all(store, sample.create()) for sample in lives[3:]))
    wire = Wire(store)
    await asyncio.gather(
        *(append_all(store, leaving(sample.step(key="a"), effect(), sent(2))) for sample in lives[::2]),
        *(append_all(store, sample.step(key="a")) for sample in lives[1::2]),
    )
    sent_off = wire.statements[:]
    rows = (await store.list_work(WorkQuery(limit=99))).rows

    assert [COMMIT_STEPS_WITH_WORK] == sent_off
    assert {f"parcel/{each}" for each in (0, 1, 2)} == {each.entity for each in rows if each.work.id.version == 1}
    assert {f"parcel/{each}" for each in (0, 2, 4)} == {each.entity for each in rows if each.work.id == CHARGE}
    assert 3 + 3 + 3 == len(rows)


async def test_a_lost_swap_or_a_known_key_leaves_no_work(store: PostgresStore) -> None:
    sample = await ordered(store, effect())
    assert sample.snapshot is not None
    again = sample.step(key="second")
    late = replace(again, expected=1, entry=replace(again.entry, version=2))
    known = replace(again, entry=replace(again.entry, key="first"))
    other = SampleEntity("parcel/2")
    await append_all(store, other.create())
    answers = [await store.append(leaving(each, effect(WorkId("effect", 9, 9)))) for each in (late, known)]
    answers += await asyncio.gather(
        store.append(leaving(late, effect(WorkId("effect", 9, 9)))),
        store.append(leaving(other.step(key="x"), effect())),
    )

    assert [Conflict(2), Duplicate(2), Conflict(2), Appended] == [*answers[:3], type(answers[3])]
    assert [CHARGE, CHARGE] == [each.work.id for each in (await store.list_work(WorkQuery())).rows]


@pytest.mark.parametrize("when", ["before", "after"])
async def test_work_of_a_step_in_doubt_is_left_once(store: PostgresStore, when: str) -> None:
    sample = SampleEntity("parcel/1")
    await append_all(store, sample.create())
    setattr(Wire(store), when, breaks(1))
    answer = await store.append(leaving(sample.step(key="a"), effect(), sent(2)))

    assert isinstance(answer, Appended)
    assert 2 == len((await store.list_work(WorkQuery())).rows)
    assert 2 == len(await journal(store, "parcel/1"))


async def test_work_that_stands_already_fails_its_own_step_only(store: PostgresStore) -> None:
    sample = await ordered(store, effect())
    other = SampleEntity("parcel/2")
    await append_all(store, other.create())
    answers = await asyncio.gather(
        store.append(leaving(sample.step(key="twice"), effect())),
        store.append(leaving(other.step(key="a"), effect())),
        return_exceptions=True,
    )

    assert ["store.unwritable", Appended] == [getattr(answers[0], "code", answers[0]), type(answers[1])]
    assert 2 == len(await journal(store, "parcel/1"))


# The fence


@pytest.mark.parametrize("commit", ["one", "group"])
async def test_an_answer_of_an_old_attempt_is_stale(url: str, commit: str) -> None:
    """Nothing is written; the newest attempt's is kept, and ends the work in the same statement."""
    store = await open_store(f"{url}&commit={commit}")
    sample = await ordered(store, effect())
    before = sample.snapshot
    await taken(store)
    answer = sample.step(key="answer")
    ended = WorkDelta(finished=(CHARGE,))
    stale = await store.append(replace(answer, work=ended, fence=(CHARGE, 2)))
    gone = await store.append(replace(answer, work=ended, fence=(WorkId("effect", 9, 9), 1)))
    works = len((await store.list_work(WorkQuery())).rows)
    newest = await store.append(replace(answer, work=ended, fence=(CHARGE, 1)))
    rows = (await store.list_work(WorkQuery())).rows
    await store.close()

    assert before is not None
    assert (StaleAttempt(2), StaleAttempt(2), 1) == (stale, gone, works)
    assert (Appended, ()) == (type(newest), rows)


async def test_a_known_key_and_a_lost_swap_come_before_the_fence(store: PostgresStore) -> None:
    sample = await ordered(store, effect())
    answer = sample.step(key="answer")
    await append_all(store, answer)
    known = await store.append(replace(answer, fence=(CHARGE, 7)))
    lost = await store.append(replace(answer, entry=replace(answer.entry, key="other"), fence=(CHARGE, 7)))

    assert (Duplicate(3), Conflict(3)) == (known, lost)


async def test_an_entity_that_is_not_there_has_no_fence(store: PostgresStore) -> None:
    with pytest.raises(UsageError) as raised:
        await store.append(replace(SampleEntity("parcel/1").create(), fence=(CHARGE, 1)))

    assert "append.fence" == raised.value.code


async def test_a_fence_waits_for_a_claim_that_is_under_way(store: PostgresStore, url: str) -> None:
    """What is claimed while the answer is on its way makes it stale: the fence sees the newest attempt."""
    sample = await ordered(store, effect())
    await taken(store)
    async with raw(url) as other:
        claiming = other.transaction()
        await claiming.start()
        await other.execute("UPDATE work SET attempts = attempts + 1")
        answer = replace(sample.step(key="answer"), work=WorkDelta(finished=(CHARGE,)), fence=(CHARGE, 1))
        appending = asyncio.ensure_future(store.append(answer))
        await until_blocked(url, appending)
        await claiming.commit()

        assert StaleAttempt(2) == await appending


# Plans

ASKED = {
    "claim": work.CLAIM,
    "soonest": work.NEXT_DUE,
    "lines": work.LINES,
    "attempts": commit.SELECT_ATTEMPTS,
    "works": STATEMENTS.work,
    "dead works": STATEMENTS.dead_work,
    "works of one": STATEMENTS.work_of_entity,
    "held": """
        UPDATE work SET next_ms = 1
        WHERE tenant = $1 AND kind = $2 AND id = $3 AND lane = $4 AND version = $5 AND ordinal = $6""",
    "let in": """
        SELECT version FROM work
        WHERE tenant = $1 AND kind = $2 AND id = $3 AND lane = $4 AND dead_ms IS NULL
        ORDER BY version, ordinal LIMIT 1 FOR NO KEY UPDATE""",
}
ALONG = {
    "claim": "work_by_time .*\\(lane = .*\\(line = .*\\(next_ms <= ",
    "soonest": "work_by_time .*\\(lane = .*\\(line = ",
    "lines": "work_by_time .*\\(lane = ",
    "attempts": "work_pkey .*\\(ordinal = ",
    "works": "work_pkey .*ROW\\(kind, id, lane, version, ordinal\\) > ",
    "dead works": "work_dead .*ROW\\(kind, id, lane, version, ordinal\\) > ",
    "works of one": "work_pkey .*\\(id = ",
    "held": "work_pkey .*\\(ordinal = ",
    "let in": "work_pkey .*\\(lane = ",
}
"""The index of each, and its search keys: work that is not due is not looked at, however much there is."""

FILLED = """
    INSERT INTO work SELECT '', 'parcel', n::text, 'effect', 1, 0, 'h' || n % 3, 'h' || n % 3, 'x', n, n, n
    FROM generate_series(1, 3000) AS n;
    ANALYZE work"""


@pytest.mark.parametrize("filled", [False, True])
async def test_no_question_about_work_walks_over_what_it_does_not_want(
    store: PostgresStore, url: str, filled: bool
) -> None:
    """The plan for any values, as a connection keeps it, is the same for an empty table and for a full one."""
    async with raw(url, **SETTINGS, plan_cache_mode="force_generic_plan") as connection:
        for statement in FILLED.split(";") if filled else ():
            await connection.execute(statement)
        for name, statement in ASKED.items():
            await connection.execute(f'PREPARE "{name}" AS {statement}')
            count = max(int(each) for each in re.findall(r"\$(\d+)", statement))
            rows = await connection.fetch(f'EXPLAIN EXECUTE "{name}" ({", ".join(["NULL"] * count)})')
            plan = "\n".join(row[0] for row in rows)

            assert [] == re.findall(r"Seq Scan on work|Bitmap.*", plan), plan
            assert re.search(ALONG[name], plan.replace("\n", " ")), plan
            assert name != "let in" or "Sort" not in plan, plan
            assert "works" not in name or "Incremental Sort" not in plan, plan


@pytest.mark.parametrize(
    ("narrow", "wanted", "pages"),
    [
        ({"name": "h0"}, [3, 6, 9, 12, 15, 18, 21, 24, 27, 30], 5),
        ({"name": "nobody"}, [], 5),
        ({"lane": "timer"}, [], 5),
        ({"dead": False, "name": "h1", "limit": 2}, [1, 4, 7, 10, 13, 16, 19, 22, 25, 28], 6),
        ({"dead": True}, [], 1),
        ({"kind": "parcel", "name": "h2"}, [2, 5, 8, 11, 14, 17, 20, 23, 26, 29], 5),
        ({"kind": "letter", "name": "h2"}, [], 1),
        ({"kind": "zebra"}, [31], 1),
        ({}, [*range(1, 32)], 5),
    ],
)
async def test_a_filtered_list_of_work_reads_a_bounded_number_of_rows_per_page(
    store: PostgresStore,
    url: str,
    monkeypatch: pytest.MonkeyPatch,
    narrow: dict[str, Any],
    wanted: list[int],
    pages: int,
) -> None:
    """No answer reads more rows than its bound, whatever is looked for; the pages together hold all of it, once."""
    monkeypatch.setattr(work_lists, "WALK_MAX", 7)
    asked(
        url,
        """INSERT INTO work
        SELECT '', CASE WHEN n > 30 THEN 'zebra' ELSE 'parcel' END, to_char(n, 'FM00'), 'effect', 1, 0, 'h' || n % 3,
               CASE WHEN n > 30 THEN 'x' ELSE 'h' || n % 3 END, 'null', n, n, n
        FROM generate_series(1, 31) AS n""",
    )
    query = WorkQuery(**{"limit": 50, **narrow})
    found: list[list[int]] = []
    while True:
        page = await store.list_work(query)
        found.append([int(each.entity.partition("/")[2]) for each in page.rows])
        if page.after is None:
            break
        query = replace(query, after=page.after)

    assert wanted == [each for page in found for each in page]
    assert pages == len(found)


# What is damaged, closed or lost


@pytest.mark.parametrize("body", ["7b", "22ff22", "5b" * 100_000], ids=["cut", "no text", "no end"])
async def test_unreadable_work_is_a_dead_letter_and_does_not_block_others(
    store: PostgresStore, url: str, body: str
) -> None:
    await ordered(store, effect(), effect(WorkId("effect", 2, 1)), sent(2), sent(3))
    asked(url, f"UPDATE work SET body = '\\x{body}' WHERE ordinal = 0 AND version = 2")
    effects, outbox = await taken(store), await taken(store, "outbox")
    dead = (await store.list_work(WorkQuery(dead=True))).rows

    assert ([WorkId("effect", 2, 1)], []) == ([each.work.id for each in effects], outbox)
    assert ["work.unreadable"] * 2 == [each.error["code"] for each in dead]
    assert [WorkId("outbox", 3, 0)] == [each.work.id for each in await taken(store, "outbox")]


@pytest.mark.parametrize("cursor", ["nonsense", "[1,2]", "\ud800", '["a","b","c",99999999999999999999,1]'])
async def test_an_invalid_cursor_is_a_usage_error(store: PostgresStore, cursor: str) -> None:
    with pytest.raises(UsageError) as raised:
        await store.list_work(WorkQuery(after=cursor))

    assert "cursor.malformed" == raised.value.code


async def test_dead_and_living_work_are_listed_apart(store: PostgresStore) -> None:
    await ordered(store, *(effect(WorkId("effect", 2, each)) for each in range(5)))
    claims = await taken(store, limit=3)
    await store.settle(tuple(Settlement(each, "dead") for each in claims), now_ms=0)
    first = await store.list_work(WorkQuery(dead=True, limit=2))
    rest = await store.list_work(WorkQuery(dead=True, limit=2, after=first.after))

    assert (2, 1, None) == (len(first.rows), len(rest.rows), rest.after)
    assert (2, 3) == (
        len((await store.list_work(WorkQuery(dead=False))).rows),
        len((await store.list_work(WorkQuery(entity="parcel/1", dead=True))).rows),
    )


async def test_work_is_listed_by_kind(store: PostgresStore) -> None:
    await ordered(store, *(effect(WorkId("effect", 2, each)) for each in range(3)))
    first = await store.list_work(WorkQuery(kind="parcel", limit=2))
    rest = await store.list_work(WorkQuery(kind="parcel", limit=2, after=first.after))
    others = [(await store.list_work(WorkQuery(kind=kind))).rows for kind in ("a", "parce", "parcels", "z")]

    assert (2, 1, None) == (len(first.rows), len(rest.rows), rest.after)
    assert [()] * 4 == others


async def test_what_a_handler_tells_is_kept_while_it_holds_its_work(store: PostgresStore) -> None:
    await ordered(store, effect())
    (claim,) = await taken(store)
    noted = await store.save_details(claim, {"details": 7})
    (row,) = (await store.list_work(WorkQuery())).rows
    await store.settle((Settlement(claim, "again", 0),), now_ms=0)

    assert (True, {"details": 7}) == (noted, row.error)
    assert not await store.save_details(claim, {"details": 8})


async def test_tenants_take_up_their_own_work(url: str) -> None:
    one, two = await open_store(f"{url}&tenant=one"), await open_store(f"{url}&tenant=two")
    await ordered(one, effect(), sent(2))
    await ordered(two, effect())
    (claim,) = await taken(one)
    await one.settle((Settlement(claim, "done"),), now_ms=0)

    assert (0, 1) == (len(await taken(one)), len(await taken(two)))
    assert not await two.delete_work("parcel/1", WorkId("outbox", 2, 0))
    assert await one.delete_work("parcel/1", WorkId("outbox", 2, 0))
    await one.close()
    await two.close()


async def test_a_closed_store_says_so(store: PostgresStore) -> None:
    await store.close()
    with pytest.raises(UnavailableError, match="closed"):
        await taken(store)


async def test_a_store_of_the_first_schema_learns_to_keep_work(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process of the first release may still write steps without work, after the upgrade."""
    sample = SampleEntity("parcel/1")
    async with closing_store(url) as first:
        await append_all(first, sample.create(), sample.step(key="a"))
    await return_postgres_to_schema(url, 1)

    async with closing_store(url) as new, closing_store(url) as old:
        with monkeypatch.context() as patched:  # the statement of that release
            patched.setattr(writer, "COMMIT_STEP", commit._STEP + commit._ANSWER)
            patched.setattr(writer, "values_of_step", lambda tenant, step: (tenant, *step.row))
            await append_all(old, sample.step(key="b"))
        await append_all(new, leaving(sample.step(key="c"), effect()))

        assert (4, 1, 4) == (len(await journal(new, "parcel/1")), len(await taken(new)), len(await fed(new)))
        assert () == await new.differences() == await new.differences("parcel/1")


@pytest.mark.parametrize("number", [each.number for each in migrations("postgres")][:-1])
async def test_a_store_of_every_earlier_schema_is_upgraded_with_its_entities(url: str, number: int) -> None:
    sample, other = SampleEntity("parcel/1"), SampleEntity("parcel/2")
    async with closing_store(url) as before:
        await append_all(before, sample.create(), sample.step("shipped", key="a"), other.create())
        entries = await before.read("parcel/1")
        found = await before.find(EntityQuery(kind="parcel"))
    await return_postgres_to_schema(url, number)

    async with closing_store(url) as store:
        assert (entries, found) == (await store.read("parcel/1"), await store.find(EntityQuery(kind="parcel")))
        duplicate = await store.append(SampleEntity("parcel/2").create())
        await append_all(store, leaving(sample.step(key="b"), effect()), other.step(key="c"))

        assert isinstance(duplicate, Duplicate)
        assert [3, 2] == [len(await store.read(each)) for each in ("parcel/1", "parcel/2")]
        assert 1 == len(await taken(store))
        assert 5 == len(await fed(store))
        assert [()] * 3 == [await store.differences(each) for each in (None, "parcel/1", "parcel/2")]


@asynccontextmanager
async def closing_store(url: str) -> AsyncIterator[PostgresStore]:
    store = await open_store(url)
    try:
        yield store
    finally:
        await store.close()


async def fed(store: PostgresStore) -> list[FeedEntry]:
    """All entries of a feed, page by page."""
    entries, page = list[FeedEntry](), await store.feed(None, limit=2)
    while True:
        entries += page.entries
        if page.is_last:
            return entries
        page = await store.feed(page.after, limit=2)

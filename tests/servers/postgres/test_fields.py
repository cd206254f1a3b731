"""Indexes on context fields of a PostgreSQL server: the plans, and what happens next to a writer and a builder."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import asyncpg  # type: ignore[import-untyped]  # it ships no types
import pytest
from msgspec.structs import replace

from interlock.errors import UsageError
from interlock.model.conditions import Range
from interlock.model.encoding.index_key import IndexedField, index_key
from interlock.ports.reading.field_indexes import FieldIndexes, IndexStatus
from interlock.ports.store import Appended, EntityQuery
from interlock.stores.postgres.connection import SETTINGS
from interlock.stores.postgres.opening import open_store
from interlock.stores.postgres.statements import STATEMENTS
from interlock.stores.postgres.store import PostgresStore
from interlock.stores.sql import field_index
from interlock.stores.sql.database import Questions
from interlock.testing.store_suite.samples import SampleEntity
from interlock.testing.store_suite.subject import append_all, list_all
from tests.support.postgres_server import asked, store_or_skip

TEXT = IndexedField("parcel", "text", "string")
KEY = index_key("c-7", "string")
QUESTIONS = {
    "list": (STATEMENTS.list_by_field, ("", "parcel", "text", KEY, "x", (KEY or b"") + b"\0", 51)),
    "range": (STATEMENTS.list_by_field, ("", "parcel", "text", b" ", "", b"!", 51)),
    "count": (STATEMENTS.count_fields, ("", "parcel", "text", b" ", b"!", 1_000)),
    "after": (STATEMENTS.entities_after, ("", "parcel", "77", 500)),
    "named": (STATEMENTS.entities_named, ("", "parcel", ["77", "78"])),
    "add": (STATEMENTS.add_fields, ("", "parcel", "text", ["77"], [1], [KEY])),
    "present": (STATEMENTS.present_fields, ("", "parcel", "77", ["text"], [KEY])),
    "delete": (STATEMENTS.delete_fields, ("", "parcel", "text", 1_000)),
    "any": (STATEMENTS.has_entities, ("", "parcel")),
}
FILLED = """
    INSERT INTO entity SELECT '', CASE n % 10 WHEN 0 THEN 'letter' ELSE 'parcel' END, n::text, 1, 'r', '["packed"]',
      NULL, '{}', '[]', '', repeat('0', 32), 1, NULL, NULL, NULL, n, n, n, now(), now()
      FROM generate_series(1, 20000) AS n;
    INSERT INTO entity_field SELECT tenant, kind, field, convert_to(' c-' || id::bigint % 1000, 'UTF8'), id
      FROM entity, unnest(ARRAY['text', 'other']) AS field;
    ANALYZE entity, entity_field"""


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


async def _plans(url: str, statement: str, values: tuple[Any, ...]) -> list[str]:
    """Return the plan for these values, and the generic one, on connections with the settings of the store."""
    bare, _, options = url.partition("?")
    settings = SETTINGS | {"search_path": options.partition("=")[2]}
    connection = await asyncpg.connect(bare, server_settings=settings)
    rows = await connection.fetch(f"EXPLAIN {statement}", *values)
    await connection.execute("SET plan_cache_mode = force_generic_plan")
    await connection.execute(f"PREPARE kept AS {statement}")
    count = max(int(each) for each in re.findall(r"\$(\d+)", statement))
    kept = await connection.fetch(f"EXPLAIN EXECUTE kept ({', '.join(['NULL'] * count)})")
    await connection.close()
    return ["\n".join(row[0] for row in each) for each in (rows, kept)]


@pytest.mark.slow
async def test_every_question_follows_an_index() -> None:
    """On 20,000 keys: an index condition on the whole key, no scan, and no sort of the lists."""
    url = store_or_skip()
    await (await open_store(url)).close()
    for statement in FILLED.split(";"):
        asked(url, statement)
    for name, question in QUESTIONS.items():
        for plan in await _plans(url, *question):
            assert [] == re.findall(r"Seq Scan.*|Bitmap.*", plan), (name, plan)
            assert name not in ("list", "range", "after") or "Sort" not in plan, (name, plan)
    plan, _ = await _plans(url, *QUESTIONS["list"])
    assert re.search(
        r"Index Only Scan using entity_field_pkey .*\n\s+Index Cond: \(.*tenant.*kind.*field.*ROW\(value", plan
    )


async def test_a_step_between_the_builders_read_and_its_insert_is_not_overwritten(store: PostgresStore) -> None:
    """The builder has read the old value; the entity changes; the builder continues (trap 19)."""
    sample = SampleEntity("parcel/1")
    await append_all(store, sample.create(context={"text": "old"}))
    await _indexes(store).declare_indexes((TEXT,))
    database = store.database
    build = field_index.build_part(STATEMENTS, database.tenant, "parcel", "text", 10)
    step = sample.step("written", {"text": "new"}, key="w")
    pauses: list[None] = []

    async def pause() -> None:
        if not pauses:
            pauses.append(None)
            await append_all(store, step)

    async with database.connections().pool.connection() as connection, connection.transaction():
        status = await _answer_all(connection, build, before_insert=pause)
    assert ([None], "ready") == (pauses, status and status.state)
    assert [[], ["parcel/1"]] == [await _found(store, {"text": each}) for each in ("old", "new")]
    assert () == await store.differences("parcel/1")
    assert () == await store.differences()


async def test_a_step_that_waits_for_the_builder_removes_what_the_builder_added(store: PostgresStore, url: str) -> None:
    """The builder holds the entity with its old key, not committed; a step waits, then sees and deletes that key."""
    sample = SampleEntity("parcel/1")
    await append_all(store, sample.create(context={"text": "old"}))
    await _indexes(store).declare_indexes((TEXT,))
    async with store.database.connections().pool.connection() as connection, connection.transaction():
        key = index_key("old", "string")
        added = await connection.fetch(STATEMENTS.add_fields, "", "parcel", "text", ["1"], [1], [key])
        assert ["1"] == [row[0] for row in added]
        step = asyncio.ensure_future(store.append(sample.step("written", {"text": "new"}, key="w")))
        is_waiting = False
        while not (is_waiting or step.done()):  # on a lock, or apart from its batch
            is_waiting = bool(store.database.connections().writer._pauses)
            await asyncio.sleep(0)
        assert not step.done()
    assert isinstance(await step, Appended)
    assert [("text", index_key("new", "string"))] == [
        (field, bytes(value)) for field, value in asked(url, "SELECT field, value FROM entity_field")
    ]


async def test_many_writers_keep_an_index_that_is_declared_under_them(store: PostgresStore, url: str) -> None:
    """No step in progress at the declaration is lost to the index, in two handles with separate connections."""
    other = await open_store(url)
    samples = [SampleEntity(f"parcel/{number}") for number in range(24)]
    await asyncio.gather(*(append_all(store, each.create(context={"text": "0"})) for each in samples))

    async def write(sample: SampleEntity, handle: PostgresStore) -> None:
        for number in range(12):
            await append_all(handle, sample.step("written", {"text": f"{number % 5}"}, key=f"w{number}"))

    async def index() -> None:
        await _indexes(other).declare_indexes((TEXT,))
        while getattr(await _indexes(other).build_index("parcel", "text", limit=3), "state", None) != "ready":
            pass

    writers = (write(each, (store, other)[number % 2]) for number, each in enumerate(samples))
    await asyncio.gather(index(), *writers)
    assert len(samples) == len(await _found(store, {"text": Range(at_least="")}))
    assert () == await store.differences()
    for each in samples:
        assert () == await store.differences(each.entity)
    await other.close()


async def test_a_kind_with_an_index_needs_the_snapshot_before(store: PostgresStore) -> None:
    sample = SampleEntity("parcel/1")
    await _indexes(store).declare_indexes((TEXT,))
    await append_all(store, sample.create())
    step = sample.step("written", {"text": "new"}, key="w")
    with pytest.raises(UsageError) as raised:
        await store.append(replace(step, before=None))
    assert "append.before" == raised.value.code
    assert isinstance(await store.append(step), Appended)


def _indexes(store: PostgresStore) -> FieldIndexes:
    assert store.field_indexes is not None
    return store.field_indexes


async def _answer_all(
    connection: Any, build: Questions[IndexStatus | None], *, before_insert: Callable[[], Awaitable[None]]
) -> IndexStatus | None:
    """Run the builder, as the store does, and something else before each insert."""
    rows: Any = None
    while True:
        try:
            question = build.send(rows)
        except StopIteration as done:
            result: IndexStatus | None = done.value
            return result
        if question.statement == STATEMENTS.add_fields:
            await before_insert()
        arrays = () if question.rows is None else map(list, zip(*question.rows, strict=True))
        rows = [] if question.rows == [] else await connection.fetch(question.statement, *question.values, *arrays)


async def _found(store: PostgresStore, where: dict[str, Any]) -> list[str]:
    return [each.entity for each in await list_all(store, EntityQuery(kind="parcel", where=where))]

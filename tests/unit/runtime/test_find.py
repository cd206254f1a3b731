"""Entities are found by context fields: alike on a store with indexes and on one that is read entity by entity."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import interlock
from interlock import EntityQuery, Range, UsageError
from interlock.assemble.charts import BoundChart
from interlock.runtime.reading import field_walk
from interlock.runtime.runtime import Runtime
from interlock.stores.sql import field_index

ORDER = """
interlock: 1
kind: order
revision: {revision}
context:
  customer: {{type: string, default: c-0, index: true}}
  amount: {{type: number, default: 0{index}}}
  note: {{type: string, nullable: true}}
initial: open
states:
  open: {{on: {{paid: paid}}}}
  paid: {{on: {{returned: returned}}}}
  returned: {{tags: [refunded]}}
on:
  raised: {{actions: [{{assign: {{amount: "= event.data.to"}}}}]}}
  cleared: {{actions: [{{assign: {{customer: "= event.data.to"}}}}]}}
"""
STORES = ("memory:", "file:{folder}/orders", "sqlite:///{folder}/orders.db")


def order(revision: str = "1.0.0", *, index: str = ", index: true") -> BoundChart:
    return interlock.loads(ORDER.format(revision=revision, index=index))


async def _filled(runtime: Runtime, count: int = 30) -> None:
    for number in range(count):
        entity = f"order/{number:02}"
        await runtime.create(entity, {"customer": f"c-{number % 4}", "amount": number % 7})
        if number % 3 == 0:
            await runtime.send(entity, "raised", {"to": number})
        if number % 5 == 0:
            await runtime.send(entity, "paid")


async def _found(runtime: Runtime, query: dict[str, Any]) -> list[str]:
    names: list[str] = []
    after = None
    while True:
        page = await runtime.list(EntityQuery(kind="order", after=after, **query))
        names += [each.entity for each in page.rows]
        after = page.after
        if after is None:
            return sorted(names)


QUERIES: tuple[dict[str, Any], ...] = (
    {"where": {"customer": "c-1"}},
    {"where": {"amount": Range(at_least=5)}},
    {"where": {"amount": Range(above=1, below=3.5), "customer": "c-2"}},
    {"where": {"customer": "c-0"}, "state": "paid"},
    {"where": {"customer": "c-0"}, "prefix": "1"},
    {"where": {"customer": "nobody"}},
)


@pytest.mark.parametrize("url", STORES)
@pytest.mark.parametrize("limit", [1, 3, 50])
async def test_every_store_finds_what_the_values_say(url: str, limit: int, tmp_path: Path) -> None:
    async with interlock.open(url.format(folder=tmp_path), charts=[order()]) as runtime:
        await _filled(runtime)
        for query in QUERIES:
            found = await _found(runtime, {**query, "limit": limit})
            contexts = {each: (await runtime.state(each)) for each in await _found(runtime, {"limit": 50})}
            expected = [
                entity
                for entity, snapshot in contexts.items()
                if all(_meets(snapshot.context[field], wanted) for field, wanted in query["where"].items())
                and query.get("state") in (None, *snapshot.configuration)
                and entity.startswith(f"order/{query.get('prefix', '')}")
            ]
            assert expected == found, query


def _meets(value: Any, wanted: Any) -> bool:
    if not isinstance(wanted, Range):
        return bool(value == wanted)
    lower = (wanted.at_least is None or value >= wanted.at_least) and (wanted.above is None or value > wanted.above)
    return (
        lower and (wanted.at_most is None or value <= wanted.at_most) and (wanted.below is None or value < wanted.below)
    )


@pytest.mark.parametrize("url", STORES)
async def test_rows_carry_the_context_on_request(url: str, tmp_path: Path) -> None:
    async with interlock.open(url.format(folder=tmp_path), charts=[order()]) as runtime:
        await _filled(runtime, 6)
        for where in (None, {"customer": "c-1"}):
            page = await runtime.list(EntityQuery(kind="order", where=where, context=True))
            assert page.rows
            for row in page.rows:
                assert (await runtime.state(row.entity)).context == row.context
            plain = await runtime.list(EntityQuery(kind="order", where=where))
            assert {None} == {each.context for each in plain.rows}


@pytest.mark.parametrize("url", STORES)
@pytest.mark.parametrize(
    ("where", "code"),
    [
        ({"note": "x"}, "index.unknown"),
        ({"custmer": "c-1"}, "index.unknown"),
        ({"amount": "ten"}, "where.value"),
        ({"customer": None}, "where.value"),
        ({"customer": object()}, "where.value"),
    ],
)
async def test_a_condition_that_cannot_be_answered_is_refused(
    url: str, where: dict[str, Any], code: str, tmp_path: Path
) -> None:
    async with interlock.open(url.format(folder=tmp_path), charts=[order()]) as runtime:
        await _filled(runtime, 2)
        with pytest.raises(UsageError) as raised:
            await runtime.list(EntityQuery(kind="order", where=where))
        assert code == raised.value.code


@pytest.mark.parametrize("where", [[], "customer", {1: 2}, {f"f{n}": 1 for n in range(17)}])
def test_conditions_are_a_short_mapping_of_fields(where: Any) -> None:
    with pytest.raises(UsageError) as raised:
        EntityQuery(kind="order", where=where)
    assert "where.malformed" == raised.value.code


@pytest.mark.parametrize("url", STORES)
async def test_a_page_reads_a_bounded_number_of_entities(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(field_walk, "WALK_MAX", 8)
    monkeypatch.setattr(field_index, "WALK_MAX", 8)
    async with interlock.open(url.format(folder=tmp_path), charts=[order()]) as runtime:
        await _filled(runtime)
        # An index has no row for "nobody", so there the bound is on rows that another filter leaves out.
        query = (
            {"where": {"amount": Range(at_least=0)}, "tag": "refunded"}
            if "sqlite" in url
            else {"where": {"customer": "x"}}
        )
        page = await runtime.list(EntityQuery(kind="order", **query))
        assert ((), True) == (page.rows, page.after is not None)
        assert [] == await _found(runtime, query)
        assert 30 == len(await _found(runtime, {"where": {"amount": Range(at_least=0)}, "limit": 7}))


@pytest.mark.parametrize("url", STORES)
async def test_an_entity_of_a_revision_without_the_index_is_found_by_its_present_value(
    url: str, tmp_path: Path
) -> None:
    """Two revisions side by side: the older one keeps the index that the newer one declares (trap 18)."""
    url = url.format(folder=tmp_path)
    old, new = order("1.0.0", index=""), order("2.0.0")
    async with interlock.open(url, charts=[old, new]) as runtime:
        if url != "memory:":
            async with interlock.open(url, charts=[old]) as older:
                await older.create("order/old", {"amount": 1})
                await older.send("order/old", "raised", {"to": 2})
        await runtime.create("order/new", {"amount": 1})
        await runtime.send("order/new", "raised", {"to": 2})
        expected = ["order/new"] if url == "memory:" else ["order/new", "order/old"]
        assert [expected, []] == [await _found(runtime, {"where": {"amount": each}}) for each in (2, 1)]
        assert [] == [each.problem for each in [one async for one in runtime.verify_all()] if each.problem is not None]


async def test_a_new_field_is_searched_once_its_index_is_built(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/orders.db"
    async with interlock.open(url, charts=[order("1.0.0", index="")]) as runtime:
        await _filled(runtime, 10)
    async with interlock.open(url, charts=[order("1.0.0", index=""), order("2.0.0")]) as runtime:
        states = {each.field: each.state for each in await runtime.indexes()}
        assert {"customer": "ready", "amount": "building"} == states
        with pytest.raises(UsageError) as raised:
            await runtime.list(EntityQuery(kind="order", where={"amount": 3}))
        assert "index.building" == raised.value.code
        indexes = runtime.store.field_indexes
        assert indexes is not None
        while getattr(await indexes.build_index("order", "amount", limit=4), "state", None) != "ready":
            pass
        assert ["order/03", "order/07"] == sorted(
            {*await _found(runtime, {"where": {"amount": 3}}), *await _found(runtime, {"where": {"amount": 0}})}
            & {"order/03", "order/07"}
        )


async def test_a_blocking_runtime_finds_by_fields(tmp_path: Path) -> None:
    def use() -> list[str]:
        with interlock.connect(f"sqlite:///{tmp_path}/orders.db", charts=[order()]) as orders:
            orders.create("order/1", {"customer": "c-7"})
            orders.create("order/2", {"customer": "c-8"})
            assert ["amount", "customer"] == [each.field for each in orders.indexes()]
            return [each.entity for each in orders.list(EntityQuery(kind="order", where={"customer": "c-7"})).rows]

    import asyncio

    assert ["order/1"] == await asyncio.to_thread(use)

"""Lists, counts and refusals: from Temporal's visibility, or from the mirror, our store with a copy of each entry."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import pytest

import interlock
from interlock import EntityQuery
from interlock.errors import UsageError
from interlock.model.limits import ENGINE_LISTED_MAX
from interlock.runtime.runtime import Runtime
from tests.servers.temporal.lives import Ledger, charts, entry_facts, in_state
from tests.servers.temporal.test_histories import counter
from tests.support.eventually import eventually
from tests.support.temporal_server import private_namespace, server_or_skip

pytestmark = [pytest.mark.xdist_group("temporal")]


async def _filled(runtime: Runtime) -> None:
    for number in range(4):
        await runtime.create(f"shop/{number}", {}, key="c")
    for number in range(3):
        (await runtime.send(f"shop/{number}", "close", key="x")).expect()


async def _closed(runtime: Runtime) -> list[str]:
    page = await runtime.list(EntityQuery(kind="shop", state="closed", limit=2))
    found = [each.entity for each in page.rows]
    while page.after is not None:
        page = await runtime.list(EntityQuery(kind="shop", state="closed", limit=2, after=page.after))
        found += [each.entity for each in page.rows]
    return found


async def test_entities_are_listed_and_counted_by_state_without_a_mirror() -> None:
    """In the order in which they entered the state, page by page."""
    url = await private_namespace(server_or_skip())
    async with interlock.open(url, charts=charts(Ledger())) as runtime:
        await _filled(runtime)

        async def is_listed() -> bool:
            return await _closed(runtime) == ["shop/0", "shop/1", "shop/2"]

        await eventually(is_listed)

        async def is_counted() -> bool:
            found = await runtime.counts("shop")
            return (found["closed"], found["open"], found["charging"]) == (3, 1, 0)

        await eventually(is_counted)
        assert await runtime.store.kinds() == ("shop",)
        page = await runtime.list(EntityQuery(kind="shop", prefix="3"))
        assert [each.entity for each in page.rows] == ["shop/3"]


async def test_a_list_that_would_read_too_many_workflows_names_the_mirror(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each entity of a list without a mirror is a query."""
    assert ENGINE_LISTED_MAX == 1_000
    monkeypatch.setattr("interlock.engines.temporal.store.ENGINE_LISTED_MAX", 2)
    url = await private_namespace(server_or_skip())
    async with interlock.open(url, charts=charts(Ledger())) as runtime:
        await _filled(runtime)

        async def is_refused() -> bool:
            try:
                await runtime.list(EntityQuery(kind="shop"))
            except UsageError as error:
                return error.code == "engine.listed" and "journal=" in str(error)
            return False

        await eventually(is_refused)


async def test_the_mirror_has_every_entry_and_answers_for_many_entities(tmp_path: Path) -> None:
    """Its journal is that of the workflow, byte for byte; and it has the refusals, which Temporal never sees."""
    address = f"sqlite:///{tmp_path}/mirror.db"
    url = await private_namespace(server_or_skip(), journal=address)
    assert quote(address, safe="") in url
    async with interlock.open(url, charts=charts(Ledger()), lease_ms=2_000) as runtime:
        await _filled(runtime)
        refused = await runtime.send("shop/3", "answered", key="r")
        (await runtime.send("shop/3", "charge", key="a")).expect()
        await in_state(runtime, "shop/3", "open", version=3)

        async def is_mirrored() -> bool:
            counts = await runtime.counts("shop")
            return counts["closed"] == 3 and counts["open"] == 1 and len(await runtime.journal("shop/3")) == 3

        await eventually(is_mirrored)
        live = {f"shop/{each}": await runtime.journal(f"shop/{each}") for each in range(4)}
        assert refused.outcome == "rejected"
        assert await _closed(runtime) == ["shop/0", "shop/1", "shop/2"]

        async def has_all() -> bool:
            assert runtime.store.statistics is not None
            row = await runtime.list(EntityQuery(kind="shop", prefix="3"))
            return row.rows[0].version == 3

        await eventually(has_all)

    async with interlock.open(address, charts=charts(Ledger()), work=False) as copy:
        for entity, entries in live.items():
            assert [entry_facts(each) for each in await copy.journal(entity)] == [entry_facts(each) for each in entries]
            proof = await copy.verify(entity)
            assert (proof.problem, proof.entries) == (None, len(entries))
        assert copy.store.audit is not None
        (record,) = await copy.store.audit.audit_after(0)
        assert b'"shop/3"' in record.body
        assert b'"answered"' in record.body


async def test_entries_that_left_the_histories_are_read_from_the_mirror(tmp_path: Path) -> None:
    """The journal is whole: its start from the mirror, its end from the workflow."""
    url = await private_namespace(server_or_skip(), journal=f"sqlite:///{tmp_path}/mirror.db", **{"continue": "3"})
    async with interlock.open(url, charts=[counter()]) as runtime:
        await runtime.create("counter/1", {}, key="c")
        for number in range(8):
            (await runtime.send("counter/1", "add", {"text": "x" * 60_000}, key=f"k-{number}")).expect()
        entries = await runtime.journal("counter/1")
        early = await runtime.state("counter/1", at=4)

    assert [each.version for each in entries] == list(range(1, 10))
    assert early.context == {"n": 3}

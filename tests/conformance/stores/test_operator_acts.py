"""Actions of an operator on work: each is stored together with its audit row, and there is no row without an action."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace

import interlock
from interlock.errors import UnavailableError, UsageError
from interlock.model.audit import AuditRow
from interlock.model.journal.work import Work, WorkDelta, WorkId
from interlock.operate.dead_letters import WorkOperations
from interlock.operate.rollout import start_rollout
from interlock.ports.store import Store
from interlock.ports.work import Claim, Settlement, WorkQuery
from interlock.runtime.charts.registry import ChartRegistry
from interlock.runtime.epoch import raise_epoch
from interlock.runtime.message_setting import turn_off
from interlock.runtime.runtime import Runtime
from interlock.stores.registry import open_store as open_store_url
from interlock.testing.clock import VirtualClock
from interlock.testing.store_suite.samples import SampleEntity
from interlock.testing.store_suite.subject import append_all
from tests.support.audit import audit_rows
from tests.support.postgres_server import store_or_skip

CHARGE = WorkId("effect", 2, 0)
ENTITY = "parcel/1"
STORES = ("memory", "sqlite", "postgres", "file")
ROW = AuditRow(ENTITY, "_work.dropped", "applied", "parcel/1/2/0 charge", 7, actor="ada", actor_kind="user")


def address(name: str, folder: Path) -> str:
    """Return the address of a store of this kind."""
    if name == "postgres":
        return store_or_skip()
    return {"memory": "memory:", "sqlite": f"sqlite:///{folder}/store.db", "file": f"file://{folder}/store"}[name]


async def failed(store: Store, *, dies: bool = True) -> Claim:
    """Leave one piece of work that has failed: for good, or until its next attempt in an hour."""
    assert store.work is not None
    assert store.work is not None
    sample = SampleEntity(ENTITY)
    await append_all(store, sample.create())
    await append_all(store, replace(sample.step(key="first"), work=WorkDelta(created=(Work(CHARGE, "charge", {}, 0),))))
    (claim,) = await store.work.claim("effect", ("charge",), owner="w", now_ms=5, until_ms=60_000, limit=1)
    await store.work.settle((Settlement(claim, "dead" if dies else "again", 3_600_000, {"code": "no"}),), now_ms=5)
    return claim


async def recorded(store: Store) -> list[tuple[str, str | None]]:
    """The events and actors in the audit of the store."""
    return [(each.event, each.actor) for each in await audit_rows(store)]


@pytest.mark.parametrize("name", STORES)
@pytest.mark.parametrize("act", ["drop", "revive", "requeue"])
async def test_an_act_keeps_its_row_and_a_second_one_does_not(tmp_path: Path, name: str, act: str) -> None:
    store = await open_store_url(address(name, tmp_path))
    try:
        claim = await failed(store, dies=act != "requeue")
        assert store.work is not None
        assert store.work is not None
        done = []
        for _ in range(2):
            if act == "drop":
                done.append(await store.work.delete_work(ENTITY, CHARGE, audit=ROW))
            elif act == "revive":
                done.append(await store.work.requeue_dead_letter(ENTITY, CHARGE, now_ms=9, audit=ROW))
            else:
                found = replace(claim, failures=1 if not done else 7)
                again = Settlement(found, "again", 9, {"code": "no"}, without_failure=True)
                done.append(await store.work.requeue(again, now_ms=9, audit=ROW))
        rows = (await store.work.list_work(WorkQuery(entity=ENTITY))).rows
        rows_kept = await recorded(store)
    finally:
        await store.close()

    assert [True, False] == done
    assert [("_work.dropped", "ada")] == rows_kept
    assert ([] if act == "drop" else [None]) == [each.dead_ms for each in rows]


@pytest.mark.parametrize("name", STORES)
async def test_an_act_without_a_row_is_an_act_all_the_same(tmp_path: Path, name: str) -> None:
    store = await open_store_url(address(name, tmp_path))
    try:
        await failed(store)
        assert store.work is not None
        done = (
            await store.work.requeue_dead_letter(ENTITY, CHARGE, now_ms=9),
            await store.work.delete_work(ENTITY, CHARGE),
        )
        rows = await recorded(store)
    finally:
        await store.close()

    assert ((True, True), []) == (done, rows)


async def test_on_files_an_act_that_cannot_be_recorded_is_not_done(tmp_path: Path) -> None:
    store = await open_store_url(address("file", tmp_path))
    try:
        await failed(store)
        (tmp_path / "store" / "audit").write_text("no folder")
        assert store.work is not None
        assert store.work is not None
        with pytest.raises(UnavailableError) as caught:
            await store.work.delete_work(ENTITY, CHARGE, audit=ROW)
        rows = (await store.work.list_work(WorkQuery(entity=ENTITY, dead=True))).rows
    finally:
        await store.close()

    assert ("store.write", 1) == (caught.value.code, len(rows))


async def test_on_files_another_process_sees_what_was_requeued(tmp_path: Path) -> None:
    url = address("file", tmp_path)
    store = await open_store_url(url)
    await failed(store, dies=False)
    await store.close()
    store = await open_store_url(url)
    try:
        desk = WorkOperations(store, VirtualClock(1_000))
        await desk.act("retry", await desk.at(ENTITY, CHARGE), principal="ada", force=True)
    finally:
        await store.close()
    store = await open_store_url(url)
    try:
        assert store.work is not None
        claims = await store.work.claim("effect", ("charge",), owner="w", now_ms=1_000, until_ms=2_000, limit=1)
        rows = await recorded(store)
    finally:
        await store.close()

    assert (1, [("_work.retried", "ada")]) == (len(claims), rows)


@pytest.mark.parametrize("principal", ["\ud800", "a" * 400_000])
async def test_an_operator_whose_name_cannot_be_kept_does_nothing(principal: str) -> None:
    store = await open_store_url("memory:")
    await failed(store)
    desk = WorkOperations(store, VirtualClock())
    row = await desk.at(ENTITY, CHARGE)
    with pytest.raises(UsageError) as caught:
        await desk.act("drop", row, principal=principal)
    await asyncio.sleep(0)

    assert "principal.malformed" == caught.value.code
    assert row == await desk.at(ENTITY, CHARGE)


async def test_settings_of_a_store_are_changed_with_a_row() -> None:
    """The restore epoch, publishing, and a rollout: who did it, and why."""
    store = await open_store_url("memory:")
    await raise_epoch(store, by="ada", now_ms=1)
    await turn_off(store, by="bob", now_ms=2)
    runtime = Runtime(store, ChartRegistry([interlock.loads(LAMP).kernel]), VirtualClock(3))
    await runtime.create("lamp/1")
    await start_rollout(runtime, "lamp", to="1.0.0", share=500, by="eve", why="slowly")

    assert [
        ("", "_store.restored", "epoch 1", "ada", None),
        ("", "_messages.off", "entries are no longer published", "bob", None),
        ("lamp", "_rollout.changed", "eve", "slowly"),
    ] == [
        (r.entity, r.event, r.reason, r.actor, r.note) if r.note is None else (r.entity, r.event, r.actor, r.note)
        for r in await audit_rows(store)
    ]


LAMP = """
interlock: 1
kind: lamp
revision: 1.0.0
initial: off
states: {off: {}}
"""

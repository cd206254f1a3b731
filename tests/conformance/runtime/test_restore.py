"""A store that is restored from an older copy: no key of an effect is used again, and the damage is noticed."""

from __future__ import annotations

import asyncio
import copy
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import interlock
from interlock.effects.handlers import Attempt
from interlock.errors import UnavailableError
from interlock.model.journal.message import message_of
from interlock.ports.clock import SystemClock
from interlock.ports.work import WorkQuery
from interlock.runtime.charts.registry import ChartRegistry
from interlock.runtime.epoch import raise_epoch, read_epoch
from interlock.runtime.history.verify import verify_entity
from interlock.runtime.runtime import Runtime
from interlock.stores.memory import MemoryStore
from tests.support.eventually import PATIENCE_SECONDS, eventually

ACCOUNT = """
interlock: 1
kind: account
context: {total: {type: integer, default: 0}}
initial: open
states:
  open:
    on:
      pay: {target: charging, actions: [{assign: {total: "= context.total + event.data.amount"}}]}
      plan: travelling
      ask: asking
  charging: {invoke: {id: charge, src: charge, input: {amount: "= context.total"}, onDone: open}}
  travelling:
    expect: {within: 1h}
    saga:
      steps: [{id: room, do: {src: charge, input: {amount: 1}}, compensate: {src: refund}}]
      onDone: open
      onError: open
  asking:
    expect: {within: 1h}
    invoke: {id: part, type: chart, src: {kind: answer, states: {given: {type: final}}}, onDone: open}
"""


DOOR = """
interlock: 1
kind: door
states:
  shut: {on: {open: ajar}}
  ajar: {on: {close: shut}}
"""


class Ledger:
    """A service that recognises a key: the same key with another amount would be a lost charge."""

    def __init__(self) -> None:
        self.amounts: dict[str, Any] = {}
        self.calls: list[str] = []

    async def charge(self, attempt: Attempt) -> None:
        """Charge once for each key."""
        self.calls.append(attempt.key)
        amount = attempt.input["amount"]
        assert self.amounts.setdefault(attempt.key, amount) == amount, f"{attempt.key} was used for another charge"


def account(ledger: Ledger) -> interlock.BoundChart:
    """The chart with its ledger."""
    chart = interlock.loads(ACCOUNT)
    chart.handler("charge")(ledger.charge)
    chart.handler("refund")(ledger.charge)
    return chart


async def until(runtime: interlock.Runtime, state: str, entity: str = "account/1") -> None:
    """Wait until the entity is in a state."""

    async def is_there() -> bool:
        return (await runtime.state(entity)).configuration == (state,)

    await eventually(is_there)


async def pay(runtime: interlock.Runtime, amount: int) -> None:
    """Pay, and wait for the charge."""
    await runtime.send("account/1", "pay", {"amount": amount})
    await until(runtime, "open")


def kept(url: str) -> Path:
    """The file or folder of a store."""
    return Path(url.removeprefix("sqlite:///").removeprefix("file://"))


async def restored(url: str, work: Callable[[interlock.Runtime], Awaitable[None]], ledger: Ledger) -> None:
    """Do some work, restore the store from a copy made before, and raise the epoch."""
    path, backup = kept(url), kept(url).with_name("backup")
    async with interlock.open(url, charts=[account(ledger)]) as runtime:
        await runtime.create("account/1")
        await pay(runtime, 5)
    (shutil.copytree if path.is_dir() else shutil.copy)(path, backup)
    async with interlock.open(url, charts=[account(ledger)]) as runtime:
        await work(runtime)
    for each in [path, *path.parent.glob(f"{path.name}-*")]:
        shutil.rmtree(each) if each.is_dir() else each.unlink()
    (shutil.copytree if backup.is_dir() else shutil.copy)(backup, path)
    async with interlock.open(url, charts=[account(ledger)], work=False) as runtime:
        assert 1 == await raise_epoch(runtime.store)


FILES = pytest.mark.parametrize("url", ["sqlite:///{}/accounts.db", "file://{}/accounts"], ids=["sqlite", "files"])


@FILES
async def test_after_a_restore_no_key_is_used_for_another_charge(url: str, tmp_path: Path) -> None:
    ledger, address = Ledger(), url.format(tmp_path)
    async with asyncio.timeout(PATIENCE_SECONDS):
        await restored(address, lambda runtime: pay(runtime, 30), ledger)
        async with interlock.open(address, charts=[account(ledger)]) as runtime:
            await pay(runtime, 70)
            snapshot = await runtime.state("account/1")
            proof = await verify_entity(runtime.store, runtime.revisions, "account/1")

    assert {"account/1/2/0": 5, "account/1/4/0": 35, "account/1/4.1/0": 75} == ledger.amounts
    assert (75, True, None) == (snapshot.context["total"], proof.replayed, proof.problem)


@FILES
async def test_saga_steps_and_children_have_new_keys_too(url: str, tmp_path: Path) -> None:
    ledger, address, children = Ledger(), url.format(tmp_path), []

    async def travel(runtime: interlock.Runtime) -> None:
        await runtime.send("account/1", "plan")
        await until(runtime, "open")
        receipt = await runtime.send("account/1", "ask")
        children.append(receipt.snapshot.invokes[0].key if receipt.snapshot is not None else "")
        await until(runtime, "open")

    async with asyncio.timeout(PATIENCE_SECONDS):
        await restored(address, travel, ledger)
        async with interlock.open(address, charts=[account(ledger)]) as runtime:
            await travel(runtime)
            proof = await verify_entity(runtime.store, runtime.revisions, "account/1")

    assert ["account/1/2/0", "account/1/4/travelling.room", "account/1/4.1/travelling.room"] == list(ledger.amounts)
    assert ["account/1/6/0", "account/1/6.1/0"] == children
    assert (True, None) == (proof.replayed, proof.problem)


@FILES
async def test_work_that_was_pending_in_the_copy_keeps_its_key(url: str, tmp_path: Path) -> None:
    """It was performed on the lost time line, and the ledger recognises it."""
    ledger, address = Ledger(), url.format(tmp_path)
    path, backup = kept(address), tmp_path / "backup"
    async with asyncio.timeout(PATIENCE_SECONDS):
        async with interlock.open(address, charts=[account(ledger)], work=False) as runtime:
            await runtime.create("account/1")
            await runtime.send("account/1", "pay", {"amount": 9})
        (shutil.copytree if path.is_dir() else shutil.copy)(path, backup)
        async with interlock.open(address, charts=[account(ledger)]) as runtime:
            await until(runtime, "open")
        for each in [path, *path.parent.glob(f"{path.name}-*")]:
            shutil.rmtree(each) if each.is_dir() else each.unlink()
        shutil.move(backup, path)
        async with interlock.open(address, charts=[account(ledger)], work=False) as runtime:
            await raise_epoch(runtime.store)
        async with interlock.open(address, charts=[account(ledger)]) as runtime:
            await until(runtime, "open")

    assert ["account/1/2/0"] * 2 == ledger.calls


async def test_messages_after_a_restore_come_after_all_earlier_ones(tmp_path: Path) -> None:
    """An ordered consumer compares `sequence` as text, and drops what is not above the last one."""
    address = f"sqlite:///{tmp_path}/accounts.db"
    sequences: list[str] = []
    async with asyncio.timeout(PATIENCE_SECONDS):
        for epoch in range(3):
            async with interlock.open(address, charts=[interlock.loads(DOOR)], bus="memory:", work=False) as runtime:
                assert epoch == await read_epoch(runtime.store)
                if epoch == 0:
                    await runtime.create("door/1")
                await runtime.send("door/1", "open")
                await runtime.send("door/1", "close")
                assert runtime.store.work is not None
                rows = (await runtime.store.work.list_work(WorkQuery(lane="message", limit=100))).rows
                messages = [message_of(each.entity, each.work.id, each.work.body) for each in rows]
                sequences = [each.sequence or "" for each in messages]
                assert len({each.id for each in messages}) == len(messages)
                await raise_epoch(runtime.store)

    by_epoch = [[each for each in sequences if each.startswith(start)] for start in ("0", "e0001.", "e0002.")]
    assert all(by_epoch)
    assert max(by_epoch[0]) < min(by_epoch[1]) <= max(by_epoch[1]) < min(by_epoch[2])


async def test_a_store_that_goes_back_under_a_runtime_is_noticed() -> None:
    """The runtime then accepts no more events: the next version was used before."""
    store = MemoryStore()
    runtime = Runtime(store, ChartRegistry([account(Ledger()).kernel]), SystemClock())
    await runtime.create("account/1")
    before = copy.deepcopy(store._entities["account/1"])
    await runtime.send("account/1", "pay", {"amount": 1})
    store._entities["account/1"] = before
    with pytest.raises(UnavailableError) as noticed:
        await runtime.send("account/1", "pay", {"amount": 2})
    with pytest.raises(UnavailableError) as stopped:
        await runtime.create("account/2")

    assert ("store.went_back", "store.went_back") == (noticed.value.code, stopped.value.code)
    assert 1 == (await store.load("account/1")).version  # type: ignore[union-attr]  # it exists


@pytest.mark.parametrize("event", ["unheard.of", "pay"])
async def test_a_refused_event_notices_it_too(event: str) -> None:
    store = MemoryStore()
    runtime = Runtime(store, ChartRegistry([account(Ledger()).kernel]), SystemClock())
    await runtime.create("account/1")
    await runtime.send("account/1", "pay", {"amount": 1})
    store._entities.clear()
    with pytest.raises(UnavailableError) as noticed:
        await runtime.send("account/1", event)

    assert "store.went_back" == noticed.value.code

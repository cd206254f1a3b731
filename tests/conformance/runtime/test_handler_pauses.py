"""Pauses of handlers on every store: what a pause counts as, and which workers keep it."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import interlock
from interlock.ports.clock import SystemClock
from interlock.ports.work import WorkQuery
from interlock.testing.clock import VirtualClock
from tests.support import postgres_server
from tests.support.eventually import eventually

ORDER = """
interlock: 1
kind: order
states:
  charging:
    invoke: {src: charge, retry: {max: 0}, onDone: paid, onError: failed}
  paid: {entry: [tell], type: final}
  failed: {type: final}
"""

LETTER = """
interlock: 1
kind: letter
states:
  sending: {invoke: {src: send, onDone: sent}}
  sent: {type: final}
"""

HOUR_MS = 3_600_000


def place(store: str, folder: Path) -> str:
    """The address of a new store."""
    if store == "postgresql":
        return postgres_server.store_or_skip()
    return {"memory": "memory:", "sqlite": f"sqlite:///{folder}/orders.db", "file": f"file:{folder}/orders"}[store]


def charts(charge: Any) -> list[Any]:
    """An order that charges, and a letter, whose handler shows that a worker has looked for work."""
    order, letter = interlock.loads(ORDER), interlock.loads(LETTER)
    order.handler("charge")(charge)
    order.handler("tell")(told)
    letter.handler("send")(told)
    return [order, letter]


async def told(attempt: interlock.Attempt) -> None:
    """Do nothing."""


class Bank:
    """A handler that asks for a pause a few times."""

    def __init__(self, until: Any, *, pauses: int = 1) -> None:
        self.until = until
        self.pauses = pauses
        self.calls: list[tuple[str, str, int]] = []

    async def charge(self, attempt: interlock.Attempt) -> None:
        """Charge, or pause."""
        self.calls.append((attempt.entity, attempt.key, attempt.number))
        if len(self.calls) <= self.pauses:
            raise attempt.pause(until=self.until, reason="429")


@pytest.mark.parametrize("store", ["memory", "sqlite", "file"])
async def test_a_pause_holds_every_entity_and_uses_no_try(tmp_path: Path, store: str) -> None:
    """The second order is not charged before the pause ends; then both are, as first attempts under their keys."""
    bank, clock = Bank(timedelta(hours=1)), VirtualClock(SystemClock().now_ms())
    async with interlock.open(place(store, tmp_path), charts=charts(bank.charge), clock=clock) as orders:
        await orders.create("order/1")
        await eventually(lambda: bank.calls)
        await orders.create("order/2")
        await orders.create("letter/1")

        async def is_sent() -> bool:
            await clock.advance(100)
            return (await orders.state("letter/1")).configuration == ("sent",)

        await eventually(is_sent)
        before = list(bank.calls)

        async def are_paid() -> bool:
            await clock.advance(HOUR_MS)
            return {(await orders.state(f"order/{each}")).configuration for each in (1, 2)} == {("paid",)}

        await eventually(are_paid)

    assert [("order/1", "order/1/1/0", 1)] == before
    assert [("order/1", "order/1/1/0", 1), ("order/2", "order/2/1/0", 1)] == sorted(bank.calls[1:])


@pytest.mark.parametrize("store", ["sqlite", "file", "postgresql"])
async def test_another_worker_keeps_the_pause(tmp_path: Path, store: str) -> None:
    url = place(store, tmp_path)
    first, second = Bank("1h"), Bank("1h", pauses=0)
    async with interlock.open(url, charts=charts(first.charge)) as orders:
        await orders.create("order/1")
        await eventually(lambda: first.calls)
        await eventually(lambda: _is_paused(orders))
    async with interlock.open(url, charts=charts(second.charge)) as orders:
        await orders.create("order/2")
        await orders.create("letter/1")

        async def is_sent() -> bool:
            return (await orders.state("letter/1")).configuration == ("sent",)

        await eventually(is_sent)
        work = orders.store.work
        assert work is not None
        rows = (await work.list_work(WorkQuery(lane="effect", name="charge"))).rows if store != "file" else ()

    assert [] == second.calls
    found = {row.entity: (row.attempts, row.failures) for row in rows}
    assert found == ({} if store == "file" else {"order/1": (0, 0), "order/2": (0, 0)})


@pytest.mark.parametrize("store", ["sqlite", "postgresql"])
async def test_work_of_a_paused_handler_runs_after_the_pause(tmp_path: Path, store: str) -> None:
    """With the clock of the system, and with that of the server."""
    bank = Bank(timedelta(milliseconds=200), pauses=3)
    async with interlock.open(place(store, tmp_path), charts=charts(bank.charge)) as orders:
        await orders.create("order/1")

        async def is_paid() -> bool:
            return (await orders.state("order/1")).configuration == ("paid",)

        await eventually(is_paid)

    assert [("order/1", "order/1/1/0", 1)] * 4 == bank.calls


async def _is_paused(orders: interlock.Runtime) -> bool:
    assert orders.store.facts is not None
    return "pause/charge" in await orders.store.facts.read_facts()

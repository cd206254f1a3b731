"""Messages on every store: another process publishes what a killed one left."""

from __future__ import annotations

from pathlib import Path

import pytest

import interlock
from interlock.buses.memory import MemoryBus
from tests.support import postgres_server
from tests.support.eventually import eventually
from tests.unit.runtime.test_messages import charts, left_over


@pytest.mark.parametrize("store", ["sqlite", "file", "postgresql"])
async def test_messages_of_a_killed_process_are_published_by_another(tmp_path: Path, store: str) -> None:
    places = {"sqlite": f"sqlite:///{tmp_path}/orders.db", "file": f"file:{tmp_path}/orders"}
    url = places[store] if store in places else postgres_server.store_or_skip()
    async with interlock.open(url, charts=charts(), bus="memory:gone", work=False) as orders:
        await orders.create("order/1")
    async with interlock.open(url, charts=charts()) as orders:  # one without a bus writes messages, and publishes none
        await orders.create("order/2")
        if store != "file":  # which lists work once it has walked over it
            assert [("order/1/1", None), ("order/2/1", None)] == sorted(await left_over(orders))
    bus = MemoryBus()
    async with interlock.open(url, charts=charts(), bus=bus, source="https://shop.example") as orders:

        async def is_published(orders: interlock.Runtime = orders) -> bool:
            return len(bus.messages) >= 2 and not await left_over(orders)

        await eventually(is_published)

    source = "https://shop.example/order"
    published = sorted((each.id, each.source) for each in bus.messages)
    assert [("order/1/1/0", source), ("order/2/1/0", source)] == published

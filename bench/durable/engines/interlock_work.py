"""Interlock with a worker in the same process: whole orders of the demo, and effects one after the other.

The handlers do nothing. The last state calls one more handler, which runs after that state is durable: it ends the
order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import interlock
from bench.durable.order import EFFECTS_EACH
from interlock.assemble.runtimes import PendingRuntime
from interlock.runtime.runtime import Runtime

CUSTOMER = {"id": "bench", "kind": "user", "roles": ["customer"]}
DEMO_STEPS = 5
"""Durable steps of an order of the demo until it is on its way: created, placed, charged, reserved, booked."""


class Orders:
    """Orders on a store, with a worker. The subclass drives one order."""

    def __init__(self, url: str, chart: Path, results: Mapping[str, Any], last: str) -> None:
        bound = interlock.load(chart)
        for name, result in results.items():
            bound.handler(name)(_returning(result))
        bound.handler(last)(self._finish)
        self._opening: PendingRuntime = interlock.open(url, charts=[bound])
        self._runtime: Runtime | None = None
        self._finished: dict[str, asyncio.Event] = {}

    async def start(self) -> None:
        """Open the store, and start the worker."""
        self._runtime = await self._opening.__aenter__()

    async def stop(self) -> None:
        """Stop the worker, and close the store."""
        await self._opening.__aexit__(None, None, None)

    async def _finish(self, attempt: interlock.Attempt) -> None:
        self._finished[attempt.entity].set()

    async def create(self, entity: str, context: dict[str, Any]) -> tuple[Runtime, asyncio.Event]:
        """Create an entity, and return the event that its last handler sets."""
        assert self._runtime is not None
        finished = self._finished[entity] = asyncio.Event()
        await self._runtime.create(entity, context, key=f"create:{entity}")
        return self._runtime, finished


def _returning(result: Any) -> Any:
    async def handler(attempt: interlock.Attempt) -> Any:
        return result

    return handler


class Demo(Orders):
    """Orders of the demo."""

    def __init__(self, url: str) -> None:
        results = {"payment.charge": {"charge": "c-1"}, "stock.reserve": "r-1", "carrier.book": "p-1"}
        chart = Path(interlock.__file__).parent / "demo" / "order.interlock.yaml"
        super().__init__(url, chart, results, "receipt.send")

    async def run(self, order: str) -> int:
        """Create and place an order, and wait until it is on its way."""
        entity = f"order/{order}"
        runtime, finished = await self.create(entity, {"amount": 4_990, "item": "lamp"})
        (await runtime.send(entity, "order.placed", key=f"{order}:placed", principal=CUSTOMER)).expect()
        await finished.wait()
        return DEMO_STEPS


class Errands(Orders):
    """Entities with ten effects each."""

    def __init__(self, url: str) -> None:
        chart = Path(__file__).resolve().parents[2] / "charts" / "errands.interlock.yaml"
        super().__init__(url, chart, {"errand.run": None}, "errands.finished")

    async def run(self, order: str) -> int:
        """Create an entity, and wait until its effects have run."""
        entity = f"errands/{order}"
        _, finished = await self.create(entity, {})
        await finished.wait()
        return EFFECTS_EACH


class Refusals:
    """Events of senders without the role. Each sender is another one, so that none is counted as a flood."""

    def __init__(self, url: str) -> None:
        chart = interlock.loads("""
interlock: 1
kind: door
events: {opened: {roles: [guard]}}
initial: closed
states: {closed: {on: {opened: open}}, open: {}}
""")
        self._opening: PendingRuntime = interlock.open(url, charts=[chart], work=False)
        self._runtime: Runtime | None = None

    async def start(self) -> None:
        """Open the store, and create the entity."""
        self._runtime = await self._opening.__aenter__()
        await self._runtime.create("door/1")

    async def stop(self) -> None:
        """Close the store."""
        await self._opening.__aexit__(None, None, None)

    async def run(self, order: str) -> int:
        """Send an event that is denied; its row is durable."""
        assert self._runtime is not None
        receipt = await self._runtime.send("door/1", "opened", principal={"id": order})
        if receipt.outcome != "denied":
            raise RuntimeError(f"expected denied, got {receipt.outcome}")
        return 1

"""Restate: a virtual object per order (`restate_service`), called through its HTTP door with an idempotency key.

Not like for like: it is a networked server.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

import aiohttp

from bench.durable.order import CLIENTS, Line, Place


class Orders:
    """A client of the object."""

    def __init__(self, place: Place) -> None:
        if place.restate is None:
            raise RuntimeError("no Restate server")
        self._address = place.restate
        self._session: aiohttp.ClientSession | None = None

    async def start(self) -> None:
        """Open a session."""
        self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=2 * CLIENTS))

    async def stop(self) -> None:
        """Close it."""
        assert self._session is not None
        await self._session.close()

    async def create(self, order: str) -> None:
        """Create an order."""
        await self._called(order, "create", {}, f"create:{order}")

    async def send(self, order: str, event: str, key: str) -> str:
        """Send an event to an order."""
        return str(await self._called(order, "send", {"event": event}, key))

    async def _called(self, order: str, handler: str, body: dict[str, str], key: str) -> Any:
        assert self._session is not None
        address = f"{self._address}/Order/{order}/{handler}"
        async with self._session.post(address, json=body, headers={"idempotency-key": key}) as answer:
            if answer.status >= 300:
                raise RuntimeError(f"{answer.status} {await answer.text()}")
            return await answer.json()


LINES = {"object": Line(name="Restate", version=version("restate-sdk"), make=Orders)}

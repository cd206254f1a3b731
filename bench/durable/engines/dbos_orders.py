"""DBOS Transact: a workflow per event, whose id is the idempotency key, with one step that runs the chart.

The states of orders are kept in memory, to its advantage: an application would also write its own table.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from importlib.metadata import version
from typing import Any

from dbos import DBOS, SetWorkflowID

from bench.durable.order import Line, Place, step

POOL = 32


class Orders:
    """DBOS, launched for one question."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._states: dict[str, str] = {}
        self._handle: Callable[[str, str], Awaitable[str]] | None = None

    async def start(self) -> None:
        """Launch it."""
        config: Any = {
            "name": "bench",
            "system_database_url": self._url,
            "log_level": "ERROR",
            "run_admin_server": False,
            "sys_db_pool_size": POOL,
            "application_version": "1",
        }
        DBOS(config=config)
        states = self._states

        @DBOS.step()
        async def apply(order: str, event: str) -> str:
            states[order] = "created" if event == "create" else step(states[order], event)[0]
            return states[order]

        @DBOS.workflow()
        async def handle(order: str, event: str) -> str:
            return await apply(order, event)

        DBOS.launch()
        self._handle = handle

    async def stop(self) -> None:
        """Shut it down."""
        with contextlib.suppress(Exception):  # its errors at shutdown change no figure
            DBOS.destroy(destroy_registry=True)

    async def create(self, order: str) -> None:
        """Create an order."""
        await self.send(order, "create", f"create:{order}")

    async def send(self, order: str, event: str, key: str) -> str:
        """Send an event to an order."""
        assert self._handle is not None
        with SetWorkflowID(key):
            return await self._handle(order, event)


def _on_postgres(place: Place) -> Orders:
    if place.postgres is None:
        raise RuntimeError("no PostgreSQL server")
    return Orders(place.postgres)


LINES = {
    "sqlite": Line(
        name="DBOS, SQLite",
        version=version("dbos"),
        make=lambda place: Orders(f"sqlite:///{place.folder / 'dbos.db'}"),
    ),
    "postgres": Line(name="DBOS, PostgreSQL", version=version("dbos"), make=_on_postgres),
}

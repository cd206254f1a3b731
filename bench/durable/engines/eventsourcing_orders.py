"""eventsourcing: an aggregate per order, on its SQLite or PostgreSQL recorder.

A send is `repository.get`, which folds the order's events, and one event saved in one transaction. The library is
synchronous. On SQLite it runs in the caller's thread, as its writer is single anyway; on PostgreSQL sixteen threads
call it. In seq1 it folds a longer journal each time: it was given no snapshots, which does not favour it there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from typing import Any, TypeVar
from urllib.parse import urlsplit
from uuid import NAMESPACE_URL, UUID, uuid5

from eventsourcing.application import Application
from eventsourcing.domain import Aggregate, event

from bench.durable.order import Line, Place, step

THREADS = 16
T = TypeVar("T")


class Order(Aggregate):
    """An order as its manual writes aggregates."""

    @event("Created")
    def __init__(self, ref: str) -> None:
        self.ref, self.state = ref, "created"

    @staticmethod
    def create_id(ref: str) -> UUID:
        """The id of an order."""
        return uuid5(NAMESPACE_URL, ref)

    @event("Sent")
    def sent(self, name: str, to: str) -> None:
        """An event happened."""
        self.state = to


class Orders:
    """The application, and the threads it is called from."""

    def __init__(self, environment: dict[str, str], threads: int = 0) -> None:
        self._environment = environment
        self._count = threads
        self._threads: ThreadPoolExecutor | None = None
        self._application: Any = None

    async def start(self) -> None:
        """Open it."""
        self._application = Application(env=self._environment)
        self._threads = ThreadPoolExecutor(self._count) if self._count else None

    async def stop(self) -> None:
        """Close it."""
        if self._threads is not None:
            self._threads.shutdown()
        self._application.close()

    async def create(self, order: str) -> None:
        """Create an order."""
        await self._called(lambda: self._application.save(Order(order)))

    async def send(self, order: str, event: str, key: str) -> str:
        """Send an event to an order."""
        return await self._called(lambda: self._sent(order, event))

    def _sent(self, order: str, event: str) -> str:
        found = self._application.repository.get(Order.create_id(order))
        state, _ = step(found.state, event)
        found.sent(event, state)
        self._application.save(found)
        return state

    async def _called(self, call: Callable[[], T]) -> T:
        if self._threads is None:
            return call()
        return await asyncio.get_running_loop().run_in_executor(self._threads, call)


def _on_sqlite(place: Place) -> Orders:
    return Orders({"PERSISTENCE_MODULE": "eventsourcing.sqlite", "SQLITE_DBNAME": str(place.folder / "orders.db")})


def _on_postgres(place: Place) -> Orders:
    if place.postgres is None:
        raise RuntimeError("no PostgreSQL server")
    url = urlsplit(place.postgres)
    environment = {
        "PERSISTENCE_MODULE": "eventsourcing.postgres",
        "POSTGRES_DBNAME": url.path.removeprefix("/"),
        "POSTGRES_HOST": url.hostname or "",
        "POSTGRES_PORT": str(url.port),
        "POSTGRES_USER": url.username or "",
        "POSTGRES_PASSWORD": "none",
        "POSTGRES_POOL_SIZE": str(THREADS),
        "POSTGRES_MAX_OVERFLOW": "0",
    }
    return Orders(environment, THREADS)


LINES = {
    "sqlite": Line(name="eventsourcing, SQLite", version=version("eventsourcing"), make=_on_sqlite),
    "postgres": Line(name="eventsourcing, PostgreSQL", version=version("eventsourcing"), make=_on_postgres),
}

"""Interlock as users open it, with `interlock.open`: the whole runtime, with keys, and effects in the entries.

"each" shows what group commit gains. On SQLite: the same runtime on the same tables, but every step is one
transaction, committed in the caller's thread, without a change of threads. On PostgreSQL: `?commit=one`, a statement
for each step on sixteen connections.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import interlock
from bench.durable.engines.interlock_work import Demo, Errands, Refusals
from bench.durable.order import Line, Place, Runner
from interlock.assemble.charts import BoundChart
from interlock.assemble.runtimes import PendingRuntime
from interlock.errors import CorruptionError
from interlock.ports.clock import SystemClock
from interlock.ports.store import (
    Append,
    AppendResult,
)
from interlock.runtime.charts.registry import ChartRegistry
from interlock.runtime.runtime import Runtime
from interlock.stores.files.store import FileStore
from interlock.stores.sqlite.batch_rows import Counts, write_counts, write_steps
from interlock.stores.sqlite.connection import begin, open_writer
from interlock.stores.sqlite.store import SqliteStore

T = TypeVar("T")
CHART = interlock.load(Path(__file__).resolve().parents[2] / "charts" / "shipment.interlock.yaml")


class Orders:
    """Orders on a store of Interlock."""

    def __init__(self, url: str, *, chart: BoundChart[Any] = CHART) -> None:
        self._opening: PendingRuntime = interlock.open(url, charts=[chart])
        self._runtime: Runtime | None = None

    async def start(self) -> None:
        """Open the store."""
        self._runtime = await self._opening.__aenter__()

    async def stop(self) -> None:
        """Close the store; its folder is deleted after the question."""
        await self._opening.__aexit__(None, None, None)

    async def create(self, order: str) -> None:
        """Create an order."""
        assert self._runtime is not None
        await self._runtime.create(f"order/{order}", key=f"create:{order}")

    async def send(self, order: str, event: str, key: str) -> str:
        """Send an event to an order."""
        assert self._runtime is not None
        receipt = await self._runtime.send(f"order/{order}", event, key=key)
        snapshot = receipt.expect().snapshot
        assert snapshot is not None
        return snapshot.configuration[0]


class EachStore(SqliteStore):
    """The SQLite store without its queue: a transaction for every step, in the caller's thread."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._own: sqlite3.Connection = open_writer(path)
        self._own.execute("PRAGMA wal_autocheckpoint = 1000")

    async def append(self, append: Append) -> AppendResult:
        """Write and commit one step."""
        counts: Counts = {}
        begin(self._own)
        (answer,), _ = write_steps(self._own, "", [append], counts)
        write_counts(self._own, "", counts)
        self._own.execute("COMMIT")
        if isinstance(answer, CorruptionError):
            raise answer
        return answer

    async def close(self) -> None:
        """Close both connections."""
        self._own.close()
        await super().close()


class InlineFiles(FileStore):
    """The file store without its threads; the difference is the cost of the threads."""

    async def _in_thread(self, call: Callable[[], T]) -> T:
        return call()


class OwnOrders(Orders):
    """Orders on a store that is not opened by `interlock.open`."""

    def __init__(self, opened: Callable[[], EachStore | InlineFiles]) -> None:
        self._opened = opened

    async def start(self) -> None:
        """Open the store."""
        self._runtime = Runtime(self._opened(), ChartRegistry([CHART.kernel]), SystemClock())

    async def stop(self) -> None:
        """Close the store."""
        assert self._runtime is not None
        await self._runtime.close()


def _file(place: Place) -> str:
    return (place.folder / "orders").as_uri()


def _sqlite(place: Place) -> str:
    return f"sqlite:///{place.folder / 'orders.db'}"


def _postgres(place: Place) -> str:
    if place.postgres is None:
        raise RuntimeError("no PostgreSQL server")
    return place.postgres


def _line(
    name: str, make: Callable[[Place], Orders], runners: Mapping[str, Callable[[Place], Runner]] | None = None
) -> Line:
    return Line(name=name, version=interlock.__version__, make=make, runners=runners or {})


LINES = {
    "file": _line(
        "interlock, files",
        lambda place: Orders(_file(place)),
        runners={
            "demo": lambda place: Demo(_file(place)),
            "effects": lambda place: Errands(_file(place)),
            "refused": lambda place: Refusals(_file(place)),
        },
    ),
    "file-inline": _line(
        "interlock, files, in the caller's thread",
        lambda place: OwnOrders(lambda: InlineFiles(place.folder / "orders")),
    ),
    "sqlite": _line(
        "interlock, SQLite",
        lambda place: Orders(_sqlite(place)),
        runners={
            "demo": lambda place: Demo(_sqlite(place)),
            "effects": lambda place: Errands(_sqlite(place)),
            "refused": lambda place: Refusals(_sqlite(place)),
        },
    ),
    "sqlite-each": _line(
        "interlock, SQLite, a commit per step", lambda place: OwnOrders(lambda: EachStore(place.folder / "orders.db"))
    ),
    "postgres": _line(
        "interlock, PostgreSQL",
        lambda place: Orders(_postgres(place)),
        runners={
            "demo": lambda place: Demo(_postgres(place)),
            "effects": lambda place: Errands(_postgres(place)),
            "refused": lambda place: Refusals(_postgres(place)),
        },
    ),
    "postgres-each": _line(
        "interlock, PostgreSQL, a statement per step", lambda place: Orders(_postgres(place) + "?commit=one")
    ),
}

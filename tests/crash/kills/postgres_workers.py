"""A process that performs orders of a PostgreSQL store until it is killed, and the ledger of what it did.

The ledger is a SQLite file, as an external service would have it: which worker requested which key, and each operation
once per key. A worker that `hangs` never finishes: for entities with an odd number the operation is only requested, for
others it is done and its result is not yet stored.
"""

from __future__ import annotations

import asyncio
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import interlock
from interlock import BoundChart
from interlock.effects.handlers import Attempt
from tests.support.eventually import PATIENCE_SECONDS

ORDER = """
interlock: 1
kind: order
initial: charging
states:
  charging: {invoke: {id: charge, src: payment.charge, onDone: paid, onError: declined}}
  paid: {}
  declined: {}
"""

LEASE_MS = 1_500


class Ledger:
    """Requests and operations."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._changed("CREATE TABLE IF NOT EXISTS ask (key TEXT, worker TEXT)")
        self._changed("CREATE TABLE IF NOT EXISTS operation (key TEXT PRIMARY KEY, worker TEXT)")

    def ask(self, key: str, worker: str) -> None:
        """Record a request."""
        self._changed("INSERT INTO ask VALUES (?, ?)", key, worker)

    def do(self, key: str, worker: str) -> None:
        """Record an operation, unless its key has one."""
        self._changed("INSERT OR IGNORE INTO operation VALUES (?, ?)", key, worker)

    def asks(self) -> list[tuple[str, str]]:
        """Return keys and workers of the requests, in order."""
        return self._rows("SELECT key, worker FROM ask ORDER BY rowid")

    def operations(self) -> list[tuple[str, str]]:
        """Return keys and workers of the operations, by key."""
        return self._rows("SELECT key, worker FROM operation ORDER BY key")

    def _changed(self, statement: str, *values: str) -> None:
        with closing(sqlite3.connect(self._path, timeout=PATIENCE_SECONDS)) as connection, connection:
            connection.execute(statement, values)

    def _rows(self, statement: str) -> list[tuple[str, str]]:
        with closing(sqlite3.connect(self._path, timeout=PATIENCE_SECONDS)) as connection:
            return connection.execute(statement).fetchall()


def order(ledger: Ledger, worker: str) -> BoundChart:
    """Return the chart; this worker charges its orders."""
    chart = interlock.loads(ORDER)

    @chart.handler("payment.charge")
    async def charge(attempt: Attempt) -> None:
        ledger.ask(attempt.key, worker)
        odd = int(attempt.key.split("/")[1]) % 2
        if worker == "hangs" and odd:
            await asyncio.Event().wait()
        ledger.do(attempt.key, worker)
        if worker == "hangs":
            await asyncio.Event().wait()

    return chart


async def perform(url: str, ledger: Ledger, worker: str) -> None:
    """Run a worker until the process is killed."""
    async with interlock.open(url, charts=[order(ledger, worker)], lease_ms=LEASE_MS):
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(perform(sys.argv[1], Ledger(Path(sys.argv[2])), sys.argv[3]))

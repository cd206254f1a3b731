"""Operators that are killed while they retry or drop work. Run as a script: operator_acts.py ADDRESS ACT.

For each k, a child process opens the store, creates one dead letter for the entity `parcel/<k>`, and is killed before
the k-th statement (or file operation) of the act. Prints how many children were killed before one finished, and the
exit code of that one.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

import asyncpg  # type: ignore[import-untyped]  # it ships no types
from msgspec.structs import replace

from interlock.model.journal.work import Work, WorkDelta, WorkId
from interlock.operate.dead_letters import Act, WorkOperations
from interlock.ports.clock import SystemClock
from interlock.ports.store import Store
from interlock.ports.work import Settlement
from interlock.stores.files.filesystem import OperatingSystem
from interlock.stores.registry import open_store as open_store_url
from interlock.stores.sqlite.store import SqliteStore
from interlock.testing.store_suite.samples import Life
from interlock.testing.store_suite.subject import kept
from tests.crash.kills.sqlite_writers import Deadly, say

CHARGE = WorkId("effect", 2, 0)
KILLS_MAX = 200


class Countdown:
    """Kills its process before the k-th call, once it is armed."""

    def __init__(self, kill_at: int) -> None:
        self.left = kill_at
        self.is_armed = False

    def before(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """Count a call."""

        def counted(*arguments: Any, **named: Any) -> Any:
            if self.is_armed:
                if self.left == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                self.left -= 1
            return call(*arguments, **named)

        return counted


async def dead_letter(store: Store, entity: str, *, dies: bool) -> None:
    """Create work that has failed: a dead letter, or work that waits for its next attempt."""
    assert store.work is not None
    life = Life(entity)
    await kept(store, life.created())
    work = Work(CHARGE, entity, {"name": entity}, 0)
    await kept(store, replace(life.stepped(key="first"), left=WorkDelta(born=(work,))))
    now_ms = SystemClock().now_ms()
    (claim,) = await store.work.claim("effect", (entity,), owner="w", now_ms=now_ms, until_ms=now_ms + 60_000, limit=1)
    verdict = Settlement(claim, "dead" if dies else "again", now_ms + 3_600_000, {"code": "card.refused"})
    assert (True,) == await store.work.settle((verdict,), now_ms=now_ms)


async def acted(address: str, act: str, kill_at: int) -> None:
    """Perform one act; the process is killed during it, unless the act has fewer statements."""
    countdown = Countdown(kill_at)
    if address.startswith("file:"):
        for name in ("write", "write_at", "fdatasync", "fsync", "sync_directory", "rename", "close"):
            setattr(OperatingSystem, name, countdown.before(getattr(OperatingSystem, name)))
    elif address.startswith("postgres"):
        for name in ("fetch", "fetchval", "fetchrow", "execute"):
            setattr(asyncpg.Connection, name, countdown.before(getattr(asyncpg.Connection, name)))
    store = await open_store_url(address)
    entity = f"parcel/{kill_at}"
    await dead_letter(store, entity, dies=act != "requeue")
    desk = WorkOperations(store, SystemClock())
    row = await desk.at(entity, CHARGE)
    if isinstance(store, SqliteStore):
        deadly = Deadly(store.database.queue.writer._connection, kill_at)
        store.database.queue.writer._connection = deadly  # type: ignore[assignment]  # it is one in all that matters
        deadly.armed = True
    countdown.is_armed = True
    given: Act = "drop" if act == "drop" else "retry"
    await desk.act(given, row, principal="ada", force=act == "requeue", why="a test")
    if address.startswith("file:"):
        countdown.is_armed = False  # files keep nothing for later: to close is to close each descriptor
    await store.close()


def main(address: str, act: str) -> None:
    """Start a child for each place to die at, until one finishes."""
    for kill_at in range(KILLS_MAX):
        child = os.fork()
        if child == 0:
            try:
                asyncio.run(acted(address, act, kill_at))
            except BaseException as error:  # noqa: BLE001 - printed, and reported by the exit code
                os.write(2, repr(error).encode())
                os._exit(1)
            os._exit(0)
        _, ending = os.waitpid(child, 0)
        if not os.WIFSIGNALED(ending):
            say(kill_at, os.waitstatus_to_exitcode(ending))
            return


if __name__ == "__main__":
    main(*sys.argv[1:])

"""The process that is killed: it holds and resumes every ticket of a store, and runs their timers and effects."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AbstractContextManager, nullcontext
from itertools import cycle
from multiprocessing.connection import Connection
from typing import Any
from unittest.mock import patch

import interlock
from interlock import EntityQuery
from interlock.ports.reading.paging import pages
from interlock.runtime.entities.holds import KnownHolds
from interlock.runtime.runtime import Runtime
from tests.crash.storms import side_by_side

CHART = """
interlock: 1
kind: ticket
context: {count: {type: integer, default: 0}}
initial: quiet
states:
  quiet: {after: {2s: ringing}}
  ringing: {invoke: {src: ring, onDone: rung, retry: {max: 1000, backoff: 10ms}}}
  rung: {}
on:
  counted: {actions: [{assign: {count: "= context.count + 1"}}]}
"""

LEASE_MS = 500
"""A killed process keeps its work for this long only."""


def hold_and_resume(pipe: Connection, url: str, fault: str) -> None:
    """Resume what is held, hold every ticket, resume every ticket, and wait until all have rung."""
    logging.disable(logging.CRITICAL)
    asyncio.run(_hold_and_resume(pipe, url, fault))


async def _hold_and_resume(pipe: Connection, url: str, fault: str) -> None:
    chart = interlock.loads(CHART)

    @chart.handler("ring")
    async def ring(attempt: interlock.Attempt) -> None:
        """Ring."""

    count = 0

    async def change(runtime: Runtime, name: str, timers: Any) -> None:
        nonlocal count
        if timers is None:
            await runtime.hold(name, reason="storm", principal={"id": "ann"})
        elif not await runtime.resume(name, timers=timers):
            return
        count += 1
        pipe.send_bytes(b"changed %d" % count)

    with _planted(fault):
        async with interlock.open(url, charts=[chart], lease_ms=LEASE_MS) as runtime:
            names = await entities(runtime)
            for is_hold in (False, True, False):
                timers = cycle(("deadline", "shift"))
                await side_by_side(change(runtime, each, None if is_hold else next(timers)) for each in names)
            while (await runtime.counts("ticket")).get("rung", 0) < len(names):
                await runtime.clock.sleep_ms(20)
    pipe.send_bytes(b"done %d" % count)


async def entities(runtime: Runtime) -> list[str]:
    """Return every ticket."""
    query = EntityQuery(kind="ticket", by_id=True, limit=1_000)
    return [row.entity async for page in pages(runtime.store.find, query) for row in page.rows]


def _planted(fault: str) -> AbstractContextManager[object]:
    if fault == "deaf":  # nothing keeps events and timers out
        return patch.object(KnownHolds, "error_for", lambda *_: None)
    return nullcontext()

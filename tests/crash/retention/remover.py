"""A process that prunes and compacts a store, and is killed in the middle.

Faults, for the controls: `hold` ignores legal holds; `base` starts each compacted journal with the snapshot of another
version.
"""

from __future__ import annotations

import asyncio
import logging
import math
from contextlib import AbstractContextManager, ExitStack, nullcontext
from multiprocessing.connection import Connection
from typing import Any
from unittest.mock import patch

from msgspec.structs import replace

import interlock
from interlock.errors import UnavailableError
from interlock.operate.retention import needs
from interlock.operate.retention import run as retention_run
from interlock.operate.retention.rules import RetentionRule
from interlock.operate.retention.run import RetentionRun

FAULTS = ("hold", "base")

DAY_MS = 86_400_000

CHART = """
interlock: 1
kind: parcel
context: {count: {type: integer, default: 0}}
initial: packed
states:
  packed: {tags: [inside], on: {shipped: moving, delivered: delivered, disputed: disputed}}
  moving: {tags: [outside], on: {delivered: delivered, returned: packed}}
  delivered: {type: final}
  disputed: {type: final, tags: [legal-hold]}
on:
  counted: {actions: [{assign: {count: "= context.count + 1"}}]}
"""

RULE = RetentionRule(kind="parcel", ended_ms=90 * DAY_MS, entries_ms=60 * DAY_MS, entries_min=3)

LEASE_MS = 100
"""A killed process keeps the next one away for this long only."""


def remove(pipe: Connection, url: str, fault: str) -> None:
    """Prune and compact until nothing is left, and report; each entity sends how many are done so far."""
    logging.disable(logging.CRITICAL)
    asyncio.run(_remove(pipe, url, fault))


async def _remove(pipe: Connection, url: str, fault: str) -> None:
    with _planted(fault):
        async with interlock.open(url, charts=[interlock.loads(CHART)], work=False) as runtime:
            while True:
                run = RetentionRun(runtime, [RULE], rate=math.inf, who="storm", lease_ms=LEASE_MS)
                count = 0
                try:
                    async for each in run.run():
                        count += each.done in ("pruned", "compacted")
                        pipe.send_bytes(b"removed %d" % count)
                except UnavailableError as error:
                    if error.code != "retention.running":
                        raise
                    await asyncio.sleep(LEASE_MS / 1_000)
                    continue
                pipe.send_bytes(b"done %d" % count)
                return


def _planted(fault: str) -> AbstractContextManager[object]:
    if fault == "hold":

        async def ignore(*_: Any) -> bool:
            return False

        stack = ExitStack()
        stack.enter_context(patch.object(needs, "on_hold", ignore))
        stack.enter_context(patch.object(retention_run, "on_hold", ignore))
        return stack
    if fault == "base":
        new_base = RetentionRun._new_base

        async def forget(self: RetentionRun, entity: str, base: Any, version: int) -> Any:
            found = await new_base(self, entity, base, version)
            return replace(found, snapshot=replace(found.snapshot, context={"count": 0}))

        return patch.object(RetentionRun, "_new_base", forget)
    return nullcontext()

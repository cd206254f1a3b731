"""A process that migrates all tickets of a store to the newer chart, and is killed in the middle.

Faults, for the controls: `blind` moves entities with the context that they were created with; `skip` leaves every
tenth entity and reports success.
"""

from __future__ import annotations

import asyncio
import logging
import math
from contextlib import AbstractContextManager, nullcontext
from multiprocessing.connection import Connection
from typing import Any
from unittest.mock import patch

import interlock
from interlock.evolve.mapping.document import read_mapping
from interlock.evolve.mapping.mapped_carrier import MappedCarrier
from interlock.operate.migrations.migration import Migration

FAULTS = ("blind", "skip")

OLD = """
interlock: 1
kind: ticket
revision: 1.0.0
context: {count: {type: integer, default: 0}}
states:
  open:
    after: {2d: late}
    on: {paid: paid, counted: {actions: [{assign: {count: "= context.count + 1"}}]}}
  paid: {on: {refunded: open, counted: {actions: [{assign: {count: "= context.count + 1"}}]}}}
  late: {}
"""
NEW = (
    OLD.replace("1.0.0", "2.0.0")
    .replace("paid: paid", "paid: settled")
    .replace("  paid: {on", "  settled: {on")
    .replace("2d: late", "3d: late")
    .replace("context: {", "context: {note: {type: string, required: true}, ")
)
MAPPING = """
interlock-mapping: 1
kind: ticket
states: {paid: settled}
context: {note: "= 'moved at ' + str(context.count)"}
"""


def migrate(pipe: Connection, url: str, fault: str) -> None:
    """Migrate until nothing is left, and report the counts; each batch sends the number of moves so far."""
    logging.disable(logging.CRITICAL)
    asyncio.run(_migrate(pipe, url, fault))


async def _migrate(pipe: Connection, url: str, fault: str) -> None:
    with _planted(fault):
        async with interlock.open(url, charts=[interlock.loads(NEW)], work=False) as runtime:
            migration = Migration(
                runtime, "ticket", mappings=[read_mapping(MAPPING)], rate=math.inf, who="storm", spread_ms=1_000
            )
            async for _ in migration.apply():
                pipe.send_bytes(b"moves %d" % sum(migration.progress))
            pipe.send_bytes(b"done %d" % migration.report().stays)


def _planted(fault: str) -> AbstractContextManager[object]:
    if fault == "blind":
        map_values = MappedCarrier._map_values

        def forget(self: MappedCarrier, draft: Any) -> None:
            map_values(self, draft)
            draft.values["count"] = 0

        return patch.object(MappedCarrier, "_map_values", forget)
    if fault == "skip":
        move_one = Migration._move_one

        async def skip(self: Migration, row: Any) -> None:
            if not row.entity.endswith("7"):
                await move_one(self, row)

        return patch.object(Migration, "_move_one", skip)
    return nullcontext()

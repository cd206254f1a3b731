"""A process that is killed while it publishes: no entry is lost, and no message without an entry is published."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE
from pathlib import Path
from typing import Any

import interlock
from interlock.model.journal.message import Message, decode_message
from tests.servers.buses.test_buses import ORDER, all_sent
from tests.servers.buses.writer import ORDERS
from tests.support import brokers

KILLS = 4


async def all_of(port: int, stream: str) -> list[Message]:
    """Everything that was ever added to a stream of Redis, repeats too."""
    from redis.asyncio import Redis

    client = Redis(port=port)
    found: Any = await client.xrange(stream)
    await client.aclose()
    return [decode_message(fields[b"body"]) for _, fields in found]


async def test_after_kills_every_entry_is_published_in_order_and_repeats_have_the_same_id(
    redis: brokers.Redis, tmp_path: Path
) -> None:
    store, bus = f"sqlite:///{tmp_path}/orders.db", redis.url("killed")
    for number in range(KILLS):
        command = [sys.executable, "-m", "tests.servers.buses.writer", store, bus]
        process = await asyncio.create_subprocess_exec(*command, stdout=PIPE, cwd=Path(__file__).parents[3])
        try:
            assert process.stdout is not None
            assert b"begun\n" == await process.stdout.readline()
            told = len(await all_of(redis.port, "killed"))
            while len(await all_of(redis.port, "killed")) < told + 20 * (number + 1):
                assert process.returncode is None
        finally:
            process.kill()
            await process.wait()
    async with interlock.open(store, charts=[interlock.loads(ORDER)], bus=bus, lease_ms=1_000) as orders:
        await all_sent(orders)
        happened = {}
        for name in (f"order/{number}" for number in range(ORDERS)):
            happened[name] = [
                f"{name}/{entry.version}/{ordinal}"
                for entry in await orders.journal(name, limit=1_000)
                for ordinal in range(len(entry.effects) + 1)
            ]
    messages = await all_of(redis.port, "killed")

    for name, ids in happened.items():
        told_ids = list(dict.fromkeys(each.id for each in messages if each.subject == name))
        assert ids == told_ids
    bodies = {(each.id, str(each.data), each.time_ms) for each in messages}
    assert len({each.id for each in messages}) == len(bodies)

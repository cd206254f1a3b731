"""The worker that is killed: it stops before or after the append of the event for an overdue entity.

python -m tests.crash.kills.overdue_worker URL before|after
"""

from __future__ import annotations

import asyncio
import sys
from unittest.mock import patch

import interlock
from interlock.model.journal.entry import Receipt
from interlock.runtime.entities.send_request import SendRequest
from interlock.runtime.entities.sender import EntitySender

CHART = """
interlock: 1
kind: order
context: {count: {type: integer, default: 0}}
states:
  unpaid:
    expect: {within: 1ms, then: late}
    on: {late: {actions: [{assign: {count: "= context.count + 1"}}]}, pay: paid}
  paid: {on: {late: lost}}
  lost: {}
"""


async def work(url: str, point: str) -> None:
    """Work until the event is sent, say so, and wait for the kill."""
    send = EntitySender.send

    async def stopped(sender: EntitySender, entity: str, request: SendRequest) -> Receipt:
        if point == "after":
            await send(sender, entity, request)
        sys.stdout.write("stopped\n")
        sys.stdout.flush()
        await asyncio.Event().wait()
        raise AssertionError

    with patch.object(EntitySender, "send", stopped):
        async with interlock.open(url, charts=[interlock.loads(CHART)]):
            await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(work(*sys.argv[1:]))

"""The bus in memory after a fork: a child does not wait for a thread of its parent."""

from __future__ import annotations

import asyncio

import pytest

from interlock.buses import memory
from interlock.model.journal.message import Message
from tests.processes.shm.processes import Child, Line

MESSAGE = Message(id="order/A.1/7/0", source="/shop/order", type="order.paid", data={"n": 1})


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_does_not_wait_for_locks_of_its_parent() -> None:
    bus = memory.open_bus("memory:forks")

    def child(line: Line) -> None:
        same = memory.open_bus("memory:forks") is bus
        asyncio.run(bus.publish(MESSAGE))
        line.send((same, len(bus.messages)))

    with memory._lock, bus._lock:
        started = Child(child)
        try:
            said = started.receive()
        finally:
            started.end()

    assert ((True, 1), []) == (said, bus.messages)

"""Connections that are opened when they are first needed."""

from __future__ import annotations

import asyncio

import pytest

from interlock.buses.address import LazyConnection


class Server:
    """Counts connections; each is a list, so that none equals another by identity."""

    def __init__(self) -> None:
        self.connections: list[list[int]] = []
        self.is_down = False

    async def connect(self) -> list[int]:
        await asyncio.sleep(0)
        if self.is_down:
            raise ConnectionError
        self.connections.append([len(self.connections)])
        return self.connections[-1]


async def test_callers_at_the_same_time_share_one_connection() -> None:
    server = Server()
    lazy = LazyConnection(server.connect)
    found = await asyncio.gather(*(lazy.get() for _ in range(3)))

    assert all(each is server.connections[0] for each in found)
    assert len(server.connections) == 1


async def test_a_connection_that_is_not_usable_is_replaced() -> None:
    server = Server()
    lazy = LazyConnection(server.connect)
    first = await lazy.get()
    second = await lazy.get(lambda connection: connection is not first)

    assert second is not first


async def test_a_failed_connect_is_tried_again_by_the_next_caller() -> None:
    server = Server()
    lazy = LazyConnection(server.connect)
    server.is_down = True
    with pytest.raises(ConnectionError):
        await lazy.get()
    server.is_down = False

    assert await lazy.get() is server.connections[0]


async def test_a_connection_is_discarded_once() -> None:
    server = Server()
    lazy = LazyConnection(server.connect)
    first = await lazy.get()

    assert (lazy.discard(first), lazy.discard(first)) == (True, False)
    second = await lazy.get()
    assert not lazy.discard(first)
    assert (lazy.take(), lazy.take()) == (second, None)

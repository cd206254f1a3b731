"""Connections to PostgreSQL whose callers go away: none is used again, none is lost, and nothing is left unsaid."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from interlock.stores.postgres import pool
from interlock.stores.postgres.address import parse_address
from interlock.stores.postgres.pool import ConnectionPool
from tests.support.eventually import PATIENCE_SECONDS
from tests.support.postgres_server import store_or_skip

WAIT = "SELECT pg_sleep(20)"


@pytest.fixture
def url() -> str:
    """Where the server is."""
    return store_or_skip()


@pytest.fixture
def untold() -> list[str]:
    """What the event loop would complain about."""
    return []


async def _linked(url: str, untold: list[str]) -> ConnectionPool:
    asyncio.get_running_loop().set_exception_handler(lambda _, facts: untold.append(str(facts["message"])))
    return ConnectionPool(parse_address(url))


async def _waits(link: ConnectionPool, began: asyncio.Event | None = None) -> Any:
    async with link.connection() as connection:
        if began is not None:
            began.set()
        return await connection.fetchval(WAIT)


async def test_a_connection_whose_caller_went_away_is_never_used_again(url: str, untold: list[str]) -> None:
    link = await _linked(url, untold)
    began = asyncio.Event()
    asked = asyncio.ensure_future(_waits(link, began))
    await asyncio.wait_for(began.wait(), PATIENCE_SECONDS)
    (used,) = link._used
    asked.cancel()
    await asyncio.wait({asked})
    async with link.connection() as other:
        answer = await other.fetchval("SELECT 7")
    await link.close()

    assert (7, False, True) == (answer, other is used, used.is_closed())


async def test_a_connection_that_was_being_made_for_somebody_who_went_away_is_for_the_next(
    url: str, untold: list[str]
) -> None:
    kept = 0
    for turns in range(1, 20):
        link = await _linked(url, untold)
        asked = asyncio.ensure_future(_waits(link))
        for _ in range(turns):
            await asyncio.sleep(0)
        asked.cancel()
        await asyncio.wait({asked})
        async with asyncio.timeout(PATIENCE_SECONDS):
            while link._making:
                await asyncio.wait(tuple(link._making))
        await asyncio.sleep(0)  # what is told of its end is done in the next turn
        kept += len(link._idle)
        await link.close()
        gc.collect()

    assert [] == untold
    assert kept > 0


async def test_a_link_that_is_closed_while_a_connection_is_made_lets_go_of_it(url: str, untold: list[str]) -> None:
    link = await _linked(url, untold)
    asked = asyncio.ensure_future(_waits(link))
    while not link._making:  # noqa: ASYNC110 - nobody is told
        await asyncio.sleep(0)
    (made,) = link._making
    asked.cancel()
    await asyncio.wait({asked})
    await asyncio.wait_for(link.close(), PATIENCE_SECONDS)

    assert ([], True) == (link._idle, made.result().is_closed())


class Made:
    """A connection that was made."""

    def is_closed(self) -> bool:
        """It is not."""
        return False

    def add_log_listener(self, heard: object) -> None:
        """It warns of nothing."""

    async def close(self) -> None:
        """Take leave."""


async def test_callers_who_go_away_while_a_server_is_slow_leave_no_more_connections_than_are_allowed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers, made = asyncio.Event(), list[Made]()

    async def connected(_: object) -> Made:
        await answers.wait()
        made.append(Made())
        return made[-1]

    async def use() -> Made:
        async with link.connection() as connection:
            assert isinstance(connection, Made)
            await asyncio.sleep(0)
            return connection

    monkeypatch.setattr(pool, "connect", connected)
    link = ConnectionPool(parse_address("postgresql://nobody@127.0.0.1:1/none?connections=2"))
    for _ in range(10):
        asked = [asyncio.ensure_future(use()) for _ in range(2)]
        for _ in range(5):
            await asyncio.sleep(0)
        for each in asked:
            each.cancel()
        await asyncio.wait(asked)
    last = [asyncio.ensure_future(use()) for _ in range(2)]
    await asyncio.sleep(0)
    answers.set()
    used = {await each for each in last}
    await link.close()

    assert (2, set(made)) == (len(made), used)
    assert [] == link._unclaimed


async def test_a_connection_that_cannot_be_made_is_told_to_whoever_waits_for_it_now(
    monkeypatch: pytest.MonkeyPatch, untold: list[str]
) -> None:
    fails = asyncio.Event()

    async def connected(_: object) -> Made:
        await fails.wait()
        raise ConnectionError("refused")

    monkeypatch.setattr(pool, "connect", connected)
    link = await _linked("postgresql://nobody@127.0.0.1:1/none?connections=2", untold)
    first, second = asyncio.ensure_future(_waits(link)), asyncio.ensure_future(_waits(link))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    for each in (first, second):
        each.cancel()
    await asyncio.wait({first, second})
    third = asyncio.ensure_future(_waits(link))
    await asyncio.sleep(0)
    fails.set()
    with pytest.raises(ConnectionError):
        await third
    await link.close()
    gc.collect()

    assert ([], []) == (untold, link._unclaimed)

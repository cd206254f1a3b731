"""Polling a bus: a cancelled poll leaves no message with a reader that has ended."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest

from interlock.buses.polling import poll_once


class Noting:
    """A message that records that it was requeued."""

    body = b""

    def __init__(self, name: str, noted: list[str]) -> None:
        self.name = name
        self._noted = noted

    async def ack(self) -> None:
        """Not asked for here."""

    async def requeue(self) -> None:
        """Note it."""
        self._noted.append(self.name)

    async def dead_letter(self) -> None:
        """Not asked for here."""


def messages(noted: list[str]) -> list[Noting]:
    """Three of them."""
    return [Noting(name, noted) for name in "abc"]


async def test_messages_of_a_poll_are_yielded_in_order() -> None:
    noted: list[str] = []

    async def question() -> list[Noting]:
        return messages(noted)

    async with aclosing(poll_once(question())) as found:
        assert ["a", "b", "c"] == [each.name async for each in found]
    assert [] == noted


async def test_messages_that_were_not_yielded_are_requeued() -> None:
    noted: list[str] = []

    async def question() -> list[Noting]:
        return messages(noted)

    async with aclosing(poll_once(question())) as found:
        first = await anext(found)

    assert ("a", ["b", "c"]) == (first.name, noted)


async def test_a_cancelled_poll_requeues_its_messages() -> None:
    noted: list[str] = []
    answer = asyncio.Event()

    async def question() -> list[Noting]:
        await answer.wait()
        return messages(noted)

    asking = asyncio.ensure_future(anext(poll_once(question())))
    await asyncio.sleep(0)
    asking.cancel()
    await asyncio.sleep(0)
    answer.set()
    with pytest.raises(asyncio.CancelledError):
        await asking

    assert ["a", "b", "c"] == noted


@pytest.mark.parametrize("stopped", [False, True])
async def test_a_failed_poll_raises_unless_it_was_cancelled(stopped: bool) -> None:
    answer = asyncio.Event()

    async def question() -> list[Noting]:
        await answer.wait()
        raise ConnectionError("gone")

    asking = asyncio.ensure_future(anext(poll_once(question())))
    await asyncio.sleep(0)
    if stopped:
        asking.cancel()
        await asyncio.sleep(0)
    answer.set()
    with pytest.raises(asyncio.CancelledError if stopped else ConnectionError):
        await asking

"""Turns: one at a time per entity, in order, and nothing left behind."""

from __future__ import annotations

import asyncio

import pytest

from interlock.runtime.turns import Busy, Turn


async def test_callers_of_one_entity_take_turns_in_order() -> None:
    """Whoever asks first is served first, and nobody is served beside another."""
    busy: Busy = {}
    told: list[str] = []

    async def step(name: str) -> None:
        async with Turn(busy, "door/1"):
            told.append(f"{name} in")
            await asyncio.sleep(0)
            told.append(f"{name} out")

    await asyncio.gather(*(step(name) for name in "abc"))

    assert ["a in", "a out", "b in", "b out", "c in", "c out"] == told
    assert {} == busy


async def test_entities_do_not_wait_for_each_other() -> None:
    """A turn of one entity is no turn of another."""
    busy: Busy = {}
    async with Turn(busy, "door/1"), asyncio.timeout(5), Turn(busy, "door/2"):
        assert {"door/1", "door/2"} == set(busy)

    assert {} == busy


async def test_an_error_ends_a_turn() -> None:
    """The next caller is served."""
    busy: Busy = {}
    with pytest.raises(ValueError, match="broken"):
        async with Turn(busy, "door/1"):
            raise ValueError("broken")
    async with asyncio.timeout(5), Turn(busy, "door/1"):
        pass

    assert {} == busy


async def test_a_caller_that_gives_up_leaves_the_queue() -> None:
    """Cancelled while it waited: those behind it are served, and the table is empty at the end."""
    busy: Busy = {}
    served: list[int] = []

    async def step(number: int) -> None:
        async with Turn(busy, "door/1"):
            served.append(number)

    async with Turn(busy, "door/1"):
        waiting = [asyncio.create_task(step(number)) for number in range(3)]
        await asyncio.sleep(0)
        waiting[1].cancel()
    await asyncio.gather(*waiting, return_exceptions=True)

    assert [0, 2] == served
    assert waiting[1].cancelled()
    assert {} == busy

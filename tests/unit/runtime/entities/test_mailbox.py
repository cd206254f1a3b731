"""Mailboxes: one caller at a time per entity, in order."""

from __future__ import annotations

import asyncio
import threading

import pytest

from interlock.errors import UnavailableError
from interlock.model.limits import MAILBOX_MAX, SKIPPED_TURNS_MAX, WAITING_MAX, WAITING_SHARE_MAX
from interlock.ports.store import (
    Append,
    AppendResult,
)
from interlock.runtime.entities.mailbox import RETRY_MS_MIN, EntityTurn, Mailboxes, Priority, WaitingCallers
from interlock.stores.memory import MemoryStore
from tests.support.eventually import PATIENCE_SECONDS
from tests.unit.runtime.scene import runtime

WAITING = WaitingCallers(lambda: 0)


class Held(MemoryStore):
    """A memory store whose appends wait for the test."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()
        self.gate.set()

    async def append(self, append: Append) -> AppendResult:
        """As the memory store, when it may."""
        await self.gate.wait()
        return await super().append(append)


async def test_callers_of_one_entity_take_turns_in_order() -> None:
    busy: Mailboxes = {}
    told: list[str] = []

    async def step(name: str) -> None:
        async with EntityTurn(busy, WAITING, "door/1"):
            told.append(f"{name} in")
            await asyncio.sleep(0)
            told.append(f"{name} out")

    await asyncio.gather(*(step(name) for name in "abc"))

    assert ["a in", "a out", "b in", "b out", "c in", "c out"] == told
    assert {} == busy


async def test_entities_do_not_wait_for_each_other() -> None:
    busy: Mailboxes = {}
    async with (
        EntityTurn(busy, WAITING, "door/1"),
        asyncio.timeout(PATIENCE_SECONDS),
        EntityTurn(busy, WAITING, "door/2"),
    ):
        assert {"door/1", "door/2"} == set(busy)

    assert {} == busy


async def test_an_error_ends_a_turn() -> None:
    """The next caller is served."""
    busy: Mailboxes = {}
    with pytest.raises(ValueError, match="broken"):
        async with EntityTurn(busy, WAITING, "door/1"):
            raise ValueError("broken")
    async with asyncio.timeout(PATIENCE_SECONDS), EntityTurn(busy, WAITING, "door/1"):
        pass

    assert {} == busy


async def test_a_cancelled_caller_leaves_the_queue() -> None:
    busy: Mailboxes = {}
    served: list[int] = []

    async def step(number: int) -> None:
        async with EntityTurn(busy, WAITING, "door/1"):
            served.append(number)

    async with EntityTurn(busy, WAITING, "door/1"):
        waiting = [asyncio.create_task(step(number)) for number in range(3)]
        await asyncio.sleep(0)
        waiting[1].cancel()
    await asyncio.gather(*waiting, return_exceptions=True)

    assert [0, 2] == served
    assert waiting[1].cancelled()
    assert {} == busy


def waiting(busy: Mailboxes, served: list[str], *names: str) -> list[asyncio.Task[None]]:
    """Callers that wait in the order given; the level is the first letter: result, send or outside."""
    levels = {"r": Priority.RESULT, "s": Priority.ENTITY, "o": Priority.CALLER}

    async def step(name: str) -> None:
        async with EntityTurn(busy, WAITING, "door/1", levels[name[0]]):
            served.append(name)

    return [asyncio.create_task(step(name)) for name in names]


async def test_results_come_before_events_of_entities_and_those_before_callers() -> None:
    busy: Mailboxes = {}
    served: list[str] = []
    async with EntityTurn(busy, WAITING, "door/1"):
        tasks = waiting(busy, served, "o1", "s1", "r1", "o2", "r2", "s2")
        await asyncio.sleep(0)
    await asyncio.gather(*tasks)

    assert (["r1", "r2", "s1", "s2", "o1", "o2"], {}) == (served, busy)


async def test_no_caller_starves() -> None:
    busy: Mailboxes = {}
    served: list[str] = []

    async def outside() -> None:
        async with EntityTurn(busy, WAITING, "door/1"):
            served.append("outside")

    async def answering(left: int) -> None:
        """Each turn asks for the next one before it ends: some result always waits."""
        following = None
        async with EntityTurn(busy, WAITING, "door/1", Priority.RESULT):
            served.append("result")
            if left:
                following = asyncio.create_task(answering(left - 1))
                await asyncio.sleep(0)
        if following is not None:
            await following

    async with EntityTurn(busy, WAITING, "door/1"):
        waits = [asyncio.create_task(outside()), asyncio.create_task(answering(3 * SKIPPED_TURNS_MAX))]
        await asyncio.sleep(0)
    await asyncio.gather(*waits)

    assert SKIPPED_TURNS_MAX == served.index("outside")
    assert {} == busy


async def test_a_full_mailbox_refuses_callers_but_no_deliveries() -> None:
    busy: Mailboxes = {}
    served: list[str] = []
    async with EntityTurn(busy, WAITING, "door/1"):
        tasks = waiting(busy, served, *(f"o{number}" for number in range(MAILBOX_MAX)))
        await asyncio.sleep(0)
        with pytest.raises(UnavailableError, check=lambda error: error.code == "mailbox.full") as refused:
            async with EntityTurn(busy, WAITING, "door/1"):
                raise AssertionError
        tasks += waiting(busy, served, *(f"s{number}" for number in range(MAILBOX_MAX + 1)), "r1")
        await asyncio.sleep(0)
    await asyncio.gather(*tasks)

    assert "mailbox.full" == refused.value.code
    assert (["r1", "s0", "s1"], 2 * MAILBOX_MAX + 2, {}) == (served[:3], len(served), busy)


async def entered(busy: Mailboxes, callers: WaitingCallers, entity: str, principal: object) -> None:
    """Take one turn."""
    async with EntityTurn(busy, callers, entity, principal=principal):
        pass


async def test_a_principal_has_a_share_of_all_mailboxes_and_others_have_the_rest() -> None:
    busy: Mailboxes = {}
    callers, ada, bob = WaitingCallers(lambda: 0), {"id": "ada"}, {"id": "bob"}
    entities = [f"door/{number}" for number in range(WAITING_MAX // MAILBOX_MAX + 1)]
    turns = [EntityTurn(busy, callers, each) for each in entities]
    for each in turns:
        await each.__aenter__()
    tasks = [
        asyncio.create_task(entered(busy, callers, entities[number % len(entities)], ada))
        for number in range(WAITING_SHARE_MAX)
    ]
    await asyncio.sleep(0)
    with pytest.raises(UnavailableError, check=lambda error: error.code == "mailbox.share"):
        await entered(busy, callers, entities[0], ada)
    tasks.append(asyncio.create_task(entered(busy, callers, entities[0], bob)))
    rest = WAITING_MAX - WAITING_SHARE_MAX - 1
    tasks += [
        asyncio.create_task(entered(busy, callers, entities[number % len(entities)], None)) for number in range(rest)
    ]
    await asyncio.sleep(0)
    with pytest.raises(UnavailableError, check=lambda error: error.code == "mailbox.full"):
        await entered(busy, callers, entities[0], {"id": "cyd"})
    for each in turns:
        await each.__aexit__(None, None, None)
    await asyncio.gather(*tasks)
    async with EntityTurn(busy, callers, "door/0"):
        again = asyncio.create_task(entered(busy, callers, "door/0", ada))
        await asyncio.sleep(0)
    await again

    assert {} == busy


async def test_a_refused_caller_gets_the_time_that_the_others_need() -> None:
    time_ms, served, reached, go_on = 0, 0, asyncio.Event(), asyncio.Event()
    busy: Mailboxes = {}
    callers = WaitingCallers(lambda: time_ms)

    async def slow() -> None:
        nonlocal time_ms, served
        async with EntityTurn(busy, callers, "door/1"):
            time_ms, served = time_ms + 10, served + 1
            if served == 100:
                reached.set()
                await go_on.wait()

    async def refused_after_ms() -> int | None:
        with pytest.raises(UnavailableError) as refused:
            await entered(busy, callers, "door/1", None)
        return refused.value.retry_after_ms

    async with EntityTurn(busy, callers, "door/1"):
        tasks = [asyncio.create_task(slow()) for _ in range(MAILBOX_MAX)]
        await asyncio.sleep(0)
        first_ms = await refused_after_ms()
    await reached.wait()
    tasks += [asyncio.create_task(slow()) for _ in range(100)]
    await asyncio.sleep(0)
    after_ms = await refused_after_ms()
    go_on.set()
    await asyncio.gather(*tasks)

    assert RETRY_MS_MIN == first_ms  # nothing is known yet
    assert after_ms is not None
    assert MAILBOX_MAX * 10 * 0.99 <= after_ms <= MAILBOX_MAX * 10


async def test_a_cancelled_caller_gives_its_place_back() -> None:
    busy: Mailboxes = {}
    callers = WaitingCallers(lambda: 0)
    async with EntityTurn(busy, callers, "door/1"):
        for _ in range(3):
            tasks = [asyncio.create_task(entered(busy, callers, "door/1", {"id": "ada"})) for _ in range(MAILBOX_MAX)]
            await asyncio.sleep(0)
            for each in tasks:
                each.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        last = asyncio.create_task(entered(busy, callers, "door/1", {"id": "ada"}))
        await asyncio.sleep(0)
    await last


async def test_a_caller_cancelled_at_its_turn_passes_it_on() -> None:
    busy: Mailboxes = {}
    served: list[str] = []
    async with EntityTurn(busy, WAITING, "door/1"):
        tasks = waiting(busy, served, "o1", "o2")
        await asyncio.sleep(0)
    tasks[0].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)

    assert (["o2"], {}) == (served, busy)


async def test_a_cancelled_caller_does_not_get_the_turn() -> None:
    busy: Mailboxes = {}
    served: list[str] = []
    async with EntityTurn(busy, WAITING, "door/1"):
        tasks = waiting(busy, served, "o1", "o2")
        await asyncio.sleep(0)
        for each in tasks:
            each.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    async with asyncio.timeout(PATIENCE_SECONDS), EntityTurn(busy, WAITING, "door/1"):
        served.append("after")

    assert (["after"], {}) == (served, busy)


async def test_a_refused_send_can_be_repeated_with_the_same_key() -> None:
    store = Held()
    doors = runtime(store=store)
    await doors.create("door/1")
    store.gate.clear()
    noted = (doors.send("door/1", "noted", {"text": "x"}, key=f"k{each}") for each in range(MAILBOX_MAX + 1))
    sends = [asyncio.create_task(each) for each in noted]
    await asyncio.sleep(0)
    with pytest.raises(UnavailableError, check=lambda error: error.code == "mailbox.full"):
        await doors.send("door/1", "opened", key="mine")
    store.gate.set()
    await asyncio.gather(*sends)
    again = await doors.send("door/1", "opened", key="mine")

    assert "applied" == again.outcome


@pytest.mark.slow
async def test_idle_entities_cost_nothing() -> None:
    """Ten thousand of them were stepped: no turn, no task, no thread is left of any."""
    doors = runtime()
    tasks, threads = len(asyncio.all_tasks()), threading.active_count()
    for start in range(0, 10_000, 1_000):
        entities = [f"door/{number}" for number in range(start, start + 1_000)]
        await asyncio.gather(*(doors.create(each) for each in entities))
        await asyncio.gather(*(doors.send(each, "opened") for each in entities))
    table = doors.entities.mailboxes  # the table that must be empty

    assert ({}, tasks, threads) == (table, len(asyncio.all_tasks()), threading.active_count())

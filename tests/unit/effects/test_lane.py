"""A lane of work: claimed, performed, renewed, settled, drained."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from interlock.effects.lane import Held, LaneLoop
from interlock.errors import UnavailableError
from interlock.model.limits import LOOK_MS_MAX
from interlock.model.work import Lane, Left, Place, Work
from interlock.ports.work import Claim, Settled, WorkPage, WorkQuery
from interlock.stores.work_table import WorkTable
from interlock.testing.clock import VirtualClock

LEASE_MS = 3_000


class TableStore:
    """A work table as a store, which can be out of order."""

    def __init__(self, *works: Work) -> None:
        self.table = WorkTable()
        self.table.keep("order/1", Left(born=works))
        self.broken = False
        self.looks = 0

    def check(self) -> None:
        """Fails while it is out of order."""
        if self.broken:
            raise UnavailableError("out of order", code="store.broken")

    async def claim(
        self, lane: Lane, names: tuple[str, ...] | None, *, owner: str, now_ms: int, until_ms: int, limit: int
    ) -> tuple[Claim, ...]:
        """As the table does."""
        self.looks += 1
        self.check()
        return self.table.claim(lane, names, owner=owner, now_ms=now_ms, until_ms=until_ms, limit=limit)

    async def renew(self, claims: tuple[Claim, ...], *, until_ms: int) -> tuple[Claim | None, ...]:
        """As the table does."""
        self.check()
        return self.table.renew(claims, until_ms=until_ms)

    async def settle(self, settled: tuple[Settled, ...], *, now_ms: int) -> tuple[bool, ...]:
        """As the table does."""
        self.check()
        return self.table.settle(settled, now_ms=now_ms)

    async def soonest(self, lane: Lane, names: tuple[str, ...] | None) -> int | None:
        """As the table does."""
        self.check()
        return self.table.soonest(lane, names)

    async def works(self, query: WorkQuery) -> WorkPage:
        """As the table does."""
        return self.table.works(query)


def work(version: int, *, due_ms: int = 0) -> Work:
    """Work for the handler `charge`."""
    return Work(Place("effect", version, 0), "charge", {}, due_ms)


@asynccontextmanager
async def running(
    store: TableStore,
    perform: Callable[[Held], Awaitable[Settled | None]],
    clock: VirtualClock,
    *,
    side_by_side: int = 4,
) -> AsyncIterator[LaneLoop]:
    """A lane that works until the test is over."""
    loop = LaneLoop(
        store, "effect", perform, clock, owner="w1", running_max=side_by_side, names=("charge",), lease_ms=LEASE_MS
    )
    task = asyncio.ensure_future(loop.run())
    try:
        yield loop
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_due_work_is_performed_and_settled() -> None:
    """Each once."""
    store, clock, seen = TableStore(work(2), work(3)), VirtualClock(), []

    async def perform(held: Held) -> Settled:
        seen.append(held.claim.work.place.version)
        return Settled(held.claim, "done")

    async with running(store, perform, clock):
        await clock.advance()

    assert ([2, 3], ()) == (sorted(seen), store.table.works(WorkQuery()).rows)


async def test_work_is_taken_up_when_it_is_due() -> None:
    """Not at the next look: the loop knows when."""
    clock = VirtualClock(0)
    store, seen = TableStore(work(2, due_ms=300)), []

    async def perform(held: Held) -> Settled:
        seen.append(clock.now_ms())
        return Settled(held.claim, "done")

    async with running(store, perform, clock):
        await clock.advance(LOOK_MS_MAX)

    assert [300] == seen


async def test_work_of_this_process_is_taken_up_at_once() -> None:
    """A signal, no look."""
    clock, store, seen = VirtualClock(0), TableStore(), []

    async def perform(held: Held) -> Settled:
        seen.append(clock.now_ms())
        return Settled(held.claim, "done")

    async with running(store, perform, clock) as loop:
        await clock.advance(10)
        store.table.keep("order/1", Left(born=(work(2),)))
        loop.wake()
        await clock.advance()

    assert [10] == seen


async def test_work_of_another_process_is_found_at_the_next_look() -> None:
    """Within a second."""
    clock, store, seen = VirtualClock(0), TableStore(), []

    async def perform(held: Held) -> Settled:
        seen.append(clock.now_ms())
        return Settled(held.claim, "done")

    async with running(store, perform, clock):
        await clock.advance(10)
        store.table.keep("order/1", Left(born=(work(2),)))
        await clock.advance(LOOK_MS_MAX)

    assert [LOOK_MS_MAX] == seen


async def test_an_idle_lane_looks_once_a_second() -> None:
    """However long nothing happens."""
    clock, store = VirtualClock(0), TableStore()

    async def perform(held: Held) -> Settled | None:
        return None

    async with running(store, perform, clock):
        await clock.advance(60_000)

    assert 60 <= store.looks <= 61


async def test_no_more_work_is_in_hand_than_allowed() -> None:
    """The rest stays in the store, for others too."""
    store, clock, gate = TableStore(*(work(n) for n in range(2, 10))), VirtualClock(), asyncio.Event()
    most = 0

    async def perform(held: Held) -> Settled:
        nonlocal most
        most = max(most, loop.in_hand)
        await gate.wait()
        return Settled(held.claim, "done")

    async with running(store, perform, clock, side_by_side=3) as loop:
        await clock.advance()

        assert 3 == loop.in_hand
        gate.set()
        await clock.advance()

    assert (3, ()) == (most, store.table.works(WorkQuery()).rows)


async def test_work_in_hand_is_renewed() -> None:
    """However long it takes, nobody else gets it."""
    store, clock, gate, begun = TableStore(work(2)), VirtualClock(0), asyncio.Event(), []

    async def perform(held: Held) -> Settled:
        begun.append(held.claim.attempt)
        await gate.wait()
        return Settled(held.claim, "done")

    async with running(store, perform, clock):
        await clock.advance(LEASE_MS * 10)
        gate.set()
        await clock.advance()

    assert ([1], ()) == (begun, store.table.works(WorkQuery()).rows)


async def test_work_that_another_has_is_stopped() -> None:
    """It was paused past its lease; the newer attempt goes on alone."""
    store, clock, stopped = TableStore(work(2)), VirtualClock(0), asyncio.Event()

    async def perform(held: Held) -> Settled:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
        raise AssertionError

    async with running(store, perform, clock):
        await clock.advance()
        store.table.claim("effect", ("charge",), owner="w2", now_ms=10**9, until_ms=2 * 10**9, limit=1)
        await clock.advance(LEASE_MS)

    assert stopped.is_set()
    assert [(2, "w2")] == [(row.attempts, row.owner) for row in store.table.works(WorkQuery()).rows]


async def test_work_that_was_called_off_hears_of_it() -> None:
    """At the next renewal."""
    store, clock, heard = TableStore(work(2)), VirtualClock(0), []

    async def perform(held: Held) -> Settled:
        await held.called_off.wait()
        heard.append(clock.now_ms())
        return Settled(held.claim, "done")

    async with running(store, perform, clock):
        await clock.advance()
        store.table.keep("order/1", Left(cancelled=(Place("effect", 2, 0),)))
        await clock.advance(LEASE_MS)

    assert [LEASE_MS / 3] == heard


async def test_work_called_off_before_it_was_claimed_again_knows_at_once() -> None:
    """Its worker died after the state was left."""
    store, clock, known = TableStore(work(2)), VirtualClock(0), []
    store.table.claim("effect", ("charge",), owner="w0", now_ms=0, until_ms=5, limit=1)
    store.table.keep("order/1", Left(cancelled=(Place("effect", 2, 0),)))

    async def perform(held: Held) -> Settled:
        known.append(held.called_off.is_set())
        return Settled(held.claim, "done")

    async with running(store, perform, clock):
        await clock.advance(10)

    assert [True] == known


async def test_a_store_out_of_order_ends_nothing() -> None:
    """The lane looks again, renews again, and goes on when it can."""
    store, clock, done = TableStore(work(2), work(3, due_ms=LEASE_MS)), VirtualClock(0), []

    async def perform(held: Held) -> Settled:
        await clock.sleep_ms(LEASE_MS / 2)
        done.append(held.claim.work.place.version)
        return Settled(held.claim, "done")

    async with running(store, perform, clock):
        await clock.advance(10)
        store.broken = True
        await clock.advance(LEASE_MS)
        store.broken = False
        await clock.advance(10 * LEASE_MS)

    assert {2, 3} == set(done)
    assert () == store.table.works(WorkQuery()).rows


async def test_an_entity_that_cannot_answer_puts_its_work_off_without_a_failure() -> None:
    """The store was away; the handler is not to blame."""
    store, clock, tries = TableStore(work(2)), VirtualClock(0), []

    async def perform(held: Held) -> Settled:
        tries.append((held.claim.attempt, held.claim.failures))
        if len(tries) == 1:
            raise UnavailableError("away", code="store.away")
        return Settled(held.claim, "done")

    async with running(store, perform, clock):
        await clock.advance(LOOK_MS_MAX)

    assert [(1, 0), (2, 0)] == tries


async def test_draining_lets_work_finish_and_takes_up_no_more() -> None:
    """What is due stays for others."""
    store, clock, gate = TableStore(work(2), work(3, due_ms=50)), VirtualClock(0), asyncio.Event()

    async def perform(held: Held) -> Settled:
        await gate.wait()
        return Settled(held.claim, "done")

    async with running(store, perform, clock) as loop:
        await clock.advance()
        draining = asyncio.ensure_future(loop.drain(1_000))
        await clock.advance(100)
        gate.set()
        await clock.advance()

        assert 0 == await draining
    assert [3] == [row.work.place.version for row in store.table.works(WorkQuery()).rows]


async def test_draining_puts_back_what_does_not_finish() -> None:
    """At once, under its key, without a failure: another may take it up."""
    store, clock = TableStore(work(2)), VirtualClock(0)

    async def perform(held: Held) -> Settled:
        await asyncio.Event().wait()
        raise AssertionError

    async with running(store, perform, clock) as loop:
        await clock.advance()
        draining = asyncio.ensure_future(loop.drain(1_000))
        await clock.advance(1_000)

        assert 1 == await draining
    (row,) = store.table.works(WorkQuery()).rows
    assert (1_000, None, 0) == (row.next_ms, row.owner, row.failures)


async def test_a_store_that_can_be_read_and_not_written_is_not_asked_without_end() -> None:
    """Work is due and cannot be claimed: a full disk. The lane waits as if nothing were due."""
    store, clock = TableStore(work(2)), VirtualClock(0)

    async def refuse(*_: object, **__: object) -> tuple[Claim, ...]:
        store.looks += 1
        raise UnavailableError("full", code="store.full")

    async def perform(held: Held) -> Settled:
        raise AssertionError

    store.claim = refuse  # type: ignore[method-assign]  # only claims fail
    async with running(store, perform, clock):
        await clock.advance(5 * LOOK_MS_MAX)

    assert 7 >= store.looks


class Shut:
    """A door that drains."""

    def __init__(self) -> None:
        self.asked = 0

    def try_enter(self) -> None:
        """No."""
        self.asked += 1


async def test_a_door_that_drains_is_not_asked_without_end() -> None:
    """However much is due behind it."""
    store, clock, door = TableStore(work(2)), VirtualClock(0), Shut()

    async def perform(held: Held) -> Settled:
        raise AssertionError

    loop = LaneLoop(store, "effect", perform, clock, owner="w1", running_max=4, names=("charge",), door=door)
    task = asyncio.ensure_future(loop.run())
    await clock.advance(5 * LOOK_MS_MAX)
    await loop.drain(0)
    await task

    assert 7 >= door.asked


async def test_a_bug_in_what_performs_ends_neither_the_lane_nor_the_work() -> None:
    """It is told with its traceback, and the work is put off without a failure."""
    store, clock, tries = TableStore(work(2)), VirtualClock(0), []

    async def perform(held: Held) -> Settled:
        tries.append(held.claim.failures)
        if len(tries) == 1:
            raise ZeroDivisionError
        return Settled(held.claim, "done")

    async with running(store, perform, clock):
        await clock.advance(LOOK_MS_MAX)

    assert ([0, 0], ()) == (tries, store.table.works(WorkQuery()).rows)

"""A lane of work: claimed, run, renewed, settled, drained."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from interlock.effects.lanes import LaneWorker, RunningWork, StopReport
from interlock.errors import InternalError, RejectedError, UnavailableError
from interlock.model.audit import AuditRow
from interlock.model.journal.work import Lane, Work, WorkDelta, WorkId
from interlock.model.limits import ATTEMPTS_MAX, POLL_MS_MAX, STOP_MS_MAX
from interlock.ports.clock import Clock
from interlock.ports.work import Claim, Settlement, WorkPage, WorkQuery
from interlock.stores.work_table import WorkTable
from interlock.testing.clock import VirtualClock

LEASE_MS = 3_000


class TableStore:
    """A work table as a store, which can be out of order."""

    def __init__(self, *works: Work) -> None:
        self.table = WorkTable()
        self.table.apply("order/1", WorkDelta(created=works))
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

    async def settle(self, settled: tuple[Settlement, ...], *, now_ms: int) -> tuple[bool, ...]:
        """As the table does."""
        self.check()
        return self.table.settle(settled, now_ms=now_ms)

    async def next_due_ms(self, lane: Lane, names: tuple[str, ...] | None) -> int | None:
        """As the table does."""
        self.check()
        return self.table.next_due_ms(lane, names)

    async def list_work(self, query: WorkQuery) -> WorkPage:
        """As the table does."""
        return self.table.list_work(query)

    async def save_details(self, claim: Claim, error: Any) -> bool:
        """As the table does."""
        return self.table.save_details(claim, error)

    async def requeue_dead_letter(
        self, entity: str, work_id: WorkId, *, now_ms: int, audit: AuditRow | None = None
    ) -> bool:
        """No lane asks for it."""
        raise NotImplementedError

    async def requeue(self, settled: Settlement, *, now_ms: int, audit: AuditRow | None = None) -> bool:
        """No lane asks for it."""
        raise NotImplementedError

    async def delete_work(self, entity: str, work_id: WorkId, *, audit: AuditRow | None = None) -> bool:
        """No lane asks for it."""
        raise NotImplementedError


def work(version: int, *, due_ms: int = 0) -> Work:
    """Work for the handler `charge`."""
    return Work(WorkId("effect", version, 0), "charge", {}, due_ms)


@asynccontextmanager
async def running(
    store: TableStore,
    perform: Callable[[RunningWork], Awaitable[Settlement | None]],
    clock: Clock,
    *,
    side_by_side: int = 4,
) -> AsyncIterator[LaneWorker]:
    """A lane that works until the test is over."""
    loop = LaneWorker(
        store, "effect", perform, clock, owner="w1", running_max=side_by_side, names=("charge",), lease_ms=LEASE_MS
    )
    task = asyncio.ensure_future(loop.run())
    try:
        yield loop
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def drained(loop: LaneWorker, timeout_ms: int = 1_000) -> StopReport:
    """Stop a lane and return its report."""
    await loop.stop(timeout_ms)
    return await loop.requeue_unfinished()


async def test_due_work_is_performed_and_settled() -> None:
    """Each once."""
    store, clock, seen = TableStore(work(2), work(3)), VirtualClock(), []

    async def perform(held: RunningWork) -> Settlement:
        seen.append(held.claim.work.id.version)
        return Settlement(held.claim, "done")

    async with running(store, perform, clock):
        await clock.advance()

    assert ([2, 3], ()) == (sorted(seen), store.table.list_work(WorkQuery()).rows)


class CountingStore(TableStore):
    """Records the sizes of settlements; one of several claims that are settled together cannot be stored."""

    def __init__(self, *works: Work, unwritable: int | None = None) -> None:
        super().__init__(*works)
        self.unwritable = unwritable
        self.sizes: list[int] = []

    async def settle(self, settled: tuple[Settlement, ...], *, now_ms: int) -> tuple[bool, ...]:
        """As the table does, all or nothing."""
        self.sizes.append(len(settled))
        if any(each.claim.work.id.version == self.unwritable for each in settled):
            raise InternalError("cannot write", code="store.unwritable")
        return await super().settle(settled, now_ms=now_ms)


async def test_work_that_ends_at_the_same_time_is_settled_by_one_call() -> None:
    store, clock = CountingStore(work(2), work(3), work(4)), VirtualClock()

    async def perform(held: RunningWork) -> Settlement:
        return Settlement(held.claim, "done")

    async with running(store, perform, clock):
        await clock.advance()

    assert ([3], ()) == (store.sizes, store.table.list_work(WorkQuery()).rows)


async def test_a_settlement_that_cannot_be_stored_affects_no_other() -> None:
    store, clock = CountingStore(work(2), work(3), work(4), unwritable=3), VirtualClock()

    async def perform(held: RunningWork) -> Settlement:
        return Settlement(held.claim, "done")

    async with running(store, perform, clock):
        await clock.advance()

    left = store.table.list_work(WorkQuery()).rows
    assert [3] == [each.work.id.version for each in left]


async def test_a_lane_that_stops_waits_for_settlements_under_way() -> None:
    """Its store is closed next: what was handed over must be written by then."""
    store, clock, may_write = TableStore(work(2)), VirtualClock(), asyncio.Event()
    written = store.settle

    async def settle_later(settled: tuple[Settlement, ...], *, now_ms: int) -> tuple[bool, ...]:
        await may_write.wait()
        return await written(settled, now_ms=now_ms)

    async def perform(held: RunningWork) -> Settlement:
        return Settlement(held.claim, "done")

    store.settle = settle_later  # type: ignore[method-assign]  # the double answers late
    async with running(store, perform, clock) as lane:
        await clock.advance()
        stopping = asyncio.ensure_future(drained(lane))
        await clock.advance(1_000)  # the task that waits for its settlement is cancelled
        await clock.advance(STOP_MS_MAX)
        assert not stopping.done()
        may_write.set()
        await stopping

    assert () == store.table.list_work(WorkQuery()).rows


async def test_work_is_claimed_when_it_is_due() -> None:
    clock = VirtualClock(0)
    store, seen = TableStore(work(2, due_ms=300)), []

    async def perform(held: RunningWork) -> Settlement:
        seen.append(clock.now_ms())
        return Settlement(held.claim, "done")

    async with running(store, perform, clock):
        await clock.advance(POLL_MS_MAX)

    assert [300] == seen


async def test_work_of_this_process_is_claimed_immediately() -> None:
    clock, store, seen = VirtualClock(0), TableStore(), []

    async def perform(held: RunningWork) -> Settlement:
        seen.append(clock.now_ms())
        return Settlement(held.claim, "done")

    async with running(store, perform, clock) as loop:
        await clock.advance(10)
        store.table.apply("order/1", WorkDelta(created=(work(2),)))
        loop.wake()
        await clock.advance()

    assert [10] == seen


async def test_work_of_another_process_is_found_at_the_next_poll() -> None:
    clock, store, seen = VirtualClock(0), TableStore(), []

    async def perform(held: RunningWork) -> Settlement:
        seen.append(clock.now_ms())
        return Settlement(held.claim, "done")

    async with running(store, perform, clock):
        await clock.advance(10)
        store.table.apply("order/1", WorkDelta(created=(work(2),)))
        await clock.advance(POLL_MS_MAX)

    assert [POLL_MS_MAX] == seen


async def test_an_idle_lane_polls_once_a_second() -> None:
    clock, store = VirtualClock(0), TableStore()

    async def perform(held: RunningWork) -> Settlement | None:
        return None

    async with running(store, perform, PlainClock(clock)):
        await clock.advance(60_000)

    assert 60 <= store.looks <= 61


class PlainClock:
    """A virtual clock without knowledge of polls."""

    def __init__(self, clock: VirtualClock) -> None:
        self.now_ms, self.sleep_ms, self.jitter, self.token = clock.now_ms, clock.sleep_ms, clock.jitter, clock.token


async def test_no_more_work_runs_than_allowed() -> None:
    store, clock, gate = TableStore(*(work(n) for n in range(2, 10))), VirtualClock(), asyncio.Event()
    most = 0

    async def perform(held: RunningWork) -> Settlement:
        nonlocal most
        most = max(most, loop.running)
        await gate.wait()
        return Settlement(held.claim, "done")

    async with running(store, perform, clock, side_by_side=3) as loop:
        await clock.advance()

        assert 3 == loop.running
        gate.set()
        await clock.advance()

    assert (3, ()) == (most, store.table.list_work(WorkQuery()).rows)


async def test_the_lease_of_running_work_is_renewed() -> None:
    store, clock, gate, started = TableStore(work(2)), VirtualClock(0), asyncio.Event(), []

    async def perform(held: RunningWork) -> Settlement:
        started.append(held.claim.attempt)
        await gate.wait()
        return Settlement(held.claim, "done")

    async with running(store, perform, clock):
        await clock.advance(LEASE_MS * 10)
        gate.set()
        await clock.advance()

    assert ([1], ()) == (started, store.table.list_work(WorkQuery()).rows)


async def test_work_that_another_worker_has_claimed_is_stopped() -> None:
    store, clock, stopped = TableStore(work(2)), VirtualClock(0), asyncio.Event()

    async def perform(held: RunningWork) -> Settlement:
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
    assert [(2, "w2")] == [(row.attempts, row.owner) for row in store.table.list_work(WorkQuery()).rows]


async def test_a_suspended_process_continues_its_work() -> None:
    """Its lease expired and no other worker claimed the work: no second attempt starts."""
    store, clock, started, let = TableStore(work(2)), VirtualClock(0), [], asyncio.Event()

    async def perform(held: RunningWork) -> Settlement:
        first = held.claim
        started.append(first.attempt)
        await let.wait()
        return Settlement(first, "again", clock.now_ms() + 60_000)

    async with running(store, perform, clock) as loop:
        await clock.advance()
        clock.time_ms += 10 * LEASE_MS  # the process was suspended
        loop.wake()
        await clock.advance()
        let.set()
        await clock.advance()

    (row,) = store.table.list_work(WorkQuery()).rows
    assert ([1], 2, 1, None) == (started, row.attempts, row.failures, row.owner)


async def test_work_claimed_again_after_its_settlement_starts_anew() -> None:
    store, clock, started = TableStore(work(2)), VirtualClock(0), []
    settle, told = store.settle, asyncio.Event()

    async def slow(settled: tuple[Settlement, ...], *, now_ms: int) -> tuple[bool, ...]:
        kept = await settle(settled, now_ms=now_ms)
        await told.wait()
        return kept

    async def perform(held: RunningWork) -> Settlement:
        started.append(held.claim.attempt)
        if len(started) == 1:
            return Settlement(held.claim, "again", clock.now_ms(), without_failure=True)
        return Settlement(held.claim, "done")

    store.settle = slow  # type: ignore[method-assign]  # its answer takes a while
    async with running(store, perform, clock):
        await clock.advance(POLL_MS_MAX)
        told.set()
        await clock.advance()

    assert ([1, 2], ()) == (started, store.table.list_work(WorkQuery()).rows)


async def test_cancelled_work_is_notified_at_the_next_renewal() -> None:
    store, clock, heard = TableStore(work(2)), VirtualClock(0), []

    async def perform(held: RunningWork) -> Settlement:
        await held.cancel_requested.wait()
        heard.append(clock.now_ms())
        return Settlement(held.claim, "done")

    async with running(store, perform, clock):
        await clock.advance()
        store.table.apply("order/1", WorkDelta(cancelled=(WorkId("effect", 2, 0),)))
        await clock.advance(LEASE_MS)

    assert [LEASE_MS / 3] == heard


async def test_work_cancelled_before_its_claim_is_notified_immediately() -> None:
    store, clock, known = TableStore(work(2)), VirtualClock(0), []
    store.table.claim("effect", ("charge",), owner="w0", now_ms=0, until_ms=5, limit=1)
    store.table.apply("order/1", WorkDelta(cancelled=(WorkId("effect", 2, 0),)))

    async def perform(held: RunningWork) -> Settlement:
        known.append(held.cancel_requested.is_set())
        return Settlement(held.claim, "done")

    async with running(store, perform, clock):
        await clock.advance(10)

    assert [True] == known


async def test_a_failing_store_does_not_end_the_lane() -> None:
    store, clock, done = TableStore(work(2), work(3, due_ms=LEASE_MS)), VirtualClock(0), []

    async def perform(held: RunningWork) -> Settlement:
        await clock.sleep_ms(LEASE_MS / 2)
        done.append(held.claim.work.id.version)
        return Settlement(held.claim, "done")

    async with running(store, perform, clock):
        await clock.advance(10)
        store.broken = True
        await clock.advance(LEASE_MS)
        store.broken = False
        await clock.advance(10 * LEASE_MS)

    assert {2, 3} == set(done)
    assert () == store.table.list_work(WorkQuery()).rows


async def test_an_entity_that_cannot_answer_puts_its_work_off_without_a_failure() -> None:
    """The store was away; the handler is not to blame."""
    store, clock, tries = TableStore(work(2)), VirtualClock(0), []

    async def perform(held: RunningWork) -> Settlement:
        tries.append((held.claim.attempt, held.claim.failures))
        if len(tries) == 1:
            raise UnavailableError("away", code="store.away")
        return Settlement(held.claim, "done")

    async with running(store, perform, clock):
        await clock.advance(POLL_MS_MAX)

    assert [(1, 0), (2, 0)] == tries


async def test_draining_lets_work_finish_and_claims_no_more() -> None:
    store, clock, gate = TableStore(work(2), work(3, due_ms=50)), VirtualClock(0), asyncio.Event()

    async def perform(held: RunningWork) -> Settlement:
        await gate.wait()
        return Settlement(held.claim, "done")

    async with running(store, perform, clock) as loop:
        await clock.advance()
        draining = asyncio.ensure_future(drained(loop))
        await clock.advance(100)
        gate.set()
        await clock.advance()

        assert StopReport(finished=1) == await draining
    assert [3] == [row.work.id.version for row in store.table.list_work(WorkQuery()).rows]


async def test_draining_requeues_work_that_does_not_finish() -> None:
    """Immediately, under its key, without a failure."""
    store, clock = TableStore(work(2)), VirtualClock(0)

    async def perform(held: RunningWork) -> Settlement:
        await asyncio.Event().wait()
        raise AssertionError

    async with running(store, perform, clock) as loop:
        await clock.advance()
        draining = asyncio.ensure_future(drained(loop))
        await clock.advance(1_000)

        assert StopReport(requeued=1) == await draining
    (row,) = store.table.list_work(WorkQuery()).rows
    assert (1_000, None, 0) == (row.next_ms, row.owner, row.failures)


async def test_a_store_that_can_be_read_and_not_written_is_not_asked_without_end() -> None:
    """Work is due and cannot be claimed, as with a full disk: the lane waits for its next poll."""
    store, clock = TableStore(work(2)), VirtualClock(0)

    async def refuse(*_: object, **__: object) -> tuple[Claim, ...]:
        store.looks += 1
        raise UnavailableError("full", code="store.full")

    async def perform(held: RunningWork) -> Settlement:
        raise AssertionError

    store.claim = refuse  # type: ignore[method-assign]  # only claims fail
    async with running(store, perform, clock):
        await clock.advance(5 * POLL_MS_MAX)

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

    async def perform(held: RunningWork) -> Settlement:
        raise AssertionError

    loop = LaneWorker(store, "effect", perform, clock, owner="w1", running_max=4, names=("charge",), gate=door)
    task = asyncio.ensure_future(loop.run())
    await clock.advance(5 * POLL_MS_MAX)
    await drained(loop, 0)
    await task

    assert 7 >= door.asked


async def test_an_unexpected_error_ends_neither_the_lane_nor_the_work(caplog: pytest.LogCaptureFixture) -> None:
    store, clock, tries = TableStore(work(2)), VirtualClock(0), []

    async def perform(held: RunningWork) -> Settlement:
        tries.append(held.claim.failures)
        if len(tries) == 1:
            raise ZeroDivisionError
        return Settlement(held.claim, "done")

    async with running(store, perform, clock):
        await clock.advance(POLL_MS_MAX)

    assert ([0, 0], (), "order/1/2/0") == (
        tries,
        store.table.list_work(WorkQuery()).rows,
        vars(caplog.records[0])["key"],
    )


async def test_leases_are_renewed_while_the_lane_drains() -> None:
    store, clock, gate = TableStore(work(2)), VirtualClock(0), asyncio.Event()

    async def perform(held: RunningWork) -> Settlement:
        await gate.wait()
        return Settlement(held.claim, "done")

    async with running(store, perform, clock) as loop:
        await clock.advance()
        draining = asyncio.ensure_future(drained(loop, 10 * LEASE_MS))
        await clock.advance(9 * LEASE_MS)
        others = store.table.claim("effect", ("charge",), owner="w2", now_ms=clock.now_ms(), until_ms=10**9, limit=1)
        gate.set()
        await clock.advance()

        assert ((), StopReport(finished=1)) == (others, await draining)


async def test_work_that_cannot_be_stopped_is_not_requeued_while_it_runs() -> None:
    store, clock = TableStore(work(2)), VirtualClock(0)

    async def perform(held: RunningWork) -> Settlement:
        held.start_attempt(asyncio.get_running_loop().create_future())
        await asyncio.Event().wait()
        raise AssertionError

    async with running(store, perform, clock) as loop:
        await clock.advance()
        draining = asyncio.ensure_future(drained(loop, 500))
        await clock.advance(500)

        assert StopReport(still_running=1) == await draining
    (row,) = store.table.list_work(WorkQuery()).rows
    assert ("w1", LEASE_MS) == (row.owner, row.next_ms)


async def test_work_that_ignores_its_cancellation_does_not_block_the_drain() -> None:
    store, clock, gate = TableStore(work(2), work(3)), VirtualClock(0), asyncio.Event()

    async def perform(held: RunningWork) -> Settlement:
        while not gate.is_set():
            try:
                await gate.wait()
            except asyncio.CancelledError:
                if held.claim.work.id.version == 3:
                    raise
        return Settlement(held.claim, "done")

    async with running(store, perform, clock) as loop:
        await clock.advance()
        draining = asyncio.ensure_future(drained(loop))
        await clock.advance(1_000 + STOP_MS_MAX)

        assert StopReport(requeued=1, still_running=1) == await draining
        gate.set()
        await clock.advance()


async def test_details_are_stored_at_renewals_and_when_work_is_requeued() -> None:
    store, clock = DetailStore(work(2)), VirtualClock(0)

    async def perform(held: RunningWork) -> Settlement:
        held.restore({"code": "ConnectionError"})
        held.beat(b'{"page":1}')
        await clock.sleep_ms(LEASE_MS)
        held.beat(b'{"page":2}')
        await asyncio.Event().wait()
        raise AssertionError

    async with running(store, perform, clock) as loop:
        await clock.advance(LEASE_MS - 1)
        first = store.table.list_work(WorkQuery()).rows[0].error
        notes = store.notes
        await clock.advance(1)
        draining = asyncio.ensure_future(drained(loop, 10))
        await clock.advance(10)
        await draining
    (row,) = store.table.list_work(WorkQuery()).rows

    assert ({"code": "ConnectionError", "details": {"page": 1}}, 1) == (first, notes)
    assert ({"code": "ConnectionError", "details": {"page": 2}}, None) == (row.error, row.owner)


class DetailStore(TableStore):
    """A store that keeps details, and counts how often."""

    notes = 0

    async def save_details(self, claim: Claim, error: object) -> bool:
        """As the table does."""
        self.notes += 1
        self.check()
        return self.table.save_details(claim, error)


async def test_details_that_cannot_be_stored_are_stored_at_the_next_renewal() -> None:
    store, clock = DetailStore(work(2)), VirtualClock(0)

    async def perform(held: RunningWork) -> Settlement:
        held.beat(b'"here"')
        await asyncio.Event().wait()
        raise AssertionError

    async def refuse(claim: Claim, error: object) -> bool:
        raise UnavailableError("full", code="store.full")

    async with running(store, perform, clock) as loop:
        store.save_details = refuse  # type: ignore[method-assign]  # for a while
        await clock.advance(LEASE_MS / 3)
        del store.save_details
        await clock.advance(LEASE_MS / 3)
        (row,) = store.table.list_work(WorkQuery()).rows

        assert ({"details": "here"}, 1) == (row.error, loop.running)


@pytest.mark.parametrize(
    ("error", "facts"),
    [
        (KeyError("id"), {"code": "KeyError", "message": "'id'"}),
        (RejectedError("too large", code="snapshot.size"), {"code": "snapshot.size", "message": "too large"}),
    ],
    ids=["a bug", "a step that cannot be kept"],
)
async def test_work_that_always_fails_unexpectedly_becomes_a_dead_letter(error: Exception, facts: object) -> None:
    store, clock = TableStore(work(2)), VirtualClock(0)

    async def perform(held: RunningWork) -> Settlement:
        raise error

    async with running(store, perform, clock):
        await clock.advance(ATTEMPTS_MAX * POLL_MS_MAX)
    (row,) = store.table.list_work(WorkQuery(dead=True)).rows

    assert (ATTEMPTS_MAX, facts) == (row.attempts, row.error)


async def test_due_work_that_is_locked_elsewhere_is_not_claimed_in_a_busy_loop() -> None:
    store, clock = TableStore(work(2)), VirtualClock(0)

    async def none(*_: object, **__: object) -> tuple[Claim, ...]:
        store.looks += 1
        return ()

    async def perform(held: RunningWork) -> Settlement:
        raise AssertionError

    store.claim = none  # type: ignore[method-assign]  # all that is due is locked
    async with running(store, perform, clock):
        await clock.advance(100)

        assert 1 < store.looks <= 11

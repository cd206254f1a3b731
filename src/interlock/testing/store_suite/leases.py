"""Cases of the store suite for a store with leases (`ports.leases.Leases`): names, fences, downtimes.

Rule: a case uses real time and never waits, because a store may use the clock of its server. A lease that must expire
has no length, and a silence that must count as downtime has none either. A wrong clock is a time that the caller
passes: a store that uses its server's clock passes such a case without noticing it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from interlock.model.limits import LEASE_MS_MAX
from interlock.ports.clock import SystemClock
from interlock.ports.leases import Lease, Leases
from interlock.testing.store_suite.subject import StoreSubject, expect

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS
ANY_GAP_MS = -1
"""Even two heartbeats in the same millisecond are this far apart."""


@asynccontextmanager
async def _leases(subject: StoreSubject) -> AsyncIterator[Leases]:
    async with subject.opened() as store:
        if store.leases is None:
            raise AssertionError(f"a {type(store).__name__} has no leases")
        yield store.leases


async def _try_lease(store: Leases, name: str, owner: str, length_ms: int = MINUTE_MS) -> Lease | None:
    now_ms = SystemClock().now_ms()
    return await store.acquire_lease(name, owner=owner, now_ms=now_ms, until_ms=now_ms + length_ms)


async def _lease(store: Leases, name: str, owner: str, length_ms: int = MINUTE_MS) -> Lease:
    lease = await _try_lease(store, name, owner, length_ms)
    if lease is None:
        raise AssertionError(f"{owner} cannot take the free name `{name}`")
    expect((name, owner), (lease.name, lease.owner), "the lease")
    return lease


async def a_lease_has_one_owner(subject: StoreSubject) -> None:
    """While one owner has a name, another gets nothing; other names are free; a renewal keeps the fence."""
    async with _leases(subject) as store:
        first = await _lease(store, "one", "ada")
        expect(None, await _try_lease(store, "one", "bob"))
        await _lease(store, "two", "bob")
        longer = await _lease(store, "one", "ada", 2 * MINUTE_MS)
        expect(first.fence, longer.fence, "the fence of a lease that is held longer")
        expect(True, longer.until_ms > first.until_ms, "a lease held longer ends later")
        expect(None, await _try_lease(store, "one", "bob"))


async def an_expired_lease_changes_owner_and_its_fence_increases(subject: StoreSubject) -> None:
    """When a lease expires, another owner can take it, and the previous owner cannot release it."""
    async with _leases(subject) as store:
        lapsed = await _lease(store, "one", "ada", 0)
        taken = await _lease(store, "one", "bob")
        expect(True, taken.fence > lapsed.fence, "the fence rises")
        expect(None, await _try_lease(store, "one", "ada"))
        expect(False, await store.release_lease(lapsed), "an expired lease cannot be released")
        expect(None, await _try_lease(store, "one", "ada"), "the new owner still has it")


async def a_released_lease_is_free_immediately(subject: StoreSubject) -> None:
    """The fence continues to increase, so that the fence of a former owner never becomes valid again."""
    async with _leases(subject) as store:
        first = await _lease(store, "one", "ada")
        expect(True, await store.release_lease(first))
        expect(False, await store.release_lease(first), "it was released before")
        second = await _lease(store, "one", "bob")
        expect(True, second.fence > first.fence, "the fence rises")
        expect(True, await store.release_lease(second))
        third = await _lease(store, "one", "ada")
        expect(True, third.fence > second.fence, "also for one who held it before")


async def only_its_owner_releases_a_lease(subject: StoreSubject) -> None:
    """By owner and fence; anything else changes nothing."""
    async with _leases(subject) as store:
        held = await _lease(store, "one", "ada")
        expect(False, await store.release_lease(Lease("one", "bob", held.fence, held.until_ms)))
        expect(False, await store.release_lease(Lease("one", "ada", held.fence + 1, held.until_ms)))
        expect(False, await store.release_lease(Lease("none", "ada", 1, held.until_ms)))
        expect(None, await _try_lease(store, "one", "bob"))


async def a_lease_from_a_clock_that_was_ahead_can_be_acquired(subject: StoreSubject) -> None:
    """It ends later than any lease can, so it is invalid; another owner takes it, and the fence rises."""
    async with _leases(subject) as store:
        ahead_ms = SystemClock().now_ms() + DAY_MS
        wrong = await store.acquire_lease("one", owner="ada", now_ms=ahead_ms, until_ms=ahead_ms)
        if wrong is None:
            raise AssertionError("ada cannot take the free name `one`")
        taken = await _lease(store, "one", "bob")
        expect(True, taken.fence > wrong.fence, "the fence rises")
        expect(False, await store.release_lease(wrong), "an expired lease cannot be released")
        expect(None, await _try_lease(store, "one", "ada"))


async def a_lease_of_the_full_length_is_held(subject: StoreSubject) -> None:
    """A lease of the maximum length is not taken before its end."""
    async with _leases(subject) as store:
        first = await _lease(store, "one", "ada", LEASE_MS_MAX)
        expect(None, await _try_lease(store, "one", "bob"))
        expect(first.fence, (await _lease(store, "one", "ada", LEASE_MS_MAX)).fence)


async def heartbeats_from_the_future_are_ignored(subject: StoreSubject) -> None:
    """A clock was ahead and is correct again: after the correction, silence is detected as before."""
    async with _leases(subject) as store:
        now_ms = SystemClock().now_ms()
        await store.record_heartbeat(now_ms=now_ms, gap_ms=MINUTE_MS)
        await store.record_heartbeat(now_ms=now_ms + DAY_MS, gap_ms=MINUTE_MS)
        found = await store.record_heartbeat(now_ms=now_ms, gap_ms=MINUTE_MS)
        if found is not None:  # a store that goes by its server's clock has noticed nothing
            expect(True, found.started_ms > found.ended_ms, "the answer says that the last sign is in the future")
        await store.correct_clock(now_ms=now_ms)
        expect(None, await store.record_heartbeat(now_ms=now_ms + 1, gap_ms=MINUTE_MS))
        gap = await store.record_heartbeat(now_ms=now_ms + 2, gap_ms=ANY_GAP_MS)
        if gap is None:
            raise AssertionError("silence is not detected after a clock was ahead")
        expect(True, gap.started_ms <= gap.ended_ms <= now_ms + HOUR_MS, "it is of now")
        expect((), await store.downtimes(since_ms=now_ms + HOUR_MS), "downtimes in the future")


async def one_of_several_rivals_acquires_a_lease(subject: StoreSubject) -> None:
    """Of many owners at the same time one gets it, all others get nothing."""
    async with _leases(subject) as store:
        found = await asyncio.gather(*(_try_lease(store, "one", f"rival{each}") for each in range(8)))
        expect(1, sum(each is not None for each in found), "the winners")


async def regular_heartbeats_are_not_downtime(subject: StoreSubject) -> None:
    """The time before the first heartbeat is unknown."""
    async with _leases(subject) as store:
        for _ in range(3):
            expect(None, await store.record_heartbeat(now_ms=SystemClock().now_ms(), gap_ms=MINUTE_MS))
        expect((), await store.downtimes(since_ms=0))


async def downtime_is_detected_and_stored(subject: StoreSubject) -> None:
    """The first heartbeat after it returns it, and later queries find it by its end."""
    async with _leases(subject) as store:
        began_ms = SystemClock().now_ms()
        expect(None, await store.record_heartbeat(now_ms=began_ms, gap_ms=MINUTE_MS))
        gap = await store.record_heartbeat(now_ms=began_ms + 5, gap_ms=ANY_GAP_MS)
        if gap is None:
            raise AssertionError("silence was not detected")
        expect(True, gap.started_ms <= gap.ended_ms, "it ends after it starts")
        expect((gap,), await store.downtimes(since_ms=gap.ended_ms - 1))
        expect((), await store.downtimes(since_ms=gap.ended_ms), "downtimes that ended after their end")


async def leases_and_downtimes_survive_a_handle(subject: StoreSubject) -> None:
    """They are durable: a process that ends releases nothing."""
    async with _leases(subject) as store:
        held = await _lease(store, "one", "ada")
        await store.record_heartbeat(now_ms=SystemClock().now_ms(), gap_ms=MINUTE_MS)
        gap = await store.record_heartbeat(now_ms=SystemClock().now_ms(), gap_ms=ANY_GAP_MS)
    async with _leases(subject) as store:
        expect(None, await _try_lease(store, "one", "bob"))
        expect(True, await store.release_lease(held))
        expect((gap,), await store.downtimes(since_ms=0))


async def two_handles_see_one_owner(subject: StoreSubject) -> None:
    """A lease is valid for every handle of the store."""
    async with _leases(subject) as one, _leases(subject) as two:
        found = await asyncio.gather(*(_try_lease(each, "one", name) for each, name in ((one, "ada"), (two, "bob"))))
        (winner,) = [each for each in found if each is not None]
        loser = "bob" if winner.owner == "ada" else "ada"
        for store in (one, two):
            expect(None, await _try_lease(store, "one", loser))
            expect(winner.fence, (await _lease(store, "one", winner.owner)).fence)


CASES = (
    a_lease_has_one_owner,
    an_expired_lease_changes_owner_and_its_fence_increases,
    a_released_lease_is_free_immediately,
    only_its_owner_releases_a_lease,
    a_lease_from_a_clock_that_was_ahead_can_be_acquired,
    a_lease_of_the_full_length_is_held,
    one_of_several_rivals_acquires_a_lease,
    regular_heartbeats_are_not_downtime,
    downtime_is_detected_and_stored,
    heartbeats_from_the_future_are_ignored,
)
DURABLE = (leases_and_downtimes_survive_a_handle,)
SHARED = (two_handles_see_one_owner,)

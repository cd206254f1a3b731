"""The cases of leases on the stores that keep them, and what only a store by the driver's clock can be asked."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest

from interlock.model.limits import CLOCK_AHEAD_MS_MAX, LEASE_MS_MAX
from interlock.ports.leases import Downtime, Lease, Leases
from interlock.stores import lease_table, memory
from interlock.stores.files import store as files
from interlock.stores.sqlite import statements as sqlite_statements
from interlock.stores.sqlite import store as sqlite
from interlock.testing.store_suite.suite import Case, StoreSubject, lease_cases
from tests.conformance.stores.test_store_suite import opened_postgres
from tests.support.postgres_server import store_or_skip

ALL = lease_cases(durable=True, shared=True)


def _named(case: Case) -> str:
    return getattr(case, "__name__", repr(case))


@pytest.mark.parametrize("case", lease_cases(durable=False, shared=False), ids=_named)
async def test_the_memory_store_leases(case: Case) -> None:
    await case(StoreSubject(open=partial(memory.open_store, "memory:")))


@pytest.mark.parametrize("case", ALL, ids=_named)
async def test_the_sqlite_store_leases(case: Case, tmp_path: Path) -> None:
    await case(StoreSubject(open=partial(sqlite.open_store, f"sqlite:///{tmp_path}/x.db")))


@pytest.mark.parametrize("case", ALL, ids=_named)
async def test_the_file_store_leases(case: Case, tmp_path: Path) -> None:
    await case(StoreSubject(open=partial(files.open_store, f"file://{tmp_path}/x")))


@pytest.mark.parametrize("case", ALL, ids=_named)
async def test_the_postgres_store_leases(case: Case) -> None:
    await case(StoreSubject(open=partial(opened_postgres, store_or_skip())))


async def test_a_store_without_leases_fails_the_suite() -> None:
    class Narrow(memory.MemoryStore):
        leases = None  # type: ignore[assignment]  # the point

    with pytest.raises(AssertionError, match="has no leases"):
        await ALL[0](StoreSubject(open=Narrow))


class Steals(memory.MemoryStore):
    """Gives a name to whoever asks."""

    async def lease(self, name: str, *, owner: str, now_ms: int, until_ms: int) -> Lease | None:
        return await super().lease(name, owner=owner, now_ms=until_ms + 10**9, until_ms=until_ms)


class NeverLapses(memory.MemoryStore):
    """Keeps a name with whoever had it first."""

    async def lease(self, name: str, *, owner: str, now_ms: int, until_ms: int) -> Lease | None:
        return await super().lease(name, owner=owner, now_ms=0, until_ms=max(1, until_ms))


class ForgetsFences(memory.MemoryStore):
    """Begins anew with a name that was given back."""

    async def give_back(self, lease: Lease) -> bool:
        given = await super().give_back(lease)
        if given:
            del self._leases._leases[lease.name]
        return given


class GivesBackAnybodys(memory.MemoryStore):
    """Looks at the name only."""

    async def give_back(self, lease: Lease) -> bool:
        held = self._leases._leases.get(lease.name)
        return held is not None and await super().give_back(held)


class RaisesFencesForNothing(memory.MemoryStore):
    """Takes holding on for changing hands."""

    async def lease(self, name: str, *, owner: str, now_ms: int, until_ms: int) -> Lease | None:
        held = await super().lease(name, owner=owner, now_ms=now_ms, until_ms=until_ms)
        if held is None:
            return None
        self._leases._leases[name] = Lease(name, owner, held.fence + 1, until_ms)
        return self._leases._leases[name]


class Forgetful(memory.MemoryStore):
    """Notices downtime, and does not keep it."""

    async def downtimes(self, *, since_ms: int) -> tuple[Downtime, ...]:
        return ()


class Anxious(memory.MemoryStore):
    """Takes every pause for downtime."""

    async def alive(self, *, now_ms: int, gap_ms: int) -> Downtime | None:
        return await super().alive(now_ms=now_ms, gap_ms=-1)


class BelievesEveryLease(memory.MemoryStore):
    """Waits for the end of a lease that was taken under a wrong clock."""

    async def lease(self, name: str, *, owner: str, now_ms: int, until_ms: int) -> Lease | None:
        held = self._leases._leases.get(name)
        if held is not None and held.owner != owner and held.until_ms > now_ms:
            return None
        return await super().lease(name, owner=owner, now_ms=now_ms, until_ms=until_ms)


class CutsLongLeases(memory.MemoryStore):
    """Takes a lease of the full length for one from the future."""

    async def lease(self, name: str, *, owner: str, now_ms: int, until_ms: int) -> Lease | None:
        held = self._leases._leases.get(name)
        if held is not None and held.until_ms > now_ms + 60_000:
            await self.give_back(held)
        return await super().lease(name, owner=owner, now_ms=now_ms, until_ms=until_ms)


class BelievesTheFuture(memory.MemoryStore):
    """Notes no sign of life until the clock has caught up with the last one."""

    async def correct_clock(self, *, now_ms: int) -> None:
        """Nothing is put right."""


@pytest.mark.parametrize(
    "faulty",
    [
        Steals,
        NeverLapses,
        ForgetsFences,
        GivesBackAnybodys,
        RaisesFencesForNothing,
        Forgetful,
        Anxious,
        BelievesEveryLease,
        CutsLongLeases,
        BelievesTheFuture,
    ],
)
async def test_the_suite_finds_the_fault(faulty: type[memory.MemoryStore]) -> None:
    found = []
    for case in lease_cases(durable=False, shared=False):
        try:
            await case(StoreSubject(open=faulty))
        except AssertionError:
            found.append(_named(case))

    assert [] != found


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Leases]:
    """A store that goes by the driver's clock."""
    opened: memory.MemoryStore | sqlite.SqliteStore
    opened = (
        memory.open_store("memory:")
        if request.param == "memory"
        else sqlite.open_store(f"sqlite:///{tmp_path}/leases.db")
    )
    yield opened
    await opened.close()


async def test_a_lease_ends_at_its_time_and_not_before(store: Leases) -> None:
    await store.lease("one", owner="ada", now_ms=1_000, until_ms=2_000)

    assert None is await store.lease("one", owner="bob", now_ms=1_999, until_ms=3_000)
    taken = await store.lease("one", owner="bob", now_ms=2_000, until_ms=3_000)
    assert (2, 3_000) == (taken and taken.fence, taken and taken.until_ms)


async def test_a_clock_that_goes_back_takes_nothing_from_its_holder(store: Leases) -> None:
    await store.lease("one", owner="ada", now_ms=10_000, until_ms=11_000)

    assert None is await store.lease("one", owner="bob", now_ms=10, until_ms=20)


async def test_a_lease_that_ends_later_than_any_can_is_not_valid(store: Leases) -> None:
    """One millisecond beyond the longest one: its clock was ahead. One that is just as long is held."""
    await store.lease("one", owner="ada", now_ms=0, until_ms=LEASE_MS_MAX + 1_000)

    assert None is await store.lease("one", owner="bob", now_ms=1_000, until_ms=2_000)
    taken = await store.lease("one", owner="bob", now_ms=999, until_ms=2_000)
    assert ("bob", 2) == (taken and taken.owner, taken and taken.fence)


async def test_a_sign_of_life_in_the_future_is_told_until_it_is_put_right(store: Leases) -> None:
    await store.alive(now_ms=1_000, gap_ms=30)
    await store.alive(now_ms=1_000_000, gap_ms=30)

    assert None is await store.alive(now_ms=1_000_000 - CLOCK_AHEAD_MS_MAX, gap_ms=30)
    for _ in range(2):
        assert Downtime(1_000_000, 2_000) == await store.alive(now_ms=2_000, gap_ms=30)
    await store.correct_clock(now_ms=2_000)
    assert (None, Downtime(2_000, 2_100)) == (
        await store.alive(now_ms=2_000, gap_ms=30),
        await store.alive(now_ms=2_100, gap_ms=30),
    )
    assert (Downtime(2_000, 2_100),) == await store.downtimes(since_ms=0)


async def test_downtime_is_more_silence_than_allowed(store: Leases) -> None:
    await store.alive(now_ms=1_000, gap_ms=30)

    assert None is await store.alive(now_ms=1_030, gap_ms=30)
    assert Downtime(1_030, 1_061) == await store.alive(now_ms=1_061, gap_ms=30)
    assert (Downtime(1_030, 1_061),) == await store.downtimes(since_ms=1_060)


async def test_a_clock_that_goes_back_and_forth_makes_no_downtime(store: Leases) -> None:
    await store.alive(now_ms=10_000, gap_ms=30)

    assert None is await store.alive(now_ms=5_000, gap_ms=30)
    assert None is await store.alive(now_ms=10_030, gap_ms=30)
    assert () == await store.downtimes(since_ms=0)


async def test_old_downtimes_are_forgotten(store: Leases, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (lease_table, sqlite_statements):
        monkeypatch.setattr(module, "DOWNTIMES_MAX", 3)
    for time_ms in range(0, 60, 10):
        await store.alive(now_ms=time_ms, gap_ms=5)

    assert [30, 40, 50] == [each.ended_ms for each in await store.downtimes(since_ms=0)]


async def test_tenants_hold_names_of_their_own(tmp_path: Path) -> None:
    one = sqlite.open_store(f"sqlite:///{tmp_path}/x.db?tenant=one")
    two = sqlite.open_store(f"sqlite:///{tmp_path}/x.db?tenant=two")
    for each in (one, two):
        lease = await each.lease("name", owner="ada" if each is one else "bob", now_ms=0, until_ms=1_000)
        await each.alive(now_ms=0, gap_ms=5)
        await each.alive(now_ms=10 if each is one else 1, gap_ms=5)
        assert 1 == (lease and lease.fence)

    assert (1, 0) == (len(await one.downtimes(since_ms=0)), len(await two.downtimes(since_ms=0)))
    await one.close()
    await two.close()

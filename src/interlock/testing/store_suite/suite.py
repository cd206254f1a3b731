"""What every store must keep: one suite, run on ours and open to yours.

A store is done when every case passes. A case is a plain coroutine function over a `StoreSubject`; with pytest:

    @pytest.mark.parametrize("case", store_cases(durable=True, shared=True), ids=lambda case: case.__name__)
    async def test_my_store(case, tmp_path):
        await case(StoreSubject(open=partial(open_store, f"mine:///{tmp_path}/x")))

Rule 1: a case uses nothing but the port (`ports.store.Store`) and raises AssertionError with what it expected.
Rule 2: `store_cases` leaves out a case that a store cannot be asked (`durable`, `shared`); it never passes silently.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from interlock.testing.store_suite import appends, concurrency, leases, queries, statistics
from interlock.testing.store_suite.subject import StoreSubject

__all__ = ("CASES", "StoreSubject", "lease_cases", "statistics_cases", "store_cases")

Case = Callable[[StoreSubject], Awaitable[None]]

_ALWAYS: tuple[Case, ...] = (*appends.CASES, *queries.CASES, *concurrency.CASES)
_DURABLE: tuple[Case, ...] = appends.DURABLE
_SHARED: tuple[Case, ...] = concurrency.SHARED

CASES: tuple[Case, ...] = (*_ALWAYS, *_DURABLE, *_SHARED)
"""Every case, for a store that keeps its journals when closed and lets several processes in."""


def store_cases(*, durable: bool, shared: bool) -> tuple[Case, ...]:
    """The cases that a store can be asked: with re-opening only if it is durable, by several handles only if shared."""
    return (*_ALWAYS, *(_DURABLE if durable else ()), *(_SHARED if shared else ()))


def lease_cases(*, durable: bool, shared: bool) -> tuple[Case, ...]:
    """The cases for a store that also keeps leases and downtimes (`ports.lease.LeaseStore`); others are not asked."""
    asked = (*(leases.DURABLE if durable else ()), *(leases.SHARED if shared else ()))
    return (*leases.CASES, *asked)


def statistics_cases() -> tuple[Case, ...]:
    """The cases for a store that keeps statistics (`ports.statistics`); others are not asked."""
    return statistics.CASES

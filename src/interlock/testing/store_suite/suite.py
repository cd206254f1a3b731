"""The suite that every store must pass, ours and yours.

A case is a coroutine function that takes a `StoreSubject`; with pytest:

    @pytest.mark.parametrize("case", store_cases(durable=True, shared=True), ids=lambda case: case.__name__)
    async def test_my_store(case, tmp_path):
        await case(StoreSubject(open=partial(open_store, f"mine:///{tmp_path}/x")))

Rule 1: a case uses only the port (`ports.store.Store`) and raises AssertionError with what it expected.
Rule 2: `store_cases` omits cases that do not apply (`durable`, `shared`); no case passes without testing something.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from interlock.testing.store_suite import (
    appends,
    audit,
    concurrency,
    data_keys,
    definitions,
    feed,
    fields,
    leases,
    queries,
    retention,
    statistics,
)
from interlock.testing.store_suite.subject import StoreSubject

__all__ = (
    "CASES",
    "StoreSubject",
    "audit_cases",
    "data_key_cases",
    "definition_cases",
    "feed_cases",
    "field_cases",
    "lease_cases",
    "retention_cases",
    "statistics_cases",
    "store_cases",
)

Case = Callable[[StoreSubject], Awaitable[None]]

_ALWAYS: tuple[Case, ...] = (*appends.CASES, *queries.CASES, *concurrency.CASES)
_DURABLE: tuple[Case, ...] = appends.DURABLE
_SHARED: tuple[Case, ...] = concurrency.SHARED

CASES: tuple[Case, ...] = (*_ALWAYS, *_DURABLE, *_SHARED)
"""Every case, for a store that is durable and shared by several processes."""


def store_cases(*, durable: bool, shared: bool) -> tuple[Case, ...]:
    """Return the cases for a store; cases that reopen it only if durable, with several handles only if shared."""
    return (*_ALWAYS, *(_DURABLE if durable else ()), *(_SHARED if shared else ()))


def audit_cases(*, durable: bool, shared: bool) -> tuple[Case, ...]:
    """Return the cases for a store with an audit (`ports.audit.AuditLog`)."""
    more = (*(audit.DURABLE if durable else ()), *(audit.SHARED if shared else ()))
    return (*audit.CASES, *more)


def definition_cases(*, durable: bool, shared: bool) -> tuple[Case, ...]:
    """Return the cases for a store that keeps definitions (`ports.definitions.Definitions`)."""
    more = (*(definitions.DURABLE if durable else ()), *(definitions.SHARED if shared else ()))
    return (*definitions.CASES, *more)


def data_key_cases(*, durable: bool, shared: bool) -> tuple[Case, ...]:
    """Return the cases for a store that keeps data keys (`ports.data_keys.DataKeys`)."""
    more = (*(data_keys.DURABLE if durable else ()), *(data_keys.SHARED if shared else ()))
    return (*data_keys.CASES, *more)


def lease_cases(*, durable: bool, shared: bool) -> tuple[Case, ...]:
    """Return the cases for a store with leases and downtimes (`ports.leases.Leases`)."""
    more = (*(leases.DURABLE if durable else ()), *(leases.SHARED if shared else ()))
    return (*leases.CASES, *more)


def feed_cases(*, durable: bool, shared: bool) -> tuple[Case, ...]:
    """Return the cases for a store with a feed of all entries (`ports.journal_feed.JournalFeed`)."""
    more = (*(feed.DURABLE if durable else ()), *(feed.SHARED if shared else ()))
    return (*feed.CASES, *more)


def field_cases(*, shared: bool) -> tuple[Case, ...]:
    """Return the cases for a store with indexes on context fields (`ports.field_indexes.FieldIndexes`)."""
    return (*fields.CASES, *(fields.SHARED if shared else ()))


def retention_cases(*, durable: bool, shared: bool) -> tuple[Case, ...]:
    """Return the cases for a store that removes entities and journals (`ports.retention.Retention`)."""
    more = (*(retention.DURABLE if durable else ()), *(retention.SHARED if shared else ()))
    return (*retention.CASES, *more)


def statistics_cases() -> tuple[Case, ...]:
    """Return the cases for a store with counters (`ports.statistics.Statistics`)."""
    return statistics.CASES

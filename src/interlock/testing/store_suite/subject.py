"""The store under test: how it is opened, and the questions that many cases ask."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from interlock.errors import InterlockError
from interlock.model.journal.record import JournalRecord, chain_start, decode_record
from interlock.model.snapshot import Snapshot
from interlock.ports.clock import SystemClock
from interlock.ports.store import Append, Appended, EntityPage, EntityQuery, EntityRow, Loaded, Store
from interlock.runtime.charts.revisions import Revisions
from interlock.runtime.history.replay import replay
from interlock.testing.store_suite.samples import charts

PAGES_MAX = 10_000
"""Pages of a list before it counts as endless."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSubject:
    """A store under test, empty at first. `open` blocks; each call returns a handle of the same store.

    If several processes share the store, `open` must be picklable, such as a `functools.partial`.
    """

    open: Callable[[], Store]

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Store]:
        """Open a handle; it is closed at the end of the block."""
        store = await asyncio.to_thread(self.open)
        try:
            yield store
        finally:
            await store.close()


def expect(expected: Any, actual: Any, what: str = "") -> None:
    """Raise AssertionError with both values unless they are equal; also under `python -O`."""
    if expected != actual:
        raise AssertionError(f"{what or 'the answer'}: expected {expected!r}, got {actual!r}")


async def expect_error(error: type[InterlockError], call: Any, what: str = "") -> None:
    """Raise AssertionError unless the awaitable raises exactly this class of error."""
    try:
        answer = await call
    except InterlockError as raised:
        expect(error, type(raised), what or "the error")
        return
    raise AssertionError(f"{what or 'the call'}: expected {error.__name__}, got {answer!r}")


async def append_all(store: Store, *appends: Append) -> None:
    """Append all of these; each must be new."""
    for append in appends:
        answer = await store.append(append)
        expect((Appended, append.entry.version), (type(answer), answer.version), f"append {append.entry.key}")


async def journal(store: Store, entity: str) -> tuple[JournalRecord, ...]:
    """Return the whole journal, read page by page, after verifying its chain."""
    records: list[JournalRecord] = []
    while page := await store.read(entity, after=len(records)):
        records += page
    previous = chain_start(entity)
    for version, record in enumerate(records, start=1):
        expect(record, decode_record(record.line, previous=previous, version=version), f"record {version}")
        previous = record.head
    return tuple(records)


async def snapshot(store: Store, entity: str) -> Snapshot:
    """Return the entity: the snapshot of the store with its later records replayed."""
    found = await store.load(entity)
    expect(Loaded, type(found), f"load of {entity}")
    assert isinstance(found, Loaded)
    kinds = Revisions(charts(entity.partition("/")[0]), store, SystemClock())
    now = await replay(kinds, entity, found.snapshot, (each.entry for each in found.records))
    if now is None:
        raise AssertionError(f"{entity} is loaded without snapshot and records")
    expect(found.version, now.version, f"version of {entity}")
    return now


async def list_all(store: Store, query: EntityQuery) -> list[EntityRow]:
    """Return all rows of a query, read page by page."""
    rows: list[EntityRow] = []
    for _ in range(PAGES_MAX):
        page: EntityPage = await store.find(query)
        expect(True, len(page.rows) <= query.limit, f"{len(page.rows)} rows in a page of {query.limit}")
        rows += page.rows
        if page.after is None:
            return rows
        query = EntityQuery(**{name: getattr(query, name) for name in query.__struct_fields__} | {"after": page.after})
    raise AssertionError(f"{query} does not end")

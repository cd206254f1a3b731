"""The store under test: how it is opened, and the few questions that many cases ask of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from interlock.errors import InterlockError
from interlock.model.journal.record import JournalRecord, chain_start, decode_record
from interlock.model.snapshot import Snapshot
from interlock.ports.store import Append, Appended, EntityPage, EntityQuery, EntityRow, Loaded, Store
from interlock.runtime.history.replay import replay
from interlock.testing.store_suite.samples import charts

PAGES_MAX = 10_000
"""Pages that a walk over a list takes before it counts as endless."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSubject:
    """A place that a store is opened on, empty at first. `open` blocks; each call gives a handle on the same place.

    Where several processes may share the place, `open` must survive pickling (a `functools.partial` does).
    """

    open: Callable[[], Store]

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Store]:
        """A handle, closed in the end."""
        store = await asyncio.to_thread(self.open)
        try:
            yield store
        finally:
            await store.close()


def expect(expected: Any, actual: Any, what: str = "") -> None:
    """Raises AssertionError with both values unless they are equal; holds under `python -O` too."""
    if expected != actual:
        raise AssertionError(f"{what or 'the answer'}: expected {expected!r}, got {actual!r}")


async def expect_error(error: type[InterlockError], call: Any, what: str = "") -> None:
    """Raises AssertionError unless the awaitable raises exactly this class of error."""
    try:
        answer = await call
    except InterlockError as raised:
        expect(error, type(raised), what or "the error")
        return
    raise AssertionError(f"{what or 'the call'}: expected {error.__name__}, got {answer!r}")


async def kept(store: Store, *appends: Append) -> None:
    """Append all of these, each of which must be new."""
    for append in appends:
        answer = await store.append(append)
        expect((Appended, append.entry.version), (type(answer), answer.version), f"append {append.entry.key}")


async def journal(store: Store, entity: str) -> tuple[JournalRecord, ...]:
    """The whole journal, page by page, its chain verified here once more."""
    records: list[JournalRecord] = []
    while page := await store.read(entity, after=len(records)):
        records += page
    previous = chain_start(entity)
    for version, record in enumerate(records, start=1):
        expect(record, decode_record(record.line, previous=previous, version=version), f"record {version}")
        previous = record.head
    return tuple(records)


async def snapshot(store: Store, entity: str) -> Snapshot:
    """The entity as it is: what the store has, with the records it gives replayed on it."""
    found = await store.load(entity)
    expect(Loaded, type(found), f"load of {entity}")
    assert isinstance(found, Loaded)
    kinds = charts(entity.partition("/")[0])
    now = replay(kinds, entity, found.snapshot, (each.entry for each in found.records))
    if now is None:
        raise AssertionError(f"{entity} is loaded without snapshot and records")
    expect(found.version, now.version, f"version of {entity}")
    return now


async def listed(store: Store, query: EntityQuery) -> list[EntityRow]:
    """All rows of a query, page by page."""
    rows: list[EntityRow] = []
    for _ in range(PAGES_MAX):
        page: EntityPage = await store.find(query)
        expect(True, len(page.rows) <= query.limit, f"{len(page.rows)} rows in a page of {query.limit}")
        rows += page.rows
        if page.after is None:
            return rows
        query = EntityQuery(**{name: getattr(query, name) for name in query.__struct_fields__} | {"after": page.after})
    raise AssertionError(f"{query} does not end")

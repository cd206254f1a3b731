"""Find entities by context fields on a store without indexes on fields: read them one by one.

Rule 1: fields must be declared with `index: true`, as on a store with indexes: a program behaves alike on both.
Rule 2: a page reads at most `WALK_MAX` entities and returns what it found, with a cursor to continue from. The order is
that of the list without conditions.
Rule 3: an entity that this process cannot read, because it lacks the chart of its revision, raises: leaving it out
would be a wrong answer.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping

from msgspec.structs import replace

from interlock.kernel.step import Kernel
from interlock.model.conditions import KeyRange, key_range
from interlock.model.encoding.index_key import IndexedField, IndexForm, form_of_field
from interlock.model.snapshot import Snapshot
from interlock.ports.reading.field_indexes import IndexStatus, check_searchable
from interlock.ports.store import PAGE_MAX, EntityPage, EntityQuery, EntityRow, Loaded, Store
from interlock.runtime.charts.registry import ChartRegistry
from interlock.runtime.charts.revisions import Revisions
from interlock.runtime.history.replay import replay

WALK_MAX = 2_000
"""Entities that one page reads at most."""


def declared_indexes(charts: ChartRegistry) -> tuple[IndexedField, ...]:
    """Return the indexed fields of all charts; of one field, as the newest chart of its kind declares it."""
    found: dict[tuple[str, str], IndexedField] = {}
    for kind in charts.every_kind():
        for kernel in charts.revisions(kind).values():
            found |= {(kind, each.field): each for each in _indexes_of(kind, kernel)}
    return tuple(found.values())


def _indexes_of(kind: str, kernel: Kernel) -> Iterator[IndexedField]:
    for field in kernel.chart.states[0].context:
        form = form_of_field(field) if field.index else None
        if form is not None:
            yield IndexedField(kind, field.name, form)


async def declared_forms(revisions: Revisions, kind: str) -> dict[str, IndexForm]:
    """Return how the indexed fields of a kind are read, by the own charts of it, or by the newest in the store."""
    own = revisions.charts.revisions(kind).values()
    kernels = own or (await revisions.newest(kind),)
    return {each.field: each.form for kernel in kernels for each in _indexes_of(kind, kernel)}


async def find_by_walk(store: Store, revisions: Revisions, query: EntityQuery) -> EntityPage:
    """Return a page of the entities that meet all conditions on fields. Raises UsageError for a field without index."""
    conditions = await find_conditions(revisions, query)

    async def matching(row: EntityRow) -> EntityRow | None:
        snapshot = await read_snapshot(store, revisions, row.entity)
        if snapshot is None or not meets(conditions, snapshot.context):
            return None
        return replace(row, context=snapshot.context) if query.context else row

    return await walk(store, replace(query, where=None, context=False), matching)


async def walk(
    store: Store, query: EntityQuery, matching: Callable[[EntityRow], Awaitable[EntityRow | None]]
) -> EntityPage:
    """Return a page of what `matching` makes of the rows of a list, without those of which it makes None.

    Rows are read in pieces that double from `limit`.
    """
    limit = piece = min(query.limit, PAGE_MAX)
    rows: list[EntityRow] = []
    unreadable: dict[str, None] = {}
    remaining, after = WALK_MAX, query.after
    while remaining > 0:
        page = await store.find(replace(query, after=after, limit=min(PAGE_MAX, remaining, piece)))
        unreadable |= dict.fromkeys(page.unreadable)
        for number, row in enumerate(page.rows, start=1):
            found = await matching(row)
            if found is not None:
                rows.append(found)
            if len(rows) == limit and number < len(page.rows):  # the rest of this page belongs to the next one
                cut = await store.find(replace(query, after=after, limit=number))
                return EntityPage(tuple(rows), cut.after, tuple(sorted(unreadable)))
        after = page.after
        remaining -= max(1, len(page.rows))
        piece *= 2
        if after is None or len(rows) >= limit:
            break
    return EntityPage(tuple(rows), after, tuple(sorted(unreadable)))


def meets(conditions: Iterable[KeyRange], context: Mapping[str, object]) -> bool:
    """Whether a context meets all conditions."""
    return all(each.matches(context.get(each.field)) for each in conditions)


async def find_conditions(revisions: Revisions, query: EntityQuery) -> list[KeyRange]:
    """Return the conditions of a query on fields. Raises UsageError for a field without index."""
    known = await declared_forms(revisions, query.kind) if query.where else {}
    conditions = []
    for field, wanted in (query.where or {}).items():
        declared = known.get(field)
        status = None if declared is None else IndexStatus(query.kind, field, declared, "ready")
        form = check_searchable(query.kind, field, status, tuple(known)).form
        conditions.append(key_range(field, wanted, form))
    return conditions


async def read_snapshot(store: Store, revisions: Revisions, entity: str) -> Snapshot | None:
    """Return the snapshot of an entity; None when it was removed meanwhile."""
    found = await store.load(entity)
    if not isinstance(found, Loaded):
        return None
    return await replay(revisions, entity, found.snapshot, (each.entry for each in found.records))

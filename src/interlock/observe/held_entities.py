"""Held entities, in counts and ages: they wait because an operator wants it, so they are not stuck.

Rule 1: a kind without holds costs nothing. Otherwise the entities that are held one by one are listed by their tag.
Rule 2: metrics and live pages read one page of them: beyond that a list by tag would walk the whole kind. With more
held entities, counts and ages contain those that are held.
"""

from __future__ import annotations

from msgspec import Struct

from interlock.model.held import HELD_TAG
from interlock.ports.reading.paging import pages
from interlock.ports.reading.statistics import COUNT_MAX, Statistics
from interlock.ports.store import PAGE_MAX, EntityQuery, Store
from interlock.runtime.runtime import Runtime


class HeldEntities(Struct, frozen=True):
    """What is held of a kind: entities one by one, and whether all of it are. `is_partial`: there are more."""

    kind: str
    names: frozenset[str] = frozenset()
    is_kind: bool = False
    is_partial: bool = False

    def __contains__(self, entity: str) -> bool:
        return self.is_kind or entity in self.names

    @property
    def count(self) -> int:
        """How many entities are held one by one; counting stops at `PAGE_MAX` + 1."""
        return PAGE_MAX + 1 if self.is_partial else len(self.names)

    async def count_stuck(self, store: Store, statistics: Statistics, state: str, *, before_ms: int) -> int:
        """Return how many entities have been in a state since before a time and are not held.

        Counting stops at `COUNT_MAX` + 1; from there on held entities count.
        """
        if self.is_kind:
            return 0
        found = await statistics.count_overdue(self.kind, state, before_ms=before_ms)
        if not self.names or self.is_partial or found == 0 or found > COUNT_MAX:
            return found
        query = EntityQuery(kind=self.kind, state=state, tag=HELD_TAG, entered_before_ms=before_ms, limit=PAGE_MAX)
        held = 0
        async for page in pages(store.find, query, rows_max=COUNT_MAX):
            held += len(page.rows)
        return max(0, found - held)

    async def oldest_ms(self, store: Store, state: str) -> int | None:
        """Return since when the entity that is in a state for longest, and not held, is in it; None if there is none.

        After `COUNT_MAX` held ones in line, there is none.
        """
        if self.is_kind:
            return None
        query = EntityQuery(kind=self.kind, state=state, limit=min(len(self.names) + 1, PAGE_MAX))
        async for page in pages(store.find, query, rows_max=COUNT_MAX):
            for row in page.rows:
                if row.entity not in self.names:
                    return row.entered_ms
        return None


async def held_entities(runtime: Runtime, kind: str) -> HeldEntities:
    """Return all that is held of a kind."""
    found = await first_held_entities(runtime, kind)
    if not found.is_partial:
        return found
    names = set[str]()
    async for page in pages(runtime.store.find, EntityQuery(kind=kind, tag=HELD_TAG, limit=PAGE_MAX)):
        names |= {each.entity for each in page.rows}
    return HeldEntities(kind, frozenset(names), found.is_kind)


async def first_held_entities(runtime: Runtime, kind: str) -> HeldEntities:
    """Return what is held of a kind, at most one page of entities (rule 2)."""
    holds = runtime.entities.holds
    if holds.is_stale:
        await holds.refresh()
    if not holds.may_hold(kind):
        return HeldEntities(kind)
    page = await runtime.store.find(EntityQuery(kind=kind, tag=HELD_TAG, limit=PAGE_MAX))
    names = frozenset(each.entity for each in page.rows)
    return HeldEntities(kind, names, holds.of_kind(kind) is not None, page.after is not None)

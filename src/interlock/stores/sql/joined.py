"""What the SQL stores share on a connection of the caller.

Rule: the rules are those of the store (`Questions`); they are asked on the caller's connection. Capabilities that no
send needs are missing.
"""

from __future__ import annotations

from typing import TypeVar, cast

from interlock.model.journal.record import JournalRecord
from interlock.ports.definitions import Definition, Definitions, Edition, StoredDefinition
from interlock.ports.reading.statistics import StateCount, Statistics, counts_of_all
from interlock.ports.store import PAGE_MAX, EntityPage, EntityQuery, Itself, Store
from interlock.ports.trust.retention import JournalBase, Retention, Tombstone
from interlock.stores.sql import definitions, lists, retention, statistics
from interlock.stores.sql.database import Questions, Statements
from interlock.stores.sql.records import read_records
from interlock.stores.sql.store import check_text

T = TypeVar("T")


class JoinedSqlStore(Store):
    """The part of a joined store that is the same for every database."""

    definitions = Itself[Definitions]()
    mark: object | None = None

    def __init__(self, sql: Statements, tenant: str) -> None:
        self._sql = sql
        self._tenant = tenant

    async def _ask(self, questions: Questions[T]) -> T:
        """Run questions on the caller's connection. Each database has its own."""
        raise NotImplementedError

    async def read(self, entity: str, *, after: int = 0, limit: int = PAGE_MAX) -> tuple[JournalRecord, ...]:
        """Return the verified records after a version, in order."""
        check_text(entity)
        return await self._ask(read_records(self._sql, self._tenant, entity, after, limit))

    # Definitions: of charts that are used for the first time, or that only the store has

    async def save_definition(self, definition: Definition, *, now_ms: int) -> Edition:
        """Save a definition and its names. Nothing is written when they are saved already."""
        found = await self._ask(definitions.find_saved(self._sql, self._tenant, definition))
        if found is not None:
            return found
        return await self._ask(definitions.save_definition(self._sql, self._tenant, definition, now_ms))

    async def read_definitions(self, kind: str, name: str) -> tuple[StoredDefinition, ...]:
        """Return the revisions of a kind that a name means, in their order; empty when it is unknown."""
        return await self._ask(definitions.read_definitions(self._sql, self._tenant, kind, name))

    async def list_definitions(self, kind: str | None = None) -> tuple[Edition, ...]:
        """Return all editions, of one kind or of all, sorted by kind and sequence."""
        return await self._ask(definitions.list_editions(self._sql, self._tenant, kind))

    @property
    def statistics(self) -> Statistics:
        """The counts by state, from which the name of a definition is found."""
        return cast("Statistics", self)

    async def count_states(self, kind: str) -> tuple[StateCount, ...]:
        """Return how many entities are in each state, by revision."""
        return counts_of_all(await self._ask(statistics.count_states(self._sql, self._tenant, kind)))

    @property
    def retention(self) -> Retention:
        """Tombstones, which say why an entity is unknown, and where journals start."""
        return cast("Retention", self)

    async def tombstone(self, entity: str) -> Tombstone | None:
        """Return the tombstone of a pruned entity."""
        return await self._ask(retention.find_tombstone(self._sql, self._tenant, entity))

    async def journal_base(self, entity: str) -> JournalBase | None:
        """Return where a compacted journal starts."""
        return await self._ask(retention.find_base(self._sql, self._tenant, entity))

    # Lists: a move to another revision asks since when the entity is in its states

    async def find(self, query: EntityQuery) -> EntityPage:
        """Return entities by kind, state, age and tag, page by page."""
        return await self._ask(lists.find_entities(self._sql, self._tenant, query))

    async def kinds(self) -> tuple[str, ...]:
        """Return the kinds that have entities, sorted."""
        return await self._ask(lists.list_kinds(self._sql, self._tenant))

    async def close(self) -> None:
        """Do nothing: the connection belongs to the caller."""

"""Lists of entities, made by walking all directories of a root.

That is right for thousands of entities and slow for millions; a database store has an index. What did not grow since
the last list is taken from memory. An entity that cannot be read is logged and left out: it must not hide the others.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator
from threading import Lock

from msgspec import Struct

from interlock.errors import InterlockError, UsageError
from interlock.model.snapshot import Ended, Snapshot
from interlock.ports.store import ENDED_STATES, PAGE_MAX, Append, Appended, EntityPage, EntityQuery, EntityRow
from interlock.stores.cursor import decode_cursor, encode_cursor
from interlock.stores.files.durable_io import EntityDirectory, is_entity_error
from interlock.stores.files.journal.journal import Journal
from interlock.stores.files.journal.line_formats import Position
from interlock.stores.files.journal.snapshot_file import ListFacts
from interlock.stores.files.names import kind_of_name, kind_prefix, tenant_prefix
from interlock.stores.files.reader import EntityReader, EntityView
from interlock.stores.files.root import Root
from interlock.stores.listing import since_ms

REMEMBERED_MAX = 100_000
"""Entities remembered for lists; the others are read again for each list."""

_logger = logging.getLogger(__name__)


class ListedEntity(Struct, frozen=True):
    """What a list needs of an entity, and the end of its journal at that time."""

    end: Position
    row: EntityRow
    facts: ListFacts

    @staticmethod
    def of(entity: str, end: Position, facts: ListFacts, snapshot: Snapshot) -> ListedEntity:
        """What a list needs of an entity with this snapshot."""
        return ListedEntity.after(entity, end, facts, snapshot.revision, snapshot.configuration, snapshot.ended)

    @staticmethod
    def after(
        entity: str,
        end: Position,
        facts: ListFacts,
        revision: str,
        configuration: tuple[str, ...],
        ended: Ended | None,
    ) -> ListedEntity:
        """What a list needs of an entity in this configuration; one that was cancelled or failed is in no state."""
        if ended in ENDED_STATES:
            since = facts.changed_ms if facts.ended_ms is None else facts.ended_ms
            facts = ListFacts(facts.created_ms, facts.changed_ms, {ENDED_STATES[ended]: since})
        row = EntityRow(
            entity,
            end.version,
            revision,
            configuration,
            facts.created_ms,
            since_ms(facts.entered_ms, configuration, facts.created_ms),
            facts.changed_ms,
            ended,
        )
        return ListedEntity(end, row, facts)


class EntityList:
    """The entities below one root."""

    def __init__(self, root: Root, reader: EntityReader) -> None:
        self._root = root
        self._reader = reader
        self._remembered: OrderedDict[str, ListedEntity] = OrderedDict()
        self._is_used = False
        self._guard = Lock()

    def find(self, query: EntityQuery) -> EntityPage:
        """Entities by kind, state, age and tag, the longest in their state first, page by page."""
        unreadable: list[str] = []
        found = sorted(self._matching(query, unreadable), key=lambda each: each[:2])
        start = 0
        if query.after is not None:
            start = bisect_right(found, decode_cursor(query.after), key=lambda each: each[:2])
        limit = min(query.limit, PAGE_MAX)
        rows = found[start : start + limit]
        more = rows and len(found) > start + limit
        cursor = encode_cursor(*rows[-1][:2]) if more else None
        return EntityPage(tuple(row for _, _, row in rows), cursor, tuple(sorted(unreadable)))

    def names(self) -> tuple[str, ...]:
        """Every entity that has a directory, readable or not, sorted, and every stray directory with a journal.

        A directory whose name was cut and whose snapshot has no id is listed by its own name.
        """
        found = set(self._root.strays())
        for address in self._root.addresses(tenant_prefix(self._root.settings.tenant)):
            found.add(self._name(address))
        return tuple(sorted(found - {""}))

    def kinds(self) -> tuple[str, ...]:
        """The kinds of all entities, readable or not, sorted."""
        found: set[str] = set()
        tenant = self._root.settings.tenant
        for address in self._root.addresses(tenant_prefix(tenant)):
            entity = self._name(address)
            kind, slash, _ = entity.partition("/")
            if not slash:
                found.add(kind_of_name(entity, tenant=tenant))
            elif kind not in found and self._exists(entity):
                found.add(kind)
        return tuple(sorted(found - {""}))

    def note_append(self, journal: Journal, append: Append, answer: object) -> None:
        """Remember an entity after an append of this process, once lists are used."""
        if self._is_used and isinstance(answer, Appended):
            position, facts = journal.position, journal.facts
            if facts is not None and position.version == answer.version:
                self._remember(journal.address, ListedEntity.of(append.entity, position, facts, append.snapshot))

    def abandon(self) -> None:
        """In a forked child: the guard may be held by a thread that does not exist here."""
        self._guard = Lock()

    def _name(self, address: EntityDirectory) -> str:
        """The entity of a directory; the directory's name if nothing has its id; empty when it has no entry yet."""
        entity = address.entity or self._stored_id(address)
        if entity:
            return entity
        try:
            if not self._root.has_entry(address):  # its creation is in progress, or its creator died
                return ""
        except InterlockError as error:
            if not is_entity_error(error):
                raise
        return self._stored_id(address) or address.name

    def _stored_id(self, address: EntityDirectory) -> str:
        """The id in the snapshot of a directory; empty when it cannot be read, or does not belong to the directory."""
        try:
            entity = self._reader.entity_id(address)
            return entity if entity and self._root.address(entity).name == address.name else ""
        except InterlockError as error:
            if not isinstance(error, UsageError) and not is_entity_error(error):
                raise
            return ""

    def _exists(self, entity: str) -> bool:
        """Whether an entity has an entry; one that cannot be read has."""
        try:
            return self._listed(entity) is not None
        except InterlockError as error:
            if not is_entity_error(error):
                raise
            return True

    def _matching(self, query: EntityQuery, unreadable: list[str]) -> Iterator[tuple[int, str, EntityRow]]:
        for entity in self._entities(query):
            if "/" not in entity:
                unreadable.append(entity)
                _logger.warning("a journal without an entity id is left out of a list", extra={"folder": entity})
                continue
            try:
                listed = self._listed(entity)
            except InterlockError as error:
                if not is_entity_error(error):
                    raise
                unreadable.append(entity)
                extra = {"entity_id": entity, "code": error.code, "error": error.message}
                _logger.warning("an unreadable journal is left out of a list", extra=extra)
                continue
            if listed is None:
                continue
            row, entered = listed.row, listed.facts.entered_ms
            if query.state is not None and query.state not in entered:
                continue
            if query.tag is not None and query.tag not in listed.facts.tags:
                continue
            if query.revision is not None and row.revision != query.revision:
                continue
            entered_ms = row.entered_ms if query.state is None else entered[query.state]
            if query.entered_before_ms is None or entered_ms < query.entered_before_ms:
                yield 0 if query.is_in_id_order else entered_ms, entity, row

    def _entities(self, query: EntityQuery) -> Iterator[str]:
        """The entities of a kind. A directory without a readable id may be one of them, and is given by its name."""
        prefix = kind_prefix(query.kind, tenant=self._root.settings.tenant, id_prefix=query.prefix or "")
        for address in self._root.addresses(prefix):
            entity = self._name(address)
            if entity.startswith((f"{query.kind}/{query.prefix or ''}", address.name)):
                yield entity

    def _listed(self, entity: str) -> ListedEntity | None:
        self._is_used = True
        address = self._root.address(entity)
        with self._guard:
            listed = self._remembered.get(address.name)
        if listed is not None and self._reader.is_end(address, listed.end):
            return listed
        view = self._reader.load(address)
        return None if view is None else self._remember(address, _from_view(address.entity, view))

    def _remember(self, address: EntityDirectory, listed: ListedEntity) -> ListedEntity:
        with self._guard:
            self._remembered[address.name] = listed
            self._remembered.move_to_end(address.name)
            if len(self._remembered) > REMEMBERED_MAX:
                self._remembered.popitem(last=False)
        return listed


def _from_view(entity: str, view: EntityView) -> ListedEntity:
    if view.records:
        ended = None if view.stored is None else view.stored.snapshot.ended
        last = view.records[-1].entry
        return ListedEntity.after(entity, view.position, view.facts, last.revision, last.after, ended)
    assert view.stored is not None
    return ListedEntity.of(entity, view.position, view.facts, view.stored.snapshot)

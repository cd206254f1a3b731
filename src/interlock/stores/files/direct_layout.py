"""The file store as plain calls: append, load, read, find. Everything that `FileStore` does, without threads or loops.

Rule 1: appends go through one handle per entity (`files_journal`); readers keep nothing open (`files_reader`).
Rule 2: `Duplicate` is an acknowledgement, whoever gives it: a reader that finds a key whose record is not known durable
asks the handle, which flushes first.
Rule 3: lists are made by walking all directories of the store; what did not grow since is taken from memory.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator
from threading import Lock
from typing import TypeVar

from msgspec import Struct

from interlock.errors import InterlockError, UsageError
from interlock.model.journal.record import JournalRecord
from interlock.model.snapshot import Ended, Snapshot
from interlock.ports.store import (
    ENDED_STATES,
    PAGE_MAX,
    Append,
    Appended,
    AppendResult,
    Duplicate,
    EntityPage,
    EntityQuery,
    EntityRow,
    Loaded,
    Refusal,
)
from interlock.stores.cursor import decode_cursor, encode_cursor
from interlock.stores.files.filesystem import FileSystem, handles_max
from interlock.stores.files.journal.durable_io import DurableIO, EntityDirectory, Settings, is_of_one
from interlock.stores.files.journal.exchange import ExchangeJournal
from interlock.stores.files.journal.open_journals import OpenJournals
from interlock.stores.files.journal.rotation import taken
from interlock.stores.files.journal.segments import ARCHIVE_BYTES_MAX
from interlock.stores.files.journal.snapshot_file import ListFacts, Position
from interlock.stores.files.leases import FileLeases
from interlock.stores.files.names import kind_named, kind_prefix, tenant_prefix
from interlock.stores.files.positions import Places
from interlock.stores.files.reader import EntityReader, EntityView
from interlock.stores.files.refusals import append_refusals
from interlock.stores.files.root import Root
from interlock.stores.files.work.dispatcher import Dispatcher
from interlock.stores.files.work.markers import WorkMarkers
from interlock.stores.listing import since_ms

PLACED_MAX = 1_000
"""Journals of which places are remembered, so that the next page of a long one need not begin at its beginning."""

LISTED_MAX = 100_000
"""Entities remembered for lists; the others are read again for each list."""

_logger = logging.getLogger(__name__)
T = TypeVar("T")


class ListedEntity(Struct, frozen=True):
    """What a list needs of an entity, and up to which place of its journal that holds."""

    end: Position
    row: EntityRow
    facts: ListFacts

    @staticmethod
    def of(entity: str, mark: Position, facts: ListFacts, snapshot: Snapshot) -> ListedEntity:
        """What a list needs of an entity with this snapshot."""
        return ListedEntity.after(entity, mark, facts, snapshot.revision, snapshot.configuration, snapshot.ended)

    @staticmethod
    def after(
        entity: str,
        mark: Position,
        facts: ListFacts,
        revision: str,
        configuration: tuple[str, ...],
        ended: Ended | None,
    ) -> ListedEntity:
        """What a list needs of an entity in this configuration; one that ended without a final state is in none."""
        if ended in ENDED_STATES:
            since = facts.changed_ms if facts.ended_ms is None else facts.ended_ms
            facts = ListFacts(facts.created_ms, facts.changed_ms, {ENDED_STATES[ended]: since})
        row = EntityRow(
            entity,
            mark.version,
            revision,
            configuration,
            facts.created_ms,
            since_ms(facts.entered_ms, configuration, facts.created_ms),
            facts.changed_ms,
            ended,
        )
        return ListedEntity(mark, row, facts)


class DirectLayout:
    """All journals below one root."""

    def __init__(
        self,
        root: str | Root,
        fs: FileSystem,
        settings: Settings,
        *,
        count_max: int | None = None,
        shard_digits: int = 2,
    ) -> None:
        opened = Root(fs, root, settings, shard_digits=shard_digits) if isinstance(root, str) else root
        self.shared = DurableIO(fs, opened.settings, opened.path)  # with the root's own tenant
        self._fs = fs
        self._root = opened
        self.pending = self.shared.markers = WorkMarkers(self.shared, opened)
        self._reader = EntityReader(self.shared)
        self._handles = OpenJournals(self.shared, count_max or handles_max())
        self._places: OrderedDict[str, Places] = OrderedDict()
        self._listed: OrderedDict[str, ListedEntity] = OrderedDict()
        self._is_listing = False
        self._guard = Lock()

    # Writing

    def append(self, append: Append) -> AppendResult:
        """Keep one step, if the entity still is at the expected version and its key is new."""
        address = self._root.address(append.entity)
        self._root.check_writable()
        journal = self._handles.borrow(address)
        try:
            return self._listed_too(journal, append, journal.append(append))
        finally:
            self._handles.give_back(address)

    def append_at_once(self, append: Append) -> AppendResult | None:
        """The same, where nothing is waited for but one flush. None where there is more to do: nothing was done."""
        address = self._root.address(append.entity)
        self._root.check_writable()
        journal = self._handles.touched(address)
        return None if journal is None else self._listed_too(journal, append, journal.append_at_once(append))

    def _listed_too(self, journal: ExchangeJournal, append: Append, answer: T) -> T:
        if self._is_listing and isinstance(answer, Appended):
            mark, facts = journal.mark, journal.facts
            if facts is not None and mark.version == answer.version:
                self._list(journal.address, ListedEntity.of(append.entity, mark, facts, append.snapshot))
        return answer

    def adopt(self, append: Append, records: tuple[JournalRecord, ...]) -> int:
        """Keep verified records as they are, byte for byte, after those already here; give the version reached."""
        address = self._root.address(append.entity)
        self._root.check_writable()
        if not records or append.snapshot.version < records[-1].version:
            message = f"the snapshot of `{append.entity}` is older than the records that lead to it, or there are none"
            raise UsageError(message, code="adopt.snapshot")
        for here in self._pages(append.entity, records[0].version - 1, records[-1].version):
            given = records[here.version - records[0].version]
            if here.line != given.line:
                raise taken(append.entity, here.version)
        with self._handles.borrowed(address) as journal:
            return journal.adopt(append, records)

    def _pages(self, entity: str, after: int, last: int) -> Iterator[JournalRecord]:
        while after < last and (page := self.read(entity, after=after, limit=min(PAGE_MAX, last - after))):
            yield from page
            after = page[-1].version

    def release(self, entity: str, *, version: int, archive: str) -> bool:
        """Drop the records of an ended entity that is still at this version; False when it is not."""
        address = self._root.address(entity)
        self._root.check_writable()
        if not archive or len(archive.encode(errors="replace")) > ARCHIVE_BYTES_MAX:
            message = f"an archive is named by 1 to {ARCHIVE_BYTES_MAX:,} bytes"
            raise UsageError(
                message, code="archive.malformed", hint="give the address of the store that has the records"
            )
        with self._handles.borrowed(address) as journal:
            return journal.release(version, archive)

    def refuse(self, refusals: tuple[Refusal, ...]) -> None:
        """Adds to the log of refusals; what cannot be written is lost, and a line in the log says so."""
        if self._root.read_only is not None:
            return
        try:
            append_refusals(self._fs, self._root.directory, refusals)
        except OSError as error:
            _logger.warning("refusals could not be kept", extra={"count": len(refusals), "error": str(error)})

    # Work

    def dispatch(self) -> Dispatcher:
        """What takes up the work that is kept here."""
        return Dispatcher(self.shared, self._root, self.pending, self._handles)

    def leases(self) -> FileLeases:
        """The leases that are kept here."""
        return FileLeases(self.shared, self._root)

    # Reading

    def load(self, entity: str, key: str | None = None) -> Loaded | Duplicate | None:
        """The entity as it is; None when there is none. With `key`: `Duplicate` when that key was kept before."""
        address = self._root.address(entity)
        journal = self._handles.touched(address)
        known = None if journal is None else journal.known(key)
        if known is not None:
            return known
        seen = self._reader.load(address)
        if seen is None:
            return None
        version = None if key is None else seen.version_of(key)
        if key is None or version is None:
            return seen.loaded()
        if version > max(seen.durable_version(), self._durable_version(address)):
            self._root.check_writable()
            with self._handles.borrowed(address) as journal:
                version = journal.confirm(key)
        if version is None:
            return self.load(entity)
        self._root.check_path()
        return Duplicate(version)

    def _durable_version(self, address: EntityDirectory) -> int:
        """The last version that this process itself made durable, without waiting for the handle."""
        journal = self._handles.peek(address)
        if journal is None:
            return 0
        mark, durable = journal.mark, journal.durable
        return mark.version if mark.offset <= durable else 0

    def read(self, entity: str, *, after: int = 0, limit: int = PAGE_MAX) -> tuple[JournalRecord, ...]:
        """The verified records after a version, in order. Raises CorruptionError at the first bad link."""
        address = self._root.address(entity)
        if limit < 1:
            return ()
        with self._guard:
            places = self._places.get(address.name) or Places()
            starts, apart = places.up_to(after), places.apart
        records, passed = self._reader.read(
            address, starts=starts, after=after, limit=min(limit, PAGE_MAX), apart=apart
        )
        with self._guard:
            for mark in passed:
                places.add(mark)
            _remember(self._places, address.name, places, PLACED_MAX)
        return records

    # Lists

    def find(self, query: EntityQuery) -> EntityPage:
        """Entities by kind, state, age and tag, oldest in their state first, page by page."""
        left_out: list[str] = []
        found = sorted(self._matching(query, left_out), key=lambda each: each[:2])
        start = 0
        if query.after is not None:
            start = bisect_right(found, decode_cursor(query.after), key=lambda each: each[:2])
        limit = min(query.limit, PAGE_MAX)
        rows = found[start : start + limit]
        more = rows and len(found) > start + limit
        cursor = encode_cursor(*rows[-1][:2]) if more else None
        return EntityPage(tuple(row for _, _, row in rows), cursor, tuple(sorted(left_out)))

    def names(self) -> tuple[str, ...]:
        """Every entity that has a folder, readable or not, sorted; one whose name was cut by its folder's, if need be.

        A list passes over what does not read; whoever verifies must not. Nor over journals that are no entity's here.
        """
        found = set(self._root.strays())
        for address in self._root.addresses(tenant_prefix(self.shared.settings.tenant)):
            found.add(self._named(address))
        return tuple(sorted(found - {""}))

    def kinds(self) -> tuple[str, ...]:
        """The kinds that there are entities of, readable or not, sorted."""
        found: set[str] = set()
        tenant = self.shared.settings.tenant
        for address in self._root.addresses(tenant_prefix(tenant)):
            entity = self._named(address)
            kind, slash, _ = entity.partition("/")
            if not slash:
                found.add(kind_named(entity, tenant=tenant))
            elif kind not in found and self._is_there(entity):
                found.add(kind)
        return tuple(sorted(found - {""}))

    def _named(self, address: EntityDirectory) -> str:
        """The entity of a folder; the folder's name where that was cut and nothing tells; empty where nothing began."""
        entity = address.entity or self._told(address)
        if entity:
            return entity
        try:
            if not self._root.is_begun(address):  # somebody was just beginning it, or died
                return ""
        except InterlockError as error:
            if not is_of_one(error):
                raise
        return self._told(address) or address.name

    def _told(self, address: EntityDirectory) -> str:
        """The entity that the snapshot in a folder tells; empty where none reads, or it is not of this folder."""
        try:
            entity = self._reader.entity(address)
            return entity if entity and self._root.address(entity).name == address.name else ""
        except InterlockError as error:
            if not isinstance(error, UsageError) and not is_of_one(error):
                raise
            return ""

    def _is_there(self, entity: str) -> bool:
        """Whether an entity was begun; one that does not read was."""
        try:
            return self._seen(entity) is not None
        except InterlockError as error:
            if not is_of_one(error):
                raise
            return True

    def _matching(self, query: EntityQuery, left_out: list[str]) -> Iterator[tuple[int, str, EntityRow]]:
        """What a list shows. What does not read is noted instead: it must not hide the others."""
        for entity in self._entities(query):
            if "/" not in entity:
                left_out.append(entity)
                _logger.warning("a journal that tells no entity is left out of a list", extra={"folder": entity})
                continue
            try:
                listed = self._seen(entity)
            except InterlockError as error:
                if not is_of_one(error):
                    raise
                left_out.append(entity)
                extra = {"entity_id": entity, "code": error.code, "error": error.message}
                _logger.warning("a journal that does not read is left out of a list", extra=extra)
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
                yield 0 if query.prefix else entered_ms, entity, row

    def _entities(self, query: EntityQuery) -> Iterator[str]:
        """The entities of a kind, by their directory names; of a name that was cut, by the snapshot inside.

        Where that tells none, the name of the directory: it may be one of those that are asked for.
        """
        prefix = kind_prefix(query.kind, tenant=self.shared.settings.tenant, beginning=query.prefix or "")
        for address in self._root.addresses(prefix):
            entity = self._named(address)
            if entity.startswith((f"{query.kind}/{query.prefix or ''}", address.name)):
                yield entity

    def _seen(self, entity: str) -> ListedEntity | None:
        self._is_listing = True  # from now on appends tell: without anybody who lists, they need not
        address = self._root.address(entity)
        with self._guard:
            listed = self._listed.get(address.name)
        if listed is not None and self._reader.is_end(address, listed.end):
            return listed
        seen = self._reader.load(address)
        return None if seen is None else self._list_seen(address, seen)

    def _list_seen(self, address: EntityDirectory, seen: EntityView) -> ListedEntity:
        ended = None if seen.kept is None else seen.kept.snapshot.ended
        if seen.records:
            last = seen.records[-1].entry
            return self._list(
                address, ListedEntity.after(address.entity, seen.mark, seen.facts, last.revision, last.after, ended)
            )
        assert seen.kept is not None
        return self._list(address, ListedEntity.of(address.entity, seen.mark, seen.facts, seen.kept.snapshot))

    def _list(self, address: EntityDirectory, listed: ListedEntity) -> ListedEntity:
        with self._guard:
            _remember(self._listed, address.name, listed, LISTED_MAX)
        return listed

    # The end

    def close(self) -> None:
        """Keeps last snapshots and closes everything."""
        self._handles.close()
        self.pending.close()
        self._root.close()

    def abandon(self) -> None:
        """In a forked child: lets go of what belongs to the parent; handles are opened anew."""
        self._guard = Lock()
        self.pending.close()
        self._handles.abandon()


def _remember(table: OrderedDict[str, T], name: str, value: T, count_max: int) -> None:
    table[name] = value
    table.move_to_end(name)
    if len(table) > count_max:
        table.popitem(last=False)

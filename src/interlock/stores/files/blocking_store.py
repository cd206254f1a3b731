"""The file store as blocking calls: everything that `FileStore` does, without threads or event loops.

Rule 1: appends use one open journal per entity (`journal.open_journals`); readers keep nothing open (`reader`).
Rule 2: `Duplicate` is an acknowledgement. A reader that finds a key whose record is not known to be durable asks the
journal, which flushes first.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from interlock.errors import InterlockError, UsageError
from interlock.model.audit import AuditRow
from interlock.model.journal.record import JournalRecord
from interlock.model.snapshot import Snapshot
from interlock.ports.store import PAGE_MAX, Append, AppendResult, Duplicate, EntityPage, EntityQuery, Loaded
from interlock.ports.trust.retention import JournalBase, Removal, Tombstone
from interlock.stores.files.audit import FileAudit
from interlock.stores.files.definitions import FileDefinitions
from interlock.stores.files.durable_io import DurableIO, Settings
from interlock.stores.files.entity_list import EntityList
from interlock.stores.files.facts import FileFacts
from interlock.stores.files.feed.file_feed import FileFeed
from interlock.stores.files.feed.hints import HintWriter
from interlock.stores.files.filesystem import FileSystem, open_journals_max
from interlock.stores.files.journal.journal import JournalContext, conflicting_records
from interlock.stores.files.journal.line_formats import ARCHIVE_BYTES_MAX
from interlock.stores.files.journal.open_journals import OpenJournals
from interlock.stores.files.leases import FileLeases
from interlock.stores.files.names import REMOVED, is_cut
from interlock.stores.files.reader import EntityReader
from interlock.stores.files.root import Root
from interlock.stores.files.tombstones import Tombstones
from interlock.stores.files.work.dispatcher import Dispatcher
from interlock.stores.files.work.markers import WorkMarkers


class BlockingFileStore:
    """The journals, work and leases below one root."""

    def __init__(
        self,
        root: str,
        fs: FileSystem,
        settings: Settings,
        *,
        open_max: int | None = None,
        shard_digits: int = 2,
    ) -> None:
        self.root = Root(fs, root, settings, shard_digits=shard_digits)
        self.io = DurableIO(fs, self.root.settings, self.root.path)  # the settings have the root's own tenant
        self.context = JournalContext(self.io)
        self.markers = self.context.markers = WorkMarkers(self.io, self.root)
        self.tombstones = self.context.tombstones = Tombstones(self.io, self.root)
        self.hints = self.context.hints = HintWriter(fs, self.root.directory)
        self.journals = OpenJournals(self.context, open_max or open_journals_max())
        self._reader = EntityReader(self.context)
        self._list = EntityList(self.root, self._reader)
        self.audit = FileAudit(self.io, self.root)

    # Writing

    def append(self, append: Append) -> AppendResult:
        """Append one entry, if the entity is at the expected version and the key is new."""
        address = self.root.address(append.entity)
        self.root.check_writable()
        journal = self.journals.acquire(address)
        try:
            answer = journal.append(append)
            self._list.note_append(journal, append, answer)
            return answer
        finally:
            self.journals.release(address)

    def append_inline(self, append: Append) -> AppendResult | None:
        """`append`, where nothing is waited for but one flush; None where there is more to do: nothing was done."""
        address = self.root.address(append.entity)
        self.root.check_writable()
        journal = self.journals.get_open(address)
        if journal is None:
            return None
        answer = journal.append_inline(append)
        self._list.note_append(journal, append, answer)
        return answer

    def adopt(self, append: Append, records: tuple[JournalRecord, ...]) -> int:
        """Add verified records, byte for byte, after those already here; return the version reached."""
        address = self.root.address(append.entity)
        self.root.check_writable()
        if not records or append.snapshot.version < records[-1].version:
            message = f"the snapshot of `{append.entity}` is older than its records, or there are no records"
            raise UsageError(message, code="adopt.snapshot")
        for here in self._pages(append.entity, records[0].version - 1, records[-1].version):
            given = records[here.version - records[0].version]
            if here.line != given.line:
                raise conflicting_records(append.entity, here.version)
        with self.journals.using(address) as journal:
            return journal.adopt(append, records)

    def _pages(self, entity: str, after: int, last: int) -> Iterator[JournalRecord]:
        while after < last and (page := self.read(entity, after=after, limit=min(PAGE_MAX, last - after))):
            yield from page
            after = page[-1].version

    def release_journal(self, entity: str, *, version: int, archive: str) -> bool:
        """Drop the records of an ended entity that is still at this version; False when it is not."""
        address = self.root.address(entity)
        self.root.check_writable()
        if not archive or len(archive.encode(errors="replace")) > ARCHIVE_BYTES_MAX:
            message = f"expected an archive address of 1 to {ARCHIVE_BYTES_MAX:,} bytes"
            hint = "give the address of the store that has the records"
            raise UsageError(message, code="archive.malformed", hint=hint)
        with self.journals.using(address) as journal:
            return journal.release(version, archive)

    # Retention

    def prune(self, tombstone: Tombstone) -> Removal:
        """Write the tombstone if the entity may go, and remove its files."""
        address = self.root.address(tombstone.entity)
        self.root.check_writable()
        if is_cut(address.name):  # its name would be too long, and would not show the id
            return Removal(0, is_done=True, blocked="name")
        if self.tombstones.find(address) is None:
            with self.journals.using(address) as journal:
                removal = journal.prune(tombstone, write=self.tombstones.write, name=address.name + REMOVED)
            if removal.blocked is not None:
                return removal
        return self.remove_rest(tombstone.entity)

    def remove_rest(self, entity: str) -> Removal:
        """Remove the files of an entity that was pruned."""
        address = self.root.address(entity)
        self.root.check_writable()
        count = self.tombstones.remove_files(address)
        found = self.tombstones.stored(address) if count else None
        return Removal(count, is_done=True, version=0 if found is None else found.version)

    def compact(self, base: JournalBase, newest: Snapshot) -> Removal:
        """Remove the records up to the version of a base."""
        address = self.root.address(base.entity)
        self.root.check_writable()
        with self.journals.using(address) as journal:
            return journal.compact(base, newest)

    def tip(self, entity: str) -> tuple[int, str]:
        """The last version of an entity and the hash of that record; 0 and "" when there is no such entity."""
        view = self._reader.load(self.root.address(entity))
        return (0, "") if view is None else (view.position.version, view.position.head)

    def tombstone(self, entity: str) -> Tombstone | None:
        """The tombstone of a pruned entity."""
        return self.tombstones.find(self.root.address(entity))

    def journal_base(self, entity: str) -> JournalBase | None:
        """Where a compacted journal starts."""
        return self._reader.journal_base(self.root.address(entity))

    # Audit

    def append_audit(self, rows: tuple[AuditRow, ...]) -> None:
        """Append rows to the audit, with the states of their entities."""
        self.audit.append([self._with_states(each) for each in rows])

    def _with_states(self, row: AuditRow) -> AuditRow:
        """Return a row with the states of its entity, if they can be read: the row is worth more than they are."""
        if not row.wants_states:
            return row
        try:
            found = self.load(row.entity)
        except InterlockError:
            return row
        if not isinstance(found, Loaded):
            return row
        if found.records:
            return replace(row, state_from=found.records[-1].entry.after)
        return row if found.snapshot is None else replace(row, state_from=found.snapshot.configuration)

    # Work and leases

    def dispatcher(self) -> Dispatcher:
        """The work queue of this root."""
        return Dispatcher(self.context, self.root, self.markers, self.journals, self.audit)

    def leases(self) -> FileLeases:
        """The leases of this root."""
        return FileLeases(self.io, self.root)

    def definitions(self) -> FileDefinitions:
        """The definitions of this root."""
        return FileDefinitions(self.io, self.root)

    def facts(self) -> FileFacts:
        """The facts of this root."""
        return FileFacts(self.io, self.root, self.audit)

    def feed(self) -> FileFeed:
        """The feed of this root."""
        return FileFeed(self.io, self.root, self.journals, self._reader, self._list, self.tombstones)

    # Reading

    def load(self, entity: str, key: str | None = None) -> Loaded | Duplicate | None:
        """The entity; None when it does not exist. With `key`: `Duplicate` when an entry has that key."""
        address = self.root.address(entity)
        journal = self.journals.get_open(address)
        cached = None if journal is None else journal.load_cached(key)
        if cached is not None:
            return cached
        view = self._reader.load(address)
        if view is None:
            return None
        version = None if key is None else view.version_of(key)
        if key is None or version is None:
            return view.loaded()
        opened = self.journals.peek(address)
        if version > max(view.durable_version(), 0 if opened is None else opened.durable_version()):
            self.root.check_writable()
            with self.journals.using(address) as journal:
                version = journal.confirm(key)
        if version is None:
            return self.load(entity)
        self.root.check_path()
        return Duplicate(version)

    def read(self, entity: str, *, after: int = 0, limit: int = PAGE_MAX) -> tuple[JournalRecord, ...]:
        """The verified records after a version, in order. Raises CorruptionError at the first bad link."""
        address = self.root.address(entity)
        return () if limit < 1 else self._reader.read(address, after=after, limit=min(limit, PAGE_MAX))

    def find(self, query: EntityQuery) -> EntityPage:
        """Entities by kind, state, age and tag, the longest in their state first, page by page."""
        return self._list.find(query)

    def entity_names(self) -> tuple[str, ...]:
        """Every entity that has a directory, readable or not, sorted, and every stray directory with a journal."""
        return self._list.names()

    def kinds(self) -> tuple[str, ...]:
        """The kinds of all entities, readable or not, sorted."""
        return self._list.kinds()

    # Closing

    def close(self) -> None:
        """Write last snapshots and close everything."""
        self.journals.close()
        self.markers.close()
        self.hints.close()
        self.audit.close()
        self.root.close()

    def abandon(self) -> None:
        """In a forked child: drop what belongs to the parent; journals are opened again."""
        self._list.abandon()
        self._reader.abandon()
        self.markers.close()
        self.hints.close()
        self.audit.abandon()
        self.journals.abandon()

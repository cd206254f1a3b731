"""The journal of one entity, open: everything that is done to one entity.

The order of an append, under a mutex of this process and the lock of the entity's directory:

1. The first time: create what is missing, open, and flush (`JournalFile.open`).
2. Read and verify everything after the last known record.
3. Known key: make its record durable, answer `Duplicate`. Key that may be forgotten: `KeyExpired`. Another version:
   `Conflict`.
4. Bytes that are not a record: raise damage, cut off a torn tail. A full segment is rotated.
5. Create the marker of an entity with unfinished work (`work.markers`). Write the record, with its work line before it,
   in one write, then flush. Only now the caller gets its receipt, and the work may start.
6. Write a snapshot when it is due. Its errors are logged, never raised: the entry is durable.

Rule 1: in the thread of an event loop (`append_inline`, `load_cached`) nothing is waited for but one flush, and nothing
is opened. Where there is more to do, the answer is None, nothing was done, and a thread does all of it. The caller may
be the main thread, where Ctrl-C is raised between any two instructions.
Rule 2: work that changes without an entry is a mark line. It is flushed only where losing it would repeat something
that must not be repeated (`durable`). Any other mark may be lost in a power cut: the work then runs again under its
key.
Rule 3: no listener gets work whose entry is not durable.
Rule 4: a marker is removed only under the lock, when no work is left.
Rule 5: adopted records become a whole segment, in one step: all of them are here, or none.
Rule 6: records are released by the base of a new segment; only then files are removed. The snapshot must be of the last
version by then: from there on it is no longer a cache, and neither are its keys.
Rule 7: a journal is compacted in the same way: by the base of a new segment, after the snapshot of the last version and
the one at which it starts are durable. A pruned one is removed by renaming its directory, after its tombstone.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from threading import Lock
from typing import Protocol

from interlock.errors import (
    ConflictError,
    CorruptionError,
    InterlockError,
    PrunedError,
    RejectedError,
    UnavailableError,
    UsageError,
)
from interlock.model.journal.record import InvalidRecord, JournalRecord, decode_record, encode_record
from interlock.model.journal.work import WorkDelta, WorkId
from interlock.model.journal.work_state import WorkState
from interlock.model.limits import ENTRY_BYTES_MAX
from interlock.model.snapshot import Snapshot
from interlock.ports.store import (
    Append,
    Appended,
    AppendResult,
    Conflict,
    Duplicate,
    KeyExpired,
    Loaded,
    Pruned,
    StaleAttempt,
)
from interlock.ports.trust.retention import JournalBase, Removal, Tombstone
from interlock.stores.files.durable_io import LOCKED, DurableIO, EntityDirectory, replace_file, unavailable
from interlock.stores.files.journal.journal_file import DirectoryRemovedError, JournalFile
from interlock.stores.files.journal.line_formats import (
    Base,
    MarkLine,
    Position,
    WorkLine,
    encode_mark,
    encode_work,
)
from interlock.stores.files.journal.reading import Chain
from interlock.stores.files.journal.recent_keys import RecentKeys
from interlock.stores.files.journal.snapshot_file import (
    KnownConfigurations,
    ListFacts,
    StoredSnapshot,
    encode_base_file,
    encode_snapshot_file,
    snapshot_interval,
)
from interlock.stores.files.journal.unfinished_work import UnfinishedWork, WorkChanges, WorkItem
from interlock.stores.files.names import SNAPSHOT, base_name, is_cut

ENVELOPE_BYTES_MAX = 2_048
"""Bytes of a record around its entry: version, escaped key, `d` and hash."""

OPENED_MAX = 3
"""How often a directory is opened that retention removes meanwhile: an id is used once, so it is missing next time."""

NO_WORK = WorkDelta()

OnWorkChanged = Callable[[EntityDirectory, WorkChanges, Position], None]
"""Called with the changed work of an entity once its entries are durable, while the entity is locked; the position is
the end of the journal that the changes include."""

UpdateState = Callable[[WorkItem], WorkState | None]
"""The new state of a piece of work; None: it is removed; the same state: nothing is written."""

_logger = logging.getLogger(__name__)


class Markers(Protocol):
    """Which entities have unfinished work (`work.markers`)."""

    def create(self, address: EntityDirectory) -> None:
        """Create the marker of an entity; it is on disk on return."""

    def delete(self, address: EntityDirectory) -> None:
        """Delete the marker of an entity without work."""

    def notify(self, address: EntityDirectory) -> None:
        """Hint to the process that runs work that the work of an entity changed."""


class Hints(Protocol):
    """Which entities have grown (`feed.hints`)."""

    def note(self, entity: str, version: int, time_ms: int) -> None:
        """Hint that an entity has a durable version. Does not wait, and does not raise OSError."""


class PrunedIds(Protocol):
    """Which entities were removed by retention (`tombstones`)."""

    def stored(self, address: EntityDirectory) -> Tombstone | None:
        """The tombstone that was written for an entity. It counts if the entity has no entry here any more."""


class JournalContext:
    """What the journals of one open store share. `on_work_changed` is set in the process that runs work."""

    markers: Markers
    hints: Hints
    tombstones: PrunedIds

    def __init__(self, io: DurableIO) -> None:
        self.io = io
        self.configurations = KnownConfigurations()
        self.on_work_changed: OnWorkChanged | None = None
        self.snapshot_failures = 0


class Journal:
    """The open journal of one entity. Safe for several threads; one append at a time."""

    def __init__(self, context: JournalContext, address: EntityDirectory) -> None:
        self.address = address
        self.facts: ListFacts | None = None
        self.snapshot: Snapshot | None = None
        self.work = UnfinishedWork()
        self._context = context
        self._io = context.io
        self._settings = context.io.settings
        self._file = JournalFile(context.io, address, on_record=self._on_record, on_line=self._on_line)
        self._keys = RecentKeys()
        self._stored_version = 0
        self._is_marked = False
        self._marked_for: OnWorkChanged | None = None
        self._published_to: OnWorkChanged | None = None
        self._is_cut = is_cut(address.name)
        self._mutex = Lock()

    @property
    def position(self) -> Position:
        """The known end of the journal."""
        return self._file.position

    def durable_version(self) -> int:
        """The last version if everything known is durable, else 0. Without the mutex: a hint for readers."""
        position, durable_end = self._file.position, self._file.durable_end
        return position.version if position.offset <= durable_end else 0

    # Appending

    def append(self, append: Append) -> AppendResult:
        """Append one entry, if the entity is at the expected version and the key is new."""
        with self._mutex:
            self._io.check_poison(self.address)
            for _ in range(OPENED_MAX):
                if not self._file.open_directory(create=False):
                    if append.expected:
                        return Conflict(0)
                    if (pruned := self._pruned()) is not None:
                        return pruned
                    self._file.open_directory(create=True)
                with self._file.lock():
                    if self._catch_up():
                        return self._refuse(append) or self._append(append)
            raise self._removed()

    def _pruned(self) -> Pruned | None:
        """The answer to a creation of an entity that has no entry here, if it was pruned."""
        found = self._context.tombstones.stored(self.address)
        return None if found is None else Pruned(found.version)

    def append_inline(self, append: Append) -> AppendResult | None:
        """`append`, where nothing is waited for but one flush; None where there is more to do (rule 1).

        A thread that takes the mutex meanwhile is waited for. After Ctrl-C the journal, whose state may be half a step
        ahead, is closed, and its lock with it.
        """
        if self._mutex.locked():
            return None
        with self._mutex:
            self._io.check_poison(self.address)
            if not self._file.is_open:
                return None
            try:
                with self._file.lock(ms_max=0):
                    if not self._is_quick(append):
                        return None
                    return self._refuse(append) or self._write_entry(append)
            except InterlockError as error:
                if error.code != LOCKED:
                    raise
                return None
            except BaseException:
                self._file.close()
                raise

    def _is_quick(self, append: Append) -> bool:
        """Whether one write and its flush is all: nothing to read, repair or mark, and no snapshot is due.

        Nor a hint for another process, which may have to wait for a lock. The first entry has names to flush.
        """
        if not self._file.is_at_end() or self._file.is_full() or self.position.version == 0:
            return False
        if append.work != NO_WORK and self._context.on_work_changed is None:
            return False
        if append.work.created and not self._has_marker():
            return False
        return not self._is_snapshot_due(append.expected, append.snapshot)

    def _refuse(self, append: Append) -> Duplicate | Conflict | StaleAttempt | KeyExpired | Pruned | None:
        """Why the entry is not written; None when it is to be. Everything in the journal is known."""
        if self.position.version == 0 and (pruned := self._pruned()) is not None:
            return pruned  # it was pruned while its directory was created again
        version = self._keys.get(append.entry.key)
        if version is not None:
            self._confirm_duplicate()
            return Duplicate(version)
        if append.sent_ms is not None and self._keys.may_be_forgotten(append.sent_ms):
            return KeyExpired(self.position.version, self._keys.forgotten_ms)
        if self.position.version != append.expected:
            return Conflict(self.position.version)
        if append.fence is not None and not self.work.is_newest(*append.fence):
            return StaleAttempt(self.position.version)
        return None

    def _confirm_duplicate(self) -> None:
        """Step 3: `Duplicate` is an acknowledgement, so its record must be durable first."""
        self._file.confirm()
        self._file.check_name()
        self._hint()  # the writer may have died before its own hint

    def _append(self, append: Append) -> Appended:
        self._file.cut_torn_tail()
        if self._file.is_full():
            self._rotate(self._file.base.next(self.position))
        is_due = self._is_snapshot_due(append.expected, append.snapshot)
        return self._write_entry(append, is_snapshot_due=is_due)

    def _write_entry(self, append: Append, *, is_snapshot_due: bool = False) -> Appended:
        self._write(append)
        if is_snapshot_due:
            self._store_snapshot()
        if append.work != NO_WORK:
            self._publish()
        return Appended(self.position.version, self.position.head)

    def _write(self, append: Append) -> None:
        """Step 5."""
        entry, file, position = append.entry, self._file, self._file.position
        if entry.version != position.version + 1:
            message = f"entry {entry.version} cannot follow version {position.version} of `{append.entity}`"
            raise UsageError(message, code="entry.version")
        delta, key, work_line = append.work, self._settings.store_key, b""
        if delta != NO_WORK or position.work_bytes:
            work_line = encode_work(delta, entry.version, position.head, file.durable_end, store_key=key)
        durable = file.durable_record_bytes()
        record = encode_record(
            entry, durable=durable, previous=position.head, store_key=key, entry_json=append.entry_json
        )
        if len(record.line) > ENTRY_BYTES_MAX + ENVELOPE_BYTES_MAX:
            raise RejectedError(f"the entry has more than {ENTRY_BYTES_MAX:,} bytes", code="entry.size")
        if delta.created and not self._has_marker():
            self._context.markers.create(self.address)
            self._marked_for = self._context.on_work_changed
        file.append_record(record, work_line)
        self._keys.remember(entry.key, entry.version, entry.event.time_ms)
        self.facts = self._context.configurations.after_append(self.facts, append)
        self.snapshot = append.snapshot
        self._hint()
        if delta != NO_WORK:
            self.work.apply(delta)
            self._is_marked = (self._is_marked or bool(delta.created)) and len(self.work) > 0

    def _hint(self) -> None:
        """Show readers of the feed how far the journal is durable."""
        if self.facts is not None:
            self._context.hints.note(self.address.entity, self.position.version, self.facts.changed_ms)

    # Loading

    def load_cached(self, key: str | None) -> Loaded | Duplicate | None:
        """The entity as this journal has it, if that is its current state; `Duplicate` for a known key.

        None when it is unknown or a thread uses the journal: the caller then reads it from the disk.
        """
        if self._mutex.locked():
            return None
        with self._mutex, contextlib.suppress(OSError):
            snapshot, facts, file = self.snapshot, self.facts, self._file
            if not file.is_open or snapshot is None or facts is None or self._io.is_poisoned(self.address):
                return None
            if snapshot.version == file.position.version and file.has_durable_records() and file.is_at_end():
                version = None if key is None else self._keys.get(key)
                if version is not None:
                    file.check_name()
                return Loaded(snapshot.version, facts.changed_ms, snapshot) if version is None else Duplicate(version)
        return None

    def confirm(self, key: str) -> int | None:
        """The version of a key, once its record is durable; None when the key is not in the journal."""
        with self._exclusive() as exists:
            version = self._keys.get(key) if exists else None
            if version is not None:
                self._confirm_duplicate()
            return version

    def confirm_all(self) -> tuple[int, int]:
        """Make every record durable; return the last version and its time, 0 and 0 when the entity does not exist."""
        with self._exclusive() as exists:
            if not exists or self.facts is None:
                return 0, 0
            self._file.confirm_records()
            return self.position.version, self.facts.changed_ms

    @contextlib.contextmanager
    def _exclusive(self, *, create: bool = False) -> Iterator[bool]:
        """Holds the mutex and the lock, with everything in the journal known; False when the entity does not exist."""
        with self._mutex:
            self._io.check_poison(self.address)
            for _ in range(OPENED_MAX):
                if not self._file.open_directory(create=create):
                    yield False
                    return
                with self._file.lock():
                    if self._catch_up():
                        yield True
                        return
            raise self._removed()

    def _removed(self) -> UnavailableError:
        return UnavailableError(f"the directory of `{self.address.entity}` is removed again and again", code=LOCKED)

    def _catch_up(self) -> bool:
        """Steps 1 and 2. False when the directory that is open was removed: it is closed with the lock."""
        try:
            if self._file.is_open:
                self._file.catch_up()
            else:
                self._restore(self._file.open())
                self._file.read_opened()
        except DirectoryRemovedError:
            self._file.mark_stale()
            return False
        except InterlockError:
            self._file.mark_stale()
            raise
        return True

    def _restore(self, stored: StoredSnapshot | None) -> None:
        """Start with what the snapshot has, or with nothing."""
        self.facts, self.snapshot = None, None
        self._keys, self._stored_version = RecentKeys(), 0
        self.work, self._is_marked, self._marked_for = UnfinishedWork(), False, None
        if stored is not None:
            self.facts, self._keys = stored.facts, stored.recent_keys()
            self.work, self._stored_version = UnfinishedWork.decode(stored.work), stored.position.version
            snapshot = stored.snapshot
            self._context.configurations.learn(snapshot.revision, snapshot.configuration, stored.facts)

    def _on_record(self, record: JournalRecord) -> None:
        self._keys.remember(record.key, record.version, record.entry.event.time_ms)
        self.facts = self._context.configurations.after_record(self.facts, record)
        self.snapshot = None

    def _on_line(self, line: WorkLine | MarkLine) -> None:
        """Once all work has ended, another process may have removed the marker."""
        self.work.apply_line(line)
        self._is_marked = self._is_marked and len(self.work) > 0

    # Work

    def update_work(self, work_id: WorkId, update: UpdateState, *, durable: bool = False) -> WorkItem | None:
        """Update the state of a piece of work, and return it as it was before; None when it does not exist."""
        with self._exclusive() as exists:
            if not exists:
                return None
            self._file.cut_torn_tail()  # a part is not enough: work that a damaged line ended would start again
            item = self.work.get(work_id)
            if item is not None:
                state = update(item)
                if state != item.state:
                    self._write_mark(work_id, state, durable=durable)
            self._publish()
            return item

    def publish_work(self) -> tuple[WorkItem, ...]:
        """The unfinished work, which is published as a whole."""
        with self._exclusive() as exists:
            if not exists:
                return ()
            self._file.cut_torn_tail()
            self._file.confirm_records()
            if self._context.on_work_changed is not None:
                self.work.mark_unpublished()
                self._publish()
            return self.work.items()

    def remove_marker(self) -> bool:
        """Remove the marker if no work is left; whether it was removed. Raises OSError when it cannot be removed."""
        with self._exclusive() as exists:
            if exists:
                self._file.cut_torn_tail()
                if len(self.work):
                    return False
                self._marked_for = None
                self._context.markers.delete(self.address)
            return True

    def _write_mark(self, work_id: WorkId, state: WorkState | None, *, durable: bool) -> None:
        if self._file.is_full():
            self._rotate(self._file.base.next(self.position))
        key, head = self._settings.store_key, self.position.head
        self._file.append_mark(
            encode_mark(work_id, state, head, self._file.durable_end, store_key=key), durable=durable
        )
        self.work.set_state(work_id, state)
        self._is_marked = self._is_marked and len(self.work) > 0

    def _has_marker(self) -> bool:
        """Whether the marker exists for sure: this journal created it, and since then either work was unfinished, or
        this process is the one that runs work, and only that one removes markers.
        """
        listener = self._context.on_work_changed
        return self._is_marked or (listener is not None and listener is self._marked_for)

    def _publish(self) -> None:
        """Publish the work: to the listener of this process, or to another process by a hint."""
        listener = self._context.on_work_changed
        if listener is None or listener is not self._published_to:
            self._published_to = None
            self.work.mark_unpublished()
        if listener is None:
            self._context.markers.notify(self.address)
            return
        self._file.confirm_records()
        listener(self.address, self.work.changes(), self.position)
        self._published_to = listener
        self.work.mark_published()

    # Snapshots

    def _is_snapshot_due(self, before: int, snapshot: Snapshot) -> bool:
        """At every so many versions; when the entity ends; at its first entry when its directory name was cut."""
        interval = snapshot_interval(self._settings.snapshot_every, len(self._keys))
        if snapshot.version // interval > before // interval or snapshot.ended is not None:
            return True
        return self._is_cut and self._stored_version == 0

    def _is_snapshot_newer(self) -> bool:
        return self.snapshot is not None and self.snapshot.version > self._stored_version

    def _store_snapshot(self) -> None:
        """Step 6. The entry is durable already, so no error of this may reach the caller."""
        assert self.snapshot is not None
        try:
            # An older one would do as well, except for the last, which an archive needs, and one that has the id.
            self._write_snapshot(durable=self.snapshot.ended is not None or self._is_cut)
        except OSError as error:
            self._context.snapshot_failures += 1
            fields = {"entity_id": self.address.entity, "version": self.position.version, "error": str(error)}
            _logger.warning("cannot write a snapshot", extra=fields)
        else:
            self._stored_version = self.position.version

    def _require_snapshot(self) -> None:
        """Write a durable snapshot, where records depend on it: adopted ones, and those to be released."""
        try:
            self._write_snapshot(durable=True)
        except OSError as error:
            raise unavailable(self.address.entity, "snapshot", error) from error
        self._stored_version = self.position.version

    def _write_snapshot(self, *, durable: bool) -> None:
        assert self.snapshot is not None
        assert self.facts is not None
        keys = self._keys
        stored = StoredSnapshot(
            self.snapshot, self.position, self.facts, keys.encode(), self.work.encode(), keys.times()
        )
        data = encode_snapshot_file(stored, store_key=self._settings.store_key)
        replace_file(self._io.fs, self._file.directory, SNAPSHOT, data, durable=durable)

    def _rotate(self, base: Base, body: bytes = b"") -> None:
        """Rotate the file, after writing a snapshot if there is a newer one."""
        if self._is_snapshot_newer():
            self._file.confirm()
            self._store_snapshot()
        self._file.rotate(base, body)

    # Whole journals

    def adopt(self, append: Append, records: tuple[JournalRecord, ...]) -> int:
        """Add records that follow those here, and return the version reached. Those here already are skipped."""
        with self._exclusive(create=True):
            if self.position.version == 0 and (pruned := self._pruned()) is not None:
                raise PrunedError(self.address.entity, pruned.version)
            self._file.confirm()
            new = tuple(each for each in records if each.version > self.position.version)
            if new:
                body = _verify_records(self._file.chain, self.position, new)
                self._file.cut_torn_tail()
                self._rotate(self._file.base.next(self.position, durable=len(body)), body)
            if self.position.version == append.snapshot.version > self._stored_version:
                self.facts = self._context.configurations.after_append(self.facts, append)
                self.snapshot = append.snapshot
                self._require_snapshot()
            self._hint()
            return self.position.version

    def release(self, version: int, archive: str) -> bool:
        """Release the records, if the entity has ended and is at this version. They are removed on return."""
        with self._exclusive() as exists:
            if not exists or self.position.version != version or self._ended() is None:
                return False
            if self._file.base.since <= version:
                self._file.cut_torn_tail()
                self._rotate(self._file.base.next_after_release(self.position, archive))
            self._file.sweep()
            self._file.sync_names()
            return True

    def prune(self, tombstone: Tombstone, *, write: Callable[[EntityDirectory, Tombstone], None], name: str) -> Removal:
        """Write the tombstone, and rename the directory, if the entity has ended, is at that record, and has no work.

        Its files are still there, under the new name.
        """
        with self._exclusive() as exists:
            if not exists or (self.position.version, self.position.head) != (tombstone.version, tombstone.head):
                return Removal(0, is_done=True, blocked="changed")
            self._file.cut_torn_tail()
            if self._ended() is None:
                return Removal(0, is_done=True, blocked="alive")
            if len(self.work):
                return Removal(0, is_done=True, blocked="work")
            write(self.address, tombstone)
            self._context.markers.delete(self.address)
            self._marked_for = None
            self._file.seal_and_rename(name)
            return Removal(0, is_done=False, version=tombstone.version)

    def compact(self, base: JournalBase, newest: Snapshot) -> Removal:
        """Remove the records up to the version of a base, if the journal has that record and a later one."""
        with self._exclusive() as exists:
            version, since = self.position.version, self._file.base.since
            if not exists or not since - 1 <= base.version < version:
                return Removal(0, is_done=True, blocked="changed")
            if self._file.base.archive:
                return Removal(0, is_done=True, blocked="archived")
            if base.version == since - 1:
                is_same = self._file.base.origin == base.head
                return Removal(0, is_done=True, version=base.version, blocked=None if is_same else "changed")
            if not self._has_snapshot(newest):
                return Removal(0, is_done=True, blocked="changed")
            self._file.cut_torn_tail()
            self._rotate(self._file.base.next(self.position))
            self._require_snapshot()
            self._write_base(base)
            if self._file.cut_before(base.version, base.head) is not None:
                return Removal(0, is_done=True, blocked="changed")
            self._file.sweep()
            self._file.sync_names()
            return Removal(base.version - since + 1, is_done=True, version=base.version)

    def _has_snapshot(self, newest: Snapshot) -> bool:
        """Whether there is a snapshot of the last version; of several, the given one is taken last."""
        version = self.position.version
        if self.snapshot is None and newest.version == version:
            self.snapshot = newest
        elif self.snapshot is None and (stored := self._file.read_snapshot()) is not None:
            self.snapshot = stored.snapshot if stored.position.version == version else None
        return self.snapshot is not None

    def _write_base(self, base: JournalBase) -> None:
        """Write the snapshot at which the journal is to start. It is durable on return."""
        data = encode_base_file(base, store_key=self._settings.store_key)
        try:
            replace_file(self._io.fs, self._file.directory, base_name(base.version), data)
        except OSError as error:
            raise unavailable(self.address.entity, "compact", error) from error

    def _ended(self) -> str | None:
        """How the entity ended, by a stored snapshot of its last version that has all its work."""
        stored = self._file.read_snapshot()
        if stored is not None and stored.position.version == self.position.version:
            if stored.position == self.position:
                return stored.snapshot.ended
            self.snapshot = stored.snapshot
        if self.snapshot is None:
            message = f"there is no snapshot of `{self.address.entity}` at version {self.position.version}"
            raise UnavailableError(message, code="store.snapshot", hint="adopt its records here again, then retry")
        self._file.confirm()
        self._require_snapshot()
        return self.snapshot.ended

    # Closing

    def close(self) -> None:
        """Close the file, after writing the last snapshot if it is newer than the stored one and still current."""
        with self._mutex:
            if self._file.is_open and self._is_snapshot_newer() and not self._io.is_poisoned(self.address):
                with contextlib.suppress(UnavailableError), self._file.lock():
                    if self._file.is_at_end():
                        self._file.confirm()
                        self._store_snapshot()
            self._file.close()

    def abandon(self) -> None:
        """In a forked child: close inherited descriptors. A thread of the parent may hold the mutex."""
        self._mutex = Lock()
        self._file.close()


def conflicting_records(entity: str, version: int) -> ConflictError:
    """The error for records to adopt that differ from those in the journal."""
    message = f"`{entity}` has different records here from version {version} on"
    return ConflictError(message, code="journal.taken")


def _verify_records(chain: Chain, position: Position, records: tuple[JournalRecord, ...]) -> bytes:
    """The bytes of records that follow a position, verified link by link.

    Raises ConflictError when they do not start there, CorruptionError when their chain is broken.
    """
    if records[0].version != position.version + 1:
        message = f"records of `{chain.entity}` from version {records[0].version} on cannot follow {position.version}"
        raise ConflictError(message, code="journal.gap", hint="adopt the records in between first")
    head, lines = position.head, []
    for version, given in enumerate(records, start=position.version + 1):
        record = decode_record(given.line, previous=head, version=version, store_key=chain.store_key)
        if isinstance(record, InvalidRecord):
            if version == position.version + 1 > 1:
                raise conflicting_records(chain.entity, version)
            message = f"version {version} of `{chain.entity}` cannot be adopted: {record.reason}"
            raise CorruptionError(message, code="journal.chain")
        head = record.head
        lines.append(given.line)
    return b"".join(lines)

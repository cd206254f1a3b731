"""One entity's journal, opened for appending: protocol A. The only code that writes or cuts `events.log`.

The order of an append, under a mutex of this process and the lock of the entity's directory:

1. Open, the first time: make what is missing, then flush both directories, always: whoever made them may have died
   before flushing. Flush the journal and forget its pages, so that what is read is what the disk has.
2. Read and verify everything behind the last known record.
3. The key is known: make sure that it is durable, answer `Duplicate`. It may be forgotten: `KeyExpired`. Another
   version: `Conflict`.
4. Bytes that are no record: damage is raised, a torn tail is cut off. A segment that is full is sealed and the next
   one put in place (`files_rotation`); one that is found sealed was left by a process that died, and is followed up.
5. The marker of an entity that is left with work (`files_pending`). One write of the whole line, with that of its work
   before it, over the spare room (`files_spare`), then fdatasync. Only now the receipt may be given, and the work be
   performed (`files_work`).
6. A snapshot when it is due. Its errors are logged, never raised: the entry holds.

Rule 1: a flush that failed is never tried again. The write is cut off again, and the entity is poisoned for the life
of the process: a second flush would say yes to bytes that the disk does not have.
Rule 2: every other failure leaves the journal as it was, and the handle good.
Rule 3: nothing in memory is ahead of the disk: state advances after the flush, so any exception in between is cured by
the next reading of the tail.
Rule 4: nothing is acknowledged that stands in a file without its name: after each flush the path of the journal must
lead to the open file. One that was moved, replaced or deleted poisons the entity.
Records that come from elsewhere, and go there: `files_exchange`.
"""

from __future__ import annotations

import contextlib
import errno
import logging
from collections.abc import Hashable

from interlock.errors import InterlockError, RejectedError, UnavailableError, UsageError
from interlock.model.journal.record import JournalRecord, encode_record
from interlock.model.journal.work import WorkDelta
from interlock.model.limits import ENTRY_BYTES_MAX
from interlock.model.snapshot import Snapshot
from interlock.ports.store import Append, Appended, AppendResult, Conflict, Duplicate, KeyExpired, StaleAttempt
from interlock.stores.files.journal.durable_io import (
    DurableIO,
    EntityDirectory,
    OnWorkChanged,
    shard_opened,
    unavailable,
    write_whole,
)
from interlock.stores.files.journal.handle import Handle
from interlock.stores.files.journal.padding import ends_at, spare
from interlock.stores.files.journal.reading import (
    Active,
    Chain,
    JournalReader,
    SegmentMovedError,
    active_segment,
    is_held,
    unwitnessed,
)
from interlock.stores.files.journal.recent_keys import RecentKeys
from interlock.stores.files.journal.rotation import following, put_in_place
from interlock.stores.files.journal.segments import Base, encode_seal, joined
from interlock.stores.files.journal.snapshot_file import (
    ListFacts,
    Position,
    StoredSnapshot,
    apart,
    encode_snapshot_file,
)
from interlock.stores.files.journal.tail import corrupt, read_kept, stands
from interlock.stores.files.journal.work_lines import Beside, UnfinishedWork, encode_work
from interlock.stores.files.names import JOURNAL, SNAPSHOT, is_cut, is_leftover, sealed_first
from interlock.stores.replaced_files import replaced

ENVELOPE_BYTES_MAX = 2_048
"""Bytes of a record around its entry: version, escaped key, `d` and hash."""

NOTHING = WorkDelta()

_logger = logging.getLogger(__name__)


class Journal(Handle):
    """The handle of one entity. Safe for several threads; one append at a time."""

    def __init__(self, shared: DurableIO, address: EntityDirectory) -> None:
        super().__init__(shared, address)
        self.facts: ListFacts | None = None
        self.snapshot: Snapshot | None = None
        self.rows = UnfinishedWork()
        self._chain = Chain(address, shared.settings.tenant, shared.settings.store_key)
        self.mark = self._chain.beginning()
        self.durable = 0
        self._keys = RecentKeys()
        self._walk: JournalReader | None = None
        self._kept_version = 0
        self._base = self._chain.base()
        self._is_announced = False
        self._announced_to: OnWorkChanged | None = None
        self._told_to: OnWorkChanged | None = None
        self._records_end = 0
        self._end = 0
        self._is_cut = is_cut(address.name)
        self._path = f"{shared.root}/{address.folder}/{JOURNAL}"
        self._identity: Hashable = None

    # What a handle does

    def append(self, append: Append) -> AppendResult:
        """Keep one step, if the entity still is at the expected version and its key is new."""
        with self._mutex:
            self._shared.check_poison(self.address)
            if not self._find_directory(create=append.expected == 0):
                return Conflict(0)
            with self._locked():
                self._catch_up()
                return self._refused(append) or self._appended(append)

    def _refused(self, append: Append) -> Duplicate | Conflict | StaleAttempt | KeyExpired | None:
        """Why there is nothing to write; None when there is. Everything that the journal says is known."""
        version = self._keys.get(append.entry.key)
        if version is not None:
            self._confirm()
            self._check_name()
            return Duplicate(version)
        if append.sent_ms is not None and self._keys.may_have_had(append.sent_ms):
            return KeyExpired(self.mark.version, self._keys.forgotten_ms)
        if self.mark.version != append.expected:
            return Conflict(self.mark.version)
        if append.fence is not None and not self.rows.is_newest(*append.fence):
            return StaleAttempt(self.mark.version)
        return None

    def _appended(self, append: Append) -> Appended:
        self._repair()
        if self._is_full():
            self._rotate(following(self._base, self.mark))
        return self._written(append, is_due=self._snapshot_due(append.expected, append.snapshot))

    def _written(self, append: Append, *, is_due: bool = False) -> Appended:
        self._write(append)
        if is_due:
            self._keep()
        if append.left != NOTHING:
            self._tell()
        return Appended(self.mark.version, self.mark.head)

    def confirm(self, key: str) -> int | None:
        """The version of a key, once its record is durable; None when the key is not in the journal."""
        with self._mutex:
            self._shared.check_poison(self.address)
            if not self._find_directory(create=False):
                return None
            with self._locked():
                self._catch_up()
                version = self._keys.get(key)
                if version is not None:
                    self._confirm()
                    self._check_name()
                return version

    def close(self) -> None:
        """Lets go, after keeping a last snapshot where there is a newer one than on disk and nobody went on."""
        with self._mutex:
            if self._file >= 0 and self._is_snapshot_newer() and not self._shared.is_poisoned(self.address):
                with contextlib.suppress(UnavailableError), self._locked():
                    if self._is_at_end():
                        self._confirm()
                        self._keep()
            self._drop()

    # Opening

    def _open(self) -> None:
        """Step 1, under the lock: nobody writes meanwhile, so what is flushed here is known durable."""
        fs, address, shared = self._fs, self.address, self._shared
        try:
            self._file = fs.open_update(self._directory, JOURNAL)
        except OSError as error:
            raise unavailable(address.entity, "open", error) from error
        self._sync_names()
        with shard_opened(fs, address.resources, address.shard) as shard:
            shared.flushed(address, fs.sync_directory, shard, f"{address.shard}/")
        shared.flushed(address, fs.fdatasync, self._file, address.name)
        fs.forget(self._file)
        self._begin(active_segment(fs, self._directory, self._file, self._chain))
        self._sweep()
        self.mark, self.facts, self.snapshot = self._chain.beginning(), None, None
        self._keys, self._kept_version = RecentKeys(), 0
        self.rows, self._is_announced, self._announced_to = UnfinishedWork(), False, None
        kept = self._read_kept()
        if kept is not None:
            self._check_held(kept)
            self.mark, self.facts, self._keys = kept.mark, kept.facts, kept.known_keys()
            self.rows, self._kept_version = UnfinishedWork.decoded(kept.work), kept.mark.version
            shared.shapes.learn(kept.snapshot.revision, kept.snapshot.configuration, kept.facts)
        elif self._base.since > 1:
            raise unwitnessed(address, self._base)
        self._read_tail()
        self.durable = self.mark.offset

    def _begin(self, active: Active) -> None:
        """From now on this is the active segment."""
        self._active, self._file, self._base = active, active.file, active.base
        self._identity = self._fs.identity(active.file)
        self.durable, self._records_end, self._end = active.base.durable_end, 0, 0

    def _sweep(self) -> None:
        """Removes what nobody needs: files that somebody was writing who died, segments whose records were released."""
        for name in self._fs.names(self._directory):
            first = sealed_first(name)
            if is_leftover(name) or (first is not None and first < self._base.since):
                self._fs.unlink(self._directory, name)

    def _read_kept(self) -> StoredSnapshot | None:
        return read_kept(self._fs, self._directory, self.address.entity, store_key=self._settings.store_key)

    def _check_held(self, kept: StoredSnapshot) -> None:
        try:
            held = is_held(self._fs, self._active, kept.mark)
        except SegmentMovedError as error:
            raise corrupt(self.address, kept.mark, str(error)) from error
        if not held:
            raise corrupt(self.address, kept.mark, "the snapshot of this version is not in the journal")

    # Reading

    def _catch_up(self) -> None:
        """Step 2: everything that others appended since."""
        try:
            if self._file < 0:
                self._open()
            elif not self._is_at_end():
                if self.mark.offset > 0 and not stands(self._fs, self._file, self.mark):
                    raise corrupt(self.address, self.mark, "the journal became shorter, or was replaced")
                self._read_tail()
        except InterlockError:
            self._is_stale = True
            raise

    def _is_at_end(self) -> bool:
        """Whether all is known. A torn tail that was seen here may begin with blanks, and is looked for once more."""
        return not (self._walk is not None and self._walk.rest) and ends_at(self._fs, self._file, self.mark)

    def _read_tail(self) -> None:
        while self._read_to_the_end():  # at most twice: nobody else rotates while we hold the lock
            self._pass_seal()

    def _read_to_the_end(self) -> bool:
        """Whether the active segment, as this handle knows it, is sealed."""
        walk = JournalReader(self._fs, self._active, self.mark, self._chain, hear=self._hear)
        try:
            for record in walk:
                self._learn(record, walk.mark)
        except SegmentMovedError as error:
            raise corrupt(self.address, self.mark, str(error)) from error
        self.mark, self._walk = walk.mark, walk
        if walk.is_sealed and walk.rest:
            raise corrupt(self.address, self.mark, "bytes stand behind the seal")
        return walk.is_sealed

    def _learn(self, record: JournalRecord, mark: Position) -> None:
        self.mark = mark
        self._keys.remember(record.key, record.version, record.entry.event.time_ms)
        self.facts = self._shared.shapes.after_record(self.facts, record)
        self.snapshot = None
        if mark.segment == self._base.first:  # an adopted record's `d` is of another journal, but it was durable itself
            self.durable = max(self.durable, min(record.durable, mark.offset - len(record.line)))
            self._records_end = mark.offset

    def _hear(self, line: Beside, mark: Position) -> None:
        """A line beside the records. Whoever sees all work end knows no longer whether there is a marker."""
        self.rows.apply(line)
        self._is_announced = self._is_announced and len(self.rows) > 0
        if mark.segment == self._base.first:
            self.durable = max(self.durable, line.d)

    def _pass_seal(self) -> None:
        """Goes on in the segment that is the active one now; there may be none yet, if its maker died."""
        fs = self._fs
        file = fs.open_update(self._directory, JOURNAL)
        if fs.identity(file) == fs.identity(self._file):
            fs.close(file)
            self._put_in_place(following(self._base, self.mark))
        else:
            self._sync_names()  # whoever put it in place may have died before its own flush
            self._switch(file)

    def _sync_names(self) -> None:
        self._shared.flushed(self.address, self._fs.sync_directory, self._directory, self.address.name)

    def _switch(self, file: int) -> None:
        self._fs.close(self._file)
        self._file = file
        self._begin(active_segment(self._fs, self._directory, file, self._chain))
        self.mark = joined(self.mark, self._base)  # the segment before it was read to its seal

    def _confirm(self) -> None:
        """Step 3: a known key is an acknowledgement too, so its record must be durable first."""
        if self.durable < self.mark.offset:
            self._shared.flushed(self.address, self._fs.fdatasync, self._file, self.address.name)
            self.durable = self.mark.offset

    # Writing

    def _repair(self) -> None:
        """Step 4: cuts a torn tail. Raises CorruptionError when the bytes had been durable, or all are gone."""
        walk = self._walk
        assert walk is not None
        if not walk.rest and self.mark.version > 0:
            return
        why = walk.judgement(self._read_kept())
        if why is not None:
            raise corrupt(self.address, self.mark, why)
        if walk.rest:
            try:
                self._fs.truncate(self._file, self.mark.offset)
            except OSError as error:
                raise unavailable(self.address.entity, "truncate", error) from error
            walk.rest, self._end = b"", self.mark.offset

    def _is_full(self) -> bool:
        return self.mark.offset >= self._settings.segment_bytes_max and self.mark.version >= self._base.first

    def _rotate(self, base: Base, body: bytes = b"") -> None:
        """Seals the active segment and goes on in one that begins with this base and these lines."""
        if self._is_snapshot_newer():
            self._confirm()
            self._keep()
        key = self._settings.store_key
        self._write_line(encode_seal(self._base.first, self.mark, self.durable, store_key=key))
        self._flush_line()
        self._put_in_place(base, body)
        self._read_tail()

    def _put_in_place(self, base: Base, body: bytes = b"") -> None:
        """A handle that fails in between knows too little to go on, and is opened anew."""
        try:
            put_in_place(self._shared, self.address, self._active, self.mark, base, body)
            self._switch(self._fs.open_update(self._directory, JOURNAL))
        except OSError as error:
            self._is_stale = True
            raise unavailable(self.address.entity, "rotate", error) from error
        except InterlockError:
            self._is_stale = True
            raise

    def _write(self, append: Append) -> None:
        """Step 5: one line, flushed; with the line before it that says what the entry leaves to do, in one write."""
        entry = append.entry
        if entry.version != self.mark.version + 1:
            message = f"entry {entry.version} cannot follow version {self.mark.version} of `{append.entity}`"
            raise UsageError(message, code="entry.version")
        left, key, beside = append.left, self._settings.store_key, b""
        if left != NOTHING or self.mark.beside:
            beside = encode_work(left, entry.version, self.mark.head, self.durable, store_key=key)
        known = (self.mark.offset if self.durable >= self._records_end else self.durable) - self.mark.beside
        record = encode_record(entry, durable=max(0, known), previous=self.mark.head, store_key=key)
        if len(record.line) > ENTRY_BYTES_MAX + ENVELOPE_BYTES_MAX:
            raise RejectedError(f"the entry has more than {ENTRY_BYTES_MAX:,} bytes", code="entry.size")
        if left.born and not self._has_marker():
            self._shared.markers.announce(self.address)
            self._announced_to = self._shared.note
        self._write_line(beside + record.line)
        self._flush_line()
        end = self.mark.offset + len(beside) + len(record.line)
        self.mark = Position(record.version, end, record.head, self.mark.segment, self.mark.beside + len(beside))
        self.durable = self._records_end = end
        self._keys.remember(entry.key, entry.version, entry.event.time_ms)
        self.facts = self._shared.shapes.after_append(self.facts, append)
        self.snapshot = append.snapshot
        if left != NOTHING:
            self.rows.keep(left)
            self._is_announced = (self._is_announced or bool(left.born)) and len(self.rows) > 0

    def _write_line(self, line: bytes) -> None:
        """Over the spare room, with more of it behind where there is too little (`files_spare`)."""
        offset = self.mark.offset
        end = offset + len(line)
        data = line if end <= self._end else line + spare(end, self._settings.block_bytes)
        try:
            written = self._fs.write_at(self._file, offset, data)
            if written < len(line):
                raise OSError(errno.ENOSPC, f"only {written} of {len(line)} bytes were taken")
        except OSError as error:
            self._undo()
            raise unavailable(self.address.entity, "write", error) from error
        self._end = max(self._end, offset + written)

    def _flush_line(self) -> None:
        try:
            self._shared.flushed(self.address, self._fs.fdatasync, self._file, self.address.name)
            self._check_name()
        except UnavailableError:
            self._undo()
            raise

    def _check_name(self) -> None:
        """Rule 4: raises UnavailableError, and poisons the entity, when the journal has lost its name."""
        try:
            if self._fs.identity_at(self._path) == self._identity:
                return
        except OSError as error:
            raise unavailable(self.address.entity, "look", error) from error
        self._shared.poisons[self.address.name] = "its journal was moved, replaced or deleted"
        raise replaced(f"{self._path} was moved, replaced or deleted")

    def _undo(self) -> None:
        """Cuts off this write and nothing else: what stands before it may be another process's acknowledged entry.

        If even that fails, what is left is a torn tail, or a whole record that a retry will find by its key.
        """
        self._end = self.mark.offset
        with contextlib.suppress(OSError):
            self._fs.truncate(self._file, self.mark.offset)

    # Work

    def _has_marker(self) -> bool:
        """Whether it made the marker, and work was unfinished ever since or only this process removes markers."""
        note = self._shared.note
        return self._is_announced or (note is not None and note is self._announced_to)

    def _tell(self) -> None:
        """Whoever performs hears how the work stands: here and now, or in another process by a hint."""
        note, told_to = self._shared.note, self._told_to
        if note is not told_to or note is None:
            self._told_to = None
            self.rows.told(is_heard=False)
        if note is None:
            self._shared.markers.ring(self.address)
        else:
            self._confirm_records()
            note(self.address, self.rows.news(), self.mark)
            self._told_to = note
            self.rows.told(is_heard=True)

    def _confirm_records(self) -> None:
        """Nothing is performed before its entry is durable; a mark may be lost."""
        if self.durable < self._records_end:
            self._confirm()

    # The snapshot

    def _snapshot_due(self, before: int, snapshot: Snapshot) -> bool:
        """Past every so many versions, whoever gets there; at the end of a life; at once when the name tells no id."""
        every = apart(self._settings.snapshot_every, len(self._keys))
        if snapshot.version // every > before // every or snapshot.ended is not None:
            return True
        return self._is_cut and self._kept_version == 0

    def _is_snapshot_newer(self) -> bool:
        return self.snapshot is not None and self.snapshot.version > self._kept_version

    def _keep(self) -> None:
        """Step 6. The entry is durable already, so no error of this may reach the caller."""
        assert self.snapshot is not None
        try:
            # An older one is as good, but for the last, which an archive asks for, and the one that tells the id.
            self._replace_state(is_sure=self.snapshot.ended is not None or self._is_cut)
        except OSError as error:
            self._shared.snapshot_failures += 1
            fields = {"entity_id": self.address.entity, "version": self.mark.version, "error": str(error)}
            _logger.warning("a snapshot could not be kept", extra=fields)
        else:
            self._kept_version = self.mark.version

    def _replace_state(self, *, is_sure: bool) -> None:
        assert self.snapshot is not None
        assert self.facts is not None
        keys = self._keys
        kept = StoredSnapshot(self.snapshot, self.mark, self.facts, keys.encoded(), self.rows.encoded(), keys.times())
        data = encode_snapshot_file(kept, store_key=self._settings.store_key)
        write_whole(self._fs, self._directory, SNAPSHOT, data, is_sure=is_sure)

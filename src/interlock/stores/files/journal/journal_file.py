"""The file `events.log` of one entity, open for appending. The only code that writes or cuts it.

Rule 1: a flush that failed is never repeated. The write is cut off again, and the entity is poisoned until the process
ends: a second flush may report success for bytes that the disk does not have.
Rule 2: every other failure leaves the file as it was.
Rule 3: nothing in memory is ahead of the disk. `position` and `durable_end` advance after the write or flush, so the
next reading of the tail corrects the state after any exception.
Rule 4: nothing is acknowledged in a file without its name: after each flush the path of the journal must lead to the
open file. A journal that was moved, replaced or deleted poisons the entity.
Rule 5: a descriptor is closed after the lock is released, never under it: by then its number could be another thread's,
which would lose its lock. A journal that could not be read is closed, and the next use opens it again.

Rotation replaces a full segment by the next one, under the lock, in this order:

1. The seal is written at the end of `events.log` and flushed.
2. The next segment is written whole under a temporary name and flushed.
3. `events.log` gets its sealed name as a second name; the directory is flushed.
4. The next segment is renamed to `events.log`; the directory is flushed.

Rule 6: `events.log` exists at every moment, and every record has a name at every moment.
Rule 7: any process that holds the lock and finds a seal at the end of `events.log` may repeat steps 2 to 4. It flushes
the seal first: its writer may have died before its own flush, and the next segment must not prove records durable that
are not.
Rule 8: a segment without a record is replaced without a sealed name. It is sealed too, so that a process that has it
open sees that it is no longer the active one.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable, Hashable

from interlock.errors import InterlockError, UnavailableError
from interlock.model.journal.record import JournalRecord
from interlock.stores.file_identity import replaced_error
from interlock.stores.files.durable_io import DirectoryLock, DurableIO, EntityDirectory, open_shard, unavailable
from interlock.stores.files.journal.line_formats import (
    BASE_BYTES_MAX,
    Base,
    MarkLine,
    Position,
    WorkLine,
    decode_base,
    encode_base,
    encode_seal,
    in_segment,
    padding,
)
from interlock.stores.files.journal.reading import (
    Active,
    Chain,
    JournalReader,
    SegmentMovedError,
    SegmentReader,
    active_segment,
    contains,
    corrupt,
    journal_ends_at,
    line_ends_at,
    read_snapshot,
    snapshot_required,
)
from interlock.stores.files.journal.snapshot_file import StoredSnapshot
from interlock.stores.files.names import (
    JOURNAL,
    NEXT,
    base_version,
    is_leftover,
    sealed_name,
    segment_first_version,
)

OnRecord = Callable[[JournalRecord], None]


class DirectoryRemovedError(Exception):
    """The directory that is open is no longer that of the entity: retention removed it (`Journal.prune`)."""


class JournalFile:
    """The active segment of one entity. The caller serializes threads, and holds `lock` where a method reads or writes.

    `position` is after the last known line, `durable_end` the offset up to which the segment is known to be durable.
    `on_record` and `on_line` are called with all that is read behind `position`.
    """

    def __init__(
        self,
        io: DurableIO,
        address: EntityDirectory,
        *,
        on_record: OnRecord,
        on_line: Callable[[WorkLine | MarkLine], None],
    ) -> None:
        self.address = address
        self.chain = Chain(address, io.settings.tenant, io.settings.store_key)
        self.position = self.chain.start()
        self.base = self.chain.base()
        self.durable_end = 0
        self.directory = -1
        self._io = io
        self._fs = io.fs
        self._settings = io.settings
        self._on_record = on_record
        self._on_line = on_line
        self._file = -1
        self._is_stale = False
        self._reader: JournalReader | None = None
        self._records_end = 0
        self._padding_end = 0
        self._path = f"{io.root}/{address.folder}/{JOURNAL}"
        self._identity: Hashable = None

    # Opening and closing

    @property
    def is_open(self) -> bool:
        """Whether the file is open."""
        return self._file >= 0

    def open_directory(self, *, create: bool) -> bool:
        """Open the directory of the entity; False when it does not exist and is not to be created."""
        if self.directory >= 0:
            return True
        fs, address = self._fs, self.address
        try:
            with open_shard(fs, address.resources, address.shard) as shard:
                if create:
                    with contextlib.suppress(FileExistsError):
                        fs.make_directory(shard, address.name)
                self.directory = fs.open_directory(shard, address.name)
        except OSError as error:
            if isinstance(error, FileNotFoundError) and not create:
                return False
            raise unavailable(address.entity, "open", error) from error
        return True

    def lock(self, ms_max: int | None = None) -> DirectoryLock:
        """Holds the entity's lock. Raises UnavailableError, `LOCKED`, when others hold it for too long."""
        wait = self._settings.lock_ms_max if ms_max is None else ms_max
        return DirectoryLock(self._fs, self.directory, self.address.entity, wait, self.close, self._after_lock)

    def _after_lock(self, error: BaseException | None) -> None:
        """Rule 5. An OSError under the lock is raised as UnavailableError."""
        if isinstance(error, OSError):
            self.close()
            raise unavailable(self.address.entity, "read", error) from error
        if self._is_stale:
            self.close()

    def open(self) -> StoredSnapshot | None:
        """Open the file and start at the snapshot, which is returned.

        Both directories and the file are flushed, always: the process that created them may have died before its own
        flush. Then the pages are dropped from the cache, so what is read is what the disk has.
        """
        fs, address, io = self._fs, self.address, self._io
        self._check_directory()
        try:
            self._file = fs.open_update(self.directory, JOURNAL)
        except OSError as error:
            raise unavailable(address.entity, "open", error) from error
        self.sync_names()
        with open_shard(fs, address.resources, address.shard) as shard:
            io.flush(address, fs.sync_directory, shard, f"{address.shard}/")
        io.flush(address, fs.fdatasync, self._file, address.name)
        fs.drop_cache(self._file)
        self._begin(active_segment(fs, self.directory, self._file, self.chain))
        self.sweep()
        self.position = self.chain.start()
        snapshot = self.read_snapshot()
        if snapshot is not None:
            self._check_contains(snapshot)
            self.position = snapshot.position
        elif self.base.since > 1:
            raise snapshot_required(address, self.base)
        return snapshot

    def _check_directory(self) -> None:
        """Raises DirectoryRemovedError unless the open directory has its name: nothing is created in a removed one."""
        fs, address = self._fs, self.address
        with open_shard(fs, address.resources, address.shard) as shard:
            try:
                named = fs.open_directory(shard, address.name)
            except FileNotFoundError:
                raise DirectoryRemovedError from None
            try:
                if fs.identity(named) != fs.identity(self.directory):
                    raise DirectoryRemovedError
            finally:
                fs.close(named)

    def read_opened(self) -> None:
        """Read everything after the snapshot. It was flushed by `open`, under the same lock."""
        self.read_tail()
        self.durable_end = self.position.offset

    def mark_stale(self) -> None:
        """Close the file once the lock is released: too little is known to continue."""
        self._is_stale = True

    def close(self) -> None:
        """Close both descriptors, and with them the lock; the next use opens them again."""
        for descriptor in (self._file, self.directory):
            if descriptor >= 0:
                with contextlib.suppress(OSError):
                    self._fs.close(descriptor)
        self._file = self.directory = -1
        self._is_stale = False

    def _begin(self, active: Active) -> None:
        """From now on this is the active segment."""
        self._active, self._file, self.base = active, active.file, active.base
        self._identity = self._fs.identity(active.file)
        self.durable_end, self._records_end, self._padding_end = active.base.durable_end, 0, 0

    def sweep(self) -> None:
        """Remove files of writers that died, and segments whose records were released."""
        for name in self._fs.names(self.directory):
            first, base = segment_first_version(name), base_version(name)
            is_before = (first is not None and first < self.base.since) or (
                base is not None and base < self.base.since - 1
            )
            if is_leftover(name) or is_before:
                self._fs.unlink(self.directory, name)

    def sync_names(self) -> None:
        """Flush the directory of the entity."""
        self._io.flush(self.address, self._fs.sync_directory, self.directory, self.address.name)

    def read_snapshot(self) -> StoredSnapshot | None:
        """The snapshot in the directory of the entity; None when it is missing or damaged."""
        return read_snapshot(self._fs, self.directory, self.address.entity, store_key=self._settings.store_key)

    def _check_contains(self, snapshot: StoredSnapshot) -> None:
        try:
            found = contains(self._fs, self._active, snapshot.position)
        except SegmentMovedError as error:
            raise corrupt(self.address, snapshot.position, str(error)) from error
        if not found:
            raise corrupt(self.address, snapshot.position, "the snapshot of this version is not in the journal")

    # Reading

    def catch_up(self) -> None:
        """Read what other processes appended."""
        if self.is_at_end():
            return
        if self.position.offset > 0 and not line_ends_at(self._fs, self._file, self.position):
            raise corrupt(self.address, self.position, "the journal became shorter, or was replaced")
        self.read_tail()

    def is_at_end(self) -> bool:
        """Whether everything is known. A torn tail that was found may start with blanks, and is read again."""
        has_rest = self._reader is not None and self._reader.rest
        return not has_rest and journal_ends_at(self._fs, self._file, self.position)

    def read_tail(self) -> None:
        """Read everything after `position`."""
        while self._read_to_end():  # at most twice: no other process rotates while we hold the lock
            self._pass_seal()

    def _read_to_end(self) -> bool:
        """Read the active segment, as this object knows it; whether it is sealed."""
        reader = JournalReader(self._fs, self._active, self.position, self.chain, on_line=self._handle_line)
        try:
            for record in reader:
                self._handle_record(record, reader.position)
        except SegmentMovedError as error:
            raise corrupt(self.address, self.position, str(error)) from error
        self.position, self._reader = reader.position, reader
        if reader.is_sealed and reader.rest:
            raise corrupt(self.address, self.position, "there are bytes after the seal")
        return reader.is_sealed

    def _handle_record(self, record: JournalRecord, position: Position) -> None:
        self.position = position
        self._on_record(record)
        if position.segment == self.base.first:  # the `d` of an adopted record is of another journal; it was durable
            self.durable_end = max(self.durable_end, min(record.durable, position.offset - len(record.line)))
            self._records_end = position.offset

    def _handle_line(self, line: WorkLine | MarkLine, position: Position) -> None:
        self._on_line(line)
        if position.segment == self.base.first:
            self.durable_end = max(self.durable_end, line.durable)

    def _pass_seal(self) -> None:
        """Continue in the segment that is active now; if the process that was to create it died, create it."""
        fs = self._fs
        self._check_directory()
        file = fs.open_update(self.directory, JOURNAL)
        if fs.identity(file) == fs.identity(self._file):
            fs.close(file)
            self._start_segment(self.base.next(self.position), b"")
        else:
            self.sync_names()  # the process that renamed it may have died before its own flush
            self._switch(file)

    def _switch(self, file: int) -> None:
        self._fs.close(self._file)
        self._file = file
        self._begin(active_segment(self._fs, self.directory, file, self.chain))
        self.position = in_segment(self.position, self.base)  # the segment before it was read to its seal

    # Writing

    def append_record(self, record: JournalRecord, work_line: bytes) -> None:
        """Append a record, with its work line before it, in one write. It is durable on return."""
        size = len(work_line) + len(record.line)
        self.write(work_line + record.line)
        self.flush()
        before = self.position
        end = before.offset + size
        work_bytes = before.work_bytes + len(work_line)
        self.position = Position(record.version, end, record.head, before.segment, work_bytes)
        self.durable_end = self._records_end = end

    def append_mark(self, line: bytes, *, durable: bool) -> None:
        """Append a mark line; unless `durable`, a power cut may take it."""
        self.write(line)
        before, size = self.position, len(line)
        end = before.offset + size
        if durable:
            self.flush()
            self.durable_end = end
        self.position = Position(before.version, end, before.head, before.segment, before.work_bytes + size)

    def write(self, lines: bytes) -> None:
        """Write lines over the padding, with new padding after them when they do not fit. Undone when it fails."""
        offset = self.position.offset
        end = offset + len(lines)
        data = lines if end <= self._padding_end else lines + padding(end, self._settings.block_bytes)
        try:
            written = self._fs.write_at(self._file, offset, data)
            if written < len(lines):
                raise OSError(errno.ENOSPC, f"the disk accepted only {written} of {len(lines)} bytes")
        except OSError as error:
            self._undo()
            raise unavailable(self.address.entity, "write", error) from error
        self._padding_end = max(self._padding_end, offset + written)

    def flush(self) -> None:
        """Flush what was written (rules 1 and 4). Undone when it fails."""
        try:
            self._io.flush(self.address, self._fs.fdatasync, self._file, self.address.name)
            self.check_name()
        except UnavailableError:
            self._undo()
            raise

    def _undo(self) -> None:
        """Cut off this write only: what is before it may be another process's acknowledged entry.

        If that fails too, a torn tail remains, or a whole record that a retry finds by its key.
        """
        self._padding_end = self.position.offset
        with contextlib.suppress(OSError):
            self._fs.truncate(self._file, self.position.offset)

    def check_name(self) -> None:
        """Rule 4: raises UnavailableError, and poisons the entity, when the journal has lost its name."""
        try:
            if self._fs.identity_at(self._path) == self._identity:
                return
        except OSError as error:
            raise unavailable(self.address.entity, "look", error) from error
        self._io.poisons[self.address.name] = "its journal was moved, replaced or deleted"
        raise replaced_error(f"{self._path} was moved, replaced or deleted")

    def confirm(self) -> None:
        """Make everything that is known durable."""
        if self.durable_end < self.position.offset:
            self._io.flush(self.address, self._fs.fdatasync, self._file, self.address.name)
            self.durable_end = self.position.offset

    def confirm_records(self) -> None:
        """Make every known record durable; a mark line may be lost."""
        if not self.has_durable_records():
            self.confirm()

    def has_durable_records(self) -> bool:
        """Whether every known record is durable."""
        return self.durable_end >= self._records_end

    def durable_record_bytes(self) -> int:
        """The `d` of the next record: the bytes known to be durable, without work and mark lines."""
        end = self.position.offset if self.has_durable_records() else self.durable_end
        return max(0, end - self.position.work_bytes)

    def cut_torn_tail(self) -> None:
        """Cut off a torn tail. Raises CorruptionError when those bytes were durable, or every record is missing."""
        reader = self._reader
        assert reader is not None
        if not reader.rest and self.position.version > 0:
            return
        why = reader.damage_under_lock(self.read_snapshot())
        if why is not None:
            raise corrupt(self.address, self.position, why)
        if reader.rest:
            try:
                self._fs.truncate(self._file, self.position.offset)
            except OSError as error:
                raise unavailable(self.address.entity, "truncate", error) from error
            reader.rest, self._padding_end = b"", self.position.offset

    # Rotation

    def is_full(self) -> bool:
        """Whether the active segment is to be rotated before the next line."""
        return self.position.offset >= self._settings.segment_bytes_max and self.position.version >= self.base.first

    def rotate(self, base: Base, body: bytes = b"") -> None:
        """Seal the active segment and continue in a new one that starts with this base and these lines."""
        key = self._settings.store_key
        self.write(encode_seal(self.base.first, self.position, self.durable_end, store_key=key))
        self.flush()
        self._start_segment(base, body)
        self.read_tail()

    def cut_before(self, version: int, head: str) -> str | None:
        """Remove the records up to a version, if that record has this hash; return why not otherwise.

        The active segment has no record, and everything before it is sealed. The segment that contains the version is
        written again without its first part, under another name; the next base of the active segment then starts the
        journal there, and only after that the old segments are removed. A process that dies before that leaves a file
        that no reader looks for.
        """
        fs = self._fs
        firsts = [first for each in fs.names(self.directory) if (first := segment_first_version(each)) is not None]
        first = max((each for each in firsts if self.base.since <= each <= version), default=0)
        if first == 0:
            return f"no segment has version {version}"
        file = fs.open_file(self.directory, sealed_name(first))
        try:
            base = decode_base(fs.read(file, 0, BASE_BYTES_MAX), self.chain.start(), store_key=self._settings.store_key)
            if base is None or base.first != first:
                raise corrupt(self.address, self.position, "its first line is damaged", sealed_name(first))
            segment = SegmentReader(fs, file, base.position, store_key=self._settings.store_key)
            records = list(segment)
            if not segment.is_sealed:
                raise corrupt(self.address, segment.position, "it does not end with its seal", sealed_name(first))
        finally:
            fs.close(file)
        if [each.head for each in records if each.version == version] != [head]:
            return f"version {version} has another hash"
        kept = [each for each in records if each.version > version]
        try:
            if kept:
                self._write_sealed(base, version, head, kept)
        except OSError as error:
            raise unavailable(self.address.entity, "compact", error) from error
        self.rotate(self.base.next_after_compaction(self.position, version + 1, head))
        return None

    def _write_sealed(self, before: Base, version: int, head: str, records: list[JournalRecord]) -> None:
        """Write a sealed segment with these records, which follow a version. It is durable on return."""
        fs, key = self._fs, self._settings.store_key
        body = b"".join(each.line for each in records)
        base = Base(before.number, version + 1, version + 1, head, len(body), "", head)
        data = encode_base(base, store_key=key) + body
        end = Position(records[-1].version, len(data), records[-1].head, version + 1)
        data += encode_seal(version + 1, end, len(data), store_key=key)
        name = sealed_name(version + 1)
        temporary = f"{name}{NEXT}{fs.unique()}"
        self._write_segment(temporary, data)
        fs.rename(self.directory, temporary, name)
        self.sync_names()

    def seal_and_rename(self, new_name: str) -> None:
        """End the journal: no process appends to a sealed segment, and none finds the directory under its name."""
        fs, key = self._fs, self._settings.store_key
        self.write(encode_seal(self.base.first, self.position, self.durable_end, store_key=key))
        self.flush()
        self.mark_stale()
        with open_shard(fs, self.address.resources, self.address.shard) as shard:
            fs.rename(shard, self.address.name, new_name)
            self._io.flush(self.address, fs.sync_directory, shard, f"{self.address.shard}/")

    def _start_segment(self, base: Base, body: bytes) -> None:
        """Steps 2 to 4. After a failure in between too little is known to continue, and the file is opened again."""
        try:
            self._put_segment(base, body)
            self._switch(self._fs.open_update(self.directory, JOURNAL))
        except OSError as error:
            self.mark_stale()
            raise unavailable(self.address.entity, "rotate", error) from error
        except InterlockError:
            self.mark_stale()
            raise

    def _put_segment(self, base: Base, body: bytes) -> None:
        fs, directory, address = self._fs, self.directory, self.address
        self._io.flush(address, fs.fdatasync, self._file, address.name)  # rule 7
        temporary = f"{JOURNAL}{NEXT}{fs.unique()}"
        try:
            self._write_segment(temporary, encode_base(base, store_key=self._settings.store_key) + body)
            if self.position.version >= self.base.first:  # rule 8
                self._link_sealed()
                self.sync_names()
            fs.rename(directory, temporary, JOURNAL)
        except BaseException:
            with contextlib.suppress(OSError):
                fs.unlink(directory, temporary)
            raise
        self.sync_names()

    def _write_segment(self, temporary: str, data: bytes) -> None:
        fs = self._fs
        file = fs.create(self.directory, temporary)
        try:
            if fs.write(file, data) < len(data):
                raise OSError(errno.ENOSPC, "the disk accepted only part of the data")
            fs.fsync(file)
        finally:
            fs.close(file)

    def _link_sealed(self) -> None:
        """Step 3. The name may exist already, from a rotation that was interrupted after it."""
        fs, name = self._fs, sealed_name(self.base.first)
        try:
            fs.link(self.directory, JOURNAL, name)
        except FileExistsError:
            file = fs.open_file(self.directory, name)
            try:
                if fs.identity(file) != self._identity:
                    why = "another file has the name of this segment"
                    raise corrupt(self.address, self.position, why, name) from None
            finally:
                fs.close(file)

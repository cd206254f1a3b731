"""One entity's journal, opened for appending: protocol A. The only code that writes or cuts `events.log`.

The order of an append, under a mutex of this process and the lock of the entity's directory:

1. Open, the first time: make what is missing, then flush both directories, always: whoever made them may have died
   before flushing. Flush the journal and forget its pages, so that what is read is what the disk has.
2. Read and verify everything behind the last known record.
3. The key is known: make sure that it is durable, answer `Duplicate`. Another version: `Conflict`.
4. Bytes that are no record: damage is raised, a torn tail is cut off.
5. One write of the whole line, then fdatasync. Only now the receipt may be given.
6. A snapshot when it is due. Its errors are logged, never raised: the entry holds.

Rule 1: a flush that failed is never tried again. The write is cut off again, and the entity is poisoned for the life
of the process: a second flush would say yes to bytes that the disk does not have.
Rule 2: every other failure leaves the journal as it was, and the handle good.
Rule 3: nothing in memory is ahead of the disk: state advances after the flush, so any exception in between is cured by
the next reading of the tail.
"""

from __future__ import annotations

import contextlib
import errno
import logging
from collections.abc import Iterator
from threading import Lock

from interlock.errors import CorruptionError, RejectedError, UnavailableError, UsageError
from interlock.model.limits import ENTRY_BYTES_MAX
from interlock.model.record import Record, encode_record
from interlock.model.snapshot import Snapshot
from interlock.ports.store import Append, Appended, Conflict, Duplicate
from interlock.stores.files_names import JOURNAL, SNAPSHOT, TEMPORARY, is_cut
from interlock.stores.files_shared import Address, Shared, locked, shard_opened, unavailable, write_whole
from interlock.stores.files_state import Facts, Kept, Mark, encode_kept, encode_keys, remember
from interlock.stores.files_tail import Tail, beginning, corrupt, read_kept, stands

ENVELOPE_BYTES_MAX = 2_048
"""Bytes of a record around its entry: version, escaped key, `d` and hash."""

_logger = logging.getLogger(__name__)


class Journal:
    """The handle of one entity. Safe for several threads; one append at a time."""

    def __init__(self, shared: Shared, address: Address) -> None:
        self.address = address
        self.facts: Facts | None = None
        self.snapshot: Snapshot | None = None
        self.mark = self._beginning(shared, address)
        self.durable = 0
        self._shared = shared
        self._fs = shared.fs
        self._settings = shared.settings
        self._keys: dict[str, int] = {}
        self._rest = b""
        self._kept_version = 0
        self._directory = -1
        self._file = -1
        self._is_stale = False
        self._mutex = Lock()

    @staticmethod
    def _beginning(shared: Shared, address: Address) -> Mark:
        settings = shared.settings
        return beginning(address.entity, tenant=settings.tenant, store_key=settings.store_key)

    # The three things a handle does

    def append(self, append: Append) -> Appended | Duplicate | Conflict:
        """Keep one step, if the entity still is at the expected version and its key is new."""
        with self._mutex:
            self._shared.check_poison(self.address)
            if not self._find_directory(create=append.expected == 0):
                return Conflict(0)
            with self._locked():
                self._catch_up()
                version = self._keys.get(append.entry.key)
                if version is not None:
                    self._confirm()
                    return Duplicate(version)
                if self.mark.version != append.expected:
                    return Conflict(self.mark.version)
                if self._rest:
                    self._repair()
                self._write(append)
                if self._snapshot_due():
                    self._keep()
                return Appended(self.mark.version, self.mark.head)

    def confirm(self, key: str) -> int | None:
        """The version of a key, once its record is known to be durable; None when the key is not in the journal."""
        with self._mutex:
            self._shared.check_poison(self.address)
            if not self._find_directory(create=False):
                return None
            with self._locked():
                self._catch_up()
                version = self._keys.get(key)
                if version is not None:
                    self._confirm()
                return version

    def close(self) -> None:
        """Lets go, after keeping a last snapshot where there is a newer one than on disk and nobody went on."""
        with self._mutex:
            if self._file >= 0 and self._is_snapshot_newer() and not self._shared.is_poisoned(self.address):
                with contextlib.suppress(UnavailableError), self._locked():
                    if self._fs.size(self._file) == self.mark.offset:
                        self._keep()
            self._drop()

    def abandon(self) -> None:
        """Lets go of descriptors that were inherited by a fork: the mutex may be held by a thread that is not here."""
        self._mutex = Lock()
        self._drop()

    # Opening and locking

    def _find_directory(self, *, create: bool) -> bool:
        if self._directory >= 0:
            return True
        fs, address = self._fs, self.address
        try:
            with shard_opened(fs, address.resources, address.shard) as shard:
                if create:
                    with contextlib.suppress(FileExistsError):
                        fs.make_directory(shard, address.name)
                self._directory = fs.open_directory(shard, address.name)
        except OSError as error:
            if isinstance(error, FileNotFoundError) and not create:
                return False
            raise unavailable(address.entity, "open", error) from error
        return True

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Holds the entity's lock. A handle whose reading failed is closed after it, never under it.

        A descriptor closed before its unlock could by then be another thread's, and lose that one its lock.
        """
        try:
            with locked(self._fs, self._directory, self.address.entity, self._settings.lock_ms_max, self._drop):
                try:
                    yield
                except OSError as error:
                    self._is_stale = True
                    raise unavailable(self.address.entity, "read", error) from error
        finally:
            if self._is_stale:
                self._drop()

    def _open(self) -> None:
        """Step 1, under the lock: nobody writes meanwhile, so what is flushed here is known durable."""
        fs, address, shared = self._fs, self.address, self._shared
        try:
            self._file = fs.open_append(self._directory, JOURNAL)
        except OSError as error:
            raise unavailable(address.entity, "open", error) from error
        shared.flushed(address, fs.sync_directory, self._directory, address.name)
        with shard_opened(fs, address.resources, address.shard) as shard:
            shared.flushed(address, fs.sync_directory, shard, f"{address.shard}/")
        for name in fs.names(self._directory):
            if TEMPORARY in name:
                fs.unlink(self._directory, name)
        shared.flushed(address, fs.fdatasync, self._file, address.name)
        fs.forget(self._file)
        self.mark, self.facts, self.snapshot = self._beginning(shared, address), None, None
        self._keys, self._kept_version = {}, 0
        kept = read_kept(fs, self._directory, address.entity, store_key=self._settings.store_key)
        if kept is not None:
            if not stands(fs, self._file, kept.mark):
                raise corrupt(address.entity, kept.mark, "the snapshot of this version is not in the journal")
            self.mark, self.facts, self._keys = kept.mark, kept.facts, kept.known_keys()
            self._kept_version = kept.mark.version
            shared.shapes.learn(kept.snapshot.revision, kept.snapshot.configuration, kept.facts)
        self._read_tail()
        self.durable = self.mark.offset

    def _drop(self) -> None:
        """Closes both descriptors, and with them the lock; the next append opens anew."""
        for descriptor in (self._file, self._directory):
            if descriptor >= 0:
                with contextlib.suppress(OSError):
                    self._fs.close(descriptor)
        self._file = self._directory = -1
        self._is_stale = False

    # Reading

    def _catch_up(self) -> None:
        """Step 2: everything that others appended since."""
        try:
            if self._file < 0:
                self._open()
            elif self._fs.size(self._file) < self.mark.offset:
                raise corrupt(self.address.entity, self.mark, "the journal became shorter")
            else:
                self._read_tail()
        except (CorruptionError, UnavailableError):
            self._is_stale = True
            raise

    def _read_tail(self) -> None:
        tail = Tail(self._fs, self._file, self.mark, store_key=self._settings.store_key)
        for record in tail:
            self._learn(record)
            self.mark = tail.mark
        self._rest = tail.rest

    def _learn(self, record: Record) -> None:
        remember(self._keys, record.key, record.version)
        self.facts = self._shared.shapes.after_record(self.facts, record)
        self.snapshot = None
        self.durable = max(self.durable, record.durable)

    def _confirm(self) -> None:
        """Step 3: a known key is an acknowledgement too, so its record must be durable first."""
        if self.durable < self.mark.offset:
            self._shared.flushed(self.address, self._fs.fdatasync, self._file, self.address.name)
            self.durable = self.mark.offset

    # Writing

    def _repair(self) -> None:
        """Step 4: cuts a torn tail. Raises CorruptionError when the bytes had been durable."""
        kept = read_kept(self._fs, self._directory, self.address.entity, store_key=self._settings.store_key)
        tail = Tail(self._fs, self._file, self.mark)
        tail.rest = self._rest
        why = tail.damaged(kept)
        if why is not None:
            raise corrupt(self.address.entity, self.mark, why)
        try:
            self._fs.truncate(self._file, self.mark.offset)
        except OSError as error:
            raise unavailable(self.address.entity, "truncate", error) from error
        self._rest = b""

    def _write(self, append: Append) -> None:
        """Step 5: one line, flushed."""
        entry = append.entry
        if entry.version != self.mark.version + 1:
            message = f"entry {entry.version} cannot follow version {self.mark.version} of `{append.entity}`"
            raise UsageError(message, code="entry.version")
        record = encode_record(entry, durable=self.durable, previous=self.mark.head, store_key=self._settings.store_key)
        if len(record.line) > ENTRY_BYTES_MAX + ENVELOPE_BYTES_MAX:
            raise RejectedError(f"the entry has more than {ENTRY_BYTES_MAX:,} bytes", code="entry.size")
        self._write_line(record.line)
        self._flush_line()
        end = self.mark.offset + len(record.line)
        self.mark = Mark(record.version, end, record.head)
        self.durable = end
        remember(self._keys, entry.key, entry.version)
        self.facts = self._shared.shapes.after_append(self.facts, append)
        self.snapshot = append.snapshot

    def _write_line(self, line: bytes) -> None:
        try:
            written = self._fs.write(self._file, line)
            if written < len(line):
                raise OSError(errno.ENOSPC, f"only {written} of {len(line)} bytes were taken")
        except OSError as error:
            self._undo()
            raise unavailable(self.address.entity, "write", error) from error

    def _flush_line(self) -> None:
        try:
            self._shared.flushed(self.address, self._fs.fdatasync, self._file, self.address.name)
        except UnavailableError:
            self._undo()
            raise

    def _undo(self) -> None:
        """Cuts off this write and nothing else: what stands before it may be another process's acknowledged entry.

        If even that fails, what is left is a torn tail, or a whole record that a retry will find by its key.
        """
        with contextlib.suppress(OSError):
            self._fs.truncate(self._file, self.mark.offset)

    # The snapshot

    def _snapshot_due(self) -> bool:
        """At every so many versions, whoever gets there; at the end of a life; at once when the name tells no id."""
        assert self.snapshot is not None
        version = self.mark.version
        if version % self._settings.snapshot_every == 0 or self.snapshot.ended is not None:
            return True
        return self._kept_version == 0 and is_cut(self.address.name)

    def _is_snapshot_newer(self) -> bool:
        return self.snapshot is not None and self.snapshot.version > self._kept_version

    def _keep(self) -> None:
        """Step 6. The entry is durable already, so no error of this may reach the caller."""
        try:
            self._replace_state()
        except OSError as error:
            self._shared.snapshot_failures += 1
            fields = {"entity_id": self.address.entity, "version": self.mark.version, "error": str(error)}
            _logger.warning("a snapshot could not be kept", extra=fields)
        else:
            self._kept_version = self.mark.version

    def _replace_state(self) -> None:
        assert self.snapshot is not None
        assert self.facts is not None
        fs, directory = self._fs, self._directory
        kept = Kept(self.snapshot, self.mark, self.facts, encode_keys(self._keys))
        data = encode_kept(kept, store_key=self._settings.store_key)
        write_whole(fs, directory, SNAPSHOT, data)

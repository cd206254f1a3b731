"""Faults put into the store on purpose. A harness that does not find them proves nothing.

Each mutant changes one call of the file system or one rule of the store, and names the damage.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest.mock import patch

from interlock.errors import UnavailableError
from interlock.model.journal.record import JournalRecord
from interlock.stores.files.durable_io import DurableIO
from interlock.stores.files.journal.journal import Journal
from interlock.stores.files.journal.journal_file import JournalFile
from interlock.stores.files.journal.line_formats import BLANKS, Base, Position
from interlock.stores.files.journal.reading import READ_BYTES, JournalReader, SegmentMovedError, corrupt, line_ends_at
from interlock.stores.files.journal.snapshot_file import StoredSnapshot
from interlock.stores.files.names import JOURNAL, directory_name, sealed_name, segment_first_version
from interlock.stores.files.reader import EntityReader, EntityView
from tests.crash.life import ENTITY
from tests.crash.simulated import work_mutants
from tests.crash.simulated.concurrent_calls import Process, process
from tests.crash.simulated.file_system import Simulated, World, call
from tests.crash.simulated.recorded_calls import Mutant, Processes, simulated


class NoFsync(Simulated):
    """The journal is never flushed: the power fails after the receipt, and the entry is lost."""

    @call
    def fdatasync(self, file: int) -> None:
        pass


class NoDirectorySync(Simulated):
    """The entity's directory is not flushed: its journal is lost with all its entries."""

    @call
    def sync_directory(self, directory: int) -> None:
        if self._opened[directory] != self.world.found("store", "resources", directory_name(ENTITY)):
            self._sync(directory)


class NoRootSync(Simulated):
    """The directory above the entity's is not flushed: the entity is lost."""

    @call
    def sync_directory(self, directory: int) -> None:
        if self._opened[directory] != self.world.found("store", "resources"):
            self._sync(directory)


class NoSnapshotFsync(Simulated):
    """A snapshot is renamed before its bytes are on disk: `state.json` is there and empty."""

    @call
    def fsync(self, file: int) -> None:
        if b'"layout"' in self._file(file).cache:
            self._flush(file)


class NoLock(Process):
    """Writers do not wait for each other: two appends write the same version."""

    @call
    def lock(self, directory: int, ms_max: int) -> None:
        pass


class CounterNames(Simulated):
    """Names of temporary files are counted in each process: after a crash the next one is taken."""

    def __init__(self, world: World, *, process: int = 1) -> None:
        super().__init__(world, process=process)
        self.counter = itertools.count()

    @call
    def unique(self) -> str:
        return f"{next(self.counter)}"


def no_truncation() -> AbstractContextManager[Any]:
    """A torn tail stays, and the next entry is written after it."""

    def skip(self: JournalFile) -> None:
        if self._reader is not None and self._reader.rest:
            at = self.position
            self.position = Position(at.version, self._fs.size(self._file), at.head, at.segment, at.work_bytes)

    return patch.object(JournalFile, "cut_torn_tail", skip)


def unsynced_duplicate() -> AbstractContextManager[Any]:
    """A duplicate is answered from the page cache."""
    return patch.object(JournalFile, "confirm", lambda self: None)


def unsynced_answer() -> AbstractContextManager[Any]:
    """A reader that finds a key answers immediately, whether the record is durable or not."""
    return patch.object(EntityView, "durable_version", lambda self: self.position.version)


def no_flush_at_open() -> AbstractContextManager[Any]:
    """Opening trusts what the page cache shows, and calls it durable."""
    real = DurableIO.flush

    def flush(self: DurableIO, address: Any, call: Any, descriptor: int, poisoned: str) -> None:
        if "fdatasync" not in call.__name__ or self.__dict__.get("opened"):
            real(self, address, call, descriptor, poisoned)

    original = Journal._catch_up

    def catch_up(self: Journal) -> None:
        self._io.__dict__["opened"] = self._file.is_open
        try:
            original(self)
        finally:
            self._io.__dict__["opened"] = True

    @contextmanager
    def both() -> Iterator[None]:
        with patch.object(DurableIO, "flush", flush), patch.object(Journal, "_catch_up", catch_up):
            yield

    return both()


def retried_flush() -> AbstractContextManager[Any]:
    """A flush that failed is repeated, and the second one reports success."""
    real = DurableIO.flush

    def twice(self: DurableIO, address: Any, flush: Any, descriptor: int, poisoned: str) -> None:
        try:
            real(self, address, flush, descriptor, poisoned)
        except UnavailableError:
            self.poisons.clear()
            real(self, address, flush, descriptor, poisoned)

    return patch.object(DurableIO, "flush", twice)


def truncated_too_far() -> AbstractContextManager[Any]:
    """After a failure everything after this journal's own last flush is cut off, another process's entry too."""

    def undo(self: JournalFile) -> None:
        self._fs.truncate(self._file, self.durable_end)

    return patch.object(JournalFile, "_undo", undo)


def no_undo() -> AbstractContextManager[Any]:
    """What was written before a failure stays: the caller gets an error, and the entry exists."""
    return patch.object(JournalFile, "_undo", lambda self: None)


def raising_snapshot() -> AbstractContextManager[Any]:
    """A snapshot that cannot be written is the caller's error, though its entry is durable."""

    def store(self: Journal) -> None:
        try:
            self._write_snapshot(durable=True)
        except OSError as error:
            raise UnavailableError(str(error)) from error

    return patch.object(Journal, "_store_snapshot", store)


def unlocked_judgement() -> AbstractContextManager[Any]:
    """A reader decides without the lock, while a writer is at work: a false alarm."""

    def decide(
        self: EntityReader, address: Any, opened: Any, reader: JournalReader, stored: StoredSnapshot | None
    ) -> tuple[list[JournalRecord], Position]:
        why = reader.damage(stored)
        if why is not None:
            raise corrupt(address, reader.position, why)
        return [], reader.position

    return patch.object(EntityReader, "_recheck_under_lock", decide)


def no_second_look() -> AbstractContextManager[Any]:
    """A missing segment is reported as damage immediately, though a release just happened: a false alarm."""

    def attempt(self: EntityReader, address: Any, read: Any) -> Any:
        with self._open(address) as opened:
            if opened is None:
                return None
            try:
                return read(opened)
            except SegmentMovedError as error:
                raise corrupt(address, opened.active.base.position, str(error)) from error

    return patch.object(EntityReader, "_attempt", attempt)


def wrong_order() -> AbstractContextManager[Any]:
    """The journal's end is looked up before the snapshot is read, and the two are compared: a false alarm."""

    def verified(self: EntityReader, address: Any, opened: Any) -> StoredSnapshot | None:
        active = opened.active
        size = len(self._fs.read(active.file, 0, READ_BYTES).rstrip(BLANKS)) + 1
        found = self._read_snapshot(address, active.directory)
        if found is not None:
            position = found.position
            if position.offset > size or not line_ends_at(self._fs, active.file, position):
                raise corrupt(address, position, "the snapshot is ahead")
        return found

    return patch.object(EntityReader, "_verified_snapshot", verified)


class NoSegmentFsync(Simulated):
    """The next segment is renamed into place before its bytes are on disk: `events.log` is there and empty."""

    @call
    def fsync(self, file: int) -> None:
        if not self._file(file).cache.startswith(b'{"t":"base"'):
            self._flush(file)


def renamed_before_linked() -> AbstractContextManager[Any]:
    """The full segment is renamed to its sealed name: for a moment there is no `events.log`, and another is created."""

    def link(self: JournalFile) -> None:
        self._fs.rename(self.directory, JOURNAL, sealed_name(self.base.first))

    return patch.object(JournalFile, "_link_sealed", link)


def unsynced_link() -> AbstractContextManager[Any]:
    """The sealed name is not flushed before the next segment takes the old one's place."""
    real = JournalFile._put_segment

    def put(self: JournalFile, base: Base, body: bytes) -> None:
        flush, count, directory = DurableIO.flush, itertools.count(), self.directory

        def skipping(io: DurableIO, address: Any, call: Any, descriptor: int, poisoned: str) -> None:
            if descriptor != directory or next(count) > 0:
                flush(io, address, call, descriptor, poisoned)

        with patch.object(DurableIO, "flush", skipping):
            real(self, base, body)

    return patch.object(JournalFile, "_put_segment", put)


def unsynced_seal() -> AbstractContextManager[Any]:
    """A seal that is found is taken for durable: the next segment proves records that a power cut takes away."""
    real = JournalFile._put_segment

    def put(self: JournalFile, base: Base, body: bytes) -> None:
        flush, file = DurableIO.flush, self._file

        def skipping(io: DurableIO, address: Any, call: Any, descriptor: int, poisoned: str) -> None:
            if descriptor != file:
                flush(io, address, call, descriptor, poisoned)

        with patch.object(DurableIO, "flush", skipping):
            real(self, base, body)

    return patch.object(JournalFile, "_put_segment", put)


def unsynced_switch() -> AbstractContextManager[Any]:
    """A segment that another process created is written immediately: its name may not be on disk."""
    real, put, sync = JournalFile._pass_seal, JournalFile._put_segment, JournalFile.sync_names

    def put_synced(self: JournalFile, base: Base, body: bytes) -> None:
        with patch.object(JournalFile, "sync_names", sync):
            put(self, base, body)

    def pass_seal(self: JournalFile) -> None:
        with (
            patch.object(JournalFile, "sync_names", lambda file: None),
            patch.object(JournalFile, "_put_segment", put_synced),
        ):
            real(self)

    return patch.object(JournalFile, "_pass_seal", pass_seal)


def appended_after_seal() -> AbstractContextManager[Any]:
    """A seal left by a process that died is skipped, and the next entry written after it."""

    def read_tail(self: JournalFile) -> None:
        if self._read_to_end():
            size, at = self._fs.size(self._file), self.position
            self.position = Position(at.version, size, at.head, at.segment)

    return patch.object(JournalFile, "read_tail", read_tail)


def unlinked_first() -> AbstractContextManager[Any]:
    """A release removes sealed segments before a base says that their records were removed."""
    real = JournalFile.rotate

    def rotate(self: JournalFile, base: Base, body: bytes = b"") -> None:
        if base.since > self.base.since:
            for name in self._fs.names(self.directory):
                if segment_first_version(name) is not None:
                    self._fs.unlink(self.directory, name)
        real(self, base, body)

    return patch.object(JournalFile, "rotate", rotate)


def adopted_by_appending() -> AbstractContextManager[Any]:
    """Adopted records are written after the others in one go: a power cut keeps a part of the page."""
    real = JournalFile.rotate

    def rotate(self: JournalFile, base: Base, body: bytes = b"") -> None:
        if body:
            self.write(body)
            self.flush()
            self.read_tail()
        else:
            real(self, base, body)

    return patch.object(JournalFile, "rotate", rotate)


def end_by_size() -> AbstractContextManager[Any]:
    """A file that did not grow is taken for one that was not written: another process's entry is overwritten."""
    return patch(
        "interlock.stores.files.journal.journal_file.journal_ends_at",
        lambda fs, file, position: fs.size(file) >= position.offset,
    )


def _of(cls: type[Simulated]) -> Processes:
    return lambda world, number: cls(world, process=number)


SWEPT = {
    "no_fsync": Mutant(_of(NoFsync)),
    "no_dirsync": Mutant(_of(NoDirectorySync)),
    "no_rootsync": Mutant(_of(NoRootSync)),
    "no_trunc": Mutant(simulated, no_truncation),
    "dup_nosync": Mutant(simulated, unsynced_duplicate, shown_by="rivals"),
    "load_nosync": Mutant(simulated, unsynced_answer, shown_by="rivals"),
    "open_nosync": Mutant(simulated, no_flush_at_open, shown_by="heir"),
    "snap_nofsync": Mutant(_of(NoSnapshotFsync)),
    "counter_tmp": Mutant(_of(CounterNames), shown_by="rivals"),
    "retry_fsync": Mutant(simulated, retried_flush, shown_by="torn_rivals"),
    "trunc_too_far": Mutant(simulated, truncated_too_far, shown_by="torn_rivals"),
    "no_undo": Mutant(simulated, no_undo, shown_by="torn_rivals"),
    "snapshot_raises": Mutant(simulated, raising_snapshot, shown_by="faults"),
    "rename_before_link": Mutant(simulated, renamed_before_linked, shown_by="one, rotating"),
    "append_after_seal": Mutant(simulated, appended_after_seal, shown_by="one, rotating"),
    "link_nosync": Mutant(simulated, unsynced_link, shown_by="one, rotating"),
    "seal_nosync": Mutant(simulated, unsynced_seal, shown_by="rivals, rotating"),
    "switch_nosync": Mutant(simulated, unsynced_switch, shown_by="rivals, rotating"),
    "next_nofsync": Mutant(_of(NoSegmentFsync), shown_by="one, rotating"),
    "unlink_first": Mutant(simulated, unlinked_first, shown_by="releasing"),
    "adopt_by_append": Mutant(simulated, adopted_by_appending, shown_by="adopting"),
}
"""Found by crashes and faults."""


SWEPT_WORK = work_mutants.SWEPT_WORK
"""Found by crashes of work."""

INTERLEAVED = {
    "no_lock": (Mutant(_of(NoLock)), "two appends"),
    "end_by_size": (Mutant(process, end_by_size), "two times two appends"),
    "judge_unlocked": (Mutant(process, unlocked_judgement), "torn tail and reader"),
    "no_second_look": (Mutant(process, no_second_look), "release and read"),
    "wrong_read_order": (Mutant(process, wrong_order), "append and read"),
    "retire_unlocked": (Mutant(process, work_mutants.removed_unlocked), "work and retirement"),
    "announce_unlocked": (Mutant(process, work_mutants.created_unlocked), "work and retirement"),
}
"""Found by interleavings, each in the scene named."""

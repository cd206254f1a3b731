"""Faults put into the store on purpose. A harness that does not find them proves nothing.

Each mutant changes one call of the file system or one rule of the store, and says what would have gone wrong.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest.mock import patch

from interlock.errors import UnavailableError
from interlock.model.journal.record import JournalRecord
from interlock.stores.files.journal.durable_io import DurableIO
from interlock.stores.files.journal.journal import Journal
from interlock.stores.files.journal.padding import BLANKS
from interlock.stores.files.journal.reading import Active, JournalReader, SegmentMovedError
from interlock.stores.files.journal.rotation import put_in_place
from interlock.stores.files.journal.segments import Base
from interlock.stores.files.journal.snapshot_file import Position, StoredSnapshot
from interlock.stores.files.journal.tail import READ_BYTES, corrupt, stands
from interlock.stores.files.names import JOURNAL, directory_name, sealed_first, sealed_name
from interlock.stores.files.reader import EntityReader, EntityView
from tests.crash import errand_mutants
from tests.crash.life import ENTITY
from tests.crash.rivals import Process, process
from tests.crash.simulated import Simulated, World, call
from tests.crash.stories import Mutant, Processes, simulated


class NoFsync(Simulated):
    """The journal is never flushed: the power fails after the receipt, and the entry is gone."""

    @call
    def fdatasync(self, file: int) -> None:
        pass


class NoDirectorySync(Simulated):
    """The entity's directory is not flushed: its journal is gone with all its entries."""

    @call
    def sync_directory(self, directory: int) -> None:
        if self._opened[directory] != self.world.found("store", "resources", directory_name(ENTITY)):
            self._sync(directory)


class NoRootSync(Simulated):
    """The directory above the entity's is not flushed: the entity is gone."""

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
    """Nobody waits for anybody: two appends write the same version."""

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
    """A torn tail stays, and the next entry is written behind it."""

    def pass_by(self: Journal) -> None:
        if self._walk is not None and self._walk.rest:
            mark = self.mark
            self.mark = Position(mark.version, self._fs.size(self._file), mark.head, mark.segment, mark.beside)

    return patch.object(Journal, "_repair", pass_by)


def unsynced_duplicate() -> AbstractContextManager[Any]:
    """A duplicate is answered from the page cache."""
    return patch.object(Journal, "_confirm", lambda self: None)


def unsynced_answer() -> AbstractContextManager[Any]:
    """A reader that finds a key answers at once, whether the record is durable or not."""
    return patch.object(EntityView, "durable_version", lambda self: self.mark.version)


def no_flush_at_open() -> AbstractContextManager[Any]:
    """Opening trusts what the page cache shows, and calls it durable."""
    real = DurableIO.flushed

    def flushed(self: DurableIO, address: Any, flush: Any, descriptor: int, poisoned: str) -> None:
        if "fdatasync" not in flush.__name__ or self.__dict__.get("opened"):
            real(self, address, flush, descriptor, poisoned)

    original = Journal._open

    def open_once(self: Journal) -> None:
        self._shared.__dict__["opened"] = False
        try:
            original(self)
        finally:
            self._shared.__dict__["opened"] = True

    @contextmanager
    def both() -> Iterator[None]:
        with patch.object(DurableIO, "flushed", flushed), patch.object(Journal, "_open", open_once):
            yield

    return both()


def retried_flush() -> AbstractContextManager[Any]:
    """A flush that failed is tried again, and the second time it says yes."""
    real = DurableIO.flushed

    def twice(self: DurableIO, address: Any, flush: Any, descriptor: int, poisoned: str) -> None:
        try:
            real(self, address, flush, descriptor, poisoned)
        except UnavailableError:
            self.poisons.clear()
            real(self, address, flush, descriptor, poisoned)

    return patch.object(DurableIO, "flushed", twice)


def truncated_too_far() -> AbstractContextManager[Any]:
    """After a failure everything behind this handle's own last flush is cut off, another process's entry too."""

    def undo(self: Journal) -> None:
        self._fs.truncate(self._file, self.durable)

    return patch.object(Journal, "_undo", undo)


def no_undo() -> AbstractContextManager[Any]:
    """What was written before a failure stays: the caller is told no, and the entry is there."""
    return patch.object(Journal, "_undo", lambda self: None)


def raising_snapshot() -> AbstractContextManager[Any]:
    """A snapshot that cannot be kept is the caller's error, though its entry holds."""

    def keep(self: Journal) -> None:
        try:
            self._replace_state(is_sure=True)
        except OSError as error:
            raise UnavailableError(str(error)) from error

    return patch.object(Journal, "_keep", keep)


def unlocked_judgement() -> AbstractContextManager[Any]:
    """A reader judges from one look, while a writer is at work: a false alarm."""

    def judged(
        self: EntityReader, address: Any, opened: Any, walk: JournalReader, kept: StoredSnapshot | None
    ) -> tuple[list[JournalRecord], Position]:
        why = walk.damaged(kept)
        if why is not None:
            raise corrupt(address, walk.mark, why)
        return [], walk.mark

    return patch.object(EntityReader, "_judged", judged)


def no_second_look() -> AbstractContextManager[Any]:
    """A segment that is not there is called damage at once, though a release just passed: a false alarm."""

    def looked(self: EntityReader, address: Any, look: Any) -> Any:
        with self._opened(address) as opened:
            if opened is None:
                return None
            try:
                return look(opened)
            except SegmentMovedError as error:
                raise corrupt(address, opened.active.base.mark, str(error)) from error

    return patch.object(EntityReader, "_looked", looked)


def wrong_order() -> AbstractContextManager[Any]:
    """The journal's end is looked up before the snapshot is read, and the two are compared: a false alarm."""

    def kept(self: EntityReader, address: Any, opened: Any) -> StoredSnapshot | None:
        active = opened.active
        size = len(self._fs.read(active.file, 0, READ_BYTES).rstrip(BLANKS)) + 1
        found = self._read_kept(address, active.directory)
        if found is not None and (found.mark.offset > size or not stands(self._fs, active.file, found.mark)):
            raise corrupt(address, found.mark, "the snapshot is ahead")
        return found

    return patch.object(EntityReader, "_kept", kept)


class NoSegmentFsync(Simulated):
    """The next segment is renamed into place before its bytes are on disk: `events.log` is there and empty."""

    @call
    def fsync(self, file: int) -> None:
        if not self._file(file).cache.startswith(b'{"t":"base"'):
            self._flush(file)


def renamed_before_linked() -> AbstractContextManager[Any]:
    """The full segment is renamed to its sealed name: for a moment there is no `events.log`, and somebody makes one."""

    def keep(shared: DurableIO, address: Any, active: Active, mark: Position) -> None:
        shared.fs.rename(active.directory, JOURNAL, sealed_name(active.base.first))

    return patch("interlock.stores.files.journal.rotation.keep_sealed", keep)


def unsynced_link() -> AbstractContextManager[Any]:
    """The sealed name is not flushed before the next segment takes the old one's place."""
    real = put_in_place

    def put(shared: DurableIO, address: Any, active: Active, *rest: Any) -> None:
        flushed, count = DurableIO.flushed, itertools.count()

        def skipping(self: DurableIO, place: Any, flush: Any, descriptor: int, poisoned: str) -> None:
            if descriptor != active.directory or next(count) > 0:
                flushed(self, place, flush, descriptor, poisoned)

        with patch.object(DurableIO, "flushed", skipping):
            real(shared, address, active, *rest)

    return patch("interlock.stores.files.journal.journal.put_in_place", put)


def unsynced_seal() -> AbstractContextManager[Any]:
    """A seal that is found is taken for durable: the next segment testifies for records that a power cut takes away."""
    real = put_in_place

    def put(shared: DurableIO, address: Any, active: Active, *rest: Any) -> None:
        flushed = DurableIO.flushed

        def skipping(self: DurableIO, place: Any, flush: Any, descriptor: int, poisoned: str) -> None:
            if descriptor != active.file:
                flushed(self, place, flush, descriptor, poisoned)

        with patch.object(DurableIO, "flushed", skipping):
            real(shared, address, active, *rest)

    return patch("interlock.stores.files.journal.journal.put_in_place", put)


def unsynced_switch() -> AbstractContextManager[Any]:
    """A segment that another process put in place is written at once: its name may not be on disk."""
    real = Journal._pass_seal

    def pass_seal(self: Journal) -> None:
        with patch.object(Journal, "_sync_names", lambda journal: None):
            real(self)

    return patch.object(Journal, "_pass_seal", pass_seal)


def appended_after_seal() -> AbstractContextManager[Any]:
    """A seal left by a process that died is skipped, and the next entry written behind it."""

    def read_tail(self: Journal) -> None:
        if self._read_to_the_end():
            size = self._fs.size(self._file)
            self.mark = Position(self.mark.version, size, self.mark.head, self.mark.segment)

    return patch.object(Journal, "_read_tail", read_tail)


def unlinked_first() -> AbstractContextManager[Any]:
    """A release removes sealed segments before a base says that their records are gone."""
    real = Journal._rotate

    def rotate(self: Journal, base: Base, body: bytes = b"") -> None:
        if base.since > self._base.since:
            for name in self._fs.names(self._directory):
                if sealed_first(name) is not None:
                    self._fs.unlink(self._directory, name)
        real(self, base, body)

    return patch.object(Journal, "_rotate", rotate)


def adopted_by_appending() -> AbstractContextManager[Any]:
    """Adopted records are written behind the others in one go: a power cut keeps a part of the page."""
    real = Journal._rotate

    def rotate(self: Journal, base: Base, body: bytes = b"") -> None:
        if body:
            self._write_line(body)
            self._flush_line()
            self._read_tail()
        else:
            real(self, base, body)

    return patch.object(Journal, "_rotate", rotate)


def end_by_size() -> AbstractContextManager[Any]:
    """A file that did not grow is taken for one that nobody wrote: another's entry is written over."""
    return patch("interlock.stores.files.journal.journal.ends_at", lambda fs, file, mark: fs.size(file) >= mark.offset)


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


SWEPT_WORK = errand_mutants.SWEPT_WORK
"""Found by crashes of work."""

INTERLEAVED = {
    "no_lock": (Mutant(_of(NoLock)), "two appends"),
    "end_by_size": (Mutant(process, end_by_size), "two times two appends"),
    "judge_unlocked": (Mutant(process, unlocked_judgement), "torn tail and reader"),
    "no_second_look": (Mutant(process, no_second_look), "release and read"),
    "wrong_read_order": (Mutant(process, wrong_order), "append and read"),
    "retire_unlocked": (Mutant(process, errand_mutants.removed_unlocked), "work and retirement"),
    "announce_unlocked": (Mutant(process, errand_mutants.announced_unlocked), "work and retirement"),
}
"""Found by interleavings, each in the scene named."""

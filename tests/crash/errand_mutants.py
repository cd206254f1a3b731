"""Faults put on purpose into how the file store keeps work: it is forgotten, repeated, or performed too early."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest.mock import patch

from interlock.model.journal.work import WorkId
from interlock.stores.files.journal import reading
from interlock.stores.files.journal.durable_io import DurableIO
from interlock.stores.files.journal.journal import Journal
from interlock.stores.files.journal.segments import Base, joined
from interlock.stores.files.journal.snapshot_file import Position
from interlock.stores.files.journal.work import WorkJournal
from interlock.stores.files.journal.work_lines import UnfinishedWork, WorkState
from interlock.stores.files.work import dispatcher
from interlock.stores.files.work.markers import WorkMarkers
from tests.crash.stories import Mutant, simulated


def unsynced_marker() -> AbstractContextManager[Any]:
    """The marker's directory is not flushed: the power fails after the receipt, and nobody finds the work."""
    real = DurableIO.flushed

    def flushed(self: DurableIO, address: Any, flush: Any, descriptor: int, poisoned: str) -> None:
        if not poisoned.startswith("pending/"):
            real(self, address, flush, descriptor, poisoned)

    return patch.object(DurableIO, "flushed", flushed)


def marker_after_entry() -> AbstractContextManager[Any]:
    """The marker is made after the entry: whoever dies in between leaves work that nobody finds."""
    real = Journal._write

    def write(self: Journal, append: Any) -> None:
        announced = self._is_announced
        with patch.object(WorkMarkers, "announce", lambda *each: None):
            real(self, append)
        if append.left.born and not announced:
            self._shared.markers.announce(self.address)

    return patch.object(Journal, "_write", write)


def marker_by_journal() -> AbstractContextManager[Any]:
    """A journal that shows work is taken for one that has a marker: a power cut may have kept only its removal."""
    real = Journal._open

    def opened(self: Journal) -> None:
        real(self)
        self._is_announced = len(self.rows) > 0

    return patch.object(Journal, "_open", opened)


def marker_by_memory() -> AbstractContextManager[Any]:
    """A handle that once made the marker never does again, though it was removed since."""

    def get(self: Journal) -> bool:
        return bool(self.__dict__.get("announced"))

    def put(self: Journal, value: bool) -> None:
        self.__dict__["announced"] = value or get(self)

    return patch.object(Journal, "_is_announced", property(get, put), create=True)


def marker_by_office() -> AbstractContextManager[Any]:
    """Whoever performs removes a marker, and goes on believing that it is there."""
    real = WorkJournal.retire

    def retire(self: WorkJournal) -> bool:
        believed, answer = self._announced_to, real(self)
        self._announced_to = believed
        return answer

    return patch.object(WorkJournal, "retire", retire)


def removed_blindly() -> AbstractContextManager[Any]:
    """A marker is removed by what was known of the work, without a look at what others left since."""

    def retire(self: WorkJournal) -> bool:
        if not len(self.rows):
            self._shared.markers.remove(self.address)
        return True

    return patch.object(WorkJournal, "retire", retire)


def told_early() -> AbstractContextManager[Any]:
    """Work is performed whose entry is in the page cache only: its writer died before the flush."""
    return patch.object(Journal, "_confirm_records", lambda self: None)


def unsynced_attempt() -> AbstractContextManager[Any]:
    """That work was begun is written, and not flushed: after a power cut it begins again."""
    return patch.object(dispatcher, "_is_once", lambda work: False)


def unmarked_attempt() -> AbstractContextManager[Any]:
    """That work was begun is known in memory only."""
    return patch.object(dispatcher.Dispatcher, "_begin", lambda self, claim: True)


def unsynced_drop() -> AbstractContextManager[Any]:
    """What a person dropped comes back with a power cut."""
    real = WorkJournal._write_mark

    def write(self: WorkJournal, place: WorkId, stand: WorkState | None, *, is_sure: bool) -> None:
        real(self, place, stand, is_sure=is_sure and stand is not None)

    return patch.object(WorkJournal, "_write_mark", write)


def snapshot_without_work() -> AbstractContextManager[Any]:
    """A snapshot forgets the work that was unfinished when it was kept."""
    return patch.object(UnfinishedWork, "encoded", lambda self: b"[]")


def snapshot_ahead() -> AbstractContextManager[Any]:
    """A snapshot testifies for a mark that is not flushed: after a power cut the journal seems to be damaged."""
    real = Journal.close

    def close(self: Journal) -> None:
        with patch.object(Journal, "_confirm", lambda journal: None):
            real(self)

    return patch.object(Journal, "close", close)


def skipped_marks() -> AbstractContextManager[Any]:
    """A reading that begins at the last record of a sealed segment passes over the marks behind it."""

    def at(mark: Position, base: Base, *, is_heard: bool) -> Position:
        return joined(mark, base)

    return patch.object(reading, "_joined", at)


@contextmanager
def work_apart() -> Iterator[None]:
    """The line of work comes after its record is flushed: whoever dies in between leaves an entry without work."""
    real = Journal._write_line

    def write(self: Journal, line: bytes) -> None:
        if line.startswith(b'{"t":"work"') and b'"born":[{' in line:
            size = line.find(b"\n") + 1
            real(self, line[size:])
            self._fs.fdatasync(self._file)
            self._fs.truncate(self._file, self.mark.offset)
        real(self, line)

    with patch.object(Journal, "_write_line", write):
        yield


def removed_unlocked() -> AbstractContextManager[Any]:
    """A marker is removed after the lock was given back: an append in between has just made sure of it."""

    def retire(self: WorkJournal) -> bool:
        with self._mutex:
            self._find_directory(create=False)
            with self._locked():
                self._know()
            if not len(self.rows):
                self._shared.markers.remove(self.address)
            return not len(self.rows)

    return patch.object(WorkJournal, "retire", retire)


def announced_unlocked() -> AbstractContextManager[Any]:
    """A marker is made before the lock is taken: it may be removed before the entry is there."""
    real, announce = Journal.append, WorkMarkers.announce

    def append(self: Journal, step: Any) -> Any:
        if step.left.born:
            announce(self._shared.markers, self.address)  # type: ignore[arg-type]  # these markers are files
        with patch.object(WorkMarkers, "announce", lambda *each: None):
            return real(self, step)

    return patch.object(Journal, "append", append)


SWEPT_WORK = {
    "marker_nosync": Mutant(simulated, unsynced_marker, "errand_one"),
    "marker_after": Mutant(simulated, marker_after_entry, "errand_one"),
    "marker_by_journal": Mutant(simulated, marker_by_journal, "errand_one, bare"),
    "marker_by_memory": Mutant(simulated, marker_by_memory, "errand_one"),
    "marker_by_office": Mutant(simulated, marker_by_office, "errand_one"),
    "retire_blindly": Mutant(simulated, removed_blindly, "errand_rivals"),
    "told_early": Mutant(simulated, told_early, "errand_rivals"),
    "attempt_nosync": Mutant(simulated, unsynced_attempt, "errand_one"),
    "attempt_unmarked": Mutant(simulated, unmarked_attempt, "errand_one"),
    "drop_nosync": Mutant(simulated, unsynced_drop, "errand_one"),
    "snapshot_no_work": Mutant(simulated, snapshot_without_work, "errand_one"),
    "snapshot_ahead": Mutant(simulated, snapshot_ahead, "errand_one"),
    "marks_skipped": Mutant(simulated, skipped_marks, "errand_one, sealing"),
    "work_apart": Mutant(simulated, work_apart, "errand_one"),
}
"""Found by crashes of work."""

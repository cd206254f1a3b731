"""Faults put on purpose into how the file store keeps work: it is forgotten, repeated, or performed too early."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest.mock import patch

from interlock.model.journal.work import WorkId
from interlock.model.journal.work_state import WorkState
from interlock.stores.files.durable_io import DurableIO
from interlock.stores.files.journal import reading
from interlock.stores.files.journal.journal import Journal
from interlock.stores.files.journal.journal_file import JournalFile
from interlock.stores.files.journal.line_formats import Base, Position, in_segment
from interlock.stores.files.journal.unfinished_work import UnfinishedWork
from interlock.stores.files.work import dispatcher
from interlock.stores.files.work.markers import WorkMarkers
from tests.crash.simulated.recorded_calls import Mutant, simulated


def unsynced_marker() -> AbstractContextManager[Any]:
    """The marker's directory is not flushed: the power fails after the receipt, and the work is never found."""
    real = DurableIO.flush

    def flush(self: DurableIO, address: Any, call: Any, descriptor: int, poisoned: str) -> None:
        if not poisoned.startswith("pending/"):
            real(self, address, call, descriptor, poisoned)

    return patch.object(DurableIO, "flush", flush)


def marker_after_entry() -> AbstractContextManager[Any]:
    """The marker is created after the entry: a crash in between leaves work that is never found."""
    real = Journal._write

    def write(self: Journal, append: Any) -> None:
        was_marked = self._is_marked
        with patch.object(WorkMarkers, "create", lambda *each: None):
            real(self, append)
        if append.work.created and not was_marked:
            self._context.markers.create(self.address)

    return patch.object(Journal, "_write", write)


def marker_by_journal() -> AbstractContextManager[Any]:
    """A journal with work is taken for one that has a marker: a power cut may have kept only its removal."""
    real = Journal._catch_up

    def catch_up(self: Journal) -> None:
        was_open = self._file.is_open
        real(self)
        if not was_open:
            self._is_marked = len(self.work) > 0

    return patch.object(Journal, "_catch_up", catch_up)


def marker_by_memory() -> AbstractContextManager[Any]:
    """A journal that once created the marker never does again, though it was removed since."""

    def get(self: Journal) -> bool:
        return bool(self.__dict__.get("marked"))

    def put(self: Journal, value: bool) -> None:
        self.__dict__["marked"] = value or get(self)

    return patch.object(Journal, "_is_marked", property(get, put), create=True)


def marker_by_office() -> AbstractContextManager[Any]:
    """The process that runs work removes a marker, and still believes that it exists."""
    real = Journal.remove_marker

    def remove(self: Journal) -> bool:
        believed, answer = self._marked_for, real(self)
        self._marked_for = believed
        return answer

    return patch.object(Journal, "remove_marker", remove)


def removed_blindly() -> AbstractContextManager[Any]:
    """A marker is removed by what was known of the work, without reading what others appended since."""

    def remove(self: Journal) -> bool:
        if not len(self.work):
            self._context.markers.delete(self.address)
        return True

    return patch.object(Journal, "remove_marker", remove)


def told_early() -> AbstractContextManager[Any]:
    """Work runs whose entry is in the page cache only: its writer died before the flush."""
    return patch.object(JournalFile, "confirm_records", lambda self: None)


def unsynced_attempt() -> AbstractContextManager[Any]:
    """The start of an attempt is written and not flushed: after a power cut it starts again."""
    return patch.object(dispatcher, "_runs_once", lambda work: False)


def unmarked_attempt() -> AbstractContextManager[Any]:
    """The start of an attempt is known in memory only."""
    return patch.object(dispatcher.Dispatcher, "_start_attempt", lambda self, claim: True)


def unsynced_drop() -> AbstractContextManager[Any]:
    """Work that an operator deleted comes back with a power cut."""
    real = Journal._write_mark

    def write(self: Journal, work_id: WorkId, state: WorkState | None, *, durable: bool) -> None:
        real(self, work_id, state, durable=durable and state is not None)

    return patch.object(Journal, "_write_mark", write)


def snapshot_without_work() -> AbstractContextManager[Any]:
    """A snapshot forgets the work that was unfinished when it was written."""
    return patch.object(UnfinishedWork, "encode", lambda self: b"[]")


def snapshot_ahead() -> AbstractContextManager[Any]:
    """A snapshot proves a mark that is not flushed: after a power cut the journal seems to be damaged."""
    real = Journal.close

    def close(self: Journal) -> None:
        with patch.object(JournalFile, "confirm", lambda file: None):
            real(self)

    return patch.object(Journal, "close", close)


def skipped_marks() -> AbstractContextManager[Any]:
    """A reading that starts at the last record of a sealed segment skips the marks after it."""

    def start(position: Position, base: Base, *, wants_lines: bool) -> Position:
        return in_segment(position, base)

    return patch.object(reading, "_start", start)


@contextmanager
def work_apart() -> Iterator[None]:
    """The work line is written after its record is flushed: a crash in between leaves an entry without work."""
    real = JournalFile.write

    def write(self: JournalFile, lines: bytes) -> None:
        if lines.startswith(b'{"t":"work"') and b'"born":[{' in lines:
            size = lines.find(b"\n") + 1
            real(self, lines[size:])
            self._fs.fdatasync(self._file)
            self._fs.truncate(self._file, self.position.offset)
        real(self, lines)

    with patch.object(JournalFile, "write", write):
        yield


def removed_unlocked() -> AbstractContextManager[Any]:
    """A marker is removed after the lock was released: an append in between has just relied on it."""

    def remove(self: Journal) -> bool:
        with self._mutex:
            self._file.open_directory(create=False)
            with self._file.lock():
                self._catch_up()
                self._file.cut_torn_tail()
            if not len(self.work):
                self._context.markers.delete(self.address)
            return not len(self.work)

    return patch.object(Journal, "remove_marker", remove)


def created_unlocked() -> AbstractContextManager[Any]:
    """A marker is created before the lock is taken: it may be removed before the entry exists."""
    real, create = Journal.append, WorkMarkers.create

    def append(self: Journal, step: Any) -> Any:
        if step.work.created:
            create(self._context.markers, self.address)  # type: ignore[arg-type]  # these markers are files
        with patch.object(WorkMarkers, "create", lambda *each: None):
            return real(self, step)

    return patch.object(Journal, "append", append)


SWEPT_WORK = {
    "marker_nosync": Mutant(simulated, unsynced_marker, "work_one"),
    "marker_after": Mutant(simulated, marker_after_entry, "work_one"),
    "marker_by_journal": Mutant(simulated, marker_by_journal, "work_one, bare"),
    "marker_by_memory": Mutant(simulated, marker_by_memory, "work_one"),
    "marker_by_office": Mutant(simulated, marker_by_office, "work_one"),
    "retire_blindly": Mutant(simulated, removed_blindly, "work_rivals"),
    "told_early": Mutant(simulated, told_early, "work_rivals"),
    "attempt_nosync": Mutant(simulated, unsynced_attempt, "work_one"),
    "attempt_unmarked": Mutant(simulated, unmarked_attempt, "work_one"),
    "drop_nosync": Mutant(simulated, unsynced_drop, "work_one"),
    "snapshot_no_work": Mutant(simulated, snapshot_without_work, "work_one"),
    "snapshot_ahead": Mutant(simulated, snapshot_ahead, "work_one"),
    "marks_skipped": Mutant(simulated, skipped_marks, "work_one, sealing"),
    "work_apart": Mutant(simulated, work_apart, "work_one"),
}
"""Found by crashes of work."""

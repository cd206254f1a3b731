"""Faults put into the store on purpose. A harness that does not find them proves nothing.

Each mutant changes one call of the file system or one rule of the store, and says what would have gone wrong.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, NamedTuple
from unittest.mock import patch

from interlock.errors import UnavailableError
from interlock.model.record import Record
from interlock.stores.files_journal import Journal
from interlock.stores.files_names import directory_name
from interlock.stores.files_reader import Reader, Seen
from interlock.stores.files_shared import Shared
from interlock.stores.files_state import Kept
from interlock.stores.files_tail import Tail, corrupt, stands
from tests.crash.life import ENTITY
from tests.crash.rivals import Process, process
from tests.crash.simulated import Simulated, World, call
from tests.crash.sweep import Processes, simulated


class Mutant(NamedTuple):
    """A faulty store: its processes, and what is patched while they run."""

    processes: Processes
    patched: Callable[[], AbstractContextManager[Any]] = nullcontext


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
    return patch.object(Journal, "_repair", lambda self: None)


def unsynced_duplicate() -> AbstractContextManager[Any]:
    """A duplicate is answered from the page cache."""
    return patch.object(Journal, "_confirm", lambda self: None)


def unsynced_answer() -> AbstractContextManager[Any]:
    """A reader that finds a key answers at once, whether the record is durable or not."""
    return patch.object(Seen, "durable_version", lambda self: self.mark.version)


def no_flush_at_open() -> AbstractContextManager[Any]:
    """Opening trusts what the page cache shows, and calls it durable."""
    real = Shared.flushed

    def flushed(self: Shared, address: Any, flush: Any, descriptor: int, poisoned: str) -> None:
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
        with patch.object(Shared, "flushed", flushed), patch.object(Journal, "_open", open_once):
            yield

    return both()


def retried_flush() -> AbstractContextManager[Any]:
    """A flush that failed is tried again, and the second time it says yes."""
    real = Shared.flushed

    def twice(self: Shared, address: Any, flush: Any, descriptor: int, poisoned: str) -> None:
        try:
            real(self, address, flush, descriptor, poisoned)
        except UnavailableError:
            self.poisons.clear()
            real(self, address, flush, descriptor, poisoned)

    return patch.object(Shared, "flushed", twice)


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
            self._replace_state()
        except OSError as error:
            raise UnavailableError(str(error)) from error

    return patch.object(Journal, "_keep", keep)


def unlocked_judgement() -> AbstractContextManager[Any]:
    """A reader judges from one look, while a writer is at work: a false alarm."""

    def judged(self: Reader, address: Any, opened: Any, tail: Tail, kept: Kept | None) -> list[Record]:
        why = tail.damaged(kept)
        if why is not None:
            raise corrupt(address.entity, tail.mark, why)
        return []

    return patch.object(Reader, "_judged", judged)


def wrong_order() -> AbstractContextManager[Any]:
    """The journal's end is looked up before the snapshot is read, and the two are compared: a false alarm."""

    def kept(self: Reader, address: Any, opened: Any) -> Kept | None:
        size = self._fs.size(opened.file)
        found = self._read_kept(address, opened)
        if found is not None and (found.mark.offset > size or not stands(self._fs, opened.file, found.mark)):
            raise corrupt(address.entity, found.mark, "the snapshot is ahead")
        return found

    return patch.object(Reader, "_kept", kept)


def _of(cls: type[Simulated]) -> Processes:
    return lambda world, number: cls(world, process=number)


SWEPT = {
    "no_fsync": Mutant(_of(NoFsync)),
    "no_dirsync": Mutant(_of(NoDirectorySync)),
    "no_rootsync": Mutant(_of(NoRootSync)),
    "no_trunc": Mutant(simulated, no_truncation),
    "dup_nosync": Mutant(simulated, unsynced_duplicate),
    "load_nosync": Mutant(simulated, unsynced_answer),
    "open_nosync": Mutant(simulated, no_flush_at_open),
    "snap_nofsync": Mutant(_of(NoSnapshotFsync)),
    "counter_tmp": Mutant(_of(CounterNames)),
    "retry_fsync": Mutant(simulated, retried_flush),
    "trunc_too_far": Mutant(simulated, truncated_too_far),
    "no_undo": Mutant(simulated, no_undo),
    "snapshot_raises": Mutant(simulated, raising_snapshot),
}
"""Found by crashes and faults."""

INTERLEAVED = {
    "no_lock": (Mutant(_of(NoLock)), "two appends"),
    "judge_unlocked": (Mutant(process, unlocked_judgement), "torn tail and reader"),
    "wrong_read_order": (Mutant(process, wrong_order), "append and read"),
}
"""Found by interleavings, each in the scene named."""

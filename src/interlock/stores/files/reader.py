"""Reading an entity from files, without its lock.

Rule 1: `state.json` is read first, `events.log` opened after it: then the journal can only be newer. Sealed segments
are looked up last: they were named before the active one was put in place.
Rule 2: a reader may see a record that is not yet flushed; what it sees is a version that the entity had or will have.
Rule 3: damage is never judged from one look without the lock: while it reads, a writer may cut a torn tail and write
over it, and old and new halves make a bad line with good ones behind. So: take the lock, read again from the last good
byte, then judge.
Rule 4: when segments do not join, a rotation passed: the reading starts over a few times, and then under the lock.
Rule 5: records before the damage are proven by their own chain: whoever asks for no more than those gets them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TypeVar

from msgspec import Struct

from interlock.errors import CorruptionError
from interlock.model.journal.record import JournalRecord
from interlock.ports.store import Loaded
from interlock.stores.files.journal.durable_io import DurableIO, EntityDirectory, Locked, shard_opened, unavailable
from interlock.stores.files.journal.padding import ends_at
from interlock.stores.files.journal.reading import (
    Active,
    Chain,
    JournalReader,
    SegmentMovedError,
    active_segment,
    archived,
    is_held,
    unwitnessed,
)
from interlock.stores.files.journal.snapshot_file import ListFacts, Position, StoredSnapshot
from interlock.stores.files.journal.tail import OnLine, corrupt, hear_nothing, read_kept
from interlock.stores.files.journal.work_lines import Beside, Row, UnfinishedWork
from interlock.stores.files.names import JOURNAL, SNAPSHOT

LOOKS_MAX = 3
"""How often a reading starts over before it takes the lock: one rotation passes in a moment, three in a row do not."""

T = TypeVar("T")


class EntityView(Struct, frozen=True):
    """An entity as one reading found it. `durable` is the last version that the bytes themselves show to be durable."""

    kept: StoredSnapshot | None
    records: tuple[JournalRecord, ...]
    mark: Position
    facts: ListFacts
    durable: int

    def loaded(self) -> Loaded:
        """The same as the port gives it."""
        snapshot = None if self.kept is None else self.kept.snapshot
        return Loaded(self.mark.version, self.facts.changed_ms, snapshot, self.records)

    def version_of(self, key: str) -> int | None:
        """The version that a key was kept with."""
        for record in self.records:
            if record.key == key:
                return record.version
        return None if self.kept is None else self.kept.known_keys().get(key)

    def durable_version(self) -> int:
        """The last version that is known durable: by the snapshot, a seal, or what a `d` covers."""
        return self.durable


class _Opened(Struct, frozen=True):
    active: Active
    kept: StoredSnapshot | None
    is_locked: bool = False


class EntityReader:
    """Reads entities of one open store; keeps nothing open and nothing in memory."""

    def __init__(self, shared: DurableIO) -> None:
        self._shared = shared
        self._fs = shared.fs
        self._settings = shared.settings

    def load(self, address: EntityDirectory) -> EntityView | None:
        """The snapshot beside the journal and the records after it; None when there is no such entity."""
        return self._looked(address, lambda opened: self._load(address, opened))

    def _load(self, address: EntityDirectory, opened: _Opened) -> EntityView | None:
        kept = self._kept(address, opened)
        if kept is None and opened.active.base.since > 1:
            raise unwitnessed(address, opened.active.base)
        walk = self._walk(address, opened, opened.active.base.earliest if kept is None else kept.mark)
        records, ends = [], []
        for record in walk:
            records.append(record)
            ends.append(walk.mark)
        durable = max(_durable_version(walk, records, ends), 0 if kept is None else kept.mark.version)
        more, mark = self._judged(address, opened, walk, kept)
        records += more
        facts = None if kept is None else kept.facts
        if kept is not None:
            self._shared.shapes.learn(kept.snapshot.revision, kept.snapshot.configuration, kept.facts)
        for record in records:
            facts = self._shared.shapes.after_record(facts, record)
        return None if facts is None else EntityView(kept, tuple(records), mark, facts, durable)

    def read(
        self, address: EntityDirectory, *, starts: tuple[Position, ...], after: int, limit: int, apart: int
    ) -> tuple[tuple[JournalRecord, ...], tuple[Position, ...]]:
        """The verified records after a version; and the places passed, so many versions apart, and where it ended.

        `starts` are places this process verified before, the nearest first; without one that stands, the reading begins
        at the beginning. Raises NotFoundError when they were released.
        """
        found = self._looked(address, lambda opened: self._read(address, opened, starts, after, limit, apart))
        return ((), ()) if found is None else found

    def _read(
        self,
        address: EntityDirectory,
        opened: _Opened,
        starts: tuple[Position, ...],
        after: int,
        limit: int,
        apart: int,
    ) -> tuple[tuple[JournalRecord, ...], tuple[Position, ...]]:
        base, kept = opened.active.base, opened.kept
        if after < base.since - 1:
            raise archived(address.entity, base)
        known = [*starts, *(() if kept is None or kept.mark.version > after else (kept.mark,))]
        known.sort(key=lambda mark: mark.version, reverse=True)
        nearer = (mark for mark in known if mark.version > base.earliest.version and self._is_held(opened, mark))
        walk = self._walk(address, opened, next(nearer, base.earliest))
        records: list[JournalRecord] = []
        passed: list[Position] = []
        for record in walk:
            if record.version > after:
                records.append(record)
            if len(records) == limit:
                return tuple(records), (*passed, walk.mark)
            if record.version % apart == 0:
                passed.append(walk.mark)
        more, mark = self._judged(address, opened, walk, self._kept(address, opened))
        records += [each for each in more if each.version > after]
        return tuple(records[:limit]), tuple(passed) if more else (*passed, mark)

    def work(self, address: EntityDirectory) -> tuple[Row, ...]:
        """The unfinished work of an entity, for those who only look: its entry may not be durable yet (rule 2)."""
        return self._looked(address, lambda opened: self._work(address, opened)) or ()

    def _work(self, address: EntityDirectory, opened: _Opened) -> tuple[Row, ...]:
        kept = self._kept(address, opened)
        if kept is None and opened.active.base.since > 1:
            raise unwitnessed(address, opened.active.base)
        rows = UnfinishedWork() if kept is None else UnfinishedWork.decoded(kept.work)

        def hear(line: Beside, _: Position) -> None:
            rows.apply(line)

        walk = self._walk(address, opened, opened.active.base.earliest if kept is None else kept.mark, hear)
        for _ in walk:
            pass
        self._judged(address, opened, walk, kept, hear)
        return rows.listed()

    def entity(self, address: EntityDirectory) -> str:
        """The id of an entity whose name does not tell it; empty until its first snapshot is kept."""
        with self._directory(address) as directory:
            kept = None if directory is None else self._read_kept(address, directory)
        return "" if kept is None else kept.snapshot.entity

    def is_end(self, address: EntityDirectory, mark: Position) -> bool:
        """Whether an entity's journal ends at this place: then what was seen of it holds."""
        with self._directory(address) as directory, self._active(address, directory) as active:
            return active is not None and active.base.first == mark.segment and ends_at(self._fs, active.file, mark)

    # Parts

    def _looked(self, address: EntityDirectory, look: Callable[[_Opened], T]) -> T | None:
        """One reading; None when there is no such entity. It starts over while rotations pass."""
        for _ in range(LOOKS_MAX):
            with self._opened(address) as opened:
                if opened is None:
                    return None
                with contextlib.suppress(SegmentMovedError):
                    return look(opened)
        with self._directory(address) as directory:
            if directory is None:
                return None
            with self._lock(address, directory), self._opened(address, is_locked=True) as opened:
                if opened is None:
                    return None
                try:
                    return look(opened)
                except SegmentMovedError as error:
                    raise corrupt(address, opened.active.base.mark, str(error)) from error

    @contextlib.contextmanager
    def _directory(self, address: EntityDirectory) -> Iterator[int | None]:
        fs, directory = self._fs, -1
        try:
            try:
                with shard_opened(fs, address.resources, address.shard) as shard:
                    directory = fs.open_directory(shard, address.name)
            except FileNotFoundError:
                yield None
            else:
                yield directory
        except OSError as error:
            raise unavailable(address.entity, "read", error, folder=address.folder) from error
        finally:
            self._close(directory)

    @contextlib.contextmanager
    def _opened(self, address: EntityDirectory, *, is_locked: bool = False) -> Iterator[_Opened | None]:
        """The entity's directory, its snapshot and its active segment, in the order of rule 1."""
        with self._directory(address) as directory:
            if directory is None:
                yield None
                return
            kept = self._read_kept(address, directory)
            with self._active(address, directory) as active:
                if active is None and kept is not None:  # a snapshot is written after the journal it stands for
                    raise corrupt(address, kept.mark, f"{JOURNAL} is missing, and {SNAPSHOT} is there")
                yield None if active is None else _Opened(active, kept, is_locked)

    @contextlib.contextmanager
    def _active(self, address: EntityDirectory, directory: int | None) -> Iterator[Active | None]:
        file = -1
        if directory is not None:
            with contextlib.suppress(FileNotFoundError):
                file = self._fs.open_file(directory, JOURNAL)
        try:
            if directory is None or file < 0:
                yield None
            else:
                yield active_segment(self._fs, directory, file, self._chain(address))
        finally:
            self._close(file)

    def _close(self, descriptor: int) -> None:
        if descriptor >= 0:
            with contextlib.suppress(OSError):
                self._fs.close(descriptor)

    @contextlib.contextmanager
    def _second_look(self, address: EntityDirectory, opened: _Opened) -> Iterator[_Opened]:
        """The entity opened anew while nobody writes it."""
        if opened.is_locked:
            yield opened
            return
        with self._lock(address, opened.active.directory), self._opened(address, is_locked=True) as again:
            if again is None:
                raise SegmentMovedError("the journal is not there")
            yield again

    @contextlib.contextmanager
    def _lock(self, address: EntityDirectory, directory: int) -> Iterator[None]:
        """Holds the entity's lock; the descriptor is closed by whoever opened it, and the lock goes with it."""
        with Locked(self._fs, directory, address.entity, self._settings.lock_ms_max, lambda: None):
            yield

    def _chain(self, address: EntityDirectory) -> Chain:
        return Chain(address, self._settings.tenant, self._settings.store_key)

    def _walk(
        self, address: EntityDirectory, opened: _Opened, mark: Position, hear: OnLine = hear_nothing
    ) -> JournalReader:
        return JournalReader(self._fs, opened.active, mark, self._chain(address), hear=hear)

    def _read_kept(self, address: EntityDirectory, directory: int) -> StoredSnapshot | None:
        return read_kept(self._fs, directory, address.entity or None, store_key=self._settings.store_key)

    def _is_held(self, opened: _Opened, mark: Position) -> bool:
        try:
            return is_held(self._fs, opened.active, mark)
        except SegmentMovedError:
            return False

    def _kept(self, address: EntityDirectory, opened: _Opened) -> StoredSnapshot | None:
        """The snapshot, once the journal is seen to hold it. Raises CorruptionError when it does not."""
        kept = opened.kept
        if kept is None or is_held(self._fs, opened.active, kept.mark):
            return kept
        with self._second_look(address, opened) as again:
            if again.kept is not None and not is_held(self._fs, again.active, again.kept.mark):
                raise self._unheld(address, again, again.kept)
        raise SegmentMovedError("the snapshot was replaced")

    def _unheld(self, address: EntityDirectory, opened: _Opened, kept: StoredSnapshot) -> CorruptionError:
        """The error of a journal that does not hold its snapshot; said of the first bad place, if there is one."""
        walk = self._walk(address, opened, opened.active.base.earliest)
        for _ in walk:
            pass
        why = walk.judgement(kept)
        if why is not None:
            return corrupt(address, walk.mark, why)
        return corrupt(address, kept.mark, "the snapshot of this version is not in the journal")

    def _judged(
        self,
        address: EntityDirectory,
        opened: _Opened,
        walk: JournalReader,
        kept: StoredSnapshot | None,
        hear: OnLine = hear_nothing,
    ) -> tuple[list[JournalRecord], Position]:
        """What a second look under the lock adds, when the first one ended in what may be damage."""
        if walk.damaged(kept) is None and not walk.is_headless():
            return [], walk.mark
        with self._second_look(address, opened) as again:
            second = self._walk(address, again, walk.mark, hear)
            records = list(second)
            why = second.judgement(again.kept)
        if why is not None:
            raise corrupt(address, second.mark, why)
        return records, second.mark


def _durable_version(walk: JournalReader, records: list[JournalRecord], ends: list[Position]) -> int:
    """The last version that sealed segments, or a `d` in the active one, show to be durable.

    Records that came with their segment testify for nothing: its name may not be flushed yet. Whoever wrote behind them
    had flushed it.
    """
    base = walk.active.base
    here = [(record, end) for record, end in zip(records, ends, strict=True) if end.segment == base.first]
    known = max((record.durable for record, end in here if end.offset > base.durable_end), default=0)
    return max((end.version for _, end in here if end.offset <= known), default=walk.flushed)

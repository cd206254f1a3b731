"""Reading an entity from its files without its lock.

Rule 1: `state.json` is read first and `events.log` is opened after it, so the journal can only be newer. Sealed
segments are looked up last: they had their names before the active segment was created.
Rule 2: a reader may see a record that is not flushed yet; what it sees is a version that the entity had or will have.
Rule 3: damage is never decided without the lock. Meanwhile a writer may cut a torn tail and write over it, and old and
new halves look like a bad line with good ones after it. So the reader takes the lock, reads again from the last good
byte, and decides then.
Rule 4: when segments do not fit together, a rotation happened meanwhile: the reading starts again a few times, and then
under the lock.
Rule 5: records before the damage are proved by their own chain: a reader that asks for no more than those gets them.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_left
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from threading import Lock
from typing import TypeVar

from msgspec import Struct

from interlock.errors import CorruptionError
from interlock.model.journal.record import JournalRecord
from interlock.model.limits import SNAPSHOT_BYTES_MAX
from interlock.ports.store import Loaded
from interlock.ports.trust.retention import JournalBase
from interlock.stores.files.durable_io import DirectoryLock, EntityDirectory, open_shard, unavailable
from interlock.stores.files.journal.journal import JournalContext
from interlock.stores.files.journal.line_formats import MarkLine, Position, WorkLine
from interlock.stores.files.journal.reading import (
    Active,
    Chain,
    JournalReader,
    OnLine,
    SegmentMovedError,
    active_segment,
    archived,
    contains,
    corrupt,
    journal_ends_at,
    read_snapshot,
    snapshot_required,
)
from interlock.stores.files.journal.snapshot_file import ListFacts, StoredSnapshot, decode_base_file
from interlock.stores.files.journal.unfinished_work import UnfinishedWork, WorkItem
from interlock.stores.files.names import JOURNAL, SNAPSHOT, base_name

UNLOCKED_READS_MAX = 3
"""How often a reading starts again before it takes the lock: one rotation is over soon, three in a row are rare."""

POSITIONS_MAX = 64
"""Positions remembered of one journal."""

ENDS_MAX = 8
"""Ends of readings remembered of one journal: so many readers continue where they were."""

JOURNALS_MAX = 1_000
"""Journals of which positions are remembered, so that the next page of a long one does not start at version 1."""

T = TypeVar("T")


class Positions:
    """Verified positions in one journal, so that a page of a long journal is not read from the start.

    A position is a hint: a reading that starts there checks that the journal still contains it. Positions are some
    versions apart, and farther each time there are too many. The last few ends of readings are remembered apart from
    them: a reader that follows a journal ends everywhere, and must not displace the others.
    """

    def __init__(self) -> None:
        self._positions: list[Position] = []
        self._ends: deque[Position] = deque(maxlen=ENDS_MAX)
        self.apart = 256

    def up_to(self, version: int) -> tuple[Position, ...]:
        """The positions from which the entry after a version can be read, the nearest first."""
        found = [each for each in (*self._positions, *self._ends) if each.version <= version]
        return tuple(sorted(found, key=_version, reverse=True))

    def add(self, position: Position) -> None:
        """Remember a position that a reading passed, or at which it ended."""
        if position.version % self.apart:
            self._ends.append(position)
            return
        index = bisect_left(self._positions, position.version, key=_version)
        if index < len(self._positions) and self._positions[index].version == position.version:
            self._positions[index] = position  # the journal was replaced by another
        else:
            self._positions.insert(index, position)
        while len(self._positions) > POSITIONS_MAX:
            self.apart *= 2
            self._positions = [each for each in self._positions if each.version % self.apart == 0]


def _version(position: Position) -> int:
    return position.version


class EntityView(Struct, frozen=True):
    """An entity as one reading found it. `durable` is the last version that its bytes prove to be durable."""

    stored: StoredSnapshot | None
    records: tuple[JournalRecord, ...]
    position: Position
    facts: ListFacts
    durable: int

    def loaded(self) -> Loaded:
        """The answer of the port."""
        snapshot = None if self.stored is None else self.stored.snapshot
        return Loaded(self.position.version, self.facts.changed_ms, snapshot, self.records)

    def version_of(self, key: str) -> int | None:
        """The version of the entry with this key; None when the key is unknown."""
        for record in self.records:
            if record.key == key:
                return record.version
        return None if self.stored is None else self.stored.recent_keys().get(key)

    def durable_version(self) -> int:
        """The last version that is known to be durable: by the snapshot, a seal, or a `d`."""
        return self.durable


class _Opened(Struct, frozen=True):
    active: Active
    stored: StoredSnapshot | None
    is_locked: bool = False


class EntityReader:
    """Reads entities of one open store; keeps no file open."""

    def __init__(self, context: JournalContext) -> None:
        self._configurations = context.configurations
        self._tombstones = context.tombstones
        self._fs = context.io.fs
        self._settings = context.io.settings
        self._positions: OrderedDict[str, Positions] = OrderedDict()
        self._guard = Lock()

    def load(self, address: EntityDirectory) -> EntityView | None:
        """The snapshot and the records after it; None when the entity does not exist."""
        return self._attempt(address, lambda opened: self._load(address, opened))

    def _load(self, address: EntityDirectory, opened: _Opened) -> EntityView | None:
        stored = self._verified_snapshot(address, opened)
        if stored is None and opened.active.base.since > 1:
            raise snapshot_required(address, opened.active.base)
        reader = self._reader(address, opened, _start(opened, stored))
        records, ends = [], []
        for record in reader:
            records.append(record)
            ends.append(reader.position)
        durable = max(_durable_version(reader, records, ends), 0 if stored is None else stored.position.version)
        more, position = self._recheck_under_lock(address, opened, reader, stored)
        records += more
        facts = None if stored is None else stored.facts
        if stored is not None:
            self._configurations.learn(stored.snapshot.revision, stored.snapshot.configuration, stored.facts)
        for record in records:
            facts = self._configurations.after_record(facts, record)
        return None if facts is None else EntityView(stored, tuple(records), position, facts, durable)

    def read(self, address: EntityDirectory, *, after: int, limit: int) -> tuple[JournalRecord, ...]:
        """The verified records after a version. Raises ArchivedError when they were released."""
        with self._guard:
            positions = self._positions.get(address.name) or Positions()
            starts, apart = positions.up_to(after), positions.apart
        found = self._attempt(address, lambda opened: self._read(address, opened, starts, after, limit, apart))
        records, passed = ((), ()) if found is None else found
        with self._guard:
            for position in passed:
                positions.add(position)
            self._positions[address.name] = positions
            self._positions.move_to_end(address.name)
            if len(self._positions) > JOURNALS_MAX:
                self._positions.popitem(last=False)
        return records

    def _read(
        self,
        address: EntityDirectory,
        opened: _Opened,
        starts: tuple[Position, ...],
        after: int,
        limit: int,
        apart: int,
    ) -> tuple[tuple[JournalRecord, ...], tuple[Position, ...]]:
        """The records, and the positions passed: each so many versions apart, and the end."""
        base, stored = opened.active.base, opened.stored
        if after < base.since - 1:
            raise archived(address.entity, base)
        known = [*starts, *(() if stored is None or stored.position.version > after else (stored.position,))]
        known.sort(key=_version, reverse=True)
        nearer = (each for each in known if each.version > base.earliest.version and self._contains(opened, each))
        reader = self._reader(address, opened, next(nearer, base.earliest))
        records: list[JournalRecord] = []
        passed: list[Position] = []
        for record in reader:
            if record.version > after:
                records.append(record)
            if len(records) == limit:
                return tuple(records), (*passed, reader.position)
            if record.version % apart == 0:
                passed.append(reader.position)
        stored = self._verified_snapshot(address, opened)
        more, position = self._recheck_under_lock(address, opened, reader, stored)
        records += [each for each in more if each.version > after]
        return tuple(records[:limit]), tuple(passed) if more else (*passed, position)

    def work(self, address: EntityDirectory) -> tuple[WorkItem, ...]:
        """The unfinished work of an entity, for display: its entry may not be durable yet (rule 2)."""
        return self._attempt(address, lambda opened: self._work(address, opened)) or ()

    def _work(self, address: EntityDirectory, opened: _Opened) -> tuple[WorkItem, ...]:
        stored = self._verified_snapshot(address, opened)
        if stored is None and opened.active.base.since > 1:
            raise snapshot_required(address, opened.active.base)
        work = UnfinishedWork() if stored is None else UnfinishedWork.decode(stored.work)

        def on_line(line: WorkLine | MarkLine, _: Position) -> None:
            work.apply_line(line)

        reader = self._reader(address, opened, _start(opened, stored), on_line)
        for _ in reader:
            pass
        self._recheck_under_lock(address, opened, reader, stored, on_line)
        return work.items()

    def journal_base(self, address: EntityDirectory) -> JournalBase | None:
        """Where the journal of an entity starts, if it was compacted.

        Raises CorruptionError when that snapshot is missing or damaged.
        """
        return self._attempt(address, lambda opened: self._journal_base(address, opened))

    def _journal_base(self, address: EntityDirectory, opened: _Opened) -> JournalBase | None:
        base = opened.active.base
        if base.since == 1 or base.archive:
            return None
        name, file = base_name(base.since - 1), -1
        with contextlib.suppress(FileNotFoundError):
            file = self._fs.open_file(opened.active.directory, name)
        if file < 0:
            raise SegmentMovedError(f"{name} is missing")
        try:
            data = self._fs.read(file, 0, 2 * SNAPSHOT_BYTES_MAX)
        finally:
            self._close(file)
        found = decode_base_file(data, address.entity, store_key=self._settings.store_key)
        if found is None or (found.version, found.head) != (base.since - 1, base.origin):
            raise corrupt(address, base.earliest, "the snapshot at which the journal starts is damaged", name)
        return found

    def entity_id(self, address: EntityDirectory) -> str:
        """The id in the snapshot of a directory whose name does not contain it; empty without a snapshot."""
        with self._open_directory(address) as directory:
            stored = None if directory is None else self._read_snapshot(address, directory)
        return "" if stored is None else stored.snapshot.entity

    def is_end(self, address: EntityDirectory, position: Position) -> bool:
        """Whether an entity's journal ends at this position: then what was read before is current."""
        with self._open_directory(address) as directory, self._open_active(address, directory) as active:
            if active is None or active.base.first != position.segment:
                return False
            return journal_ends_at(self._fs, active.file, position)

    def abandon(self) -> None:
        """In a forked child: the guard may be held by a thread that does not exist here."""
        self._guard = Lock()

    # Parts

    def _attempt(self, address: EntityDirectory, read: Callable[[_Opened], T]) -> T | None:
        """One reading (rule 4); None when the entity does not exist."""
        for _ in range(UNLOCKED_READS_MAX):
            with contextlib.suppress(SegmentMovedError), self._open(address) as opened:
                return None if opened is None else read(opened)
        with self._open_directory(address) as directory:
            if directory is None:
                return None
            with self._lock(address, directory), self._open(address, is_locked=True) as opened:
                if opened is None:
                    return None
                try:
                    return read(opened)
                except SegmentMovedError as error:
                    raise corrupt(address, opened.active.base.position, str(error)) from error

    @contextlib.contextmanager
    def _open_directory(self, address: EntityDirectory) -> Iterator[int | None]:
        fs, directory = self._fs, -1
        try:
            try:
                with open_shard(fs, address.resources, address.shard) as shard:
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
    def _open(self, address: EntityDirectory, *, is_locked: bool = False) -> Iterator[_Opened | None]:
        """The entity's directory, its snapshot and its active segment, in the order of rule 1."""
        with self._open_directory(address) as directory:
            if directory is None:
                yield None
                return
            stored = self._read_snapshot(address, directory)
            with self._open_active(address, directory) as active:
                if active is None and stored is not None:  # a snapshot is written after its journal
                    if self._tombstones.stored(address) is not None:
                        raise SegmentMovedError("the entity was pruned meanwhile")
                    raise corrupt(address, stored.position, f"{JOURNAL} is missing, and {SNAPSHOT} exists")
                yield None if active is None else _Opened(active, stored, is_locked)

    @contextlib.contextmanager
    def _open_active(self, address: EntityDirectory, directory: int | None) -> Iterator[Active | None]:
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
    def _reopen_locked(self, address: EntityDirectory, opened: _Opened) -> Iterator[_Opened]:
        """The entity opened again under its lock."""
        if opened.is_locked:
            yield opened
            return
        with self._lock(address, opened.active.directory), self._open(address, is_locked=True) as again:
            if again is None:
                raise SegmentMovedError("the journal is missing")
            yield again

    def _lock(self, address: EntityDirectory, directory: int) -> DirectoryLock:
        """Holds the entity's lock; the descriptor is closed by the block that opened it."""
        return DirectoryLock(self._fs, directory, address.entity, self._settings.lock_ms_max, lambda: None)

    def _chain(self, address: EntityDirectory) -> Chain:
        return Chain(address, self._settings.tenant, self._settings.store_key)

    def _reader(
        self, address: EntityDirectory, opened: _Opened, position: Position, on_line: OnLine | None = None
    ) -> JournalReader:
        return JournalReader(self._fs, opened.active, position, self._chain(address), on_line=on_line)

    def _read_snapshot(self, address: EntityDirectory, directory: int) -> StoredSnapshot | None:
        return read_snapshot(self._fs, directory, address.entity or None, store_key=self._settings.store_key)

    def _contains(self, opened: _Opened, position: Position) -> bool:
        try:
            return contains(self._fs, opened.active, position)
        except SegmentMovedError:
            return False

    def _verified_snapshot(self, address: EntityDirectory, opened: _Opened) -> StoredSnapshot | None:
        """The snapshot, once the journal is known to contain it. Raises CorruptionError when it does not."""
        stored = opened.stored
        if stored is None or contains(self._fs, opened.active, stored.position):
            return stored
        with self._reopen_locked(address, opened) as again:
            if again.stored is not None and not contains(self._fs, again.active, again.stored.position):
                raise self._missing_snapshot(address, again, again.stored)
        raise SegmentMovedError("the snapshot was replaced")

    def _missing_snapshot(self, address: EntityDirectory, opened: _Opened, stored: StoredSnapshot) -> CorruptionError:
        """The error for a journal without the version of its snapshot; it names the first damaged place, if any."""
        reader = self._reader(address, opened, opened.active.base.earliest)
        for _ in reader:
            pass
        why = reader.damage_under_lock(stored)
        if why is not None:
            return corrupt(address, reader.position, why)
        return corrupt(address, stored.position, "the snapshot of this version is not in the journal")

    def _recheck_under_lock(
        self,
        address: EntityDirectory,
        opened: _Opened,
        reader: JournalReader,
        stored: StoredSnapshot | None,
        on_line: OnLine | None = None,
    ) -> tuple[list[JournalRecord], Position]:
        """The records that a second reading under the lock adds, when the first one may have ended in damage."""
        if reader.damage(stored) is None and not reader.has_no_record():
            return [], reader.position
        with self._reopen_locked(address, opened) as again:
            second = self._reader(address, again, reader.position, on_line)
            records = list(second)
            why = second.damage_under_lock(again.stored)
        if why is not None:
            raise corrupt(address, second.position, why)
        return records, second.position


def _start(opened: _Opened, stored: StoredSnapshot | None) -> Position:
    return opened.active.base.earliest if stored is None else stored.position


def _durable_version(reader: JournalReader, records: list[JournalRecord], ends: list[Position]) -> int:
    """The last version that sealed segments, or a `d` in the active one, prove to be durable.

    Records that came with their segment prove nothing: its name may not be flushed yet. The writer of the next record
    had flushed it.
    """
    base = reader.active.base
    here = [(record, end) for record, end in zip(records, ends, strict=True) if end.segment == base.first]
    known = max((record.durable for record, end in here if end.offset > base.durable_end), default=0)
    return max((end.version for _, end in here if end.offset <= known), default=reader.sealed_version)

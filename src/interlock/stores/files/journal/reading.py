"""Walking a journal: its records from a verified place on, from segment to segment.

Rule 1: nothing here takes a lock or writes.
Rule 2: a segment other than the active one ends with its seal, or is damaged: it was complete before the next one was
put in place, and nobody writes it any more.
Rule 3: a segment that is looked for and not there is a `SegmentMovedError`: a rotation or a release may just have
passed, and
only whoever holds the lock can tell that from damage.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from msgspec import Struct

from interlock.errors import ArchivedError, CorruptionError
from interlock.model.journal.record import JournalRecord
from interlock.stores.files.filesystem import FileSystem
from interlock.stores.files.journal.durable_io import EntityDirectory
from interlock.stores.files.journal.segments import Base, first_base, joined, read_base
from interlock.stores.files.journal.snapshot_file import Position, StoredSnapshot
from interlock.stores.files.journal.tail import (
    OnLine,
    SegmentReader,
    beginning,
    corrupt,
    hear_nothing,
    proves_durable,
    stands,
)
from interlock.stores.files.names import SNAPSHOT, sealed_first, sealed_name


class SegmentMovedError(Exception):
    """A segment is not there: a rotation or a release passed, or it is damage."""


class Chain(Struct, frozen=True):
    """Whose chain is read, and with which key."""

    address: EntityDirectory
    tenant: str = ""
    store_key: bytes = b""

    @property
    def entity(self) -> str:
        """Who is told of here."""
        return self.address.entity

    def beginning(self) -> Position:
        """The place before the first record."""
        return beginning(self.entity, tenant=self.tenant, store_key=self.store_key)

    def base(self) -> Base:
        """How a journal begins that was never rotated."""
        return first_base(self.beginning())


class Active(Struct, frozen=True):
    """The segment that an entity's directory shows as `events.log`, open."""

    directory: int
    file: int
    base: Base


def active_segment(fs: FileSystem, directory: int, file: int, chain: Chain) -> Active:
    """The active segment in an open file. Raises CorruptionError when its beginning is damaged."""
    base = read_base(fs, file, chain.beginning(), store_key=chain.store_key)
    if base is None:
        raise corrupt(chain.address, chain.beginning(), "the first line of the segment is damaged")
    return Active(directory, file, base)


class JournalReader:
    """The records behind a mark, to the end of the active segment.

    Once they are used up: `mark` is behind the last good one, `rest` the bytes that are no record and `bad` why not,
    `is_sealed` whether the active segment is complete, `flushed` the last version that is durable because its segment
    was sealed.
    """

    def __init__(
        self, fs: FileSystem, active: Active, mark: Position, chain: Chain, *, hear: OnLine = hear_nothing
    ) -> None:
        self.mark = _joined(mark, active.base, is_heard=hear is not hear_nothing)
        self.rest = b""
        self.bad = ""
        self.is_sealed = False
        self.flushed = 0
        self.active = active
        self._fs = fs
        self._chain = chain
        self._hear = hear

    def __iter__(self) -> Iterator[JournalRecord]:
        base = self.active.base
        while self.mark.segment < base.first:
            yield from self._sealed()
            self.flushed = self.mark.version
            self.mark = joined(Position(self.mark.version, 0, self.mark.head, self.mark.version + 1), base)
        if self.mark.segment != base.first:
            raise SegmentMovedError(f"the segment of version {self.mark.segment} is not there")
        if self.mark.offset < base.size:
            raise corrupt(self._chain.address, base.mark, "the segment does not begin where the one before it ends")
        yield from self._read(self.active.file)

    def _sealed(self) -> Iterator[JournalRecord]:
        name = sealed_name(self.mark.segment)
        with _opened(self._fs, self.active.directory, name) as file:
            if self.mark.offset == 0:
                self._begin(file, name)
            yield from self._read(file)
        if not self.is_sealed or self.rest:
            why = f"{self.reason}, and the segment does not end with its seal"
            raise corrupt(self._chain.address, self.mark, why, name)
        self.is_sealed = False

    def _begin(self, file: int, name: str) -> None:
        mark = self.mark
        base = read_base(self._fs, file, mark, store_key=self._chain.store_key)
        if base is None or (base.first - 1, base.head) != (mark.version, mark.head):
            raise corrupt(self._chain.address, mark, "the segment does not begin where the one before it ends", name)
        self.mark = base.mark

    def _read(self, file: int) -> Iterator[JournalRecord]:
        tail = SegmentReader(self._fs, file, self.mark, store_key=self._chain.store_key, hear=self._hear)
        for record in tail:
            self.mark = tail.mark
            yield record
        self.mark = tail.mark
        self.rest, self.bad, self.is_sealed = tail.rest, tail.bad, tail.is_sealed

    @property
    def reason(self) -> str:
        """Why the reading ended where it did."""
        return self.bad or ("the line is cut" if self.rest else "the journal ends there")

    def damaged(self, kept: StoredSnapshot | None) -> str | None:
        """Why the end of this reading is damage and no torn tail; None when nobody testifies for what is not there."""
        if kept is not None and kept.mark.version > self.mark.version:
            return f"{self.reason}, and the snapshot has version {kept.mark.version}"
        if self.rest and self.is_sealed:
            return "bytes stand behind the seal"
        if self.rest and self.mark.offset < self.active.base.durable_end:
            return f"{self.reason}, and these bytes were durable when the segment was put in place"
        if proves_durable(self.rest, self.mark.offset):
            return f"{self.reason}, and a later line says that these bytes had been durable"
        return None

    def is_headless(self) -> bool:
        """Whether not even a first record reads: then only the names beside it tell a beginning from a lost base."""
        return self.mark.version == 0

    def judgement(self, kept: StoredSnapshot | None) -> str | None:
        """The same as `damaged`, by whoever holds the lock."""
        why = self.damaged(kept)
        if why is None and self.is_headless() and any(map(sealed_first, self._fs.names(self.active.directory))):
            return "there are sealed segments, and this one does not follow them"
        return why


def _joined(mark: Position, base: Base, *, is_heard: bool) -> Position:
    """Where a reading begins. Behind the last record of a sealed segment may stand marks, for those who hear them."""
    may_pass = not is_heard or mark.segment >= base.first or mark.version < base.since
    return joined(mark, base) if may_pass else mark


def is_held(fs: FileSystem, active: Active, mark: Position) -> bool:
    """Whether the journal holds the record that a mark is behind. Raises PassedError when its segment is not there."""
    mark = joined(mark, active.base)
    if mark.segment == active.base.first:
        return stands(fs, active.file, mark)
    with _opened(fs, active.directory, sealed_name(mark.segment)) as file:
        return stands(fs, file, mark)


@contextlib.contextmanager
def _opened(fs: FileSystem, directory: int, name: str) -> Iterator[int]:
    try:
        file = fs.open_file(directory, name)
    except FileNotFoundError:
        raise SegmentMovedError(f"{name} is not there") from None
    try:
        yield file
    finally:
        fs.close(file)


def unwitnessed(address: EntityDirectory, base: Base) -> CorruptionError:
    """The error of an entity whose records are in an archive, and whose snapshot does not read."""
    why = f"{SNAPSHOT} does not read, and the records that it stands for are in the archive {base.archive}"
    return corrupt(address, base.mark, why)


def archived(entity: str, base: Base) -> ArchivedError:
    """The error of records that were released."""
    return ArchivedError(entity, base.since - 1, base.archive)

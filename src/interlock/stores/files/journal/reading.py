"""Reading a journal: its records from a verified position on, and how a torn tail at its end differs from damage.

Rule 1: nothing here takes a lock or writes.
Rule 2: a bad line ends the reading of a segment; its bytes, and all after it, are the `rest`.
Rule 3: the rest is damage when a later line proves by its `d` that these bytes were durable, or when the snapshot has a
later version. Otherwise it is a torn tail: a write that was in progress and was never acknowledged.
Rule 4: a `work` line counts only with the record after it: alone it is a torn tail.
Rule 5: a segment other than the active one ends with its seal, or is damaged: it was complete before the next one
existed, and nothing writes it any more.
Rule 6: a segment that is missing raises `SegmentMovedError`: a rotation or a release may have happened meanwhile, and
only a reader that holds the lock can distinguish that from damage.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import msgspec
from msgspec import Raw, Struct

from interlock.errors import ArchivedError, CompactedError, CorruptionError
from interlock.model.encoding.codec import UNDECODABLE
from interlock.model.journal.record import InvalidRecord, JournalRecord, chain_start, decode_record
from interlock.stores.files.durable_io import EntityDirectory
from interlock.stores.files.filesystem import FileSystem
from interlock.stores.files.journal.line_formats import (
    BASE_BYTES_MAX,
    BLANKS,
    MARK,
    SEAL,
    WORK,
    Base,
    MarkLine,
    Position,
    WorkLine,
    decode_base,
    decode_work_or_mark,
    first_base,
    in_segment,
    is_seal,
    strip_padding,
)
from interlock.stores.files.journal.snapshot_file import StoredSnapshot, decode_snapshot_file
from interlock.stores.files.names import JOURNAL, SNAPSHOT, sealed_name, segment_first_version

READ_BYTES = 1_048_576
"""Bytes of one read of a journal: more than any record, so that most journals are one read."""

REST_BYTES_MAX = 16_777_216
"""Bytes after the last good record (16 MiB) that can be a torn write: one entry has 256 KiB, a copied page of a journal
some megabytes."""

SNAPSHOT_FILE_BYTES_MAX = 16_777_216
"""Bytes of `state.json` (16 MiB): a snapshot has 1 MiB, and ten thousand keys and the unfinished work some more."""

OnLine = Callable[[WorkLine | MarkLine, Position], None]
"""Called with each work and mark line and the position after it, in order and before the record it belongs to."""


class SegmentMovedError(Exception):
    """A segment is missing: a rotation or a release happened meanwhile, or the journal is damaged."""


class Chain(Struct, frozen=True):
    """Whose chain is read, and with which key."""

    address: EntityDirectory
    tenant: str = ""
    store_key: bytes = b""

    @property
    def entity(self) -> str:
        """The id of the entity."""
        return self.address.entity

    def start(self) -> Position:
        """The position before the first record."""
        return Position(0, 0, chain_start(self.entity, tenant=self.tenant, store_key=self.store_key))

    def base(self) -> Base:
        """The base of a journal that was never rotated."""
        return first_base(self.start())


class Active(Struct, frozen=True):
    """The active segment, open: the file that has the name `events.log`."""

    directory: int
    file: int
    base: Base


def active_segment(fs: FileSystem, directory: int, file: int, chain: Chain) -> Active:
    """The active segment in an open file. Raises CorruptionError when its first line is damaged."""
    base = _read_base(fs, file, chain.start(), chain)
    if base is None:
        raise corrupt(chain.address, chain.start(), "the first line of the segment is damaged")
    return Active(directory, file, base)


def _read_base(fs: FileSystem, file: int, start: Position, chain: Chain) -> Base | None:
    return decode_base(fs.read(file, 0, BASE_BYTES_MAX), start, store_key=chain.store_key)


# One segment


class SegmentReader:
    """Iterates over the records of one file after a position.

    At the end `position` is after the last good record, `rest` has the bytes after it that are not a record, and
    `problem` says why. A seal ends the reading; the rest is then what follows the seal. Padding is not part of the
    rest.
    """

    def __init__(
        self, fs: FileSystem, file: int, position: Position, *, store_key: bytes = b"", on_line: OnLine | None = None
    ) -> None:
        self.position = position
        self.rest = b""
        self.problem = ""
        self.is_sealed = False
        self._fs = fs
        self._file = file
        self._store_key = store_key
        self._on_line = on_line

    def __iter__(self) -> Iterator[JournalRecord]:
        buffer, offset = b"", self.position.offset
        while chunk := self._fs.read(self._file, offset, READ_BYTES):
            offset += len(chunk)
            buffer += chunk
            start = 0
            while (end := buffer.find(b"\n", start) + 1) > 0:
                line = buffer[start:end]
                if line.startswith(WORK):  # rule 4: its record may not be read yet
                    record_end = buffer.find(b"\n", end) + 1
                    if record_end == 0:
                        break
                    line, end = buffer[start:record_end], record_end
                record = self._next(line)
                if isinstance(record, InvalidRecord):
                    self.is_sealed = is_seal(line, self.position, store_key=self._store_key)
                    self.rest = _rest(buffer[end if self.is_sealed else start :] + self._remaining(offset))
                    self.problem = "" if self.is_sealed else record.reason
                    return
                start = end
                if record is not None:
                    yield record
            buffer = buffer[start:]
            if len(buffer) > REST_BYTES_MAX:
                self.problem = "the line does not end"
                break
        self.rest = _rest(buffer)

    def _next(self, line: bytes) -> JournalRecord | InvalidRecord | None:
        """The next record, which may have a work line before it; None after a mark line."""
        position, size, work = self.position, 0, None
        if line.startswith((WORK, MARK)):
            size = line.find(b"\n") + 1
            work = decode_work_or_mark(line[:size], position, store_key=self._store_key)
            if isinstance(work, MarkLine):
                self.position = _advance(position, position.version, position.head, size, work_bytes=size)
                if self._on_line is not None:
                    self._on_line(work, self.position)
                return None
            if work is None or work.version != position.version + 1:
                return InvalidRecord("the work line before the record does not follow")
        record = decode_record(
            line[size:], previous=position.head, version=position.version + 1, store_key=self._store_key
        )
        if isinstance(record, JournalRecord):
            self.position = _advance(position, record.version, record.head, len(line), work_bytes=size)
            if isinstance(work, WorkLine) and self._on_line is not None:
                self._on_line(work, self.position)
        return record

    def _remaining(self, offset: int) -> bytes:
        parts, size = [], 0
        while size <= REST_BYTES_MAX and (chunk := self._fs.read(self._file, offset + size, READ_BYTES)):
            size += len(chunk)
            parts.append(chunk)
        return b"".join(parts)


def _rest(after: bytes) -> bytes:
    """The bytes after the last good record without padding; with it if there is more than can be padding."""
    return after if len(after) > REST_BYTES_MAX else strip_padding(after)


def _advance(position: Position, version: int, head: str, size: int, *, work_bytes: int) -> Position:
    return Position(version, position.offset + size, head, position.segment, position.work_bytes + work_bytes)


# All segments


class JournalReader:
    """Iterates over the records of a journal after a position, to the end of the active segment.

    At the end: `position` is after the last good record, `rest` has the bytes that are not a record and `problem` why,
    `is_sealed` says whether the active segment is complete, and `sealed_version` is the last version that is durable
    because its segment was sealed.
    """

    def __init__(
        self, fs: FileSystem, active: Active, position: Position, chain: Chain, *, on_line: OnLine | None = None
    ) -> None:
        self.position = _start(position, active.base, wants_lines=on_line is not None)
        self.rest = b""
        self.problem = ""
        self.is_sealed = False
        self.sealed_version = 0
        self._has_too_much = False
        self.active = active
        self._fs = fs
        self._chain = chain
        self._on_line = on_line

    def __iter__(self) -> Iterator[JournalRecord]:
        base = self.active.base
        while self.position.segment < base.first:
            yield from self._read_sealed()
            self.sealed_version = self.position.version
            end = Position(self.position.version, 0, self.position.head, self.position.version + 1)
            self.position = in_segment(end, base)
        if self.position.segment != base.first:
            raise SegmentMovedError(f"the segment of version {self.position.segment} is missing")
        if self.position.offset < base.size:
            raise corrupt(self._chain.address, base.position, "the segment does not start where the one before it ends")
        yield from self._read(self.active.file)

    def _read_sealed(self) -> Iterator[JournalRecord]:
        name = sealed_name(self.position.segment)
        with _open_segment(self._fs, self.active.directory, name) as file:
            if self.position.offset == 0:
                self._enter(file, name)
            yield from self._read(file)
        if not self.is_sealed or self.rest:
            why = f"{self.reason}, and the segment does not end with its seal"
            raise corrupt(self._chain.address, self.position, why, name)
        self.is_sealed = False

    def _enter(self, file: int, name: str) -> None:
        position = self.position
        base = _read_base(self._fs, file, position, self._chain)
        if base is None or (base.first - 1, base.head) != (position.version, position.head):
            why = "the segment does not start where the one before it ends"
            raise corrupt(self._chain.address, position, why, name)
        self.position = base.position

    def _read(self, file: int) -> Iterator[JournalRecord]:
        segment = SegmentReader(self._fs, file, self.position, store_key=self._chain.store_key, on_line=self._on_line)
        for record in segment:
            self.position = segment.position
            yield record
        self.position = segment.position
        self.problem, self.is_sealed = segment.problem, segment.is_sealed
        self._has_too_much = len(segment.rest) > REST_BYTES_MAX
        self.rest = segment.rest[:1] if self._has_too_much else segment.rest  # errors keep this reader in memory

    @property
    def reason(self) -> str:
        """Why the reading ended where it did."""
        return self.problem or ("the line is incomplete" if self.rest else "the journal ends there")

    def damage(self, snapshot: StoredSnapshot | None) -> str | None:
        """Why the end of this reading is damage and not a torn tail; None when nothing proves damage."""
        if snapshot is not None and snapshot.position.version > self.position.version:
            return f"{self.reason}, and the snapshot has version {snapshot.position.version}"
        if self.rest and self.is_sealed:
            return "there are bytes after the seal"
        if self.rest and self.position.offset < self.active.base.durable_end:
            return f"{self.reason}, and these bytes were durable when the segment was created"
        if self._has_too_much:
            return f"{self.reason}, and more bytes follow than one write has"
        if proves_durable(self.rest, self.position.offset):
            return f"{self.reason}, and a later line proves that these bytes were durable"
        return None

    def has_no_record(self) -> bool:
        """Whether not even a first record was read: the journal may be new, or have lost its base. Only the other names
        in the directory show which.
        """
        return self.position.version == 0

    def damage_under_lock(self, snapshot: StoredSnapshot | None) -> str | None:
        """As `damage`, for a reader that holds the lock."""
        why = self.damage(snapshot)
        if (
            why is None
            and self.has_no_record()
            and any(map(segment_first_version, self._fs.names(self.active.directory)))
        ):
            return "there are sealed segments, and this one does not follow them"
        return why


def _start(position: Position, base: Base, *, wants_lines: bool) -> Position:
    """Where a reading starts. Mark lines may follow the last record of a sealed segment, if the reader wants them."""
    may_skip = not wants_lines or position.segment >= base.first or position.version < base.since
    return in_segment(position, base) if may_skip else position


@contextlib.contextmanager
def _open_segment(fs: FileSystem, directory: int, name: str) -> Iterator[int]:
    try:
        file = fs.open_file(directory, name)
    except FileNotFoundError:
        raise SegmentMovedError(f"{name} is missing") from None
    try:
        yield file
    finally:
        fs.close(file)


# Is a position still valid?


def contains(fs: FileSystem, active: Active, position: Position) -> bool:
    """Whether the journal has the record before this position. Raises SegmentMovedError when its segment is missing."""
    position = in_segment(position, active.base)
    if position.segment == active.base.first:
        return line_ends_at(fs, active.file, position)
    with _open_segment(fs, active.directory, sealed_name(position.segment)) as file:
        return line_ends_at(fs, file, position)


def line_ends_at(fs: FileSystem, file: int, position: Position) -> bool:
    """Whether the bytes before a position of a file end with the hash of its last line."""
    end = position.line_ending
    return fs.read(file, position.offset - len(end), len(end)) == end if position.offset > len(end) else False


def journal_ends_at(fs: FileSystem, file: int, position: Position) -> bool:
    """Whether a journal ends at this position, after the very line that was read there.

    Blanks alone prove nothing: they may be after fewer lines by now, or in the middle of one.
    """
    line = position.line_ending if position.offset else b""
    if position.offset < len(line):
        return False
    found = fs.read(file, position.offset - len(line), len(line) + 1)
    return found.startswith(line) and found[len(line) :] in BLANKS


# Torn tail or damage


class _RecordShape(Struct):
    v: int
    k: str
    d: int
    e: Raw
    h: str


class _LineShape(Struct):
    t: str
    d: int
    c: str
    h: str


_record_shapes = msgspec.json.Decoder(_RecordShape)
_line_shapes = msgspec.json.Decoder(_LineShape)


def proves_durable(rest: bytes, start: int) -> bool:
    """Whether a well-formed line in the rest has a `d` beyond `start`: then the bad bytes before it were durable."""
    if any(_has_line_beyond(rest, start, opening, _line_shapes) for opening in (SEAL, WORK, MARK)):
        return True
    return _has_line_beyond(rest, start, b'{"v":', _record_shapes)


def _has_line_beyond(
    rest: bytes,
    start: int,
    opening: bytes,
    shapes: msgspec.json.Decoder[_RecordShape] | msgspec.json.Decoder[_LineShape],
) -> bool:
    offset = 0
    while (offset := rest.find(opening, offset + 1)) > 0:
        end = rest.find(b"\n", offset) + 1
        if end == 0:
            return False
        try:
            found = shapes.decode(rest[offset:end])
        except UNDECODABLE:
            continue
        if found.d > start:
            return True
    return False


# The snapshot of an entity


def read_snapshot(
    fs: FileSystem, directory: int, entity: str | None, *, store_key: bytes = b""
) -> StoredSnapshot | None:
    """The snapshot in a directory; None when it is missing or damaged. Without `entity`: of any entity."""
    try:
        file = fs.open_file(directory, SNAPSHOT)
    except FileNotFoundError:
        return None
    try:
        parts: list[bytes] = []
        size = 0
        while size <= SNAPSHOT_FILE_BYTES_MAX and (chunk := fs.read(file, size, READ_BYTES)):
            parts.append(chunk)
            size += len(chunk)
    finally:
        fs.close(file)
    return decode_snapshot_file(b"".join(parts), entity, store_key=store_key)


# Errors


def corrupt(address: EntityDirectory, position: Position, why: str, name: str = JOURNAL) -> CorruptionError:
    """The error for a damaged journal: it names the place, and nothing on disk was changed."""
    what = f"the journal of `{address.entity}` is damaged after version {position.version}: {why}"
    message = f"{what} ({address.folder}/{name}, offset {position.offset})"
    hint = 'keep its folder unchanged, and read "A journal is damaged" in docs/guide/operate.md'
    return CorruptionError(message, code="journal.corrupt", hint=hint)


def snapshot_required(address: EntityDirectory, base: Base) -> CorruptionError:
    """The error for an entity whose records are in an archive and whose snapshot is missing or damaged."""
    where = f"in the archive {base.archive}" if base.archive else "removed: the journal was compacted"
    why = f"{SNAPSHOT} is missing or damaged, and the records before it are {where}"
    return corrupt(address, base.position, why)


def archived(entity: str, base: Base) -> ArchivedError | CompactedError:
    """The error for records that were released to an archive, or removed."""
    if not base.archive:
        return CompactedError(entity, base.since - 1)
    return ArchivedError(entity, base.since - 1, base.archive)

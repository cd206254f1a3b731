r"""Reading one segment of a journal: records from a verified place on, and what to think of bytes that are none.

Rule 1: nothing here takes a lock or raises for bad bytes; a bad line ends the reading, and stays as `rest`.
Rule 2: a bad region had been durable when a later record says so in its `d`. One that nobody testifies for is a torn
tail: a write that was under way, never acknowledged.
Rule 3: a `work` line counts only with the record behind it: alone it is a torn tail.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec
from msgspec import Raw, Struct

from interlock.errors import CorruptionError
from interlock.model.journal.record import InvalidRecord, JournalRecord, chain_start, decode_record
from interlock.stores.files.filesystem import FileSystem
from interlock.stores.files.journal.durable_io import EntityDirectory
from interlock.stores.files.journal.padding import without_spare
from interlock.stores.files.journal.segments import SEAL, is_seal
from interlock.stores.files.journal.snapshot_file import Position, StoredSnapshot, decode_snapshot_file
from interlock.stores.files.journal.work_lines import MARK, WORK, Beside, MarkLine, WorkLine, decode_beside, is_beside
from interlock.stores.files.names import JOURNAL, SNAPSHOT

READ_BYTES = 1_048_576
"""Bytes of one read of a journal: above every record, so that most journals are one read."""


class _Shape(Struct):
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


_shapes = msgspec.json.Decoder(_Shape)
_lines = msgspec.json.Decoder(_LineShape)

OnLine = Callable[[Beside, Position], None]
"""Hears the lines beside the records, each with the place behind it, in order and before the record it belongs to."""


def hear_nothing(line: Beside, mark: Position) -> None:
    """For those who want the records only."""


class SegmentReader:
    """The records behind a mark, in one file.

    Once they are used up, `mark` is behind the last good one and `rest` the bytes behind it that are none, `bad` why
    they are none; a seal ends the reading, and what stands behind it is the rest. Spare room is none.
    """

    def __init__(
        self, fs: FileSystem, file: int, mark: Position, *, store_key: bytes = b"", hear: OnLine = hear_nothing
    ) -> None:
        self.mark = mark
        self.rest = b""
        self.bad = ""
        self.is_sealed = False
        self._fs = fs
        self._file = file
        self._store_key = store_key
        self._hear = hear

    def __iter__(self) -> Iterator[JournalRecord]:
        held, position = b"", self.mark.offset
        while chunk := self._fs.read(self._file, position, READ_BYTES):
            position += len(chunk)
            held += chunk
            start = 0
            while (end := held.find(b"\n", start) + 1) > 0:
                line = held[start:end]
                if line.startswith(WORK):  # what follows it belongs to it, and may not be read yet
                    behind = held.find(b"\n", end) + 1
                    if behind == 0:
                        break
                    line, end = held[start:behind], behind
                record = self._next(line)
                if isinstance(record, InvalidRecord):
                    self.is_sealed = is_seal(line, self.mark, store_key=self._store_key)
                    self.rest = without_spare(held[end if self.is_sealed else start :] + self._remaining(position))
                    self.bad = "" if self.is_sealed else record.reason
                    return
                start = end
                if record is not None:
                    yield record
            held = held[start:]
        self.rest = without_spare(held)

    def _next(self, line: bytes) -> JournalRecord | InvalidRecord | None:
        """Goes on by a record, with the `work` line before it if it has one; None: by a mark."""
        mark, size, work = self.mark, 0, None
        if is_beside(line):
            size = line.find(b"\n") + 1
            work = decode_beside(line[:size], mark, store_key=self._store_key)
            if isinstance(work, MarkLine):
                self.mark = Position(mark.version, mark.offset + size, mark.head, mark.segment, mark.beside + size)
                self._hear(work, self.mark)
                return None
            if work is None or work.v != mark.version + 1:
                return InvalidRecord("the line beside the record does not follow")
        bare = line[size:]
        record = decode_record(bare, previous=mark.head, version=mark.version + 1, store_key=self._store_key)
        if isinstance(record, JournalRecord):
            beside = mark.beside + size
            self.mark = Position(record.version, mark.offset + len(line), record.head, mark.segment, beside)
            if isinstance(work, WorkLine):
                self._hear(work, self.mark)
        return record

    def _remaining(self, position: int) -> bytes:
        parts = []
        while chunk := self._fs.read(self._file, position, READ_BYTES):
            position += len(chunk)
            parts.append(chunk)
        return b"".join(parts)


def proves_durable(rest: bytes, start: int) -> bool:
    """Whether a well-formed line in the rest knows bytes behind `start` as durable: then the bad region was."""
    others = any(_testifies(rest, start, opening, _lines) for opening in (SEAL, WORK, MARK))
    return others or _testifies(rest, start, b'{"v":', _shapes)


def _testifies(
    rest: bytes, start: int, opening: bytes, lines: msgspec.json.Decoder[_Shape] | msgspec.json.Decoder[_LineShape]
) -> bool:
    position = 0
    while (position := rest.find(opening, position + 1)) > 0:
        end = rest.find(b"\n", position) + 1
        if end == 0:
            return False
        try:
            found = lines.decode(rest[position:end])
        except msgspec.MsgspecError:
            continue
        if found.d > start:
            return True
    return False


def beginning(entity: str, *, tenant: str = "", store_key: bytes = b"") -> Position:
    """The place before the first record."""
    return Position(0, 0, chain_start(entity, tenant=tenant, store_key=store_key))


def stands(fs: FileSystem, file: int, mark: Position) -> bool:
    """Whether the journal holds the record that a mark is behind: its hash ends the bytes before the mark."""
    end = mark.ending
    return fs.read(file, mark.offset - len(end), len(end)) == end if mark.offset > len(end) else False


def read_kept(fs: FileSystem, directory: int, entity: str | None, *, store_key: bytes = b"") -> StoredSnapshot | None:
    """The snapshot beside a journal; None when there is none that is whole. Without `entity`: whoever's it is."""
    try:
        file = fs.open_file(directory, SNAPSHOT)
    except FileNotFoundError:
        return None
    try:
        parts: list[bytes] = []
        while chunk := fs.read(file, sum(map(len, parts)), READ_BYTES):
            parts.append(chunk)
    finally:
        fs.close(file)
    return decode_snapshot_file(b"".join(parts), entity, store_key=store_key)


def corrupt(address: EntityDirectory, mark: Position, why: str, name: str = JOURNAL) -> CorruptionError:
    """The error of a damaged journal: it names the place, and nothing on disk was changed."""
    what = f"the journal of `{address.entity}` is damaged after version {mark.version}: {why}"
    message = f"{what} ({address.folder}/{name}, offset {mark.offset})"
    hint = 'keep its folder as it is, and read "A journal is damaged" in docs/guide/operate.md'
    return CorruptionError(message, code="journal.corrupt", hint=hint)

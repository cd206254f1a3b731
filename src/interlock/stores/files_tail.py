r"""Reading a journal: records from a verified place on, and what to think of bytes that are none.

Rule 1: nothing here takes a lock or raises for bad bytes; a bad line ends the reading, and stays as `rest`.
Rule 2: a bad region had been durable when a later record says so in its `d`. One that nobody testifies for is a torn
tail: a write that was under way, never acknowledged.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from msgspec import Raw, Struct

from interlock.errors import CorruptionError
from interlock.model.record import Bad, Record, decode_record, genesis
from interlock.stores.files_names import JOURNAL, SNAPSHOT
from interlock.stores.files_state import Kept, Mark, decode_kept
from interlock.stores.filesystem import FileSystem

READ_BYTES = 1_048_576
"""Bytes of one read of a journal: above every record, so that most journals are one read."""


class _Shape(Struct):
    v: int
    k: str
    d: int
    e: Raw
    h: str


_shapes = msgspec.json.Decoder(_Shape)


class Tail:
    """The records behind a mark. Once they are used up, `mark` is behind the last good one and `rest` the bad bytes."""

    def __init__(self, fs: FileSystem, file: int, mark: Mark, *, store_key: bytes = b"") -> None:
        self.mark = mark
        self.rest = b""
        self._fs = fs
        self._file = file
        self._store_key = store_key

    def __iter__(self) -> Iterator[Record]:
        held, position = b"", self.mark.offset
        while chunk := self._fs.read(self._file, position, READ_BYTES):
            position += len(chunk)
            held += chunk
            start = 0
            while (end := held.find(b"\n", start) + 1) > 0:
                line = held[start:end]
                mark = self.mark
                record = decode_record(line, previous=mark.head, version=mark.version + 1, store_key=self._store_key)
                if isinstance(record, Bad):
                    self.rest = held[start:] + self._remaining(position)
                    return
                self.mark = Mark(record.version, mark.offset + len(line), record.head)
                start = end
                yield record
            held = held[start:]
        self.rest = held

    def _remaining(self, position: int) -> bytes:
        parts = []
        while chunk := self._fs.read(self._file, position, READ_BYTES):
            position += len(chunk)
            parts.append(chunk)
        return b"".join(parts)

    def damaged(self, kept: Kept | None) -> str | None:
        """Why the end of this reading is damage and no torn tail; None when nobody testifies for what is not there."""
        if kept is not None and kept.mark.version > self.mark.version:
            return f"the snapshot has version {kept.mark.version}"
        if testimony(self.rest, self.mark.offset):
            return "a later record says that these bytes had been durable"
        return None


def testimony(rest: bytes, start: int) -> bool:
    """Whether a well-formed record in the rest knows bytes behind `start` as durable: then the bad region was."""
    position = 0
    while (position := rest.find(b'{"v":', position + 1)) > 0:
        end = rest.find(b"\n", position) + 1
        if end == 0:
            return False
        try:
            found = _shapes.decode(rest[position:end])
        except msgspec.MsgspecError:
            continue
        if found.d > start:
            return True
    return False


def beginning(entity: str, *, tenant: str = "", store_key: bytes = b"") -> Mark:
    """The place before the first record."""
    return Mark(0, 0, genesis(entity, tenant=tenant, store_key=store_key))


def stands(fs: FileSystem, file: int, mark: Mark) -> bool:
    """Whether the journal holds the record that a mark is behind: its hash ends the bytes before the mark."""
    end = b'"%b"}\n' % mark.head.encode()
    return fs.read(file, mark.offset - len(end), len(end)) == end if mark.offset > len(end) else False


def read_kept(fs: FileSystem, directory: int, entity: str | None, *, store_key: bytes = b"") -> Kept | None:
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
    return decode_kept(b"".join(parts), entity, store_key=store_key)


def corrupt(entity: str, mark: Mark, why: str) -> CorruptionError:
    """The error of a damaged journal: it names the place, and nothing on disk was changed."""
    place = f"{JOURNAL} of `{entity}`, offset {mark.offset}, after version {mark.version}"
    return CorruptionError(f"{place}: {why}", code="journal.corrupt", hint="stop this entity and keep its directory")

r"""Segments: a long journal is several files, of which only the last one, `events.log`, is written. Their two lines.

    events.log                                  the active segment
    events-<version of its first record>.log    sealed segments, 20 digits

A segment may begin with a base line, and ends with a seal line once it is complete:

    {"t":"base","n":2,"first":7,"since":1,"p":"<32 hex>","d":0,"archive":"","c":"<32 hex>","h":"<32 hex>"}\n
    {"t":"seal","d":1234,"first":1,"last":6,"c":"<32 hex>","h":"<32 hex>"}\n

`n` counts the segments, `first` is the version of the segment's first record, `since` the first one that is still
here: the records before it, up to the one with the hash `p`, are in `archive`. `d` are the bytes behind a base that
were durable when the segment was put in place, and the bytes before a seal that its writer knew durable. `h` is the
head of the chain at that place, `c` the line's own hash. A journal that was never rotated has neither line: its only
segment begins with version 1.

Rule 1: records are chained to each other across segments; a base or a seal is no link of that chain.
Rule 2: nothing but spare room stands behind a seal, ever.
"""

from __future__ import annotations

from hashlib import blake2b

import msgspec
from msgspec import Struct

from interlock.model.journal.record import HASH_HEX
from interlock.stores.files.filesystem import FileSystem
from interlock.stores.files.journal.snapshot_file import Position

BASE_BYTES_MAX = 8_192
"""Bytes of a base line: one small read tells which segment a file is."""

ARCHIVE_BYTES_MAX = 1_024
"""Bytes of an archive's address: it stands in a base line, where each byte may become six."""

SEAL = b'{"t":"seal"'
_BASE = b'{"t":"base"'
_END = len(',"c":"","h":""}\n') + 2 * HASH_HEX


class Base(Struct, frozen=True):
    """How a segment begins. `size` are the bytes of its line; 0 when it has none."""

    number: int
    first: int
    since: int
    origin: str
    durable: int
    archive: str
    head: str
    size: int = 0

    @property
    def earliest(self) -> Position:
        """The place before the first record that is still here."""
        return Position(self.since - 1, 0, self.origin, self.since)

    @property
    def mark(self) -> Position:
        """The place behind the base."""
        return Position(self.first - 1, self.size, self.head, self.first)

    @property
    def durable_end(self) -> int:
        """The offset up to which the segment was durable from its beginning."""
        return self.size + self.durable


class _BaseLine(Struct, forbid_unknown_fields=True):
    t: str
    n: int
    first: int
    since: int
    p: str
    d: int
    archive: str
    c: str
    h: str


_bases = msgspec.json.Decoder(_BaseLine)


def encode_base(base: Base, *, store_key: bytes = b"") -> bytes:
    """The line that a segment begins with."""
    numbers = b'"n":%d,"first":%d,"since":%d' % (base.number, base.first, base.since)
    archive = msgspec.json.encode(base.archive)
    body = b'%b,%b,"p":"%b","d":%d,"archive":%b' % (_BASE, numbers, base.origin.encode(), base.durable, archive)
    return closed_line(body, base.head, store_key)


def encode_seal(first: int, mark: Position, durable: int, *, store_key: bytes = b"") -> bytes:
    """The line that ends a segment whose last record is before the mark."""
    body = b'%b,"d":%d,"first":%d,"last":%d' % (SEAL, durable, first, mark.version)
    return closed_line(body, mark.head, store_key)


def is_seal(line: bytes, mark: Position, *, store_key: bytes = b"") -> bool:
    """Whether a line ends the segment at this place."""
    body = line[:-_END]
    ends = line.startswith(SEAL) and body.endswith(b',"last":%d' % mark.version)
    return ends and line == closed_line(body, mark.head, store_key)


def opened_line(line: bytes, head: str, store_key: bytes) -> bytes | None:
    """What a line says that is no record; None when it is damaged, or stands at another place of the chain."""
    body = line[:-_END]
    return body if line == closed_line(body, head, store_key) else None


def closed_line(body: bytes, head: str, store_key: bytes) -> bytes:
    """A line that is no record, with its own hash and the head of the chain at its place."""
    check = blake2b(head.encode() + body, key=store_key, digest_size=16).hexdigest()
    return b'%b,"c":"%b","h":"%b"}\n' % (body, check.encode(), head.encode())


def read_base(fs: FileSystem, file: int, beginning: Position, *, store_key: bytes = b"") -> Base | None:
    """How a segment begins; without a line of its own: with version 1. None when the line is damaged."""
    data = fs.read(file, 0, BASE_BYTES_MAX)
    if not data.startswith(_BASE):
        return first_base(beginning)
    line = data[: data.find(b"\n") + 1]
    try:
        found = _bases.decode(line)
    except msgspec.MsgspecError:
        return None
    if line != closed_line(line[:-_END], found.h, store_key):
        return None
    return Base(found.n, found.first, found.since, found.p, found.d, found.archive, found.h, len(line))


def first_base(beginning: Position) -> Base:
    """How the first segment begins: without a line of its own."""
    return Base(1, 1, 1, beginning.head, 0, "", beginning.head)


def joined(mark: Position, base: Base) -> Position:
    """The same place, seen from a segment that begins there; the mark itself when it does not."""
    return base.mark if (mark.version, mark.head) == (base.first - 1, base.head) else mark

r"""The lines of a journal that are not records, the padding after the last line, and positions between lines.

A long journal is several files, the segments. Only the last one is written:

    events.log                                  the active segment
    events-<version of its first record>.log    sealed segments, 20 digits

A segment may start with a base line, and ends with a seal line once it is complete:

    {"t":"base","n":2,"first":7,"since":1,"p":"<32 hex>","d":0,"archive":"","c":"<32 hex>","h":"<32 hex>"}\n
    {"t":"seal","d":1234,"first":1,"last":6,"c":"<32 hex>","h":"<32 hex>"}\n

`n` counts the segments, `first` is the version of the segment's first record, `since` the first version that is still
in this journal: the records before it, up to the one with the hash `p`, are in `archive`, or removed where it is empty.
`d` of a base is the number of bytes after it that were durable when the segment was created, `d` of a seal the number
of bytes before it that its writer knew to be durable. A journal that was never rotated has neither line.

Work is recorded in two more lines:

    {"t":"work","d":1234,"v":7,"left":{"born":[...],"ended":[...],"cancelled":[...]},"c":"<32 hex>","h":"<32 hex>"}\n
    {"t":"mark","d":1234,"p":{"lane":"effect","version":7,"ordinal":0},"stand":{...},"c":"<32 hex>","h":"<32 hex>"}\n

A `work` line is directly before the record of version `v` and is written together with it: it is valid only with that
record. A `mark` line has the current state of one piece of work; without `stand` the work is removed. `d` is the number
of bytes of the segment that the writer knew to be durable.

In all four lines `h` is the head of the chain at that place and `c` the hash of the line itself.

Rule 1: these lines are not links of the chain of records, so a record has the same bytes in every store. The `d` of a
record does not count them; once a segment has a work line, every record has one before it with the true number.
Rule 2: a mark is a state and not a change: reading it twice has the same result.
Rule 3: only padding follows a seal.

Padding is a blank line after the last line, which the next lines overwrite. A file that grows has a new size, and each
flush must write that too; a file whose bytes exist already does not. So a line that does not fit into the padding
brings more of it, up to the end of a block.

Rule 4: blanks at the end of a journal are not a torn tail. Any other byte among them is.
Rule 5: no line starts with a blank, so the byte after a known last line shows whether another line follows. A power cut
may leave blanks where later bytes follow; only reading the whole tail finds that, and each opening does.
Rule 6: the length of the padding is a hint. Too long: a flush takes longer. Too short: blanks overwrite blanks.
"""

from __future__ import annotations

from hashlib import blake2b

import msgspec
from msgspec import Struct

from interlock.errors import UsageError
from interlock.model.encoding.codec import UNDECODABLE, encode
from interlock.model.journal.record import HASH_HEX
from interlock.model.journal.work import WorkDelta, WorkId
from interlock.model.journal.work_state import WorkState

BASE_BYTES_MAX = 8_192
"""Bytes of a base line: one small read shows which segment a file is."""

ARCHIVE_BYTES_MAX = 1_024
"""Bytes of an archive's address: it is part of a base line, where each byte may be escaped to six."""

BLANKS = b" \n"

PADDING_SHARE = 2
"""Padding beyond a block is this fraction of the journal: it grows seldom, and never to twice its size."""

PADDING_BYTES_MAX = 65_536
"""The most padding of one write: a caller waits for it."""

BASE = b'{"t":"base"'
SEAL = b'{"t":"seal"'
WORK = b'{"t":"work"'
MARK = b'{"t":"mark"'
_END = len(',"c":"","h":""}\n') + 2 * HASH_HEX


class Position(Struct, frozen=True):
    """A verified place in a journal: after the record of `version`, in the segment whose first version is `segment`.

    `work_bytes` are the bytes before it in this segment that are work and mark lines.
    """

    version: int
    offset: int
    head: str
    segment: int = 1
    work_bytes: int = 0

    @property
    def line_ending(self) -> bytes:
        """How the line before this place ends: the last field of every line is the head of the chain."""
        return b'"%b"}\n' % self.head.encode()


# Padding


def padding(end: int, block_bytes: int) -> bytes:
    """The padding after a journal that ends at this offset."""
    far = end + min(end // PADDING_SHARE, PADDING_BYTES_MAX)
    size = far + -far % block_bytes - end
    return b" " * (size - 1) + b"\n" if size else b""


def strip_padding(rest: bytes) -> bytes:
    """The bytes after a last line; empty when they are only padding."""
    return rest if rest.strip(BLANKS) else b""


# Lines that are not records


def sign_line(body: bytes, head: str, store_key: bytes) -> bytes:
    """A line that is not a record, with its own hash and the head of the chain at its place."""
    check = blake2b(head.encode() + body, key=store_key, digest_size=16).hexdigest()
    return b'%b,"c":"%b","h":"%b"}\n' % (body, check.encode(), head.encode())


def is_intact(line: bytes, head: str, store_key: bytes) -> bool:
    """Whether a line that is not a record is undamaged and belongs to this place of the chain."""
    return line == sign_line(line[:-_END], head, store_key)


# Bases and seals


class Base(Struct, frozen=True):
    """How a segment starts. `size` is the length of its base line; 0 when it has none."""

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
        """The place before the first record that is still in this journal."""
        return Position(self.since - 1, 0, self.origin, self.since)

    @property
    def position(self) -> Position:
        """The place after the base line."""
        return Position(self.first - 1, self.size, self.head, self.first)

    @property
    def durable_end(self) -> int:
        """The offset up to which the segment was durable when it was created."""
        return self.size + self.durable

    def next(self, position: Position, *, durable: int = 0) -> Base:
        """The base of the segment after one that ends at this position."""
        number = self.number + (position.version >= self.first)
        return Base(number, position.version + 1, self.since, self.origin, durable, self.archive, position.head)

    def next_after_compaction(self, position: Position, since: int, origin: str) -> Base:
        """The base of the segment after one that ends at this position, when records before `since` are removed."""
        after = self.next(position)
        return Base(after.number, after.first, since, origin, 0, "", after.head)

    def next_after_release(self, position: Position, archive: str) -> Base:
        """The base of the segment after one that ends at this position, when all records before it are released."""
        after = self.next(position)
        return Base(after.number, after.first, after.first, after.head, 0, archive, after.head)


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


def first_base(start: Position) -> Base:
    """The base of a journal that was never rotated: it has no line."""
    return Base(1, 1, 1, start.head, 0, "", start.head)


def encode_base(base: Base, *, store_key: bytes = b"") -> bytes:
    """The first line of a segment."""
    numbers = b'"n":%d,"first":%d,"since":%d' % (base.number, base.first, base.since)
    archive = msgspec.json.encode(base.archive)
    body = b'%b,%b,"p":"%b","d":%d,"archive":%b' % (BASE, numbers, base.origin.encode(), base.durable, archive)
    return sign_line(body, base.head, store_key)


def decode_base(data: bytes, start: Position, *, store_key: bytes = b"") -> Base | None:
    """The base of a segment that starts with these bytes; None when its base line is damaged."""
    if not data.startswith(BASE):
        return first_base(start)
    line = data[: data.find(b"\n") + 1]
    try:
        found = _bases.decode(line)
    except UNDECODABLE:
        return None
    if not is_intact(line, found.h, store_key):
        return None
    return Base(found.n, found.first, found.since, found.p, found.d, found.archive, found.h, len(line))


def encode_seal(first: int, position: Position, durable: int, *, store_key: bytes = b"") -> bytes:
    """The last line of a segment whose last record is before this position."""
    body = b'%b,"d":%d,"first":%d,"last":%d' % (SEAL, durable, first, position.version)
    return sign_line(body, position.head, store_key)


def is_seal(line: bytes, position: Position, *, store_key: bytes = b"") -> bool:
    """Whether a line seals the segment at this position."""
    ends = line.startswith(SEAL) and line[:-_END].endswith(b',"last":%d' % position.version)
    return ends and is_intact(line, position.head, store_key)


def in_segment(position: Position, base: Base) -> Position:
    """The same place as a position of the segment that starts there; otherwise the position unchanged."""
    return base.position if (position.version, position.head) == (base.first - 1, base.head) else position


# Work


class WorkLine(Struct, frozen=True, rename={"durable": "d", "version": "v", "delta": "left"}):
    """The work that the entry of a version creates, finishes and cancels."""

    durable: int
    version: int
    delta: WorkDelta


class MarkLine(Struct, frozen=True, rename={"durable": "d", "work_id": "p", "state": "stand"}):
    """The state of a piece of work from here on; None: it is removed."""

    durable: int
    work_id: WorkId
    state: WorkState | None = None


_works = msgspec.json.Decoder(WorkLine)
_marks = msgspec.json.Decoder(MarkLine)


def encode_work(delta: WorkDelta, version: int, head: str, durable: int, *, store_key: bytes = b"") -> bytes:
    """The line before the record of a version, which follows the hash `head`."""
    body = b'%b,"d":%d,"v":%d,"left":%b' % (WORK, durable, version, encode(delta))
    return sign_line(body, head, store_key)


def encode_mark(work_id: WorkId, state: WorkState | None, head: str, durable: int, *, store_key: bytes = b"") -> bytes:
    """The line with the state of a piece of work."""
    body = b'%b,"d":%d,"p":%b' % (MARK, durable, encode(work_id))
    if state is not None:
        body += b',"stand":' + encode(state)
    return sign_line(body, head, store_key)


def decode_work_or_mark(line: bytes, position: Position, *, store_key: bytes = b"") -> WorkLine | MarkLine | None:
    """The line at this position; None when it is damaged or belongs to another place.

    Raises UsageError when the line is undamaged and unknown: cutting it off would lose its content.
    """
    if not is_intact(line, position.head, store_key):
        return None
    try:
        return _works.decode(line) if line.startswith(WORK) else _marks.decode(line)
    except UNDECODABLE as error:
        raise unknown_work(error) from error


def unknown_work(error: Exception) -> UsageError:
    """The error for work in a format that this release does not know."""
    message = f"a journal contains work in an unknown format: {error}"
    return UsageError(message, code="store.format", hint="a newer release of Interlock may support it")

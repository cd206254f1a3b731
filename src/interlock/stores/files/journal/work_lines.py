r"""Lines beside the records of a journal: the work that an entry leaves, and what became of work without an entry.

    {"t":"work","d":1234,"v":7,"left":{"born":[...],"ended":[...],"cancelled":[...]},"c":"<32 hex>","h":"<32 hex>"}\n
    {"t":"mark","d":1234,"p":{"lane":"effect","version":7,"ordinal":0},"stand":{...},"c":"<32 hex>","h":"<32 hex>"}\n

A `work` line stands directly before the record of version `v`, and came with it in one write: it holds if the record
does. A `mark` line says how a piece of work stands now; without `stand` it is gone. `d` are the bytes of the segment
that its writer knew durable, `h` is the head of the chain at that place, `c` the line's own hash.

Rule 1: like a base or a seal, these lines are no links of the chain: a record has the same bytes in every store,
whether that keeps work or not. So the `d` of a record does not count them; once a segment has any, every record has a
`work` line before it that says the true number.
Rule 2: a mark says how things stand, not what changed: read twice, it means the same.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from interlock.errors import UsageError
from interlock.model.codec import encode
from interlock.model.journal.work import Work, WorkDelta, WorkId
from interlock.stores.files.journal.segments import closed_line, opened_line
from interlock.stores.files.journal.snapshot_file import Position

WORK = b'{"t":"work"'
MARK = b'{"t":"mark"'


class WorkState(Struct, frozen=True, omit_defaults=True):
    """How a piece of work stands. `next_ms`: when to try again, None: as born. `parked`: it waits for another."""

    attempts: int = 0
    failures: int = 0
    next_ms: int | None = None
    error: Any = None
    dead_ms: int | None = None
    cancelled: bool = False
    parked: bool = False


class Row(Struct, frozen=True, omit_defaults=True):
    """One piece of unfinished work of an entity, as its journal tells."""

    work: Work
    stand: WorkState = WorkState()


class WorkLine(Struct, frozen=True):
    """What the entry of a version leaves."""

    d: int
    v: int
    left: WorkDelta


class MarkLine(Struct, frozen=True):
    """How a piece of work stands; None: it is gone."""

    d: int
    p: WorkId
    stand: WorkState | None = None


Beside = WorkLine | MarkLine

_works = msgspec.json.Decoder(WorkLine)
_marks = msgspec.json.Decoder(MarkLine)
_rows = msgspec.json.Decoder(tuple[Row, ...])


def is_beside(line: bytes) -> bool:
    """Whether a line says that it is one of these."""
    return line.startswith((WORK, MARK))


def encode_work(left: WorkDelta, version: int, head: str, durable: int, *, store_key: bytes = b"") -> bytes:
    """The line before the record of a version, which follows the hash `head`."""
    body = b'%b,"d":%d,"v":%d,"left":%b' % (WORK, durable, version, encode(left))
    return closed_line(body, head, store_key)


def encode_mark(place: WorkId, stand: WorkState | None, head: str, durable: int, *, store_key: bytes = b"") -> bytes:
    """The line that says how a piece of work stands."""
    body = b'%b,"d":%d,"p":%b' % (MARK, durable, encode(place))
    if stand is not None:
        body += b',"stand":' + encode(stand)
    return closed_line(body, head, store_key)


def decode_beside(line: bytes, mark: Position, *, store_key: bytes = b"") -> Beside | None:
    """What a line at this place says; None when it is damaged, or another place's.

    Raises UsageError for one that is whole and not understood: to cut it off would be to lose what it says.
    """
    if opened_line(line, mark.head, store_key) is None:
        return None
    try:
        return _works.decode(line) if line.startswith(WORK) else _marks.decode(line)
    except msgspec.MsgspecError as error:
        raise _newer(error) from error


def _newer(error: msgspec.MsgspecError) -> UsageError:
    message = f"a journal holds work that is not known here: {error}"
    return UsageError(message, code="store.format", hint="a newer Interlock may know it")


class WorkChanges(Struct, frozen=True):
    """How the work of an entity stands: all that is unfinished, or what changed since it was told before.

    A place without a row is gone.
    """

    rows: dict[WorkId, Row | None]
    is_whole: bool
    is_idle: bool

    @staticmethod
    def whole(rows: tuple[Row, ...]) -> WorkChanges:
        """All of it."""
        return WorkChanges({each.work.place: each for each in rows}, is_whole=True, is_idle=not rows)


class UnfinishedWork:
    """The unfinished work of one entity, as its journal tells. In whose hand it is, only the one who performs knows.

    What changed is noted from the first time that it is told: an entity may have thousands of pieces of work, and a
    step changes one or two.
    """

    def __init__(self, rows: tuple[Row, ...] = ()) -> None:
        self._rows = {each.work.place: each for each in rows}
        self._changed: dict[WorkId, None] | None = None

    @staticmethod
    def decoded(data: bytes) -> UnfinishedWork:
        """What `state.json` has of it. Raises UsageError for what is not understood."""
        try:
            return UnfinishedWork(_rows.decode(data))
        except msgspec.MsgspecError as error:
            raise _newer(error) from error

    def encoded(self) -> bytes:
        """The same for `state.json`."""
        return encode(self.listed())

    def __len__(self) -> int:
        return len(self._rows)

    def get(self, place: WorkId) -> Row | None:
        """A piece of work; None when there is no such, or no longer."""
        return self._rows.get(place)

    def is_newest(self, place: WorkId, attempt: int) -> bool:
        """Whether some work is still there, and this its newest attempt."""
        row = self._rows.get(place)
        return row is not None and row.stand.attempts == attempt

    def listed(self) -> tuple[Row, ...]:
        """All of them, in the order in which they came."""
        return tuple(self._rows.values())

    def news(self) -> WorkChanges:
        """What is to be told."""
        if self._changed is None:
            return WorkChanges.whole(self.listed())
        return WorkChanges(
            {place: self._rows.get(place) for place in self._changed}, is_whole=False, is_idle=not self._rows
        )

    def told(self, *, is_heard: bool) -> None:
        """Somebody knows how all of it stands; or nobody does any more."""
        self._changed = {} if is_heard else None

    def apply(self, line: Beside) -> None:
        """Goes on by one line."""
        if isinstance(line, WorkLine):
            self.keep(line.left)
        else:
            self.stand(line.p, line.stand)

    def keep(self, left: WorkDelta) -> None:
        """What an entry leaves, ends and calls off. What was called off before it was ever begun is gone."""
        for work in left.born:
            self._put(work.place, Row(work))
        for place in left.ended:
            self._put(place, None)
        for place in left.cancelled:
            row = self._rows.get(place)
            if row is None:
                continue
            if row.stand.attempts == 0 or row.stand.dead_ms is not None:
                self._put(place, None)
            else:
                stand = msgspec.structs.replace(row.stand, cancelled=True, next_ms=None, parked=False)
                self._put(place, Row(row.work, stand))

    def stand(self, place: WorkId, stand: WorkState | None) -> None:
        """How a piece of work stands from now on; None: it is gone."""
        row = self._rows.get(place)
        if row is not None:
            self._put(place, None if stand is None else Row(row.work, stand))

    def _put(self, place: WorkId, row: Row | None) -> None:
        if row is None:
            self._rows.pop(place, None)
        else:
            self._rows[place] = row
        if self._changed is not None:
            self._changed[place] = None

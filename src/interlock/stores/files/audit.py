r"""The audit of a file store: lines in `<root>/audit/`, chained, flushed before the calls return, never rewritten.

    audit-<number of its first row>.log    20 digits; the last one is written, the ones before are sealed and read-only
    {"s":7,"h":"<32 hex>","r":{<row>}}\n    a row, its number and its head (`model/audit.py`)
    {"seal":6,"h":"<32 hex>"}\n            the last line of a sealed segment: its last row, and that row's head

Rule 1: callers that wait at the same time share one write and one flush (`append`). The lock of the folder makes
processes take turns, so the chain is one.
Rule 2: a segment is read, and its chain followed, before this process appends to it; what other processes appended
since is read first. Only bytes that were never acknowledged are cut off: a tail without a line end, or with NULs.
Rule 3: after a failed flush this process stops appending: a second flush may report success for lost bytes.
Rule 4: `refusals.log`, where earlier releases recorded refusals without a chain, is copied into the first segment, and
stays.
"""

from __future__ import annotations

import contextlib
import errno
import re
from collections import deque
from collections.abc import Iterator, Sequence
from threading import Lock
from typing import NamedTuple

from interlock.errors import CorruptionError, InterlockError, UnavailableError
from interlock.model.audit import AuditRecord, AuditRow, build_record, decode_former_row, first_head, next_head
from interlock.model.limits import AUDIT_BATCH_ROWS_MAX
from interlock.ports.store import PAGE_MAX
from interlock.stores.files.durable_io import POISONED, DirectoryLock, DurableIO, replace_file, unavailable
from interlock.stores.files.root import Root

FOLDER = "audit"
FORMER_LOGS = ("refusals.log.1", "refusals.log")
"""The log of earlier releases, in order: it was renamed when it was full."""

WHAT = "the audit of the store"
READ_BYTES = 1_048_576

_NAME = re.compile(r"audit-(\d{20})\.log")
_ROW = re.compile(rb'\{"s":([1-9]\d{0,18}|0),"h":"([0-9a-f]{32})","r":(\{.*\})\}\n', re.DOTALL)


class End(NamedTuple):
    """Where the chain ends: the segment by its first row, the offset after its last line, the last row and its head."""

    first: int
    offset: int
    sequence: int
    head: str
    is_sealed: bool = False


class Waiting:
    """Rows of a caller, and the result of writing them."""

    __slots__ = ("error", "is_done", "rows")

    def __init__(self, rows: Sequence[AuditRow]) -> None:
        self.rows = rows
        self.is_done = False
        self.error: InterlockError | None = None


class FileAudit:
    """The rows of one root. Calls block; any number of threads may make them."""

    def __init__(self, io: DurableIO, root: Root) -> None:
        self._fs = io.fs
        self._root = root
        self._settings = io.settings
        self.first_head = first_head(io.settings.tenant)
        self._folder = -1
        self._file = -1
        self._end: End | None = None
        self._poison: str | None = None
        self._waiting: deque[Waiting] = deque()
        self._guard, self._turn = Lock(), Lock()
        self._resume: tuple[int, int, int, str] | None = None  # segment, row, offset after it, head: where a page ended

    # Writing

    def append(self, rows: Sequence[AuditRow]) -> None:
        """Append rows; on return they are flushed. Raises UnavailableError."""
        self._root.check_writable()
        mine = Waiting(rows)
        with self._guard:
            self._waiting.append(mine)
        while not mine.is_done:
            with self._turn:
                if not mine.is_done:  # no other caller has committed it meanwhile
                    self._commit_waiting()
        if mine.error is not None:
            raise mine.error

    def _commit_waiting(self) -> None:
        batch: list[Waiting] = []
        size = 0
        with self._guard:
            while self._waiting and size < AUDIT_BATCH_ROWS_MAX:
                batch.append(self._waiting.popleft())
                size += len(batch[-1].rows)
        error: InterlockError | None = UnavailableError(f"{WHAT}: the write was interrupted", code="store.write")
        try:
            self._commit([row for each in batch for row in each.rows])
            error = None
        except InterlockError as found:
            error = found
        except OSError as found:
            error = unavailable(WHAT, "write", found)
        finally:
            for each in batch:
                each.error, each.is_done = error, True

    def _commit(self, rows: Sequence[AuditRow]) -> None:
        if self._poison is not None:
            hint = "check the disk, then restart the process"
            raise UnavailableError(f"{WHAT} accepts no rows in this process: {self._poison}", code=POISONED, hint=hint)
        fs, folder = self._fs, self._open_folder()
        with DirectoryLock(fs, folder, WHAT, self._settings.lock_ms_max, self._drop_folder):
            end = self._find_end(folder)
            if end.is_sealed:
                end = self._start_segment(folder, end)
            lines, sequence, head = [], end.sequence, end.head
            for row in rows:
                sequence += 1
                record = build_record(row, sequence=sequence, previous=head)
                head = record.head
                lines.append(row_line(record))
            data = b"".join(lines)
            new = end._replace(offset=end.offset + len(data), sequence=sequence, head=head)
            if new.offset >= self._settings.segment_bytes_max:
                seal = seal_line(sequence, head)
                data, new = data + seal, new._replace(offset=new.offset + len(seal), is_sealed=True)
            self._write(end, data)
            self._end = new
            if new.is_sealed:
                with contextlib.suppress(OSError):  # it is sealed all the same: this only protects it from mistakes
                    fs.protect(self._file)

    def _write(self, end: End, data: bytes) -> None:
        """Append bytes and flush them. If only a part fits, the part is taken back."""
        fs = self._fs
        self._end = None  # until the flush has returned
        try:
            written = fs.write(self._file, data)
            if written < len(data):
                raise OSError(errno.ENOSPC, "the disk accepted only part of the data")
        except OSError:
            with contextlib.suppress(OSError):
                fs.truncate(self._file, end.offset)
            raise
        try:
            fs.fdatasync(self._file)
        except OSError as error:
            self._poison = f"a flush failed ({error.strerror or error})"
            raise

    def _find_end(self, folder: int) -> End:
        """Return where the chain ends; read what this process has not read or written itself. The folder is locked."""
        fs, end = self._fs, self._end
        if end is not None and fs.size(self._file) == end.offset and not end.is_sealed:
            return end
        firsts = self._segments(folder)
        if not firsts:
            self._copy_former(folder)
            firsts = self._segments(folder)
        if end is None or end.first != firsts[-1]:
            self._close_file()
            self._file = fs.open_append(folder, segment_name(firsts[-1]))
            end = self._segment_start(folder, firsts)
        return self._read_on(end)

    def _segment_start(self, folder: int, firsts: list[int]) -> End:
        """Return the start of the last segment; its head is that of the seal before it."""
        first = firsts[-1]
        if first == 1:
            return End(1, 0, 0, self.first_head)
        before = firsts[-2] if len(firsts) > 1 else None
        seal = None if before is None else self._read_seal(folder, before)
        if seal is None or seal[0] != first - 1:
            message = f"{FOLDER}/{segment_name(first)}: the segment before it is missing or damaged"
            raise CorruptionError(message, code="audit.segment", hint="run `interlock audit verify`")
        return End(first, 0, *seal)

    def _read_on(self, end: End) -> End:
        """Read lines up to the end of the open segment, follow the chain, and cut off what was never acknowledged."""
        fs = self._fs
        size = fs.size(self._file)
        data = self._read_all(self._file, end.offset, size)
        place = 0
        while place < len(data):
            stop = data.find(b"\n", place) + 1
            line = data[place:stop] if stop else b""
            step = self._follow(end, line)
            if step is None:
                rest = data[place:]
                if stop and b"\0" not in rest:
                    message = f"{FOLDER}/{segment_name(end.first)}: the line after row {end.sequence} is damaged"
                    raise CorruptionError(message, code="audit.line", hint="run `interlock audit verify`")
                fs.truncate(self._file, end.offset)  # torn by a crash: it was acknowledged to no caller
                fs.fdatasync(self._file)
                return end
            end, place = step, stop
        return end

    def _follow(self, end: End, line: bytes) -> End | None:
        """Return the end after a line; None if the line does not follow."""
        if not end.is_sealed and line == seal_line(end.sequence, end.head):
            return end._replace(offset=end.offset + len(line), is_sealed=True)
        found = _ROW.fullmatch(line)
        if found is None or end.is_sealed or int(found[1]) != end.sequence + 1:
            return None
        head = next_head(end.head, found[3])
        if head.encode() != found[2]:
            return None
        return End(end.first, end.offset + len(line), end.sequence + 1, head)

    def _start_segment(self, folder: int, end: End) -> End:
        """Create the segment after a sealed one."""
        self._close_file()
        self._file = self._fs.open_append(folder, segment_name(end.sequence + 1))
        self._fs.sync_directory(folder)
        return self._read_on(End(end.sequence + 1, 0, end.sequence, end.head))

    def _copy_former(self, folder: int) -> None:
        """Create the first segment, with the rows that an earlier release recorded."""
        fs, lines, sequence, head = self._fs, [], 0, self.first_head
        for name in FORMER_LOGS:
            try:
                file = fs.open_file(self._root.directory, name)
            except OSError:
                continue
            try:
                data = self._read_all(file, 0, fs.size(file))
            finally:
                fs.close(file)
            for line in data.splitlines():
                row = decode_former_row(line)
                if row is not None:  # a torn line is no row
                    sequence += 1
                    record = build_record(row, sequence=sequence, previous=head)
                    head = record.head
                    lines.append(row_line(record))
        replace_file(fs, folder, segment_name(1), b"".join(lines))

    # Reading

    def rows_after(self, sequence: int, *, limit: int) -> tuple[AuditRecord, ...]:
        """Return the rows after a number, in order. A damaged line is a record that does not fit into the chain."""
        found: list[AuditRecord] = []
        wanted = max(1, min(limit, PAGE_MAX))
        with self._reading() as (folder, firsts):
            start = max((each for each in firsts if each <= sequence), default=firsts[0] if firsts else 0)
            for first in (each for each in firsts if each >= start):
                for record, offset in self._lines(folder, first, is_last=first == firsts[-1], after=sequence):
                    if record.sequence > sequence:
                        found.append(record)
                        if len(found) == wanted:
                            self._resume = (first, record.sequence, offset, record.head)
                            return tuple(found)
        return tuple(found)

    def rows_before(self, sequence: int | None, *, actor: str | None, limit: int) -> tuple[AuditRecord, ...]:
        """Return the rows before a number, newest first."""
        found: list[AuditRecord] = []
        wanted = max(1, min(limit, PAGE_MAX))
        with self._reading() as (folder, firsts):
            for first in reversed(firsts):
                if sequence is not None and first >= sequence:
                    continue
                rows = [each for each, _ in self._lines(folder, first, is_last=first == firsts[-1], after=0)]
                found += (
                    each
                    for each in reversed(rows)
                    if (sequence is None or each.sequence < sequence) and (actor is None or each.actor == actor)
                )
                if len(found) >= wanted:
                    break
        return tuple(found[:wanted])

    @contextlib.contextmanager
    def _reading(self) -> Iterator[tuple[int, list[int]]]:
        try:
            folder = self._fs.open_directory(self._root.directory, FOLDER)
        except FileNotFoundError:
            yield -1, []
            return
        except OSError as error:
            raise unavailable(WHAT, "read", error) from error
        try:
            yield folder, self._segments(folder)
        except OSError as error:
            raise unavailable(WHAT, "read", error) from error
        finally:
            self._fs.close(folder)

    def _lines(self, folder: int, first: int, *, is_last: bool, after: int) -> Iterator[tuple[AuditRecord, int]]:
        """Yield the rows of a segment, each with the offset after it; from where the last page ended, if that fits."""
        file = self._fs.open_file(folder, segment_name(first))
        try:
            resume, place, last, head = self._resume, 0, first - 1, ""
            if resume is not None and resume[:2] == (first, after):
                _, last, place, head = resume
            data, offset = self._read_all(file, place, self._fs.size(file)), place
        finally:
            self._fs.close(file)
        is_sealed = False
        for line in data.splitlines(keepends=True):
            offset += len(line)
            if line == seal_line(last, head) and not is_sealed:
                is_sealed = True
                continue
            if is_sealed or (not is_last and line.startswith(b'{"seal":')):
                is_sealed = True
                yield AuditRecord(last, 0, None, line, ""), offset  # after the seal, or a seal that does not fit
                continue
            if is_last and (not line.endswith(b"\n") or b"\0" in line):
                return  # being written, or torn: not acknowledged
            record = read_line(line, expected=last + 1)
            last, head = record.sequence, record.head
            yield record, offset
        if not is_last and not is_sealed:
            yield AuditRecord(last, 0, None, b"", ""), offset  # the seal was removed

    # Files

    def _segments(self, folder: int) -> list[int]:
        found = (_NAME.fullmatch(each) for each in self._fs.names(folder))
        return sorted(int(each[1]) for each in found if each is not None)

    def _read_seal(self, folder: int, first: int) -> tuple[int, str] | None:
        """Return the last row of a sealed segment and its head; None if it has no seal."""
        file = self._fs.open_file(folder, segment_name(first))
        try:
            size = self._fs.size(file)
            tail = self._fs.read(file, max(0, size - 128), 128)
        finally:
            self._fs.close(file)
        found = re.search(rb'\n\{"seal":(\d+),"h":"([0-9a-f]{32})"\}\n$', tail)
        return None if found is None else (int(found[1]), found[2].decode())

    def _read_all(self, file: int, offset: int, size: int) -> bytes:
        pieces = []
        while offset < size and (piece := self._fs.read(file, offset, min(READ_BYTES, size - offset))):
            pieces.append(piece)
            offset += len(piece)
        return b"".join(pieces)

    def _open_folder(self) -> int:
        if self._folder == -1:
            fs, directory = self._fs, self._root.directory
            try:
                fs.make_directory(directory, FOLDER)
                fs.sync_directory(directory)
            except FileExistsError:
                pass
            self._folder = fs.open_directory(directory, FOLDER)
        return self._folder

    def _drop_folder(self) -> None:
        folder, self._folder = self._folder, -1
        with contextlib.suppress(OSError):
            self._fs.close(folder)

    def _close_file(self) -> None:
        file, self._file = self._file, -1
        if file != -1:
            self._fs.close(file)

    def close(self) -> None:
        """Close the files."""
        with self._turn:
            self._end = None
            self._close_file()
            if self._folder != -1:
                self._drop_folder()

    def abandon(self) -> None:
        """In a forked child: open again at the next use."""
        self._guard, self._turn = Lock(), Lock()
        self._waiting.clear()
        self.close()


def segment_name(first: int) -> str:
    """Return the name of the segment whose first row has this number."""
    return f"audit-{first:020}.log"


def row_line(record: AuditRecord) -> bytes:
    """Return the line of a row."""
    return b'{"s":%d,"h":"%b","r":%b}\n' % (record.sequence, record.head.encode(), record.body)


def seal_line(sequence: int, head: str) -> bytes:
    """Return the last line of a sealed segment."""
    return b'{"seal":%d,"h":"%b"}\n' % (sequence, head.encode())


def read_line(line: bytes, *, expected: int) -> AuditRecord:
    """Return the row of a line; of a damaged one, a record that does not fit into the chain."""
    found = _ROW.fullmatch(line)
    if found is None:
        return AuditRecord(expected, 0, None, line, "")
    record = AuditRecord(int(found[1]), 0, None, found[3], found[2].decode())
    return record.indexed()

r"""The write-ahead log of layout C: records of all entities in the order they were kept, before they are in journals.

    <root>/wal/<number, 20 digits>.log     segments; only the last one is written
    <root>/wal/checkpoint.json             {"below":7}: all that segments below 7 hold is durable in the journals

    {"d":1234,"i":"<entity>","r":{<the record as it will stand in the journal>},"w":"<32 hex>"}\n

`d` are the bytes of this segment that were durable before this write, `w` the hash over the previous `w` and the bytes
before `,"w"`; a segment begins its own chain.

Rule 1: one write and one flush for a whole batch. If the flush fails it is never tried again: the batch is cut off, and
the log takes nothing more in this process.
Rule 2: a segment other than the last is complete: whoever begins one has flushed the one before it.
Rule 3: a bad line ends the last segment, as a torn tail, unless a later line's `d` says that it had been durable.
Rule 4: a segment is removed after the checkpoint that no longer needs it is durable, and that is written after every
journal is.
Rule 5: nothing is acknowledged that stands in a segment without its name: after each flush its path must lead to the
open file.
"""

from __future__ import annotations

import contextlib
import errno
import re
from collections.abc import Hashable, Iterator
from hashlib import blake2b

import msgspec
from msgspec import Raw, Struct

from interlock.errors import CorruptionError, UnavailableError
from interlock.model.journal.record import HASH_HEX
from interlock.stores.files.filesystem import FileSystem
from interlock.stores.files.journal.durable_io import unavailable, write_whole
from interlock.stores.files.journal.tail import READ_BYTES
from interlock.stores.files.names import is_leftover
from interlock.stores.replaced_files import replaced

WAL = "wal"
CHECKPOINT = "checkpoint.json"
WHAT = "the write-ahead log"
_END = len(',"w":""}\n') + HASH_HEX
_NAME = re.compile(r"(\d{20})\.log")


class Line(Struct, frozen=True):
    """One line: whose record it is, the record's bytes, and where in the segment the line ends."""

    entity: str
    record: bytes
    end: int


class _Line(Struct):
    d: int
    i: str
    r: Raw
    w: str


class _Checkpoint(Struct):
    below: int


_lines = msgspec.json.Decoder(_Line)
_checkpoints = msgspec.json.Decoder(_Checkpoint)


def segment_name(number: int) -> str:
    """The name of a segment."""
    return f"{number:020d}.log"


def segment_numbers(names: list[str]) -> list[int]:
    """The segments among some names, in order."""
    return sorted(int(found[1]) for found in map(_NAME.fullmatch, names) if found is not None)


def read_checkpoint(fs: FileSystem, directory: int) -> int:
    """The first segment whose records may not be in the journals; 0 when no checkpoint was ever made."""
    try:
        file = fs.open_file(directory, CHECKPOINT)
    except FileNotFoundError:
        return 0
    try:
        data = fs.read(file, 0, 4_096)
    finally:
        fs.close(file)
    try:
        return _checkpoints.decode(data).below
    except msgspec.MsgspecError as error:
        raise _corrupt(f"{CHECKPOINT} does not read: {error}") from error


def _corrupt(why: str) -> CorruptionError:
    return CorruptionError(f"{WHAT}: {why}", code="wal.corrupt", hint="stop this store and keep its directory")


class Scan:
    """The lines of one segment from a place on. Once they are used up, `rest` are the bytes that are no line."""

    def __init__(self, number: int, *, store_key: bytes = b"") -> None:
        self.number = number
        self.offset = 0
        self.durable = 0
        self.rest = b""
        self._store_key = store_key
        self._head = chain_begun(number, store_key)

    def lines(self, fs: FileSystem, file: int) -> Iterator[Line]:
        """Goes on from where the last call ended."""
        held, position = b"", self.offset
        while chunk := fs.read(file, position, READ_BYTES):
            position += len(chunk)
            held += chunk
            start = 0
            while (end := held.find(b"\n", start) + 1) > 0:
                line = self._decoded(held[start:end])
                if line is None:
                    self.rest = held[start:]
                    return
                start = end
                yield line
            held = held[start:]
        self.rest = held

    def _decoded(self, line: bytes) -> Line | None:
        body = line[:-_END]
        head = _hashed(body, self._head, self._store_key)
        if line[-_END:] != b',"w":"%b"}\n' % head.encode():
            return None
        try:
            found = _lines.decode(line)
        except msgspec.MsgspecError:
            return None
        self._head = head
        self.offset += len(line)
        self.durable = max(self.durable, found.d)
        return Line(found.i, bytes(found.r) + b"\n", self.offset)

    def is_damaged(self) -> bool:
        """Whether a line behind the bad one says that it had been durable."""
        position = 0
        while (position := self.rest.find(b'{"d":', position + 1)) > 0:
            end = self.rest.find(b"\n", position) + 1
            with contextlib.suppress(msgspec.MsgspecError):
                if end > 0 and _lines.decode(self.rest[position:end]).d > self.offset:
                    return True
        return False


def chain_begun(number: int, store_key: bytes = b"") -> str:
    """The hash before the first line of a segment."""
    return blake2b(b"wal\0%d" % number, key=store_key, digest_size=16).hexdigest()


def _hashed(body: bytes, previous: str, store_key: bytes) -> str:
    return blake2b(previous.encode() + body, key=store_key, digest_size=16).hexdigest()


class Wal:
    """The log, owned: open for writing in an empty segment."""

    def __init__(self, fs: FileSystem, directory: int, *, root: str, store_key: bytes = b"") -> None:
        self.offset = 0
        self.poison: str | None = None
        self._folder = f"{root}/{WAL}"
        self._path = ""
        self._identity: Hashable = None
        self._fs = fs
        self._directory = directory
        self._store_key = store_key
        self._number = 0
        self._file = -1
        self._head = ""

    def recovered(self) -> Iterator[Line]:
        """What segments still hold that may not be in the journals, in order. A torn tail was never acknowledged."""
        fs, directory = self._fs, self._directory
        fs.sync_directory(directory)  # whoever began the last segment may have died before its own flush
        for name in fs.names(directory):
            if is_leftover(name):
                fs.unlink(directory, name)
        below = read_checkpoint(fs, directory)
        first = max(below, 1)
        numbers = [number for number in segment_numbers(fs.names(directory)) if number >= first]
        if numbers != list(range(first, first + len(numbers))) or (below > 0 and not numbers):
            raise _corrupt(f"segments from {first} on are expected, and {numbers or 'none'} are there")
        self._number = max([first - 1, *numbers])
        for number in numbers:
            file = fs.open_append(directory, segment_name(number))
            try:
                yield from self._recovered_segment(number, file, is_last=number == numbers[-1])
            finally:
                fs.close(file)

    def _recovered_segment(self, number: int, file: int, *, is_last: bool) -> Iterator[Line]:
        """What the disk has of a segment. Its torn tail is cut: once another segment is begun, this one is complete."""
        fs = self._fs
        fs.fdatasync(file)
        fs.forget(file)
        scan = Scan(number, store_key=self._store_key)
        yield from scan.lines(fs, file)
        if not scan.rest:
            return
        if not is_last or scan.is_damaged():
            raise _corrupt(f"{segment_name(number)}, offset {scan.offset}: bytes that had been durable do not read")
        fs.truncate(file, scan.offset)
        fs.fdatasync(file)

    def begin(self) -> int:
        """Begins the next segment, flushed with its name; the number of it.

        The one before is flushed first: of a batch that was cut off, a power cut may have left bytes, and behind them
        nothing may stand.
        """
        fs = self._fs
        number = self._number + 1
        if self._file >= 0:
            with self._poisoning():
                fs.fdatasync(self._file)
        file = fs.create(self._directory, segment_name(number))
        try:
            with self._poisoning():
                fs.fsync(file)
                fs.sync_directory(self._directory)
        except OSError:
            with contextlib.suppress(OSError):
                fs.close(file)
            raise
        self.close()
        self._number, self._file, self.offset = number, file, 0
        self._path, self._identity = f"{self._folder}/{segment_name(number)}", fs.identity(file)
        self._head = chain_begun(number, self._store_key)
        return number

    def check(self) -> None:
        """Raises UnavailableError when a flush failed before."""
        if self.poison is not None:
            message = f"{WHAT} takes nothing in this process: {self.poison}"
            raise UnavailableError(message, code="store.poisoned", hint="check the disk, then start anew")

    def append(self, batch: list[tuple[str, bytes]]) -> None:
        """Keeps the records of a batch, each with its entity: one write, one flush. All of them, or an error."""
        self.check()
        head, lines = self._head, []
        for entity, record in batch:
            body = b'{"d":%d,"i":%b,"r":%b' % (self.offset, msgspec.json.encode(entity), record.rstrip(b"\n"))
            head = _hashed(body, head, self._store_key)
            lines.append(b'%b,"w":"%b"}\n' % (body, head.encode()))
        data = b"".join(lines)
        self._write(data)
        self._flush()
        self.check_name()
        self.offset += len(data)
        self._head = head

    def check_name(self) -> None:
        """Rule 5: raises UnavailableError, and the log takes nothing more, when the segment has lost its name."""
        try:
            if self._fs.identity_at(self._path) == self._identity:
                return
        except OSError as error:
            raise unavailable(WHAT, "look", error) from error
        self._undo()
        self.poison = self.poison or "it was moved, replaced or deleted"
        raise replaced(f"{self._path} was moved, replaced or deleted")

    def _write(self, data: bytes) -> None:
        try:
            written = self._fs.write(self._file, data)
            if written < len(data):
                raise OSError(errno.ENOSPC, f"only {written} of {len(data)} bytes were taken")
        except OSError as error:
            self._undo()
            raise unavailable(WHAT, "write", error) from error

    def _flush(self) -> None:
        try:
            with self._poisoning():
                self._fs.fdatasync(self._file)
        except OSError as error:
            self._undo()
            raise unavailable(WHAT, "flush", error) from error

    @contextlib.contextmanager
    def _poisoning(self) -> Iterator[None]:
        """A flush that fails in here is the last of this log in this process: nobody knows what the disk has."""
        try:
            yield
        except OSError as error:
            self.poison = f"a flush failed ({error.strerror or error})"
            raise

    def _undo(self) -> None:
        """Cuts the batch off. If even that fails, nobody was told that it is kept, and a retry finds it by its key.

        What stands behind the last batch after that is no line of the chain that goes on: so the log is given up.
        """
        try:
            self._fs.truncate(self._file, self.offset)
        except OSError as error:
            self.poison = self.poison or f"a batch could not be cut off ({error.strerror or error})"

    def checkpoint(self, below: int) -> None:
        """Says that the journals have all that older segments hold, and then removes those."""
        data = b'{"below":%d}\n' % below
        write_whole(self._fs, self._directory, CHECKPOINT, data)
        self.retire(below)

    def retire(self, below: int) -> None:
        """Removes segments that nobody needs."""
        for number in segment_numbers(self._fs.names(self._directory)):
            if number < below:
                self._fs.unlink(self._directory, segment_name(number))

    def close(self) -> None:
        """Lets go of the segment."""
        if self._file >= 0:
            with contextlib.suppress(OSError):
                self._fs.close(self._file)
        self._file = -1

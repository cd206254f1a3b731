r"""The order of the entries of a root: a log that refers to journals.

    <root>/feed/order.log
    {"t":"feed","format":1,"id":"<16 hex>"}\n
    {"p":1,"e":"order/1","a":1,"b":3,"m":1700000000000,"d":41,"h":"<16 hex>"}\n

A line says: versions `a` to `b` of the entity `e` have the positions from `p` on. `m` is the latest time of all entries
up to there, `d` the size of the log that was durable before this line was written, `h` the hash of the line.

Rule 1: lines are written under the lock of `<root>/feed`, and no position is given out before its line is durable:
after a power cut a cursor means the same entries.
Rule 2: lines of another process are flushed before they are used: their writer may have died before its own flush.
Rule 3: what follows the last good line was never given out, unless a later line knows it as durable (`d`). So it is cut
off or, in the second case, reported as damage.
Rule 4: a log that is deleted is started again under another id. Cursors contain the id, so an old one is refused.
Rule 5: a flush that failed is not repeated: this process stops using the log.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable, Iterable
from hashlib import blake2b

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from interlock.errors import CorruptionError, UnavailableError
from interlock.model.encoding.codec import UNDECODABLE, encode
from interlock.model.limits import ENTITY_ID_BYTES_MAX
from interlock.stores.files.durable_io import POISONED, DirectoryLock, DurableIO, replace_file, unavailable
from interlock.stores.files.feed.hints import FEED, Growth
from interlock.stores.files.names import is_leftover
from interlock.stores.files.root import Root

ORDER = "order.log"
WHAT = "the feed of the store"

LINE_BYTES_MAX = 6 * ENTITY_ID_BYTES_MAX + 256
"""Bytes of a line: each byte of an id may be escaped to six."""

READ_BYTES = 1_048_576
"""Bytes of the log read in one call (1 MiB)."""

_HASH_HEX = 16
_TAIL = len(',"h":""}') + _HASH_HEX
_POISON = f"{FEED}/"


class _Header(Struct, frozen=True, tag_field="t", tag=FEED):
    format: int
    id: str


class OrderLine(Struct, frozen=True):
    """Versions `a` to `b` of the entity `e`, at the positions from `p` on."""

    p: int
    e: str
    a: int
    b: int
    m: int
    d: int = 0

    @property
    def last(self) -> int:
        """The position of version `b`."""
        return self.p + self.b - self.a


_decode_header = msgspec.json.Decoder(_Header).decode
_decode_line = msgspec.json.Decoder(OrderLine).decode


class OrderLog:
    """The log of one root, open. The caller serializes threads."""

    def __init__(self, io: DurableIO, root: Root) -> None:
        self._io = io
        self._fs = io.fs
        self._root = root
        self._key = io.settings.store_key
        self.id = ""
        self.versions: dict[str, int] = {}
        self.last = 0
        self._newest_ms = 0
        self.directory = -1
        self._file = -1
        self._start = self._end = 0
        self._found: tuple[int, int] = (0, 0)

    @property
    def path(self) -> str:
        """The folder of the feed."""
        return f"{self._root.path}/{FEED}"

    # Opening

    def refresh(self) -> None:
        """Open the log, creating it if necessary, and read what other processes added. Raises UnavailableError."""
        self._check_poison()
        fs = self._fs
        try:
            if self._file >= 0 and fs.identity_at(f"{self.path}/{ORDER}") != fs.identity(self._file):
                self.close()
            if self._file < 0:
                self._open()
            elif fs.size(self._file) != self._end:
                with self._lock():
                    self._catch_up()
        except OSError as error:
            raise unavailable(WHAT, "read", error) from error

    def _open(self) -> None:
        fs = self._fs
        self._root.check_writable()
        with contextlib.suppress(FileExistsError):
            fs.make_directory(self._root.directory, FEED)
        fs.sync_directory(self._root.directory)
        self.directory = fs.open_directory(self._root.directory, FEED)
        try:
            with self._lock():
                names = fs.names(self.directory)
                for name in filter(is_leftover, names):  # a writer died; under the lock no other one is running
                    fs.unlink(self.directory, name)
                if ORDER not in names:
                    header = encode(_Header(1, blake2b(fs.unique().encode(), digest_size=8).hexdigest())) + b"\n"
                    replace_file(fs, self.directory, ORDER, header)
                fs.sync_directory(self.directory)  # the process that created it may have died before its own flush
                self._file = fs.open_append(self.directory, ORDER)
                self._start = self._end = self._read_header()
                self._found = (1, self._start)
                self._catch_up()
        except BaseException:
            self.close()
            raise

    def _read_header(self) -> int:
        line, feed, _ = self._fs.read(self._file, 0, LINE_BYTES_MAX).partition(b"\n")
        try:
            header = _decode_header(line)
        except UNDECODABLE as error:
            raise self._damaged(0, f"its first line is invalid: {error}") from error
        if header.format != 1 or not feed:
            raise self._damaged(0, f"format {header.format} is unknown")
        self.id = header.id
        return len(line) + 1

    def _lock(self) -> DirectoryLock:
        return DirectoryLock(self._fs, self.directory, WHAT, self._io.settings.lock_ms_max, self.close)

    # Reading

    def _catch_up(self) -> None:
        """Rules 2 and 3; the caller holds the lock."""
        fs = self._fs
        if fs.size(self._file) < self._end:
            raise self._damaged(fs.size(self._file), "it became shorter")
        if fs.size(self._file) > self._end:
            self._flush()
        for line, end in self._lines(self._end):
            if line is None:
                self._cut_off()
                return
            self._learn(line, end)

    def _lines(self, offset: int) -> Iterable[tuple[OrderLine | None, int]]:
        """The lines from an offset on, each with its end; None for one that is invalid or incomplete."""
        rest, end = b"", offset
        while data := self._fs.read(self._file, offset, READ_BYTES):
            offset += len(data)
            *lines, rest = (rest + data).split(b"\n")
            for each in lines:
                end += len(each) + 1
                yield self._decode(each), end
        if rest:
            yield None, offset

    def _decode(self, line: bytes) -> OrderLine | None:
        try:
            found = _decode_line(line)
        except UNDECODABLE:
            return None
        return found if line == self._encode(found)[:-1] else None

    def _encode(self, line: OrderLine) -> bytes:
        head = encode(line)[:-1]
        digest = blake2b(head, key=self._key, digest_size=_HASH_HEX // 2).hexdigest()
        return b'%b,"h":"%b"}\n' % (head, digest.encode())

    def _learn(self, line: OrderLine, end: int) -> None:
        if (line.p, line.a) != (self.last + 1, self.versions.get(line.e, 0) + 1):
            raise self._damaged(self._end, f"the line of position {line.p} does not follow {self.last}")
        self.versions[line.e] = line.b
        self.last, self._newest_ms, self._end = line.last, line.m, end

    def _cut_off(self) -> None:
        """Rule 3."""
        damage = self._end
        if any(line is not None and line.d > damage for line, _ in self._lines(damage)):
            raise self._damaged(damage, "a line that was durable is invalid")
        self._fs.truncate(self._file, damage)

    def read(self, position: int, count: int) -> list[OrderLine]:
        """Return the lines from the one that contains a position on, at most so many. Raises UnavailableError."""
        if position > self.last:
            return []
        known, offset = self._found
        found: list[OrderLine] = []
        try:
            if known != position:
                offset = self._search(lambda line: line.last >= position)
            for line, end in self._lines(offset):
                if line is None:
                    raise self._damaged(end, "a line is invalid")
                found.append(line)
                self._found = (line.last + 1, end)
                if len(found) == count or end >= self._end:
                    break
        except OSError as error:
            raise unavailable(WHAT, "read", error) from error
        return found

    def position_at(self, time_ms: int) -> int:
        """Return the position before the first entry that may be from this time or later."""
        if self.last == 0 or self._newest_ms < time_ms:
            return self.last
        try:
            line, _ = self._line_at(self._search(lambda line: line.m >= time_ms))
        except OSError as error:
            raise unavailable(WHAT, "read", error) from error
        return line.p - 1

    def _search(self, is_reached: Callable[[OrderLine], bool]) -> int:
        """The offset of the first line for which this holds, by bisection; there is one."""
        low, high = self._start, self._end  # the line starts at `low` or later, and before `high`
        while low < high:
            middle = (low + high) // 2
            start = self._line_start(middle, low)
            line, end = self._line_at(start)
            if is_reached(line):
                high = start
            else:
                low = end
        return low

    def _line_at(self, offset: int) -> tuple[OrderLine, int]:
        """The line that starts at an offset, and its end."""
        text, _, _ = self._fs.read(self._file, offset, LINE_BYTES_MAX).partition(b"\n")
        line = self._decode(text)
        if line is None:
            raise self._damaged(offset, "a line is invalid")
        return line, offset + len(text) + 1

    def _line_start(self, offset: int, low: int) -> int:
        """Where the line starts that contains an offset; `low` is the start of a line before it."""
        start = max(low, offset - LINE_BYTES_MAX)
        before = self._fs.read(self._file, start, offset - start)
        found = before.rfind(b"\n")
        return start + found + 1 if found >= 0 else low

    # Writing

    def extend(self, growths: Iterable[Growth]) -> None:
        """Give positions to the versions that have none. They are durable on return. Raises UnavailableError."""
        self._check_poison()
        try:
            with self._lock():
                self._catch_up()
                lines = self._new_lines(growths)
                if lines:
                    self._write(lines)
        except OSError as error:
            raise unavailable(WHAT, "write", error) from error

    def _new_lines(self, growths: Iterable[Growth]) -> list[OrderLine]:
        lines: list[OrderLine] = []
        versions: dict[str, int] = {}
        position, newest_ms = self.last + 1, self._newest_ms
        for entity, version, time_ms in growths:
            known = versions.get(entity, self.versions.get(entity, 0))
            if version <= known:
                continue
            newest_ms = max(newest_ms, time_ms)
            if lines and lines[-1].e == entity:
                lines[-1] = replace(lines[-1], b=version, m=newest_ms)
            else:
                lines.append(OrderLine(position, entity, known + 1, version, newest_ms, self._end))
            position = lines[-1].last + 1
            versions[entity] = version
        return lines

    def _write(self, lines: list[OrderLine]) -> None:
        fs, start = self._fs, self._end
        encoded = [self._encode(each) for each in lines]
        data = b"".join(encoded)
        try:
            if fs.write(self._file, data) < len(data):
                raise OSError(errno.ENOSPC, "the disk accepted only part of the data")
            self._flush()
        except (OSError, UnavailableError):
            with contextlib.suppress(OSError):
                fs.truncate(self._file, start)
            raise
        for line, text in zip(lines, encoded, strict=True):
            self._learn(line, self._end + len(text))

    def _flush(self) -> None:
        """Rule 5."""
        try:
            self._fs.fdatasync(self._file)
        except OSError as error:
            self._io.poisons[_POISON] = f"a flush failed ({error.strerror or error})"
            raise unavailable(WHAT, "flush", error) from error

    def _check_poison(self) -> None:
        reason = self._io.poisons.get(_POISON)
        if reason is not None:
            message = f"{WHAT} cannot be used in this process: {reason}"
            raise UnavailableError(message, code=POISONED, hint="check the disk, then restart the process")

    def _damaged(self, offset: int, why: str) -> CorruptionError:
        message = f"{FEED}/{ORDER} is damaged at byte {offset:,}: {why}"
        hint = f"delete the folder `{FEED}` of the store, then read the feed from its start; the journals are intact"
        return CorruptionError(message, code="feed.damaged", hint=hint)

    def close(self) -> None:
        """Close the log, and forget what was read."""
        for each in (self._file, self.directory):
            if each >= 0:
                with contextlib.suppress(OSError):
                    self._fs.close(each)
        self._file = self.directory = -1
        self.versions, self.last, self._newest_ms, self.id = {}, 0, 0, ""
        self._start = self._end = 0
        self._found = (0, 0)

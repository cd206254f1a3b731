"""Hints for the feed: which entities have grown, so that it does not walk all of them at each read.

    <root>/feed/changed    one line per durable entry: ["<entity>",<version>,<time in ms>]

Rule 1: a hint is written after the flush of its entry and before the receipt. So the version that it names is durable.
Rule 2: hints are written only while `<root>/feed` exists, which a writer looks up once in `LOOKUP_SECONDS`. A reader
trusts a file of hints only after a walk of all entities that started `SETTLING_SECONDS` after it opened that file, and
walks at each read until then: so a writer that has not looked yet hides nothing.
Rule 3: a hint is no evidence of what is in a journal, and may be lost: a writer may die between its flush and its hint.
The next walk finds the entry.
Rule 4: writers never wait for a lock of another process.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from threading import Lock

import msgspec

from interlock.model.encoding.codec import UNDECODABLE, encode
from interlock.stores.files.filesystem import FileSystem

FEED = "feed"
CHANGED = "changed"

LOOKUP_SECONDS = 1.0
"""How often a writer looks whether the feed exists and which file of hints is the present one."""

SETTLING_SECONDS = 2 * LOOKUP_SECONDS
"""How long after its opening a file of hints is known to all writers."""

HINT_BYTES_MAX = 8_388_608
"""Bytes of unread hints (8 MiB, more than 100,000 entries): beyond that none are added, and readers walk."""

_decode = msgspec.json.Decoder(tuple[str, int, int]).decode

Growth = tuple[str, int, int]
"""An entity, a durable version of it, and the time of that entry."""


class HintWriter:
    """Writes the hints of one process. Safe for several threads."""

    def __init__(self, fs: FileSystem, root: int) -> None:
        self._fs = fs
        self._root = root
        self._file = -1
        self._looked_up = float("-inf")
        self._guard = Lock()
        with contextlib.suppress(OSError):  # the first entry looks again
            self._look_up()

    def note(self, entity: str, version: int, time_ms: int) -> None:
        """Hint that an entity has a durable version, if the feed is in use. A failure loses the hint only."""
        if self._file < 0 and self._fs.seconds() < self._looked_up + LOOKUP_SECONDS:
            return
        with contextlib.suppress(OSError), self._guard:  # the guard: a closed descriptor may become another file's
            self._look_up()
            if self._file >= 0 and self._fs.size(self._file) < HINT_BYTES_MAX:
                self._fs.write(self._file, encode((entity, version, time_ms)) + b"\n")

    def _look_up(self) -> None:
        now = self._fs.seconds()
        if now < self._looked_up + LOOKUP_SECONDS:
            return
        self._close()
        with contextlib.suppress(FileNotFoundError):
            directory = self._fs.open_directory(self._root, FEED)
            try:
                self._file = self._fs.open_append(directory, CHANGED)
            finally:
                self._fs.close(directory)
        self._looked_up = now

    def close(self) -> None:
        """Close the file. In a forked child, too: a thread of the parent may hold the guard."""
        self._guard = Lock()
        self._close()
        self._looked_up = float("-inf")

    def _close(self) -> None:
        file, self._file = self._file, -1
        if file >= 0:
            with contextlib.suppress(OSError):
                self._fs.close(file)


class HintReader:
    """Reads the hints of all processes, each once, from the end that the file had at the first read on."""

    def __init__(self, fs: FileSystem, path: str) -> None:
        self._fs = fs
        self._path = f"{path}/{CHANGED}"
        self._file = -1
        self._offset = 0
        self._settled = float("inf")
        self.is_trusted = False

    @contextlib.contextmanager
    def walking(self) -> Iterator[None]:
        """Around a walk of all entities: hints are trusted after one that started late enough (rule 2)."""
        is_settled = self._fs.seconds() >= self._settled
        yield
        self.is_trusted = self.is_trusted or is_settled

    def take(self, directory: int) -> list[Growth]:
        """Return the hints since the last call; none at the first one, and at a new file. Raises OSError."""
        fs = self._fs
        if self._file >= 0 and fs.identity_at(self._path) != fs.identity(self._file):
            self.close()
        if self._file < 0:
            self._open(directory)
            return []
        size = fs.size(self._file)
        data = fs.read(self._file, self._offset, size - self._offset) if size > self._offset else b""
        end = data.rfind(b"\n") + 1
        self._offset += end
        if size >= HINT_BYTES_MAX:
            fs.unlink(directory, CHANGED)
            self.close()
            self._open(directory)
        return list(_growths(data[:end]))

    def _open(self, directory: int) -> None:
        self._file = self._fs.open_append(directory, CHANGED)
        self._offset = self._fs.size(self._file)
        self._settled = self._fs.seconds() + SETTLING_SECONDS

    def close(self) -> None:
        """Close the file; the next `take` starts again."""
        file, self._file, self._settled, self.is_trusted = self._file, -1, float("inf"), False
        if file >= 0:
            with contextlib.suppress(OSError):
                self._fs.close(file)


def _growths(lines: bytes) -> list[Growth]:
    """The hints in these lines. A line that a full disk cut is passed over (rule 3)."""
    found: list[Growth] = []
    for line in lines.splitlines():
        with contextlib.suppress(*UNDECODABLE):
            found.append(_decode(line))
    return found

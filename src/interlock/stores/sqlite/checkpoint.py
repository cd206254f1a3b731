"""How long the write-ahead log of a SQLite file is, since it was last restarted.

The size of the file does not show it: a restarted log is written over from its start, and the file keeps its size,
which also makes flushes cheaper (no new blocks). The salt does: the header of the log has two numbers that change
whenever the log is restarted, and every frame of this round repeats them.

Rule 1: read it only after a COMMIT of this process: until then the header may still be that of the round before.
Rule 2: the log is a file without locks. The database file itself is never opened here, because closing it would drop
every lock that SQLite has on it in this process.
"""

from __future__ import annotations

import os
from pathlib import Path

HEADER_BYTES = 32
FRAME_HEADER_BYTES = 24
PAGE_SIZE = slice(8, 12)
SALTS = slice(16, 24)
FRAME_SALTS = slice(8, 16)


class WriteAheadLog:
    """The log of a database file. Used by one thread."""

    def __init__(self, database: Path) -> None:
        self._path = database.with_name(database.name + "-wal")
        self._file: int | None = None

    def reaches(self, length: int) -> bool:
        """Return whether the log has at least so many bytes; False when it cannot be read: no step fails for that."""
        try:
            if self._file is None:
                self._file = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
            header = os.pread(self._file, HEADER_BYTES, 0)
            frame_bytes = FRAME_HEADER_BYTES + int.from_bytes(header[PAGE_SIZE])
            number = max(0, length - HEADER_BYTES - 1) // frame_bytes
            frame = os.pread(self._file, FRAME_HEADER_BYTES, HEADER_BYTES + number * frame_bytes)
        except OSError:
            return False
        return len(frame) == FRAME_HEADER_BYTES and frame[FRAME_SALTS] == header[SALTS]

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

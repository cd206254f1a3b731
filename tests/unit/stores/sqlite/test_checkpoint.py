"""How long the write-ahead log is: by its salts, not by the size of its file."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from interlock.stores.sqlite.checkpoint import FRAME_HEADER_BYTES, HEADER_BYTES, WriteAheadLog

PAGE = 4_096
FRAME = FRAME_HEADER_BYTES + PAGE


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    """A database with a log that is not checkpointed."""
    found = sqlite3.connect(tmp_path / "x.db", isolation_level=None)
    found.execute(f"PRAGMA page_size = {PAGE}")
    found.execute("PRAGMA journal_mode = WAL")
    found.execute("PRAGMA wal_autocheckpoint = 0")
    found.execute("CREATE TABLE pages (body BLOB)")
    found.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    yield found
    found.close()


@pytest.fixture
def wal(tmp_path: Path) -> Iterator[WriteAheadLog]:
    """Its log."""
    found = WriteAheadLog(tmp_path / "x.db")
    yield found
    found.close()


def _grow(connection: sqlite3.Connection, pages: int) -> None:
    for _ in range(pages):
        connection.execute("INSERT INTO pages VALUES (zeroblob(3900))")


def _frames(wal: WriteAheadLog) -> int:
    """The frames of the log, as `reaches` counts them."""
    return next(count for count in range(1_000) if not wal.reaches(HEADER_BYTES + count * FRAME + 1))


def test_a_log_reaches_what_was_written_to_it(
    connection: sqlite3.Connection, wal: WriteAheadLog, tmp_path: Path
) -> None:
    """Right after its first round the size of the file and the salts agree, to the byte."""
    _grow(connection, 20)
    size = (tmp_path / "x.db-wal").stat().st_size

    assert wal.reaches(size)
    assert not wal.reaches(size + 1)
    assert (size - HEADER_BYTES) // FRAME == _frames(wal)


def test_a_restarted_log_is_short_again_although_its_file_is_not(
    connection: sqlite3.Connection, wal: WriteAheadLog, tmp_path: Path
) -> None:
    """After a restart the file keeps its size; only what was written since counts."""
    _grow(connection, 50)
    size = (tmp_path / "x.db-wal").stat().st_size
    connection.execute("PRAGMA wal_checkpoint(RESTART)")
    _grow(connection, 1)

    assert size == (tmp_path / "x.db-wal").stat().st_size
    assert not wal.reaches(size // 2)
    assert 1 <= _frames(wal) <= 4


def test_an_empty_log_reaches_nothing(connection: sqlite3.Connection, wal: WriteAheadLog) -> None:
    """A log that was cut to nothing has no frame; the same file is looked at again when it grows."""
    _grow(connection, 5)

    assert wal.reaches(1)

    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    assert not wal.reaches(1)

    _grow(connection, 5)

    assert wal.reaches(1)


def test_a_missing_log_reaches_nothing(tmp_path: Path) -> None:
    """Where there is no log there is nothing to take in, and no error."""
    wal = WriteAheadLog(tmp_path / "none.db")

    assert not wal.reaches(1)

    wal.close()

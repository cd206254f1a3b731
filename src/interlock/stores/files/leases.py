"""Leases and downtimes in a file, which is replaced as a whole under a lock.

    <root>/leases/leases.json    {"alive_ms":...,"downtimes":[...],"leases":[...]}

Rule 1: every answer is about what is on disk: the file is read under the lock, changed, flushed and replaced. So a
fence never goes back, whatever happens to the process that raised it.
Rule 2: the rules of leases are those of `lease_table`; this file only stores them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from threading import Lock
from typing import TypeVar

import msgspec
from msgspec import Struct

from interlock.errors import CorruptionError
from interlock.model.encoding.codec import UNDECODABLE, encode
from interlock.ports.leases import Downtime, Lease
from interlock.stores.files.durable_io import DirectoryLock, DurableIO, replace_file, unavailable
from interlock.stores.files.names import is_leftover
from interlock.stores.files.root import Root
from interlock.stores.lease_table import LeaseTable

LEASES = "leases"
FILE = "leases.json"
WHAT = "the leases of the store"
_READ_BYTES = 1_048_576
T = TypeVar("T")


class _File(Struct, omit_defaults=True):
    alive_ms: int | None = None
    downtimes: list[Downtime] = []
    leases: list[Lease] = []


class _Table(LeaseTable):
    """The table in a file."""

    def __init__(self, file: _File) -> None:
        super().__init__()
        self._leases = {each.name: each for each in file.leases}
        self._alive_ms = file.alive_ms
        self._downtimes = list(file.downtimes)

    def encode(self) -> bytes:
        """The bytes of the file."""
        return encode(_File(self._alive_ms, self._downtimes, list(self._leases.values()))) + b"\n"


class FileLeases:
    """The leases below one root, and the times when no worker was running."""

    def __init__(self, io: DurableIO, root: Root) -> None:
        self._fs = io.fs
        self._root = root
        self._lock_ms_max = io.settings.lock_ms_max
        self._directory = -1
        self._is_swept = False
        self._is_unflushed = False
        self._mutex = Lock()

    def acquire_lease(self, name: str, *, owner: str, now_ms: int, until_ms: int) -> Lease | None:
        """Acquire or extend the lease of a name; None while another owner has it."""
        return self._update(lambda table: table.acquire_lease(name, owner=owner, now_ms=now_ms, until_ms=until_ms))

    def release_lease(self, lease: Lease) -> bool:
        """Release a lease; False when it was no longer ours."""
        return self._update(lambda table: table.release_lease(lease))

    def record_heartbeat(self, *, now_ms: int, gap_ms: int) -> Downtime | None:
        """Record a heartbeat of a worker; the downtime that it ends, if any."""
        return self._update(lambda table: table.record_heartbeat(now_ms=now_ms, gap_ms=gap_ms))

    def downtimes(self, *, since_ms: int) -> tuple[Downtime, ...]:
        """The downtimes that ended after a time, in order."""
        return self._update(lambda table: table.downtimes(since_ms=since_ms))

    def correct(self, *, now_ms: int) -> None:
        """Drop heartbeats and downtimes in the future; now counts as a heartbeat."""
        self._update(lambda table: table.correct(now_ms=now_ms))

    def _update(self, change: Callable[[LeaseTable], T]) -> T:
        """Rule 1."""
        self._root.check_writable()
        fs = self._fs
        with self._mutex:
            try:
                directory = self._open()
                with DirectoryLock(fs, directory, WHAT, self._lock_ms_max, self.close):
                    self._sweep(directory)
                    data = self._read(directory)
                    table = _Table(_decode(data))
                    answer = change(table)
                    encoded = table.encode()
                    if encoded != data or self._is_unflushed:
                        self._is_unflushed = True  # until its name is flushed, what is read may not be on disk
                        replace_file(fs, directory, FILE, encoded)
                        self._is_unflushed = False
                    return answer
            except OSError as error:
                raise unavailable(WHAT, "write", error) from error

    def _open(self) -> int:
        fs, root = self._fs, self._root.directory
        if self._directory < 0:
            with contextlib.suppress(FileExistsError):
                fs.make_directory(root, LEASES)
            fs.sync_directory(root)
            self._directory = fs.open_directory(root, LEASES)
        return self._directory

    def _sweep(self, directory: int) -> None:
        """Remove temporary files of writers that died; under the lock no other writer is running."""
        if not self._is_swept:
            for name in filter(is_leftover, self._fs.names(directory)):
                self._fs.unlink(directory, name)
        self._is_swept = True

    def _read(self, directory: int) -> bytes:
        fs = self._fs
        try:
            file = fs.open_file(directory, FILE)
        except FileNotFoundError:
            return b""
        data = b""
        try:
            while chunk := fs.read(file, len(data), _READ_BYTES):
                data += chunk
        finally:
            fs.close(file)
        return data

    def close(self) -> None:
        """Close the directory, and with it its lock."""
        if self._directory >= 0:
            with contextlib.suppress(OSError):
                self._fs.close(self._directory)
        self._directory = -1

    def abandon(self) -> None:
        """In a forked child: open again at the next use."""
        self._mutex = Lock()
        self.close()


def _decode(data: bytes) -> _File:
    try:
        return msgspec.json.decode(data, type=_File) if data else _File()
    except UNDECODABLE as error:
        hint = f"stop all workers, then delete {LEASES}/{FILE}; they acquire their leases again"
        raise CorruptionError(f"{LEASES}/{FILE} is invalid: {error}", code="leases.corrupt", hint=hint) from error

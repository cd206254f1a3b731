"""Leases and downtimes in a file, replaced as a whole under a lock.

    <root>/leases/leases.json    {"alive_ms":...,"downtimes":[...],"leases":[...]}

Rule 1: every answer is about what is on disk: the file is read under the lock, changed, flushed, and put in its place.
So a fence never goes back, whatever becomes of whoever raised it.
Rule 2: the rules of leases are those of `lease_table`; this file only keeps them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from threading import Lock
from typing import TypeVar

import msgspec
from msgspec import Struct

from interlock.errors import CorruptionError
from interlock.model.codec import encode
from interlock.ports.leases import Downtime, Lease
from interlock.stores.files.journal.durable_io import DurableIO, Locked, unavailable, write_whole
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
    """The table as a file has it."""

    def __init__(self, kept: _File) -> None:
        super().__init__()
        self._leases = {each.name: each for each in kept.leases}
        self._alive_ms = kept.alive_ms
        self._downtimes = list(kept.downtimes)

    def kept(self) -> bytes:
        """The bytes of the file."""
        return encode(_File(self._alive_ms, self._downtimes, list(self._leases.values()))) + b"\n"


class FileLeases:
    """Who holds which name below one root, and when nobody was there."""

    def __init__(self, shared: DurableIO, root: Root) -> None:
        self._fs = shared.fs
        self._root = root
        self._lock_ms_max = shared.settings.lock_ms_max
        self._directory = -1
        self._is_swept = False
        self._is_doubtful = False
        self._mutex = Lock()

    def lease(self, name: str, *, owner: str, now_ms: int, until_ms: int) -> Lease | None:
        """Take a name, or hold it longer; None while another holds it."""
        return self._changed(lambda table: table.lease(name, owner=owner, now_ms=now_ms, until_ms=until_ms))

    def give_back(self, lease: Lease) -> bool:
        """Let go of a name at once; False when it was no longer ours."""
        return self._changed(lambda table: table.give_back(lease))

    def alive(self, *, now_ms: int, gap_ms: int) -> Downtime | None:
        """Note that a worker is alive; the downtime that ends with this, if it does."""
        return self._changed(lambda table: table.alive(now_ms=now_ms, gap_ms=gap_ms))

    def downtimes(self, *, since_ms: int) -> tuple[Downtime, ...]:
        """The downtimes that ended after a time, in order."""
        return self._changed(lambda table: table.downtimes(since_ms=since_ms))

    def correct(self, *, now_ms: int) -> None:
        """Forget what is stamped in the future; now counts as a sign of life."""
        self._changed(lambda table: table.correct(now_ms=now_ms))

    def _changed(self, change: Callable[[LeaseTable], T]) -> T:
        """Rule 1."""
        self._root.check_writable()
        fs = self._fs
        with self._mutex:
            try:
                directory = self._opened()
                with Locked(fs, directory, WHAT, self._lock_ms_max, self.close):
                    self._sweep(directory)
                    data = self._read(directory)
                    table = _Table(_decoded(data))
                    answer = change(table)
                    kept = table.kept()
                    if kept != data or self._is_doubtful:
                        self._is_doubtful = True  # until its name is flushed too, what is read may not be on disk
                        write_whole(fs, directory, FILE, kept)
                        self._is_doubtful = False
                    return answer
            except OSError as error:
                raise unavailable(WHAT, "write", error) from error

    def _opened(self) -> int:
        fs, root = self._fs, self._root.directory
        if self._directory < 0:
            with contextlib.suppress(FileExistsError):
                fs.make_directory(root, LEASES)
            fs.sync_directory(root)
            self._directory = fs.open_directory(root, LEASES)
        return self._directory

    def _sweep(self, directory: int) -> None:
        """Removes what a process left that died while it wrote; under the lock no live one owns it."""
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
        """Lets go of the directory, and with it of its lock."""
        if self._directory >= 0:
            with contextlib.suppress(OSError):
                self._fs.close(self._directory)
        self._directory = -1

    def abandon(self) -> None:
        """In a forked child: opens anew."""
        self._mutex = Lock()
        self.close()


def _decoded(data: bytes) -> _File:
    try:
        return msgspec.json.decode(data, type=_File) if data else _File()
    except msgspec.MsgspecError as error:
        hint = f"stop all workers, then remove {LEASES}/{FILE}: leases are taken anew"
        raise CorruptionError(f"{LEASES}/{FILE} does not read: {error}", code="leases.corrupt", hint=hint) from error

"""Which process is alive: byte locks of open file descriptions, which the kernel releases when their process ends.

Rule 1: only the kernel decides. `is_held` queries it (F_OFD_GETLK) and never locks: a lock taken for a test would look
like a live owner to the next process that asks.
Rule 2: a process never queries its own byte: its own description always answers "free".
Rule 3: each participant has its own description, closed on exec and in a forked child: a child that kept it would keep
a dead parent alive.
Rule 4: elapsed time never proves death: a stopped process is alive.
Process ids, start times and pidfds are used for reports and for early wake-ups only; they decide nothing.
"""

from __future__ import annotations

import fcntl
import os
import struct
from pathlib import Path
from time import monotonic, sleep

from interlock.errors import UnavailableError, UsageError
from interlock.ports.fork import after_fork

FLOCK = struct.Struct("hhqqi0q")
"""struct flock of 64-bit Linux: type, whence, start, length, pid."""

LAYOUT_BYTE = 1 << 20
"""The byte that a process locks while it adds an area to a region. Slots use the bytes of their numbers, from 0."""

QUEUE_BYTES = 1 << 41
"""First lock byte of queues and pools, each at the offset of its line: beyond any region and any slot."""

RECOVERY_SECONDS_MAX = 0.25
"""How long a process that recovers from a dead owner may hold the owner's byte, on a busy machine."""


def path_of(descriptor: int) -> str:
    """Return a path that opens another description of the same file, even if the file was renamed or removed."""
    return f"/proc/self/fd/{descriptor}"


class ByteLocks:
    """One description of a region's file, to lock bytes with. Closed by its owner, on exec, and in forked children."""

    def __init__(self, path: str) -> None:
        if not hasattr(fcntl, "F_OFD_SETLK"):
            raise UnavailableError(
                "this system does not support open file description locks, which detect dead processes",
                code="shm.no_ofd_locks",
                hint="use Linux, or a Gate, which does not need them",
            )
        self._descriptor: int | None = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        self._own: set[int] = set()
        after_fork(self, ByteLocks.close)

    @property
    def open(self) -> bool:
        """Whether it can still lock: not closed, and not inherited by a fork."""
        return self._descriptor is not None

    def claim(self, byte: int) -> bool:
        """Lock a byte until this is closed or the process ends. False if a live process holds it."""
        try:
            fcntl.fcntl(self._require_open(), fcntl.F_OFD_SETLK, FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, byte, 1, 0))
        except (BlockingIOError, PermissionError):
            return False
        self._own.add(byte)
        return True

    def claim_with_retry(self, byte: int) -> bool:
        """Claim a byte that a recovering process may hold for a moment. False if it stays locked."""
        end = monotonic() + RECOVERY_SECONDS_MAX
        while not self.claim(byte):
            if monotonic() > end:
                return False
            sleep(RECOVERY_SECONDS_MAX / 100)
        return True

    def is_held(self, byte: int) -> bool:
        """Return whether another live process holds the byte."""
        assert byte not in self._own, "the own byte always looks free"
        query = FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, byte, 1, 0)
        answer = fcntl.fcntl(self._require_open(), fcntl.F_OFD_GETLK, query)
        return bool(FLOCK.unpack(answer)[0] != fcntl.F_UNLCK)

    def release(self, byte: int) -> None:
        """Unlock a byte."""
        fcntl.fcntl(self._require_open(), fcntl.F_OFD_SETLK, FLOCK.pack(fcntl.F_UNLCK, os.SEEK_SET, byte, 1, 0))
        self._own.discard(byte)

    def close(self) -> None:
        """Release all locks. In a forked child the parent keeps them: its description stays open in the parent."""
        descriptor, self._descriptor = self._descriptor, None
        self._own.clear()
        if descriptor is not None:
            os.close(descriptor)

    def __del__(self) -> None:
        if hasattr(self, "_descriptor"):
            self.close()

    def _require_open(self) -> int:
        if self._descriptor is None:
            raise UsageError(
                "these locks are closed, or belong to the parent process",
                code="shm.locks_closed",
                hint="join again: a child creates its own Lifecycle on the region",
            )
        return self._descriptor


def start_time(pid: int) -> int:
    """Return when a process started, in clock ticks since boot; 0 if unknown. With the pid it identifies a process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return 0
    return int(stat.rpartition(b")")[2].split()[19])


def owner_word() -> int:
    """Return this process as a slot records it: pid << 32 | start time."""
    pid = os.getpid()
    return pid << 32 | start_time(pid) & 0xFFFFFFFF


def open_pidfd(owner: int) -> int | None:
    """Return a descriptor that becomes readable when an owner ends.

    None if the process has ended, is hidden, or its pid now belongs to another process.
    """
    pid = owner >> 32
    if not pid or not hasattr(os, "pidfd_open"):
        return None
    try:
        descriptor = os.pidfd_open(pid)
    except OSError:
        return None
    if start_time(pid) & 0xFFFFFFFF != owner & 0xFFFFFFFF:
        os.close(descriptor)
        return None
    return descriptor

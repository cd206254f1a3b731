"""Who is alive: byte locks of open file descriptions, which the kernel lets go when their process ends.

Rule 1: only the kernel answers. `held` asks it (F_OFD_GETLK) and never locks to find out: a probing lock would look
like a live owner to the next who asks.
Rule 2: nobody asks about its own byte: its own description always answers "free".
Rule 3: each participant has a description of its own, closed on exec and in a forked child: a child that kept it
would keep a dead parent alive.
Rule 4: time never proves death: a stopped process is alive.
Process ids, start times and pidfds stand beside this for people and for waking early; they decide nothing.
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
"""The byte that whoever adds an area to a region locks. Slots use the bytes of their numbers, from 0."""

CONSUMER_BYTES = 1 << 21
"""The first of the bytes that consumers of queues lock."""


def path_of(descriptor: int) -> str:
    """A path to open another description of the same file by, whatever its name is by now."""
    return f"/proc/self/fd/{descriptor}"


REAP_SECONDS_MAX = 0.25
"""How long whoever clears up after a dead owner may hold its byte: some operations, on a machine that is busy."""


class ByteLocks:
    """One description of a region's file, to lock bytes with. Closed with its owner, on exec, in forked children."""

    def __init__(self, path: str) -> None:
        if not hasattr(fcntl, "F_OFD_SETLK"):
            raise UnavailableError(
                "this system has no locks of open file descriptions, so nobody can tell who is alive",
                code="shm.no_ofd_locks",
                hint="Linux has them; a Gate needs none",
            )
        self._descriptor: int | None = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        self._own: set[int] = set()
        after_fork(self, ByteLocks.close)

    @property
    def open(self) -> bool:
        """Whether it can still lock: not closed, and not inherited by a fork."""
        return self._descriptor is not None

    def claim(self, byte: int) -> bool:
        """Lock a byte until this is closed or the process ends; False when somebody alive has it."""
        try:
            fcntl.fcntl(self._opened(), fcntl.F_OFD_SETLK, FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, byte, 1, 0))
        except (BlockingIOError, PermissionError):
            return False
        self._own.add(byte)
        return True

    def claim_soon(self, byte: int) -> bool:
        """The same, for a byte that a reaper may have for a moment: False when it stays taken."""
        end = monotonic() + REAP_SECONDS_MAX
        while not self.claim(byte):
            if monotonic() > end:
                return False
            sleep(REAP_SECONDS_MAX / 100)
        return True

    def held(self, byte: int) -> bool:
        """Whether somebody else who is alive has the byte."""
        assert byte not in self._own, "the own byte always looks free"
        asked = FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, byte, 1, 0)
        answer = fcntl.fcntl(self._opened(), fcntl.F_OFD_GETLK, asked)
        return bool(FLOCK.unpack(answer)[0] != fcntl.F_UNLCK)

    def release(self, byte: int) -> None:
        """Let a byte go."""
        fcntl.fcntl(self._opened(), fcntl.F_OFD_SETLK, FLOCK.pack(fcntl.F_UNLCK, os.SEEK_SET, byte, 1, 0))
        self._own.discard(byte)

    def close(self) -> None:
        """Let everything go. In a forked child this only forgets: the parent's description lives on in the parent."""
        descriptor, self._descriptor = self._descriptor, None
        self._own.clear()
        if descriptor is not None:
            os.close(descriptor)

    def __del__(self) -> None:
        if hasattr(self, "_descriptor"):
            self.close()

    def _opened(self) -> int:
        if self._descriptor is None:
            raise UsageError(
                "these locks were closed, or belong to the process that forked",
                code="shm.locks_closed",
                hint="join again: a child makes its own Lifecycle on the region",
            )
        return self._descriptor


def start_time(pid: int) -> int:
    """When a process started, in clock ticks since boot; 0 when it cannot be told. With the pid, a name for people."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return 0
    return int(stat.rpartition(b")")[2].split()[19])


def owner_word() -> int:
    """This process as a slot tells it: pid << 32 | start time."""
    pid = os.getpid()
    return pid << 32 | start_time(pid) & 0xFFFFFFFF


def open_pidfd(owner: int) -> int | None:
    """A descriptor that turns readable when an owner ends; None when it is gone, hidden, or the pid another's now."""
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

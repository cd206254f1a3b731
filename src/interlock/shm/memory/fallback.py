"""Atomic words without the C core: plain memory under a file lock. It works wherever Python does on Linux.

Rule 1: every operation takes the lock, loads too. Processes in different modes never share a region (`modes`).
Rule 2: an operation writes one word, so a process that dies while it holds the lock leaves the old or the new value.
Rule 3: the wait for the lock is bounded: if its holder is stopped, the operation raises UnavailableError.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import platform
import threading
from contextlib import suppress
from mmap import mmap
from time import monotonic, sleep

from interlock.errors import UnavailableError
from interlock.ports.fork import after_fork
from interlock.shm.memory.process_locks import path_of

LOCK_SECONDS_MAX = 5.0
"""How long an operation waits for the lock. A holder needs a microsecond, so if it takes longer, it is stopped."""

POLL_SECONDS = 0.001
"""The longest pause between two attempts to take a lock, and between two loads where there are no futexes."""

FUTEX_CALLS = {"x86_64": 202, "aarch64": 98, "riscv64": 98}
FUTEX_WAIT, FUTEX_WAKE = 0, 1
INT_MAX = 2**31 - 1
WORD = 8
LINE = 64
MASK = 2**64 - 1
OUT_OF_RANGE = "a word holds 0 to 2**64-1"

LOCK_WITHOUT_WAITING = fcntl.LOCK_EX | fcntl.LOCK_NB


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


def _timespec(seconds: float) -> _Timespec:
    whole = int(seconds)
    return _Timespec(whole, int((seconds - whole) * 1e9))


class LockedWords:
    """Words in plain memory, under a lock."""

    def __init__(self, buffer: mmap, lock: FileLock) -> None:
        # The array keeps the buffer exported, and therefore mapped, while these words exist.
        self._exported = (ctypes.c_char * len(buffer)).from_buffer(buffer)
        self._base = ctypes.addressof(self._exported)
        self._bytes = len(buffer)
        self._futex = FUTEX_CALLS.get(platform.machine())
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._view = memoryview(buffer).cast("Q")
        self.lock = lock
        """Held during every operation. While a caller holds it, these operations wait."""

    def load(self, offset: int, /) -> int:
        index = self._index(offset)
        with self.lock:
            return self._view[index]

    def store(self, offset: int, value: int, /) -> None:
        index = self._index(offset)
        if not 0 <= value <= MASK:
            raise OverflowError(OUT_OF_RANGE)
        with self.lock:
            self._view[index] = value

    def swap(self, offset: int, expected: int, desired: int, /) -> int:
        index = self._index(offset)
        if not (0 <= expected <= MASK and 0 <= desired <= MASK):
            raise OverflowError(OUT_OF_RANGE)
        with self.lock:
            seen = self._view[index]
            if seen == expected:
                self._view[index] = desired
        return seen

    def add(self, offset: int, delta: int, /) -> int:
        index = self._index(offset)
        with self.lock:
            seen = self._view[index]
            self._view[index] = (seen + delta) & MASK
        return seen

    def find_occupied(self, counts: int, slots: int, start: int, /) -> int:
        first = self._index(counts)
        with self.lock:
            return next((slot for slot in range(start, slots) if self._view[first + slot * (LINE // WORD)]), slots)

    def wait(self, half: int, expected: int, timeout: float, /) -> None:
        address = self._base + self._check_offset(half, 4)
        timeout = min(timeout, 1.0)
        if timeout <= 0:
            return
        if self._futex is None:
            if ctypes.c_uint32.from_address(address).value == expected:
                sleep(min(timeout, POLL_SECONDS))
            return
        # A signal ends the call. Its handler runs before the caller loads again.
        self._libc.syscall(
            self._futex,
            ctypes.c_void_p(address),
            FUTEX_WAIT,
            ctypes.c_uint32(expected),
            ctypes.byref(_timespec(timeout)),
            None,
            0,
        )

    def wake(self, half: int, /) -> None:
        address = self._base + self._check_offset(half, 4)
        if self._futex is not None:
            self._libc.syscall(self._futex, ctypes.c_void_p(address), FUTEX_WAKE, INT_MAX, None, None, 0)

    def _index(self, offset: int) -> int:
        return self._check_offset(offset, WORD) // WORD

    def _check_offset(self, offset: int, size: int) -> int:
        if offset % size or not 0 <= offset <= self._bytes - size:
            raise ValueError(f"{size} bytes at {offset} are outside the region, or not aligned")
        return offset


class FileLock:
    """A lock between processes (flock on its own file description) and between the threads of this process."""

    def __init__(self, path: str) -> None:
        self._threads = threading.Lock()
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)  # a directory can be locked as well
        after_fork(self, FileLock._reopen)

    def _reopen(self) -> None:
        # A child must not lock through its parent's file description, nor wait for a thread of its parent.
        inherited, self._threads = self._descriptor, threading.Lock()
        self._descriptor = os.open(path_of(inherited), os.O_RDONLY | os.O_CLOEXEC)
        os.close(inherited)

    def __enter__(self) -> None:
        # Without contention this calls no function of ours: two system calls are most of the cost of an operation.
        threads = self._threads
        if not threads.acquire(blocking=False) and not threads.acquire(timeout=LOCK_SECONDS_MAX):
            raise _timeout_error()
        try:
            fcntl.flock(self._descriptor, LOCK_WITHOUT_WAITING)
        except BlockingIOError:
            self._wait()
        except BaseException:
            threads.release()
            raise

    def _wait(self) -> None:
        """Poll until the process that holds the lock releases it."""
        end, pause = monotonic() + LOCK_SECONDS_MAX, POLL_SECONDS / 20
        try:
            while monotonic() <= end:
                sleep(pause)
                pause = min(2 * pause, POLL_SECONDS)
                with suppress(BlockingIOError):
                    fcntl.flock(self._descriptor, LOCK_WITHOUT_WAITING)
                    return
            raise _timeout_error()
        except BaseException:
            self._threads.release()
            raise

    def __exit__(self, *exception: object) -> None:
        fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        self._threads.release()

    def __del__(self) -> None:
        if hasattr(self, "_descriptor"):
            os.close(self._descriptor)


def _timeout_error() -> UnavailableError:
    return UnavailableError(
        f"the region's file lock was not released within {LOCK_SECONDS_MAX:g} s",
        code="shm.lock_held",
        hint="the process that holds it is probably stopped; resume or end it",
    )

"""Words without the C core: through libatomic, a robust mutex in the region, or a file lock.

Rule 1: libatomic's operations are the processor's own, so they share a region (mode 1) with the C core.
Rule 2: under a lock (modes 2 and 3) every operation takes it, loads too; regions of different modes never mix.
Rule 3: an operation under a lock writes one word, so whoever dies holding the lock leaves the old value or the new.
Rule 4: no wait for a lock is endless: a holder that is stopped makes us raise UnavailableError, not hang.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import platform
import threading
from contextlib import suppress
from mmap import mmap
from time import CLOCK_MONOTONIC, clock_gettime, monotonic, sleep
from typing import Protocol

from interlock.errors import CorruptionError, UnavailableError
from interlock.ports.fork import after_fork
from interlock.shm.memory.process_locks import path_of

SEQ_CST = 5
"""The memory order of libatomic's functions."""

LOCK_SECONDS_MAX = 5.0
"""How long an operation waits for the lock: holders need a microsecond, so this one is stopped."""

POLL_SECONDS = 0.001
"""One nap where there are no futexes."""

FUTEX_CALLS = {"x86_64": 202, "aarch64": 98, "riscv64": 98}
FUTEX_WAIT, FUTEX_WAKE = 0, 1
INT_MAX = 2**31 - 1
WORD = 8
LINE = 64
MASK = 2**64 - 1
RANGE = "a word holds 0 to 2**64-1"

AT_ONCE = fcntl.LOCK_EX | fcntl.LOCK_NB

PTHREAD_MUTEX_ERRORCHECK = 2
PTHREAD_MUTEX_ROBUST = 1
PTHREAD_PROCESS_SHARED = 1


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


def _timespec(seconds: float) -> _Timespec:
    whole = int(seconds)
    return _Timespec(whole, int((seconds - whole) * 1e9))


def _check_range(value: int) -> int:
    if not 0 <= value <= MASK:
        raise OverflowError(RANGE)
    return value


class _Sleepers:
    """Where words are in memory, and waiting on their halves."""

    def __init__(self, buffer: mmap) -> None:
        # The array keeps the buffer exported, and so mapped, for as long as these words live.
        self._lent = (ctypes.c_char * len(buffer)).from_buffer(buffer)
        self._base = ctypes.addressof(self._lent)
        self._bytes = len(buffer)
        self._futex = FUTEX_CALLS.get(platform.machine()) if os.uname().sysname == "Linux" else None
        self._libc = ctypes.CDLL(None, use_errno=True)

    def _address(self, offset: int, size: int = WORD) -> int:
        if offset < 0 or offset % size or offset + size > self._bytes:
            raise ValueError(f"{size} bytes at {offset} are not in the region, or not aligned")
        return self._base + offset

    def wait(self, half: int, expected: int, timeout: float, /) -> None:
        address = self._address(half, 4)
        timeout = min(timeout, 1.0)
        if timeout <= 0:
            return
        if self._futex is None:
            if ctypes.c_uint32.from_address(address).value == expected:
                sleep(min(timeout, POLL_SECONDS))
            return
        # A signal ends the call; its handler runs before the caller's next look.
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
        address = self._address(half, 4)
        if self._futex is not None:
            self._libc.syscall(self._futex, ctypes.c_void_p(address), FUTEX_WAKE, INT_MAX, None, None, 0)


class LibatomicWords(_Sleepers):
    """The processor's atomics, called through ctypes. Mixes with the C core in one region."""

    def __init__(self, buffer: mmap) -> None:
        super().__init__(buffer)
        # PyDLL keeps the GIL: these calls are shorter than letting it go.
        library = ctypes.PyDLL("libatomic.so.1")
        u64, pointer, order = ctypes.c_uint64, ctypes.c_void_p, ctypes.c_int
        self._load = library["__atomic_load_8"]
        self._load.restype, self._load.argtypes = u64, (pointer, order)
        self._store = library["__atomic_store_8"]
        self._store.restype, self._store.argtypes = None, (pointer, u64, order)
        self._add = library["__atomic_fetch_add_8"]
        self._add.restype, self._add.argtypes = u64, (pointer, u64, order)
        self._swap = library["__atomic_compare_exchange_8"]
        self._swap.restype, self._swap.argtypes = ctypes.c_bool, (pointer, ctypes.POINTER(u64), u64, order, order)

    def load(self, offset: int, /) -> int:
        return int(self._load(self._address(offset), SEQ_CST))

    def store(self, offset: int, value: int, /) -> None:
        self._store(self._address(offset), _check_range(value), SEQ_CST)

    def swap(self, offset: int, expected: int, desired: int, /) -> int:
        seen = ctypes.c_uint64(_check_range(expected))
        self._swap(self._address(offset), ctypes.byref(seen), _check_range(desired), SEQ_CST, SEQ_CST)
        return seen.value

    def add(self, offset: int, delta: int, /) -> int:
        return int(self._add(self._address(offset), delta & MASK, SEQ_CST))

    def occupied(self, counts: int, slots: int, start: int, /) -> int:
        return next((slot for slot in range(start, slots) if self.load(counts + slot * LINE)), slots)


class Lock(Protocol):
    """What excludes every other participant of a region, in this process and in others."""

    def __enter__(self) -> object:
        """Take it, within LOCK_SECONDS_MAX."""

    def __exit__(self, *exception: object) -> None:
        """Let it go."""


class NoLock:
    """What stands for a lock where the operations need none."""

    def __enter__(self) -> None: ...

    def __exit__(self, *exception: object) -> None: ...


class LockedWords(_Sleepers):
    """Words that are plain memory under a lock."""

    def __init__(self, buffer: mmap, lock: Lock) -> None:
        super().__init__(buffer)
        self._view = memoryview(buffer).cast("Q")
        self._lock = lock

    def _index(self, offset: int) -> int:
        if offset % WORD or not 0 <= offset <= self._bytes - WORD:
            self._address(offset)
        return offset // WORD

    def exclusive(self) -> Lock:
        """The region's lock. While it is held, use the buffer itself: these operations would take it again."""
        return self._lock

    def load(self, offset: int, /) -> int:
        index = self._index(offset)
        with self._lock:
            return self._view[index]

    def store(self, offset: int, value: int, /) -> None:
        index, value = self._index(offset), _check_range(value)
        with self._lock:
            self._view[index] = value

    def swap(self, offset: int, expected: int, desired: int, /) -> int:
        index = self._index(offset)
        if not (0 <= expected <= MASK and 0 <= desired <= MASK):
            raise OverflowError(RANGE)
        with self._lock:
            seen = self._view[index]
            if seen == expected:
                self._view[index] = desired
        return seen

    def add(self, offset: int, delta: int, /) -> int:
        index = self._index(offset)
        with self._lock:
            seen = self._view[index]
            self._view[index] = (seen + delta) & MASK
        return seen

    def occupied(self, counts: int, slots: int, start: int, /) -> int:
        first = self._index(counts)
        with self._lock:
            return next((slot for slot in range(start, slots) if self._view[first + slot * (LINE // WORD)]), slots)


class RobustMutex:
    """A pthread mutex in the region: shared by processes, and handed on by the kernel when its holder dies.

    It knows its owner (ERRORCHECK): an exception of a signal handler that left one of our operations between the call
    and its `finally` does not lock this thread out of its own mutex.
    """

    def __init__(self, buffer: mmap, offset: int) -> None:
        self._lent = (ctypes.c_char * len(buffer)).from_buffer(buffer)
        self._mutex = ctypes.c_void_p(ctypes.addressof(self._lent) + offset)
        libc = ctypes.CDLL(None)  # lets the GIL go: for the call that may block
        brief = ctypes.PyDLL(None)
        self._try, self._unlock, self._mend = (
            brief.pthread_mutex_trylock,
            brief.pthread_mutex_unlock,
            brief.pthread_mutex_consistent,
        )
        self._take = libc.pthread_mutex_clocklock
        self._take.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.POINTER(_Timespec))

    @staticmethod
    def prepare(buffer: mmap, offset: int) -> None:
        """Put a fresh mutex into a region that nobody else has yet."""
        libc = ctypes.CDLL(None)
        lent = (ctypes.c_char * len(buffer)).from_buffer(buffer)
        attributes = ctypes.create_string_buffer(LINE)
        answers = [
            libc.pthread_mutexattr_init(attributes),
            libc.pthread_mutexattr_setpshared(attributes, PTHREAD_PROCESS_SHARED),
            libc.pthread_mutexattr_setrobust(attributes, PTHREAD_MUTEX_ROBUST),
            libc.pthread_mutexattr_settype(attributes, PTHREAD_MUTEX_ERRORCHECK),
            libc.pthread_mutex_init(ctypes.c_void_p(ctypes.addressof(lent) + offset), attributes),
        ]
        libc.pthread_mutexattr_destroy(attributes)
        if any(answers):
            raise UnavailableError(
                f"no robust mutex on this system: {os.strerror(max(answers))}",
                code="shm.mutex",
                hint="INTERLOCK_SHM=flock works everywhere",
            )

    def __enter__(self) -> None:
        answer = self._try(self._mutex)
        if answer == errno.EBUSY:
            end = clock_gettime(CLOCK_MONOTONIC) + LOCK_SECONDS_MAX
            answer = self._take(self._mutex, CLOCK_MONOTONIC, ctypes.byref(_timespec(end)))
        if answer == errno.EOWNERDEAD:
            answer = self._mend(self._mutex)  # its holder died; one word is old or new, both are right
        if answer in {0, errno.EDEADLK}:
            return
        if answer == errno.ENOTRECOVERABLE:
            raise CorruptionError("the region's mutex was given up by its last holder", code="shm.mutex")
        raise _held_too_long("mutex")

    def __exit__(self, *exception: object) -> None:
        self._unlock(self._mutex)


class FileLock:
    """flock on a description of our own, and a lock for the threads of this process, which share that description."""

    def __init__(self, path: str) -> None:
        self._threads = threading.Lock()
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)  # a directory can be locked as well
        after_fork(self, FileLock._reopen)

    def _reopen(self) -> None:
        # A child must not lock through its parent's description, nor wait for a thread that only the parent has.
        inherited, self._threads = self._descriptor, threading.Lock()
        self._descriptor = os.open(path_of(inherited), os.O_RDONLY | os.O_CLOEXEC)
        os.close(inherited)

    def __enter__(self) -> None:
        # The way without a wait has no call of ours in it: two system calls are most of what an operation costs.
        threads = self._threads
        if not threads.acquire(blocking=False) and not threads.acquire(timeout=LOCK_SECONDS_MAX):
            raise _held_too_long("file lock")
        try:
            fcntl.flock(self._descriptor, AT_ONCE)
        except BlockingIOError:
            self._wait()
        except BaseException:
            threads.release()
            raise

    def _wait(self) -> None:
        """Take what another process holds; it does not tell us when it lets go."""
        end, nap = monotonic() + LOCK_SECONDS_MAX, POLL_SECONDS / 20
        try:
            while monotonic() <= end:
                sleep(nap)
                nap = min(2 * nap, POLL_SECONDS)
                with suppress(BlockingIOError):
                    fcntl.flock(self._descriptor, AT_ONCE)
                    return
            raise _held_too_long("file lock")
        except BaseException:
            self._threads.release()
            raise

    def __exit__(self, *exception: object) -> None:
        fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        self._threads.release()

    def __del__(self) -> None:
        if hasattr(self, "_descriptor"):
            os.close(self._descriptor)


def _held_too_long(what: str) -> UnavailableError:
    return UnavailableError(
        f"the region's {what} is held for more than {LOCK_SECONDS_MAX:g} s",
        code="shm.lock_held",
        hint="a process that holds it is stopped; let it go on, or end it",
    )

"""How words are operated here: by the C core, or by one of the fallbacks, chosen once for each region.

Rule 1: a region tells its mode; whoever cannot work in it is refused, because two ways of locking exclude nobody.
Rule 2: the fastest that works is taken; INTERLOCK_SHM=native|libatomic|mutex|flock takes that one or raises.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from collections.abc import Callable
from mmap import mmap
from typing import Literal, get_args

from interlock.errors import MissingExtraError, UsageError
from interlock.shm.memory.fallback import FileLock, LibatomicWords, Lock, LockedWords, NoLock, RobustMutex
from interlock.shm.memory.permits import Aside, Last, PermitCounter, PlainPermitCounter, Refuse
from interlock.shm.memory.words import Words

ModeName = Literal["native", "libatomic", "mutex", "flock"]

MODES: dict[ModeName, int] = {"native": 1, "libatomic": 1, "mutex": 2, "flock": 3}
"""The number of each in the header of a region; equal numbers share a region."""

VARIABLE = "INTERLOCK_SHM"
"""The environment variable that chooses."""


def chosen_mode() -> ModeName:
    """The mode of the environment, else the fastest that works here.

    Raises UsageError for an unknown name, MissingExtraError for one that does not work here.
    """
    if sys.byteorder != "little" or struct.calcsize("P") != 8 or sys.platform != "linux":
        raise UsageError("shared memory needs a 64-bit little-endian Linux", code="shm.machine", hint="use a store")
    wanted = os.environ.get(VARIABLE, "")
    if not wanted:
        return next(mode for mode in MODES if _works(mode))
    for mode in get_args(ModeName):
        if mode == wanted:
            if _works(mode):
                return mode  # type: ignore[no-any-return]  # get_args gives the names above
            raise MissingExtraError(
                f"{VARIABLE}={wanted}: that does not work here",
                code="shm.mode_missing",
                hint="install a wheel that has the C core, or a compiler" if mode == "native" else f"unset {VARIABLE}",
            )
    raise UsageError(
        f"{VARIABLE}={wanted} is no mode of shared memory", code="shm.mode_unknown", hint=f"one of {', '.join(MODES)}"
    )


def _works(mode: ModeName) -> bool:
    return _WORKS[mode]()


def _has_core() -> bool:
    try:
        from interlock.shm import _core
    except ImportError:
        return False
    return _core is not None


def _has_libatomic() -> bool:
    try:
        ctypes.PyDLL("libatomic.so.1")
    except OSError:
        return False
    return True


def _has_robust_mutexes() -> bool:
    libc = ctypes.CDLL(None)
    return hasattr(libc, "pthread_mutexattr_setrobust") and hasattr(libc, "pthread_mutex_clocklock")


_WORKS: dict[ModeName, Callable[[], bool]] = {
    "native": _has_core,
    "libatomic": _has_libatomic,
    "mutex": _has_robust_mutexes,
    "flock": lambda: True,
}


class Operations:
    """The words, doors and lock of one region, in its mode."""

    def __init__(self, mode: ModeName, buffer: mmap, *, mutex: int, path: str) -> None:
        self.mode = mode
        self._buffer = buffer
        self.words: Words
        self._lock: Lock = NoLock()
        if mode == "native":
            from interlock.shm import _core

            self.words = _core.Words(buffer)
        elif mode == "libatomic":
            self.words = LibatomicWords(buffer)
        else:
            self._lock = RobustMutex(buffer, mutex) if mode == "mutex" else FileLock(path)
            self.words = LockedWords(buffer, self._lock)

    def exclusive(self) -> Lock:
        """The region's lock in modes 2 and 3; nothing in mode 1. Inside, touch the buffer, not the words."""
        return self._lock

    def door(
        self, *, word: int, count: int, identity: tuple[int, int, int], refuse: Refuse, last: Last, aside: Aside
    ) -> PermitCounter:
        """A door on a gate's word (count -1), or on a state word and the count of a slot."""
        if self.mode == "native":
            from interlock.shm import _core

            return _core.Door(self._buffer, word, count, identity, refuse, last, aside)
        return PlainPermitCounter(self.words, word, count, identity, refuse, last, aside)

"""How the words of a region are accessed: by the C core, or by plain Python under a file lock.

Rule 1: a region records its mode, and a process that works in the other mode is refused: the two do not exclude each
other.
Rule 2: the C core is used where it is installed. INTERLOCK_SHM=native|flock asks for one mode, or raises.
"""

from __future__ import annotations

import os
import struct
import sys
from mmap import mmap
from typing import Literal

from interlock.errors import MissingExtraError, UsageError
from interlock.shm.memory.fallback import FileLock, LockedWords
from interlock.shm.memory.words import Words

ModeName = Literal["native", "flock"]

MODES: dict[ModeName, int] = {"native": 1, "flock": 3}
"""The number of each mode in the header of a region. 2 was a mutex in the region, before 0.1."""

VARIABLE = "INTERLOCK_SHM"
"""The environment variable that selects the mode."""


def select_mode() -> ModeName:
    """Return the mode that the environment asks for, otherwise the C core if it is installed, otherwise the file lock.

    Raises UsageError for an unknown name, MissingExtraError for `native` where the C core is not installed.
    """
    if sys.byteorder != "little" or struct.calcsize("P") != 8 or sys.platform != "linux":
        raise UsageError("shared memory needs a 64-bit little-endian Linux", code="shm.machine", hint="use a store")
    wanted = os.environ.get(VARIABLE, "")
    if wanted == "flock":
        return "flock"
    if wanted not in {"", "native"}:
        raise UsageError(
            f"unknown mode of shared memory: {VARIABLE}={wanted}",
            code="shm.mode_unknown",
            hint=f"one of {', '.join(MODES)}",
        )
    if has_core():
        return "native"
    if wanted:
        raise MissingExtraError(
            f"{VARIABLE}={wanted}, but the C core is not installed",
            code="shm.mode_missing",
            hint="install a wheel that has the C core, or a compiler",
        )
    return "flock"


def has_core() -> bool:
    """Return whether the C core is installed."""
    try:
        from interlock.shm import _core
    except ImportError:
        return False
    return _core is not None


def open_words(mode: ModeName, buffer: mmap, *, path: str) -> Words:
    """Return the words of a mapped region, in its mode. `path` is the file that the fallback locks."""
    if mode == "native":
        from interlock.shm import _core

        return _core.Words(buffer)
    return LockedWords(buffer, FileLock(path))

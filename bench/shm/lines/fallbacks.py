"""Words in every mode of shared memory: a load, an addition and a swap, through the region's own operations.

For comparison, the part of the kernel in an operation under a file lock: the two system calls, made from Python.
"""

from __future__ import annotations

import fcntl
import os
import platform
from itertools import repeat
from time import process_time_ns

import interlock
from bench.shm.line import Answer, Line, check
from interlock.shm.memory.modes import MODES, VARIABLE
from interlock.shm.memory.region import MemoryRegion


def _line(mode: str) -> Line:
    os.environ[VARIABLE] = mode
    region = MemoryRegion.create(slots=1)
    check(mode, region.mode)
    word = region.area("bench", 64)
    words = region.words
    load, add, swap = words.load, words.add, words.swap

    def operations(count: int) -> Answer:
        before = load(word)
        start = process_time_ns()
        for _ in repeat(None, count):
            add(word, 1)
            value = load(word)
            swap(word, value, value + 1)
        took = process_time_ns() - start
        check(before + 2 * count, load(word))
        return {"value": took / (3e3 * count)}

    return Line(name=f"interlock, {mode}", version=interlock.__version__, drives={"operations": operations})


def _raw_flock() -> Line:
    region = MemoryRegion.create(slots=1)  # in any mode: only the file matters

    def pairs(count: int) -> Answer:
        lock, descriptor = fcntl.flock, region.fd
        start = process_time_ns()
        for _ in repeat(None, count):
            lock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            lock(descriptor, fcntl.LOCK_UN)
        return {"value": (process_time_ns() - start) / (1e3 * count)}

    return Line(name="raw, two calls of flock", version=platform.release(), drives={"operations": pairs})


LINES = {"raw-flock": _raw_flock} | {mode: (lambda mode=mode: _line(mode)) for mode in MODES}

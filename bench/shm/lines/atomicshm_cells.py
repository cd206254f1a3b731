"""atomicshm: the two operations of a gate, bound to a cell, which is its fastest form.

A gate enters by a swap, because it has to see the phase, and may leave by a subtraction; that is the line the goal is
judged on. Two additions are shown too: they are cheaper, but no gate can be made of them. Neither has a permit, an
overflow check or a close.
"""

from __future__ import annotations

from importlib.metadata import version
from itertools import repeat
from time import process_time_ns

import atomicshm

from bench.shm.line import Answer, Line, check
from bench.shm.lines.gates import UNROLLED

SWAP_SUBTRACT, ADD_SUBTRACT = "swap and subtract", "add and subtract"


def _line(what: str) -> Line:
    cell = atomicshm.AtomicView(bytearray(4096)).cell_u64(64)
    swap, add, subtract = cell.cas, cell.fetch_add, cell.fetch_sub

    def swapped(count: int) -> int:
        start = process_time_ns()
        for _ in repeat(None, count // UNROLLED):
            swap(0, 1)
            subtract(1)
            swap(0, 1)
            subtract(1)
            swap(0, 1)
            subtract(1)
            swap(0, 1)
            subtract(1)
            swap(0, 1)
            subtract(1)
        return process_time_ns() - start

    def added(count: int) -> int:
        start = process_time_ns()
        for _ in repeat(None, count // UNROLLED):
            add(1)
            subtract(1)
            add(1)
            subtract(1)
            add(1)
            subtract(1)
            add(1)
            subtract(1)
            add(1)
            subtract(1)
        return process_time_ns() - start

    def pair(count: int) -> Answer:
        took = swapped(count) if what == SWAP_SUBTRACT else added(count)
        check(0, cell.load())
        return {"value": took / count}

    return Line(name=f"atomicshm, {what}", version=version("atomicshm"), drives={"pair": pair})


LINES = {"swap": lambda: _line(SWAP_SUBTRACT), "add": lambda: _line(ADD_SUBTRACT)}

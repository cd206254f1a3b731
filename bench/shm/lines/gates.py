"""Interlock's doors: the bare pair, permits given back by hand, and permits of a `with` block."""

from __future__ import annotations

from collections.abc import Callable
from itertools import repeat
from time import process_time_ns

import interlock
from bench.shm.line import Answer, Line, check
from interlock.shm.lifecycle.gate import Gate
from interlock.shm.lifecycle.lifecycle import Lifecycle
from interlock.shm.lifecycle.permits import Permit
from interlock.shm.memory.region import MemoryRegion

UNROLLED = 5
"""Pairs in each turn of a loop, so that the loop itself does not count."""


def _opened(way: str) -> Gate | Lifecycle:
    region = MemoryRegion.create(slots=8)  # lives as long as the process
    door = Gate(region) if way == "gate" else Lifecycle(region)
    door.start()
    return door


def _bare(way: str) -> Line:
    door = _opened(way)
    enter, leave = door.enter_unchecked, door.exit_unchecked

    def pair(count: int) -> Answer:
        began = process_time_ns()
        for _ in repeat(None, count // UNROLLED):
            enter()
            leave()
            enter()
            leave()
            enter()
            leave()
            enter()
            leave()
            enter()
            leave()
        took = process_time_ns() - began
        check((0, True), (door.permits, enter()))
        leave()
        return {"value": took / count}

    return Line(name=f"interlock, {way}, bare pair", version=interlock.__version__, drives={"pair": pair})


def _permit(way: str) -> Line:
    door = _opened(way)

    def pair(count: int) -> Answer:
        took = _timed_permits(door.enter, door.exit, count)
        check(0, door.permits)
        return {"value": took / count}

    def block(count: int) -> Answer:
        enter = door.enter
        began = process_time_ns()
        for _ in repeat(None, count):
            with enter():
                pass
        took = process_time_ns() - began
        check(0, door.permits)
        return {"value": took / count}

    return Line(name=f"interlock, {way}, permit", version=interlock.__version__, drives={"pair": pair, "with": block})


def _timed_permits(enter: Callable[[], Permit], leave: Callable[[Permit], bool], count: int) -> int:
    began = process_time_ns()
    for _ in repeat(None, count // UNROLLED):
        leave(enter())
        leave(enter())
        leave(enter())
        leave(enter())
        leave(enter())
    return process_time_ns() - began


LINES = {
    "gate-bare": lambda: _bare("gate"),
    "life-bare": lambda: _bare("lifecycle"),
    "gate-permit": lambda: _permit("gate"),
    "life-permit": lambda: _permit("lifecycle"),
}

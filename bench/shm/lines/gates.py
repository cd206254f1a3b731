"""Enter and exit of a gate and of a lifecycle: unchecked, with a permit, and in a `with` block."""

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


def _open(way: str) -> Gate | Lifecycle:
    region = MemoryRegion.create(slots=8)  # until the process ends
    gate = Gate(region) if way == "gate" else Lifecycle(region)
    gate.start()
    return gate


def _unchecked(way: str) -> Line:
    gate = _open(way)
    enter, leave = gate.enter_unchecked, gate.exit_unchecked

    def pair(count: int) -> Answer:
        start = process_time_ns()
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
        took = process_time_ns() - start
        check((0, True), (gate.permits, enter()))
        leave()
        return {"value": took / count}

    return Line(name=f"interlock, {way}, unchecked", version=interlock.__version__, drives={"pair": pair})


def _permit(way: str) -> Line:
    gate = _open(way)

    def pair(count: int) -> Answer:
        took = _timed_permits(gate.enter, gate.exit, count)
        check(0, gate.permits)
        return {"value": took / count}

    def block(count: int) -> Answer:
        enter = gate.enter
        start = process_time_ns()
        for _ in repeat(None, count):
            with enter():
                pass
        took = process_time_ns() - start
        check(0, gate.permits)
        return {"value": took / count}

    return Line(name=f"interlock, {way}, permit", version=interlock.__version__, drives={"pair": pair, "with": block})


def _timed_permits(enter: Callable[[], Permit], leave: Callable[[Permit], bool], count: int) -> int:
    start = process_time_ns()
    for _ in repeat(None, count // UNROLLED):
        leave(enter())
        leave(enter())
        leave(enter())
        leave(enter())
        leave(enter())
    return process_time_ns() - start


LINES = {
    "gate-unchecked": lambda: _unchecked("gate"),
    "lifecycle-unchecked": lambda: _unchecked("lifecycle"),
    "gate-permit": lambda: _permit("gate"),
    "lifecycle-permit": lambda: _permit("lifecycle"),
}

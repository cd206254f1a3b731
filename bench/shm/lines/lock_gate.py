"""A gate as a person writes it with `threading.Lock`: phase and count behind the lock, a permit by `with`."""

from __future__ import annotations

import platform
import threading
from itertools import repeat
from time import process_time_ns

from bench.shm.line import Answer, Line, check


class LockGate:
    """Admits while running; the last one out closes. For the threads of one process only."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._phase = "running"
        self.inside = 0

    def __enter__(self) -> None:
        with self._lock:
            if self._phase != "running":
                raise RuntimeError("not running")
            self.inside += 1

    def __exit__(self, *exception: object) -> None:
        with self._lock:
            self.inside -= 1
            if self.inside == 0 and self._phase == "draining":
                self._phase = "closed"


def _line() -> Line:
    gate = LockGate()

    def block(count: int) -> Answer:
        start = process_time_ns()
        for _ in repeat(None, count):
            with gate:
                pass
        took = process_time_ns() - start
        check(0, gate.inside)
        return {"value": took / count}

    return Line(name="a gate with threading.Lock", version=platform.python_version(), drives={"with": block})


LINES = {"lock": _line}

"""The negative control: a service with two words, state and count, step by step.

Each line of the original is one or two atomic operations, in the same order, with its faults. The explorer must find
three of them: a refused entry that leaves the service draining forever, a close while a worker is inside, and a waiter
that sleeps on the value that it waits for.

`repaired` is the positive control: the smallest change that makes two words correct. The count is read again after the
state, a worker that backs out may close too, and a round of waiting reads the state once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tests.model.explorer import Cells, Configuration, Model, Process
from tests.model.operations import Script, add, cas, futex_wait, load, pause, wake

INSIDE = "inside"
INITIAL = {"state": "RUNNING", "count": 0}


def model(*, workers: int, repaired: bool, waiter: bool = True) -> Model:
    """Return a model of some workers, one drainer and one waiter on a running service."""
    names = [f"worker {number}" for number in range(workers)]
    processes = [Process(name, lambda: _worker(repaired=repaired)) for name in names]
    processes.append(Process("drainer", lambda: _drainer(repaired=repaired)))
    if waiter:
        processes.append(Process("waiter", lambda: _waiter(repaired=repaired)))
    return Model(memory=INITIAL, processes=tuple(processes), unsafe=_unsafe, unsettled=_unsettled)


CONFIGURATIONS: Final[dict[str, Configuration]] = {
    "1 worker, waiter": lambda _fault: model(workers=1, repaired=True),
    "2 workers, waiter": lambda _fault: model(workers=2, repaired=True),
    "3 workers, waiter": lambda _fault: model(workers=3, repaired=True),
}

WEAKNESSES: Final[dict[str, tuple[Configuration, str]]] = {
    "a refused entry": (
        lambda _fault: model(workers=1, repaired=False, waiter=False),
        "draining forever: no process is left that would close",
    ),
    "an exit decides by an old count": (
        lambda _fault: model(workers=2, repaired=False, waiter=False),
        "closed while a worker is inside",
    ),
    "two reads in one round of waiting": (
        lambda _fault: model(workers=0, repaired=False),
        "lost wake-up: the waiter still sleeps, the service is closed",
    ),
}


def _unsafe(cells: Cells, where: Mapping[str, str]) -> str | None:
    inside = INSIDE in where.values()
    return "closed while a worker is inside" if cells["state"] == "CLOSED" and inside else None


def _unsettled(cells: Cells, results: Mapping[str, Any]) -> str | None:
    if cells["state"] == "DRAINING":
        return "draining forever: no process is left that would close"
    return (
        "lost wake-up: the waiter still sleeps, the service is closed" if results.get("waiter") == "waiting" else None
    )


def _worker(*, repaired: bool) -> Script:
    if (yield from _try_enter(repaired=repaired)):
        yield pause(at=INSIDE)
        yield from _exit(repaired=repaired)


def _try_enter(*, repaired: bool) -> Script:
    if (yield load("state")) != "RUNNING":
        return False
    yield add("count", 1)
    if (yield load("state")) != "RUNNING":
        if repaired:
            yield from _exit(repaired=True, at="")
        else:
            yield add("count", -1)
        return False
    return True


def _exit(*, repaired: bool, at: str = INSIDE) -> Script:
    last = (yield add("count", -1, at=at)) == 1
    if last and (yield load("state")) == "DRAINING" and (not repaired or (yield load("count")) == 0):
        yield from _close()


def _drainer(*, repaired: bool) -> Script:
    if (yield cas("state", "RUNNING", "DRAINING")) and (yield load("count")) == 0:
        yield from _close()


def _close() -> Script:
    if (yield cas("state", "DRAINING", "CLOSED")):
        yield wake("state")


def _waiter(*, repaired: bool) -> Script:
    while (state := (yield load("state"))) != "CLOSED":
        expected = state if repaired else (yield load("state"))
        yield from futex_wait("waiter", "state", expected, bounded=False)

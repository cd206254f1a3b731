"""The gate: phase and count packed into one word, changed by compare-and-swap only.

Word = (phase, count). The steps are those of `interlock.shm.lifecycle.gate`:

start  CAS INIT|0 -> RUNNING|0, wake.  abort  CAS INIT|0 -> CLOSED|0, wake.
enter  load; while RUNNING: CAS count+1; a lost CAS returns the word for the next attempt.
exit   load; count 0 is refused; CAS count-1, but the last exit while DRAINING goes to CLOSED, and wakes.
drain  load; while RUNNING: CAS to DRAINING, or to CLOSED if the count is 0; wake.
wait   load once per round; sleep on the phase half.

`fault` leaves one rule out; each fault must be found.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tests.model.explorer import WAITING, Cells, Configuration, Model, Process
from tests.model.operations import Script, add, cas, futex_wait, load, pause, swap, wake

INSIDE = "inside"
INIT, RUNNING, DRAINING, CLOSED = "INIT", "RUNNING", "DRAINING", "CLOSED"


def model(
    *,
    workers: int,
    drainers: int = 1,
    waiter: bool = False,
    started: bool = True,
    stray: bool = False,
    kills: int = 0,
    fault: str = "",
) -> Model:
    """Return a model of workers and drainers on one gate.

    If `started` is False, there are a process that starts and one that aborts; `stray` adds an exit without an enter.
    """
    processes = [Process(f"worker {number}", lambda: _worker(fault)) for number in range(workers)]
    processes += [Process(f"drainer {number}", lambda: _drain(fault)) for number in range(drainers)]
    processes += [Process("waiter", lambda: _wait("waiter", fault))] * waiter
    processes += [Process("stray", lambda: _exit(fault, at=""))] * stray
    if not started:
        processes += [Process("starter", lambda: _begin(RUNNING)), Process("aborter", lambda: _begin(CLOSED))]
    return Model(
        memory={"word": (RUNNING if started else INIT, 0), "closed": 0},
        processes=tuple(processes),
        unsafe=_unsafe,
        unsettled=_unsettled,
        mortal=frozenset(process.name for process in processes if process.name.startswith("worker")),
        kills=kills,
    )


CONFIGURATIONS: Final[dict[str, Configuration]] = {
    "1 worker, waiter": lambda fault: model(workers=1, waiter=True, fault=fault),
    "2 workers, waiter": lambda fault: model(workers=2, waiter=True, fault=fault),
    "3 workers": lambda fault: model(workers=3, fault=fault),
    "2 workers, 2 drainers": lambda fault: model(workers=2, drainers=2, fault=fault),
    "2 workers, waiter, start and abort": lambda fault: model(workers=2, waiter=True, started=False, fault=fault),
    "waiter, stray exit": lambda fault: model(workers=0, waiter=True, stray=True, fault=fault),
}

FAULTS: Final = {
    "drain never closes": ("1 worker, waiter", "DRAINING forever: no process is left that would close"),
    "exit does not close": ("1 worker, waiter", "DRAINING forever: no process is left that would close"),
    "exit does not wake": ("1 worker, waiter", "the waiter still sleeps, the gate is closed"),
    "drain does not wake": ("1 worker, waiter", "the waiter still sleeps, the gate is closed"),
    "exit below zero": ("waiter, stray exit", "the count is below the number of workers inside"),
    "enter keeps the old word": ("2 workers, waiter", "stuck: no settled end can be reached any more"),
    "two loads per round of waiting": ("1 worker, waiter", "the waiter still sleeps, the gate is closed"),
}

WEAKNESSES: Final[dict[str, tuple[Configuration, str]]] = {
    "a worker is killed inside": (
        lambda _fault: model(workers=1, waiter=True, kills=1),
        "DRAINING forever: no process is left that would close",
    ),
}


def _unsafe(cells: Cells, where: Mapping[str, str]) -> str | None:
    phase, count = cells["word"]
    inside = list(where.values()).count(INSIDE)
    if phase == CLOSED and inside:
        return "closed while a worker is inside"
    if count < inside:
        return "the count is below the number of workers inside"
    return "closed twice" if cells["closed"] > 1 else None


def _unsettled(cells: Cells, results: Mapping[str, Any]) -> str | None:
    phase, _ = cells["word"]
    asked = any(result == "drained" for result in results.values())
    if phase == DRAINING or (phase == RUNNING and asked):
        return f"{phase} forever: no process is left that would close"
    return "the waiter still sleeps, the gate is closed" if phase == CLOSED and WAITING in results.values() else None


def _begin(phase: str) -> Script:
    if (yield cas("word", (INIT, 0), (phase, 0))):
        yield wake("word")


def _worker(fault: str) -> Script:
    if (yield from _enter(fault)):
        yield pause(at=INSIDE)
        yield from _exit(fault, at=INSIDE)


def _enter(fault: str) -> Script:
    word = yield load("word")
    while word[0] == RUNNING:
        seen = yield swap("word", word, (RUNNING, word[1] + 1))
        if seen == word:
            return True
        if fault != "enter keeps the old word":
            word = seen
    return False


def _exit(fault: str, *, at: str) -> Script:
    word = yield load("word", at=at)
    while True:
        phase, count = word
        if count == 0 and fault != "exit below zero":
            return "refused"
        after = (phase, count - 1)
        closes = after == (DRAINING, 0)
        if closes and fault != "exit does not close":
            after = (CLOSED, 0)
        seen = yield swap("word", word, after, at=at)
        if seen == word:
            break
        word = seen
    if closes:
        yield add("closed", 1)
        if fault != "exit does not wake":
            yield wake("word")
    return "left"


def _drain(fault: str) -> Script:
    word = yield load("word")
    while word[0] == RUNNING:
        closes = word[1] == 0 and fault != "drain never closes"
        seen = yield swap("word", word, (CLOSED, 0) if closes else (DRAINING, word[1]))
        if seen == word:
            if closes:
                yield add("closed", 1)
            if fault != "drain does not wake":
                yield wake("word")
            return "drained"
        word = seen
    return "lost"


def _wait(me: str, fault: str) -> Script:
    while (phase := (yield load("word"))[0]) != CLOSED:
        if fault == "two loads per round of waiting":
            phase = (yield load("word"))[0]
        yield from futex_wait(me, "word", phase, bounded=False)

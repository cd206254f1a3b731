"""The configurations of a lifecycle that are explored, and for every fault one that finds it.

Safety: no process is inside once the phase is CLOSING; no two live cleanups at the same time; without a kill the
cleanup runs once.
Liveness: the phase reaches CLOSED. Two ends need not reach it: a death that no process has noticed (no process waits,
and the slot is free: the next process that joins or waits notices it), and a region that requires a cleanup when no
live process has one.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final, NamedTuple

from tests.model.explorer import DEAD, WAITING, Cells, Configuration, Model, Process
from tests.model.lifecycle import (
    CLEANUP,
    CLOSED,
    CLOSING,
    INSIDE,
    REFUSED,
    RUNNING,
    STOLE_COUNT,
    Me,
    Rules,
    drain,
    newcomer,
    stray,
    successor,
    wait,
    worker,
)
from tests.model.operations import FREE


class Roles(NamedTuple):
    """How many processes of each role there are, and which may be killed."""

    workers: int = 1
    threads: int = 0  # further threads of the first worker's process, each a worker
    strays: int = 0  # threads of the first worker's process that exit without having entered
    waiting_thread: bool = False  # a thread of the first worker's process waits
    second_drainer: bool = False
    drainer_waits: bool = False
    waiters: int = 0
    newcomers: int = 0
    successor: bool = False  # joins after the death of the first worker
    cleaners: frozenset[str] | None = None  # who joined with a cleanup; None: all
    mortal: tuple[str, ...] = ("worker", "drainer", "newcomer")
    kills: int = 0
    bounded: bool = True


def model(roles: Roles, *, fault: str = "") -> Model:
    """Return a model of these roles on a running region. All processes but newcomers have joined."""
    groups = [f"worker {number}" for number in range(roles.workers)] + ["drainer"]
    groups += ["drainer again"] * roles.second_drainer
    groups += [f"waiter {number}" for number in range(roles.waiters)]
    rules = Rules(len(groups), roles.bounded, roles.cleaners is not None, fault)

    def cleans(group: str) -> bool:
        return roles.cleaners is None or group in roles.cleaners

    members = {group: Me(group, group, slot, 1, cleans(group)) for slot, group in enumerate(groups)}
    processes = [_process(me, rules, roles) for me in members.values()]
    first = members[groups[0]]
    for number in range(roles.threads):
        thread = first._replace(name=f"{first.owner}, thread {number + 1}")
        processes.append(Process(thread.name, partial(worker, thread, rules), first.owner))
    processes += [Process("stray", lambda: stray(first, rules), first.owner)] * roles.strays
    if roles.waiting_thread:
        mine = first._replace(name=f"{first.owner}, waiting")
        processes.append(Process(mine.name, lambda: wait(mine, rules), first.owner))
    arrivals = [f"newcomer {number}" for number in range(roles.newcomers)]
    processes += [Process(each, partial(newcomer, each, rules, cleans=cleans(each))) for each in arrivals]
    if roles.successor:
        processes.append(Process("successor", partial(successor, "successor", rules, of=first.owner)))
    mortal = {each for each in (*groups, *arrivals) if each.startswith(roles.mortal)} if roles.kills else set()
    return Model(
        memory=_memory(groups),
        processes=tuple(processes),
        unsafe=_unsafe,
        unsettled=lambda cells, results: _unsettled(cells, results, roles=roles),
        excused=lambda cells, where: _excused(cells, where, roles=roles),
        locks=tuple(f"lock {slot}" for slot in range(len(groups))) if fault != "locks outlive their owner" else (),
        mortal=frozenset(mortal),
        kills=roles.kills,
    )


def _memory(groups: list[str]) -> dict[str, Any]:
    memory: dict[str, Any] = {"state": (RUNNING,), "cleaned": 0}
    for slot, group in enumerate(groups):
        memory |= {f"count {slot}": 0, f"generation {slot}": 1, f"lock {slot}": group}
    return memory


def _process(me: Me, rules: Rules, roles: Roles) -> Process:
    if me.name.startswith("drainer"):
        return Process(me.name, lambda: drain(me, rules, waits=roles.drainer_waits))
    if me.name.startswith("waiter"):
        return Process(me.name, lambda: wait(me, rules))
    return Process(me.name, lambda: worker(me, rules))


def _unsafe(cells: Cells, where: Mapping[str, str]) -> str | None:
    places = list(where.values())
    if cells["state"][0] in {CLOSING, CLOSED} and INSIDE in places and STOLE_COUNT not in places:
        return "closing while a live process is inside"
    return "two live cleanups at the same time" if places.count(CLEANUP) > 1 else None


def _excused(cells: Cells, where: Mapping[str, Any], *, roles: Roles) -> bool:
    """Nothing is required: no drain was requested and the drainer is dead, or all processes with a cleanup are."""
    if cells["state"] == (RUNNING,):
        return bool(where["drainer"] == DEAD)
    return roles.cleaners is not None and all(where[each] == DEAD for each in roles.cleaners)


def _unsettled(cells: Cells, results: Mapping[str, Any], *, roles: Roles) -> str | None:
    phase = cells["state"][0]
    dead = DEAD in results.values()
    if STOLE_COUNT in results.values():
        return None
    if results.get("successor") == REFUSED:
        return "no process could join although a slot was free"
    if phase == CLOSED:
        if any(result == WAITING for name, result in results.items() if name != "successor"):
            return "a waiter still sleeps, the region is closed"
        if cells["cleaned"] == 0:
            return "closed without a cleanup"
        return "the cleanup ran twice without a kill" if cells["cleaned"] > 1 and not dead else None
    if _excused(cells, results, roles=roles):
        return None
    bytes_free = [name for name in cells if name.startswith("lock ") and cells[name] == FREE]
    unnoticed = dead and bytes_free and WAITING not in results.values()
    return None if unnoticed else f"{phase} forever: no process is left that would close"


def _configuration(roles: Roles) -> Configuration:
    return lambda fault: model(roles, fault=fault)


CONFIGURATIONS: Final = {
    "1 worker": _configuration(Roles()),
    "1 worker, waiter": _configuration(Roles(waiters=1)),
    "1 worker, waiter, sleeps without a limit": _configuration(Roles(waiters=1, bounded=False)),
    "2 workers, waiter, sleeps without a limit": _configuration(Roles(workers=2, waiters=1, bounded=False)),
    "1 worker, 2 drainers": _configuration(Roles(second_drainer=True, drainer_waits=True)),
    "1 worker, stray exit": _configuration(Roles(strays=1, waiters=1)),
    "process of 1 worker and 1 waiting thread": _configuration(Roles(waiting_thread=True)),
    "process of 2 workers and 1 waiting thread": _configuration(Roles(threads=1, waiting_thread=True)),
    "1 worker, waiter, 1 kill": _configuration(Roles(waiters=1, kills=1)),
    "1 worker, waiter, 2 kills": _configuration(Roles(waiters=1, kills=2)),
    "2 waiters, 1 kill": _configuration(Roles(workers=0, waiters=2, kills=1)),
    "1 worker, newcomer, 1 kill": _configuration(Roles(newcomers=1, kills=1)),
    "1 worker, waiter, newcomer, 1 kill": _configuration(Roles(waiters=1, newcomers=1, kills=1)),
    "1 worker, waiter, newcomer, 2 kills": _configuration(Roles(waiters=1, newcomers=1, kills=2)),
    "2 workers, newcomer, 1 kill": _configuration(Roles(workers=2, newcomers=1, kills=1)),
    "1 worker, waiter, successor, 1 kill": _configuration(
        Roles(waiters=1, successor=True, mortal=("worker",), kills=1)
    ),
    "cleanup of the drainer": _configuration(Roles(drainer_waits=True, cleaners=frozenset({"drainer"}))),
    "cleanup of the waiter, 1 kill": _configuration(Roles(waiters=1, cleaners=frozenset({"waiter 0"}), kills=1)),
    "cleanup of the drainer and of 1 of 2 waiters, 1 kill": _configuration(
        Roles(workers=0, waiters=2, cleaners=frozenset({"drainer", "waiter 1"}), kills=1)
    ),
    "cleanup of all but the worker, newcomer, 1 kill": _configuration(
        Roles(waiters=1, newcomers=1, cleaners=frozenset({"drainer", "newcomer 0", "waiter 0"}), kills=1)
    ),
}

LONG_CONFIGURATIONS: Final = {
    "3 workers": _configuration(Roles(workers=3)),
    "1 worker, 2 waiters, 2 kills": _configuration(Roles(waiters=2, kills=2, mortal=("worker", "drainer", "waiter 0"))),
    "2 workers, waiter, 1 kill": _configuration(Roles(workers=2, waiters=1, kills=1)),
    "1 worker, waiter, 2 newcomers, 2 kills": _configuration(Roles(waiters=1, newcomers=2, kills=2)),
}

_INSIDE = "closing while a live process is inside"
_TWO = "two live cleanups at the same time"
_DRAINING = "DRAINING forever: no process is left that would close"
_STUCK = "stuck: no settled end can be reached any more"
_SLEEPS = "a waiter still sleeps, the region is closed"
_NO_CLEANUP = "closed without a cleanup"

FAULTS: Final = {
    "no second check": ("1 worker", _INSIDE),
    "second check before the count": ("1 worker", _INSIDE),
    "back-off does not scan": ("1 worker", _DRAINING),
    "exit does not scan": ("1 worker", _DRAINING),
    "exit repairs afterwards": ("1 worker, stray exit", _INSIDE),
    "scan counts dead processes": ("1 worker, waiter, 1 kill", _STUCK),
    "a process probes itself": ("process of 1 worker and 1 waiting thread", _INSIDE),
    "reclaim by time": ("1 worker", _INSIDE),
    "probe by locking": ("1 worker, waiter, successor, 1 kill", "no process could join although a slot was free"),
    "close by a store": ("1 worker", _TWO),
    "locks outlive their owner": ("1 worker, waiter, 1 kill", _STUCK),
    "a process without a cleanup closes": ("cleanup of the drainer", _NO_CLEANUP),
    "a process without a cleanup takes over": ("cleanup of the drainer and of 1 of 2 waiters, 1 kill", _NO_CLEANUP),
    "a failed cleanup stops": ("1 worker, waiter", _STUCK),
    "closing does not wake": ("1 worker, waiter, sleeps without a limit", _SLEEPS),
    "no process takes over": ("1 worker, waiter, 1 kill", _STUCK),
    "a process takes over itself": ("process of 1 worker and 1 waiting thread", _TWO),
    "take over from a live closer": ("1 worker, waiter", _TWO),
    "take over by a store": ("2 waiters, 1 kill", _TWO),
    "drain by a store": ("1 worker, 2 drainers", _TWO),
    "waiter does not try to close": ("1 worker, waiter, 1 kill", _STUCK),
    "two loads per round of waiting": ("1 worker, waiter, sleeps without a limit", _SLEEPS),
    "count of a dead process is kept": ("1 worker, waiter, newcomer, 1 kill", _STUCK),
    "closer without generation": ("1 worker, waiter, newcomer, 1 kill", _STUCK),
    "newcomer does not try to close": ("1 worker, newcomer, 1 kill", _DRAINING),
}

WEAKNESSES: Final = {
    "sleeps without a limit, 1 kill": (_configuration(Roles(waiters=1, kills=1, bounded=False)), _DRAINING),
    "sleeps without a limit, cleanup of the waiter": (
        _configuration(Roles(waiters=1, cleaners=frozenset({"waiter 0"}), bounded=False)),
        _DRAINING,
    ),
}

"""The configurations of a pool that are explored, and for every fault one that finds it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final, NamedTuple

from tests.model.explorer import DEAD, Cells, Configuration, Model, Process
from tests.model.operations import FREE, Script, load, lock, store
from tests.model.task_table import CAPACITY, EXECUTING, Pool, recover, recover_tasks, round_of_work, submit


class Roles(NamedTuple):
    """The home of each task, and the processes. Slot 0 belongs to the survivor, which is never killed."""

    homes: tuple[int, ...] = (1,)
    submitters: tuple[int, ...] = (1,)  # slots whose process submits, and works once after each task
    thieves: tuple[int, ...] = ()  # slots whose process only works, once
    reapers: tuple[int, ...] = ()  # slots whose process only recovers the slot before its own
    newcomers: tuple[int, ...] = ()  # slots on which a process joins after the owner has died
    mortal: tuple[str, ...] = ("submitter", "thief", "reaper")
    kills: int = 0


def model(roles: Roles, *, fault: str = "") -> Model:
    """Return a model of these roles and the survivor."""
    members = {f"submitter {slot}": slot for slot in roles.submitters}
    members |= {f"thief {slot}": slot for slot in roles.thieves} | {f"reaper {slot}": slot for slot in roles.reapers}
    slots = 1 + max(0, *members.values())
    pool = Pool(roles.homes, slots, fault)
    processes = [Process("survivor", lambda: _survive(roles, pool))]
    scripts = {"submitter": _submitter, "thief": _thief, "reaper": _reaper}
    for name, slot in members.items():
        processes.append(Process(name, partial(scripts[name.split()[0]], slot, pool)))
    processes += [Process(f"newcomer {slot}", partial(_newcomer, slot, pool)) for slot in roles.newcomers]
    owners = {0: "survivor"} | {slot: name for name, slot in members.items()}
    return Model(
        memory=_memory(roles, owners, slots),
        processes=tuple(processes),
        unsafe=_unsafe,
        unsettled=_unsettled,
        excused=lambda cells, where: not _pending(cells),
        locks=tuple(f"lock {slot}" for slot in range(slots)),
        mortal=frozenset(process.name for process in processes if process.name.startswith(roles.mortal)),
        kills=roles.kills,
    )


def _memory(roles: Roles, owners: Mapping[int, str], slots: int) -> dict[str, Any]:
    memory: dict[str, Any] = {}
    for task in range(len(roles.homes)):
        memory |= {f"task {task}": ("FREE",), f"ran {task}": 0}
    for slot in range(slots):
        memory |= {f"top {slot}": 0, f"bottom {slot}": 0, f"claimed {slot}": FREE}
        memory |= {f"lock {slot}": owners.get(slot, FREE), f"joined {slot}": int(slot in owners)}
        memory |= {f"item {slot}.{place}": FREE for place in range(CAPACITY)}
    return memory


def _unsafe(_cells: Cells, where: Mapping[str, str]) -> str | None:
    executing = [place for place in where.values() if place.startswith(EXECUTING)]
    return "two live processes execute one task" if len(executing) > len(set(executing)) else None


def _pending(cells: Cells) -> list[str]:
    return [name for name in cells if name.startswith("task ") and cells[name][0] in {"QUEUED", "CLAIMED"}]


def _unsettled(cells: Cells, results: Mapping[str, Any]) -> str | None:
    if _pending(cells):
        return "a task is lost"
    ran = [cells[name] for name in cells if name.startswith("ran ")]
    return "a task ran twice without a kill" if max(ran) > 1 and DEAD not in results.values() else None


def _submitter(slot: int, pool: Pool) -> Script:
    for task in range(len(pool.homes)):
        if pool.homes[task] == slot:
            yield from submit(slot, task)
            yield from round_of_work(slot, pool)


def _thief(slot: int, pool: Pool) -> Script:
    yield from round_of_work(slot, pool)


def _reaper(slot: int, pool: Pool) -> Script:
    yield from recover(f"reaper {slot}", slot, slot - 1, pool)


def _newcomer(slot: int, pool: Pool) -> Script:
    """Join on the slot of a dead process: recover first, then do the same as the dead one."""
    yield lock(f"lock {slot}", f"newcomer {slot}")
    if (yield load(f"joined {slot}")):
        yield from recover_tasks(slot, slot, pool)
    yield store(f"joined {slot}", 1)
    yield from _submitter(slot, pool)


def _survive(roles: Roles, pool: Pool) -> Script:
    """Submit, work, and recover dead processes, until all tasks are done."""
    for task in range(len(roles.homes)):
        if roles.homes[task] == 0:
            yield from submit(0, task)
    while True:
        worked = yield from round_of_work(0, pool)
        if worked:
            continue
        for dead in range(1, pool.slots):
            yield from recover("survivor", 0, dead, pool)
        left = False
        for task in range(len(roles.homes)):
            word = yield load(f"task {task}")
            left = left or word[0] != "DONE"
        if not left:
            return


def _configuration(roles: Roles) -> Configuration:
    return lambda fault: model(roles, fault=fault)


CONFIGURATIONS: Final = {
    "1 submitter, 1 kill": _configuration(Roles(kills=1)),
    "1 submitter, thief": _configuration(Roles(thieves=(2,))),
    "1 submitter, thief, 2 kills": _configuration(Roles(thieves=(2,), kills=2)),
    "1 submitter, reaper, 2 kills": _configuration(Roles(reapers=(2,), kills=2)),
    "1 submitter of 2, 1 kill": _configuration(Roles(homes=(1, 1), kills=1)),
    "1 submitter of 2, newcomer, 1 kill": _configuration(Roles(homes=(1, 1), newcomers=(1,), kills=1)),
    "task of the survivor, thief, reaper, 2 kills": _configuration(
        Roles(homes=(0,), submitters=(), thieves=(1,), reapers=(2,), kills=2)
    ),
}

LONG_CONFIGURATIONS: Final = {
    "1 submitter of 2, reaper, 2 kills": _configuration(Roles(homes=(1, 1), reapers=(2,), kills=2)),
    "1 submitter of 2, newcomer, 2 kills": _configuration(
        Roles(homes=(1, 1), newcomers=(1,), mortal=("submitter", "newcomer"), kills=2)
    ),
    "2 submitters, 1 kill": _configuration(Roles(homes=(1, 2), submitters=(1, 2), kills=1)),
    "1 submitter, thief, newcomer, 1 kill": _configuration(Roles(thieves=(2,), newcomers=(2,), kills=1)),
}

_LOST = "stuck: no settled end can be reached any more"
_TWO = "two live processes execute one task"

FAULTS: Final = {
    "id is not recorded before it leaves": ("1 submitter, thief, 2 kills", _LOST),
    "claimed id is not recovered": ("1 submitter, thief, 2 kills", _LOST),
    "range is not recovered": ("1 submitter, 1 kill", _LOST),
    "claims are not recovered": ("1 submitter, 1 kill", _LOST),
    "recovery without a claimed id": ("task of the survivor, thief, reaper, 2 kills", _LOST),
    "deque is not repaired": ("1 submitter of 2, newcomer, 1 kill", _LOST),
    "bottom is set to top": ("1 submitter of 2, newcomer, 1 kill", _LOST),
    "recovery without the lock byte": ("1 submitter of 2, newcomer, 1 kill", _TWO),
    "claim without a swap": ("1 submitter, thief, 2 kills", _TWO),
}

"""Tasks in a table, their ids in deques, the claimed id between the two, and the recovery of dead processes.

Task word = (state, slot): FREE -> QUEUED(home) -> CLAIMED(slot) -> DONE, changed by compare-and-swap only.

submit   write the payload; CAS FREE -> QUEUED(me); push the id to my deque.
run      pop from my deque, else steal. Before the store of the pop and before the swap of the theft, the id is stored
         as my claimed id. CAS QUEUED -> CLAIMED(me); lost: drop the id, it is a stale duplicate. Clear the claimed id.
         Execute. CAS -> DONE.
recover  take the lock byte of the dead slot. Steal the ids of its deque and repair it (`repair_deque`); push its
         claimed id if that task is still QUEUED; queue again what is QUEUED in its range or CLAIMED by it, recorded as
         my claimed id, because a recovering process may be killed too. Release the byte.

Every task that was QUEUED is DONE in the end, as long as a process lives; no two live processes execute one task at the
same time; without a kill each task is executed once.
"""

from __future__ import annotations

from typing import NamedTuple

from tests.model.operations import FREE, Script, add, cas, load, pause, store

CAPACITY = 4
EXECUTING = "executing"


class Pool(NamedTuple):
    """What all processes agree on: each task's home slot, and the rule that is left out."""

    homes: tuple[int, ...]
    slots: int
    fault: str = ""


def submit(slot: int, task: int) -> Script:
    """Queue a task of the own range."""
    if (yield cas(f"task {task}", ("FREE",), ("QUEUED", slot))):
        yield from push(slot, task)


def push(slot: int, task: int) -> Script:
    """The owner's end of the deque."""
    bottom = yield load(f"bottom {slot}")
    yield store(f"item {slot}.{bottom % CAPACITY}", task)
    yield store(f"bottom {slot}", bottom + 1)


def pop(slot: int, pool: Pool) -> Script:
    """The newest id of the own deque, or None. It is recorded as claimed before it leaves the deque."""
    lowered = (yield load(f"bottom {slot}")) - 1
    if lowered < (yield load(f"top {slot}")):
        return None
    task = yield load(f"item {slot}.{lowered % CAPACITY}")
    if pool.fault != "id is not recorded before it leaves":
        yield store(f"claimed {slot}", task)
    yield store(f"bottom {slot}", lowered)
    top = yield load(f"top {slot}")
    if top < lowered:
        return task
    won = top == lowered and (yield cas(f"top {slot}", top, top + 1))
    yield store(f"bottom {slot}", lowered + 1)
    return task if won else None


def steal(slot: int, victim: int, pool: Pool) -> Script:
    """The oldest id of another deque, or None."""
    top = yield load(f"top {victim}")
    if top >= (yield load(f"bottom {victim}")):
        return None
    task = yield load(f"item {victim}.{top % CAPACITY}")
    if pool.fault != "id is not recorded before it leaves":
        yield store(f"claimed {slot}", task)
    return task if (yield cas(f"top {victim}", top, top + 1)) else None


def run(slot: int, task: int, pool: Pool) -> Script:
    """Claim and execute the claimed id, or drop it."""
    word = yield load(f"task {task}")
    mine = ("CLAIMED", slot)
    claimed = word[0] == "QUEUED" and (yield cas(f"task {task}", word, mine))
    if pool.fault == "claim without a swap":
        claimed = word[0] in {"QUEUED", "CLAIMED"}
    yield store(f"claimed {slot}", FREE)
    if claimed:
        yield pause(at=f"{EXECUTING} {task}")
        yield add(f"ran {task}", 1, at=f"{EXECUTING} {task}")
        yield cas(f"task {task}", mine, ("DONE",))


def round_of_work(slot: int, pool: Pool) -> Script:
    """Take one id from any deque and run it. Returns whether there was one."""
    task = yield from pop(slot, pool)
    for victim in range(pool.slots):
        if task is None and victim != slot:
            task = yield from steal(slot, victim, pool)
    if task is None:
        return False
    yield from run(slot, task, pool)
    return True


def recover(me: str, slot: int, dead: int, pool: Pool) -> Script:
    """Recover a dead process: its claimed id, its deque, its range and its claims."""
    if pool.fault == "recovery without the lock byte":
        if (yield load(f"lock {dead}")) != FREE:
            return
    elif not (yield cas(f"lock {dead}", FREE, me)):
        return
    if (yield load(f"joined {dead}")):
        yield from recover_tasks(slot, dead, pool)
        yield store(f"joined {dead}", 0)
    if pool.fault != "recovery without the lock byte" and slot != dead:
        yield store(f"lock {dead}", FREE)


def recover_tasks(slot: int, dead: int, pool: Pool) -> Script:
    """The body of a recovery: deque, claimed id, tasks."""
    if pool.fault != "deque is not repaired":
        yield from repair_deque(slot, dead, pool)
    claimed_id = yield load(f"claimed {dead}")
    if claimed_id != FREE and pool.fault != "claimed id is not recovered":
        if (yield load(f"task {claimed_id}"))[0] == "QUEUED":
            yield from push(slot, claimed_id)
        yield store(f"claimed {dead}", FREE)
    for task in range(len(pool.homes)):
        word = yield load(f"task {task}")
        queued = word[0] == "QUEUED" and pool.homes[task] == dead and pool.fault != "range is not recovered"
        claimed = word == ("CLAIMED", dead) and pool.fault != "claims are not recovered"
        if queued or claimed:
            if pool.fault != "recovery without a claimed id":
                yield store(f"claimed {slot}", task)
            if (yield cas(f"task {task}", word, ("QUEUED", slot))):
                yield from push(slot, task)
            yield store(f"claimed {slot}", FREE)


def repair_deque(slot: int, dead: int, pool: Pool) -> Script:
    """Move the ids of a dead process' deque to mine, or, if it is mine now, keep what thieves can see of it.

    Its owner may have died inside a pop, with the bottom lowered to the top or below it, while a thief that saw the old
    bottom is about to swap. So an empty deque is advanced by a swap of the top, which that thief then loses.
    """
    while True:
        if slot != dead:
            while (task := (yield from steal(slot, dead, pool))) is not None:
                yield from push(slot, task)
                yield store(f"claimed {slot}", FREE)
        top = yield load(f"top {dead}")
        if top < (yield load(f"bottom {dead}")):
            if slot == dead:
                return
            continue
        if pool.fault == "bottom is set to top":
            yield store(f"bottom {dead}", top)
            return
        if (yield cas(f"top {dead}", top, top + 1)):
            yield store(f"bottom {dead}", top + 1)
            return

"""The lifecycle: a state word, and one line with a count, a generation and a lock byte for every process.

The steps have the names of the protocol (docs/internals/shared-memory.md): J join, E enter, X exit, D drain, C close
scan, T take over, W wait. State word = (phase,) up to DRAINING, (phase, slot, generation) of the closer from CLOSING
on. Lock bytes are cells with their owner's name; the explorer frees them when the owner is killed.

`fault` leaves one rule out; each fault must be found (`lifecycle_models.FAULTS`).
"""

from __future__ import annotations

from typing import NamedTuple

from tests.model.operations import FREE, Script, add, cas, futex_wait, held, load, pause, store, swap, until_not, wake

INIT, RUNNING, DRAINING, CLOSING, CLOSED = "INIT", "RUNNING", "DRAINING", "CLOSING", "CLOSED"
INSIDE, CLEANUP, STOLE_COUNT, REFUSED = "inside", "cleanup", "decremented another's count", "no slot"


class Me(NamedTuple):
    """A thread and the slot of its process."""

    name: str
    owner: str
    slot: int
    generation: int = 1
    cleans: bool = True  # joined with a cleanup


class Rules(NamedTuple):
    """What all processes agree on, and the rule that is left out."""

    slots: int
    bounded: bool = True  # sleeps end by themselves after a while
    required: bool = False  # the region requires a cleanup
    fault: str = ""


def worker(me: Me, rules: Rules) -> Script:
    """Enter, work, exit."""
    if (yield from enter(me, rules)):
        yield pause(at=INSIDE)
        yield from leave(me, rules, at=INSIDE)


def enter(me: Me, rules: Rules) -> Script:
    """E1 to E4."""
    if (yield load("state"))[0] != RUNNING:
        return False
    if rules.fault == "second check before the count" and (yield load("state"))[0] != RUNNING:
        return False
    yield add(f"count {me.slot}", 1)
    if rules.fault in {"no second check", "second check before the count"}:
        return True
    if (yield load("state"))[0] != RUNNING:
        yield from leave(me, rules, at="")
        return False
    return True


def leave(me: Me, rules: Rules, *, at: str) -> Script:
    """X2 and X3; also the way back of a refused entry."""
    old = yield from decrement(me, rules, at=at)
    if rules.fault == "exit does not scan" or (rules.fault == "back-off does not scan" and not at):
        return
    if old == 1 and (yield load("state"))[0] == DRAINING:
        yield from close_scan(me, rules)


def decrement(me: Me, rules: Rules, *, at: str) -> Script:
    """X2: decrement the own count, unless it is zero. Returns the previous count."""
    count = f"count {me.slot}"
    if rules.fault == "exit repairs afterwards":
        old = yield add(count, -1, at=at)
        if old <= 0:
            yield add(count, 1)
        return old
    old = yield load(count, at=at)
    while old > 0:
        seen = yield swap(count, old, old - 1, at=at)
        if seen == old:
            break
        old = seen
    return old


def stray(me: Me, rules: Rules) -> Script:
    """An exit without an enter that passed the check of its permit."""
    old = yield from decrement(me, rules, at="")
    return STOLE_COUNT if old > 0 else "refused"


def close_scan(me: Me, rules: Rules) -> Script:
    """C1 to C6: close, unless a live process is inside."""
    if (yield load("state"))[0] != DRAINING:
        return
    for slot in range(rules.slots):
        if (yield load(f"count {slot}")) == 0:
            continue
        if slot == me.slot and rules.fault != "a process probes itself":
            return
        if rules.fault == "scan counts dead processes":
            return
        if rules.fault == "reclaim by time":
            continue
        if (yield from is_alive(me, rules, slot)):
            return
    if rules.required and not me.cleans and rules.fault != "a process without a cleanup closes":
        yield wake("state")
        return
    if rules.fault == "close by a store":
        yield store("state", (CLOSING, me.slot, me.generation))
    elif not (yield cas("state", (DRAINING,), (CLOSING, me.slot, me.generation))):
        return
    yield wake("state")
    yield from clean_up(me, rules)


def is_alive(me: Me, rules: Rules, slot: int) -> Script:
    """Return whether the kernel reports that the owner of another slot is is_alive."""
    if rules.fault != "probe by locking":
        return (yield held(f"lock {slot}", me.owner))
    if not (yield cas(f"lock {slot}", FREE, me.owner)):
        return True
    yield store(f"lock {slot}", FREE)
    return False


def clean_up(me: Me, rules: Rules) -> Script:
    """C5 and C6."""
    yield add("cleaned", int(me.cleans), at=CLEANUP)
    if rules.fault == "a failed cleanup stops":
        return
    mine = (CLOSING, me.slot, me.generation)
    if (yield cas("state", mine, (CLOSED, me.slot, me.generation))) and rules.fault != "closing does not wake":
        yield wake("state")


def take_over(me: Me, rules: Rules) -> Script:
    """T1 to T4: finish what a dead closer started."""
    word = yield load("state")
    if word[0] != CLOSING:
        return
    _, slot, generation = word
    if (slot, generation) == (me.slot, me.generation) and rules.fault != "a process takes over itself":
        return
    if rules.fault != "take over from a live closer":
        same = (yield load(f"generation {slot}")) == generation
        if same and (yield held(f"lock {slot}", me.owner)):
            return
    if rules.required and not me.cleans and rules.fault != "a process without a cleanup takes over":
        return
    mine = (CLOSING, me.slot, me.generation)
    if rules.fault == "take over by a store":
        yield store("state", mine)
    elif not (yield cas("state", word, mine)):
        return
    yield from clean_up(me, rules)


def try_close(me: Me, rules: Rules, phase: str) -> Script:
    """J4: scan or take over, depending on the phase."""
    if phase == DRAINING:
        yield from close_scan(me, rules)
    elif phase == CLOSING and rules.fault != "no process takes over":
        yield from take_over(me, rules)


def drain(me: Me, rules: Rules, *, waits: bool) -> Script:
    """D1 to D4."""
    if rules.fault == "drain by a store":
        yield store("state", (DRAINING,))
    elif not (yield cas("state", (RUNNING,), (DRAINING,))):
        return
    yield wake("state")
    yield from close_scan(me, rules)
    if waits:
        yield from wait(me, rules)


def wait(me: Me, rules: Rules) -> Script:
    """W1 to W3: every waiter tries to close."""
    while (phase := (yield load("state"))[0]) != CLOSED:
        if rules.fault != "waiter does not try to close":
            yield from try_close(me, rules, phase)
        if rules.fault == "two loads per round of waiting":
            phase = (yield load("state"))[0]
        yield from futex_wait(me.name, "state", phase, bounded=rules.bounded)


def successor(owner: str, rules: Rules, *, of: str) -> Script:
    """Join after a death, when that slot is free."""
    yield until_not("lock 0", of)
    return (yield from newcomer(owner, rules, cleans=True))


def newcomer(owner: str, rules: Rules, *, cleans: bool) -> Script:
    """J1 to J4 on the first free slot, then work."""
    for slot in range(rules.slots):
        if (yield cas(f"lock {slot}", FREE, owner)):
            break
    else:
        return REFUSED
    if rules.fault != "count of a dead process is kept" and (yield load(f"count {slot}")) != 0:
        yield store(f"count {slot}", 0)
    generation = yield load(f"generation {slot}")
    if rules.fault != "closer without generation":
        generation += 1
        yield store(f"generation {slot}", generation)
    me = Me(owner, owner, slot, generation, cleans)
    if rules.fault != "newcomer does not try to close":
        phase = (yield load("state"))[0]
        yield from try_close(me, rules, phase)
    yield from worker(me, rules)
    return "joined"

"""A lifecycle: one state word and a count per process, so that the count of a dead process is void.

Rule 1: nobody writes a shared line to enter or exit: a participant counts on the line of its own slot.
Rule 2: who is alive is the kernel's answer (`liveness`), never a matter of time. Never CLOSING while a live holder of
a permit is inside.
Rule 3: whoever moves DRAINING to CLOSING runs the cleanup. It runs once if nobody is killed, again if its process died
in it, and never twice at a time. It must be idempotent.
Rule 4: every waiter is a reaper: it scans and takes over (`tend`) on each round, so no death leaves anybody waiting.
Rule 5: in an event loop the cleanup runs in a thread beside it.

State word: phase << 32 | closer, the closer being slot << 20 | generation mod 2**20, zero before CLOSING. The numbers
of steps (J1, C4, ...) are those of docs/internals/shared-memory.md, where each has the interleaving that needs it.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterable
from typing import Self

from interlock.errors import UnavailableError, UsageError
from interlock.shm.lifecycle.drain import CloseReport, Drain, DrainWait, Participant, checked_timeout, running_loop
from interlock.shm.memory.permits import FORKED, LEFT, Pair, Permit, Phase, refuse
from interlock.shm.memory.process_locks import owner_word
from interlock.shm.memory.region import SLOTS, STATE, MemoryRegion

GENERATION = 8
OWNER = 16
"""Offsets in the line of a slot; its count stands at 0."""

FLAG_CLEANS = 1 << 32
"""In the word of the generation: its owner joined with a cleanup."""

GENERATION_BITS = 20
GENERATION_MASK = (1 << GENERATION_BITS) - 1


class Lifecycle:
    """This process's place in the shared lifecycle of a region: it admits, drains and closes with all others.

    Joins when made: takes a free slot (UnavailableError when there is none). `cleanup` is called by the one process
    that closes; with it, the region closes only in processes that joined with one.

    >>> from interlock.shm.memory.region import MemoryRegion
    >>> with MemoryRegion.create(slots=4) as region, Lifecycle(region, cleanup=lambda: None) as life:
    ...     started = life.start()
    ...     with life.enter():
    ...         inside = life.permits
    ...     report = life.drain(timeout=5).wait()
    ...     started, inside, report.closed, report.closed_by.slot
    (True, 1, True, 0)
    """

    def __init__(self, region: MemoryRegion, *, cleanup: Callable[[], object] | None = None) -> None:
        self._region = region
        self._words = region.words
        self._cleanup = cleanup
        self._cleanup_error: Exception | None = None
        self._reclaimed: dict[tuple[int, int], Participant] = {}
        self._aside_scans: set[asyncio.Future[bool]] = set()
        self._closing = threading.Lock()  # held from C4 to C6: who leaves meanwhile would be taken for dead
        self._pid = os.getpid()
        self._locks = region.locks()
        try:
            self._slot = self._claim()
        except BaseException:
            self._locks.close()
            raise
        self._line = region.slot_line(self._slot)
        self._generation = self._sign_in()
        self._me = self._slot << GENERATION_BITS | self._generation & GENERATION_MASK
        self._door = region.door(
            word=STATE,
            count=self._line,
            identity=(region.epoch, self._slot, self._generation),
            refuse=self._refuse,
            last=self._tend_soon,
            aside=self._aside,
        )
        self._waiting = DrainWait(self._words, STATE, tend=self._tend_quietly, owners=self._owners)
        # Bound once: the calls go straight into the core.
        self.try_enter = self._door.try_enter
        """A permit while running, else None. `with` it, or give it to `exit`."""
        self.enter = self._door.enter
        """A permit while running. Raises RejectedError (`gate.not_running`) otherwise."""
        self.exit = self._door.exit
        """Give a permit back; True when this exit closed. Raises UsageError for any but the first exit."""
        self._tend_soon()  # J4: a scan may have stopped because it saw us alive on a slot whose count was another's

    @property
    def phase(self) -> Phase:
        """Where the lifecycle is."""
        return Phase(self._waiting.phase())

    @property
    def slot(self) -> int:
        """The slot of this process."""
        return self._slot

    @property
    def generation(self) -> int:
        """Which owner of the slot this is."""
        return self._generation

    @property
    def permits(self) -> int:
        """How many permits this process holds."""
        return self._words.load(self._line)

    def start(self) -> bool:
        """Move INIT to RUNNING; True when this call did."""
        self._check_joined()
        return self._door.begin(Phase.RUNNING)

    def abort(self) -> bool:
        """Move INIT to CLOSED: it never ran, and nothing is cleaned up. True when this call did."""
        self._check_joined()
        return self._door.begin(Phase.CLOSED)

    def drain(self, *, timeout: float = 30.0) -> Drain:
        """Refuse new work everywhere from now on; gives what to wait for the rest with, at most `timeout` seconds.

        `report = await life.drain()` in an event loop, `report = life.drain().wait()` in a thread.
        """
        self._check_joined()
        checked_timeout(timeout)
        began = self._door.drain() != Phase.INIT  # D1, D2
        self._tend_soon()  # D3
        return Drain(self._waiting, self._report, began=began, timeout=timeout)

    def wait_closed(self, *, timeout: float | None = None) -> bool:
        """Block this thread until closed; False when the time is over. Raises UsageError in an event loop."""
        self._check_joined()
        return self._waiting.in_thread(timeout)

    async def closed(self) -> None:
        """Wait until closed without blocking the event loop. `asyncio.timeout` bounds it."""
        self._check_joined()
        await self._waiting.in_loop(None)

    def tend(self) -> bool:
        """Close if everybody left is dead; take over from a closer that died. True when this call closed.

        Waiters and drains do it by themselves; a supervisor may call it when a process of its own ended.
        """
        self._check_joined()
        return self._tend(announce=True)

    def bare(self) -> Pair:
        """`enter() -> bool` and `exit() -> bool` without permits, for the hottest code. Nobody checks the pairing."""
        return self._door.come, self._door.go

    def participants(self) -> tuple[Participant, ...]:
        """The processes that have joined and are alive, this one too, with the permits they hold."""
        self._check_joined()
        return tuple(self._participant(slot) for slot in range(self._region.slots) if self._alive(slot))

    def leave(self) -> None:
        """Give the slot back. Raises UsageError while permits of this process are out or its cleanup runs."""
        if self._pid != os.getpid() or not self._locks.open:
            return
        if not self._closing.acquire(blocking=False):
            raise UsageError("the cleanup is running", code="lifecycle.closing", hint="leave after it has ended")
        try:
            if self.permits:
                raise UsageError(
                    f"{self.permits} permits of this process are out",
                    code="lifecycle.inside",
                    hint="give them back first",
                )
            self._door.shut()
            self._locks.close()
        finally:
            self._closing.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.leave()

    def __repr__(self) -> str:
        return f"<Lifecycle {self.phase.name} slot={self._slot} generation={self._generation}>"

    # Joining

    def _claim(self) -> int:  # J1
        for slot in range(self._region.slots):
            if self._locks.claim(slot):
                return slot
        raise UnavailableError(
            f"all {self._region.slots} slots of the region are taken",
            code="lifecycle.slots",
            hint="create the region with more `slots`",
        )

    def _sign_in(self) -> int:
        if self._words.load(self._line):  # J2: the owner before us died inside
            self._reclaim(self._slot)
            self._words.store(self._line, 0)
        generation = (self._words.load(self._line + GENERATION) + 1) & 0xFFFFFFFF  # J3
        self._words.store(self._line + GENERATION, generation | (FLAG_CLEANS if self._cleanup else 0))
        self._words.store(self._line + OWNER, owner_word())
        if self._cleanup:
            self._region.require_cleanup()
        return generation

    # Closing

    def _tend_soon(self) -> bool:
        """Tend, but never run a cleanup in the event loop: it goes to a thread at once, and this gives False."""
        loop = running_loop() if self._cleanup else None
        if loop is None:
            return self._tend(announce=True)
        if self.phase not in {Phase.DRAINING, Phase.CLOSING}:
            return False
        try:
            scan = loop.run_in_executor(None, lambda: self._tend(announce=True))
        except RuntimeError:  # the loop is being closed, and takes no more work: nobody is left to be kept waiting
            return self._tend(announce=True)
        self._aside_scans.add(scan)  # the loop itself holds it only weakly
        scan.add_done_callback(self._aside_scans.discard)
        return False

    def _tend_quietly(self) -> bool:
        return self._tend(announce=False)

    def _tend(self, *, announce: bool) -> bool:
        phase = self.phase
        if phase is Phase.DRAINING:
            return self._scan(announce=announce)
        return phase is Phase.CLOSING and self._take_over()

    def _scan(self, *, announce: bool) -> bool:
        """C1 to C6: close, if nobody alive is inside."""
        if self.phase is not Phase.DRAINING:  # C1
            return False
        slot = self._occupied(0)
        while slot < self._region.slots:  # C2
            if self._alive(slot):
                return False  # a thread of ours, whose exit scans; or another process, whose exit or reaper scans
            self._reclaim(slot)
            slot = self._occupied(slot + 1)
        if not self._cleanup and self._region.requires_cleanup:  # C3
            # Waiters with a cleanup look at once. Not told by waiters: two without one would wake each other for ever.
            if announce:
                self._words.wake(STATE + 4)
            return False
        return self._close(Phase.DRAINING << 32)

    def _take_over(self) -> bool:
        word = self._words.load(STATE)  # T1
        if word >> 32 != Phase.CLOSING or self._closer_lives(word & 0xFFFFFFFF):
            return False
        if not self._cleanup and self._region.requires_cleanup:  # C3 holds for whoever goes on, too
            return False
        return self._close(word)

    def _closer_lives(self, closer: int) -> bool:
        if closer == self._me:  # T2
            return True
        slot, generation = closer >> GENERATION_BITS, closer & GENERATION_MASK
        known = self._words.load(self._region.slot_line(slot) + GENERATION) & GENERATION_MASK
        return known == generation and self._alive(slot)  # T3

    def _close(self, expected: int) -> bool:
        if not self._closing.acquire(blocking=False):  # another thread of ours is at it, or leaves
            return False
        try:
            if self._words.swap(STATE, expected, Phase.CLOSING << 32 | self._me) != expected:  # C4, T4
                return False
            self._words.wake(STATE + 4)
            try:
                if self._cleanup:
                    self._cleanup()  # C5
            except Exception as error:  # noqa: BLE001  # kept for the report; CLOSING must not last for ever
                self._cleanup_error = error
            finally:
                closing = Phase.CLOSING << 32 | self._me
                if self._words.swap(STATE, closing, Phase.CLOSED << 32 | self._me) == closing:  # C6
                    self._words.wake(STATE + 4)
        finally:
            self._closing.release()
        return True

    # Looking

    def _occupied(self, start: int) -> int:
        return self._words.occupied(SLOTS, self._region.slots, start)

    def _alive(self, slot: int) -> bool:
        return slot == self._slot or self._locks.held(slot)

    def _participant(self, slot: int) -> Participant:
        line = self._region.slot_line(slot)
        return Participant(
            slot=slot,
            generation=self._words.load(line + GENERATION) & 0xFFFFFFFF,
            pid=self._words.load(line + OWNER) >> 32,
            permits=self._words.load(line),
        )

    def _reclaim(self, slot: int) -> None:
        dead = self._participant(slot)
        self._reclaimed[slot, dead.generation] = dead

    def _owners(self) -> Iterable[int]:
        """The owners that somebody may be waiting for: the holders of permits, and the closer."""
        closer = self._words.load(STATE) & 0xFFFFFFFF
        slots = {closer >> GENERATION_BITS} if closer else set()
        slot = self._occupied(0)
        while slot < self._region.slots:
            slots.add(slot)
            slot = self._occupied(slot + 1)
        return [self._words.load(self._region.slot_line(each) + OWNER) for each in slots - {self._slot}]

    def _report(self) -> CloseReport:
        word = self._words.load(STATE)
        phase, closer = Phase(word >> 32), word & 0xFFFFFFFF
        inside = []
        slot = self._occupied(0) if phase is not Phase.CLOSED else self._region.slots
        while slot < self._region.slots:
            if self._alive(slot):
                inside.append(self._participant(slot))
            slot = self._occupied(slot + 1)
        abandoned = phase is Phase.DRAINING or (phase is Phase.CLOSING and not self._closer_lives(closer))
        return CloseReport(
            closed=phase is Phase.CLOSED,
            phase=phase,
            closed_by=self._closer(closer) if closer and phase is Phase.CLOSED else None,
            reclaimed=tuple(self._reclaimed.values()),
            still_inside=tuple(inside),
            permits=sum(each.permits for each in inside),
            cleanup_error=self._cleanup_error,
            waits_for_cleanup=abandoned and not inside and not self._cleanup and self._region.requires_cleanup,
        )

    def _closer(self, closer: int) -> Participant:
        told = self._participant(closer >> GENERATION_BITS)
        same = told.generation & GENERATION_MASK == closer & GENERATION_MASK
        generation = told.generation if same else closer & GENERATION_MASK
        return Participant(slot=told.slot, generation=generation, pid=told.pid if same else 0)

    # Refusing

    def _check_joined(self) -> None:
        if self._pid != os.getpid():
            self._refuse(FORKED)
        if not self._locks.open:
            self._refuse(LEFT)

    def _refuse(self, reason: int) -> None:
        refuse(reason, what="the lifecycle", phase=self.phase.name.lower())

    async def _aside(self, permit: Permit, leaving: bool) -> Permit | None:  # noqa: FBT001  # called by position
        if not leaving:
            return permit
        self._door.exit(permit)
        if self._aside_scans:
            done, _ = await asyncio.wait(tuple(self._aside_scans))
            for scan in done:
                scan.result()
        return None

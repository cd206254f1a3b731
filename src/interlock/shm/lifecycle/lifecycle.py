"""A lifecycle: one state word and a count per process, so that the count of a dead process can be ignored.

Rule 1: enter and exit write no shared line: a participant counts on the line of its slot.
Rule 2: the kernel decides which process is alive (`process_locks`), never elapsed time. The phase never becomes CLOSING
while a live process holds a permit.
Rule 3: the process that moves DRAINING to CLOSING runs the cleanup. It runs once if no process is killed, again if its
process died while running it, and never twice at the same time. It must be idempotent.
Rule 4: every waiter also recovers from deaths: in each round it scans or takes over (`try_close`), so no death leaves a
waiter waiting.
Rule 5: in an event loop the cleanup runs in a thread.

State word: phase << 32 | closer, where closer is slot << 20 | generation mod 2**20, zero before CLOSING. The numbers
of steps (J1, C4, ...) are those of docs/internals/shared-memory.md, with the interleaving that makes each necessary.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterable
from typing import Self

from interlock.errors import UnavailableError, UsageError
from interlock.shm.lifecycle.drain import CloseReport, Drain, DrainWait, Participant, check_timeout, running_loop
from interlock.shm.lifecycle.permits import (
    FORKED,
    LEFT,
    Permit,
    Phase,
    async_exit,
    open_permit_counter,
    raise_refusal,
)
from interlock.shm.lifecycle.status import GENERATION, OWNER, occupied_slots, participant
from interlock.shm.memory.process_locks import owner_word
from interlock.shm.memory.region import STATE, MemoryRegion

FLAG_HAS_CLEANUP = 1 << 32
"""In the word of the generation: the owner joined with a cleanup."""

GENERATION_BITS = 20
GENERATION_MASK = (1 << GENERATION_BITS) - 1


class Lifecycle:
    """The shared lifecycle of a region, as seen by one process: it admits, drains and closes together with all others.

    The constructor joins: it claims a free slot (UnavailableError if there is none). The one process that closes calls
    `cleanup`. If a process joined with a cleanup, the region closes only in processes that have one.

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
        self._background_scans: set[asyncio.Future[bool]] = set()
        self._closing = threading.Lock()  # held from C4 to C6: a process that left meanwhile would look dead
        self._pid = os.getpid()
        self._locks = region.locks()
        try:
            self._slot = self._claim_slot()
        except BaseException:
            self._locks.close()
            raise
        self._line = region.slot_line(self._slot)
        self._generation = self._join_slot()
        self._closer_id = self._slot << GENERATION_BITS | self._generation & GENERATION_MASK
        self._counter = open_permit_counter(
            region,
            word=STATE,
            count=self._line,
            identity=(region.epoch, self._slot, self._generation),
            refuse=self._refuse,
            on_last_exit=self._try_close_without_blocking,
            async_exit=self._async_exit,
        )
        self._wait = DrainWait(self._words, STATE, try_close=self._try_close_silently, owners=self._owners)
        # Bound once: the calls go directly into the C core.
        self.try_enter = self._counter.try_enter
        """Return a permit while running, else None. Use it in `with`, or pass it to `exit`."""
        self.enter = self._counter.enter
        """Return a permit while running. Raises RejectedError (`gate.not_running`) otherwise."""
        self.exit = self._counter.exit
        """Return a permit. True if this exit closed. Raises UsageError for a second exit."""
        self.enter_unchecked = self._counter.enter_unchecked
        """Enter without a permit, for the fastest code. True if the caller is inside."""
        self.exit_unchecked = self._counter.exit_unchecked
        """Exit after `enter_unchecked`. True if this exit closed. The pairing is not checked."""
        # J4: a scan may have stopped because it saw this live process on a slot whose count was its predecessor's.
        self._try_close_without_blocking()

    @property
    def phase(self) -> Phase:
        """The phase of the lifecycle."""
        return Phase(self._wait.phase())

    @property
    def slot(self) -> int:
        """The slot of this process."""
        return self._slot

    @property
    def generation(self) -> int:
        """The number of processes that have owned the slot, with this one."""
        return self._generation

    @property
    def permits(self) -> int:
        """The number of permits that this process holds."""
        return self._words.load(self._line)

    def start(self) -> bool:
        """Move INIT to RUNNING. True if this call did."""
        self._check_joined()
        return self._counter.start(Phase.RUNNING)

    def abort(self) -> bool:
        """Move INIT to CLOSED, without running and without a cleanup. True if this call did."""
        self._check_joined()
        return self._counter.start(Phase.CLOSED)

    def drain(self, *, timeout: float = 30.0) -> Drain:
        """Refuse new work in all processes from now on. Returns a `Drain`, which waits at most `timeout` seconds.

        `report = await life.drain()` in an event loop, `report = life.drain().wait()` in a thread.
        """
        self._check_joined()
        check_timeout(timeout)
        started = self._counter.drain() != Phase.INIT  # D1, D2
        self._try_close_without_blocking()  # D3
        return Drain(self._wait, self._report, started=started, timeout=timeout)

    def wait_closed(self, *, timeout: float | None = None) -> bool:
        """Block this thread until closed. False if the timeout expired. Raises UsageError in an event loop."""
        self._check_joined()
        return self._wait.in_thread(timeout)

    async def closed(self) -> None:
        """Wait until closed without blocking the event loop. Use `asyncio.timeout` to limit it."""
        self._check_joined()
        await self._wait.in_loop(None)

    def try_close(self) -> bool:
        """Close if only dead processes hold permits; take over from a closer that died. True if this call closed.

        Waiters and drains do this automatically. A supervisor may call it when one of its processes has ended.
        """
        self._check_joined()
        return self._try_close(announce=True)

    def participants(self) -> tuple[Participant, ...]:
        """Return the live processes that have joined, this one too, with the permits that they hold."""
        self._check_joined()
        return tuple(self._participant(slot) for slot in range(self._region.slots) if self._is_alive(slot))

    def leave(self) -> None:
        """Release the slot. Raises UsageError while this process holds permits or runs the cleanup."""
        if self._pid != os.getpid() or not self._locks.open:
            return
        if not self._closing.acquire(blocking=False):
            raise UsageError("the cleanup is running", code="lifecycle.closing", hint="leave after it has ended")
        try:
            if self.permits:
                raise UsageError(
                    f"this process still holds {self.permits} permits",
                    code="lifecycle.inside",
                    hint="return them first",
                )
            self._counter.close()
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

    def _claim_slot(self) -> int:  # J1
        for slot in range(self._region.slots):
            if self._locks.claim(slot):
                return slot
        raise UnavailableError(
            f"all {self._region.slots} slots of the region are in use",
            code="lifecycle.slots",
            hint="create the region with more `slots`",
        )

    def _join_slot(self) -> int:
        if self._words.load(self._line):  # J2: the previous owner died inside
            self._reclaim(self._slot)
            self._words.store(self._line, 0)
        generation = (self._words.load(self._line + GENERATION) + 1) & 0xFFFFFFFF  # J3
        self._words.store(self._line + GENERATION, generation | (FLAG_HAS_CLEANUP if self._cleanup else 0))
        self._words.store(self._line + OWNER, owner_word())
        if self._cleanup:
            self._region.require_cleanup()
        return generation

    # Closing

    def _try_close_without_blocking(self) -> bool:
        """Try to close, but never run a cleanup in the event loop: it runs in a thread, and this returns False."""
        loop = running_loop() if self._cleanup else None
        if loop is None:
            return self._try_close(announce=True)
        if self.phase not in {Phase.DRAINING, Phase.CLOSING}:
            return False
        try:
            scan = loop.run_in_executor(None, lambda: self._try_close(announce=True))
        except RuntimeError:  # the loop is closing and accepts no work, so blocking it does no harm
            return self._try_close(announce=True)
        self._background_scans.add(scan)  # the loop itself only has a weak reference
        scan.add_done_callback(self._background_scans.discard)
        return False

    def _try_close_silently(self) -> bool:
        return self._try_close(announce=False)

    def _try_close(self, *, announce: bool) -> bool:
        phase = self.phase
        if phase is Phase.DRAINING:
            return self._scan(announce=announce)
        return phase is Phase.CLOSING and self._take_over()

    def _scan(self, *, announce: bool) -> bool:
        """C1 to C6: close, unless a live process holds a permit."""
        if self.phase is not Phase.DRAINING:  # C1
            return False
        for slot in occupied_slots(self._region):  # C2
            if self._is_alive(slot):
                return False  # a thread of this process, whose exit scans; or another process, which scans as well
            self._reclaim(slot)
        if not self._cleanup and self._region.requires_cleanup:  # C3
            # Waiters with a cleanup check immediately. Waiters do not announce: two of them would wake each other
            # without end.
            if announce:
                self._words.wake(STATE + 4)
            return False
        return self._close(Phase.DRAINING << 32)

    def _take_over(self) -> bool:
        word = self._words.load(STATE)  # T1
        if word >> 32 != Phase.CLOSING or self._closer_is_alive(word & 0xFFFFFFFF):
            return False
        if not self._cleanup and self._region.requires_cleanup:  # C3 also applies to a process that takes over
            return False
        return self._close(word)

    def _closer_is_alive(self, closer: int) -> bool:
        if closer == self._closer_id:  # T2
            return True
        slot, generation = closer >> GENERATION_BITS, closer & GENERATION_MASK
        known = self._words.load(self._region.slot_line(slot) + GENERATION) & GENERATION_MASK
        return known == generation and self._is_alive(slot)  # T3

    def _close(self, expected: int) -> bool:
        if not self._closing.acquire(blocking=False):  # another thread of this process closes or leaves
            return False
        try:
            closing = Phase.CLOSING << 32 | self._closer_id
            if self._words.swap(STATE, expected, closing) != expected:  # C4, T4
                return False
            self._words.wake(STATE + 4)
            try:
                if self._cleanup:
                    self._cleanup()  # C5
            except Exception as error:  # noqa: BLE001  # kept for the report; the phase must not stay CLOSING
                self._cleanup_error = error
            finally:
                if self._words.swap(STATE, closing, Phase.CLOSED << 32 | self._closer_id) == closing:  # C6
                    self._words.wake(STATE + 4)
        finally:
            self._closing.release()
        return True

    # Reading the slots

    def _is_alive(self, slot: int) -> bool:
        return slot == self._slot or self._locks.is_held(slot)

    def _participant(self, slot: int) -> Participant:
        return participant(self._region, slot)

    def _reclaim(self, slot: int) -> None:
        dead = self._participant(slot)
        self._reclaimed[slot, dead.generation] = dead

    def _owners(self) -> Iterable[int]:
        """Return the owners that a waiter may wait for: the holders of permits, and the closer."""
        closer = self._words.load(STATE) & 0xFFFFFFFF
        slots = {closer >> GENERATION_BITS} if closer else set()
        slots |= set(occupied_slots(self._region))
        return [self._words.load(self._region.slot_line(each) + OWNER) for each in slots - {self._slot}]

    def _report(self) -> CloseReport:
        word = self._words.load(STATE)
        phase, closer = Phase(word >> 32), word & 0xFFFFFFFF
        slots = occupied_slots(self._region) if phase is not Phase.CLOSED else ()
        inside = [self._participant(slot) for slot in slots if self._is_alive(slot)]
        abandoned = phase is Phase.DRAINING or (phase is Phase.CLOSING and not self._closer_is_alive(closer))
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
        owner = self._participant(closer >> GENERATION_BITS)
        same = owner.generation & GENERATION_MASK == closer & GENERATION_MASK
        generation = owner.generation if same else closer & GENERATION_MASK
        return Participant(slot=owner.slot, generation=generation, pid=owner.pid if same else 0)

    # Refusing and leaving

    def _check_joined(self) -> None:
        if self._pid != os.getpid():
            self._refuse(FORKED)
        if not self._locks.open:
            self._refuse(LEFT)

    def _refuse(self, reason: int) -> None:
        raise_refusal(reason, what="the lifecycle", phase=self.phase.name.lower())

    async def _async_exit(self, permit: Permit, leaving: bool) -> Permit | None:  # noqa: FBT001  # called by position
        entered = await async_exit(permit, leaving)
        if leaving and self._background_scans:
            done, _ = await asyncio.wait(tuple(self._background_scans))
            for scan in done:
                scan.result()
        return entered

"""The slab: tasks in cells, listed on the deques of the seats that submit, run and steal them.

Rule 1: a task's word moves only by compare-and-swap: FREE -> QUEUED(seat) -> CLAIMED(seat) -> DONE, FAILED or
POISONED -> FREE of the next generation. A claim is exact, however often an id is listed.
Rule 2: each seat allocates from its own range of cells: no shared free list that a kill could tear.
Rule 3: an id on its way from a deque to a claim stands in the taker's hand.
Rule 4: who holds the lock byte of a dead seat reaps it: its hand, its deques, its range, and all it had claimed are
listed again. Reaping may be killed and repeated. A task that took `claims_max` owners with it is POISONED.
Rule 5: the C core has the same slab (native/slab.h); `slab_plain` runs on any words and shares a region with it.

    word = state | seat << 8 | claims << 24 | generation << 32; id = index | generation << 32, never 0.
    An area: a line of sizes, a line with the word that idle workers sleep on, a line for each seat (hand, asleep,
    taken; on the owner's also its term), the deques of each seat (most urgent first), and the cells: word, meta
    (payload bytes << 32 | detached << 8 | priority), result bytes, then the payload's and the result's bytes.
"""

from __future__ import annotations

from typing import Protocol

from interlock.shm.memory.region import MemoryRegion
from interlock.shm.pool.layout import Shape
from interlock.shm.pool.task_table_plain import PlainTaskTable
from interlock.shm.queue.ring import Payload


class TaskTable(Protocol):
    """The operations of `native/slab.h`, for one seat."""

    def submit(self, payload: Payload, priority: int, detached: bool, /) -> int:  # noqa: FBT001  # called by position
        """Queue a task and give its id; 0 when there is no room, TOO_LARGE when the payload does not fit."""

    def take(self) -> int:
        """Claim a task and give its id; 0 when nothing waits, AGAIN when others were quicker."""

    def payload(self, id: int, /) -> bytes | None:
        """The payload of a task that the caller has claimed."""

    def detached(self, id: int, /) -> bool:
        """Whether nobody awaits a task that the caller has claimed."""

    def finish(self, id: int, state: int, result: Payload, /) -> int:
        """Write the result and end a task of mine; 1 done, 0 not mine, TOO_LARGE when the result does not fit."""

    def ended(self) -> list[tuple[int, int, bytes]]:
        """The ended tasks of my range: id, state, result."""

    def release(self, id: int, /) -> bool:
        """The result of an ended task has been read; its cell is free."""

    def state(self, id: int, /) -> tuple[int, int, int] | None:
        """State, seat and claims of a task; None when the id is stale."""

    def reap(self, seat: int, /) -> tuple[bool, int, int]:
        """List again what a dead seat left (complete?, listed, given up). The caller holds its lock byte."""

    def waiting(self) -> bool:
        """Whether any deque seems to hold a task."""

    def ring(self) -> bool:
        """Wake a sleeping worker; False when nobody sleeps."""


def open_task_table(region: MemoryRegion, offset: int, shape: Shape, seat: int) -> TaskTable:
    """The slab of an area as one seat has it, as fast as the region's mode allows."""
    if region.mode == "native":
        from interlock.shm import _core

        return _core.Slab(
            region.buffer,
            rings=offset + shape.rings_at,
            seats=offset + shape.seats_at,
            deques=offset + shape.deques_at,
            cells=offset + shape.cells_at,
            seat_count=shape.seats,
            priorities=shape.priorities,
            capacity=shape.capacity,
            range=shape.range,
            payload_max=shape.payload_max,
            result_max=shape.result_max,
            claims_max=shape.claims_max,
            me=seat,
        )
    return PlainTaskTable(region.words, memoryview(region.buffer), offset, shape, seat)

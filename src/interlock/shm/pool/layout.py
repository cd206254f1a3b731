"""The sizes of a pool, the offsets of its parts, and the fields of a task's word.

Rule 1: every number of the layout is here and in native/task_table.h, and nowhere else; `task_table` describes it.
Rule 2: the sizes are stored in the area, so that a process with other sizes is refused.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from interlock.errors import UsageError
from interlock.shm.memory.arguments import check_int
from interlock.shm.memory.region import LINE, MemoryRegion
from interlock.shm.queue.deque import deque_bytes
from interlock.shm.queue.priority import PRIORITIES_MAX

FREE, QUEUED, CLAIMED, DONE, FAILED, POISONED = range(6)
FINISHED = (DONE, FAILED, POISONED)
MEMBERS_MAX = 4096
RANGE_MAX = 1 << 20
STEAL_ROUNDS = 2
RETRY = -1
TOO_LARGE = -1

CLAIMED_ID, ASLEEP, IN_USE, TERM = 0, 8, 16, 24
"""Offsets in the line of a member."""

META, RESULT_BYTES = 8, 16
"""Offsets in a cell. Its word is at 0."""

_SIZES = struct.Struct("<7Q")


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolLayout:
    """The sizes of a pool, and the offsets of its parts in its area. Each member allocates `range` cells."""

    members: int
    priorities: int
    range: int
    payload_max: int
    result_max: int
    claims_max: int

    def __post_init__(self) -> None:
        for name, low, high, code in (
            ("members", 1, MEMBERS_MAX, "slab.seats"),
            ("priorities", 1, PRIORITIES_MAX, "slab.priorities"),
            ("range", 1, RANGE_MAX, "slab.range"),
            ("payload_max", 0, 1 << 30, "slab.payload_max"),
            ("result_max", 0, 1 << 30, "slab.result_max"),
            ("claims_max", 1, 255, "slab.claims_max"),
        ):
            check_int(name, getattr(self, name), low, high, code=code)
        for name in ("payload_max", "result_max"):
            object.__setattr__(self, name, -(-getattr(self, name) // LINE) * LINE)

    @property
    def capacity(self) -> int:
        """Ids in one deque: every task of the pool fits, so that a recovery always has space."""
        return max(8, 1 << (self.cells - 1).bit_length())

    @property
    def cells(self) -> int:
        """Tasks that the pool holds at the same time."""
        return self.members * self.range

    @property
    def cell_bytes(self) -> int:
        """The bytes of one cell."""
        return LINE + self.payload_max + self.result_max

    @property
    def wakeups_at(self) -> int:
        """The word that idle workers sleep on."""
        return LINE

    @property
    def members_at(self) -> int:
        """The line of member 0."""
        return 2 * LINE

    @property
    def deques_at(self) -> int:
        """The most urgent deque of member 0."""
        return self.members_at + self.members * LINE

    @property
    def cells_at(self) -> int:
        """Cell 0."""
        return self.deques_at + self.members * self.priorities * deque_bytes(self.capacity)

    @property
    def bytes(self) -> int:
        """The bytes of the area."""
        return self.cells_at + self.cells * self.cell_bytes

    def prepare(self, region: MemoryRegion, offset: int) -> None:
        """Write the sizes into a new area."""
        _SIZES.pack_into(region.buffer, offset, *self._sizes())

    def check(self, region: MemoryRegion, offset: int) -> None:
        """Raise UsageError unless the area has these sizes."""
        stored = _SIZES.unpack_from(region.buffer, offset)
        if stored != self._sizes():
            names = "members, priorities, range, capacity, payload_max, result_max, claims_max"
            raise UsageError(
                f"the pool of this region has other sizes ({names}: {stored})",
                code="slab.shape",
                hint="use the same numbers in all processes, or another name",
            )

    def _sizes(self) -> tuple[int, ...]:
        return (
            self.members,
            self.priorities,
            self.range,
            self.capacity,
            self.payload_max,
            self.result_max,
            self.claims_max,
        )


def task_word(state: int, member: int, claims: int, generation: int) -> int:
    """Return the word of a task."""
    return state | member << 8 | claims << 24 | generation << 32


def free_word(word: int) -> int:
    """Return the word after a task: FREE, with the next generation, which is never 0."""
    return task_word(FREE, 0, 0, ((word >> 32) + 1) & 0xFFFFFFFF or 1)

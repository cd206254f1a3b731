"""The sizes of a slab, where its parts stand, and how a task's word is read.

Rule 1: every number of the layout stands here and in native/slab.h, and nowhere else; see `slab` for the layout.
Rule 2: the sizes are kept in the area itself, so that a process with other sizes is refused, not confused.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from interlock.errors import UsageError
from interlock.shm.memory.region import MemoryRegion
from interlock.shm.queue.deque import deque_bytes
from interlock.shm.queue.ring import LINE

FREE, QUEUED, CLAIMED, DONE, FAILED, POISONED = range(6)
ENDED = (DONE, FAILED, POISONED)
SKIPS_MAX = 8
PRIORITIES_MAX = 8
SEATS_MAX = 4096
RANGE_MAX = 1 << 20
STEAL_ROUNDS = 2
AGAIN = -1
TOO_LARGE = -1
HAND, ASLEEP, TAKEN, TERM = 0, 8, 16, 24
META, RESULT_BYTES = 8, 16
_SHAPE = struct.Struct("<7Q")


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The sizes of a slab, and where its parts stand, counted from the area's offset."""

    seats: int
    priorities: int
    range: int
    payload_max: int
    result_max: int
    claims_max: int

    def __post_init__(self) -> None:
        for what, least, most in (
            ("seats", 1, SEATS_MAX),
            ("priorities", 1, PRIORITIES_MAX),
            ("range", 1, RANGE_MAX),
            ("payload_max", 0, 1 << 30),
            ("result_max", 0, 1 << 30),
            ("claims_max", 1, 255),
        ):
            value = getattr(self, what)
            if type(value) is not int or not least <= value <= most:
                raise UsageError(f"{what}={value!r} cannot be", code=f"slab.{what}", hint=f"{least} to {most}")
        for what in ("payload_max", "result_max"):
            object.__setattr__(self, what, -(-getattr(self, what) // LINE) * LINE)

    @property
    def capacity(self) -> int:
        """Ids on one deque: every task of the pool fits, so that reaping finds room."""
        return max(8, 1 << (self.cells - 1).bit_length())

    @property
    def cells(self) -> int:
        """Tasks at once."""
        return self.seats * self.range

    @property
    def cell_bytes(self) -> int:
        """One cell."""
        return LINE + self.payload_max + self.result_max

    @property
    def rings_at(self) -> int:
        """The word that idle workers sleep on."""
        return LINE

    @property
    def seats_at(self) -> int:
        """The line of seat 0."""
        return 2 * LINE

    @property
    def deques_at(self) -> int:
        """The most urgent deque of seat 0."""
        return self.seats_at + self.seats * LINE

    @property
    def cells_at(self) -> int:
        """Cell 0."""
        return self.deques_at + self.seats * self.priorities * deque_bytes(self.capacity)

    @property
    def bytes(self) -> int:
        """The area."""
        return self.cells_at + self.cells * self.cell_bytes

    def prepare(self, region: MemoryRegion, offset: int) -> None:
        """Write the sizes into a fresh area."""
        _SHAPE.pack_into(region.buffer, offset, *self._numbers())

    def check(self, region: MemoryRegion, offset: int) -> None:
        """Raise UsageError unless the area has these sizes."""
        known = _SHAPE.unpack_from(region.buffer, offset)
        if known != self._numbers():
            names = "seats, priorities, range, capacity, payload_max, result_max, claims_max"
            raise UsageError(
                f"the pool of this region has other sizes ({names}: {known})",
                code="slab.shape",
                hint="give the same numbers everywhere, or another name",
            )

    def _numbers(self) -> tuple[int, ...]:
        return (
            self.seats,
            self.priorities,
            self.range,
            self.capacity,
            self.payload_max,
            self.result_max,
            self.claims_max,
        )


def word_of(state: int, seat: int, claims: int, generation: int) -> int:
    """A task's word."""
    return state | seat << 8 | claims << 24 | generation << 32


def freed(word: int) -> int:
    """The word after a task: FREE, of the next generation, which is never 0."""
    return word_of(FREE, 0, 0, ((word >> 32) + 1) & 0xFFFFFFFF or 1)

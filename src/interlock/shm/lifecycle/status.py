"""What a named lifecycle is doing, seen from outside: nothing is joined, claimed or changed.

A process is alive if the operating system says that it holds its slot. Permits of a dead process are shown: they are
ignored when the lifecycle closes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from interlock.shm.lifecycle.drain import Participant
from interlock.shm.lifecycle.permits import Phase
from interlock.shm.memory.file import NAME, region_directory
from interlock.shm.memory.region import SLOTS, STATE, MemoryRegion

GENERATION = 8
OWNER = 16
"""Offsets in the line of a slot. Its count is at 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LifecycleStatus:
    """The phase of a lifecycle, and the processes that have joined it.

    `died` were killed while they held permits. `requires_cleanup`: only a process that joined with a cleanup closes it.
    """

    name: str
    phase: Phase
    slots: int
    participants: tuple[Participant, ...]
    died: tuple[Participant, ...] = ()
    requires_cleanup: bool = False

    @property
    def permits(self) -> int:
        """The permits that live processes hold."""
        return sum(each.permits for each in self.participants)


def lifecycle_status(name: str) -> LifecycleStatus:
    """Return what the lifecycle of a name is doing, without joining it. Raises NotFoundError for an unknown name."""
    with MemoryRegion.attach(name) as region:
        locks = region.locks()
        try:
            alive = [slot for slot in range(region.slots) if locks.is_held(slot)]
        finally:
            locks.close()
        died = [each for each in occupied_slots(region) if each not in alive]
        return LifecycleStatus(
            name=name,
            phase=Phase(region.words.load(STATE) >> 32),
            slots=region.slots,
            participants=tuple(participant(region, slot) for slot in alive),
            died=tuple(participant(region, slot) for slot in died),
            requires_cleanup=region.requires_cleanup,
        )


def lifecycle_names() -> tuple[str, ...]:
    """Return the names of the regions of this user, sorted."""
    return tuple(sorted(each.name for each in region_directory().iterdir() if NAME.fullmatch(each.name)))


def occupied_slots(region: MemoryRegion) -> Iterator[int]:
    """The slots with permits, of live processes and of dead ones."""
    slot = -1
    while (slot := region.words.find_occupied(SLOTS, region.slots, slot + 1)) < region.slots:
        yield slot


def participant(region: MemoryRegion, slot: int) -> Participant:
    """What a slot records of the process that has it, or had it last."""
    line = region.slot_line(slot)
    return Participant(
        slot=slot,
        generation=region.words.load(line + GENERATION) & 0xFFFFFFFF,
        pid=region.words.load(line + OWNER) >> 32,
        permits=region.words.load(line),
    )

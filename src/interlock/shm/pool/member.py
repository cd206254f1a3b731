"""The members of a pool: joining it, and recovering the tasks of members that died.

Rule 1: a member is the process that holds the member's lock byte. A process that joins first recovers what its
predecessor left. Any live member may recover a dead one: it claims the byte, recovers, and releases the byte.
Rule 2: the kernel decides which process is dead (`process_locks`); a stopped process stays a member and keeps its task.
"""

from __future__ import annotations

from interlock.shm.memory.process_locks import QUEUE_BYTES, ByteLocks
from interlock.shm.memory.region import LINE, MemoryRegion
from interlock.shm.pool.layout import ASLEEP, IN_USE, PoolLayout
from interlock.shm.pool.task_table import TaskTable, open_task_table


class PoolMember:
    """One process of a pool: its lock byte, its line, its deques and its range of cells."""

    def __init__(self, region: MemoryRegion, offset: int, layout: PoolLayout, locks: ByteLocks, number: int) -> None:
        self.number = number
        self.tasks: TaskTable = open_task_table(region, offset, layout, number)
        self._words = region.words
        self._locks = locks
        self._lines = offset + layout.members_at
        self._count = layout.members
        self.recovered = True
        """Whether everything that the predecessor left is queued again."""
        self.asleep = self._lines + number * LINE + ASLEEP
        """The offset of the word that asks for a notification."""

    @classmethod
    def join(cls, region: MemoryRegion, offset: int, layout: PoolLayout, numbers: range) -> PoolMember | None:
        """Become the first of these members that no live process is, and recover its tasks. None if all are in use."""
        locks = region.locks()
        lines = offset + layout.members_at
        claim = locks.claim_with_retry if len(numbers) == 1 else locks.claim  # with a choice, try the next number
        for number in numbers:
            if not claim(QUEUE_BYTES + lines + number * LINE):
                continue
            member = cls(region, offset, layout, locks, number)
            member.recover_predecessor()
            return member
        locks.close()
        return None

    def recover_predecessor(self) -> None:
        """Recover what the predecessor left. Called again until `recovered`, because the deques may be full."""
        line = self._lines + self.number * LINE
        if self._words.load(line + IN_USE):
            self.recovered, _, _ = self.tasks.recover(self.number)
        self._words.store(line + IN_USE, 1)

    def recover_dead(self) -> tuple[int, int]:
        """Recover the tasks of dead members. Returns how many were queued again, and how many were given up."""
        queued = given_up = 0
        for number in range(self._count):
            line = self._lines + number * LINE
            if number == self.number or not self._words.load(line + IN_USE) or self.is_alive(number):
                continue
            if not self._locks.claim(QUEUE_BYTES + line):
                continue
            try:
                if self._words.load(line + IN_USE):
                    _, found, ended = self.tasks.recover(number)
                    queued, given_up = queued + found - ended, given_up + ended
            finally:
                self._locks.release(QUEUE_BYTES + line)
        return queued, given_up

    def is_alive(self, number: int) -> bool:
        """Return whether a live process is that member."""
        return number == self.number or self._locks.is_held(QUEUE_BYTES + self._lines + number * LINE)

    def leave(self) -> None:
        """Release the lock byte. Other members recover what is left."""
        self._locks.close()

"""The task table: tasks in cells, and their ids in the deques of the members that submit, run and steal them.

Rule 1: a task's word changes only by compare-and-swap: FREE -> QUEUED(member) -> CLAIMED(member) -> DONE, FAILED or
POISONED -> FREE with the next generation. A claim happens once, however often an id is in a deque.
Rule 2: each member allocates from its own range of cells: there is no shared free list that a kill could corrupt.
Rule 3: between a deque and the claim, an id is in the taker's `claimed_id` word.
Rule 4: the process that holds the lock byte of a dead member recovers it: its claimed id, its deques, its range, and
all tasks that it had claimed are queued again. A recovery may be killed and repeated. A task whose workers died
`claims_max` times is POISONED.
Rule 5: the C core has the same table (native/task_table.h); `PlainTaskTable` runs on any words and shares a region with
it. Its methods are the functions of that file, with the same results, bytes, and order of stores and swaps.

    word = state | member << 8 | claims << 24 | generation << 32; id = index | generation << 32, never 0.
    An area: a line of sizes, a line with the word that idle workers sleep on, a line for each member (claimed id,
    asleep, in use; for the owner also its term), the deques of each member (most urgent first), and the cells: word,
    meta (payload bytes << 32 | detached << 8 | priority), result bytes, then the bytes of payload and result.
"""

from __future__ import annotations

from typing import Protocol

from interlock.shm.memory.region import LINE, MemoryRegion
from interlock.shm.memory.words import Words
from interlock.shm.pool.layout import (
    ASLEEP,
    CLAIMED,
    CLAIMED_ID,
    DONE,
    FAILED,
    FINISHED,
    FREE,
    IN_USE,
    META,
    POISONED,
    QUEUED,
    RESULT_BYTES,
    RETRY,
    STEAL_ROUNDS,
    TOO_LARGE,
    PoolLayout,
    free_word,
    task_word,
)
from interlock.shm.queue.deque import PlainDeque, deque_bytes
from interlock.shm.queue.priority import choose_priority
from interlock.shm.queue.ring import Payload


class TaskTable(Protocol):
    """The operations of `native/task_table.h`, for one member."""

    def submit(self, payload: Payload, priority: int, detached: bool, /) -> int:  # noqa: FBT001  # called by position
        """Queue a task and return its id; 0 if the pool is full, TOO_LARGE if the payload does not fit."""

    def claim(self) -> int:
        """Claim a task and return its id; 0 if there is none, RETRY if other members were faster."""

    def payload(self, id: int, /) -> bytes | None:
        """Return the payload of a task that the caller has claimed."""

    def is_detached(self, id: int, /) -> bool:
        """Return whether no caller awaits a task that this member has claimed."""

    def finish(self, id: int, state: int, result: Payload, /) -> int:
        """Write the result and finish a claimed task. Returns 1, 0 if it is not this member's, or TOO_LARGE."""

    def finished(self) -> list[tuple[int, int, bytes]]:
        """Return the finished tasks of this member's range: id, state, result."""

    def release(self, id: int, /) -> bool:
        """Free the cell of a finished task, after its result was read."""

    def state(self, id: int, /) -> tuple[int, int, int] | None:
        """Return state, member and claims of a task; None if the id is stale."""

    def recover(self, member: int, /) -> tuple[bool, int, int]:
        """Queue the tasks of a dead member again. Returns (complete, found, given up). The caller holds its byte."""

    def has_queued(self) -> bool:
        """Return whether any deque has a task."""

    def wake_worker(self) -> bool:
        """Wake a sleeping worker; False if none sleeps."""


def open_task_table(region: MemoryRegion, offset: int, layout: PoolLayout, member: int) -> TaskTable:
    """Return the table of an area for one member, in the region's mode."""
    if region.mode == "native":
        from interlock.shm import _core

        return _core.TaskTable(
            region.buffer,
            wakeups=offset + layout.wakeups_at,
            members=offset + layout.members_at,
            deques=offset + layout.deques_at,
            cells=offset + layout.cells_at,
            member_count=layout.members,
            priorities=layout.priorities,
            capacity=layout.capacity,
            range=layout.range,
            payload_max=layout.payload_max,
            result_max=layout.result_max,
            claims_max=layout.claims_max,
            member=member,
        )
    return PlainTaskTable(region.words, memoryview(region.buffer), offset, layout, member)


class PlainTaskTable:
    """A task table on any words."""

    def __init__(self, words: Words, memory: memoryview, offset: int, layout: PoolLayout, member: int) -> None:
        self._words, self._memory = words, memory
        self._offset, self._layout, self._member = offset, layout, member
        self._claimed_id = offset + layout.members_at + member * LINE + CLAIMED_ID
        self._cursor = 0
        # Loading a cell costs a microsecond here, so only the cells that this member queued are read, and all of them
        # when there is no free cell.
        self._queued: set[int] = set()
        self._read_all_cells = True
        self._victim = member
        self._skips = [0] * layout.priorities
        self._deques = [
            [self._deque(each, priority) for priority in range(layout.priorities)] for each in range(layout.members)
        ]

    def submit(self, payload: Payload, priority: int, detached: bool, /) -> int:  # noqa: FBT001  # called by position
        layout, words = self._layout, self._words
        with memoryview(payload) as view, view.cast("B") as data:
            if data.nbytes > layout.payload_max:
                return TOO_LARGE
            deque = self._deques[self._member][priority]
            if deque.size() >= layout.capacity:
                return 0
            index = self._allocate()
            if index is None:
                self._read_all_cells = True  # there may be results for a previous owner of this member
                return 0
            cell = self._cell(index)
            word = words.load(cell)
            generation = word >> 32 or 1
            words.store(cell + META, data.nbytes << 32 | detached << 8 | priority)
            words.store(cell + RESULT_BYTES, 0)
            self._memory[cell + LINE : cell + LINE + data.nbytes] = data
        if words.swap(cell, word, task_word(QUEUED, self._member, 0, generation)) != word:
            return 0
        if not detached:
            self._queued.add(index)
        task = index | generation << 32
        deque.push(task)
        return task

    def claim(self) -> int:
        while True:  # ends: each round removes an id from a deque
            waiting = [each for each in range(self._layout.priorities) if self._has_queued(each)]
            priority = choose_priority(waiting, self._skips)
            if priority is None:
                return 0
            task = self._fetch(priority)
            if not task:
                return RETRY
            claimed = self._claim(task)
            self._words.store(self._claimed_id, 0)
            if claimed:
                return task

    def payload(self, id: int, /) -> bytes | None:
        cell = self._cell_of(id)
        size = self._words.load(cell + META) >> 32 if cell is not None else 0
        if cell is None or size > self._layout.payload_max:
            return None
        return bytes(self._memory[cell + LINE : cell + LINE + size])

    def is_detached(self, id: int, /) -> bool:
        cell = self._cell_of(id)
        return cell is not None and bool(self._words.load(cell + META) >> 8 & 1)

    def finish(self, id: int, state: int, result: Payload, /) -> int:
        if state not in {DONE, FAILED}:
            raise ValueError("the state must be DONE or FAILED")
        cell = self._cell_of(id)
        with memoryview(result) as view, view.cast("B") as data:
            if data.nbytes > self._layout.result_max:
                return TOO_LARGE
            word = self._words.load(cell) if cell is not None else 0
            if cell is None or word & 0xFFFFFF != CLAIMED | self._member << 8 or word >> 32 != id >> 32:
                return 0
            start = cell + LINE + self._layout.payload_max
            self._memory[start : start + data.nbytes] = data
            self._words.store(cell + RESULT_BYTES, data.nbytes)
        detached = self._words.load(cell + META) >> 8 & 1
        after = free_word(word) if detached else word & ~0xFF | state
        return int(self._words.swap(cell, word, after) == word)

    def finished(self) -> list[tuple[int, int, bytes]]:
        found = []
        everywhere = range(self._member * self._layout.range, (self._member + 1) * self._layout.range)
        indexes = everywhere if self._read_all_cells else sorted(self._queued)
        self._read_all_cells = False
        for index in indexes:
            cell = self._cell(index)
            word = self._words.load(cell)
            state = word & 0xFF
            if state not in FINISHED:
                continue
            size = 0 if state == POISONED else self._words.load(cell + RESULT_BYTES)
            if size > self._layout.result_max:
                size = 0  # a result is never empty, so the reader reports corruption
            start = cell + LINE + self._layout.payload_max
            found.append((index | word >> 32 << 32, state, bytes(self._memory[start : start + size])))
        return found

    def release(self, id: int, /) -> bool:
        cell = self._cell_of(id)
        word = self._words.load(cell) if cell is not None else 0
        if cell is None or word & 0xFF not in FINISHED or word >> 32 != id >> 32:
            return False
        self._queued.discard(id & 0xFFFFFFFF)
        return self._words.swap(cell, word, free_word(word)) == word

    def state(self, id: int, /) -> tuple[int, int, int] | None:
        cell = self._cell_of(id)
        word = self._words.load(cell) if cell is not None else 0
        if cell is None or word >> 32 != id >> 32:
            return None
        return word & 0xFF, word >> 8 & 0xFFFF, word >> 24 & 0xFF

    def recover(self, member: int, /) -> tuple[bool, int, int]:
        if not 0 <= member < self._layout.members:
            raise ValueError("unknown member")
        line = self._offset + self._layout.members_at + member * LINE
        if not self._recover_deques(member) or not self._requeue(self._words.load(line + CLAIMED_ID)):
            return False, 0, 0
        found = given_up = 0
        for index in range(self._layout.cells):
            state = self._recover_cell(index, member)
            if state is None:
                return False, found, given_up
            found += state != FREE
            given_up += state == POISONED
        for word in (CLAIMED_ID, ASLEEP, IN_USE):  # IN_USE last: if this process is killed before, another one recovers
            self._words.store(line + word, 0)
        return True, found, given_up

    def has_queued(self) -> bool:
        return any(self._has_queued(priority) for priority in range(self._layout.priorities))

    def wake_worker(self) -> bool:
        lines = self._offset + self._layout.members_at
        others = (each for each in range(self._layout.members) if each != self._member)
        if not any(self._words.load(lines + each * LINE + ASLEEP) for each in others):
            return False
        wakeups = self._offset + self._layout.wakeups_at
        self._words.add(wakeups, 1)
        self._words.wake(wakeups)
        return True

    def _deque(self, member: int, priority: int) -> PlainDeque:
        capacity = self._layout.capacity
        at = (member * self._layout.priorities + priority) * deque_bytes(capacity)
        return PlainDeque(self._words, self._offset + self._layout.deques_at + at, capacity, self._claimed_id)

    def _cell(self, index: int) -> int:
        return self._offset + self._layout.cells_at + index * self._layout.cell_bytes

    def _cell_of(self, id: int) -> int | None:
        index = id & 0xFFFFFFFF
        return self._cell(index) if index < self._layout.cells and id >> 32 else None

    def _allocate(self) -> int | None:
        size = self._layout.range
        for _ in range(size):
            index = self._member * size + self._cursor
            self._cursor = (self._cursor + 1) % size
            if self._words.load(self._cell(index)) & 0xFF == FREE:
                return index
        return None

    def _claim(self, id: int) -> bool:
        cell = self._cell_of(id)
        if cell is None:
            return False
        word = self._words.load(cell)
        while word & 0xFF == QUEUED and word >> 32 == id >> 32:  # ends: a lost swap means that another claim succeeded
            claims = (word >> 24 & 0xFF) + 1
            seen = self._words.swap(cell, word, task_word(CLAIMED, self._member, claims, id >> 32))
            if seen == word:
                return True
            word = seen
        return False

    def _fetch(self, priority: int) -> int:
        task = self._deques[self._member][priority].pop()
        if task:
            return task
        members = self._layout.members
        self._victim = (self._victim * 5 + 7) % (members * 8)  # not random: it only varies the first victim
        for turn in range(STEAL_ROUNDS * members):
            victim = (self._victim + turn) % members
            if victim != self._member and (task := self._deques[victim][priority].steal()) > 0:
                return task
        return 0

    def _has_queued(self, priority: int) -> bool:
        return any(deques[priority].size() for deques in self._deques)

    def _priority_of(self, cell: int) -> int:
        return min(self._words.load(cell + META) & 0xFF, self._layout.priorities - 1)

    def _requeue(self, id: int) -> bool:
        """Push an id to this member's deque if its task is still QUEUED; False if the deque is full."""
        cell = self._cell_of(id)
        word = self._words.load(cell) if cell is not None else 0
        if cell is None or word & 0xFF != QUEUED or word >> 32 != id >> 32:
            return True
        return self._deques[self._member][self._priority_of(cell)].push(id)

    def _recover_deques(self, member: int) -> bool:
        """Move the ids in the deques of a dead member to this member's deques; False if they are full."""
        first = member * self._layout.range
        for priority, deque in enumerate(self._deques[member]):
            if member == self._member:  # this process replaces the dead one: its ids may stay
                deque.reset()
                continue
            while deque.size():  # ends: no process pushes to the deque of a dead member
                if self._deques[self._member][priority].size() >= self._layout.capacity:
                    return False
                task = deque.steal()
                in_range = first <= task & 0xFFFFFFFF < first + self._layout.range  # requeued with its cell, later
                if task > 0 and not in_range and not self._requeue(task):
                    return False
                self._words.store(self._claimed_id, 0)
            deque.reset()
        return True

    def _recover_cell(self, index: int, member: int) -> int | None:
        """Return the new state of a cell, FREE if it was not the dead member's, or None if this deque is full."""
        cell = self._cell(index)
        word = self._words.load(cell)
        state, generation = word & 0xFF, word >> 32
        in_range = index // self._layout.range == member
        if state == CLAIMED and word >> 8 & 0xFFFF == member:
            return self._recover_claimed(cell, index, word)
        if in_range and state == QUEUED:
            return QUEUED if self._requeue(index | generation << 32) else None
        if in_range and state in FINISHED:
            self._words.swap(cell, word, free_word(word))  # its submitter is dead and will not read the result
        return FREE

    def _recover_claimed(self, cell: int, index: int, word: int) -> int | None:
        claims = word >> 24 & 0xFF
        if claims >= self._layout.claims_max:
            detached = self._words.load(cell + META) >> 8 & 1
            self._words.swap(cell, word, free_word(word) if detached else word & ~0xFF | POISONED)
            return POISONED
        deque = self._deques[self._member][self._priority_of(cell)]
        if deque.size() >= self._layout.capacity:  # check the space first: a QUEUED task in no deque would wait
            return None
        task = index | word >> 32 << 32
        # If this process is killed before the push, and the task's submitter is alive, the id is only in this word.
        self._words.store(self._claimed_id, task)
        if self._words.swap(cell, word, task_word(QUEUED, self._member, claims, word >> 32)) == word:
            deque.push(task)
        self._words.store(self._claimed_id, 0)
        return QUEUED

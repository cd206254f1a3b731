"""The slab without the C core: the functions of native/slab.h, one for one, on any words.

Rule 1: same answers, same bytes: a region of mode 1 may be served by both at once, and one suite runs over both.
Rule 2: the order of stores and swaps is that of native/slab.h; `slab` says what each protects.
"""

from __future__ import annotations

from interlock.shm.memory.words import Words
from interlock.shm.pool.layout import (
    AGAIN,
    ASLEEP,
    CLAIMED,
    DONE,
    ENDED,
    FAILED,
    FREE,
    HAND,
    META,
    POISONED,
    QUEUED,
    RESULT_BYTES,
    SKIPS_MAX,
    STEAL_ROUNDS,
    TAKEN,
    TOO_LARGE,
    Shape,
    freed,
    word_of,
)
from interlock.shm.queue.deque import PlainDeque, deque_bytes
from interlock.shm.queue.ring import LINE, Payload


class PlainTaskTable:
    """A slab on any words. Its functions are those of native/slab.h, one for one."""

    def __init__(self, words: Words, memory: memoryview, offset: int, shape: Shape, seat: int) -> None:
        self._words, self._memory = words, memory
        self._offset, self._shape, self._me = offset, shape, seat
        self._hand = offset + shape.seats_at + seat * LINE + HAND
        self._cursor = 0
        # Looking at a cell costs a microsecond here: those we queued are looked at, all of them when room is short.
        self._queued: set[int] = set()
        self._look_everywhere = True
        self._victim = seat
        self._skips = [0] * shape.priorities
        self._deques = [
            [self._deque(each, priority) for priority in range(shape.priorities)] for each in range(shape.seats)
        ]

    def submit(self, payload: Payload, priority: int, detached: bool, /) -> int:  # noqa: FBT001  # called by position
        shape, words = self._shape, self._words
        with memoryview(payload) as view, view.cast("B") as given:
            if given.nbytes > shape.payload_max:
                return TOO_LARGE
            deque = self._deques[self._me][priority]
            if deque.size() >= shape.capacity:
                return 0
            index = self._allocate()
            if index is None:
                self._look_everywhere = True  # somebody's results may lie there: of an owner before us
                return 0
            cell = self._cell(index)
            word = words.load(cell)
            generation = word >> 32 or 1
            words.store(cell + META, given.nbytes << 32 | detached << 8 | priority)
            words.store(cell + RESULT_BYTES, 0)
            self._memory[cell + LINE : cell + LINE + given.nbytes] = given
        if words.swap(cell, word, word_of(QUEUED, self._me, 0, generation)) != word:
            return 0
        if not detached:
            self._queued.add(index)
        task = index | generation << 32
        deque.push(task)
        return task

    def take(self) -> int:
        while True:  # ends with the deques: each round takes an id out of one
            priority = self._choose()
            if priority is None:
                return 0
            task = self._fetch(priority)
            if not task:
                return AGAIN
            claimed = self._claim(task)
            self._words.store(self._hand, 0)
            if claimed:
                return task

    def payload(self, id: int, /) -> bytes | None:
        cell = self._cell_of(id)
        size = self._words.load(cell + META) >> 32 if cell is not None else 0
        if cell is None or size > self._shape.payload_max:
            return None
        return bytes(self._memory[cell + LINE : cell + LINE + size])

    def detached(self, id: int, /) -> bool:
        cell = self._cell_of(id)
        return cell is not None and bool(self._words.load(cell + META) >> 8 & 1)

    def finish(self, id: int, state: int, result: Payload, /) -> int:
        if state not in {DONE, FAILED}:
            raise ValueError("a task ends done or failed")
        cell = self._cell_of(id)
        with memoryview(result) as view, view.cast("B") as given:
            if given.nbytes > self._shape.result_max:
                return TOO_LARGE
            word = self._words.load(cell) if cell is not None else 0
            if cell is None or word & 0xFFFFFF != CLAIMED | self._me << 8 or word >> 32 != id >> 32:
                return 0
            begin = cell + LINE + self._shape.payload_max
            self._memory[begin : begin + given.nbytes] = given
            self._words.store(cell + RESULT_BYTES, given.nbytes)
        detached = self._words.load(cell + META) >> 8 & 1
        after = freed(word) if detached else word & ~0xFF | state
        return int(self._words.swap(cell, word, after) == word)

    def ended(self) -> list[tuple[int, int, bytes]]:
        found = []
        everywhere = range(self._me * self._shape.range, (self._me + 1) * self._shape.range)
        places = everywhere if self._look_everywhere else sorted(self._queued)
        self._look_everywhere = False
        for index in places:
            cell = self._cell(index)
            word = self._words.load(cell)
            state = word & 0xFF
            if state not in ENDED:
                continue
            size = 0 if state == POISONED else self._words.load(cell + RESULT_BYTES)
            if size > self._shape.result_max:
                size = 0  # no result is empty: the reader calls it corrupt
            begin = cell + LINE + self._shape.payload_max
            found.append((index | word >> 32 << 32, state, bytes(self._memory[begin : begin + size])))
        return found

    def release(self, id: int, /) -> bool:
        cell = self._cell_of(id)
        word = self._words.load(cell) if cell is not None else 0
        if cell is None or word & 0xFF not in ENDED or word >> 32 != id >> 32:
            return False
        self._queued.discard(id & 0xFFFFFFFF)
        return self._words.swap(cell, word, freed(word)) == word

    def state(self, id: int, /) -> tuple[int, int, int] | None:
        cell = self._cell_of(id)
        word = self._words.load(cell) if cell is not None else 0
        if cell is None or word >> 32 != id >> 32:
            return None
        return word & 0xFF, word >> 8 & 0xFFFF, word >> 24 & 0xFF

    def reap(self, seat: int, /) -> tuple[bool, int, int]:
        if not 0 <= seat < self._shape.seats:
            raise ValueError("no such seat")
        line = self._offset + self._shape.seats_at + seat * LINE
        if not self._reap_deques(seat) or not self._relist(self._words.load(line + HAND)):
            return False, 0, 0
        listed = given_up = 0
        for index in range(self._shape.cells):
            outcome = self._reap_cell(index, seat)
            if outcome is None:
                return False, listed, given_up
            listed += outcome != 0
            given_up += outcome == POISONED
        for word in (HAND, ASLEEP, TAKEN):  # the mark last: a reaper killed before it is followed by another
            self._words.store(line + word, 0)
        return True, listed, given_up

    def waiting(self) -> bool:
        return any(self._priority_waiting(priority) for priority in range(self._shape.priorities))

    def ring(self) -> bool:
        seats = self._offset + self._shape.seats_at
        others = (seat for seat in range(self._shape.seats) if seat != self._me)
        if not any(self._words.load(seats + seat * LINE + ASLEEP) for seat in others):
            return False
        rings = self._offset + self._shape.rings_at
        self._words.add(rings, 1)
        self._words.wake(rings)
        return True

    def _deque(self, seat: int, priority: int) -> PlainDeque:
        capacity = self._shape.capacity
        place = (seat * self._shape.priorities + priority) * deque_bytes(capacity)
        return PlainDeque(self._words, self._offset + self._shape.deques_at + place, capacity, self._hand)

    def _cell(self, index: int) -> int:
        return self._offset + self._shape.cells_at + index * self._shape.cell_bytes

    def _cell_of(self, id: int) -> int | None:
        index = id & 0xFFFFFFFF
        return self._cell(index) if index < self._shape.cells and id >> 32 else None

    def _allocate(self) -> int | None:
        size = self._shape.range
        for _ in range(size):
            index = self._me * size + self._cursor
            self._cursor = (self._cursor + 1) % size
            if self._words.load(self._cell(index)) & 0xFF == FREE:
                return index
        return None

    def _claim(self, id: int) -> bool:
        cell = self._cell_of(id)
        if cell is None:
            return False
        word = self._words.load(cell)
        while word & 0xFF == QUEUED and word >> 32 == id >> 32:  # ends: a lost swap is another's claim
            claims = (word >> 24 & 0xFF) + 1
            seen = self._words.swap(cell, word, word_of(CLAIMED, self._me, claims, id >> 32))
            if seen == word:
                return True
            word = seen
        return False

    def _fetch(self, priority: int) -> int:
        task = self._deques[self._me][priority].pop()
        if task:
            return task
        seats = self._shape.seats
        self._victim = (self._victim * 5 + 7) % (seats * 8)  # no chance needed: only not always the same first one
        for turn in range(STEAL_ROUNDS * seats):
            victim = (self._victim + turn) % seats
            if victim != self._me and (task := self._deques[victim][priority].steal()) > 0:
                return task
        return 0

    def _priority_waiting(self, priority: int) -> bool:
        return any(deques[priority].size() for deques in self._deques)

    def _choose(self) -> int | None:
        """The most urgent that waits, unless another was passed over too often: then that one."""
        waiting = [each for each in range(self._shape.priorities) if self._priority_waiting(each)]
        if not waiting:
            return None
        aged = max(waiting, key=lambda each: self._skips[each])
        chosen = aged if self._skips[aged] >= SKIPS_MAX else waiting[0]
        for each in range(self._shape.priorities):
            self._skips[each] = self._skips[each] + 1 if each in waiting and each != chosen else 0
        return chosen

    def _priority_of(self, cell: int) -> int:
        return min(self._words.load(cell + META) & 0xFF, self._shape.priorities - 1)

    def _relist(self, id: int) -> bool:
        """List an id on my deque if its task is still QUEUED; False when the deque is full."""
        cell = self._cell_of(id)
        word = self._words.load(cell) if cell is not None else 0
        if cell is None or word & 0xFF != QUEUED or word >> 32 != id >> 32:
            return True
        return self._deques[self._me][self._priority_of(cell)].push(id)

    def _reap_deques(self, seat: int) -> bool:
        """Move what a dead seat had listed onto my deques; False when they are full."""
        first = seat * self._shape.range
        for priority, deque in enumerate(self._deques[seat]):
            if seat == self._me:  # a newcomer on this seat: what is listed may stay
                deque.reset()
                continue
            while deque.size():  # ends: nobody pushes on a dead seat's deque
                if self._deques[self._me][priority].size() >= self._shape.capacity:
                    return False
                task = deque.steal()
                swept = first <= task & 0xFFFFFFFF < first + self._shape.range  # listed by the sweep of the cells
                if task > 0 and not swept and not self._relist(task):
                    return False
                self._words.store(self._hand, 0)
            deque.reset()
        return True

    def _reap_cell(self, index: int, seat: int) -> int | None:
        """0 when the cell is none of the dead seat's, else the state it got; None when my deque is full."""
        cell = self._cell(index)
        word = self._words.load(cell)
        state, generation = word & 0xFF, word >> 32
        in_range = index // self._shape.range == seat
        if state == CLAIMED and word >> 8 & 0xFFFF == seat:
            return self._reap_claimed(cell, index, word)
        if in_range and state == QUEUED:
            return QUEUED if self._relist(index | generation << 32) else None
        if in_range and state in ENDED:
            self._words.swap(cell, word, freed(word))  # its submitter is gone: nobody will read it
        return 0

    def _reap_claimed(self, cell: int, index: int, word: int) -> int | None:
        claims = word >> 24 & 0xFF
        if claims >= self._shape.claims_max:
            detached = self._words.load(cell + META) >> 8 & 1
            self._words.swap(cell, word, freed(word) if detached else word & ~0xFF | POISONED)
            return POISONED
        deque = self._deques[self._me][self._priority_of(cell)]
        if deque.size() >= self._shape.capacity:  # first room, then the swap: QUEUED but unlisted would wait long
            return None
        task = index | word >> 32 << 32
        self._words.store(self._hand, task)  # if we are killed before the push, and its home is alive: only here
        if self._words.swap(cell, word, word_of(QUEUED, self._me, claims, word >> 32)) == word:
            deque.push(task)
        self._words.store(self._hand, 0)
        return QUEUED

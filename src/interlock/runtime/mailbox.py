"""Turns: one step of an entity at a time in this process, so that its callers queue and never conflict.

Rule 1: an entity is in the table only while somebody steps it or waits to; an idle one costs nothing. What waits is
the callers themselves, each with its event: there is no queue of events that a crash could lose.
Rule 2: results and timers go before what entities send, and that before events from outside; within a level, whoever
asked first. What is under way ends before more of it begins.
Rule 3: nobody waits for ever: after `PASSED_OVER_MAX` turns that went past somebody, whoever waits longest is next,
whatever its level. So each turn is at most that many times its place in the queue away.
Rule 4: at most `MAILBOX_MAX` callers from outside wait for one entity; one more is refused, and nothing of it was kept.
Deliveries are never refused: workers take up a bounded number of them, and the others wait in the store.
"""

from __future__ import annotations

from asyncio import Future, get_running_loop
from collections import deque
from enum import IntEnum
from types import TracebackType

from interlock.errors import UnavailableError
from interlock.model.limits import MAILBOX_MAX, PASSED_OVER_MAX


class Priority(IntEnum):
    """Who goes first."""

    RESULT = 0
    SEND = 1
    OUTSIDE = 2


class Mailbox:
    """Those who wait for one entity, by level."""

    __slots__ = ("_asked", "_passed", "_waiting")

    def __init__(self) -> None:
        self._waiting: tuple[deque[tuple[int, Future[None]]], ...] = tuple(deque() for _ in Priority)
        self._asked = 0
        self._passed = 0

    def is_full(self, level: Priority) -> bool:
        """Whether one more of this level is one too many."""
        return level is Priority.OUTSIDE and len(self._waiting[level]) >= MAILBOX_MAX

    def join(self, level: Priority) -> tuple[int, Future[None]]:
        """Wait in line: a number, and what to await."""
        self._asked += 1
        place = self._asked, get_running_loop().create_future()
        self._waiting[level].append(place)
        return place

    def give_up(self, level: Priority, place: tuple[int, Future[None]]) -> None:
        """Leave the line, unless called and passed over meanwhile."""
        if place in self._waiting[level]:
            self._waiting[level].remove(place)

    def call_next(self) -> bool:
        """Give the turn to whoever is next; False when nobody waits any more."""
        while standing := [each for each in self._waiting if each]:
            _, turn = self._next_line(standing).popleft()
            if not turn.done():  # not cancelled in this very moment
                turn.set_result(None)
                return True
        return False

    def _next_line(self, standing: list[deque[tuple[int, Future[None]]]]) -> deque[tuple[int, Future[None]]]:
        first, oldest = standing[0], min(standing, key=lambda each: each[0][0])
        self._passed = 0 if oldest is first else self._passed + 1
        if self._passed <= PASSED_OVER_MAX:
            return first
        self._passed = 0
        return oldest


Mailboxes = dict[str, Mailbox | None]
"""Entities that are being stepped, with those who wait for them; None while nobody does."""


class EntityTurn:
    """`async with Turn(busy, entity)`: the only step of that entity meanwhile.

    Raises UnavailableError, `mailbox.full`, when too many wait for it already.
    """

    __slots__ = ("_busy", "_entity", "_level")

    def __init__(self, busy: Mailboxes, entity: str, level: Priority = Priority.OUTSIDE) -> None:
        self._busy = busy
        self._entity = entity
        self._level = level

    async def __aenter__(self) -> None:
        busy, entity = self._busy, self._entity
        if entity not in busy:
            busy[entity] = None
            return
        mailbox = busy[entity]
        if mailbox is None:
            mailbox = busy[entity] = Mailbox()
        if mailbox.is_full(self._level):
            message = f"{MAILBOX_MAX:,} events wait for `{entity}` in this process already"
            raise UnavailableError(message, code="mailbox.full", hint="send it again later, with the same key")
        place = mailbox.join(self._level)
        try:
            await place[1]
        except BaseException:  # cancelled while it waited, or in the very moment of its turn
            if place[1].cancelled():
                mailbox.give_up(self._level, place)
            else:
                self._pass_on()
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pass_on()

    def _pass_on(self) -> None:
        mailbox = self._busy[self._entity]
        if mailbox is None or not mailbox.call_next():
            del self._busy[self._entity]

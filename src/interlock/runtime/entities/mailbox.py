"""Mailboxes: one step of an entity at a time in this process, so that its callers queue instead of conflicting.

Rule 1: an entity has a mailbox only while a caller steps it or waits to; an idle entity costs nothing. The callers
themselves wait, each with its event, so there is no queue of events that a crash could lose.
Rule 2: results and timers come before events between entities, and those before events from callers. Within a
priority, first come, first served. So running work ends before more of it starts.
Rule 3: no caller starves: after `SKIPPED_TURNS_MAX` turns that skipped a waiting caller, the one that has waited
longest is next, whatever its priority.
Rule 4: at most `MAILBOX_MAX` callers wait for one entity. One more is refused, and nothing was written. Deliveries are
never refused: workers run a bounded number of them, and the others wait in the store.
"""

from __future__ import annotations

from asyncio import Future, get_running_loop
from collections import deque
from enum import IntEnum
from types import TracebackType

from interlock.errors import UnavailableError
from interlock.model.limits import MAILBOX_MAX, SKIPPED_TURNS_MAX


class Priority(IntEnum):
    """Who goes first: results and timers, events from other entities, events from callers."""

    RESULT = 0
    ENTITY = 1
    CALLER = 2


_Ticket = tuple[int, Future[None]]
"""The number of a waiting caller, and what it awaits."""


class Mailbox:
    """The callers that wait for one entity, by priority."""

    __slots__ = ("_passed", "_tickets", "_waiting")

    def __init__(self) -> None:
        self._waiting: tuple[deque[_Ticket], ...] = tuple(deque() for _ in Priority)
        self._tickets = 0
        self._passed = 0

    def is_full(self, priority: Priority) -> bool:
        """Whether no further caller of this priority may wait."""
        return priority is Priority.CALLER and len(self._waiting[priority]) >= MAILBOX_MAX

    def enqueue(self, priority: Priority) -> _Ticket:
        """Wait in line; return the ticket to await."""
        self._tickets += 1
        ticket = self._tickets, get_running_loop().create_future()
        self._waiting[priority].append(ticket)
        return ticket

    def remove(self, priority: Priority, ticket: _Ticket) -> None:
        """Leave the line."""
        if ticket in self._waiting[priority]:
            self._waiting[priority].remove(ticket)

    def wake_next(self) -> bool:
        """Give the turn to the next caller; False when none waits."""
        while lines := [each for each in self._waiting if each]:
            _, turn = self._next_line(lines).popleft()
            if not turn.done():  # not cancelled just now
                turn.set_result(None)
                return True
        return False

    def _next_line(self, lines: list[deque[_Ticket]]) -> deque[_Ticket]:
        first, oldest = lines[0], min(lines, key=lambda each: each[0][0])
        self._passed = 0 if oldest is first else self._passed + 1
        if self._passed <= SKIPPED_TURNS_MAX:
            return first
        self._passed = 0
        return oldest


Mailboxes = dict[str, Mailbox | None]
"""The entities that are being stepped, with their waiting callers; None while none waits."""


class EntityTurn:
    """`async with EntityTurn(mailboxes, entity, priority)`: the only step of that entity meanwhile.

    Raises UnavailableError, `mailbox.full`, when too many callers wait already.
    """

    __slots__ = ("_entity", "_mailboxes", "_priority")

    def __init__(self, mailboxes: Mailboxes, entity: str, priority: Priority = Priority.CALLER) -> None:
        self._mailboxes = mailboxes
        self._entity = entity
        self._priority = priority

    async def __aenter__(self) -> None:
        mailboxes, entity = self._mailboxes, self._entity
        if entity not in mailboxes:
            mailboxes[entity] = None
            return
        mailbox = mailboxes[entity]
        if mailbox is None:
            mailbox = mailboxes[entity] = Mailbox()
        if mailbox.is_full(self._priority):
            message = f"the mailbox of `{entity}` is full: {MAILBOX_MAX:,} events wait in this process"
            raise UnavailableError(message, code="mailbox.full", hint="send the event again later, with the same key")
        ticket = mailbox.enqueue(self._priority)
        try:
            await ticket[1]
        except BaseException:  # cancelled while it waited, or just as its turn came
            if ticket[1].cancelled():
                mailbox.remove(self._priority, ticket)
            else:
                self._pass_on()
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pass_on()

    def _pass_on(self) -> None:
        mailbox = self._mailboxes[self._entity]
        if mailbox is None or not mailbox.wake_next():
            del self._mailboxes[self._entity]

"""Mailboxes: one step of an entity at a time in this process, so that its callers queue instead of conflicting.

Rule 1: an entity has a mailbox only while a caller steps it or waits to; an idle entity costs nothing. The callers
themselves wait, each with its event, so there is no queue of events that a crash could lose.
Rule 2: results and timers come before events between entities, and those before events from callers. Within a
priority, first come, first served. So running work ends before more of it starts.
Rule 3: no caller starves: after `SKIPPED_TURNS_MAX` turns that skipped a waiting caller, the one that has waited
longest is next, whatever its priority.
Rule 4: at most `MAILBOX_MAX` callers wait for one entity, `WAITING_MAX` in a process, and `WAITING_SHARE_MAX` with the
same principal. One more is refused with the time after which a place is likely, and nothing was written. Deliveries are
never refused: workers run a bounded number of them, and the others wait in the store. Calls without a principal are the
program itself and have no share.
"""

from __future__ import annotations

from asyncio import Future, get_running_loop
from collections import Counter, deque
from collections.abc import Callable
from enum import IntEnum
from types import TracebackType

from interlock.errors import UnavailableError
from interlock.model.limits import MAILBOX_MAX, SKIPPED_TURNS_MAX, WAITING_MAX, WAITING_SHARE_MAX


class Priority(IntEnum):
    """Who goes first: results and timers, events from other entities, events from callers."""

    RESULT = 0
    ENTITY = 1
    CALLER = 2


_Ticket = tuple[int, Future[None]]
"""The number of a waiting caller, and what it awaits."""


RETRY_MS_MIN, RETRY_MS_MAX = 1_000, 30_000
"""Bounds of the time after which a refused caller is asked to come back."""

PACE_PART = 8
"""Turns of one entity over which their time is averaged, about."""


class Mailbox:
    """The callers that wait for one entity, by priority, and how long a turn takes."""

    __slots__ = ("_pace_ms", "_passed", "_tickets", "_turned_ms", "_waiting")

    def __init__(self) -> None:
        self._waiting: tuple[deque[_Ticket], ...] = tuple(deque() for _ in Priority)
        self._tickets = 0
        self._passed = 0
        self._pace_ms = 0.0
        self._turned_ms: int | None = None

    @property
    def callers(self) -> int:
        """How many callers wait, apart from deliveries."""
        return len(self._waiting[Priority.CALLER])

    @property
    def retry_after_ms(self) -> int:
        """The time in which the callers that wait now are likely to have had their turns."""
        waiting = sum(len(each) for each in self._waiting)
        return min(max(RETRY_MS_MIN, int(waiting * self._pace_ms)), RETRY_MS_MAX)

    def note_turn(self, now_ms: int) -> None:
        """Record that a turn ends, and another one starts."""
        if self._turned_ms is not None:
            self._pace_ms += (max(0, now_ms - self._turned_ms) - self._pace_ms) / PACE_PART
        self._turned_ms = now_ms

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


_LATER = "send the event again later, with the same key"


class WaitingCallers:
    """The callers that wait in all mailboxes of a process, by principal."""

    __slots__ = ("_by_principal", "_total", "now_ms")

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self.now_ms = now_ms
        self._by_principal: Counter[str] = Counter()
        self._total = 0

    def check(self, mailbox: Mailbox, entity: str, principal: str | None) -> None:
        """Raise UnavailableError if no further caller may wait."""
        if mailbox.callers >= MAILBOX_MAX:
            message = f"the mailbox of `{entity}` is full: {MAILBOX_MAX:,} events wait in this process"
        elif self._total >= WAITING_MAX:
            message = f"all mailboxes together are full: {WAITING_MAX:,} events wait in this process"
        elif principal is not None and self._by_principal[principal] >= WAITING_SHARE_MAX:
            message = f"`{principal[:80]}` has {WAITING_SHARE_MAX:,} events that wait in this process, its share of all"
            raise UnavailableError(message, code="mailbox.share", hint=_LATER, retry_after_ms=mailbox.retry_after_ms)
        else:
            return
        raise UnavailableError(message, code="mailbox.full", hint=_LATER, retry_after_ms=mailbox.retry_after_ms)

    @property
    def total(self) -> int:
        """How many callers wait."""
        return self._total

    def add(self, principal: str | None) -> None:
        """Count a caller that starts to wait."""
        self._total += 1
        if principal is not None:
            self._by_principal[principal] += 1

    def remove(self, principal: str | None) -> None:
        """Count a caller that no longer waits."""
        self._total -= 1
        if principal is not None:
            self._by_principal[principal] -= 1
            if not self._by_principal[principal]:
                del self._by_principal[principal]


Mailboxes = dict[str, Mailbox | None]
"""The entities that are being stepped, with their waiting callers; None while none waits."""


class EntityTurn:
    """`async with EntityTurn(mailboxes, entity, priority)`: the only step of that entity meanwhile.

    `principal` is that of the caller. Raises UnavailableError, `mailbox.full` or `mailbox.share`, when too many callers
    wait already.
    """

    __slots__ = ("_entity", "_mailboxes", "_principal", "_priority", "_waiting")

    def __init__(
        self,
        mailboxes: Mailboxes,
        waiting: WaitingCallers,
        entity: str,
        priority: Priority = Priority.CALLER,
        principal: object = None,
    ) -> None:
        self._mailboxes = mailboxes
        self._waiting = waiting
        self._entity = entity
        self._priority = priority
        self._principal = principal

    def try_enter(self) -> bool:
        """Take the turn if no other caller has it; False otherwise. The caller that took it calls `leave`.

        For the send: `async with` costs two coroutines, and most entities have one caller.
        """
        if self._entity in self._mailboxes:
            return False
        self._mailboxes[self._entity] = None
        return True

    async def enter(self) -> None:
        """Take the turn, and wait for it if others have it. The caller that took it calls `leave`."""
        if self.try_enter():
            return
        mailboxes, entity = self._mailboxes, self._entity
        mailbox = mailboxes[entity]
        if mailbox is None:
            mailbox = mailboxes[entity] = Mailbox()
        if self._priority is not Priority.CALLER:
            await self._wait(mailbox)
            return
        name, waiting = _principal_id(self._principal), self._waiting
        waiting.check(mailbox, entity, name)
        waiting.add(name)
        try:
            await self._wait(mailbox)
        finally:
            waiting.remove(name)

    async def _wait(self, mailbox: Mailbox) -> None:
        ticket = mailbox.enqueue(self._priority)
        try:
            await ticket[1]
        except BaseException:  # cancelled while it waited, or just as its turn came
            if ticket[1].cancelled():
                mailbox.remove(self._priority, ticket)
            else:
                self.leave()
            raise

    async def __aenter__(self) -> None:
        await self.enter()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.leave()

    def leave(self) -> None:
        """Give the turn to the next caller."""
        mailbox = self._mailboxes[self._entity]
        if mailbox is not None:
            mailbox.note_turn(self._waiting.now_ms())
        if mailbox is None or not mailbox.wake_next():
            del self._mailboxes[self._entity]


def _principal_id(principal: object) -> str | None:
    found = principal.get("id") if isinstance(principal, dict) else None
    return found if isinstance(found, str) else None

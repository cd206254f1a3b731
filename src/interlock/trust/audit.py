"""Records every attempt that no journal records. One function, `AuditRecorder.record`, called at two doors: the runtime
(programs, the command line, workers) and the endpoints of the HTTP interface.

Rule 1: the refused sender waits until its row is durable. If it cannot be written, the attempt raises UnavailableError:
no refusal is given that leaves no trace.
Rule 2: a principal has a row for each attempt, in a burst up to `AUDIT_BURST`, then `AUDIT_ROWS_PER_SECOND`. More
are counted: a summary row is written when the count starts, and then every `AUDIT_FOLD_MS`. Rows and counts together
are all attempts; a process that is killed loses the counts of that time.
Rule 3: a principal with more refusals is stopped before anything is read (`rate.refused`), until it may have a
row again. The system and local programs without a principal are counted, never stopped.
Rule 4: strangers, who have no principal, only have summary rows, by code and address: with a row for each attempt they
could fill the disk.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from ipaddress import ip_address, ip_network
from typing import NamedTuple

from msgspec.structs import replace

from interlock.errors import (
    ConflictError,
    DeniedError,
    InterlockError,
    NotFoundError,
    RejectedError,
    UnavailableError,
    UsageError,
)
from interlock.model.actor import Actor, actor_of, originator_of
from interlock.model.audit import FLOOD, HTTP_EVENT, AuditRow, actor_of_event, index_actor, storable
from interlock.model.backoff import Backoff
from interlock.model.encoding.storable import describe
from interlock.model.event import Event
from interlock.model.journal.entry import Receipt
from interlock.model.limits import (
    AUDIT_BURST,
    AUDIT_COUNTERS_MAX,
    AUDIT_FOLD_MS,
    AUDIT_ROWS_PER_SECOND,
)
from interlock.ports.clock import Clock
from interlock.ports.trust.audit import AuditLog
from interlock.trust.rate_limits import Rate, RateLimiter, RequestClass

REFUSED = ("rejected", "denied")
"""Outcomes of a receipt that no entry has."""

REFUSALS = (UsageError, NotFoundError, RejectedError, DeniedError, ConflictError)
"""Errors by which an attempt is refused. Others say that it could not be decided."""

_NOT_ATTEMPTS = ("store.", "join.", "conflict.joined", "conflict.retries", "query.", "feed.", "runtime.")
"""Prefixes of codes of such errors that are about the call and not about the attempt."""

OTHER = "other"
"""The actor and the kind of attempts beyond `AUDIT_COUNTERS_MAX` counters."""

WAIT_MS_MAX = 1_000 // AUDIT_ROWS_PER_SECOND + 1
"""The longest that a principal is stopped at a time: until it may have the next row."""

LATER = Backoff(100, 5_000)
"""The waits before a row of a joined call is tried again: the caller's transaction may hold a SQLite file."""

LATER_TRIES_MAX = 10

_log = logging.getLogger("interlock.audit")


class Attempt(NamedTuple):
    """What was attempted, and by whom. Nothing of it has been checked."""

    entity: object
    event: object
    principal: object = None
    trace: object = None
    key: object = None
    note: object = None

    @classmethod
    def of_event(cls, entity: str, event: Event, trace: str | None = None) -> Attempt:
        """Return the attempt of an event that the driver delivers."""
        actor = actor_of_event(event)
        principal = event.principal or {"id": actor.id, "kind": actor.kind}
        return cls(entity, event.name, principal, trace, event.key)


class _Place(NamedTuple):
    """What attempts of a flood are counted by."""

    actor: Actor | None
    outcome: str
    reason: str
    kind: str
    event: str = ""


class _Count:
    """Attempts that no row counts yet, and when the first and the last of them were."""

    __slots__ = ("first_ms", "last_ms", "number")

    def __init__(self, now_ms: int) -> None:
        self.number = 0
        self.first_ms = self.last_ms = now_ms


class AuditRecorder:
    """The audit of one runtime. `throttled`: until when principals are stopped; empty unless there is a flood."""

    def __init__(self, log: AuditLog | None, clock: Clock) -> None:
        self.throttled: dict[str, int] = {}
        self._log = log
        self._clock = clock
        self._limits = RateLimiter({RequestClass.REFUSE: Rate(AUDIT_ROWS_PER_SECOND, AUDIT_BURST)})
        self._counts: dict[_Place, _Count] = {}
        self._writing: asyncio.Task[None] | None = None
        self._later: set[asyncio.Task[None]] = set()

    def check(self, attempt: Attempt) -> None:
        """Count an attempt of a principal that is stopped. Raises UnavailableError (`rate.refused`)."""
        stop = self.stop_of(attempt)
        if stop is not None:
            self.count_stopped(attempt)
            stop.is_recorded = True
            raise stop

    def stop_of(self, attempt: Attempt) -> UnavailableError | None:
        """Return the error that stops the principal of an attempt now; None if it may try."""
        name = _name(actor_of(attempt.principal))
        until_ms = self.throttled.get(name)
        if until_ms is None:
            return None
        wait_ms = until_ms - self._clock.now_ms()
        if 0 < wait_ms <= WAIT_MS_MAX:
            return _throttled(name, wait_ms)
        self.throttled.pop(name, None)  # it may have a row again, or the clock was set back
        return None

    def count_stopped(self, attempt: Attempt) -> None:
        """Count an attempt that was stopped."""
        self._count(_place(attempt, actor_of(attempt.principal), "denied", FLOOD), self._clock.now_ms())

    async def record(
        self, attempt: Attempt, *, outcome: str, reason: str, state_from: tuple[str, ...] | None = None
    ) -> None:
        """Record an attempt: a row, or a count. Raises UnavailableError when the row cannot be written.

        `outcome` is `applied` for what a principal did outside of journals, such as a log-in: that stops nobody.
        """
        if self._log is None:
            return
        now_ms = self._clock.now_ms()
        actor = actor_of(attempt.principal)
        name = _name(actor)
        wait_ms = self._limits.take(RequestClass.REFUSE, name, now_ms)
        if wait_ms is None:
            await self._log.append_audit((_row(attempt, actor, outcome, reason, now_ms, state_from),))
            return
        if outcome in REFUSED and actor is not None and actor.kind != "system":
            self.throttled[name] = now_ms + wait_ms
        await self._fold(_place(attempt, actor, outcome, reason), now_ms)

    async def record_receipt(self, attempt: Attempt, receipt: Receipt) -> None:
        """Record an attempt that a receipt refuses."""
        if receipt.outcome in REFUSED:
            states = None if receipt.snapshot is None else receipt.snapshot.configuration
            await self.record(attempt, outcome=receipt.outcome, reason=receipt.reason or "", state_from=states)

    async def record_error(self, attempt: Attempt, error: InterlockError) -> None:
        """Record an attempt that an error refuses, once; an error that decides nothing is no refusal."""
        if is_refusal(error):
            await self.record(attempt, outcome=outcome_of(error), reason=error.code)
            error.is_recorded = True

    async def record_stranger(self, *, code: str, address: str) -> None:
        """Count an attempt without a principal, by code and address: a network of 256, or of a /56."""
        if self._log is not None:
            await self._fold(
                _Place(Actor(_network(address), "user"), "denied", code, "", HTTP_EVENT), self._clock.now_ms()
            )

    def record_later(self, attempt: Attempt, outcome: str, reason: str) -> None:
        """Record an attempt whose sender cannot wait, because it holds what the store needs to write."""
        task = asyncio.get_running_loop().create_task(self._record_repeatedly(attempt, outcome, reason))
        self._later.add(task)
        task.add_done_callback(self._later.discard)

    async def close(self) -> None:
        """Write the rows and counts that are left."""
        while self._later:
            await asyncio.wait(tuple(self._later))
        task, self._writing = self._writing, None
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        with contextlib.suppress(UnavailableError):  # the process ends; the start of each count is a row already
            await self._write_counts()

    # Floods

    async def _fold(self, place: _Place, now_ms: int) -> None:
        """Count an attempt; the first of its place is a durable row, so that no flood leaves no trace."""
        place = self._bounded(place)
        if place in self._counts:
            self._count(place, now_ms)
            return
        self._counts[place] = _Count(now_ms)
        assert self._log is not None
        await self._log.append_audit((_summary(place, 1, now_ms, now_ms, now_ms),))
        self._start_writing()

    def _bounded(self, place: _Place) -> _Place:
        """Return the place, or the one for all others if there are too many."""
        if place in self._counts or len(self._counts) < AUDIT_COUNTERS_MAX:
            return place
        return _Place(Actor(OTHER, "user"), place.outcome, OTHER, OTHER)

    def _count(self, place: _Place, now_ms: int) -> None:
        """Count an attempt."""
        place = self._bounded(place)
        count = self._counts.get(place)
        if count is None:
            count = self._counts[place] = _Count(now_ms)
            self._start_writing()
        if count.number == 0:
            count.first_ms = now_ms
        count.number += 1
        count.last_ms = now_ms

    def _start_writing(self) -> None:
        if self._writing is None or self._writing.done():
            self._writing = asyncio.get_running_loop().create_task(self._write_repeatedly())

    async def _write_repeatedly(self) -> None:
        """Write the counts at intervals, until a whole interval had none."""
        while self._counts:
            await self._clock.sleep_ms(AUDIT_FOLD_MS)
            try:
                await self._write_counts()
            except UnavailableError as error:
                _log.warning("cannot write the counts of refused attempts", extra={"code": error.code})
        self._writing = None

    async def _write_counts(self) -> None:
        """Write a summary row for each count. Raises UnavailableError; then they are counted on."""
        now_ms = self._clock.now_ms()
        self.throttled = {name: until_ms for name, until_ms in self.throttled.items() if until_ms > now_ms}
        counts, self._counts = self._counts, {}
        rows = tuple(
            _summary(place, count.number, count.first_ms, count.last_ms, now_ms)
            for place, count in counts.items()
            if count.number
        )
        if not rows:
            return
        assert self._log is not None
        for place in counts:  # counted on without another first row, while the flood lasts
            if counts[place].number:
                self._counts[place] = _Count(now_ms)
        try:
            await self._log.append_audit(rows)
        except BaseException:
            for place, count in counts.items():
                if count.number:
                    newer = self._counts.setdefault(place, _Count(now_ms))
                    newer.number += count.number
                    newer.first_ms = count.first_ms
            raise

    async def _record_repeatedly(self, attempt: Attempt, outcome: str, reason: str) -> None:
        for number in range(LATER_TRIES_MAX):
            try:
                await self.record(attempt, outcome=outcome, reason=reason)
            except UnavailableError as error:
                if number == LATER_TRIES_MAX - 1:
                    _log.error("a refused attempt could not be recorded", extra={"code": error.code, "reason": reason})
                    return
                await self._clock.sleep_ms(LATER.wait_ms(number, self._clock.jitter()))
            else:
                return


class JoinedAudit:
    """The audit for calls in transactions of callers, which may run in any thread and do not wait for their rows.

    On SQLite, no row can be written before the caller's transaction ends. So a caller's rollback loses no row, and a
    process that is killed before its row is written loses that one.
    """

    def __init__(self, recorder: AuditRecorder, loop: asyncio.AbstractEventLoop) -> None:
        self._recorder = recorder
        self._loop = loop

    @property
    def throttled(self) -> dict[str, int]:
        """As `AuditRecorder.throttled`."""
        return self._recorder.throttled

    def check(self, attempt: Attempt) -> None:
        """As `AuditRecorder.check`."""
        stop = self._recorder.stop_of(attempt)
        if stop is not None:
            self._loop.call_soon_threadsafe(self._recorder.count_stopped, attempt)
            stop.is_recorded = True
            raise stop

    async def record_receipt(self, attempt: Attempt, receipt: Receipt) -> None:
        """Record an attempt that a receipt refuses, soon."""
        if receipt.outcome in REFUSED:
            self._record(attempt, receipt.outcome, receipt.reason or "")

    async def record_error(self, attempt: Attempt, error: InterlockError) -> None:
        """Record an attempt that an error refuses, soon."""
        if is_refusal(error):
            self._record(attempt, outcome_of(error), error.code)
            error.is_recorded = True

    def _record(self, attempt: Attempt, outcome: str, reason: str) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._recorder.record_later, attempt, outcome, reason)


def act_row(entity: str, event: str, what: str, *, by: str, why: str = "", now_ms: int) -> AuditRow:
    """Return the row of an operator's action: `what` was done, `by` whom and `why`. It is written with the action."""
    return AuditRow(entity, event, "applied", what, now_ms, actor=by, actor_kind="user", note=why or None)


def is_refusal(error: InterlockError) -> bool:
    """Whether an error refuses an attempt and the audit has no row about it yet."""
    return not error.is_recorded and isinstance(error, REFUSALS) and not error.code.startswith(_NOT_ATTEMPTS)


def outcome_of(error: InterlockError) -> str:
    """Return the outcome of an attempt that an error refuses."""
    return "denied" if isinstance(error, DeniedError) else "rejected"


def _place(attempt: Attempt, actor: Actor | None, outcome: str, reason: str) -> _Place:
    is_http = isinstance(attempt.event, str) and attempt.event.startswith(HTTP_EVENT)
    kind = storable(_text(attempt.entity)).partition("/")[0]
    return _Place(actor, outcome, reason, kind, HTTP_EVENT if is_http else "")


def _row(
    attempt: Attempt, actor: Actor | None, outcome: str, reason: str, now_ms: int, state_from: tuple[str, ...] | None
) -> AuditRow:
    return AuditRow(
        storable(_text(attempt.entity)),
        storable(_text(attempt.event)),
        outcome,
        reason,
        now_ms,
        actor=None if actor is None else actor.id,
        actor_kind="system" if actor is None else actor.kind,
        originator=originator_of(attempt.principal),
        state_from=state_from,
        trace=None if attempt.trace is None else _text(attempt.trace),
        key=None if attempt.key is None else _text(attempt.key),
        note=None if attempt.note is None else _text(attempt.note),
    )


def _summary(place: _Place, number: int, first_ms: int, last_ms: int, now_ms: int) -> AuditRow:
    row = AuditRow(place.kind, place.event, place.outcome, place.reason, now_ms, actor_kind="system", count=number)
    row, actor = replace(row, first_ms=first_ms, last_ms=last_ms), place.actor
    return row if actor is None else replace(row, actor=actor.id, actor_kind=actor.kind)


def _name(actor: Actor | None) -> str:
    """Return the key of an actor's limit."""
    return "" if actor is None else index_actor(actor.id) or ""


def _text(value: object) -> str:
    return value if isinstance(value, str) else describe(value)


def _throttled(name: str, wait_ms: int) -> UnavailableError:
    return UnavailableError(
        f"too many events of `{name[:80]}` were refused; nothing is read for {wait_ms} ms",
        code=FLOOD,
        hint="fix the events that are refused: their codes are in the audit",
        retry_after_ms=wait_ms,
    )


def _network(address: str) -> str:
    """Return the network of an address; `other` for text that is no address."""
    try:
        found = ip_address(address)
    except ValueError:
        return OTHER
    return str(ip_network(f"{address}/{24 if found.version == 4 else 56}", strict=False))

"""Events of `expect.then`: sent to entities that have been in a state for longer than their chart expects.

Rule 1: the chart for new entities names the states and the events, for entities of all revisions, as for `stuck`. A
process whose charts name none does nothing here.
Rule 2: one process at a time sends those of a kind: the one with the lease `expect/<kind>`. It reads the list of a
state, which is in the order of age, from where it stopped. The lease saves work; once is a matter of rule 3.
Rule 3: an entity gets the event once while it is in the state. The key names the state and since when it is in it, so
after a kill between the append and anything else the event is a duplicate. A store forgets keys: an entity that should
have got the event before that is left out, unless it has not changed since it entered the state.
Rule 4: the event never reaches another state. It is sent to the version of the list, in which the entity is in the
state; one that has changed meanwhile is found again in the next pass, if it is still there.
Rule 5: the list is read from its start again after a while, next to the entities that come due: for held entities, and
those whose chart this process lacks, a minute later.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from dataclasses import dataclass, field

from interlock.effects.waiting import log_failure
from interlock.errors import ConflictError, InterlockError, NotFoundError, RejectedError, UnavailableError
from interlock.model.charts.chart import Chart
from interlock.model.charts.expected_events import ExpectedEvent, events_of_chart
from interlock.model.driver_events import state_overdue
from interlock.model.keys import expect_key
from interlock.model.limits import (
    EXPECT_AGAIN_MS,
    EXPECT_EVERY_MS_MIN,
    EXPECT_LEASE_MS,
    EXPECT_PAUSE_MS,
    EXPECT_SENT_MAX,
    HELD_WORK_MS_MIN,
    KEY_WINDOW_MS,
)
from interlock.ports.clock import wait_to_poll
from interlock.ports.delivery import CHART_MISSING_CODES, HELD_CODES
from interlock.ports.leases import Lease
from interlock.ports.store import PAGE_MAX, Duplicate, EntityQuery, EntityRow
from interlock.runtime.charts.registry import ChartRegistry
from interlock.runtime.entities.mailbox import Priority
from interlock.runtime.entities.send_request import EXPIRED, SendRequest
from interlock.runtime.entities.sender import EntitySender
from interlock.runtime.runtime import Runtime
from interlock.trust.audit import Attempt

_log = logging.getLogger("interlock.runtime")

_LATER_CODES = HELD_CODES | CHART_MISSING_CODES


@dataclass(slots=True)
class _Walk:
    """How far the list of a state is read: the cursor of the last whole page, and the rows done after that."""

    after: str | None = None
    done: set[tuple[str, int]] = field(default_factory=set)
    is_at_end: bool = False


@dataclass(slots=True)
class _Progress:
    """The walks of a state: one goes on with the entities that come due, and at `again_ms` one repeats the list."""

    again_ms: int
    front: _Walk = field(default_factory=_Walk)
    repeat: _Walk | None = None


def expected_events(charts: ChartRegistry) -> dict[str, tuple[ExpectedEvent, ...]]:
    """Return the events that charts have for overdue states, by kind."""
    found = {kind: events_of_chart(_newest(charts, kind)) for kind in charts.every_kind()}
    return {kind: events for kind, events in found.items() if events}


def _newest(charts: ChartRegistry, kind: str) -> Chart:
    kernel = charts.current(kind)
    if kernel is None:  # an inline chart creates no entities of its own
        *_, kernel = charts.revisions(kind).values()
    return kernel.chart


def _has_personal(charts: ChartRegistry, kind: str) -> bool:
    """Whether a process without a keyring leaves the kind to others, with its lease."""
    return any(each.personal is not None for each in charts.revisions(kind).values())


class OverdueEvents:
    """Sends the events of overdue states, from `start` to `stop`."""

    def __init__(self, runtime: Runtime) -> None:
        self._entities = runtime.entities
        self._store = runtime.store
        self._clock = runtime.clock
        # As for a timer, no policy is asked: the chart itself sends the event.
        self._sender = EntitySender(runtime.entities, runtime.mover, authorizes=False)
        self._events = {
            kind: events
            for kind, events in expected_events(runtime.charts).items()
            if runtime.vault is not None or not _has_personal(runtime.charts, kind)
        }
        self._owner = runtime.clock.token() if self._events else ""
        self._leases: dict[str, tuple[Lease, int]] = {}
        self._tried_ms: dict[str, int] = {}
        self._progress: dict[tuple[str, str], _Progress] = {}
        self._task: asyncio.Task[None] | None = None
        self._is_stopping = False

    def start(self) -> None:
        """Start, if a chart has such an event."""
        if self._events:
            self._task = asyncio.ensure_future(self._run())

    def stop_sending(self) -> None:
        """Send nothing more, from now on."""
        self._is_stopping = True

    async def stop(self) -> None:
        """Stop, and release the leases."""
        self._is_stopping = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        for lease, _ in self._leases.values():
            if self._store.leases is not None:
                with suppress(InterlockError):  # it ends by itself
                    await self._store.leases.release_lease(lease)
        self._leases.clear()

    async def _run(self) -> None:
        """The loop is endless on purpose; `stop` cancels it."""
        every_ms = min(each.every_ms for events in self._events.values() for each in events)
        while not self._is_stopping:
            waits = []
            for kind, events in self._events.items():
                try:
                    waits.append(await self._pass(kind, events))
                except Exception as error:  # noqa: BLE001 - whatever a store raises, the next pass tries again
                    log_failure(_log, "events of overdue states cannot be sent", error, kind=kind)
            due_ms = min((max(each, EXPECT_PAUSE_MS) for each in waits if each is not None), default=None)
            await wait_to_poll(self._clock, every_ms, due_ms=due_ms)

    async def _pass(self, kind: str, events: tuple[ExpectedEvent, ...]) -> int | None:
        """Send what is due of one kind; return how long until more is known to be due, None if nothing is."""
        if not await self._has_lease(kind):
            return None
        holds = self._entities.holds
        if holds.is_stale:
            await holds.refresh()
        if holds.of_kind(kind) is not None:
            return None
        waits = [await self._send_due(kind, each) for each in events]
        return min((each for each in waits if each is not None), default=None)

    async def _send_due(self, kind: str, expected: ExpectedEvent) -> int | None:
        now_ms = self._clock.now_ms()
        progress = self._progress.get((kind, expected.state))
        if progress is None:
            progress = self._progress[kind, expected.state] = _Progress(now_ms + EXPECT_AGAIN_MS)
        front = progress.front
        wait_ms = await self._read_page(expected, progress, front)
        if wait_ms is None and front.is_at_end:
            wait_ms = await self._next_due_ms(expected, front)
        if progress.repeat is None and front.is_at_end and not 0 < progress.again_ms - now_ms <= EXPECT_AGAIN_MS:
            progress.again_ms, progress.repeat = now_ms + EXPECT_AGAIN_MS, _Walk()
        if progress.repeat is not None:
            repeat_ms = await self._read_page(expected, progress, progress.repeat)
            if progress.repeat.is_at_end:
                progress.repeat = None
            if repeat_ms is not None:
                wait_ms = repeat_ms if wait_ms is None else min(wait_ms, repeat_ms)
        return wait_ms

    async def _read_page(self, expected: ExpectedEvent, progress: _Progress, walk: _Walk) -> int | None:
        """Send to the entities of one page; return how long to wait for the next page, None if there is none."""
        now_ms = self._clock.now_ms()
        page = await self._store.find(
            EntityQuery(
                kind=expected.kind,
                state=expected.state,
                entered_before_ms=now_ms - expected.within_ms,
                after=walk.after,
                limit=EXPECT_SENT_MAX,
            )
        )
        sent = 0
        for row in page.rows:
            visit = row.entity, row.entered_ms
            if visit in walk.done or await self._is_settled(expected, row):
                walk.done.add(visit)
                continue
            if self._is_stopping or not await self._has_lease(expected.kind):
                return None
            sent += 1
            try:
                is_done = await self._send(expected, row)
            except UnavailableError as error:
                if error.code not in _LATER_CODES:
                    raise
                is_done, progress.again_ms = True, min(progress.again_ms, now_ms + HELD_WORK_MS_MIN)
            if is_done:
                walk.done.add(visit)
        walk.is_at_end = page.after is None
        if page.after is None:
            return None
        walk.after = page.after
        walk.done.clear()
        return EXPECT_EVERY_MS_MIN if sent else 0

    async def _next_due_ms(self, expected: ExpectedEvent, walk: _Walk) -> int | None:
        """Return how long until the next entity is overdue; None if the state has no other."""
        now_ms = self._clock.now_ms()
        # The rows that are done come first in this list, and those whose entity has changed: none is on time again.
        limit = min(len(walk.done) + 1, PAGE_MAX)
        query = EntityQuery(kind=expected.kind, state=expected.state, after=walk.after, limit=limit)
        for row in (await self._store.find(query)).rows:
            due_ms = row.entered_ms + expected.overdue_ms
            if due_ms > now_ms:
                return due_ms - now_ms
        return None

    async def _is_settled(self, expected: ExpectedEvent, row: EntityRow) -> bool:
        """Whether an entity gets no event, or has it already (rule 3)."""
        due_ms = row.entered_ms + expected.within_ms
        if row.ended is not None:
            return True
        if due_ms < self._clock.now_ms() - KEY_WINDOW_MS and row.changed_ms > row.entered_ms:
            return True
        if row.changed_ms <= due_ms:  # nothing was written since then
            return False
        return isinstance(await self._store.load(row.entity, key=expect_key(expected.state, row.entered_ms)), Duplicate)

    async def _send(self, expected: ExpectedEvent, row: EntityRow) -> bool:
        """Send the event to an entity; False if the entity has changed meanwhile. Raises UnavailableError."""
        key = expect_key(expected.state, row.entered_ms)
        event = state_overdue(expected.event, key)
        request = SendRequest(
            event, key, row.version, priority=Priority.RESULT, sent_ms=row.entered_ms + expected.within_ms
        )
        audit, attempt = self._entities.audit, Attempt.of_event(row.entity, event)
        try:
            receipt = await self._sender.send(row.entity, request)
        except ConflictError:
            return False
        except NotFoundError:  # retention removed it meanwhile
            return True
        except RejectedError as error:  # the step would be too large
            await audit.record_error(attempt, error)
            return True
        if receipt.reason != EXPIRED.code:
            await audit.record_receipt(attempt, receipt)
        return True

    async def _has_lease(self, kind: str) -> bool:
        """Whether this process sends the events of a kind now. Without leases every process does, which rule 3 bears.

        The lease is renewed after half of its time. Another process tries to get it as often.
        """
        leases = self._store.leases
        if leases is None:
            return True
        now_ms = self._clock.now_ms()
        held = self._leases.get(kind)
        if 0 <= now_ms - self._tried_ms.get(kind, now_ms - EXPECT_LEASE_MS) < EXPECT_LEASE_MS // 2:
            return held is not None and now_ms < held[1]
        self._tried_ms[kind] = now_ms
        until_ms = now_ms + EXPECT_LEASE_MS
        lease = await leases.acquire_lease(f"expect/{kind}", owner=self._owner, now_ms=now_ms, until_ms=until_ms)
        if lease is None:
            self._leases.pop(kind, None)
            return False
        if held is None:  # another process may have sent meanwhile
            for name in [each for each in self._progress if each[0] == kind]:
                del self._progress[name]
        self._leases[kind] = lease, until_ms
        return True

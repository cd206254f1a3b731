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
Rule 5: held entities, and those whose chart this process lacks, are tried again when the list is read from its begin,
which is a minute later.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from dataclasses import dataclass, field

from msgspec.structs import replace

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
    EXPECT_SENT_MAX,
    HELD_WORK_MS_MIN,
    KEY_WINDOW_MS,
)
from interlock.ports.clock import wait_to_poll
from interlock.ports.delivery import CHART_MISSING_CODES, HELD_CODES
from interlock.ports.leases import Lease
from interlock.ports.store import Duplicate, EntityQuery, EntityRow
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
    """How far the list of a state is read: the cursor of the last whole page, and the rows done after that.

    When it has reached the end, it starts again at `again_ms`.
    """

    again_ms: int
    after: str | None = None
    done: set[tuple[str, int]] = field(default_factory=set)
    is_at_end: bool = False


def expected_events(charts: ChartRegistry) -> dict[str, tuple[ExpectedEvent, ...]]:
    """Return the events that charts have for overdue states, by kind."""
    found = {kind: events_of_chart(_newest(charts, kind)) for kind in charts.every_kind()}
    return {kind: events for kind, events in found.items() if events}


def _newest(charts: ChartRegistry, kind: str) -> Chart:
    kernel = charts.current(kind)
    if kernel is None:  # an inline chart creates no entities of its own
        *_, kernel = charts.revisions(kind).values()
    return kernel.chart


class OverdueEvents:
    """Sends the events of overdue states, from `start` to `stop`."""

    def __init__(self, runtime: Runtime) -> None:
        self._entities = runtime.entities
        self._store = runtime.store
        self._clock = runtime.clock
        # As for a timer, no policy is asked: the chart itself sends the event.
        self._sender = EntitySender(runtime.entities, runtime.mover, authorizes=False)
        self._events = expected_events(runtime.charts)
        self._owner = runtime.clock.token() if self._events else ""
        self._leases: dict[str, tuple[Lease, int]] = {}
        self._tried_ms: dict[str, int] = {}
        self._walks: dict[tuple[str, str], _Walk] = {}
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
            due_ms = min((each for each in waits if each is not None), default=None)
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
        walk = self._walks.get((kind, expected.state))
        if walk is None or (walk.is_at_end and not 0 < walk.again_ms - now_ms <= EXPECT_AGAIN_MS):
            walk = self._walks[kind, expected.state] = _Walk(now_ms + EXPECT_AGAIN_MS)
        query = EntityQuery(
            kind=kind,
            state=expected.state,
            entered_before_ms=now_ms - expected.within_ms,
            after=walk.after,
            limit=EXPECT_SENT_MAX,
        )
        page = await self._store.find(query)
        for row in page.rows:
            visit = row.entity, row.entered_ms
            if visit in walk.done:
                continue
            if self._is_stopping or not await self._has_lease(kind):
                return None
            try:
                is_done = await self._send(expected, row)
            except UnavailableError as error:
                if error.code not in _LATER_CODES:
                    raise
                is_done, walk.again_ms = True, min(walk.again_ms, now_ms + HELD_WORK_MS_MIN)
            if is_done:
                walk.done.add(visit)
        if page.after is not None:
            walk.after = page.after
            walk.done.clear()
            return EXPECT_EVERY_MS_MIN
        walk.is_at_end = True
        # The rows of this page come first in the list of all, and the next one comes due next.
        coming = replace(query, entered_before_ms=None, limit=len(page.rows) + 1)
        for row in (await self._store.find(coming)).rows:
            due_ms = row.entered_ms + expected.overdue_ms
            if due_ms > now_ms:
                return due_ms - now_ms
        return None

    async def _send(self, expected: ExpectedEvent, row: EntityRow) -> bool:
        """Send the event to an entity; False if the entity has changed meanwhile. Raises UnavailableError."""
        if row.ended is not None:
            return True
        due_ms = row.entered_ms + expected.within_ms
        if due_ms < self._clock.now_ms() - KEY_WINDOW_MS and row.changed_ms > row.entered_ms:
            return True
        key = expect_key(expected.state, row.entered_ms)
        if row.changed_ms > due_ms and isinstance(await self._store.load(row.entity, key=key), Duplicate):
            return True
        event = state_overdue(expected.event, key)
        request = SendRequest(event, key, row.version, priority=Priority.RESULT, sent_ms=due_ms)
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
            for name in [each for each in self._walks if each[0] == kind]:
                del self._walks[name]
        self._leases[kind] = lease, until_ms
        return True

"""The driver: load, step, append, retry. The six duties, for any store.

1. Load the snapshot at version n (or take it from the cache: a stale one costs one conflict, never a wrong step).
2. Step it: pure, so doing it twice is harmless.
3. Append, conditional on version n, the one entry that holds everything the step caused, and the work it leaves.
4. Conflict: back to 1 with a fresh snapshot, with capped exponential backoff and full jitter.
5. Effects are performed by others (`worker`), after the append; their keys are in the entry.
6. Results come back as events, through `deliver`, which is `send` for the driver's own.

`steps` does them; here is what callers may ask for.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

from msgspec.structs import replace

from interlock.effects.lanes import StopReport
from interlock.errors import CorruptionError, NotFoundError, RejectedError, UnavailableError, UsageError
from interlock.kernel.explain import Candidate
from interlock.kernel.step import Kernel
from interlock.model.event import Event
from interlock.model.journal.entry import Entry, Receipt
from interlock.model.journal.work import WorkDelta, WorkId
from interlock.model.json_value import payload_refusal
from interlock.model.keys import OwnKey
from interlock.model.limits import KEY_WINDOW_MS
from interlock.model.snapshot import Parent, Snapshot
from interlock.model.step import Fault
from interlock.ports.admission import AdmissionGate, DrainableGate
from interlock.ports.clock import Clock, wait_to_poll
from interlock.ports.delivery import CHART_MISSING_CODES
from interlock.ports.fork import after_fork, keep_forever
from interlock.ports.store import EntityPage, EntityQuery, Store
from interlock.runtime.admission import Admission
from interlock.runtime.chart_registry import ChartRegistry
from interlock.runtime.history.travel import At, entries_after, state_at
from interlock.runtime.history.verify import Verification, verify_entity, verify_store
from interlock.runtime.mailbox import Priority
from interlock.runtime.request_checks import (
    check_entity,
    check_event,
    check_expected,
    check_key,
    check_new_entity,
    check_range,
    check_sender,
    check_sent,
)
from interlock.runtime.sender import EXPIRED, EntitySender, SendRequest
from interlock.runtime.shutdown import DRAIN_MS as SIGNAL_DRAIN_MS
from interlock.runtime.shutdown import DrainReport, until_signal

if TYPE_CHECKING:
    pass

DRAIN_MS = 10_000
"""How long work in hand may take to finish when a runtime closes."""


class Runtime:
    """Entities of some charts on one store."""

    def __init__(
        self,
        store: Store,
        charts: ChartRegistry,
        clock: Clock,
        door: AdmissionGate | None = None,
        *,
        messages: bool = False,
    ) -> None:
        self.store = store
        self.charts = charts
        self.clock = clock
        self.door = door
        self.drain_ms = DRAIN_MS
        self._admission = Admission(door)
        self._steps = EntitySender(store, charts, clock, messages=messages)
        self._endings: list[Callable[[], Awaitable[object]]] = []
        self._drain_listeners: list[Callable[[], None]] = []
        self._process = os.getpid()
        after_fork(self, keep_forever)  # finalizers of inherited connections would act on the parent's

    # Writing

    async def create(
        self,
        entity: str,
        context: Mapping[str, Any] | None = None,
        *,
        key: str | None = None,
        principal: Mapping[str, Any] | None = None,
        trace: str | None = None,
    ) -> Receipt:
        """Begin an entity: entry 1. The same key again is `duplicate`; another key is `rejected`, `entity.exists`.

        Raises NotFoundError for an unknown kind, RejectedError when the chart refuses the context, UsageError
        (`key.reused`) when an event has the key.
        """
        kind = check_entity(entity)
        check_sender(principal, trace)
        if key is not None:
            check_key(key)
        try:
            check_new_entity(entity)
        except UsageError:
            if await self.store.load(entity) is None:
                raise
        kernel = self.charts.current(kind)
        given = dict(context or {})
        refused = payload_refusal({"context": given})
        problem = None
        if refused is not None:
            problem = RejectedError(f"the context is refused: {refused}", code="context.refused")
        with self._admission.admitted():
            return await self._steps.begin(
                entity, kernel, given, key=key, principal=_plain(principal), trace=trace, problem=problem
            )

    async def send(
        self,
        entity: str,
        event: str,
        payload: Any = None,
        *,
        key: str | None = None,
        expected: int | None = None,
        principal: Mapping[str, Any] | None = None,
        trace: str | None = None,
        sent_ms: int | None = None,
    ) -> Receipt:
        """Give an event to an entity. When the receipt says `applied`, its entry is durable.

        `sent_ms` is when the sender first sent it: keys are forgotten after `KEY_WINDOW_MS`, 30 days, in files after
        10,000 further entries of the entity. With it, an event from before that whose key is not known is `rejected`,
        `key.expired`: it may have been taken long ago. Without it, it is taken again.
        Raises NotFoundError when there is no such entity, ConflictError when `expected` is not its version or others
        kept winning, UsageError (`key.reused`) when another event has the key, RejectedError when the step is too large
        to keep, UnavailableError when the store cannot keep its promise: it may have kept the entry all the same, so
        send again with the same key. Without a key, and without a `dedupe` in the chart, nobody can tell the second
        from a new event: it may be taken twice. Look at `journal` first, or give every event a key.
        """
        given = self._given(entity, event, payload, key, principal, trace, expected, sent_ms)
        if key is None:
            given = replace(given, key=f"_{self.clock.token()}")
        with self._admission.admitted():
            return await self._steps.give(entity, given)

    async def submit(
        self,
        entity: str,
        event: str,
        payload: Any = None,
        *,
        key: OwnKey,
        expected: int | None = None,
        principal: Mapping[str, Any] | None = None,
        trace: str | None = None,
        sent_ms: int | None = None,
    ) -> Receipt:
        """As `send`, for the package's own senders: under a key that no other sender can have taken. Raises as it does.

        The event carries `key.name` as its id and key. It is for buses, jobs of the console and reconcilers.
        """
        given = self._given(entity, event, payload, None, principal, trace, expected, sent_ms)
        named = replace(given.event, id=key.name, key=key.name)
        with self._admission.admitted():
            return await self._steps.give(entity, replace(given, event=named, key=key.key, former=key.former))

    async def rehearse(
        self,
        entity: str,
        event: str,
        payload: Any = None,
        *,
        key: str | None = None,
        principal: Mapping[str, Any] | None = None,
    ) -> Receipt:
        """What `send` would answer now, by the same rules and rights; nothing is written, not even a refusal."""
        return await self._steps.rehearse(entity, self._given(entity, event, payload, key, principal))

    def _given(
        self,
        entity: str,
        event: str,
        payload: Any,
        key: str | None,
        principal: Mapping[str, Any] | None,
        trace: str | None = None,
        expected: int | None = None,
        sent_ms: int | None = None,
    ) -> SendRequest:
        """What a sender gives, once it is known to be well formed. What is not given is not looked at: most is not."""
        if type(entity) is not str or entity not in self._steps.snapshots:  # those were looked at before
            check_entity(entity)
        check_event(event)
        if principal is not None or trace is not None:
            check_sender(principal, trace)
        if key is not None:
            check_key(key)
        if expected is not None:
            check_expected(expected)
        if sent_ms is not None:
            check_sent(sent_ms)
        problem, refused = None, None if payload is None else payload_refusal(payload)
        if refused is not None:
            problem = Fault("payload", refused)
        elif sent_ms is not None:
            problem = self._expiry(sent_ms)
        given = Event(event, payload, key, key, _plain(principal))
        return SendRequest(given, key or "_", expected, trace, problem, sent_ms=sent_ms)

    def _expiry(self, sent_ms: int) -> Fault | None:
        """Why an event of this age is refused if its key is not known; None when it is young enough."""
        return EXPIRED if sent_ms < self.clock.now_ms() - KEY_WINDOW_MS else None

    # For those who perform the work that entries leave

    async def deliver(
        self, entity: str, event: Event, *, key: str, answers: WorkId | None = None, fence: int | None = None
    ) -> Receipt:
        """Give an entity an event of the driver's own, under a key of the driver's own; see `ports.driver`."""
        level = Priority.SEND if answers is None else Priority.RESULT
        return await self._steps.give(entity, SendRequest(event, key, answers=answers, fence=fence, level=level))

    async def is_here(self, entity: str) -> bool:
        """Whether this process has the chart of an entity, in its revision; True for one that is not there at all."""
        cached = self._steps.snapshots.get(entity)
        try:
            snapshot, _ = cached if cached is not None else await self._steps.loaded(entity)
            self.charts.of(snapshot)
        except NotFoundError:
            return True
        except UnavailableError as error:
            if error.code not in CHART_MISSING_CODES:
                raise
            return False
        return True

    async def begin(self, entity: str, kernel: Kernel, context: dict[str, Any], parent: Parent) -> Receipt:
        """Create a child; creating it again is `duplicate`."""
        return await self._steps.begin(entity, kernel, context, key=None, parent=parent, token="_child")  # noqa: S106 - a key

    def on_work(self, listener: Callable[[WorkDelta], None]) -> Callable[[], None]:
        """Call a function with the work that each entry of this process leaves; gives what ends that."""
        self._steps.listeners.append(listener)
        return lambda: self._steps.listeners.remove(listener)

    def on_clock(self, listener: Callable[[str | None], None]) -> Callable[[], None]:
        """Call a function with each entity that is stepped while its time is ahead of the clock, and with None when the
        clock went back; gives what ends that.
        """
        self._steps.clock_listeners.append(listener)
        return lambda: self._steps.clock_listeners.remove(listener)

    async def timed(self, entity: str) -> tuple[Snapshot, int]:
        """The entity now, and the time of its last entry. Raises NotFoundError."""
        return await self._steps.loaded(entity)

    # Reading

    async def state(self, entity: str, *, at: At | None = None) -> Snapshot:
        """The entity now, or as it was: at a version, or at a time (ISO 8601 with its zone, or an aware datetime).

        Raises NotFoundError when there was nothing then, or no longer is: an archive may have its journal.
        """
        check_entity(entity)
        if at is None:
            snapshot, _ = await self._steps.loaded(entity)
            return snapshot
        try:
            loaded = await self._steps.found(entity)
        except CorruptionError:  # what was before the damage can be had, and the journal says where that is
            loaded = None
        return await state_at(self.store, self.charts, entity, loaded, at)

    async def journal(self, entity: str, *, after: int = 0, limit: int | None = None) -> tuple[Entry, ...]:
        """The entries after a version, in order, verified: all of them, or the first `limit`.

        A long journal is better read in parts: `limit=1000`, then again with `after` the version of the last entry.
        Raises NotFoundError when there is no such entity, or an archive has its journal; UsageError for an `after`
        below 0 or a `limit` below 1.
        """
        check_entity(entity)
        check_range(after, limit)
        found = await entries_after(self.store, entity, after=after, limit=limit)
        if not found:  # nothing more, or nothing at all
            await self._steps.found(entity)
        return found

    async def list(self, query: EntityQuery) -> EntityPage:
        """Entities by kind, state, age and tag, page by page. Raises UsageError for anything but a Query."""
        if not isinstance(cast("object", query), EntityQuery):
            hint = 'write interlock.Query(kind="order")'
            raise UsageError(f"`list` takes a Query, not {query!r:.80}", code="query.malformed", hint=hint)
        return await self.store.find(query)

    async def watch(self, entity: str, *, after: int = 0, poll_ms: int = 1_000) -> AsyncGenerator[Entry, None]:
        """Every entry after a version, as it is kept: at once for this process's own, within `poll_ms` for others'.

        Raises NotFoundError when there is no such entity yet: create it first.
        """
        check_entity(entity)
        check_range(after)
        is_known = False
        while not self._steps.closed:
            changed = self._steps.changed.setdefault(entity, asyncio.Event())
            try:
                records = await self.store.read(entity, after=after)
                if not (records or is_known):  # nothing more, or nothing at all
                    await self._steps.found(entity)
            except UnavailableError:
                if self._steps.closed:  # meanwhile: that is the end
                    return
                raise
            for record in records:
                after = record.version
                yield record.entry
            is_known = True
            if not records:
                waits: set[asyncio.Future[Any]] = {
                    asyncio.ensure_future(changed.wait()),
                    asyncio.ensure_future(wait_to_poll(self.clock, poll_ms)),
                }
                try:
                    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
                finally:  # also when whoever watches has gone
                    for each in waits:
                        each.cancel()

    async def can(self, entity: str) -> tuple[Candidate, ...]:
        """The transitions in question now, with the verdict of each guard and what it read."""
        snapshot = await self.state(entity)
        return self.charts.of(snapshot).candidates(snapshot)

    async def verify(self, entity: str) -> Verification:
        """What is proven of an entity: every link of its journal, and every entry replayed. Damage is an answer."""
        check_entity(entity)
        return await verify_entity(self.store, self.charts, entity)

    async def verify_all(self) -> AsyncGenerator[Verification, None]:
        """The proofs of all entities of the store, one by one."""
        async for proof in verify_store(self.store, self.charts, now_ms=self.clock.now_ms()):
            yield proof

    def before_close(self, ending: Callable[[], Awaitable[object]]) -> None:
        """Await something when the runtime closes, while it still answers."""
        self._endings.append(ending)

    def on_drain(self, listener: Callable[[], None]) -> None:
        """Call a function in the moment in which a drain begins."""
        self._drain_listeners.append(listener)

    async def drain(self, timeout_ms: int) -> DrainReport:
        """Take nothing more, let requests and work in hand finish in time, and put the rest back; tell how it went.

        Sends are refused from now on (`runtime.draining`); reading goes on until `close`. A lifecycle that other
        processes share drains with it.
        """
        self.drain_ms = timeout_ms
        for listener in self._drain_listeners:
            listener()
        began_ms = self.clock.now_ms()
        if isinstance(self.door, DrainableGate):
            self.door.drain(timeout=timeout_ms / 1000)  # begins at once, everywhere
        unanswered, stopped = await asyncio.gather(self._admission.drain(timeout_ms, self.clock), self._stopped())
        if isinstance(self.door, DrainableGate):
            left_ms = min(timeout_ms, max(0, began_ms + timeout_ms - self.clock.now_ms()))
            await self.door.drain(timeout=left_ms / 1000)
        took_ms = max(0, self.clock.now_ms() - began_ms)
        return DrainReport(stopped.finished, stopped.put_back, stopped.left, unanswered, took_ms)

    async def _stopped(self) -> StopReport:
        """What became of the work in hand, once everybody has ended who asked to be awaited."""
        found = StopReport()
        while self._endings:
            ending, over = self._endings[-1], True
            try:
                ended = await ending()
            except asyncio.CancelledError:
                over = False  # whoever gives up waiting leaves it to the next: to `close`
                raise
            finally:
                if over and ending in self._endings:
                    self._endings.remove(ending)
            found = ended if isinstance(ended, StopReport) else found
        return found

    async def run_until_signal(
        self, *, drain_ms: int = SIGNAL_DRAIN_MS, told: Callable[[int], object] = lambda _: None
    ) -> DrainReport:
        """Work until SIGTERM or SIGINT comes; then drain for so long at most, and tell how it went.

        A second signal ends the process at once. `told` hears the number of the first one. In the main thread only.

            async with interlock.open(url, charts=[order]) as orders:
                await orders.run_until_signal()
        """
        return await until_signal(self, drain_ms=drain_ms, told=told)

    async def close(self) -> None:
        """Let work in hand finish, stop taking requests, and close the store.

        In a forked child it does nothing: the store, the bus and the worker are its parent's.
        """
        if os.getpid() != self._process:
            return
        try:
            await self._stopped()
        finally:
            self._steps.closed = True
            for changed in list(self._steps.changed.values()):
                changed.set()
            await self.store.close()


def _plain(principal: Mapping[str, Any] | None) -> dict[str, Any] | None:
    return None if principal is None else dict(principal)

"""The write path of the driver: load, step, append, retry; for senders' events and for the driver's own.

Rule 1: a snapshot from the cache may be stale: that costs one lost swap, never a wrong step.
Rule 2: a refusal is only ever given on a fresh snapshot, and only when the key is not known: the same send, repeated
after the entity moved on, is `duplicate`. Roles come before all that: a key or a version that a stranger guesses
tells him nothing.
Rule 3: what a step leaves to do is written in the append of its entry, where the store keeps work; whoever performs it
hears of it afterwards, and not before.
Rule 4: an error of the chart that no transition took is told to the log: most steps have no sender who reads a receipt.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from typing import Any
from weakref import WeakValueDictionary

from msgspec import Struct
from msgspec.structs import replace

from interlock.effects.work_delta import work_delta
from interlock.errors import ConflictError, RejectedError, UnavailableError
from interlock.kernel.step import Kernel
from interlock.model.codec import plain
from interlock.model.event import Event
from interlock.model.journal.entry import CREATE, Entry, Receipt
from interlock.model.journal.work import WorkDelta, WorkId
from interlock.model.keys import dedupe_key
from interlock.model.limits import (
    BACKOFF_MS_MAX,
    BACKOFF_MS_MIN,
    CLOCK_AHEAD_MS_MAX,
    CONFLICT_RETRIES_MAX,
    SNAPSHOTS_CACHED_MAX,
)
from interlock.model.snapshot import Parent, Snapshot
from interlock.model.step import Fault, Step
from interlock.ports.clock import Clock
from interlock.ports.store import (
    Append,
    Appended,
    Conflict,
    Duplicate,
    KeyExpired,
    Loaded,
    Refusal,
    RefusalLog,
    StaleAttempt,
    Store,
)
from interlock.ports.work import WorkStore
from interlock.runtime.chart_registry import ChartRegistry
from interlock.runtime.duplicates import known_before, resolve_duplicate
from interlock.runtime.history.replay import replay
from interlock.runtime.mailbox import EntityTurn, Mailboxes, Priority
from interlock.runtime.receipts import build_entry, build_receipt, log_faults
from interlock.runtime.request_checks import unknown_entity
from interlock.trust.authorization import Authorizer

NOTHING = WorkDelta()

EXPIRED = Fault("key.expired", "keys of that age are forgotten: it may have been taken long ago")


class SendRequest(Struct, frozen=True):
    """An event for an entity: its key, what the sender expects, why it is refused beforehand if it is.

    `sent_ms` is when its sender first sent it, for stores that can tell whether its key may be forgotten.
    `former` is the key by which an earlier release may have kept the same request.
    `answers` is the work of the entity that ends with the entry; with `fence`, only while that is its newest attempt.
    """

    event: Event
    key: str
    expected: int | None = None
    trace: str | None = None
    problem: Fault | None = None
    answers: WorkId | None = None
    fence: int | None = None
    level: Priority = Priority.OUTSIDE
    sent_ms: int | None = None
    former: str | None = None


class EntitySender:
    """Steps entities of some charts on one store."""

    def __init__(self, store: Store, charts: ChartRegistry, clock: Clock, *, messages: bool = False) -> None:
        self.store = store
        self.charts = charts
        self.clock = clock
        self.closed = False
        self.snapshots: OrderedDict[str, tuple[Snapshot, int]] = OrderedDict()
        self.busy: Mailboxes = {}
        # Kept alive by those who wait on it: with the last of them it goes.
        self.changed: WeakValueDictionary[str, asyncio.Event] = WeakValueDictionary()
        self.listeners: list[Callable[[WorkDelta], None]] = []
        # Called with an entity whose time is ahead of the clock, or None when the clock itself went back.
        self.clock_listeners: list[Callable[[str | None], None]] = []
        self._latest_ms = 0
        self._keeps_work = isinstance(store, WorkStore)
        self._messages = messages
        self._hidden: dict[str, frozenset[str]] = {}
        self._authorizers: dict[str, Authorizer] = {}
        self._listed: dict[tuple[str, tuple[str, ...]], tuple[tuple[str, ...], tuple[str, ...]]] = {}

    def alone(self, entity: str, level: Priority = Priority.OUTSIDE) -> EntityTurn:
        """One step of an entity at a time. Raises UnavailableError once closed."""
        if self.closed:
            raise UnavailableError("the runtime is closed", code="runtime.closed")
        return EntityTurn(self.busy, entity, level)

    def now_ms(self) -> int:
        """The clock; those who look after wrong clocks hear when it went back by more than clocks differ."""
        now_ms = self.clock.now_ms()
        if now_ms < self._latest_ms - CLOCK_AHEAD_MS_MAX:
            self._latest_ms = now_ms
            self._notice(None)
        elif now_ms > self._latest_ms:
            self._latest_ms = now_ms
        return now_ms

    def _notice(self, entity: str | None) -> None:
        for listener in self.clock_listeners:
            listener(entity)

    # Writing

    async def begin(
        self,
        entity: str,
        kernel: Kernel,
        context: dict[str, Any],
        *,
        key: str | None,
        principal: Any = None,
        trace: str | None = None,
        parent: Parent | None = None,
        token: str | None = None,
        problem: RejectedError | None = None,
    ) -> Receipt:
        """Entry 1 of an entity. `key` is its sender's, `token` what stands for it when there is none.

        `problem`: why the context is refused beforehand, if it is. Raises RejectedError when that, or the chart, says
        no; not where the key is known: then a chart said yes before, and it is `duplicate`.
        """
        data: dict[str, Any] = {"context": context}
        if parent is not None:
            data["parent"] = plain(parent)
        async with self.alone(entity, Priority.OUTSIDE if parent is None else Priority.SEND):
            now = self.now_ms()
            event = Event(CREATE, data, key=key, principal=principal, time_ms=now, type="platform")
            own = key or token or f"_{self.clock.token()}"
            try:
                if problem is not None:
                    raise problem
                step = kernel.start(context, entity=entity, time_ms=now, parent=parent)
                entry = build_entry(event, (), step, own, trace)
            except RejectedError as error:
                if isinstance(found := await self.store.load(entity, key=own), Duplicate):
                    return await resolve_duplicate(self.store, entity, found.version, key=own, event=CREATE)
                if parent is None:  # a parent hears it as the error of its invoke
                    await self._tell_refusal(entity, event, "rejected", error.code, trace)
                raise
            work = self._left(kernel, None, step, entry, None)
            result = await self.store.append(self._append(kernel, 0, entry, step.snapshot, work))
            if isinstance(result, Appended):
                self._keep(step.snapshot, now, work)
                if step.faults:
                    log_faults(entry, step)
                return Receipt(entity, "applied", 1, None, step.snapshot, step.effects, step.faults)
            if isinstance(result, Duplicate):
                return await resolve_duplicate(self.store, entity, result.version, key=own, event=CREATE)
            assert isinstance(result, Conflict)  # no work stands before an entity's first entry
            return Receipt(entity, "rejected", result.version, "entity.exists")

    async def give(self, entity: str, given: SendRequest) -> Receipt:
        """Step an entity by an event, again on a fresh snapshot while others win."""
        async with self.alone(entity, given.level):
            for attempt in range(CONFLICT_RETRIES_MAX + 1):
                receipt = await self._attempt(entity, given)
                if receipt is not None:
                    return receipt
                self.snapshots.pop(entity, None)
                await self.clock.sleep_ms(backoff_ms(attempt, self.clock.jitter()))
        message = f"`{entity}`: {CONFLICT_RETRIES_MAX} swaps in a row were lost to others"
        raise ConflictError(message, code="conflict.retries", hint="nothing was written: send it again later")

    async def rehearse(self, entity: str, given: SendRequest) -> Receipt:
        """What `give` would answer now; nothing is written, not even a refusal."""
        snapshot, last_ms = await self.loaded(entity)
        kernel = self.charts.of(snapshot)
        event, key, former = self._stamped(kernel, snapshot, given, last_ms)
        verdict = self._verdict(kernel, snapshot, event, given)
        if verdict != "roles" and isinstance(found := await self.store.load(entity, key=key), Duplicate):
            return await resolve_duplicate(self.store, entity, found.version, key=key, event=event.name)
        before = None if former is None or verdict == "roles" else await known_before(self.store, entity, former, event)
        return build_receipt(snapshot, verdict) if before is None else before

    async def _attempt(self, entity: str, given: SendRequest) -> Receipt | None:
        """One try; None when the swap was lost."""
        cached = self.snapshots.get(entity)
        snapshot, last_ms = cached if cached is not None else await self.loaded(entity)
        kernel = self.charts.of(snapshot)
        event, key, former = self._stamped(kernel, snapshot, given, last_ms)
        verdict = self._verdict(kernel, snapshot, event, given)
        if former is not None and verdict != "roles":
            before = await known_before(self.store, entity, former, event)
            if before is not None:
                return before
        if isinstance(verdict, Step) and verdict.snapshot.version > snapshot.version:
            return await self._appended(kernel, snapshot, event, verdict, key, given)
        return await self._refused(snapshot, event, verdict, key, given)

    def _stamped(
        self, kernel: Kernel, snapshot: Snapshot, given: SendRequest, last_ms: int
    ) -> tuple[Event, str, str | None]:
        """The event with its time, which never goes back, the key by which it is known, and its former key if any.

        An answer keeps its own: under a key that a sender's event has used, a timer would never fire.
        """
        now_ms = self.now_ms()
        if last_ms <= now_ms:
            event = replace(given.event, time_ms=now_ms)
        else:  # another clock was ahead: the entity's time waits for ours, and its timers do not
            event = replace(given.event, time_ms=last_ms, clock_ms=now_ms)
            if last_ms > now_ms + CLOCK_AHEAD_MS_MAX:
                self._notice(snapshot.entity)
        if event.key is None and given.answers is None and kernel.chart.events:
            known = next((each for each in kernel.chart.events if each.name == event.name), None)
            if known is not None and known.dedupe is not None:
                value = kernel.evaluate(known.dedupe, snapshot, event)
                if isinstance(value, str | int) and value != "":
                    return event, *dedupe_key(event.name, value)
        return event, given.key, given.former

    def _verdict(self, kernel: Kernel, snapshot: Snapshot, event: Event, given: SendRequest) -> Step | str:
        """The step, or the reason why the policy denies it.

        Roles come first: a stranger is denied, whatever he expects. A permit comes after `expected`: what it says of a
        snapshot that the sender did not mean is no answer.
        """
        policy = self._policy(kernel, given)
        if policy is not None and (denied := policy.role_refusal(event)) is not None:
            return denied
        if given.expected is not None and snapshot.version != given.expected:
            return "expected"
        if policy is not None and (denied := policy.permit_refusal(event, snapshot)) is not None:
            return denied
        if given.problem is not None:
            return Step(snapshot, (), "rejected", given.problem.code, faults=(given.problem,))
        return kernel.step(snapshot, event)

    def _policy(self, kernel: Kernel, given: SendRequest) -> Authorizer | None:
        """Who decides whether this sender may; None where everybody may.

        Not asked of answers: the chart itself set the timer, or invoked.
        """
        if given.answers is not None:
            return None
        authorizer = self._authorizers.get(kernel.chart.revision)
        if authorizer is None:
            authorizer = self._authorizers[kernel.chart.revision] = Authorizer(kernel.chart)
        return None if authorizer.is_open else authorizer

    async def _appended(
        self, kernel: Kernel, snapshot: Snapshot, event: Event, step: Step, key: str, given: SendRequest
    ) -> Receipt | None:
        try:
            entry = build_entry(event, snapshot.configuration, step, key, given.trace)
        except RejectedError as error:
            return await self._refused(snapshot, event, error, key, given)
        work = self._left(kernel, snapshot, step, entry, given.answers)
        append = self._append(kernel, snapshot.version, entry, step.snapshot, work)
        if given.fence is not None:
            assert given.answers is not None  # a fence is around some work
            append = replace(append, fence=(given.answers, given.fence))
        if given.sent_ms is not None:
            append = replace(append, sent_ms=given.sent_ms)
        result = await self.store.append(append)
        if isinstance(result, Appended):
            self._keep(step.snapshot, event.time_ms, work)
            if step.faults:
                log_faults(entry, step)
            return Receipt(
                snapshot.entity, step.outcome, result.version, step.reason, step.snapshot, step.effects, step.faults
            )
        if isinstance(result, Duplicate):
            self.snapshots.pop(snapshot.entity, None)
            return await resolve_duplicate(self.store, snapshot.entity, result.version, key=key, event=event.name)
        if isinstance(result, StaleAttempt):
            return Receipt(snapshot.entity, "duplicate", result.version, "attempt.stale")
        if isinstance(result, KeyExpired):
            expired = Step(snapshot, (), "rejected", EXPIRED.code, faults=(EXPIRED,))
            return await self._refused(snapshot, event, expired, key, given)
        return None

    def _left(
        self, kernel: Kernel, before: Snapshot | None, step: Step, entry: Entry, answers: WorkId | None
    ) -> WorkDelta:
        if not self._keeps_work:
            return NOTHING
        work, time_ms = NOTHING, entry.event.at_ms
        if self._messages:
            work = work_delta(before, step, time_ms, told=entry, hidden=self._is_hidden(kernel, entry))
        elif before is None or step.effects or before.timers or step.snapshot.ended is not None:
            work = work_delta(before, step, time_ms)
        return work if answers is None else replace(work, ended=(*work.ended, answers))

    def _is_hidden(self, kernel: Kernel, entry: Entry) -> bool:
        """Whether a state that the chart hides from others is left, stayed in or entered."""
        chart = kernel.chart
        hidden = self._hidden.get(chart.revision)
        if hidden is None:
            tops = [each for each in chart.states if each.sensitive is not None and each.sensitive.hidden]
            within = (chart.states[index] for each in tops for index in range(each.index, each.last + 1))
            hidden = self._hidden[chart.revision] = frozenset(each.id for each in within)
        return not hidden.isdisjoint((*entry.before, *entry.after))

    async def _refused(
        self, snapshot: Snapshot, event: Event, verdict: Step | str | RejectedError, key: str, given: SendRequest
    ) -> Receipt | None:
        """A refusal, once it is known to be right: for a key never kept, on the newest snapshot. None: it is not.

        Raises what is no receipt: ConflictError for `expected`, the RejectedError given.
        """
        entity = snapshot.entity
        # A stranger's key is not asked for: a guessed one would answer him.
        found = await self.store.load(entity, key=None if verdict == "roles" else key)
        if isinstance(found, Duplicate):
            return await resolve_duplicate(self.store, entity, found.version, key=key, event=event.name)
        if found is None or found.version != snapshot.version:
            return None
        if verdict == "expected":
            raise ConflictError(f"`{entity}` is at version {snapshot.version}", code="conflict.expected")
        if isinstance(verdict, RejectedError):
            if given.answers is None:  # of an answer the work itself tells it, once it is given up
                await self._tell_refusal(entity, event, "rejected", verdict.code, given.trace)
            raise verdict
        receipt = build_receipt(snapshot, verdict)
        await self._tell_refusal(entity, event, receipt.outcome, receipt.reason or "", given.trace)
        return receipt

    async def _tell_refusal(self, entity: str, event: Event, outcome: str, reason: str, trace: str | None) -> None:
        """Keep an attempt that changed nothing, where the store keeps such."""
        if isinstance(self.store, RefusalLog):
            who = None if event.principal is None else str(event.principal.get("id", ""))
            await self.store.refuse((Refusal(entity, event.name, outcome, reason, event.at_ms, who, trace),))

    def _append(self, kernel: Kernel, expected: int, entry: Entry, snapshot: Snapshot, work: WorkDelta) -> Append:
        place = (snapshot.revision, snapshot.configuration)
        found = self._listed.get(place)
        if found is None:
            states = kernel.active(snapshot)
            found = tuple(each.id for each in states), tuple(sorted({tag for each in states for tag in each.tags}))
            if len(self._listed) >= SNAPSHOTS_CACHED_MAX:  # regions multiply: it is cheaper to learn them again
                self._listed.clear()
            self._listed[place] = found
        return Append(snapshot.kind, snapshot.entity, expected, entry, snapshot, *found, work)

    def _keep(self, snapshot: Snapshot, time_ms: int, work: WorkDelta) -> None:
        """A step of this process is durable: the cache goes on from it, and those who wait for it hear."""
        self._cache(snapshot, time_ms)
        if self.changed and (changed := self.changed.pop(snapshot.entity, None)) is not None:
            changed.set()
        if work.born:
            for listener in self.listeners:
                listener(work)

    def _cache(self, snapshot: Snapshot, time_ms: int) -> None:
        self.snapshots[snapshot.entity] = (snapshot, time_ms)
        self.snapshots.move_to_end(snapshot.entity)
        if len(self.snapshots) > SNAPSHOTS_CACHED_MAX:
            self.snapshots.popitem(last=False)

    # Reading

    async def loaded(self, entity: str) -> tuple[Snapshot, int]:
        """The snapshot as the store has it, and the time of its last entry. Raises NotFoundError."""
        found = await self.found(entity)
        snapshot = replay(self.charts, entity, found.snapshot, (each.entry for each in found.records))
        if snapshot is None:
            raise unknown_entity(entity)
        self._cache(snapshot, found.time_ms)
        return snapshot, found.time_ms

    async def found(self, entity: str) -> Loaded:
        """What the store knows of an entity. Raises NotFoundError."""
        found = await self.store.load(entity)
        if found is None or isinstance(found, Duplicate):
            raise unknown_entity(entity)
        return found


def backoff_ms(attempt: int, jitter: float) -> float:
    """How long to wait before the next try: exponential, capped, and anywhere below that (full jitter)."""
    return min(BACKOFF_MS_MAX, BACKOFF_MS_MIN * 2.0**attempt) * jitter

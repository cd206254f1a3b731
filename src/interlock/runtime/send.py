"""The driver: load, step, append, retry. The six duties, for any store.

1. Load the snapshot at version n (or take it from the cache: a stale one costs one conflict, never a wrong step).
2. Step it: pure, so doing it twice is harmless.
3. Append, conditional on version n, the one entry that holds everything the step caused.
4. Conflict: back to 1 with a fresh snapshot, with capped exponential backoff and full jitter.
5. Effects are performed by others, after the append; their keys are in the entry.
6. Results come back as events, through `send` like everything else.

Rule: a refusal is only ever given on a fresh snapshot, and only when the key is not known: the same send, repeated
after the entity moved on, is `duplicate`.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from interlock.errors import ConflictError, NotFoundError, RejectedError, UnavailableError
from interlock.kernel.explain import Candidate
from interlock.kernel.kernel import Kernel
from interlock.model.codec import encode
from interlock.model.entry import CREATE, Entry, Receipt
from interlock.model.event import Event
from interlock.model.limits import (
    BACKOFF_MS_MAX,
    BACKOFF_MS_MIN,
    CONFLICT_RETRIES_MAX,
    ENTRY_BYTES_MAX,
    SNAPSHOT_BYTES_MAX,
    SNAPSHOTS_CACHED_MAX,
)
from interlock.model.snapshot import Snapshot
from interlock.model.step import Step
from interlock.ports.clock import Clock
from interlock.ports.store import Append, Appended, Duplicate, Page, Query, Refusal, RefusalLog, Store
from interlock.runtime.charts import Charts
from interlock.runtime.replay import replayed
from interlock.runtime.request import (
    check_event,
    check_key,
    check_sender,
    checked_entity,
    dedupe_key,
    payload_refusal,
)
from interlock.trust.authorize import Authorizer


class Runtime:
    """Entities of some charts on one store."""

    def __init__(self, store: Store, charts: Charts, clock: Clock) -> None:
        self.store = store
        self.charts = charts
        self.clock = clock
        self._snapshots: OrderedDict[str, tuple[Snapshot, int]] = OrderedDict()
        self._busy: dict[str, tuple[asyncio.Lock, int]] = {}
        self._authorizers: dict[str, Authorizer] = {}
        self._changed: dict[str, asyncio.Event] = {}
        self._closed = False

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

        Raises NotFoundError for an unknown kind, RejectedError when the chart refuses the context.
        """
        kind = checked_entity(entity)
        check_sender(principal, trace)
        if key is not None:
            check_key(key)
        kernel = self.charts.current(kind)
        data = {"context": dict(context or {})}
        problem = payload_refusal(data)
        if problem is not None:
            raise RejectedError(f"the context is refused: {problem}", code="context.refused")
        async with self._alone(entity):
            now = self.clock.now_ms()
            event = Event(CREATE, data, key=key, principal=_plain(principal), time_ms=now, type="platform")
            step = kernel.start(context, entity=entity, time_ms=now)
            entry = self._entry(event, (), step, key or f"_{self.clock.token()}", trace)
            result = await self.store.append(self._append(kernel, 0, entry, step.snapshot))
            if isinstance(result, Appended):
                self._keep(step.snapshot, now)
                return Receipt(entity, "applied", 1, None, step.snapshot, step.effects, step.faults)
            if isinstance(result, Duplicate):
                return Receipt(entity, "duplicate", result.version)
            return Receipt(entity, "rejected", result.version, "entity.exists")

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
    ) -> Receipt:
        """Give an event to an entity. When the receipt says `applied`, its entry is durable.

        Raises NotFoundError when there is no such entity, ConflictError when `expected` is not its version or others
        kept winning, UnavailableError when the store cannot keep its promise: then send again with the same key.
        """
        checked_entity(entity)
        check_event(event)
        check_sender(principal, trace)
        if key is not None:
            check_key(key)
        problem = payload_refusal(payload)
        given = Event(event, payload, key=key, principal=_plain(principal))
        async with self._alone(entity):
            token = key or f"_{self.clock.token()}"
            for attempt in range(CONFLICT_RETRIES_MAX + 1):
                receipt = await self._attempt(entity, given, token, expected, trace, problem)
                if receipt is not None:
                    return receipt
                self._snapshots.pop(entity, None)
                await self.clock.sleep_ms(backoff_ms(attempt, self.clock.jitter()))
        message = f"`{entity}`: {CONFLICT_RETRIES_MAX} swaps in a row were lost to others"
        raise ConflictError(message, code="conflict.retries")

    async def _attempt(
        self, entity: str, given: Event, token: str, expected: int | None, trace: str | None, problem: str | None
    ) -> Receipt | None:
        """One try; None when the swap was lost."""
        cached = self._snapshots.get(entity)
        snapshot, last_ms = cached if cached is not None else await self._loaded(entity)
        kernel = self.charts.revision(snapshot.kind, snapshot.revision)
        event, token = self._stamped(kernel, snapshot, given, token, last_ms)
        verdict = self._verdict(kernel, snapshot, event, expected, problem)
        if isinstance(verdict, Step) and verdict.snapshot.version > snapshot.version:
            return await self._appended(kernel, snapshot, event, verdict, token, trace)
        return await self._refused(snapshot, event, verdict, token, trace)

    def _stamped(self, kernel: Kernel, snapshot: Snapshot, given: Event, token: str, last_ms: int) -> tuple[Event, str]:
        """The event with its time, which never goes back, and the key by which it is known."""
        known = next((each for each in kernel.chart.events or () if each.name == given.name), None)
        event = Event(
            given.name,
            given.data,
            given.key,
            given.key,
            given.principal,
            max(last_ms, self.clock.now_ms()),
        )
        if known is not None and known.dedupe is not None and given.key is None:
            value = kernel.evaluated(known.dedupe, snapshot, event)
            if isinstance(value, str | int) and value != "":
                token = dedupe_key(given.name, value)
        return event, token

    def _verdict(
        self, kernel: Kernel, snapshot: Snapshot, event: Event, expected: int | None, problem: str | None
    ) -> Step | str:
        """The step, or the reason why the policy denies it."""
        if expected is not None and snapshot.version != expected:
            return "expected"
        authorizer = self._authorizers.get(kernel.chart.revision)
        if authorizer is None:
            authorizer = self._authorizers[kernel.chart.revision] = Authorizer(kernel.chart)
        denied = authorizer.role_refusal(event) or authorizer.permit_refusal(event, snapshot)
        if denied is not None:
            return denied
        if problem is not None:
            return Step(snapshot, (), "rejected", "payload")
        return kernel.step(snapshot, event)

    async def _appended(
        self, kernel: Kernel, snapshot: Snapshot, event: Event, step: Step, token: str, trace: str | None
    ) -> Receipt | None:
        entry = self._entry(event, snapshot.configuration, step, token, trace)
        result = await self.store.append(self._append(kernel, snapshot.version, entry, step.snapshot))
        if isinstance(result, Appended):
            self._keep(step.snapshot, event.time_ms)
            return Receipt(
                snapshot.entity, step.outcome, result.version, step.reason, step.snapshot, step.effects, step.faults
            )
        if isinstance(result, Duplicate):
            self._snapshots.pop(snapshot.entity, None)
            return Receipt(snapshot.entity, "duplicate", result.version)
        return None

    async def _refused(
        self, snapshot: Snapshot, event: Event, verdict: Step | str, token: str, trace: str | None
    ) -> Receipt | None:
        """A refusal, once it is known to be right: for a key never kept, on the newest snapshot. None: it is not."""
        entity = snapshot.entity
        if verdict != "roles":  # before the role test a guessed key would answer strangers
            found = await self.store.load(entity, key=token)
            if isinstance(found, Duplicate):
                return Receipt(entity, "duplicate", found.version)
            if found is None or found.version != snapshot.version:
                return None
        if verdict == "expected":
            raise ConflictError(f"`{entity}` is at version {snapshot.version}", code="conflict.expected")
        if isinstance(verdict, str):
            receipt = Receipt(entity, "denied", snapshot.version, verdict)
        else:
            receipt = Receipt(
                entity, verdict.outcome, snapshot.version, verdict.reason, snapshot, (), verdict.faults, verdict.trials
            )
        if isinstance(self.store, RefusalLog):
            who = None if event.principal is None else str(event.principal.get("id", ""))
            reason = receipt.reason or ""
            await self.store.refuse((Refusal(entity, event.name, receipt.outcome, reason, event.time_ms, who, trace),))
        return receipt

    # Parts of an append

    def _entry(self, event: Event, before: tuple[str, ...], step: Step, key: str, trace: str | None) -> Entry:
        snapshot = step.snapshot
        entry = Entry(
            snapshot.version,
            event,
            step.outcome,
            before,
            snapshot.configuration,
            snapshot.revision,
            key,
            step.reason,
            trace,
            step.effects,
        )
        if len(encode(entry)) > ENTRY_BYTES_MAX:
            raise RejectedError(f"the entry of this step has more than {ENTRY_BYTES_MAX:,} bytes", code="entry.size")
        if len(encode(snapshot)) > SNAPSHOT_BYTES_MAX:
            raise RejectedError(f"the snapshot would have more than {SNAPSHOT_BYTES_MAX:,} bytes", code="snapshot.size")
        return entry

    def _append(self, kernel: Kernel, expected: int, entry: Entry, snapshot: Snapshot) -> Append:
        states = kernel.active(snapshot)
        tags = tuple(sorted({tag for each in states for tag in each.tags}))
        return Append(
            snapshot.kind, snapshot.entity, expected, entry, snapshot, tuple(each.id for each in states), tags
        )

    def _keep(self, snapshot: Snapshot, time_ms: int) -> None:
        """A step of this process is durable: the cache goes on from it, and those who watch hear of it."""
        self._cache(snapshot, time_ms)
        changed = self._changed.pop(snapshot.entity, None)
        if changed is not None:
            changed.set()

    def _cache(self, snapshot: Snapshot, time_ms: int) -> None:
        self._snapshots[snapshot.entity] = (snapshot, time_ms)
        self._snapshots.move_to_end(snapshot.entity)
        if len(self._snapshots) > SNAPSHOTS_CACHED_MAX:
            self._snapshots.popitem(last=False)

    async def _loaded(self, entity: str) -> tuple[Snapshot, int]:
        found = await self.store.load(entity)
        if found is None or isinstance(found, Duplicate):
            raise NotFoundError(f"no entity `{entity}`", code="entity.unknown", hint="create it first")
        snapshot = replayed(self.charts, entity, found.snapshot, (each.entry for each in found.records))
        if snapshot is None:
            raise NotFoundError(f"no entity `{entity}`", code="entity.unknown", hint="create it first")
        self._cache(snapshot, found.time_ms)
        return snapshot, found.time_ms

    @asynccontextmanager
    async def _alone(self, entity: str) -> AsyncIterator[None]:
        """One step of an entity at a time in this process: its callers queue here and never conflict."""
        if self._closed:
            raise UnavailableError("the runtime is closed", code="runtime.closed")
        lock, waiting = self._busy.get(entity, (asyncio.Lock(), 0))
        self._busy[entity] = (lock, waiting + 1)
        try:
            async with lock:
                yield
        finally:
            lock, waiting = self._busy[entity]
            if waiting == 1:
                del self._busy[entity]
            else:
                self._busy[entity] = (lock, waiting - 1)

    # Reading

    async def state(self, entity: str, *, at: int | None = None, at_ms: int | None = None) -> Snapshot:
        """The entity now, at a version, or at a time (ms): the last entry not after it, replayed from the journal."""
        checked_entity(entity)
        if at is None and at_ms is None:
            snapshot, _ = await self._loaded(entity)
            return snapshot
        found: Snapshot | None = None
        async for entry in self._entries(entity):
            if (at is not None and entry.version > at) or (at_ms is not None and entry.event.time_ms > at_ms):
                break
            found = replayed(self.charts, entity, found, (entry,))
        if found is None or (at is not None and found.version != at):
            where = f"version {at}" if at is not None else f"time {at_ms}"
            raise NotFoundError(f"`{entity}` has nothing at {where}", code="entity.not_then")
        return found

    async def journal(self, entity: str, *, after: int = 0, limit: int = 100) -> tuple[Entry, ...]:
        """The entries after a version, in order, verified."""
        checked_entity(entity)
        return tuple(each.entry for each in await self.store.read(entity, after=after, limit=limit))

    async def _entries(self, entity: str) -> AsyncIterator[Entry]:
        after = 0
        while records := await self.store.read(entity, after=after):
            for record in records:
                yield record.entry
            after = records[-1].version

    async def list(self, query: Query) -> Page:
        """Entities by kind, state, age and tag, page by page."""
        return await self.store.find(query)

    async def watch(self, entity: str, *, after: int = 0, poll_ms: int = 1_000) -> AsyncGenerator[Entry, None]:
        """Every entry after a version, as it is kept: at once for this process's own, within `poll_ms` for others'."""
        checked_entity(entity)
        while not self._closed:
            changed = self._changed.setdefault(entity, asyncio.Event())
            records = await self.store.read(entity, after=after)
            for record in records:
                after = record.version
                yield record.entry
            if not records:
                waits = {asyncio.ensure_future(changed.wait()), asyncio.ensure_future(self.clock.sleep_ms(poll_ms))}
                try:
                    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
                finally:  # also when whoever watches has gone
                    for each in waits:
                        each.cancel()

    async def can(self, entity: str) -> tuple[Candidate, ...]:
        """The transitions in question now, with the verdict of each guard and what it read."""
        snapshot = await self.state(entity)
        return self.charts.revision(snapshot.kind, snapshot.revision).candidates(snapshot)

    async def close(self) -> None:
        """Stop taking requests, and close the store."""
        self._closed = True
        for changed in self._changed.values():
            changed.set()
        await self.store.close()


def backoff_ms(attempt: int, jitter: float) -> float:
    """How long to wait before the next try: exponential, capped, and anywhere below that (full jitter)."""
    return min(BACKOFF_MS_MAX, BACKOFF_MS_MIN * 2.0**attempt) * jitter


def _plain(principal: Mapping[str, Any] | None) -> dict[str, Any] | None:
    return None if principal is None else dict(principal)

"""Hold and resume an entity, what a filter finds, or a kind; and list what is held (ADR 0167).

Rule 1: a hold of an entity is an entry; of a kind, a fact of the store that is written with its audit row.
Rule 2: when a call that holds returns, every process knows of it: no attempt and no timer starts afterwards. The first
hold of a kind waits `CHECKED_MS` for that, by the clock of the runtime.
Rule 3: what an act writes is in one write; the rest (work that is due again) repairs itself (`held_work`).
Rule 4: of the hold of a kind, one process at a time changes the fact, under the lease `hold/<kind>`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Literal, Protocol

from msgspec import Struct
from msgspec.structs import replace

from interlock.effects.timers import shift_for_times
from interlock.errors import ConflictError, NotFoundError, RejectedError, UnavailableError, UsageError
from interlock.model.actor import actor_of
from interlock.model.encoding.codec import encode
from interlock.model.encoding.storable import storable_text
from interlock.model.event import Event
from interlock.model.held import HELD_TAG, HOLD, RESUME, Held, held_of
from interlock.model.journal.entry import Receipt
from interlock.model.limits import CONFLICT_RETRIES_MAX
from interlock.model.snapshot import Snapshot, Timer
from interlock.ports.leases import Downtime, Leases
from interlock.ports.reading.paging import pages
from interlock.ports.store import PAGE_MAX, EntityPage, EntityQuery
from interlock.ports.store_facts import StoreFacts
from interlock.ports.work import WorkQuery
from interlock.runtime.charts.registry import BUILTIN_KINDS, unknown_kind
from interlock.runtime.entities.entities import Entities
from interlock.runtime.entities.holds import (
    CHECKED_MS,
    ENTITIES_PREFIX,
    KIND_PREFIX,
    KindHold,
    PastHold,
    decode_kind_hold,
)
from interlock.runtime.entities.send_request import SendRequest
from interlock.runtime.entities.sender import EntitySender
from interlock.runtime.history.replay import entries_after
from interlock.runtime.holds.held_work import release
from interlock.runtime.request_checks import check_entity, check_principal, check_reason, check_resumed
from interlock.trust.audit import act_row

ResumedTimers = Literal["deadline", "shift"]
"""What a hold did to timers with a deadline: nothing, so overdue ones fire now, or they are later by its time."""

PAST_MAX = 16
"""Holds of a kind that are remembered for its timers: with them a fact is well below its 4 KiB."""

TEXT_MAX = 200
"""Characters of who and why in a fact."""

LEASE_MS = 10_000
"""How long a change of a fact may take: one read and one write."""

LEASE_TRIES_MAX = 50
"""How often a change waits for another one, a fifth of a second each."""


class Hold(Struct, frozen=True, kw_only=True):
    """What is held: an entity, or all entities of a kind. Since when, by whom and why."""

    name: str
    at_ms: int
    by: str | None = None
    reason: str | None = None

    @property
    def is_kind(self) -> bool:
        """Whether it holds all entities of a kind."""
        return "/" not in self.name


class HoldHost(Protocol):
    """What the operator needs of a runtime."""

    @property
    def entities(self) -> Entities:
        """The entities of its connection."""

    @property
    def sender(self) -> EntitySender:
        """Sends events to entities."""

    async def list(self, query: EntityQuery) -> EntityPage:
        """Return entities that match, also by context fields."""


class HoldOperator:
    """Holds and resumes what one store has. Raises UsageError (`hold.unsupported`) for a store that cannot hold."""

    def __init__(self, host: HoldHost) -> None:
        self._host = host
        entities, store = host.entities, host.entities.store
        if store.engine is not None or store.facts is None or store.leases is None:
            hint = "hold entities on a store in memory, files, SQLite or PostgreSQL"
            raise UsageError("entities of this store cannot be held", code="hold.unsupported", hint=hint)
        self._facts: StoreFacts = store.facts
        self._leases: Leases = store.leases
        self._entities = entities
        self._sender = host.sender
        self._clock = entities.clock
        self._released = 0

    # One entity

    async def hold(self, entity: str, *, reason: str, principal: Mapping[str, Any] | None) -> Hold:
        """Hold an entity; the hold that it has, if it is held. Raises NotFoundError, RejectedError (`entity.ended`)."""
        kind = _kind_of(entity)
        await self._entities.load_snapshot(entity)  # an unknown one leaves no mark
        await self._mark(kind)
        receipt = await self._act(entity, HOLD, {"reason": reason, "by": _name(principal)}, reason, principal)
        if receipt.outcome == "rejected":
            raise RejectedError(f"`{entity}` has ended, so it cannot be held", code="entity.ended")
        await self._mark(kind)  # the last resume of another entity may have removed the mark meanwhile
        snapshot, _ = await self._entities.load_snapshot(entity)
        return _hold_of(snapshot) or Hold(name=entity, at_ms=self._clock.now_ms(), by=_name(principal), reason=reason)

    async def resume(
        self, entity: str, *, reason: str | None, principal: Mapping[str, Any] | None, timers: ResumedTimers
    ) -> bool:
        """End the hold of an entity; False if it was not held. May be repeated. Raises NotFoundError."""
        kind = _kind_of(entity)
        check_resumed(timers)
        for _ in range(CONFLICT_RETRIES_MAX + 1):
            snapshot, _ = await self._entities.load_snapshot(entity)
            held = held_of(snapshot.context)
            if held is None:
                await self._release(entity)  # what a resume that was killed did not reach
                return False
            data = {"timers": await self._shifted(snapshot, held, timers)}
            try:
                await self._act(entity, RESUME, data, reason, principal, expected=snapshot.version)
            except ConflictError:  # a result came meanwhile, and may have set a timer
                continue
            break
        else:
            raise ConflictError(
                f"`{entity}` changes too often to be resumed", code="conflict.retries", hint="try again"
            )
        await self._release(entity)
        await self._unmark(kind)
        return True

    async def _release(self, entity: str) -> None:
        query, now_ms = WorkQuery(entity=entity), self._clock.now_ms()
        self._released += await release(self._entities.store, query, now_ms=now_ms, count=self._released)

    async def _act(
        self,
        entity: str,
        name: str,
        data: dict[str, Any],
        reason: str | None,
        principal: Mapping[str, Any] | None,
        *,
        expected: int | None = None,
    ) -> Receipt:
        check_reason(reason)
        sender = check_principal(principal, now_ms=self._clock.now_ms())
        event = Event(name, data, type="platform", principal=sender)
        key = f"{name}/{self._clock.token()}"
        return await self._sender.send(entity, SendRequest(event, key, expected, reason=reason))

    async def _shifted(self, snapshot: Snapshot, held: Held, timers: ResumedTimers) -> list[dict[str, Any]]:
        """Return the timers that are later because of a hold: when they are due, and from when they count."""
        hold = Downtime(held.at_ms, self._clock.now_ms())
        found = []
        for timer in snapshot.timers:
            if timer.restore == "deadline" and timers == "deadline":
                continue
            since_ms = await self._since_ms(snapshot.entity, timer)
            times = [hold]
            if timer.restore != "deadline":  # downtime before the hold counts, too: the timer counts from its end then
                times += await self._leases.downtimes(since_ms=since_ms)
            shift = shift_for_times(times, timer, since_ms)
            if shift is not None:
                moved = {"name": timer.name, "version": timer.version}
                found.append({**moved, "due_ms": shift.due_ms, "since_ms": shift.since_ms})
        return found

    async def _since_ms(self, entity: str, timer: Timer) -> int:
        if timer.since_ms is not None:
            return timer.since_ms
        (entry,) = await entries_after(self._entities.store, entity, after=timer.version - 1, limit=1)
        return entry.event.time_ms

    # What a filter finds

    async def hold_matching(self, query: EntityQuery, *, reason: str, principal: Mapping[str, Any] | None) -> int:
        """Hold every entity that a filter finds now; return how many were not held before."""
        count = 0
        async for snapshot in self._found(query):
            if snapshot.ended is None and held_of(snapshot.context) is None:
                try:
                    await self.hold(snapshot.entity, reason=reason, principal=principal)
                except (NotFoundError, RejectedError):  # it has ended meanwhile
                    continue
                count += 1
        return count

    async def resume_matching(
        self, query: EntityQuery, *, reason: str | None, principal: Mapping[str, Any] | None, timers: ResumedTimers
    ) -> int:
        """End the hold of every entity that a filter finds; return how many were held."""
        count = 0
        query = query if query.tag is not None else replace(query, tag=HELD_TAG)
        async for snapshot in self._found(query):
            if held_of(snapshot.context) is not None:
                count += await self.resume(snapshot.entity, reason=reason, principal=principal, timers=timers)
        return count

    async def _found(self, query: EntityQuery) -> AsyncIterator[Snapshot]:
        query = replace(query, by_id=True, limit=PAGE_MAX)
        async for page in pages(self._host.list, query):
            for row in page.rows:
                try:
                    snapshot, _ = await self._entities.load_snapshot(row.entity)
                except NotFoundError:  # retention removed it meanwhile
                    continue
                yield snapshot

    # A kind

    async def hold_kind(self, kind: str, *, reason: str, principal: Mapping[str, Any] | None) -> Hold:
        """Hold all entities of a kind, also those that are created later; the hold that it has, if it is held.

        Raises NotFoundError for a kind without a chart and without entities: it may be misspelt.
        """
        _check_kind(kind)
        known_kinds = {*self._entities.charts.kinds(), *await self._entities.store.kinds()}
        if kind not in known_kinds:
            raise unknown_kind(kind, known_kinds)
        async with self._changing(kind) as known:
            if known.held is not None:
                return _kind_hold(kind, known.held)
            by, why = _name(principal), storable_text(reason, TEXT_MAX)
            held = Held(self._clock.now_ms(), None if by is None else storable_text(by, TEXT_MAX), why)
            await self._save(kind, replace(known, held=held), HOLD, "all entities are held", reason, principal)
        await self._wait_until_known()
        return _kind_hold(kind, held)

    async def resume_kind(
        self, kind: str, *, reason: str | None, principal: Mapping[str, Any] | None, timers: ResumedTimers
    ) -> bool:
        """End the hold of a kind; False if it was not held. Its held entities stay held."""
        _check_kind(kind)
        check_resumed(timers)
        async with self._changing(kind) as known:
            if known.held is not None:
                past = PastHold(known.held.at_ms, self._clock.now_ms(), timers == "shift")
                ended = KindHold(None, (*known.past, past)[-PAST_MAX:])
                await self._save(kind, ended, RESUME, "the entities are no longer held", reason, principal)
        await self._wait_until_known()  # a worker that does not know yet would put the work back again
        await release(self._entities.store, WorkQuery(kind=kind), now_ms=self._clock.now_ms())
        return known.held is not None

    async def _save(
        self, kind: str, hold: KindHold, event: str, what: str, reason: str | None, principal: Mapping[str, Any] | None
    ) -> None:
        check_reason(reason)
        by = _name(check_principal(principal, now_ms=self._clock.now_ms())) or ""
        row = act_row(kind, event, what, by=by, why=reason or "", now_ms=self._clock.now_ms())
        await self._facts.save_fact(f"{KIND_PREFIX}{kind}", encode(hold).decode(), audit=row)

    @asynccontextmanager
    async def _changing(self, kind: str) -> AsyncIterator[KindHold]:
        """Hold the lease of a kind's fact, and read it. Raises UnavailableError while another process changes it."""
        owner = self._clock.token()
        for _ in range(LEASE_TRIES_MAX):
            now_ms = self._clock.now_ms()
            lease = await self._leases.acquire_lease(
                f"{KIND_PREFIX}{kind}", owner=owner, now_ms=now_ms, until_ms=now_ms + LEASE_MS
            )
            if lease is not None:
                break
            await self._clock.sleep_ms(200)
        else:
            raise UnavailableError(f"another process changes the hold of `{kind}`", code="hold.busy", hint="try again")
        try:
            name = f"{KIND_PREFIX}{kind}"
            yield decode_kind_hold(kind, (await self._facts.read_facts()).get(name))
        finally:
            await self._leases.release_lease(lease)

    # What processes know

    async def _mark(self, kind: str) -> None:
        """Let all workers look for held entities of a kind, before the first one is held."""
        name = f"{ENTITIES_PREFIX}{kind}"
        if name not in await self._facts.read_facts():
            await self._facts.save_fact(name, "1")
            await self._wait_until_known()

    async def _unmark(self, kind: str) -> None:
        """Let workers look no longer, if no entity of the kind is held."""
        if await self._holds_some(kind):
            return
        name = f"{ENTITIES_PREFIX}{kind}"
        await self._facts.save_fact(name, None)
        if await self._holds_some(kind):  # one was held meanwhile, under the mark that has just been removed
            await self._facts.save_fact(name, "1")

    async def _holds_some(self, kind: str) -> bool:
        async for page in pages(self._entities.store.find, EntityQuery(kind=kind, tag=HELD_TAG, limit=1)):
            if page.rows:
                return True
        return False

    async def _wait_until_known(self) -> None:
        await self._entities.holds.refresh()
        await self._clock.sleep_ms(CHECKED_MS)

    # Listing

    async def holds(self, kind: str | None = None, *, limit: int = PAGE_MAX) -> tuple[Hold, ...]:
        """Return what is held, of one kind or of all: kinds first, then entities, at most `limit` of each kind."""
        facts = await self._facts.read_facts()
        found = []
        kinds = {each.partition("/")[2] for each in facts if each.startswith((KIND_PREFIX, ENTITIES_PREFIX))}
        wanted = sorted(each for each in kinds if kind in (None, each))
        for each in wanted:
            held = decode_kind_hold(each, facts.get(f"{KIND_PREFIX}{each}")).held
            if held is not None:
                found.append(_kind_hold(each, held))
        for each in wanted:
            if f"{ENTITIES_PREFIX}{each}" in facts:
                found += await self._held_entities(each, limit)
        return tuple(found)

    async def holds_of(self, entity: str) -> tuple[Hold, ...]:
        """Return what holds an entity now: the hold of its kind, and its own. Raises NotFoundError."""
        kind = _kind_of(entity)
        snapshot, _ = await self._entities.load_snapshot(entity)
        held = decode_kind_hold(kind, (await self._facts.read_facts()).get(f"{KIND_PREFIX}{kind}")).held
        found = (None if held is None else _kind_hold(kind, held), _hold_of(snapshot))
        return tuple(each for each in found if each is not None)

    async def _held_entities(self, kind: str, limit: int) -> list[Hold]:
        found: list[Hold] = []
        async for snapshot in self._found(EntityQuery(kind=kind, tag=HELD_TAG)):
            hold = _hold_of(snapshot)
            if hold is not None:
                found.append(hold)
            if len(found) >= limit:
                break
        return found


def _kind_of(entity: str) -> str:
    kind = check_entity(entity)
    _check_kind(kind)
    return kind


def _check_kind(kind: str) -> None:
    check_entity(f"{kind}/x")
    if kind in BUILTIN_KINDS:
        message = f"entities of `{kind}` cannot be held: they belong to Interlock"
        raise UsageError(message, code="hold.builtin", hint="pause or cancel the job in the console")


def _name(principal: Mapping[str, Any] | None) -> str | None:
    actor = actor_of(principal)
    return None if actor is None else actor.id


def _hold_of(snapshot: Snapshot) -> Hold | None:
    held = held_of(snapshot.context)
    return None if held is None else Hold(name=snapshot.entity, at_ms=held.at_ms, by=held.by, reason=held.reason)


def _kind_hold(kind: str, held: Held) -> Hold:
    return Hold(name=kind, at_ms=held.at_ms, by=held.by, reason=held.reason)

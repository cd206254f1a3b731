"""The memory store: the same interface over dictionaries and a lock. For tests and for trying things out.

It is the reference that the other stores are measured against, and promises nothing across a restart.

Rule: whoever sends lets others run now and then, as with any store that waits for a disk; a loop of sends would
otherwise keep an event loop to itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from threading import Lock
from typing import Any, TypeVar

from msgspec import Struct

from interlock.errors import ArchivedError, UnavailableError, UsageError
from interlock.model.journal.record import JournalRecord, chain_start, encode_record
from interlock.model.journal.work import Lane, WorkId
from interlock.model.snapshot import Snapshot
from interlock.ports.fork import after_fork, forked_error
from interlock.ports.leases import ClockStamps, Downtime, Lease, Leases
from interlock.ports.refusals import Refusal, RefusalHistory, RefusalLog, RefusalRow, RefusalVerification
from interlock.ports.statistics import COUNT_MAX, DAY_MS, DwellTimes, MinuteRates, StateCount, Statistics
from interlock.ports.store import (
    PAGE_MAX,
    Append,
    Appended,
    Conflict,
    Duplicate,
    EntityPage,
    EntityQuery,
    EntityRow,
    Itself,
    JournalRelease,
    Loaded,
    StaleAttempt,
)
from interlock.ports.work import Claim, Settlement, WorkPage, WorkQuery, WorkQueue
from interlock.stores.lease_table import LeaseTable
from interlock.stores.listing import active_states, list_position, page_of, since_ms
from interlock.stores.statistics_buffer import BUCKETS, CONFLICTS, REFUSALS, StatisticsBuffer
from interlock.stores.work_table import WorkTable

T = TypeVar("T")

TURN_CALLS = 16
"""Calls after which others in the event loop get their turn. A turn costs a third of a send; sixteen sends take less
than a millisecond, which nobody notices."""


def open_store(url: str) -> MemoryStore:
    """A new, empty store for the address `memory:`. Raises UsageError for more than that: there is nothing to name."""
    if url != "memory:":
        raise UsageError(f"`{url}` names a place, and memory has none", code="url.malformed", hint="use `memory:`")
    return MemoryStore()


class _Life(Struct):
    """One entity: its snapshot, its journal, its keys, and since when it is in each of its states.

    `head` and `changed_ms` are of the last record, which may be in the `archive` with all `released` ones.
    """

    kind: str
    snapshot: Snapshot
    records: list[JournalRecord]
    keys: dict[str, int]
    size: int
    created_ms: int
    entered_ms: dict[str, int]
    tags: tuple[str, ...]
    head: str
    changed_ms: int
    released: int = 0
    archive: str = ""


class MemoryStore:
    """Journals in dictionaries."""

    work = Itself[WorkQueue]()
    leases = Itself[Leases]()
    clock_stamps = Itself[ClockStamps]()
    statistics = Itself[Statistics]()
    refusal_log = Itself[RefusalLog]()
    refusal_history = Itself[RefusalHistory]()
    journal_release = Itself[JournalRelease]()
    journal_feed = journal_archive = verification = None
    server_clock = False

    def __init__(self) -> None:
        self._lives: dict[str, _Life] = {}
        self._lock = Lock()
        self._closed = False
        self._calls = 0
        self._work = WorkTable()
        self._leases = LeaseTable()
        self._tally = StatisticsBuffer()
        self.refusals: list[Refusal] = []
        self._is_inherited = False
        after_fork(self, MemoryStore._inherit)

    async def append(self, append: Append) -> Appended | Duplicate | Conflict | StaleAttempt:
        """Keep one step, if the entity still is at the expected version and its key is new."""
        entry = append.entry
        await self._take_turns()
        with self._lock:
            self._check_open()
            life = self._lives.get(append.entity)
            if life is not None and entry.key in life.keys:
                return Duplicate(life.keys[entry.key])
            version = 0 if life is None else life.snapshot.version
            if version != append.expected:
                self._tally.count(append.kind, CONFLICTS, entry.event.at_ms)
                return Conflict(version)
            if append.fence is not None and self._work.fence(append.entity, append.fence[0]) != append.fence[1]:
                return StaleAttempt(version)
            previous = chain_start(append.entity) if life is None else life.head
            durable = 0 if life is None else life.size
            record = encode_record(entry, durable=durable, previous=previous, entry_json=append.entry_json)
            now = entry.event.at_ms
            if life is None:
                life = _Life(append.kind, append.snapshot, [], {}, 0, now, {}, (), previous, now)
                self._lives[append.entity] = life
            life.records.append(record)
            life.keys[entry.key] = entry.version
            life.size += len(record.line)
            life.head, life.changed_ms = record.head, entry.event.time_ms
            life.snapshot = append.snapshot
            before = life.entered_ms
            life.entered_ms, life.tags = active_states(append, before)
            left = [each for each in before.items() if each[0] not in life.entered_ms]
            self._tally.count_step(append.kind, left, now)
            self._work.keep(append.entity, append.left)
            return Appended(entry.version, record.head)

    async def load(self, entity: str, *, key: str | None = None) -> Loaded | Duplicate | None:
        """The entity as it is; None when there is none. With `key`: `Duplicate` when that key was kept before."""
        await self._take_turns()
        with self._lock:
            self._check_open()
            life = self._lives.get(entity)
            if life is None:
                return None
            if key is not None and key in life.keys:
                return Duplicate(life.keys[key])
            return Loaded(life.snapshot.version, life.changed_ms, life.snapshot)

    async def read(self, entity: str, *, after: int = 0, limit: int = PAGE_MAX) -> tuple[JournalRecord, ...]:
        """The records after a version, in order."""
        with self._lock:
            self._check_open()
            life = self._lives.get(entity)
            if life is None or limit <= 0:
                return ()
            start = max(0, after) - life.released
            if start < 0:
                raise ArchivedError(entity, life.released, life.archive)
            return tuple(life.records[start : start + min(limit, PAGE_MAX)])

    async def find(self, query: EntityQuery) -> EntityPage:
        """Entities by kind, state, age and tag, oldest in their state first, page by page."""
        with self._lock:
            self._check_open()
            entities, after = page_of(query, sorted(self._matching(query)))
            return EntityPage(tuple(map(self._row, entities)), after)

    async def kinds(self) -> tuple[str, ...]:
        """The kinds that there are entities of, sorted."""
        with self._lock:
            self._check_open()
            return tuple(sorted({life.kind for life in self._lives.values()}))

    def _matching(self, query: EntityQuery) -> Iterator[tuple[int, str]]:
        for entity, life in self._lives.items():
            if life.kind != query.kind:
                continue
            position = list_position(
                query,
                entity.removeprefix(f"{life.kind}/"),
                revision=life.snapshot.revision,
                entered_ms=_entered_ms(life),
                active=life.entered_ms,
                tags=life.tags,
            )
            if position is not None:
                yield position, entity

    def _row(self, entity: str) -> EntityRow:
        life = self._lives[entity]
        snapshot = life.snapshot
        return EntityRow(
            entity,
            snapshot.version,
            snapshot.revision,
            snapshot.configuration,
            life.created_ms,
            _entered_ms(life),
            life.changed_ms,
            snapshot.ended,
        )

    async def refuse(self, refusals: tuple[Refusal, ...]) -> None:
        """Keep refusals."""
        await self._take_turns()
        with self._lock:
            self._check_open()
            self._refuse(refusals)

    def _refuse(self, refusals: tuple[Refusal, ...]) -> None:
        self.refusals += refusals
        for each in refusals:
            self._tally.count(each.entity.partition("/")[0], REFUSALS, each.time_ms)

    # Sight: nothing is kept for it here but the tally; a memory holds few enough to count

    async def counts(self, kind: str) -> tuple[StateCount, ...]:
        """The population of every state, by revision."""
        found: dict[tuple[str, str], int] = {}
        with self._lock:
            self._check_open()
            for life in self._lives.values():
                for state in life.entered_ms if life.kind == kind else ():
                    place = (life.snapshot.revision, state)
                    found[place] = found.get(place, 0) + 1
        return tuple(StateCount(*place, entities) for place, entities in sorted(found.items()))

    async def dwell(self, kind: str, *, since_ms: int) -> tuple[DwellTimes, ...]:
        """Dwell times of stays that ended since a day, by state."""
        found: dict[str, list[int]] = {}
        with self._lock:
            for (own, state, day_ms, bucket), stays in self._tally.stays.items():
                if own == kind and day_ms >= since_ms // DAY_MS * DAY_MS:
                    found.setdefault(state, [0] * BUCKETS)[bucket] += stays
        return tuple(DwellTimes(state, tuple(stays)) for state, stays in sorted(found.items()))

    async def rates(self, kind: str, *, since_ms: int) -> tuple[MinuteRates, ...]:
        """What each minute since a time brought."""
        with self._lock:
            minutes = sorted(self._tally.minutes.items())
            return tuple(MinuteRates(when, *each) for (own, when), each in minutes if own == kind and when >= since_ms)

    async def overdue(self, kind: str, state: str, *, before_ms: int) -> int:
        """How many entities are in a state since before a time."""
        with self._lock:
            found = sum(
                life.kind == kind and state in life.entered_ms and life.entered_ms[state] < before_ms
                for life in self._lives.values()
            )
        return min(found, COUNT_MAX + 1)

    async def refusals_before(
        self, sequence: int | None, *, principal: str | None = None, limit: int = 50
    ) -> tuple[RefusalRow, ...]:
        """Refusals before a sequence number, newest first."""
        end = len(self.refusals) if sequence is None else max(0, sequence - 1)
        rows = (RefusalRow(number, each) for number, each in enumerate(self.refusals[:end], start=1))
        found = [each for each in rows if principal is None or each.refusal.principal == principal]
        return tuple(found[::-1][: max(1, min(limit, PAGE_MAX))])

    async def prove_refusals(self) -> RefusalVerification:
        """Memory keeps no chain: nobody else can write here."""
        return RefusalVerification(len(self.refusals))

    async def release(self, entity: str, *, version: int, archive: str) -> bool:
        """Drop the records of an ended entity that is still at this version; False when it is not."""
        with self._lock:
            self._check_open()
            life = self._lives.get(entity)
            if life is None or life.snapshot.version != version or life.snapshot.ended is None:
                return False
            if life.released != version:  # otherwise it was released before, to the place that is known
                life.records.clear()
                life.released, life.archive = version, archive
            return True

    # Work

    async def claim(
        self, lane: Lane, names: tuple[str, ...] | None, *, owner: str, now_ms: int, until_ms: int, limit: int
    ) -> tuple[Claim, ...]:
        """Take up work that is due, oldest first."""
        return await self._on_work(
            lambda work: work.claim(lane, names, owner=owner, now_ms=now_ms, until_ms=until_ms, limit=limit)
        )

    async def renew(self, claims: tuple[Claim, ...], *, until_ms: int) -> tuple[Claim | None, ...]:
        """Hold claims longer."""
        return await self._on_work(lambda work: work.renew(claims, until_ms=until_ms))

    async def settle(self, settled: tuple[Settlement, ...], *, now_ms: int) -> tuple[bool, ...]:
        """Let go of claims."""
        return await self._on_work(lambda work: work.settle(settled, now_ms=now_ms))

    async def soonest(self, lane: Lane, names: tuple[str, ...] | None) -> int | None:
        """When the next work is due."""
        return await self._on_work(lambda work: work.soonest(lane, names))

    async def works(self, query: WorkQuery) -> WorkPage:
        """Work by lane, name and entity, page by page."""
        return await self._on_work(lambda work: work.works(query))

    async def revive(self, entity: str, place: WorkId, *, now_ms: int, audit: Refusal | None = None) -> bool:
        """Let dead work be tried again, from its first attempt."""
        return await self._acted(lambda work: work.revive(entity, place, now_ms=now_ms), audit)

    async def requeue(self, settled: Settlement, *, now_ms: int, audit: Refusal | None = None) -> bool:
        """Let work that is not dead be tried again."""
        return await self._acted(lambda work: work.settle((settled,), now_ms=now_ms)[0], audit)

    async def drop(self, entity: str, place: WorkId, *, audit: Refusal | None = None) -> bool:
        """Forget work."""
        return await self._acted(lambda work: work.drop(entity, place), audit)

    async def _acted(self, act: Callable[[WorkTable], bool], audit: Refusal | None) -> bool:
        """Do what an operator asks for, and keep who it was, under one lock."""
        await self._take_turns()
        with self._lock:
            self._check_open()
            done = act(self._work)
            if done and audit is not None:
                self._refuse((audit,))
            return done

    async def note(self, claim: Claim, error: Any) -> bool:
        """Keep this beside the work of a claim."""
        return await self._on_work(lambda work: work.note(claim, error))

    async def _on_work(self, question: Callable[[WorkTable], T]) -> T:
        await self._take_turns()
        with self._lock:
            self._check_open()
            return question(self._work)

    # Leases

    async def lease(self, name: str, *, owner: str, now_ms: int, until_ms: int) -> Lease | None:
        """Take a name, or hold it longer; None while another holds it."""
        return await self._on_leases(lambda table: table.lease(name, owner=owner, now_ms=now_ms, until_ms=until_ms))

    async def give_back(self, lease: Lease) -> bool:
        """Let go of a name at once."""
        return await self._on_leases(lambda table: table.give_back(lease))

    async def alive(self, *, now_ms: int, gap_ms: int) -> Downtime | None:
        """Note that a worker is alive; the downtime that ends with this, if it does."""
        return await self._on_leases(lambda table: table.alive(now_ms=now_ms, gap_ms=gap_ms))

    async def downtimes(self, *, since_ms: int) -> tuple[Downtime, ...]:
        """The downtimes that ended after a time, in order."""
        return await self._on_leases(lambda table: table.downtimes(since_ms=since_ms))

    async def correct_clock(self, *, now_ms: int) -> None:
        """Forget signs of life, downtimes and statistics that are stamped in the future."""
        await self._on_leases(lambda table: table.correct(now_ms=now_ms))
        with self._lock:
            self._tally.forget_after(now_ms)

    async def stamped_after(self, time_ms: int, *, limit: int) -> tuple[str, ...]:
        """Entities with an entry that is stamped after a time."""
        with self._lock:
            self._check_open()
            return tuple(sorted(each for each, life in self._lives.items() if life.changed_ms > time_ms))[:limit]

    async def _on_leases(self, question: Callable[[LeaseTable], T]) -> T:
        await self._take_turns()
        with self._lock:
            self._check_open()
            return question(self._leases)

    async def close(self) -> None:
        """Refuse everything from now on; what was kept is gone with the store."""
        self._closed = True

    async def _take_turns(self) -> None:
        self._calls += 1
        if self._calls % TURN_CALLS == 0:
            await asyncio.sleep(0)

    def _inherit(self) -> None:
        """In a forked child: this is a copy. What it kept, the parent would never see."""
        self._lock, self._is_inherited = Lock(), True

    def _check_open(self) -> None:
        if self._is_inherited:
            raise forked_error("this store")
        if self._closed:
            raise UnavailableError("the store is closed", code="store.closed")


def _entered_ms(life: _Life) -> int:
    """Return when the entity entered its configuration."""
    return since_ms(life.entered_ms, life.snapshot.configuration, life.created_ms)

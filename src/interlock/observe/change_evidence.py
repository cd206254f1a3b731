"""What a store knows about a change of a definition: who is in the states that it concerns, and who sends the events.

Rule 1: a store with counters answers from them, at a cost that does not grow with its entities, apart from the search
for the oldest. A store without counters is read entity by entity, journals included, up to `EVIDENCE_ENTRIES_MAX`
entries. What could not be read is a gap.
Rule 2: entities that ended, and those on the new definition already, are not concerned.
Rule 3: "not seen" is reported with its window: the first day that the store has counted.
Rule 4: a change is in use if living entities are in its states, or one of its events was received or refused within
the window that the caller names. A change that concerns neither states nor events concerns all living entities. With a
gap, or with evidence that is shorter than the window, nothing is called unused.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Literal

from msgspec import Struct

from interlock.errors import ArchivedError, CompactedError, CorruptionError, UnavailableError
from interlock.evolve.changes import Change
from interlock.evolve.diff import ChartDiff
from interlock.model.charts.chart import Chart
from interlock.model.document.document import Removed
from interlock.model.event import is_reserved
from interlock.model.journal.entry import Entry
from interlock.model.limits import EVIDENCE_ENTRIES_MAX
from interlock.ports.delivery import CHART_MISSING_CODES
from interlock.ports.reading.paging import pages
from interlock.ports.reading.statistics import DAY_MS, OTHER_NAMES, LastSeen, SeenKind, Statistics, seen_kind
from interlock.ports.store import ENDED_STATES, PAGE_MAX, EntityQuery, EntityRow
from interlock.runtime.runtime import Runtime

WITHIN_MS = 30 * DAY_MS
"""How recent a use of an event is that counts, unless the caller says: a month has a monthly job."""

OLDEST_ROWS_MAX = 10_000
"""Entities of a state that are read to find the oldest that is not on the new definition: some tens of milliseconds."""


class ChangeEvidence(Struct, frozen=True):
    """What the store knows about one change.

    `entities`: how many living entities are in its states; None if it concerns no state. `oldest_ms`: since when the
    oldest of them is. `seen`: its states and events, when they were last entered, received or refused.
    """

    code: str
    subject: str
    in_use: bool
    entities: int | None = None
    oldest_ms: int | None = None
    seen: tuple[LastSeen, ...] = ()


class TombstoneEvidence(Struct, frozen=True):
    """What the store knows about a state or event that the new definition lists under `removed`.

    `used`: it is still in use. `waiting`: its day has not come. `unknown`: the evidence does not cover the window.
    `safe`: the entry can be removed.
    """

    what: Literal["state", "event"]
    name: str
    day: str
    verdict: Literal["used", "waiting", "unknown", "safe"]
    entities: int = 0
    oldest_ms: int | None = None
    seen: tuple[LastSeen, ...] = ()


class LiveEvidence(Struct, frozen=True):
    """What a store knows about the difference of two definitions of a kind.

    `since_ms`: the first day that the evidence covers; None if the store has seen nothing. `within_ms`: how recent a
    use is that counts. `living`: the entities that have not ended; `others`: those of them on other definitions than
    the new one. `changes` are in the order of the difference. `gaps` say what could not be read, `notes` what such a
    store does not know.
    """

    kind: str
    source: Literal["counters", "journals"]
    now_ms: int
    since_ms: int | None
    within_ms: int
    living: int
    others: int
    changes: tuple[ChangeEvidence, ...]
    tombstones: tuple[TombstoneEvidence, ...]
    gaps: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


async def change_evidence(
    runtime: Runtime, diff: ChartDiff, removed: Removed | None, *, within_ms: int = WITHIN_MS
) -> LiveEvidence:
    """Return what the store of a runtime knows about a difference; `removed` is that of the new definition."""
    statistics = runtime.store.statistics
    facts = _JournalFacts(runtime, diff) if statistics is None else _CounterFacts(runtime, diff, statistics)
    await facts.read()
    now_ms = runtime.clock.now_ms()
    is_covered = facts.since_ms is not None and facts.since_ms <= now_ms - within_ms and not facts.gaps
    judge = _Judge(facts, diff, now_ms=now_ms, within_ms=within_ms, is_covered=is_covered)
    return LiveEvidence(
        kind=diff.kind,
        source=facts.source,
        now_ms=now_ms,
        since_ms=facts.since_ms,
        within_ms=within_ms,
        living=facts.living,
        others=facts.others,
        changes=tuple([await judge.change(each) for each in diff.changes]),
        tombstones=() if removed is None else await judge.tombstones(removed),
        gaps=tuple(facts.gaps),
        notes=facts.notes,
    )


class _Facts(ABC):
    """What both ways of reading a store find."""

    source: Literal["counters", "journals"]
    notes: tuple[str, ...] = ()

    def __init__(self, runtime: Runtime, diff: ChartDiff) -> None:
        self.runtime = runtime
        self.kind = diff.kind
        self.diff = diff
        self.seen: tuple[LastSeen, ...] = ()
        self.since_ms: int | None = None
        self.living = self.others = 0
        self.gaps: list[str] = []

    @abstractmethod
    async def read(self) -> None:
        """Read the store."""

    @abstractmethod
    def entities(self, states: Iterable[str]) -> int:
        """Return how many living entities on other definitions are in one of some nested states."""

    @abstractmethod
    async def oldest_ms(self, states: Sequence[str]) -> int | None:
        """Return since when the oldest of them is in the first of these states."""

    def is_new(self, revision: str) -> bool:
        """Whether entities of a revision are on the new definition."""
        return self.diff.new.is_revision(revision)

    def find(self, kinds: Iterable[SeenKind], matches: Callable[[str], bool]) -> tuple[LastSeen, ...]:
        """Return what was seen of some kinds, of names that match."""
        return tuple(each for each in self.seen if each.what in kinds and each.name and matches(each.name))


class _CounterFacts(_Facts):
    """Facts from the counters of a store."""

    source = "counters"

    def __init__(self, runtime: Runtime, diff: ChartDiff, statistics: Statistics) -> None:
        super().__init__(runtime, diff)
        self._statistics = statistics
        self._counts: dict[str, dict[str, int]] = {}
        self._ends = frozenset(ENDED_STATES.values())

    async def read(self) -> None:
        for each in await self._statistics.count_states(self.kind):
            self._counts.setdefault(each.revision, {})[each.state] = each.entities
        self.seen = await self._statistics.last_seen(self.kind)
        self.since_ms = min((each.first_day_ms for each in self.seen), default=None)
        if any(each.name == OTHER_NAMES for each in self.seen):
            self.gaps.append("more names were seen than the store keeps")
        for revision, counts in self._counts.items():
            living = await self._living_of(revision, counts)
            self.living += living
            self.others += 0 if self.is_new(revision) else living

    async def _living_of(self, revision: str, counts: dict[str, int]) -> int:
        """How many entities of a revision have not ended: those in a child of the root that is not final."""
        chart = await _chart_of(self.runtime, self.kind, revision)
        if chart is None:
            self.gaps.append(f"the definition of revision {revision} is unknown here")
            return max((count for state, count in counts.items() if state not in self._ends), default=0)
        root = chart.states[chart.completion_root]
        tops = [chart.states[each] for each in root.children]
        found = [counts.get(each.id, 0) for each in tops if each.type != "final"]
        return max(found, default=0) if root.type == "parallel" else sum(found)

    def entities(self, states: Iterable[str]) -> int:
        names = tuple(states)
        others = (counts for revision, counts in self._counts.items() if not self.is_new(revision))
        return sum(max((counts.get(each, 0) for each in names), default=0) for counts in others)

    async def oldest_ms(self, states: Sequence[str]) -> int | None:
        query = EntityQuery(kind=self.kind, state=states[0], limit=PAGE_MAX)
        async for page in pages(self.runtime.store.find, query, rows_max=OLDEST_ROWS_MAX):
            for row in page.rows:
                if row.ended is None and not self.is_new(row.revision):
                    return row.entered_ms
        return None


class _JournalFacts(_Facts):
    """Facts from the journals of a store without counters."""

    source = "journals"
    notes = ("events that were refused or changed nothing are not known: this store does not count them",)

    def __init__(self, runtime: Runtime, diff: ChartDiff) -> None:
        super().__init__(runtime, diff)
        self._above: dict[str, dict[str, tuple[str, ...]]] = {}
        self._unknown: set[str] = set()
        self._entered: dict[str, list[int]] = {}
        self._sums: dict[tuple[SeenKind, str], list[int]] = {}
        self._entries = 0
        self._active: list[frozenset[str]] = []

    async def read(self) -> None:
        skipped: dict[str, int] = {}
        async for page in pages(self.runtime.store.find, EntityQuery(kind=self.kind, by_id=True, limit=PAGE_MAX)):
            if page.unreadable:
                skipped["cannot be listed"] = skipped.get("cannot be listed", 0) + len(page.unreadable)
            for row in page.rows:
                if self._entries >= EVIDENCE_ENTRIES_MAX:
                    self.gaps.append(f"only the first {EVIDENCE_ENTRIES_MAX:,} entries were read")
                    break
                try:
                    await self._read_entity(row)
                except ArchivedError:
                    skipped["in an archive"] = skipped.get("in an archive", 0) + 1
                except CompactedError:
                    skipped["compacted"] = skipped.get("compacted", 0) + 1
                except (CorruptionError, UnavailableError) as error:
                    skipped[error.code] = skipped.get(error.code, 0) + 1
            else:
                continue
            break
        self.gaps += [f"journals of {count:,} entities not read: {why}" for why, count in sorted(skipped.items())]
        self.gaps += [f"the definition of revision {each} is unknown here" for each in sorted(self._unknown)]
        self.seen = tuple(LastSeen(what, name, *found) for (what, name), found in sorted(self._sums.items()))

    async def _read_entity(self, row: EntityRow) -> None:
        active: dict[str, int] = {}
        after = 0
        while after < row.version:
            records = await self.runtime.store.read(row.entity, after=after, limit=min(PAGE_MAX, row.version - after))
            if not records:
                break
            for record in records:
                active = await self._see(record.entry, active)
            after = records[-1].version
            self._entries += len(records)
        if row.ended is not None:
            return
        self.living += 1
        if not self.is_new(row.revision):
            self.others += 1
            self._active.append(frozenset(active))
            for state, entered_ms in active.items():
                self._entered.setdefault(state, []).append(entered_ms)

    async def _see(self, entry: Entry, before: dict[str, int]) -> dict[str, int]:
        event, at_ms = entry.event, entry.event.at_ms
        day_ms = at_ms // DAY_MS * DAY_MS
        self.since_ms = day_ms if self.since_ms is None else min(self.since_ms, day_ms)
        above = self._above.get(entry.revision)
        if above is None:
            above = self._above[entry.revision] = await self._ancestors(entry.revision)
        active = {each: before.get(each, at_ms) for name in entry.after for each in above.get(name, (name,))}
        for state in active:
            if state not in before:
                self._count("state", state, day_ms, at_ms)
        if not event.name.startswith("_"):
            self._count(seen_kind(event.source), event.name, day_ms, at_ms)
        return active

    def _count(self, what: SeenKind, name: str, day_ms: int, at_ms: int) -> None:
        known = self._sums.setdefault((what, name), [day_ms, 0, at_ms])
        known[:] = min(known[0], day_ms), known[1] + 1, max(known[2], at_ms)

    async def _ancestors(self, revision: str) -> dict[str, tuple[str, ...]]:
        """Each state of a revision with those around it; empty if its definition is unknown here."""
        chart = await _chart_of(self.runtime, self.kind, revision)
        if chart is None:
            self._unknown.add(revision)
            return {}
        found: dict[str, tuple[str, ...]] = {}
        for state in chart.states[1:]:
            parent = chart.states[state.parent]
            found[state.id] = (state.id, *(found[parent.id] if parent.index > 0 else ()))
        return found

    def entities(self, states: Iterable[str]) -> int:
        names = frozenset(states)
        return sum(not names.isdisjoint(each) for each in self._active)

    async def oldest_ms(self, states: Sequence[str]) -> int | None:
        return min(self._entered.get(states[0], ()), default=None)


async def _chart_of(runtime: Runtime, kind: str, revision: str) -> Chart | None:
    """Return the chart of a revision; None if it cannot be read here."""
    try:
        return await runtime.revisions.chart(kind, revision)
    except UnavailableError as error:
        if error.code not in CHART_MISSING_CODES:
            raise
        return None


class _Judge:
    """Says of each change and each tombstone whether it is in use."""

    def __init__(self, facts: _Facts, diff: ChartDiff, *, now_ms: int, within_ms: int, is_covered: bool) -> None:
        self._facts = facts
        self._diff = diff
        self._now_ms = now_ms
        self._since_ms = now_ms - within_ms
        self._is_covered = is_covered
        chart = diff.before_chart
        tops = chart.states[chart.completion_root].children
        self._finals = {chart.states[each].id for each in tops if chart.states[each].type == "final"}

    async def change(self, change: Change) -> ChangeEvidence:
        """Return the evidence about a change."""
        events = self._events_of(change)
        seen = self._facts.find(("state",), change.states[:1].__contains__) + events
        is_recent = any(each.last_ms >= self._since_ms for each in events)
        has_event = change.event is not None or change.code == "events.declared"
        entities: int | None = None
        oldest_ms: int | None = None
        if change.states:
            entities, oldest_ms = await self._population(change.states)
        if has_event or change.states:
            in_use = is_recent or bool(entities) or (has_event and not self._is_covered)
        else:
            in_use = self._facts.others > 0
        return ChangeEvidence(change.code, change.subject, in_use, entities, oldest_ms, seen)

    async def _population(self, states: Sequence[str]) -> tuple[int, int | None]:
        if states[0] in self._finals:  # entities in it have ended
            return 0, None
        entities = self._facts.entities(states)
        return entities, await self._facts.oldest_ms(states) if entities else None

    def _events_of(self, change: Change) -> tuple[LastSeen, ...]:
        event = change.event
        if event is not None:
            return self._facts.find(("event", "refused", "timer"), event.matches)
        if change.code != "events.declared":
            return ()
        declared = {each.name for each in self._diff.new.events or ()}
        return self._facts.find(("event", "refused"), lambda name: name not in declared and not is_reserved(name))

    async def tombstones(self, removed: Removed) -> tuple[TombstoneEvidence, ...]:
        """Return the evidence about each tombstone."""
        found = []
        for name, day in removed.states:
            entities, oldest_ms = await self._population((name,))
            seen = self._facts.find(("state",), name.__eq__)
            found.append(self._tombstone("state", name, day, entities, oldest_ms, seen))
        for name, day in removed.events:
            seen = self._facts.find(("event", "refused", "timer"), name.__eq__)
            found.append(self._tombstone("event", name, day, 0, None, seen))
        return tuple(found)

    def _tombstone(
        self,
        what: Literal["state", "event"],
        name: str,
        day: str,
        entities: int,
        oldest_ms: int | None,
        seen: tuple[LastSeen, ...],
    ) -> TombstoneEvidence:
        verdict: Literal["used", "waiting", "unknown", "safe"] = "safe"
        if entities or any(each.last_ms >= self._since_ms for each in seen):
            verdict = "used"
        elif day_start_ms(day) > self._now_ms:
            verdict = "waiting"
        elif not self._is_covered:
            verdict = "unknown"
        return TombstoneEvidence(what, name, day, verdict, entities, oldest_ms, seen)


def day_start_ms(day: str) -> int:
    """Return when a day such as 2027-01-31 starts, in UTC."""
    return int(datetime.fromisoformat(day).replace(tzinfo=UTC).timestamp() * 1_000)

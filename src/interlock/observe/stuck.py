"""What does not make progress: entities beyond `expect`, overdue work, dead letters, revisions without a chart.

Rule: a chart says how long a state may last. It is the loaded one, else the newest that the store has. Of a kind with
neither only the work is judged. Held entities are not stuck.
"""

from __future__ import annotations

from collections.abc import Collection

from msgspec import Struct

from interlock.errors import NotFoundError, UnavailableError
from interlock.model.charts.chart import Chart
from interlock.model.duration import parse_duration
from interlock.model.event import is_reserved
from interlock.observe.held_entities import held_entities
from interlock.observe.work_status import work_status
from interlock.ports.delivery import CHART_MISSING_CODES
from interlock.ports.reading.paging import pages
from interlock.ports.reading.statistics import COUNT_MAX
from interlock.ports.store import ENDED_STATES, PAGE_MAX, EntityQuery, EntityRow
from interlock.ports.work import WorkQuery, WorkRow
from interlock.runtime.charts.registry import BUILTIN_KINDS
from interlock.runtime.runtime import Runtime

WORK_ROWS_MAX = 10_000
"""Rows of work that are searched for overdue ones: some tens of milliseconds."""


class StuckEntity(Struct, frozen=True):
    """An entity that has been in a state for longer than its chart expects.

    `events` lead out of the state; a sender of the first one needs one of `roles`.
    """

    entity: str
    state: str
    version: int
    age_ms: int
    expect_ms: int
    events: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()

    @property
    def late_ms(self) -> int:
        """By how much it is late."""
        return self.age_ms - self.expect_ms


class MissingRevision(Struct, frozen=True):
    """A revision that active entities were last written by, and that this process cannot continue."""

    kind: str
    revision: str
    reason: str
    hint: str | None = None


async def stuck_entities(runtime: Runtime, kind: str | None, limit: int) -> list[StuckEntity]:
    """Return the entities that have been in a state for longer than their chart expects, the latest first."""
    now_ms = runtime.clock.now_ms()
    found: list[StuckEntity] = []
    for each, chart in (await judged_charts(runtime, kind)).items():
        for state in chart.states:
            within = None if state.expect is None else parse_duration(state.expect.within)
            if within is None:
                continue
            query = EntityQuery(kind=each, state=state.id, entered_before_ms=now_ms - within, limit=PAGE_MAX)
            events = _leaving_events(chart, state.index)
            roles = next((each.roles for each in chart.events or () if each.name in events[:1]), None) or ()
            for row in await _waiting(runtime, query, limit):
                age_ms = now_ms - row.entered_ms
                found.append(StuckEntity(row.entity, state.id, row.version, age_ms, within, events, roles))
    return sorted(found, key=lambda each: (-each.late_ms, each.entity, each.state))[:limit]


async def judged_charts(runtime: Runtime, kind: str | None) -> dict[str, Chart]:
    """Return the chart by which the entities of each kind, or of one, are judged; a kind without one is left out."""
    found: dict[str, Chart] = {}
    kinds = (*runtime.charts.kinds(), *await runtime.store.kinds()) if kind is None else (kind,)
    for each in dict.fromkeys(kinds):
        if each in BUILTIN_KINDS:
            continue
        try:
            found[each] = (await runtime.revisions.newest(each)).chart
        except (NotFoundError, UnavailableError) as error:
            if error.code not in CHART_MISSING_CODES:
                raise
    return found


async def overdue_work(runtime: Runtime, kind: str | None) -> tuple[list[WorkRow], bool]:
    """Return work that no worker claims and work with an expired lease, longest first; and whether all was read."""
    if runtime.store.work is None:
        return [], True
    now_ms, found, is_complete = runtime.clock.now_ms(), list[WorkRow](), True
    async for page in pages(runtime.store.work.list_work, WorkQuery(limit=PAGE_MAX), rows_max=WORK_ROWS_MAX):
        rows = (row for row in page.rows if _is_of_kind(row, kind))
        found += (row for row in rows if work_status(row, now_ms=now_ms).is_overdue)
        is_complete = page.after is None
    return sorted(found, key=lambda row: (row.next_ms or 0, row.entity)), is_complete


async def dead_letters(runtime: Runtime, kind: str | None) -> list[WorkRow]:
    """Return dead letters, the oldest first, at most `PAGE_MAX`."""
    if runtime.store.work is None:
        return []
    page = await runtime.store.work.list_work(WorkQuery(dead=True, limit=PAGE_MAX))
    rows = (row for row in page.rows if _is_of_kind(row, kind))
    return sorted(rows, key=lambda row: (row.dead_ms or 0, row.entity))


async def missing_revisions(runtime: Runtime) -> list[MissingRevision]:
    """Return the revisions of active entities, of kinds with a loaded chart, that this process cannot continue.

    A store without counters is walked, up to `COUNT_MAX` entities of a kind.
    """
    found: list[MissingRevision] = []
    for kind in runtime.charts.kinds():
        for revision, states in (await living_revisions(runtime, kind)).items():
            missing = await _missing_revision(runtime, kind, revision, states)
            if missing is not None:
                found.append(missing)
    return found


async def _missing_revision(
    runtime: Runtime, kind: str, revision: str, populated: Collection[str]
) -> MissingRevision | None:
    """Return why this process cannot continue the entities of a revision; None if it can, or if all have ended."""
    revisions = runtime.revisions
    try:
        await revisions.for_repeating(kind, revision)
    except UnavailableError as error:
        if error.code not in CHART_MISSING_CODES:
            raise
        compatible = await revisions.compatible(kind, revision)
        if compatible is None:
            is_active = await _has_active(runtime, kind, revision)
            return MissingRevision(kind, revision, error.message, error.hint) if is_active else None
        known = {*ENDED_STATES.values(), *(each.id for each in compatible.chart.states)}
        for state in sorted(set(populated) - known):
            if await _has_active(runtime, kind, revision, state):
                reason = f"{compatible.chart.revision_text} declares itself compatible but has no state `{state}`"
                return MissingRevision(kind, revision, reason, "load the chart of that revision too")
    return None


async def living_revisions(runtime: Runtime, kind: str) -> dict[str, set[str]]:
    """Return the states in which there are entities, by revision; without the revisions that have only ended ones.

    A store without counters is walked, up to `COUNT_MAX` entities.
    """
    store, found = runtime.store, dict[str, set[str]]()
    if store.statistics is None:
        async for page in pages(store.find, EntityQuery(kind=kind, limit=PAGE_MAX), rows_max=COUNT_MAX):
            for row in page.rows:
                if row.ended is None:
                    found.setdefault(row.revision, set()).update(row.configuration)
        return found
    states = runtime.charts.for_new_entity(kind).chart.states
    final = {*ENDED_STATES.values(), *(each.id for each in states if each.type == "final")}
    for each in await store.statistics.count_states(kind):
        if each.entities:
            found.setdefault(each.revision, set()).add(each.state)
    return {revision: populated for revision, populated in found.items() if populated - final}


async def _has_active(runtime: Runtime, kind: str, revision: str, state: str | None = None) -> bool:
    """Whether an entity of a revision is active: an ended one may count in regions that are not final.

    Only the first page is read; if there is a second one, an active entity is assumed.
    """
    page = await runtime.store.find(EntityQuery(kind=kind, state=state, revision=revision, limit=PAGE_MAX))
    return page.after is not None or any(each.ended is None for each in page.rows)


async def _waiting(runtime: Runtime, query: EntityQuery, limit: int) -> list[EntityRow]:
    """The first active entities of a list that no operator holds. Some stores keep cancelled entities in it, first."""
    rows = list[EntityRow]()
    held = await held_entities(runtime, query.kind)
    if held.is_kind:
        return rows
    async for page in pages(runtime.store.find, query, rows_max=COUNT_MAX):
        rows += (each for each in page.rows if each.ended is None and each.entity not in held)
        if len(rows) >= limit:
            break
    return rows[:limit]


def _leaving_events(chart: Chart, index: int) -> tuple[str, ...]:
    """The events that a sender can send to leave a state: no timers and no results of effects."""
    declared = None if chart.events is None else {each.name for each in chart.events if each.direction == "in"}
    names = (
        each.text
        for transition in chart.transitions
        if transition.source == index and transition.targets
        for each in transition.descriptors
    )
    found = dict.fromkeys(each for each in names if declared is None or each in declared)
    return tuple(each for each in found if not is_reserved(each))


def _is_of_kind(row: WorkRow, kind: str | None) -> bool:
    return kind is None or row.entity.startswith(f"{kind}/")

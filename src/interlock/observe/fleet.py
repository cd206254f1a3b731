"""What is known of all entities of a kind at once, for whoever shows it: from counters, charts and a few index reads.

Rule 1: nothing here prints. An answer costs the same for ten entities and for ten million.
Rule 2: a kind whose chart is not here is seen too, but only its states: what is too long there, nobody knows.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from interlock.errors import NotFoundError, UnavailableError
from interlock.model.chart import Chart
from interlock.model.diagnostics import suggestion
from interlock.model.duration import parse_duration
from interlock.model.event import is_reserved
from interlock.observe.population import population, rates
from interlock.ports.statistics import COUNT_MAX, MINUTE_MS, MinuteRates, Statistics
from interlock.ports.store import ENDED_STATES, PAGE_MAX, EntityQuery, EntityRow
from interlock.ports.work import WorkQuery, WorkStore
from interlock.runtime.chart_registry import BUILTIN_KINDS
from interlock.runtime.runtime import Runtime

ENDED_TYPES = ("final", "ended")
"""Types of states in which nobody goes on."""


class StateSummary(Struct, frozen=True):
    """A state and those in it. `stuck` is None where nobody said how long is too long. `is_final`: those in it have
    ended; they end without a final state, too, and are then told under one of `ENDED_STATES`.
    """

    state: str
    entities: int
    p95_ms: int | None = None
    stuck: int | None = None
    stuck_more: bool = False
    is_final: bool = False


class KindSummary(Struct, frozen=True):
    """The entities of a kind. `more`: counted by a walk that ended at its bound. `None`: this store does not tell."""

    kind: str
    revision: str | None = None
    entities: int | None = None
    more: bool = False
    steps_per_second: float | None = None
    conflicts: float | None = None
    stuck: int | None = None
    stuck_more: bool = False
    states: tuple[StateSummary, ...] = ()


class Orphans(Struct, frozen=True):
    """A kind and a revision of it that entities were last written by, and that no chart here may go on with."""

    kind: str
    revision: str
    hint: str | None = None


class FleetSummary(Struct, frozen=True):
    """All kinds that were asked for. `dead` is how many dead letters wait, at most `PAGE_MAX`."""

    kinds: tuple[KindSummary, ...]
    now_ms: int
    dead: int | None = None


class Stuck(Struct, frozen=True):
    """An entity that rests in a state for longer than its chart expects.

    `events` are those that lead out of it, `roles` the ones of which a sender of the first needs one.
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


async def fleet(runtime: Runtime, kind: str | None) -> FleetSummary:
    """All kinds of the store, or one of them. Raises NotFoundError for one that is neither there nor has a chart."""
    await check_kind(runtime, kind)
    kinds = [each for each in await runtime.store.kinds() if each not in BUILTIN_KINDS] if kind is None else [kind]
    known = runtime.charts.kinds()
    sights = [await _known(runtime, each) if each in known else await _unknown(runtime, each) for each in kinds]
    return FleetSummary(tuple(sights), runtime.clock.now_ms(), await _dead(runtime))


async def check_kind(runtime: Runtime, kind: str | None) -> None:
    """Raises NotFoundError for a kind of which there is neither an entity nor a chart: a typing error, likely."""
    if kind is None or kind in runtime.charts.kinds():
        return
    known = (*runtime.charts.kinds(), *await runtime.store.kinds())
    if kind not in known:
        hint = suggestion(kind, known) or (f"there are {', '.join(known)}" if known else None)
        raise NotFoundError(f"there is no kind `{kind}`", code="kind.unknown", hint=hint)


async def orphans(runtime: Runtime) -> list[Orphans] | None:
    """Revisions with living entities, of kinds whose chart is here, that rest until somebody brings their chart.

    None: this store does not tell.
    """
    store, found = runtime.store, list[Orphans]()
    if not isinstance(store, Statistics):
        return None
    for kind in runtime.charts.kinds():
        states = runtime.charts.for_new_entity(kind).chart.states
        final = {*ENDED_STATES.values(), *(each.id for each in states if each.type == "final")}
        counts = await store.counts(kind)
        for revision in dict.fromkeys(each.revision for each in counts if each.entities and each.state not in final):
            try:
                chart = runtime.charts.for_revision(kind, revision).chart
            except UnavailableError as error:
                if await _has_living(runtime, kind, revision):
                    found.append(Orphans(kind, revision, error.hint))
                continue
            has = {*ENDED_STATES.values(), *(each.id for each in chart.states)}
            there = (each.state for each in counts if each.revision == revision and each.entities)
            for state in sorted(set(there) - has):
                if await _has_living(runtime, kind, revision, state):
                    lacks = f"{chart.revision} calls itself compatible and has no state `{state}`"
                    found.append(Orphans(kind, revision, f"{lacks}: load that revision too"))
                    break
    return found


async def _has_living(runtime: Runtime, kind: str, revision: str, state: str | None = None) -> bool:
    """Whether an entity of a revision lives: one that is done stands in the counters in regions that are not final.

    Of the first page only: where that is full, one more is taken for living.
    """
    page = await runtime.store.find(EntityQuery(kind=kind, state=state, revision=revision, limit=PAGE_MAX))
    return page.after is not None or any(each.ended is None for each in page.rows)


async def _known(runtime: Runtime, kind: str) -> KindSummary:
    found, chart = await population(runtime, kind), runtime.charts.for_new_entity(kind).chart
    inner = {each.id for each in chart.states if each.type == "final" and each.parent != 0}  # only a region has ended
    counted = isinstance(runtime.store, Statistics)
    rate, conflicts = fleet_rate(await rates(runtime, kind), runtime.clock.now_ms()) if counted else (None, None)
    states = tuple(
        StateSummary(
            each.id,
            each.entities,
            each.p95_ms,
            each.stuck,
            each.stuck_more,
            each.type in ENDED_TYPES and each.id not in inner,
        )
        for each in found.states
        if each.entities and _is_told(chart, each.id)
    )
    return KindSummary(
        kind,
        chart.revision,
        found.entities,
        found.partial,
        rate,
        conflicts,
        found.stuck if counted else None,
        found.stuck_more,
        states,
    )


async def _unknown(runtime: Runtime, kind: str) -> KindSummary:
    if not isinstance(runtime.store, Statistics):
        return KindSummary(kind)
    rate, conflicts = fleet_rate(await rates(runtime, kind), runtime.clock.now_ms())
    counts: dict[str, int] = {}
    for each in await runtime.store.counts(kind):
        counts[each.state] = counts.get(each.state, 0) + each.entities
    states = tuple(
        StateSummary(state, entities, is_final=state in ENDED_STATES.values())
        for state, entities in sorted(counts.items())
    )
    return KindSummary(kind, steps_per_second=rate, conflicts=conflicts, states=states)


def _is_told(chart: Chart, name: str) -> bool:
    """Atomic states, and those that expect something. The others only repeat what is told of their children."""
    state = next((each for each in chart.states if each.id == name), None)
    return state is None or not state.children or state.expect is not None


def fleet_rate(minutes: tuple[MinuteRates, ...], now_ms: int) -> tuple[float, float]:
    """Steps a second over the last minute, and the share of attempts that were lost to others in it."""
    current = now_ms // MINUTE_MS * MINUTE_MS
    old = 1 - (now_ms - current) / MINUTE_MS
    steps = conflicts = 0.0
    for each in minutes:
        weight = {current: 1.0, current - MINUTE_MS: old}.get(each.minute_ms, 0.0)
        steps += weight * each.steps
        conflicts += weight * each.conflicts
    return steps * 1_000 / MINUTE_MS, conflicts / (steps + conflicts) if conflicts else 0.0


async def _dead(runtime: Runtime) -> int | None:
    if not isinstance(runtime.store, WorkStore):
        return None
    return len((await runtime.store.works(WorkQuery(dead=True, limit=PAGE_MAX))).rows)


async def stuck_entities(runtime: Runtime, kind: str | None, limit: int) -> list[Stuck]:
    """Those who rest in a state for longer than its chart expects, the latest first."""
    now_ms = runtime.clock.now_ms()
    found: list[Stuck] = []
    for each in runtime.charts.kinds() if kind is None else (kind,):
        chart = runtime.charts.for_new_entity(each).chart
        for state in chart.states:
            within = None if state.expect is None else parse_duration(state.expect.within)
            if within is None:
                continue
            query = EntityQuery(kind=each, state=state.id, entered_before_ms=now_ms - within, limit=PAGE_MAX)
            events = _events(chart, state.index)
            roles = next((each.roles for each in chart.events or () if each.name in events[:1]), None) or ()
            for row in await _living(runtime, query, limit):
                age_ms = now_ms - row.entered_ms
                found.append(Stuck(row.entity, state.id, row.version, age_ms, within, events, roles))
    return sorted(found, key=lambda each: (-each.late_ms, each.entity, each.state))[:limit]


async def _living(runtime: Runtime, query: EntityQuery, limit: int) -> list[EntityRow]:
    """The first entities of a list that live; on a store without lists of its own those that were cancelled stand in it
    for ever, before all others.
    """
    rows, looked_at = list[EntityRow](), 0
    while len(rows) < limit and looked_at < COUNT_MAX:
        page = await runtime.store.find(query)
        rows += (each for each in page.rows if each.ended is None)
        looked_at += len(page.rows)
        if page.after is None:
            break
        query = replace(query, after=page.after)
    return rows[:limit]


def _events(chart: Chart, index: int) -> tuple[str, ...]:
    """What people can send to lead out of a state: neither timers nor answers of effects."""
    sendable = None if chart.events is None else {each.name for each in chart.events if each.direction == "in"}
    names = (
        each.text
        for transition in chart.transitions
        if transition.source == index and transition.targets
        for each in transition.descriptors
    )
    found = dict.fromkeys(each for each in names if sendable is None or each in sendable)
    return tuple(each for each in found if not is_reserved(each))

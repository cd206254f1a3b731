"""How many entities of a kind are in which state, how long they stay, and how fast they step.

`top`, the console, the demo and notebooks all show these numbers.

Rule 1: the cost does not grow with the number of entities: the numbers come from the store's counters. A store without
counters is read page by page up to `COUNT_MAX` entities; the result then says that it is not complete.
Rule 2: a kind whose chart is not loaded has states and rates, but no total: only a chart defines which states are
nested.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import NamedTuple

from msgspec import Struct

from interlock.errors import DeniedError, NotFoundError, UnavailableError
from interlock.kernel.step import Kernel
from interlock.model.charts.chart import Chart, State
from interlock.model.duration import parse_duration
from interlock.observe.held_entities import HeldEntities, first_held_entities
from interlock.ports.delivery import CHART_MISSING_CODES
from interlock.ports.reading.statistics import COUNT_MAX, DAY_MS, MINUTE_MS, DwellTimes, MinuteRates
from interlock.ports.reading.visible_names import visible_state
from interlock.ports.store import ENDED_STATES, PAGE_MAX, Store
from interlock.ports.work import WorkQuery
from interlock.runtime.charts.registry import BUILTIN_KINDS, unknown_kind
from interlock.runtime.entities.permissions import Reader
from interlock.runtime.reading.entity_counts import by_revision, count_by_revision, entities_in
from interlock.runtime.runtime import Runtime

DWELL_WINDOW_MS = 7 * DAY_MS
"""Stays that ended in the last week count for the time in a state."""

RATE_MINUTES = 60
"""Minutes of rates that are read: an hour, as the console draws it."""

MARKS_MS = 250
"""Time between two reads of the counters for change marks: half of the time between two events of a stream."""


class StatePopulation(Struct, frozen=True):
    """A state and the entities in it. `stuck` is None if the chart does not say how long is too long; held entities are
    not stuck.

    `type` is that of the chart, or `removed` (entities of older revisions are in a state that the current chart does
    not have), `ended` (they ended without a final state, see `ENDED_STATES`), or `unknown` (no chart is loaded).
    `p95_ms` is the time within which about 95 % of the stays of the last week ended, and so on.
    """

    id: str
    type: str
    depth: int
    parent: str | None
    entities: int
    p50_ms: int | None = None
    p95_ms: int | None = None
    p99_ms: int | None = None
    p999_ms: int | None = None
    expect_ms: int | None = None
    stuck: int | None = None
    stuck_more: bool = False
    tags: tuple[str, ...] = ()
    description: str | None = None

    @property
    def is_ended(self) -> bool:
        """Whether the entities in this state have ended. In a nested final state only a region has ended."""
        return self.type == "ended" or (self.type == "final" and self.parent is None)


class RevisionPopulation(Struct, frozen=True):
    """A revision and the entities that were last written by it. `chart_loaded`: its chart is loaded."""

    revision: str
    chart_loaded: bool
    current: bool
    entities: int
    states: dict[str, int]
    label: str | None = None


class Population(Struct, frozen=True):
    """The entities of a kind.

    `revision` is the current one, and `label` its label: of the newest chart of this process, else of the newest stored
    definition. Without either it is None, and so is `entities`. `is_complete` is False if
    counting stopped at `COUNT_MAX`. `steps_per_second` and `conflict_share` (lost attempts of all attempts) cover the
    last minute; they are None if the store has no counters.
    """

    kind: str
    revision: str | None = None
    entities: int | None = None
    is_complete: bool = True
    stuck: int | None = None
    stuck_more: bool = False
    states: tuple[StatePopulation, ...] = ()
    revisions: tuple[RevisionPopulation, ...] = ()
    minutes: tuple[MinuteRates, ...] = ()
    steps_per_second: float | None = None
    conflict_share: float | None = None
    label: str | None = None

    @property
    def active(self) -> int:
        """The entities that have not ended."""
        ended = sum(each.entities for each in self.states if each.is_ended)
        return max(0, (self.entities or 0) - ended)


class Overview(Struct, frozen=True):
    """All kinds of a store, or one. `dead_letters` stops at `PAGE_MAX`; None if the store does not run effects."""

    kinds: tuple[Population, ...]
    now_ms: int
    dead_letters: int | None = None


async def overview(runtime: Runtime, kind: str | None = None) -> Overview:
    """Return the population of all kinds, or of one. Raises NotFoundError for an unknown kind."""
    await check_kind(runtime, kind)
    kinds = [each for each in await runtime.store.kinds() if each not in BUILTIN_KINDS] if kind is None else [kind]
    found = [await population(runtime, each) for each in kinds]
    return Overview(tuple(found), runtime.clock.now_ms(), await count_dead_letters(runtime.store))


async def overview_for(runtime: Runtime, kind: str | None, reader: Reader) -> Overview:
    """Return the populations that a reader may see, as `population_for`. They learn nothing about work.

    Raises for one kind as `Runtime.visible_counts` does.
    """
    await check_kind(runtime, kind)
    if kind is not None:
        return Overview((await population_for(runtime, kind, reader),), runtime.clock.now_ms())
    found = []
    for each in await runtime.store.kinds():
        if each not in BUILTIN_KINDS:
            with suppress(DeniedError, NotFoundError):
                found.append(await population_for(runtime, each, reader))
    return Overview(tuple(found), runtime.clock.now_ms())


async def check_kind(runtime: Runtime, kind: str | None) -> None:
    """Raise NotFoundError for a kind that has neither an entity nor a chart, with the nearest known name."""
    if kind is None or kind in runtime.charts.kinds():
        return
    known = (*runtime.charts.kinds(), *await runtime.store.kinds())
    if kind not in known:
        raise unknown_kind(kind, known)


async def count_dead_letters(store: Store) -> int | None:
    """Return the number of dead letters, at most `PAGE_MAX`; None if the store does not run effects."""
    if store.work is None:
        return None
    return len((await store.work.list_work(WorkQuery(dead=True, limit=PAGE_MAX))).rows)


async def population(runtime: Runtime, kind: str) -> Population:
    """Return the population of a kind."""
    minutes = await _minutes(runtime, kind)
    rate, conflicts = (None, None) if minutes is None else recent_rate(minutes, runtime.clock.now_ms())
    try:
        kernel = await runtime.revisions.newest(kind)
    except (NotFoundError, UnavailableError) as error:
        if error.code not in CHART_MISSING_CODES:
            raise
        states = await _states_without_chart(runtime.store, kind)
        return Population(kind, states=states, minutes=minutes or (), steps_per_second=rate, conflict_share=conflicts)
    counts, is_complete = await count_by_revision(runtime.store, runtime.revisions, kind, rows_max=COUNT_MAX)
    states = await _states(runtime, kernel, _totals(counts))
    stuck = [each for each in states if each.stuck]
    revisions = await _revisions(runtime, kernel, counts)
    return Population(
        kind=kind,
        revision=kernel.chart.revision,
        entities=sum(each.entities for each in revisions),
        is_complete=is_complete,
        stuck=None if minutes is None else sum(each.stuck or 0 for each in stuck),
        stuck_more=any(each.stuck_more for each in stuck),
        states=states,
        revisions=revisions,
        minutes=minutes or (),
        steps_per_second=rate,
        conflict_share=conflicts,
        label=kernel.chart.label,
    )


async def population_for(runtime: Runtime, kind: str, reader: Reader) -> Population:
    """Return the population of a kind as a reader sees it.

    If they may not see hidden states, an entity counts where it was before, and there are no rates: those contain steps
    that they do not see. Raises as `Runtime.visible_counts` does.
    """
    visible = await runtime.visible_counts(kind, reader)
    if visible is None:
        return await population(runtime, kind)
    kernel = await runtime.revisions.newest(kind)
    hidden = frozenset[str]() if kernel.chart.hidden is None else kernel.chart.hidden.states
    counts = by_revision(visible)
    states = await _states(runtime, kernel, _totals(counts), hidden=hidden)
    revisions = await _revisions(runtime, kernel, counts)
    return Population(
        kind=kind,
        revision=kernel.chart.revision,
        entities=sum(each.entities for each in revisions),
        stuck=sum(each.stuck or 0 for each in states),
        stuck_more=any(each.stuck_more for each in states),
        states=states,
        revisions=revisions,
        label=kernel.chart.label,
    )


def _totals(counts: Mapping[str, Mapping[str, int]]) -> dict[str, int]:
    totals: dict[str, int] = {}
    for states in counts.values():
        for state, entities in states.items():
            totals[state] = totals.get(state, 0) + entities
    return totals


def recent_rate(minutes: tuple[MinuteRates, ...], now_ms: int) -> tuple[float, float]:
    """Return the steps per second of the last minute, and the share of attempts that lost to a conflict.

    The current minute counts whole; the previous one counts for the part of it that is less than a minute ago.
    """
    current = now_ms // MINUTE_MS * MINUTE_MS
    weights = {current: 1.0, current - MINUTE_MS: 1 - (now_ms - current) / MINUTE_MS}
    steps = sum(weights.get(each.minute_ms, 0.0) * each.steps for each in minutes)
    conflicts = sum(weights.get(each.minute_ms, 0.0) * each.conflicts for each in minutes)
    return steps * 1_000 / MINUTE_MS, conflicts / (steps + conflicts) if conflicts else 0.0


class DwellQuantiles(NamedTuple):
    """Within about which time a part of the stays in a state ended; None beyond the last bound."""

    p50_ms: int | None = None
    p95_ms: int | None = None
    p99_ms: int | None = None
    p999_ms: int | None = None


NO_STAYS = DwellQuantiles()


async def dwell_quantiles(runtime: Runtime, kind: str) -> dict[str, DwellQuantiles]:
    """Return, by state, how long the stays of the last week took. Every page and command uses these numbers."""
    if runtime.store.statistics is None:
        return {}
    found = await runtime.store.statistics.dwell_times(kind, since_ms=runtime.clock.now_ms() - DWELL_WINDOW_MS)
    return _quantiles(found)


async def visible_dwell_quantiles(runtime: Runtime, kind: str) -> dict[str, DwellQuantiles]:
    """Return, as others see it, how long the stays of the last week took."""
    if runtime.store.statistics is None:
        return {}
    since_ms = runtime.clock.now_ms() - DWELL_WINDOW_MS
    return _quantiles(await runtime.store.statistics.visible_dwell_times(kind, since_ms=since_ms))


def _quantiles(found: Iterable[DwellTimes]) -> dict[str, DwellQuantiles]:
    return {each.state: DwellQuantiles(*map(each.quantile_ms, (0.5, 0.95, 0.99, 0.999))) for each in found}


async def _minutes(runtime: Runtime, kind: str) -> tuple[MinuteRates, ...] | None:
    """The counters of each minute of the last hour; None if the store has no counters."""
    if runtime.store.statistics is None:
        return None
    return await runtime.store.statistics.minute_rates(kind, since_ms=runtime.clock.now_ms() - RATE_MINUTES * MINUTE_MS)


async def _states_without_chart(store: Store, kind: str) -> tuple[StatePopulation, ...]:
    if store.statistics is None:
        return ()
    counts: dict[str, int] = {}
    for each in await store.statistics.count_states(kind):
        counts[each.state] = counts.get(each.state, 0) + each.entities
    return tuple(
        StatePopulation(state, "ended" if state in ENDED_STATES.values() else "unknown", 1, None, entities)
        for state, entities in sorted(counts.items())
    )


async def _states(
    runtime: Runtime, kernel: Kernel, totals: dict[str, int], *, hidden: frozenset[str] | None = None
) -> tuple[StatePopulation, ...]:
    """The states of the chart, then states that only older revisions have, then entities that ended in no state.

    With `hidden`, as those see it who may not see these states.
    """
    chart = kernel.chart
    dwell = await (dwell_quantiles if hidden is None else visible_dwell_quantiles)(runtime, chart.kind)
    held = await first_held_entities(runtime, chart.kind)
    known = {*ENDED_STATES.values(), *(each.id for each in chart.states)}
    removed = sorted(each for each in totals if each not in known)
    return (
        *[
            await _state(runtime, chart, each, totals, dwell.get(each.id, NO_STAYS), held=held, hidden=hidden)
            for each in chart.states[1:]
            if each.type != "history" and each.id not in (hidden or ())
        ],
        *(StatePopulation(each, "removed", 1, None, totals[each]) for each in removed),
        *(StatePopulation(each, "ended", 1, None, totals[each]) for each in ENDED_STATES.values() if totals.get(each)),
    )


async def _state(
    runtime: Runtime,
    chart: Chart,
    state: State,
    totals: dict[str, int],
    dwell: DwellQuantiles,
    *,
    held: HeldEntities,
    hidden: frozenset[str] | None,
) -> StatePopulation:
    within = None if state.expect is None else parse_duration(state.expect.within)
    stuck = None
    if within is not None and state.type != "final" and runtime.store.statistics is not None:
        stuck = 0
        if totals.get(state.id):
            stuck = await held.count_stuck(
                runtime.store,
                runtime.store.statistics,
                state.id if hidden is None else visible_state(state.id),
                before_ms=runtime.clock.now_ms() - within,
            )
    return StatePopulation(
        id=state.id,
        type=state.type,
        depth=state.depth,
        parent=chart.states[state.parent].id if state.parent > 0 else None,
        entities=totals.get(state.id, 0),
        p50_ms=dwell.p50_ms,
        p95_ms=dwell.p95_ms,
        p99_ms=dwell.p99_ms,
        p999_ms=dwell.p999_ms,
        expect_ms=within,
        stuck=None if stuck is None else min(stuck, COUNT_MAX),
        stuck_more=stuck is not None and stuck > COUNT_MAX,
        tags=state.tags,
        description=state.description,
    )


async def _revisions(
    runtime: Runtime, kernel: Kernel, by_revision: dict[str, dict[str, int]]
) -> tuple[RevisionPopulation, ...]:
    kind, found = kernel.chart.kind, list[RevisionPopulation]()
    for each in dict.fromkeys([*runtime.charts.revisions(kind), kernel.chart.revision, *sorted(by_revision)]):
        chart = await _chart(runtime, kind, each)
        states = by_revision.get(each, {})
        is_current = kernel.chart.is_revision(each)
        if states or each == kernel.chart.revision or not is_current:  # a name without entities, of the current one
            entities = entities_in(chart or kernel.chart, states)
            label = None if chart is None else chart.label
            found.append(RevisionPopulation(each, chart is not None, is_current, entities, states, label))
    return tuple(found)


async def _chart(runtime: Runtime, kind: str, revision: str) -> Chart | None:
    """Return the chart of a revision; None if it cannot be read here."""
    try:
        return await runtime.revisions.chart(kind, revision)
    except UnavailableError as error:
        if error.code not in CHART_MISSING_CODES:
            raise
        return None


class ChangeMarks:
    """A number for each kind that differs when its counters changed; streams compare them.

    Of a kind with hidden states there is a second number, for those who may not see them.

    The store is read at most once in `MARKS_MS`, whatever the number of streams.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._reading = asyncio.Lock()
        self._read_ms: int | None = None
        self._marks: dict[str, int] = {}
        self._visible_marks: dict[str, int] = {}

    async def marks(self) -> Mapping[str, int]:
        """Return a number for each kind with a loaded chart; empty if the store has no counters."""
        async with self._reading:
            now_ms = self._runtime.clock.now_ms()
            if self._read_ms is None or not 0 <= now_ms - self._read_ms < MARKS_MS:
                self._marks = await self._read(now_ms)
                self._read_ms = now_ms
            return self._marks

    async def visible_marks(self) -> Mapping[str, int]:
        """Return a number for each kind that differs when the counters for others changed."""
        await self.marks()
        return self._visible_marks

    async def _read(self, now_ms: int) -> dict[str, int]:
        store, found = self._runtime.store, {}
        if store.statistics is not None:
            for kind in self._runtime.charts.kinds():
                counts = await store.statistics.visible_counts(kind)
                self._visible_marks[kind] = hash(counts.visible)
                found[kind] = hash(
                    (counts.states, await store.statistics.minute_rates(kind, since_ms=now_ms - 2 * MINUTE_MS))
                )
        return found

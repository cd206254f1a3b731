"""One entity: now or at an earlier version, its accepted events, its children and its journal.

Rule 1: the store verifies entries. After an entry that does not follow from the one before, none are shown.
Rule 2: the id of a child can be guessed, so an entity counts as a child only if it names its parent itself.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from interlock.errors import CompactedError, CorruptionError, NotFoundError, UnavailableError
from interlock.evolve.move import is_move
from interlock.kernel.step import Kernel
from interlock.model.journal.entry import Entry
from interlock.model.snapshot import Invocation, Snapshot
from interlock.model.visible import ChartMask
from interlock.observe.acceptance import Acceptance, acceptances
from interlock.observe.history import REPLAY_ENTRIES_MAX
from interlock.observe.population import dwell_quantiles
from interlock.observe.sagas import saga_views
from interlock.ports.work import WorkQuery
from interlock.runtime.charts.registry import child_entity
from interlock.runtime.history.replay import repeat_step, time_ms
from interlock.runtime.request_checks import check_entity
from interlock.trust.disclosure import damage_text
from interlock.web.api.covered import covered_acceptances, covered_entity, covered_journal
from interlock.web.api.views import (
    SINCE_ENTRIES_MAX,
    ChildView,
    Damage,
    EntityView,
    JournalView,
    TransitionView,
    WorkView,
    chart_file,
    entry_view,
    limit_bytes,
    mask_for,
    masked_acceptances,
    masked_context,
    masked_work,
    timers_view,
    transition_views,
    work_view,
)
from interlock.web.http.console import reader_of
from interlock.web.http.endpoint import Endpoint, RequestContext

WORK_MAX = 100
CHILDREN_MAX = 20
"""Children that are loaded: each is one read, and an entity may have some hundreds."""

ENTRIES_MAX = 200


class EntityQueryParams(Struct, frozen=True):
    """An earlier version: by number, or by a time in ISO 8601 with a time zone.

    `replay`: compute what the last step changed, even if that needs a long replay.
    """

    version: Annotated[int, Meta(ge=1)] | None = None
    at: str | None = None
    replay: bool = False


class JournalQuery(Struct, frozen=True):
    """Entries after a version, or the last entries before one."""

    after: Annotated[int, Meta(ge=0)] | None = None
    before: Annotated[int, Meta(ge=1)] | None = None
    limit: Annotated[int, Meta(ge=1, le=ENTRIES_MAX)] = 50


# State


async def get_entity(request: RequestContext) -> EntityView:
    """Return an entity now or at an earlier version, with the entry that led there."""
    console, entity = request.console, request.path("entity")
    kind = check_entity(entity)
    if console.sees_covers(request.user, kind):
        return await covered_entity(request, entity)
    runtime = console.runtime
    await runtime.permissions.check_reader(entity, reader_of(request.user))
    latest = await runtime.state(entity)
    console.history.keep(latest)
    shown = await _snapshot_at(request, latest)
    revisions, is_latest = runtime.revisions, shown.version == latest.version
    kernel = await revisions.for_reading(kind, shown.revision)
    console.check_chart(request.user, kernel.chart)
    mask = mask_for(kernel.chart, request.user)
    entries, before, damage = await _last_step(request, shown)
    entry = entries[-1] if entries else None
    needs_replay = entry is not None and before is None and shown.version > 1
    accepted: tuple[Acceptance, ...] = ()
    if is_latest:
        stepping = await revisions.for_preview(shown, needs_functions=False)
        policy = await revisions.policy(stepping)
        now_ms = console.clock.now_ms()
        accepted = acceptances(stepping, shown, request.user.principal, policy, time_ms=now_ms)
    dwell = await dwell_quantiles(runtime, kind) if is_latest and request.may_see(kind) else {}
    p95 = {state: each.p95_ms for state, each in dwell.items() if each.p95_ms is not None}
    work, work_more = await _work(request, entity, mask) if is_latest else ((), False)
    return EntityView(
        entity=entity,
        kind=kind,
        id=entity.partition("/")[2],
        version=shown.version,
        latest=latest.version,
        revision=shown.revision,
        label=kernel.chart.label,
        configuration=shown.configuration,
        active=tuple(each.id for each in kernel.active(shown)),
        context=masked_context(kernel.chart.visible_context(shown.context), mask),
        context_before=None if before is None else masked_context(kernel.chart.visible_context(before.context), mask),
        since_ms=_since_ms(entries),
        time_ms=entry.event.time_ms if entry is not None else 0,
        now_ms=console.clock.now_ms(),
        entry=None if entry is None else entry_view(entry, mask, request.user, request.may_see_entity),
        transitions=_transitions(kernel, before, entry),
        timers=timers_view(shown, mask),
        invokes=tuple({"id": each.id, "state": each.state, "key": each.key} for each in shown.invokes),
        children=await _children(request, kernel, shown) if is_latest else (),
        work=work,
        work_more=work_more,
        saga=saga_views(kernel, shown),
        accepted=masked_acceptances(accepted, mask),
        ended=shown.ended,
        output=None if mask is not None else shown.output,
        parent=_parent(request, shown),
        p95_ms=max((p95[each] for each in shown.configuration if each in p95), default=None),
        masked=mask is not None,
        damage=damage,
        replay_distance=console.history.distance(entity, shown.version - 1) if needs_replay else None,
        file=chart_file(runtime.charts.for_new_entity(kind).chart) if kind in runtime.charts.kinds() else None,
    )


def _parent(request: RequestContext, shown: Snapshot) -> str | None:
    """The entity that invoked this one, if the user may see it."""
    parent = shown.parent
    return None if parent is None or not request.may_see_entity(parent.entity) else parent.entity


async def _snapshot_at(request: RequestContext, latest: Snapshot) -> Snapshot:
    """Return the requested snapshot. Raises NotFoundError if the entity did not exist then."""
    query, history, entity = request.query, request.console.history, latest.entity
    if query.version is None and query.at is None:
        return latest
    version = query.version
    if version is None:
        version = await history.version_at(entity, time_ms(query.at), latest=latest.version)
    found = await history.at(entity, version) if version <= latest.version else None
    if found is None:
        when = f"version {version}" if query.at is None else query.at
        raise NotFoundError(f"`{entity}` does not exist at {when}", code="entity.not_then")
    return found


async def _last_step(request: RequestContext, shown: Snapshot) -> tuple[tuple[Entry, ...], Snapshot | None, str | None]:
    """Return the last entries, the snapshot before the last one, and the damage of the journal.

    The snapshot is None if it needs a long replay. If the journal is archived or corrupt, both are missing: the page of
    a corrupt entity must still load.
    """
    runtime, history, version = request.console.runtime, request.console.history, shown.version
    after = max(0, version - SINCE_ENTRIES_MAX)
    try:
        entries = await runtime.journal(shown.entity, after=after, limit=version - after)
        is_near = history.distance(shown.entity, version - 1) <= REPLAY_ENTRIES_MAX
        before = await history.at(shown.entity, version - 1) if is_near or request.query.replay else None
    except NotFoundError:
        return (), None, None
    except CorruptionError as error:
        return (), None, damage_text(error.code, error.message)
    return entries, before, None


def _since_ms(entries: tuple[Entry, ...]) -> int | None:
    """The time of the last entry that changed the configuration; None if these entries have none."""
    return next((each.event.time_ms for each in reversed(entries) if each.before != each.after), None)


def _transitions(kernel: Kernel, before: Snapshot | None, entry: Entry | None) -> tuple[TransitionView, ...]:
    """The transitions of an entry: its step is repeated, which has no effect."""
    if entry is None or is_move(entry) or (before is None and entry.version > 1):
        return ()
    step = repeat_step(kernel, before.entity if before is not None else kernel.chart.kind + "/", before, entry)
    return transition_views(kernel.chart, step.transitions)


async def _work(request: RequestContext, entity: str, mask: ChartMask | None) -> tuple[tuple[WorkView, ...], bool]:
    """Return the first work of an entity, and whether there is more."""
    store = request.console.store
    if store.work is None:
        return (), False
    page = await store.work.list_work(WorkQuery(entity=entity, limit=WORK_MAX))
    now_ms = request.console.clock.now_ms()
    return tuple(masked_work(work_view(each, now_ms), mask) for each in page.rows), page.after is not None


async def get_accepted(request: RequestContext) -> tuple[Acceptance, ...]:
    """Return for each event whether the entity accepts it now, and why not."""
    entity = request.path("entity")
    if request.console.sees_covers(request.user, check_entity(entity)):
        return await covered_acceptances(request, entity)
    runtime = request.console.runtime
    await runtime.permissions.check_reader(entity, reader_of(request.user))
    snapshot = await runtime.state(entity)
    kernel = await runtime.revisions.for_preview(snapshot, needs_functions=False)
    request.console.check_chart(request.user, kernel.chart)
    policy = await runtime.revisions.policy(kernel)
    now_ms = request.console.clock.now_ms()
    found = acceptances(kernel, snapshot, request.user.principal, policy, time_ms=now_ms)
    return masked_acceptances(found, mask_for(kernel.chart, request.user))


# Children


async def _children(request: RequestContext, kernel: Kernel, shown: Snapshot) -> tuple[ChildView, ...]:
    """Return the first children of an entity that the user may see; a restarted child has another id and is missing."""
    console, found = request.console, []
    for invoke in [each for each in shown.invokes if each.child][:CHILDREN_MAX]:
        entity = _child_entity(request, kernel, invoke)
        if entity is None or not request.may_see_entity(entity):
            continue
        try:
            child = await console.runtime.state(entity)
        except (NotFoundError, UnavailableError):  # not created yet, or its chart is not loaded
            continue
        if child.parent is not None and (child.parent.entity, child.parent.key) == (shown.entity, invoke.key):
            found.append(ChildView(entity, invoke.id, child.configuration, child.ended))
    return tuple(found)


def _child_entity(request: RequestContext, kernel: Kernel, invoke: Invocation) -> str | None:
    """The entity that an invoke creates; None if its chart was computed by an expression."""
    state = next(each for each in kernel.chart.states if each.id == invoke.state)
    src = state.invokes[invoke.position].src
    if not isinstance(src, str):
        return None
    try:
        kind = request.console.runtime.revisions.for_child(kernel, src).chart.kind
    except NotFoundError:
        return None
    return child_entity(kind, invoke.id, invoke.key)


# Journal


async def get_journal(request: RequestContext) -> JournalView:
    """Return verified entries of an entity."""
    entity, query = request.path("entity"), request.query
    kind = check_entity(entity)
    if request.console.sees_covers(request.user, kind):
        return await covered_journal(request, entity)
    runtime = request.console.runtime
    await runtime.permissions.check_reader(entity, reader_of(request.user))
    latest = await runtime.state(entity)
    last = latest.version if query.before is None else min(latest.version, query.before - 1)
    after = max(0, last - query.limit) if query.after is None else query.after
    limit = query.limit if query.after is not None else max(0, last - after)
    damage = None
    try:
        try:
            entries = await runtime.journal(entity, after=after, limit=limit) if limit else ()
        except CompactedError as error:  # the page that contains the start of the journal
            if query.after is not None or error.since >= last:
                raise
            after, limit = error.since, last - error.since
            entries = await runtime.journal(entity, after=after, limit=limit)
    except NotFoundError as error:
        if error.code != "journal.archived":
            raise
        return JournalView((), latest.version, error.message)
    except CorruptionError:
        verification = await runtime.verify(entity)
        problem = verification.problem
        if problem is None:  # it was repaired in the meantime
            raise
        valid = min(limit, verification.entries - after)
        entries = await runtime.journal(entity, after=after, limit=valid) if valid > 0 else ()
        version = verification.entries + 1 if problem.version is None else problem.version
        damage = Damage(version, damage_text(problem.code, problem.message))
    chart = await runtime.revisions.chart(kind, latest.revision)
    request.console.check_chart(request.user, chart)
    mask = mask_for(chart, request.user)
    views = [entry_view(each, mask, request.user, request.may_see_entity) for each in entries]
    return JournalView(limit_bytes(views, is_newest=query.after is None), latest.version, None, damage)


ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/entity/{entity:path}",
        summary="Get an entity now, at a version or at a time",
        handler=get_entity,
        query=EntityQueryParams,
        answer=EntityView,
    ),
    Endpoint(
        method="GET",
        path="/accepted/{entity:path}",
        summary="List the events that an entity accepts now, and why not the others",
        handler=get_accepted,
        answer=tuple[Acceptance, ...],
    ),
    Endpoint(
        method="GET",
        path="/journal/{entity:path}",
        summary="List the entries of an entity",
        handler=get_journal,
        query=JournalQuery,
        answer=JournalView,
    ),
)

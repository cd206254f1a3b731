"""One entity: as it is, as it was, what it accepts, what was sent to it.

Rule: a refusal is a problem with the receipt inside it, so that whoever looks at the status alone is not misled.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct
from starlette.responses import Response

from interlock.errors import CorruptionError, NotFoundError
from interlock.kernel.step import Kernel
from interlock.model.journal.entry import Entry, Receipt
from interlock.model.snapshot import Snapshot
from interlock.observe.acceptance import Acceptance, acceptances
from interlock.observe.history import REPLAY_ENTRIES_MAX
from interlock.observe.population import dwell_p95
from interlock.observe.sagas import saga_views
from interlock.ports.work import WorkQuery, WorkStore
from interlock.runtime.history.replay import repeat_step
from interlock.runtime.history.travel import time_ms
from interlock.runtime.request_checks import check_entity
from interlock.web.api.children import children
from interlock.web.api.views import (
    EntityView,
    Hidden,
    Passed,
    WorkView,
    entry_view,
    masked_acceptances,
    masked_context,
    masked_work,
    masks,
    passed_view,
    timers_view,
    work_view,
)
from interlock.web.console import principal_of
from interlock.web.errors import TYPE, damage_text, problem_response
from interlock.web.http.endpoint import Endpoint, RequestContext

SINCE_ENTRIES = 64
"""Entries looked back over to find since when an entity is where it is."""

WORKS_MAX = 100


class WhenQuery(Struct, frozen=True):
    """As it was: at a version, or at a time (ISO 8601 with its zone). `far`: with what its last step changed, even if
    for that much of the journal must be replayed.
    """

    version: Annotated[int, Meta(ge=1)] | None = None
    at: str | None = None
    far: bool = False


class SendBody(Struct, frozen=True):
    """An event to send. `dry_run`: only say what would happen. `reason` is kept with the entry."""

    event: str
    payload: Any = None
    key: str | None = None
    expected: int | None = None
    reason: str | None = None
    dry_run: bool = False


class CreateBody(Struct, frozen=True):
    """An entity to begin."""

    id: str
    context: dict[str, Any] = {}
    key: str | None = None
    reason: str | None = None


class ReceiptView(Struct, frozen=True):
    """How an event was taken. `guards`: which said no, and what they read."""

    entity: str
    outcome: str
    version: int
    reason: str | None = None
    configuration: tuple[str, ...] = ()
    effects: tuple[str, ...] = ()
    guards: tuple[dict[str, Any], ...] = ()
    faults: tuple[str, ...] = ()
    dry_run: bool = False


# One entity


async def one_entity(asked: RequestContext) -> EntityView:
    """An entity now, or as it was, with the entry that led there."""
    console, entity = asked.console, asked.path("entity")
    kind = check_entity(entity)
    console.check_kind(asked.person, kind)
    runtime = console.runtime
    latest = await runtime.state(entity)
    console.past.keep(latest)
    shown = await _shown(asked, latest)
    kernel = runtime.charts.of(shown)
    hidden = masks(kernel.chart, asked.person)
    entries, before, damage = await _past(asked, shown)
    entry = entries[-1] if entries else None
    is_far = entry is not None and before is None and shown.version > 1
    is_now = shown.version == latest.version
    found = acceptances(kernel, shown, asked.person.principal) if is_now else ()
    p95 = await dwell_p95(runtime, kind) if is_now else {}
    work, work_more = await _work(asked, entity, hidden) if is_now else ((), False)
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
        context=masked_context(shown.context, hidden),
        context_before=None if before is None else masked_context(before.context, hidden),
        since_ms=_since(entries),
        time_ms=entry.event.time_ms if entry is not None else 0,
        now_ms=console.clock.now_ms(),
        entry=None if entry is None else entry_view(entry, hidden, asked.may_see_entity),
        took=_took(kernel, before, entry),
        timers=timers_view(shown, hidden),
        invokes=tuple({"id": each.id, "state": each.state, "key": each.key} for each in shown.invokes),
        children=await children(asked, kernel, shown) if is_now else (),
        work=work,
        work_more=work_more,
        saga=saga_views(kernel, shown),
        accepted=masked_acceptances(found, hidden),
        ended=shown.ended,
        output=None if hidden is not None else shown.output,
        parent=_parent(asked, shown),
        p95_ms=max((p95[each] for each in shown.configuration if each in p95), default=None),
        masked=hidden is not None,
        damage=damage,
        far=console.past.distance(entity, shown.version - 1) if is_far else None,
    )


def _parent(asked: RequestContext, shown: Snapshot) -> str | None:
    """The entity that invoked this one, if one may see it."""
    parent = shown.parent
    return None if parent is None or not asked.may_see_entity(parent.entity) else parent.entity


async def _shown(asked: RequestContext, latest: Snapshot) -> Snapshot:
    """The snapshot that is asked for. Raises NotFoundError when there was nothing then."""
    query, past, entity = asked.query, asked.console.past, latest.entity
    if query.version is None and query.at is None:
        return latest
    version = query.version
    if version is None:
        version = await past.version_at(entity, time_ms(query.at), latest=latest.version)
    found = await past.at(entity, version) if version <= latest.version else None
    if found is None:
        where = f"version {version}" if query.at is None else query.at
        raise NotFoundError(f"`{entity}` has nothing at {where}", code="entity.not_then")
    return found


async def _past(asked: RequestContext, shown: Snapshot) -> tuple[tuple[Entry, ...], Snapshot | None, str | None]:
    """The last entries up to the snapshot shown, and the one before it unless that is far; neither when an archive has
    them, or when the journal is damaged, which is told: the page of a damaged entity is the one that is needed most.
    """
    runtime, past, version = asked.console.runtime, asked.console.past, shown.version
    after = max(0, version - SINCE_ENTRIES)
    try:
        entries = await runtime.journal(shown.entity, after=after, limit=version - after)
        is_near = past.distance(shown.entity, version - 1) <= REPLAY_ENTRIES_MAX
        before = await past.at(shown.entity, version - 1) if is_near or asked.query.far else None
    except NotFoundError:
        return (), None, None
    except CorruptionError as error:
        return (), None, damage_text(error.code, error.message)
    return entries, before, None


def _since(entries: tuple[Entry, ...]) -> int | None:
    """When the last entry came that led to another configuration; None when it lies further back."""
    return next((each.event.time_ms for each in reversed(entries) if each.before != each.after), None)


def _took(kernel: Kernel, before: Snapshot | None, entry: Entry | None) -> tuple[Passed, ...]:
    """The transitions of an entry: its step done once more, which is harmless."""
    if entry is None or (before is None and entry.version > 1):
        return ()
    step = repeat_step(kernel, before.entity if before is not None else kernel.chart.kind + "/", before, entry)
    return passed_view(kernel.chart, step.transitions)


async def _work(asked: RequestContext, entity: str, hidden: Hidden | None) -> tuple[tuple[WorkView, ...], bool]:
    """The first pieces of work of an entity, and whether there are more."""
    store = asked.console.store
    if not isinstance(store, WorkStore):
        return (), False
    page = await store.works(WorkQuery(entity=entity, limit=WORKS_MAX))
    now_ms = asked.console.clock.now_ms()
    return tuple(masked_work(work_view(each, now_ms), hidden) for each in page.rows), page.after is not None


async def accepted(asked: RequestContext) -> tuple[Acceptance, ...]:
    """Each event: accepted now, or why not."""
    entity = asked.path("entity")
    asked.console.check_kind(asked.person, check_entity(entity))
    runtime = asked.console.runtime
    snapshot = await runtime.state(entity)
    kernel = runtime.charts.of(snapshot)
    return masked_acceptances(acceptances(kernel, snapshot, asked.person.principal), masks(kernel.chart, asked.person))


# Writing


async def send(asked: RequestContext) -> ReceiptView | Response:
    """Give an entity an event."""
    entity, body = asked.path("entity"), asked.body
    kind = check_entity(entity)
    asked.console.check_writable(asked.person, kind)
    runtime = asked.console.runtime
    if body.dry_run:
        receipt = await runtime.rehearse(
            entity, body.event, body.payload, key=body.key, principal=asked.person.principal
        )
    else:
        receipt = await runtime.send(
            entity,
            body.event,
            body.payload,
            key=body.key,
            expected=body.expected,
            principal=principal_of(asked.person, body.reason),
        )
    return _told(asked, receipt, body.event, dry_run=body.dry_run)


async def create(asked: RequestContext) -> ReceiptView | Response:
    """Begin an entity."""
    body, kind = asked.body, asked.path("kind")
    asked.console.check_writable(asked.person, kind)
    receipt = await asked.console.runtime.create(
        f"{kind}/{body.id}", body.context, key=body.key, principal=principal_of(asked.person, body.reason)
    )
    return _told(asked, receipt, "create")


def _told(asked: RequestContext, receipt: Receipt, event: str, *, dry_run: bool = False) -> ReceiptView | Response:
    """The receipt, or a refusal as a problem around it. Who may not read entities is told nothing of their states."""
    may_read = "read" in asked.person.rights
    snapshot = receipt.snapshot if may_read else None
    hidden = None
    if snapshot is not None:
        hidden = masks(asked.console.runtime.charts.revision(snapshot.kind, snapshot.revision).chart, asked.person)
    trials = [(each.guard, each.values, each.error) for each in receipt.trials]
    faults = tuple(each.message for each in receipt.faults)
    effects = tuple(each.name or each.type for each in receipt.effects)
    if hidden is not None:
        effects = tuple(each.type if each.name is None else hidden.name(each.name) for each in receipt.effects)
    if hidden is not None or not may_read:  # errors may quote values, too
        trials = [(guard, {}, None) for guard, _, _ in trials]
        faults = tuple(each.code for each in receipt.faults)
    guards = tuple({"guard": guard, "values": values, "error": error} for guard, values, error in trials)
    view = ReceiptView(
        receipt.entity,
        receipt.outcome,
        receipt.version,
        receipt.reason,
        () if snapshot is None else snapshot.configuration,
        effects if may_read else (),
        guards if may_read else (),
        faults,
        dry_run,
    )
    if receipt.outcome not in ("rejected", "denied"):
        return view
    status = 422 if receipt.outcome == "rejected" else 403
    code = f"{receipt.outcome}.{receipt.reason}"
    detail = f"`{receipt.entity}` {receipt.outcome} `{event}`"
    said = {"type": TYPE + code, "title": "The chart said no" if status == 422 else "Not allowed", "status": status}
    problem = {**said, "detail": detail, "code": code}
    if may_read:
        problem["receipt"] = msgspec.to_builtins(view)
    return problem_response(status, problem)


ENDPOINTS = (
    Endpoint(
        method="POST",
        path="/kinds/{kind}/entities",
        summary="Begin an entity",
        handler=create,
        right="send",
        body=CreateBody,
        answer=ReceiptView,
    ),
    Endpoint(
        method="GET",
        path="/entity/{entity:path}",
        summary="An entity now, at a version or at a time",
        handler=one_entity,
        query=WhenQuery,
        answer=EntityView,
    ),
    Endpoint(
        method="GET",
        path="/accepted/{entity:path}",
        summary="Which events an entity accepts now, and why not the others",
        handler=accepted,
        answer=tuple[Acceptance, ...],
    ),
    Endpoint(
        method="POST",
        path="/send/{entity:path}",
        summary="Give an entity an event",
        handler=send,
        right="send",
        body=SendBody,
        answer=ReceiptView,
    ),
)

"""Entities for users who may not see their hidden states: what they get is derived only from what they see.

Rule 1: nothing here imports snapshots, entries, rows or work: it asks the runtime for a reader and gets visible values.
An import contract enforces that.
Rule 2: the answer to an event or a creation does not depend on a hidden state (ADR 0140).
"""

from __future__ import annotations

from contextlib import suppress

import msgspec
from msgspec import Struct
from starlette.responses import Response

from interlock.errors import DeniedError, NotFoundError, UsageError
from interlock.observe.acceptance import Acceptance, acceptances, masked_acceptance
from interlock.observe.population import Population, population_for
from interlock.trust.disclosure import public_text
from interlock.trust.visibility import ACCEPTED, VisibleEntry, VisibleReceipt
from interlock.web.api.views import (
    SINCE_ENTRIES_MAX,
    EntityView,
    JournalView,
    TimerView,
    limit_bytes,
    visible_entry_view,
)
from interlock.web.http.console import reader_of
from interlock.web.http.endpoint import RequestContext, traceparent_of
from interlock.web.http.errors import problem_body, problem_response


async def covered_entity(request: RequestContext, entity: str) -> EntityView:
    """Return an entity as a user sees it who may not see its hidden states. Nothing else of it is read."""
    console, query, reader = request.console, request.query, reader_of(request.user)
    runtime, kind = console.runtime, entity.partition("/")[0]
    latest = await runtime.state(entity, reader=reader)
    shown = latest
    if query.version is not None or query.at is not None:
        at = query.at if query.version is None else query.version
        shown = await runtime.state(entity, at=at, reader=reader)
    chart = (await runtime.revisions.for_reading(kind, shown.revision)).chart
    entries: tuple[VisibleEntry, ...] = ()
    with suppress(NotFoundError):  # archived, or older than what is shown
        after = max(0, shown.version - SINCE_ENTRIES_MAX)
        entries = await runtime.journal(entity, after=after, limit=shown.version - after, reader=reader)
    changes = (each.time_ms for each in reversed(entries) if each.before != each.after)
    by_id = {each.id: each.index for each in chart.states}
    around = {index for name in shown.configuration for index in chart.path(by_id[name])}
    accepted = await covered_acceptances(request, entity) if shown.version == latest.version else ()
    return EntityView(
        entity=entity,
        kind=kind,
        id=entity.partition("/")[2],
        version=shown.version,
        latest=latest.version,
        revision=shown.revision,
        label=chart.label,
        configuration=shown.configuration,
        active=tuple(chart.states[index].id for index in sorted(around) if index > 0),
        context=shown.context,
        context_before=None,
        since_ms=next(changes, None),
        time_ms=entries[-1].time_ms if entries else 0,
        now_ms=console.clock.now_ms(),
        entry=visible_entry_view(entries[-1]) if entries else None,
        timers=tuple(TimerView(each.name, each.event, each.due_ms, each.state) for each in shown.timers),
        invokes=tuple({"id": each.id, "state": each.state} for each in shown.invokes),
        accepted=accepted,
        ended=shown.ended,
        output=shown.output,
        masked=shown.masked,
    )


async def covered_acceptances(request: RequestContext, entity: str) -> tuple[Acceptance, ...]:
    """Return what the cover accepts, without the names of hidden states."""
    runtime, reader = request.console.runtime, reader_of(request.user)
    kernel, shown, lens = await runtime.shown(entity, reader)
    found = acceptances(kernel, shown, request.user.principal, await runtime.revisions.policy(kernel))
    return tuple(masked_acceptance(each, lens.names) for each in found)


async def covered_journal(request: RequestContext, entity: str) -> JournalView:
    """Return the entries that a user sees who may not see hidden states, by the versions that they see."""
    query, runtime, reader = request.query, request.console.runtime, reader_of(request.user)
    latest = (await runtime.state(entity, reader=reader)).version
    last = latest if query.before is None else min(latest, query.before - 1)
    after = max(0, last - query.limit) if query.after is None else query.after
    limit = query.limit if query.after is not None else max(0, last - after)
    try:
        entries = await runtime.journal(entity, after=after, limit=limit, reader=reader) if limit else ()
    except NotFoundError as error:
        if error.code != "journal.archived":
            raise
        return JournalView((), latest, public_text(error)[0])
    return JournalView(limit_bytes(list(map(visible_entry_view, entries)), is_newest=query.after is None), latest)


async def counts_covered(request: RequestContext, kind: str) -> bool:
    """Whether a user who may not see the hidden states of a kind sees its counts and its drawing."""
    if not request.console.may_count_covers(request.user, kind):
        return False
    try:
        await request.console.runtime.visible_counts(kind, reader_of(request.user))
    except (DeniedError, NotFoundError):
        return False
    return True


async def covered_population(request: RequestContext, kind: str) -> Population:
    """Return the population of a kind as a user sees it who may not see its hidden states."""
    return await population_for(request.console.runtime, kind, reader_of(request.user))


class AcceptedView(Struct, frozen=True, omit_defaults=True):
    """The answer to every event and creation where the user may not see hidden states, unless it is refused in every
    state: it may be applied, deferred or without effect.
    """

    outcome: str
    key: str | None = None


async def send_covered(request: RequestContext, entity: str) -> Response:
    """Send an event for a user who may not see hidden states. The answer does not depend on them."""
    body, user, runtime = request.body, request.user, request.console.runtime
    reader = reader_of(user)
    if body.dry_run:
        receipt = await runtime.dry_run(
            entity, body.event, body.payload, key=body.key, principal=user.principal, reader=reader
        )
    else:
        receipt = await runtime.send(
            entity,
            body.event,
            body.payload,
            key=body.key,
            expected=body.expected,
            principal=user.principal,
            trace=traceparent_of(request.http),
            reason=body.reason or None,
            reader=reader,
        )
    return _covered_response(receipt, body.event)


async def create_covered(request: RequestContext, entity: str) -> Response:
    """Create an entity for a user who may not see hidden states."""
    body, user = request.body, request.user
    try:
        receipt = await request.console.runtime.create(
            entity,
            body.context,
            key=body.key,
            principal=user.principal,
            trace=traceparent_of(request.http),
            reason=body.reason or None,
        )
    except UsageError as error:
        if error.code != "key.reused":
            raise
        exists = True  # the entry that has the key may be one that the user does not see
    else:
        exists = receipt.outcome == "rejected"
        if receipt.outcome == "denied":
            return _covered_response(VisibleReceipt(entity, "denied", body.key, reason=receipt.reason), "create")
    if exists:
        return _covered_response(VisibleReceipt(entity, "rejected", body.key, reason="entity.exists"), "create")
    return _covered_response(VisibleReceipt(entity, ACCEPTED, body.key), "create")


def _covered_response(receipt: VisibleReceipt, event: str) -> Response:
    if receipt.outcome in ("rejected", "denied"):
        status, title = (422, "Rejected by the chart") if receipt.outcome == "rejected" else (403, "Forbidden")
        code, detail = f"{receipt.outcome}.{receipt.reason}", f"`{receipt.entity}` {receipt.outcome} `{event}`"
        return problem_response(status, problem_body(status, title, detail, code=code))
    body = msgspec.json.encode(AcceptedView(receipt.outcome, receipt.key))
    return Response(body, 202 if receipt.outcome == ACCEPTED else 200, media_type="application/json")

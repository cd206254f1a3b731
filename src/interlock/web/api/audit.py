"""Audit: refused events, and the hash chain over them."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from interlock.errors import UsageError
from interlock.model.audit import CHECKPOINT, LOGIN, LOGOUT, AuditRecord, AuditRow
from interlock.model.journal.entry import CREATE
from interlock.trust.audit_chain import verify_chain
from interlock.web.http.endpoint import Endpoint, RequestContext

READ_ROWS = 200
READS_MAX = 25
"""Rows of one read, and the number of reads, for one page: 5,000 rows, as in other lists. If more rows in sequence are
hidden, the page is short and has a next one.
"""


class RefusalsQuery(Struct, frozen=True):
    """Refused events of a principal, or all; `before` is the cursor of an earlier page."""

    principal: str | None = None
    before: str | None = None
    limit: Annotated[int, Meta(ge=1, le=200)] = 50


class RefusalView(Struct, frozen=True):
    """A refused event. `sequence` is its number in the store, for users who may see all of them. `count`: a row of a
    flood stands for so many attempts.
    """

    sequence: int | None
    entity: str
    event: str
    outcome: str
    reason: str
    time_ms: int
    principal: str | None = None
    trace: str | None = None
    count: int = 1


class RefusalsView(Struct, frozen=True):
    """Refused events, newest first. `supported` is False if the store does not record them."""

    rows: tuple[RefusalView, ...]
    supported: bool
    before: str | None = None


class RefusalsProofView(Struct, frozen=True):
    """Whether the chain of refused events is intact.

    Users who may see all of them also get the number of linked rows and the number of the first broken one.
    """

    holds: bool
    linked: int | None = None
    broken: int | None = None


async def list_refusals(request: RequestContext) -> RefusalsView:
    """Return refused events, newest first."""
    console, store, query = request.console, request.console.store, request.query
    if store.audit is None:
        return RefusalsView((), supported=False)
    scope = msgspec.json.encode(("refusals", query.principal)).decode()
    cursor = console.cursors.decrypt(query.before, scope)
    before = None if cursor is None else int(cursor)
    visible: list[tuple[AuditRecord, AuditRow]] = []
    for _ in range(READS_MAX):  # hidden rows are skipped, so that a short page does not disclose them
        rows = await store.audit.audit_before(before, actor=query.principal, limit=READ_ROWS)
        decoded = ((each, each.decode()) for each in rows)
        visible += ((record, row) for record, row in decoded if _may_see(request, row))
        before = rows[-1].sequence if len(rows) == READ_ROWS else None
        if before is None or len(visible) > query.limit:
            break
    if len(visible) > query.limit:
        visible = visible[: query.limit]
        before = visible[-1][0].sequence
    next_page = console.cursors.encrypt(None if before is None else f"{before:020}", scope)
    return RefusalsView(tuple(_view(request, *each) for each in visible), supported=True, before=next_page)


def _may_see(request: RequestContext, row: AuditRow) -> bool:
    """Whether the user may see a row. Checkpoints and log-ins are no refusals: an export of the audit has them."""
    return row.event not in (CHECKPOINT, LOGIN, LOGOUT) and (row.entity == "" or request.may_see(row.kind))


def _view(request: RequestContext, record: AuditRecord, row: AuditRow) -> RefusalView:
    sequence = record.sequence if request.user.sees_all_kinds else None
    event = "create" if row.event == CREATE else row.event
    return RefusalView(
        sequence, row.entity, event, row.outcome, row.reason, row.time_ms, row.actor, row.trace, row.count
    )


async def verify_refusals(request: RequestContext) -> RefusalsProofView:
    """Verify the chain of refused events. The numbers count hidden rows, so only some users get them."""
    store = request.console.store
    if store.audit is None:
        raise UsageError("this store does not record refused events", code="refusals.none")
    proof = await verify_chain(store.audit)
    if not request.user.sees_all_kinds:
        return RefusalsProofView(proof.broken is None)
    return RefusalsProofView(proof.broken is None, proof.linked, proof.broken)


ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/refusals",
        summary="List refused events",
        handler=list_refusals,
        right="read:audit",
        query=RefusalsQuery,
        answer=RefusalsView,
    ),
    Endpoint(
        method="GET",
        path="/refusals/proof",
        summary="Verify the chain of refused events",
        handler=verify_refusals,
        right="read:audit",
        answer=RefusalsProofView,
    ),
)

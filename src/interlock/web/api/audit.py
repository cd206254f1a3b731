"""Audit: who was refused, whether every chain still holds, and jobs over many entities."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from interlock.errors import DeniedError, UsageError
from interlock.model.journal.entry import CREATE
from interlock.ports.statistics import RefusalHistory, RefusalRow
from interlock.runtime.request_checks import check_entity, check_event
from interlock.web.api.lists import ListQuery, list_query
from interlock.web.console import principal_of
from interlock.web.http.endpoint import Endpoint, RequestContext
from interlock.web.jobs.job import Bulk, Job, is_open_to
from interlock.web.jobs.runner import unknown_rehearsal
from interlock.web.jobs.store import unknown_job

ROWS_READ = 200
REFUSAL_PAGES_MAX = 25
"""Rows that are read at once, and how often, for one page of refusals: 5,000 rows, as in other lists. Where more than
that are hidden in a row, a page is short and has a next one.
"""

RATE_MAX = 1_000
COUNT_ASKED = 1_000
"""Entities above which a bulk asks for the number that its dry run gave."""


class RefusalsQuery(Struct, frozen=True):
    """Refusals of a principal, or all; `before` is the cursor of an earlier page."""

    principal: str | None = None
    before: str | None = None
    limit: Annotated[int, Meta(ge=1, le=200)] = 50


class RefusalView(Struct, frozen=True):
    """An attempt that changed nothing. `sequence` is its number in the store, for those who may see all of them."""

    sequence: int | None
    entity: str
    event: str
    outcome: str
    reason: str
    time_ms: int
    principal: str | None = None
    trace: str | None = None


class RefusalsView(Struct, frozen=True):
    """Refusals, newest first. `kept` False: this store keeps none that can be read back."""

    rows: tuple[RefusalView, ...]
    kept: bool
    before: str | None = None


class RefusalsProofView(Struct, frozen=True):
    """Whether the chain of refusals holds. For those who may see all of them also how many are linked, and the number
    of the first that is not.
    """

    holds: bool
    linked: int | None = None
    broken: int | None = None


class VerifyBody(Struct, frozen=True):
    """What to verify: one entity, or all."""

    entity: str | None = None


class BulkBody(Struct, frozen=True):
    """One event for every entity of a filter. `count`: how many the dry run found; asked for above a thousand."""

    kind: str
    event: str
    payload: Any = None
    filter: ListQuery = ListQuery()
    reason: str | None = None
    dry_run: bool = True
    per_second: Annotated[int, Meta(ge=1, le=RATE_MAX)] = 50
    count: int | None = None
    rehearsal: str | None = None


class JobsView(Struct, frozen=True):
    """Jobs, newest first."""

    jobs: tuple[Job, ...]


async def refusals(asked: RequestContext) -> RefusalsView:
    """Who was refused what, newest first."""
    console, store, query = asked.console, asked.console.store, asked.query
    if not isinstance(store, RefusalHistory):
        return RefusalsView((), False)
    about = msgspec.json.encode(("refusals", query.principal)).decode()
    cursor = console.unsealed(query.before, about)
    before = None if cursor is None else int(cursor)
    seen: list[RefusalRow] = []
    for _ in range(REFUSAL_PAGES_MAX):  # what is hidden is passed over, so that a short page does not tell of it
        found = await store.refusals_before(before, principal=query.principal, limit=ROWS_READ)
        seen += (each for each in found if asked.may_see_entity(each.refusal.entity))
        before = found[-1].sequence if len(found) == ROWS_READ else None
        if before is None or len(seen) > query.limit:
            break
    if len(seen) > query.limit:
        seen = seen[: query.limit]
        before = seen[-1].sequence
    rows = tuple(_view(asked, each) for each in seen)
    return RefusalsView(rows, True, console.sealed(None if before is None else f"{before:020}", about))


def _view(asked: RequestContext, row: RefusalRow) -> RefusalView:
    """A refusal; one of `create` under the name that people know."""
    refusal = row.refusal
    if refusal.event == CREATE:
        refusal = replace(refusal, event="create")
    return RefusalView(row.sequence if _sees_all(asked) else None, *msgspec.structs.astuple(refusal))


async def prove(asked: RequestContext) -> RefusalsProofView:
    """Follow the chain of refusals."""
    store = asked.console.store
    if not isinstance(store, RefusalHistory):
        raise UsageError("this store keeps no refusals", code="refusals.none")
    proof = await store.prove_refusals()
    if not _sees_all(asked):  # numbers count what is hidden, too
        return RefusalsProofView(proof.broken is None)
    return RefusalsProofView(proof.broken is None, proof.linked, proof.broken)


def _sees_all(asked: RequestContext) -> bool:
    return "read:sensitive" in asked.person.rights


async def verify(asked: RequestContext) -> Job:
    """Check links and replay: of one entity, or of all, as a job."""
    entity = asked.body.entity
    if entity is not None:
        asked.console.check_kind(asked.person, check_entity(entity))
    return await asked.console.jobs.begin_verify(asked.person.name, entity, may_see=asked.may_see)


async def bulk(asked: RequestContext) -> Job:
    """Send one event to many, dry run first."""
    body, console = asked.body, asked.console
    console.check_writable(asked.person, body.kind)
    console.kernel(body.kind)
    check_event(body.event)
    if body.filter.error is not None or body.filter.after is not None:
        raise UsageError("a bulk takes no `error` and no cursor in its filter", code="bulk.filter")
    principal = principal_of(asked.person, body.reason)
    told = msgspec.json.encode((body.kind, body.event, body.payload, body.filter))
    if body.dry_run:
        query = list_query(console.clock.now_ms(), body.kind, body.filter, None)
        task = Bulk(query, body.event, body.payload, principal, told)
    else:
        rehearsed = await _rehearsed(asked, told)
        task = replace(rehearsed, principal=principal, dry_run=False, per_second=body.per_second)
    return await console.jobs.begin_bulk(asked.person.name, task, reason=body.reason)


async def _rehearsed(asked: RequestContext, told: bytes) -> Bulk:
    """The dry run that a bulk follows: one's own, of the very same, with a reason, and its number when it is large."""
    body, jobs_here = asked.body, asked.console.jobs
    if not (body.reason or "").strip():
        raise UsageError("a bulk needs a reason", code="bulk.reason", hint="it is kept in every entry")
    if body.rehearsal is None:
        raise UsageError("a bulk begins with a dry run", code="bulk.rehearsal", hint="name its job in `rehearsal`")
    found = jobs_here.rehearsed(body.rehearsal)
    rehearsal = await jobs_here.get(body.rehearsal)
    if rehearsal.who != asked.person.name:  # whether others did one is not told
        raise unknown_rehearsal(body.rehearsal)
    if rehearsal.status != "done":
        raise DeniedError("that dry run has not finished", code="bulk.rehearsal")
    if found.about != told:
        hint = "do another: event, payload and filter must be the same"
        raise UsageError("the dry run was of something else", code="bulk.rehearsal", hint=hint)
    if rehearsal.seen > COUNT_ASKED and body.count != rehearsal.seen:
        hint = "type the number that the dry run gave"
        raise UsageError(
            f"{rehearsal.seen:,} entities are to be confirmed by their number", code="bulk.count", hint=hint
        )
    return found


async def jobs(asked: RequestContext) -> JobsView:
    """Jobs of this server and those that are kept, as far as one may see them."""
    found = await asked.console.jobs.all()
    return JobsView(tuple(each for each in found if is_open_to(asked.person, each, asked.may_see)))


async def one_job(asked: RequestContext) -> Job:
    """A job and how far it is."""
    return await _seen(asked)


async def _seen(asked: RequestContext) -> Job:
    """The job that is asked for. Raises NotFoundError when it is not there, or not to be seen."""
    name = asked.path("job")
    job = await asked.console.jobs.get(name)
    if not is_open_to(asked.person, job, asked.may_see):
        raise unknown_job(name)
    return job


async def steer(asked: RequestContext) -> Job:
    """Pause, resume or cancel a job."""
    jobs_here, act, who = asked.console.jobs, asked.path("act"), asked.person.name
    job = await _seen(asked)
    if act == "pause":
        return await jobs_here.pause(job.id, who=who)
    if act == "resume":
        principal = principal_of(asked.person, job.reason)
        return await jobs_here.resume(job.id, who=who, principal=principal, may_see=asked.may_see)
    if act == "cancel":
        return await jobs_here.cancel(job.id, who=who)
    raise UsageError("a job is paused, resumed or cancelled", code="job.act")


ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/refusals",
        summary="Who was refused what",
        handler=refusals,
        right="read:audit",
        query=RefusalsQuery,
        answer=RefusalsView,
    ),
    Endpoint(
        method="GET",
        path="/refusals/proof",
        summary="Whether the chain of refusals holds",
        handler=prove,
        right="read:audit",
        answer=RefusalsProofView,
    ),
    Endpoint(
        method="POST",
        path="/verify",
        summary="Check chains and replay, as a job",
        handler=verify,
        right="read:audit",
        keeps=True,
        body=VerifyBody,
        answer=Job,
    ),
    Endpoint(
        method="POST",
        path="/bulk",
        summary="One event for many entities, as a job",
        handler=bulk,
        right="bulk",
        body=BulkBody,
        answer=Job,
    ),
    Endpoint(method="GET", path="/jobs", summary="Jobs", handler=jobs, answer=JobsView),
    Endpoint(method="GET", path="/jobs/{job}", summary="A job", handler=one_job, answer=Job),
    Endpoint(
        method="POST",
        path="/jobs/{job}/{act}",
        summary="Pause, resume or cancel a job",
        handler=steer,
        right="bulk",
        answer=Job,
    ),
)

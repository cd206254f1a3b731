"""Jobs over many entities: verify, bulk send, and their control.

Rule: a user without the right `read:sensitive` sees only their own jobs, and only while they may see every kind that
the job names.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from interlock.errors import DeniedError, UsageError
from interlock.operate.jobs.job import Bulk, Job
from interlock.operate.jobs.runner import unknown_dry_run
from interlock.operate.jobs.store import unknown_job
from interlock.runtime.request_checks import check_entity, check_event
from interlock.web.api.entities import ListQuery, entity_query
from interlock.web.http.console import principal_of
from interlock.web.http.endpoint import Endpoint, RequestContext

RATE_MAX = 1_000
CONFIRM_ABOVE = 1_000
"""A bulk to more entities must repeat the number that its dry run found."""


class VerifyBody(Struct, frozen=True):
    """What to verify: one entity, or all."""

    entity: str | None = None


class BulkBody(Struct, frozen=True):
    """One event for every entity that matches a filter.

    `rehearsal`: the id of the dry run, required for a run. `count`: the number of entities that the dry run found,
    required above a thousand.
    """

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


def may_see_job(request: RequestContext, job: Job) -> bool:
    """Whether the user may see a job."""
    sees_all = all(request.may_see(each) for each in job.kinds())
    return sees_all and (request.user.sees_all_kinds or job.who == request.user.name)


async def start_verify(request: RequestContext) -> Job:
    """Verify the journals of one entity or of all entities, and replay them."""
    entity = request.body.entity
    if entity is not None:
        request.console.check_kind(request.user, check_entity(entity))
    return await request.console.jobs.start_verify(request.user.name, entity, may_see=request.may_see)


async def start_bulk(request: RequestContext) -> Job:
    """Send one event to many entities; a dry run comes first."""
    body, console = request.body, request.console
    console.check_kind(request.user, body.kind)  # a filter discloses which entities it finds
    console.check_writable(request.user, body.kind)
    console.kernel(body.kind)
    check_event(body.event)
    if body.filter.error is not None or body.filter.after is not None:
        raise UsageError("the filter of a bulk send must not contain `error` or a cursor", code="bulk.filter")
    if body.filter.where is not None:
        raise UsageError("the filter of a bulk send must not contain `where`", code="bulk.filter")
    principal = principal_of(request.user, body.reason)
    encoded = msgspec.json.encode((body.kind, body.event, body.payload, body.filter))
    if body.dry_run:
        query = entity_query(body.kind, body.filter, now_ms=console.clock.now_ms(), cursor=None)
        bulk = Bulk(query, body.event, body.payload, principal, encoded)
    else:
        dry_run = await _check_dry_run(request, encoded)
        bulk = replace(dry_run, principal=principal, dry_run=False, per_second=body.per_second)
    return await console.jobs.start_bulk(request.user.name, bulk, reason=body.reason)


async def _check_dry_run(request: RequestContext, encoded: bytes) -> Bulk:
    """Return the bulk of the dry run: the user's own, of the same request, finished, and confirmed by its number."""
    body, jobs = request.body, request.console.jobs
    if not (body.reason or "").strip():
        raise UsageError("a bulk send needs a reason", code="bulk.reason", hint="every entry stores it")
    if body.rehearsal is None:
        hint = "pass the id of its job in `rehearsal`"
        raise UsageError("a bulk send needs a dry run first", code="bulk.rehearsal", hint=hint)
    bulk = jobs.dry_run(body.rehearsal)
    job = await jobs.get(body.rehearsal)
    if job.who != request.user.name:  # dry runs of other users are not disclosed
        raise unknown_dry_run(body.rehearsal)
    if job.status != "done":
        raise DeniedError("the dry run has not finished", code="bulk.rehearsal")
    if bulk.request != encoded:
        hint = "event, payload and filter must be the same; do another dry run"
        raise UsageError("the dry run was for another request", code="bulk.rehearsal", hint=hint)
    if job.seen > CONFIRM_ABOVE and body.count != job.seen:
        hint = "pass the number of entities that the dry run found"
        raise UsageError(f"confirm the bulk send: expected `count` {job.seen:,}", code="bulk.count", hint=hint)
    return bulk


async def list_jobs(request: RequestContext) -> JobsView:
    """Return the jobs that the user may see."""
    found = await request.console.jobs.recent()
    return JobsView(tuple(each for each in found if may_see_job(request, each)))


async def get_job(request: RequestContext) -> Job:
    """Return a job. Raises NotFoundError if it does not exist or the user may not see it."""
    name = request.path("job")
    job = await request.console.jobs.get(name)
    if not may_see_job(request, job):
        raise unknown_job(name)
    return job


async def control_job(request: RequestContext) -> Job:
    """Pause, resume or cancel a job."""
    jobs, act, who = request.console.jobs, request.path("act"), request.user.name
    job = await get_job(request)
    if act == "pause":
        return await jobs.pause(job.id, who=who)
    if act == "resume":
        principal = principal_of(request.user, job.reason)
        return await jobs.resume(job.id, who=who, principal=principal, may_see=request.may_see)
    if act == "cancel":
        return await jobs.cancel(job.id, who=who)
    raise UsageError("expected pause, resume or cancel", code="job.act")


ENDPOINTS = (
    Endpoint(
        method="POST",
        path="/verify",
        summary="Verify hash chains and replay, as a job",
        handler=start_verify,
        right="read:audit",
        body=VerifyBody,
        answer=Job,
        read_only=True,
    ),
    Endpoint(
        method="POST",
        path="/bulk",
        summary="Send one event to many entities, as a job",
        handler=start_bulk,
        right="bulk",
        body=BulkBody,
        answer=Job,
    ),
    Endpoint(method="GET", path="/jobs", summary="List jobs", handler=list_jobs, answer=JobsView),
    Endpoint(method="GET", path="/jobs/{job}", summary="Get a job", handler=get_job, answer=Job),
    Endpoint(
        method="POST",
        path="/jobs/{job}/{act}",
        summary="Pause, resume or cancel a job",
        handler=control_job,
        right="bulk",
        answer=Job,
    ),
)

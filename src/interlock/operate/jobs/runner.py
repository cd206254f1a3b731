"""Start, list, pause, resume and cancel jobs: tasks that take longer than one request.

Rule 1: a job that changes entities or verifies all of them is durable: it is stored as an entity. If its server stops,
the job is interrupted, and any user with the rights for it can resume it under their own name. A dry run, the
verification of one entity, and every job of a read-only server end with the server.
Rule 2: the key of each event is made from the job's id and the entity, so no entity receives the event twice.
Rule 3: the filter of a bulk is fixed when its dry run starts. An entity that matches later is not sent to, and one that
changed after it was listed is skipped and counted.
Rule 4: jobs are limited per user, so that one user cannot use up all of them. A paused job does not count as running;
it needs a free slot to resume.

`walk` visits the entities; this module owns the set of jobs and their limits.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec

from interlock.errors import ConflictError, InterlockError, NotFoundError, UnavailableError
from interlock.model.limits import (
    JOBS_MAX,
    JOBS_OPEN_MAX,
    JOBS_OPEN_PER_USER_MAX,
    JOBS_RUNNING_MAX,
    JOBS_RUNNING_PER_USER_MAX,
)
from interlock.operate.jobs.job import Bulk, Job, MaySee
from interlock.operate.jobs.store import JobStore, JobTakenOver, StoredJob, job_ended
from interlock.operate.jobs.walk import PAGE_ENTITIES_MAX, JobWalker, Run
from interlock.runtime.runtime import Runtime
from interlock.trust.disclosure import public_text

_log = logging.getLogger("interlock.operate")


class TooManyJobsError(UnavailableError):
    """A user has reached their own limit of jobs: pause or cancel one of them."""

    code = "job.full"


def unknown_dry_run(name: str) -> NotFoundError:
    """The error for a dry run that does not exist, or that another user did."""
    hint = "dry runs are deleted when the server stops: repeat it"
    return NotFoundError(f"unknown dry run {name[:40]}", code="job.unknown", hint=hint)


class JobRunner:
    """The jobs of one server. With `durable=False` it writes nothing, so every job ends with the server."""

    def __init__(self, runtime: Runtime, *, durable: bool = True) -> None:
        self._runtime = runtime
        self._durable = durable
        self._store = JobStore(runtime)
        self._walker = JobWalker(runtime, self._store)
        self._jobs: OrderedDict[str, Job] = OrderedDict()
        self._runs: dict[str, Run] = {}
        self._dry_runs: dict[str, Bulk] = {}
        self._closing = False

    # Read

    async def recent(self) -> tuple[Job, ...]:
        """Return the jobs of this server and the stored ones, newest first."""
        stored = {each.job.id: await self._store.with_uncounted(each) for each in await self._store.recent()}
        own = {name: job for name, job in self._jobs.items() if name in self._runs or not job.stored}
        return tuple(sorted({**stored, **own}.values(), key=lambda each: (each.began_ms, each.id), reverse=True))

    async def interrupted(self) -> tuple[Job, ...]:
        """Return the jobs that need to be resumed."""
        return tuple(each.job for each in await self._store.interrupted() if each.job.id not in self._runs)

    async def get(self, name: str) -> Job:
        """Return a job. Raises NotFoundError."""
        found = self._jobs.get(name)
        return found if found is not None else await self._store.with_uncounted(await self._store.get(name))

    def dry_run(self, name: str) -> Bulk:
        """Return the bulk of a dry run, with its fixed filter. Raises NotFoundError."""
        found = self._dry_runs.get(name)
        if found is None:
            raise unknown_dry_run(name)
        return found

    # Start

    async def start_verify(self, who: str, entity: str | None, *, may_see: MaySee) -> Job:
        """Verify one entity, or all entities of the kinds that the user may see.

        Raises TooManyJobsError, UnavailableError.
        """
        run = self._create_run("verify" if entity is None else f"verify {entity}", who)
        if entity is not None:
            run.job.kind = entity.partition("/")[0]
            return self._start(run, partial(self._walker.verify_one, run, entity))
        return await self._start_durable(run, None, partial(self._walker.verify_all, run, may_see))

    async def start_bulk(self, who: str, bulk: Bulk, *, reason: str | None) -> Job:
        """Send one event to many entities, or do a dry run of it. Raises TooManyJobsError, UnavailableError."""
        run = self._create_run(f"send {bulk.event} to {bulk.query.kind}", who)
        job = run.job
        job.reason, job.dry_run, job.kind = reason, bulk.dry_run, bulk.query.kind
        before_ms = job.began_ms + 1
        if bulk.query.entered_before_ms is not None:
            before_ms = min(before_ms, bulk.query.entered_before_ms)
        query = msgspec.structs.replace(bulk.query, entered_before_ms=before_ms, limit=PAGE_ENTITIES_MAX)
        fixed = msgspec.structs.replace(bulk, query=query)
        walk = partial(self._walker.send_all, run, fixed)
        if bulk.dry_run:
            self._dry_runs[job.id] = fixed
            return self._start(run, walk)
        return await self._start_durable(run, fixed, walk)

    def _create_run(self, what: str, who: str) -> Run:
        self._check_open_limits(who)
        while len(self._jobs) >= JOBS_MAX:
            oldest = next(each for each in self._jobs if each not in self._runs)
            del self._jobs[oldest]
            self._dry_runs.pop(oldest, None)
        job = Job(self._store.new_id(), what, who, self._runtime.clock.now_ms())
        run = self._runs[job.id] = Run(job, "", who)
        self._jobs[job.id] = job
        return run

    def _check_open_limits(self, who: str) -> None:
        """Check the limits of jobs that run or are paused. Raises TooManyJobsError, UnavailableError."""
        own = [each for each in self._runs.values() if each.who == who]
        if len(own) >= JOBS_OPEN_PER_USER_MAX:
            message = f"`{who}` has {len(own)} running or paused jobs"
            raise TooManyJobsError(message, hint="cancel one, or wait until one ends")
        if len(self._runs) >= JOBS_OPEN_MAX:
            hint = "cancel a paused job, or try again later"
            raise UnavailableError(f"{JOBS_OPEN_MAX} jobs are running or paused", code="job.full", hint=hint)
        self._check_running_limits(who)

    def _check_running_limits(self, who: str) -> None:
        """Check the limits of jobs that run. Raises TooManyJobsError, UnavailableError."""
        running = [each for each in self._runs.values() if each.job.status != "paused"]
        own = sum(each.who == who for each in running)
        if own >= JOBS_RUNNING_PER_USER_MAX:
            raise TooManyJobsError(f"`{who}` has {own} running jobs", hint="pause one, or wait until one ends")
        if len(running) >= JOBS_RUNNING_MAX:
            hint = "pause one, or wait until one ends"
            raise UnavailableError(f"{JOBS_RUNNING_MAX} jobs are running", code="job.full", hint=hint)

    async def _start_durable(self, run: Run, bulk: Bulk | None, walk: Callable[[], Awaitable[None]]) -> Job:
        """Store a job, then start it."""
        if self._durable:
            run.owner = self._runtime.clock.token()
            try:
                await self._store.create(run.job, bulk, owner=run.owner)
            except BaseException:
                self._forget(run)
                raise
        return self._start(run, walk)

    def _start(self, run: Run, walk: Callable[[], Awaitable[None]]) -> Job:
        run.task = asyncio.get_running_loop().create_task(self._run(run, walk))
        return run.job

    # Control

    async def pause(self, name: str, *, who: str) -> Job:
        """Pause a job after its current entity."""
        run = self._runs.get(name)
        if run is None:
            await self._store.get(name)
            await self._store.pause(name, who=who)
        else:
            async with run.lock:
                if run.job.status == "running":
                    if run.job.stored:
                        await self._store.pause(name, who=who)
                    run.job.status = "paused"
                    run.going.clear()
        return await self.get(name)

    async def resume(self, name: str, *, who: str, principal: Mapping[str, Any], may_see: MaySee) -> Job:
        """Resume a paused or interrupted job; take it over if another server owned it.

        Raises ConflictError if the job has ended or its owner may still be running, TooManyJobsError and
        UnavailableError if there is no free slot.
        """
        run = self._runs.get(name)
        if run is not None:
            return await self._resume_own(run, who)
        if name in self._jobs:  # a job of this process that is not stored and has ended
            return self._jobs[name]
        return await self._take_over(await self._store.get(name), who, principal, may_see)

    async def _resume_own(self, run: Run, who: str) -> Job:
        async with run.lock:
            if run.job.status == "paused":
                self._check_running_limits(who)
                run.job.status, run.who = "running", who  # occupy the slot before the store is awaited
                try:
                    if run.job.stored:
                        await self._store.resume(run.job.id, owner=run.owner, who=who)
                except BaseException:
                    run.job.status = "paused"
                    raise
                run.going.set()
        return run.job

    async def _take_over(self, stored: StoredJob, who: str, principal: Mapping[str, Any], may_see: MaySee) -> Job:
        job = stored.job
        if job.ended_ms is not None:
            raise job_ended(job.id)
        if job.status == "running":
            hint = "wait 30 seconds; the job can be resumed here if its server saves no progress by then"
            raise ConflictError("another server is running this job", code="job.elsewhere", hint=hint)
        self._check_open_limits(who)
        run = self._runs[job.id] = Run(job, self._runtime.clock.token(), who)
        self._jobs[job.id] = job
        try:
            await self._store.resume(job.id, owner=run.owner, who=who, version=stored.version)
        except BaseException:
            self._forget(run)
            raise
        job.status, job.advice, job.error = "running", None, None
        if stored.bulk is None:
            job.seen, job.outcomes, job.samples, job.problems = 0, {}, [], []
            return self._start(run, partial(self._walker.verify_all, run, may_see))
        bulk = msgspec.structs.replace(stored.bulk, principal=principal)
        run.position = stored.position
        return self._start(run, partial(self._walker.send_all, run, bulk, stored.page))

    async def cancel(self, name: str, *, who: str) -> Job:
        """Cancel a job; events that it has sent stay sent."""
        run = self._runs.get(name)
        if run is not None and run.task is not None:
            run.cancelled_by = who
            await self._stop(run, run.task)
        elif name not in self._jobs:
            await self._store.get(name)
            await self._store.cancel(name, who=who)
        return await self.get(name)

    async def close(self) -> None:
        """Stop all jobs; durable ones can be resumed."""
        self._closing = True
        await asyncio.gather(*(self._stop(each, each.task) for each in [*self._runs.values()] if each.task is not None))

    async def _stop(self, run: Run, task: asyncio.Task[None]) -> None:
        task.cancel()
        await asyncio.wait({task})
        if self._runs.get(run.job.id) is run:  # cancelled before its first step, so `_run` did not finish it
            await self._finish(run, self._status_when_stopped(run.job))

    def _status_when_stopped(self, job: Job) -> str:
        return "interrupted" if self._closing and job.stored else "cancelled"

    # Run

    async def _run(self, run: Run, walk: Callable[[], Awaitable[None]]) -> None:
        job, status = run.job, "done"
        try:
            await walk()
        except JobTakenOver:
            self._forget(run)
            return
        except asyncio.CancelledError:
            status = self._status_when_stopped(job)
        except UnavailableError as error:
            status, job.error = "interrupted" if job.stored else "failed", self._log_error(job, error)
        except InterlockError as error:
            status, job.error = "failed", self._log_error(job, error)
        except Exception:  # noqa: BLE001 - the edge of a task: no caller awaits it
            _log.exception("a job failed", extra={"job": job.id})
            status, job.error = "failed", "internal error; see the server's log"
        await self._finish(run, status)

    def _log_error(self, job: Job, error: InterlockError) -> str:
        """Log the whole error that ended a job; return the text that users may see."""
        _log.info("a job was ended by an error", extra={"job": job.id, "code": error.code, "error": str(error)})
        return public_text(error)[0]

    async def _finish(self, run: Run, status: str) -> None:
        """Save the result of a job, then report it. If it cannot be saved, the job times out and is interrupted."""
        job = run.job
        if not job.stored:
            job.status, job.ended_ms = status, self._runtime.clock.now_ms()
            self._runs.pop(job.id, None)
            return
        try:
            with suppress(JobTakenOver):  # a paused job accepts no progress
                event = "job.page" if status == "cancelled" else f"job.{status}"
                await self._store.save_progress(
                    job, owner=run.owner, event=event, position=run.position, with_samples=True
                )
            if status == "cancelled":
                await self._store.cancel(job.id, who=run.cancelled_by or job.who)
            await self._store.get(job.id)  # caches the ended job, so that lists contain it however old it is
        except InterlockError as error:
            _log.warning("the end of a job could not be saved", extra={"job": job.id, "code": error.code})
        finally:
            self._forget(run)

    def _forget(self, run: Run) -> None:
        """Remove a run from this process; the store has the job."""
        self._runs.pop(run.job.id, None)
        self._jobs.pop(run.job.id, None)

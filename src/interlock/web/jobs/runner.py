"""Jobs: what takes longer than a request. Verifying everything, and sending one event to many.

Rule 1: a job that changes something, or looks at everything, is kept in the store (`job_records`) and outlives its
server: it is then interrupted, and goes on when somebody resumes it, under the rights of whoever does. A dry run, a
check of one entity, and whatever a console does that only shows, end with the server.
Rule 2: the key of each entity's event is made of the job's id and the entity's, so it gives no entity its event twice.
Rule 3: a bulk's selection is its filter, frozen when its dry run began: an entity that came into the filter later is
not touched, and one that has moved on since it was listed is skipped and counted.
Rule 4: jobs are counted by person, so that one cannot keep all others from theirs. A job that is paused takes no place
of those that run; it needs one again to go on.
Walks through entities are in `job_walks`; here is which jobs there are, and who may be at them.
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
    JOBS_OPEN_PERSON_MAX,
    JOBS_RUNNING_MAX,
    JOBS_RUNNING_PERSON_MAX,
)
from interlock.runtime.runtime import Runtime
from interlock.web.errors import HttpProblem, public_text
from interlock.web.jobs.job import Bulk, Job, MaySee
from interlock.web.jobs.store import JobStore, JobTakenOver, StoredJob
from interlock.web.jobs.walk import PAGE, JobWalker, Run

_log = logging.getLogger("interlock.web")


def unknown_rehearsal(name: str) -> NotFoundError:
    """What is said where there is no such dry run, or it is somebody else's."""
    hint = "dry runs end with the server that did them: do it again"
    return NotFoundError(f"job {name[:40]} is no dry run", code="job.unknown", hint=hint)


class Jobs:
    """The jobs of one console. `keeps` False: it writes nothing, so none of them is kept."""

    def __init__(self, runtime: Runtime, *, keeps: bool = True) -> None:
        self._runtime = runtime
        self._keeps = keeps
        self._records = JobStore(runtime)
        self._walks = JobWalker(runtime, self._records)
        self._jobs: OrderedDict[str, Job] = OrderedDict()
        self._runs: dict[str, Run] = {}
        self._rehearsals: dict[str, Bulk] = {}
        self._closing = False

    # Looking

    async def all(self) -> tuple[Job, ...]:
        """The jobs that are known here or kept, newest first."""
        kept = {each.job.id: await self._records.looked_up(each) for each in await self._records.newest()}
        found = {**kept, **{name: job for name, job in self._jobs.items() if name in self._runs or not job.kept}}
        return tuple(sorted(found.values(), key=lambda each: (each.began_ms, each.id), reverse=True))

    async def interrupted(self) -> tuple[Job, ...]:
        """The jobs that wait for somebody to resume them."""
        found = (each.job for each in await self._records.unended() if each.job.id not in self._runs)
        return tuple(each for each in found if each.status == "interrupted")

    async def get(self, name: str) -> Job:
        """The job of this id. Raises NotFoundError."""
        found = self._jobs.get(name)
        return found if found is not None else await self._records.looked_up(await self._records.get(name))

    def rehearsed(self, name: str) -> Bulk:
        """What a dry run was of, frozen as it was. Raises NotFoundError."""
        found = self._rehearsals.get(name)
        if found is None:
            raise unknown_rehearsal(name)
        return found

    # Beginning

    async def begin_verify(self, who: str, entity: str | None, *, may_see: MaySee) -> Job:
        """Check one entity, or all; of kinds that `who` may not see it tells nothing, not even how many there are."""
        run = self._new("verify" if entity is None else f"verify {entity}", who)
        if entity is not None:
            run.job.kind = entity.partition("/")[0]
            return self._started(run, partial(self._walks.verify_one, run, entity))
        return await self._kept_started(run, None, partial(self._walks.verify, run, may_see))

    async def begin_bulk(self, who: str, bulk: Bulk, *, reason: str | None) -> Job:
        """Send one event to many, or rehearse it."""
        run = self._new(f"send {bulk.event} to {bulk.query.kind}", who)
        job = run.job
        job.reason, job.dry_run, job.kind = reason, bulk.dry_run, bulk.query.kind
        before_ms = job.began_ms + 1
        if bulk.query.entered_before_ms is not None:
            before_ms = min(before_ms, bulk.query.entered_before_ms)
        query = msgspec.structs.replace(bulk.query, entered_before_ms=before_ms, limit=PAGE)
        frozen = msgspec.structs.replace(bulk, query=query)
        if bulk.dry_run:
            self._rehearsals[job.id] = frozen
            return self._started(run, partial(self._walks.bulk, run, frozen))
        return await self._kept_started(run, frozen, partial(self._walks.bulk, run, frozen))

    def _new(self, what: str, who: str) -> Run:
        self._check_room(who)
        while len(self._jobs) >= JOBS_MAX:
            oldest = next(each for each in self._jobs if each not in self._runs)
            del self._jobs[oldest]
            self._rehearsals.pop(oldest, None)
        job = Job(self._records.new_id(), what, who, self._runtime.clock.now_ms())
        run = self._runs[job.id] = Run(job, "", who)
        self._jobs[job.id] = job
        return run

    def _check_room(self, who: str) -> None:
        """Raises HttpProblem when a person has too many jobs, UnavailableError when there are too many in all."""
        theirs = [each for each in self._runs.values() if each.who == who]
        if len(theirs) >= JOBS_OPEN_PERSON_MAX:
            detail = f"`{who}` has {len(theirs)} jobs that run or are paused"
            raise HttpProblem(429, "Too many jobs", detail, code="job.full", hint="cancel one, or let one end")
        if len(self._runs) >= JOBS_OPEN_MAX:
            hint = "cancel one that is paused, or try again later"
            raise UnavailableError(f"{JOBS_OPEN_MAX} jobs run or are paused", code="job.full", hint=hint)
        self._check_running(who)

    def _check_running(self, who: str) -> None:
        """The same for jobs that run."""
        running = [each for each in self._runs.values() if each.job.status != "paused"]
        theirs = sum(each.who == who for each in running)
        if theirs >= JOBS_RUNNING_PERSON_MAX:
            detail = f"`{who}` has {theirs} running jobs"
            raise HttpProblem(429, "Too many jobs", detail, code="job.full", hint="pause one, or let one end")
        if len(running) >= JOBS_RUNNING_MAX:
            hint = "pause one, or try again when one has ended"
            raise UnavailableError(f"{JOBS_RUNNING_MAX} jobs are running", code="job.full", hint=hint)

    async def _kept_started(self, run: Run, bulk: Bulk | None, work: Callable[[], Awaitable[None]]) -> Job:
        """Start a job once the store has it."""
        if self._keeps:
            run.owner = self._runtime.clock.token()
            try:
                await self._records.begin(run.job, bulk, owner=run.owner)
            except BaseException:
                self._forget(run)
                raise
        return self._started(run, work)

    def _started(self, run: Run, work: Callable[[], Awaitable[None]]) -> Job:
        run.task = asyncio.get_running_loop().create_task(self._run(run, work))
        return run.job

    # Steering

    async def pause(self, name: str, *, who: str) -> Job:
        """Let a job rest after the entity it is at."""
        run = self._runs.get(name)
        if run is None:
            await self._steered(name, "job.paused", who)
        else:
            async with run.steering:
                if run.job.status == "running":
                    if run.job.kept:
                        await self._records.steer(name, "job.paused", who=who)
                    run.job.status = "paused"
                    run.going.clear()
        return await self.get(name)

    async def resume(self, name: str, *, who: str, principal: Mapping[str, Any], may_see: MaySee) -> Job:
        """Let a job go on that rests, or that was interrupted; one that another server left is taken over.

        Raises ConflictError when it is over, or when its server was heard of a moment ago; HttpProblem and
        UnavailableError when there is no place for it.
        """
        run = self._runs.get(name)
        if run is not None:
            async with run.steering:
                if run.job.status == "paused":
                    self._check_running(who)
                    run.job.status, run.who = "running", who  # it has its place before the store is asked
                    try:
                        if run.job.kept:
                            await self._records.resume(name, owner=run.owner, who=who)
                    except BaseException:
                        run.job.status = "paused"
                        raise
                    run.going.set()
            return run.job
        if name in self._jobs:  # of this process, not kept, and ended
            return self._jobs[name]
        return await self._taken_over(await self._records.get(name), who, principal, may_see)

    async def _taken_over(self, kept: StoredJob, who: str, principal: Mapping[str, Any], may_see: MaySee) -> Job:
        job = kept.job
        if job.ended_ms is not None:
            raise ConflictError(f"job {job.id} is over", code="job.over")
        if job.status == "running":
            hint = "wait half a minute: if nothing is heard of it by then, it can be resumed here"
            raise ConflictError("another server was at it a moment ago", code="job.elsewhere", hint=hint)
        self._check_room(who)
        run = self._runs[job.id] = Run(job, self._runtime.clock.token(), who)
        self._jobs[job.id] = job
        try:
            await self._records.resume(job.id, owner=run.owner, who=who, version=kept.version)
        except BaseException:
            self._forget(run)
            raise
        job.status, job.advice, job.error = "running", None, None
        if kept.bulk is None:
            job.seen, job.outcomes, job.samples, job.problems = 0, {}, [], []
            return self._started(run, partial(self._walks.verify, run, may_see))
        bulk = msgspec.structs.replace(kept.bulk, principal=principal)
        run.asked = kept.asked
        return self._started(run, partial(self._walks.bulk, run, bulk, kept.listed))

    async def cancel(self, name: str, *, who: str) -> Job:
        """End a job; what it has done stays done."""
        run = self._runs.get(name)
        if run is None or run.task is None:
            if name not in self._jobs:
                await self._steered(name, "job.cancelled", who)
            return await self.get(name)
        run.cancelled_by = who
        await self._stop(run, run.task)
        return await self.get(name)

    async def _steered(self, name: str, event: str, who: str) -> None:
        await self._records.get(name)
        await self._records.steer(name, event, who=who)

    async def close(self) -> None:
        """End all jobs; those that are kept can be resumed."""
        self._closing = True
        await asyncio.gather(*(self._stop(each, each.task) for each in [*self._runs.values()] if each.task is not None))

    async def _stop(self, run: Run, task: asyncio.Task[None]) -> None:
        task.cancel()
        await asyncio.wait({task})
        if self._runs.get(run.job.id) is run:  # it had not even begun, and so could not end itself
            await self._ended(run, self._stopped(run.job))

    def _stopped(self, job: Job) -> str:
        return "interrupted" if self._closing and job.kept else "cancelled"

    # Running

    async def _run(self, run: Run, work: Callable[[], Awaitable[None]]) -> None:
        job, status = run.job, "done"
        try:
            await work()
        except JobTakenOver:
            self._forget(run)
            return
        except asyncio.CancelledError:
            status = self._stopped(job)
        except UnavailableError as error:
            status, job.error = "interrupted" if job.kept else "failed", self._told(job, error)
        except InterlockError as error:
            status, job.error = "failed", self._told(job, error)
        except Exception:  # noqa: BLE001 - the edge of a task: nobody else would hear of it
            _log.exception("a job failed", extra={"job": job.id})
            status, job.error = "failed", "a bug of ours; the server's log has more"
        await self._ended(run, status)

    def _told(self, job: Job, error: InterlockError) -> str:
        """What a job says of the error that ended it; the log has all of it."""
        _log.info("a job was ended by an error", extra={"job": job.id, "code": error.code, "error": str(error)})
        return public_text(error)[0]

    async def _ended(self, run: Run, status: str) -> None:
        """Keep how a job ended, and tell it only then. One whose end cannot be kept is found interrupted, by its
        silence.
        """
        job = run.job
        if not job.kept:
            job.status, job.ended_ms = status, self._runtime.clock.now_ms()
            self._runs.pop(job.id, None)
            return
        try:
            with suppress(JobTakenOver):  # it may rest, and then takes no note
                event = "job.page" if status == "cancelled" else f"job.{status}"
                await self._records.note(job, owner=run.owner, event=event, asked=run.asked, shown=True)
            if status == "cancelled":
                await self._records.steer(job.id, "job.cancelled", who=run.cancelled_by or job.who)
            await self._records.get(job.id)  # so that lists have it, however old it is
        except InterlockError as error:
            _log.warning("the end of a job could not be kept", extra={"job": job.id, "code": error.code})
        finally:
            self._forget(run)

    def _forget(self, run: Run) -> None:
        """It is no longer this process's: what is known of it is in the store."""
        self._runs.pop(run.job.id, None)
        self._jobs.pop(run.job.id, None)

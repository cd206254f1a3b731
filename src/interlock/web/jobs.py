"""Jobs: what takes longer than a request. Verifying everything, and sending one event to many.

Rule 1: a job is of this process and ends with it; what it has done is in the store, under keys made of the job's id and
the entity's, so it gives no entity its event twice.
Rule 2: a bulk's selection is its filter, frozen when its dry run began: an entity that came into the filter later is
not touched, and one that has moved on since it was listed is skipped and counted.
Rule 3: a dry run is the same walk with a rehearsal in place of the send.
Rule 4: a store that is away for a while is waited for, and asked again under the same key; a bulk that ended half way
could only be begun anew, under keys that no entity knows.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from hashlib import blake2b
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from interlock.effects.retry import Policy, backoff_ms
from interlock.errors import ConflictError, InterlockError, NotFoundError, UnavailableError
from interlock.model.limits import KEY_BYTES_MAX
from interlock.ports.store import Query, Row
from interlock.runtime.send import Runtime

JOBS_MAX = 50
"""Jobs that are remembered: the oldest ended one makes room."""

RUNNING_MAX = 4
"""Jobs that run at once."""

AWAY_TRIES_MAX = 20
"""How often a store that is away is asked again before the job fails: some minutes."""

SAMPLES_MAX = 20
PROBLEMS_MAX = 50
PAGE = 200

_AGAIN = Policy(backoff_ms_min=200, backoff_ms_max=15_000)

T = TypeVar("T")


class Job(Struct):
    """A job and how far it is. Counted by outcome, and by state and revision before."""

    id: str
    what: str
    who: str
    began_ms: int
    status: str = "running"
    reason: str | None = None
    dry_run: bool = False
    seen: int = 0
    total: int | None = None
    outcomes: dict[str, int] = {}
    states: dict[str, int] = {}
    revisions: dict[str, int] = {}
    samples: list[dict[str, Any]] = []
    problems: list[dict[str, Any]] = []
    ended_ms: int | None = None
    error: str | None = None


class Bulk(Struct, frozen=True):
    """One event for every entity of a filter, as which principal, at most so many a second.

    `query` ends where the walk was frozen. `about` is what was asked for: a run is of the same as its dry run.
    """

    query: Query
    event: str
    payload: Any
    principal: Mapping[str, Any]
    about: bytes
    dry_run: bool = True
    per_second: int = 0


class Jobs:
    """The jobs of one console."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._jobs: OrderedDict[str, Job] = OrderedDict()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._going: dict[str, asyncio.Event] = {}
        self._rehearsals: dict[str, Bulk] = {}

    def all(self) -> tuple[Job, ...]:
        """All jobs that are remembered, newest first."""
        return tuple(reversed(self._jobs.values()))

    def get(self, name: str) -> Job:
        """The job of this id. Raises NotFoundError."""
        found = self._jobs.get(name)
        if found is None:
            raise NotFoundError(f"no job {name[:40]}", code="job.unknown", hint="jobs end with the server")
        return found

    def begin_verify(self, who: str, entity: str | None, *, may_see: Callable[[str], bool]) -> Job:
        """Check one entity, or all; of kinds that `who` may not see it tells nothing, not even how many there are."""
        what = "verify" if entity is None else f"verify {entity}"
        job = self._new(what, who)
        self._start(job, lambda: self._verify(job, entity, may_see))
        return job

    def begin_bulk(self, who: str, bulk: Bulk, *, reason: str | None) -> Job:
        """Send one event to many, or rehearse it."""
        job = self._new(f"send {bulk.event} to {bulk.query.kind}", who)
        job.reason, job.dry_run = reason, bulk.dry_run
        before_ms = job.began_ms + 1
        if bulk.query.entered_before_ms is not None:
            before_ms = min(before_ms, bulk.query.entered_before_ms)
        query = msgspec.structs.replace(bulk.query, entered_before_ms=before_ms, limit=PAGE)
        frozen = msgspec.structs.replace(bulk, query=query)
        if bulk.dry_run:
            self._rehearsals[job.id] = frozen
        self._start(job, lambda: self._bulk(job, frozen))
        return job

    def rehearsed(self, name: str) -> Bulk:
        """What a dry run was of, frozen as it was. Raises NotFoundError."""
        self.get(name)
        found = self._rehearsals.get(name)
        if found is None:
            raise NotFoundError(f"job {name[:40]} is no dry run", code="job.unknown")
        return found

    def pause(self, name: str) -> Job:
        """Let a job rest after the entity it is at."""
        job = self.get(name)
        if job.status == "running":
            job.status = "paused"
            self._going[name].clear()
        return job

    def resume(self, name: str) -> Job:
        """Let a paused job go on."""
        job = self.get(name)
        if job.status == "paused":
            job.status = "running"
            self._going[name].set()
        return job

    def cancel(self, name: str) -> Job:
        """End a job; what it has done stays done."""
        job = self.get(name)
        task = self._tasks.get(name)
        if task is not None:
            task.cancel()
        return job

    async def close(self) -> None:
        """End all jobs."""
        for task in list(self._tasks.values()):
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def _new(self, what: str, who: str) -> Job:
        if len(self._tasks) >= RUNNING_MAX:
            raise UnavailableError(f"{RUNNING_MAX} jobs are running already", code="job.full")
        while len(self._jobs) >= JOBS_MAX:
            oldest = next(each for each, job in self._jobs.items() if job.ended_ms is not None)
            del self._jobs[oldest]
            self._rehearsals.pop(oldest, None)
        clock = self._runtime.clock
        job = Job(clock.token()[:12], what, who, clock.now_ms())
        self._jobs[job.id] = job
        return job

    def _start(self, job: Job, work: Callable[[], Awaitable[None]]) -> None:
        self._going[job.id] = asyncio.Event()
        self._going[job.id].set()
        task = asyncio.get_running_loop().create_task(self._run(job, work))
        self._tasks[job.id] = task

    async def _run(self, job: Job, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
            job.status = "done"
        except asyncio.CancelledError:
            job.status = "cancelled"
        except InterlockError as error:
            job.status, job.error = "failed", error.message
        except Exception:
            job.status, job.error = "failed", "a bug of ours; the server's log has more"
            raise
        finally:
            job.ended_ms = self._runtime.clock.now_ms()
            self._tasks.pop(job.id, None)
            self._going.pop(job.id, None)

    async def _verify(self, job: Job, entity: str | None, may_see: Callable[[str], bool]) -> None:
        if entity is not None:
            job.total = 1
            self._proven(job, await self._runtime.verify(entity))
            return
        async for proof in self._runtime.verify_all():
            await self._going[job.id].wait()
            if may_see(proof.entity.partition("/")[0]):
                self._proven(job, proof)
            await asyncio.sleep(0)  # requests go before

    def _proven(self, job: Job, proof: Any) -> None:
        job.seen += 1
        problem = proof.problem
        word = "damaged" if problem is not None and problem.is_corruption else "unproven" if problem else "proven"
        job.outcomes[word] = job.outcomes.get(word, 0) + 1
        if problem is None:
            if len(job.samples) < SAMPLES_MAX:
                job.samples.append({"entity": proof.entity, "entries": proof.entries, "head": proof.head})
        elif len(job.problems) < PROBLEMS_MAX:
            version = problem.version if problem.version is not None else proof.entries + 1
            told = {"entity": proof.entity, "code": problem.code, "message": problem.message, "version": version}
            job.problems.append({**told, "proven": proof.entries})

    async def _bulk(self, job: Job, bulk: Bulk) -> None:
        """Walk the filter as it was frozen, page by page."""
        query = bulk.query
        done: set[str] = set()  # of one page: rows do not come again, but for those that stay where they are
        while True:  # ends with the last page
            page = await self._patiently(partial(self._runtime.store.find, query))
            for row in page.rows:
                await self._going[job.id].wait()
                if row.entity not in done:
                    await self._item(job, bulk, row)
                    done.add(row.entity)
            if page.after is None:
                return
            done = {each.entity for each in page.rows}
            query = msgspec.structs.replace(query, after=page.after)

    async def _item(self, job: Job, bulk: Bulk, row: Row) -> None:
        outcome, why = await self._patiently(partial(self._outcome, job, bulk, row))
        job.seen += 1
        job.outcomes[outcome] = job.outcomes.get(outcome, 0) + 1
        for state in row.configuration:
            job.states[state] = job.states.get(state, 0) + 1
        job.revisions[row.revision] = job.revisions.get(row.revision, 0) + 1
        told = {"entity": row.entity, "configuration": row.configuration, "outcome": outcome, "reason": why}
        if len(job.samples) < SAMPLES_MAX:
            job.samples.append(told)
        elif outcome not in ("applied", "ignored") and len(job.problems) < PROBLEMS_MAX:
            job.problems.append(told)
        if not bulk.dry_run:
            await self._runtime.clock.sleep_ms(1000 / bulk.per_second)
        elif job.seen % 50 == 0:
            await asyncio.sleep(0)  # requests go before

    async def _outcome(self, job: Job, bulk: Bulk, row: Row) -> tuple[str, str | None]:
        """How one entity takes the event; `skipped` when it is no longer what was listed. Raises UnavailableError."""
        runtime = self._runtime
        try:
            if bulk.dry_run:
                receipt = await runtime.rehearse(row.entity, bulk.event, bulk.payload, principal=bulk.principal)
            else:
                receipt = await runtime.send(
                    row.entity,
                    bulk.event,
                    bulk.payload,
                    key=_key(job, row.entity),
                    expected=row.version,
                    principal=bulk.principal,
                )
        except ConflictError:
            return "skipped", "it has moved on"
        except UnavailableError:
            raise
        except InterlockError as error:
            return "failed", error.message
        return receipt.outcome, receipt.reason

    async def _patiently(self, ask: Callable[[], Awaitable[T]]) -> T:
        """What is asked for, as soon as the store gives it. Raises UnavailableError when it does not for long."""
        clock = self._runtime.clock
        for failures in range(AWAY_TRIES_MAX):
            try:
                return await ask()
            except UnavailableError:
                await clock.sleep_ms(backoff_ms(_AGAIN, failures, 0.5 + clock.jitter() / 2))
        return await ask()


def _key(job: Job, entity: str) -> str:
    """The key of one entity's event in a bulk."""
    key = f"bulk/{job.id}/{entity}"
    if len(key.encode()) <= KEY_BYTES_MAX:
        return key
    return f"bulk/{job.id}/{blake2b(entity.encode(), digest_size=32).hexdigest()}"  # cut short, two would be one

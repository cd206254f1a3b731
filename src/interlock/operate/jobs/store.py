"""Durable jobs: how a job is written to the store as an entity, and how it is read back.

The chart of the entity is `interlock-job` (`runtime.chart_registry`). Its state names, events and context fields are a
stored format; this module translates between them and `Job`.

Rule 1: a job is created before it does anything. Its progress is saved before each page of entities and every few
seconds, and its result at the end. After a kill, the saved progress is what remains.
Rule 2: the server that runs a job is its owner. The chart rejects progress from any other server, so a server that
was taken for dead stops when it comes back (`JobTakenOver`). Both servers send under the same keys.
Rule 3: events that were sent but not yet counted are found by their keys, so an interrupted job reports everything
that it did.
Rule 4: a running job whose owner has saved nothing for `OWNER_TIMEOUT_MS` is interrupted.
Rule 5: an id starts with the month, so the newest jobs are a range of ids.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from msgspec import Struct

from interlock.errors import ConflictError, InternalError, NotFoundError
from interlock.model.encoding.codec import encode
from interlock.model.event import Event
from interlock.model.keys import bulk_key
from interlock.model.limits import CLOCK_AHEAD_MS_MAX
from interlock.model.snapshot import Snapshot
from interlock.operate.jobs.job import ALREADY_APPLIED, BULK_ADVICE, VERIFY_ADVICE, Bulk, Item, Job, JobPage
from interlock.ports.store import PAGE_MAX, Duplicate, EntityQuery, EntityRow
from interlock.runtime.charts.registry import CONSOLE_ROLE, JOB_KIND
from interlock.runtime.entities.duplicates import find_former
from interlock.runtime.runtime import Runtime

OWNER_TIMEOUT_MS = 30_000
"""Time without saved progress after which another server may take over a job: six saves are missing."""

RECENT_MAX = 50
"""Stored jobs in a list."""

MONTH_PAGES_MAX = 5
"""Pages of the jobs of one month that are read to find the newest."""

ENDED_CACHE_MAX = 200
"""Ended jobs that are cached, so that a list does not load them again."""

COUNTS_BYTES_MAX = 8_192
SAMPLES_BYTES_MAX = 32_768
"""Bytes of the counts by state and revision, and of samples and problems: one event carries them and a page."""

STATUS_OF_STATE = {"underway": "running"}
"""The status of a state of the chart, where the words differ."""

OPEN_STATES = ("underway", "paused", "interrupted")
UNATTENDED_STATES = ("underway", "interrupted")
"""States of jobs that may be interrupted: `underway` too, after the owner's timeout."""

TAKEN_OVER_REASONS = frozenset({"guard", "no_transition", "ended"})
"""Why the chart rejects progress of a server that is not the owner, or of a job that has ended."""


class JobTakenOver(Exception):
    """Another server owns the job now, or the job has ended."""


class StoredJob(Struct, frozen=True):
    """A job as it was saved last, and the version of its entity.

    `page` are the entities that it was sending to; the first `position` of them are counted.
    """

    job: Job
    bulk: Bulk | None
    page: JobPage | None
    position: int
    version: int


class JobStore:
    """The jobs of one store."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._ended: dict[str, StoredJob] = {}

    def new_id(self) -> str:
        """Return an unused job id."""
        clock = self._runtime.clock
        return f"{_months(clock.now_ms())[0]}-{clock.token()[:12]}"

    async def create(self, job: Job, bulk: Bulk | None, *, owner: str) -> None:
        """Store a job before it starts."""
        task = {"what": job.what, "who": job.who, "began_ms": job.began_ms, "reason": job.reason}
        if bulk is not None:
            query = msgspec.structs.asdict(bulk.query)
            task["bulk"] = {
                "query": {key: value for key, value in query.items() if value is not None},
                "event": bulk.event,
                "payload": bulk.payload,
                "per_second": bulk.per_second,
            }
        context = {"task": task, "owner": owner, "noted_ms": job.began_ms}
        await self._runtime.create(_entity(job.id), context, key=f"begin/{job.id}", principal=_principal(job.who))
        job.stored, job.noted_ms = True, job.began_ms

    async def save_progress(
        self,
        job: Job,
        *,
        owner: str,
        event: str = "job.page",
        page: JobPage | None = None,
        position: int = 0,
        with_samples: bool = False,
    ) -> None:
        """Save the counts of a job, and how many entities of its page it has sent to.

        A new `page` replaces the stored one. `event` other than `job.page` also ends or interrupts the job.
        Raises JobTakenOver if `owner` no longer owns the job.
        """
        payload = {
            "owner": owner,
            "progress": {**_counts(job), "asked": position},
            "page": None if page is None else _json(page),
            "shown": _samples(job) if with_samples else None,
            "error": job.error,
        }
        receipt = await self._runtime.send(_entity(job.id), event, payload, principal=_principal(job.who))
        if receipt.outcome != "applied":
            if receipt.reason not in TAKEN_OVER_REASONS:
                raise InternalError(f"the progress of job {job.id} was refused: {receipt.reason}", code="job.note")
            raise JobTakenOver
        job.noted_ms = self._runtime.clock.now_ms()

    async def pause(self, name: str, *, who: str) -> None:
        """Pause a job of any server; its owner stops at its next save."""
        await self._runtime.send(_entity(name), "job.paused", {}, principal=_principal(who))

    async def cancel(self, name: str, *, who: str) -> None:
        """Cancel a job of any server; its owner stops at its next save."""
        await self._runtime.send(_entity(name), "job.cancelled", {}, principal=_principal(who))

    async def resume(self, name: str, *, owner: str, who: str, version: int | None = None) -> None:
        """Resume a job with this owner. Raises ConflictError if it has ended or is not at the given version."""
        receipt = await self._runtime.send(
            _entity(name), "job.resumed", {"owner": owner}, expected=version, principal=_principal(who)
        )
        if receipt.outcome != "applied":
            raise job_ended(name)

    async def get(self, name: str) -> StoredJob:
        """Return a stored job. Raises NotFoundError."""
        found = self._ended.get(name)
        if found is None:
            try:
                snapshot = await self._runtime.state(_entity(name or "-"))
            except NotFoundError:
                raise unknown_job(name) from None
            found = self._from_snapshot(snapshot)
            if snapshot.ended is not None:
                if len(self._ended) >= ENDED_CACHE_MAX:
                    self._ended.clear()
                self._ended[name] = found
        return found

    async def with_uncounted(self, stored: StoredJob) -> Job:
        """Return the job and count the events that an interrupted job sent after its last save (Rule 3)."""
        job = stored.job
        if job.status == "interrupted" and stored.page is not None:
            for item in stored.page.items[stored.position :]:
                if await self._was_sent(stored, item):
                    job.count_item(item, "applied", ALREADY_APPLIED)
        return job

    async def _was_sent(self, stored: StoredJob, item: Item) -> bool:
        """Whether an entity has the event of a job, under its key or the key that an earlier release used."""
        store, key = self._runtime.store, bulk_key(stored.job.id, item.entity)
        if isinstance(await store.load(item.entity, key=key.key), Duplicate):
            return True
        if stored.bulk is None or key.former is None:
            return False
        event = Event(stored.bulk.event, stored.bulk.payload)
        return await find_former(store, item.entity, key.former, event) is not None

    async def recent(self) -> tuple[StoredJob, ...]:
        """Return all open jobs, jobs of this month and the last, and ended jobs that were read here; newest first."""
        created_ms = {_entity(name): stored.job.began_ms for name, stored in self._ended.items()}
        created_ms |= {each.entity: each.created_ms for each in await self._in_states(OPEN_STATES)}
        for month in _months(self._runtime.clock.now_ms()):
            created_ms |= {each.entity: each.created_ms for each in await self._of_month(month)}
        newest = sorted(created_ms, key=lambda each: (created_ms[each], each), reverse=True)[:RECENT_MAX]
        return tuple([await self.get(_id(each)) for each in newest])

    async def interrupted(self) -> tuple[StoredJob, ...]:
        """Return the jobs that need to be resumed."""
        found = [await self.get(_id(each.entity)) for each in await self._in_states(UNATTENDED_STATES)]
        return tuple(each for each in found if each.job.status == "interrupted")

    async def _in_states(self, states: tuple[str, ...]) -> list[EntityRow]:
        rows: list[EntityRow] = []
        for state in states:
            query = EntityQuery(kind=JOB_KIND, state=state, limit=RECENT_MAX)
            rows += (await self._runtime.store.find(query)).rows
        return rows

    async def _of_month(self, month: str) -> list[EntityRow]:
        rows: list[EntityRow] = []
        cursor: str | None = None
        for _ in range(MONTH_PAGES_MAX):
            query = EntityQuery(kind=JOB_KIND, prefix=month, after=cursor, limit=PAGE_MAX)
            page = await self._runtime.store.find(query)
            rows += page.rows
            cursor = page.after
            if cursor is None:
                break
        return rows

    def _is_owner_silent(self, saved_ms: int) -> bool:
        """Whether the owner of a job has timed out. A time far in the future was written with a wrong clock."""
        silent_ms = self._runtime.clock.now_ms() - saved_ms
        return silent_ms >= OWNER_TIMEOUT_MS or silent_ms < -CLOCK_AHEAD_MS_MAX

    def _from_snapshot(self, snapshot: Snapshot) -> StoredJob:
        context = snapshot.context
        task, progress, shown = context["task"], context["progress"], context["shown"]
        state = snapshot.configuration[0]
        job = Job(
            id=_id(snapshot.entity),
            what=task["what"],
            who=task["who"],
            began_ms=task["began_ms"],
            reason=task["reason"],
            status=STATUS_OF_STATE.get(state, state),
            stored=True,
            noted_ms=context["noted_ms"],
            ended_ms=None if snapshot.ended is None else context["noted_ms"],
            error=context["error"],
            kind=task["bulk"]["query"]["kind"] if "bulk" in task else None,
            seen=progress.get("seen", 0),
            total=progress.get("total"),
            outcomes=dict(progress.get("outcomes", {})),
            states=dict(progress.get("states", {})),
            revisions=dict(progress.get("revisions", {})),
            samples=list(shown.get("samples", ())),
            problems=list(shown.get("problems", ())),
        )
        if state == "underway" and self._is_owner_silent(context["noted_ms"]):
            job.status = "interrupted"
        if job.status == "interrupted":
            job.advice = BULK_ADVICE if "bulk" in task else VERIFY_ADVICE
        page = None if context["page"] is None else msgspec.convert(context["page"], JobPage)
        return StoredJob(job, _bulk(task.get("bulk")), page, progress.get("asked", 0), snapshot.version)


def unknown_job(name: str) -> NotFoundError:
    """The error for a job that does not exist, or that the caller may not see."""
    hint = "dry runs and checks of one entity are deleted when the server stops"
    return NotFoundError(f"unknown job {name[:40]}", code="job.unknown", hint=hint)


def job_ended(name: str) -> ConflictError:
    """The error for a job that cannot be resumed any more."""
    return ConflictError(f"job {name} has ended", code="job.over")


def _counts(job: Job) -> dict[str, Any]:
    """The counts of a job; those by state and revision only while they are short."""
    counts: dict[str, Any] = {"seen": job.seen, "total": job.total, "outcomes": job.outcomes}
    split = {"states": job.states, "revisions": job.revisions}
    return {**counts, **split} if len(encode(split)) <= COUNTS_BYTES_MAX else counts


def _samples(job: Job) -> dict[str, Any]:
    """Problems, then samples, as many as fit into one event."""
    found: dict[str, Any] = {"problems": [], "samples": []}
    room = SAMPLES_BYTES_MAX
    for name, values in (("problems", job.problems), ("samples", job.samples)):
        for each in values:
            value = _json(each)
            room -= len(encode(value))
            if room < 0:
                return found
            found[name].append(value)
    return found


def _bulk(task: Mapping[str, Any] | None) -> Bulk | None:
    """The bulk of a stored task, without a principal: the user who resumes the job is its principal."""
    if task is None:
        return None
    query = msgspec.convert(task["query"], EntityQuery)
    return Bulk(query, task["event"], task["payload"], {}, b"", dry_run=False, per_second=task["per_second"])


def _entity(name: str) -> str:
    return f"{JOB_KIND}/{name}"


def _id(entity: str) -> str:
    return entity.partition("/")[2]


def _principal(who: str) -> dict[str, Any]:
    return {"id": who, "kind": "user", "roles": [CONSOLE_ROLE]}


def _months(time_ms: int) -> tuple[str, str]:
    """The month of a time, and the month before."""
    now = datetime.fromtimestamp(time_ms / 1000, UTC)
    return f"{now:%Y-%m}", f"{now.replace(day=1) - timedelta(days=1):%Y-%m}"


def _json(value: object) -> Any:
    """A value as JSON: lists in place of tuples, objects in place of structs."""
    return msgspec.json.decode(encode(value))

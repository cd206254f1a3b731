"""Jobs in the store: everything about what is kept of a job, and how it is read back, lives here.

Rule 1: a job is an entity of the package's own chart (`runtime.own`): begun before its first act, noted before each
page that it goes through and every few seconds, ended with its last count. What a kill leaves is what was noted.
Rule 2: whoever runs a job is its owner. A note of anybody else is refused by the chart, so a server that was taken for
dead, and comes back, stops: `JobTakenOver`. Meanwhile both would have sent under the same keys.
Rule 3: what was sent and not noted is found by its keys, so what is told of an interrupted job is all that it did.
Rule 4: a job that is underway and whose owner has said nothing for `SILENT_MS` counts as interrupted.
Rule 5: an id begins with the month, so that the newest jobs are a range of ids.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from msgspec import Struct

from interlock.errors import ConflictError, InternalError, NotFoundError
from interlock.model.codec import encode
from interlock.model.event import Event
from interlock.model.keys import bulk_key
from interlock.model.limits import CLOCK_AHEAD_MS_MAX
from interlock.model.snapshot import Snapshot
from interlock.ports.store import PAGE_MAX, Duplicate, EntityQuery, EntityRow
from interlock.runtime.chart_registry import CONSOLE_ROLE, JOB_KIND
from interlock.runtime.runtime import Runtime
from interlock.runtime.sender import find_former
from interlock.web.jobs.job import BULK_ADVICE, HAD, VERIFY_ADVICE, Bulk, Item, Job, JobPage

SILENT_MS = 30_000
"""Silence of a job's owner after which somebody else may go on with it: six notes are missing."""

LISTED_MAX = 50
"""Kept jobs of a list."""

PAGES_MAX = 5
"""Pages of a month's jobs that are looked through for the newest."""

ENDED_MAX = 200
"""Ended jobs that are remembered, so that a list does not load them again."""

SPLIT_BYTES_MAX = 8_192
SHOWN_BYTES_MAX = 32_768
"""Bytes of counts by state and revision, and of samples and problems: with a page of entities they are one event."""

STATUSES = {"underway": "running"}
"""What a state is called in an answer, where that is another word."""


ATTENDED = ("underway", "interrupted")

TAKEN = frozenset({"guard", "no_transition", "ended"})
"""Why the chart refuses a note that is no bug of ours."""


class JobTakenOver(Exception):
    """Somebody else has the job now, or has ended it."""


class StoredJob(Struct, frozen=True):
    """A job that is in the store: as it was noted last, what it is to do, and at which version of the entity.

    `listed` are the entities that it was about to ask, `asked` how many of them it had asked for sure.
    """

    job: Job
    bulk: Bulk | None
    listed: JobPage | None
    asked: int
    version: int


class JobStore:
    """The jobs of one store."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._ended: dict[str, StoredJob] = {}

    def new_id(self) -> str:
        """An id that no job has."""
        clock = self._runtime.clock
        return f"{_months(clock.now_ms())[0]}-{clock.token()[:12]}"

    async def begin(self, job: Job, bulk: Bulk | None, *, owner: str) -> None:
        """Keep a job that is about to begin."""
        task = {"what": job.what, "who": job.who, "began_ms": job.began_ms, "reason": job.reason}
        if bulk is not None:
            task["bulk"] = {
                "query": {key: value for key, value in msgspec.structs.asdict(bulk.query).items() if value is not None},
                "event": bulk.event,
                "payload": bulk.payload,
                "per_second": bulk.per_second,
            }
        context = {"task": task, "owner": owner, "noted_ms": job.began_ms}
        await self._runtime.create(_entity(job.id), context, key=f"begin/{job.id}", principal=_sender(job.who))
        job.kept, job.noted_ms = True, job.began_ms

    async def note(
        self,
        job: Job,
        *,
        owner: str,
        event: str = "job.page",
        listed: JobPage | None = None,
        asked: int = 0,
        shown: bool = False,
    ) -> None:
        """Keep how far a job is: `asked` of those listed last. Raises Taken when it is no longer the owner's."""
        told = {
            "owner": owner,
            "progress": {**_counted(job), "asked": asked},
            "page": None if listed is None else _json(listed),
            "shown": _shown(job) if shown else None,
            "error": job.error,
        }
        receipt = await self._runtime.send(_entity(job.id), event, told, principal=_sender(job.who))
        if receipt.outcome != "applied":
            if receipt.reason not in TAKEN:
                raise InternalError(f"a note of job {job.id} was refused: {receipt.reason}", code="job.note")
            raise JobTakenOver
        job.noted_ms = self._runtime.clock.now_ms()

    async def steer(self, name: str, event: str, *, who: str) -> None:
        """Pause or cancel a job, whoever runs it: its owner hears of it with its next note."""
        await self._runtime.send(_entity(name), event, {}, principal=_sender(who))

    async def resume(self, name: str, *, owner: str, who: str, version: int | None = None) -> None:
        """Let a job go on, with this owner; only at this version, if one is given. Raises ConflictError."""
        told, sender = {"owner": owner}, _sender(who)
        receipt = await self._runtime.send(_entity(name), "job.resumed", told, expected=version, principal=sender)
        if receipt.outcome != "applied":
            raise ConflictError(f"job {name} is over", code="job.over")

    async def get(self, name: str) -> StoredJob:
        """A job that is kept. Raises NotFoundError."""
        found = self._ended.get(name)
        if found is None:
            try:
                snapshot = await self._runtime.state(_entity(name or "-"))
            except NotFoundError:
                raise unknown_job(name) from None
            found = self._kept(snapshot)
            if snapshot.ended is not None:
                if len(self._ended) >= ENDED_MAX:
                    self._ended.clear()
                self._ended[name] = found
        return found

    async def looked_up(self, kept: StoredJob) -> Job:
        """A job with all that it did: one that was interrupted may have sent more than it had noted, under its keys."""
        job = kept.job
        if job.status == "interrupted" and kept.listed is not None:
            for item in kept.listed.items[kept.asked :]:
                if await self._had(kept, item):
                    job.count_item(item, "applied", HAD)
        return job

    async def _had(self, kept: StoredJob, item: Item) -> bool:
        """Whether an entity took the event of a job: under its key, or under the one of an earlier release."""
        store, key = self._runtime.store, bulk_key(kept.job.id, item.entity)
        if isinstance(await store.load(item.entity, key=key.key), Duplicate):
            return True
        if kept.bulk is None or key.former is None:
            return False
        event = Event(kept.bulk.event, kept.bulk.payload)
        return await find_former(store, item.entity, key.former, event) is not None

    async def newest(self) -> tuple[StoredJob, ...]:
        """Jobs that are not over, however old, others of this month and the one before, and those that were looked at
        here; newest first.
        """
        names = {_entity(name): kept.job.began_ms for name, kept in self._ended.items()}
        names |= {each.entity: each.created_ms for each in await self._open("underway", "paused", "interrupted")}
        for month in _months(self._runtime.clock.now_ms()):
            names |= {each.entity: each.created_ms for each in await self._of(month)}
        newest = sorted(names, key=lambda each: (names[each], each), reverse=True)[:LISTED_MAX]
        return tuple([await self.get(each.partition("/")[2]) for each in newest])

    async def unended(self) -> tuple[StoredJob, ...]:
        """Jobs that somebody should be at."""
        return tuple([await self.get(each.entity.partition("/")[2]) for each in await self._open(*ATTENDED)])

    async def _open(self, *states: str) -> list[EntityRow]:
        found: list[EntityRow] = []
        for state in states:
            found += (await self._runtime.store.find(EntityQuery(kind=JOB_KIND, state=state, limit=LISTED_MAX))).rows
        return found

    async def _of(self, month: str) -> list[EntityRow]:
        rows: list[EntityRow] = []
        cursor: str | None = None
        for _ in range(PAGES_MAX):
            page = await self._runtime.store.find(
                EntityQuery(kind=JOB_KIND, prefix=month, after=cursor, limit=PAGE_MAX)
            )
            rows += page.rows
            cursor = page.after
            if cursor is None:
                break
        return rows

    def _is_silent(self, noted_ms: int) -> bool:
        """Whether nothing was heard of a job's owner for long; a note from the future is from a wrong clock."""
        silent_ms = self._runtime.clock.now_ms() - noted_ms
        return silent_ms >= SILENT_MS or silent_ms < -CLOCK_AHEAD_MS_MAX

    def _kept(self, snapshot: Snapshot) -> StoredJob:
        context = snapshot.context
        task, progress, shown = context["task"], context["progress"], context["shown"]
        state = snapshot.configuration[0]
        job = Job(
            id=snapshot.entity.partition("/")[2],
            what=task["what"],
            who=task["who"],
            began_ms=task["began_ms"],
            reason=task["reason"],
            status=STATUSES.get(state, state),
            kept=True,
            noted_ms=context["noted_ms"],
            ended_ms=None if snapshot.ended is None else context["noted_ms"],
            error=context["error"],
            kind=task["bulk"]["query"]["kind"] if "bulk" in task else None,
        )
        job.seen, job.total = progress.get("seen", 0), progress.get("total")
        job.outcomes = dict(progress.get("outcomes", {}))
        job.states, job.revisions = dict(progress.get("states", {})), dict(progress.get("revisions", {}))
        job.samples, job.problems = list(shown.get("samples", ())), list(shown.get("problems", ()))
        if state == "underway" and self._is_silent(context["noted_ms"]):
            job.status = "interrupted"
        if job.status == "interrupted":
            job.advice = BULK_ADVICE if "bulk" in task else VERIFY_ADVICE
        listed = None if context["page"] is None else msgspec.convert(context["page"], JobPage)
        return StoredJob(job, _bulk(task.get("bulk")), listed, progress.get("asked", 0), snapshot.version)


def unknown_job(name: str) -> NotFoundError:
    """What is said where there is no such job, or none that its asker may see."""
    hint = "dry runs and checks of one entity end with the server"
    return NotFoundError(f"no job {name[:40]}", code="job.unknown", hint=hint)


def _counted(job: Job) -> dict[str, Any]:
    """The counts of a job; those by state and revision only while there are few enough to be worth keeping."""
    counts: dict[str, Any] = {"seen": job.seen, "total": job.total, "outcomes": job.outcomes}
    split = {"states": job.states, "revisions": job.revisions}
    return {**counts, **split} if len(encode(split)) <= SPLIT_BYTES_MAX else counts


def _shown(job: Job) -> dict[str, Any]:
    """Samples and problems, as many as there is room for."""
    told: dict[str, Any] = {"problems": [], "samples": []}
    room = SHOWN_BYTES_MAX
    for name, values in (("problems", job.problems), ("samples", job.samples)):
        for each in values:
            value = _json(each)
            room -= len(encode(value))
            if room < 0:
                return told
            told[name].append(value)
    return told


def _bulk(task: Mapping[str, Any] | None) -> Bulk | None:
    """The bulk of a task, still without a principal: whoever resumes it brings their own."""
    if task is None:
        return None
    query = msgspec.convert(task["query"], EntityQuery)
    return Bulk(query, task["event"], task["payload"], {}, b"", dry_run=False, per_second=task["per_second"])


def _entity(name: str) -> str:
    return f"{JOB_KIND}/{name}"


def _sender(who: str) -> dict[str, Any]:
    return {"id": who, "kind": "user", "roles": [CONSOLE_ROLE]}


def _months(time_ms: int) -> tuple[str, str]:
    """The month of a time, and the one before."""
    now = datetime.fromtimestamp(time_ms / 1000, UTC)
    return f"{now:%Y-%m}", f"{now.replace(day=1) - timedelta(days=1):%Y-%m}"


def _json(value: object) -> Any:
    """A value as an event carries it: lists, where it has tuples."""
    return msgspec.json.decode(encode(value))

"""The walks of jobs: every entity of a store, or of a filter, one by one.

Rule 1: before a bulk asks the first entity of a page, the whole page is noted: whoever goes on after a kill knows
whom to ask again, under the same key and at the same version.
Rule 2: a dry run is the same walk with a rehearsal in place of the send.
Rule 3: a store that is away for a while is waited for, and asked again under the same key.
Rule 4: a job that rests takes no note; so nothing is noted while somebody steers it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

import msgspec

from interlock.errors import ConflictError, InterlockError, UnavailableError
from interlock.model.backoff import Backoff
from interlock.model.codec import encode
from interlock.model.keys import bulk_key
from interlock.ports.store import EntityQuery
from interlock.runtime.chart_registry import JOB_KIND
from interlock.runtime.runtime import Runtime
from interlock.web.errors import public_text
from interlock.web.jobs.job import HAD, Bulk, Item, Job, JobPage, MaySee
from interlock.web.jobs.store import JobStore

AWAY_TRIES_MAX = 20
"""How often a store that is away is asked again before the job is interrupted: some minutes."""

PAGE = 100
"""Entities that a bulk lists at once, and so notes at once."""

LISTED_BYTES_MAX = 65_536
"""Bytes of those: half of what an event may carry, because samples and counts go with them."""

NOTE_MS = 5_000
"""Between two notes of a job that is busy with one page: what a kill may make uncertain."""

_AGAIN = Backoff(200, 15_000, jitter=0.5)

T = TypeVar("T")


class Run:
    """A job that runs in this process. `who`: whose place it takes, the person who began or resumed it last.
    `asked`: how many of the entities listed last it has asked.
    """

    def __init__(self, job: Job, owner: str, who: str) -> None:
        self.job = job
        self.owner = owner
        self.who = who
        self.going = asyncio.Event()
        self.going.set()
        self.steering = asyncio.Lock()
        self.asked = 0
        self.shown = 0
        self.cancelled_by: str | None = None
        self.task: asyncio.Task[None] | None = None


class JobWalker:
    """The walks over one store."""

    def __init__(self, runtime: Runtime, records: JobStore) -> None:
        self._runtime = runtime
        self._records = records

    async def verify_one(self, run: Run, entity: str) -> None:
        """Check one entity."""
        run.job.total = 1
        run.job.count_proof(await self._runtime.verify(entity))

    async def verify(self, run: Run, may_see: MaySee) -> None:
        """Check every entity but the job itself, which is being written."""
        own = f"{JOB_KIND}/{run.job.id}"
        async for proof in self._runtime.verify_all():
            await run.going.wait()
            if proof.entity != own and may_see(proof.entity.partition("/")[0]):
                run.job.count_proof(proof)
            await self._note_in_time(run)
            await asyncio.sleep(0)  # requests go before

    async def bulk(self, run: Run, bulk: Bulk, listed: JobPage | None = None) -> None:
        """Walk the filter as it was frozen, page by page; first what was `listed` by whoever was at it before."""
        query = bulk.query
        passed: set[str] = set()  # of one page: rows do not come again, but for those that stay where they are
        while True:  # ends with the last page
            if listed is None:
                listed = await self._listed(query, passed)
                run.asked = 0
                if listed.items:
                    await self._note(run, listed)
            for item in listed.items[run.asked :]:
                await run.going.wait()
                await self._item(run, bulk, item)
                run.asked += 1
                await self._note_in_time(run)
            if listed.after is None:
                return
            passed = {each.entity for each in listed.items}
            query, listed = msgspec.structs.replace(query, after=listed.after), None

    async def _listed(self, query: EntityQuery, passed: set[str]) -> JobPage:
        """The next entities: fewer than a page where a page would be too long to be noted."""
        while True:  # ends with one entity at the latest
            page = await self._patiently(partial(self._runtime.store.find, query))
            items = [Item(each.entity, each.version, each.revision, each.configuration) for each in page.rows]
            listed = JobPage(tuple(each for each in items if each.entity not in passed), page.after)
            if len(encode(listed)) <= LISTED_BYTES_MAX:
                return listed
            if query.limit == 1:  # in so many states at once that it says more than one event can carry
                return JobPage(
                    tuple(msgspec.structs.replace(each, configuration=()) for each in listed.items), page.after
                )
            query = msgspec.structs.replace(query, limit=query.limit // 2)

    async def _item(self, run: Run, bulk: Bulk, item: Item) -> None:
        outcome, why = await self._patiently(partial(self._outcome, run.job, bulk, item))
        run.job.count_item(item, outcome, why)
        if not bulk.dry_run:
            await self._runtime.clock.sleep_ms(1000 / bulk.per_second)
        elif run.job.seen % 50 == 0:
            await asyncio.sleep(0)  # requests go before

    async def _outcome(self, job: Job, bulk: Bulk, item: Item) -> tuple[str, str | None]:
        """How one entity takes the event; `skipped` when it is no longer what was listed. Raises UnavailableError."""
        runtime, sender = self._runtime, bulk.principal
        try:
            if bulk.dry_run:
                receipt = await runtime.dry_run(item.entity, bulk.event, bulk.payload, principal=sender)
            else:
                key = bulk_key(job.id, item.entity)
                receipt = await runtime.submit(
                    item.entity, bulk.event, bulk.payload, key=key, expected=item.version, principal=sender
                )
        except ConflictError:
            return "skipped", "it has moved on"
        except UnavailableError:
            raise
        except InterlockError as error:
            return "failed", public_text(error)[0]
        if receipt.outcome == "duplicate":  # the key is this job's: nobody else can have used it
            return "applied", HAD
        return receipt.outcome, receipt.reason

    async def _note_in_time(self, run: Run) -> None:
        noted_ms = run.job.noted_ms
        if noted_ms is not None and abs(self._runtime.clock.now_ms() - noted_ms) >= NOTE_MS:
            await self._note(run)

    async def _note(self, run: Run, listed: JobPage | None = None) -> None:
        """Keep how far a job is, once it does not rest. Raises Taken, UnavailableError."""
        if not run.job.kept:
            return
        while True:  # ends as soon as it is noted
            await run.going.wait()
            async with run.steering:
                if run.going.is_set():
                    await self._noted(run, listed)
                    return

    async def _noted(self, run: Run, listed: JobPage | None) -> None:
        job = run.job
        shown = len(job.samples) + len(job.problems)
        note = partial(
            self._records.note, job, owner=run.owner, listed=listed, asked=run.asked, shown=shown != run.shown
        )
        await self._patiently(note)
        run.shown = shown

    async def _patiently(self, ask: Callable[[], Awaitable[T]]) -> T:
        """What is asked for, as soon as the store gives it. Raises UnavailableError when it does not for long."""
        clock = self._runtime.clock
        for failures in range(AWAY_TRIES_MAX):
            try:
                return await ask()
            except UnavailableError:
                await clock.sleep_ms(_AGAIN.wait_ms(failures, clock.jitter()))
        return await ask()

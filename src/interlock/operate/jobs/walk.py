"""How a job visits entities: every entity of a store, or every entity that matches a filter, one by one.

Rule 1: a bulk saves a whole page of entities before it sends to the first of them. After a kill, another server sends
to the same entities again, under the same keys and at the same versions.
Rule 2: a dry run is the same walk with a dry run of each send.
Rule 3: while the store is unavailable, the walk waits and retries with the same key.
Rule 4: an entity that changed since it was listed is skipped, unless only its revision changed: a move to a newer chart
is no reason to leave it out.
Rule 5: an entity that an operator holds is skipped and counted: a job does not wait for the end of a hold.
Rule 6: a paused job saves nothing, and no progress is saved while a user pauses, resumes or cancels the job.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

import msgspec

from interlock.errors import ConflictError, InterlockError, UnavailableError
from interlock.model.backoff import Backoff
from interlock.model.encoding.codec import encode
from interlock.model.journal.entry import Receipt
from interlock.model.keys import bulk_key
from interlock.operate.jobs.job import ALREADY_APPLIED, Bulk, Item, Job, JobPage, MaySee
from interlock.operate.jobs.store import JobStore
from interlock.ports.delivery import is_held
from interlock.ports.store import EntityQuery
from interlock.runtime.charts.registry import JOB_KIND
from interlock.runtime.runtime import Runtime
from interlock.trust.disclosure import public_text

STORE_RETRIES_MAX = 20
"""Retries on an unavailable store before the job is interrupted: some minutes."""

PAGE_ENTITIES_MAX = 100
"""Entities of one page of a bulk send, which are listed and saved together."""

PAGE_BYTES_MAX = 65_536
"""Bytes of a saved page: half of an event, because counts and samples are saved with it."""

SAVE_INTERVAL_MS = 5_000
"""Time between two saves within one page: what a kill leaves uncounted."""

YIELD_EVERY = 50
"""Entities of a dry run between two pauses in which the server handles requests."""

_STORE_RETRY = Backoff(200, 15_000, jitter=0.5)

T = TypeVar("T")


class Run:
    """A job that runs in this process.

    `who` is the user who started or resumed it last; their limits apply. `position` counts the entities of the current
    page that it has sent to. `going` is cleared while the job is paused.
    """

    def __init__(self, job: Job, owner: str, who: str) -> None:
        self.job = job
        self.owner = owner
        self.who = who
        self.going = asyncio.Event()
        self.going.set()
        self.lock = asyncio.Lock()
        self.position = 0
        self.samples_saved = 0
        self.cancelled_by: str | None = None
        self.task: asyncio.Task[None] | None = None


class JobWalker:
    """The walks over one store."""

    def __init__(self, runtime: Runtime, jobs: JobStore) -> None:
        self._runtime = runtime
        self._jobs = jobs

    async def verify_one(self, run: Run, entity: str) -> None:
        """Verify one entity."""
        run.job.total = 1
        run.job.count_verification(await self._runtime.verify(entity))

    async def verify_all(self, run: Run, may_see: MaySee) -> None:
        """Verify every entity of the kinds that the user may see, except the job itself, which is being written."""
        own = f"{JOB_KIND}/{run.job.id}"
        async for verification in self._runtime.verify_all():
            await run.going.wait()
            if verification.entity != own and may_see(verification.entity.partition("/")[0]):
                run.job.count_verification(verification)
            await self._save_if_due(run)
            await asyncio.sleep(0)  # let the server handle requests

    async def send_all(self, run: Run, bulk: Bulk, page: JobPage | None = None) -> None:
        """Send the event of a bulk to every entity, page by page, starting with `page` if one was saved."""
        query = bulk.query
        previous: set[str] = set()  # an entity whose position in the index did not change may be listed again
        while True:  # ends with the last page
            if page is None:
                page = await self._next_page(query, previous)
                run.position = 0
                if page.items:
                    await self._save(run, page)
            for item in page.items[run.position :]:
                await run.going.wait()
                await self._send_item(run, bulk, item)
                run.position += 1
                await self._save_if_due(run)
            if page.after is None:
                return
            previous = {each.entity for each in page.items}
            query, page = msgspec.structs.replace(query, after=page.after), None

    async def _next_page(self, query: EntityQuery, previous: set[str]) -> JobPage:
        """List the next entities: fewer than a full page if a full page is too long to be saved."""
        while True:  # ends with a page of one entity at the latest
            found = await self._retry_unavailable(partial(self._runtime.store.find, query))
            items = [Item(each.entity, each.version, each.revision, each.configuration) for each in found.rows]
            page = JobPage(tuple(each for each in items if each.entity not in previous), found.after)
            if len(encode(page)) <= PAGE_BYTES_MAX:
                return page
            if query.limit == 1:  # one entity in very many states
                bare = tuple(msgspec.structs.replace(each, configuration=()) for each in page.items)
                return JobPage(bare, found.after)
            query = msgspec.structs.replace(query, limit=query.limit // 2)

    async def _send_item(self, run: Run, bulk: Bulk, item: Item) -> None:
        outcome, reason = await self._retry_unavailable(partial(self._outcome, run.job, bulk, item))
        run.job.count_item(item, outcome, reason)
        if not bulk.dry_run:
            await self._runtime.clock.sleep_ms(1000 / bulk.per_second)
        elif run.job.seen % YIELD_EVERY == 0:
            await asyncio.sleep(0)  # let the server handle requests

    async def _outcome(self, job: Job, bulk: Bulk, item: Item) -> tuple[str, str | None]:
        """Send to one entity; return outcome and reason, `skipped` if it changed. Raises UnavailableError."""
        runtime, principal = self._runtime, bulk.principal
        try:
            if bulk.dry_run:
                receipt = await runtime.dry_run(item.entity, bulk.event, bulk.payload, principal=principal)
            else:
                receipt = await self._submit(job, bulk, item)
        except ConflictError:
            return "skipped", "changed since the dry run"
        except UnavailableError as error:
            if not is_held(error):
                raise
            return "skipped", "held"
        except InterlockError as error:
            return "failed", public_text(error)[0]
        if receipt.outcome == "duplicate":  # the key belongs to this job, so the job itself sent it before
            return "applied", ALREADY_APPLIED
        return receipt.outcome, receipt.reason

    async def _submit(self, job: Job, bulk: Bulk, item: Item) -> Receipt:
        """Send to one entity at the version at which it was listed. Raises ConflictError if it changed."""
        key = bulk_key(job.id, item.entity)
        send = partial(self._runtime.submit, item.entity, bulk.event, bulk.payload, key=key, principal=bulk.principal)
        try:
            return await send(expected=item.version)
        except ConflictError:
            snapshot = await self._runtime.state(item.entity)
            if not snapshot.moved == snapshot.version == item.version + 1:
                raise
            return await send(expected=snapshot.version)

    async def _save_if_due(self, run: Run) -> None:
        saved_ms = run.job.noted_ms
        if saved_ms is not None and abs(self._runtime.clock.now_ms() - saved_ms) >= SAVE_INTERVAL_MS:
            await self._save(run)

    async def _save(self, run: Run, page: JobPage | None = None) -> None:
        """Save the progress of a durable job, after a pause if it is paused. Raises JobTakenOver, UnavailableError."""
        if not run.job.stored:
            return
        while True:  # ends with the first save
            await run.going.wait()
            async with run.lock:
                if run.going.is_set():  # a user may have paused it while the lock was awaited
                    await self._save_now(run, page)
                    return

    async def _save_now(self, run: Run, page: JobPage | None) -> None:
        samples = len(run.job.samples) + len(run.job.problems)
        save = partial(
            self._jobs.save_progress,
            run.job,
            owner=run.owner,
            page=page,
            position=run.position,
            with_samples=samples != run.samples_saved,
        )
        await self._retry_unavailable(save)
        run.samples_saved = samples

    async def _retry_unavailable(self, call: Callable[[], Awaitable[T]]) -> T:
        """Call until the store is available. Raises UnavailableError when the retries are used up."""
        clock = self._runtime.clock
        for failures in range(STORE_RETRIES_MAX):
            try:
                return await call()
            except UnavailableError:
                await clock.sleep_ms(_STORE_RETRY.wait_ms(failures, clock.jitter()))
        return await call()

"""The queue in front of a PostgreSQL server: it takes what arrived, keeps it in one statement, then answers.

Rule 1: a batch is what arrived during the last flush; no delay is ever added. One step alone takes the scalar
statement, several take the one for many. At most `FLIGHTS_MAX` statements are under way.
Rule 2: of one entity one step is under way; the next waits until it is answered, and builds on it.
Rule 3: a lost swap or a known key is that caller's answer only; so is a value that cannot be kept: the batch is halved
until it stands alone.
Rule 4: after a lost connection nobody knows what became of the statement. It is sent again, byte for byte: if it was
kept, the swap fails and its own record is found under the key. Nothing is ever answered from a guess, and nothing that
was only read before the standbys have it that a commit waits for (`postgres_standbys`).
Rule 5: whatever happens here, every waiting caller gets an answer.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine, Iterator
from copy import copy
from typing import Any

import asyncpg  # type: ignore[import-untyped]  # see postgres_connect

from interlock.errors import InterlockError, InternalError, UnavailableError
from interlock.model.backoff import Backoff
from interlock.model.codec import encode
from interlock.ports.clock import SystemClock
from interlock.ports.store import Append, Appended, Conflict, Duplicate, StaleAttempt
from interlock.stores.postgres.commit import (
    COMMIT_CREATIONS,
    COMMIT_CREATIONS_WITH_WORK,
    COMMIT_STEP,
    COMMIT_STEP_WITH_LISTS,
    COMMIT_STEP_WITH_WORK,
    COMMIT_STEPS,
    COMMIT_STEPS_WITH_LISTS,
    COMMIT_STEPS_WITH_WORK,
    SELECT_ATTEMPTS,
    SELECT_RECORD,
    SELECT_TIPS,
    PreparedStep,
    prepare_step,
    values_of_step,
    values_of_steps,
    values_with_work,
)
from interlock.stores.postgres.connection import (
    CONNECTION_LOST,
    Connection,
    is_bad_value,
    is_lost,
    is_retryable,
    sqlstate,
    translate_error,
)
from interlock.stores.postgres.maintenance import create_partitions, delete_expired_keys
from interlock.stores.postgres.pool import ConnectionPool
from interlock.stores.postgres.standbys import UNCONFIRMED
from interlock.stores.postgres.statements import STATEMENTS
from interlock.stores.postgres.statistics import StatisticsWriter
from interlock.stores.sql.commit_plan import JournalTip, split_entity, tip_of_new_entity
from interlock.stores.sql.key_retention import KeyRetention

BATCH_STEPS_MAX = 512
"""Steps of one statement: beyond it a statement only takes longer, and so do the receipts of its first steps."""

BATCH_BYTES_MAX = 4_194_304
"""Bytes of the records and snapshots of one statement: both ends hold it whole, more than once."""

FLIGHTS_MAX = 2
"""Statements under way: one is flushed while the next is made; with four, batches get small and slow."""

QUEUE_MAX = 4_096
"""Steps waiting: about a tenth of a second of work; beyond it callers are told to come back."""

TIPS_MAX = 20_000
"""Tips kept in memory, half a KiB each. One that is missing costs a question."""

TRIES_MAX = 7
"""How often a statement is sent before its callers hear that the store is not available."""

RETRY = Backoff(20, 1_000)
"""The waits between tries: together about two seconds, in which a server can restart."""

UPKEEP_SECONDS = 3_600.0
"""How often partitions are made ahead and old keys forgotten: there are weeks of time for it."""


Answer = Appended | Duplicate | Conflict | StaleAttempt


class PendingCommit:
    """A caller: what it wants kept, the bytes of its snapshot, and where it waits for the answer."""

    __slots__ = ("append", "future", "in_doubt", "ready", "snapshot")

    def __init__(self, append: Append, future: asyncio.Future[Answer]) -> None:
        self.append = append
        self.snapshot = encode(append.snapshot)
        self.future = future
        self.ready: PreparedStep | None = None
        self.in_doubt = False

    def answer(self, answer: Answer) -> None:
        """Tell the caller, unless it went away: the step is kept all the same."""
        if not self.future.done():
            self.future.set_result(answer)

    def fail(self, error: InterlockError) -> None:
        """Tell the caller why not, unless it was told already."""
        if not self.future.done():
            self.future.set_exception(error)


class Writer:
    """The steps of one event loop on their way to the server."""

    def __init__(self, link: ConnectionPool, statistics: StatisticsWriter) -> None:
        self._link = link
        self._statistics = statistics
        self._address = link.address
        self._tenant = link.address.tenant
        self._ready: deque[PendingCommit] = deque()
        self._held: dict[str, deque[PendingCommit]] = {}
        self._waiting = 0
        self._flights: set[asyncio.Task[None]] = set()
        self._chores: set[asyncio.Task[None]] = set()
        alone = link.address.commit == "one"
        self._flights_max = link.address.connections if alone else min(FLIGHTS_MAX, link.address.connections)
        self._batch_max = 1 if alone else BATCH_STEPS_MAX
        self._tips: dict[str, JournalTip] = {}
        self._launching = False
        self._clock = SystemClock()
        self._upkeep_at = link.loop.time() + UPKEEP_SECONDS
        self._newest_ms = 0
        self._key_retention = KeyRetention(STATEMENTS, self._tenant)
        self.splits = 0

    def submit(self, append: Append) -> asyncio.Future[Answer]:
        """Queue a step. Raises UnavailableError when the queue is full."""
        if self._waiting >= QUEUE_MAX:
            raise UnavailableError(f"{QUEUE_MAX:,} steps are waiting already", code="store.queue")
        waiting = PendingCommit(append, self._link.loop.create_future())
        self._waiting += 1
        behind = self._held.get(append.entity)
        if behind is not None:
            behind.append(waiting)
            return waiting.future
        self._held[append.entity] = deque()
        self._ready.append(waiting)
        self._launch_soon()
        return waiting.future

    def remember_tip(self, entity: str, tip: JournalTip) -> None:
        """Remember where an entity's journal ends, so that its next step need not ask."""
        self._tips.pop(entity, None)
        self._tips[entity] = tip
        if len(self._tips) > TIPS_MAX:
            del self._tips[next(iter(self._tips))]

    async def drain(self) -> None:
        """Wait until every caller is answered."""
        while self._ready or self._flights or self._chores:
            self._launch()
            await asyncio.wait(self._flights | self._chores)

    # Flights

    def _launch_soon(self) -> None:
        # At the end of this turn of the loop, so that all that is sent in one turn goes together.
        if not self._launching and len(self._flights) < self._flights_max:
            self._launching = True
            self._link.loop.call_soon(self._launch)

    def _launch(self) -> None:
        self._launching = False
        while self._ready and len(self._flights) < self._flights_max:
            batch = [self._ready.popleft() for _ in range(min(len(self._ready), self._batch_max))]
            self._start(self._fly(batch), self._flights)
        if self._link.loop.time() >= self._upkeep_at:
            self._upkeep_at = self._link.loop.time() + UPKEEP_SECONDS
            self._start(self._keep_up(), self._chores)

    def _start(self, work: Coroutine[Any, Any, None], under_way: set[asyncio.Task[None]]) -> None:
        task = self._link.loop.create_task(work)
        under_way.add(task)
        task.add_done_callback(under_way.discard)

    async def _fly(self, batch: list[PendingCommit]) -> None:
        try:
            await self._written(batch)
        except (InterlockError, asyncpg.PostgresError, *CONNECTION_LOST) as error:
            self._fail(batch, translate_error(error, self._address))
        except Exception as error:  # noqa: BLE001 - whatever is wrong with the writer, nobody is left waiting
            self._fail(batch, InternalError(f"the writer failed: {error!r}", code="store.writer"))
        except BaseException:  # the event loop ends, and this task with it
            self._fail(batch, UnavailableError("the event loop ended meanwhile", code="store.closed"))
            raise
        finally:
            self._landed(batch)

    def _fail(self, batch: list[PendingCommit], failure: InterlockError) -> None:
        for each in batch:
            each.fail(copy(failure))  # each caller raises its own

    def _landed(self, batch: list[PendingCommit]) -> None:
        """Let the next step of each entity go."""
        for each in batch:
            self._waiting -= 1
            behind = self._held[each.append.entity]
            if behind:
                self._ready.append(behind.popleft())
            else:
                del self._held[each.append.entity]
        current = asyncio.current_task()
        if current is not None:
            self._flights.discard(current)
        if self._ready:
            self._launch_soon()

    async def _keep_up(self) -> None:
        """Each by itself: what one lacks a right for is no reason to leave the other."""
        for chore in (lambda each: delete_expired_keys(each, self._key_retention, self._newest_ms), create_partitions):
            try:
                async with self._link.connection() as connection:
                    await chore(connection)
            except (InterlockError, asyncpg.PostgresError, *CONNECTION_LOST):
                continue  # in an hour again; meanwhile the partition for everything else takes what comes

    # One batch

    async def _written(self, batch: list[PendingCommit]) -> None:
        """Answer every caller of a batch, or raise what all that are left are told."""
        known: list[PendingCommit] = []
        unknown: list[PendingCommit] = []
        for each in batch:
            (known if self._prepare(each, self._tip(each.append)) else unknown).append(each)
        if unknown:
            known += await self._looked_up(unknown)
        known.sort(key=lambda each: split_entity(each.append.entity))  # all writers lock in this order
        for chunk in chunks([each for each in known if not each.future.done()]):
            await self._kept(chunk)

    def _tip(self, append: Append) -> JournalTip | None:
        if append.expected == 0:
            return tip_of_new_entity(append.entity, self._tenant)
        return self._tips.pop(append.entity, None)

    def _prepare(self, waiting: PendingCommit, tip: JournalTip | None) -> bool:
        """Make a step ready on this tip; False when it is none of the version that the step was computed on."""
        if tip is None or tip.version != waiting.append.expected:
            return False
        try:
            waiting.ready = prepare_step(waiting.append, waiting.snapshot, tip)
        except InterlockError as error:
            waiting.fail(error)
        return True

    async def _kept(self, chunk: list[PendingCommit]) -> None:
        """Send a statement until each of its steps is answered, or tries are used up."""
        failure: InterlockError = UnavailableError(f"{self._address.place}: swaps do not end", code="store.busy")
        for attempt in range(TRIES_MAX):
            try:
                chunk = await self._sent(chunk)
                chunk = await self._looked_up(chunk) if chunk else []
            except UnavailableError as error:
                if error.code == UNCONFIRMED:
                    raise  # it was waited for as long as a commit may take, and whoever asks again waits again
                failure = error
            except (asyncpg.PostgresError, *CONNECTION_LOST) as error:
                if is_bad_value(error):
                    await self._halved(chunk, error)
                    return
                if not is_lost(error) and not is_retryable(error):
                    raise
                failure = translate_error(error, self._address)
                for each in chunk:
                    each.in_doubt = each.in_doubt or is_lost(error)
            if not chunk:
                return
            await self._clock.sleep_ms(RETRY.wait_ms(attempt, self._clock.jitter()))
        raise failure

    async def _halved(self, chunk: list[PendingCommit], error: BaseException) -> None:
        """Find the step that cannot be kept; the others are."""
        if len(chunk) == 1:
            what = f"{type(error).__name__}, {sqlstate(error)}"  # its text may quote whole payloads
            chunk[0].fail(InternalError(f"a step could not be written: {what}", code="store.unwritable"))
            return
        self.splits += 1
        middle = len(chunk) // 2
        await self._kept(chunk[:middle])
        await self._kept(chunk[middle:])

    async def _sent(self, chunk: list[PendingCommit]) -> list[PendingCommit]:
        """Send one statement, and answer those that it kept; the others."""
        batch = [each.ready for each in chunk if each.ready is not None]
        assert len(batch) == len(chunk), "a step was not made ready"
        assert len({each.append.entity for each in chunk}) == len(chunk), "an entity stands twice in a batch"
        statement, values = self._statement(batch, created=chunk[0].append.expected == 0)
        async with self._link.connection() as connection:
            rows = await connection.fetch(statement, *values)
        numbers = {row[0] for row in rows}
        missing = []
        for n, each in enumerate(chunk, start=1):
            if n in numbers:
                self._acknowledge(each)
            else:
                missing.append(each)
        return missing

    def _statement(self, batch: list[PreparedStep], *, created: bool) -> tuple[str, tuple[Any, ...]]:
        """The shortest statement that keeps these steps, with its values."""
        tenant = self._tenant
        worked = any(each.work is not None for each in batch)
        listed = any(each.changes is not None for each in batch)
        if created and worked:
            return COMMIT_CREATIONS_WITH_WORK, values_with_work(tenant, batch, has_fences=False)
        if created:
            return COMMIT_CREATIONS, values_of_steps(tenant, batch, has_lists=True)
        if len(batch) == 1 and self._address.commit != "group" and not batch[0].is_fenced:
            alone = COMMIT_STEP_WITH_WORK if worked else COMMIT_STEP_WITH_LISTS if listed else COMMIT_STEP
            return alone, values_of_step(tenant, batch[0])
        if worked:
            return COMMIT_STEPS_WITH_WORK, values_with_work(tenant, batch, has_fences=True)
        return COMMIT_STEPS_WITH_LISTS if listed else COMMIT_STEPS, values_of_steps(tenant, batch, has_lists=listed)

    def _acknowledge(self, waiting: PendingCommit) -> None:
        assert waiting.ready is not None
        plan = waiting.ready.plan
        self.remember_tip(waiting.append.entity, plan.tip)
        self._newest_ms = max(self._newest_ms, waiting.append.entry.event.time_ms)
        self._statistics.count_step(plan)
        waiting.answer(Appended(plan.tip.version, plan.tip.head))

    async def _looked_up(self, unknown: list[PendingCommit]) -> list[PendingCommit]:
        """Ask what is known of entities and keys; answer duplicates and conflicts, make the others ready."""
        names = [(*split_entity(each.append.entity), each.append.entry.key) for each in unknown]
        columns = [list(column) for column in zip(*names, strict=True)]

        async def tips(connection: Connection) -> list[Any]:
            rows = await connection.fetch(SELECT_TIPS, self._tenant, *columns)
            if any(row[8] is not None and row[9] for row in rows):  # once for all of them
                await self._link.standbys.confirm(connection)
            return rows

        rows = await self._link.ask_with_retry(tips)
        again: list[PendingCommit] = []
        for row in sorted(rows, key=lambda each: int(each[0])):
            waiting, kept = unknown[row[0] - 1], row[8]
            version = row[1] or 0
            if kept is not None:
                await self._answer_known(waiting, kept)
            elif version != waiting.append.expected:
                self._statistics.count_conflict(waiting.append)
                waiting.answer(Conflict(version))
            else:
                tip = JournalTip(*row[1:8]) if version else tip_of_new_entity(waiting.append.entity, self._tenant)
                self._prepare(waiting, tip)
                again.append(waiting)
        return await self._still_held(again)

    async def _still_held(self, steps: list[PendingCommit]) -> list[PendingCommit]:
        """Answer those whose fence is down: the work that they answer is gone, or in newer hands. The others."""
        fenced = [each for each in steps if each.append.fence is not None]
        if not fenced:
            return steps
        names = [
            (*split_entity(each.append.entity), place.lane, place.version, place.ordinal)
            for each in fenced
            if each.append.fence is not None
            for place in (each.append.fence[0],)
        ]
        columns = [list(column) for column in zip(*names, strict=True)]
        rows = await self._link.ask_with_retry(
            lambda connection: connection.fetch(SELECT_ATTEMPTS, self._tenant, *columns)
        )
        newest = {id(fenced[n - 1]): attempts for n, attempts in rows}
        left: list[PendingCommit] = []
        for each in steps:
            fence = each.append.fence
            if fence is None or newest[id(each)] == fence[1]:
                left.append(each)
            else:
                each.answer(StaleAttempt(each.append.expected))
        return left

    async def _answer_known(self, waiting: PendingCommit, kept: int) -> None:
        """A key that is kept: by this very step, when its statement was in doubt and the record is its own."""
        ready = waiting.ready
        if waiting.in_doubt and ready is not None and kept == waiting.append.entry.version:
            name = split_entity(waiting.append.entity)
            line = await self._link.ask_with_retry(
                lambda connection: connection.fetchval(SELECT_RECORD, self._tenant, *name, kept)
            )
            if line == ready.plan.record.line:
                self._acknowledge(waiting)
                return
        waiting.answer(Duplicate(kept))


def chunks(steps: list[PendingCommit]) -> Iterator[list[PendingCommit]]:
    """Creations and other steps apart, each in pieces of at most so many bytes."""
    for created in (True, False):
        chunk: list[PendingCommit] = []
        size = 0
        for each in steps:
            if (each.append.expected == 0) is not created or each.ready is None:
                continue
            if chunk and size + each.ready.size > BATCH_BYTES_MAX:
                yield chunk
                chunk, size = [], 0
            chunk.append(each)
            size += each.ready.size
        if chunk:
            yield chunk

"""The queue in front of a PostgreSQL server: it takes what arrived, commits it in one statement, then answers.

Rule 1: a batch is what arrived during the last flush; no delay is ever added. A single step takes the scalar statement,
several take the one for many. At most `STATEMENTS_MAX` statements are in progress.
Rule 2: only one step of an entity is in progress; the next one waits for its answer, and builds on it.
Rule 3: a conflict or a duplicate concerns its own caller only; so does a value that cannot be stored: the batch is
halved until that step is alone.
Rule 4: after a lost connection it is unknown whether the statement was committed. It is sent again, byte for byte: if
it was committed, the swap fails and its own record is found under the key. An answer is never a guess, and an answer
from a read waits until the synchronous standbys have it (`standbys`).
Rule 5: whatever happens here, every waiting caller gets an answer.
Rule 6: a statement contains either creations or other steps, and at most `BATCH_BYTES_MAX` of them.
Rule 7: a step whose entity another transaction has locked leaves its batch and waits apart, for `BUSY_MS_MAX` at most:
a transaction of a caller (`join`) may hold a row for long, and steps of other entities do not wait for it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from copy import copy
from typing import Any

import asyncpg  # type: ignore[import-untyped]  # see `connection`

from interlock.errors import InterlockError, InternalError, UnavailableError
from interlock.model.backoff import Backoff
from interlock.ports.clock import SystemClock
from interlock.ports.store import Append, Appended, Conflict, Duplicate, Pruned, StaleAttempt
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
    SELECT_CREATED_ELSEWHERE,
    SELECT_GENERATION,
    SELECT_PRUNED,
    SELECT_RECORD,
    SELECT_TIPS,
    KeptFields,
    PreparedStep,
    prepare_step,
    values_of_step,
    values_of_steps,
    values_with_work,
)
from interlock.stores.postgres.connection import (
    CONNECTION_LOST,
    LOCK_TIMEOUT,
    OTHER_GENERATION,
    Connection,
    is_bad_value,
    is_lost,
    is_retryable,
    run_questions,
    sqlstate,
    translate_error,
)
from interlock.stores.postgres.maintenance import create_partitions, delete_expired_keys, merge_counts
from interlock.stores.postgres.pool import ConnectionPool
from interlock.stores.postgres.standbys import UNCONFIRMED
from interlock.stores.postgres.statements import STATEMENTS
from interlock.stores.postgres.statistics import StatisticsWriter
from interlock.stores.sql.commit_plan import JournalTip, split_entity, tip_of_new_entity
from interlock.stores.sql.database import SqlAppendResult
from interlock.stores.sql.expired_keys import ExpiredKeys
from interlock.stores.sql.field_index import indexed_fields

BATCH_STEPS_MAX = 512
"""Steps of one statement: with more it only takes longer, and so do the receipts of its first steps."""

BATCH_BYTES_MAX = 4_194_304
"""Bytes of the records and snapshots of one statement: client and server keep several copies of it in memory."""

STATEMENTS_MAX = 2
"""Statements in progress: one is flushed while the next is prepared; with four, batches get small and slow."""

QUEUE_MAX = 4_096
"""Steps that wait: about a tenth of a second of work; beyond it callers get an UnavailableError."""

TIPS_MAX = 20_000
"""Journal tips in memory, half a KiB each. A missing one costs a query."""

NO_FIELDS = KeptFields(0, {})

TRIES_MAX = 7
"""How often a statement is sent before its callers get an UnavailableError."""

RETRY = Backoff(20, 1_000)
"""The waits between tries: together about two seconds, in which a server can restart."""

BUSY_MS_MAX = 2_000
"""How long a step waits for an entity that another transaction has locked: as long as a lock of our own connections."""

BUSY_RETRY = Backoff(4, 100)
"""The waits between tries for such an entity: locks of our own are held for as long as a flush takes."""

MERGE_SECONDS = 10.0
"""How often the counters of joined transactions are merged: until then each query of counts adds them up."""

HOUSEKEEPING_SECONDS = 3_600.0
"""How often partitions are created ahead and expired keys deleted: there are weeks of time for it."""


class PendingCommit:
    """A caller: its append, and where it waits for the answer.

    A caller that was cancelled gets no answer; its step is committed all the same.
    """

    __slots__ = ("append", "busy_tries", "busy_until", "future", "is_apart", "is_in_doubt", "prepared")

    def __init__(self, append: Append, future: asyncio.Future[SqlAppendResult]) -> None:
        self.append = append
        self.future = future
        self.prepared: PreparedStep | None = None
        self.is_in_doubt = False
        self.is_apart = False
        self.busy_until: float | None = None
        self.busy_tries = 0

    def answer(self, answer: SqlAppendResult) -> None:
        """Answer the caller, unless it was cancelled."""
        if not self.future.done():
            self.future.set_result(answer)

    def fail(self, error: InterlockError) -> None:
        """Raise an error at the caller, unless it was answered or cancelled."""
        if not self.future.done():
            self.future.set_exception(error)


class Writer:
    """Commits the steps of one event loop."""

    def __init__(self, pool: ConnectionPool, statistics: StatisticsWriter) -> None:
        self._pool = pool
        self._statistics = statistics
        self._address = pool.address
        self._tenant = pool.address.tenant
        self._queue: deque[PendingCommit] = deque()
        self._behind: dict[str, deque[PendingCommit]] = {}  # by entity with a step in progress
        self._waiting = 0
        self._commits: set[asyncio.Task[None]] = set()
        self._pauses: set[asyncio.Task[None]] = set()
        self._housekeeping: set[asyncio.Task[None]] = set()
        is_single = pool.address.commit == "one"
        self._commits_max = pool.address.connections if is_single else min(STATEMENTS_MAX, pool.address.connections)
        self._batch_max = 1 if is_single else BATCH_STEPS_MAX
        self._tips: dict[str, JournalTip] = {}
        self._kept: KeptFields | None = None
        self._is_starting = False
        self._clock = SystemClock()
        self._housekeeping_at = pool.loop.time() + HOUSEKEEPING_SECONDS
        self._merge_at = 0.0
        self._newest_ms = 0
        self._expired_keys = ExpiredKeys(STATEMENTS, self._tenant)
        self.splits = 0

    def submit(self, append: Append) -> asyncio.Future[SqlAppendResult]:
        """Queue a step, and return the future of its answer. Raises UnavailableError when the queue is full."""
        if self._waiting >= QUEUE_MAX:
            raise UnavailableError(f"the queue is full: {QUEUE_MAX:,} steps are waiting", code="store.queue")
        waiting = PendingCommit(append, self._pool.loop.create_future())
        self._waiting += 1
        behind = self._behind.get(append.entity)
        if behind is not None:
            behind.append(waiting)
            return waiting.future
        self._behind[append.entity] = deque()
        self._queue.append(waiting)
        self._start_soon()
        return waiting.future

    def remember_tip(self, entity: str, tip: JournalTip) -> None:
        """Remember where an entity's journal ends, so that its next step needs no query."""
        self._tips.pop(entity, None)
        self._tips[entity] = tip
        if len(self._tips) > TIPS_MAX:
            del self._tips[next(iter(self._tips))]

    async def drain(self) -> None:
        """Wait until every caller has its answer."""
        while self._queue or self._commits or self._pauses or self._housekeeping:
            self._start_commits()
            await asyncio.wait(self._commits | self._pauses | self._housekeeping)

    # Statements in progress

    def _start_soon(self) -> None:
        # At the end of this round of the loop, so that callers of one round share a statement.
        if not self._is_starting and len(self._commits) < self._commits_max:
            self._is_starting = True
            self._pool.loop.call_soon(self._start_commits)

    def _start_commits(self) -> None:
        self._is_starting = False
        while self._queue and len(self._commits) < self._commits_max:
            batch = [self._queue.popleft() for _ in range(min(len(self._queue), self._batch_max))]
            self._create_task(self._commit(batch), self._commits)
        if self._pool.loop.time() >= self._housekeeping_at:
            self._housekeeping_at = self._pool.loop.time() + HOUSEKEEPING_SECONDS
            self._create_task(self._keep_house(), self._housekeeping)

    def _create_task(self, work: Coroutine[Any, Any, None], tasks: set[asyncio.Task[None]]) -> None:
        task = self._pool.loop.create_task(work)
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    async def _commit(self, batch: list[PendingCommit]) -> None:
        try:
            await self._answer_batch(batch)
        except (InterlockError, asyncpg.PostgresError, *CONNECTION_LOST) as error:
            self._fail(batch, translate_error(error, self._address))
        except Exception as error:  # noqa: BLE001 - rule 5
            self._fail(batch, InternalError(f"the writer failed: {error!r}", code="store.writer"))
        except BaseException:  # the event loop ends, and this task with it
            self._fail(batch, UnavailableError("the event loop ended", code="store.closed"))
            raise
        finally:
            self._finish(batch)

    def _fail(self, batch: list[PendingCommit], failure: InterlockError) -> None:
        for each in batch:
            if not each.is_apart:
                each.fail(copy(failure))  # each caller raises its own

    def _finish(self, batch: list[PendingCommit]) -> None:
        """Queue the next step of each entity, except of those whose step waits apart."""
        for each in batch:
            if each.is_apart:
                self._create_task(self._pause(each), self._pauses)
                continue
            self._waiting -= 1
            behind = self._behind[each.append.entity]
            if behind:
                self._queue.append(behind.popleft())
            else:
                del self._behind[each.append.entity]
        current = asyncio.current_task()
        if current is not None:
            self._commits.discard(current)
        if self._queue:
            self._start_soon()

    # Steps of entities that are locked

    def _set_apart(self, steps: list[PendingCommit]) -> None:
        """Let steps wait for their entities, which other transactions have locked, outside any batch."""
        now = self._pool.loop.time()
        for each in steps:
            if each.busy_until is None:
                each.busy_until = now + BUSY_MS_MAX / 1_000
            elif now >= each.busy_until:
                each.fail(locked_error(each.append.entity))
                continue
            each.is_apart = True  # it leaves with the others of its batch

    async def _pause(self, waiting: PendingCommit) -> None:
        """Wait, then queue a step again."""
        try:
            await self._clock.sleep_ms(BUSY_RETRY.wait_ms(waiting.busy_tries, self._clock.jitter()))
        except BaseException:  # the event loop ends, and this task with it
            waiting.fail(UnavailableError("the event loop ended", code="store.closed"))
            raise
        waiting.busy_tries += 1
        waiting.is_apart = False
        self._queue.append(waiting)
        self._start_soon()

    async def _without_created_elsewhere(self, chunk: list[PendingCommit]) -> list[PendingCommit]:
        """Set creations apart whose entity a transaction of a caller creates; return the others."""
        names = [split_entity(each.append.entity) for each in chunk]
        columns = [list(column) for column in zip(*names, strict=True)]
        rows = await self._pool.ask_with_retry(
            lambda connection: connection.fetch(SELECT_CREATED_ELSEWHERE, self._tenant, *columns)
        )
        busy = {row[0] for row in rows}
        self._set_apart([each for n, each in enumerate(chunk, start=1) if n in busy])
        return [each for n, each in enumerate(chunk, start=1) if n not in busy]

    async def _keep_house(self) -> None:
        """Delete expired keys and create partitions; a missing privilege for one does not stop the other."""
        for task in (
            lambda each: delete_expired_keys(each, self._expired_keys, self._newest_ms),
            create_partitions,
            lambda each: merge_counts(each, self._tenant),
        ):
            await self._try_housekeeping(task)  # if it fails, again in an hour

    def merge_counts_soon(self) -> None:
        """Merge the counters of joined transactions, unless that was done shortly before."""
        now = self._pool.loop.time()
        if now >= self._merge_at:
            self._merge_at = now + MERGE_SECONDS
            self._create_task(self._try_housekeeping(lambda each: merge_counts(each, self._tenant)), self._housekeeping)

    async def _try_housekeeping(self, task: Callable[[Connection], Awaitable[None]]) -> None:
        with contextlib.suppress(InterlockError, asyncpg.PostgresError, *CONNECTION_LOST):
            async with self._pool.connection() as connection:
                await task(connection)

    # One batch

    async def _answer_batch(self, batch: list[PendingCommit]) -> None:
        """Answer every caller of a batch, or raise the error of all that are left."""
        if self._kept is None:
            self._kept = await self._pool.ask_with_retry(self._kept_fields)
        known: list[PendingCommit] = []
        unknown: list[PendingCommit] = []
        for each in batch:
            is_known = each.prepared is not None or self._prepare(each, self._tip(each.append))
            (known if is_known else unknown).append(each)
        if unknown:
            known += await self._prepare_from_database(unknown)
        known.sort(key=lambda each: split_entity(each.append.entity))  # every writer locks in this order
        for chunk in split_batch([each for each in known if not each.future.done()]):
            await self._commit_chunk(chunk)

    def _tip(self, append: Append) -> JournalTip | None:
        if append.expected == 0:
            return tip_of_new_entity(append.entity, self._tenant)
        return self._tips.pop(append.entity, None)

    def _prepare(self, waiting: PendingCommit, tip: JournalTip | None) -> bool:
        """Prepare a step on this tip; False when the tip is missing or of another version than expected."""
        if tip is None or tip.version != waiting.append.expected:
            return False
        try:
            waiting.prepared = prepare_step(waiting.append, tip, self._kept or NO_FIELDS)
        except InterlockError as error:
            waiting.fail(error)
        return True

    async def _commit_chunk(self, chunk: list[PendingCommit]) -> None:
        """Send a statement until each of its steps is answered, or the tries are used up."""
        failure: InterlockError = UnavailableError(
            f"{self._address.place}: too many conflicts with other writers", code="store.busy"
        )
        for attempt in range(TRIES_MAX):
            try:
                chunk = await self._send(chunk)
                chunk = await self._retryable(chunk) if chunk else []
            except UnavailableError as error:
                if error.code == UNCONFIRMED:
                    raise  # it took as long as a commit may; a caller that retries waits again
                failure = error
            except (asyncpg.PostgresError, *CONNECTION_LOST) as error:
                if sqlstate(error) == OTHER_GENERATION:
                    chunk = await self._prepare_for_new_fields(chunk)
                    continue
                if is_bad_value(error):
                    await self._halve(chunk, error)
                    return
                if not is_lost(error) and not is_retryable(error):
                    raise
                failure = translate_error(error, self._address)
                for each in chunk:
                    each.is_in_doubt = each.is_in_doubt or is_lost(error)
                if sqlstate(error) == LOCK_TIMEOUT and chunk[0].append.expected == 0:
                    chunk = await self._without_created_elsewhere(chunk)
            if not chunk:
                return
            await self._clock.sleep_ms(RETRY.wait_ms(attempt, self._clock.jitter()))
        raise failure

    # Indexed fields

    async def _kept_fields(self, connection: Connection) -> KeptFields:
        """Return the fields whose keys steps write. The generation is read first: the fields may only be newer."""
        generation = await connection.fetchval(SELECT_GENERATION, self._tenant)
        return KeptFields(generation, await run_questions(connection, indexed_fields(STATEMENTS, self._tenant)))

    async def _prepare_for_new_fields(self, chunk: list[PendingCommit]) -> list[PendingCommit]:
        """Prepare steps again, on the same tips, for the fields that are indexed now."""
        kept = self._kept = await self._pool.ask_with_retry(self._kept_fields)
        for each in chunk:
            if each.prepared is not None:
                try:
                    each.prepared = prepare_step(each.append, each.prepared.plan.before, kept)
                except InterlockError as error:
                    each.fail(error)
        return [each for each in chunk if not each.future.done()]

    async def _halve(self, chunk: list[PendingCommit], error: BaseException) -> None:
        """Find the step that cannot be stored, and commit the others."""
        if len(chunk) == 1:
            what = f"{type(error).__name__}, {sqlstate(error)}"  # the text may quote whole payloads
            chunk[0].fail(InternalError(f"cannot write the step: {what}", code="store.unwritable"))
            return
        self.splits += 1
        middle = len(chunk) // 2
        await self._commit_chunk(chunk[:middle])
        await self._commit_chunk(chunk[middle:])

    async def _send(self, chunk: list[PendingCommit]) -> list[PendingCommit]:
        """Send one statement, answer the steps that it committed, and return the others."""
        if len({each.prepared.generation for each in chunk if each.prepared is not None}) > 1:
            chunk = await self._prepare_for_new_fields(chunk)
        if not chunk:
            return []
        batch = [each.prepared for each in chunk if each.prepared is not None]
        assert len(batch) == len(chunk), "a step was not prepared"
        assert len({each.append.entity for each in chunk}) == len(chunk), "an entity occurs twice in a batch"
        statement, values = self._statement(batch, are_new=chunk[0].append.expected == 0)
        async with self._pool.connection() as connection:
            rows = await connection.fetch(statement, *values)
        numbers = {row[0] for row in rows}
        missing = []
        for n, each in enumerate(chunk, start=1):
            if n in numbers:
                self._acknowledge(each)
            else:
                missing.append(each)
        return missing

    async def _retryable(self, missing: list[PendingCommit]) -> list[PendingCommit]:
        """Answer steps that another writer preceded, set those apart whose entity is locked; return the others.

        An entity is locked when its row still has the version and the hash on which the step is computed.
        """
        sent_on = {id(each): each.prepared.plan.before for each in missing if each.prepared is not None}
        again: list[PendingCommit] = []
        locked: list[PendingCommit] = []
        for each in await self._prepare_from_database(missing):
            if each.prepared is not None and not each.future.done():
                is_same = each.prepared.plan.before == sent_on[id(each)]
                (locked if is_same else again).append(each)
        self._set_apart(await self._without_pruned(locked))
        return again

    async def _without_pruned(self, locked: list[PendingCommit]) -> list[PendingCommit]:
        """Answer creations of entities that were pruned; return the others."""
        created = [each for each in locked if each.append.expected == 0]
        if not created:
            return locked
        names = [split_entity(each.append.entity) for each in created]
        columns = [list(column) for column in zip(*names, strict=True)]
        rows = await self._pool.ask_with_retry(
            lambda connection: connection.fetch(SELECT_PRUNED, self._tenant, *columns)
        )
        for n, version in rows:
            created[n - 1].answer(Pruned(version))
        return [each for each in locked if not each.future.done()]

    def _statement(self, batch: list[PreparedStep], *, are_new: bool) -> tuple[str, tuple[Any, ...]]:
        """Return the shortest statement that commits these steps, with its values."""
        tenant = self._tenant
        has_work = any(each.work is not None for each in batch)
        has_lists = any(each.has_lists for each in batch)
        if are_new and has_work:
            return COMMIT_CREATIONS_WITH_WORK, values_with_work(tenant, batch, has_fences=False)
        if are_new:
            return COMMIT_CREATIONS, values_of_steps(tenant, batch, has_lists=True)
        if len(batch) == 1 and self._address.commit != "group" and not batch[0].is_fenced:
            single = COMMIT_STEP_WITH_WORK if has_work else COMMIT_STEP_WITH_LISTS if has_lists else COMMIT_STEP
            return single, values_of_step(tenant, batch[0])
        if has_work:
            return COMMIT_STEPS_WITH_WORK, values_with_work(tenant, batch, has_fences=True)
        return COMMIT_STEPS_WITH_LISTS if has_lists else COMMIT_STEPS, values_of_steps(
            tenant, batch, has_lists=has_lists
        )

    def _acknowledge(self, waiting: PendingCommit) -> None:
        assert waiting.prepared is not None
        plan = waiting.prepared.plan
        self.remember_tip(waiting.append.entity, plan.tip)
        self._newest_ms = max(self._newest_ms, waiting.append.entry.event.time_ms)
        self._statistics.count_step(plan)
        waiting.answer(Appended(plan.tip.version, plan.tip.head))

    async def _prepare_from_database(self, unknown: list[PendingCommit]) -> list[PendingCommit]:
        """Query tips and keys; answer duplicates and conflicts, prepare and return the others."""
        names = [(*split_entity(each.append.entity), each.append.entry.key) for each in unknown]
        columns = [list(column) for column in zip(*names, strict=True)]

        async def tips(connection: Connection) -> list[Any]:
            rows = await connection.fetch(SELECT_TIPS, self._tenant, *columns)
            if any(row[8] is not None and row[9] for row in rows):  # one confirmation for all
                await self._pool.standbys.confirm(connection)
            return rows

        rows = await self._pool.ask_with_retry(tips)
        again: list[PendingCommit] = []
        for row in sorted(rows, key=lambda each: int(each[0])):
            waiting, known_version = unknown[row[0] - 1], row[8]
            version = row[1] or 0
            if known_version is not None:
                await self._answer_duplicate(waiting, known_version)
            elif version < 0:
                waiting.answer(Pruned(-version))
            elif version != waiting.append.expected:
                self._statistics.count_conflict(waiting.append)
                waiting.answer(Conflict(version))
            else:
                tip = JournalTip(*row[1:8]) if version else tip_of_new_entity(waiting.append.entity, self._tenant)
                self._prepare(waiting, tip)
                again.append(waiting)
        return await self._check_fences(again)

    async def _check_fences(self, steps: list[PendingCommit]) -> list[PendingCommit]:
        """Answer steps whose attempt is no longer the newest, or whose work no longer exists; return the others."""
        fenced = [each for each in steps if each.append.fence is not None]
        if not fenced:
            return steps
        names = [
            (*split_entity(each.append.entity), work_id.lane, work_id.version, work_id.ordinal)
            for each in fenced
            if each.append.fence is not None
            for work_id in (each.append.fence[0],)
        ]
        columns = [list(column) for column in zip(*names, strict=True)]
        rows = await self._pool.ask_with_retry(
            lambda connection: connection.fetch(SELECT_ATTEMPTS, self._tenant, *columns)
        )
        newest = {id(fenced[n - 1]): attempts for n, attempts in rows}
        valid: list[PendingCommit] = []
        for each in steps:
            fence = each.append.fence
            if fence is None or newest[id(each)] == fence[1]:
                valid.append(each)
            else:
                each.answer(StaleAttempt(each.append.expected))
        return valid

    async def _answer_duplicate(self, waiting: PendingCommit, kept: int) -> None:
        """Answer a used key: with `Appended` when this very step used it, in a statement whose answer was lost."""
        prepared = waiting.prepared
        if waiting.is_in_doubt and prepared is not None and kept == waiting.append.entry.version:
            name = split_entity(waiting.append.entity)
            line = await self._pool.ask_with_retry(
                lambda connection: connection.fetchval(SELECT_RECORD, self._tenant, *name, kept)
            )
            if line == prepared.plan.line:
                self._acknowledge(waiting)
                return
        waiting.answer(Duplicate(kept))


def locked_error(entity: str) -> UnavailableError:
    """Return the error for an entity whose row another transaction holds."""
    hint = "retry later with the same key; look for a long transaction that joined a send of this entity"
    return UnavailableError(f"`{entity}` is locked by another transaction", code="store.busy", hint=hint)


def split_batch(steps: list[PendingCommit]) -> Iterator[list[PendingCommit]]:
    """Yield creations and other steps separately, in pieces of at most `BATCH_BYTES_MAX`."""
    for are_new in (True, False):
        chunk: list[PendingCommit] = []
        size = 0
        for each in steps:
            if (each.append.expected == 0) is not are_new or each.prepared is None:
                continue
            if chunk and size + each.prepared.size > BATCH_BYTES_MAX:
                yield chunk
                chunk, size = [], 0
            chunk.append(each)
            size += each.prepared.size
        if chunk:
            yield chunk

"""The queue in front of a SQLite file, and the thread that empties it: it commits what arrived, then answers.

Rule 1: a batch is what arrived during the last COMMIT, or in one round of an event loop; nothing else is waited for.
Receipts are sent after COMMIT returned.
Rule 2: a caller that comes alone to a fast disk (`InlinePolicy`) commits its step itself, between two batches: the hop
to the thread would cost more than the flush.
Rule 3: whatever happens to the thread, every waiting caller gets an answer.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable
from copy import copy
from itertools import chain
from pathlib import Path
from threading import Lock, Thread
from typing import Any, NamedTuple, TypeVar

from interlock.errors import InterlockError, InternalError, UnavailableError
from interlock.model.audit import AuditRow
from interlock.model.limits import AUDIT_BATCH_ROWS_MAX
from interlock.ports.clock import Clock
from interlock.ports.store import Append
from interlock.ports.threads import start_thread, thread_future
from interlock.stores.sql.database import Questions, SqlAppendResult
from interlock.stores.sqlite.files import Connection
from interlock.stores.sqlite.writer import SqliteWriter
from interlock.stores.threads.wakeup import LoopEntryQueue, WakeupPipe

BATCH_STEPS_MAX = 256
"""Steps of one transaction: at 64 the flush is already a small part of the cost, and later callers wait for it."""

BATCH_BYTES_MAX = 4_194_304
"""Bytes of the snapshots of one transaction, which bounds the growth of the write-ahead log between checkpoints."""

QUEUE_MAX = 4_096
"""Steps that wait for the writer: about a tenth of a second of work; beyond it callers get an UnavailableError."""

IDLE_SECONDS = 1.0
"""Idle time after which the write-ahead log is copied into the file and truncated."""

T = TypeVar("T")
_Answered = tuple[asyncio.Future[Any], Any]
"""Who waits, and the answer or the error."""


class PendingCommit(NamedTuple):
    """A caller: its append, and where it waits for the answer."""

    append: Append
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[SqlAppendResult]


class WriteJob(NamedTuple):
    """Questions for the writer that are not a step, and who waits for the answer.

    `keeps_journals`: they change no journal and no entity, so the writer still knows where journals end.
    """

    questions: Callable[[], Questions[Any]]
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]
    keeps_journals: bool = False


class PendingAudit(NamedTuple):
    """Rows of the audit, and who waits until they are committed."""

    rows: tuple[AuditRow, ...]
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[None]


Pending = PendingCommit | WriteJob | PendingAudit
"""Who waits for the writer."""


class CommitQueue:
    """A queue in front of one connection, and the thread that empties it."""

    def __init__(self, connection: Connection, path: Path, tenant: str, *, clock: Clock | None = None) -> None:
        self.writer = SqliteWriter(connection, path, tenant, clock=clock)
        self.policy = self.writer.policy
        self.loops = LoopEntryQueue()
        self._steps: deque[PendingCommit] = deque()
        self._audit: deque[PendingAudit] = deque()
        self._jobs: deque[WriteJob] = deque()
        self._guard = Lock()
        self._wakeup = WakeupPipe()
        self._is_asleep = False
        self._waking: asyncio.AbstractEventLoop | None = None
        self._is_closing = False
        self._thread = Thread(target=self._run, name=f"interlock-{path.name}", daemon=True)

    def start(self) -> None:
        """Start the thread. Raises UnavailableError when the system refuses it; then the file is closed."""
        try:
            start_thread(self._thread)
        except BaseException:
            self._end()
            raise

    async def append(self, append: Append) -> SqlAppendResult:
        """Commit one step. Raises UnavailableError when the store is closed or poisoned, or the queue is full."""
        policy = self.policy
        with policy.guard:
            policy.running += 1
        try:
            if policy.is_quick:
                if policy.should_yield(time.perf_counter_ns()):
                    await asyncio.sleep(0)  # others first: callers that come together share a batch
                if policy.running == 1:
                    answer = self.append_inline(append)
                    if answer is not None:
                        return answer
            loop = asyncio.get_running_loop()
            future: asyncio.Future[SqlAppendResult] = thread_future(loop)
            self.loops.listen(loop)
            self.submit(PendingCommit(append, loop, future))
            return await future
        finally:
            with policy.guard:
                policy.running -= 1

    async def run(self, questions: Callable[[], Questions[T]], *, keeps_journals: bool = False) -> T:
        """Run questions in a transaction of the thread, and return their committed result. Raises as `append` does."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = thread_future(loop)
        self.loops.listen(loop)
        self.submit_job(WriteJob(questions, loop, future, keeps_journals))
        return await future

    def submit(self, step: PendingCommit) -> None:
        """Queue a step. Raises UnavailableError when the store is closed or poisoned, or the queue is full."""
        with self._guard:
            self.check()
            if len(self._steps) >= QUEUE_MAX:
                raise UnavailableError(f"the queue is full: {QUEUE_MAX:,} steps are waiting", code="store.queue")
            self._steps.append(step)
        self._wake_soon(step.loop)

    def submit_job(self, job: WriteJob) -> None:
        """Queue a job; it runs after the batch in progress. Raises as `submit` does."""
        with self._guard:
            self.check()
            if len(self._jobs) >= QUEUE_MAX:
                raise UnavailableError(f"the queue is full: {QUEUE_MAX:,} jobs are waiting", code="store.queue")
            self._jobs.append(job)
        self._wake_soon(job.loop)

    async def append_audit(self, rows: tuple[AuditRow, ...]) -> None:
        """Commit rows of the audit with the next batch. Raises as `append` does."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = thread_future(loop)
        self.loops.listen(loop)
        with self._guard:
            self.check()
            if len(self._audit) >= QUEUE_MAX:
                raise UnavailableError(f"the queue is full: {QUEUE_MAX:,} callers are waiting", code="store.queue")
            self._audit.append(PendingAudit(rows, loop, future))
        self._wake_soon(loop)
        await future

    def append_inline(self, append: Append) -> SqlAppendResult | None:
        """Commit a step in the thread of its caller; None when it must be submitted, and nothing was done.

        Raises as `submit` does, and the error of the step itself.
        """
        self.check()
        answer = self.writer.commit_inline(append)
        if not isinstance(answer, InterlockError):
            return answer
        if self.writer.poison is not None:
            self.give_up(answer)  # the thread closes the file
        raise copy(answer)

    def _wake_soon(self, loop: asyncio.AbstractEventLoop) -> None:
        """Wake the thread at the end of this round of the loop: callers of the same round share a batch.

        The first caller of a round does it for all callers of its loop. Another loop does not rely on this one.
        """
        if self._is_asleep and self._waking is not loop:
            self._waking = loop
            loop.call_soon(self._wake)

    def _wake(self) -> None:
        """Wake the thread if it sleeps; not under the guard, which it takes first. Twice does no harm."""
        self._waking = None
        if self._is_asleep:
            self._is_asleep = False
            self._wakeup.wake()

    def give_up(self, failure: InterlockError) -> None:
        """Accept no more steps: the file can no longer be trusted."""
        self.writer.poison = self.writer.poison or failure
        self._wakeup.wake()

    def check(self) -> None:
        """Raises UnavailableError once the store is closed or poisoned."""
        poison = self.writer.poison
        if poison is not None:
            message = f"the store stopped after an error: {poison.message}"
            raise UnavailableError(message, code="store.poisoned", hint="restart the process") from poison
        if self._is_closing:
            raise UnavailableError("the store is closed", code="store.closed")

    def close(self) -> None:
        """Accept no more steps, commit what is queued, end the thread. May be called again."""
        with self._guard:
            self._is_closing = True
        self._wakeup.wake()
        if self._thread.ident is not None:
            self._thread.join()
        self._wakeup.close()
        self.loops.close()

    # The thread

    def _run(self) -> None:
        steps: list[PendingCommit] = []
        jobs: list[WriteJob] = []
        audit: list[PendingAudit] = []
        try:
            while self._wait_for_work():
                steps, audit, jobs = self._take()
                answers, results, audit_error = self.writer.commit(
                    [each.append for each in steps],
                    [row for each in audit for row in each.rows],
                    [each.questions for each in jobs],
                    keeps_journals=all(each.keeps_journals for each in jobs),
                )
                self._answer(zip(steps, answers, strict=True))
                self._answer(zip(jobs, results, strict=True))
                self._answer((each, audit_error) for each in audit)
                steps, jobs, audit = [], [], []
                self.writer.checkpoint_if_long()
        except BaseException as error:  # noqa: BLE001 - whatever ends this thread, every caller gets an answer
            poison = self.writer.poison or InternalError(f"the writer thread failed: {error!r}", code="store.writer")
            self.writer.poison = poison
            self._answer((each, poison) for each in chain[Pending](steps, jobs, audit))
        finally:
            self._end()

    def _wait_for_work(self) -> bool:
        """Wait for something to write; False when the store closes and nothing is left, or is poisoned."""
        timeout: float | None = IDLE_SECONDS
        while True:
            with self._guard:
                if self.writer.poison is not None:
                    return False
                if self._has_work() or self._is_closing:
                    return self._has_work()
                self._is_asleep = True
            if self._wakeup.wait(timeout):  # a wake-up that was too late for its step only makes it look once more
                continue
            if self.writer.delete_expired_keys():
                timeout = 0.0  # more keys expired: continue, unless work arrived
                continue
            self.writer.write_statistics_and_truncate()  # without the guard: callers must not wait for a flush
            timeout = None

    def _has_work(self) -> bool:
        return bool(self._steps or self._audit or self._jobs)

    def _take(self) -> tuple[list[PendingCommit], list[PendingAudit], list[WriteJob]]:
        steps: list[PendingCommit] = []
        audit: list[PendingAudit] = []
        rows = 0
        room = BATCH_BYTES_MAX
        with self._guard:
            while self._steps and len(steps) < BATCH_STEPS_MAX and room > 0:
                steps.append(self._steps.popleft())
                room -= len(steps[-1].append.snapshot_json)
            jobs = list(self._jobs)
            self._jobs.clear()
            while self._audit and rows < AUDIT_BATCH_ROWS_MAX:
                audit.append(self._audit.popleft())
                rows += len(audit[-1].rows)
            return steps, audit, jobs

    def _answer(self, answers: Iterable[tuple[Pending, Any]]) -> None:
        """Answer every caller, with one signal per event loop."""
        by_loop: dict[asyncio.AbstractEventLoop, list[_Answered]] = {}
        for waiting, answer in answers:
            by_loop.setdefault(waiting.loop, []).append((waiting.future, answer))
        for loop, answered in by_loop.items():
            self.loops.call(loop, _resolve, answered)

    def _end(self) -> None:
        """Answer callers that came too late, then close the file."""
        with self._guard:
            self._is_closing = True
            waiting = list(chain[Pending](self._steps, self._jobs, self._audit))
            self._steps.clear()
            self._jobs.clear()
            self._audit.clear()
        failure = self.writer.poison or UnavailableError("the store is closed", code="store.closed")
        self._answer((each, failure) for each in waiting)
        self.writer.close()


def _resolve(answered: list[_Answered]) -> None:
    for future, answer in answered:
        if future.done():
            continue  # its caller was cancelled; the step is committed all the same
        if isinstance(answer, InterlockError):
            future.set_exception(copy(answer))  # each caller raises its own
        else:
            future.set_result(answer)

"""The queue in front of a SQLite file, and the thread that empties it: it writes what came in one transaction, and then
answers.

Rule 1: a batch is what arrived during the last COMMIT, or in one round of an event loop; nothing else is waited for.
Receipts go out after COMMIT returned.
Rule 2: a caller that comes alone may write its step itself (`append_at_once`), between two batches.
Rule 3: whatever happens to this thread, every waiting caller gets an answer.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from copy import copy
from pathlib import Path
from threading import Lock, Thread
from typing import NamedTuple

from interlock.errors import InterlockError, InternalError, UnavailableError
from interlock.ports.clock import Clock
from interlock.ports.store import Append, Refusal
from interlock.ports.threads import start_thread
from interlock.stores.sqlite.commit import Answer
from interlock.stores.sqlite.files import Connection
from interlock.stores.sqlite.maintenance import WriteJob, tell
from interlock.stores.sqlite.writer import SqliteWriter
from interlock.stores.threads.wakeup import LoopEntryQueue, WakeupPipe

BATCH_STEPS_MAX = 256
"""Steps of one transaction: at 64 the flush is already a small part of the cost, and later callers wait for it."""

BATCH_BYTES_MAX = 4_194_304
"""Bytes of the snapshots of one transaction, which bounds the write-ahead log's growth between checkpoints."""

QUEUE_MAX = 4_096
"""Steps waiting for the writer: about a tenth of a second of work; beyond it callers are told to come back."""

REFUSALS_MAX = 1_024
"""Refusals waiting for the writer; more are counted and dropped, because a flood of them must not hold up a step."""

IDLE_SECONDS = 1.0
"""Silence after which the write-ahead log is taken into the file and cut."""


class PendingCommit(NamedTuple):
    """A caller: what it wants kept, the bytes of its snapshot, and where it waits for the answer."""

    append: Append
    snapshot: bytes
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Answer]


class CommitQueue:
    """A queue in front of one connection, and the thread that empties it."""

    def __init__(self, connection: Connection, path: Path, tenant: str, *, clock: Clock | None = None) -> None:
        self.ledger = SqliteWriter(connection, path, tenant, clock=clock)
        self.loops = LoopEntryQueue()
        self._queue: deque[PendingCommit] = deque()
        self._refusals: deque[Refusal] = deque()
        self._refusals_dropped = 0
        self._chores: deque[WriteJob] = deque()
        self._guard = Lock()
        self._bell = WakeupPipe()
        self._asleep = False
        self._closing = False
        self._thread = Thread(target=self._run, name=f"interlock-{path.name}", daemon=True)

    def start(self) -> None:
        """Begin to write. Raises UnavailableError when the system refuses the thread; then the file is closed."""
        try:
            start_thread(self._thread)
        except BaseException:
            self._end()
            raise

    def submit(self, waiting: PendingCommit) -> None:
        """Queue a step. Raises UnavailableError when the store is closed or poisoned, or the queue is full."""
        with self._guard:
            self.check()
            if len(self._queue) >= QUEUE_MAX:
                raise UnavailableError(f"{QUEUE_MAX:,} steps are waiting already", code="store.queue")
            self._queue.append(waiting)
        self._wake_soon(waiting.loop)

    def append_at_once(self, append: Append, snapshot: bytes) -> Answer | None:
        """Keep a step in the thread of its caller; None where it has to be submitted, and nothing was done.

        Raises as `submit` does, and what the step is refused for.
        """
        self.check()
        answer = self.ledger.commit_at_once((append, snapshot))
        if not isinstance(answer, InterlockError):
            return answer
        if self.ledger.poison is not None:
            self.give_up(answer)  # the thread lets go of the file
        raise copy(answer)

    def submit_chore(self, chore: WriteJob) -> None:
        """Queue work that is no step; it is done after the batch under way. Raises as `submit` does."""
        with self._guard:
            self.check()
            if len(self._chores) >= QUEUE_MAX:
                raise UnavailableError(f"{QUEUE_MAX:,} releases are waiting already", code="store.queue")
            self._chores.append(chore)
        self._wake_soon(chore.loop)

    def refuse(self, refusals: Iterable[Refusal]) -> None:
        """Queue refusals; what does not fit is counted, and the count is kept as one row."""
        with self._guard:
            self.check()
            for refusal in refusals:
                if len(self._refusals) < REFUSALS_MAX:
                    self._refusals.append(refusal)
                else:
                    self._refusals_dropped += 1
        self._wake()

    def _wake_soon(self, loop: asyncio.AbstractEventLoop) -> None:
        """Wake the thread once those have come, too, who are about to in this round of the loop: they are one batch."""
        if self._asleep:
            loop.call_soon(self._wake)

    def _wake(self) -> None:
        """Ring for the thread if it sleeps; not under the guard, which it asks for first. Twice does no harm."""
        if self._asleep:
            self._asleep = False
            self._bell.ring()

    def give_up(self, failure: InterlockError) -> None:
        """Take nothing more: the file is not what it was."""
        self.ledger.poison = self.ledger.poison or failure
        self._bell.ring()

    def check(self) -> None:
        """Raises UnavailableError once the store is closed or poisoned."""
        poison = self.ledger.poison
        if poison is not None:
            message = f"the store gave up: {poison.message}"
            raise UnavailableError(message, code="store.poisoned", hint="start the process again") from poison
        if self._closing:
            raise UnavailableError("the store is closed", code="store.closed")

    def close(self) -> None:
        """Take no more, write what waits, end the thread. May be called again."""
        with self._guard:
            self._closing = True
        self._bell.ring()
        if self._thread.ident is not None:
            self._thread.join()
        self._bell.close()
        self.loops.close()

    # The thread

    def _run(self) -> None:
        batch: list[PendingCommit] = []
        chores: list[WriteJob] = []
        try:
            while self._await_work():
                batch, refusals, chores = self._taken()
                answers, done = self.ledger.commit(
                    [(each.append, each.snapshot) for each in batch], refusals, [each.work for each in chores]
                )
                self._answer(zip(batch, answers, strict=True))
                self._tell(zip(chores, done, strict=True))
                batch, chores = [], []
                self.ledger.checkpoint_if_long()
        except BaseException as error:  # noqa: BLE001 - whatever ends this thread, nobody is left waiting
            poison = self.ledger.poison or InternalError(f"the writer ended: {error!r}", code="store.writer")
            self.ledger.poison = poison
            self._answer((each, poison) for each in batch)
            self._tell((each, poison) for each in chores)
        finally:
            self._end()

    def _await_work(self) -> bool:
        """Wait for something to write; False when the store closes and nothing is left, or is poisoned."""
        patience: float | None = IDLE_SECONDS
        while True:
            with self._guard:
                if self.ledger.poison is not None:
                    return False
                if self._has_work() or self._closing:
                    return self._has_work()
                self._asleep = True
            if self._bell.wait(patience):  # a ring that came too late for its time only makes it look once more
                continue
            if self.ledger.purge():
                patience = 0.0  # more keys are old: go on, unless somebody has come
                continue
            self.ledger.leave_nothing()  # without the guard: callers must not wait for a flush
            patience = None

    def _has_work(self) -> bool:
        return bool(self._queue or self._refusals or self._chores)

    def _taken(self) -> tuple[list[PendingCommit], list[Refusal], list[WriteJob]]:
        batch: list[PendingCommit] = []
        room = BATCH_BYTES_MAX
        with self._guard:
            while self._queue and len(batch) < BATCH_STEPS_MAX and room > 0:
                batch.append(self._queue.popleft())
                room -= len(batch[-1].snapshot)
            refusals = list(self._refusals)
            self._refusals.clear()
            chores = list(self._chores)
            self._chores.clear()
            if self._refusals_dropped:
                last = refusals[-1]
                reason = f"{self._refusals_dropped} more"
                refusals.append(Refusal("", "", "dropped", reason, last.time_ms))
                self._refusals_dropped = 0
        return batch, refusals, chores

    def _answer(self, answers: Iterable[tuple[PendingCommit, Answer | InterlockError]]) -> None:
        """Tell every caller, with one signal per event loop."""
        by_loop: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[Answer], Answer | InterlockError]]] = {}
        for waiting, answer in answers:
            by_loop.setdefault(waiting.loop, []).append((waiting.future, answer))
        for loop, told in by_loop.items():
            self.loops.call(loop, _resolve, told)

    def _tell(self, done: Iterable[tuple[WriteJob, object]]) -> None:
        """Tell whoever waits for a chore; each raises its own copy of an error."""
        for chore, answer in done:
            tell(self.loops, chore, copy(answer) if isinstance(answer, InterlockError) else answer)

    def _end(self) -> None:
        """Answer whoever came too late, then let go of the file."""
        with self._guard:
            self._closing = True
            late = list(self._queue)
            self._queue.clear()
            chores = list(self._chores)
            self._chores.clear()
        failure = self.ledger.poison or UnavailableError("the store is closed", code="store.closed")
        self._answer((each, failure) for each in late)
        self._tell((each, failure) for each in chores)
        self.ledger.close()


def _resolve(told: list[tuple[asyncio.Future[Answer], Answer | InterlockError]]) -> None:
    for future, answer in told:
        if future.done():
            continue  # its caller was cancelled; the step is kept all the same
        if isinstance(answer, InterlockError):
            future.set_exception(copy(answer))  # each caller raises its own
        else:
            future.set_result(answer)

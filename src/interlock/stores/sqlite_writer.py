"""The one thread that writes to a SQLite file: it takes what arrived, writes it in one transaction, then answers.

Rule 1: a batch is what arrived during the last COMMIT, or in one round of an event loop; nothing else is waited for.
Receipts go out after COMMIT returned.
Rule 2: a step that loses its swap or repeats a key is that caller's answer only; so is a step that cannot be written.
Rule 3: a failed COMMIT acknowledges nobody. A full or busy disk is over when it is over; after an I/O error nothing
that this connection says can be believed, so it is closed and the store stays poisoned.
Rule 4: whatever happens to this thread, every waiting caller gets an answer.
Rule 5: only this thread checkpoints, and not beside another process's writer: `RESTART` and `TRUNCATE` take the write
lock first (and go on without it only when others hold it for `CHECKPOINT_BUSY_MS`), `PASSIVE` never does; SQLite before
3.51.3 can damage the file when a checkpoint and a write of two connections meet.
Rule 6: statistics are summed in memory and written at most once a `TALLY_MS`, with a batch or when nobody comes.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections import deque
from collections.abc import Iterable
from copy import copy
from pathlib import Path
from threading import Lock, Thread
from typing import NamedTuple

from interlock.errors import InterlockError, InternalError, UnavailableError
from interlock.ports.clock import Clock, SystemClock
from interlock.ports.store import Append, Refusal
from interlock.stores.bells import Bell, Loops
from interlock.stores.sqlite_batch import Answer, Counts, write_counts, write_refusals, write_steps
from interlock.stores.sqlite_connect import BUSY_MS_EACH, begin, poisons, translated
from interlock.stores.sqlite_sight import write_tally
from interlock.stores.sqlite_upkeep import PURGE_MAX, Chore, expired_before_ms, purge_keys, tell
from interlock.stores.sqlite_wal import Wal
from interlock.stores.tally import REFUSALS, Tally

BATCH_STEPS_MAX = 256
"""Steps of one transaction: at 64 the flush is already a small part of the cost, and later callers wait for it."""

BATCH_BYTES_MAX = 4_194_304
"""Bytes of the snapshots of one transaction, which bounds the write-ahead log's growth between checkpoints."""

QUEUE_MAX = 4_096
"""Steps waiting for the writer: about a tenth of a second of work; beyond it callers are told to come back."""

REFUSALS_MAX = 1_024
"""Refusals waiting for the writer; more are counted and dropped, because a flood of them must not hold up a step."""

WAL_BYTES_MAX = 8_388_608
"""Length of the write-ahead log that calls for a checkpoint: readers search it, and restarting reads it whole."""

CHECKPOINT_BUSY_MS = 100
"""How long a checkpoint waits for readers: it holds the write lock meanwhile, and can be done next time."""

IDLE_SECONDS = 1.0
"""Silence after which the write-ahead log is taken into the file and cut."""

TALLY_MS = 1_000
"""How long statistics are summed before they are written: pages lag by that, and steps do not pay for them."""

SAVEPOINT = "SAVEPOINT step"
RELEASE = "RELEASE step"
ROLLBACK_STEP = "ROLLBACK TO step"
COMMIT = "COMMIT"
ROLLBACK = "ROLLBACK"
BEGIN_NOW = "BEGIN IMMEDIATE"
CHECKPOINT_RESTART = "PRAGMA wal_checkpoint(RESTART)"
CHECKPOINT_TRUNCATE = "PRAGMA wal_checkpoint(TRUNCATE)"

ITS_OWN = (
    sqlite3.IntegrityError,
    sqlite3.DataError,
    sqlite3.ProgrammingError,
    sqlite3.InterfaceError,
    ValueError,
    TypeError,
    OverflowError,
)
"""Errors of a value that cannot be written; all others are of the connection."""


class Waiting(NamedTuple):
    """A caller: what it wants kept, the bytes of its snapshot, and where it waits for the answer."""

    append: Append
    snapshot: bytes
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Answer]


class Writer:
    """A queue in front of one connection, and the thread that empties it."""

    def __init__(self, connection: sqlite3.Connection, path: Path, tenant: str, *, clock: Clock | None = None) -> None:
        self._connection = connection
        self._path = path
        self._wal = Wal(path)
        self._tenant = tenant
        self._queue: deque[Waiting] = deque()
        self._refusals: deque[Refusal] = deque()
        self._refusals_dropped = 0
        self._chores: deque[Chore] = deque()
        self._clock = clock or SystemClock()
        self._newest_ms = 0
        self._tally = Tally()
        self._tally_ms = 0
        self._guard = Lock()
        self._bell = Bell()
        self._asleep = False
        self._closing = False
        self.loops = Loops()
        self._checkpoint_at = WAL_BYTES_MAX
        self._was_full = False
        self.poison: InterlockError | None = None
        self._thread = Thread(target=self._run, name=f"interlock-{path.name}", daemon=True)

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def submit(self, waiting: Waiting) -> None:
        """Queue a step. Raises UnavailableError when the store is closed or poisoned, or the queue is full."""
        with self._guard:
            self.check()
            if len(self._queue) >= QUEUE_MAX:
                raise UnavailableError(f"{QUEUE_MAX:,} steps are waiting already", code="store.queue")
            self._queue.append(waiting)
        self._wake_soon(waiting.loop)

    def submit_chore(self, chore: Chore) -> None:
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

    def check(self) -> None:
        """Raises UnavailableError once the store is closed or poisoned."""
        if self.poison is not None:
            message = f"the store gave up: {self.poison.message}"
            raise UnavailableError(message, code="store.poisoned", hint="start the process again") from self.poison
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
        batch: list[Waiting] = []
        chores: list[Chore] = []
        try:
            while self._await_work():
                batch, refusals, chores = self._taken()
                self._answer(self._written(batch, refusals, chores))
                batch, chores = [], []
                self._checkpoint_if_long()
                if self.poison is not None:
                    break
        except BaseException as error:  # noqa: BLE001 - whatever ends this thread, nobody is left waiting
            self.poison = self.poison or InternalError(f"the writer ended: {error!r}", code="store.writer")
            self._answer([(each, self.poison) for each in batch])
            for chore in chores:
                tell(self.loops, chore, copy(self.poison))
        finally:
            self._end()

    def _await_work(self) -> bool:
        """Wait for steps or refusals; False when the store closes and nothing is left."""
        patience: float | None = IDLE_SECONDS
        while True:
            with self._guard:
                if self._has_work() or self._closing:
                    return self._has_work()
                self._asleep = True
            if self._bell.wait(patience):  # a ring that came too late for its time only makes it look once more
                continue
            if self._purged():
                patience = 0.0  # more keys are old: go on, unless somebody has come
                continue
            self._tell_tally_alone()
            self._checkpoint(CHECKPOINT_TRUNCATE)  # without the lock: callers must not wait for a flush
            patience = None

    def _has_work(self) -> bool:
        return bool(self._queue or self._refusals or self._chores)

    def _purged(self) -> bool:
        """Forget a few old keys; True when there may be more. Another process's writer goes before."""
        before_ms = expired_before_ms(self._clock.now_ms(), self._newest_ms)
        if before_ms <= 0 or self.poison is not None:
            return False
        try:
            self._connection.execute(BEGIN_NOW)
            count = purge_keys(self._connection, self._tenant, before_ms)
            self._connection.execute(COMMIT)
        except sqlite3.Error as error:
            self._failed(error)
            return False
        return count == PURGE_MAX

    def _taken(self) -> tuple[list[Waiting], list[Refusal], list[Chore]]:
        batch: list[Waiting] = []
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

    def _written(
        self, batch: list[Waiting], refusals: list[Refusal], chores: list[Chore]
    ) -> list[tuple[Waiting, Answer | InterlockError]]:
        """One transaction, and what each caller is to be told about it; chores are told here."""
        connection = self._connection
        counts: Counts = {}
        tally = Tally()
        try:
            begin(connection)
            answers = self._steps(batch, counts, tally)
            write_counts(connection, self._tenant, counts)
            self._refused(refusals, tally)
            told = self._tell_tally()
            done = [self._chore(each) for each in chores]
            connection.execute(COMMIT)
        except sqlite3.Error as error:
            failure = self._failed(error)
            for chore in chores:
                tell(self.loops, chore, copy(failure))
            return [(each, failure) for each in batch]
        if told:
            self._tally.clear()
        self._tally.add(tally)
        for chore, answer in zip(chores, done, strict=True):
            tell(self.loops, chore, answer)
        if batch:
            self._newest_ms = max(self._newest_ms, *(each.append.entry.event.time_ms for each in batch))
        return answers

    def _tell_tally(self) -> bool:
        """Write the statistics of earlier batches, when it is time; whoever commits then clears them."""
        now_ms = self._clock.now_ms()
        if not self._tally or 0 <= now_ms - self._tally_ms < TALLY_MS:
            return False
        write_tally(self._connection, self._tenant, self._tally)
        self._tally_ms = now_ms
        return True

    def _tell_tally_alone(self) -> None:
        """Write the statistics that are left, in a transaction of their own; they are lost if that fails."""
        if self._tally and self.poison is None:
            try:
                self._connection.execute(BEGIN_NOW)
                write_tally(self._connection, self._tenant, self._tally)
                self._connection.execute(COMMIT)
            except sqlite3.Error as error:
                self._failed(error)
            self._tally.clear()

    def _steps(
        self, batch: list[Waiting], counts: Counts, tally: Tally
    ) -> list[tuple[Waiting, Answer | InterlockError]]:
        """Write all steps at once. One that cannot be written undoes them all; then each is written by itself."""
        try:
            steps = [(each.append, each.snapshot) for each in batch]
            answers = write_steps(self._connection, self._tenant, steps, counts, tally)
        except (*ITS_OWN, InterlockError):
            counts.clear()
            tally.clear()
            self._connection.execute(ROLLBACK)
            begin(self._connection)
            return [(each, self._step(each, counts, tally)) for each in batch]
        return list(zip(batch, answers, strict=True))

    def _step(self, waiting: Waiting, counts: Counts, tally: Tally) -> Answer | InterlockError:
        """Write one step; an error that is its own takes nothing of its neighbours with it."""
        connection = self._connection
        mine: Counts = {}
        my_tally = Tally()
        connection.execute(SAVEPOINT)
        try:
            (answer,) = write_steps(connection, self._tenant, [(waiting.append, waiting.snapshot)], mine, my_tally)
        except (*ITS_OWN, InterlockError) as error:
            connection.execute(ROLLBACK_STEP)
            connection.execute(RELEASE)
            return error if isinstance(error, InterlockError) else _unwritable(error)
        connection.execute(RELEASE)
        for each, change in mine.items():
            counts[each] = counts.get(each, 0) + change
        tally.add(my_tally)
        return answer

    def _chore(self, chore: Chore) -> object:
        """Do what is no step; what breaks in it is its caller's, and undoes nothing of its neighbours."""
        self._connection.execute(SAVEPOINT)
        try:
            answer = chore.work(self._connection)
        except sqlite3.OperationalError:  # of the connection: nobody's step can be believed
            raise
        except (*ITS_OWN, InterlockError) as error:
            self._connection.execute(ROLLBACK_STEP)
            answer = error if isinstance(error, InterlockError) else _unwritable(error)
        self._connection.execute(RELEASE)
        return answer

    def _refused(self, refusals: list[Refusal], tally: Tally) -> None:
        """Write refusals; those that cannot be written take no step with them."""
        if not refusals:
            return
        self._connection.execute(SAVEPOINT)
        try:
            write_refusals(self._connection, self._tenant, refusals)
        except ITS_OWN:
            self._connection.execute(ROLLBACK_STEP)
        else:
            for each in refusals:
                tally.count(each.entity.partition("/")[0], REFUSALS, each.time_ms)
        self._connection.execute(RELEASE)

    def _failed(self, error: sqlite3.Error) -> InterlockError:
        """Undo what is left of the transaction; poison the store when the connection can no longer be believed."""
        failure = translated(error, self._path)
        self._was_full |= failure.code == "store.full"
        if poisons(error):
            self.poison = failure
            return failure
        try:
            if self._connection.in_transaction:
                self._connection.execute(ROLLBACK)
        except sqlite3.Error as second:
            self.poison = translated(second, self._path)
        return failure

    def _answer(self, answers: list[tuple[Waiting, Answer | InterlockError]]) -> None:
        """Tell every caller, with one signal per event loop."""
        by_loop: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[Answer], Answer | InterlockError]]] = {}
        for waiting, answer in answers:
            by_loop.setdefault(waiting.loop, []).append((waiting.future, answer))
        for loop, told in by_loop.items():
            self.loops.call(loop, _resolve, told)

    def _checkpoint_if_long(self) -> None:
        if self._was_full:  # a log that has no room to grow holds pages many times over, which the file takes once each
            self._was_full = not self._checkpoint(CHECKPOINT_RESTART)
        elif self._wal.reaches(self._checkpoint_at) and not self._checkpoint(CHECKPOINT_RESTART):
            self._checkpoint_at += WAL_BYTES_MAX  # a reader in the way is no reason to try again after each batch

    def _checkpoint(self, statement: str) -> bool:
        """Take the write-ahead log into the file; False when readers or another writer were in the way."""
        if self.poison is not None:
            return False
        try:
            self._connection.execute(f"PRAGMA busy_timeout = {CHECKPOINT_BUSY_MS}")
            busy = self._connection.execute(statement).fetchone()[0]
            self._connection.execute(f"PRAGMA busy_timeout = {BUSY_MS_EACH}")
        except sqlite3.Error as error:
            if poisons(error):
                self.poison = translated(error, self._path)
            return False
        if not busy:
            self._checkpoint_at = WAL_BYTES_MAX
        return not busy

    def _end(self) -> None:
        """Answer whoever came too late, then let go of the file."""
        with self._guard:
            self._closing = True
            late = list(self._queue)
            self._queue.clear()
            chores = list(self._chores)
            self._chores.clear()
        failure = self.poison or UnavailableError("the store is closed", code="store.closed")
        self._answer([(each, failure) for each in late])
        for chore in chores:
            tell(self.loops, chore, copy(failure))
        self._tell_tally_alone()
        self._checkpoint(CHECKPOINT_TRUNCATE)
        self._wal.close()
        self._connection.close()


def _resolve(told: list[tuple[asyncio.Future[Answer], Answer | InterlockError]]) -> None:
    for future, answer in told:
        if future.done():
            continue  # its caller was cancelled; the step is kept all the same
        if isinstance(answer, InterlockError):
            future.set_exception(copy(answer))  # each caller raises its own
        else:
            future.set_result(answer)


def _unwritable(error: Exception) -> InterlockError:
    return InternalError(f"a step could not be written: {error}", code="store.unwritable")

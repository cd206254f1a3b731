"""The connection that writes to a SQLite file, one transaction at a time, whoever has the turn.

Rule 1: the turn is the writer's thread's, or of one caller that came alone (`commit_at_once`), who waits for nothing
but a short transaction and its flush. Where there is more to do, nothing was done, and the thread does it all.
Rule 2: a step that loses its swap or repeats a key is that caller's answer only; so is a step that cannot be written.
Rule 3: a failed COMMIT acknowledges nobody. A full or busy disk is over when it is over; after an I/O error nothing
that this connection says can be believed, so the store stays poisoned, and the thread closes it.
Rule 4: that caller may be the main thread, where Ctrl-C is raised between any two instructions: what it began is undone
on its way out, or by whoever has the turn next.
Rule 5: only the thread checkpoints, and not beside another process's writer: `RESTART` and `TRUNCATE` take the write
lock first (and go on without it only when others hold it for `CHECKPOINT_BUSY_MS`), `PASSIVE` never does; SQLite before
3.51.3 can damage the file when a checkpoint and a write of two connections meet.
Rule 6: a COMMIT is acknowledged only if the names of the files still lead to those that are open (`sqlite_files`). If
one was moved, replaced or deleted, the store is poisoned.
Rule 7: statistics are summed in memory and written at most once a `TALLY_MS`, with a batch or when nobody comes.
"""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

from interlock.errors import InterlockError, InternalError
from interlock.ports.clock import Clock, SystemClock
from interlock.ports.store import Append, Appended, Refusal
from interlock.stores.key_expiry import window_begin_ms
from interlock.stores.sqlite.checkpoint import Wal
from interlock.stores.sqlite.commit import Answer, Counts, write_counts, write_refusals, write_steps
from interlock.stores.sqlite.connection import BEGIN, BUSY, BUSY_MS_EACH, begin, poisons, translate_error
from interlock.stores.sqlite.files import CALLS, Connection, DatabaseFiles
from interlock.stores.sqlite.maintenance import KeyRetention
from interlock.stores.sqlite.statistics import write_statistics
from interlock.stores.statistics_buffer import REFUSALS, StatisticsBuffer
from interlock.stores.threads.inline_policy import InlinePolicy

WAL_BYTES_MAX = 8_388_608
"""Length of the write-ahead log that calls for a checkpoint: readers search it, and restarting reads it whole."""

CHECKPOINT_BUSY_MS = 100
"""How long a checkpoint waits for readers: it holds the write lock meanwhile, and can be done next time."""

ALONE_NS = 500_000_000
"""How long callers may come alone before one goes to the thread, which tells the statistics and looks after the log:
less than the silence after which it takes the log into the file, so that it never does so in the midst of steps."""

TALLY_MS = 1_000
"""How long statistics are summed before they are written: pages lag by that, and steps do not pay for them."""

SAVEPOINT = "SAVEPOINT step"
RELEASE = "RELEASE step"
ROLLBACK_STEP = "ROLLBACK TO step"
COMMIT = "COMMIT"
ROLLBACK = "ROLLBACK"
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

Step = tuple[Append, bytes]
"""What is to be kept, and the bytes of its snapshot."""

Work = Callable[[sqlite3.Connection], Any]
"""Something to do in a transaction that is no step."""


class Committed(NamedTuple):
    """What each step, and each work, is to be told: an answer, or why there is none."""

    answers: Sequence[Answer | InterlockError]
    done: Sequence[Any]


class SqliteWriter:
    """A connection that writes, and what is known of its file and of the disk."""

    def __init__(self, connection: Connection, path: Path, tenant: str, *, clock: Clock | None = None) -> None:
        self.poison: InterlockError | None = None
        self.pace = InlinePolicy()
        self._connection = connection
        self.files = DatabaseFiles(connection)
        self._path = path
        self._tenant = tenant
        self._clock = clock or SystemClock()
        self._turn = Lock()
        self._wal = Wal(path)
        self._checkpoint_at = WAL_BYTES_MAX
        self._was_full = False
        self._tally = StatisticsBuffer()
        self._tally_ms = 0
        self._newest_ms = 0
        self._forgetting = KeyRetention(connection, tenant)
        self._is_closed = False
        self._thread_ns = 0

    def commit(self, steps: Sequence[Step], refusals: Sequence[Refusal] = (), works: Sequence[Work] = ()) -> Committed:
        """Keep all of it in one transaction, in the thread. Waits for other processes, up to `BUSY_MS`."""
        with self._turn, CALLS:
            self._thread_ns = time.perf_counter_ns()
            return self._committed(steps, refusals, works)

    def commit_at_once(self, step: Step) -> Answer | InterlockError | None:
        """Keep one step, in the thread of its caller; None where the thread is to do it, and nothing was done.

        Another thread that takes the turn in the moment between is waited for, for as long as it has it.
        """
        if self._turn.locked():
            return None
        with self._turn, CALLS:
            if self._is_closed or self.poison is not None or not self._is_looked_after():
                return None
            (answer,) = self._committed((step,), waits=False).answers
            return None if isinstance(answer, InterlockError) and answer.code == BUSY else answer

    def purge(self) -> bool:
        """Forget a few old keys; True when there may be more. Another process's writer goes before."""
        with self._turn, CALLS:
            window_ms = window_begin_ms(self._clock.now_ms(), self._newest_ms)
            if window_ms <= 0 or self.poison is not None:
                return False
            try:
                self._undo()
                self._connection.execute(BEGIN)
                has_more = self._forgetting.forget(self._connection, window_ms)
                self._connection.execute(COMMIT)
            except sqlite3.Error as error:
                self._failed(error)
                return False
            return has_more

    def leave_nothing(self) -> None:
        """In the thread, when nobody came for a while: tell the statistics, and take the log into the file."""
        with self._turn, CALLS:
            self._leave_nothing()

    def checkpoint_if_long(self) -> None:
        """In the thread, after a batch: take the log into the file, if it is long."""
        with self._turn, CALLS:
            if self._was_full:  # a log without room to grow holds pages many times over, which the file takes once each
                self._was_full = not self._checkpoint(CHECKPOINT_RESTART)
            elif self._wal.reaches(self._checkpoint_at) and not self._checkpoint(CHECKPOINT_RESTART):
                self._checkpoint_at += WAL_BYTES_MAX  # a reader in the way is no reason to try again after each batch

    def close(self) -> None:
        """Let go of the file, once nobody has the turn."""
        with self._turn, CALLS:
            self._is_closed = True
            self.poison = self.poison or self.files.problem()
            self._leave_nothing()
            self._wal.close()
            self._connection.close()

    # Inside a turn

    def _is_looked_after(self) -> bool:
        """Whether the thread was here of late, and the log is short: what it does then is done by nobody else."""
        is_late = time.perf_counter_ns() - self._thread_ns > ALONE_NS
        return not (is_late or self._was_full or self._wal.reaches(self._checkpoint_at))

    def _committed(
        self,
        steps: Sequence[Step],
        refusals: Sequence[Refusal] = (),
        works: Sequence[Work] = (),
        *,
        waits: bool = True,
    ) -> Committed:
        connection = self._connection
        counts: Counts = {}
        tally = StatisticsBuffer()
        answers: list[Answer | InterlockError]
        began = time.perf_counter_ns()
        try:
            self._undo()
            begin(connection, waits=waits)
            answers = self._steps(steps, counts, tally, waits=waits)
            write_counts(connection, self._tenant, counts)
            self._refused(refusals, tally)
            told = waits and self._tell_tally()
            done = [self._work(each) for each in works]
            connection.execute(COMMIT)
        except sqlite3.Error as error:
            failure = self._failed(error)
            answers, done = [failure] * len(steps), [failure] * len(works)
        except BaseException:
            with contextlib.suppress(sqlite3.Error):  # whoever has the turn next does it, and hears what is wrong
                self._undo()
            raise
        else:
            problem = self.files.problem()
            if problem is not None:  # what was committed is in a file that the next process will not find
                self.poison = problem
                return Committed([problem] * len(steps), [problem] * len(works))
            if told:
                self._tally.clear()
            self._tally.add(tally)
            for append, _ in steps:
                self._newest_ms = max(self._newest_ms, append.entry.event.time_ms)
        if len(answers) == 1 and isinstance(answers[0], Appended | InterlockError):  # others did not ask the disk
            self.pace.took(time.perf_counter_ns() - began)
        return Committed(answers, done)

    def _undo(self) -> None:
        """End a transaction that was left open."""
        if self._connection.in_transaction:
            self._connection.execute(ROLLBACK)

    def _steps(
        self, steps: Sequence[Step], counts: Counts, tally: StatisticsBuffer, *, waits: bool
    ) -> list[Answer | InterlockError]:
        """Write all steps at once. One that cannot be written undoes them all; then each is written by itself."""
        try:
            return [*write_steps(self._connection, self._tenant, steps, counts, tally)]
        except (*ITS_OWN, InterlockError):
            counts.clear()
            tally.clear()
            self._connection.execute(ROLLBACK)
            begin(self._connection, waits=waits)
            return [self._step(each, counts, tally) for each in steps]

    def _step(self, step: Step, counts: Counts, tally: StatisticsBuffer) -> Answer | InterlockError:
        """Write one step; an error that is its own takes nothing of its neighbours with it."""
        connection = self._connection
        mine: Counts = {}
        my_tally = StatisticsBuffer()
        connection.execute(SAVEPOINT)
        try:
            (answer,) = write_steps(connection, self._tenant, [step], mine, my_tally)
        except (*ITS_OWN, InterlockError) as error:
            connection.execute(ROLLBACK_STEP)
            connection.execute(RELEASE)
            return error if isinstance(error, InterlockError) else _unwritable(error)
        connection.execute(RELEASE)
        for each, change in mine.items():
            counts[each] = counts.get(each, 0) + change
        tally.add(my_tally)
        return answer

    def _work(self, work: Work) -> object:
        """Do what is no step; what breaks in it is its caller's, and undoes nothing of its neighbours."""
        self._connection.execute(SAVEPOINT)
        try:
            answer = work(self._connection)
        except sqlite3.OperationalError:  # of the connection: nobody's step can be believed
            raise
        except (*ITS_OWN, InterlockError) as error:
            self._connection.execute(ROLLBACK_STEP)
            answer = error if isinstance(error, InterlockError) else _unwritable(error)
        self._connection.execute(RELEASE)
        return answer

    def _refused(self, refusals: Sequence[Refusal], tally: StatisticsBuffer) -> None:
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

    def _tell_tally(self) -> bool:
        """Write the statistics of earlier batches, when it is time; whoever commits then clears them."""
        now_ms = self._clock.now_ms()
        if not self._tally or 0 <= now_ms - self._tally_ms < TALLY_MS:
            return False
        write_statistics(self._connection, self._tenant, self._tally)
        self._tally_ms = now_ms
        return True

    def _leave_nothing(self) -> None:
        """Write the statistics that are left, which are lost if that fails; then take the log into the file."""
        if self._tally and self.poison is None:
            try:
                self._undo()
                self._connection.execute(BEGIN)
                write_statistics(self._connection, self._tenant, self._tally)
                self._connection.execute(COMMIT)
            except sqlite3.Error as error:
                self._failed(error)
            self._tally.clear()
        self._checkpoint(CHECKPOINT_TRUNCATE)

    def _failed(self, error: sqlite3.Error) -> InterlockError:
        """Undo what is left of the transaction; poison the store when the connection can no longer be believed."""
        failure = translate_error(error, self._path)
        self._was_full |= failure.code == "store.full"
        if poisons(error):
            self.poison = failure
            return failure
        try:
            self._undo()
        except sqlite3.Error as second:
            self.poison = translate_error(second, self._path)
        return failure

    def _checkpoint(self, statement: str) -> bool:
        """Take the write-ahead log into the file; False when readers or another writer were in the way."""
        if self.poison is not None:
            return False
        try:
            self._connection.execute(f"PRAGMA busy_timeout = {CHECKPOINT_BUSY_MS}")
            try:
                busy = self._connection.execute(statement).fetchone()[0]
            finally:
                self._connection.execute(f"PRAGMA busy_timeout = {BUSY_MS_EACH}")
        except sqlite3.Error as error:
            if poisons(error):
                self.poison = translate_error(error, self._path)
            return False
        if not busy:
            self._checkpoint_at = WAL_BYTES_MAX
        return not busy


def _unwritable(error: Exception) -> InterlockError:
    return InternalError(f"a step could not be written: {error}", code="store.unwritable")

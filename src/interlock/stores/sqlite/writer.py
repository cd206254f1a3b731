"""The connection that writes to a SQLite file, one transaction at a time.

Rule 1: the writer's thread has the turn, or one caller that came alone (`commit_inline`), which waits for nothing but a
short transaction and its flush. When there is more to do, nothing was done, and the thread does all of it.
Rule 2: a step that lost its swap or repeats a key changes the answer of its own caller only; so does a step that cannot
be written.
Rule 3: after a failed COMMIT nothing is acknowledged. A full or busy disk is a temporary problem. After an I/O error
nothing that this connection says can be trusted: the store stays poisoned, and the thread closes it.
Rule 4: the lone caller may be the main thread, where Ctrl-C is raised between any two instructions. What it started is
undone on its way out, or by the next writer.
Rule 5: only the thread checkpoints, and not concurrently with another process's writer: `RESTART` and `TRUNCATE` take
the write lock first (and continue without it only when others hold it for `CHECKPOINT_BUSY_MS`), `PASSIVE` never does.
SQLite before 3.51.3 can damage the file when a checkpoint and a write of two connections meet.
Rule 6: a COMMIT is acknowledged only if the paths of the files still lead to the open files (`files`). If one was
moved, replaced or deleted, the store is poisoned.
Rule 7: where the journals of recent entities end is remembered, so that their next step needs no query. An entity is
forgotten before its step is written and remembered after the COMMIT. All are forgotten after a rollback or an error,
after a job that may change journals, and when `PRAGMA data_version` shows that another connection has written.
Rule 8: statistics are summed in memory and written at most once per `STATISTICS_MS`, with a batch or when idle.
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
from interlock.model.audit import AuditRow
from interlock.ports.clock import Clock, SystemClock
from interlock.ports.store import Append, Appended
from interlock.stores.key_boundary import window_start_ms
from interlock.stores.sql.audit import append_audit
from interlock.stores.sql.database import Questions, SqlAppendResult
from interlock.stores.sql.expired_keys import ExpiredKeys
from interlock.stores.sql.field_index import IndexedFields, indexed_fields
from interlock.stores.sql.statistics import write_statistics
from interlock.stores.sqlite.batch_rows import HAS_TOMBSTONES, Counts, Tips, write_counts, write_steps
from interlock.stores.sqlite.checkpoint import WriteAheadLog
from interlock.stores.sqlite.connection import (
    BEGIN,
    BUSY,
    BUSY_MS_EACH,
    begin,
    poisons,
    run_questions,
    translate_error,
)
from interlock.stores.sqlite.files import CALLS, Connection, DatabaseFiles
from interlock.stores.sqlite.statements import STATEMENTS
from interlock.stores.statistics_buffer import StatisticsBuffer
from interlock.stores.stay_tally import StayTally
from interlock.stores.threads.inline_policy import InlinePolicy

WAL_BYTES_MAX = 8_388_608
"""Length of the write-ahead log that calls for a checkpoint: readers search it, and a restart reads it whole."""

LOG_CHECK_STEPS = 8
"""Steps that are committed inline between two looks at the length of the log: a look costs two system calls."""

CHECKPOINT_BUSY_MS = 100
"""How long a checkpoint waits for readers: it holds the write lock meanwhile, and can be done next time."""

INLINE_NS_MAX = 500_000_000
"""How long callers may commit inline before one goes to the thread, which writes the statistics and checkpoints: less
than the idle time after which the thread truncates the log, so that it never does so in the middle of steps."""

TIPS_MAX = 20_000
"""Ends of journals in memory, half a KiB each. A missing one costs a query."""

STATISTICS_MS = 1_000
"""How long statistics are summed before they are written: pages lag by that, and steps do not pay for them."""

SAVEPOINT = "SAVEPOINT step"
RELEASE = "RELEASE step"
ROLLBACK_STEP = "ROLLBACK TO step"
COMMIT = "COMMIT"
DATA_VERSION = "PRAGMA data_version"
ROLLBACK = "ROLLBACK"
CHECKPOINT_RESTART = "PRAGMA wal_checkpoint(RESTART)"
CHECKPOINT_TRUNCATE = "PRAGMA wal_checkpoint(TRUNCATE)"

VALUE_ERRORS = (
    sqlite3.IntegrityError,
    sqlite3.DataError,
    sqlite3.ProgrammingError,
    sqlite3.InterfaceError,
    ValueError,
    TypeError,
    OverflowError,
)
"""Errors of a value that cannot be written; all others concern the connection."""

Job = Callable[[], Questions[Any]]
"""Something to do in a transaction that is not a step."""


class Committed(NamedTuple):
    """The answer to each step and the result of each job, or the error instead. `audit` is the error of the rows."""

    answers: Sequence[SqlAppendResult | InterlockError]
    results: Sequence[Any]
    audit: InterlockError | None = None


class SqliteWriter:
    """A connection that writes, and the state of its file and disk."""

    def __init__(self, connection: Connection, path: Path, tenant: str, *, clock: Clock | None = None) -> None:
        self.poison: InterlockError | None = None
        self.policy = InlinePolicy()
        self.files = DatabaseFiles(connection)
        self._connection = connection
        self._path = path
        self._tenant = tenant
        self._clock = clock or SystemClock()
        self._turn = Lock()
        self._wal = WriteAheadLog(path)
        self._checkpoint_at = WAL_BYTES_MAX
        self._was_full = False
        self._statistics = StatisticsBuffer()
        self.stays = StayTally()
        self._tips: Tips = {}
        self._indexed: IndexedFields | None = None
        self._has_tombstones: bool | None = None
        self._data_version = 0
        self._statistics_ms = 0
        self._newest_ms = 0
        self._expired_keys = ExpiredKeys(STATEMENTS, tenant)
        with contextlib.suppress(sqlite3.Error):  # housekeeping stops no store from opening: it is loaded later then
            run_questions(connection, self._expired_keys.load())
        self._is_closed = False
        self._thread_ns = 0
        self._inline_steps = 0

    def commit(
        self,
        steps: Sequence[Append],
        audit: Sequence[AuditRow] = (),
        jobs: Sequence[Job] = (),
        *,
        keeps_journals: bool = False,
    ) -> Committed:
        """Commit everything in one transaction, in the thread. Waits for other processes, up to `BUSY_MS`.

        `keeps_journals`: the jobs change no journal and no entity.
        """
        with self._turn, CALLS:
            self._thread_ns = time.perf_counter_ns()
            return self._commit(steps, audit, jobs, keeps_journals=keeps_journals)

    def commit_inline(self, step: Append) -> SqlAppendResult | InterlockError | None:
        """Commit one step in the thread of its caller; None when the thread has to do it, and nothing was done.

        If another thread takes the turn in between, this waits until it is done.
        """
        if self._turn.locked():
            return None
        with self._turn, CALLS:
            if self._is_closed or self.poison is not None or self._needs_thread():
                return None
            (answer,) = self._commit((step,), waits=False).answers
            return None if isinstance(answer, InterlockError) and answer.code == BUSY else answer

    def delete_expired_keys(self) -> bool:
        """Delete a few expired keys; True when there may be more. Another process's writer goes first."""
        with self._turn, CALLS:
            window_ms = window_start_ms(self._clock.now_ms(), self._newest_ms)
            if window_ms <= 0 or self.poison is not None:
                return False
            try:
                self._undo()
                self._connection.execute(BEGIN)
                has_more = run_questions(self._connection, self._expired_keys.delete_some(window_ms))
                self._connection.execute(COMMIT)
            except sqlite3.Error as error:
                self._fail(error)
                return False
            return has_more

    def write_statistics_and_truncate(self) -> None:
        """In the thread, when idle: write the statistics, copy the log into the file and truncate it."""
        with self._turn, CALLS:
            self._write_statistics_and_truncate()

    def checkpoint_if_long(self) -> None:
        """In the thread, after a batch: copy the log into the file if it is long."""
        with self._turn, CALLS:
            if self._was_full:  # the log has copies of pages that the file stores once: a checkpoint may free space
                self._was_full = not self._checkpoint(CHECKPOINT_RESTART)
            elif self._wal.reaches(self._checkpoint_at) and not self._checkpoint(CHECKPOINT_RESTART):
                self._checkpoint_at += WAL_BYTES_MAX  # a reader is in the way: do not retry after every batch

    def close(self) -> None:
        """Close the file, once no other thread has the turn."""
        with self._turn, CALLS:
            self._is_closed = True
            self.poison = self.poison or self.files.problem()
            self._write_statistics_and_truncate()
            self._wal.close()
            self._connection.close()

    # Inside a turn

    def _needs_thread(self) -> bool:
        """Return whether the thread is due: it was not here for a while, or the log has to be checkpointed."""
        if self._was_full or time.perf_counter_ns() - self._thread_ns > INLINE_NS_MAX:
            return True
        self._inline_steps += 1
        return self._inline_steps % LOG_CHECK_STEPS == 0 and self._wal.reaches(self._checkpoint_at)

    def _commit(
        self,
        steps: Sequence[Append],
        audit: Sequence[AuditRow] = (),
        jobs: Sequence[Job] = (),
        *,
        waits: bool = True,
        keeps_journals: bool = False,
    ) -> Committed:
        connection = self._connection
        counts: Counts = {}
        statistics = StatisticsBuffer()
        answers: Sequence[SqlAppendResult | InterlockError]
        started_ns = time.perf_counter_ns()
        try:
            self._undo()
            self._begin(waits=waits)
            answers, tips = self._write_steps(steps, counts, statistics, waits=waits)
            write_counts(connection, self._tenant, counts)
            rows_error = self._write_audit(audit, statistics)
            has_written = waits and self._write_statistics()
            if jobs and not keeps_journals:  # what a job changes is not known here
                self._tips.clear()
                self._indexed = self._has_tombstones = None
                tips = {}
            results = [self._run_job(each) for each in jobs]
            connection.execute(COMMIT)
        except sqlite3.Error as error:
            failure = self._fail(error)
            answers, results, rows_error = [failure] * len(steps), [failure] * len(jobs), failure
        except BaseException:
            self._tips.clear()
            with contextlib.suppress(sqlite3.Error):  # the next turn undoes it, and its caller gets the error
                self._undo()
            raise
        else:
            problem = self.files.problem()
            if problem is not None:  # the commit is in a file that the next process will not find
                self.poison = problem
                return Committed([problem] * len(steps), [problem] * len(jobs), problem)
            if has_written:
                self._clear_statistics()
            self._statistics.add(statistics)
            for append in steps:
                self._newest_ms = max(self._newest_ms, append.entry.event.time_ms)
            self._remember(tips)
        if len(answers) == 1 and isinstance(answers[0], Appended | InterlockError):  # others did not touch the disk
            self.policy.record(time.perf_counter_ns() - started_ns)
        return Committed(answers, results, rows_error)

    def _undo(self) -> None:
        """End a transaction that was left open."""
        if self._connection.in_transaction:
            self._tips.clear()
            self._connection.execute(ROLLBACK)

    def _begin(self, *, waits: bool) -> None:
        """Start a transaction that writes. If another connection has written, forget where journals end, and read again
        which fields have an index, and whether entities were pruned.
        """
        begin(self._connection, waits=waits)
        (data_version,) = self._connection.execute(DATA_VERSION).fetchone()
        if data_version != self._data_version:
            self._tips.clear()
            self._indexed = self._has_tombstones = None
            self._data_version = data_version
        if self._indexed is None:
            self._indexed = run_questions(self._connection, indexed_fields(STATEMENTS, self._tenant))
        if self._has_tombstones is None:
            self._has_tombstones = self._connection.execute(HAS_TOMBSTONES, (self._tenant,)).fetchone() is not None

    def _remember(self, tips: Tips) -> None:
        """Keep where journals end after a COMMIT, for the next steps of these entities."""
        self._tips.update(tips)
        while len(self._tips) > TIPS_MAX:
            del self._tips[next(iter(self._tips))]

    def _write_steps(
        self, steps: Sequence[Append], counts: Counts, statistics: StatisticsBuffer, *, waits: bool
    ) -> tuple[Sequence[SqlAppendResult | InterlockError], Tips]:
        """Write all steps together. If one of them cannot be written, all are undone.

        Then they are written together once more, from what the file says; and finally one by one.
        """
        connection, known = self._connection, self._tips
        while True:
            has_tips = bool(known)
            try:
                return write_steps(
                    connection,
                    self._tenant,
                    steps,
                    counts,
                    statistics,
                    tips=known,
                    indexed=self._indexed,
                    has_tombstones=self._has_tombstones,
                )
            except (*VALUE_ERRORS, InterlockError):
                counts.clear()
                statistics.clear()
                known.clear()
                connection.execute(ROLLBACK)
                self._begin(waits=waits)
            if not has_tips:
                return [self._write_step(each, counts, statistics) for each in steps], {}

    def _write_step(
        self, step: Append, counts: Counts, statistics: StatisticsBuffer
    ) -> SqlAppendResult | InterlockError:
        """Write one step. Its error does not undo the other steps."""
        connection = self._connection
        own_counts: Counts = {}
        own_statistics = StatisticsBuffer()
        connection.execute(SAVEPOINT)
        try:
            (answer,), _ = write_steps(
                connection,
                self._tenant,
                [step],
                own_counts,
                own_statistics,
                indexed=self._indexed,
                has_tombstones=self._has_tombstones,
            )
        except (*VALUE_ERRORS, InterlockError) as error:
            connection.execute(ROLLBACK_STEP)
            connection.execute(RELEASE)
            return error if isinstance(error, InterlockError) else _unwritable(error)
        connection.execute(RELEASE)
        for each, change in own_counts.items():
            counts[each] = counts.get(each, 0) + change
        statistics.add(own_statistics)
        return answer

    def _run_job(self, job: Job) -> object:
        """Run a job; its errors go to its caller and do not affect other jobs."""
        self._connection.execute(SAVEPOINT)
        try:
            result = run_questions(self._connection, job())
        except sqlite3.OperationalError:  # of the connection: no step of this transaction can be acknowledged
            raise
        except (*VALUE_ERRORS, InterlockError) as error:
            self._connection.execute(ROLLBACK_STEP)
            result = error if isinstance(error, InterlockError) else _unwritable(error)
        self._connection.execute(RELEASE)
        return result

    def _write_audit(self, rows: Sequence[AuditRow], statistics: StatisticsBuffer) -> InterlockError | None:
        """Append rows of the audit; if they cannot be written, their callers get the error, and the steps are kept."""
        if not rows:
            return None
        self._connection.execute(SAVEPOINT)
        try:
            run_questions(self._connection, append_audit(STATEMENTS, self._tenant, rows))
        except VALUE_ERRORS as error:
            self._connection.execute(ROLLBACK_STEP)
            self._connection.execute(RELEASE)
            return _unwritable(error)
        self._connection.execute(RELEASE)
        for each in rows:
            statistics.count_refusal(each)
        return None

    def _write_statistics(self) -> bool:
        """Write the statistics of earlier batches when they are due; they are cleared after the COMMIT."""
        now_ms = self._clock.now_ms()
        if not self._statistics or 0 <= now_ms - self._statistics_ms < STATISTICS_MS:
            return False
        run_questions(self._connection, write_statistics(STATEMENTS, self._tenant, self._statistics))
        self._statistics_ms = now_ms
        return True

    def _write_statistics_and_truncate(self) -> None:
        """Write the statistics that are left, which are lost if that fails; then truncate the log."""
        if self._statistics and self.poison is None:
            try:
                self._undo()
                self._connection.execute(BEGIN)
                run_questions(self._connection, write_statistics(STATEMENTS, self._tenant, self._statistics))
                self._connection.execute(COMMIT)
            except sqlite3.Error as error:
                self._fail(error)
            self._clear_statistics()
        self._checkpoint(CHECKPOINT_TRUNCATE)

    def _clear_statistics(self) -> None:
        self.stays.add(self._statistics)
        self._statistics.clear()

    def _fail(self, error: sqlite3.Error) -> InterlockError:
        """Undo the transaction, and return the error as one of ours; poison the store if the connection is broken."""
        self._tips.clear()
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
        """Copy the write-ahead log into the file; False when readers or another writer were in the way."""
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
    return InternalError(f"cannot write the step: {error}", code="store.unwritable")

"""What happens after the COMMIT of a joined transaction: workers and watchers are notified, caches drop the entity.

Rule 1: everything here is a hint. A worker that gets none finds the work when it polls, and one that gets it for a
transaction that was rolled back finds nothing.
Rule 2: where the driver does not report its COMMIT, another connection observes it: soon at first, then less often,
for `WATCHED_SECONDS` at most.
Rule 3: nothing is reported before the COMMIT: a cached snapshot of a transaction that is rolled back would be wrong.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

from interlock.errors import InterlockError
from interlock.model.journal.work import WorkDelta
from interlock.ports.clock import SystemClock
from interlock.ports.store import Joins
from interlock.ports.transactions import TransactionEnd
from interlock.runtime.entities.entities import Entities
from interlock.runtime.entities.transition_log import Line

LOOK_MS_MIN, LOOK_MS_MAX = 2, 50
"""The waits between two looks at open transactions: one query for all of them."""

WATCHED_SECONDS = 60.0
"""How long the end of a transaction is looked for. Later its work is found as any other process's is."""

OPEN_SECONDS = 1.0
"""How long a joined transaction may be open before a warning: its entity is locked, and a SQLite file as a whole."""

_log = logging.getLogger("interlock.runtime")


@dataclass(slots=True, eq=False)
class JoinedWrite:
    """What a call has written in a transaction of the caller, until that ends."""

    entity: str
    mark: object
    work: tuple[WorkDelta, ...]
    is_reported: bool
    lines: tuple[Line, ...] = ()
    started: float = 0.0
    is_over: bool = False
    is_warned: bool = False


class CommitWatch:
    """The joined transactions of one runtime that have not ended, in its event loop."""

    def __init__(self, joins: Joins, entities: Entities) -> None:
        self._joins = joins
        self._entities = entities
        self._clock = SystemClock()
        self._open: set[JoinedWrite] = set()
        self._task: asyncio.Task[None] | None = None
        self._new = asyncio.Event()
        self._running: set[asyncio.Task[None]] = set()

    def add(self, write: JoinedWrite) -> None:
        """Wait for the end of a transaction."""
        if write.is_over or self._entities.is_closed:
            return
        write.started = asyncio.get_running_loop().time()
        self._open.add(write)
        self._new.set()
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._look())

    def committed(self, write: JoinedWrite) -> None:
        """Report a transaction that is committed."""
        write.is_over = True
        self._open.discard(write)
        if not self._entities.is_closed:
            self._joins.committed(write.mark)
            self._entities.announce(write.entity, write.work)
            if write.lines:
                self._run(self._log(write.entity, write.lines))
            self._register(write.entity.partition("/")[0])

    def _register(self, kind: str) -> None:
        """Remember that the definitions of a kind are saved, so that the next call need not look."""
        if not self._entities.revisions.is_registered(kind):
            self._run(self._try_register(kind))

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _log(self, entity: str, lines: tuple[Line, ...]) -> None:
        """Log transitions whose entries are in the journal: a transaction that was rolled back may look committed."""
        log = self._entities.process.transitions
        for line in lines:
            with contextlib.suppress(InterlockError):  # it cannot be read now
                records = await self._entities.store.read(entity, after=line.version - 1, limit=1)
                if log is not None and records and records[0].entry.key == line.key:
                    log.write(line)

    async def _try_register(self, kind: str) -> None:
        with contextlib.suppress(InterlockError):  # the next call looks again
            await self._entities.revisions.register_kind(kind)

    async def stop(self) -> None:
        """Look no more. What is open is committed or not without this runtime."""
        self._open.clear()
        for task in (*self._running, *(() if self._task is None else (self._task,))):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _look(self) -> None:
        """Look at open transactions until there are none."""
        wait_ms = LOOK_MS_MIN
        try:
            while self._open:
                if self._new.is_set():
                    self._new.clear()
                    wait_ms = LOOK_MS_MIN
                await self._clock.sleep_ms(wait_ms)
                wait_ms = min(2 * wait_ms, LOOK_MS_MAX)
                await self._look_once()
        finally:
            self._task = None

    async def _look_once(self) -> None:
        watched = [each for each in self._open if not each.is_reported]
        try:
            ends = await self._joins.ended([each.mark for each in watched]) if watched else ()
        except InterlockError:  # the store answers later, or never again: its worker polls
            return
        finally:
            self._warn_and_forget(asyncio.get_running_loop().time())
        for write, end in zip(watched, ends, strict=True):
            if end is TransactionEnd.COMMITTED:
                self.committed(write)
            elif end is TransactionEnd.UNDONE:
                self._open.discard(write)

    def _warn_and_forget(self, now: float) -> None:
        for write in list(self._open):
            if now - write.started >= OPEN_SECONDS and not write.is_warned:
                write.is_warned = True
                _log.warning("a joined transaction is still open", extra={"entity_id": write.entity})
            if now - write.started >= WATCHED_SECONDS:
                self._open.discard(write)

"""The one process that performs the work of a root: the holder of the lock of `<root>/dispatch`, for its life.

It has a table of all unfinished work in memory (`files_table`), made from the journals of the entities that have a
marker (`files_pending`). Others only append; what they leave is found by the hints that they give, at each look, and by
a walk through the markers now and then. When the holder dies, the next look of another process finds the lock free.

Rule 1: the journal first, then the table: what a journal does not say was not done.
Rule 2: the beginning of an attempt is written before the work is given out, where effects are concerned, so that no
death is forgotten; flushed where the chart says that a second beginning is wrong. Timers and deliveries need none of
that: beginning them twice is harmless.
Rule 3: a journal that does not read stops its own entity only.
Rule 4: a journal's lock is never waited for while the table is held; a journal that tells does hold its own.
Rule 5: a walk opens the journals that have grown since they told, and no others: of many that wait for their time, most
are not open, and each opening costs three flushes.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from functools import partial
from threading import Lock
from typing import Any

from msgspec.structs import replace

from interlock.errors import InterlockError
from interlock.model.journal.work import Lane, Work, WorkId
from interlock.ports.store import Refusal
from interlock.ports.work import Claim, Settlement, WorkPage, WorkQuery, WorkRow
from interlock.stores.files.journal.durable_io import DurableIO, EntityDirectory, unavailable
from interlock.stores.files.journal.open_journals import OpenJournals
from interlock.stores.files.journal.snapshot_file import Position
from interlock.stores.files.journal.work import Change
from interlock.stores.files.journal.work_lines import Row, WorkChanges, WorkState
from interlock.stores.files.reader import EntityReader
from interlock.stores.files.refusals import append_refusals
from interlock.stores.files.root import Root
from interlock.stores.files.work.markers import WorkMarkers
from interlock.stores.files.work.table import HeldTable

DISPATCH = "dispatch"
WHAT = "the work of the store"

ATTENDED_MAX = 256
"""Entities looked at before work is given out: a restart with many of them begins at once, and goes on in between."""

WALK_MS = 30_000
"""How often all markers are walked through: what was found by no hint lies unseen for that long at most."""

RETIRE_MS = 60_000
"""How long a marker outlives the last work of its entity: the next work, if it comes soon, needs no flush for it."""

_logger = logging.getLogger(__name__)


class Dispatcher:
    """Work below one root, for those who perform it, and for those who only look."""

    def __init__(self, shared: DurableIO, root: Root, pending: WorkMarkers, handles: OpenJournals) -> None:
        self._shared = shared
        self._fs = shared.fs
        self._root = root
        self._pending = pending
        self._handles = handles
        self._reader = EntityReader(shared)
        self._file = -1
        self._is_holder = False
        self._table = HeldTable()
        self._guard = Lock()
        self._looking = Lock()
        self._queue: dict[str, EntityDirectory] = {}
        self._idle: dict[str, tuple[EntityDirectory, int]] = {}
        self._ends: dict[str, Position] = {}
        self._walked_ms: int | None = None
        self._now_ms = 0

    # Performing

    def claim(
        self, lane: Lane, names: tuple[str, ...] | None, *, owner: str, now_ms: int, until_ms: int, limit: int
    ) -> tuple[Claim, ...]:
        """Take up work that is due, oldest first; none while another process performs."""
        if not self._look(now_ms):
            return ()
        with self._guard:
            claims = self._table.claim(lane, names, owner=owner, now_ms=now_ms, until_ms=until_ms, limit=limit)
        if lane != "effect":
            return claims
        begun: list[Claim] = []
        problems: list[InterlockError] = []
        for claim in claims:
            try:
                if self._begin(claim):
                    begun.append(claim)
            except InterlockError as error:
                problems.append(error)
                with self._guard:
                    self._table.settle((Settlement(claim, "again", now_ms, lapsed=True, begun=False),), now_ms=now_ms)
        if problems and not begun:
            raise problems[0]
        return tuple(begun)

    def _begin(self, claim: Claim) -> bool:
        """Rule 2. False when the work is gone."""

        def begun(row: Row) -> WorkState:
            if row.stand.attempts >= claim.attempt:  # told before, of an attempt that was then not begun
                return row.stand
            return replace(row.stand, attempts=claim.attempt, failures=claim.failures)

        return self._changed(claim.entity, claim.work.place, begun, is_sure=_is_once(claim.work)) is not None

    def renew(self, claims: tuple[Claim, ...], *, until_ms: int) -> tuple[Claim | None, ...]:
        """Hold claims longer."""
        if self._is_holder:
            self._look(self._now_ms)
        with self._guard:
            return self._table.renew(claims, until_ms=until_ms)

    def settle(self, settled: tuple[Settlement, ...], *, now_ms: int) -> tuple[bool, ...]:
        """Let go of claims."""
        return tuple(self._settle(each, now_ms) for each in settled)

    def _settle(self, settled: Settlement, now_ms: int) -> bool:
        claim = settled.claim
        entity, place = claim.entity, claim.work.place
        if settled.verdict == "done":
            return self._changed(entity, place, _gone) is not None
        with self._guard:
            kept = self._table.settle((settled,), now_ms=now_ms)[0]
            row = self._table.row(entity, place)
        if not kept:
            return False
        if row is None:
            self._changed(entity, place, _gone)
        else:
            stood = partial(_stood, row=row, settled=settled)
            self._changed(entity, place, stood)
        return True

    def note(self, claim: Claim, error: Any) -> bool:
        """Keep what is told of work in hand; False when it is no longer ours."""
        with self._guard:
            if not self._table.note(claim, error):
                return False
        row = self._changed(claim.entity, claim.work.place, lambda now: replace(now.stand, error=error))
        return row is not None

    def soonest(self, lane: Lane, names: tuple[str, ...] | None) -> int | None:
        """When the next work is due; at once while there are entities to look at."""
        with self._guard:
            if not self._is_holder:
                return None
            return 0 if self._queue else self._table.soonest(lane, names)

    # Looking

    def works(self, query: WorkQuery) -> WorkPage:
        """Work by lane, name and entity, page by page; whoever performs it also knows what is in hand."""
        address = None if query.entity is None else self._root.address(query.entity)
        if not self._is_holder:
            return self._looked_up(address).works(query)
        if address is not None:
            self._attended(address)
        with self._guard:
            return self._table.works(query)

    def _looked_up(self, address: EntityDirectory | None) -> HeldTable:
        """The work of one entity, or of all, by who only looks: nothing is locked or flushed for that."""
        table = HeldTable()
        if address is not None:
            table.tell(address.entity, WorkChanges.whole(self._reader.work(address)))
        else:
            for each in self._walked():
                table.tell(each.entity, WorkChanges.whole(self._tried(self._reader.work, each)))
        return table

    def revive(self, entity: str, place: WorkId, *, now_ms: int, audit: Refusal | None = None) -> bool:
        """Let dead work be tried again, from its first attempt."""

        def revived(row: Row) -> WorkState:
            if row.stand.dead_ms is not None:
                self._record(entity, audit)
            return _revived(row, now_ms)

        row = self._changed(entity, place, revived, is_sure=True)
        return row is not None and row.stand.dead_ms is not None

    def requeue(self, settled: Settlement, *, audit: Refusal | None = None) -> bool:
        """Let work that is not dead be tried again; False when it has changed since.

        The journal says so, not only the table: an operator is often another process than the one that performs.
        """
        claim, done = settled.claim, False

        def requeued(row: Row) -> WorkState:
            nonlocal done
            stand = row.stand
            done = stand.dead_ms is None and (stand.attempts, stand.failures) == (claim.attempt, claim.failures)
            if not done:
                return stand
            self._record(claim.entity, audit)
            return replace(stand, next_ms=settled.next_ms, error=settled.error, parked=False)

        self._changed(claim.entity, claim.work.place, requeued, is_sure=True)
        return done

    def drop(self, entity: str, place: WorkId, *, audit: Refusal | None = None) -> bool:
        """Forget work."""
        return self._changed(entity, place, lambda _: self._record(entity, audit), is_sure=True) is not None

    def _record(self, entity: str, audit: Refusal | None) -> None:
        """Keep who acts on work, before the act. Raises UnavailableError: an act that cannot be recorded is not done.

        Called while the journal of the entity is locked, so that the act follows at once. See `files_refusals`.
        """
        if audit is None:
            return
        try:
            append_refusals(self._fs, self._root.directory, (audit,), is_sure=True)
        except OSError as error:
            raise unavailable(entity, "record", error) from error

    def _changed(self, entity: str, place: WorkId, change: Change, *, is_sure: bool = False) -> Row | None:
        with self._handles.borrowed(self._root.address(entity)) as journal:
            return journal.change(place, change, is_sure=is_sure)

    # Finding

    def _look(self, now_ms: int) -> bool:
        """Finds what others left. Whether this process is the one that performs."""
        with self._looking:
            self._tick(now_ms)
            try:
                if self._root.read_only is not None or not self._holds():
                    return False
                self._hear()
                for address in filter(self._has_grown, self._taken()):
                    self._tried(self._attended, address)
                self._retire()
            except OSError as error:
                raise unavailable(WHAT, "look", error) from error
            return True

    def _tick(self, now_ms: int) -> None:
        """A clock that goes back a little stands still here. One that was far ahead is not waited for: until it had
        caught up nothing would be walked through, and no marker go.
        """
        if now_ms < self._now_ms - WALK_MS:
            self._now_ms, self._walked_ms = now_ms, None
            with self._guard:
                self._idle = {name: (address, now_ms) for name, (address, _) in self._idle.items()}
        self._now_ms = max(self._now_ms, now_ms)

    def _holds(self) -> bool:
        if self._is_holder:
            return True
        if self._file < 0:
            self._file = self._fs.open_append(self._root.directory, DISPATCH)
        try:
            self._fs.lock(self._file, 0)
        except TimeoutError:
            return False
        self._shared.note = self._noted
        self._is_holder = True
        return True

    def _hear(self) -> None:
        names, too_many = set[str](), False
        with contextlib.suppress(TimeoutError):  # somebody gives a hint just now: it is heard the next time
            names, too_many = self._pending.heard()
        for address in filter(None, map(self._pending.address, names)):
            self._queue[address.name] = address
        walked_ms = self._walked_ms
        if too_many or walked_ms is None or self._now_ms >= walked_ms + WALK_MS:
            self._walked_ms = self._now_ms
            self._queue.update({address.name: address for address in self._walked()})

    def _walked(self) -> Iterator[EntityDirectory]:
        try:
            yield from self._pending.addresses()
        except OSError as error:
            raise unavailable(WHAT, "list", error) from error

    def _taken(self) -> list[EntityDirectory]:
        names = [name for name, _ in zip(self._queue, range(ATTENDED_MAX), strict=False)]
        return [self._queue.pop(name) for name in names]

    def _has_grown(self, address: EntityDirectory) -> bool:
        """Rule 5."""
        end = self._ends.get(address.name)
        try:
            return end is None or not self._reader.is_end(address, end)
        except InterlockError:
            return True

    def _tried(self, look: Callable[[EntityDirectory], tuple[Row, ...]], address: EntityDirectory) -> tuple[Row, ...]:
        """Rule 3: whatever is wrong with a journal, the others are attended to; it is tried again at the next walk."""
        try:
            return look(address)
        except InterlockError as error:
            facts = {"entity_id": address.entity, "code": error.code, "error": str(error)}
            _logger.warning("the work of an entity cannot be read", extra=facts)
            return ()

    def _attended(self, address: EntityDirectory) -> tuple[Row, ...]:
        with self._handles.borrowed(address) as journal:
            return journal.attend()

    def _noted(self, address: EntityDirectory, news: WorkChanges, end: Position) -> None:
        """A journal tells, while it is locked."""
        with self._guard:
            try:
                self._table.tell(address.entity, news)
            except BaseException:  # Ctrl-C, where an append was done in place: nobody knows how much was heard
                self._begin_anew()
                raise
            if not news.is_idle:
                self._ends[address.name] = end
                self._idle.pop(address.name, None)
            else:
                self._ends.pop(address.name, None)
                self._idle.setdefault(address.name, (address, self._now_ms))

    def _begin_anew(self) -> None:
        """As after a death: what was in hand is nobody's, and every journal tells the whole, to somebody else."""
        self._table, self._idle, self._ends, self._walked_ms = HeldTable(), {}, {}, None
        self._shared.note = self._noted

    def _retire(self) -> None:
        """Markers of entities that have had no work for a while go."""
        with self._guard:
            idle = [each for each, since_ms in self._idle.values() if self._now_ms >= since_ms + RETIRE_MS]
        for address in idle[:ATTENDED_MAX]:
            with contextlib.suppress(InterlockError), self._handles.borrowed(address) as journal:
                journal.retire()
            with self._guard:
                self._idle.pop(address.name, None)

    # The end

    def close(self) -> None:
        """Lets go of the lock; the next look of another process takes it."""
        self._shared.note = None
        self._is_holder = False
        if self._file >= 0:
            with contextlib.suppress(OSError):
                self._fs.close(self._file)
        self._file = -1

    def abandon(self) -> None:
        """In a forked child: the lock is the parent's."""
        self._guard, self._looking = Lock(), Lock()
        self._queue = {}
        self._begin_anew()
        self.close()


def _stood(now: Row, *, row: WorkRow, settled: Settlement) -> WorkState:
    """How work stands that was let go. Whoever took it up meanwhile has said so already, and knows more than this.

    What only lapsed stands as before, and nothing is written; where there is more to say, also from when it is due.
    An attempt that was not begun is forgotten where that matters.
    """
    if now.stand.attempts > settled.claim.attempt:
        return now.stand
    again = row.next_ms if settled.verdict == "again" else None
    if settled.lapsed and settled.verdict == "again":
        is_forgotten = not settled.begun and _is_once(row.work)
        attempts = row.attempts if is_forgotten else now.stand.attempts
        stand = replace(now.stand, attempts=attempts, error=row.error, parked=False)
        return stand if stand == now.stand else replace(stand, next_ms=again)
    facts = (row.attempts, row.failures, again, row.error, row.dead_ms, row.cancelled)
    return WorkState(*facts, parked=settled.verdict == "wait")


def _gone(row: Row) -> None:
    """It is done with."""


def _revived(row: Row, now_ms: int) -> WorkState:
    return row.stand if row.stand.dead_ms is None else WorkState(next_ms=now_ms, cancelled=row.stand.cancelled)


def _is_once(work: Work) -> bool:
    """Whether it must be known for sure that it was begun: it must not be again, or not under the same key."""
    body = work.body
    return work.is_saga_step or (isinstance(body, dict) and body.get("restore") in {"fail", "restart"})

"""The work queue of a root. One process runs its work: the holder of the lock of `<root>/dispatch`.

The holder has a table of all unfinished work in memory (`work.table`), made from the journals of the entities that have
a marker (`work.markers`). Other processes only append. The holder finds their work by the hints that they write, at
each poll, and by a scan of all markers now and then. When the holder dies, the next poll of another process takes the
lock.

Rule 1: the journal first, then the table: what is not in a journal was not done.
Rule 2: the start of an attempt at an effect is written before the work is handed out, so that a crash is not forgotten;
it is flushed where the chart says that a second start is wrong. Timers and deliveries need neither: starting them twice
is harmless.
Rule 3: a journal that cannot be read stops its own entity only.
Rule 4: the lock of a journal is never waited for while the table is locked; a journal that publishes holds its own.
Rule 5: a scan opens the journals that grew since they were published, and no others: most entities that wait for their
time are not open, and each opening costs three flushes.
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
from interlock.model.audit import AuditRow
from interlock.model.journal import work_state
from interlock.model.journal.work import Lane, Work, WorkId
from interlock.model.journal.work_state import WorkState, is_valid_claim
from interlock.ports.work import Claim, Settlement, WorkPage, WorkQuery
from interlock.stores.files.audit import FileAudit
from interlock.stores.files.durable_io import EntityDirectory, unavailable
from interlock.stores.files.journal.journal import JournalContext, UpdateState
from interlock.stores.files.journal.line_formats import Position
from interlock.stores.files.journal.open_journals import OpenJournals
from interlock.stores.files.journal.unfinished_work import WorkChanges, WorkItem
from interlock.stores.files.reader import EntityReader
from interlock.stores.files.root import Root
from interlock.stores.files.work.markers import WorkMarkers
from interlock.stores.files.work.table import PublishedWork

DISPATCH = "dispatch"
WHAT = "the work of the store"

POLLED_MAX = 256
"""Entities read before work is handed out: a restart with many of them runs work early, and reads on in between."""

SCAN_MS = 30_000
"""How often all markers are scanned: work that no hint announced waits for so long at most."""

MARKER_IDLE_MS = 60_000
"""How long a marker outlives the last work of its entity: the next work, if it comes soon, needs no flush for it."""

_logger = logging.getLogger(__name__)


class Dispatcher:
    """The work below one root: for the process that runs it, and for others that list or change it."""

    def __init__(
        self, context: JournalContext, root: Root, markers: WorkMarkers, journals: OpenJournals, audit: FileAudit
    ) -> None:
        self._context = context
        self._audit = audit
        self._fs = context.io.fs
        self._root = root
        self._markers = markers
        self._journals = journals
        self._reader = EntityReader(context)
        self._file = -1
        self._is_holder = False
        self._is_read = False  # whether the table has the work of every entity with a marker
        self._table = PublishedWork()
        self._guard = Lock()
        self._polling = Lock()
        self._queue: dict[str, EntityDirectory] = {}
        self._idle: dict[str, tuple[EntityDirectory, int]] = {}
        self._ends: dict[str, Position] = {}
        self._scanned_ms: int | None = None
        self._now_ms = 0

    # Running work

    def claim(
        self, lane: Lane, names: tuple[str, ...] | None, *, owner: str, now_ms: int, until_ms: int, limit: int
    ) -> tuple[Claim, ...]:
        """Claim work that is due, oldest first; none while another process runs it."""
        if not self._poll(now_ms):
            return ()
        with self._guard:
            claims = self._table.rows.claim(lane, names, owner=owner, now_ms=now_ms, until_ms=until_ms, limit=limit)
        if lane != "effect":
            return claims
        started: list[Claim] = []
        problems: list[InterlockError] = []
        for claim in claims:
            try:
                if self._start_attempt(claim):
                    started.append(claim)
            except InterlockError as error:
                problems.append(error)
                unstarted = Settlement(claim, "again", now_ms, without_failure=True, started=False)
                with self._guard:
                    self._table.rows.settle((unstarted,), now_ms=now_ms)
        if problems and not started:
            raise problems[0]
        return tuple(started)

    def _start_attempt(self, claim: Claim) -> bool:
        """Rule 2. False when the work no longer exists."""

        def start(item: WorkItem) -> WorkState:
            if item.state.attempts >= claim.attempt:  # written before, for an attempt that was then not started
                return item.state
            return replace(item.state, attempts=claim.attempt, failures=claim.failures)

        return self._update(claim.entity, claim.work.id, start, durable=_runs_once(claim.work)) is not None

    def renew(self, claims: tuple[Claim, ...], *, until_ms: int) -> tuple[Claim | None, ...]:
        """Extend claims."""
        if self._is_holder:
            self._poll(self._now_ms)
        with self._guard:
            return self._table.rows.renew(claims, until_ms=until_ms)

    def settle(self, settled: tuple[Settlement, ...], *, now_ms: int) -> tuple[bool, ...]:
        """Release claims, with the outcome of each."""
        return tuple(self._settle(each, now_ms) for each in settled)

    def _settle(self, settled: Settlement, now_ms: int) -> bool:
        claim = settled.claim
        entity, work_id = claim.entity, claim.work.id
        if settled.verdict == "done":
            return self._update(entity, work_id, _remove) is not None
        with self._guard:
            is_held = self._table.rows.settle((settled,), now_ms=now_ms)[0]
            state = self._table.rows.state(entity, work_id)
        if not is_held:
            return False
        if state is None:
            self._update(entity, work_id, _remove)
        else:
            self._update(entity, work_id, partial(_settled_state, state=state, settled=settled))
        return True

    def save_details(self, claim: Claim, error: Any) -> bool:
        """Record progress or an error of claimed work; False when the claim is no longer valid."""
        with self._guard:
            if not self._table.rows.save_details(claim, error):
                return False
        item = self._update(claim.entity, claim.work.id, lambda now: replace(now.state, error=error))
        return item is not None

    def next_due_ms(self, lane: Lane, names: tuple[str, ...] | None) -> int | None:
        """When the next work is due; now while there are entities to read."""
        with self._guard:
            if not self._is_holder:
                return None
            return 0 if self._queue else self._table.rows.next_due_ms(lane, names)

    # Listing and changing work

    def list_work(self, query: WorkQuery) -> WorkPage:
        """Work by lane, name and entity, page by page; the process that runs it also knows the claims."""
        address = None if query.entity is None else self._root.address(query.entity)
        if not self._is_holder:
            return self._read_table(address).rows.list_work(query)
        if address is not None:
            self._publish(address)
        is_partial = address is None and not self._is_read
        with self._guard:
            return replace(self._table.rows.list_work(query), is_partial=is_partial)

    def _read_table(self, address: EntityDirectory | None) -> PublishedWork:
        """The work of one entity, or of all, read without a lock or a flush."""
        table = PublishedWork()
        if address is not None:
            table.apply(address.entity, WorkChanges.whole(self._reader.work(address)))
        else:
            for each in self._marked():
                table.apply(each.entity, WorkChanges.whole(self._try(self._reader.work, each)))
        return table

    def requeue_dead_letter(self, entity: str, work_id: WorkId, *, now_ms: int, audit: AuditRow | None = None) -> bool:
        """Retry dead work from its first attempt."""

        def revive(item: WorkItem) -> WorkState:
            if item.state.dead_ms is not None:
                self._record(audit)
            return item.state if item.state.dead_ms is None else work_state.requeue_dead_letter(item.state, now_ms)

        item = self._update(entity, work_id, revive, durable=True)
        return item is not None and item.state.dead_ms is not None

    def requeue(self, settled: Settlement, *, audit: AuditRow | None = None) -> bool:
        """Retry work that is not dead; False when it changed meanwhile.

        The journal decides and not only the table: the operator is often another process than the one that runs work.
        """
        claim, is_done = settled.claim, False

        def requeue(item: WorkItem) -> WorkState:
            nonlocal is_done
            state = item.state
            is_done = is_valid_claim(state, claim.attempt, claim.failures)
            if not is_done:
                return state
            self._record(audit)
            return work_state.requeue(state, next_ms=settled.next_ms, error=settled.error)

        self._update(claim.entity, claim.work.id, requeue, durable=True)
        return is_done

    def delete_work(self, entity: str, work_id: WorkId, *, audit: AuditRow | None = None) -> bool:
        """Delete work."""
        return self._update(entity, work_id, lambda _: self._record(audit), durable=True) is not None

    def _record(self, audit: AuditRow | None) -> None:
        """Record who acts on work, before the act. Raises UnavailableError: without its record the act is not done.

        Called while the journal of the entity is locked, so that the act follows directly (ADR 0043).
        """
        if audit is None:
            return
        self._audit.append((audit,))

    def _update(self, entity: str, work_id: WorkId, update: UpdateState, *, durable: bool = False) -> WorkItem | None:
        with self._journals.using(self._root.address(entity)) as journal:
            return journal.update_work(work_id, update, durable=durable)

    # Finding work

    def _poll(self, now_ms: int) -> bool:
        """Find the work of other processes. Whether this process is the one that runs work."""
        with self._polling:
            self._advance_clock(now_ms)
            try:
                if self._root.read_only is not None or not self._hold():
                    return False
                self._read_hints()
                for address in filter(self._has_grown, self._take_queued()):
                    self._try(self._publish, address)
                self._is_read = self._is_read or not self._queue
                self._remove_markers()
            except OSError as error:
                raise unavailable(WHAT, "look", error) from error
            return True

    def _advance_clock(self, now_ms: int) -> None:
        """A clock that goes back a little stands still here. One that goes back far is followed: waiting for the old
        time would stop scans and the removal of markers.
        """
        if now_ms < self._now_ms - SCAN_MS:
            self._now_ms, self._scanned_ms = now_ms, None
            with self._guard:
                self._idle = {name: (address, now_ms) for name, (address, _) in self._idle.items()}
        self._now_ms = max(self._now_ms, now_ms)

    def _hold(self) -> bool:
        """Whether this process holds the lock of the root's work, or takes it now."""
        if self._is_holder:
            return True
        if self._file < 0:
            self._file = self._fs.open_append(self._root.directory, DISPATCH)
        try:
            self._fs.lock(self._file, 0)
        except TimeoutError:
            return False
        self._context.on_work_changed = self._on_work_changed
        self._is_holder = True
        return True

    def _read_hints(self) -> None:
        names, too_many = set[str](), False
        with contextlib.suppress(TimeoutError):  # a hint is being written: it is read at the next poll
            names, too_many = self._markers.take_hints()
        for address in filter(None, map(self._markers.address, names)):
            self._queue[address.name] = address
        scanned_ms = self._scanned_ms
        if too_many or scanned_ms is None or self._now_ms >= scanned_ms + SCAN_MS:
            self._scanned_ms = self._now_ms
            self._queue.update({address.name: address for address in self._marked()})

    def _marked(self) -> Iterator[EntityDirectory]:
        try:
            yield from self._markers.addresses()
        except OSError as error:
            raise unavailable(WHAT, "list", error) from error

    def _take_queued(self) -> list[EntityDirectory]:
        names = [name for name, _ in zip(self._queue, range(POLLED_MAX), strict=False)]
        return [self._queue.pop(name) for name in names]

    def _has_grown(self, address: EntityDirectory) -> bool:
        """Rule 5."""
        end = self._ends.get(address.name)
        try:
            return end is None or not self._reader.is_end(address, end)
        except InterlockError:
            return True

    def _try(
        self, read: Callable[[EntityDirectory], tuple[WorkItem, ...]], address: EntityDirectory
    ) -> tuple[WorkItem, ...]:
        """Rule 3. A journal that cannot be read is tried again at the next scan."""
        try:
            return read(address)
        except InterlockError as error:
            facts = {"entity_id": address.entity, "code": error.code, "error": str(error)}
            _logger.warning("cannot read the work of an entity", extra=facts)
            return ()

    def _publish(self, address: EntityDirectory) -> tuple[WorkItem, ...]:
        with self._journals.using(address) as journal:
            return journal.publish_work()

    def _on_work_changed(self, address: EntityDirectory, changes: WorkChanges, end: Position) -> None:
        """Called by a journal that is locked."""
        with self._guard:
            try:
                self._table.apply(address.entity, changes)
            except BaseException:  # Ctrl-C, where an append was done inline: a part may have been applied
                self._reset()
                raise
            if not changes.is_idle:
                self._ends[address.name] = end
                self._idle.pop(address.name, None)
            else:
                self._ends.pop(address.name, None)
                self._idle.setdefault(address.name, (address, self._now_ms))

    def _reset(self) -> None:
        """Start again as after a crash: claims are dropped, and every journal publishes all of its work again."""
        self._table, self._idle, self._ends, self._scanned_ms = PublishedWork(), {}, {}, None
        self._is_read = False
        self._context.on_work_changed = self._on_work_changed

    def _remove_markers(self) -> None:
        """Remove the markers of entities that have had no work for a while."""
        with self._guard:
            idle = [each for each, since_ms in self._idle.values() if self._now_ms >= since_ms + MARKER_IDLE_MS]
        for address in idle[:POLLED_MAX]:
            with contextlib.suppress(InterlockError), self._journals.using(address) as journal:
                journal.remove_marker()
            with self._guard:
                self._idle.pop(address.name, None)

    # Closing

    def close(self) -> None:
        """Release the lock; the next poll of another process takes it."""
        self._context.on_work_changed = None
        self._is_holder = self._is_read = False
        if self._file >= 0:
            with contextlib.suppress(OSError):
                self._fs.close(self._file)
        self._file = -1

    def abandon(self) -> None:
        """In a forked child: the lock is the parent's."""
        self._guard, self._polling = Lock(), Lock()
        self._queue = {}
        self._reset()
        self.close()


def _settled_state(item: WorkItem, *, state: WorkState, settled: Settlement) -> WorkState:
    """The state to record after a claim was released; `state` is that of the table.

    A newer attempt has recorded its own state, which stays. A claim that only expired changes nothing, and nothing is
    written; if there is more to write, then also when it is due. An attempt that was not started is forgotten where
    that matters, and where something is written in any case: a handler may pause many times.
    """
    recorded = item.state
    if recorded.attempts > settled.claim.attempt:
        return recorded
    if settled.without_failure and settled.verdict == "again":
        is_forgotten = not settled.started and (_runs_once(item.work) or state.error != recorded.error)
        attempts = state.attempts if is_forgotten else recorded.attempts
        after = replace(recorded, attempts=attempts, error=state.error, parked=False)
        return after if after == recorded else replace(after, next_ms=state.next_ms)
    return state


def _remove(item: WorkItem) -> None:
    """The update that removes work."""


def _runs_once(work: Work) -> bool:
    """Whether its start must be known for sure: it must not start again, or not under the same key."""
    body = work.body
    return work.is_saga_step or (isinstance(body, dict) and body.get("restore") in {"fail", "restart"})

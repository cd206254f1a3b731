"""The entities of a store through one connection: their turns, cached snapshots, loads and appends.

Rule 1: the runtime has one `Entities` for its own connection, and one for each call in a transaction of a caller
(`on_transaction`). `Entities` holds what differs between the two; `ProcessState` holds what they share. A new attribute
of `Entities` is never shared, because both are constructed and neither is copied.
Rule 2: a snapshot from the cache may be stale. That costs one lost swap, never a wrong step.
Rule 3: workers and watchers are notified after the append, never before. An append in a transaction of a caller is
announced after its COMMIT (`announce`).
Rule 4: an error of the chart that no transition handled is logged: most steps have no caller who reads a receipt. The
log never quotes a payload.
Rule 5: when the store is at an earlier version than this process has seen, nothing is stepped any more on any
connection: keys of effects would be used again.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Iterable

from interlock.errors import NotFoundError, PrunedError, UnavailableError
from interlock.kernel.step import Kernel
from interlock.model.event import Event
from interlock.model.journal.entry import Entry, Receipt, visible_version
from interlock.model.journal.work import WorkDelta
from interlock.model.limits import CONFLICT_RETRIES_MAX, SNAPSHOTS_CACHED_MAX
from interlock.model.personal_token import KEY_FIELD
from interlock.model.snapshot import Snapshot
from interlock.model.step import Fault, Step
from interlock.ports.clock import Clock, stopwatch_ns
from interlock.ports.delivery import CHART_MISSING_CODES
from interlock.ports.meter import Meter
from interlock.ports.store import (
    Append,
    Appended,
    AppendResult,
    Conflict,
    Duplicate,
    JoinedStore,
    Loaded,
    Pruned,
    Store,
)
from interlock.ports.tracer import Tracer
from interlock.ports.trust.authorizer import Authorizer
from interlock.runtime.charts.registry import ChartRegistry
from interlock.runtime.charts.revisions import Revisions
from interlock.runtime.charts.rollouts import Rollouts
from interlock.runtime.charts.upgrades import UpgradePolicy, UpgradeRules, Upgrades
from interlock.runtime.entities.announcements import Announcements, OnWork
from interlock.runtime.entities.append_builder import AppendBuilder
from interlock.runtime.entities.holds import KnownHolds
from interlock.runtime.entities.mailbox import EntityTurn, Mailboxes, Priority, WaitingCallers
from interlock.runtime.entities.transition_log import Line, TransitionLog
from interlock.runtime.entities.watched_clock import WatchedClock
from interlock.runtime.epoch import read_epoch, went_back
from interlock.runtime.history.removed import missing_entity
from interlock.runtime.history.replay import replay
from interlock.runtime.listed_states import ListedStates
from interlock.runtime.message_setting import MessageSetting
from interlock.runtime.vault import PersonalVault, missing_keyring, undeclared_error
from interlock.trust.audit import AuditRecorder, JoinedAudit

_log = logging.getLogger("interlock.runtime")


class ProcessState:
    """What a runtime knows about its store on every connection."""

    def __init__(
        self,
        charts: ChartRegistry,
        clock: Clock,
        *,
        keeps_work: bool,
        authorizer: Authorizer | None = None,
        tracer: Tracer | None = None,
    ) -> None:
        self.charts = charts
        self.clock = clock
        self.keeps_work = keeps_work
        self.authorizer = authorizer
        self.tracer = tracer
        self.listed = ListedStates()
        self.epoch: int | None = None
        self.waiting = WaitingCallers(clock.now_ms)
        self.is_closed = False
        self.stopped: UnavailableError | None = None
        self.vault: PersonalVault | None = None
        self.meter: Meter | None = None
        self.transitions: TransitionLog | None = None


class SnapshotCache(OrderedDict[str, tuple[Snapshot, int]]):
    """The snapshots that were used last, each with the time of its last entry."""

    def keep(self, snapshot: Snapshot, time_ms: int) -> None:
        """Put a snapshot into the cache; the one that was stored longest ago leaves it."""
        self[snapshot.entity] = (snapshot, time_ms)
        self.move_to_end(snapshot.entity)
        if len(self) > SNAPSHOTS_CACHED_MAX:
            self.popitem(last=False)


class Entities:
    """The entities of a store, through one connection. `tries_max`: how often a send tries after lost swaps."""

    def __init__(
        self,
        store: Store,
        process: ProcessState,
        revisions: Revisions,
        upgrades: Upgrades,
        messages: MessageSetting,
        rollouts: Rollouts,
        audit: AuditRecorder | JoinedAudit,
        holds: KnownHolds,
        *,
        tries_max: int,
    ) -> None:
        self.store = store
        self.process = process
        self.charts = process.charts
        self.clock = process.clock
        self.revisions = revisions
        self.upgrades = upgrades
        self.messages = messages
        self.rollouts = rollouts
        self.audit = audit
        self.holds = holds
        self.tries_max = tries_max
        self.snapshots = SnapshotCache()
        self.mailboxes: Mailboxes = {}
        self.announcements = Announcements()
        self.time = WatchedClock(process.clock)
        self.appends = AppendBuilder(messages, process.listed, keeps_work=process.keeps_work)
        self.held_lines: list[Line] | None = None
        """In a transaction of the caller, the lines of the transition log: they are written after the COMMIT."""

    @classmethod
    def open(
        cls,
        store: Store,
        charts: ChartRegistry,
        clock: Clock,
        audit: AuditRecorder,
        *,
        messages: bool,
        upgrade: UpgradePolicy,
        authorizer: Authorizer | None = None,
        tracer: Tracer | None = None,
    ) -> Entities:
        """Return the entities on the own connection of a runtime. `messages`: it has a bus."""
        revisions = Revisions(charts, store, clock)
        rollouts = Rollouts(store.facts, clock)
        # The entities of an engine finish on the revision that they carry.
        rules = UpgradeRules(charts if store.engine is None else ChartRegistry(()), upgrade)
        return cls(
            store,
            ProcessState(charts, clock, keeps_work=store.work is not None, authorizer=authorizer, tracer=tracer),
            revisions,
            Upgrades(charts, revisions, rules, rollouts),
            MessageSetting(store.facts, clock, has_bus=messages),
            rollouts,
            audit,
            KnownHolds(store.facts, clock),
            tries_max=CONFLICT_RETRIES_MAX + 1,
        )

    # Transactions of callers

    def on_transaction(self, store: JoinedStore, on_work: OnWork, loop: asyncio.AbstractEventLoop) -> Entities:
        """Return the entities for one call on a transaction of the caller: it tries once, and its cache starts empty.
        `loop` is the event loop of the runtime.

        What it would read of the store apart from the entity is read by `prepare` before.
        """
        revisions = self.revisions.on_transaction(store)
        rollouts, holds = self.rollouts.fixed(), self.holds.fixed()
        upgrades = self.upgrades.on_transaction(revisions, rollouts)
        assert isinstance(self.audit, AuditRecorder)  # a transaction is joined from the own connection
        audit = JoinedAudit(self.audit, loop)
        messages = self.messages.fixed()
        joined = Entities(store, self.process, revisions, upgrades, messages, rollouts, audit, holds, tries_max=1)
        joined.announcements.on_work(on_work)
        joined.held_lines = []
        return joined

    def is_prepared(self, kind: str, *, saves: bool) -> bool:
        """Whether `prepare` has nothing to do."""
        is_registered = not saves or self.revisions.is_registered(kind)
        is_stale = self.messages.is_stale or self.rollouts.is_stale or self.holds.is_stale
        is_read = self.process.epoch is not None and not is_stale
        return is_registered and is_read and self.revisions.is_policy_known(kind)

    async def prepare(self, kind: str, *, saves: bool) -> None:
        """Read the settings of the store and the policy of a kind; with `saves`, save the definitions of its charts.

        For calls on transactions of the caller. Saving is not part of them: another process that saves the same
        definitions would wait for the caller.
        """
        await self.epoch()
        if self.messages.is_stale:
            await self.messages.refresh()
        if self.rollouts.is_stale:
            await self.rollouts.refresh()
        if self.holds.is_stale:
            await self.holds.refresh()
        if saves:
            await self.revisions.register_kind(kind)
        if not self.revisions.is_policy_known(kind):
            await self.revisions.check_policy(kind)

    def announce(self, entity: str, work: Iterable[WorkDelta]) -> None:
        """Forget the cached snapshot of an entity that a transaction of the caller changed; wake watchers and workers.

        Called after the COMMIT.
        """
        self.snapshots.pop(entity, None)
        self.announcements.committed(entity, work)

    # Closing

    @property
    def is_closed(self) -> bool:
        """Whether the runtime is closed."""
        return self.process.is_closed

    def close(self) -> None:
        """Accept no further step, and wake every watcher."""
        self.process.is_closed = True
        self.announcements.closed()

    def stop(self, entity: str, version: int, known: int) -> UnavailableError:
        """Accept no further step: the store went back in time to a version below a known one. Return the error."""
        self.process.stopped = went_back(entity, version, known)
        self.snapshots.clear()
        return self.process.stopped

    async def gone(self, entity: str, version: int, known: int) -> NotFoundError | UnavailableError:
        """Return the error for an entity that is at an earlier version than this process has seen.

        One that retention removed is missing. Otherwise the store went back in time, and no further step is accepted.
        """
        if version == 0:
            error = await missing_entity(self.store, entity)
            if isinstance(error, PrunedError):
                self.snapshots.pop(entity, None)
                return error
        return self.stop(entity, version, known)

    # Writing

    def turn(self, entity: str, priority: Priority, principal: object = None) -> EntityTurn:
        """One step of an entity at a time. Raises UnavailableError once closed."""
        process = self.process
        if process.is_closed:
            raise UnavailableError("the runtime is closed", code="runtime.closed")
        if process.stopped is not None:
            raise process.stopped
        return EntityTurn(self.mailboxes, process.waiting, entity, priority, principal)

    async def append(self, append: Append, step: Step, kernel: Kernel) -> AppendResult:
        """Write a step. When it is durable, cache its snapshot, wake the entity's watchers and notify the worker.

        Raises UnavailableError when the store is at an earlier version than the step was computed on.
        """
        meter = self.process.meter
        if meter is None:
            result = await self.store.append(append)
        else:
            started_ns = stopwatch_ns()
            result = await self.store.append(append)
            meter.appended(stopwatch_ns() - started_ns)
        if isinstance(result, Appended):
            if self.process.transitions is not None:
                self._log_transition(self.process.transitions, append, kernel)
            self.snapshots.keep(append.snapshot, append.entry.event.time_ms)
            self.announcements.appended(append)
            if step.faults:
                log_faults(append.entry, step)
        elif isinstance(result, Pruned):
            self.snapshots.pop(append.entity, None)
        elif isinstance(result, Conflict) and result.version < append.expected:
            raise await self.gone(append.entity, result.version, append.expected)
        return result

    def count(self, event: str, receipt: Receipt) -> None:
        """Report to the meter, if there is one, what became of an event."""
        meter = self.process.meter
        if meter is not None:
            meter.received(receipt.entity.partition("/")[0], event, receipt.outcome, receipt.reason)

    def _log_transition(self, log: TransitionLog, append: Append, kernel: Kernel) -> None:
        cached = self.snapshots.get(append.entity)
        previous_ms = cached[1] if cached is not None and cached[0].version == append.expected else None
        line = log.line(kernel, append, previous_ms)
        if line is None:
            return
        if self.held_lines is None:
            log.write(line)
        else:
            self.held_lines.append(line)

    async def epoch(self) -> int:
        """Return the restore epoch of the store, read once: workers are stopped before it is raised."""
        if self.process.epoch is None:
            self.process.epoch = await read_epoch(self.store)
        return self.process.epoch

    # Personal data

    async def prepare_keys(self, entity: str) -> None:
        """Read the data key of an entity, and have one for a new entity, before a transaction of the caller."""
        vault = self.process.vault
        if vault is None:
            return
        await vault.fill_pool()
        found = await self.store.load(entity)
        snapshot = found.snapshot if isinstance(found, Loaded) else None
        if snapshot is not None and isinstance(kid := snapshot.context.get(KEY_FIELD), str):
            await vault.cipher(kid)

    async def sealed(self, kernel: Kernel, snapshot: Snapshot, event: Event) -> Event | Fault:
        """Return an event with its personal values sealed, or why it is refused."""
        vault = self.process.vault
        if vault is None:
            if kernel.personal is None:
                raise undeclared_error()
            raise missing_keyring(kernel.chart.kind)
        return await vault.seal_event(kernel, snapshot, event)

    def checked(self, kernel: Kernel, snapshot: Snapshot, step: Step) -> Step:
        """Return a step that stores no plain personal value, or a refusal in place of it."""
        vault = self.process.vault
        return step if vault is None else vault.check_step(kernel, snapshot, step)

    # Reading

    async def load_snapshot(self, entity: str) -> tuple[Snapshot, int]:
        """Return the snapshot as the store has it, and the time of its last entry. Raises NotFoundError."""
        found = await self.load(entity)
        snapshot = await replay(self.revisions, entity, found.snapshot, (each.entry for each in found.records))
        if snapshot is None:
            raise await missing_entity(self.store, entity)
        self.snapshots.keep(snapshot, found.time_ms)
        return snapshot, found.time_ms

    async def load(self, entity: str) -> Loaded:
        """Return what the store has of an entity. Raises NotFoundError."""
        found = await self.store.load(entity)
        if found is None or isinstance(found, Duplicate):
            raise await missing_entity(self.store, entity)
        return found

    async def has_chart(self, entity: str) -> bool:
        """Whether this process has the chart of an entity, in its revision; True for an unknown entity."""
        cached = self.snapshots.get(entity)
        try:
            snapshot, _ = cached if cached is not None else await self.load_snapshot(entity)
            kernel = await self.revisions.for_preview(snapshot)
            if kernel.personal is not None and self.process.vault is None:
                return False
        except NotFoundError:
            return True
        except UnavailableError as error:
            if error.code not in CHART_MISSING_CODES:
                raise
            return False
        return True


def log_faults(entry: Entry, step: Step) -> None:
    """Log the errors inside a step that was written, without their messages, which may quote a payload.

    Of a step that others may not see, the log does not name the entity; versions are those that they see.
    """
    for fault in step.faults:
        facts: dict[str, object] = {"kind": step.snapshot.kind}
        if entry.shown == "whole":
            version = visible_version(entry)
            facts = {"entity_id": step.snapshot.entity, "version": version, "event": entry.event.name}
        _log.warning("no transition handled an error", extra={**facts, "code": fault.code, "place": fault.place})

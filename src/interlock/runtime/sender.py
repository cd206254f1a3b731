"""The write path of the runtime: load, step, append, retry; for callers' events and for results, timers and messages.

Rule 1: a snapshot from the cache may be stale. That costs one lost swap, never a wrong step.
Rule 2: a refusal is given only on a fresh snapshot, and only when the key is unknown: the same send, repeated after the
entity has moved on, is `duplicate`. The role check comes before everything else, so that a caller without the role
cannot learn anything by guessing a key or a version.
Rule 3: the work that a step creates is written in the append of its entry, where the store keeps work. The worker is
notified afterwards, never before.
Rule 4: an error of the chart that no transition handled is logged: most steps have no caller who reads a receipt. The
log never quotes a payload.
Rule 5: a key names one event of an entity; its creation counts as an event. The same event again is `duplicate`.
Another event under a caller's key is a UsageError, because the caller would take `duplicate` for success. Payloads are
not compared: a repeated send may carry another time.
Rule 6: keys that start with `_` belong to the runtime and are made from what they name, so they need no such check,
except keys of requests from outside (`model.keys.REQUESTS`). An archived entry cannot be checked; its key
is `duplicate`.
Rule 7: a former key of a request counts only for an entry of the same event, with the same payload or from the same
principal: another sender may have used that key, and must not be able to suppress the request by doing so.
Rule 8: a move to another revision is an entry like any other: carried whole or not at all, under compare-and-swap, with
its timers and invokes as work rows. Its key names the version that it was computed on.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from copy import copy
from enum import Enum
from typing import TYPE_CHECKING, Any, Literal
from weakref import WeakValueDictionary

from msgspec import Struct
from msgspec.structs import replace

from interlock.effects.work_delta import work_delta
from interlock.errors import ConflictError, NotFoundError, RejectedError, UnavailableError
from interlock.evolve.move import move_event, move_key
from interlock.kernel.step import Kernel
from interlock.model.backoff import Backoff
from interlock.model.chart import Chart
from interlock.model.codec import encode, snapshot_digest, to_builtins
from interlock.model.event import Event
from interlock.model.journal.entry import CREATE, MOVED, Entry, Receipt
from interlock.model.journal.work import WorkDelta, WorkId
from interlock.model.keys import dedupe_key
from interlock.model.limits import (
    BACKOFF_MS_MAX,
    BACKOFF_MS_MIN,
    CLOCK_AHEAD_MS_MAX,
    CONFLICT_RETRIES_MAX,
    ENTRY_BYTES_MAX,
    POLICY_AGE_MS_MAX,
    SNAPSHOT_BYTES_MAX,
    SNAPSHOTS_CACHED_MAX,
)
from interlock.model.refusal_text import EXISTS, explain_refusal
from interlock.model.sendable_events import UNKNOWN_EVENT, knows_event
from interlock.model.snapshot import Parent, Snapshot
from interlock.model.step import Fault, Step
from interlock.ports.clock import Clock
from interlock.ports.delivery import CHART_MISSING_CODES
from interlock.ports.refusals import Refusal
from interlock.ports.store import (
    Append,
    Appended,
    Conflict,
    Duplicate,
    EntityQuery,
    JoinedStore,
    KeyExpired,
    Loaded,
    StaleAttempt,
    Store,
)
from interlock.runtime.chart_registry import ChartRegistry
from interlock.runtime.duplicates import find_former, resolve_duplicate
from interlock.runtime.epoch import read_epoch, went_back
from interlock.runtime.history.replay import replay
from interlock.runtime.mailbox import EntityTurn, Mailboxes, Priority
from interlock.runtime.message_setting import MessageSetting
from interlock.runtime.moves import MoveRequest, MoveResult
from interlock.runtime.request_checks import unknown_entity
from interlock.runtime.revisions import Revisions
from interlock.runtime.upgrades import UpgradePolicy, UpgradePreview, Upgrades
from interlock.trust.authorization import Authorizer

if TYPE_CHECKING:
    from interlock.evolve.carry import Carrier

NO_WORK = WorkDelta()

OnWork = Callable[[str, WorkDelta], None]
"""Called with an entity and the work of an entry that is durable."""

EXPIRED = Fault("key.expired", "the key is older than the deduplication window; the event may have been applied before")

_CONFLICT = Backoff(BACKOFF_MS_MIN, BACKOFF_MS_MAX)
"""The wait before the next try after a lost swap."""

_log = logging.getLogger("interlock.runtime")


class SendRequest(Struct, frozen=True):
    """An event for an entity.

    `expected` is the version that the caller expects. `refusal` is set when the request is to be refused unless its key
    is known; one of an unknown event does not count where the revision of the entity knows the event. `finishes` is the
    work of the entity that ends with the entry; with `fence`, only if that is still its newest attempt. `sent_ms` is
    when the event was first sent, for stores that know whether its key may have expired. `reason` is what the sender
    wrote about the event. `former_key` is the key under which an earlier release may have recorded the same request.
    """

    event: Event
    key: str
    expected: int | None = None
    trace: str | None = None
    refusal: Fault | None = None
    reason: str | None = None
    finishes: WorkId | None = None
    fence: int | None = None
    priority: Priority = Priority.CALLER
    sent_ms: int | None = None
    former_key: str | None = None


class _Denied(Struct, frozen=True):
    """The policy of the chart denies the event. By role: then the key is not looked up either."""

    reason: str
    by_role: bool


class _WrongVersion(Struct, frozen=True):
    """The entity is not at the version that the caller expects."""


class _TooLarge(Struct, frozen=True):
    """The entry of the step, or its snapshot, is too large to store."""

    error: RejectedError


_Refusal = Step | _Denied | _WrongVersion | _TooLarge


class _Attempt(Enum):
    """An attempt without a receipt: another writer changed the entity first."""

    LOST = "lost"


class _Stamped(Struct, frozen=True):
    """An event with its time, the key that identifies it, and its former key if it has one."""

    event: Event
    key: str
    former_key: str | None


class EntitySender:
    """Steps the entities of some charts on one store."""

    def __init__(
        self,
        store: Store,
        charts: ChartRegistry,
        clock: Clock,
        *,
        messages: bool = False,
        upgrade: UpgradePolicy = "pinned",
    ) -> None:
        self.store = store
        self.charts = charts
        self.clock = clock
        self.revisions = Revisions(charts, store, clock)
        self.upgrades = Upgrades(charts, self.revisions, upgrade)
        self.closed = False
        self.snapshots: OrderedDict[str, tuple[Snapshot, int]] = OrderedDict()
        self._mailboxes: Mailboxes = {}
        # Weak: an event lives as long as a watcher waits on it.
        self._watchers: WeakValueDictionary[str, asyncio.Event] = WeakValueDictionary()
        self._work_listeners: list[OnWork] = []
        self._followers: set[asyncio.Event] = set()
        self._clock_listeners: list[Callable[[str | None], None]] = []
        self._latest_ms = 0
        self._epoch: int | None = None
        self._stopped: UnavailableError | None = None
        self._tries_max = CONFLICT_RETRIES_MAX + 1
        self._keeps_work = store.work is not None
        self._messages = MessageSetting(store, clock, has_bus=messages)
        self._hidden: dict[str, frozenset[str]] = {}
        self._listed: dict[tuple[str, tuple[str, ...]], tuple[tuple[str, ...], tuple[str, ...]]] = {}

    def on_transaction(self, store: JoinedStore, on_work: OnWork) -> EntitySender:
        """Return a sender for one call on a transaction of the caller: it tries once, and shares no cached snapshot.

        What it would read of the store apart from the entity is read by `prepare` before.
        """
        sender = copy(self)
        revisions = self.revisions.on_transaction(store)
        vars(sender).update(
            store=store,
            revisions=revisions,
            upgrades=self.upgrades.on_transaction(revisions),
            snapshots=OrderedDict(),
            _messages=self._messages.fixed(),
            _mailboxes={},
            _watchers=WeakValueDictionary(),
            _work_listeners=[on_work],
            _followers=set(),
            _clock_listeners=[],
            _tries_max=1,
        )
        return sender

    def is_prepared(self, kind: str, *, saves: bool) -> bool:
        """Whether `prepare` has nothing to do."""
        is_registered = not saves or self.revisions.is_registered(kind)
        is_read = self._epoch is not None and not self._messages.is_stale
        return is_registered and is_read and self.revisions.is_policy_known(kind)

    async def prepare(self, kind: str, *, saves: bool) -> None:
        """Read the settings of the store and the policy of a kind; with `saves`, save the definitions of its charts.

        For calls on transactions of the caller. Saving is not part of them: another process that saves the same
        definitions would wait for the caller.
        """
        await self._read_epoch()
        if self._messages.is_stale:
            await self._messages.refresh()
        if saves:
            await self.revisions.register_kind(kind)
        if not self.revisions.is_policy_known(kind):
            await self.revisions.check_policy(kind)

    def announce(self, entity: str, work: Iterable[WorkDelta]) -> None:
        """Forget the cached snapshot of an entity that a transaction of the caller changed; wake watchers and workers.

        Called after the COMMIT.
        """
        self.snapshots.pop(entity, None)
        if (changed := self._watchers.pop(entity, None)) is not None:
            changed.set()
        for follower in self._followers:
            follower.set()
        for delta in work:
            for listener in self._work_listeners:
                listener(entity, delta)

    def close(self) -> None:
        """Accept no further step, and wake every watcher."""
        self.closed = True
        for changed in (*self._watchers.values(), *self._followers):
            changed.set()

    # Listeners

    def on_work(self, listener: OnWork) -> Callable[[], None]:
        """Call a function with the entity and the work that each entry of this process creates or cancels.

        Returns what unregisters it.
        """
        self._work_listeners.append(listener)
        return lambda: self._work_listeners.remove(listener)

    def on_clock(self, listener: Callable[[str | None], None]) -> Callable[[], None]:
        """Call a function with each entity that is stepped while its time is ahead of the clock, and with None when the
        clock itself went back; return what unregisters it.
        """
        self._clock_listeners.append(listener)
        return lambda: self._clock_listeners.remove(listener)

    def changed(self, entity: str) -> asyncio.Event:
        """Return an event that is set when this process next appends to the entity, or closes."""
        return self._watchers.setdefault(entity, asyncio.Event())

    @contextmanager
    def following(self) -> Iterator[asyncio.Event]:
        """Give an event that is set whenever this process appends to any entity, and when it closes."""
        changed = asyncio.Event()
        self._followers.add(changed)
        try:
            yield changed
        finally:
            self._followers.discard(changed)

    def now_ms(self) -> int:
        """Return the time; call the clock listeners when it went back by more than clocks normally differ."""
        now_ms = self.clock.now_ms()
        if now_ms < self._latest_ms - CLOCK_AHEAD_MS_MAX:
            self._latest_ms = now_ms
            self._report_clock(None)
        elif now_ms > self._latest_ms:
            self._latest_ms = now_ms
        return now_ms

    def _report_clock(self, entity: str | None) -> None:
        for listener in self._clock_listeners:
            listener(entity)

    # Writing

    def _turn(self, entity: str, priority: Priority) -> EntityTurn:
        """One step of an entity at a time. Raises UnavailableError once closed."""
        if self.closed:
            raise UnavailableError("the runtime is closed", code="runtime.closed")
        if self._stopped is not None:
            raise self._stopped
        return EntityTurn(self._mailboxes, entity, priority)

    async def create(
        self,
        entity: str,
        kernel: Kernel,
        context: dict[str, Any],
        *,
        key: str | None = None,
        principal: Any = None,
        trace: str | None = None,
        reason: str | None = None,
        parent: Parent | None = None,
    ) -> Receipt:
        """Write entry 1 of an entity, for a caller or, with `parent`, for an invoke.

        Raises RejectedError when the chart rejects it; but if the key is known, a chart accepted the creation before
        and the outcome is `duplicate`.
        """
        if self._messages.is_stale:
            await self._messages.refresh()
        data: dict[str, Any] = {"context": context}
        if parent is not None:
            data["parent"] = to_builtins(parent)
        async with self._turn(entity, Priority.CALLER if parent is None else Priority.ENTITY):
            kernel = await self.revisions.for_new_entity(kernel)
            now_ms, epoch = self.now_ms(), await self._read_epoch()
            event = Event(CREATE, data, key=key, principal=principal, time_ms=now_ms, type="platform", epoch=epoch)
            entry_key = key or (f"_{self.clock.token()}" if parent is None else "_child")
            try:
                step = kernel.start(context, entity=entity, time_ms=now_ms, parent=parent, epoch=epoch)
                append = self._build_append(kernel, None, step, event, entry_key, trace, reason=reason)
            except RejectedError as error:
                if isinstance(found := await self.store.load(entity, key=entry_key), Duplicate):
                    return await resolve_duplicate(self.store, entity, found.version, key=entry_key, event=CREATE)
                if parent is None:  # a parent gets it as the error of its invoke
                    await self._record_refusal(entity, event, "rejected", error.code, trace)
                raise
            result = await self.store.append(append)
            if isinstance(result, Appended):
                self._after_commit(step.snapshot, now_ms, append.work)
                if step.faults:
                    log_faults(append.entry, step)
                return Receipt(entity, "applied", 1, None, step.snapshot, step.effects, step.faults)
            if isinstance(result, Duplicate):
                return await resolve_duplicate(self.store, entity, result.version, key=entry_key, event=CREATE)
            assert isinstance(result, Conflict)  # an entity has no work before its first entry
            text = f"`{entity}` was not created: {EXISTS}"
            return Receipt(entity, "rejected", result.version, "entity.exists", explanation=text)

    async def send(self, entity: str, request: SendRequest) -> Receipt:
        """Step an entity by an event. After a lost swap, try again on a fresh snapshot."""
        if self._messages.is_stale:
            await self._messages.refresh()
        async with self._turn(entity, request.priority):
            if self._epoch is None:
                await self._read_epoch()
            for attempt in range(self._tries_max):
                receipt = await self._try_send(entity, request)
                if receipt is not _Attempt.LOST:
                    return receipt
                self.snapshots.pop(entity, None)
                if self._tries_max == 1:
                    message = f"`{entity}` was changed by another transaction while this event was applied"
                    hint = "roll back, and run the whole transaction again"
                    raise ConflictError(message, code="conflict.joined", hint=hint)
                await self.clock.sleep_ms(_CONFLICT.wait_ms(attempt, self.clock.jitter()))
        raise _too_many_conflicts(entity, "this event was applied")

    async def deliver(
        self, entity: str, event: Event, *, key: str, finishes: WorkId | None = None, fence: int | None = None
    ) -> Receipt:
        """Send an entity an event of the runtime itself, under a key of the runtime; see `ports.delivery`."""
        priority = Priority.ENTITY if finishes is None else Priority.RESULT
        return await self.send(entity, SendRequest(event, key, finishes=finishes, fence=fence, priority=priority))

    async def move(self, entity: str, request: MoveRequest) -> MoveResult:
        """Move an entity to the new revision of a carrier, if it is on the old one and can be carried.

        Raises NotFoundError, and ConflictError when other writers kept winning.
        """
        async with self._turn(entity, request.priority):
            for attempt in range(CONFLICT_RETRIES_MAX + 1):
                cached = self.snapshots.get(entity)
                snapshot, last_ms = cached if cached is not None else await self.load_snapshot(entity)
                result = await self._try_move(snapshot, last_ms, request)
                if isinstance(result, MoveResult) and (result.outcome == "moved" or cached is None):
                    if not request.is_cached:
                        self.snapshots.pop(entity, None)
                    return result
                self.snapshots.pop(entity, None)  # a cached snapshot may be stale: decide on a fresh one
                if result is _Attempt.LOST:
                    await self.clock.sleep_ms(_CONFLICT.wait_ms(attempt, self.clock.jitter()))
        raise _too_many_conflicts(entity, "it was moved")

    async def _try_move(
        self, snapshot: Snapshot, last_ms: int, request: MoveRequest
    ) -> MoveResult | Literal[_Attempt.LOST]:
        """Carry a snapshot and append the move."""
        carrier = request.carrier
        if snapshot.revision not in carrier.old_names:
            return MoveResult("elsewhere", snapshot)
        now_ms = self.now_ms()
        time_ms = max(now_ms, last_ms)
        entered_ms = await self.entered_ms(snapshot, carrier.states_with_new_timers(snapshot))
        epoch = await self._read_epoch()
        carried = carrier.carry(
            snapshot, time_ms=time_ms, entered_ms=entered_ms, epoch=epoch, spread_ms=request.spread_ms
        )
        if carried.step is None or carried.patch is None:
            return MoveResult("stays", snapshot, carried.reasons)
        event = move_event(
            carried.patch,
            why=request.why,
            time_ms=time_ms,
            clock_ms=now_ms if now_ms < time_ms else None,
            principal=request.principal,
            plan=request.plan,
            dropped=carried.dropped,
            undoes=request.undoes,
        )
        step = replace(carried.step, reason=request.why)
        key = move_key(request.plan or step.snapshot.revision, snapshot.version)
        try:
            append = self._build_append(carrier.kernel, snapshot, step, replace(event, epoch=epoch), key, None)
        except RejectedError as error:
            return MoveResult("stays", snapshot, (error.message,))
        result = await self.store.append(append)
        if isinstance(result, Conflict) and result.version < snapshot.version:
            raise self._stop(snapshot, result.version)
        if not isinstance(result, Appended):
            return _Attempt.LOST
        self._after_commit(step.snapshot, time_ms, append.work)
        if step.faults:
            log_faults(append.entry, step)
        return MoveResult("moved", step.snapshot, (), carried.dropped, carried.overdue)

    async def entered_ms(self, snapshot: Snapshot, states: Iterable[str]) -> dict[str, int]:
        """Return when the entity entered some of its active states, as the store lists it."""
        found: dict[str, int] = {}
        kind, _, name = snapshot.entity.partition("/")
        for state in states:
            page = await self.store.find(EntityQuery(kind=kind, state=state, prefix=name, limit=1))
            if page.rows and page.rows[0].entity == snapshot.entity:  # the id itself comes first
                found[state] = page.rows[0].entered_ms
        return found

    async def dry_run(self, entity: str, request: SendRequest) -> Receipt:
        """Return what `send` would answer now. Nothing is written, not even a refusal."""
        snapshot, last_ms = await self.load_snapshot(entity)
        if self.upgrades.covers(snapshot.kind):
            snapshot, _ = await self.preview_upgrade(snapshot, last_ms)
        kernel = await self.revisions.for_preview(snapshot)
        await self.revisions.authorizer(kernel)
        stamped = self._stamp(kernel, snapshot, request, last_ms)
        event = stamped.event
        decision = self._decide(kernel, snapshot, event, request)
        if not _is_denied_by_role(decision):
            if isinstance(found := await self.store.load(entity, key=stamped.key), Duplicate):
                return await resolve_duplicate(self.store, entity, found.version, key=stamped.key, event=event.name)
            if stamped.former_key is not None:
                before = await find_former(self.store, entity, stamped.former_key, event)
                if before is not None:
                    return before
        assert not isinstance(decision, _WrongVersion)  # a dry run expects no version
        return build_receipt(kernel.chart, snapshot, event, decision)

    async def upgrade(self, entity: str) -> bool:
        """Move an entity to the newest chart of its kind if it is due, as its next step would; whether it moved."""
        if not self.upgrades.covers(entity.partition("/")[0]):
            return False
        async with self._turn(entity, Priority.RESULT):
            snapshot, last_ms = await self.load_snapshot(entity)
            carrier = await self.upgrades.carrier(snapshot)
            if carrier is None or self.upgrades.is_kept(snapshot, carrier):
                return False
            return isinstance(await self._try_upgrade(snapshot, last_ms, carrier), Snapshot)

    async def preview_upgrade(self, snapshot: Snapshot, last_ms: int) -> tuple[Snapshot, UpgradePreview | None]:
        """Return the snapshot on which the next step would run, and what would move it; nothing is written."""
        carrier = await self.upgrades.carrier(snapshot, is_preview=True)
        if carrier is None:
            return snapshot, None
        entered_ms = await self.entered_ms(snapshot, carrier.states_with_new_timers(snapshot))
        carried = carrier.carry(snapshot, time_ms=max(self.now_ms(), last_ms), entered_ms=entered_ms)
        preview = UpgradePreview(carrier.written, carried.reasons, carried.dropped)
        return snapshot if carried.step is None else carried.step.snapshot, preview

    async def _try_upgrade(
        self, snapshot: Snapshot, last_ms: int, carrier: Carrier
    ) -> Snapshot | Literal[_Attempt.LOST] | None:
        """Return the moved snapshot; None if the entity cannot be carried."""
        result = await self._try_move(snapshot, last_ms, MoveRequest(carrier))
        if result is _Attempt.LOST:
            return _Attempt.LOST
        if result.outcome == "moved":
            return result.snapshot
        self.upgrades.keep(snapshot, carrier)
        return None

    async def _upgrade_before(
        self, snapshot: Snapshot, last_ms: int, request: SendRequest
    ) -> Snapshot | Literal[_Attempt.LOST] | None:
        """Move an entity before its next step if it is due; None if the step comes without a move.

        A request that would be refused or repeated causes no move: without the role, with a known key, or with another
        version than the entity has.
        """
        carrier = await self.upgrades.carrier(snapshot)
        if carrier is None or self.upgrades.is_kept(snapshot, carrier):
            return None
        if request.refusal is not None or request.expected not in (None, snapshot.version):
            return None
        kernel = await self.revisions.for_reading(snapshot.kind, snapshot.revision)
        stamped = self._stamp(kernel, snapshot, request, last_ms)
        await self.revisions.authorizer(kernel)
        policy = self._policy(kernel, request)
        if policy is not None and policy.role_refusal(stamped.event) is not None:
            return None
        found = await self.store.load(snapshot.entity, key=stamped.key)
        if isinstance(found, Duplicate):
            return None
        if found is None or found.version != snapshot.version:
            return _Attempt.LOST
        if stamped.former_key is not None:
            former = await find_former(self.store, snapshot.entity, stamped.former_key, stamped.event)
            if former is not None:
                return None
        return await self._try_upgrade(snapshot, last_ms, carrier)

    async def _try_send(self, entity: str, request: SendRequest) -> Receipt | _Attempt:
        cached = self.snapshots.get(entity)
        snapshot, last_ms = cached if cached is not None else await self.load_snapshot(entity)
        if self.upgrades.covers(snapshot.kind):
            moved = await self._upgrade_before(snapshot, last_ms, request)
            if moved is _Attempt.LOST:
                return _Attempt.LOST
            if moved is not None:
                snapshot, last_ms = self.snapshots[entity]
                request = replace(request, expected=None)  # it was the version before the move
        kernel = self.revisions.known(snapshot.kind, snapshot.revision) or await self.revisions.for_step(snapshot)
        stamped = self._stamp(kernel, snapshot, request, last_ms)
        policy = self.revisions.policies.get(snapshot.kind)
        if policy is None or not 0 <= self._latest_ms - policy.checked_ms < POLICY_AGE_MS_MAX:
            await self.revisions.authorizer(kernel)
        decision = self._decide(kernel, snapshot, stamped.event, request)
        if stamped.former_key is not None and not _is_denied_by_role(decision):
            before = await find_former(self.store, entity, stamped.former_key, stamped.event)
            if before is not None:
                return before
        if isinstance(decision, Step) and decision.snapshot.version > snapshot.version:
            return await self._commit(kernel, snapshot, stamped, decision, request)
        return await self._refuse(kernel, snapshot, stamped, decision, request)

    def _stamp(self, kernel: Kernel, snapshot: Snapshot, request: SendRequest, last_ms: int) -> _Stamped:
        """Set the time of the event, which never goes back, and find its key.

        A result keeps its own key: under a key that a caller's event has used, a timer would never fire.
        """
        now_ms = self.now_ms()
        epoch = self._epoch or 0
        if last_ms <= now_ms:
            event = replace(request.event, time_ms=now_ms, epoch=epoch)
        else:  # another clock was ahead: the entity's time waits for ours, its timers do not
            event = replace(request.event, time_ms=last_ms, clock_ms=now_ms, epoch=epoch)
            if last_ms > now_ms + CLOCK_AHEAD_MS_MAX:
                self._report_clock(snapshot.entity)
        if event.key is None and request.finishes is None and kernel.chart.events:
            declared = next((each for each in kernel.chart.events if each.name == event.name), None)
            if declared is not None and declared.dedupe is not None:
                value = kernel.evaluate(declared.dedupe, snapshot, event)
                if isinstance(value, str | int) and value != "":
                    return _Stamped(event, *dedupe_key(event.name, value))
        return _Stamped(event, request.key, request.former_key)

    def _decide(
        self, kernel: Kernel, snapshot: Snapshot, event: Event, request: SendRequest
    ) -> Step | _Denied | _WrongVersion:
        """Return the step, or why there is none.

        Roles come first: a caller without the role is denied, whatever it expects. The permit comes after `expected`,
        because it is evaluated on the snapshot, which must be the one that the caller meant.
        """
        policy = self._policy(kernel, request)
        if policy is not None and (reason := policy.role_refusal(event)) is not None:
            return _Denied(reason, by_role=True)
        if request.expected is not None and snapshot.version != request.expected:
            return _WrongVersion()
        if policy is not None and (reason := policy.permit_refusal(event, snapshot)) is not None:
            return _Denied(reason, by_role=False)
        refusal = request.refusal
        if refusal is not None and not (refusal.code == UNKNOWN_EVENT and knows_event(kernel.chart, event.name)):
            return Step(snapshot, (), "rejected", refusal.code, faults=(refusal,))
        return kernel.step(snapshot, event)

    def _policy(self, kernel: Kernel, request: SendRequest) -> Authorizer | None:
        """Return the policy that applies; None for results of its work, and when every sender is allowed."""
        if request.finishes is not None:
            return None
        authorizer = self.revisions.known_authorizer(kernel)
        return None if authorizer.is_open else authorizer

    async def _commit(
        self, kernel: Kernel, snapshot: Snapshot, stamped: _Stamped, step: Step, request: SendRequest
    ) -> Receipt | _Attempt:
        event, key = stamped.event, stamped.key
        try:
            append = self._build_append(
                kernel, snapshot, step, event, key, request.trace, request, reason=request.reason
            )
        except RejectedError as error:
            return await self._refuse(kernel, snapshot, stamped, _TooLarge(error), request)
        result = await self.store.append(append)
        if isinstance(result, Appended):
            self._after_commit(step.snapshot, event.time_ms, append.work)
            if step.faults:
                log_faults(append.entry, step)
            return Receipt(
                snapshot.entity, step.outcome, result.version, step.reason, step.snapshot, step.effects, step.faults
            )
        if isinstance(result, Duplicate):
            self.snapshots.pop(snapshot.entity, None)
            return await resolve_duplicate(self.store, snapshot.entity, result.version, key=key, event=event.name)
        if isinstance(result, StaleAttempt):
            return Receipt(snapshot.entity, "duplicate", result.version, "attempt.stale")
        if isinstance(result, KeyExpired):
            expired = Step(snapshot, (), "rejected", EXPIRED.code, faults=(EXPIRED,))
            return await self._refuse(kernel, snapshot, stamped, expired, request)
        assert isinstance(result, Conflict)
        if result.version < snapshot.version:
            raise self._stop(snapshot, result.version)
        return _Attempt.LOST

    def _stop(self, snapshot: Snapshot, version: int) -> UnavailableError:
        """Accept no further step: the store went back in time, and keys of effects would be used again."""
        self._stopped = went_back(snapshot.entity, version, snapshot.version)
        self.snapshots.clear()
        return self._stopped

    async def _read_epoch(self) -> int:
        """Return the restore epoch of the store, read once: workers are stopped before it is raised."""
        if self._epoch is None:
            self._epoch = await read_epoch(self.store)
        return self._epoch

    def _work_delta(
        self, kernel: Kernel, before: Snapshot | None, step: Step, entry: Entry, finishes: WorkId | None
    ) -> WorkDelta:
        if not self._keeps_work:
            return NO_WORK
        work, time_ms = NO_WORK, entry.event.at_ms
        if self._messages.is_on:
            is_quiet = entry.event.name == MOVED and entry.before == entry.after
            hidden = is_quiet or self._is_hidden(kernel, entry)
            work = work_delta(before, step, time_ms, published=entry, hidden=hidden, epoch=entry.event.epoch)
        elif before is None or step.effects or before.timers or step.snapshot.ended is not None:
            work = work_delta(before, step, time_ms, epoch=entry.event.epoch)
        return work if finishes is None else replace(work, finished=(*work.finished, finishes))

    def _is_hidden(self, kernel: Kernel, entry: Entry) -> bool:
        """Whether the step leaves, stays in or enters a state that the chart hides."""
        chart = kernel.chart
        hidden = self._hidden.get(chart.revision)
        if hidden is None:
            tops = [each for each in chart.states if each.sensitive is not None and each.sensitive.hidden]
            within = (chart.states[index] for each in tops for index in range(each.index, each.last + 1))
            hidden = self._hidden[chart.revision] = frozenset(each.id for each in within)
        return not hidden.isdisjoint((*entry.before, *entry.after))

    async def _refuse(
        self, kernel: Kernel, snapshot: Snapshot, stamped: _Stamped, decision: _Refusal, request: SendRequest
    ) -> Receipt | _Attempt:
        """Return the refusal if it is right: the key is unknown and the snapshot is the newest one.

        Raises ConflictError for a wrong version, RejectedError for an entry that is too large.
        """
        entity, event = snapshot.entity, stamped.event
        # Without the role the key is not looked up: the answer would reveal whether a guessed key exists.
        found = await self.store.load(entity, key=None if _is_denied_by_role(decision) else stamped.key)
        if isinstance(found, Duplicate):
            return await resolve_duplicate(self.store, entity, found.version, key=stamped.key, event=event.name)
        if found is None or found.version < snapshot.version:
            raise self._stop(snapshot, 0 if found is None else found.version)
        if found.version != snapshot.version:
            return _Attempt.LOST
        if isinstance(decision, _WrongVersion):
            raise ConflictError(f"`{entity}` is at version {snapshot.version}", code="conflict.expected")
        if isinstance(decision, _TooLarge):
            if request.finishes is None:  # of a result, the worker reports it when it gives up
                await self._record_refusal(entity, event, "rejected", decision.error.code, request.trace)
            raise decision.error
        receipt = build_receipt(kernel.chart, snapshot, event, decision)
        await self._record_refusal(entity, event, receipt.outcome, receipt.reason or "", request.trace)
        return receipt

    async def _record_refusal(self, entity: str, event: Event, outcome: str, reason: str, trace: str | None) -> None:
        """Record an attempt that changed nothing, where the store has a log for that."""
        if self.store.refusal_log is not None:
            principal = None if event.principal is None else str(event.principal.get("id", ""))
            await self.store.refusal_log.record_refusals(
                (Refusal(entity, event.name, outcome, reason, event.at_ms, principal, trace),)
            )

    def _build_append(
        self,
        kernel: Kernel,
        before: Snapshot | None,
        step: Step,
        event: Event,
        key: str,
        trace: str | None,
        request: SendRequest | None = None,
        *,
        reason: str | None = None,
    ) -> Append:
        """Return the append of a step. Raises RejectedError when its entry or its snapshot is too large to store."""
        snapshot = step.snapshot
        snapshot_json = encode(snapshot)  # once: for the digest, for the limit, and for the store
        entry = build_entry(event, before, step, key, trace, snapshot_json, reason)
        finishes = fence = sent_ms = None
        if request is not None:
            finishes, sent_ms = request.finishes, request.sent_ms
            if request.fence is not None:
                assert finishes is not None  # a fence protects a piece of work
                fence = (finishes, request.fence)
        states, tags = self._listed_under(kernel, snapshot)
        append = Append(
            snapshot.kind,
            snapshot.entity,
            0 if before is None else before.version,
            entry,
            snapshot,
            states,
            tags,
            self._work_delta(kernel, before, step, entry, finishes),
            fence,
            sent_ms,
            before,
        ).with_snapshot_json(snapshot_json)
        if len(append.entry_json) > ENTRY_BYTES_MAX:
            raise RejectedError(f"the entry of this step exceeds {ENTRY_BYTES_MAX:,} bytes", code="entry.size")
        if len(append.snapshot_json) > SNAPSHOT_BYTES_MAX:
            raise RejectedError(f"the snapshot would exceed {SNAPSHOT_BYTES_MAX:,} bytes", code="snapshot.size")
        return append

    def _listed_under(self, kernel: Kernel, snapshot: Snapshot) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the active states of a snapshot, compounds too, and their tags."""
        name = (snapshot.revision, snapshot.configuration)
        found = self._listed.get(name)
        if found is None:
            states = kernel.active(snapshot)
            found = tuple(each.id for each in states), tuple(sorted({tag for each in states for tag in each.tags}))
            if len(self._listed) >= SNAPSHOTS_CACHED_MAX:  # regions multiply: computing them again is cheaper
                self._listed.clear()
            self._listed[name] = found
        return found

    def _after_commit(self, snapshot: Snapshot, time_ms: int, work: WorkDelta) -> None:
        """Cache the snapshot of a durable step, wake the entity's watchers and notify the worker."""
        self._cache(snapshot, time_ms)
        if self._watchers and (changed := self._watchers.pop(snapshot.entity, None)) is not None:
            changed.set()
        for each in self._followers:
            each.set()
        if work.created or work.cancelled:
            for listener in self._work_listeners:
                listener(snapshot.entity, work)

    def _cache(self, snapshot: Snapshot, time_ms: int) -> None:
        self.snapshots[snapshot.entity] = (snapshot, time_ms)
        self.snapshots.move_to_end(snapshot.entity)
        if len(self.snapshots) > SNAPSHOTS_CACHED_MAX:
            self.snapshots.popitem(last=False)

    # Reading

    async def load_snapshot(self, entity: str) -> tuple[Snapshot, int]:
        """Return the snapshot as the store has it, and the time of its last entry. Raises NotFoundError."""
        found = await self.load(entity)
        snapshot = await replay(self.revisions, entity, found.snapshot, (each.entry for each in found.records))
        if snapshot is None:
            raise unknown_entity(entity)
        self._cache(snapshot, found.time_ms)
        return snapshot, found.time_ms

    async def load(self, entity: str) -> Loaded:
        """Return what the store has of an entity. Raises NotFoundError."""
        found = await self.store.load(entity)
        if found is None or isinstance(found, Duplicate):
            raise unknown_entity(entity)
        return found

    async def has_chart(self, entity: str) -> bool:
        """Whether this process has the chart of an entity, in its revision; True for an unknown entity."""
        cached = self.snapshots.get(entity)
        try:
            snapshot, _ = cached if cached is not None else await self.load_snapshot(entity)
            await self.revisions.for_preview(snapshot)
        except NotFoundError:
            return True
        except UnavailableError as error:
            if error.code not in CHART_MISSING_CODES:
                raise
            return False
        return True


def _too_many_conflicts(entity: str, doing: str) -> ConflictError:
    message = f"`{entity}` changed {CONFLICT_RETRIES_MAX} times in a row while {doing}"
    return ConflictError(message, code="conflict.retries", hint="nothing was written; try again later")


def _is_denied_by_role(decision: _Refusal) -> bool:
    return isinstance(decision, _Denied) and decision.by_role


# Entries and receipts


def build_entry(
    event: Event,
    before: Snapshot | None,
    step: Step,
    key: str,
    trace: str | None,
    snapshot_json: bytes,
    reason: str | None = None,
) -> Entry:
    """Return the entry of a step. `snapshot_json` is the snapshot after it, as it will be stored."""
    snapshot = step.snapshot
    return Entry(
        snapshot.version,
        event,
        step.outcome,
        () if before is None else before.configuration,
        snapshot.configuration,
        snapshot.revision,
        key,
        step.reason,
        trace,
        step.effects,
        snapshot_digest(snapshot_json),
        reason,
    )


def log_faults(entry: Entry, step: Step) -> None:
    """Log the errors inside a step that was written, without their messages, which may quote a payload."""
    for fault in step.faults:
        facts = {"entity_id": step.snapshot.entity, "version": entry.version, "event": entry.event.name}
        _log.warning("no transition handled an error", extra={**facts, "code": fault.code, "place": fault.place})


def build_receipt(chart: Chart, snapshot: Snapshot, event: Event, decision: Step | _Denied) -> Receipt:
    """Return the receipt when nothing is written: a denial, a refusal, or what a step would do."""
    entity = snapshot.entity
    if isinstance(decision, _Denied):
        text = explain_refusal(chart, snapshot, event, outcome="denied", reason=decision.reason)
        return Receipt(entity, "denied", snapshot.version, decision.reason, explanation=text)
    after, explanation = decision.snapshot, None
    if decision.outcome in ("rejected", "denied"):
        explanation = explain_refusal(
            chart,
            snapshot,
            event,
            outcome=decision.outcome,
            reason=decision.reason,
            failed_guards=decision.failed_guards,
            faults=decision.faults,
        )
    return Receipt(
        entity,
        decision.outcome,
        after.version,
        decision.reason,
        after,
        decision.effects,
        decision.faults,
        decision.failed_guards,
        explanation,
    )


# Keys that were used before

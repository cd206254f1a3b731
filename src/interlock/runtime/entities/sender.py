"""How an event is sent to an entity: load, step, append, retry. For callers' events, results, timers and messages.

Rule 1: a refusal is given only on a fresh snapshot, and only when the key is unknown: the same send, repeated after the
entity has moved on, is `duplicate`. The role check comes before the entity is loaded, so that a caller without the role
cannot learn whether it exists, and nothing by guessing a key or a version.
Rule 2: the work that a step creates is written in the append of its entry, where the store keeps work.
Rule 3: a key names one event of an entity; its creation counts as an event. The same event again is `duplicate`.
Another event under a caller's key is a UsageError, because the caller would take `duplicate` as success. Payloads are
not compared: a repeated send may carry another time.
Rule 4: keys that start with `_` belong to the runtime and are made from what they name, so they need no such check,
except keys of requests from outside (`model.keys.REQUESTS`). An archived entry cannot be checked; its key
is `duplicate`.
Rule 5: a former key of a request counts only for an entry of the same event, with the same payload or from the same
principal: another sender may have used that key, and must not be able to suppress the request by doing so.
Rule 6: an entity that is due for the newest chart is moved first (`mover`), but not for a request that would be refused
or repeated.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from interlock.errors import ConflictError, InterlockError, RejectedError
from interlock.kernel.step import Kernel
from interlock.model.driver_events import EXPECT_SOURCE
from interlock.model.encoding.codec import to_builtins
from interlock.model.event import Event
from interlock.model.journal.attempts import PastAttempt
from interlock.model.journal.cause import Cause
from interlock.model.journal.entry import CREATE, ERASE, Receipt
from interlock.model.journal.work import WorkId
from interlock.model.keys import dedupe_key
from interlock.model.limits import CLOCK_AHEAD_MS_MAX, POLICY_AGE_MS_MAX
from interlock.model.personal_token import KEY_FIELD, contains_token
from interlock.model.refusal_text import EXISTS
from interlock.model.snapshot import Parent, Snapshot
from interlock.model.step import Fault, Step
from interlock.ports.store import Appended, Conflict, Duplicate, KeyExpired, Pruned, StaleAttempt
from interlock.runtime.charts.rollouts import order_of
from interlock.runtime.entities.conflicts import CONFLICT_WAIT, LOST, Lost, joined_conflict, too_many_conflicts
from interlock.runtime.entities.decision import (
    Decided,
    EventPolicy,
    Refusal,
    Stopped,
    WrongVersion,
    build_receipt,
    decide,
    is_denied_by_role,
    shown_to,
)
from interlock.runtime.entities.duplicates import find_former, resolve_duplicate
from interlock.runtime.entities.entities import Entities
from interlock.runtime.entities.holds import ACTS, held_kind
from interlock.runtime.entities.mailbox import Priority
from interlock.runtime.entities.mover import EntityMover
from interlock.runtime.entities.permissions import Permissions
from interlock.runtime.entities.send_request import EXPIRED, SendRequest
from interlock.runtime.history.removed import missing_entity
from interlock.runtime.vault import missing_keyring, undeclared_error
from interlock.trust.audit import REFUSED, Attempt
from interlock.trust.authorization import ChartPolicy


class Stamped(Struct, frozen=True, gc=False):
    """An event with its time, the key that identifies it, and its former key if it has one."""

    event: Event
    key: str
    former_key: str | None


class EntitySender:
    """Creates and steps the entities of one connection.

    With `authorizes=False` every sender is allowed: the driver has asked the policy before, and repeats steps later.
    """

    def __init__(self, entities: Entities, mover: EntityMover, *, authorizes: bool = True) -> None:
        self._authorizes = authorizes
        self._entities = entities
        self._mover = mover
        self._revisions = entities.revisions
        self._upgrades = entities.upgrades
        self._permissions = Permissions(entities)
        self._append = entities.append

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
        owner: Any = None,
        cause: Cause | None = None,
    ) -> Receipt:
        """Write entry 1 of an entity, for a caller or, with `parent`, for an invoke. `owner` is the parent's data key.
        `cause` is that of the invoke.

        Raises RejectedError when the chart rejects it; but if the key is known, a chart accepted the creation before
        and the outcome is `duplicate`.
        """
        entities = self._entities
        if trace is None and cause is not None:
            trace = cause.trace
        if entities.messages.is_stale:
            await entities.messages.refresh()
        if entities.rollouts.is_stale:
            await entities.rollouts.refresh()
        if entities.holds.is_stale:
            await entities.holds.refresh()
        data: dict[str, Any] = {"context": context}
        if parent is not None:
            data["parent"] = to_builtins(parent)
        elif principal is not None:
            asked = Event(CREATE, data, key=key, principal=principal, time_ms=entities.time.now_ms(), type="platform")
            unseen = await self._permissions.refuse_creation(entity, asked)
            if unseen is not None:
                return unseen
        async with entities.turn(entity, Priority.CALLER if parent is None else Priority.ENTITY, principal):
            kernel = await self._chart_for(entity, kernel)
            now_ms, epoch = entities.time.now_ms(), await entities.epoch()
            event = Event(CREATE, data, key=key, principal=principal, time_ms=now_ms, type="platform", epoch=epoch)
            entry_key = key or (f"_{entities.clock.token()}" if parent is None else "_child")
            if entities.holds.of_kind(kernel.chart.kind) is not None:
                if isinstance(found := await entities.store.load(entity, key=entry_key), Duplicate):
                    return await resolve_duplicate(entities.store, entity, found.version, key=entry_key, event=event)
                raise held_kind(kernel.chart.kind)
            try:
                if kernel.personal is not None or parent is not None:
                    context = data["context"] = await self._sealed_context(kernel, context, owner)
                step = kernel.start(context, entity=entity, time_ms=now_ms, parent=parent, epoch=epoch)
                append = entities.appends.build(kernel, None, step, event, entry_key, trace, reason=reason, cause=cause)
            except RejectedError:
                if isinstance(found := await entities.store.load(entity, key=entry_key), Duplicate):
                    return await resolve_duplicate(entities.store, entity, found.version, key=entry_key, event=event)
                if kernel.personal is not None and owner is None:
                    self._give_back(context)
                raise
            result = await self._append(append, step, kernel)
            if isinstance(result, Appended):
                return Receipt(entity, "applied", 1, None, step.snapshot, step.effects, step.faults)
            if isinstance(result, Duplicate):
                return await resolve_duplicate(entities.store, entity, result.version, key=entry_key, event=event)
            if isinstance(result, Pruned):
                text = f"`{entity}` was not created: it was removed by retention, and an id is never used again"
                return Receipt(entity, "rejected", result.version, "entity.pruned", explanation=text)
            assert isinstance(result, Conflict)  # an entity has no work before its first entry
            text = f"`{entity}` was not created: {EXISTS}"
            return Receipt(entity, "rejected", result.version, "entity.exists", explanation=text)

    async def _sealed_context(self, kernel: Kernel, context: dict[str, Any], owner: Any) -> dict[str, Any]:
        """Return the first context of an entity with its personal values sealed."""
        vault = self._entities.process.vault
        if kernel.personal is None:
            if contains_token(context):
                raise undeclared_error()
            return context
        if vault is None:
            raise missing_keyring(kernel.chart.kind)
        return await vault.seal_context(kernel, context, owner)

    def _give_back(self, context: dict[str, Any]) -> None:
        """Use the data key of an entity that was not created for the next one."""
        kid, vault = context.get(KEY_FIELD), self._entities.process.vault
        if vault is not None and isinstance(kid, str):
            vault.give_back(kid)

    async def _chart_for(self, entity: str, kernel: Kernel) -> Kernel:
        """Return the chart on which a new entity starts, registered: that of a rollout, if its kind has one.

        `kernel` is the newest chart of this process, or an inline chart, which belongs to the chart around it.
        """
        revisions, kind = self._revisions, kernel.chart.kind
        rollout = self._entities.rollouts.find(kind)
        if rollout is None or revisions.charts.current(kind) is not kernel:
            return await revisions.for_new_entity(kernel)
        if rollout.state == "complete":
            own = await revisions.for_new_entity(kernel)
            editions = await revisions.editions(kind)
            place = order_of(editions, (own.chart.revision, *own.chart.other_names), rollout.promoted)
            other = order_of(editions, (rollout.revision,), rollout.promoted)
            if place is not None and other is not None and place >= other:
                return own
        return await revisions.for_rollout(kind, rollout.revision_for(entity))

    async def send(self, entity: str, request: SendRequest) -> Receipt:
        """Step an entity by an event. After a lost swap, try again on a fresh snapshot."""
        entities = self._entities
        if entities.messages.is_stale:
            await entities.messages.refresh()
        if entities.holds.is_stale:
            await entities.holds.refresh()
        turn = entities.turn(entity, request.priority, request.event.principal)
        if self._is_authorized_by_policy(request):
            known = self._revisions.policies.get(entity.partition("/")[0])
            if (
                entities.process.authorizer is not None
                or known is None
                or known.is_restricted
                or not 0 <= entities.time.now_ms() - known.checked_ms < POLICY_AGE_MS_MAX
            ):
                unseen = await self._permissions.refuse_unseen(entity, request)
                if unseen is not None:
                    if entities.process.meter is not None:
                        entities.count(request.event.name, unseen)
                    return unseen
        if not turn.try_enter():
            await turn.enter()
        try:
            if entities.process.epoch is None:
                await entities.epoch()
            for attempt in range(entities.tries_max):
                receipt = await self._try_send(entity, request)
                meter = entities.process.meter
                if receipt is not LOST:
                    if meter is not None:
                        entities.count(request.event.name, receipt)
                    return receipt
                if meter is not None:
                    meter.lost(entity.partition("/")[0])
                entities.snapshots.pop(entity, None)
                if entities.tries_max == 1:
                    raise joined_conflict(entity)
                await entities.clock.sleep_ms(CONFLICT_WAIT.wait_ms(attempt, entities.clock.jitter()))
        finally:
            turn.leave()
        raise too_many_conflicts(entity, "this event was applied")

    async def deliver(
        self,
        entity: str,
        event: Event,
        *,
        key: str,
        finishes: WorkId | None = None,
        fence: int | None = None,
        cause: Cause | None = None,
        attempts: tuple[PastAttempt, ...] = (),
    ) -> Receipt:
        """Send an entity an event of the runtime itself, under a key of the runtime; see `ports.delivery`."""
        priority = Priority.ENTITY if finishes is None else Priority.RESULT
        trace = None if cause is None else cause.trace
        request = SendRequest(
            event, key, trace=trace, finishes=finishes, fence=fence, priority=priority, cause=cause, attempts=attempts
        )
        if event.origin is not None and contains_token(event.data):
            request = replace(request, has_tokens=True)
        try:
            receipt = await self.send(entity, request)
        except InterlockError as error:
            if finishes is None:  # of a result, the worker reports it when it gives up
                await self._entities.audit.record_error(Attempt.of_event(entity, event), error)
            raise
        if receipt.outcome in REFUSED:
            await self._entities.audit.record_receipt(Attempt.of_event(entity, event), receipt)
        return receipt

    async def dry_run(self, entity: str, request: SendRequest) -> Receipt:
        """Return what `send` would answer now. Nothing is written, not even a refusal."""
        entities = self._entities
        unseen = await self._permissions.refuse_unseen(entity, request) if self._authorizes else None
        if unseen is not None:
            return unseen
        snapshot, last_ms = await entities.load_snapshot(entity)
        if self._upgrades.covers(snapshot.kind):
            snapshot, _ = await self._mover.preview_upgrade(snapshot, last_ms)
        kernel = await self._revisions.for_preview(snapshot)
        truth = snapshot
        if request.reader is not None:  # the answer is made from what the reader sees
            snapshot = shown_to(kernel.chart, snapshot, request.reader)
            request = replace(request, reader=None)
        if kernel.personal is not None:
            request = await self._seal(kernel, snapshot, request)
        stamped = self._stamp(kernel, snapshot, request, last_ms)
        event = stamped.event
        policy: EventPolicy | None = self._policy(kernel, request)
        if entities.process.authorizer is not None:
            policy = await self._decided(kernel, snapshot, event, request)
        decision = decide(kernel, snapshot, event, request, policy)
        if not is_denied_by_role(decision) and snapshot is truth:
            if isinstance(found := await entities.store.load(entity, key=stamped.key), Duplicate):
                return await resolve_duplicate(entities.store, entity, found.version, key=stamped.key, event=event)
            if stamped.former_key is not None:
                before = await find_former(entities.store, entity, stamped.former_key, event)
                if before is not None:
                    return before
        error = entities.holds.error_for(truth, request)
        if error is not None and not is_denied_by_role(decision):
            raise error
        if isinstance(decision, WrongVersion):
            raise _wrong_version(entity, decision)
        return build_receipt(kernel.chart, snapshot, event, decision)

    async def _try_send(self, entity: str, request: SendRequest) -> Receipt | Lost:
        entities = self._entities
        cached = entities.snapshots.get(entity)
        snapshot, last_ms = cached if cached is not None else await entities.load_snapshot(entity)
        if self._upgrades.covers(snapshot.kind):
            moved = await self._move_before(snapshot, last_ms, request)
            if moved is LOST:
                return LOST
            if moved is not None:
                snapshot, last_ms = entities.snapshots[entity]
                if request.event.source != EXPECT_SOURCE:  # which is for a state that the entity may not be in now
                    request = replace(request, expected=None)  # it was the version before the move
        kernel = self._revisions.known(snapshot.kind, snapshot.revision) or await self._revisions.for_step(snapshot)
        if kernel.personal is not None or request.has_tokens:
            request = await self._seal(kernel, snapshot, request)
        stamped = self._stamp(kernel, snapshot, request, last_ms)
        policy: EventPolicy | None = self._policy(kernel, request)
        if entities.process.authorizer is not None:
            policy = await self._decided(kernel, snapshot, stamped.event, request)
        decision: Refusal = decide(kernel, snapshot, stamped.event, request, policy)
        error = entities.holds.error_for(snapshot, request)
        if error is not None and not is_denied_by_role(decision):
            decision = Stopped(error)
        if kernel.personal is not None and isinstance(decision, Step) and stamped.event.name != ERASE:
            decision = entities.checked(kernel, snapshot, decision)
        if stamped.former_key is not None and not is_denied_by_role(decision):
            before = await find_former(entities.store, entity, stamped.former_key, stamped.event)
            if before is not None:
                return before
        if isinstance(decision, Step) and decision.snapshot.version > snapshot.version:
            return await self._commit(kernel, snapshot, stamped, decision, request)
        return await self._refuse(kernel, snapshot, stamped, decision)

    async def _seal(self, kernel: Kernel, snapshot: Snapshot, request: SendRequest) -> SendRequest:
        """Return a request with the personal values of its event sealed, or refused."""
        sealed = await self._entities.sealed(kernel, snapshot, request.event)
        if isinstance(sealed, Fault):
            return replace(request, refusal=request.refusal or sealed)
        return replace(request, event=sealed)

    async def _move_before(self, snapshot: Snapshot, last_ms: int, request: SendRequest) -> Snapshot | Lost | None:
        """Move an entity before its next step if it is due; None if the step comes without a move.

        A request that would be refused or repeated causes no move: without the role, with a known key, with another
        version than the entity has, or while it is held.
        """
        carrier = await self._mover.due_carrier(snapshot)
        if carrier is None:
            return None
        if request.refusal is not None or self._entities.holds.error_for(snapshot, request) is not None:
            return None
        kernel = await self._revisions.for_reading(snapshot.kind, snapshot.revision)
        seen = snapshot if request.reader is None else shown_to(kernel.chart, snapshot, request.reader)
        if request.expected not in (None, seen.version):
            return None
        stamped = self._stamp(kernel, snapshot, request, last_ms)
        policy = self._policy(kernel, request) if self._entities.process.authorizer is None else None
        if policy is not None and policy.role_refusal(stamped.event) is not None:
            return None
        found = await self._entities.store.load(snapshot.entity, key=stamped.key)
        if isinstance(found, Duplicate):
            return None
        if found is None or found.version != snapshot.version:
            return LOST
        if stamped.former_key is not None:
            former = await find_former(self._entities.store, snapshot.entity, stamped.former_key, stamped.event)
            if former is not None:
                return None
        return await self._mover.try_upgrade(snapshot, last_ms, carrier)

    def _stamp(self, kernel: Kernel, snapshot: Snapshot, request: SendRequest, last_ms: int) -> Stamped:
        """Set the time of the event, which never goes back, and find its key.

        A result keeps its own key: under a key that a caller's event has used, a timer would never fire.
        """
        time = self._entities.time
        now_ms = time.now_ms()
        epoch = self._entities.process.epoch or 0
        if last_ms <= now_ms:
            event = replace(request.event, time_ms=now_ms, epoch=epoch)
        else:  # another clock was ahead: the entity's time waits for ours, its timers do not
            event = replace(request.event, time_ms=last_ms, clock_ms=now_ms, epoch=epoch)
            if last_ms > now_ms + CLOCK_AHEAD_MS_MAX:
                time.report(snapshot.entity)
        if event.key is None and request.finishes is None and kernel.chart.events:
            declared = next((each for each in kernel.chart.events if each.name == event.name), None)
            if declared is not None and declared.dedupe is not None:
                value = kernel.evaluate(declared.dedupe, snapshot, event)
                if isinstance(value, str | int) and value != "":
                    return Stamped(event, *dedupe_key(event.name, value))
        return Stamped(event, request.key, request.former_key)

    def _is_authorized_by_policy(self, request: SendRequest) -> bool:
        """Whether roles and permits decide: not about results of work, nor about acts of operators."""
        return self._authorizes and request.finishes is None and request.event.name not in ACTS

    def _policy(self, kernel: Kernel, request: SendRequest) -> ChartPolicy | None:
        """Return the policy of the chart; None where it is not asked, and when every sender is allowed."""
        if not self._is_authorized_by_policy(request):
            return None
        policy = self._revisions.known_policy(kernel)
        return None if policy.is_open else policy

    async def _decided(self, kernel: Kernel, snapshot: Snapshot, event: Event, request: SendRequest) -> Decided | None:
        """Return what the authorizer of the program decides; None where it is not asked."""
        if not self._is_authorized_by_policy(request):
            return None
        policy, refusal_of = self._revisions.known_policy(kernel), self._permissions.refusal_of
        if request.reader is None:
            return Decided(await refusal_of(policy, event, snapshot))
        shown = shown_to(kernel.chart, snapshot, request.reader)
        return Decided(await refusal_of(policy, event, shown), await refusal_of(policy, event, snapshot))

    async def _commit(
        self, kernel: Kernel, snapshot: Snapshot, stamped: Stamped, step: Step, request: SendRequest
    ) -> Receipt | Lost:
        entities, event, key = self._entities, stamped.event, stamped.key
        try:
            append = entities.appends.build(
                kernel, snapshot, step, event, key, request.trace, request, reason=request.reason, cause=request.cause
            )
        except RejectedError as error:
            return await self._refuse(kernel, snapshot, stamped, Stopped(error))
        result = await self._append(append, step, kernel)
        if isinstance(result, Appended):
            return Receipt(
                snapshot.entity, step.outcome, result.version, step.reason, step.snapshot, step.effects, step.faults
            )
        if isinstance(result, Duplicate):
            entities.snapshots.pop(snapshot.entity, None)
            return await resolve_duplicate(entities.store, snapshot.entity, result.version, key=key, event=event)
        if isinstance(result, StaleAttempt):
            return Receipt(snapshot.entity, "duplicate", result.version, "attempt.stale")
        if isinstance(result, KeyExpired):
            expired = Step(snapshot, (), "rejected", EXPIRED.code, faults=(EXPIRED,))
            return await self._refuse(kernel, snapshot, stamped, expired)
        if isinstance(result, Pruned):
            raise await missing_entity(entities.store, snapshot.entity)
        assert isinstance(result, Conflict)
        return LOST

    async def _refuse(self, kernel: Kernel, snapshot: Snapshot, stamped: Stamped, decision: Refusal) -> Receipt | Lost:
        """Return the refusal if it is right: the key is unknown and the snapshot is the newest one.

        Raises ConflictError for a wrong version, RejectedError for an entry that is too large, and UnavailableError
        while the entity is held.
        """
        entities, entity, event = self._entities, snapshot.entity, stamped.event
        # Without the role the key is not looked up: the answer would reveal whether a guessed key exists.
        found = await entities.store.load(entity, key=None if is_denied_by_role(decision) else stamped.key)
        if isinstance(found, Duplicate):
            return await resolve_duplicate(entities.store, entity, found.version, key=stamped.key, event=event)
        if found is None or found.version < snapshot.version:
            raise await entities.gone(entity, 0 if found is None else found.version, snapshot.version)
        if found.version != snapshot.version:
            return LOST
        if isinstance(decision, WrongVersion):
            raise _wrong_version(entity, decision)
        if isinstance(decision, Stopped):
            raise decision.error
        return build_receipt(kernel.chart, snapshot, event, decision)


def _wrong_version(entity: str, found: WrongVersion) -> ConflictError:
    return ConflictError(f"`{entity}` is at version {found.version}", code="conflict.expected")

"""Requests of callers on one connection: arguments are checked, the request is admitted and performed, and answered.

Rule 1: an invalid argument is a UsageError, and nothing was read or written.
Rule 2: a rejection that is a mistake of the program raises: an event or a payload that no loaded revision of the kind
accepts.
Rule 3: the receipt of a duplicate has the entity as it is now.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Any

from msgspec.structs import replace

from interlock.errors import InterlockError, NotFoundError, RejectedError, UnavailableError, UsageError
from interlock.model.charts.sendable_events import UNKNOWN_EVENT, knows_event, payload_mistake, unknown_event
from interlock.model.encoding.convert import Model, is_model
from interlock.model.encoding.json_value import context_values, json_payload, payload_problem
from interlock.model.entity_id import kind_of
from interlock.model.event import Event
from interlock.model.journal.entry import CREATE, Receipt
from interlock.model.keys import OwnKey
from interlock.model.limits import KEY_WINDOW_MS
from interlock.model.personal_token import KEY_FIELD
from interlock.model.snapshot import Snapshot
from interlock.model.step import Fault
from interlock.ports.store import Duplicate
from interlock.runtime.admission import Admission, ThreadAdmission
from interlock.runtime.entities.engine_sender import EngineSender
from interlock.runtime.entities.entities import Entities
from interlock.runtime.entities.mover import EntityMover
from interlock.runtime.entities.send_request import EXPIRED, SendRequest
from interlock.runtime.entities.sender import EntitySender
from interlock.runtime.reading.readers import ReaderViews
from interlock.runtime.request_checks import (
    check_entity,
    check_event,
    check_expected,
    check_key,
    check_new_entity,
    check_principal,
    check_reason,
    check_sent,
    check_trace,
)
from interlock.trust.audit import Attempt
from interlock.trust.visibility import ACCEPTED, Lens, VisibleReceipt

EventModels = Mapping[type, tuple[str, ...]]
"""The events of a kind that a model is declared for."""

UNUSED_KEY = "_"
"""The key of a dry run without one: no entry has it."""

NO_MODELS: Mapping[str, EventModels] = MappingProxyType({})


class CallerRequests:
    """What callers ask of the entities of one connection."""

    def __init__(
        self, entities: Entities, admission: Admission | ThreadAdmission, models: Mapping[str, EventModels]
    ) -> None:
        self.entities = entities
        self.mover = EntityMover(entities)
        engine, tracer = entities.store.engine, entities.process.tracer
        if engine is not None:
            self.sender: EntitySender = EngineSender(entities, self.mover, engine)
        elif tracer is None:
            self.sender = EntitySender(entities, self.mover)
        else:
            from interlock.runtime.entities.traced_sender import TracedSender

            self.sender = TracedSender(entities, self.mover, tracer)
        self._process = entities.process
        self._charts = entities.charts
        self._clock = entities.clock
        self._snapshots = entities.snapshots
        self._admission = admission
        self._models = models
        self._audit = entities.audit

    async def create(
        self,
        entity: str,
        context: Mapping[str, Any] | Model | None = None,
        *,
        key: str | None = None,
        principal: Mapping[str, Any] | None = None,
        trace: str | None = None,
        reason: str | None = None,
    ) -> Receipt:
        """As `Runtime.create`."""
        if self._audit.throttled:
            self._audit.check(Attempt(entity, CREATE, principal))
        try:
            kind = check_entity(entity)
            sender = check_principal(principal, now_ms=self._clock.now_ms())
            check_trace(trace)
            check_reason(reason)
            if key is not None:
                check_key(key)
            try:
                check_new_entity(entity)
            except UsageError:
                if await self.entities.store.load(entity) is None:
                    raise
            if self._charts.is_child_id(entity):
                hint = "use another id: this one belongs to a child that an invoke starts"
                raise UsageError(f"the entity id {entity[:80]!r} is reserved", code="entity.reserved", hint=hint)
            kernel = self._charts.for_new_entity(kind)
            values = context_values(context)
            if KEY_FIELD in values:
                message = f"the field `{KEY_FIELD}` of the context is reserved"
                raise UsageError(message, code="payload.reserved", hint="remove it")
            with self._admission.admit():
                receipt = await self.sender.create(
                    entity, kernel, values, key=key, principal=sender, trace=trace, reason=reason
                )
        except InterlockError as error:
            self._count_refusal(entity, error)
            await self._audit.record_error(Attempt(entity, CREATE, principal, trace, key, reason), error)
            raise
        self.entities.count(CREATE, receipt)
        if receipt.outcome != "applied":
            await self._audit.record_receipt(Attempt(entity, CREATE, principal, trace, key, reason), receipt)
            if receipt.outcome == "duplicate":
                receipt = await self._with_snapshot(receipt)
        return await self._opened(receipt)

    async def send(
        self,
        entity: str,
        event: str | Model,
        payload: Any = None,
        *,
        key: str | None = None,
        expected: int | None = None,
        principal: Mapping[str, Any] | None = None,
        trace: str | None = None,
        sent_ms: int | None = None,
        reason: str | None = None,
        reader: Mapping[str, Any] | None = None,
    ) -> Receipt:
        """As `Runtime.send`, with the whole receipt."""
        if self._audit.throttled:
            self._audit.check(Attempt(entity, event, principal))
        try:
            if not isinstance(event, str):
                event, payload = self._event_of(entity, event, payload), event
            request = self._request(entity, event, payload, key, principal, trace, expected, sent_ms, reason)
            if reader is not None:
                request = replace(request, reader=check_principal(reader, now_ms=self._clock.now_ms()))
            with self._admission.admit():
                receipt = await self.sender.send(entity, request)
        except InterlockError as error:
            self._count_refusal(entity, error)
            await self._audit.record_error(Attempt(entity, event, principal, trace, key, reason), error)
            raise
        if receipt.outcome == "applied":
            return receipt if self._process.vault is None else await self._opened(receipt)
        await self._audit.record_receipt(Attempt(entity, event, principal, trace, key, reason), receipt)
        return await self._answer(request, receipt)

    async def send_for(
        self,
        entity: str,
        event: str | Model,
        payload: Any,
        *,
        reader: Mapping[str, Any],
        key: str | None,
        expected: int | None,
        principal: Mapping[str, Any] | None,
        trace: str | None,
        sent_ms: int | None,
        reason: str | None,
    ) -> VisibleReceipt:
        """As `Runtime.send` with `reader`.

        Where the reader may not see hidden states, every answer that depends on the state is the same (ADR 0140).
        """
        try:
            receipt = await self.send(
                entity,
                event,
                payload,
                key=key,
                expected=expected,
                principal=principal,
                trace=trace,
                sent_ms=sent_ms,
                reason=reason,
                reader=reader,
            )
        except UsageError as error:
            if error.code != "key.reused":
                raise
            _, lens = await self._lens(entity, reader)
            if not lens.hides:
                raise
            if key is None or not await self._is_seen_key(lens, entity, key):
                return VisibleReceipt(entity, ACCEPTED, key)
            hint = "use one key per event, such as `<request>/<event>`"
            message = f"the key was used for another event of `{entity}`, or by another sender"
            raise UsageError(message, code="key.reused", hint=hint) from None
        except RejectedError:
            snapshot, lens = await self._lens(entity, reader)
            if lens.hides and lens.is_covered(snapshot):  # what grew meanwhile cannot be seen
                return VisibleReceipt(entity, ACCEPTED, key)
            raise
        if receipt.outcome == "denied" and receipt.version == 0:  # by role, and nothing was loaded
            return VisibleReceipt(entity, "denied", key, None, receipt.reason, receipt.explanation)
        _, lens = await self._lens(entity, reader)
        if not lens.hides:
            return lens.receipt(receipt, key)
        if receipt.outcome == "denied" and receipt.snapshot is None:
            return lens.refusal(entity, outcome="denied", reason=receipt.reason or "", key=key)
        if receipt.outcome == "rejected" and receipt.reason in ("payload", UNKNOWN_EVENT, EXPIRED.code):
            return lens.refusal(entity, outcome="rejected", reason=receipt.reason or "", key=key)
        return VisibleReceipt(entity, ACCEPTED, key)

    async def dry_run_for(
        self,
        entity: str,
        event: str | Model,
        payload: Any,
        *,
        reader: Mapping[str, Any],
        key: str | None,
        principal: Mapping[str, Any] | None,
    ) -> VisibleReceipt:
        """As `Runtime.dry_run` with `reader`: the answer of what the reader sees."""
        if not isinstance(event, str):
            event, payload = self._event_of(entity, event, payload), event
        request = self._request(entity, event, payload, key, principal, entry_key=key or UNUSED_KEY)
        request = replace(request, reader=check_principal(reader, now_ms=self._clock.now_ms()))
        receipt = await self._answer(request, await self.sender.dry_run(entity, request))
        if receipt.outcome == "denied" and receipt.version == 0:  # by role, and nothing was loaded
            return VisibleReceipt(entity, "denied", key, None, receipt.reason, receipt.explanation)
        _, lens = await self._lens(entity, reader)
        if not lens.hides:
            return lens.receipt(receipt, key)
        return VisibleReceipt(entity, receipt.outcome, key, None, receipt.reason, receipt.explanation)

    async def _lens(self, entity: str, reader: Mapping[str, Any]) -> tuple[Snapshot, Lens]:
        snapshot, _ = self._snapshots.get(entity) or await self.entities.load_snapshot(entity)
        return snapshot, await ReaderViews(self.entities).lens(snapshot, reader)

    async def _is_seen_key(self, lens: Lens, entity: str, key: str) -> bool:
        """Whether the reader sees the entry that has a key. An archived entry has been seen, or never will be."""
        found = await self.entities.store.load(entity, key=key)
        if not isinstance(found, Duplicate):
            return False
        try:
            records = await self.entities.store.read(entity, after=found.version - 1, limit=1)
        except NotFoundError:
            return False
        return bool(records) and lens.sees(records[0].entry) and records[0].entry.shown == "whole"

    async def submit(
        self,
        entity: str,
        event: str,
        payload: Any,
        *,
        key: OwnKey,
        expected: int | None,
        principal: Mapping[str, Any] | None,
        trace: str | None,
        sent_ms: int | None,
        reason: str | None,
    ) -> Receipt:
        """As `Runtime.submit`."""
        attempt = Attempt(entity, event, principal, trace, key.name, reason)
        if self._audit.throttled:
            self._audit.check(attempt)
        try:
            request = self._request(
                entity, event, payload, None, principal, trace, expected, sent_ms, reason, entry_key=key.key
            )
            named = replace(request.event, id=key.name, key=key.name)
            with self._admission.admit():
                request = replace(request, event=named, former_key=key.former)
                receipt = await self.sender.send(entity, request)
        except InterlockError as error:
            self._count_refusal(entity, error)
            await self._audit.record_error(attempt, error)
            raise
        await self._audit.record_receipt(attempt, receipt)
        return await self._answer(request, receipt)

    async def dry_run(
        self, entity: str, event: str | Model, payload: Any, *, key: str | None, principal: Mapping[str, Any] | None
    ) -> Receipt:
        """As `Runtime.dry_run`."""
        try:
            if not isinstance(event, str):
                event, payload = self._event_of(entity, event, payload), event
            request = self._request(entity, event, payload, key, principal, entry_key=key or UNUSED_KEY)
            return await self._answer(request, await self.sender.dry_run(entity, request))
        except InterlockError as error:
            error.is_recorded = True  # it is no attempt
            raise

    def _count_refusal(self, entity: object, error: InterlockError) -> None:
        """Report an error that refused an event to the meter, if there is one."""
        meter = self._process.meter
        if meter is not None:
            meter.refused(str(entity).partition("/")[0], error.code)

    def _event_of(self, entity: str, model: object, payload: object) -> str:
        """Return the name of the event that a model is the payload of."""
        if not is_model(model):
            hint = 'write send("order/1", "payment.confirmed", {...}), or send a model that `load` knows'
            message = f"the event must be a name or a model, got {type(model).__name__}"
            raise UsageError(message, code="event.malformed", hint=hint)
        name, kind = type(model).__name__, check_entity(entity)
        if payload is not None:
            hint = "send the model alone, or an event name and a payload"
            raise UsageError(f"`{name}` is a payload, and another payload was given", code="event.malformed", hint=hint)
        models = self._models.get(kind, {})
        events = next((models[cls] for cls in type(model).__mro__ if cls in models), ())
        if len(events) == 1:
            return events[0]
        if events:
            message = f"`{name}` is the model of several events of `{kind}`: {', '.join(events)}"
            raise UsageError(message, code="event.ambiguous", hint=f'write send(..., "{events[0]}", {name}(...))')
        known = ", ".join(sorted(cls.__name__ for cls in models))
        hint = f'its models are {known}; write load(..., models={{"event.name": {name}}})'
        if not known:
            hint = f'write load(..., models={{"event.name": {name}}}), or name the event'
        raise UsageError(f"no event of `{kind}` has the model `{name}`", code="event.unknown", hint=hint)

    async def _answer(self, request: SendRequest, receipt: Receipt) -> Receipt:
        """Return a receipt as the caller gets it: of a duplicate with the entity as it is now; personal data is opened.

        Raises UsageError for a rejection that is a mistake of the program: an event or a payload that no loaded
        revision of the kind accepts.
        """
        if receipt.outcome == "duplicate":
            receipt = await self._with_snapshot(receipt)
        elif receipt.outcome == "rejected":
            mistake = await self._mistake(request.event, receipt)
            if mistake is not None:
                mistake.is_recorded = True  # as the receipt that it replaces
                raise mistake
        return await self._opened(receipt)

    async def _opened(self, receipt: Receipt) -> Receipt:
        """Return a receipt with its personal data opened."""
        vault = self._process.vault
        return receipt if vault is None else await vault.open_receipt(receipt)

    async def _mistake(self, event: Event, receipt: Receipt) -> UsageError | None:
        """Return the error for an event or a payload that no loaded revision of the kind accepts; None if one does.

        Without a chart of the kind in this process, the definition of the entity decides.
        """
        kind, snapshot = kind_of(receipt.entity), receipt.snapshot
        if snapshot is not None and not self._charts.revisions(kind):
            chart = await self.entities.revisions.chart(kind, snapshot.revision)
            if not knows_event(chart, event.name):
                return unknown_event([chart], event.name)
            return payload_mistake(chart, event.name, event.data) if receipt.reason == "payload" else None
        if receipt.reason == UNKNOWN_EVENT:
            return self._charts.unknown_event(kind, event.name)
        return self._charts.payload_mistake(kind, event.name, event.data) if receipt.reason == "payload" else None

    async def _with_snapshot(self, receipt: Receipt) -> Receipt:
        """Return the receipt of a duplicate with the entity as it is now."""
        snapshot, _ = self._snapshots.get(receipt.entity) or await self.entities.load_snapshot(receipt.entity)
        with suppress(UnavailableError):  # its states can then be asked for
            await self.entities.revisions.for_preview(snapshot, needs_functions=False)
        return replace(receipt, snapshot=snapshot)

    def _request(
        self,
        entity: str,
        event: str,
        payload: Any,
        key: str | None,
        principal: Mapping[str, Any] | None,
        trace: str | None = None,
        expected: int | None = None,
        sent_ms: int | None = None,
        reason: str | None = None,
        *,
        entry_key: str | None = None,
    ) -> SendRequest:
        """Check the arguments of a send. Most are absent, and an absent one costs no check.

        `entry_key` is the key of the entry; without it, that of the caller or a new one.
        """
        cached = self._snapshots.get(entity) if type(entity) is str else None  # cached ids were checked before
        kind = check_entity(entity) if cached is None else cached[0].kind
        mistake = None
        if not self._charts.is_known_event(kind, event):
            check_event(event)
            mistake = self._charts.unknown_event(kind, event)
        sender = None if principal is None else check_principal(principal, now_ms=self._clock.now_ms())
        if trace is not None:
            check_trace(trace)
        if reason is not None:
            check_reason(reason)
        if key is not None:
            check_key(key)
        if expected is not None:
            check_expected(expected)
        if sent_ms is not None:
            check_sent(sent_ms)
        if payload is not None and payload_problem(payload) is not None:
            payload = json_payload(payload, what=f"the payload of `{event}`", code="event.payload")
        refusal = None
        if mistake is not None:
            refusal = Fault(UNKNOWN_EVENT, mistake.message)
        elif sent_ms is not None and sent_ms < self._clock.now_ms() - KEY_WINDOW_MS:
            refusal = EXPIRED
        sent = Event(event, payload, key, key, sender)
        entry_key = entry_key or key or f"_{self._clock.token()}"
        return SendRequest(sent, entry_key, expected, trace, refusal, reason, sent_ms=sent_ms)

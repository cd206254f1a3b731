"""A sender that makes spans: of requests, of their steps and of the appends. Used only where a program exports traces.

    interlock.send | interlock.create | interlock.timer   a request, a delivery or a timer
      interlock.step                                      one try; its traceparent is stored with the entry
        interlock.append                                  the write

Rule 1: the parent of a request is the trace that the caller names; else the caller's current span; else the work that
caused it; else the creation of the entity. The result of an effect has no span of its own: its step is below the
attempt.
Rule 2: a request with a trace of its own links to the creation of the entity, so that both are found from either.
Rule 3: a step that some readers may not see whole is not exported, nor what it causes. Of a chart with hidden states,
only applied steps are exported: a refusal could show that an entity is hidden.
Rule 4: a trace that is not a traceparent is the sender's own: it is stored, and there are no spans.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from msgspec.structs import replace

from interlock.effects.retry import code_of
from interlock.effects.spans import CausedSpan, start_caused
from interlock.errors import InterlockError
from interlock.kernel.step import Kernel
from interlock.model.driver_events import TIMER_SOURCE
from interlock.model.journal.cause import Cause, is_traceparent, trace_id
from interlock.model.journal.entry import CREATE, Receipt
from interlock.model.keys import BUS
from interlock.model.limits import SNAPSHOTS_CACHED_MAX, TRACE_WINDOW_MS
from interlock.model.snapshot import Parent, Snapshot
from interlock.model.step import Step
from interlock.ports.store import Append, AppendResult
from interlock.ports.tracer import Span, SpanKind, Tracer
from interlock.runtime.entities.append_builder import is_concealed
from interlock.runtime.entities.conflicts import LOST, Lost
from interlock.runtime.entities.decision import Refusal
from interlock.runtime.entities.entities import Entities
from interlock.runtime.entities.mailbox import Priority
from interlock.runtime.entities.mover import EntityMover
from interlock.runtime.entities.send_request import SendRequest
from interlock.runtime.entities.sender import EntitySender, Stamped


class TracedSender(EntitySender):
    """Creates and steps the entities of one connection, with spans."""

    def __init__(self, entities: Entities, mover: EntityMover, tracer: Tracer) -> None:
        super().__init__(entities, mover)
        self._tracer = tracer
        self._append = self._traced_append
        self._lives: OrderedDict[str, Cause] = OrderedDict()
        self._hiding: set[str] = set()

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
        """As `EntitySender.create`, in a span."""
        started = self._start("interlock.create", trace, cause, None, is_request=parent is None)
        if started is None:
            return await super().create(
                entity,
                kernel,
                context,
                key=key,
                principal=principal,
                trace=trace,
                reason=reason,
                parent=parent,
                owner=owner,
                cause=cause,
            )
        span = started.span
        span.note(entity=entity, kind=kernel.chart.kind, event=CREATE)
        with span.current(), _ending(span, is_dropped=kernel.chart.hidden is not None):
            receipt = await super().create(
                entity,
                kernel,
                context,
                key=key,
                principal=principal,
                trace=started.cause.trace,
                reason=reason,
                parent=parent,
                owner=owner,
                cause=started.cause,
            )
        if receipt.outcome == "applied":
            self._keep_life(entity, started.cause)
            assert receipt.snapshot is not None
            span.note(state_to=",".join(receipt.snapshot.configuration), version=receipt.version)
            if is_concealed(kernel, None, receipt.snapshot):
                span.drop()
        elif kernel.chart.hidden is not None or (parent is not None and receipt.outcome == "duplicate"):
            span.drop()  # the work of a child looks more than once whether the child exists
        span.note(outcome=receipt.outcome)
        span.end()
        return receipt

    async def send(self, entity: str, request: SendRequest) -> Receipt:
        """As `EntitySender.send`, in a span unless it is the result of an effect."""
        if request.finishes is not None and request.finishes.lane == "effect" and request.event.origin is None:
            return await super().send(entity, request)
        is_request = request.priority is Priority.CALLER
        life = await self._life(entity) if request.cause is None else None
        started = self._start(
            _name_of(request), request.trace, request.cause, life, is_request=is_request, key=request.key
        )
        if started is None:
            return await super().send(entity, request)
        span = started.span
        span.note(entity=entity, kind=entity.partition("/")[0], event=request.event.name)
        if life is not None:
            span.note(life=trace_id(life.trace))
        traced = replace(request, trace=started.cause.trace, cause=started.cause, spans=(span,))
        with span.current(), _ending(span, is_dropped=self._hides(entity)):
            receipt = await super().send(entity, traced)
        self._finish(span, entity, receipt)
        return receipt

    async def _try_send(self, entity: str, request: SendRequest) -> Receipt | Lost:
        cause = request.cause
        if cause is None or not is_traceparent(cause.trace):
            return await super()._try_send(entity, request)
        if request.spans:
            span = self._tracer.start_here("interlock.step", SpanKind.INTERNAL)
        else:
            span = self._tracer.start("interlock.step", SpanKind.INTERNAL, parent=cause.trace)
        own = Cause(span.traceparent, cause.since_ms, cause.whom)
        traced = replace(request, trace=own.trace, cause=own, spans=(*request.spans, span))
        span.note(entity=entity, kind=entity.partition("/")[0], event=request.event.name)
        with span.current(), _ending(span, is_dropped=self._hides(entity)):
            receipt = await super()._try_send(entity, traced)
        if receipt is LOST:
            span.end(error="conflict")
        else:
            self._finish(span, entity, receipt)
        return receipt

    async def _commit(
        self, kernel: Kernel, snapshot: Snapshot, stamped: Stamped, step: Step, request: SendRequest
    ) -> Receipt | Lost:
        if request.spans:
            if is_concealed(kernel, snapshot, step.snapshot):
                for each in request.spans:
                    each.drop()
            before, after = ",".join(snapshot.configuration), ",".join(step.snapshot.configuration)
            request.spans[-1].note(state_from=before, state_to=after, version=step.snapshot.version)
        return await super()._commit(kernel, snapshot, stamped, step, request)

    async def _refuse(self, kernel: Kernel, snapshot: Snapshot, stamped: Stamped, decision: Refusal) -> Receipt | Lost:
        self._note_hidden(kernel)
        return await super()._refuse(kernel, snapshot, stamped, decision)

    async def _traced_append(self, append: Append, step: Step, kernel: Kernel) -> AppendResult:
        self._note_hidden(kernel)
        if kernel.chart.hidden is not None or not is_traceparent(append.entry.trace):
            return await self._entities.append(append, step, kernel)
        span = self._tracer.start_here("interlock.append", SpanKind.INTERNAL)
        with span.current(), _ending(span):
            result = await self._entities.append(append, step, kernel)
        span.end()
        return result

    def _start(
        self,
        name: str,
        trace: str | None,
        cause: Cause | None,
        life: Cause | None,
        *,
        is_request: bool,
        key: str = "",
    ) -> CausedSpan | None:
        """Start the span of a request; None when its trace is not a traceparent (rule 4)."""
        tracer, now_ms = self._tracer, self._entities.clock.now_ms()
        if cause is not None and cause.trace is not None:
            return start_caused(tracer, name, SpanKind.CONSUMER, cause, now_ms=now_ms)
        whom = None if cause is None else cause.whom
        other = () if life is None or life.trace is None else (life.trace,)
        if trace is not None:
            if not is_traceparent(trace):
                return None
            links = () if life is not None and trace_id(life.trace) == trace_id(trace) else other
            span = tracer.start(
                name, SpanKind.CONSUMER if key.startswith(BUS) else SpanKind.SERVER, parent=trace, links=links
            )
            return CausedSpan(span, Cause(span.traceparent, now_ms, whom))
        if is_request and tracer.has_current():
            span = tracer.start_here(name, SpanKind.INTERNAL, links=other)
            return CausedSpan(span, Cause(span.traceparent, now_ms, whom))
        if life is not None and now_ms - life.since_ms < TRACE_WINDOW_MS:
            span = tracer.start(name, SpanKind.INTERNAL, parent=life.trace)
            return CausedSpan(span, Cause(span.traceparent, life.since_ms, whom))
        span = tracer.start(name, SpanKind.INTERNAL, parent=None, links=other)
        return CausedSpan(span, Cause(span.traceparent, now_ms, whom))

    async def _life(self, entity: str) -> Cause | None:
        """Return the trace in which an entity was created, as its first entry has it."""
        found = self._lives.get(entity)
        if found is None and self._entities.tries_max > 1:  # a transaction of the caller reads only what it must
            try:
                records = await self._entities.store.read(entity, after=0, limit=1)
            except InterlockError:  # it is unknown or archived, or the store says so when it is asked again
                return None
            if not records:
                return None
            entry = records[0].entry
            found = Cause(entry.trace if is_traceparent(entry.trace) else None, entry.event.time_ms)
            self._keep_life(entity, found)
        return None if found is None or found.trace is None else found

    def _keep_life(self, entity: str, cause: Cause) -> None:
        self._lives[entity] = cause
        if len(self._lives) > SNAPSHOTS_CACHED_MAX:
            self._lives.popitem(last=False)

    def _note_hidden(self, kernel: Kernel) -> None:
        if kernel.chart.hidden is not None:
            self._hiding.add(kernel.chart.kind)

    def _hides(self, entity: str) -> bool:
        """Whether a chart of the kind has hidden states. It is known as soon as an answer may depend on them."""
        return entity.partition("/")[0] in self._hiding

    def _finish(self, span: Span, entity: str, receipt: Receipt) -> None:
        if receipt.outcome != "applied" and self._hides(entity):
            span.drop()
        span.note(outcome=receipt.outcome)
        span.end()


def _name_of(request: SendRequest) -> str:
    source = request.event.source
    return "interlock.timer" if source is not None and source.startswith(TIMER_SOURCE) else "interlock.send"


@contextmanager
def _ending(span: Span, *, is_dropped: bool = False) -> Iterator[None]:
    """End a span with the code of what a block raises."""
    try:
        yield
    except BaseException as error:
        if is_dropped:
            span.drop()
        span.end(error=code_of(error))
        raise

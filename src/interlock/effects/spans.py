"""Spans of what the work of an entry causes.

Rule: what is caused within `TRACE_WINDOW_MS` of the start of a trace belongs to that trace. Later a new trace starts
and links to it, because a life may last for years, and no system shows a trace of years.
"""

from __future__ import annotations

from msgspec import Struct

from interlock.model.journal.cause import Cause, is_traceparent
from interlock.model.limits import TRACE_WINDOW_MS
from interlock.ports.tracer import Span, SpanKind, Tracer


class CausedSpan(Struct, frozen=True):
    """A span, and the cause of what happens in it."""

    span: Span
    cause: Cause


def start_caused(tracer: Tracer, name: str, kind: SpanKind, cause: Cause, *, now_ms: int) -> CausedSpan | None:
    """Start a span for what a cause led to; None when its trace is not a traceparent."""
    if not is_traceparent(cause.trace):
        return None
    assert cause.trace is not None
    if now_ms - cause.since_ms < TRACE_WINDOW_MS:
        span = tracer.start(name, kind, parent=cause.trace)
        return CausedSpan(span, Cause(span.traceparent, cause.since_ms, cause.whom))
    span = tracer.start(name, kind, parent=None, links=(cause.trace,))
    return CausedSpan(span, Cause(span.traceparent, now_ms, cause.whom))

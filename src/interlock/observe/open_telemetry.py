"""Spans by the API of OpenTelemetry. What exports them is configured by the program.

Rule 1: the API is imported only where a tracer is used: the program has installed a provider, or names one. A program
        without OpenTelemetry imports nothing and makes no call.
Rule 2: ids from outside are data. A span context is made only from a valid traceparent.
Rule 3: no exception is recorded, and no message: both may quote personal values. A failed span has the code.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from interlock.errors import MissingExtraError, UsageError
from interlock.model.journal.cause import is_traceparent
from interlock.ports.tracer import SpanKind

if TYPE_CHECKING:
    from opentelemetry.trace import Span as ApiSpan
    from opentelemetry.trace import TracerProvider

SCOPE = "interlock"
"""The name of the instrumentation scope."""


def installed_tracer() -> OpenTelemetryTracer | None:
    """Return a tracer of the provider that the program has installed; None if it has not, which is the usual case."""
    api = sys.modules.get("opentelemetry.trace")
    if api is None:
        return None
    provider = api.get_tracer_provider()
    if isinstance(provider, api.ProxyTracerProvider | api.NoOpTracerProvider):
        return None
    return OpenTelemetryTracer(provider)


def tracer_of(provider: TracerProvider) -> OpenTelemetryTracer:
    """Return a tracer of a provider. Raises UsageError for another object, MissingExtraError without the API."""
    try:
        from opentelemetry.trace import TracerProvider as Provider
    except ImportError:
        message = "traces need the package opentelemetry-api"
        raise MissingExtraError(message, code="extra.otel", hint="pip install 'interlock[otel]'") from None
    if not isinstance(provider, Provider):
        hint = "pass opentelemetry.sdk.trace.TracerProvider(...), or call opentelemetry.trace.set_tracer_provider first"
        raise UsageError(f"expected a tracer provider, got {provider!r:.60}", code="tracer.malformed", hint=hint)
    return OpenTelemetryTracer(provider)


class OpenTelemetryTracer:
    """Starts spans of a provider."""

    def __init__(self, provider: TracerProvider) -> None:
        from importlib.metadata import version

        from opentelemetry import trace

        self._api = trace
        self._tracer = provider.get_tracer(SCOPE, version("interlock"))
        self._kinds = {each: trace.SpanKind[each.name] for each in SpanKind}

    def has_current(self) -> bool:
        """Whether the caller runs inside a span."""
        return self._api.get_current_span().get_span_context().is_valid

    def start_here(self, name: str, kind: SpanKind, *, links: tuple[str, ...] = ()) -> OpenTelemetrySpan:
        """Start a span below the current one."""
        span = self._tracer.start_span(name, kind=self._kinds[kind], links=self._links(links))
        return OpenTelemetrySpan(self._api, span)

    def start(self, name: str, kind: SpanKind, *, parent: str | None, links: tuple[str, ...] = ()) -> OpenTelemetrySpan:
        """Start a span below a traceparent, or a new trace."""
        from opentelemetry.context import Context

        context = Context()
        if parent is not None and is_traceparent(parent):
            remote = self._api.NonRecordingSpan(self._context_of(parent))
            context = self._api.set_span_in_context(remote, context)
        span = self._tracer.start_span(name, context, kind=self._kinds[kind], links=self._links(links))
        return OpenTelemetrySpan(self._api, span)

    def _links(self, links: tuple[str, ...]) -> list[Any]:
        return [self._api.Link(self._context_of(each)) for each in links if is_traceparent(each)]

    def _context_of(self, traceparent: str) -> Any:
        _, trace_id, span_id, flags = traceparent.split("-")
        return self._api.SpanContext(
            int(trace_id, 16), int(span_id, 16), is_remote=True, trace_flags=self._api.TraceFlags(int(flags, 16))
        )


class OpenTelemetrySpan:
    """A span of the API."""

    def __init__(self, api: Any, span: ApiSpan) -> None:
        self._api = api
        self._span = span
        self._is_over = False
        found = span.get_span_context()
        self.traceparent = f"00-{found.trace_id:032x}-{found.span_id:016x}-{found.trace_flags & 1:02x}"

    @contextmanager
    def current(self) -> Iterator[None]:
        """Run a block as a part of it."""
        with self._api.use_span(self._span, record_exception=False, set_status_on_exception=False):
            yield

    def note(self, **attributes: str | int) -> None:
        """Add attributes."""
        for name, value in attributes.items():
            self._span.set_attribute(f"interlock.{name.replace('_', '.')}", value)

    def end(self, *, error: str | None = None) -> None:
        """End it, once."""
        if self._is_over:
            return
        self._is_over = True
        if error is not None:
            self._span.set_attribute("error.type", error)
            self._span.set_status(self._api.Status(self._api.StatusCode.ERROR, error))
        self._span.end()

    def drop(self) -> None:
        """Never export it: a span that does not end is not exported."""
        self._is_over = True

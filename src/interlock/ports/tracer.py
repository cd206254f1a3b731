"""What makes spans. A runtime has one only where the program exports traces; without one nothing is called."""

from __future__ import annotations

from contextlib import AbstractContextManager
from enum import Enum
from typing import Protocol


class SpanKind(Enum):
    """Where a span comes from: inside this process, a request, a delivery, or a call of a service."""

    INTERNAL = "internal"
    SERVER = "server"
    CONSUMER = "consumer"
    CLIENT = "client"


class Span(Protocol):
    """Something that takes time. It is exported when it ends; one that is dropped never is."""

    @property
    def traceparent(self) -> str:
        """Its identity, as work, handlers and other systems get it."""

    def current(self) -> AbstractContextManager[None]:
        """Run a block as a part of it: what the block starts is below it."""

    def note(self, **attributes: str | int) -> None:
        """Add attributes; an underscore in a name becomes a dot."""

    def end(self, *, error: str | None = None) -> None:
        """End it. `error` is the code of a failure, never its message, which may quote personal values."""

    def drop(self) -> None:
        """Never export it: readers of traces may not see what it measured."""


class Tracer(Protocol):
    """Starts spans."""

    def has_current(self) -> bool:
        """Whether the caller runs inside a span."""

    def start_here(self, name: str, kind: SpanKind, *, links: tuple[str, ...] = ()) -> Span:
        """Start a span below the one in which the caller runs. `links` are traceparents."""

    def start(self, name: str, kind: SpanKind, *, parent: str | None, links: tuple[str, ...] = ()) -> Span:
        """Start a span below a traceparent; without one, a new trace. `links` are traceparents."""

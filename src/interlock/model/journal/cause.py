"""What caused a step, as it is passed on with the work of the step: its trace, and for whom it happens.

Rule 1: a traceparent is the 55 characters of W3C Trace Context. Another text that a sender calls its trace is stored
        and passed on, and is never the parent of a span. `tracestate` and baggage are neither read nor stored: both
        are unbounded, and baggage may be personal.
Rule 2: the cause is part of the body of work, so it survives a crash and reaches other processes. Work of a step that
        some readers may not see has no trace: spans of what it causes would show that it happened.
Rule 3: for whom something happens gives no right (`model.actor`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import msgspec
from msgspec import Struct

from interlock.model.actor import Actor
from interlock.model.journal.work import WorkId

CAUSE = "_cause"
"""The name under which the body of work has its cause."""

_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")


class Cause(Struct, frozen=True, gc=False, omit_defaults=True, rename={"whom": "for"}):
    """Why a step happens: the traceparent of what caused it, since when that trace exists, and for whom."""

    trace: str | None = None
    since_ms: int = 0
    whom: Actor | None = None


NO_CAUSES: Mapping[WorkId, Cause] = MappingProxyType({})
"""When no cause is known."""


def is_traceparent(text: str | None) -> bool:
    """Whether a text is a valid traceparent. W3C: an invalid one is ignored."""
    return text is not None and _TRACEPARENT.fullmatch(text) is not None


def trace_id(trace: str | None) -> str:
    """Return the trace id of a traceparent; any other text as it is."""
    found = None if trace is None else _TRACEPARENT.fullmatch(trace)
    return (trace or "") if found is None else found[1]


def cause_body(cause: Cause) -> dict[str, Any]:
    """Return what the body of work has under `CAUSE`."""
    body: dict[str, Any] = {}
    if cause.trace is not None:
        body = {"trace": cause.trace, "since_ms": cause.since_ms}
    if cause.whom is not None:
        body["for"] = {"id": cause.whom.id, "kind": cause.whom.kind}
    return body


def cause_of(body: Any) -> Cause | None:
    """Return the cause that the body of work names; None without one."""
    found = body.get(CAUSE) if isinstance(body, dict) else None
    if found is None:
        return None
    try:
        return msgspec.convert(found, Cause)
    except msgspec.ValidationError:  # a row that another release has written
        return None

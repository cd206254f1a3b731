"""Payloads of events: plain JSON of limited size and depth, from senders and handlers alike."""

from __future__ import annotations

from typing import Any

from interlock.model.codec import encode
from interlock.model.document.field import json_problem
from interlock.model.limits import PAYLOAD_BYTES_MAX, PAYLOAD_DEPTH_MAX


def payload_problem(payload: Any) -> str | None:
    """Return why a payload is invalid, or None."""
    if payload is None:
        return None
    problem = json_problem(payload)
    if problem is not None:
        return problem
    if len(encode(payload)) > PAYLOAD_BYTES_MAX:
        return f"the payload has more than {PAYLOAD_BYTES_MAX:,} bytes"
    return f"the payload has more than {PAYLOAD_DEPTH_MAX} levels" if _depth(payload) > PAYLOAD_DEPTH_MAX else None


def _depth(value: Any) -> int:
    deepest, level = 0, [value]
    while level:
        inner = [each for each in level if isinstance(each, dict | list)]
        deepest += bool(inner)
        level = [part for each in inner for part in (each.values() if isinstance(each, dict) else each)]
    return deepest

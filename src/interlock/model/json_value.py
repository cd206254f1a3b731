"""What an event may carry: plain JSON of a bounded size and depth. For senders and handlers alike."""

from __future__ import annotations

from typing import Any

from interlock.model.codec import encode
from interlock.model.document.field import plain_refusal
from interlock.model.limits import PAYLOAD_BYTES_MAX, PAYLOAD_DEPTH_MAX


def payload_refusal(payload: Any) -> str | None:
    """Why a payload cannot be an event's data; None when it can."""
    if payload is None:
        return None
    problem = plain_refusal(payload)
    if problem is not None:
        return problem
    if len(encode(payload)) > PAYLOAD_BYTES_MAX:
        return f"a payload may have {PAYLOAD_BYTES_MAX:,} bytes"
    return f"a payload may be {PAYLOAD_DEPTH_MAX} levels deep" if _depth(payload) > PAYLOAD_DEPTH_MAX else None


def _depth(value: Any) -> int:
    deepest, level = 0, [value]
    while level:
        inner = [each for each in level if isinstance(each, dict | list)]
        deepest += bool(inner)
        level = [part for each in inner for part in (each.values() if isinstance(each, dict) else each)]
    return deepest

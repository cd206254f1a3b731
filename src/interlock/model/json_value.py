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
    problem = json_problem(payload, depth_max=PAYLOAD_DEPTH_MAX)
    if problem is None and len(encode(payload)) > PAYLOAD_BYTES_MAX:
        return f"the payload has more than {PAYLOAD_BYTES_MAX:,} bytes"
    return problem

"""Payloads of events: JSON of limited size and depth, from senders and handlers alike."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from interlock.errors import UsageError
from interlock.model.document.field import json_problem
from interlock.model.encoding.codec import encode
from interlock.model.encoding.convert import is_model, to_json
from interlock.model.limits import PAYLOAD_BYTES_MAX, PAYLOAD_DEPTH_MAX
from interlock.model.personal_token import QUOTED_KEY, reserved_problem


def payload_problem(payload: Any) -> str | None:
    """Return why a payload is invalid, or None."""
    if payload is None:
        return None
    problem = json_problem(payload, depth_max=PAYLOAD_DEPTH_MAX)
    if problem is not None:
        return problem
    encoded = encode(payload)
    if len(encoded) > PAYLOAD_BYTES_MAX:
        return f"the payload has more than {PAYLOAD_BYTES_MAX:,} bytes"
    return reserved_problem(payload) if QUOTED_KEY in encoded else None


def json_payload(value: Any, *, what: str, code: str) -> Any:
    """Return a payload as plain JSON: itself if it is, else its JSON form. Raises UsageError with this code."""
    if value is None or payload_problem(value) is None:
        return value
    converted = to_json(value, what=what, code=code)
    problem = payload_problem(converted)
    if problem is not None:
        if reserved_problem(converted) == problem:
            code = "payload.reserved"
        raise UsageError(f"{what} is invalid: {problem}", code=code)
    return converted


def context_values(context: object) -> dict[str, Any]:
    """Return the first context of an entity as JSON. Raises UsageError for what is not a mapping or a model."""
    if context is None:
        return {}
    if not isinstance(context, Mapping) and not is_model(context):
        hint = 'write create("order/1", {"amount": 100})'
        message = f"the context must be a mapping or a model, got {type(context).__name__}"
        raise UsageError(message, code="context.refused", hint=hint)
    given = dict(context) if isinstance(context, Mapping) else context
    values: dict[str, Any] = json_payload(given, what="the context", code="context.refused")
    return values

"""What an event may carry."""

from __future__ import annotations

from typing import Any

import pytest

from interlock.model.encoding.json_value import payload_problem
from interlock.model.limits import PAYLOAD_BYTES_MAX, PAYLOAD_DEPTH_MAX


def nested(levels: int) -> Any:
    """A list in a list, so many levels deep."""
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize("payload", [None, 3, "text", {"a": [1, {"b": None}]}, nested(PAYLOAD_DEPTH_MAX)])
def test_plain_json_of_a_bounded_size_is_taken(payload: Any) -> None:
    assert payload_problem(payload) is None


@pytest.mark.parametrize(
    ("payload", "why"),
    [
        ({1: 2}, "str"),
        (object(), "object"),
        ("\ud800", "surrogate"),
        ("x" * PAYLOAD_BYTES_MAX, "131,072 bytes"),
        (nested(PAYLOAD_DEPTH_MAX + 1), "32 levels"),
    ],
    ids=["key", "object", "surrogate", "size", "depth"],
)
def test_anything_else_is_refused_with_the_reason(payload: Any, why: str) -> None:
    assert why in (payload_problem(payload) or "")

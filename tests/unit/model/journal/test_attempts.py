"""Failed attempts that are stored with their work."""

from __future__ import annotations

from typing import Any

import pytest

from interlock.model.journal.attempts import (
    FAILED_ATTEMPTS_KEPT,
    MESSAGE_CHARS_MAX,
    PastAttempt,
    append_failed_attempt,
    failed_attempts,
)


def test_failed_attempts_are_kept_in_order_and_the_oldest_are_dropped() -> None:
    error: dict[str, Any] = {"code": "ConnectionError", "details": 7}
    for number in range(1, FAILED_ATTEMPTS_KEPT + 4):
        error = append_failed_attempt(error, PastAttempt(number, number * 1_000, 20, "ConnectionError", "x" * 500))
    found = failed_attempts(error)

    assert list(range(4, FAILED_ATTEMPTS_KEPT + 4)) == [each.number for each in found]
    assert PastAttempt(4, 4_000, 20, "ConnectionError", "x" * (MESSAGE_CHARS_MAX - 1) + "…") == found[0]
    assert ("ConnectionError", 7) == (error["code"], error["details"])


@pytest.mark.parametrize("stored", [None, "text", {}, {"failed": 3}, {"failed": [{"number": "one"}]}, {"failed": None}])
def test_work_of_another_release_has_no_failed_attempts(stored: Any) -> None:
    assert () == failed_attempts(stored)

"""The failed attempts of a piece of work, stored with it: which attempt, when, how long it ran, and its error.

They are in the field `failed` of the work's error, newest last, until the work ends.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from interlock.model.encoding.codec import to_builtins

FAILED_ATTEMPTS_KEPT = 10
"""The newest failed attempts that are kept: enough to see a pattern, few enough to be written at each failure."""

MESSAGE_CHARS_MAX = 200
"""Characters of the message of each: the newest error is kept in full besides."""


class FailedAttempt(Struct, frozen=True, omit_defaults=True):
    """One failed attempt: its number, when it started, how long it ran, and the error that ended it."""

    number: int
    started_ms: int
    duration_ms: int
    code: str
    message: str = ""


def append_failed_attempt(error: dict[str, Any], failed: FailedAttempt) -> dict[str, Any]:
    """Return what is stored with work, with one more failed attempt."""
    if len(failed.message) > MESSAGE_CHARS_MAX:
        failed = msgspec.structs.replace(failed, message=failed.message[: MESSAGE_CHARS_MAX - 1] + "…")
    before = error.get("failed")
    kept = [*(before if isinstance(before, list) else ()), to_builtins(failed)]
    return {**error, "failed": kept[-FAILED_ATTEMPTS_KEPT:]}


def failed_attempts(error: object) -> tuple[FailedAttempt, ...]:
    """Return the failed attempts that are stored with work, oldest first; none for work of an earlier release."""
    stored = error.get("failed") if isinstance(error, dict) else None
    try:
        return msgspec.convert(stored or (), tuple[FailedAttempt, ...])
    except msgspec.ValidationError:  # a row that another release or a person has written
        return ()

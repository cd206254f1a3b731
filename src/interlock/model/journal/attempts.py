"""Attempts of an effect that have ended: the number, when, how long it ran, its error, and when the next was due.

Failed attempts are in the field `failed` of the error of the work, newest last, until the work ends. Then the entry of
its result has them, with the last one, if any failed.
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


class PastAttempt(Struct, frozen=True, gc=False, omit_defaults=True):
    """An attempt that has ended: its number, when it started, how long it ran, and the error, unless it succeeded.

    `next_ms` is when the next one was due.
    """

    number: int
    started_ms: int
    duration_ms: int
    code: str | None = None
    message: str = ""
    next_ms: int | None = None


def append_failed_attempt(error: dict[str, Any], failed: PastAttempt) -> dict[str, Any]:
    """Return what is stored with work, with one more failed attempt."""
    before = error.get("failed")
    kept = [*(before if isinstance(before, list) else ()), to_builtins(shortened(failed))]
    return {**error, "failed": kept[-FAILED_ATTEMPTS_KEPT:]}


def shortened(failed: PastAttempt) -> PastAttempt:
    """Return an attempt with the beginning of its message."""
    if len(failed.message) <= MESSAGE_CHARS_MAX:
        return failed
    return msgspec.structs.replace(failed, message=failed.message[: MESSAGE_CHARS_MAX - 1] + "…")


def failed_attempts(error: object) -> tuple[PastAttempt, ...]:
    """Return the failed attempts that are stored with work, oldest first; none for work of an earlier release."""
    stored = error.get("failed") if isinstance(error, dict) else None
    try:
        return msgspec.convert(stored or (), tuple[PastAttempt, ...])
    except msgspec.ValidationError:  # a row that another release or a person has written
        return ()

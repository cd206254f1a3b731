"""One check for every number that a caller passes: sizes, counts, priorities."""

from __future__ import annotations

from interlock.errors import UsageError


def check_int(name: str, value: int, low: int, high: int, *, code: str) -> int:
    """Return the value. Raises UsageError unless it is an integer from `low` to `high`."""
    if type(value) is not int or not low <= value <= high:
        raise UsageError(f"{name}={value!r} is out of range", code=code, hint=f"{low} to {high}")
    return value

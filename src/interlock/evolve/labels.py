"""Labels of revisions, such as `3.1`: dotted numbers are compared number by number; any other label has no order."""

from __future__ import annotations

import re

_BOUND = re.compile(r"(<=|>=|<|>|=)?\s*([0-9]+(?:\.[0-9]+)*)")


def is_within(label: str, bounds: str) -> bool:
    """Whether a label lies in a range such as `>=3.0 <4`."""
    version = _numbers(label)
    if version is None:
        return False
    for sign, text in _BOUND.findall(bounds):
        left, right = _padded(version, tuple(int(part) for part in text.split(".")))
        holds = {"<": left < right, "<=": left <= right, ">": left > right, ">=": left >= right}.get(
            sign, left == right
        )
        if not holds:
            return False
    return True


def is_lower(label: str | None, other: str | None) -> bool:
    """Whether a label is a lower version than another; never, if one of them is not a version.

    >>> is_lower("2.9", "2.10"), is_lower("2", "2.0"), is_lower("beta", "2")
    (True, False, False)
    """
    version, others = _numbers(label or ""), _numbers(other or "")
    if version is None or others is None:
        return False
    left, right = _padded(version, others)
    return left < right


def _padded(version: tuple[int, ...], other: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return two versions with the same number of parts: missing ones are zero."""
    width = max(len(version), len(other))
    return version + (0,) * (width - len(version)), other + (0,) * (width - len(other))


def _numbers(label: str) -> tuple[int, ...] | None:
    if not re.fullmatch(r"[0-9]+(?:\.[0-9]+)*", label):
        return None
    return tuple(int(part) for part in label.split("."))

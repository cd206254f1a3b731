"""Durations as text (`250ms 30s 5m 24h 7d`, `1h30m`) and as whole milliseconds."""

from __future__ import annotations

import re

from interlock.errors import UsageError

UNIT_MS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
_PART = re.compile(r"([0-9]{1,12})(ms|[dhms])")
_SCXML = re.compile(r"\+?([0-9]{0,12})(?:\.([0-9]{1,9}))?(ms|s)")


def parse_duration(text: str) -> int | None:
    """Return the milliseconds of a duration such as `1h30m`; None if it is invalid.

    Units must fall, and signs and spaces are not allowed.
    """
    position, total, last = 0, 0, None
    while position < len(text):
        part = _PART.match(text, position)
        if part is None:
            return None
        unit = UNIT_MS[part[2]]
        if last is not None and unit >= last:
            return None
        total += int(part[1]) * unit
        position, last = part.end(), unit
    return total if last is not None else None


def require_duration(text: str, *, what: str, code: str) -> int:
    """Return the milliseconds of a duration that a user wrote. Raises UsageError with this code, naming `what`."""
    found = parse_duration(text)
    if found is None:
        raise UsageError(f"{what}: invalid duration `{text[:40]}`", code=code, hint="write 30s, 15m, 1h30m or 7d")
    return found


def parse_css_duration(text: str) -> int | None:
    """Return the milliseconds of a CSS2 time as in SCXML, such as `1.5s`, `.5s` or `200ms`; None if it is invalid."""
    match = _SCXML.fullmatch(text.strip())
    if match is None or not (match[1] or match[2]):
        return None
    fraction = (match[2] or "").ljust(9, "0")
    units = int(match[1] or 0) * 10**9 + int(fraction)
    return units * UNIT_MS[match[3]] // 10**9


def format_duration(ms: int) -> str:
    """Return the shortest text for a number of milliseconds: 5400000 -> `1h30m`."""
    if ms == 0:
        return "0ms"
    parts = []
    for unit, size in UNIT_MS.items():
        count, ms = divmod(ms, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts)

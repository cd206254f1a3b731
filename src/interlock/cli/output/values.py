"""Times, ages, counts, bars and JSON as text.

Rule: times are UTC with milliseconds, so that lines of two machines can be compared and sorted.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec

from interlock.model import refusal_text
from interlock.model.duration import format_duration
from interlock.runtime.history.replay import EPOCH

_VALUE_LENGTH_MAX = 200
"""Characters of a value in one line."""

_BAR_EIGHTHS = " ▏▎▍▌▋▊▉"


def time_text(ms: int) -> str:
    """Return a time as ISO 8601 in UTC; as a plain number if no calendar date exists for it."""
    try:
        return (EPOCH + timedelta(milliseconds=ms)).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except OverflowError:
        return f"{ms} ms"


def age_text(ms: int) -> str:
    """Return a duration in its two largest units at most, such as `1d4h`."""
    if ms < 1000:
        return f"{max(0, ms)}ms"
    day, hour, minute, second = 86_400_000, 3_600_000, 60_000, 1_000
    unit = hour if ms >= day else minute if ms >= hour else second
    return format_duration(ms // unit * unit)


def value_text(value: Any) -> str:
    """Return a value as JSON on one line, shortened if it is long."""
    return refusal_text.value_text(value, _VALUE_LENGTH_MAX)


def json_line(value: Any) -> str:
    """Return a value as one line of JSON."""
    return msgspec.json.encode(value).decode() + "\n"


def json_text(value: Any) -> str:
    """Return a value as an indented JSON document."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n"


def count_text(count: int, one: str, many: str) -> str:
    """Return a number with its noun, such as `1 entity` or `2 entities`."""
    return f"{count:,} {one if count == 1 else many}"


def short_number(count: int) -> str:
    """Return a number in at most six characters: 9,999, then 12.3k, then 4.5M."""
    if count < 10_000:
        return f"{count:,}"
    unit, size = ("k", 10**3) if count < 999_500 else ("M", 10**6) if count < 999_500_000 else ("G", 10**9)
    value = count / size
    return f"{value:.1f}{unit}" if value < 99.95 else f"{value:.0f}{unit}"


def bar(share: float, cells: int) -> str:
    """Return a bar of a number of cells, filled to a share from 0 to 1 in eighths of a cell."""
    eighths = round(max(0.0, min(1.0, share)) * cells * 8)
    full, rest = divmod(eighths, 8)
    return ("█" * full + (_BAR_EIGHTHS[rest] if rest else "")).ljust(cells)

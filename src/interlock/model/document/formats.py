"""Formats of string fields: how a time, a number or an identifier is written in JSON.

`model.convert` writes these forms from Python values. A string from elsewhere is checked and stays as it is, so a
format accepts what other languages write, as long as it means one value: a time in UTC, a decimal without an exponent.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Mapping
from datetime import date, datetime, time
from typing import Literal

from msgspec import Struct

Format = Literal["date-time", "date", "time", "decimal", "uuid", "duration", "byte"]
FORMATS: tuple[Format, ...] = ("date-time", "date", "time", "decimal", "uuid", "duration", "byte")

_DATE_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?Z")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_TIME = re.compile(r"[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?")
_DECIMAL = re.compile(r"-?[0-9]+(\.[0-9]+)?")
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_DURATION = re.compile(r"-?P(?=[0-9T])([0-9]+D)?(T(?=[0-9])([0-9]+H)?([0-9]+M)?([0-9]+(\.[0-9]{1,6})?S)?)?")


class FormatRule(Struct, frozen=True):
    """A format: its check, and an example for messages."""

    holds: Callable[[str], bool]
    example: str


def _is_date_time(text: str) -> bool:
    return _DATE_TIME.fullmatch(text) is not None and _is_read(datetime.fromisoformat, text)


def _is_date(text: str) -> bool:
    return _DATE.fullmatch(text) is not None and _is_read(date.fromisoformat, text)


def _is_time(text: str) -> bool:
    return _TIME.fullmatch(text) is not None and _is_read(time.fromisoformat, text)


def _is_read(read: Callable[[str], object], text: str) -> bool:
    try:
        read(text)
    except ValueError:  # such as the 30th of February
        return False
    return True


def _is_base64(text: str) -> bool:
    try:
        base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return False
    return True


RULES: Mapping[Format, FormatRule] = {
    "date-time": FormatRule(_is_date_time, "a time in UTC such as 2026-11-14T12:00:00Z"),
    "date": FormatRule(_is_date, "a date such as 2026-11-14"),
    "time": FormatRule(_is_time, "a time of day such as 12:00:00"),
    "decimal": FormatRule(lambda text: _DECIMAL.fullmatch(text) is not None, "a number such as 19.90"),
    "uuid": FormatRule(
        lambda text: _UUID.fullmatch(text) is not None, "a UUID in lower case, in groups of 8-4-4-4-12 digits"
    ),
    "duration": FormatRule(lambda text: _DURATION.fullmatch(text) is not None, "an ISO 8601 duration such as PT3600S"),
    "byte": FormatRule(_is_base64, "base64"),
}


def format_problem(text: str, format: Format) -> str | None:
    """Return what a text must be to have a format; None if it has it."""
    rule = RULES[format]
    return None if rule.holds(text) else rule.example

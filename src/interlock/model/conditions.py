"""Conditions of a query on indexed context fields: values and ranges, as Python values or as text.

Rule 1: a condition becomes a range of keys (`index_key`), the same in every store.
Rule 2: a value of a type that the field cannot have raises UsageError: it would silently find nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from math import isfinite
from typing import Any, Generic, TypeVar

from interlock.errors import UsageError
from interlock.model.document.field import is_text
from interlock.model.encoding.index_key import (
    FALSE,
    HASH_BYTES,
    PLAIN_FORMS,
    TRUE,
    IndexForm,
    index_key,
    is_exact,
    key_of_value,
    read_formatted,
    type_byte,
)
from interlock.model.limits import INTEGER_BITS_MAX

V = TypeVar("V")

Scalar = str | int | float | bool | datetime | date | Decimal | timedelta | Enum
"""A value that a field is compared with, or a `UUID`. In JSON a time, a `Decimal` or a `UUID` is a string."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Range(Generic[V]):
    """Values of an indexed field from `at_least` or `above` up to `at_most` or `below`: `Range(at_least=10)`.

    Raises UsageError (`where.range`) without a bound, and for two lower or two upper bounds.
    """

    at_least: V | None = None
    above: V | None = None
    at_most: V | None = None
    below: V | None = None

    def __post_init__(self) -> None:
        lower = [each for each in (self.at_least, self.above) if each is not None]
        upper = [each for each in (self.at_most, self.below) if each is not None]
        if len(lower) > 1 or len(upper) > 1 or not (lower or upper):
            hint = "use one of `at_least` and `above`, one of `at_most` and `below`, or one of each"
            raise UsageError("a range needs one or two bounds", code="where.range", hint=hint)


@dataclass(frozen=True, slots=True)
class KeyRange:
    """The keys of one condition. `low` <= key < `high` contains all of them.

    When `exact`, every such key matches; otherwise some have to be compared with their value by `matches`.
    """

    field: str
    form: IndexForm
    low: bytes
    high: bytes
    exact: bool
    lower: Any = None
    upper: Any = None
    equal: Any = None

    def matches(self, value: Any) -> bool:
        """Return whether a value of a context meets the condition."""
        key = index_key(value, self.form)
        if key is None or not self.low <= key < self.high:
            return False
        if self.exact:
            return True
        return self._matches_long(value)

    def _matches_long(self, value: Any) -> bool:
        """Compare the values themselves: the keys have only their first bytes."""
        own = _comparable(value, self.form)
        if self.equal is not None:
            return bool(own == self.equal)
        if self.lower is not None:
            bound, inclusive = self.lower
            if not (own > bound or (inclusive and own == bound)):
                return False
        if self.upper is not None:
            bound, inclusive = self.upper
            return bool(own < bound or (inclusive and own == bound))
        return True


def key_range(field: str, wanted: Any, form: IndexForm) -> KeyRange:
    """Return the keys of a condition: a value, or a `Range`. Raises UsageError (`where.value`) for another type."""
    if not isinstance(wanted, Range):
        value = _query_value(field, wanted, form)
        key = _query_key(value)
        return KeyRange(field, form, key, key + b"\0", is_exact(key), equal=value)
    kind = type_byte(form)
    low, high = (kind, bytes([kind[0] + 1])) if form != "boolean" else (FALSE, bytes([TRUE[0] + 1]))
    exact, lower, upper = True, None, None
    for bound, inclusive in ((wanted.at_least, True), (wanted.above, False)):
        if bound is not None:
            value = _query_value(field, bound, form)
            key = _query_key(value)
            lower = (value, inclusive)
            exact = exact and is_exact(key)
            low = key if inclusive and is_exact(key) else (key + b"\0" if is_exact(key) else _long_start(key))
    for bound, inclusive in ((wanted.at_most, True), (wanted.below, False)):
        if bound is not None:
            value = _query_value(field, bound, form)
            key = _query_key(value)
            upper = (value, inclusive)
            exact = exact and is_exact(key)
            high = (key + b"\0" if inclusive else key) if is_exact(key) else _long_end(key)
    return KeyRange(field, form, low, high, exact, lower=lower, upper=upper)


def _long_start(key: bytes) -> bytes:
    """Return a key before those of all long values with the same first bytes."""
    return key[:-HASH_BYTES]


def _long_end(key: bytes) -> bytes:
    """Return a key after those of all long values with the same first bytes."""
    return key[:-HASH_BYTES] + b"\xff" * (HASH_BYTES + 1)


def _comparable(value: Any, form: str) -> Any:
    """Return a JSON value in the form in which it is ordered; strings by code point."""
    if isinstance(value, str) and form not in PLAIN_FORMS:
        found = read_formatted(value, form)
        return value if found is None else found
    return value


def _query_key(value: Any) -> bytes:
    if isinstance(value, Decimal | datetime | date | timedelta):
        return key_of_value(value)
    key = index_key(value, "string")
    assert key is not None, "a value of a query was checked"
    return key


def _query_value(field: str, value: Any, form: IndexForm) -> Any:
    """Return the value of a condition as it is compared. Raises UsageError (`where.value`)."""
    if isinstance(value, Enum):
        value = value.value
    found = _converted(value, form)
    if found is not None:
        return found
    if value is None:
        hint = "entities without a value are not in the index"
        raise UsageError(f"`{field}` cannot be compared with None", code="where.value", hint=hint)
    message = f"`{field}` is compared with {_EXPECTED[form]}, got {value!r:.60}"
    raise UsageError(message, code="where.value", hint=f"such as {_EXAMPLES[form]}")


def _converted(value: Any, form: IndexForm) -> Any:
    """Return a value in the type in which values of a form are compared; None when it has no such value."""
    match form:
        case "string":
            text = str(value) if _is_uuid(value) else value
            return text if isinstance(text, str) and is_text(text) else None
        case "boolean":
            return value if type(value) is bool else None
        case "number":
            if type(value) is int:
                return value if value.bit_length() <= INTEGER_BITS_MAX else None
            return value if type(value) is float and isfinite(value) else None
        case "decimal":
            if type(value) is int and value.bit_length() <= INTEGER_BITS_MAX:
                return Decimal(value)
            if isinstance(value, str):
                return read_formatted(value, form)
            return value if isinstance(value, Decimal) and value.is_finite() else None
        case "date-time":
            if isinstance(value, str):
                return read_formatted(value, form)
            is_aware = isinstance(value, datetime) and value.utcoffset() is not None
            return value.astimezone(UTC) if is_aware else None
        case "date":
            if isinstance(value, str):
                return read_formatted(value, form)
            return value if isinstance(value, date) and not isinstance(value, datetime) else None
        case _:
            return read_formatted(value, form) if isinstance(value, str) else _as_duration(value)


def _is_uuid(value: Any) -> bool:
    """Whether a value is a UUID; that module draws random numbers, so nothing pure imports it."""
    return (type(value).__module__, type(value).__qualname__) == ("uuid", "UUID")


def _as_duration(value: Any) -> timedelta | None:
    return value if isinstance(value, timedelta) else None


_EXPECTED: dict[str, str] = {
    "string": "a string",
    "number": "an int or a finite float",
    "boolean": "True or False",
    "decimal": "a Decimal",
    "date-time": "a datetime with a time zone",
    "date": "a date",
    "duration": "a timedelta",
}
_EXAMPLES: dict[str, str] = {
    "string": '"c-7"',
    "number": "10",
    "boolean": "True",
    "decimal": 'Decimal("19.90")',
    "date-time": "datetime.now(UTC)",
    "date": "date(2026, 11, 18)",
    "duration": "timedelta(hours=1)",
}


# Conditions as text, for the command line and the console

_CONDITION = re.compile(r"(?P<field>[^\s.<>=!]+)\s*(?P<sign>>=|<=|=|>|<)\s*(?P<value>.*)", re.DOTALL)
_SIGNS = {">=": "at_least", ">": "above", "<=": "at_most", "<": "below"}


def parse_conditions(texts: tuple[str, ...]) -> dict[str, tuple[tuple[str, str], ...]]:
    """Return conditions such as `customer=c-7` and `amount>=10` as signs and texts by field.

    Raises UsageError (`where.malformed`).
    """
    found: dict[str, tuple[tuple[str, str], ...]] = {}
    for text in texts:
        match = _CONDITION.fullmatch(text.strip())
        if match is None:
            hint = "write customer=c-7, amount>=10 or amount<100"
            raise UsageError(f"invalid condition `{text[:80]}`", code="where.malformed", hint=hint)
        found[match["field"]] = (*found.get(match["field"], ()), (match["sign"], match["value"]))
    return found


def read_conditions(texts: tuple[str, ...], forms: Mapping[str, IndexForm]) -> dict[str, Any]:
    """Return the conditions of a query from their texts; a field without an index keeps its text.

    Raises UsageError (`where.malformed`).
    """
    found: dict[str, Any] = {}
    for field, conditions in parse_conditions(texts).items():
        read = [(sign, _read_text(field, text, forms.get(field, "string"))) for sign, text in conditions]
        if [sign for sign, _ in read] == ["="]:
            found[field] = read[0][1]
            continue
        names = [_SIGNS.get(sign) for sign, _ in read]
        if None in names or len(set(names)) != len(names):
            message = f"the conditions for `{field}` contradict each other"
            raise UsageError(message, code="where.malformed", hint="use one `=`, or one lower and one upper bound")
        found[field] = Range(**{name: value for name, (_, value) in zip(names, read, strict=True) if name})
    return found


def _read_text(field: str, text: str, form: IndexForm) -> Any:
    if form == "string":
        return text
    if form == "boolean":
        value: Any = {"true": True, "false": False}.get(text)
    elif form == "number":
        value = _read_number(text)
    else:
        value = read_formatted(text, form)
    if value is None:
        message = f"`{field}` is compared with {_EXPECTED[form]}, got `{text[:60]}`"
        raise UsageError(message, code="where.value", hint=f"such as {_TEXTS[form]}")
    return value


_TEXTS: dict[str, str] = {
    "number": "10 or 2.5",
    "boolean": "true or false",
    "decimal": "19.90",
    "date-time": "2026-11-18T12:00:00Z",
    "date": "2026-11-18",
    "duration": "PT3600S",
}


def _read_number(text: str) -> int | float | None:
    try:
        value = int(text) if re.fullmatch(r"[+-]?[0-9]{1,80}", text) else float(text)
    except ValueError:
        return None
    return value if isinstance(value, int) or isfinite(value) else None

"""The functions of the language, as compiled expressions call them.

The rules of `operate` hold here too. Results do not depend on the version of Python: texts have JSON's spelling, sums
of decimal numbers are rounded once (Python 3.12 changed how `sum` rounds).
"""

from __future__ import annotations

import math
import re
from typing import Any

from interlock.expression.metering import (
    NUMBERS,
    SHORT_TEXT,
    Meter,
    charge,
    charge_building,
    charge_reading,
    check_number,
    limit_error,
    need_number,
    type_error,
    type_name,
    value_error,
)
from interlock.model.approvals import ACTORS_FIELD, actor_ids, record_sender
from interlock.model.duration import parse_duration
from interlock.model.limits import STRING_LENGTH_MAX

ROUND_DIGITS_MAX = 15
"""Digits for `round`, in either direction: a float has no more, and `round(7, -99999999)` would run for minutes."""

NUMERAL_LENGTH_MAX = 100
"""Characters that `int` and `float` parse: 256 bits have 78 digits, and parsing takes quadratic time."""

_WHOLE_FROM = 2**53
"""From here on a float has no fraction."""

_INTEGER = re.compile(r" *[+-]?[0-9]+ *")
_NUMBER = re.compile(r" *[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)? *")


def x_actors(context: Any, name: str) -> list[str]:
    """The ids of the users who sent an event that approvals name, the latest at the end."""
    return actor_ids(context.get(ACTORS_FIELD), name)


def x_record_sender(context: Any, event: Any, version: int, name: str, *cleared: str) -> dict[str, Any]:
    """The record of senders, without some events and with the sender of this one."""
    return record_sender(context.get(ACTORS_FIELD), event, version, name, cleared)


def x_len(value: Any) -> int:
    """The number of characters, items or keys."""
    kind = type(value)
    if kind is list or kind is str or kind is dict:
        return len(value)
    raise type_error(f"len() takes a string, a list or a mapping, not {type_name(value)}")


def x_min(values: Any, meter: Meter | None) -> object:
    """The least of numbers or of strings: the arguments, or the items of the one list given."""
    _comparable("min", values, meter)
    return min(values)


def x_max(values: Any, meter: Meter | None) -> object:
    """The greatest of numbers or of strings."""
    _comparable("max", values, meter)
    return max(values)


def _comparable(name: str, values: Any, meter: Meter | None) -> None:
    if type(values) is not list and type(values) is not tuple:
        raise type_error(f"{name}() of one value takes a list, not {type_name(values)}")
    if not values:
        raise value_error(f"{name}() of an empty list")
    charge(meter, len(values))
    kinds = set(map(type, values))
    if kinds == {str}:
        charge_reading(meter, sum(map(len, values)))
    elif not kinds <= NUMBERS:
        raise type_error(f"{name}() compares numbers with numbers, or strings with strings")


def _items(name: str, values: Any, meter: Meter | None) -> None:
    if type(values) is not list:
        raise type_error(f"{name}() takes a list, not {type_name(values)}")
    charge(meter, len(values))


def x_sum(values: Any, meter: Meter | None) -> object:
    """The sum of a list of numbers."""
    _items("sum", values, meter)
    kinds = set(map(type, values))
    if not kinds <= NUMBERS:
        raise type_error("sum() takes a list of numbers")
    if float not in kinds:
        return check_number(sum(values))
    charge(meter, 5 * len(values))  # an exact sum has up to 40 parts, and each item may change all of them
    return check_number(math.fsum(values))


def x_any(values: Any, meter: Meter | None) -> bool:
    """Whether an item of a list is true."""
    _items("any", values, meter)
    return any(values)


def x_all(values: Any, meter: Meter | None) -> bool:
    """Whether every item of a list is true."""
    _items("all", values, meter)
    return all(values)


def x_abs(value: Any) -> object:
    """The number without its sign."""
    need_number("abs()", value)
    return abs(value)


def x_round(value: Any, digits: Any = None) -> object:
    """The number rounded, half to even: to a whole number, or to some digits after (or before) the point."""
    need_number("round()", value)
    if digits is None:
        return check_number(round(value))
    if type(digits) is not int:
        raise type_error(f"round() takes a whole number of digits, not {type_name(digits)}")
    if abs(digits) > ROUND_DIGITS_MAX:
        raise value_error(f"round() takes -{ROUND_DIGITS_MAX} to {ROUND_DIGITS_MAX} digits")
    if digits >= 0 and abs(value) >= _WHOLE_FROM:
        return value  # it has no fraction, and rounding it would take long
    return check_number(round(value, digits))


def x_floor(value: Any) -> object:
    """The largest integer that is not greater."""
    need_number("floor()", value)
    return check_number(math.floor(value))


def x_ceil(value: Any) -> object:
    """The smallest integer that is not less."""
    need_number("ceil()", value)
    return check_number(math.ceil(value))


def x_int(value: Any) -> object:
    """The integer in a string, or a number without its fraction; true is 1."""
    if type(value) is str:
        value = _numeral("int", value, _INTEGER)
    elif type(value) is not bool:
        need_number("int()", value)
    return check_number(int(value))


def x_float(value: Any) -> object:
    """The number in a string, or a number with a fraction; true is 1.0. Infinity and NaN are not allowed."""
    if type(value) is str:
        value = _numeral("float", value, _NUMBER)
    elif type(value) is not bool:
        need_number("float()", value)
    return check_number(float(value))


def _numeral(name: str, text: str, pattern: re.Pattern[str]) -> str:
    if len(text) > NUMERAL_LENGTH_MAX or pattern.fullmatch(text) is None:
        raise value_error(f"{name}() cannot read this string as a number")
    return text


def x_str(value: Any) -> str:
    """A string itself, or a number, boolean or null as in JSON. Lists and mappings are not allowed."""
    kind = type(value)
    if kind is str:
        text: str = value
        return text
    if value is None:
        return "null"
    if kind is bool:
        return "true" if value else "false"
    if kind in NUMBERS:
        return repr(check_number(value))
    raise type_error(f"str() takes a string, number, boolean or null, not {type_name(value)}")


def _text(name: str, value: Any) -> None:
    if type(value) is not str:
        raise type_error(f"{name}() takes a string, not {type_name(value)}")


def x_lower(value: Any, meter: Meter | None) -> str:
    """The string in lower case."""
    _text("lower", value)
    _charge_case(value, meter)
    return _fitting(value.lower())


def x_upper(value: Any, meter: Meter | None) -> str:
    """The string in upper case."""
    _text("upper", value)
    _charge_case(value, meter)
    return _fitting(value.upper())


def _charge_case(value: str, meter: Meter | None) -> None:
    """Charge a change of case: letters that are not ASCII are looked up one by one, and some become three."""
    if not value.isascii():
        charge(meter, len(value))
    elif len(value) >= SHORT_TEXT:
        charge_building(meter, len(value), ascii=True)


def _fitting(text: str) -> str:
    """Return the text. Raises EvaluationError if the change of case has made it too long."""
    if len(text) > STRING_LENGTH_MAX:
        raise limit_error(f"the result has more than {STRING_LENGTH_MAX:,} characters")
    return text


def x_starts_with(value: Any, start: Any, meter: Meter | None) -> bool:
    """Whether a string starts with another."""
    _text("starts_with", value)
    _text("starts_with", start)
    charge_reading(meter, len(start))
    result: bool = value.startswith(start)
    return result


def x_ends_with(value: Any, end: Any, meter: Meter | None) -> bool:
    """Whether a string ends with another."""
    _text("ends_with", value)
    _text("ends_with", end)
    charge_reading(meter, len(end))
    result: bool = value.endswith(end)
    return result


def x_ms(value: Any) -> int:
    """The milliseconds of a duration such as `1h30m`."""
    _text("ms", value)
    duration = parse_duration(value)
    if duration is None:
        raise value_error("ms() takes a duration such as 250ms, 30s, 5m, 24h, 7d or 1h30m")
    return duration

"""The operators and lookups that compiled expressions call if a plain Python operator would not be safe.

Rule 1: operands are plain JSON values, and so is whatever leaves: within the limits, its work charged (see `measure`).
Rule 2: names in `x_` are called by generated code only; `compile` lists them.
Rule 3: arithmetic takes numbers, and a boolean is not a number; comparison is Python's, with the work counted.
"""

from __future__ import annotations

from typing import Any

from interlock.expression.builtins import FIELDS
from interlock.expression.metering import (
    FREE_WORK,
    INTEGER_MAX,
    INTEGER_MIN,
    NUMBERS,
    SHORT_TEXT,
    EvaluationError,
    Meter,
    charge,
    charge_building,
    charge_reading,
    check_number,
    limit_error,
    measure_value,
    need_number,
    type_error,
    type_name,
)
from interlock.model.limits import STRING_LENGTH_MAX, VALUES_MAX

_FLAT = frozenset({int, float, bool, type(None)})
_HANDFUL = 8
"""Items of a list or mapping that are not charged, because the parts of its expression were."""
_EVENT_FIELDS = FIELDS["event"]
_ENTITY_FIELDS = tuple(each for each in FIELDS["entity"] if each != "epoch")
"""The entity as a value: without the epoch, which it did not have in earlier releases."""


def x_tree(value: Any, meter: Meter | None) -> object:
    """Return a new list or mapping. Raises EvaluationError beyond the limits."""
    # Most have a few scalars, which need no walk.
    length = len(value)
    if length < FREE_WORK:
        if meter is not None and length > _HANDFUL:
            meter.charge(length)
        for each in value if type(value) is list else value.values():
            kind = type(each)
            if kind not in _FLAT and (kind is not str or len(each) >= SHORT_TEXT):
                break
        else:
            return value
    measure_value(value, meter)
    return value


def x_context(context: dict[str, object], meter: Meter | None) -> object:
    """The context as a value. It is copied, so that a context assigned to one of its fields does not contain itself."""
    return x_tree(dict(context), meter)


def x_event(event: object, meter: Meter | None) -> object:
    """The event as a value."""
    return x_tree({field: getattr(event, field) for field in _EVENT_FIELDS}, meter)


def x_entity(entity: object) -> object:
    """The entity as a value."""
    return {field: getattr(entity, field) for field in _ENTITY_FIELDS}


def x_principal(principal: object, meter: Meter | None) -> object:
    """The principal as a value; null if the sender is unknown."""
    return None if principal is None else x_tree(principal, meter)


def x_key(key: object) -> str:
    """Return a computed key of a mapping. It must be a string: JSON has no other keys."""
    if type(key) is str:
        return key
    raise type_error(f"the keys of a mapping are strings, not {type_name(key)}")


def _numbers(sign: str, left: object, right: object) -> None:
    if type(left) not in NUMBERS or type(right) not in NUMBERS:
        raise type_error(f"{sign} does not take {type_name(left)} and {type_name(right)}")


def x_add(left: Any, right: Any, meter: Meter | None) -> object:
    """The sum of numbers, or two strings or two lists joined."""
    kind = type(left)
    if kind is int and type(right) is int:
        result = left + right
        return result if INTEGER_MIN <= result <= INTEGER_MAX else check_number(result)
    if kind is str and type(right) is str:
        length = len(left) + len(right)
        if length > STRING_LENGTH_MAX:
            raise limit_error(f"the result has more than {STRING_LENGTH_MAX:,} characters")
        if length >= SHORT_TEXT:
            charge_building(meter, length, ascii=left.isascii() and right.isascii())
        return left + right
    if kind is list and type(right) is list:
        length = len(left) + len(right)
        if length > VALUES_MAX:
            raise limit_error(f"a value contains more than {VALUES_MAX:,} values")
        charge(meter, length >> 2)
        return x_tree(left + right, meter)
    _numbers("+", left, right)
    return check_number(left + right)


def x_subtract(left: Any, right: Any) -> object:
    """The difference of two numbers."""
    if type(left) is int and type(right) is int:
        result = left - right
        return result if INTEGER_MIN <= result <= INTEGER_MAX else check_number(result)
    _numbers("-", left, right)
    return check_number(left - right)


def x_multiply(left: Any, right: Any) -> object:
    """The product of two numbers. Strings and lists cannot be repeated: the result could be huge."""
    _numbers("*", left, right)
    return check_number(left * right)


def x_divide(left: Any, right: Any) -> object:
    """The quotient of two numbers, always with a fraction."""
    _numbers("/", left, right)
    return check_number(left / right)


def x_floor_divide(left: Any, right: Any) -> object:
    """The quotient of two numbers, rounded down."""
    _numbers("//", left, right)
    return check_number(left // right)


def x_remainder(left: Any, right: Any) -> object:
    """The remainder of two numbers. Strings cannot be formatted: the result could be huge."""
    _numbers("%", left, right)
    return check_number(left % right)


def x_negative(value: Any) -> object:
    """The number with the other sign."""
    need_number("-", value)
    return check_number(-value)


def x_positive(value: Any) -> object:
    """The number itself."""
    need_number("+", value)
    return value


def _compare_charge(left: Any, right: Any, meter: Meter | None) -> None:
    kind = type(left)
    if kind is str:
        if type(right) is str:
            charge_reading(meter, min(len(left), len(right)))
    elif (kind is list or kind is dict) and type(right) is kind:
        # A comparison ends with the smaller side, so only that one is measured.
        measure_value(left if len(left) <= len(right) else right, meter)


def x_equal(left: Any, right: Any, meter: Meter | None) -> bool:
    """Whether two values are equal; 1 equals 1.0 and true, as in Python."""
    if type(left) is not str or len(left) >= SHORT_TEXT:
        _compare_charge(left, right, meter)
    result: bool = left == right
    return result


def x_unequal(left: Any, right: Any, meter: Meter | None) -> bool:
    """Whether two values differ."""
    if type(left) is not str or len(left) >= SHORT_TEXT:
        _compare_charge(left, right, meter)
    result: bool = left != right
    return result


def x_less(left: Any, right: Any, meter: Meter | None) -> bool:
    """Whether the first of two numbers, strings or lists comes before the second."""
    if type(left) is not str or len(left) >= SHORT_TEXT:
        _compare_charge(left, right, meter)
    result: bool = left < right
    return result


def x_less_equal(left: Any, right: Any, meter: Meter | None) -> bool:
    """Whether the first does not come after the second."""
    if type(left) is not str or len(left) >= SHORT_TEXT:
        _compare_charge(left, right, meter)
    result: bool = left <= right
    return result


def x_greater(left: Any, right: Any, meter: Meter | None) -> bool:
    """Whether the first comes after the second."""
    if type(left) is not str or len(left) >= SHORT_TEXT:
        _compare_charge(left, right, meter)
    result: bool = left > right
    return result


def x_greater_equal(left: Any, right: Any, meter: Meter | None) -> bool:
    """Whether the first does not come before the second."""
    if type(left) is not str or len(left) >= SHORT_TEXT:
        _compare_charge(left, right, meter)
    result: bool = left >= right
    return result


def x_in(left: Any, right: Any, meter: Meter | None) -> bool:
    """Whether a string contains a string, a list an item, or a mapping a key."""
    kind = type(right)
    if kind is str:
        if type(left) is not str:
            raise type_error(f"a string can contain only strings, not {type_name(left)}")
        charge_reading(meter, _search_length(len(left), len(right)))
        return left in right
    if kind is dict:
        if type(left) is not str:
            raise type_error(f"the keys of a mapping are strings, not {type_name(left)}")
        charge_reading(meter, len(left))
        return left in right
    if kind is not list:
        raise type_error(f"in takes a string, a list or a mapping, not {type_name(right)}")
    if type(left) is list or type(left) is dict:
        measure_value(right, meter)  # a comparison of an item ends with that item
    else:
        charge(meter, len(right) * (1 + (len(left) >> 6 if type(left) is str else 0)))
    return left in right


def _search_length(part: int, whole: int) -> int:
    """Return how many characters a search for one string in another may compare.

    CPython searches in linear time where it pays, and elsewhere may compare the whole part at every position: in
    strings under 2,500 characters, for parts under 100 in strings under 30,000, and for parts under 6.
    """
    if part > whole:
        return 0
    if whole < 2_500 or (part < 100 and whole < 30_000) or part < 6:
        return part * (whole - part + 1)
    return 4 * (part + whole)


def x_same(value: object) -> object:
    """Return the value. Used for a literal next to `is`, about which Python would warn."""
    return value


def _type_key(value: object, key: object) -> None:
    kind = type(value)
    if kind is dict:
        if type(key) is not str:
            raise type_error(f"a key of a mapping must be a string, not {type_name(key)}")
    elif kind is list or kind is str:
        if type(key) is not int:
            raise type_error(f"an index of a {type_name(value)} must be an integer, not {type_name(key)}")
    else:
        raise type_error(f"{type_name(value)} has no fields or items")


def x_item(value: Any, key: Any) -> object:
    """The field of a mapping, or the item of a list or string."""
    _type_key(value, key)
    if x_has(value, key):
        return value[key]
    raise EvaluationError(
        "expression.missing_key", f"the {type_name(value)} has no such {'key' if type(value) is dict else 'item'}"
    )


def x_has(value: Any, key: Any) -> bool:
    """Whether a mapping has the key, or a list or string the index. Null has neither."""
    if value is None:
        return False
    _type_key(value, key)
    return key in value if type(value) is dict else -len(value) <= key < len(value)


def x_get(value: Any, key: Any, default: object = None) -> object:
    """The field or item if it exists, else the default."""
    return value[key] if x_has(value, key) else default

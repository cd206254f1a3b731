"""Limits of an evaluation: the meter of work, the size of values, and the error of an evaluation that fails.

Rule 1: a result is within the limits of `model.limits`, or the evaluation fails.
Rule 2: work that grows with its operands is charged to the meter before it is done, in units of about 0.1 microseconds
        or 8 bytes. The meter is None on the fast path: long work then raises, and the caller evaluates again with a
        meter.
Rule 3: messages name types and limits, never values, because a value may be a secret.
Rule 4: this module charges the work that depends on values. The kernel charges the parts of an expression.
"""

from __future__ import annotations

import math
from typing import Any

from msgspec import Struct

from interlock.model.limits import INTEGER_BITS_MAX, VALUE_BYTES_MAX, VALUE_DEPTH_MAX, VALUES_MAX

FREE_WORK = 1_000
"""Units of work that one operation may do without a meter, on the fast path: 0.1 milliseconds."""

SHORT_TEXT = 1_000
"""Characters from which a string is charged: joining or comparing fewer takes no longer than a lookup."""

_FLAT = frozenset({int, float, bool, type(None)})
_LONG_LEVEL = 16
"""Values of one level of a tree from which checking all their types together is faster."""
_WALK_WORK = 10
"""Units of work that measuring takes at least: a microsecond."""

VALUE_BYTES = 8
"""Bytes of every value in the size of a tree: a pointer in memory, or at least two characters of JSON."""

INTEGER_MAX = 2**INTEGER_BITS_MAX - 1
INTEGER_MIN = -INTEGER_MAX
NUMBERS = frozenset({int, float})
"""The types for arithmetic. A boolean is not a number here, because a sum of flags is usually a mistake."""

TYPE_NAMES = {
    "NoneType": "null",
    "bool": "boolean",
    "int": "integer",
    "float": "number",
    "str": "string",
    "list": "list",
    "tuple": "list",
    "dict": "mapping",
}
"""The names of types in messages: those of definitions, not Python's."""


class EvaluationError(Exception):
    """The evaluation of a valid expression failed: a wrong type, a missing key, or a limit."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message

    def __str__(self) -> str:
        return self.message


class Meter(Struct, gc=False):
    """The remaining work of one step."""

    left: int

    def charge(self, amount: int) -> None:
        """Charge work. Raises EvaluationError when less remains; then nothing remains."""
        left = self.left - amount
        if left < 0:
            self.left = 0
            raise EvaluationError("expression.evaluations", "the step has used up its work budget")
        self.left = left


def charge(meter: Meter | None, work: int) -> None:
    """Charge work. Raises EvaluationError when the meter is used up, or when long work has no meter."""
    if meter is None:
        if work >= FREE_WORK:
            raise EvaluationError("expression.unmetered", "long operands need a meter")
    elif work < meter.left:
        meter.left -= work
    else:
        meter.charge(work)


def charge_building(meter: Meter | None, length: int, *, ascii: bool) -> None:
    """Charge the work of a new string: a unit per 8 bytes. A character that is not ASCII takes up to 4."""
    charge(meter, length >> 3 if ascii else length >> 1)


def charge_reading(meter: Meter | None, length: int) -> None:
    """Charge the work of comparing this many characters: about a unit for 64 of them."""
    charge(meter, length >> 6)


def type_name(value: object) -> str:
    """Return the name of a value's type for messages."""
    return TYPE_NAMES.get(type(value).__name__, "value")


def type_error(message: str) -> EvaluationError:
    """Return the error of a value with the wrong type."""
    return EvaluationError("expression.type", message)


def limit_error(message: str) -> EvaluationError:
    """Return the error of a value or a result beyond a limit."""
    return EvaluationError("expression.limit", message)


def value_error(message: str) -> EvaluationError:
    """Return the error of a value that has the right type and cannot be used."""
    return EvaluationError("expression.value", message)


def measure_value(
    value: object,
    meter: Meter | None,
    *,
    values_max: int = VALUES_MAX,
    depth_max: int = VALUE_DEPTH_MAX,
    bytes_max: int = VALUE_BYTES_MAX,
) -> int:
    """Return the bytes of a tree: 8 for each value, one for each character, four in a long string that is not ASCII.

    Shared parts count each time they appear, as they do when the tree is encoded. The result is at most four times
    the length of the JSON. The walk is charged to the meter, also when it fails. The charge includes one comparison
    or check of the tree. The walk goes level by level, without recursion, and needs no more memory than the limit on
    values.

    Raises EvaluationError beyond the limits on values, depth and bytes. The defaults are the limits of one value.
    """
    values, characters, wide, work, depth = 0, 0, 0, _WALK_WORK, 0
    level: list[Any] = [value]
    while level:
        values += len(level)
        if values > values_max:
            charge(meter, work + (values >> 3))
            raise limit_error(f"a value contains more than {values_max:,} values")
        containers: list[Any] = []
        if len(level) < _LONG_LEVEL or not _FLAT.issuperset(map(type, level)):
            for each in level:
                kind = type(each)
                if kind is str:
                    length = len(each)
                    characters += length
                    if length >= SHORT_TEXT and not each.isascii():
                        wide += 3 * length
                elif kind is list or kind is dict:
                    containers.append(each)
        if not containers:
            break
        depth += 1
        if depth > depth_max:
            charge(meter, work + values)
            raise limit_error(f"a value is nested deeper than {depth_max}")
        work += 2 * len(containers)
        level = []
        for each in containers:
            if type(each) is dict:
                work += len(each)
                characters += sum(map(len, each))
                level += each.values()
            else:
                level += each
            if len(level) > values_max:
                break
    charge(meter, work + values + (characters >> 6))
    size = VALUE_BYTES * values + characters + wide
    if size > bytes_max:
        raise limit_error(f"a value takes more than {bytes_max:,} bytes")
    return size


def text_bytes(text: str) -> int:
    """Return the bytes of a string, as `measure_value` counts them."""
    length = len(text)
    return VALUE_BYTES + (length if length < SHORT_TEXT or text.isascii() else 4 * length)


def check_number(result: float) -> float:
    """Return a number. Raises EvaluationError beyond the limits."""
    if type(result) is int:
        if INTEGER_MIN <= result <= INTEGER_MAX:
            return result
        raise limit_error(f"the result has more than {INTEGER_BITS_MAX} bits")
    if math.isfinite(result):
        return result
    raise limit_error("the result is too large for a number")


def need_number(what: str, value: object) -> None:
    """Raise EvaluationError unless the value is a number."""
    if type(value) not in NUMBERS:
        raise type_error(f"{what} takes a number, not {type_name(value)}")

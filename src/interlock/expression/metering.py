"""What bounds an evaluation: the meter, the weight of values, and the error of an expression that has no value.

Rule 1: a result is within the limits of `model.limits`, or there is no result.
Rule 2: work that grows with its operands is charged to the meter before it is done, in units of about 0.1 microseconds
        or 8 bytes. The meter is None on the fast path: then long work raises, and the caller evaluates again with a
        meter.
Rule 3: messages name types and limits, never values: a value may be a secret.
Rule 4: this file charges the work that depends on values. The kernel charges the parts of an expression.
"""

from __future__ import annotations

import math
from typing import Any

from msgspec import Struct

from interlock.model.limits import INTEGER_BITS_MAX, VALUE_BYTES_MAX, VALUE_DEPTH_MAX, VALUES_MAX

FREE_WORK = 1_000
"""Units of work that one operation may do without a meter, on the fast path: 0.1 milliseconds."""

SHORT_TEXT = 1_000
"""Characters from which a string is charged for: joining or comparing fewer takes no longer than a lookup."""

_FLAT = frozenset({int, float, bool, type(None)})
_LONG_LEVEL = 16
"""Values of one level of a tree from which it pays to ask for their types all at once."""
_WALK_WORK = 10
"""Units of work that weighing takes at least: a microsecond."""

VALUE_BYTES = 8
"""What every value counts for in the size of a tree: a pointer in memory, at least two characters of JSON."""

INTEGER_MAX = 2**INTEGER_BITS_MAX - 1
INTEGER_MIN = -INTEGER_MAX
NUMBERS = frozenset({int, float})
"""The types arithmetic takes. A boolean is not a number here: a sum of flags is a mistake more often than a wish."""

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
"""What we call the types of values in messages: the words of a definition, not Python's."""


class EvaluationError(Exception):
    """A well-formed expression has no value here: a wrong type, a missing key, a limit."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message

    def __str__(self) -> str:
        return self.message


class Meter(Struct, gc=False):
    """What is left of the work of one step."""

    left: int

    def charge(self, amount: int) -> None:
        """Take from what is left. Raises: EvaluationError when that is not enough; then nothing is left."""
        left = self.left - amount
        if left < 0:
            self.left = 0
            raise EvaluationError("expression.evaluations", "the step has used up its evaluations")
        self.left = left


def charge(meter: Meter | None, work: int) -> None:
    """Count work. Raises: EvaluationError when the meter has no more of it, or when long work has no meter."""
    if meter is None:
        if work >= FREE_WORK:
            raise EvaluationError("expression.unmetered", "long operands need a meter")
    elif work < meter.left:
        meter.left -= work
    else:
        meter.charge(work)


def charge_building(meter: Meter | None, length: int, *, ascii: bool) -> None:
    """Count the work of a new string: a unit per 8 bytes; Python takes up to 4 for a character that is not ASCII."""
    charge(meter, length >> 3 if ascii else length >> 1)


def charge_reading(meter: Meter | None, length: int) -> None:
    """Count the work of comparing so many characters: 64 of them take about a unit."""
    charge(meter, length >> 6)


def type_name(value: object) -> str:
    """The word for a value's type in messages."""
    return TYPE_NAMES.get(type(value).__name__, "value")


def wrong(message: str) -> EvaluationError:
    """The error: a value has the wrong type."""
    return EvaluationError("expression.type", message)


def over(message: str) -> EvaluationError:
    """The error: a value or a result is beyond a limit."""
    return EvaluationError("expression.limit", message)


def unfit(message: str) -> EvaluationError:
    """The error: a value of the right type cannot be used here."""
    return EvaluationError("expression.value", message)


def weigh(
    value: object,
    meter: Meter | None,
    *,
    values_max: int = VALUES_MAX,
    depth_max: int = VALUE_DEPTH_MAX,
    bytes_max: int = VALUE_BYTES_MAX,
) -> int:
    """The bytes of a tree: 8 for each value, one for each character, four in a long string that is not ASCII.

    Shared parts count each time they appear, as they do when the tree is encoded; the count is at most four times the
    length of the JSON. The walk is charged to the meter, also when it ends in an error: failing again and again is not
    free. What is charged pays for one comparison or check of the tree, too. It goes level by level: no recursion, and
    no more memory than the limit on values.
    Raises: EvaluationError beyond the limits on values, depth and bytes, which are those of one value unless said.
    """
    values, characters, wide, work, depth = 0, 0, 0, _WALK_WORK, 0
    level: list[Any] = [value]
    while level:
        values += len(level)
        if values > values_max:
            charge(meter, work + (values >> 3))
            raise over(f"a value holds more than {values_max:,} values")
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
            raise over(f"a value is nested deeper than {depth_max}")
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
        raise over(f"a value takes more than {bytes_max:,} bytes")
    return size


def text_bytes(text: str) -> int:
    """The bytes of a string, counted as `weigh` counts them."""
    length = len(text)
    return VALUE_BYTES + (length if length < SHORT_TEXT or text.isascii() else 4 * length)


def checked(result: float) -> float:
    """The number, once it is known to be within the limits."""
    if type(result) is int:
        if INTEGER_MIN <= result <= INTEGER_MAX:
            return result
        raise over(f"the result has more than {INTEGER_BITS_MAX} bits")
    if math.isfinite(result):
        return result
    raise over("the result is too large for a number")


def need_number(what: str, value: object) -> None:
    """Raises: EvaluationError when the value is not a number."""
    if type(value) not in NUMBERS:
        raise wrong(f"{what} takes a number, not {type_name(value)}")

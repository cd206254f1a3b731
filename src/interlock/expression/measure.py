"""What bounds an evaluation: the meter, the weight of values, and the error of an expression that has no value.

Rule 1: a result is within the limits of `model.limits`, or there is no result.
Rule 2: work that grows with its operands is charged to the meter, one evaluation per 1,000 items or characters. The
        meter is None on the fast path: then such work raises, and the caller evaluates again with a meter.
Rule 3: messages name types and limits, never values: a value may be a secret.
"""

from __future__ import annotations

import math
from typing import Any

from interlock.model.limits import INTEGER_BITS_MAX, VALUE_DEPTH_MAX, VALUES_MAX

CHARGE_ITEMS = 1_000
"""Items of a list or characters of a string that count as one more evaluation; fewer are free."""

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


class Meter:
    """What is left of the evaluations of one step."""

    __slots__ = ("left",)

    def __init__(self, left: int) -> None:
        self.left = left

    def charge(self, amount: int) -> None:
        """Take from what is left. Raises: EvaluationError when that is not enough; then nothing is left."""
        self.left -= amount
        if self.left < 0:
            self.left = 0
            raise EvaluationError("expression.evaluations", "the step has used up its evaluations")


def charge(meter: Meter | None, items: int) -> None:
    """Count long work; short work is free. Raises: EvaluationError when it is long and nobody counts."""
    if items >= CHARGE_ITEMS:
        if meter is None:
            raise EvaluationError("expression.unmetered", "long operands need a meter")
        meter.charge(items // CHARGE_ITEMS)


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


def weigh(value: object, meter: Meter | None) -> int:
    """How many values a tree holds, shared parts counted each time they appear; long strings count once more per 1,000.

    The walk is charged to the meter, also when it ends in an error: failing again and again is not free. It goes level
    by level: no recursion, and no more memory than the limit on values.
    Raises: EvaluationError beyond the limits on values and depth.
    """
    total, depth, level = 0, 0, [value]
    while level:
        total += len(level)
        containers: list[Any] = []
        for each in level:
            if type(each) is str:
                total += len(each) // CHARGE_ITEMS
            elif type(each) is list or type(each) is dict:
                containers.append(each)
        depth += bool(containers)
        if total + sum(map(len, containers)) > VALUES_MAX:
            charge(meter, total)
            raise over(f"a value holds more than {VALUES_MAX:,} values")
        if depth > VALUE_DEPTH_MAX:
            charge(meter, total)
            raise over(f"a value is nested deeper than {VALUE_DEPTH_MAX}")
        level = []
        for each in containers:
            if type(each) is dict:
                total += sum([len(key) // CHARGE_ITEMS for key in each])
                level += each.values()
            else:
                level += each
    charge(meter, total)
    return total


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

"""A tree-walking evaluator of the expression language, for the reference interpreter only.

Rule 1: it shares no code with `interlock.expression`: it reads the text with Python's own parser and walks the tree.
Rule 2: it is slow and plain; it ignores budgets, and refuses what is not in vocabulary section 6.
Rule 3: every failure is a `Failure` with the code an author would see.
"""

from __future__ import annotations

import ast
import functools
import math
from collections.abc import Callable, Collection, Mapping
from typing import Any

from interlock.model.document.actions import Expression
from interlock.model.duration import parse_duration
from interlock.model.event import Event

EVENT_FIELDS = ("name", "data", "id", "time_ms", "type", "origin", "origintype", "sendid", "invokeid", "principal")


class Failure(Exception):
    """An action or guard that could not be carried out: what the chart sees as `error.execution`."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.sendid: str | None = None


def number(value: Any) -> Any:
    """The operand, if it is a number; a boolean is none."""
    if type(value) not in (int, float):
        raise Failure("expression.type", "a number is needed")
    return value


def text(value: Any) -> str:
    """The operand, if it is a string."""
    if type(value) is not str:
        raise Failure("expression.type", "a string is needed")
    return value


def items(value: Any) -> list[Any]:
    """The operand, if it is a list."""
    if type(value) is not list:
        raise Failure("expression.type", "a list is needed")
    return value


def finite(value: Any) -> Any:
    """The result of arithmetic, if it fits."""
    if isinstance(value, float) and not math.isfinite(value):
        raise Failure("expression.limit", "a number must be finite")
    if isinstance(value, int) and value.bit_length() > 256:
        raise Failure("expression.limit", "an integer has at most 256 bits")
    return value


def item(value: Any, key: Any) -> Any:
    """`value[key]` and `value.key`: item lookup in a mapping, list or string."""
    if type(value) is dict and type(key) is str:
        if key not in value:
            raise Failure("expression.missing_key", "no such key")
        return value[key]
    if type(value) in (list, str) and type(key) is int:
        if not -len(value) <= key < len(value):
            raise Failure("expression.missing_key", "no such item")
        return value[key]
    raise Failure("expression.type", "this value has no such part")


def _add(left: Any, right: Any) -> Any:
    if type(left) is str and type(right) is str:
        return left + right
    if type(left) is list and type(right) is list:
        return left + right
    return number(left) + number(right)


ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: _add,
    ast.Sub: lambda left, right: number(left) - number(right),
    ast.Mult: lambda left, right: number(left) * number(right),
    ast.Div: lambda left, right: number(left) / number(right),
    ast.FloorDiv: lambda left, right: number(left) // number(right),
    ast.Mod: lambda left, right: number(left) % number(right),
}


def _contains(left: Any, right: Any) -> bool:
    if type(right) in (str, dict):
        return text(left) in right
    return left in items(right)


COMPARISON: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: lambda left, right: bool(left == right),
    ast.NotEq: lambda left, right: bool(left != right),
    ast.Lt: lambda left, right: bool(left < right),
    ast.LtE: lambda left, right: bool(left <= right),
    ast.Gt: lambda left, right: bool(left > right),
    ast.GtE: lambda left, right: bool(left >= right),
    ast.In: _contains,
    ast.NotIn: lambda left, right: not _contains(left, right),
    ast.Is: lambda left, right: left is right,
    ast.IsNot: lambda left, right: left is not right,
}


def _length(value: Any) -> int:
    if type(value) not in (str, list, dict):
        raise Failure("expression.type", "only strings, lists and mappings have a length")
    return len(value)


def _extreme(pick: Callable[..., Any]) -> Callable[..., Any]:
    def extreme(*values: Any) -> Any:
        found = items(values[0]) if len(values) == 1 else list(values)
        if not found:
            raise Failure("expression.value", "an empty list has no least or greatest item")
        same = all(type(each) is str for each in found) or all(type(each) in (int, float) for each in found)
        if not same:
            raise Failure("expression.type", "numbers with numbers, strings with strings")
        return pick(found)

    return extreme


def _has(value: Any, key: Any) -> bool:
    if value is None:
        return False
    try:
        item(value, key)
    except Failure as failure:
        if failure.code == "expression.missing_key":
            return False
        raise
    return True


def _string(value: Any) -> str:
    if value is None or type(value) is bool:
        return {None: "null", True: "true", False: "false"}[value]
    return value if type(value) is str else repr(number(value))


def _whole(value: Any) -> int:
    if type(value) is str:
        digits = value.strip(" ").removeprefix("-").removeprefix("+")
        if not (digits.isascii() and digits.isdigit() and len(value) <= 100):
            raise Failure("expression.value", "no number")
        return int(value)
    return int(value if type(value) is bool else number(value))


def _duration(value: Any) -> int:
    found = parse_duration(text(value))
    if found is None:
        raise Failure("expression.value", "no duration")
    return found


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "abs": lambda value: abs(number(value)),
    "all": lambda value: all(items(value)),
    "any": lambda value: any(items(value)),
    "bool": bool,
    "ceil": lambda value: math.ceil(number(value)),
    "ends_with": lambda value, end: text(value).endswith(text(end)),
    "float": lambda value: float(value if type(value) is bool else number(value)),
    "floor": lambda value: math.floor(number(value)),
    "get": lambda value, key, default=None: item(value, key) if _has(value, key) else default,
    "has": _has,
    "int": _whole,
    "len": _length,
    "lower": lambda value: text(value).lower(),
    "max": _extreme(max),
    "min": _extreme(min),
    "ms": _duration,
    "round": lambda value, digits=None: round(number(value), digits),
    "starts_with": lambda value, start: text(value).startswith(text(start)),
    "str": _string,
    "sum": lambda value: sum(number(each) for each in items(value)),
    "upper": lambda value: text(value).upper(),
}


@functools.cache
def parsed(source: str) -> ast.expr:
    """The tree of an expression; kept, because the same few texts are read a million times."""
    return ast.parse(source.strip(), mode="eval").body


class Evaluator:
    """What an expression can see at one moment: context, the event bound last, entity, active states."""

    def __init__(
        self, context: Mapping[str, Any], event: Event | None, entity: Mapping[str, Any], active: Collection[str]
    ) -> None:
        self.context = context
        self.event = event
        self.entity = entity
        self.active = active

    def value(self, value: Any) -> Any:
        """The value with every expression in it replaced by its result."""
        if isinstance(value, Expression):
            return self.expression(value)
        if isinstance(value, dict):
            return {key: self.value(each) for key, each in value.items()}
        if isinstance(value, list | tuple):
            return [self.value(each) for each in value]
        return value

    def expression(self, expression: Expression) -> Any:
        """The result of one expression. Raises Failure."""
        if expression.malformed is not None:
            code, _, message = expression.malformed.partition(": ")
            raise Failure(code, message)
        tree = parsed(expression.text)
        try:
            return self._walk(tree, dict(expression.inside))
        except ZeroDivisionError:
            raise Failure("expression.zero_division", "division by zero") from None
        except TypeError as error:
            raise Failure("expression.type", str(error)) from None
        except OverflowError:
            raise Failure("expression.limit", "the result is too large") from None

    def _walk(self, tree: ast.expr, inside: dict[str, str]) -> Any:
        match tree:
            case ast.Constant(value=value):
                return value
            case ast.Name(id=name):
                return self._root(name)
            case ast.Attribute(value=inner, attr=key):
                return item(self._walk(inner, inside), key)
            case ast.Subscript(value=inner, slice=key):
                return item(self._walk(inner, inside), self._walk(key, inside))
            case ast.BoolOp(op=op, values=parts):
                return self._logic(parts, inside, stop=isinstance(op, ast.Or))
            case ast.UnaryOp(op=ast.Not(), operand=inner):
                return not self._walk(inner, inside)
            case ast.UnaryOp(op=op, operand=inner):
                operand = number(self._walk(inner, inside))
                return -operand if isinstance(op, ast.USub) else operand
            case ast.BinOp(left=left, op=op, right=right):
                return finite(ARITHMETIC[type(op)](self._walk(left, inside), self._walk(right, inside)))
            case ast.Compare(left=left, ops=ops, comparators=others):
                return self._compare(self._walk(left, inside), ops, others, inside)
            case ast.IfExp(test=test, body=body, orelse=other):
                return self._walk(body if self._walk(test, inside) else other, inside)
            case ast.List(elts=parts) | ast.Tuple(elts=parts):
                return [self._walk(each, inside) for each in parts]
            case ast.Dict(keys=keys, values=parts):
                pairs = zip([each for each in keys if each is not None], parts, strict=True)
                return {text(self._walk(key, inside)): self._walk(each, inside) for key, each in pairs}
            case ast.Call(func=ast.Name(id="In"), args=[ast.Constant(value=str(state))]):
                return inside.get(state, state) in self.active
            case ast.Call(func=ast.Name(id=name), args=arguments):
                return FUNCTIONS[name](*[self._walk(each, inside) for each in arguments])
            case _:
                raise Failure("expression.malformed", f"{type(tree).__name__} is not part of the language")

    def _root(self, name: str) -> Any:
        if name == "context":
            return dict(self.context)
        if name == "entity":
            return dict(self.entity)
        if name == "event":
            if self.event is None:
                raise Failure("expression.unbound_event", "no event is bound yet")
            return {field: getattr(self.event, field) for field in EVENT_FIELDS}
        return {"true": True, "false": False, "null": None}[name]

    def _logic(self, parts: list[ast.expr], inside: dict[str, str], *, stop: bool) -> Any:
        value: Any = None
        for part in parts:
            value = self._walk(part, inside)
            if bool(value) is stop:
                break
        return value

    def _compare(self, left: Any, ops: list[ast.cmpop], others: list[ast.expr], inside: dict[str, str]) -> bool:
        for op, other in zip(ops, others, strict=True):
            right = self._walk(other, inside)
            if not COMPARISON[type(op)](left, right):
                return False
            left = right
        return True

"""A second opinion: the language as a tree walk, written from its description and sharing no code with the compiler.

Slow and plain on purpose. It knows no meter and no limit on trees: it is given small values only.
"""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable
from typing import Any

Value = Any
_BITS = 2**256


class NoValueError(Exception):
    """The expression has no value; the argument is the last part of the code."""


def oracle(text: str, roots: dict[str, Value], active: frozenset[str]) -> Value:
    """The value of an expression. Raises: NoValueError."""
    return _Walk(roots, active).value(ast.parse(text.strip(), mode="eval").body)


def fail(code: str) -> NoValueError:
    """The error to raise."""
    return NoValueError(code)


def is_number(value: Value) -> bool:
    """Whether arithmetic takes it."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def fitting(value: Value) -> Value:
    """A number within the limits."""
    if isinstance(value, float) and not math.isfinite(value):
        raise fail("limit")
    if isinstance(value, int) and abs(value) >= _BITS:
        raise fail("limit")
    return value


class _Walk:
    def __init__(self, roots: dict[str, Value], active: frozenset[str]) -> None:
        self.roots = roots
        self.active = active

    def value(self, node: ast.expr) -> Value:
        method: Callable[[Any], Value] = getattr(self, type(node).__name__.lower())
        return method(node)

    def constant(self, node: ast.Constant) -> Value:
        return node.value

    def name(self, node: ast.Name) -> Value:
        if node.id in ("true", "false", "null"):
            return {"true": True, "false": False, "null": None}[node.id]
        if self.roots[node.id] is None:
            raise fail("unbound_event")
        return self.roots[node.id]

    def attribute(self, node: ast.Attribute) -> Value:
        return self.look(self.value(node.value), node.attr)

    def subscript(self, node: ast.Subscript) -> Value:
        container = self.value(node.value)
        return self.look(container, self.value(node.slice))

    def look(self, container: Value, key: Value) -> Value:
        if container is None or not self.has(container, key):
            raise fail("type" if container is None else "missing_key")
        return container[key]

    def has(self, container: Value, key: Value) -> bool:
        if container is None:
            return False
        if isinstance(container, dict) and isinstance(key, str):
            return key in container
        if isinstance(container, list | str) and type(key) is int:
            return -len(container) <= key < len(container)
        raise fail("type")

    def list(self, node: ast.List | ast.Tuple) -> Value:
        return [self.value(each) for each in node.elts]

    tuple = list

    def dict(self, node: ast.Dict) -> Value:
        result = {}
        for written, value in zip(node.keys, node.values, strict=True):
            assert written is not None
            key = self.value(written)
            if not isinstance(key, str):
                raise fail("type")
            result[key] = self.value(value)
        return result

    def ifexp(self, node: ast.IfExp) -> Value:
        return self.value(node.body if self.value(node.test) else node.orelse)

    def boolop(self, node: ast.BoolOp) -> Value:
        stop, value = isinstance(node.op, ast.Or), None
        for each in node.values:
            value = self.value(each)
            if bool(value) is stop:
                break
        return value

    def unaryop(self, node: ast.UnaryOp) -> Value:
        value = self.value(node.operand)
        if isinstance(node.op, ast.Not):
            return not value
        if not is_number(value):
            raise fail("type")
        return fitting(-value if isinstance(node.op, ast.USub) else value)

    def binop(self, node: ast.BinOp) -> Value:
        left, right = self.value(node.left), self.value(node.right)
        joined = type(left) is type(right) and isinstance(left, str | list)
        if isinstance(node.op, ast.Add) and joined:
            return left + right
        if not (is_number(left) and is_number(right)):
            raise fail("type")
        if isinstance(node.op, ast.Div | ast.FloorDiv | ast.Mod) and right == 0:
            raise fail("zero_division")
        functions = {
            ast.Add: operator.add,
            ast.Sub: operator.sub,
            ast.Mult: operator.mul,
            ast.Div: operator.truediv,
            ast.FloorDiv: operator.floordiv,
            ast.Mod: operator.mod,
        }
        return fitting(functions[type(node.op)](left, right))

    def compare(self, node: ast.Compare) -> Value:
        left = self.value(node.left)
        for sign, written in zip(node.ops, node.comparators, strict=True):
            right = self.value(written)
            if not self.compared(sign, left, right, written):
                return False
            left = right
        return True

    def compared(self, sign: ast.cmpop, left: Value, right: Value, written: ast.expr) -> bool:
        if isinstance(sign, ast.Is | ast.IsNot):
            return (left is right) is isinstance(sign, ast.Is)
        if isinstance(sign, ast.In | ast.NotIn):
            if isinstance(right, str | dict) and not isinstance(left, str):
                raise fail("type")
            if not isinstance(right, str | dict | list):
                raise fail("type")
            return (left in right) is isinstance(sign, ast.In)
        name = type(sign).__name__.lower().replace("noteq", "ne").replace("lte", "le").replace("gte", "ge")
        try:
            return bool(getattr(operator, name)(left, right))
        except TypeError:
            raise fail("type") from None

    def call(self, node: ast.Call) -> Value:
        assert isinstance(node.func, ast.Name)
        values = [self.value(each) for each in node.args]
        name = node.func.id
        if name == "In":
            return values[0] in self.active
        if name == "get":
            return values[0][values[1]] if self.has(*values[:2]) else values[2] if len(values) > 2 else None
        if name == "has":
            return self.has(*values)
        result = getattr(_Functions, f"f_{name}")(*values)
        return fitting(result) if is_number(result) and name != "abs" else result


def need(value: Value, *types: type) -> None:
    """Raise NoValueError unless the value has one of the types. A boolean is not an integer here."""
    if type(value) not in types:
        raise fail("type")


class _Functions:
    @staticmethod
    def f_len(value: Value) -> int:
        need(value, str, list, dict)
        return len(value)

    @staticmethod
    def extreme(pick: Callable[[Value], Value], values: tuple[Value, ...]) -> Value:
        items = list(values)
        if len(values) == 1:
            need(values[0], list)
            items = values[0]
        if not items:
            raise fail("value")
        if not all(map(is_number, items)) and not all(isinstance(each, str) for each in items):
            raise fail("type")
        return pick(items)

    @staticmethod
    def f_min(*values: Value) -> Value:
        return _Functions.extreme(min, values)

    @staticmethod
    def f_max(*values: Value) -> Value:
        return _Functions.extreme(max, values)

    @staticmethod
    def f_sum(values: Value) -> Value:
        need(values, list)
        if not all(map(is_number, values)):
            raise fail("type")
        try:
            return math.fsum(values) if any(isinstance(each, float) for each in values) else sum(values)
        except OverflowError:
            raise fail("limit") from None

    @staticmethod
    def f_any(values: Value) -> bool:
        need(values, list)
        return any(values)

    @staticmethod
    def f_all(values: Value) -> bool:
        need(values, list)
        return all(values)

    @staticmethod
    def f_abs(value: Value) -> Value:
        need(value, int, float)
        return abs(value)

    @staticmethod
    def f_round(value: Value, digits: Value = None) -> Value:
        need(value, int, float)
        need(digits, int, type(None))
        if digits is not None and not -15 <= digits <= 15:
            raise fail("value")
        return round(value, digits)

    @staticmethod
    def f_floor(value: Value) -> Value:
        need(value, int, float)
        return math.floor(value)

    @staticmethod
    def f_ceil(value: Value) -> Value:
        need(value, int, float)
        return math.ceil(value)

    @staticmethod
    def f_int(value: Value) -> Value:
        need(value, int, float, bool, str)
        if isinstance(value, str) and not re.fullmatch(r" *[-+]?[0-9]+ *", value):
            raise fail("value")
        return int(value)

    @staticmethod
    def f_float(value: Value) -> Value:
        need(value, int, float, bool, str)
        if isinstance(value, str) and not re.fullmatch(r" *[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[-+]?[0-9]+)? *", value):
            raise fail("value")
        return float(value)

    @staticmethod
    def f_str(value: Value) -> str:
        need(value, int, float, bool, str, type(None))
        if value is None or isinstance(value, bool):
            return {None: "null", True: "true", False: "false"}[value]
        return str(value)

    @staticmethod
    def f_bool(value: Value) -> bool:
        return bool(value)

    @staticmethod
    def f_lower(value: Value) -> Value:
        need(value, str)
        return value.lower()

    @staticmethod
    def f_upper(value: Value) -> Value:
        need(value, str)
        return value.upper()

    @staticmethod
    def f_starts_with(value: Value, start: Value) -> Value:
        need(value, str)
        need(start, str)
        return value[: len(start)] == start

    @staticmethod
    def f_ends_with(value: Value, end: Value) -> Value:
        need(value, str)
        need(end, str)
        return end == "" or value[-len(end) :] == end

    @staticmethod
    def f_ms(value: Value) -> Value:
        need(value, str)
        parts = re.fullmatch(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?(?:(\d+)ms)?", value, re.ASCII)
        if not value or parts is None:
            raise fail("value")
        sizes = (86_400_000, 3_600_000, 60_000, 1_000, 1)
        return sum(int(part or 0) * size for part, size in zip(parts.groups(), sizes, strict=True))

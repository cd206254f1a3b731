"""Parse the text of an expression to a checked tree.

Rule 1: a tree that leaves this module contains only what `builtins` and `_RULES` list. The code generator relies on it.
Rule 2: tokens are checked before Python's parser reads the text (`find_token_error`), and every node after it.
Rule 3: the walk over the tree is a loop with a limit, never recursion. Every problem of a text is an `ExpressionError`.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NoReturn

from interlock.expression.builtins import (
    CONSTANTS,
    FIELDS,
    FUNCTION_SUGGESTIONS,
    FUNCTIONS,
    GENERATED_FUNCTIONS,
    METHOD_SUGGESTIONS,
    NAME_SUGGESTIONS,
    NAMES,
)
from interlock.expression.tokens import BLANKS, find_token_error, oversized
from interlock.model.diagnostics import nearest
from interlock.model.duration import parse_duration

CONSTANT_BITS_MAX = 64
"""Bits of an integer literal: other readers of the definition may lose more digits."""

_SURROGATE = re.compile("[\ud800-\udfff]")
_SHORT = 40


class ExpressionError(Exception):
    """The text is not a valid expression. `offset` and `end` are the characters in question; `hint` is the fix."""

    def __init__(self, code: str, message: str, *, offset: int, end: int, hint: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.offset = offset
        self.end = end
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}; {self.hint}" if self.hint else self.message

    def __reduce__(self) -> tuple[object, ...]:
        return _make_error, (self.code, self.message, self.offset, self.end, self.hint)


def _make_error(code: str, message: str, offset: int, end: int, hint: str | None) -> ExpressionError:
    return ExpressionError(code, message, offset=offset, end=end, hint=hint)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parsed:
    """A checked expression: its tree, and what it reads."""

    text: str
    tree: ast.expr
    reads: tuple[tuple[str, int], ...]
    """Context fields read by a literal name (`context.x`, `context['x']`), with the offset of the name, in order."""
    inside: tuple[tuple[str, int], ...]
    """The arguments of `In` with their offsets, in order."""
    roots: frozenset[str]
    """The roots it uses: context, event, entity, principal."""
    actors: tuple[tuple[str, int], ...]
    """The arguments of `actors` with their offsets, in order."""
    constant: bool
    """Whether it reads nothing, so that its value is always the same."""


def parse(text: str, *, names: frozenset[str] = NAMES) -> Parsed:
    """Return the checked expression of a text (without the leading `=`) that may read the roots `names`.

    Raises: ExpressionError, and nothing else, whatever the text.

    >>> parse("context.items > 0").reads
    (('items', 8),)
    """
    problem = find_token_error(text)
    if problem is not None:
        raise _make_error(*problem)
    shift = len(text) - len(text.lstrip(BLANKS))
    body = text.strip(BLANKS)
    try:
        tree = ast.parse(body, mode="eval").body
    except SyntaxError as error:
        # Python counts from 1, and gives no character of the text if the text ended too early.
        at = 1 if error.offset is None else error.offset
        ended = not 1 <= at <= len(body)
        message = "the expression ends too early" if ended else error.msg
        offset = shift + (len(body) if ended else at) - 1
        raise ExpressionError("expression.syntax", message, offset=offset, end=offset + 1) from None
    except (MemoryError, RecursionError, ValueError):
        # Not known to happen after the check of tokens, but the parser is not ours.
        message = "the expression is too large for the parser"
        raise ExpressionError("expression.limit", message, offset=shift, end=shift + len(body)) from None
    check = _Check(body, shift=shift, names=names)
    check.walk(tree)
    reads, inside = sorted(check.reads, key=_by_offset), sorted(check.inside, key=_by_offset)
    return Parsed(
        text=text,
        tree=tree,
        reads=tuple(reads),
        inside=tuple(inside),
        roots=frozenset(check.roots),
        actors=tuple(sorted(check.actors, key=_by_offset)),
        constant=not check.roots and not inside,
    )


def _by_offset(found: tuple[str, int]) -> int:
    return found[1]


class _Check:
    """The walk over one tree. Each rule checks one kind of node and returns the children to visit."""

    def __init__(self, body: str, *, shift: int, names: frozenset[str]) -> None:
        self.body = body
        self.shift = shift
        self.names = names
        self.nodes = 0
        self.reads: list[tuple[str, int]] = []
        self.inside: list[tuple[str, int]] = []
        self.actors: list[tuple[str, int]] = []
        self.roots: set[str] = set()

    def walk(self, tree: ast.expr) -> None:
        stack = [(tree, 1)]
        while stack:
            node, depth = stack.pop()
            self.nodes += 1
            problem = oversized(self.nodes, depth, 0, 0)
            if problem is not None:
                self.fail(problem.code, problem.message, node, problem.hint)
            rule = _RULES.get(type(node))
            if rule is None or not _OPERATORS.issuperset(_operators(node)):
                noun, hint = _REFUSED.get(type(node), ("this", None))
                self.fail("expression.node", f"{noun} is not part of the language", node, hint)
            stack += [(child, depth + 1) for child in rule(self, node)]

    def fail(self, code: str, message: str, node: ast.expr, hint: str | None = None) -> NoReturn:
        raise ExpressionError(code, message, offset=self.offset(node), end=self.end(node), hint=hint)

    # Python counts columns in bytes of UTF-8. We count characters, as editors do.
    def offset(self, node: ast.expr) -> int:
        return self.shift + len(self.body.encode()[: node.col_offset].decode())

    def end(self, node: ast.expr) -> int:
        return self.shift + len(self.body.encode()[: node.end_col_offset].decode())

    def source(self, node: ast.expr) -> str:
        """Return the text of a node for a hint; a placeholder if it is long."""
        written = self.body[self.offset(node) - self.shift : self.end(node) - self.shift]
        return written if len(written) <= _SHORT else "x"

    def constant(self, node: ast.Constant) -> Iterable[ast.expr]:
        value = node.value
        if type(value) is int:
            if value.bit_length() > CONSTANT_BITS_MAX:
                self.fail("expression.constant", f"the integer has more than {CONSTANT_BITS_MAX} bits", node)
        elif type(value) is float:
            if not math.isfinite(value):
                self.fail("expression.constant", "the number is too large", node)
        elif type(value) is str:
            if _SURROGATE.search(value):
                self.fail("expression.constant", "the text holds half a character (a lone surrogate)", node)
        elif type(value) is not bool and value is not None:
            hint = "write whole numbers, decimal numbers, strings, true, false or null"
            self.fail("expression.constant", "no such constant in the language", node, hint)
        return ()

    def name(self, node: ast.Name) -> Iterable[ast.expr]:
        name = node.id
        if name in self.names:
            self.roots.add(name)
        elif name in FUNCTIONS:
            self.fail("expression.name", f'"{name}" is a function', node, f"call it: {name}(...)")
        elif name not in CONSTANTS:
            known = NAME_SUGGESTIONS.get(name) or nearest(name, {*self.names, *CONSTANTS})
            hint = f'did you mean "{known}"?' if known else f"values are read from {', '.join(sorted(self.names))}"
            self.fail("expression.name", f'no name "{name}"', node, hint)
        return ()

    def attribute(self, node: ast.Attribute) -> Iterable[ast.expr]:
        offset = self.end(node) - len(node.attr)
        if node.attr.startswith("_"):
            message = f'"{node.attr}" starts with an underscore'
            raise ExpressionError("expression.name", message, offset=offset, end=self.end(node))
        self.field(node.value, node.attr, offset, self.end(node))
        return (node.value,)

    def subscript(self, node: ast.Subscript) -> Iterable[ast.expr]:
        key = node.slice
        if isinstance(key, ast.Constant):
            if type(key.value) is str:
                self.field(node.value, key.value, self.offset(key), self.end(key))
            elif type(key.value) is not int:
                self.fail("expression.constant", "an index is a whole number or a text", key)
        elif isinstance(key, ast.Tuple):
            self.fail("expression.node", "an index is one value", key, "write x[a][b]")
        return (node.value, key)

    def field(self, value: ast.expr, field: str, offset: int, end: int) -> None:
        """Record a field of a root that is named in the text. Raises ExpressionError if the root does not have it."""
        root = value.id if isinstance(value, ast.Name) else ""
        if root == "context":
            self.reads.append((field, offset))
        fields = FIELDS.get(root, (field,))
        if field not in fields:
            near = nearest(field, fields)
            hint = f'did you mean "{near}"?' if near else f"its fields are {', '.join(fields)}"
            raise ExpressionError(
                "expression.name", f'{root} has no field "{field}"', offset=offset, end=end, hint=hint
            )

    def compare(self, node: ast.Compare) -> Iterable[ast.expr]:
        operands = [node.left, *node.comparators]
        for position, operator in enumerate(node.ops):
            pair = operands[position : position + 2]
            if isinstance(operator, ast.Is | ast.IsNot) and not any(map(is_null, pair)):
                self.fail("expression.node", '"is" compares with null only', node, "write == or !=")
        return operands

    def mapping(self, node: ast.Dict) -> Iterable[ast.expr]:
        seen = set()
        for key in node.keys:
            if key is None:
                self.fail("expression.node", "** is not part of the language", node)
            if isinstance(key, ast.Constant):
                if type(key.value) is not str:
                    self.fail("expression.constant", "the keys of a mapping must be strings", key)
                if key.value in seen:
                    self.fail("expression.constant", f'the key "{key.value[:_SHORT]}" stands here twice', key)
                seen.add(key.value)
        return [*filter(None, node.keys), *node.values]

    def call(self, node: ast.Call) -> Iterable[ast.expr]:
        self.nodes += 1  # the name of the function, which is not visited
        name = self.function(node)
        least, most = FUNCTIONS.get(name) or GENERATED_FUNCTIONS[name]
        count = len(node.args)
        if node.keywords:
            self.fail("expression.arguments", f"{name}() takes no named arguments", node)
        if count < least or (most is not None and count > most):
            wanted = f"{least} or more" if most is None else str(least) if least == most else f"{least} or {most}"
            message = f"{name}() takes {wanted} argument{'' if wanted == '1' else 's'}, not {count}"
            self.fail("expression.arguments", message, node)
        first = node.args[0]
        written = first.value if isinstance(first, ast.Constant) else None
        if name == "In":
            if type(written) is not str:
                self.fail("expression.arguments", "In() takes the name of a state, written out", first, "In('state')")
            self.inside.append((written, self.offset(first)))
        if name == "actors" or name in GENERATED_FUNCTIONS:
            self.roots.add("context")
        if name == "actors":
            if type(written) is not str:
                self.fail("expression.arguments", "actors() takes the name of an event", first, 'actors("approve")')
            self.actors.append((written, self.offset(first)))
        if name == "ms" and type(written) is str and parse_duration(written) is None:
            hint = "write 250ms, 30s, 5m, 24h, 7d or 1h30m"
            self.fail("expression.constant", f'"{written[:_SHORT]}" is not a duration', first, hint)
        return node.args

    def function(self, node: ast.Call) -> str:
        """Return the name of the called function. Raises ExpressionError unless it is known."""
        called = node.func
        if isinstance(called, ast.Attribute):
            habit = METHOD_SUGGESTIONS.get(called.attr)
            given = ", ".join(map(self.source, node.args)) or "..."
            hint = f"write {habit.format(x=self.source(called.value), a=given)}" if habit else None
            self.fail("expression.function", f'no method "{called.attr}": values have none', called, hint)
        if not isinstance(called, ast.Name):
            self.fail("expression.function", "only functions can be called", called)
        if called.id not in FUNCTIONS and called.id not in GENERATED_FUNCTIONS:
            known = FUNCTION_SUGGESTIONS.get(called.id) or nearest(called.id, FUNCTIONS)
            hint = f'did you mean "{known}"?' if known else f"the functions are {', '.join(FUNCTIONS)}"
            self.fail("expression.function", f'no function "{called.id}"', called, hint)
        return called.id


def is_null(node: ast.expr) -> bool:
    """Return whether a node is the literal `null` or `None`."""
    if isinstance(node, ast.Constant):
        return node.value is None
    return isinstance(node, ast.Name) and node.id == "null"


def _operators(node: Any) -> Iterable[type]:
    """Return the types of the operators of a node."""
    return map(type, getattr(node, "ops", [node.op] if hasattr(node, "op") else []))


_Rule = Callable[[_Check, Any], Iterable[ast.expr]]
_RULES: dict[type[ast.expr], _Rule] = {
    ast.Attribute: _Check.attribute,
    ast.BinOp: lambda check, node: (node.left, node.right),
    ast.BoolOp: lambda check, node: node.values,
    ast.Call: _Check.call,
    ast.Compare: _Check.compare,
    ast.Constant: _Check.constant,
    ast.Dict: _Check.mapping,
    ast.IfExp: lambda check, node: (node.test, node.body, node.orelse),
    ast.List: lambda check, node: node.elts,
    ast.Name: _Check.name,
    ast.Subscript: _Check.subscript,
    ast.Tuple: lambda check, node: node.elts,
    ast.UnaryOp: lambda check, node: (node.operand,),
}
_OPERATORS: frozenset[type] = frozenset(
    {
        *(ast.And, ast.Or, ast.Not, ast.USub, ast.UAdd),
        *(ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod),
        *(ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.In, ast.NotIn, ast.Is, ast.IsNot),
    }
)
_REFUSED: dict[type[ast.expr], tuple[str, str | None]] = {
    ast.Set: ("a set", "write a list: [a, b]"),
    ast.Slice: ("a slice", "read one item: x[0], x[-1]"),
    ast.Starred: ("a starred value", "join lists with +"),
}

"""Compile a checked tree to one Python expression and to a function.

Rule 1: generated source has only names and signs of this module, and constants as `repr` writes them. No other text
        comes from the user.
Rule 2: a plain Python operator is used only if its cost is bounded by the text itself, because one side is a literal or
        a number. Otherwise a function of `operators` or `functions` checks and charges.
Rule 3: generated source assigns only the names `x_1`, `x_2`, ..., each just before it is read, so it can be inserted
        into any function.
Rule 4: `describe_exception` describes every exception that it can raise, independently of Python's version.

The caller passes plain values: `context` is a dict, `event` and `entity` are objects with the fields of
`builtins.FIELDS` (`event` is None before the first event), `principal` is a dict or None. The caller charges the
expression's `work`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from interlock.expression import functions, operators
from interlock.expression.builtins import CONSTANTS, FIELDS
from interlock.expression.metering import TYPE_NAMES, EvaluationError, Meter
from interlock.expression.parser import Parsed, is_null
from interlock.model.limits import EVALUATION_WORK

__all__ = ("NAMESPACE", "Compiled", "EvaluationError", "Function", "Meter", "compile_parsed", "describe_exception")

_GLOBALS: dict[str, object] = {
    **{
        name: value
        for module in (operators, functions)
        for name, value in vars(module).items()
        if name.startswith("x_")
    },
    "x_bool": bool,
    "x_integer": int,
    "x_number": float,
    "__builtins__": {},
}
NAMESPACE: Mapping[str, object] = MappingProxyType(_GLOBALS)
"""The globals of generated code. It can access nothing else, not even Python's builtins."""

_SHORT = 80
_ARGUMENTS = "context, event, entity, active, meter, principal=None"


class Function(Protocol):
    """A compiled expression as a function. It returns the value or raises what `describe_exception` describes."""

    def __call__(
        self,
        context: Mapping[str, Any],
        event: Any,
        entity: Any,
        active: Any,
        meter: Meter | None,
        principal: Any = None,
        /,
    ) -> Any: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    """A compiled expression: as a function, and as source to be inserted into a larger function."""

    source: str
    uses: frozenset[str]
    """The names among context, event, entity, active, meter and principal that the source uses."""
    function: Function = field(compare=False, repr=False)
    work: int = EVALUATION_WORK
    """Units of work of one evaluation that do not depend on operands. The caller charges them."""


def compile_parsed(parsed: Parsed, *, inside: Mapping[str, str]) -> Compiled:
    """Return the code of a checked expression. `inside` maps each text of `parsed.inside` to a state id.

    >>> from interlock.expression.parser import parse
    >>> compile_parsed(parse("context.items > 0"), inside={}).source
    "(context['items'] > 0)"
    """
    writer = _ExpressionWriter(inside)
    source = writer.write(parsed.tree).text
    code = compile(f"lambda {_ARGUMENTS}: {source}", "<expression>", "eval")
    # This module wrote the source from a checked tree, and it runs without builtins.
    function: Function = eval(code, _GLOBALS)  # noqa: S307
    work = max(EVALUATION_WORK, _parts_work(parsed.tree))
    return Compiled(source=source, uses=frozenset(writer.uses), function=function, work=work)


_CALL_WORK = {"float": 30, "int": 20, "ms": 80, "round": 50, "str": 50}
"""Units of work of the functions that take longer than a lookup, with their slowest argument."""


def _parts_work(tree: ast.expr) -> int:
    """Return the units of work of the parts of an expression: one each, more for some functions."""
    work = 0
    for node in ast.walk(tree):
        work += isinstance(node, ast.expr)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            work += _CALL_WORK.get(node.func.id, 0) * len(node.args)
    return work


class Typed(NamedTuple):
    """Source that relies on declared types, for callers that check them on every write and can fall back."""

    source: str
    uses: frozenset[str]
    type: str | None
    """The type of the value if it is certain: `integer`, `boolean`, a `string` that the text bounds, or a new `object`
    or `array`, which `x_tree` measures unless the text bounds it."""
    operands: tuple[str, ...] = ()
    """The two sides of a sum or difference of integers. The source does not check them: the caller must."""
    sign: str = ""
    """The operator between the operands."""
    parts: Mapping[str, tuple[str, bool]] | None = None
    """The values of a new mapping by key, if each is bounded by the text or a lookup: their sources, and whether they
    are bounded."""


ENTITY_LOCALS: Mapping[str, str] = MappingProxyType({"id": "id", "kind": "kind", "version": "version"})
"""The local names from which the source of `compile_typed` reads the fields of the entity."""


def compile_typed(parsed: Parsed, *, inside: Mapping[str, str], fields: Mapping[str, str]) -> Typed:
    """Return the source of a checked expression, given the declared types of context fields.

    It reads the fields of the entity from `ENTITY_LOCALS`. It has the value that `compile_parsed` gives, or raises; the
    caller then evaluates the other source.

    >>> from interlock.expression.parser import parse
    >>> compile_typed(parse("context.n + 1"), inside={}, fields={"n": "integer"}).source
    "(context['n'] + 1)"
    """
    writer, tree = _ExpressionWriter(inside, entity=ENTITY_LOCALS), parsed.tree
    if isinstance(tree, ast.BinOp) and isinstance(tree.op, ast.Add | ast.Sub):
        left, right = writer.write(tree.left), writer.write(tree.right)
        if static_type(tree.left, fields) == static_type(tree.right, fields) == "integer":
            sign = "+" if isinstance(tree.op, ast.Add) else "-"
            source = f"({left.text} {sign} {right.text})"
            return Typed(source, frozenset(writer.uses), "integer", (left.text, right.text), f" {sign} ")
    code = writer.write(tree)
    # The type of a plain copy is not certain: in another revision the field may have had another type.
    is_certain = code.bounded or isinstance(tree, ast.Dict | ast.List | ast.Tuple)
    certain = static_type(tree, {}) if is_certain else None
    return Typed(code.text, frozenset(writer.uses), certain, parts=_flat_parts(tree, writer))


def _flat_parts(tree: ast.expr, writer: _ExpressionWriter) -> dict[str, tuple[str, bool]] | None:
    if not isinstance(tree, ast.Dict):
        return None
    parts = {}
    for key, value in zip(tree.keys, tree.values, strict=True):
        code = writer.write(value)
        if not isinstance(key, ast.Constant) or not (code.bounded or code.path):
            return None
        parts[str(key.value)] = (code.text, code.bounded)
    return parts


def static_type(node: ast.expr, fields: Mapping[str, str]) -> str | None:
    """Return the type of a node's value if it is certain, or None."""
    match node:
        case ast.Constant(value=bool()) | ast.Compare() | ast.UnaryOp(op=ast.Not()):
            return "boolean"
        case ast.Constant(value=int()):
            return "integer"
        case ast.Constant(value=str()) | ast.Attribute(value=ast.Name(id="event"), attr="name"):
            return "string"
        case ast.Attribute(value=ast.Name(id="entity"), attr=name):
            return "integer" if name in ("version", "epoch") else "string"
        case ast.Call(func=ast.Name(id="str")):
            return "string"
        case ast.List() | ast.Tuple():
            return "array"
        case ast.Dict(keys=keys) if all(isinstance(each, ast.Constant) for each in keys):
            return "object"
        case ast.BinOp(op=ast.Add(), left=left, right=right):
            return "string" if static_type(left, {}) == static_type(right, {}) == "string" else None
        case ast.Attribute(value=ast.Name(id="context"), attr=name):
            return fields.get(name)
        case _:
            return None


class _Code(NamedTuple):
    """Generated code for one node."""

    text: str
    bounded: bool = False
    """Whether the text of the expression limits the size of its value, not the values it reads."""
    path: bool = False
    """Whether it is a lookup or a local name: cheap, no side effects, not a literal. It can be used twice."""


_ARITHMETIC: dict[type[ast.operator], str] = {
    ast.Sub: "x_subtract",
    ast.Mult: "x_multiply",
    ast.Div: "x_divide",
    ast.FloorDiv: "x_floor_divide",
    ast.Mod: "x_remainder",
}
_COMPARISONS: dict[type[ast.cmpop], tuple[str, str]] = {
    ast.Eq: ("==", "x_equal"),
    ast.NotEq: ("!=", "x_unequal"),
    ast.Lt: ("<", "x_less"),
    ast.LtE: ("<=", "x_less_equal"),
    ast.Gt: (">", "x_greater"),
    ast.GtE: (">=", "x_greater_equal"),
}
_METERED = frozenset({"all", "any", "ends_with", "lower", "max", "min", "starts_with", "sum", "upper"})
_AS_LARGE_AS_ARGUMENTS = frozenset({"lower", "max", "min", "str", "upper"})
_SHORT_FIELDS = {"event": frozenset(FIELDS["event"]) - {"data", "principal"}, "entity": frozenset(FIELDS["entity"])}


class _ExpressionWriter:
    """Writes the code of one tree. Recursion is safe: the tree is at most 30 deep.

    `entity` has the local names of fields of the entity, if there are such.
    """

    def __init__(self, inside: Mapping[str, str], *, entity: Mapping[str, str] = MappingProxyType({})) -> None:
        self.inside = inside
        self.entity = entity
        self.uses: set[str] = set()
        self.locals = 0

    def write(self, node: ast.expr) -> _Code:
        match node:
            case ast.Constant(value=value):
                return _Code(repr(value), bounded=True)
            case ast.Name(id=name):
                return self.name(name)
            case ast.Attribute(value=value, attr=key):
                return self.item(value, ast.Constant(key))
            case ast.Subscript(value=value, slice=key):
                return self.item(value, key)
            case ast.BoolOp(op=word, values=values):
                return self.joined(" and " if isinstance(word, ast.And) else " or ", values)
            case ast.UnaryOp():
                return self.unary(node)
            case ast.BinOp():
                return self.arithmetic(node)
            case ast.Compare():
                return self.comparison(node)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                first, second = self.write(body), self.write(orelse)
                text = f"({first.text} if {self.write(test).text} else {second.text})"
                return _Code(text, bounded=first.bounded and second.bounded)
            case ast.Call():
                return self.call(node)
            case _:
                display = self.display(node)
                return display if display.bounded else _Code(f"x_tree({display.text}, {self.use('meter')})")

    def use(self, name: str) -> str:
        self.uses.add(name)
        return name

    def local(self) -> str:
        self.locals += 1
        return f"x_{self.locals}"

    def name(self, name: str) -> _Code:
        """Return the code of a name: a constant, or a root as a plain tree."""
        if name in CONSTANTS:
            return _Code(repr(CONSTANTS[name]), bounded=True)
        if name == "entity":
            return _Code(f"x_entity({self.use(name)})", bounded=True)
        return _Code(f"x_{name}({self.use(name)}, {self.use('meter')})")

    def container(self, node: ast.expr) -> _Code:
        """Return the code of the container of a lookup. A root that is a mapping needs no copy."""
        if isinstance(node, ast.Name) and node.id in ("context", "principal"):
            return _Code(self.use(node.id), path=True)
        return self.write(node)

    def item(self, value: ast.expr, key: ast.expr) -> _Code:
        literal = _literal_key(key)
        root = value.id if isinstance(value, ast.Name) else ""
        if root == "entity" and isinstance(literal, str) and literal in self.entity:
            return _Code(self.entity[literal], bounded=True, path=True)
        if root in FIELDS and type(literal) is str:
            return _Code(f"{self.use(root)}.{literal}", bounded=literal in _SHORT_FIELDS[root], path=True)
        inner = self.container(value)
        if inner.path and literal is not None:
            return _Code(f"{inner.text}[{literal!r}]", path=True)
        return _Code(f"x_item({inner.text}, {self.write(key).text})", bounded=inner.bounded)

    def joined(self, word: str, nodes: Sequence[ast.expr]) -> _Code:
        codes = [self.write(each) for each in nodes]
        return _Code(f"({word.join(each.text for each in codes)})", bounded=_all_bounded(codes))

    def unary(self, node: ast.UnaryOp) -> _Code:
        negative = _literal_negative(node)
        if negative is not None:
            return _Code(f"({negative!r})", bounded=True)
        operand = self.write(node.operand).text
        if isinstance(node.op, ast.Not):
            return _Code(f"(not {operand})", bounded=True)
        return _Code(f"{'x_negative' if isinstance(node.op, ast.USub) else 'x_positive'}({operand})", bounded=True)

    def arithmetic(self, node: ast.BinOp) -> _Code:
        left, right = self.write(node.left), self.write(node.right)
        if isinstance(node.op, ast.Add):
            if left.bounded and right.bounded and static_type(node, {}) == "string":
                return _Code(f"({left.text} + {right.text})", bounded=True)
            text = f"x_add({left.text}, {right.text}, {self.use('meter')})"
            return _Code(text, bounded=left.bounded and right.bounded)
        return _Code(f"{_ARITHMETIC[type(node.op)]}({left.text}, {right.text})", bounded=True)

    def comparison(self, node: ast.Compare) -> _Code:
        """Return the code of a chain of comparisons.

        Operands are evaluated once, and none after the first that fails.
        """
        operands = [node.left, *node.comparators]
        left = self.write(node.left)
        parts = []
        for position, operator in enumerate(node.ops):
            written = operands[position : position + 2]
            if position == len(node.ops) - 1:
                right = again = self.container(written[1]) if _is_membership(operator) else self.write(written[1])
            else:
                right = self.write(written[1])
                again = right
                if not _is_literal(written[1]):
                    again = _Code(self.local(), bounded=right.bounded, path=True)
                    right = _Code(f"({again.text} := {right.text})", bounded=right.bounded)
            parts.append(self.pair(operator, written, left, right))
            left = again
        return _Code(f"({' and '.join(parts)})" if len(parts) > 1 else parts[0], bounded=True)

    def pair(self, operator: ast.cmpop, written: Sequence[ast.expr], left: _Code, right: _Code) -> str:
        """Return the source of one comparison of a chain."""
        if isinstance(operator, ast.Is | ast.IsNot):
            value = left if is_null(written[1]) else right
            word = "is" if isinstance(operator, ast.Is) else "is not"
            # Python warns about a literal next to `is`, so only a path is used there.
            return f"({value.text if value.path else f'x_same({value.text})'} {word} None)"
        if _is_membership(operator):
            word = "in" if isinstance(operator, ast.In) else "not in"
            if right.bounded and isinstance(written[1], ast.List | ast.Tuple):
                return f"({left.text} {word} {right.text})"
            return f"({'' if word == 'in' else 'not '}x_in({left.text}, {right.text}, {self.use('meter')}))"
        sign, function = _COMPARISONS[type(operator)]
        if left.bounded or right.bounded:
            return f"({left.text} {sign} {right.text})"
        if not right.path:
            return f"{function}({left.text}, {right.text}, {self.use('meter')})"
        local = self.local()
        number = f"({local} := {left.text}).__class__ is x_integer or {local}.__class__ is x_number"
        slow = f"{function}({local}, {right.text}, {self.use('meter')})"
        return f"({local} {sign} {right.text} if {number} else {slow})"

    def call(self, node: ast.Call) -> _Code:
        assert isinstance(node.func, ast.Name)
        name = node.func.id
        if name == "In":
            state = self.inside[_literal_text(node.args[0])]
            return _Code(f"({state!r} in {self.use('active')})", bounded=True)
        if name == "actors":
            return _Code(f"x_actors({self.use('context')}, {_literal_text(node.args[0])!r})", bounded=True)
        if name == "_record_sender":
            version = self.entity.get("version") or f"{self.use('entity')}.version"
            texts = ", ".join(repr(_literal_text(each)) for each in node.args)
            return _Code(f"x_record_sender({self.use('context')}, {self.use('event')}, {version}, {texts})")
        first = self.container(node.args[0]) if name in ("get", "has", "len") else self.write(node.args[0])
        if name == "str" and _is_version(node.args[0]):
            return _Code(f"f'{{{first.text}}}'", bounded=True)
        codes = [first, *map(self.write, node.args[1:])]
        arguments = ", ".join(each.text for each in codes)
        if name in ("min", "max") and len(codes) > 1:
            arguments = f"({arguments})"
        if name in _METERED:
            arguments += f", {self.use('meter')}"
        bounded = _all_bounded(codes) if name in _AS_LARGE_AS_ARGUMENTS else name != "get"
        return _Code(f"x_{name}({arguments})", bounded=bounded)

    def display(self, node: ast.expr) -> _Code:
        """Return the code of a list or mapping. The outermost one is measured with everything in it."""
        if isinstance(node, ast.Dict):
            keys = [self.key(each) for each in node.keys]
            values = [self.part(each) for each in node.values]
            pairs = (f"{key.text}: {value.text}" for key, value in zip(keys, values, strict=True))
            return _Code(f"{{{', '.join(pairs)}}}", bounded=_all_bounded(keys + values))
        assert isinstance(node, ast.List | ast.Tuple)
        items = [self.part(each) for each in node.elts]
        return _Code(f"[{', '.join(each.text for each in items)}]", bounded=_all_bounded(items))

    def part(self, node: ast.expr) -> _Code:
        return self.display(node) if isinstance(node, ast.List | ast.Tuple | ast.Dict) else self.write(node)

    def key(self, node: ast.expr | None) -> _Code:
        assert node is not None
        code = self.write(node)
        return code if isinstance(node, ast.Constant) else _Code(f"x_key({code.text})", bounded=code.bounded)


def _is_version(node: ast.expr) -> bool:
    return isinstance(node, ast.Attribute) and ast.unparse(node) == "entity.version"


def _all_bounded(codes: Sequence[_Code]) -> bool:
    return all(each.bounded for each in codes)


def _is_membership(operator: ast.cmpop) -> bool:
    return isinstance(operator, ast.In | ast.NotIn)


def _is_literal(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) or (isinstance(node, ast.Name) and node.id in CONSTANTS)


def _literal_text(node: ast.expr) -> str:
    assert isinstance(node, ast.Constant)
    return str(node.value)


def _literal_negative(node: ast.expr) -> int | float | None:
    """Return the value of a negative literal, or None."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant):
        value = node.operand.value
        if type(value) is int or type(value) is float:
            return -value
    return None


def _literal_key(node: ast.expr) -> str | int | None:
    """Return the key of a lookup if it is a literal, or None."""
    value = node.value if isinstance(node, ast.Constant) else _literal_negative(node)
    return value if isinstance(value, str | int) else None


_COMPARED = re.compile(r"'([<>]=?)' not supported between instances of '(\w+)' and '(\w+)'")
_NOT_A_CONTAINER = re.compile(r"'(\w+)' object is not subscriptable")


def describe_exception(error: Exception) -> tuple[str, str]:
    """Return the code and message of an exception that compiled code raised.

    Python's own messages change between versions, and these may be stored in a journal.
    """
    match error:
        case EvaluationError():
            return error.code, error.message
        case KeyError(args=(str() as key,)):
            return "expression.missing_key", f'no field "{key[:_SHORT]}"'
        case KeyError():
            return "expression.type", "a key of a mapping must be a string, not integer"
        case IndexError():
            return "expression.missing_key", "the list or string has no such item"
        case ZeroDivisionError():
            return "expression.zero_division", "division by zero"
        case AttributeError():
            return "expression.unbound_event", "no event has been received yet"
        case TypeError():
            return "expression.type", _explain_type(str(error))
        case OverflowError() | MemoryError() | RecursionError():
            return "expression.limit", "a value is too large"
        case _:
            return "expression.internal", f"{type(error).__name__} in an expression: this is a bug in Interlock"


def _explain_type(text: str) -> str:
    compared = _COMPARED.match(text)
    if compared is not None:
        left, right = (TYPE_NAMES.get(each, "value") for each in compared.group(2, 3))
        return f"{compared[1]} does not compare {left} with {right}"
    looked_into = _NOT_A_CONTAINER.match(text)
    if looked_into is not None:
        return f"{TYPE_NAMES.get(looked_into[1], 'value')} has no fields or items"
    return "an index of a list or string must be an integer, a key of a mapping a string"

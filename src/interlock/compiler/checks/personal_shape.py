"""Where a value may contain personal data: the shape of every expression and value of a chart.

A shape says whether a value is public, personal (one token), null, a mapping with a shape for each key, or mixed:
it contains personal values at places that are not known.

Rule 1: what an expression may do with a personal value is decided here and nowhere else: copy the whole value, compare
it with null, or compare it for equality with another personal value.
Rule 2: the shape of `event.data` is that of every event that may be the last one at that place. Where they disagree
about a field, reading it is refused, because the chart could copy a plain value into a personal field.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from interlock.expression.parser import Parsed, is_null
from interlock.model.charts.chart import Chart, Descriptor, Invoke, Transition
from interlock.model.charts.personal_plan import is_personal
from interlock.model.document.actions import Expression, Value
from interlock.model.document.document import EventType
from interlock.model.document.field import Field
from interlock.model.event import RESERVED_WORDS

Simple = Literal["public", "personal", "null", "mixed", "inside", "unclear"]
Shape = Simple | dict[str, "Shape"]
"""A shape. `inside`: a part of a personal value; `unclear`: personal in some events and not in others."""

OTHERS = ""
"""The key of a mapping's shape for every name that it does not list; no field has an empty name."""

_PARTIAL = ("inside", "unclear")


def shape_of_fields(fields: Iterable[Field]) -> Shape:
    """Return the shape of an object with these fields, of which others do not exist."""
    return {each.name: shape_of_field(each) for each in fields}


def shape_of_field(field: Field) -> Shape:
    """Return the shape of a declared field."""
    if field.personal:
        return "personal"
    if not is_personal(field):
        return "public"
    return shape_of_fields(field.fields or ())


def has_personal(shape: Shape | None) -> bool:
    """Whether a value of this shape may contain personal data."""
    if isinstance(shape, dict):
        return any(map(has_personal, shape.values()))
    return shape not in (None, "public", "null")


def shape_at(shape: Shape | None, path: Iterable[str]) -> Shape | None:
    """Return the shape at a path; None if nothing can be there."""
    for name in path:
        if shape in ("personal", "inside"):
            return "inside"
        if shape == "mixed":
            return "unclear"
        if isinstance(shape, dict):
            shape = shape.get(name, shape.get(OTHERS))
    return shape


@dataclass(frozen=True, slots=True)
class Reads:
    """What expressions at one place read: the context, and the data of each event that may be the last one there."""

    context: Shape
    data: tuple[Shape, ...] = ()

    def at(self, path: list[str]) -> Shape | None:
        """Return the shape at a path that starts with a root; None if it is not one of ours."""
        if path[0] == "context":
            return shape_at(self.context, path[1:])
        if path[0] == "event" and path[1:2] == ["data"]:
            return joined(filter(None, (shape_at(each, path[2:]) for each in self.data)))
        if path == ["event"]:
            return "mixed" if any(map(has_personal, self.data)) else "public"
        return "public"


def joined(shapes: Iterable[Shape]) -> Shape:
    """Return the shape of a value that has one of these shapes."""
    found: list[Shape] = []
    for each in shapes:
        if each not in found:
            found.append(each)
    if not found:
        return "public"
    known = [each for each in found if each != "null"]
    if len(known) < 2:
        return known[0] if known else "null"
    if "inside" in known:
        return "inside"
    return "unclear" if any(map(has_personal, known)) else "public"


@dataclass(slots=True)
class ShapeReader:
    """Finds the shape of one value; `problems` are the personal paths that it reads in a way that is refused."""

    parsed: Mapping[str, Parsed | None]
    reads: Reads
    problems: list[tuple[Expression, str]] = field(default_factory=list)

    def value(self, value: Value) -> Shape:
        """Return the shape of a literal, of an expression, or of a mapping or a list that contains expressions."""
        if isinstance(value, Expression):
            return self.expression(value)
        if isinstance(value, dict):
            return {key: self.value(each) for key, each in value.items()}
        if isinstance(value, list | tuple):
            shapes = [self.value(each) for each in value]  # all of them: each may be a problem
            return "mixed" if any(map(has_personal, shapes)) else "public"
        return "null" if value is None else "public"

    def expression(self, expression: Expression) -> Shape:
        """Return the shape of an expression. One that is malformed is reported elsewhere."""
        parsed = self.parsed.get(expression.text)
        if parsed is None:
            return "public"
        walk = _Walk(self.reads)
        shape = walk.shape(parsed.tree)
        self.problems += ((expression, each) for each in walk.problems)
        return shape


class _Walk:
    """The walk over one expression."""

    def __init__(self, reads: Reads) -> None:
        self.reads = reads
        self.problems: list[str] = []

    def shape(self, node: ast.expr) -> Shape:
        """Return the shape of a node. A refused read is a problem, and counts as public then."""
        if is_null(node):
            return "null"
        path = path_of(node)
        if path is not None:
            return self._whole(node, self.reads.at(path))
        match node:
            case ast.Compare():
                return self._compared(node)
            case ast.IfExp():
                self._public(node.test)
                found = joined((self.shape(node.body), self.shape(node.orelse)))
                return self._whole(node, found)
            case ast.Dict():
                return self._mapping(node)
            case ast.List() | ast.Tuple():
                shapes = [self.shape(each) for each in node.elts]  # all of them: each may be a problem
                return "mixed" if any(map(has_personal, shapes)) else "public"
            case _:
                for child in ast.iter_child_nodes(node):
                    if isinstance(child, ast.expr) and not (isinstance(node, ast.Call) and child is node.func):
                        self._public(child)
                return "public"

    def _whole(self, node: ast.expr, shape: Shape | None) -> Shape:
        if shape in _PARTIAL:
            self.problems.append(ast.unparse(node))
            return "public"
        return "public" if shape is None else shape

    def _public(self, node: ast.expr) -> None:
        """Report a part that is personal where its value is looked at."""
        if has_personal(self.shape(node)):
            self.problems.append(ast.unparse(node))

    def _mapping(self, node: ast.Dict) -> Shape:
        found: dict[str, Shape] = {}
        for key, each in zip(node.keys, node.values, strict=True):
            shape = self.shape(each)
            if isinstance(key, ast.Constant):
                found[str(key.value)] = shape
                continue
            if key is not None:
                self._public(key)
            if has_personal(shape):
                return "mixed"
        return found

    def _compared(self, node: ast.Compare) -> Shape:
        operands = [node.left, *node.comparators]
        shapes = [self.shape(each) for each in operands]
        for position, operator in enumerate(node.ops):
            left, right = shapes[position : position + 2]
            is_equality = isinstance(operator, ast.Eq | ast.NotEq | ast.Is | ast.IsNot)
            if is_equality and ("null" in (left, right) or left == right == "personal"):
                continue
            sides = zip(operands[position : position + 2], (left, right), strict=True)
            self.problems += (ast.unparse(each) for each, shape in sides if has_personal(shape))
        return "public"


def path_of(node: ast.AST) -> list[str] | None:
    """Return the names of `a.b['c']`, or of `get(a.b, 'c')`; None for anything else."""
    match node:
        case ast.Name(id=name) if name in ("context", "event", "entity", "principal"):
            return [name]
        case ast.Attribute(value=inner, attr=name):
            pass
        case ast.Subscript(value=inner, slice=ast.Constant(value=str() as name)):
            pass
        case ast.Call(func=ast.Name(id="get"), args=[inner, ast.Constant(value=str() as name)]):
            pass
        case _:
            return None
    path = path_of(inner)
    return None if path is None else [*path, name]


# What the last event may be


class EventShapes:
    """The shapes of the data of a chart's events."""

    def __init__(self, chart: Chart) -> None:
        self.events = tuple(each for each in chart.events or () if each.direction != "out")
        self.is_open = chart.events is None
        self.invokes = tuple(invoke for state in chart.states for invoke in state.invokes)
        self.anything = tuple(self._any())

    def of_event(self, event: EventType) -> Shape:
        """Return the shape of the payload of a declared event."""
        return "public" if event.payload is None else shape_of_fields(event.payload)

    def of_transition(self, transition: Transition) -> tuple[Shape, ...]:
        """Return the shapes that `event.data` may have in the actions and the guard of a transition."""
        if not transition.descriptors:
            return self.anything
        return tuple(shape for each in transition.descriptors for shape in self._of_descriptor(each))

    def _of_descriptor(self, descriptor: Descriptor) -> Iterator[Shape]:
        tokens = descriptor.tokens
        if not tokens:
            yield from self.anything
        elif tokens[0] == "done":
            for each in self.invokes:
                named = ("done", "invoke", *str(each.id).split("."))
                if named[: len(tokens)] == tokens if not descriptor.exact else named == tokens:
                    yield _of_result(each)
        elif tokens[0] not in RESERVED_WORDS:
            found = [each for each in self.events if descriptor.matches(each.name)]
            yield from (self.of_event(each) for each in found)
            if self.is_open or not found:
                yield "public"

    def _any(self) -> Iterator[Shape]:
        yield from (self.of_event(each) for each in self.events)
        yield from map(_of_result, self.invokes)
        if self.is_open:
            yield "public"


def _of_result(invoke: Invoke) -> Shape:
    if invoke.personal is None:
        return "public"
    return "personal" if invoke.personal is True else {**dict.fromkeys(invoke.personal, "personal"), OTHERS: "public"}

"""Write assignments to the context for one function of a compiled step.

Rule 1: what is certain when the source is written is not checked when it runs: a literal, a type, a size.
Rule 2: a mapping on the way to a path is copied once in a step, and then changed in place, as long as nothing else
        refers to it. An expression that reads the context may give it away, and so may a function, a branch or a loop.
Rule 3: an expression is evaluated before the mappings on its way are copied, because its value may contain them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from interlock.expression.codegen import Typed
from interlock.expression.metering import SHORT_TEXT
from interlock.kernel.codegen import ActionCompiler
from interlock.kernel.compiled.branch import Branch, NotCompiled
from interlock.kernel.compiled.calls import COPIED_MAX, FallBack, need_short
from interlock.model.document.actions import Expression, Value
from interlock.model.document.field import Field, field_problem

_SMALL = 2**63 - 1
"""The general step computes sums beyond this, and checks them against the real limit."""


class FunctionSource(Protocol):
    """The source that assignments are written into: a `PartWriter`."""

    actions: ActionCompiler
    branch: Branch

    def add(self, line: str) -> None: ...
    def constant(self, value: object) -> str: ...
    def local(self, word: str) -> str: ...
    def need(self, uses: set[str] | frozenset[str]) -> None: ...
    def own_context(self) -> None: ...
    def value(self, value: Any) -> str: ...


class AssignmentWriter:
    """Writes assignments."""

    def __init__(self, out: FunctionSource) -> None:
        self.out = out

    def assign(self, path: str, value: Value) -> bool:
        """Write an assignment, unless the general check of its field is needed. Return whether it was written."""
        field = self.out.actions.fields.get(path)
        if field is None:
            self._assign_at(tuple(path.split(".")), value)
            return True
        typed = self.out.actions.typed(value)
        if typed is not None and typed.type == field.type and _has_type_only(field):
            self._assign_typed(path, typed)
        elif _is_literal(value):
            if field_problem(value, field) is not None:
                raise NotCompiled("a value that its field refuses")
            self._assign_literal(path, value)
        else:
            return False
        return True

    def _assign_literal(self, path: str, value: Value) -> None:
        source = self._literal(value)
        self.out.own_context()
        self.forget((path,))
        if isinstance(value, dict):
            made = self.out.branch.owned[path,] = self.out.local("mapping")
            self.out.add(f"context[{path!r}] = {made} = {source}")
        else:
            self.out.add(f"context[{path!r}] = {source}")

    def _literal(self, value: Value) -> str:
        """Return the source of a value without expressions, which is short."""
        try:
            need_short(value)
        except FallBack as error:
            raise NotCompiled("a long value") from error
        return self.out.value(value)

    def _assign_typed(self, path: str, typed: Typed) -> None:
        """Write an assignment of a value with a certain type. A sum must be one of machine integers."""
        self.out.need(typed.uses)
        self.out.own_context()
        self.forget((path,))
        if not typed.operands:
            if "context" in typed.uses:
                self.out.branch.owned.clear()
            self.out.add(f"context[{path!r}] = {typed.source}")
            return
        names = []
        for position, operand in enumerate(typed.operands, start=1):
            if operand.isdecimal():
                names.append(operand)
                continue
            names.append(f"v{position}")
            self.out.add(f"v{position} = {operand}")  # looked up once, for the check and for the sum
            self.out.add(f"if v{position}.__class__ is not x_integer: return None")
        self.out.add(f"v = {typed.sign.join(names)}")
        self.out.add(f"if not -{_SMALL} <= v <= {_SMALL}: return None")
        self.out.add(f"context[{path!r}] = v")

    def _assign_at(self, keys: tuple[str, ...], value: Value) -> None:
        """Write an assignment to a path. A mapping along it is copied once, as long as nothing else refers to it."""
        field = self.out.actions.fields.get(keys[0])
        if _is_literal(value):
            source = self._literal(value)
        else:
            source = "v"
            typed = self.out.actions.typed(value)
            evaluated = self.out.value(value)
            if typed is not None and typed.parts is not None:
                evaluated = self._flat_mapping(typed.parts)
            self.out.add(f"v = {evaluated}")  # before the copies, which it must not contain
            if typed is None or typed.type is None:
                self.out.add(f"if v.__class__ is not str or len(v) >= {SHORT_TEXT}: need_short_if_large(v)")
        self.out.own_context()
        is_checked = not (field is None or field.accepts_any or (field.type == "object" and _has_type_only(field)))
        if is_checked or any(each.isdecimal() for each in keys):
            self.forget(keys[:1])
            given = "None" if field is None else self.out.constant(field)
            self.out.add(f"assign_path(context, {keys!r}, {source}, {given})")
            return
        outer = "context"
        if len(keys) == 1:
            self.out.add(f"context[{keys[0]!r}]")  # an unknown field is an error
        for end in range(1, len(keys)):
            key, inner = keys[end - 1], self.out.branch.owned.get(keys[:end])
            if inner is None:
                inner = self.out.branch.owned[keys[:end]] = self.out.local("mapping")
                self.out.add(f"{inner} = {outer}[{key!r}]")
                is_long = f"len({inner}) > {COPIED_MAX // (len(keys) - 1)}"
                self.out.add(f"if {inner}.__class__ is not dict or {is_long}: return None")
                self.out.add(f"{outer}[{key!r}] = {inner} = {inner}.copy()")
            outer = inner
        self.out.add(f"{outer}[{keys[-1]!r}] = {source}")
        self.forget(keys)

    def _flat_mapping(self, parts: Mapping[str, tuple[str, bool]]) -> str:
        """Write the checks of the values of a new mapping, and return its source. Only scalars are accepted."""
        items = []
        for key, (source, is_bounded) in parts.items():
            name = source
            if not is_bounded:
                name = self.out.local("part")
                self.out.add(f"{name} = {source}")
                self.out.add(f"if {name}.__class__ is not str or len({name}) >= {SHORT_TEXT}: need_scalar({name})")
            items.append(f"{key!r}: {name}")
        return f"{{{', '.join(items)}}}"

    def forget(self, keys: tuple[str, ...]) -> None:
        """Forget the mappings at a path and below it, because another value is there now."""
        owned = self.out.branch.owned
        self.out.branch.owned = {each: name for each, name in owned.items() if each[: len(keys)] != keys}


def _is_literal(value: Value) -> bool:
    """Return whether a value contains no expression."""
    if isinstance(value, dict):
        return all(map(_is_literal, value.values()))
    return all(map(_is_literal, value)) if isinstance(value, list) else not isinstance(value, Expression)


def _has_type_only(field: Field) -> bool:
    """Return whether every value of a field's type is valid."""
    bounds = (field.enum, field.min, field.max, field.length_max, field.format, field.items, field.fields)
    return all(each is None for each in bounds)

"""Values of the model as JSON by field name: XState's `meta.interlock`, and attributes of our namespace in SCXML.

Rule 1: keys are the names of the fields of the model, shapes are their types. Places and defaults are not written.
Rule 2: where a type allows an expression, a text that starts with `=` is one, as in YAML.
Rule 3: each format decides how guards and actions are written: `Leaves`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from interlock.definition.codec import read_value, write_value
from interlock.definition.source.node import Node
from interlock.model.document.actions import Action, Expression, Guard

_SCALARS: dict[Any, str] = {str: "a text", bool: "true or false", int: "a whole number", float: "a number"}
_GUARDS = get_args(Guard)
_ACTIONS = get_args(Action)
_HINTS: dict[type[Any], dict[str, Any]] = {}


class WrongValueError(Exception):
    """A value that is invalid for its type; `expected` names a valid one."""

    def __init__(self, node: Node, expected: str) -> None:
        super().__init__(f"expected {expected}")
        self.node = node
        self.expected = expected


def _unused(value: Any) -> Any:
    """The placeholder of a function that a format does not need: it writes no such value, or only reads."""
    raise AssertionError(value)


def _ignore(key: str, node: Node, known: Iterable[str]) -> None:
    """Accepts unknown keys."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaves:
    """The choices of a format. The readers return None for a value that they have reported as invalid.

    `unknown` is called for a key that is not a field, with the names of the fields. `plain`: fields whose texts are
    never expressions here. `mappings`: pairs of texts are written as a mapping.
    """

    read_guard: Callable[[Node], Guard | None] = _unused
    read_action: Callable[[Node], Action | None] = _unused
    write_guard: Callable[[Guard], Any] = _unused
    write_action: Callable[[Action], Any] = _unused
    unknown: Callable[[str, Node, Iterable[str]], None] = _ignore
    plain: frozenset[str] = frozenset()
    mappings: bool = False


def type_hints(made: type[Any]) -> dict[str, Any]:
    """The types of a dataclass's fields, without its place. Cached, because looking them up is slow."""
    if made not in _HINTS:
        _HINTS[made] = {name: hint for name, hint in get_type_hints(made).items() if name != "location"}
    return _HINTS[made]


# Reading


def read_field(node: Node, owner: type[Any], name: str, leaves: Leaves) -> Any:
    """The value of one field of a class. Raises WrongValueError."""
    hint = type_hints(owner)[name]
    return _plain(node, hint) if name in leaves.plain else read(node, hint, leaves)


def _plain(node: Node, hint: Any) -> Any:
    if hint is Any:
        return node.plain()
    if not isinstance(node.value, list):
        raise WrongValueError(node, "a list")
    return tuple(node.plain())


def read(node: Node, hint: Any, leaves: Leaves) -> Any:
    """The value of this type. Raises WrongValueError."""
    if hint is Any:
        return read_value(node)
    if hint in _SCALARS:
        return _scalar(node, hint)
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Literal:
        if node.value not in arguments:
            raise WrongValueError(node, " or ".join(map(repr, arguments)))
        return node.value
    if origin is tuple:
        return _tuple(node, arguments, leaves)
    if origin in (Union, UnionType):
        return _union(node, arguments, leaves)
    if hint is Expression:
        return _expression(node)
    return _record(node, hint, leaves)


def _scalar(node: Node, hint: Any) -> Any:
    value = node.value
    wanted = (int, float) if hint is float else hint
    if not isinstance(value, wanted) or (isinstance(value, bool) and hint is not bool):
        raise WrongValueError(node, _SCALARS[hint])
    return value


def _expression(node: Node) -> Expression:
    value = read_value(node)
    if not isinstance(value, Expression):
        raise WrongValueError(node, 'an expression, "= ..."')
    return value


def _tuple(node: Node, arguments: tuple[Any, ...], leaves: Leaves) -> tuple[Any, ...]:
    if isinstance(node.value, dict) and leaves.mappings and arguments == (tuple[str, str], ...):
        return tuple((key, _scalar(each, str)) for key, each in node.value.items())
    if not isinstance(node.value, list):
        raise WrongValueError(node, "a list")
    if arguments[-1] is not Ellipsis:
        if len(node.value) != len(arguments):
            raise WrongValueError(node, f"a list of {len(arguments)}")
        return tuple(read(each, hint, leaves) for each, hint in zip(node.value, arguments, strict=True))
    return tuple(read(each, arguments[0], leaves) for each in node.value)


def _union(node: Node, choices: tuple[Any, ...], leaves: Leaves) -> Any:
    if _GUARDS[0] in choices:
        return _leaf(node, leaves.read_guard(node), "a guard")
    if _ACTIONS[0] in choices:
        return _leaf(node, leaves.read_action(node), "an action")
    refused: WrongValueError | None = None
    for choice in choices:
        if choice is NoneType:
            continue
        try:
            return read(node, choice, leaves)
        except WrongValueError as wrong:
            refused = wrong
    assert refused is not None
    raise refused


def _leaf(node: Node, value: Guard | Action | None, expected: str) -> Guard | Action:
    if value is None:
        raise WrongValueError(node, expected)
    return value


def _record(node: Node, made: Any, leaves: Leaves) -> Any:
    if not isinstance(node.value, dict):
        raise WrongValueError(node, "a mapping")
    hints = type_hints(made)
    for key, each in node.value.items():
        if key not in hints:
            leaves.unknown(key, each, hints)
    given = {key: read_field(each, made, key, leaves) for key, each in node.value.items() if key in hints}
    missing = [each.name for each in fields(made) if each.default is MISSING and each.name not in given]
    if missing:
        raise WrongValueError(node, f"a mapping with {' and '.join(missing)}")
    value = made(**given)
    return replace(value, location=node.location) if any(each.name == "location" for each in fields(made)) else value


# Writing


def write_field(owner: Any, name: str, leaves: Leaves) -> Any:
    """One field of a value of the model as JSON."""
    is_value = name not in leaves.plain and _allows_expression(type_hints(type(owner))[name])
    return _write(getattr(owner, name), leaves, is_value=is_value)


def write(value: Any, leaves: Leaves) -> Any:
    """A value of the model as JSON."""
    return _write(value, leaves, is_value=False)


def _write(value: Any, leaves: Leaves, *, is_value: bool) -> Any:
    if isinstance(value, _GUARDS):
        return leaves.write_guard(value)
    if isinstance(value, _ACTIONS):
        return leaves.write_action(value)
    if isinstance(value, tuple):
        if leaves.mappings and value and all(isinstance(each, tuple) for each in value):
            return dict(value)
        return [_write(each, leaves, is_value=is_value) for each in value]
    if is_dataclass(value) and not isinstance(value, Expression):
        names = [each.name for each in fields(value) if each.name != "location"]
        defaults = {each.name: each.default for each in fields(value)}
        return {name: write_field(value, name, leaves) for name in names if getattr(value, name) != defaults[name]}
    return write_value(value) if is_value or isinstance(value, Expression) else value


def _allows_expression(hint: Any) -> bool:
    """Whether a type allows an expression, so that a text of it needs its leading `=` escaped."""
    return hint is Any or any(_allows_expression(each) for each in get_args(hint))

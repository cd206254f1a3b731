"""Located values to expressions, values, guards and actions (V3).

Rule 1: what comes here has been checked against the vocabulary; nothing here finds fault.
Rule 2: a string beginning with `=` is an expression wherever a value or a guard may stand; a backslash before it makes
it literal. White space around an expression means nothing and is not kept.
Rule 3: the place of an expression is that of its first character, so that the compiler can point into it.
"""

from __future__ import annotations

import re
from typing import Any

from interlock.definition.source.node import Located
from interlock.errors import Place
from interlock.model.document.actions import (
    Action,
    Assign,
    AssignCall,
    Block,
    Cancel,
    Do,
    Emit,
    Expression,
    Foreach,
    Guard,
    GuardAll,
    GuardAny,
    GuardExpression,
    GuardIn,
    GuardName,
    GuardNot,
    If,
    Log,
    Raise,
    Script,
    Send,
    Value,
)

_ESCAPED = re.compile(r"\\+=")


def mapping_of(node: Located) -> dict[str, Located]:
    """The parts of a mapping; only a bug of ours asks for those of anything else."""
    assert isinstance(node.value, dict)
    return node.value


def items_of(node: Located | None) -> list[Located]:
    """The items of a list; none when it is absent."""
    if node is None:
        return []
    assert isinstance(node.value, list)
    return node.value


def plain_of(node: Located | None) -> Any:
    """The plain JSON of a part; None when it is absent."""
    return None if node is None else node.plain()


def texts_of(node: Located | None) -> tuple[str, ...] | None:
    """A list of strings; None when it is absent."""
    return None if node is None else tuple(each.plain() for each in items_of(node))


def literal_of(text: str) -> str:
    """A literal text: one backslash before a leading `=` goes."""
    return text[1:] if _ESCAPED.match(text) else text


def text_or_expression(text: str, place: Place) -> str | Expression:
    """What a string means where an expression may stand."""
    if not text.startswith("="):
        return literal_of(text)
    inner = text[1:].strip()
    offset = len(text) - len(text[1:].lstrip())
    if place.line == place.end_line and place.end_column - place.column != len(text):
        # A quoted text is longer than what it says by its quotes; the content starts behind the first.
        offset += 1
    return Expression(inner, place.shifted(offset, offset + len(inner)))


def value_of(node: Located | None) -> Value:
    """A value: literals with expressions inside; None when it is absent."""
    if node is None:
        return None
    match node.value:
        case str():
            return text_or_expression(node.value, node.place)
        case dict():
            return {key: value_of(each) for key, each in node.value.items()}
        case list():
            return [value_of(each) for each in node.value]
        case _:
            return node.value


def guard_of(node: Located | None) -> Guard | None:
    """A guard; None when it is absent."""
    return None if node is None else _guard(node)


def _guard(node: Located) -> Guard:
    place = node.place
    if isinstance(node.value, str):
        meant = text_or_expression(node.value, place)
        if isinstance(meant, Expression):
            return GuardExpression(expression=meant, place=place)
        return GuardName(name=meant, place=place)
    parts = mapping_of(node)
    mark = next(each for each in ("name", "all", "any", "not", "in") if each in parts)
    inner = parts[mark]
    match mark:
        case "name":
            return GuardName(name=literal_of(inner.plain()), arguments=value_of(parts.get("with")), place=place)
        case "all":
            return GuardAll(guards=tuple(_guard(each) for each in items_of(inner)), place=place)
        case "any":
            return GuardAny(guards=tuple(_guard(each) for each in items_of(inner)), place=place)
        case "not":
            return GuardNot(guard=_guard(inner), place=place)
        case _:
            return GuardIn(state=inner.plain(), place=place)


def block_of(node: Located | None) -> Block:
    """A block of actions; empty when it is absent."""
    return tuple(_action(each) for each in items_of(node))


def _action(node: Located) -> Action:
    place = node.place
    if isinstance(node.value, str):
        return Do(name=literal_of(node.value), place=place)
    parts = mapping_of(node)
    mark = next(each for each in _ACTIONS if each in parts)
    return _ACTIONS[mark](parts, place)


def _do(parts: dict[str, Located], place: Place) -> Action:
    return Do(name=literal_of(parts["do"].plain()), arguments=value_of(parts.get("with")), place=place)


def _assign(parts: dict[str, Located], place: Place) -> Action:
    written = parts["assign"]
    if isinstance(written.value, str):
        return AssignCall(name=literal_of(written.value), arguments=value_of(parts.get("with")), place=place)
    values = tuple((path, value_of(each)) for path, each in mapping_of(written).items())
    return Assign(values=values, place=place)


def _raise(parts: dict[str, Located], place: Place) -> Action:
    written = parts["raise"]
    if isinstance(written.value, str):
        return Raise(event=value_of(written), place=place)
    inner = mapping_of(written)
    return Raise(event=value_of(inner["event"]), data=value_of(inner.get("data")), place=place)


def _send(parts: dict[str, Located], place: Place) -> Action:
    inner = mapping_of(parts["send"])
    return Send(
        event=value_of(inner["event"]),
        to=value_of(inner.get("to")),
        delay=value_of(inner.get("delay")),
        id=value_of(inner.get("id")),
        id_location=plain_of(inner.get("idLocation")),
        data=value_of(inner.get("data")),
        type=value_of(inner.get("type")),
        restore=plain_of(inner.get("onRestore")),
        place=place,
    )


def _cancel(parts: dict[str, Located], place: Place) -> Action:
    return Cancel(id=value_of(parts["cancel"]), place=place)


def _emit(parts: dict[str, Located], place: Place) -> Action:
    inner = mapping_of(parts["emit"])
    return Emit(type=value_of(inner["type"]), data=value_of(inner.get("data")), place=place)


def _log(parts: dict[str, Located], place: Place) -> Action:
    written = parts["log"]
    if isinstance(written.value, str):
        return Log(value=value_of(written), place=place)
    inner = mapping_of(written)
    return Log(label=plain_of(inner.get("label")), value=value_of(inner.get("value")), place=place)


def _if(parts: dict[str, Located], place: Place) -> Action:
    branches = [parts, *(mapping_of(each) for each in items_of(parts.get("elif")))]
    return If(
        branches=tuple((_guard(each["if"]), block_of(each["then"])) for each in branches),
        otherwise=block_of(parts.get("else")),
        place=place,
    )


def _foreach(parts: dict[str, Located], place: Place) -> Action:
    inner = mapping_of(parts["foreach"])
    return Foreach(
        items=value_of(inner["in"]),
        item=inner["item"].plain(),
        index=plain_of(inner.get("index")),
        block=block_of(inner["do"]),
        place=place,
    )


def _script(parts: dict[str, Located], place: Place) -> Action:
    return Script(text=parts["script"].plain(), place=place)


_ACTIONS = {
    "do": _do,
    "assign": _assign,
    "raise": _raise,
    "send": _send,
    "cancel": _cancel,
    "emit": _emit,
    "log": _log,
    "if": _if,
    "foreach": _foreach,
    "script": _script,
}
"""By the key that marks each action, in the order in which the vocabulary looks for them."""

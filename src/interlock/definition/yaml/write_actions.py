"""Expressions, values, guards and actions to plain YAML values: the mirror of `yaml_action.py`.

Rule 1: the shortest form of the vocabulary that reads back as an equal value.
"""

from __future__ import annotations

import re
from typing import Any

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
    GuardName,
    GuardNot,
    If,
    Log,
    Raise,
    Send,
    Value,
)

_WANTS_ESCAPE = re.compile(r"\\*=")


def told(**parts: Any) -> dict[str, Any]:
    """The parts that say something; a trailing `_` of a name is dropped, for Python's own words."""
    return {key.removesuffix("_"): part for key, part in parts.items() if part is not None}


def literal_tree(text: str) -> str:
    """A literal text where an expression might stand."""
    return f"\\{text}" if _WANTS_ESCAPE.match(text) else text


def value_tree(value: Value) -> Any:
    """A value with its expressions as texts."""
    match value:
        case Expression():
            return f"= {value.text}" if value.text else "="
        case str():
            return literal_tree(value)
        case dict():
            return {key: value_tree(each) for key, each in value.items()}
        case list() | tuple():
            return [value_tree(each) for each in value]
        case _:
            return value


def guard_tree(guard: Guard | None) -> Any:
    """A guard; None when there is none."""
    match guard:
        case None:
            return None
        case GuardExpression():
            return value_tree(guard.expression)
        case GuardName():
            name = literal_tree(guard.name)
            return name if guard.arguments is None else {"name": name, "with": value_tree(guard.arguments)}
        case GuardAll():
            return {"all": [guard_tree(each) for each in guard.guards]}
        case GuardAny():
            return {"any": [guard_tree(each) for each in guard.guards]}
        case GuardNot():
            return {"not": guard_tree(guard.guard)}
        case _:
            return {"in": guard.state}


def block_tree(block: Block) -> list[Any]:
    """A block of actions."""
    return [_action(each) for each in block]


def _action(action: Action) -> Any:
    match action:
        case Do():
            name = literal_tree(action.name)
            return name if action.arguments is None else {"do": name, "with": value_tree(action.arguments)}
        case Assign():
            return {"assign": {path: value_tree(value) for path, value in action.values}}
        case AssignCall():
            return told(assign=literal_tree(action.name), with_=value_tree(action.arguments))
        case Raise():
            event = value_tree(action.event)
            return {"raise": event if action.data is None else {"event": event, "data": value_tree(action.data)}}
        case Send():
            return {"send": _send(action)}
        case Cancel():
            return {"cancel": value_tree(action.id)}
        case Emit():
            return {"emit": told(type=value_tree(action.type), data=value_tree(action.data))}
        case Log():
            short = action.label is None and isinstance(action.value, str | Expression)
            value = value_tree(action.value)
            return {"log": value if short else told(label=action.label, value=value)}
        case If():
            return _if(action)
        case Foreach():
            items = value_tree(action.items)
            return {"foreach": {"in": items, **told(item=action.item, index=action.index, do=block_tree(action.block))}}
        case _:
            return {"script": action.text}


def _send(action: Send) -> dict[str, Any]:
    return told(
        event=value_tree(action.event),
        to=value_tree(action.to),
        delay=value_tree(action.delay),
        id=value_tree(action.id),
        idLocation=action.id_location,
        data=value_tree(action.data),
        type=value_tree(action.type),
        onRestore=action.restore,
    )


def _if(action: If) -> dict[str, Any]:
    first, *others = [{"if": guard_tree(guard), "then": block_tree(block)} for guard, block in action.branches]
    return {**first, **told(elif_=others or None, else_=block_tree(action.otherwise) or None)}

"""Guards, actions and values as one line of text, for diagrams, explanations and smcat.

Rule 1: a text reads like the definition: an expression as written, a literal as JSON.
Rule 2: texts are not clipped or escaped; the code that prints them does that.
"""

from __future__ import annotations

import msgspec

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
    GuardExpression,
    GuardIn,
    GuardName,
    GuardNot,
    If,
    Log,
    Raise,
    Send,
    Value,
)


def value_text(value: Value) -> str:
    """The value as its author would write it: expressions bare, literals as JSON."""
    if isinstance(value, Expression):
        return value.text.strip()
    if isinstance(value, dict):
        return "{" + _pairs(value) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(value_text, value)) + "]"
    return msgspec.json.encode(value).decode()


def name_text(value: Value) -> str:
    """A value that is used as a name: a literal string without quotes."""
    return value if isinstance(value, str) else value_text(value)


def arguments_text(arguments: Value) -> str:
    """Arguments in brackets; empty if there are none."""
    if arguments is None:
        return ""
    return f"({_pairs(arguments) if isinstance(arguments, dict) else value_text(arguments)})"


def _pairs(values: dict[str, Value]) -> str:
    return ", ".join(f"{key}: {value_text(each)}" for key, each in values.items())


def guard_text(guard: Guard) -> str:
    """The guard in one line: `paid`, `context.amount > 0`, `not In('live')`."""
    match guard:
        case GuardName():
            return guard.name
        case GuardExpression():
            return guard.expression.text.strip()
        case GuardIn():
            return f"In('{guard.state}')"
        case GuardNot():
            return f"not {_operand_text(guard.guard)}"
        case _:
            word = " and " if isinstance(guard, GuardAll) else " or "
            return word.join(map(_operand_text, guard.guards))


def _operand_text(guard: Guard) -> str:
    """A guard inside another one: in brackets, unless it is a name or an `In`."""
    text = guard_text(guard)
    return text if isinstance(guard, GuardName | GuardIn) else f"({text})"


def block_text(block: Block) -> str:
    """The actions of a block, in order."""
    return ", ".join(map(action_text, block)) or "nothing"


def action_text(action: Action) -> str:
    """The action on one line; a handler without arguments by its name alone."""
    match action:
        case Do():
            return action.name + arguments_text(action.arguments)
        case Assign():
            return ", ".join(f"{path} = {value_text(value)}" for path, value in action.values)
        case AssignCall():
            return f"assign {action.name}{arguments_text(action.arguments)}"
        case Raise():
            return f"raise {name_text(action.event)}"
        case Send():
            to = "" if action.to in (None, "self") else f" to {name_text(action.to)}"
            delay = "" if action.delay is None else f" after {name_text(action.delay)}"
            return f"send {name_text(action.event)}{to}{delay}"
        case Cancel():
            return f"cancel {name_text(action.id)}"
        case Emit():
            return f"emit {name_text(action.type)}"
        case Log():
            label = [action.label] if action.label else []
            value = [] if action.value is None else [name_text(action.value)]
            return " ".join(["log", *label, *value])
        case If():
            branches = [f"if {guard_text(guard)}: {block_text(block)}" for guard, block in action.branches]
            otherwise = [f"else: {block_text(action.otherwise)}"] if action.otherwise else []
            return "; ".join([" el".join(branches), *otherwise])
        case Foreach():
            return f"for {action.item} in {value_text(action.items)}: {block_text(action.block)}"
        case _:
            return "script"

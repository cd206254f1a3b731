"""The texts of a drawing: values, actions, transitions and the lines inside a state.

Rule 1: every text is one line of limited length. The output format escapes it.
Rule 2: a text looks like the definition: an expression as written, a literal as JSON.
Rule 3: nothing here depends on an output format.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from interlock.model.chart import Invoke, Transition
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
    If,
    Log,
    Raise,
    Script,
    Send,
    Value,
    guard_text,
)

TEXT_LENGTH_MAX = 120
"""Characters of one text: a label must be readable at a glance, and the definition has the whole text."""


def clipped(text: str) -> str:
    """Return the text on one line, with single spaces, and truncated with an ellipsis if it is too long."""
    line = " ".join(text.split())
    return line if len(line) <= TEXT_LENGTH_MAX else line[: TEXT_LENGTH_MAX - 1].rstrip() + "…"


def value_text(value: Value) -> str:
    """Return a value as in the definition: expressions as written, literals as JSON."""
    if isinstance(value, Expression):
        return value.text.strip()
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {value_text(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(value_text, value)) + "]"
    return msgspec.json.encode(value).decode()


def name_text(value: Value) -> str:
    """Return a value that is a name: a literal string without quotes."""
    return value if isinstance(value, str) else value_text(value)


def _arguments(arguments: Value) -> str:
    if arguments is None:
        return ""
    if isinstance(arguments, dict):
        return "(" + ", ".join(f"{key}: {value_text(each)}" for key, each in arguments.items()) + ")"
    return f"({value_text(arguments)})"


def action_text(action: Action) -> str:
    """Return an action on one line."""
    match action:
        case Do():
            return action.name + _arguments(action.arguments)
        case Assign():
            return ", ".join(f"{path} = {value_text(value)}" for path, value in action.values)
        case AssignCall():
            return f"assign {action.name}{_arguments(action.arguments)}"
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
            said = [
                *([action.label] if action.label else []),
                *([] if action.value is None else [name_text(action.value)]),
            ]
            return " ".join(["log", *said])
        case If():
            branches = [f"if {guard_text(guard)}: {block_text(block)}" for guard, block in action.branches]
            otherwise = [f"else: {block_text(action.otherwise)}"] if action.otherwise else []
            return "; ".join([" el".join(branches), *otherwise])
        case Foreach():
            return f"for {action.item} in {value_text(action.items)}: {block_text(action.block)}"
        case Script():
            return "script"


def block_text(block: Block) -> str:
    """Return the actions of a block on one line."""
    return ", ".join(map(action_text, block)) or "nothing"


def event_text(transition: Transition) -> str:
    """Return the text of a transition's event; `always` for an eventless one."""
    return transition.label or ", ".join(each.text for each in transition.descriptors) or "always"


def transition_text(transition: Transition) -> str:
    """Return the label of a transition: `event [guard] / actions`, without missing parts."""
    guard = "" if transition.guard is None else f"[{guard_text(transition.guard)}]"
    actions = f"/ {block_text(transition.block)}" if transition.block else ""
    return clipped(" ".join(filter(None, (event_text(transition), guard, actions))))


def blocks_lines(word: str, blocks: Iterable[Block]) -> list[str]:
    """Return one line for each block of entry or exit actions that is not empty."""
    return [clipped(f"{word} / {block_text(block)}") for block in blocks if block]


def invoke_line(invoke: Invoke) -> str:
    """Return the line of an invoke, with its id if that differs from its source."""
    source = "a computed chart" if invoke.src is None else name_text(invoke.src)
    named = f" ({invoke.id})" if invoke.id and invoke.id != source else ""
    return clipped(f"invoke {source}{named}")

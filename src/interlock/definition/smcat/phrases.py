"""Guards, actions and names as the texts that smcat carries: exact where its label can say it, else words for people.

Rule 1: every text is one line.
Rule 2: nothing here decides what is lost; the writer reads each label back and compares.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

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
    GuardAny,
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

_BARE_NAME = re.compile(r"[A-Za-z0-9_.^][A-Za-z0-9_.^]*")
_LABEL_QUOTED = re.compile(r'[;{"]|\A/[/*]')
_ACTIVITY_QUOTED = re.compile(r'[,;{"]|\A/[/*]')


def quoted(text: str) -> str:
    r"""The text in smcat's quotes. It knows one escape, `\"`, so a backslash may not stand last."""
    return '"' + text.replace('"', '\\"') + (' "' if text.endswith("\\") else '"')


def state_name(name: str) -> str:
    """A state's name, in quotes where it needs them."""
    return name if _BARE_NAME.fullmatch(name) else quoted(name)


def label(text: str) -> str:
    """A transition's label, in quotes where it needs them."""
    return quoted(text) if _LABEL_QUOTED.search(text) else text


def activities(lines: Iterable[str], indent: str) -> str:
    """A state's activities, one to a line, in quotes where one of them needs them."""
    text = f"\n{indent}".join(lines)
    return quoted(text) if _ACTIVITY_QUOTED.search(text) else text


def one_line(text: str) -> str:
    """The text with line ends and runs of white space folded, where there are line ends."""
    return " ".join(text.split()) if len(text.splitlines()) > 1 else text.strip()


def as_expression(guard: Guard) -> str | None:
    """The guard as one expression that means the same; None when it calls a registered function."""
    match guard:
        case GuardExpression():
            return one_line(guard.expression.text)
        case GuardIn():
            return f"In({guard.state!r})"
        case GuardAll() | GuardAny():
            parts = [as_expression(each) for each in guard.guards]
            word, empty = (" and ", "true") if isinstance(guard, GuardAll) else (" or ", "false")
            return None if None in parts else word.join(f"({part})" for part in parts) or empty
        case GuardNot():
            inner = as_expression(guard.guard)
            return None if inner is None else f"not ({inner})"
        case _:
            return None


def guard_text(guard: Guard) -> str:
    """What stands in the brackets of a label."""
    expression = as_expression(guard)
    return f"= {expression}" if expression is not None else _guard_words(guard)


def _guard_words(guard: Guard) -> str:
    match guard:
        case GuardName():
            return guard.name + _arguments(guard.arguments)
        case GuardAll() | GuardAny():
            word = " and " if isinstance(guard, GuardAll) else " or "
            return word.join(_guard_words(each) for each in guard.guards)
        case GuardNot():
            return f"not {_guard_words(guard.guard)}"
        case _:
            return as_expression(guard) or ""


def block_text(block: Block) -> str:
    """The actions of a block, in order."""
    return ", ".join(map(action_text, block))


def action_text(action: Action) -> str:
    """An action in a few words; a handler without arguments by its name alone."""
    match action:
        case Do():
            return one_line(action.name) + _arguments(action.arguments)
        case Assign():
            return "assign " + ", ".join(f"{path} = {value_text(value)}" for path, value in action.values)
        case AssignCall():
            return f"assign {action.name}{_arguments(action.arguments)}"
        case Raise():
            return f"raise {value_text(action.event)}"
        case Send():
            to = "" if action.to is None else f" to {value_text(action.to)}"
            delay = "" if action.delay is None else f" after {value_text(action.delay)}"
            return f"send {value_text(action.event)}{to}{delay}"
        case Cancel():
            return f"cancel {value_text(action.id)}"
        case Emit():
            return f"emit {value_text(action.type)}"
        case Log():
            return " ".join(["log", *([action.label] if action.label else []), value_text(action.value)])
        case If():
            branches = [f"if {_guard_words(guard)} ({block_text(block)})" for guard, block in action.branches]
            return " else ".join([*branches, *([f"({block_text(action.otherwise)})"] if action.otherwise else [])])
        case Foreach():
            return f"foreach {action.item} in {value_text(action.items)} ({block_text(action.block)})"
        case _:
            return "script"


def value_text(value: Value) -> str:
    """A value in a few words: expressions and strings bare, the rest as JSON."""
    if isinstance(value, Expression):
        return one_line(value.text)
    if isinstance(value, str):
        return one_line(value)
    if isinstance(value, dict):
        return "(" + ", ".join(f"{key}: {value_text(each)}" for key, each in value.items()) + ")"
    if isinstance(value, list | tuple):
        return "(" + ", ".join(map(value_text, value)) + ")"
    return msgspec.json.encode(value).decode()


def _arguments(arguments: Value) -> str:
    if arguments is None:
        return ""
    text = value_text(arguments)
    return text if text.startswith("(") else f"({text})"

"""Guards, actions and extensions of a document as XState JSON: the reverse of `read_actions` and `extension`.

Rule 1: what is written here is read back equal; `foreign` lists what XState itself cannot run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from interlock.definition import extension_json
from interlock.definition.codec import write_value
from interlock.definition.xstate.source import in_javascript_order
from interlock.model.document.actions import (
    Action,
    Assign,
    AssignCall,
    Block,
    Cancel,
    Do,
    Emit,
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
from interlock.model.duration import format_duration, parse_duration


class ActionWriter:
    """Writes guards and actions. `inside` returns XState's `#id`; `assigns` are names that always assign."""

    def __init__(self, inside: Callable[[str], str], assigns: frozenset[str]) -> None:
        self.inside = inside
        self.assigns = assigns
        self.foreign: set[str] = set()
        self.leaves = extension_json.Leaves(write_guard=self.guard, write_action=self.action)

    def guard(self, guard: Guard) -> Any:
        """The guard as JSON."""
        match guard:
            case GuardName(arguments=None):
                return guard.name
            case GuardName():
                return {"type": guard.name, "params": write_value(guard.arguments)}
            case GuardExpression():
                return self._built_in("interlock.expression", {"expression": guard.expression.text})
            case GuardAll():
                return self._built_in("xstate.and", {"guards": [self.guard(each) for each in guard.guards]})
            case GuardAny():
                return self._built_in("xstate.or", {"guards": [self.guard(each) for each in guard.guards]})
            case GuardNot():
                return self._built_in("xstate.not", {"guards": [self.guard(guard.guard)]})
            case _:  # GuardIn, which mypy proves
                return self._built_in("xstate.stateIn", {"stateValue": self.inside(guard.state)})

    def block(self, block: Block) -> list[Any]:
        """The actions of a block as JSON."""
        return [self.action(each) for each in block]

    def action(self, action: Action) -> Any:
        """The action as JSON."""
        match action:
            case Do():
                return _named(action.name, action.arguments)
            case AssignCall() if action.name in self.assigns:
                return _named(action.name, action.arguments)
            case AssignCall():
                arguments = {} if action.arguments is None else {"arguments": write_value(action.arguments)}
                return self._built_in("interlock.assign", {"name": action.name, **arguments})
            case Assign():
                return self._built_in("interlock.assign", {"values": _values(action)})
            case Raise():
                return self._built_in("xstate.raise", _event(action.event, action.data))
            case Send():
                return self._send(action)
            case Cancel():
                return self._built_in("xstate.cancel", {"sendId": write_value(action.id)})
            case Emit():
                return self._built_in("xstate.emit", _event(action.type, action.data))
            case Log():
                params = {"label": action.label, "value": write_value(action.value)}
                return self._built_in("xstate.log", {key: each for key, each in params.items() if each is not None})
            case If():
                return self._if(action)
            case Foreach():
                params = {"in": write_value(action.items), "item": action.item, "index": action.index}
                arguments = {key: each for key, each in params.items() if key != "index" or each is not None}
                return self._built_in("interlock.foreach", arguments | {"actions": self.block(action.block)})
            case _:  # Script, which mypy proves
                return self._built_in("interlock.script", {"text": action.text})

    def _send(self, action: Send) -> Any:
        """XState's delayed `raise` is a send to the entity itself; every other send is a `sendTo`."""
        params = _event(action.event, action.data)
        if action.to is not None:
            params["to"] = write_value(action.to)
        if action.delay is not None:
            params["delay"] = write_delay(action.delay)
        # A field's name is not a value: it is read as written, so nothing in it is escaped.
        values = {"id": write_value(action.id), "idLocation": action.id_location}
        values |= {"type": write_value(action.type), "restore": action.restore}
        params |= {key: each for key, each in values.items() if each is not None}
        raised = action.to is None and action.delay is not None
        return self._built_in("xstate.raise" if raised else "xstate.sendTo", params)

    def _if(self, action: If) -> Any:
        branches = [{"guard": self.guard(guard), "actions": self.block(block)} for guard, block in action.branches]
        otherwise = {"otherwise": self.block(action.otherwise)} if action.otherwise else {}
        return self._built_in("interlock.if", {"branches": branches, **otherwise})

    def _built_in(self, name: str, params: dict[str, Any]) -> dict[str, Any]:
        self.foreign.add(name)
        return {"type": name, "params": params}

    def field(self, owner: Any, name: str) -> Any:
        """A field of a model value as in `meta.interlock`."""
        return extension_json.write_field(owner, name, self.leaves)


def write_delay(delay: Value) -> Any:
    """A delay as JSON: milliseconds if it is a duration in its shortest form, so that the text can be restored."""
    ms = parse_duration(delay) if isinstance(delay, str) else None
    return write_value(delay) if ms is None or format_duration(ms) != delay else ms


def _named(name: str, arguments: Value) -> Any:
    return name if arguments is None else {"type": name, "params": write_value(arguments)}


def _event(name: Value, data: Value) -> dict[str, Any]:
    """`event` of an action, and `data` next to it if the payload is not a mapping that fits into the event."""
    if data is None:
        return {"event": {"type": write_value(name)}}
    if isinstance(data, dict) and data and "type" not in data:
        return {"event": {"type": write_value(name), **write_value(data)}}
    return {"event": {"type": write_value(name)}, "data": write_value(data)}


def _values(action: Assign) -> Any:
    """A mapping if that keeps order and count, else pairs."""
    keys = [path for path, _ in action.values]
    if keys and in_javascript_order(dict.fromkeys(keys)) == keys:
        return {path: write_value(value) for path, value in action.values}
    return [[path, write_value(value)] for path, value in action.values]

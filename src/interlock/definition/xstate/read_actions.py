"""Guards and actions of an XState definition, as far as JSON can represent them.

A name, alone or as `{type, params}`, is a registered function or handler. Built-ins are written by their XState type:
`xstate.raise xstate.sendTo xstate.cancel xstate.log xstate.emit xstate.assign`, guards `xstate.and xstate.or xstate.not
xstate.stateIn`, their arguments in `params` or next to `type`. What XState lacks has types of ours: `interlock.assign
interlock.if interlock.foreach interlock.script`, guard `interlock.expression`.

Rule 1: what needs a JavaScript function is refused with a hint, never dropped.
Rule 2: an event is `{type, ...payload}` there, and name and data here (X23).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import cast, get_args

from interlock.definition.codec import read_value
from interlock.definition.source.node import Node
from interlock.definition.xstate.source import XStateDefinition, XStateNode, items, read_delay
from interlock.errors import SourceLocation
from interlock.model.diagnostics import suggestion
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
    RestorePolicy,
    Script,
    Send,
    Value,
)

Fields = Mapping[str, Node]
_FUNCTIONS = "JSON has no functions: name it, and register the function under that name"


@dataclass(slots=True)
class _Call:
    """A built-in with its arguments and its place."""

    source: XStateDefinition
    node: XStateNode
    fields: Fields
    location: SourceLocation

    def error(self, code: str, message: str, hint: str | None = None) -> None:
        self.source.error(code, message, self.location, hint)

    def value(self, name: str) -> Value:
        """The value of an argument; None if it is absent."""
        return read_value(self.fields[name]) if name in self.fields else None

    def text(self, name: str, expected: str) -> str | None:
        return self.source.text(self.fields.get(name), expected)

    def block(self, name: str) -> Block:
        return read_block(self.source, self.node, self.fields.get(name))


def read_block(source: XStateDefinition, node: XStateNode, json_node: Node | None) -> Block:
    """The actions of `entry`, `exit` or a transition: one or a list."""
    if json_node is None:
        return ()
    made = [read_action(source, node, each) for each in items(json_node)]
    return tuple(each for each in made if each is not None)


def read_action(source: XStateDefinition, node: XStateNode, json_node: Node) -> Action | None:
    """One action; None, and a diagnostic, if it cannot be read."""
    if isinstance(json_node.value, str) and json_node.value:
        return _named(source, json_node.value, None, json_node.location)
    content = source.mapping(json_node, "an action's name or {type, params}")
    name = source.text(content.get("type"), "an action's name") if content is not None else None
    if content is None or name is None:
        if content is not None and "type" not in content:
            source.error("action.type", "the key `type` of this action is missing", json_node.location, _FUNCTIONS)
        return None
    if name.startswith(("xstate.", "interlock.")):
        build = _BUILT_IN.get(name)
        if build is None:
            hint = suggestion(name, _BUILT_IN) if name not in _REFUSED else _REFUSED[name]
            source.error(
                "action.unsupported", f'the built-in action "{name}" cannot be read from JSON', json_node.location, hint
            )
            return None
        return build(_Call(source, node, _fields(source, content), json_node.location))
    source.report_unknown_keys(json_node, ("type", "params"), "an action")
    return _named(source, name, _arguments(source, content, is_free=name in source.assigns), json_node.location)


def _named(source: XStateDefinition, name: str, arguments: Value, location: SourceLocation) -> Action | None:
    if name.startswith("="):
        source.error(
            "name.invalid", "an expression cannot be an action", location, "assign its value: `interlock.assign`"
        )
        return None
    if name in source.assigns:
        return AssignCall(name=name, arguments=arguments, location=location)
    return Do(name=name, arguments=arguments, location=location)


def _arguments(source: XStateDefinition, content: Fields, *, is_free: bool) -> Value:
    """The value of `params`: any value for a guard or an assign function, a mapping for a handler."""
    params = content.get("params")
    if params is None:
        return None
    value = read_value(params)
    if is_free or isinstance(value, dict | Expression):
        return value
    source.report_type(params, "a mapping of arguments")
    return None


def _fields(source: XStateDefinition, content: Fields) -> dict[str, Node]:
    """The arguments of a built-in: those in `params` and those next to `type`."""
    fields = {key: each for key, each in content.items() if key not in ("type", "params")}
    if "params" in content:
        fields |= source.mapping(content["params"], "a mapping of arguments") or {}
    return fields


def _event(call: _Call) -> tuple[Value, Value] | None:
    """The name and the data of the event that an action raises, sends or emits."""
    written = call.fields.get("event")
    if written is None:
        call.error("action.event", "the key `event` of this action is missing", _FUNCTIONS)
        return None
    if isinstance(written.value, str) and written.value:
        name, data = read_value(written), None
    else:
        content = call.source.mapping(written, "an event: {type, ...payload}")
        if content is None:
            return None
        if call.source.text(content.get("type"), "an event's name") is None:
            if "type" not in content:
                call.error("action.event", "the key `type` of this event is missing")
            return None
        name = read_value(content["type"])
        data = {key: read_value(each) for key, each in content.items() if key != "type"} or None
    return name, call.value("data") if "data" in call.fields else data


def _raise(call: _Call) -> Action | None:
    event = _event(call)
    if event is None:
        return None
    if "delay" in call.fields:
        return _sent(call, event, None)
    return Raise(event=event[0], data=event[1], location=call.location)


def _send(call: _Call) -> Action | None:
    event = _event(call)
    return None if event is None else _sent(call, event, call.value("to"))


def _send_parent(call: _Call) -> Action | None:
    event = _event(call)
    return None if event is None else _sent(call, event, "parent")


def _sent(call: _Call, event: tuple[Value, Value], to: Value) -> Send:
    return Send(
        event=event[0],
        data=event[1],
        to=to,
        delay=read_delay(call.source, call.fields["delay"]) if "delay" in call.fields else None,
        id=call.value("id"),
        id_location=call.text("idLocation", "a context field"),
        type=call.value("type"),
        restore=_restore(call),
        location=call.location,
    )


def _restore(call: _Call) -> RestorePolicy | None:
    """How downtime affects the timer of a send; XState has no such key and ignores ours."""
    written, known = call.fields.get("restore"), get_args(RestorePolicy)
    if written is not None and written.value not in known:
        call.source.report_type(written, " or ".join(map(repr, known)))
        return None
    return None if written is None else cast("RestorePolicy", written.value)


def _cancel(call: _Call) -> Action | None:
    if "sendId" not in call.fields and "id" not in call.fields:
        call.error("action.cancel", "the key `sendId` of `xstate.cancel` is missing")
        return None
    return Cancel(id=call.value("sendId" if "sendId" in call.fields else "id"), location=call.location)


def _log(call: _Call) -> Action | None:
    value = call.value("value" if "value" in call.fields else "expr")
    return Log(label=call.text("label", "a label"), value=value, location=call.location)


def _emit(call: _Call) -> Action | None:
    event = _event(call)
    return None if event is None else Emit(type=event[0], data=event[1], location=call.location)


def _assign(call: _Call) -> Action | None:
    if "name" in call.fields:
        name = call.text("name", "the name of an assign function")
        return (
            None if name is None else AssignCall(name=name, arguments=call.value("arguments"), location=call.location)
        )
    json_node = call.fields.get("assignment", call.fields.get("values"))
    if json_node is None:
        call.error("action.assign", "this assign has no values", _FUNCTIONS)
        return None
    if isinstance(json_node.value, dict):
        return Assign(
            values=tuple((key, read_value(each)) for key, each in json_node.value.items()), location=call.location
        )
    pairs = []
    for each in items(json_node):
        pair = each.value if isinstance(each.value, list) else []
        if len(pair) != 2 or not isinstance(pair[0].value, str):
            call.source.report_type(each, "a pair [field, value]")
        else:
            pairs.append((pair[0].value, read_value(pair[1])))
    return Assign(values=tuple(pairs), location=call.location)


def _if(call: _Call) -> Action | None:
    branches = []
    for each in items(call.fields["branches"]) if "branches" in call.fields else []:
        content = call.source.mapping(each, "a branch: {guard, actions}")
        guard = read_guard(call.source, call.node, content.get("guard")) if content is not None else None
        if content is not None and guard is not None:
            branches.append((guard, read_block(call.source, call.node, content.get("actions"))))
        elif content is not None and "guard" not in content:
            call.source.error("action.if", "the key `guard` of this branch is missing", each.location)
    if not branches:
        call.error("action.if", "`interlock.if` has no branches")
        return None
    return If(branches=tuple(branches), otherwise=call.block("otherwise"), location=call.location)


def _foreach(call: _Call) -> Action | None:
    item = call.text("item", "a context field")
    if item is None or "in" not in call.fields:
        call.error("action.foreach", "`interlock.foreach` must have `in` and `item`")
        return None
    index = call.text("index", "a context field")
    return Foreach(items=call.value("in"), item=item, index=index, block=call.block("actions"), location=call.location)


def _script(call: _Call) -> Action | None:
    text = call.text("text", "a script")
    if text is None:
        call.error("action.script", "the key `text` of `interlock.script` is missing")
        return None
    return Script(text=text, location=call.location)


_BUILT_IN: dict[str, Callable[[_Call], Action | None]] = {
    "xstate.raise": _raise,
    "xstate.send": _send,
    "xstate.sendTo": _send,
    "xstate.sendParent": _send_parent,
    "xstate.cancel": _cancel,
    "xstate.log": _log,
    "xstate.emit": _emit,
    "xstate.assign": _assign,
    "interlock.assign": _assign,
    "interlock.if": _if,
    "interlock.foreach": _foreach,
    "interlock.script": _script,
}
_REFUSED = {
    "xstate.spawnChild": "use `invoke`: a child runs while a state is active",
    "xstate.start": "use `invoke`: a child runs while a state is active",
    "xstate.stopChild": "leave the state that has the `invoke`",
    "xstate.stop": "leave the state that has the `invoke`",
    "xstate.forwardTo": "set `autoforward` in `meta.interlock` of the invoke",
    "xstate.enqueueActions": "write the actions themselves, or `interlock.if`",
    "xstate.pure": "write the actions themselves, or `interlock.if`",
}


def read_guard(source: XStateDefinition, node: XStateNode, json_node: Node | None) -> Guard | None:
    """The guard of a transition or a branch; None if absent, and with a diagnostic if it cannot be read."""
    if json_node is None:
        return None
    location = json_node.location
    if isinstance(json_node.value, str) and json_node.value:
        value = read_value(json_node)
        if isinstance(value, Expression):
            return GuardExpression(expression=value, location=location)
        return GuardName(name=json_node.value, location=location)
    content = source.mapping(json_node, "a guard's name or {type, params}")
    name = source.text(content.get("type"), "a guard's name") if content is not None else None
    if content is None or name is None:
        if content is not None and "type" not in content:
            source.error("guard.type", "the key `type` of this guard is missing", location, _FUNCTIONS)
        return None
    short = name.removeprefix("xstate.").removeprefix("guard:")
    # A registered function takes `params` of any type; those of a built-in are its arguments by name.
    is_free = short == name != "interlock.expression" and not isinstance(content.get("params", json_node).value, dict)
    call = _Call(source, node, {} if is_free else _fields(source, content), location)
    if short != name or (name in _COMPOSED and not call.fields.keys().isdisjoint(_COMPOSED_KEYS)):
        if short not in _COMPOSED:
            expected = suggestion(short, _COMPOSED)
            source.error(
                "guard.unsupported", f'the built-in guard "{name}" cannot be read from JSON', location, expected
            )
            return None
        return _COMPOSED[short](call)
    if name == "interlock.expression":
        return _expression(call)
    source.report_unknown_keys(json_node, ("type", "params"), "a guard")
    return GuardName(name=name, arguments=_arguments(source, content, is_free=True), location=location)


def _expression(call: _Call) -> Guard | None:
    json_node = call.fields.get("expression")
    text = call.source.text(json_node, "an expression")
    if json_node is None or text is None:
        call.error("guard.expression", "the key `expression` of `interlock.expression` is missing")
        return None
    expression = Expression(text, json_node.location.shift(1, 1 + len(text)))
    return GuardExpression(expression=expression, location=call.location)


def _guards(call: _Call) -> tuple[Guard, ...]:
    json_node = call.fields.get("guards", call.fields.get("guard"))
    if json_node is None:
        call.error("guard.empty", "the key `guards` of this guard is missing")
        return ()
    made = [read_guard(call.source, call.node, each) for each in items(json_node)]
    return tuple(each for each in made if each is not None)


def _all(call: _Call) -> Guard:
    return GuardAll(guards=_guards(call), location=call.location)


def _any(call: _Call) -> Guard:
    return GuardAny(guards=_guards(call), location=call.location)


def _not(call: _Call) -> Guard | None:
    guards = _guards(call)
    if len(guards) != 1:
        call.error("guard.not", "`not` must have exactly one guard")
        return None
    return GuardNot(guard=guards[0], location=call.location)


def _state_in(call: _Call) -> Guard | None:
    json_node = call.fields.get("stateValue")
    if json_node is None:
        call.error("guard.state_in", "the key `stateValue` of `stateIn` is missing")
        return None
    guards = _inside(call.source, call.source.states.root, json_node)
    return guards[0] if len(guards) == 1 else GuardAll(guards=tuple(guards), location=call.location) if guards else None


def _inside(source: XStateDefinition, above: XStateNode, json_node: Node) -> list[Guard]:
    """One guard for each innermost state that a state value names: `#id`, `a.b`, or `{a: b}`."""
    if isinstance(json_node.value, dict) and json_node.value:
        guards: list[Guard] = []
        for key, each in json_node.value.items():
            child = above.children.get(key)
            if child is None:
                hint = suggestion(key, above.children)
                source.error("target.unknown", f'"{above.foreign_id}" has no child "{key}"', each.location, hint)
            elif each.value == {}:
                guards.append(GuardIn(state=child.id, location=each.location))
            else:
                guards += _inside(source, child, each)
        return guards
    text = source.text(json_node, "a state: #id, a path of keys, or a state value")
    if text is None:
        return []
    found = source.states.target(above, text if text.startswith("#") else f".{text}")
    if isinstance(found, str):
        source.error("target.unknown", found, json_node.location)
        return []
    return [GuardIn(state=found.id, location=json_node.location)]


_COMPOSED_KEYS = ("guards", "guard", "stateValue")
_COMPOSED: dict[str, Callable[[_Call], Guard | None]] = {
    "and": _all,
    "or": _any,
    "not": _not,
    "stateIn": _state_in,
}

"""Guards and actions of an XState definition, as JSON can say them.

A name, alone or as `{type, params}`, is a registered function or handler. Built-ins are written by their XState type:
`xstate.raise xstate.sendTo xstate.cancel xstate.log xstate.emit xstate.assign`, guards `xstate.and xstate.or xstate.not
xstate.stateIn`, their arguments in `params` or beside `type`. What XState lacks has types of ours: `interlock.assign
interlock.if interlock.foreach interlock.script`, guard `interlock.expression`.

Rule 1: what only a JavaScript function could say is refused with a hint, never dropped.
Rule 2: an event is `{type, ...payload}` there and name and data here (X23).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from interlock.definition.located import Located
from interlock.definition.xstate_source import Source, delay_of, items, value_of
from interlock.definition.xstate_tree import Node
from interlock.errors import Place
from interlock.model.action import (
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
from interlock.model.findings import suggestion

Fields = Mapping[str, Located]
_FUNCTIONS = "JSON has no functions: name it, and register the function under that name"


def block_of(source: Source, node: Node, located: Located | None) -> Block:
    """The actions of `entry`, `exit` or a transition: one or a list."""
    if located is None:
        return ()
    made = [action_of(source, node, each) for each in items(located)]
    return tuple(each for each in made if each is not None)


def action_of(source: Source, node: Node, located: Located) -> Action | None:
    """One action; None, and a finding, where it cannot be read."""
    if isinstance(located.value, str) and located.value:
        return _named(source, located.value, None, located.place)
    content = source.mapping(located, "an action's name or {type, params}")
    name = source.text(content.get("type"), "an action's name") if content is not None else None
    if content is None or name is None:
        if content is not None and "type" not in content:
            source.error("action.type", "an action needs a `type`", located.place, _FUNCTIONS)
        return None
    if name.startswith(("xstate.", "interlock.")):
        build = _BUILT_IN.get(name)
        if build is None:
            hint = suggestion(name, _BUILT_IN) if name not in _REFUSED else _REFUSED[name]
            source.error(
                "action.unsupported", f'the built-in action "{name}" cannot be read from JSON', located.place, hint
            )
            return None
        return build(source, node, _fields(source, located, content), located.place)
    source.unknown(located, ("type", "params"), "an action")
    return _named(source, name, _arguments(source, content), located.place)


def _named(source: Source, name: str, arguments: Value, place: Place) -> Action:
    if name in source.assigns:
        return AssignCall(name=name, arguments=arguments, place=place)
    return Do(name=name, arguments=arguments, place=place)


def _arguments(source: Source, content: Fields) -> Value:
    params = content.get("params")
    if params is None or source.mapping(params, "a mapping of arguments") is None:
        return None
    return value_of(params)


def _fields(source: Source, located: Located, content: Fields) -> dict[str, Located]:
    """The arguments of a built-in: those of `params` and those beside `type`."""
    fields = {key: each for key, each in content.items() if key not in ("type", "params")}
    if "params" in content:
        fields |= source.mapping(content["params"], "a mapping of arguments") or {}
    return fields


def _event(source: Source, fields: Fields, place: Place) -> tuple[Value, Value] | None:
    """The name and the data of the event that an action raises, sends or emits."""
    written = fields.get("event")
    if written is None:
        source.error("action.event", "this action needs an `event`", place, _FUNCTIONS)
        return None
    if isinstance(written.value, str) and written.value:
        name, data = value_of(written), None
    else:
        content = source.mapping(written, "an event: {type, ...payload}")
        if content is None:
            return None
        if source.text(content.get("type"), "an event's name") is None:
            if "type" not in content:
                source.error("action.event", "an event needs a `type`", written.place)
            return None
        name = value_of(content["type"])
        data = {key: value_of(each) for key, each in content.items() if key != "type"} or None
    return name, value_of(fields["data"]) if "data" in fields else data


def _raise(source: Source, node: Node, fields: Fields, place: Place) -> Action | None:
    event = _event(source, fields, place)
    if event is None:
        return None
    if "delay" in fields:
        return _delayed(source, fields, event, None, place)
    return Raise(event=event[0], data=event[1], place=place)


def _send(source: Source, node: Node, fields: Fields, place: Place) -> Action | None:
    event = _event(source, fields, place)
    if event is None:
        return None
    return _delayed(source, fields, event, value_of(fields["to"]) if "to" in fields else None, place)


def _send_parent(source: Source, node: Node, fields: Fields, place: Place) -> Action | None:
    event = _event(source, fields, place)
    return None if event is None else _delayed(source, fields, event, "parent", place)


def _delayed(source: Source, fields: Fields, event: tuple[Value, Value], to: Value, place: Place) -> Send:
    return Send(
        event=event[0],
        data=event[1],
        to=to,
        delay=delay_of(source, fields["delay"]) if "delay" in fields else None,
        id=value_of(fields["id"]) if "id" in fields else None,
        id_location=source.text(fields.get("idLocation"), "a context field"),
        type=value_of(fields["type"]) if "type" in fields else None,
        place=place,
    )


def _cancel(source: Source, node: Node, fields: Fields, place: Place) -> Action | None:
    located = fields.get("sendId", fields.get("id"))
    if located is None:
        source.error("action.cancel", "`xstate.cancel` needs a `sendId`", place)
        return None
    return Cancel(id=value_of(located), place=place)


def _log(source: Source, node: Node, fields: Fields, place: Place) -> Action | None:
    value = fields.get("value", fields.get("expr"))
    label = source.text(fields.get("label"), "a label")
    return Log(label=label, value=None if value is None else value_of(value), place=place)


def _emit(source: Source, node: Node, fields: Fields, place: Place) -> Action | None:
    event = _event(source, fields, place)
    return None if event is None else Emit(type=event[0], data=event[1], place=place)


def _assign(source: Source, node: Node, fields: Fields, place: Place) -> Action | None:
    if "name" in fields:
        name = source.text(fields["name"], "the name of an assign function")
        arguments = value_of(fields["arguments"]) if "arguments" in fields else None
        return None if name is None else AssignCall(name=name, arguments=arguments, place=place)
    located = fields.get("assignment", fields.get("values"))
    if located is None:
        source.error("action.assign", "an assign needs values", place, _FUNCTIONS)
        return None
    if isinstance(located.value, dict):
        return Assign(values=tuple((key, value_of(each)) for key, each in located.value.items()), place=place)
    pairs = []
    for each in items(located):
        pair = each.value if isinstance(each.value, list) else []
        if len(pair) != 2 or not isinstance(pair[0].value, str):
            source.wrong(each, "a pair [field, value]")
        else:
            pairs.append((pair[0].value, value_of(pair[1])))
    return Assign(values=tuple(pairs), place=place)


def _if(source: Source, node: Node, fields: Fields, place: Place) -> Action | None:
    branches = []
    for each in items(fields["branches"]) if "branches" in fields else []:
        content = source.mapping(each, "a branch: {guard, actions}")
        guard = guard_of(source, node, content.get("guard")) if content is not None else None
        if content is not None and guard is not None:
            branches.append((guard, block_of(source, node, content.get("actions"))))
        elif content is not None and "guard" not in content:
            source.error("action.if", "a branch needs a `guard`", each.place)
    if not branches:
        source.error("action.if", "`interlock.if` needs branches", place)
        return None
    return If(branches=tuple(branches), otherwise=block_of(source, node, fields.get("otherwise")), place=place)


def _foreach(source: Source, node: Node, fields: Fields, place: Place) -> Action | None:
    item = source.text(fields.get("item"), "a context field")
    if item is None or "in" not in fields:
        source.error("action.foreach", "`interlock.foreach` needs `in` and `item`", place)
        return None
    index = source.text(fields.get("index"), "a context field")
    block = block_of(source, node, fields.get("actions"))
    return Foreach(items=value_of(fields["in"]), item=item, index=index, block=block, place=place)


def _script(source: Source, node: Node, fields: Fields, place: Place) -> Action | None:
    text = source.text(fields.get("text"), "a script")
    if text is None:
        source.error("action.script", "`interlock.script` needs a `text`", place)
        return None
    return Script(text=text, place=place)


_BUILT_IN: dict[str, Callable[[Source, Node, Fields, Place], Action | None]] = {
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
    "xstate.spawnChild": "use `invoke`: children live as long as a state",
    "xstate.start": "use `invoke`: children live as long as a state",
    "xstate.stopChild": "leave the state whose `invoke` it is",
    "xstate.stop": "leave the state whose `invoke` it is",
    "xstate.forwardTo": "set `autoforward` in `meta.interlock` of the invoke",
    "xstate.enqueueActions": "write the actions themselves, or `interlock.if`",
    "xstate.pure": "write the actions themselves, or `interlock.if`",
}


def guard_of(source: Source, node: Node, located: Located | None) -> Guard | None:
    """The guard of a transition or a branch; None when absent, and with a finding where it cannot be read."""
    if located is None:
        return None
    place = located.place
    if isinstance(located.value, str) and located.value:
        value = value_of(located)
        if isinstance(value, Expression):
            return GuardExpression(expression=value, place=place)
        return GuardName(name=located.value, place=place)
    content = source.mapping(located, "a guard's name or {type, params}")
    name = source.text(content.get("type"), "a guard's name") if content is not None else None
    if content is None or name is None:
        if content is not None and "type" not in content:
            source.error("guard.type", "a guard needs a `type`", place, _FUNCTIONS)
        return None
    fields = _fields(source, located, content)
    short = name.removeprefix("xstate.").removeprefix("guard:")
    if short != name or (name in _COMPOSED and not fields.keys().isdisjoint(_COMPOSED_KEYS)):
        if short not in _COMPOSED:
            wish = suggestion(short, _COMPOSED)
            source.error("guard.unsupported", f'the built-in guard "{name}" cannot be read from JSON', place, wish)
            return None
        return _COMPOSED[short](source, node, fields, place)
    if name == "interlock.expression":
        return _expression(source, fields, place)
    source.unknown(located, ("type", "params"), "a guard")
    return GuardName(name=name, arguments=_arguments(source, content), place=place)


def _expression(source: Source, fields: Fields, place: Place) -> Guard | None:
    located = fields.get("expression")
    text = source.text(located, "an expression")
    if located is None or text is None:
        source.error("guard.expression", "`interlock.expression` needs an `expression`", place)
        return None
    return GuardExpression(expression=Expression(text, located.place.shifted(1, 1 + len(text))), place=place)


def _guards(source: Source, node: Node, fields: Fields, place: Place) -> tuple[Guard, ...]:
    located = fields.get("guards", fields.get("guard"))
    if located is None:
        source.error("guard.empty", "a composed guard needs `guards`", place)
        return ()
    made = [guard_of(source, node, each) for each in items(located)]
    return tuple(each for each in made if each is not None)


def _all(source: Source, node: Node, fields: Fields, place: Place) -> Guard:
    return GuardAll(guards=_guards(source, node, fields, place), place=place)


def _any(source: Source, node: Node, fields: Fields, place: Place) -> Guard:
    return GuardAny(guards=_guards(source, node, fields, place), place=place)


def _not(source: Source, node: Node, fields: Fields, place: Place) -> Guard | None:
    guards = _guards(source, node, fields, place)
    if len(guards) != 1:
        source.error("guard.not", "`not` takes one guard", place)
        return None
    return GuardNot(guard=guards[0], place=place)


def _state_in(source: Source, node: Node, fields: Fields, place: Place) -> Guard | None:
    located = fields.get("stateValue")
    if located is None:
        source.error("guard.state_in", "`stateIn` needs a `stateValue`", place)
        return None
    guards = _inside(source, source.states.root, located)
    return guards[0] if len(guards) == 1 else GuardAll(guards=tuple(guards), place=place) if guards else None


def _inside(source: Source, above: Node, located: Located) -> list[Guard]:
    """One guard for each innermost state that a state value names: `#id`, `a.b`, or `{a: b}`."""
    if isinstance(located.value, dict) and located.value:
        guards = []
        for key, each in located.value.items():
            child = above.children.get(key)
            if child is None:
                hint = suggestion(key, above.children)
                source.error("target.unknown", f'there is no "{key}" in "{above.foreign_id}"', each.place, hint)
            elif each.value == {}:
                guards.append(GuardIn(state=child.id, place=each.place))
            else:
                guards += _inside(source, child, each)
        return guards
    text = source.text(located, "a state: #id, a path of keys, or a state value")
    if text is None:
        return []
    found = source.states.target(above, text if text.startswith("#") else f".{text}")
    if isinstance(found, str):
        source.error("target.unknown", found, located.place)
        return []
    return [GuardIn(state=found.id, place=located.place)]


_COMPOSED_KEYS = ("guards", "guard", "stateValue")
_COMPOSED: dict[str, Callable[[Source, Node, Fields, Place], Guard | None]] = {
    "and": _all,
    "or": _any,
    "not": _not,
    "stateIn": _state_in,
}

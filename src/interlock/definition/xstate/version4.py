"""XState 4 JSON rewritten as XState 5 JSON (X24). Done only when the caller says that the text is of version 4.

| XState 4 | XState 5 |
|---|---|
| `cond`, `in` | `guard` |
| external unless `internal: true`, a target `.child`, or none | `reenter: true` |
| `data` of a final, of an invoke | `output`, `input` |
| `activities` | `invoke` |
| `on: {"": ...}` | `always` |
| `{type, ...arguments}` of an action or guard | `{type, params}` |
| `xstate.choose` | `interlock.if` |
| `done.invoke.ID`, `error.platform.ID` | `xstate.done.actor.ID`, `xstate.error.actor.ID` |
| `done.state.ID` | `xstate.done.state.ID` |
| a target of the root without a dot | `.child` |

Rule 1: what has no such reading is refused, never guessed.
Rule 2: places stay those of the text.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from interlock.definition.source.node import Node, Scalar
from interlock.model.diagnostics import Diagnostics

_EVENTS = (
    ("done.invoke.", "xstate.done.actor."),
    ("error.platform.", "xstate.error.actor."),
    ("done.state.", "xstate.done.state."),
)
_NO_COUNTERPART = {
    "onEntry": "write `entry`",
    "onExit": "write `exit`",
    "parallel": 'write "type": "parallel"',
    "delimiter": "targets use dots",
}
_DROPPED = ("predictableActionArguments", "preserveActionOrder", "strict", "services", "delimiter")


def rewrite_version4(root: Node, diagnostics: Diagnostics) -> Node:
    """The definition as XState 5 JSON."""
    return _state(root, diagnostics, is_root=True)


def _at(json_node: Node, value: Scalar | list[Node] | dict[str, Node]) -> Node:
    return replace(json_node, value=value)


def _content(json_node: Node) -> dict[str, Node] | None:
    return dict(json_node.value) if isinstance(json_node.value, dict) else None


def _state(json_node: Node, diagnostics: Diagnostics, *, is_root: bool = False) -> Node:
    content = _content(json_node)
    if content is None:
        return json_node
    for key, hint in _NO_COUNTERPART.items():
        if key in content:
            location = json_node.keys.get(key, json_node.location)
            diagnostics.error("xstate.version", f'"{key}" is a key of XState 3 or older', location, hint)
            del content[key]
    for key in _DROPPED:
        content.pop(key, None)
    if "data" in content:
        content["output"] = content.pop("data")
    for key in ("entry", "exit"):
        if key in content:
            content[key] = _each(content[key], lambda each: _action(each, diagnostics))
    for key in ("always", "onDone"):
        if key in content:
            content[key] = _each(content[key], lambda each: _transition(each, diagnostics, is_root=is_root))
    _events(content, diagnostics, is_root=is_root)
    _invokes(content, diagnostics, is_root=is_root)
    states = content.get("states")
    if states is not None and isinstance(states.value, dict):
        content["states"] = _at(states, {key: _state(each, diagnostics) for key, each in states.value.items()})
    if "initial" in content:
        content["initial"] = _initial(content["initial"], diagnostics)
    return _at(json_node, content)


def _each(json_node: Node, change: Callable[[Node], Node]) -> Node:
    if isinstance(json_node.value, list):
        return _at(json_node, [change(each) for each in json_node.value])
    return change(json_node)


def _events(content: dict[str, Node], diagnostics: Diagnostics, *, is_root: bool) -> None:
    """`on` and `after`, with the eventless entry of `on` moved to `always`."""
    on = _content(content["on"]) if "on" in content else None
    if on is not None:
        made = {}
        for key, each in on.items():
            transitions = _each(each, lambda each: _transition(each, diagnostics, is_root=is_root))
            if key:
                made[_event(key, content["on"], diagnostics)] = transitions
            elif "always" in content:
                diagnostics.error(
                    "xstate.version", 'this state has both "" and `always`', each.location, "keep one of them"
                )
            else:
                content["always"] = transitions
        keys = {
            _event(key, content["on"], Diagnostics()): location for key, location in content["on"].keys.items() if key
        }
        content["on"] = replace(content["on"], value=made, keys=keys)
    after = _content(content["after"]) if "after" in content else None
    if after is not None:
        change = {
            key: _each(each, lambda each: _transition(each, diagnostics, is_root=is_root))
            for key, each in after.items()
        }
        content["after"] = _at(content["after"], change)


def _event(key: str, on: Node, diagnostics: Diagnostics) -> str:
    if key.endswith(".*"):
        message = f'"{key}": XState 4 has no such wildcard and takes only an event with exactly this name'
        diagnostics.error("xstate.version", message, on.keys.get(key, on.location), "list the events")
    return next((far + key[len(old) :] for old, far in _EVENTS if key.startswith(old)), key)


def _initial(json_node: Node, diagnostics: Diagnostics) -> Node:
    content = _content(json_node)
    if content is None or "actions" not in content:
        return json_node
    content["actions"] = _each(content["actions"], lambda each: _action(each, diagnostics))
    return _at(json_node, content)


def _transition(json_node: Node, diagnostics: Diagnostics, *, is_root: bool) -> Node:
    content = {"target": json_node} if isinstance(json_node.value, str) else _content(json_node)
    if content is None:
        return json_node
    targets = _targets(content, is_root=is_root)
    if targets:
        given = content.pop("internal", None)
        inward = any(each.startswith(".") for each in _texts(content["target"]))
        internal = inward if given is None else given.value is True
        content["target"] = targets[0] if len(targets) == 1 else _at(content["target"], targets)
        if not internal:
            content["reenter"] = _at(json_node, value=True)
    else:
        content.pop("internal", None)
    if "actions" in content:
        content["actions"] = _each(content["actions"], lambda each: _action(each, diagnostics))
    guards = [_guard(content.pop("cond"))] if "cond" in content else []
    if "in" in content:
        inside = content.pop("in")
        guards.append(_typed(inside, "xstate.stateIn", {"stateValue": inside}))
    if guards:
        both = _typed(json_node, "xstate.and", {"guards": _at(json_node, guards)})
        content["guard"] = guards[0] if len(guards) == 1 else both
    return _at(json_node, content)


def _texts(json_node: Node) -> list[str]:
    found = json_node.value if isinstance(json_node.value, list) else [json_node]
    return [each.value for each in found if isinstance(each.value, str)]


def _targets(content: dict[str, Node], *, is_root: bool) -> list[Node]:
    """The targets of a transition; the root of XState 4 names its children without a dot."""
    json_node = content.get("target")
    if json_node is None or json_node.value in (None, ""):
        content.pop("target", None)
        return []
    found = json_node.value if isinstance(json_node.value, list) else [json_node]
    return [
        _at(each, f".{each.value}") if is_root and isinstance(each.value, str) and each.value[:1] not in "#." else each
        for each in found
    ]


def _typed(json_node: Node, name: str, params: dict[str, Node]) -> Node:
    return _at(json_node, {"type": _at(json_node, name), "params": _at(json_node, params)})


def _with_params(json_node: Node) -> Node:
    """`{type, ...arguments}` as `{type, params}`."""
    content = _content(json_node)
    if content is None or "type" not in content or "params" in content or len(content) == 1:
        return json_node
    rest = {key: each for key, each in content.items() if key != "type"}
    return _at(json_node, {"type": content["type"], "params": _at(json_node, rest)})


def _guard(json_node: Node) -> Node:
    return _with_params(json_node)


def _action(json_node: Node, diagnostics: Diagnostics) -> Node:
    content = _content(json_node)
    if content is None or "type" not in content or content["type"].value != "xstate.choose":
        return _with_params(json_node)
    branches: list[Node] = []
    otherwise: list[Node] = []
    conds = content.get("conds")
    for each in conds.value if conds is not None and isinstance(conds.value, list) else []:
        inner = _content(each) or {}
        actions = inner.get("actions", _at(each, []))
        made = _each(actions, lambda each: _action(each, diagnostics))
        if otherwise:
            diagnostics.error("xstate.version", "a branch after one without `cond` is never run", each.location)
        elif "cond" in inner:
            branches.append(_at(each, {"guard": _guard(inner["cond"]), "actions": made}))
        else:
            otherwise.append(made)
    params = {"branches": _at(json_node, branches)} | ({"otherwise": otherwise[0]} if otherwise else {})
    return _typed(json_node, "interlock.if", params)


def _invokes(content: dict[str, Node], diagnostics: Diagnostics, *, is_root: bool) -> None:
    """`invoke` with the keys of XState 5, and an invoke for each activity."""
    found: list[Node] = []
    if "invoke" in content:
        written = content["invoke"]
        listed = written.value if isinstance(written.value, list) else [written]
        found += [_invoke(each, diagnostics, is_root=is_root) for each in listed]
    if "activities" in content:
        written = content.pop("activities")
        listed = written.value if isinstance(written.value, list) else [written]
        for each in listed:
            inner = _content(each)
            found.append(_at(each, {"src": each if inner is None else inner.get("type", each)}))
    if found:
        content["invoke"] = _at(found[0], found)


def _invoke(json_node: Node, diagnostics: Diagnostics, *, is_root: bool) -> Node:
    content = {"src": json_node} if isinstance(json_node.value, str) else _content(json_node)
    if content is None:
        return json_node
    if "data" in content:
        content["input"] = content.pop("data")
    source = _content(content["src"]) if "src" in content else None
    if source is not None and "type" in source:
        content["src"] = source["type"]
    elif source is not None and "states" in source:
        content["src"] = _state(content["src"], diagnostics, is_root=True)
    if "autoForward" in content:
        forward = content.pop("autoForward")
        extra = _at(json_node, {"autoforward": forward})
        content["meta"] = _at(json_node, {"interlock": extra})
    for key in ("onDone", "onError"):
        if key in content:
            content[key] = _each(content[key], lambda each: _transition(each, diagnostics, is_root=is_root))
    return _at(json_node, content)

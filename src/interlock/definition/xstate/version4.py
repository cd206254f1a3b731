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
from interlock.model.diagnostics import Findings

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


def rewritten(root: Node, findings: Findings) -> Node:
    """The definition as XState 5 would write it."""
    return _state(root, findings, is_root=True)


def _at(located: Node, value: Scalar | list[Node] | dict[str, Node]) -> Node:
    return replace(located, value=value)


def _content(located: Node) -> dict[str, Node] | None:
    return dict(located.value) if isinstance(located.value, dict) else None


def _state(located: Node, findings: Findings, *, is_root: bool = False) -> Node:
    content = _content(located)
    if content is None:
        return located
    for key, hint in _NO_COUNTERPART.items():
        if key in content:
            place = located.keys.get(key, located.place)
            findings.error("xstate.version", f'"{key}" is from before XState 4', place, hint)
            del content[key]
    for key in _DROPPED:
        content.pop(key, None)
    if "data" in content:
        content["output"] = content.pop("data")
    for key in ("entry", "exit"):
        if key in content:
            content[key] = _each(content[key], lambda each: _action(each, findings))
    for key in ("always", "onDone"):
        if key in content:
            content[key] = _each(content[key], lambda each: _transition(each, findings, is_root=is_root))
    _events(content, findings, is_root=is_root)
    _invokes(content, findings, is_root=is_root)
    states = content.get("states")
    if states is not None and isinstance(states.value, dict):
        content["states"] = _at(states, {key: _state(each, findings) for key, each in states.value.items()})
    if "initial" in content:
        content["initial"] = _initial(content["initial"], findings)
    return _at(located, content)


def _each(located: Node, change: Callable[[Node], Node]) -> Node:
    if isinstance(located.value, list):
        return _at(located, [change(each) for each in located.value])
    return change(located)


def _events(content: dict[str, Node], findings: Findings, *, is_root: bool) -> None:
    """`on` and `after`, with the eventless entry of `on` moved to `always`."""
    on = _content(content["on"]) if "on" in content else None
    if on is not None:
        made = {}
        for key, each in on.items():
            transitions = _each(each, lambda each: _transition(each, findings, is_root=is_root))
            if key:
                made[_event(key, content["on"], findings)] = transitions
            elif "always" in content:
                findings.error("xstate.version", '"" and `always` in one state', each.place, "keep one of them")
            else:
                content["always"] = transitions
        keys = {_event(key, content["on"], Findings()): place for key, place in content["on"].keys.items() if key}
        content["on"] = replace(content["on"], value=made, keys=keys)
    after = _content(content["after"]) if "after" in content else None
    if after is not None:
        change = {
            key: _each(each, lambda each: _transition(each, findings, is_root=is_root)) for key, each in after.items()
        }
        content["after"] = _at(content["after"], change)


def _event(key: str, on: Node, findings: Findings) -> str:
    if key.endswith(".*"):
        message = f'"{key}": XState 4 has no such wildcard, it waits for an event of exactly this name'
        findings.error("xstate.version", message, on.keys.get(key, on.place), "list the events")
    return next((far + key[len(old) :] for old, far in _EVENTS if key.startswith(old)), key)


def _initial(located: Node, findings: Findings) -> Node:
    content = _content(located)
    if content is None or "actions" not in content:
        return located
    content["actions"] = _each(content["actions"], lambda each: _action(each, findings))
    return _at(located, content)


def _transition(located: Node, findings: Findings, *, is_root: bool) -> Node:
    content = {"target": located} if isinstance(located.value, str) else _content(located)
    if content is None:
        return located
    targets = _targets(content, is_root=is_root)
    if targets:
        said = content.pop("internal", None)
        internal = (
            any(each.startswith(".") for each in _texts(content["target"])) if said is None else said.value is True
        )
        content["target"] = targets[0] if len(targets) == 1 else _at(content["target"], targets)
        if not internal:
            content["reenter"] = _at(located, value=True)
    else:
        content.pop("internal", None)
    if "actions" in content:
        content["actions"] = _each(content["actions"], lambda each: _action(each, findings))
    guards = [_guard(content.pop("cond"))] if "cond" in content else []
    if "in" in content:
        inside = content.pop("in")
        guards.append(_typed(inside, "xstate.stateIn", {"stateValue": inside}))
    if guards:
        both = _typed(located, "xstate.and", {"guards": _at(located, guards)})
        content["guard"] = guards[0] if len(guards) == 1 else both
    return _at(located, content)


def _texts(located: Node) -> list[str]:
    found = located.value if isinstance(located.value, list) else [located]
    return [each.value for each in found if isinstance(each.value, str)]


def _targets(content: dict[str, Node], *, is_root: bool) -> list[Node]:
    """The targets of a transition; the root of XState 4 finds its children without a dot."""
    located = content.get("target")
    if located is None or located.value in (None, ""):
        content.pop("target", None)
        return []
    found = located.value if isinstance(located.value, list) else [located]
    return [
        _at(each, f".{each.value}") if is_root and isinstance(each.value, str) and each.value[:1] not in "#." else each
        for each in found
    ]


def _typed(located: Node, name: str, params: dict[str, Node]) -> Node:
    return _at(located, {"type": _at(located, name), "params": _at(located, params)})


def _with_params(located: Node) -> Node:
    """`{type, ...arguments}` as `{type, params}`."""
    content = _content(located)
    if content is None or "type" not in content or "params" in content or len(content) == 1:
        return located
    rest = {key: each for key, each in content.items() if key != "type"}
    return _at(located, {"type": content["type"], "params": _at(located, rest)})


def _guard(located: Node) -> Node:
    return _with_params(located)


def _action(located: Node, findings: Findings) -> Node:
    content = _content(located)
    if content is None or "type" not in content or content["type"].value != "xstate.choose":
        return _with_params(located)
    branches: list[Node] = []
    otherwise: list[Node] = []
    conds = content.get("conds")
    for each in conds.value if conds is not None and isinstance(conds.value, list) else []:
        inner = _content(each) or {}
        actions = inner.get("actions", _at(each, []))
        made = _each(actions, lambda each: _action(each, findings))
        if otherwise:
            findings.error("xstate.version", "nothing behind a branch without `cond` is ever run", each.place)
        elif "cond" in inner:
            branches.append(_at(each, {"guard": _guard(inner["cond"]), "actions": made}))
        else:
            otherwise.append(made)
    params = {"branches": _at(located, branches)} | ({"otherwise": otherwise[0]} if otherwise else {})
    return _typed(located, "interlock.if", params)


def _invokes(content: dict[str, Node], findings: Findings, *, is_root: bool) -> None:
    """`invoke` with its own old keys, and an invoke for each activity."""
    found: list[Node] = []
    if "invoke" in content:
        written = content["invoke"]
        listed = written.value if isinstance(written.value, list) else [written]
        found += [_invoke(each, findings, is_root=is_root) for each in listed]
    if "activities" in content:
        written = content.pop("activities")
        listed = written.value if isinstance(written.value, list) else [written]
        for each in listed:
            inner = _content(each)
            found.append(_at(each, {"src": each if inner is None else inner.get("type", each)}))
    if found:
        content["invoke"] = _at(found[0], found)


def _invoke(located: Node, findings: Findings, *, is_root: bool) -> Node:
    content = {"src": located} if isinstance(located.value, str) else _content(located)
    if content is None:
        return located
    if "data" in content:
        content["input"] = content.pop("data")
    source = _content(content["src"]) if "src" in content else None
    if source is not None and "type" in source:
        content["src"] = source["type"]
    elif source is not None and "states" in source:
        content["src"] = _state(content["src"], findings, is_root=True)
    if "autoForward" in content:
        forward = content.pop("autoForward")
        extra = _at(located, {"autoforward": forward})
        content["meta"] = _at(located, {"interlock": extra})
    for key in ("onDone", "onError"):
        if key in content:
            content[key] = _each(content[key], lambda each: _transition(each, findings, is_root=is_root))
    return _at(located, content)

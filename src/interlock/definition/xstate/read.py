"""XState 5 definition to document: states, transitions, invokes; differences are rewritten (X1-X4, X9, X17, X19).

Rule 1: the compiler interprets descriptors and their order (X6, X7); texts and key order are kept.
Rule 2: `meta.interlock` has what XState has no key for; `extension` reads it.
An `initial` names one direct child by key (X1). A history without target falls back to the initial state of its parent,
with its actions; in a parallel state, to that state itself (X17).
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from interlock.definition.codec import read_value
from interlock.definition.names import key_from_text, kind_from_source
from interlock.definition.source.node import Node
from interlock.definition.xstate.events import from_xstate, is_version4_name
from interlock.definition.xstate.extension import (
    extend_document,
    extend_initial,
    extend_invoke,
    extend_state,
    extend_transition,
    read_extension,
)
from interlock.definition.xstate.read_actions import read_block, read_guard
from interlock.definition.xstate.source import XStateDefinition, XStateNode, XStateNodes, in_javascript_order, items
from interlock.model.diagnostics import Diagnostics, suggestion
from interlock.model.document.actions import Block
from interlock.model.document.document import Document, Initial, Invoke, Origin, State, StateType, Transition
from interlock.model.document.field import Field
from interlock.model.duration import format_duration

_STATE_KEYS = (
    "id", "type", "initial", "states", "on", "always", "after", "onDone", "entry", "exit", "invoke", "history",
    "target", "output", "description", "tags", "meta",
)  # fmt: skip
_ROOT_KEYS = (*_STATE_KEYS, "context", "version", "$schema", "types", "tsTypes", "schemas", "options")
_TRANSITION_KEYS = ("target", "guard", "actions", "reenter", "description", "meta")
_INVOKE_KEYS = ("id", "src", "input", "onDone", "onError", "description", "meta")
_TYPES: dict[str, StateType] = {
    "atomic": "state",
    "compound": "state",
    "parallel": "parallel",
    "final": "final",
    "history": "history",
}
_DESCRIPTOR = re.compile(r"\*|[^\s.,*=#]+(?:\.[^\s.,*=#]+)*(?:\.\*)?")
_WHOLE = re.compile(r"[0-9]{1,12}")


def read_document(root: Node, *, name: str, diagnostics: Diagnostics, version4: bool = False) -> Document | None:
    """The document of a whole definition; None if it is not a mapping, or is the output of `machine.toJSON()`."""
    if not isinstance(root.value, dict):
        diagnostics.error("xstate.root", "an XState definition must be a JSON object", root.location)
        return None
    if "interlock" in root.value:
        message = "expected a machine of XState, got a chart in the vocabulary of Interlock"
        diagnostics.error("json.format", message, root.keys["interlock"], "read it as format json")
        return None
    if "transitions" in root.value and "order" in root.value:
        message = "this is XState's internal form of a machine, which leaves out `always` and all delays"
        diagnostics.error("xstate.definition", message, root.location, "use JSON.stringify(machine.config) instead")
        return None
    states = XStateNodes(root, _kind(root.value, name, diagnostics), diagnostics)
    ids = {each.foreign_id: each.id for each in states.nodes()}
    source = XStateDefinition(diagnostics, states, name, version4, ids=ids)
    extra = read_extension(source, root)
    source.assigns = frozenset(source.texts(extra.get("assigns"), "names of assign functions"))
    made = read_state(source, states.root)
    made = replace(made, states=tuple(_with_output(source, root.value, each) for each in made.states))
    fields = _context(source, root.value.get("context"))
    above = (
        State(initial=Initial(targets=(made.key,)), states=(made,), location=root.location) if states.hidden else made
    )
    version = source.text(root.value.get("version"), "a version")
    document = Document(
        kind=states.kind,
        root=replace(above, context=fields),
        revision=version,
        dialect="xstate",
        unhandled="ignore",
        source=name,
    )
    return extend_document(source, extra, document)


def _kind(root: dict[str, Node], name: str, diagnostics: Diagnostics) -> str:
    """The kind: made from the id of the root, or else the file name up to its first dot."""
    given_id = root["id"].value if "id" in root else None
    if isinstance(given_id, str) and given_id:
        parts = [key_from_text(part, "") for part in given_id.split(".")]
        kind = ".".join(part for part in parts if part) or "chart"
        if kind != given_id:
            message = f'the id "{given_id}" becomes the kind "{kind}": dotted words of letters, digits, "_" and "-"'
            diagnostics.info("kind.name", message, root["id"].location)
        return kind
    if given_id is not None:
        diagnostics.error("value.type", "the id of the root must be a string", root["id"].location)
    return kind_from_source(name)


def _context(source: XStateDefinition, json_node: Node | None) -> tuple[Field, ...]:
    content = (
        source.mapping(json_node, "the first value of each field of the context") if json_node is not None else None
    )
    return tuple(
        Field(name=key, default=read_value(each), location=each.location) for key, each in (content or {}).items()
    )


def _with_output(source: XStateDefinition, root: dict[str, Node], state: State) -> State:
    """XState takes the output from the root for every final state; ours belongs to the final state."""
    if state.type != "final":
        return state
    if "output" in root:
        return replace(state, output=read_value(root["output"]))
    if state.output is not None:
        message = f'XState gives no output for "{state.key}", because the root has no `output`; Interlock does'
        source.diagnostics.warning("xstate.output", message, state.location)
    return state


def read_state(source: XStateDefinition, node: XStateNode) -> State:
    """One state with everything in it."""
    content, written, is_root = node.content, node.written, node.parent is None
    if not isinstance(written.value, dict):
        source.report_type(written, "a state")
        return State(key=node.name, location=written.location)
    source.report_unknown_keys(written, _ROOT_KEYS if is_root else _STATE_KEYS, "a state")
    kind = _type(source, node)
    if is_root and kind in ("final", "history"):
        source.error("state.type", f"the root cannot be a {kind} state", written.location)
        kind = "state"
    node.initial = read_initial(source, node, kind)  # before the children: a history without target falls back to it
    children = tuple(read_state(source, each) for each in node.children.values())
    made = State(
        key=node.name,
        id=node.id if not is_root and source.text(content.get("id"), "an id") is not None else None,
        type=kind,
        initial=node.initial,
        states=children,
        transitions=_transitions(source, node),
        entry=_blocks(read_block(source, node, content.get("entry"))),
        exit=_blocks(read_block(source, node, content.get("exit"))),
        invokes=_invokes(source, node),
        output=read_value(content["output"]) if kind == "final" and "output" in content else None,
        description=source.description(content),
        tags=source.texts(content.get("tags"), "tags"),
        meta=_meta(source, content),
        location=written.location,
    )
    if kind == "history":
        made = read_history(source, node, made)
    return extend_state(source, node, read_extension(source, written), made)


def _blocks(block: Block) -> tuple[Block, ...]:
    return (block,) if block else ()


def _meta(source: XStateDefinition, content: dict[str, Node]) -> Any:
    json_node = content.get("meta")
    if json_node is None or source.mapping(json_node, "a mapping") is None:
        return None
    meta = json_node.plain()
    meta.pop("interlock", None)
    return meta or None


def _type(source: XStateDefinition, node: XStateNode) -> StateType:
    content = node.content
    given = source.text(content.get("type"), f"one of {', '.join(_TYPES)}")
    states = content.get("states")
    if states is not None and source.mapping(states, "a mapping of states") is None:
        states = None
    has_states = bool(states is not None and states.value)
    if given is None:
        history = content["history"].value if "history" in content else None
        return "history" if history and not has_states else "state"
    if given not in _TYPES:
        hint = suggestion(given, _TYPES)
        source.error("state.type", f'unknown state type "{given}"', content["type"].location, hint)
        return "state"
    if has_states and given in ("atomic", "final", "history"):
        source.error("state.type", f"a state of type {given} cannot have states", content["type"].location)
    if not has_states and given in ("compound", "parallel"):
        source.error("state.type", f"a state of type {given} must have `states`", content["type"].location)
    return _TYPES[given]


def _transitions(source: XStateDefinition, node: XStateNode) -> tuple[Transition, ...]:
    content = node.content
    made = read_transitions(source, node, content.get("always"), "always")
    made += _after(source, node, content.get("after"))
    made += read_transitions(source, node, content.get("onDone"), "onDone")
    on = source.mapping(content["on"], "a mapping of events") if "on" in content else None
    replaced = _overwritten_events(node)
    for key in in_javascript_order(on or ()):
        json_node = content["on"]
        event = _descriptor(source, key, json_node)
        if event is None:
            continue
        if event in replaced:
            message = f'`{replaced[event]}` of this state overrides "{key}" in XState, so it is ignored'
            source.diagnostics.warning("transition.replaced", message, json_node.keys.get(key, json_node.location))
            continue
        assert isinstance(json_node.value, dict)
        made += read_transitions(source, node, json_node.value[key], "on", (event,))
    return made


def _overwritten_events(node: XStateNode) -> dict[str, str]:
    """Events whose `on` entry XState overrides, because the state handles them under another key."""
    found = {f"done.state.{node.id}": "onDone"} if "onDone" in node.content else {}
    for each in items(node.content["invoke"]) if "invoke" in node.content else []:
        content = each.value if isinstance(each.value, dict) else {}
        name = content["id"].value if "id" in content else None
        found |= {f"done.invoke.{name}": "onDone of an invoke"} if "onDone" in content else {}
        found |= {f"error.invoke.{name}": "onError of an invoke"} if "onError" in content else {}
    return found


def _descriptor(source: XStateDefinition, key: str, on: Node) -> str | None:
    location = on.keys.get(key, on.location)
    if not _DESCRIPTOR.fullmatch(key):
        hint = "write eventless transitions under `always`" if not key else None
        source.error(
            "name.invalid",
            f'"{key}" is not an event: expected dotted words without white space, comma, *, = or #',
            location,
            hint,
        )
        return None
    if is_version4_name(key):
        hint = 'XState 5 writes "xstate.done.actor.ID", "xstate.done.state.ID", "xstate.error.actor.ID"'
        source.error("event.reserved", f'"{key}" is an event name of XState 4, which is reserved', location, hint)
        return None
    event = from_xstate(key, source.ids)
    if event is None:
        source.diagnostics.warning("event.foreign", f'the event "{key}" does not exist here', location)
        return key
    return event


def _after(source: XStateDefinition, node: XStateNode, json_node: Node | None) -> tuple[Transition, ...]:
    content = source.mapping(json_node, "a mapping of delays") if json_node is not None else None
    made: tuple[Transition, ...] = ()
    for key in in_javascript_order(content or ()):
        assert json_node is not None
        assert content is not None
        location = json_node.keys.get(key, json_node.location)
        if key.startswith("="):
            delay = read_value(Node(key, location))
        elif _WHOLE.fullmatch(key):
            delay = format_duration(int(key))
        else:
            hint = 'write whole milliseconds, or "= expression"'
            source.error("delay.name", f'the delay "{key}" is a name, which JSON cannot define', location, hint)
            continue
        found = read_transitions(source, node, content[key], "after")
        made += tuple(each if each.delay is not None else replace(each, delay=delay) for each in found)
    return made


def read_transitions(
    source: XStateDefinition, node: XStateNode, json_node: Node | None, origin: Origin, events: tuple[str, ...] = ()
) -> tuple[Transition, ...]:
    """The transitions under one key: a target, a transition, or a list of them tried in order."""
    if json_node is None:
        return ()
    made = []
    for each in items(json_node):
        transition = _transition(source, node, each)
        if transition is not None:
            made.append(replace(transition, origin=origin, events=events))
    return tuple(made)


def _transition(source: XStateDefinition, node: XStateNode, json_node: Node) -> Transition | None:
    if json_node.value is None:
        hint = "to take the event without effect, write {}"
        source.error("transition.null", "XState does not accept null as a transition", json_node.location, hint)
        return None
    if isinstance(json_node.value, str):
        return Transition(targets=_targets(source, node, json_node)[0], location=json_node.location)
    content = source.mapping(json_node, "a target, a transition or a list of them")
    if content is None:
        return None
    source.report_unknown_keys(json_node, _TRANSITION_KEYS, "a transition")
    targets, inward = _targets(source, node, content["target"]) if "target" in content else ((), False)
    reenter = _flag(source, content.get("reenter"))
    made = Transition(
        targets=targets,
        guard=read_guard(source, node, content.get("guard")),
        actions=read_block(source, node, content.get("actions")),
        reenter=reenter if inward or not source.version4 else None,
        description=source.description(content),
        meta=_meta(source, content),
        location=json_node.location,
    )
    return extend_transition(source, read_extension(source, json_node), made)


def _targets(source: XStateDefinition, node: XStateNode, json_node: Node) -> tuple[tuple[str, ...], bool]:
    """The targets, and whether one of them is the source or inside it."""
    if json_node.value == "":
        return (), False
    found = [each for each in (source.target(node, each) for each in items(json_node)) if each is not None]
    if any(each.parent is None for each in found) and node.parent is not None:
        source.diagnostics.warning("xstate.root_target", ROOT_ENTERED, json_node.location)
    return tuple(f"#{each.id}" for each in found), any(each is node or each.is_below(node) for each in found)


def _flag(source: XStateDefinition, json_node: Node | None) -> bool | None:
    if json_node is None:
        return None
    if isinstance(json_node.value, bool):
        return json_node.value
    source.report_type(json_node, "true or false")
    return None


def _invokes(source: XStateDefinition, node: XStateNode) -> tuple[Invoke, ...]:
    json_node = node.content.get("invoke")
    made = [_invoke(source, node, each) for each in items(json_node)] if json_node is not None else []
    return tuple(each for each in made if each is not None)


def _invoke(source: XStateDefinition, node: XStateNode, json_node: Node) -> Invoke | None:
    content = source.mapping(json_node, "an invoke: {src, id, input, onDone, onError}")
    if content is None:
        return None
    if "onSnapshot" in content:
        hint = "send an event from the child instead"
        source.error(
            "invoke.snapshot",
            "snapshots of a child are not available to its parent",
            content["onSnapshot"].location,
            hint,
        )
    source.report_unknown_keys(json_node, (*_INVOKE_KEYS, "onSnapshot", "systemId"), "an invoke")
    if "systemId" in content:
        source.diagnostics.warning(
            "invoke.system_id", "`systemId` is not supported and is ignored", content["systemId"].location
        )
    src: str | Document | None = None
    inline = content.get("src")
    if inline is not None and isinstance(inline.value, dict) and "states" in inline.value:
        src = read_document(inline, name=source.name, diagnostics=source.diagnostics, version4=source.version4)
    else:
        src = source.text(inline, "the name of a handler or a chart")
    if inline is None:
        source.error("invoke.src", "the key `src` of this invoke is missing", json_node.location)
    made = Invoke(
        src=src,
        id=source.text(content.get("id"), "an id"),
        type="chart" if isinstance(src, Document) else "handler",
        input=read_value(content["input"]) if "input" in content else None,
        done=read_transitions(source, node, content.get("onDone"), "on"),
        error=read_transitions(source, node, content.get("onError"), "on"),
        location=json_node.location,
    )
    return extend_invoke(source, node, read_extension(source, json_node), made)


ROOT_ENTERED = "XState enters its root here without exiting it first; Interlock exits and enters it"


def read_initial(source: XStateDefinition, node: XStateNode, kind: StateType) -> Initial | None:
    """The initial transition of a compound state; None for other states, and with a diagnostic if it is invalid."""
    json_node = node.content.get("initial")
    if kind != "state" or not node.children:
        if json_node is not None:
            _report_useless_initial(source, node, json_node)
        return None
    if json_node is None:
        message = f'"{node.foreign_id}" has no initial state'
        hint = f'add "initial": "{next(iter(node.children))}"'
        source.error("initial.missing", message, node.written.location, hint)
        return None
    if isinstance(json_node.value, str):
        content = {"target": json_node}
    else:
        given = source.mapping(json_node, "a key or {target, actions}")
        if given is None:
            return None
        content = given
        source.report_unknown_keys(json_node, ("target", "actions", "description", "meta"), "an initial")
    key = source.text(content.get("target", json_node), "the key of a child")
    if key is None:
        return None
    if key not in node.children:
        message = f'"{key}" is not a child of "{node.foreign_id}"'
        source.error("target.unknown", message, json_node.location, suggestion(key, node.children))
        return None
    child = node.children[key]
    made = Initial(
        targets=(child.name,), actions=read_block(source, node, content.get("actions")), location=json_node.location
    )
    return extend_initial(source, read_extension(source, json_node), made)


def _report_useless_initial(source: XStateDefinition, node: XStateNode, json_node: Node) -> None:
    if isinstance(json_node.value, dict) and "actions" in json_node.value:
        message = "`initial` has actions, but the state has no initial child"
        source.error("initial.idle", message, json_node.location, "move them to `entry`")
    else:
        message = f'`initial` has no effect in "{node.foreign_id}", which is not a compound state'
        source.diagnostics.warning("initial.idle", message, json_node.location)


def read_history(source: XStateDefinition, node: XStateNode, made: State) -> State:
    """A history with its default: the initial state of its parent with its actions, or its parallel parent (X17)."""
    assert node.parent is not None
    given = node.content["history"].value if "history" in node.content else True
    if given not in (True, False, "shallow", "deep"):
        source.error("state.history", "`history` must be `shallow` or `deep`", node.content["history"].location)
    made = replace(made, history="deep" if given == "deep" else "shallow")
    json_node = node.content.get("target")
    if json_node is not None:
        found = [_default(source, node.parent, each) for each in items(json_node)]
        return replace(made, targets=tuple(f"#{each.id}" for each in found if each is not None))
    if node.parent.is_parallel:
        if node.parent.parent is None:
            source.diagnostics.warning("xstate.root_target", ROOT_ENTERED, node.written.location)
        return replace(made, targets=(f"#{node.parent.id}",))
    initial = node.parent.initial
    if initial is None:
        return made
    if initial.targets == (node.name,):
        message = "the initial state of the parent is this history, and its default is the initial state of the parent"
        source.error("history.cycle", message, node.written.location, "add a `target` to the history")
    initial_state = next((each for each in node.parent.children.values() if (each.name,) == initial.targets), None)
    # Only our extension allows deeper or several initial states; these targets mean the same in a history.
    return replace(
        made, targets=initial.targets if initial_state is None else (f"#{initial_state.id}",), actions=initial.actions
    )


def _default(source: XStateDefinition, parent: XStateNode, json_node: Node) -> XStateNode | None:
    text = source.text(json_node, "a target")
    if text is None:
        return None
    if text.startswith("."):
        source.error("target.unknown", f'"{text}": a history has no child states', json_node.location, "name a sibling")
        return None
    found = source.states.target(parent, text if text.startswith("#") else f".{text}")
    if isinstance(found, str):
        source.error("target.unknown", found, json_node.location)
        return None
    return found

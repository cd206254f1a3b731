"""Where a state begins: `initial` of a compound state, and the default of a history (X1, X17).

Rule 1: XState needs an `initial` in every compound state, and it names one direct child by key.
Rule 2: a history without target falls back to where its parent begins, with that content; in a parallel state, to that
state itself. The document says so in full.
"""

from __future__ import annotations

from dataclasses import replace

from interlock.definition.source.node import Located
from interlock.definition.xstate.extension import extra_initial, extra_of
from interlock.definition.xstate.nodes import Node
from interlock.definition.xstate.read_actions import block_of
from interlock.definition.xstate.source import Source, items
from interlock.model.diagnostics import Findings, suggestion
from interlock.model.document.document import Initial, State, StateType

ROOT_ENTERED = "XState enters its root here without leaving it first; here it is left and entered"


def initial_of(source: Source, node: Node, kind: StateType) -> Initial | None:
    """Where a state begins; None when it is not compound, and with a finding when that is not said well."""
    located = node.content.get("initial")
    if kind != "state" or not node.children:
        if located is not None:
            _idle_initial(source, node, located)
        return None
    if located is None:
        message = f'"{node.foreign_id}" does not say where it begins'
        hint = f'add "initial": "{next(iter(node.children))}"'
        source.error("initial.missing", message, node.written.place, hint)
        return None
    if isinstance(located.value, str):
        content = {"target": located}
    else:
        given = source.mapping(located, "a key or {target, actions}")
        if given is None:
            return None
        content = given
        source.unknown(located, ("target", "actions", "description", "meta"), "an initial")
    key = source.text(content.get("target", located), "the key of a child")
    if key is None:
        return None
    if key not in node.children:
        message = f'"{key}" is no child of "{node.foreign_id}"'
        source.error("target.unknown", message, located.place, suggestion(key, node.children))
        return None
    child = node.children[key]
    made = Initial(targets=(child.name,), actions=block_of(source, node, content.get("actions")), place=located.place)
    return extra_initial(source, extra_of(source, located), made)


def _idle_initial(source: Source, node: Node, located: Located) -> None:
    if isinstance(located.value, dict) and "actions" in located.value:
        message = "actions of `initial` stand in a state that has no initial child"
        source.error("initial.idle", message, located.place, "move them to `entry`")
    else:
        message = f'`initial` means nothing in "{node.foreign_id}": it is not a compound state'
        source.findings.warning("initial.idle", message, located.place)


def with_default(source: Source, node: Node, made: State) -> State:
    """A history with its default filled in: where its parent begins, with that content; or its parallel (X17)."""
    assert node.parent is not None
    said = node.content["history"].value if "history" in node.content else True
    if said not in (True, False, "shallow", "deep"):
        source.error("state.history", "history is `shallow` or `deep`", node.content["history"].place)
    made = replace(made, history="deep" if said == "deep" else "shallow")
    located = node.content.get("target")
    if located is not None:
        found = [_default(source, node.parent, each) for each in items(located)]
        return replace(made, targets=tuple(f"#{each.id}" for each in found if each is not None))
    if node.parent.is_parallel:
        if node.parent.parent is None:
            source.findings.warning("xstate.root_target", ROOT_ENTERED, node.written.place)
        return replace(made, targets=(f"#{node.parent.id}",))
    silent = Source(Findings(), source.states, source.name, source.four, source.assigns, source.ids)
    initial = initial_of(silent, node.parent, "state")
    if initial is None:
        return made
    if initial.targets == (node.name,):
        message = "the parent begins in this history, and this history falls back to where the parent begins"
        source.error("history.cycle", message, node.written.place, "give the history a `target`")
    begin = next((each for each in node.parent.children.values() if (each.name,) == initial.targets), None)
    # Only our own extension lets a state begin deeper, or in several; such targets mean the same in a history of it.
    return replace(made, targets=initial.targets if begin is None else (f"#{begin.id}",), actions=initial.actions)


def _default(source: Source, parent: Node, located: Located) -> Node | None:
    text = source.text(located, "a target")
    if text is None:
        return None
    if text.startswith("."):
        source.error("target.unknown", f'"{text}": a history has no states in it', located.place, "name a sibling")
        return None
    found = source.states.target(parent, text if text.startswith("#") else f".{text}")
    if isinstance(found, str):
        source.error("target.unknown", found, located.place)
        return None
    return found

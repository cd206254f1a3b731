"""Keys that XState does not have: `meta.interlock`, read by the types of the model (`extension_json.py`).

Rule 1: its keys are the fields of the model that the table of the vocabulary does not mark as native to XState. Guards
        and actions in it are written as everywhere in an XState definition, targets as in YAML.
Rule 2: `assigns` of the root lists the named actions that write the context; `fields` types the context.
Rule 3: an invalid value is reported at its place and counts as absent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from interlock.definition import extension_json
from interlock.definition.codec import read_value
from interlock.definition.shapes import Record, extras
from interlock.definition.source.node import Node
from interlock.definition.vocabulary.chart import DOCUMENT, STATE
from interlock.definition.vocabulary.parts import INVOKE, TRANSITION
from interlock.definition.xstate.read_actions import read_action, read_guard
from interlock.definition.xstate.source import XStateDefinition, XStateNode
from interlock.model.diagnostics import suggestion
from interlock.model.document.document import Document, Initial, Invoke, State, Transition
from interlock.model.document.field import Field

T = TypeVar("T")


def _fields(record: Record) -> tuple[str, ...]:
    return tuple(each.attribute for each in extras(record, "xstate"))


STATE_FIELDS = _fields(STATE)
TRANSITION_FIELDS = _fields(TRANSITION)
INVOKE_FIELDS = _fields(INVOKE)
DOCUMENT_FIELDS = _fields(DOCUMENT)
BLOCK_KEYS = ("entry", "exit")
_ROOT_KEYS = ("assigns", "fields", *DOCUMENT_FIELDS)


def read_extension(source: XStateDefinition, json_node: Node) -> Mapping[str, Node]:
    """The keys of `meta.interlock` of a state, a transition, an invoke or an initial."""
    content = json_node.value if isinstance(json_node.value, dict) else {}
    meta = content["meta"].value if "meta" in content else None
    if not isinstance(meta, dict) or "interlock" not in meta:
        return {}
    return source.mapping(meta["interlock"], "a mapping") or {}


def extend_state(source: XStateDefinition, node: XStateNode, extra: Mapping[str, Node], state: State) -> State:
    """The state with what `meta.interlock` adds to it."""
    _known_keys(source, extra, (*STATE_FIELDS, *BLOCK_KEYS, *(_ROOT_KEYS if node.parent is None else ())))
    state = _with_fields(source, node, extra, state, STATE_FIELDS)
    for key in BLOCK_KEYS:
        if key in extra:
            cut: Any = {key: _split(source, extra[key], getattr(state, key))}
            state = replace(state, **cut)
    return state


def extend_initial(source: XStateDefinition, extra: Mapping[str, Node], initial: Initial) -> Initial:
    """The initial with all of its targets; XState can name one direct child only."""
    _known_keys(source, extra, ("targets",))
    return _with_fields(source, source.states.root, extra, initial, ("targets",))


def extend_transition(source: XStateDefinition, extra: Mapping[str, Node], transition: Transition) -> Transition:
    """The transition with roles and the policy of its timer."""
    known = (*TRANSITION_FIELDS, "delay")
    _known_keys(source, extra, known)
    return _with_fields(source, source.states.root, extra, transition, known)


def extend_invoke(source: XStateDefinition, node: XStateNode, extra: Mapping[str, Node], invoke: Invoke) -> Invoke:
    """The invoke with its retry policy, timeout and other keys that XState does not have."""
    _known_keys(source, extra, (*INVOKE_FIELDS, "src"))
    if "src" in extra:
        invoke = replace(invoke, src=read_value(extra["src"]))
    return _with_fields(source, node, extra, invoke, INVOKE_FIELDS)


def extend_document(source: XStateDefinition, extra: Mapping[str, Node], document: Document) -> Document:
    """The document with the keys of the chart, and with types for the fields of its context."""
    document = _with_fields(source, source.states.root, extra, document, DOCUMENT_FIELDS)
    if "fields" in extra:
        typed = _read_field(source, source.states.root, extra["fields"], tuple[Field, ...]) or ()
        known = {each.name: each for each in document.root.context}
        made = [replace(each, default=known[each.name].default) if each.name in known else each for each in typed]
        names = {each.name for each in typed}
        rest = [each for each in document.root.context if each.name not in names]
        document = replace(document, root=replace(document.root, context=(*made, *rest)))
    return document


def _known_keys(source: XStateDefinition, extra: Mapping[str, Node], known: tuple[str, ...]) -> None:
    for key, each in extra.items():
        if key not in known:
            message = f'unknown key "{key}" in `meta.interlock`'
            source.diagnostics.warning("key.unknown", message, each.location, suggestion(key, known))


def _with_fields(
    source: XStateDefinition, node: XStateNode, extra: Mapping[str, Node], made: T, names: tuple[str, ...]
) -> T:
    for name in names:
        if name in extra:
            value = _read_field(source, node, extra[name], extension_json.type_hints(type(made))[name])
            if value is not None:
                made = replace(made, **{name: value})  # type: ignore[type-var]  # every caller gives a dataclass
    return made


def _split(source: XStateDefinition, json_node: Node, blocks: tuple[Any, ...]) -> tuple[Any, ...]:
    """The single block of XState, split into blocks of these lengths."""
    sizes = _read_field(source, source.states.root, json_node, tuple[int, ...])
    actions = blocks[0] if blocks else ()
    if sizes is None or sum(sizes) != len(actions) or min(sizes, default=0) < 0:
        source.error("interlock.blocks", "the lengths of the blocks do not match the actions", json_node.location)
        return blocks
    cut, start = [], 0
    for size in sizes:
        cut.append(actions[start : start + size])
        start += size
    return tuple(cut)


def _read_field(source: XStateDefinition, node: XStateNode, json_node: Node, hint: Any) -> Any:
    """The value of this type; None, and a diagnostic, if it is invalid."""
    try:
        return extension_json.read(json_node, hint, _leaves(source, node))
    except extension_json.WrongValueError as wrong:
        source.report_type(wrong.node, wrong.expected)
        return None


def _leaves(source: XStateDefinition, node: XStateNode) -> extension_json.Leaves:
    def unknown(key: str, json_node: Node, known: Iterable[str]) -> None:
        source.error("key.unknown", f'unknown key "{key}"', json_node.location, suggestion(key, known))

    return extension_json.Leaves(
        read_guard=lambda json_node: read_guard(source, node, json_node),
        read_action=lambda json_node: read_action(source, node, json_node),
        unknown=unknown,
    )

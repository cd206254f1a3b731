"""What XState has no key for: `meta.interlock`, read by the types of the model itself.

Rule 1: its keys are the field names of `model/document/document.py`, its shapes their types; guards and actions
in it are written as everywhere in an XState definition, targets as in YAML.
Rule 2: `assigns` of the root lists the named actions that write the context; `fields` types the context.
Rule 3: a wrong value is a finding at its place and counts as absent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass, replace
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from interlock.definition.source.node import Located
from interlock.definition.xstate.nodes import Node
from interlock.definition.xstate.read_actions import action_of, guard_of
from interlock.definition.xstate.source import Source, value_of
from interlock.model.diagnostics import suggestion
from interlock.model.document.actions import Do, Expression, GuardName
from interlock.model.document.document import Document, Initial, Invoke, State, Transition
from interlock.model.document.field import Field

T = TypeVar("T")

STATE_FIELDS = ("context", "saga", "expect", "sensitive", "monotonic", "allow", "actions")
TRANSITION_FIELDS = ("restore", "roles", "delay")
INVOKE_FIELDS = ("type", "id_location", "autoforward", "finalize", "retry", "timeout", "key", "restore", "src")
DOCUMENT_FIELDS = ("compatible", "unhandled", "errors", "binding", "events", "script", "properties", "renamed")
BLOCK_KEYS = ("entry", "exit")
_ROOT_KEYS = ("assigns", "fields", *DOCUMENT_FIELDS)
_HINTS: dict[type[Any], dict[str, Any]] = {}
_SCALARS: dict[Any, str] = {str: "a text", bool: "true or false", int: "a whole number", float: "a number"}


class _WrongError(Exception):
    """A value that its type refuses."""

    def __init__(self, located: Located, wish: str) -> None:
        super().__init__(wish)
        self.located = located
        self.wish = wish


def type_hints(made: type[Any]) -> dict[str, Any]:
    """The types of a dataclass's fields; looked up once for each of the few classes, because that is slow."""
    if made not in _HINTS:
        _HINTS[made] = get_type_hints(made)
    return _HINTS[made]


def extra_of(source: Source, located: Located) -> Mapping[str, Located]:
    """The keys of `meta.interlock` of a state, a transition, an invoke or an initial."""
    content = located.value if isinstance(located.value, dict) else {}
    meta = content["meta"].value if "meta" in content else None
    if not isinstance(meta, dict) or "interlock" not in meta:
        return {}
    return source.mapping(meta["interlock"], "a mapping") or {}


def extra_state(source: Source, node: Node, extra: Mapping[str, Located], state: State) -> State:
    """The state with what `meta.interlock` adds to it."""
    _known(source, extra, (*STATE_FIELDS, *BLOCK_KEYS, *(_ROOT_KEYS if node.parent is None else ())))
    state = _filled(source, node, extra, state, STATE_FIELDS)
    for key in BLOCK_KEYS:
        if key in extra:
            cut: Any = {key: _split(source, extra[key], getattr(state, key))}
            state = replace(state, **cut)
    return state


def extra_initial(source: Source, extra: Mapping[str, Located], initial: Initial) -> Initial:
    """The initial with all of its targets, where XState can name one direct child only."""
    _known(source, extra, ("targets",))
    return _filled(source, source.states.root, extra, initial, ("targets",))


def extra_transition(source: Source, extra: Mapping[str, Located], transition: Transition) -> Transition:
    """The transition with roles and the policy of its timer."""
    _known(source, extra, TRANSITION_FIELDS)
    return _filled(source, source.states.root, extra, transition, TRANSITION_FIELDS)


def extra_invoke(source: Source, node: Node, extra: Mapping[str, Located], invoke: Invoke) -> Invoke:
    """The invoke with what the dispatcher and SCXML know about it."""
    _known(source, extra, INVOKE_FIELDS)
    if "src" in extra:
        invoke = replace(invoke, src=value_of(extra["src"]))
    return _filled(source, node, extra, invoke, INVOKE_FIELDS[:-1])


def extra_document(source: Source, extra: Mapping[str, Located], document: Document) -> Document:
    """The document with what is said once for the chart, and types for the fields of its context."""
    document = _filled(source, source.states.root, extra, document, DOCUMENT_FIELDS)
    if "fields" in extra:
        typed = _decoded(source, source.states.root, extra["fields"], tuple[Field, ...]) or ()
        known = {each.name: each for each in document.root.context}
        made = [replace(each, default=known[each.name].default) if each.name in known else each for each in typed]
        names = {each.name for each in typed}
        rest = [each for each in document.root.context if each.name not in names]
        document = replace(document, root=replace(document.root, context=(*made, *rest)))
    return document


def _known(source: Source, extra: Mapping[str, Located], known: tuple[str, ...]) -> None:
    for key, each in extra.items():
        if key not in known:
            message = f'"{key}" means nothing in this `meta.interlock`'
            source.findings.warning("key.unknown", message, each.place, suggestion(key, known))


def _filled(source: Source, node: Node, extra: Mapping[str, Located], made: T, names: tuple[str, ...]) -> T:
    for name in names:
        if name in extra:
            value = _decoded(source, node, extra[name], type_hints(type(made))[name])
            if value is not None:
                made = replace(made, **{name: value})  # type: ignore[type-var]  # every caller gives a dataclass
    return made


def _split(source: Source, located: Located, blocks: tuple[Any, ...]) -> tuple[Any, ...]:
    """The one block that XState has, cut again into blocks of these lengths."""
    sizes = _decoded(source, source.states.root, located, tuple[int, ...])
    actions = blocks[0] if blocks else ()
    if sizes is None or sum(sizes) != len(actions) or min(sizes, default=0) < 0:
        source.error("interlock.blocks", "the lengths of the blocks do not fit the actions", located.place)
        return blocks
    cut, start = [], 0
    for size in sizes:
        cut.append(actions[start : start + size])
        start += size
    return tuple(cut)


def _decoded(source: Source, node: Node, located: Located, hint: Any) -> Any:
    try:
        return _as(source, node, located, hint)
    except _WrongError as wrong:
        source.wrong(wrong.located, wrong.wish)
        return None


def _as(source: Source, node: Node, located: Located, hint: Any) -> Any:
    """The value as the type says; raises _WrongError."""
    if hint is Any:
        return value_of(located)
    if hint in _SCALARS:
        return _scalar(located, hint)
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Literal:
        if located.value not in arguments:
            raise _WrongError(located, " or ".join(map(repr, arguments)))
        return located.value
    if origin is tuple:
        return _tuple(source, node, located, arguments)
    if origin in (Union, UnionType):
        return _union(source, node, located, arguments)
    if hint is Expression:
        return _expression(located)
    return _record(source, node, located, hint)


def _scalar(located: Located, hint: Any) -> Any:
    value = located.value
    wanted = (int, float) if hint is float else hint
    if not isinstance(value, wanted) or (isinstance(value, bool) and hint is not bool):
        raise _WrongError(located, _SCALARS[hint])
    return value


def _expression(located: Located) -> Expression:
    value = value_of(located)
    if not isinstance(value, Expression):
        raise _WrongError(located, 'an expression, "= ..."')
    return value


def _tuple(source: Source, node: Node, located: Located, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    if not isinstance(located.value, list):
        raise _WrongError(located, "a list")
    if arguments[-1] is not Ellipsis:
        if len(located.value) != len(arguments):
            raise _WrongError(located, f"a list of {len(arguments)}")
        return tuple(_as(source, node, each, hint) for each, hint in zip(located.value, arguments, strict=True))
    return tuple(_as(source, node, each, arguments[0]) for each in located.value)


def _union(source: Source, node: Node, located: Located, choices: tuple[Any, ...]) -> Any:
    if GuardName in choices:
        guard = guard_of(source, node, located)
        if guard is None:
            raise _WrongError(located, "a guard")
        return guard
    if Do in choices:
        action = action_of(source, node, located)
        if action is None:
            raise _WrongError(located, "an action")
        return action
    refused: _WrongError | None = None
    for choice in choices:
        if choice is NoneType:
            continue
        try:
            return _as(source, node, located, choice)
        except _WrongError as wrong:
            refused = wrong
    assert refused is not None
    raise refused


def _record(source: Source, node: Node, located: Located, hint: Any) -> Any:
    assert is_dataclass(hint)
    assert isinstance(hint, type)
    if not isinstance(located.value, dict):
        raise _WrongError(located, "a mapping")
    hints = {key: each for key, each in type_hints(hint).items() if key != "place"}
    for key, each in located.value.items():
        if key not in hints:
            wish = suggestion(key, hints)
            source.error("key.unknown", f'"{key}" means nothing here', each.place, wish)
    said = {key: _as(source, node, each, hints[key]) for key, each in located.value.items() if key in hints}
    missing = [each.name for each in fields(hint) if each.default is MISSING and each.name not in said]
    if missing:
        raise _WrongError(located, f"a mapping with {' and '.join(missing)}")
    made = hint(**said)
    return replace(made, place=located.place) if any(each.name == "place" for each in fields(hint)) else made

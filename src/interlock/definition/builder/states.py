"""States of the Python builder: compound, parallel, final and history.

Rule 1: ordered and repeated parts of a state are positional (transitions, invokes); the others are keywords.
Rule 2: a state's transitions are ordered as in YAML: `always`, `after`, `on_done`, then `on`, then `transition`, each
        in the order written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias

from interlock.definition.builder.actions import Actions, Blocks, read_block
from interlock.definition.builder.transitions import read_initial, read_targets
from interlock.definition.builder.values import (
    FieldPart,
    Json,
    Texts,
    caller_location,
    context_fields,
    definition_error,
    items,
    literal,
    optional_text,
    optional_texts,
    text,
    texts,
    usage_error,
    value,
)
from interlock.definition.shapes import Text
from interlock.definition.vocabulary.names import (
    DURATION,
    DURATION_PATTERN,
    EVENT,
    FIELD_PATH,
    ID,
    KEY,
    NAME,
    TARGET,
    TEXT,
)
from interlock.model.document.actions import Block
from interlock.model.document.document import (
    TRANSITION_ORDER,
    Expect,
    Initial,
    Invoke,
    Saga,
    Sensitive,
    State,
    Transition,
)

Part: TypeAlias = Transition | Invoke
"""An ordered part of a state."""

_WITHIN = Text(
    what="a duration or forever",
    pattern=f"forever|{DURATION_PATTERN}",
    code=DURATION.code,
    hint=DURATION.hint,
)


def expect(within: str, *, then: str = "alert") -> Expect:
    """Return when an entity counts as stuck here: after a duration, or never (`forever`).

    `then` is `alert`, or an event that a worker sends to the entity once while it is in the state.
    """
    return Expect(within=text(within, _WITHIN, "`within`"), then=text(then, EVENT, "`then`"))


def sensitive(neutral: str | None = None, *, fields: Texts = (), roles: Texts | None = None) -> Sensitive:
    """Return that the state itself is hidden and these fields are masked.

    Others see the state before instead, which `neutral` names if it is always the same. `roles` see the hidden state,
    and may enter and leave it.
    """
    return Sensitive(
        fields=texts(fields, FIELD_PATH, "a field"),
        hidden=True,
        neutral=optional_text(neutral, NAME, "the neutral name"),
        roles=optional_texts(roles, NAME, "a role"),
    )


def state(
    key: str,
    *parts: Part,
    id: str | None = None,
    description: str | None = None,
    context: Sequence[FieldPart] = (),
    entry: Actions | Blocks = (),
    exit: Actions | Blocks = (),
    saga: Saga | None = None,
    expect: str | Expect | None = None,
    sensitive: Texts | Sensitive | None = None,
    monotonic: Sequence[str] | Literal[True] | None = None,
    allow: Mapping[str, str] | None = None,
    tags: Texts = (),
    meta: Json = None,
    initial: Texts | Initial | None = None,
    states: Sequence[State] = (),
) -> State:
    """Return a state: compound if it has states inside, else atomic."""
    transitions, invokes = split_parts(parts, key)
    return State(
        key=text(key, KEY, "a state's key"),
        id=optional_text(id, ID, "an id"),
        initial=read_initial(initial),
        states=read_states(states, f'the states of "{key}"'),
        transitions=transitions,
        entry=_blocks(entry),
        exit=_blocks(exit),
        invokes=invokes,
        context=context_fields(context),
        saga=_saga(saga),
        expect=_expect(expect),
        sensitive=read_sensitive(sensitive),
        monotonic=read_monotonic(monotonic),
        allow=read_allow(allow),
        description=optional_text(description, TEXT, "a description"),
        tags=texts(tags, TEXT, "a tag"),
        meta=literal(meta, "`meta`"),
        location=caller_location(),
    )


def parallel(
    key: str,
    *parts: Part,
    id: str | None = None,
    description: str | None = None,
    context: Sequence[FieldPart] = (),
    entry: Actions | Blocks = (),
    exit: Actions | Blocks = (),
    expect: str | Expect | None = None,
    sensitive: Texts | Sensitive | None = None,
    allow: Mapping[str, str] | None = None,
    tags: Texts = (),
    meta: Json = None,
    states: Sequence[State] = (),
) -> State:
    """Return a parallel state: each of its states is a region, and all are active together."""
    transitions, invokes = split_parts(parts, key)
    return State(
        key=text(key, KEY, "a state's key"),
        id=optional_text(id, ID, "an id"),
        type="parallel",
        states=read_states(states, f'the regions of "{key}"'),
        transitions=transitions,
        entry=_blocks(entry),
        exit=_blocks(exit),
        invokes=invokes,
        context=context_fields(context),
        expect=_expect(expect),
        sensitive=read_sensitive(sensitive),
        allow=read_allow(allow),
        description=optional_text(description, TEXT, "a description"),
        tags=texts(tags, TEXT, "a tag"),
        meta=literal(meta, "`meta`"),
        location=caller_location(),
    )


def final(
    key: str,
    *parts: Transition,
    output: Json = None,
    id: str | None = None,
    description: str | None = None,
    entry: Actions | Blocks = (),
    exit: Actions | Blocks = (),
    expect: str | Expect | None = None,
    sensitive: Texts | Sensitive | None = None,
    allow: Mapping[str, str] | None = None,
    tags: Texts = (),
    meta: Json = None,
) -> State:
    """Return a final state; `output` is the value of the done event."""
    transitions, invokes = split_parts(parts, key)
    if invokes:
        raise definition_error(
            "invoke.place", f'the final state "{key}" cannot have an invoke', "move the invoke to the state before it"
        )
    return State(
        key=text(key, KEY, "a state's key"),
        id=optional_text(id, ID, "an id"),
        type="final",
        transitions=transitions,
        entry=_blocks(entry),
        exit=_blocks(exit),
        output=value(output, "the output"),
        expect=_expect(expect),
        sensitive=read_sensitive(sensitive),
        allow=read_allow(allow),
        description=optional_text(description, TEXT, "a description"),
        tags=texts(tags, TEXT, "a tag"),
        meta=literal(meta, "`meta`"),
        location=caller_location(),
    )


def history(
    key: str,
    target: Texts | None = None,
    *,
    actions: Actions = (),
    id: str | None = None,
    description: str | None = None,
    allow: Mapping[str, str] | None = None,
    tags: Texts = (),
    meta: Json = None,
) -> State:
    """Return a history state: it leads to the child that was active last, before that to `target`."""
    return _history("shallow", key, target, actions, id, description, allow, tags, meta)


def deep_history(
    key: str,
    target: Texts | None = None,
    *,
    actions: Actions = (),
    id: str | None = None,
    description: str | None = None,
    allow: Mapping[str, str] | None = None,
    tags: Texts = (),
    meta: Json = None,
) -> State:
    """Return a history state: it leads to the atomic states that were active last, before that to `target`."""
    return _history("deep", key, target, actions, id, description, allow, tags, meta)


def _history(
    depth: Literal["shallow", "deep"],
    key: str,
    target: Texts | None,
    actions: Actions,
    id: str | None,
    description: str | None,
    allow: Mapping[str, str] | None,
    tags: Texts,
    meta: Json,
) -> State:
    return State(
        key=text(key, KEY, "a state's key"),
        id=optional_text(id, ID, "an id"),
        type="history",
        history=depth,
        targets=read_targets(target),
        actions=read_block(actions),
        allow=read_allow(allow),
        description=optional_text(description, TEXT, "a description"),
        tags=texts(tags, TEXT, "a tag"),
        meta=literal(meta, "`meta`"),
        location=caller_location(),
    )


def split_parts(parts: Sequence[Part], key: str) -> tuple[tuple[Transition, ...], tuple[Invoke, ...]]:
    """The transitions, in the order in which they are tried, and the invokes."""
    transitions, invokes = [], []
    for each in parts:
        match each:
            case Transition():
                transitions.append(each)
            case Invoke():
                invokes.append(each)
            case State():
                raise definition_error(
                    "state.place", f'the state "{each.key}" is a positional part of "{key}"', "add states=[...]"
                )
            case _:
                raise usage_error(f'each part of "{key}"', "a transition or an invoke", each)
    return tuple(sorted(transitions, key=lambda each: TRANSITION_ORDER[each.origin])), tuple(invokes)


def read_states(given: Sequence[State], what: str) -> tuple[State, ...]:
    """Child states with unique keys."""
    states: dict[str, State] = {}
    for each in items(given, what):
        if not isinstance(each, State):
            raise usage_error(f"each of {what}", "a state", each)
        if each.key in states:
            raise definition_error("key.duplicate", f'{what} contain two states "{each.key}"')
        states[each.key] = each
    return tuple(states.values())


def read_sensitive(given: Texts | Sensitive | None) -> Sensitive | None:
    """Masked fields: a list of fields, or the result of `sensitive`."""
    if given is None or isinstance(given, Sensitive):
        return given
    return Sensitive(fields=texts(given, FIELD_PATH, "a sensitive field"))


def read_monotonic(given: Sequence[str] | Literal[True] | None) -> tuple[str, ...] | Literal[True] | None:
    """States that are never left backwards; True: the children in order."""
    return given if given is None or given is True else texts(given, TARGET, "a monotonic state")


def read_allow(given: Mapping[str, str] | None) -> tuple[tuple[str, str], ...]:
    """Silenced lints and the reasons."""
    if given is None:
        return ()
    if not isinstance(given, Mapping):
        raise usage_error("`allow`", "a mapping of lint codes to reasons", given)
    return tuple((text(code, NAME, "a lint code"), text(why, NAME, "a reason")) for code, why in given.items())


def _saga(given: Saga | None) -> Saga | None:
    if given is not None and not isinstance(given, Saga):
        raise usage_error("`saga`", "the result of `saga`", given)
    return given


def _expect(given: str | Expect | None) -> Expect | None:
    return given if given is None or isinstance(given, Expect) else expect(given)


def _blocks(given: Actions | Blocks) -> tuple[Block, ...]:
    """One block, or the result of `blocks`; no actions are no block."""
    if isinstance(given, Blocks):
        return given.blocks
    block = read_block(given)
    return (block,) if block else ()

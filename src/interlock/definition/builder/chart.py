"""The whole chart of the Python builder: declared events and the root.

Rule 1: an invalid call raises at the call; problems of the whole chart are reported by the compiler.
Rule 2: places have the path of keys that a diagnostic of the YAML reader would show.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Literal

from interlock.definition.builder.states import read_allow, read_monotonic, read_sensitive, read_states, split_parts
from interlock.definition.builder.transitions import read_initial
from interlock.definition.builder.values import (
    FieldPart,
    Json,
    Texts,
    caller_location,
    choice,
    context_fields,
    definition_error,
    items,
    literal,
    optional_text,
    optional_texts,
    payload_fields,
    text,
    texts,
    usage_error,
    value,
)
from interlock.definition.shapes import Text
from interlock.definition.source.node import key_path
from interlock.definition.vocabulary.names import ARCHIVE, DAY, DURATION, EVENT, FIELD, ID, KIND, NAME, TEXT
from interlock.model.document.actions import Block, Expression
from interlock.model.document.document import (
    Access,
    Approvals,
    DialectName,
    Document,
    EventType,
    Initial,
    Removed,
    Retention,
    Sensitive,
    State,
    Transition,
)
from interlock.model.document.walk import rewrite_block, rewrite_guard
from interlock.model.limits import DEPTH_MAX


def event(
    name: str,
    *,
    payload: Sequence[FieldPart] | None = None,
    roles: Texts | None = None,
    permit: Expression | None = None,
    approvals: Approvals | None = None,
    dedupe: Json = None,
    direction: Literal["in", "internal", "out"] = "in",
    description: str | None = None,
) -> EventType:
    """Return a declared event. Without `payload` any payload is accepted; with it exactly these fields."""
    if approvals is not None and not isinstance(approvals, Approvals):
        raise usage_error("`approvals`", "the result of `approvals`", approvals)
    return EventType(
        name=text(name, EVENT, "an event"),
        payload=None if payload is None else payload_fields(payload),
        roles=optional_texts(roles, NAME, "a role"),
        permit=_permit(permit),
        approvals=approvals,
        dedupe=value(dedupe, "`dedupe`"),
        direction=choice(direction, ("in", "internal", "out"), "`direction`"),
        description=optional_text(description, TEXT, "a description"),
        location=caller_location(),
    )


def approvals(
    of: str,
    *,
    count: int = 1,
    without: Texts = (),
    since: str | None = None,
    within: str | None = None,
) -> Approvals:
    """Return the approvals that an event needs: `count` users who sent the event `of`, for `event(approvals=...)`.

    `without` is the key `not` of the vocabulary: who sent one of these events cannot approve.
    """
    if type(count) is not int or count < 1:
        raise usage_error("`count`", "an integer of 1 or more", count)
    return Approvals(
        of=text(of, EVENT, "an event"),
        count=count,
        without=texts(without, EVENT, "an event"),
        since=optional_text(since, EVENT, "an event"),
        within=optional_text(within, DURATION, "a duration"),
        location=caller_location(),
    )


def access(*, roles: Texts | None = None, permit: Expression | None = None, owner: str | None = None) -> Access:
    """Return who may create or read entities, for `chart(create=..., read=...)`. Only reading has an `owner`."""
    return Access(
        roles=optional_texts(roles, NAME, "a role"),
        permit=_permit(permit),
        owner=optional_text(owner, FIELD, "a field"),
        location=caller_location(),
    )


def _permit(given: Expression | None) -> Expression | None:
    if given is not None and not isinstance(given, Expression):
        raise usage_error("`permit`", "an expression", given)
    return given


def _access(given: Access | None, name: str) -> Access | None:
    if given is not None and not isinstance(given, Access):
        raise usage_error(name, "the result of `access`", given)
    return given


def chart(
    kind: str,
    *parts: Transition,
    revision: str | None = None,
    compatible: str | None = None,
    upgrade: Literal["pinned", "safe"] | None = None,
    description: str | None = None,
    dialect: DialectName = "interlock",
    unhandled: Literal["reject", "ignore", "defer"] | None = None,
    errors: Literal["event", "raise"] | None = None,
    binding: Literal["early", "late"] = "early",
    context: Sequence[FieldPart] = (),
    create: Access | None = None,
    read: Access | None = None,
    events: Sequence[EventType] | None = None,
    script: str | None = None,
    sensitive: Texts | Sensitive | None = None,
    monotonic: Sequence[str] | Literal[True] | None = None,
    properties: Json = None,
    renamed: Mapping[str, str] | None = None,
    removed: Mapping[str, Mapping[str, str]] | None = None,
    retention: Mapping[str, str] | None = None,
    allow: Mapping[str, str] | None = None,
    id: str | None = None,
    tags: Texts = (),
    meta: Json = None,
    type: Literal["parallel"] | None = None,
    initial: Texts | Initial | None = None,
    states: Sequence[State] = (),
) -> Document:
    """The chart: its name, what holds for all of it, and its states. Positional are the root's own transitions.

    `interlock.load` compiles it and raises DefinitionError with everything that only the whole chart can show.

    >>> door = chart("door", states=[
    ...     state("closed", on("pushed", "open")),
    ...     state("open", on("pulled", "closed"), after("30s", "closed")),
    ... ])
    >>> [each.key for each in door.root.states]
    ['closed', 'open']
    """
    inner = read_states(states, f'the states of "{kind}"')
    if not inner:
        raise definition_error("value.empty", f'chart "{kind}" has no states', "add states=[...]")
    root = State(
        id=optional_text(id, ID, "an id"),
        type="state" if choice(type, (None, "parallel"), "`type`") is None else "parallel",
        initial=read_initial(initial),
        states=inner,
        transitions=_root_transitions(parts, kind),
        context=context_fields(context),
        sensitive=read_sensitive(sensitive),
        monotonic=read_monotonic(monotonic),
        allow=read_allow(allow),
        description=optional_text(description, TEXT, "a description"),
        tags=texts(tags, TEXT, "a tag"),
        meta=literal(meta, "`meta`"),
        location=caller_location(),
    )
    return Document(
        kind=text(kind, KIND, "the kind of a chart"),
        root=_with_paths(root, "", 0),
        revision=optional_text(revision, TEXT, "the revision"),
        compatible=optional_text(compatible, TEXT, "`compatible`"),
        upgrade=choice(upgrade, (None, "pinned", "safe"), "`upgrade`"),
        dialect=choice(dialect, ("interlock", "scxml", "xstate"), "`dialect`"),
        unhandled=choice(unhandled, (None, "reject", "ignore", "defer"), "`unhandled`"),
        errors=choice(errors, (None, "event", "raise"), "`errors`"),
        binding=choice(binding, ("early", "late"), "`binding`"),
        create=_access(create, "`create`"),
        read=_access(read, "`read`"),
        events=None if events is None else _events(events),
        script=optional_text(script, TEXT, "the script"),
        properties=literal(properties, "`properties`"),
        renamed=_names(renamed, "`renamed`", "old ids to new ones", (ID, "an old id"), (ID, "a new id")),
        removed=_removed(removed),
        retention=_retention(retention),
        source=root.location.file,
    )


def _root_transitions(parts: Sequence[Transition], kind: str) -> tuple[Transition, ...]:
    transitions, invokes = split_parts(parts, kind)
    if invokes or any(each.origin == "onDone" for each in transitions):
        message = "the root can only have `on`, `always`, `after` and `transition`"
        raise definition_error("state.place", message, "move it into a state")
    return transitions


def _events(given: Sequence[EventType]) -> tuple[EventType, ...]:
    events: dict[str, EventType] = {}
    for each in items(given, "the events"):
        if not isinstance(each, EventType):
            raise usage_error("each of the events", "the result of `event`", each)
        if each.name in events:
            raise definition_error("key.duplicate", f'the event "{each.name}" is declared twice')
        events[each.name] = each
    return tuple(events.values())


def _names(
    given: Mapping[str, str] | None, name: str, content: str, key: tuple[Text, str], value: tuple[Text, str]
) -> tuple[tuple[str, str], ...]:
    """The pairs of a mapping of texts; `key` and `value` describe each pair."""
    if given is None:
        return ()
    if not isinstance(given, Mapping):
        raise usage_error(name, f"a mapping of {content}", given)
    return tuple((text(one, *key), text(other, *value)) for one, other in given.items())


def _removed(given: Mapping[str, Mapping[str, str]] | None) -> Removed | None:
    if given is None:
        return None
    if not isinstance(given, Mapping):
        raise usage_error("`removed`", "a mapping with `states` and `events`", given)
    unknown = [each for each in given if each not in ("states", "events")]
    if unknown:
        raise definition_error("key.unknown", f"`removed` has the unknown key {unknown[0]!r:.80}")
    day = (DAY, "a day")
    return Removed(
        states=_names(given.get("states"), "`removed.states`", "state ids to days", (ID, "a state id"), day),
        events=_names(given.get("events"), "`removed.events`", "events to days", (EVENT, "an event"), day),
    )


def _retention(given: Mapping[str, str] | None) -> Retention | None:
    if given is None:
        return None
    if not isinstance(given, Mapping):
        raise usage_error("`retention`", "a mapping with `ended`, `entries` and `archive`", given)
    unknown = [each for each in given if each not in ("ended", "entries", "archive")]
    if unknown:
        raise definition_error("key.unknown", f"`retention` has the unknown key {unknown[0]!r:.80}")
    return Retention(
        ended=optional_text(given.get("ended"), DURATION, "a duration"),
        entries=optional_text(given.get("entries"), DURATION, "a duration"),
        archive=optional_text(given.get("archive"), ARCHIVE, "the address of an archive"),
        location=caller_location(),
    )


def _with_paths(state: State, path: str, depth: int) -> State:
    """The state with the path of keys in all its places, as a diagnostic of the YAML reader would show it."""
    if depth > DEPTH_MAX:
        raise definition_error("state.depth", f"states are nested more than {DEPTH_MAX} levels deep")
    inner = key_path(path, "states")
    return replace(
        state,
        location=state.location.with_path(path),
        entry=tuple(_block_with_paths(block, key_path(path, "entry")) for block in state.entry),
        exit=tuple(_block_with_paths(block, key_path(path, "exit")) for block in state.exit),
        transitions=tuple(_transition_with_paths(each, _path(path, each)) for each in state.transitions),
        states=tuple(_with_paths(each, key_path(inner, each.key), depth + 1) for each in state.states),
    )


def _transition_with_paths(transition: Transition, path: str) -> Transition:
    guard = transition.guard
    return replace(
        transition,
        guard=None if guard is None else rewrite_guard(guard, _at(path), lambda inside: inside),
        actions=_block_with_paths(transition.actions, path),
        location=transition.location.with_path(path),
    )


def _block_with_paths(block: Block, path: str) -> Block:
    return rewrite_block(block, _at(path), lambda inside: inside)


def _at(path: str) -> Callable[[Expression], Expression]:
    return lambda expression: replace(expression, location=expression.location.with_path(path))


def _path(path: str, transition: Transition) -> str:
    where = key_path(path, transition.origin)
    if transition.origin == "on":
        return key_path(where, ", ".join(transition.events))
    if transition.origin == "after":
        delay = transition.delay
        return key_path(where, f"= {delay.text}" if isinstance(delay, Expression) else delay)
    return where

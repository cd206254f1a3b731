"""Located values to the blocks of a definition: fields, events, transitions, invokes and sagas.

Rule 1: what comes here has been checked against the vocabulary; nothing here finds fault.
Rule 2: a payload's field is required unless it says otherwise; a context's field only when it says so.
"""

from __future__ import annotations

from collections.abc import Callable

from interlock.definition.source.node import Located
from interlock.definition.yaml.read_actions import (
    block_of,
    guard_of,
    items_of,
    literal_of,
    mapping_of,
    plain_of,
    text_or_expression,
    texts_of,
    value_of,
)
from interlock.errors import Place
from interlock.model.document.actions import Expression
from interlock.model.document.document import (
    Document,
    EventType,
    Expect,
    Invoke,
    Origin,
    Retry,
    Saga,
    SagaCall,
    SagaStep,
    Sensitive,
    Transition,
)
from interlock.model.document.field import UNSET, Field

Inline = Callable[[Located, str], Document]
"""Reads an inline chart; the text is the last part of its kind when it names none itself."""


def context_fields(node: Located | None) -> tuple[Field, ...]:
    """The fields of a context."""
    return () if node is None else _fields(node, payload=False)


def _fields(node: Located, *, payload: bool) -> tuple[Field, ...]:
    parts = mapping_of(node)
    return tuple(_field(name, each, node.keys[name], payload=payload) for name, each in parts.items())


def _field(name: str, node: Located, place: Place, *, payload: bool) -> Field:
    if isinstance(node.value, str):
        return Field(name=name, type=plain_of(node), required=payload, place=place)
    parts = mapping_of(node)
    default = value_of(parts["default"]) if "default" in parts else UNSET
    required = plain_of(parts.get("required"))
    enum = parts.get("enum")
    items, fields = parts.get("items"), parts.get("fields")
    return Field(
        name=name,
        type=plain_of(parts.get("type")) or "any",
        default=default,
        required=(payload and default is UNSET) if required is None else required,
        nullable=bool(plain_of(parts.get("nullable"))),
        enum=None if enum is None else tuple(each.plain() for each in items_of(enum)),
        min=plain_of(parts.get("min")),
        max=plain_of(parts.get("max")),
        length_max=plain_of(parts.get("length_max")),
        items=None if items is None else _field("items", items, items.place, payload=False),
        fields=None if fields is None else _fields(fields, payload=payload),
        description=plain_of(parts.get("description")),
        place=place,
    )


def events_of(node: Located | None) -> tuple[EventType, ...] | None:
    """The declared events; None when there is no such block."""
    if node is None:
        return None
    return tuple(_event(name, mapping_of(each), node.keys[name]) for name, each in mapping_of(node).items())


def _event(name: str, parts: dict[str, Located], place: Place) -> EventType:
    payload, permit = parts.get("payload"), value_of(parts.get("permit"))
    return EventType(
        name=name,
        payload=None if payload is None else _fields(payload, payload=True),
        roles=texts_of(parts.get("roles")),
        permit=permit,
        dedupe=value_of(parts.get("dedupe")),
        direction=plain_of(parts.get("direction")) or "in",
        description=plain_of(parts.get("description")),
        place=place,
    )


def targets_of(node: Located | None) -> tuple[str, ...]:
    """One target or a list of them; empty when absent."""
    if node is None:
        return ()
    return (node.value,) if isinstance(node.value, str) else texts_of(node) or ()


def descriptors_of(text: str) -> tuple[str, ...]:
    """The descriptors of `a, b.*`."""
    return tuple(each.strip() for each in text.split(","))


def transitions_of(
    node: Located | None, origin: Origin = "on", *, events: tuple[str, ...] = (), delay: str | Expression | None = None
) -> tuple[Transition, ...]:
    """What may follow a descriptor, a delay or an `onDone`: a target, a transition, or a list tried in order."""
    if node is None:
        return ()
    written = node.value if isinstance(node.value, list) else [node]
    return tuple(_transition(each, origin, events, delay) for each in written)


def _transition(node: Located, origin: Origin, events: tuple[str, ...], delay: str | Expression | None) -> Transition:
    if isinstance(node.value, str):
        return Transition(origin=origin, events=events, targets=(node.value,), delay=delay, place=node.place)
    parts = mapping_of(node)
    return Transition(
        origin=origin,
        events=events,
        targets=targets_of(parts.get("target")),
        guard=guard_of(parts.get("guard")),
        actions=block_of(parts.get("actions")),
        reenter=plain_of(parts.get("reenter")),
        delay=delay,
        restore=plain_of(parts.get("onRestore")),
        roles=texts_of(parts.get("roles")),
        description=plain_of(parts.get("description")),
        meta=plain_of(parts.get("meta")),
        place=node.place,
    )


def tried_of(parts: dict[str, Located]) -> tuple[Transition, ...]:
    """All transitions of a state in the order in which they are tried: `always after onDone on transitions`."""
    tried = [*transitions_of(parts.get("always"), "always")]
    if "after" in parts:
        for text, each in mapping_of(parts["after"]).items():
            tried += transitions_of(each, "after", delay=text_or_expression(text, parts["after"].keys[text]))
    tried += transitions_of(parts.get("onDone"), "onDone")
    if "on" in parts:
        for text, each in mapping_of(parts["on"]).items():
            tried += transitions_of(each, events=descriptors_of(text))
    for each in items_of(parts.get("transitions")):
        event = mapping_of(each).get("event")
        tried += transitions_of(each, "transitions", events=() if event is None else descriptors_of(event.plain()))
    return tuple(tried)


def invokes_of(node: Located | None, key: str, inline: Inline) -> tuple[Invoke, ...]:
    """The invokes of the state with this key."""
    if node is None:
        return ()
    written = node.value if isinstance(node.value, list) else [node]
    return tuple(_invoke(each, key, inline) for each in written)


def _invoke(node: Located, key: str, inline: Inline) -> Invoke:
    parts = mapping_of(node)
    name, src = plain_of(parts.get("id")), parts.get("src")
    meant: str | Expression | Document | None = None
    if src is not None:
        text = src.value
        meant = text_or_expression(text, src.place) if isinstance(text, str) else inline(src, name or key)
    finalize = parts.get("finalize")
    default = "chart" if isinstance(meant, Document) else "handler"
    return Invoke(
        src=meant,
        id=name,
        id_location=plain_of(parts.get("idLocation")),
        type=value_of(parts["type"]) if "type" in parts else default,
        input=value_of(parts.get("input")),
        autoforward=bool(plain_of(parts.get("autoforward"))),
        finalize=None if finalize is None else block_of(finalize),
        done=transitions_of(parts.get("onDone")),
        error=transitions_of(parts.get("onError")),
        retry=_retry(parts.get("retry")),
        timeout=plain_of(parts.get("timeout")),
        key=value_of(parts.get("key")),
        restore=plain_of(parts.get("onRestore")),
        place=node.place,
    )


def _retry(node: Located | None) -> Retry | None:
    if node is None:
        return None
    parts = mapping_of(node)
    return Retry(
        max=parts["max"].plain(),
        backoff=plain_of(parts.get("backoff")),
        jitter=plain_of(parts.get("jitter")),
        on=texts_of(parts.get("on")),
    )


def saga_of(node: Located | None) -> Saga | None:
    """The saga; None when there is none."""
    if node is None:
        return None
    parts = mapping_of(node)
    return Saga(
        steps=tuple(_saga_step(each) for each in items_of(parts["steps"])),
        compensation=plain_of(parts.get("compensation")) or "reverse",
        done=transitions_of(parts.get("onDone")),
        compensated=transitions_of(parts.get("onCompensated")),
        error=transitions_of(parts.get("onError")),
        place=node.place,
    )


def _saga_step(node: Located) -> SagaStep:
    parts = mapping_of(node)
    compensate = parts.get("compensate")
    return SagaStep(
        id=parts["id"].plain(),
        do=_saga_call(parts["do"]),
        guard=guard_of(parts.get("if")),
        compensate=None if compensate is None else _saga_call(compensate),
        retry=_retry(parts.get("retry")),
        timeout=plain_of(parts.get("timeout")),
        place=node.place,
    )


def _saga_call(node: Located) -> SagaCall:
    parts = mapping_of(node)
    return SagaCall(
        src=literal_of(parts["src"].plain()),
        input=value_of(parts.get("input")),
        output=plain_of(parts.get("output")),
        key=value_of(parts.get("key")),
        place=node.place,
    )


def expect_of(node: Located | None) -> Expect | None:
    """When an entity counts as stuck; None when it is not said."""
    if node is None:
        return None
    parts = mapping_of(node)
    return Expect(within=parts["within"].plain(), then=plain_of(parts.get("then")) or "alert")


def sensitive_of(node: Located | None) -> Sensitive | None:
    """What is masked: a list of fields; true or a mapping hides the state itself."""
    if node is None:
        return None
    match node.value:
        case list():
            return Sensitive(fields=texts_of(node) or ())
        case dict():
            return Sensitive(
                fields=texts_of(node.value.get("fields")) or (),
                hidden=True,
                neutral=plain_of(node.value.get("as")),
                roles=texts_of(node.value.get("roles")),
            )
        case _:
            return Sensitive(hidden=True)

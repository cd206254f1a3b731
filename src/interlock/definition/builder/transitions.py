"""Transitions of the Python builder: by event, eventless, delayed, on completion, and for results.

Rule 1: an event may be one descriptor or several, `"a, b.*"` or `["a", "b.*"]`; a target one text or several.
Rule 2: the compiler checks that targets exist and that `reenter` is given where it is required.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from interlock.definition.builder.actions import Actions, GuardLike, optional_guard, read_block
from interlock.definition.builder.values import (
    Json,
    Texts,
    caller_location,
    choice,
    definition_error,
    items,
    literal,
    optional_text,
    optional_texts,
    text,
    texts,
    usage_error,
)
from interlock.definition.vocabulary.names import DESCRIPTORS, DURATION, NAME, TARGET, TEXT
from interlock.model.document.actions import Expression, RestorePolicy
from interlock.model.document.document import Initial, Origin, Transition

TransitionLike: TypeAlias = str | Transition | Sequence[Transition]
"""The transitions for a result: a target, a transition created by `to`, or several tried in order."""


def on(
    event: Texts,
    target: Texts | None = None,
    *,
    guard: GuardLike | None = None,
    actions: Actions = (),
    reenter: bool | None = None,
    roles: Texts | None = None,
    description: str | None = None,
    meta: Json = None,
) -> Transition:
    """Return a transition for an event, or for several; without target and actions the event is taken without effect.

    `reenter` is required exactly if the state is itself a target or an ancestor of one.
    """
    events = _descriptors(event)
    return _transition(
        "on", target, guard, actions, reenter=reenter, events=events, roles=roles, description=description, meta=meta
    )


def always(
    target: Texts | None = None,
    *,
    guard: GuardLike | None = None,
    actions: Actions = (),
    reenter: bool | None = None,
    roles: Texts | None = None,
    description: str | None = None,
    meta: Json = None,
) -> Transition:
    """Return an eventless transition, tried whenever the entity settles."""
    return _transition(
        "always", target, guard, actions, reenter=reenter, roles=roles, description=description, meta=meta
    )


def after(
    delay: str | Expression,
    target: Texts | None = None,
    *,
    guard: GuardLike | None = None,
    actions: Actions = (),
    reenter: bool | None = None,
    restore: RestorePolicy | None = None,
    roles: Texts | None = None,
    description: str | None = None,
    meta: Json = None,
) -> Transition:
    """Return a transition that is taken when the state has been active that long: `"48h"`, or an expression."""
    wait = delay if isinstance(delay, Expression) else text(delay, DURATION, "a delay")
    kept = choice(restore, (None, "deadline", "remaining", "restart"), "`restore`")
    return _transition(
        "after",
        target,
        guard,
        actions,
        reenter=reenter,
        delay=wait,
        restore=kept,
        roles=roles,
        description=description,
        meta=meta,
    )


def on_done(
    target: Texts | None = None,
    *,
    guard: GuardLike | None = None,
    actions: Actions = (),
    reenter: bool | None = None,
    roles: Texts | None = None,
    description: str | None = None,
    meta: Json = None,
) -> Transition:
    """Return a transition for the completion of a state's children."""
    return _transition(
        "onDone", target, guard, actions, reenter=reenter, roles=roles, description=description, meta=meta
    )


def transition(
    target: Texts | None = None,
    *,
    event: Texts | None = None,
    guard: GuardLike | None = None,
    actions: Actions = (),
    reenter: bool | None = None,
    roles: Texts | None = None,
    description: str | None = None,
    meta: Json = None,
) -> Transition:
    """Return a transition that is tried after those of `on`; without an event it is eventless."""
    events = () if event is None else _descriptors(event)
    return _transition(
        "transitions",
        target,
        guard,
        actions,
        reenter=reenter,
        events=events,
        roles=roles,
        description=description,
        meta=meta,
    )


def to(
    target: Texts | None = None,
    *,
    guard: GuardLike | None = None,
    actions: Actions = (),
    reenter: bool | None = None,
    roles: Texts | None = None,
    description: str | None = None,
    meta: Json = None,
) -> Transition:
    """Return a transition for the result of an invoke or a saga, if a bare target is not enough."""
    return _transition("on", target, guard, actions, reenter=reenter, roles=roles, description=description, meta=meta)


def _transition(
    origin: Origin,
    target: Texts | None,
    guard: GuardLike | None,
    actions: Actions,
    *,
    reenter: bool | None,
    events: tuple[str, ...] = (),
    delay: str | Expression | None = None,
    restore: RestorePolicy | None = None,
    roles: Texts | None = None,
    description: str | None = None,
    meta: Json = None,
) -> Transition:
    return Transition(
        origin=origin,
        events=events,
        targets=read_targets(target),
        guard=optional_guard(guard),
        actions=read_block(actions),
        reenter=choice(reenter, (None, True, False), "`reenter`"),
        delay=delay,
        restore=restore,
        roles=optional_texts(roles, NAME, "a role"),
        description=optional_text(description, TEXT, "a description"),
        meta=literal(meta, "`meta`"),
        location=caller_location(),
    )


def _descriptors(given: Texts) -> tuple[str, ...]:
    found = texts(given, DESCRIPTORS, "an event")
    if not found:
        raise definition_error(
            "value.empty", "a transition without an event is never taken", "use `always`, or name an event"
        )
    return tuple(each.strip() for text in found for each in text.split(","))


def read_targets(given: Texts | None) -> tuple[str, ...]:
    """One target or several; empty if none is given."""
    return () if given is None else texts(given, TARGET, "a target")


def read_results(given: TransitionLike | None, what: str) -> tuple[Transition, ...]:
    """The transitions for a result."""
    if given is None:
        return ()
    if isinstance(given, str):
        return (to(given),)
    answers = [given] if isinstance(given, Transition) else items(given, what)
    found = []
    for each in answers:
        if not isinstance(each, Transition):
            raise usage_error(what, "a target or the result of `to`", each)
        if each.origin != "on" or each.events:
            raise definition_error(
                "transition.place", f"{what} cannot have its own event or delay", 'write to("target", ...)'
            )
        found.append(each)
    return tuple(found)


def initial(target: Texts, *, actions: Actions = ()) -> Initial:
    """Return the initial states of a compound state, with actions that run when it is entered by default."""
    return Initial(
        targets=texts(target, TARGET, "the initial state"), actions=read_block(actions), location=caller_location()
    )


def read_initial(given: Texts | Initial | None) -> Initial | None:
    """The initial transition; None if none is given."""
    return given if given is None or isinstance(given, Initial) else initial(given)

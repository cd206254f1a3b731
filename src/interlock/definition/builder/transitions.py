"""Transitions of the Python builder: by event, eventless, delayed, on completion, and what follows a result.

Rule 1: an event may be one descriptor or several, `"a, b.*"` or `["a", "b.*"]`; a target one text or several.
Rule 2: whether a target exists and `reenter` is said where it must be is the compiler's work.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from interlock.definition.builder.actions import Actions, GuardLike, optional_guard, read_block
from interlock.definition.builder.values import (
    Json,
    Texts,
    caller_place,
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

Answer: TypeAlias = str | Transition | Sequence[Transition]
"""What follows a result: a target, a transition made by `to`, or several tried in order."""


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
    """A transition for an event, or for several; without target and actions the event is taken and nothing happens.

    `reenter` is said exactly where the state is itself a target or an ancestor of one.
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
    """An eventless transition, tried whenever the entity settles."""
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
    """A transition for when the state has been active that long: `"48h"`, or an expression."""
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
    """A transition for the completion of a state's children."""
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
    """A transition tried after those of `on`, in the order written; without an event it is eventless."""
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
    """What follows the result of an invoke or a saga, where a bare target does not say enough."""
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
        place=caller_place(),
    )


def _descriptors(given: Texts) -> tuple[str, ...]:
    found = texts(given, DESCRIPTORS, "an event")
    if not found:
        raise definition_error(
            "value.empty", "a transition for no event can never be chosen", "use `always`, or name an event"
        )
    return tuple(each.strip() for said in found for each in said.split(","))


def read_targets(given: Texts | None) -> tuple[str, ...]:
    """One target or several; none when nothing was said."""
    return () if given is None else texts(given, TARGET, "a target")


def read_results(given: Answer | None, what: str) -> tuple[Transition, ...]:
    """The transitions that follow a result."""
    if given is None:
        return ()
    if isinstance(given, str):
        return (to(given),)
    answers = [given] if isinstance(given, Transition) else items(given, what)
    found = []
    for each in answers:
        if not isinstance(each, Transition):
            raise usage_error(what, "a target or what `to` makes", each)
        if each.origin != "on" or each.events:
            raise definition_error("transition.place", f"{what} waits for nothing else", 'write to("target", ...)')
        found.append(each)
    return tuple(found)


def initial(target: Texts, *, actions: Actions = ()) -> Initial:
    """Where a compound state begins, with actions that run when it is entered by default."""
    return Initial(
        targets=texts(target, TARGET, "the initial state"), actions=read_block(actions), place=caller_place()
    )


def read_initial(given: Texts | Initial | None) -> Initial | None:
    """Where a state begins, when it was said."""
    return given if given is None or isinstance(given, Initial) else initial(given)

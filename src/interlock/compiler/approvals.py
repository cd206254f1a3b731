"""The meaning of `approvals`: transitions record who sent the events that approvals name.

    events:                                             context: {_actors: {}}
      release:                                          on:
        approvals: {of: approve, since: request}   ->     approve: [_actors: + the sender of `approve`]
                                                          request: [_actors: without `approve`]
                                                          release: [_actors: without `approve`]

Rule 1: the kernel has no notion of approvals: it runs assignments. Whether there are enough is part of the policy
(`trust.authorization`), which reads the record.
Rule 2: an approval counts if a transition took the event: an event that was rejected or ignored is not recorded.
Rule 3: approvals are used up: the event that needed them clears them.
"""

from __future__ import annotations

from dataclasses import replace

from interlock.compiler.resolve import parse_descriptor
from interlock.errors import SourceLocation
from interlock.model.approvals import ACTORS_FIELD
from interlock.model.document.actions import Action, Assign, Expression, GuardExpression, If
from interlock.model.document.document import Document, State, Transition
from interlock.model.document.field import Field


def expand_approvals(document: Document) -> Document:
    """The document with the field and the assignments that record who sent the events of approvals."""
    actions = _recordings(document)
    if not actions:
        return document
    field = Field(name=ACTORS_FIELD, type="object", default={}, location=document.root.location)
    root = _expand(document.root, document, actions)
    return replace(document, root=replace(root, context=(*root.context, field)))


def _recordings(document: Document) -> dict[str, Action]:
    """The action for each event that is recorded or clears records."""
    recorded: dict[str, None] = {}
    cleared: dict[str, dict[str, None]] = {}
    places: dict[str, SourceLocation] = {}
    for event in document.events or ():
        found = event.approvals
        if found is None:
            continue
        recorded |= dict.fromkeys((found.of, *found.without))
        cleared.setdefault(event.name, {}).update({found.of: None})
        if found.since is not None:
            cleared.setdefault(found.since, {}).update(dict.fromkeys((found.of, *found.without)))
        named = (event.name, found.of, *found.without, *(() if found.since is None else (found.since,)))
        places |= {name: found.location for name in named if name not in places}
    actions: dict[str, Action] = {}
    for name, location in places.items():
        arguments = ", ".join(repr(each) for each in (name if name in recorded else "", *cleared.get(name, ())))
        value = Expression(f"_record_sender({arguments})", location)
        assign = Assign(values=((ACTORS_FIELD, value),), location=location)
        guard = GuardExpression(expression=Expression(f"event.name == {name!r}", location), location=location)
        actions[name] = If(branches=((guard, (assign,)),), location=location)
    return actions


def _expand(state: State, document: Document, actions: dict[str, Action]) -> State:
    return replace(
        state,
        transitions=tuple(_with_recordings(each, document, actions) for each in state.transitions),
        states=tuple(_expand(each, document, actions) for each in state.states),
    )


def _with_recordings(transition: Transition, document: Document, actions: dict[str, Action]) -> Transition:
    descriptors = [parse_descriptor(text, document.dialect) for text in transition.events]
    found = tuple(action for name, action in actions.items() if any(each.matches(name) for each in descriptors))
    return replace(transition, actions=(*found, *transition.actions)) if found else transition

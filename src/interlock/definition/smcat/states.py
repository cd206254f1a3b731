"""The states of a smcat text, found by name, with their arrows and types.

Rule 1: smcat has one flat space of names; if a name is used twice, the nearest one is used, searching outward.
Rule 2: a state that is only mentioned is created where it is mentioned, inner bodies first, as in state-machine-cat.
Rule 3: a type guessed from a name (`initial final parallel history ^ ]`) is dropped if the use contradicts it; with an
        explicit `type=` that is an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from interlock.definition.names import clean_key
from interlock.definition.smcat.labels import LabelReader
from interlock.definition.smcat.parse import Arrow, Attributes, Body, Declaration
from interlock.errors import SourceLocation
from interlock.model.diagnostics import Diagnostics
from interlock.model.document.actions import Block, Guard, Value
from interlock.model.document.document import Origin

_GUESSES = (
    (re.compile("initial"), "initial"),
    (re.compile("final"), "final"),
    (re.compile("parallel"), "parallel"),
    (re.compile("deep.*history|history.*deep", re.DOTALL), "deephistory"),
    (re.compile("history"), "history"),
    (re.compile(r"\A\^"), "choice"),
    (re.compile(r"\A\]"), "forkjoin"),
)


@dataclass(slots=True, eq=False)
class Draft:
    """A state that is being read; the outermost one is the document's root."""

    name: str
    location: SourceLocation
    parent: Draft | None = None
    type: str = "regular"
    explicit: bool = False
    declaration: Declaration | None = None
    children: list[Draft] = field(default_factory=list)
    leaving: list[DraftTransition] = field(default_factory=list)
    incoming: list[DraftTransition] = field(default_factory=list)
    key: str = ""
    keys: dict[str, Draft] = field(default_factory=dict)
    initial: DraftTransition | None = None

    def ancestors(self) -> Iterator[Draft]:
        """The proper ancestors, nearest first."""
        parent = self.parent
        while parent is not None:
            yield parent
            parent = parent.parent

    @property
    def id(self) -> str:
        """The dotted path from the root."""
        path = [self.key, *(each.key for each in self.ancestors())]
        return ".".join(reversed(path[:-1]))

    @property
    def is_history(self) -> bool:
        """Whether it is a history."""
        return self.type in {"history", "deephistory"}


@dataclass(slots=True, eq=False)
class DraftTransition:
    """An arrow that is being read."""

    source: Draft
    targets: list[Draft]
    location: SourceLocation
    origin: Origin = "always"
    events: tuple[str, ...] = ()
    delay: Value = None
    guard: Guard | None = None
    otherwise: bool = False
    actions: Block = ()
    has_event: bool = False
    eventless: bool = False
    internal: bool = False
    notes: list[str] = field(default_factory=list)
    attributes: Attributes = field(default_factory=dict)

    @property
    def bare(self) -> bool:
        """Whether it has neither an event nor a guard, as UML requires for a pseudo-state."""
        return not self.has_event and self.guard is None and not self.otherwise

    def retarget(self, targets: list[Draft]) -> None:
        """Change the targets of the transition."""
        for each in self.targets:
            each.incoming.remove(self)
        self.targets = targets
        for each in targets:
            each.incoming.append(self)

    def detach(self) -> None:
        """Remove the transition from its source and targets."""
        self.retarget([])
        self.source.leaving.remove(self)


def read_drafts(body: Body, labels: LabelReader, diagnostics: Diagnostics, location: SourceLocation) -> Draft:
    """The root of a parsed text, with types, and pseudo-states not yet rewritten."""
    return DraftReader(labels, diagnostics).root(body, location)


def walk_drafts(draft: Draft) -> Iterator[Draft]:
    """All states below one, in document order; the children may be changed meanwhile."""
    for child in list(draft.children):
        yield child
        yield from walk_drafts(child)


class DraftReader:
    """Reads the states and arrows of one text."""

    def __init__(self, labels: LabelReader, diagnostics: Diagnostics) -> None:
        self.labels = labels
        self.diagnostics = diagnostics
        self.by_name: dict[str, list[Draft]] = {}
        self.bodies: list[tuple[Draft, Body]] = []

    def root(self, body: Body, location: SourceLocation) -> Draft:
        root = Draft("", location, declaration=Declaration("", location))
        self._declare(root, body)
        for owner, inner in self.bodies:
            for arrow in inner.arrows:
                self._mention(owner, arrow, arrow.source)
                self._mention(owner, arrow, arrow.target)
        for owner, inner in self.bodies:
            for arrow in inner.arrows:
                self._tie(owner, arrow)
        for draft in walk_drafts(root):
            self._decide(draft)
        return root

    def _declare(self, owner: Draft, body: Body) -> None:
        for each in body.declarations:
            draft = self._add(owner, each.name, each.location)
            draft.declaration = each
            draft.type = str(each.attributes.get("type", draft.type))
            draft.explicit = "type" in each.attributes
            if each.body is not None:
                self._declare(draft, each.body)
        self.bodies.append((owner, body))  # after the inner ones, so that arrows are in the order of the text

    def _add(self, owner: Draft, name: str, location: SourceLocation) -> Draft:
        guess = next((found for pattern, found in _GUESSES if pattern.search(name)), "regular")
        draft = Draft(name, location, owner, guess)
        owner.children.append(draft)
        others = self.by_name.setdefault(name, [])
        others.append(draft)
        if len(others) > 1:
            message = f'two states have the name "{name}"; each transition uses the nearest one'
            self.diagnostics.warning("smcat.name_repeated", message, location, "give every state a different name")
        return draft

    def _mention(self, owner: Draft, arrow: Arrow, name: str) -> None:
        if name not in self.by_name:
            self._add(owner, name, arrow.location)

    def _find(self, owner: Draft, name: str) -> Draft:
        found = self.by_name[name]
        if len(found) > 1:
            for scope in (owner, *owner.ancestors()):
                near = [each for each in found if each.parent is scope]
                if near:
                    return near[0]
        return found[0]

    def _tie(self, owner: Draft, arrow: Arrow) -> None:
        source, target = self._find(owner, arrow.source), self._find(owner, arrow.target)
        label = self.labels.label(arrow.label)
        transition = DraftTransition(
            source,
            [],
            arrow.location,
            origin=label.origin,
            events=label.events,
            delay=label.delay,
            guard=label.guard,
            otherwise=label.otherwise,
            actions=label.actions,
            has_event=label.has_event,
            eventless=label.eventless,
            internal=arrow.attributes.get("type") == "internal",
            notes=arrow.notes,
            attributes={name: value for name, value in arrow.attributes.items() if name != "type"},
        )
        transition.retarget([target])
        source.leaving.append(transition)

    def _decide(self, draft: Draft) -> None:
        if draft.type == "forkjoin":
            outgoing, incoming = len(draft.leaving), len(draft.incoming)
            draft.type = "fork" if incoming <= 1 < outgoing else "join" if outgoing <= 1 < incoming else "junction"
        contradiction = self._contradiction(draft)
        if contradiction is None:
            return
        message = f'state "{draft.name}" is of type {draft.type}, but {contradiction}'
        if draft.explicit:
            hint = "write `type=regular` if it is an ordinary state"
            self.diagnostics.error(f"smcat.{draft.type}", message, draft.location, hint)
        else:
            message = f"the name suggests a type, but {message}; it is read as regular"
            self.diagnostics.warning("smcat.guess", message, draft.location, "write `type=regular` to confirm it")
        draft.type = "regular"

    def _contradiction(self, draft: Draft) -> str | None:
        if draft.type not in {"regular", "parallel"} and draft.children:
            return "it has child states"
        match draft.type:
            case "parallel" if not draft.children:
                return "it has no regions inside"
            case "final" | "terminate" if draft.leaving:
                return "it has outgoing transitions"
            case "initial":
                return _initial_contradiction(draft)
            case "history" | "deephistory" if not all(transition.bare for transition in draft.leaving):
                return "an outgoing transition has an event or a guard"
            case "fork" if not draft.leaving or not all(transition.bare for transition in draft.leaving):
                return "an outgoing transition has an event or a guard"
            case "join" if len(draft.leaving) != 1 or draft.leaving[0].has_event:
                return "it must have exactly one outgoing transition, without an event"
            case _:
                return None


def _initial_contradiction(draft: Draft) -> str | None:
    if draft.parent is not None and draft.parent.type == "parallel":
        return "all regions of a parallel state are entered"
    if draft.incoming:
        return "it is a target of a transition"
    if len(draft.leaving) != 1 or not draft.leaving[0].bare:
        return "it must have exactly one outgoing transition, without event and guard"
    assert draft.parent is not None  # only the root has none, and it is not a pseudo-state
    twin = next(each for each in draft.parent.children if each.type == "initial")
    return None if twin is draft else f'the initial state here is "{twin.name}"'


def assign_keys(root: Draft) -> list[tuple[Draft, str]]:
    """Give every state a key that is unique among its siblings; reports keys that differ from the name."""
    renamed = []
    for draft in (root, *walk_drafts(root)):
        for child in draft.children:
            inner = child.name.removeprefix(f"{draft.id}.").removeprefix(f"{draft.name}.")
            wanted = clean_key(inner) or (child.type if child.type != "regular" else "state")
            child.key = next(each for each in _candidates(wanted) if each not in draft.keys)
            draft.keys[child.key] = child
            if child.key not in {child.name, inner}:
                renamed.append((child, child.key))
    return renamed


def _candidates(wanted: str) -> Iterator[str]:
    yield wanted
    number = 2
    while True:  # ends: the caller takes the first that is free among finitely many
        yield f"{wanted}_{number}"
        number += 1

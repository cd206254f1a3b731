"""Ids and targets: which text names which state of a document.

Rule 1: a state's id is its `id`, else its dotted path from the root (V6).
Rule 2: `name.child` is searched outward from the source, `.child` below it, `#id` anywhere (V5).
Rule 3: this module only answers; the compiler and the writers report unknown targets.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from interlock.model.diagnostics import suggestion
from interlock.model.document.document import Document, State

SUGGESTIONS_MAX = 25
"""Unknown targets per document for which a similar name is searched: the search is slow, and more would not help."""


@dataclass(frozen=True, slots=True)
class Unresolved:
    """Why a target does not name a state: unknown, with a similar name, or ambiguous, with both meanings."""

    code: Literal["target.unknown", "target.ambiguous"]
    message: str
    hint: str | None = None


class TargetIndex:
    """The states of a document in document order, with ids, parents and the meaning of targets."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.suggestion_count = 0
        self.states: list[State] = []
        self.ids: list[str] = []
        self.parents: list[int] = []
        self.depths: list[int] = []
        self.children: list[list[int]] = []
        self.keys: list[dict[str, int]] = []
        self.last: list[int] = []
        self._add(document.root, "", -1, 0)
        self.by_id: dict[str, int] = {}
        for index, name in enumerate(self.ids):
            self.by_id.setdefault(name, index)

    def _add(self, state: State, path: str, parent: int, depth: int) -> None:
        index = len(self.states)
        self.states.append(state)
        self.ids.append(state.id if state.id is not None else path)
        self.parents.append(parent)
        self.depths.append(depth)
        self.children.append([])
        self.keys.append({})
        self.last.append(index)
        for child in state.states:
            self.children[index].append(len(self.states))
            self.keys[index].setdefault(child.key, len(self.states))
            self._add(child, f"{path}.{child.key}" if path else child.key, index, depth + 1)
        self.last[index] = len(self.states) - 1

    def ancestors(self, index: int) -> Iterator[int]:
        """The proper ancestors, nearest first, the root last."""
        index = self.parents[index]
        while index >= 0:
            yield index
            index = self.parents[index]

    def is_descendant(self, index: int, of: int) -> bool:
        """Whether the state is a proper descendant of the other."""
        return of < index <= self.last[of]

    def duplicate_ids(self) -> Iterator[int]:
        """States whose id an earlier state has."""
        for index, name in enumerate(self.ids):
            if self.by_id[name] != index:
                yield index

    def resolve_target(self, source: int, text: str) -> int | Unresolved:
        """The state that a transition of `source` means by `text`."""
        if text.startswith("#"):
            return self._by_id(text[1:])
        if text.startswith("."):
            return self._below(source, text[1:], text)
        scopes = [source] if source == 0 else list(self.ancestors(source))
        found = [(scope, each) for scope in scopes if (each := self._path(scope, text)) is not None]
        head = text.split(".", 1)[0]
        owners = [scope for scope in scopes if self._path(scope, head) is not None]
        if len(owners) > 1:
            first, second = (self.ids[self._path(scope, head) or 0] for scope in owners[:2])
            message = f'the target "{head}" is ambiguous: "{first}" or "{second}"'
            return Unresolved("target.ambiguous", message, f'write "#{first}" or "#{second}"')
        return found[0][1] if found else self._unknown(text, scopes)

    def resolve_child(self, parent: int, text: str) -> int | Unresolved:
        """The state that `initial` of a parent, or the default of a history among its children, means by `text`."""
        if text.startswith("#"):
            return self._by_id(text[1:])
        return self._below(parent, text.removeprefix("."), text)

    def resolve_in_state(self, source: int, text: str) -> int | Unresolved:
        """The state that `In('text')` means in the state `source`: an id, else resolved like a target."""
        index = self.by_id.get(text)
        return index if index is not None and index > 0 else self.resolve_target(source, text)

    def _by_id(self, text: str) -> int | Unresolved:
        index = self.by_id.get(text)
        if index is not None:
            return index
        head, _, rest = text.partition(".")
        while rest:
            index = self.by_id.get(head)
            if index is not None and (found := self._path(index, rest)) is not None:
                return found
            part, _, rest = rest.partition(".")
            head = f"{head}.{part}"
        return self._unknown(f"#{text}", [])

    def _below(self, parent: int, path: str, text: str) -> int | Unresolved:
        found = self._path(parent, path)
        return self._unknown(text, [parent]) if found is None else found

    def _path(self, parent: int, path: str) -> int | None:
        for key in path.split("."):
            found = self.keys[parent].get(key)
            if found is None:
                return None
            parent = found
        return parent

    def _unknown(self, text: str, scopes: list[int]) -> Unresolved:
        self.suggestion_count += 1
        if self.suggestion_count > SUGGESTIONS_MAX:
            return Unresolved("target.unknown", f'unknown state "{text}"')
        keys = [self.states[each].key for scope in scopes for each in self.children[scope]]
        known = list(dict.fromkeys([*keys, *(f"#{name}" for name in self.ids[1:])]))
        word = text if text.startswith("#") else text.lstrip(".").rsplit(".", 1)[-1]
        hint = suggestion(word, known) or suggestion(f"#{word}", known)
        return Unresolved("target.unknown", f'unknown state "{text}"', hint)

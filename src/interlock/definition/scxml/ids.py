"""Ids, keys and targets: SCXML has one space of ids, a document has keys in a tree.

Rule 1: every state keeps its SCXML id. If its dotted path of keys is that id, the document does not repeat it.
Rule 2: a key has letters, digits, `_` and `-`; siblings have different keys; a state without an id gets a key too.
Rule 3: `target_text` is the default text of a target; the reader and the writer both use it.
"""

from __future__ import annotations

import re

from interlock.definition.scxml.structure import STATE_TAGS, tag
from interlock.definition.source.xml import Element
from interlock.model.document.targets import TargetIndex

_KEY = re.compile(r"[A-Za-z0-9_-]+")
_OTHER = re.compile(r"[^A-Za-z0-9_-]")


def state_ids(root: Element) -> set[str]:
    """Every id of a state in this file, without those of inline charts."""
    found = set()
    stack = [root]
    while stack:
        element = stack.pop()
        if tag(element) in STATE_TAGS and (name := element.get("id")) is not None:
            found.add(name)
        stack += [each for each in element.elements if tag(each) in STATE_TAGS]
    return found


def default_key(name: str, parent: str) -> str:
    """The key of a state with this id below a state with this dotted path."""
    rest = name.removeprefix(f"{parent}.") if parent else name
    return rest if _KEY.fullmatch(rest) else _OTHER.sub("_", name)


class Keys:
    """Gives the children of one state different keys, and paths that are not the id of another state.

    Numbers are not reused: searching the first free one each time would take a hostile file quadratic time.
    """

    def __init__(self, parent: str, ids: set[str]) -> None:
        self.prefix = f"{parent}." if parent else ""
        self.parent, self.ids = parent, ids
        self.used: set[str] = set()
        self.numbers: dict[str, int] = {}

    def named(self, name: str, wanted: str | None) -> str:
        """The key of a state with an id: the wanted one, else one made from its id; unique among its siblings."""
        key = first = wanted or default_key(name, self.parent)
        while key in self.used:
            key = f"{first}_{self._next(first, 2)}"
        self.used.add(key)
        return key

    def anonymous(self, kind: str) -> str:
        """The key of a state without an id."""
        key = f"{kind}_{self._next(kind, 1)}"
        while key in self.used or f"{self.prefix}{key}" in self.ids:
            key = f"{kind}_{self._next(kind, 1)}"
        self.used.add(key)
        return key

    def _next(self, word: str, first: int) -> int:
        self.numbers[word] = self.numbers.get(word, first - 1) + 1
        return self.numbers[word]


def target_text(tree: TargetIndex, source: int, index: int) -> str:
    """The text by which a transition of `source` names a state: its id in dialect `scxml`, otherwise the shortest."""
    texts = [] if tree.document.dialect == "scxml" else [tree.states[index].key]
    if texts and source > 0 and tree.is_descendant(index, source):
        texts.append(f".{_path(tree, source, index)}")
    elif texts and tree.parents[index] > 0:
        texts.append(f"{tree.states[tree.parents[index]].key}.{tree.states[index].key}")
    return next((each for each in texts if tree.resolve_target(source, each) == index), f"#{tree.ids[index]}")


def child_target_text(tree: TargetIndex, parent: int, index: int) -> str:
    """The text by which `initial` of `parent`, or a history in it, names a state."""
    if tree.document.dialect == "scxml" or not tree.is_descendant(index, parent):
        return f"#{tree.ids[index]}"
    return _path(tree, parent, index)


def _path(tree: TargetIndex, parent: int, index: int) -> str:
    keys = []
    while index != parent:
        keys.append(tree.states[index].key)
        index = tree.parents[index]
    return ".".join(reversed(keys))

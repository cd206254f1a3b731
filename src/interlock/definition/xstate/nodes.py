"""The states of an XState definition: JavaScript's order, ids, and what a target means there (X2, X3, X4).

Rule 1: everything about which text of an XState definition names which state lives here; documents get `#<our id>`.
Rule 2: our id of a state is its `id`, else its dotted path; below a hidden root (X3) the path begins with its key.
Rule 3: a document of dialect `xstate` whose root has exactly one child holds XState's root in that child. So the root
is hidden where it acts, is parallel or is a target, and where it has fewer than two children: so the rule is clear.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from difflib import get_close_matches

from interlock.definition.source.node import Located
from interlock.model.diagnostics import Findings

ACTING_KEYS = ("entry", "exit", "on", "always", "after", "invoke", "onDone")
"""What makes XState's root more than a container."""

_INDEX = re.compile(r"0|[1-9][0-9]{0,9}")
_INDEX_MAX = 2**32 - 2
_NOT_IN_KEY = re.compile(r"[^\w-]+")
_NOT_IN_ID = re.compile(r"[\s,*=#]+")


def in_javascript_order(keys: Iterable[str]) -> list[str]:
    """The keys of an object as JavaScript lists them: array indices first, ascending, the others as written (X4)."""
    found = list(keys)
    numbers = [key for key in found if _INDEX.fullmatch(key) and int(key) <= _INDEX_MAX]
    return sorted(numbers, key=int) + [key for key in found if key not in set(numbers)]


def admitted_key(text: str, otherwise: str = "state") -> str:
    """The text as a key of ours: letters, digits, `_` and `-`; anything else becomes `_`."""
    return text if text and not _NOT_IN_KEY.search(text) else _NOT_IN_KEY.sub("_", text).strip("_") or otherwise


def admitted_id(text: str) -> str:
    """The text as an id of ours: dotted words; white space and the marks `, * = #` become `_`."""
    parts = [_NOT_IN_ID.sub("_", part) for part in text.split(".")]
    return ".".join(part for part in parts if part) or "state"


def path_of(text: str) -> list[str]:
    """The keys of an XState path: parts between dots, where a backslash takes the next character as it is."""
    parts, part, escaped = [], "", False
    for character in text:
        if escaped or character not in "\\.":
            part, escaped = part + character, False
        elif character == "\\":
            escaped = True
        else:
            parts.append(part)
            part = ""
    return [*parts, part]


@dataclass(slots=True, eq=False)
class Node:
    """A state of the definition: as written, its key and id with us, and its id in XState."""

    written: Located
    key: str
    name: str
    parent: Node | None
    id: str
    foreign_id: str
    children: dict[str, Node] = field(default_factory=dict)

    @property
    def content(self) -> dict[str, Located]:
        """The keys of the state; none when it is not a mapping."""
        return self.written.value if isinstance(self.written.value, dict) else {}

    @property
    def is_parallel(self) -> bool:
        """Whether it says that it is parallel."""
        return "type" in self.content and self.content["type"].value == "parallel"

    def is_below(self, other: Node) -> bool:
        """Whether it is a proper descendant of the other."""
        above = self.parent
        while above is not None and above is not other:
            above = above.parent
        return above is other


class States:
    """All states of one definition."""

    def __init__(self, root: Located, kind: str, findings: Findings) -> None:
        self.findings = findings
        content = root.value if isinstance(root.value, dict) else {}
        said = content["id"].value if "id" in content else None
        self.kind = kind
        self.root_id = said if isinstance(said, str) and said else "(machine)"
        self.hidden = _acts(content) or _names_root(root, self.root_id)
        self.by_foreign_id: dict[str, Node] = {}
        name = admitted_key(kind) if self.hidden else ""
        self.root = Node(root, "", name, None, name, self.root_id)
        self.by_foreign_id[self.root_id] = self.root
        self._add_children(self.root, name, [])

    def _add_children(self, parent: Node, path: str, keys: list[str]) -> None:
        states = parent.content.get("states")
        if states is None or not isinstance(states.value, dict):
            return
        names: dict[str, str] = {}
        for key in in_javascript_order(states.value):
            name = admitted_key(key)
            if name != key:
                message = f'the key "{key}" becomes "{name}": keys are letters, digits, "_" and "-"'
                self.findings.info("state.key", message, states.keys.get(key, states.place))
            if name in names:
                message = f'the keys "{names[name]}" and "{key}" both become "{name}"'
                self.findings.error("state.key", message, states.keys.get(key, states.place), "rename one of them")
            names[name] = key
            self._add(parent, states.value[key], key, name, f"{path}.{name}" if path else name, [*keys, key])

    def _add(self, parent: Node, written: Located, key: str, name: str, path: str, keys: list[str]) -> None:
        node = Node(written, key, name, parent, path, ".".join([self.root_id, *keys]))
        said = node.content.get("id")
        if said is not None and isinstance(said.value, str) and said.value:
            node.foreign_id, node.id = said.value, admitted_id(said.value)
            if node.id != said.value:
                self.findings.info("state.id", f'the id "{said.value}" becomes "{node.id}"', said.place)
        parent.children[key] = node
        self.by_foreign_id[node.foreign_id] = node
        self._add_children(node, path, keys)

    def nodes(self) -> Iterator[Node]:
        """Every state in document order, the root first."""
        stack = [self.root]
        while stack:
            node = stack.pop()
            yield node
            stack.extend(reversed(node.children.values()))

    def target(self, source: Node, text: str) -> Node | str:
        """The state that a transition of `source` names, or a sentence on why there is none."""
        if text.startswith("#"):
            return self.by_id(text)
        if source.parent is None:
            if not text.startswith("."):
                near = text if text in source.children else _nearest(text, source.children)
                hint = f'; did you mean ".{near}"?' if near else ""
                return f'the root has no siblings, so "{text}" names nothing{hint}'
            return self._below(source, path_of(text[1:]), text)
        if text.startswith("."):
            return self._below(source, path_of(text[1:]), text)
        return self._below(source.parent, path_of(text), text)

    def by_id(self, text: str) -> Node | str:
        """The state that `#id` or `#id.child` names, or a sentence on why there is none."""
        head, *rest = path_of(text[1:])
        node = self.by_foreign_id.get(head)
        if node is None:
            near = _nearest(head, self.by_foreign_id)
            return f'no state has the id "{head}"' + (f'; did you mean "#{near}"?' if near else "")
        return self._below(node, rest, text)

    def _below(self, node: Node, path: list[str], text: str) -> Node | str:
        for key in path:
            if not key:
                break
            if key not in node.children:
                near = _nearest(key, node.children)
                hint = f'; did you mean "{near}"?' if near else ""
                return f'"{text}" names no state: there is no "{key}" in "{node.foreign_id}"{hint}'
            node = node.children[key]
        return node


def _nearest(word: str, known: Iterable[str]) -> str | None:
    close = get_close_matches(word, list(known), 1, 0.6)
    return close[0] if close else None


def _acts(root: dict[str, Located]) -> bool:
    states = root["states"].value if "states" in root else None
    parallel = "type" in root and root["type"].value == "parallel"
    few = not isinstance(states, dict) or len(states) < 2
    return few or parallel or any(key in root and root[key].value not in ([], {}) for key in ACTING_KEYS)


def _names_root(root: Located, root_id: str) -> bool:
    """Whether any text is a target that means the root: `#id` of it, and nothing behind."""
    stack = [root]
    while stack:
        value = stack.pop().value
        if isinstance(value, dict):
            stack.extend(value.values())
        elif isinstance(value, list):
            stack.extend(value)
        elif isinstance(value, str) and value.startswith("#") and path_of(value[1:]) in ([root_id], [root_id, ""]):
            return True
    return False

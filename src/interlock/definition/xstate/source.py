r"""The XState definition that is being read: its states and ids, diagnostics, and typed access to its values.

Rule 1: a value of a wrong type is reported and read as absent, so that all problems are reported together.
Rule 2: this module decides which text names which state (X2, X3, X4); documents get `#<our id>`. Our id of a state is
        its `id`, else its dotted path; below a hidden root (X3) the path starts with its key.
Rule 3: a document of dialect `xstate` whose root has exactly one child has XState's root in that child. So the root is
        hidden if it acts, is parallel or is a target, and if it has fewer than two children.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field

from interlock.definition.codec import read_value
from interlock.definition.names import id_from_text, key_from_text
from interlock.definition.source.node import Node
from interlock.errors import SourceLocation
from interlock.model.diagnostics import Diagnostics, suggestion
from interlock.model.document.actions import Expression, Value
from interlock.model.document.document import Initial
from interlock.model.document.field import type_name
from interlock.model.duration import format_duration, parse_duration

OLD_KEYS = ("cond", "in", "internal", "data", "activities", "autoForward", "onEntry", "onExit")
"""Keys of XState 4. They are refused, because the meaning of other keys differs too."""


@dataclass(slots=True)
class XStateDefinition:
    """One definition being read. `assigns`: names of actions that write to the context."""

    diagnostics: Diagnostics
    states: XStateNodes
    name: str
    version4: bool = False
    assigns: frozenset[str] = frozenset()
    ids: dict[str, str] = field(default_factory=dict)

    def error(self, code: str, message: str, location: SourceLocation, hint: str | None = None) -> None:
        """Report an error."""
        self.diagnostics.error(code, message, location, hint)

    def mapping(self, json_node: Node, expected: str) -> dict[str, Node] | None:
        """The mapping; None, and a diagnostic, if it is something else."""
        if isinstance(json_node.value, dict):
            return json_node.value
        self.report_type(json_node, expected)
        return None

    def text(self, json_node: Node | None, expected: str) -> str | None:
        """The text; None if absent, and with a diagnostic if it is something else or empty."""
        if json_node is None:
            return None
        if isinstance(json_node.value, str) and json_node.value:
            return json_node.value
        self.report_type(json_node, expected)
        return None

    def description(self, content: dict[str, Node]) -> str | None:
        """The value of `description`; None if absent, and with a diagnostic if it is not a text."""
        json_node = content.get("description")
        if json_node is None:
            return None
        if isinstance(json_node.value, str):
            return json_node.value
        self.report_type(json_node, "a description")
        return None

    def texts(self, json_node: Node | None, expected: str) -> tuple[str, ...]:
        """One text or a list of them, as a tuple."""
        if json_node is None:
            return ()
        return tuple(text for each in items(json_node) if (text := self.text(each, expected)) is not None)

    def report_type(self, json_node: Node, expected: str) -> None:
        """Report a value of a wrong type."""
        self.error("value.type", f"expected {expected}, got {type_name(json_node.plain())}", json_node.location)

    def report_unknown_keys(self, json_node: Node, known: Collection[str], what: str) -> None:
        """Warn of unknown keys; refuse those of XState 4."""
        assert isinstance(json_node.value, dict)
        for key in json_node.value:
            location = json_node.keys.get(key, json_node.location)
            if key in known:
                continue
            if key in OLD_KEYS and not self.version4:
                hint = "read it as format xstate4, or rewrite it for XState 5"
                self.error("xstate.version", f'"{key}" is a key of XState 4', location, hint)
            else:
                message = f'unknown key "{key}" in {what}'
                self.diagnostics.warning("key.unknown", message, location, suggestion(key, known))

    def target(self, node: XStateNode, json_node: Node) -> XStateNode | None:
        """The state of a target; None, and a diagnostic, if there is none."""
        text = self.text(json_node, "a target")
        if text is None:
            return None
        found = self.states.target(node, text)
        if isinstance(found, str):
            self.error("target.unknown", found, json_node.location)
            return None
        return found


def items(json_node: Node) -> list[Node]:
    """The items of a list, or the value itself as the only one."""
    return json_node.value if isinstance(json_node.value, list) else [json_node]


def read_delay(source: XStateDefinition, json_node: Node) -> Value:
    """A delay: whole milliseconds, a duration, or an expression. A name is refused, because JSON cannot define it."""
    value = read_value(json_node)
    if isinstance(value, Expression):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0 and value == int(value):
        return format_duration(int(value))
    if isinstance(value, str) and parse_duration(value) is not None:
        return value
    hint = 'write whole milliseconds, a duration such as "30s", or "= expression"'
    if isinstance(value, str):
        source.error("delay.name", f'the delay "{value}" is a name, which JSON cannot define', json_node.location, hint)
    else:
        source.error("delay.type", "a delay must be in whole milliseconds", json_node.location, hint)
    return "0ms"


ACTING_KEYS = ("entry", "exit", "on", "always", "after", "invoke", "onDone")
"""Keys with which XState's root is more than a container."""

_INDEX = re.compile(r"0|[1-9][0-9]{0,9}")
_INDEX_MAX = 2**32 - 2


def in_javascript_order(keys: Iterable[str]) -> list[str]:
    """The keys of an object as JavaScript lists them: array indices first, ascending, the others as written (X4)."""
    found = list(keys)
    numbers = [key for key in found if _INDEX.fullmatch(key) and int(key) <= _INDEX_MAX]
    return sorted(numbers, key=int) + [key for key in found if key not in set(numbers)]


def split_path(text: str) -> list[str]:
    """The keys of an XState path: parts between dots; a backslash escapes the next character."""
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
class XStateNode:
    """A state of the definition: its node, our key and id of it, and its id in XState."""

    written: Node
    key: str
    name: str
    parent: XStateNode | None
    id: str
    foreign_id: str
    children: dict[str, XStateNode] = field(default_factory=dict)
    initial: Initial | None = None

    @property
    def content(self) -> dict[str, Node]:
        """The keys of the state; empty if it is not a mapping."""
        return self.written.value if isinstance(self.written.value, dict) else {}

    @property
    def is_parallel(self) -> bool:
        """Whether its type is parallel."""
        return "type" in self.content and self.content["type"].value == "parallel"

    def is_below(self, other: XStateNode) -> bool:
        """Whether it is a proper descendant of the other."""
        above = self.parent
        while above is not None and above is not other:
            above = above.parent
        return above is other


class XStateNodes:
    """All states of one definition."""

    def __init__(self, root: Node, kind: str, diagnostics: Diagnostics) -> None:
        self.diagnostics = diagnostics
        content = root.value if isinstance(root.value, dict) else {}
        given_id = content["id"].value if "id" in content else None
        self.kind = kind
        self.root_id = given_id if isinstance(given_id, str) and given_id else "(machine)"
        self.hidden = _root_acts(content) or _names_root(root, self.root_id)
        self.by_foreign_id: dict[str, XStateNode] = {}
        name = key_from_text(kind) if self.hidden else ""
        self.root = XStateNode(root, "", name, None, name, self.root_id)
        self.by_foreign_id[self.root_id] = self.root
        self._add_children(self.root, name, [])

    def _add_children(self, parent: XStateNode, path: str, keys: list[str]) -> None:
        states = parent.content.get("states")
        if states is None or not isinstance(states.value, dict):
            return
        names: dict[str, str] = {}
        for key in in_javascript_order(states.value):
            name = key_from_text(key)
            if name != key:
                message = f'the key "{key}" becomes "{name}": keys have letters, digits, "_" and "-"'
                self.diagnostics.info("state.key", message, states.keys.get(key, states.location))
            if name in names:
                message = f'the keys "{names[name]}" and "{key}" both become "{name}"'
                self.diagnostics.error(
                    "state.key", message, states.keys.get(key, states.location), "rename one of them"
                )
            names[name] = key
            self._add(parent, states.value[key], key, name, f"{path}.{name}" if path else name, [*keys, key])

    def _add(self, parent: XStateNode, written: Node, key: str, name: str, path: str, keys: list[str]) -> None:
        node = XStateNode(written, key, name, parent, path, ".".join([self.root_id, *keys]))
        given_id = node.content.get("id")
        if given_id is not None and isinstance(given_id.value, str) and given_id.value:
            node.foreign_id, node.id = given_id.value, id_from_text(given_id.value)
            if node.id != given_id.value:
                self.diagnostics.info("state.id", f'the id "{given_id.value}" becomes "{node.id}"', given_id.location)
        parent.children[key] = node
        self.by_foreign_id[node.foreign_id] = node
        self._add_children(node, path, keys)

    def nodes(self) -> Iterator[XStateNode]:
        """Every state in document order, the root first."""
        stack = [self.root]
        while stack:
            node = stack.pop()
            yield node
            stack.extend(reversed(node.children.values()))

    def target(self, source: XStateNode, text: str) -> XStateNode | str:
        """The state that a transition of `source` names, or a sentence why there is none."""
        if text.startswith("#"):
            return self.by_id(text)
        if source.parent is None:
            if not text.startswith("."):
                hint = suggestion(f".{text}", [f".{each}" for each in source.children])
                return _with_hint(f'unknown target "{text}": the root has no siblings', hint)
            return self._below(source, split_path(text[1:]), text)
        if text.startswith("."):
            return self._below(source, split_path(text[1:]), text)
        return self._below(source.parent, split_path(text), text)

    def by_id(self, text: str) -> XStateNode | str:
        """The state that `#id` or `#id.child` names, or a sentence why there is none."""
        head, *rest = split_path(text[1:])
        node = self.by_foreign_id.get(head)
        if node is None:
            hint = suggestion(f"#{head}", [f"#{each}" for each in self.by_foreign_id])
            return _with_hint(f'unknown state id "{head}"', hint)
        return self._below(node, rest, text)

    def _below(self, node: XStateNode, path: list[str], text: str) -> XStateNode | str:
        for key in path:
            if not key:
                break
            if key not in node.children:
                problem = f'unknown target "{text}": "{node.foreign_id}" has no child "{key}"'
                return _with_hint(problem, suggestion(key, node.children))
            node = node.children[key]
        return node


def _with_hint(problem: str, hint: str | None) -> str:
    return problem if hint is None else f"{problem}; {hint}"


def _root_acts(root: dict[str, Node]) -> bool:
    states = root["states"].value if "states" in root else None
    parallel = "type" in root and root["type"].value == "parallel"
    few = not isinstance(states, dict) or len(states) < 2
    return few or parallel or any(key in root and root[key].value not in ([], {}) for key in ACTING_KEYS)


def _names_root(root: Node, root_id: str) -> bool:
    """Whether any text is a target that means the root: its `#id` alone."""
    stack = [root]
    while stack:
        value = stack.pop().value
        if isinstance(value, dict):
            stack.extend(value.values())
        elif isinstance(value, list):
            stack.extend(value)
        elif isinstance(value, str) and value.startswith("#") and split_path(value[1:]) in ([root_id], [root_id, ""]):
            return True
    return False

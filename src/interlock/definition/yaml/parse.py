"""YAML text to nodes: YAML 1.2 core types from the events of PyYAML's parser, within limits.

Rule 1: only events are used, never `compose` or `load`: those recurse, follow tags, and use the types of YAML 1.1.
Rule 2: every limit is checked inside the loop over events, before the next event is requested.
Rule 3: keys are strings as written. What JSON cannot represent (tags, merge keys, .nan, .inf) and duplicate keys are
        refused.
Rule 4: an alias has the value and the places of its anchor.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

from interlock.definition.source.node import (
    Node,
    Scalar,
    SourceLines,
    decode_source,
    item_path,
    key_path,
    lone_surrogate,
    parse_float,
    parse_integer,
)
from interlock.errors import SourceLocation
from interlock.model.diagnostics import Diagnostics
from interlock.model.limits import ALIASES_MAX, DEFINITION_DEPTH_MAX, EXPANDED_NODES_MAX

LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The C parser is a build option of PyYAML; the pure one gives the same events, slower."""

_CONSTANTS: dict[str, Scalar] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_INTEGER = re.compile(r"[-+]?[0-9]+")
_BASED = re.compile(r"0(?:(?P<octal>o[0-7]+)|(?P<hexadecimal>x[0-9a-fA-F]+))")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")


# Checked before parsing, because the C parser counts bytes where the pure one counts characters.
_FORBIDDEN = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]")


class YamlSyntaxError(Exception):
    """Ends the reading; has the diagnostic."""

    def __init__(self, code: str, message: str, location: SourceLocation, hint: str | None = None) -> None:
        super().__init__(message)
        self.diagnostic = (code, message, location, hint)


@dataclass(slots=True)
class _OpenValue:
    """A list or mapping that is not yet complete; `key` is that of the next value."""

    event: Any
    path: str
    values: list[Node] | dict[str, Node]
    keys: dict[str, SourceLocation] = field(default_factory=dict)
    key: str | None = None
    key_location: SourceLocation | None = None
    height: int = 1
    size: int = 1
    end: Any = None


@dataclass(slots=True)
class _Anchor:
    """The value of an alias with its size and depth; None while the anchored value is incomplete."""

    value: Node | None = None
    size: int = 0
    height: int = 0


def parse_yaml(text: str | bytes, *, source: str, diagnostics: Diagnostics) -> Node | None:
    """The root node of the only document in a YAML text; None if the text cannot be read."""
    admitted = decode_source(text, language="yaml", source=source, diagnostics=diagnostics)
    if admitted is None:
        return None
    if (bad := _FORBIDDEN.search(admitted)) is not None:
        location = SourceLines(admitted, source).location(bad.start(), bad.end())
        message = f"the character U+{ord(bad[0]):04X} is not allowed in YAML"
        diagnostics.error("yaml.character", message, location, "write it as an escape in double quotes")
        return None
    try:
        return NodeBuilder(source, diagnostics).document(_events(admitted, source))
    except YamlSyntaxError as fault:
        diagnostics.error(*fault.diagnostic)
        return None


def is_not_a_string(text: str) -> bool:
    """Whether a plain scalar with this text is not a string."""
    patterns = (_INTEGER, _BASED, _FLOAT, _NOT_FINITE)
    return text in _CONSTANTS or any(each.fullmatch(text) for each in patterns)


def _events(text: str, source: str) -> Iterator[Any]:
    """The parser's events. Raises YamlSyntaxError for the parser's errors."""
    try:
        yield from yaml.parse(text, Loader=LOADER)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        message = ", ".join(part for part in (error.context, error.problem) if part)
        raise YamlSyntaxError(
            "yaml.syntax", message, _place(source, mark, mark, ""), _syntax_hint(text, mark)
        ) from None


def _syntax_hint(text: str, mark: Any) -> str | None:
    """A hint for the two most frequent mistakes: tabs, and unquoted text with special characters of YAML."""
    lines = text.splitlines()
    line = lines[mark.line] if mark.line < len(lines) else ""
    if "\t" in line[: mark.column + 1]:
        return "indent with spaces, not tabs"
    return "quote texts that contain `: ` or ` #`, or start with one of []{}&*!|>%@`" if line.strip() else None


def _place(source: str, start: Any, end: Any, path: str) -> SourceLocation:
    end_column = max(end.column, start.column + 1) if end.line == start.line else end.column
    return SourceLocation(source, start.line + 1, start.column + 1, end.line + 1, end_column + 1, path)


class NodeBuilder:
    """Builds the one value of a stream of events on an explicit stack."""

    def __init__(self, source: str, diagnostics: Diagnostics) -> None:
        self.source = source
        self.diagnostics = diagnostics
        self.stack: list[_OpenValue] = []
        self.anchors: dict[str, _Anchor] = {}
        self.aliases = 0
        self.nodes = 0
        self.root: Node | None = None

    def document(self, events: Iterator[Any]) -> Node | None:
        """The value of the only document."""
        documents = 0
        for event in events:
            match event:
                case yaml.DocumentStartEvent():
                    documents += 1
                    if documents > 1:
                        raise self._fault(
                            "yaml.documents", "unexpected second document: a file contains one chart", event
                        )
                case yaml.ScalarEvent() | yaml.AliasEvent():
                    self._leaf(event)
                case yaml.SequenceStartEvent() | yaml.MappingStartEvent():
                    self._open(event)
                case yaml.SequenceEndEvent() | yaml.MappingEndEvent():
                    self._close(event)
                case _:
                    pass
        if documents == 0:
            self.diagnostics.error("yaml.empty", "the text contains no definition", SourceLocation(self.source))
        return self.root

    def _leaf(self, event: Any) -> None:
        top = self.stack[-1] if self.stack else None
        if top is not None and isinstance(top.values, dict) and top.key is None:
            self._key(top, event)
            return
        path = self._next_path()
        location = _place(self.source, event.start_mark, event.end_mark, path)
        if isinstance(event, yaml.AliasEvent):
            anchor = self._alias(event, location)
            assert anchor.value is not None
            self._put(anchor.value, anchor.size, anchor.height, event.end_mark)
            return
        self._count(1, event)
        value = Node(self._scalar(event, location), location)
        self._anchored(event, _Anchor(value, 1, 0))
        self._put(value, 1, 0, event.end_mark)

    def _key(self, top: _OpenValue, event: Any) -> None:
        """Use a scalar as the key of the value that follows."""
        assert isinstance(top.values, dict)
        if isinstance(event, yaml.AliasEvent):
            raise self._fault("yaml.key", "a key cannot be an alias", event)
        key = event.value
        path = key_path(top.path, key)
        location = _place(self.source, event.start_mark, event.end_mark, path)
        if event.tag is not None or event.anchor is not None:
            self.diagnostics.error("yaml.key", "a key cannot have a tag or an anchor", location)
        if key == "<<" and event.style in (None, ""):
            hint = "write the keys out, or use an alias for a whole value"
            self.diagnostics.error("yaml.merge", "merge keys are not part of YAML 1.2", location, hint)
        top.key, top.key_location = key, location
        top.end = event.end_mark
        if key in top.values:
            first = top.keys[key]
            message = f'duplicate key "{key[:60]}"; it is first on line {first.line}'
            self.diagnostics.error("yaml.duplicate_key", message, location)
            top.key_location = None

    def _open(self, event: Any) -> None:
        if len(self.stack) >= DEFINITION_DEPTH_MAX:
            raise self._fault("yaml.depth", f"values are nested more than {DEFINITION_DEPTH_MAX} levels deep", event)
        top = self.stack[-1] if self.stack else None
        if top is not None and isinstance(top.values, dict) and top.key is None:
            hint = "quote the key; a text in {{ }} must be quoted too"
            raise self._fault("yaml.key", "a key must be a string, not a list or mapping", event, hint)
        path = self._next_path()
        self._count(1, event)
        self._untagged(event, path)
        self._anchored(event, _Anchor())
        self.stack.append(_OpenValue(event, path, [] if isinstance(event, yaml.SequenceStartEvent) else {}))

    def _close(self, event: Any) -> None:
        done = self.stack.pop()
        # The end event of a block is at the start of the next one, so the end of its last part is used.
        end = event.end_mark if done.event.flow_style or done.end is None else done.end
        value = Node(done.values, _place(self.source, done.event.start_mark, end, done.path), done.keys)
        self._anchored(done.event, _Anchor(value, done.size, done.height))
        self._put(value, done.size, done.height, end)

    def _put(self, value: Node, size: int, height: int, end: Any) -> None:
        """Add a complete value to its container, or make it the root."""
        if not self.stack:
            self.root = value
            return
        top = self.stack[-1]
        top.size += size
        top.height = max(top.height, height + 1)
        top.end = end
        if isinstance(top.values, list):
            top.values.append(value)
            return
        assert top.key is not None
        if top.key_location is not None:
            top.values[top.key] = value
            top.keys[top.key] = top.key_location
        top.key = None

    def _alias(self, event: Any, location: SourceLocation) -> _Anchor:
        self.aliases += 1
        anchor = self.anchors.get(event.anchor)
        if self.aliases > ALIASES_MAX:
            raise self._fault("yaml.aliases", f"a definition uses more than {ALIASES_MAX} aliases", event)
        if anchor is None:
            raise YamlSyntaxError("yaml.alias", f'the alias "{event.anchor}" has no anchor before it', location)
        if anchor.value is None:
            raise YamlSyntaxError("yaml.alias", f'the alias "{event.anchor}" is inside its own anchor', location)
        if len(self.stack) + anchor.height > DEFINITION_DEPTH_MAX:
            raise self._fault("yaml.depth", f"values are nested more than {DEFINITION_DEPTH_MAX} levels deep", event)
        self._count(anchor.size, event)
        return anchor

    def _count(self, nodes: int, event: Any) -> None:
        self.nodes += nodes
        if self.nodes > EXPANDED_NODES_MAX:
            message = f"a definition contains more than {EXPANDED_NODES_MAX:,} values, aliases expanded"
            raise self._fault("yaml.values", message, event)

    def _anchored(self, event: Any, anchor: _Anchor) -> None:
        if event.anchor is not None:
            self.anchors[event.anchor] = anchor

    def _untagged(self, event: Any, path: str) -> None:
        if event.tag is not None:
            location = _place(self.source, event.start_mark, event.end_mark, path)
            message = f'the tag "{event.tag[:60]}" is not allowed: a definition is plain data'
            self.diagnostics.error("yaml.tag", message, location, "quote the value to make it a string")

    def _scalar(self, event: Any, location: SourceLocation) -> Scalar:
        """The YAML 1.2 core value of a scalar; an invalid one is reported and read as 0."""
        self._untagged(event, location.path)
        text: str = event.value
        if lone_surrogate(text):
            self.diagnostics.error("yaml.character", "the string contains a lone surrogate", location)
            return ""
        if event.style not in (None, "") or event.tag is not None:
            return text
        if text in _CONSTANTS:
            return _CONSTANTS[text]
        if _NOT_FINITE.fullmatch(text):
            self.diagnostics.error("yaml.number", "a number must be finite", location)
            return 0
        number: int | float | str
        if _INTEGER.fullmatch(text):
            number = parse_integer(text)
        elif (based := _BASED.fullmatch(text)) is not None:
            number = parse_integer(text[2:], 8 if based["octal"] else 16)
        elif _FLOAT.fullmatch(text):
            number = parse_float(text)
        else:
            return text
        if isinstance(number, str):
            self.diagnostics.error("yaml.number", number, location)
            return 0
        return number

    def _next_path(self) -> str:
        if not self.stack:
            return ""
        top = self.stack[-1]
        if isinstance(top.values, list):
            return item_path(top.path, len(top.values))
        assert top.key is not None
        return key_path(top.path, top.key)

    def _fault(self, code: str, message: str, event: Any, hint: str | None = None) -> YamlSyntaxError:
        path = self.stack[-1].path if self.stack else ""
        return YamlSyntaxError(code, message, _place(self.source, event.start_mark, event.end_mark, path), hint)

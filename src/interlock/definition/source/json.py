"""JSON text to nodes: RFC 8259, with positions, limits, and hints for frequent mistakes.

Rule 1: no recursion. Open lists and mappings are on an explicit stack, so a deep text is an error, not a crash.
Rule 2: valid JSON that is ambiguous (duplicate keys) or not portable (numbers beyond the limits, a lone surrogate) is
        refused, and reading continues after it. A syntax error ends the reading.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from json import loads

import msgspec

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
from interlock.model.encoding.codec import UNDECODABLE
from interlock.model.limits import DEFINITION_BYTES_MAX, DEFINITION_DEPTH_MAX, EXPANDED_NODES_MAX

_SPACE = re.compile(r"[ \t\r\n]*")
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\["\\/bfnrt]|\\u[0-9a-fA-F]{4})*+"')
_NUMBER = re.compile(r"(-?(?:0|[1-9][0-9]*))((?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)(?![0-9A-Za-z_.])")
_WORD = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*|[-+]?[0-9.][0-9A-Za-z_.+-]*|[-+]Infinity")
_CONSTANTS: dict[str, Scalar] = {"true": True, "false": False, "null": None}
_HINTS = {
    "'": "strings need double quotes",
    "`": "strings need double quotes",
    "/": "JSON has no comments",
    "(": "JSON has no functions: name the action or guard, and register it",
    "=": "JSON has no functions: name the action or guard, and register it",
    "NaN": "a number must be finite",
    "Infinity": "a number must be finite",
    "-Infinity": "a number must be finite",
    "undefined": "remove the key, or write null",
    "function": "JSON has no functions: name the action or guard, and register it",
    "async": "JSON has no functions: name the action or guard, and register it",
}
_ESCAPE = re.compile(r'\\(?!["\\/bfnrt]|u[0-9a-fA-F]{4})')


class JsonSyntaxError(Exception):
    """Ends the reading; has the diagnostic."""

    def __init__(self, code: str, message: str, location: SourceLocation, hint: str | None = None) -> None:
        super().__init__(message)
        self.diagnostic = (code, message, location, hint)


@dataclass(slots=True)
class _OpenValue:
    """A list or mapping that is not yet complete. `key` is that of the next value."""

    start: int
    path: str
    values: list[Node] | dict[str, Node]
    keys: dict[str, SourceLocation] = field(default_factory=dict)
    key: str = ""
    key_location: SourceLocation | None = None

    @property
    def next_path(self) -> str:
        """The path of the next value."""
        if isinstance(self.values, list):
            return item_path(self.path, len(self.values))
        return key_path(self.path, self.key)


def top_keys(text: str | bytes) -> frozenset[str]:
    """The keys of a JSON object, whose values are not parsed; empty if the text is something else."""
    data = text.encode("utf-8", "replace") if isinstance(text, str) else text
    try:
        return frozenset(msgspec.json.decode(data.removeprefix(b"\xef\xbb\xbf"), type=dict[str, msgspec.Raw]))
    except UNDECODABLE:
        return frozenset()


def parse_json(
    text: str | bytes, *, source: str, diagnostics: Diagnostics, bytes_max: int = DEFINITION_BYTES_MAX
) -> Node | None:
    """The root node of a JSON text; None if the text is not JSON."""
    admitted = decode_source(text, language="json", source=source, diagnostics=diagnostics, bytes_max=bytes_max)
    if admitted is None:
        return None
    try:
        return _Parser(admitted, source, diagnostics).document()
    except JsonSyntaxError as fault:
        diagnostics.error(*fault.diagnostic)
        return None


class _Parser:
    __slots__ = ("count", "diagnostics", "lines", "position", "stack", "text")

    def __init__(self, text: str, source: str, diagnostics: Diagnostics) -> None:
        self.text = text
        self.lines = SourceLines(text, source)
        self.diagnostics = diagnostics
        self.position = 0
        self.count = 0
        self.stack: list[_OpenValue] = []

    def document(self) -> Node:
        """The one value of the text."""
        while True:
            value = self._value()
            while value is not None:
                if not self.stack:
                    if self._peek():
                        raise self._unexpected("the end of the text")
                    return value
                value = self._after(value)

    def _value(self) -> Node | None:
        """The scalar or empty container that starts here; None if a container has been opened."""
        path = self.stack[-1].next_path if self.stack else ""
        mark = self._peek()
        self.count += 1
        if self.count > EXPANDED_NODES_MAX:
            raise self._fault("json.values", f"a definition contains more than {EXPANDED_NODES_MAX:,} values", 1)
        if mark not in ("[", "{"):
            return self._scalar(mark, path)
        if len(self.stack) >= DEFINITION_DEPTH_MAX:
            raise self._fault("json.depth", f"values are nested more than {DEFINITION_DEPTH_MAX} levels deep", 1)
        opened = _OpenValue(self.position, path, [] if mark == "[" else {})
        self.position += 1
        self.stack.append(opened)
        if self._peek() == ("]" if mark == "[" else "}"):
            return self._closed()
        if mark == "{":
            self._key(opened)
        return None

    def _after(self, value: Node) -> Node | None:
        """Add a value to its container; returns the container if it ends here, None if another value follows."""
        opened = self.stack[-1]
        closer = "]" if isinstance(opened.values, list) else "}"
        if isinstance(opened.values, list):
            opened.values.append(value)
        elif opened.key_location is not None:
            opened.values[opened.key] = value
            opened.keys[opened.key] = opened.key_location
        mark = self._peek()
        if mark == closer:
            return self._closed()
        if mark != ",":
            raise self._unexpected(f'"," or "{closer}"')
        comma = self.position
        self.position += 1
        if self._peek() == closer:
            self.position = comma
            raise self._fault("json.syntax", f'a comma before "{closer}"', 1, "JSON has no trailing commas")
        if closer == "}":
            self._key(opened)
        return None

    def _closed(self) -> Node:
        opened = self.stack.pop()
        self.position += 1
        return Node(opened.values, self.lines.location(opened.start, self.position, opened.path), opened.keys)

    def _key(self, opened: _OpenValue) -> None:
        start = self.position
        if self._peek() != '"':
            raise self._unexpected("a key in double quotes")
        key = opened.key = self._string(opened.path)
        location = opened.key_location = self.lines.location(start, self.position, key_path(opened.path, key))
        if key in opened.keys:
            self.diagnostics.error("json.duplicate_key", f'duplicate key "{key[:60]}"', location)
            opened.key_location = None
        if self._peek() != ":":
            raise self._unexpected('":"')
        self.position += 1
        self._peek()

    def _scalar(self, mark: str, path: str) -> Node:
        start, text = self.position, self.text
        value: Scalar
        if mark == '"':
            value = self._string(path)
        elif (number := _NUMBER.match(text, start)) is not None:
            self.position = number.end()
            measured = parse_float(number[0]) if number[2] else parse_integer(number[1])
            if isinstance(measured, str):
                self.diagnostics.error("json.number", measured, self.lines.location(start, self.position, path))
                measured = 0
            value = measured
        elif (word := _WORD.match(text, start)) is not None and word[0] in _CONSTANTS:
            self.position = word.end()
            value = _CONSTANTS[word[0]]
        else:
            raise self._unexpected("a value")
        return Node(value, self.lines.location(start, self.position, path))

    def _string(self, path: str) -> str:
        start = self.position
        match = _STRING.match(self.text, start)
        if match is None:
            raise self._bad_string()
        self.position = match.end()
        value: str = loads(match[0])
        if lone_surrogate(value):
            message = "the string contains a lone surrogate"
            self.diagnostics.error("json.string", message, self.lines.location(start, self.position, path))
            return ""
        return value

    def _bad_string(self) -> JsonSyntaxError:
        """Find the mistake in the string that starts here: an escape, a control character, or its missing end."""
        start = self.position
        while self.position + 1 < len(self.text):
            self.position += 1
            mark = self.text[self.position]
            if mark == "\\":
                if _ESCAPE.match(self.text, self.position):
                    return self._fault("json.syntax", "an unknown escape in a string", 2)
                self.position += 1
            elif mark < " ":
                return self._fault("json.syntax", "a string must end on its line and escape control characters", 1)
        self.position = start
        return self._fault("json.syntax", "a string without an end", 1)

    def _peek(self) -> str:
        """The next character that is not white space; empty at the end."""
        match = _SPACE.match(self.text, self.position)
        assert match is not None
        self.position = match.end()
        return self.text[self.position : self.position + 1]

    def _unexpected(self, expected: str) -> JsonSyntaxError:
        word = _WORD.match(self.text, self.position)
        found = word[0] if word is not None else self._peek()
        hint = _HINTS.get(found)
        shown = f'"{found[:40]}"' if found else "the end of the text"
        return self._fault("json.syntax", f"expected {expected}, got {shown}", max(1, len(found)), hint)

    def _fault(self, code: str, message: str, length: int, hint: str | None = None) -> JsonSyntaxError:
        path = self.stack[-1].path if self.stack else ""
        return JsonSyntaxError(code, message, self.lines.location(self.position, self.position + length, path), hint)

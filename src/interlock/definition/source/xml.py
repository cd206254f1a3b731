"""XML text to a small tree of elements with places, and such a tree back to text.

Rule 1: a document type is refused, so there are no entities: nothing is fetched and nothing expands.
Rule 2: the size is checked before the parser reads a byte, the depth inside its loop, so no text can exhaust the
        interpreter.
Rule 3: this module knows no vocabulary; the package `scxml` gives elements their meaning.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from xml.parsers import expat

from interlock.definition.source.node import decode_source
from interlock.errors import NO_LOCATION, SourceLocation
from interlock.model.diagnostics import Diagnostics
from interlock.model.limits import SCXML_DEPTH_MAX, XML_NODES_MAX

_ATTRIBUTE = re.compile(rb"""\s+([^\s=>/]+)\s*=\s*("[^"]*"|'[^']*')""")
_TAG = re.compile(rb"<[^\s/>]+")
_UNPLACEABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


@dataclass(frozen=True, slots=True)
class Scope:
    """The namespaces that one element declares, by attribute, and the scope around it."""

    declared: dict[str, str]
    outer: Scope | None


def _declared(scope: Scope | None) -> Iterator[tuple[str, str]]:
    chain = []
    while scope is not None:
        chain.append(scope)
        scope = scope.outer
    for each in reversed(chain):
        yield from each.declared.items()


@dataclass(slots=True, eq=False)
class Element:
    """One element: its name and namespace, attributes by (namespace, name), children and place.

    `span` is the text it was read from, its first and last byte there, and the namespaces in scope: a chain, innermost
    first, because a copy for every element could grow with the square of the text.
    """

    name: str
    namespace: str = ""
    attributes: dict[tuple[str, str], str] = field(default_factory=dict)
    children: list[Element | str] = field(default_factory=list)
    location: SourceLocation = NO_LOCATION
    places: dict[tuple[str, str], SourceLocation] = field(default_factory=dict)
    span: tuple[bytes, int, int, Scope | None] = (b"", 0, 0, None)

    def get(self, name: str, namespace: str = "") -> str | None:
        """The text of an attribute, or None."""
        return self.attributes.get((namespace, name))

    def at(self, name: str, namespace: str = "") -> SourceLocation:
        """The place of the value of an attribute; the element's own place if it does not have the attribute."""
        return self.places.get((namespace, name), self.location)

    @property
    def elements(self) -> list[Element]:
        """The children that are elements."""
        return [each for each in self.children if isinstance(each, Element)]

    @property
    def text(self) -> str:
        """The text directly inside, joined."""
        return "".join(each for each in self.children if isinstance(each, str))

    @property
    def raw(self) -> str:
        """The element as written, with the namespaces in scope declared on it, so that it can stand alone."""
        data, start_index, end, scope = self.span
        head = _TAG.match(data, start_index)
        assert head is not None
        own = {match[1].decode() for match in _attributes(data, head.end())}
        declared = dict(_declared(scope))
        known = "".join(f" {key}={_quoted(uri)}" for key, uri in declared.items() if key not in own and uri)
        return data[start_index : head.end()].decode() + known + data[head.end() : end].decode()


class XmlError(Exception):
    """Stops the parser from inside one of its handlers; has the diagnostic."""

    def __init__(self, code: str, message: str, location: SourceLocation, hint: str | None = None) -> None:
        super().__init__(message)
        self.diagnostic = (code, message, location, hint)


def parse_xml(text: str | bytes, *, source: str, diagnostics: Diagnostics) -> Element | None:
    """The root element of a text; None, with a diagnostic, if it cannot be read."""
    admitted = decode_source(text, language="scxml", source=source, diagnostics=diagnostics)
    if admitted is None:
        return None
    tree = _ElementBuilder(admitted.encode(), source)
    try:
        return tree.parse()
    except XmlError as refused:
        diagnostics.error(*refused.diagnostic)
    except expat.ExpatError as error:
        location = SourceLocation(source, error.lineno, error.offset + 1, error.lineno, error.offset + 2)
        diagnostics.error("scxml.syntax", f"not well-formed XML: {expat.ErrorString(error.code)}", location)
    return None


class _ElementBuilder:
    """Builds elements from the parser's callbacks; positions come from one cursor that only moves forward."""

    def __init__(self, data: bytes, source: str) -> None:
        self.data, self.source = data, source
        self.offset, self.line, self.column = 0, 1, 1
        self.root: Element | None = None
        self.nodes = 0
        self.open: list[Element] = []
        self.scopes: list[Scope | None] = [None]
        self.declared: dict[str, str] = {}
        # The given encoding overrides the declared one, because the text has been converted to UTF-8.
        parser = expat.ParserCreate("utf-8", " ")
        parser.buffer_text = True
        parser.StartDoctypeDeclHandler = self.doctype
        parser.StartNamespaceDeclHandler = self.namespace
        parser.StartElementHandler = self.start
        parser.EndElementHandler = self.end
        parser.CharacterDataHandler = self.characters
        self.parser = parser

    def parse(self) -> Element:
        self.parser.Parse(self.data, True)
        assert self.root is not None
        return self.root

    def here(self) -> SourceLocation:
        return self.location(self.parser.CurrentByteIndex, 1)

    def location(self, start: int, length: int) -> SourceLocation:
        passed = self.data[self.offset : start]
        lines = passed.count(b"\n")
        if lines:
            self.line += lines
            self.column = 1
            passed = passed[passed.rindex(b"\n") + 1 :]
        self.column += len(passed.decode())
        self.offset = start
        return SourceLocation(self.source, self.line, self.column, self.line, self.column + length)

    def doctype(self, *_: object) -> None:
        message = "a document type is not allowed: it can name files and define entities"
        raise XmlError("scxml.doctype", message, self.here(), "remove it")

    def namespace(self, prefix: str | None, uri: str | None) -> None:
        self.declared[f"xmlns:{prefix}" if prefix else "xmlns"] = uri or ""

    def start(self, name: str, attributes: dict[str, str]) -> None:
        if len(self.open) >= SCXML_DEPTH_MAX:
            raise XmlError("scxml.depth", f"elements are nested more than {SCXML_DEPTH_MAX} levels deep", self.here())
        self.nodes += 1 + len(attributes)
        if self.nodes > XML_NODES_MAX:
            message = f"a definition contains more than {XML_NODES_MAX:,} elements and attributes"
            raise XmlError("scxml.values", message, self.here(), "split the chart, or move data out of it")
        namespace, local = _split(name)
        start_index = self.parser.CurrentByteIndex
        outer = self.scopes[-1]
        self.scopes.append(Scope(self.declared, outer) if self.declared else outer)
        self.declared = {}
        element = Element(local, namespace, location=self.location(start_index, len(local) + 1))
        element.attributes = {_split(each): text for each, text in attributes.items()}
        element.span = (self.data, start_index, start_index, self.scopes[-1])
        self.locate(element, start_index)
        if self.open:
            self.open[-1].children.append(element)
        else:
            self.root = element
        self.open.append(element)

    def locate(self, element: Element, start_index: int) -> None:
        head = _TAG.match(self.data, start_index)
        assert head is not None
        # The parser returns attributes in the order written, without namespace declarations.
        names = iter(element.attributes)
        for match in _attributes(self.data, head.end()):
            if match[1] != b"xmlns" and not match[1].startswith(b"xmlns:"):
                element.places[next(names)] = self.location(match.start(2) + 1, len(match[2]) - 2)

    def end(self, _: str) -> None:
        element = self.open.pop()
        data, start_index, end, scope = element.span
        self.scopes.pop()
        end = self.parser.CurrentByteIndex
        # For `<a/>` the parser is after the tag, for `</a>` before it.
        if element.children or data[end - 2 : end] != b"/>":
            end = data.index(b">", end) + 1
        element.span = (data, start_index, end, scope)

    def characters(self, text: str) -> None:
        self.open[-1].children.append(text)


def _split(name: str) -> tuple[str, str]:
    namespace, _, local = name.rpartition(" ")
    return namespace, local


def _attributes(data: bytes, position: int) -> Iterator[re.Match[bytes]]:
    while (match := _ATTRIBUTE.match(data, position)) is not None:
        yield match
        position = match.end()


def remove_invalid_characters(text: str) -> str:
    """The text without the characters that XML cannot represent."""
    return _UNPLACEABLE.sub("", text)


def print_xml(root: Element) -> str:
    """The tree as text, indented by two blanks; an element that contains text is on one line."""
    lines = ['<?xml version="1.0" encoding="UTF-8"?>']
    _print(root, "", lines)
    return "\n".join(lines) + "\n"


def _print(element: Element, indent: str, lines: list[str]) -> None:
    head = f"{indent}<{element.name}" + "".join(
        f" {name}={_quoted(text)}" for (_, name), text in element.attributes.items()
    )
    if not element.children:
        lines.append(f"{head}/>")
    elif element.text:
        lines.append(f"{head}>{_escaped(element.text)}</{element.name}>")
    else:
        lines.append(f"{head}>")
        for each in element.elements:
            _print(each, f"{indent}  ", lines)
        lines.append(f"{indent}</{element.name}>")


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("\r", "&#13;")


def _quoted(text: str) -> str:
    # Unescaped white space in an attribute would be read back as blanks.
    text = _escaped(text).replace("\n", "&#10;").replace("\t", "&#9;")
    # Single quotes are easier to read than &quot;, and JSON is full of double ones.
    return f"'{text}'" if '"' in text and "'" not in text else '"' + text.replace('"', "&quot;") + '"'

"""XML text: what is refused, places, and how inline XML is kept."""

from __future__ import annotations

import pytest

from interlock.definition.source.xml import Element, parse_xml, print_xml, remove_invalid_characters
from interlock.model.diagnostics import Diagnostics
from interlock.model.limits import DEFINITION_BYTES_MAX, SCXML_DEPTH_MAX, XML_NODES_MAX

BOMB = '<!DOCTYPE a [<!ENTITY b "bbbb"><!ENTITY c "&b;&b;&b;&b;">]><a>&c;</a>'
OUTSIDE = '<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/hostname">]><a>&x;</a>'


def parsed(text: str | bytes) -> Element:
    """The root of a text that must be fine."""
    diagnostics = Diagnostics()
    root = parse_xml(text, source="a.scxml", diagnostics=diagnostics)
    assert [] == diagnostics.items
    assert root is not None
    return root


def refused(text: str | bytes) -> tuple[str, int, int]:
    """The code and place of the one diagnostic about a text."""
    diagnostics = Diagnostics()
    assert parse_xml(text, source="a.scxml", diagnostics=diagnostics) is None
    (found,) = diagnostics.items
    return found.code, found.location.line, found.location.column


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (BOMB, ("scxml.doctype", 1, 13)),
        (OUTSIDE, ("scxml.doctype", 1, 13)),
        ("<a>&x;</a>", ("scxml.syntax", 1, 4)),
        ("<a>" * 50_000, ("scxml.depth", 1, 3 * SCXML_DEPTH_MAX + 1)),
        ("<a>" + "<b/>" * XML_NODES_MAX + "</a>", ("scxml.values", 1, 4 * XML_NODES_MAX)),
        ("", ("scxml.syntax", 1, 1)),
        ("<a>\n <b></a>", ("scxml.syntax", 2, 7)),
        ("<p:a/>", ("scxml.syntax", 1, 1)),
        (b"<a>\xff</a>", ("scxml.encoding", 1, 1)),
        ("<a>\ud800</a>", ("scxml.encoding", 1, 1)),
        ("<a>" + "x" * DEFINITION_BYTES_MAX + "</a>", ("scxml.size", 1, 1)),
    ],
    ids=["bomb", "outside", "entity", "depth", "values", "empty", "tags", "prefix", "bytes", "surrogate", "size"],
)
def test_what_is_dangerous_or_broken_is_refused_with_its_place(
    text: str | bytes, expected: tuple[str, int, int]
) -> None:
    """No entity is ever expanded, nothing is fetched, and depth costs an error, not the interpreter."""
    assert expected == refused(text)


def test_what_the_text_says_of_its_encoding_does_not_count() -> None:
    """The text is UTF-8 whatever it declares, with or without a byte order mark."""
    root = parsed('\ufeff<?xml version="1.0" encoding="ISO-8859-1"?><a b="é"/>'.encode())

    assert "é" == root.get("b")


def test_elements_and_attributes_know_where_they_stand() -> None:
    """SourceLines and columns count characters from 1, also behind letters of several bytes."""
    root = parsed('<a\n  xmlns:p="q"  é="ü"\n  p:x=\'1\'><b>é<c y="2"/></b></a>')
    b = root.elements[0]
    c = b.elements[0]

    assert (1, 1) == (root.location.line, root.location.column)
    assert (2, 19) == (root.at("é").line, root.at("é").column)
    assert (3, 8) == (root.at("x", "q").line, root.at("x", "q").column)
    assert (3, 15) == (c.location.line, c.location.column)
    assert (3, 21) == (c.at("y").line, c.at("y").column)
    assert b.location == b.at("absent")


def test_names_are_taken_apart_by_namespace() -> None:
    root = parsed('<a xmlns="one" xmlns:p="two" p:b="1" b="2"><p:c/></a>')

    assert ("a", "one") == (root.name, root.namespace)
    assert ("1", "2") == (root.get("b", "two"), root.get("b"))
    assert ("c", "two") == (root.elements[0].name, root.elements[0].namespace)


def test_text_is_joined_across_children_and_sections() -> None:
    root = parsed("<a>one <!-- x -->two<b/><![CDATA[ <three>]]></a>")

    assert "one two <three>" == root.text


@pytest.mark.parametrize(
    ("inside", "expected"),
    [
        ("<b/>", '<b xmlns="one" xmlns:p="two"/>'),
        ('<b  c="/>"></b>', '<b xmlns="one" xmlns:p="two"  c="/>"></b>'),
        ('<b xmlns="" ><p:c>1</p:c></b>', '<b xmlns:p="two" xmlns="" ><p:c>1</p:c></b>'),
        ("<b>/></b>", '<b xmlns="one" xmlns:p="two">/></b>'),
        ("<b></b >", '<b xmlns="one" xmlns:p="two"></b >'),
    ],
)
def test_inline_xml_is_kept_as_written_and_can_stand_alone(inside: str, expected: str) -> None:
    """The namespaces in scope are declared on the element, so that its text means the same elsewhere (W3C 530)."""
    root = parsed(f'<a xmlns="one" xmlns:p="two">{inside}</a>')

    assert expected == root.elements[0].raw
    assert root.elements[0].name == parsed(root.elements[0].raw).name


def test_printed_text_reads_back() -> None:
    """Quotes, line breaks, tabs and signs of markup survive in attributes and in text."""
    hard = "a \"b\" 'c' <d> & \r\n\t e"
    root = Element(
        "a", attributes={("", "x"): hard, ("", "y"): '"only double"'}, children=[Element("b", children=[hard])]
    )
    again = parsed(print_xml(root))

    assert hard == again.get("x")
    assert '"only double"' == again.get("y")
    assert hard == again.elements[0].text
    assert "y='\"only double\"'" in print_xml(root)


def test_what_xml_cannot_hold_is_taken_out() -> None:
    """Control characters have no spelling in XML 1.0 at all."""
    assert "ab\tc" == remove_invalid_characters("a\x00b\tc\x0b\ufffe")

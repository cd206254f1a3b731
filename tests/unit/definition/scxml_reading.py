"""Short ways to read and write SCXML in tests."""

from __future__ import annotations

from typing import Any

from interlock.definition.format import SourceLoader
from interlock.definition.scxml.format import read_scxml
from interlock.definition.scxml.structure import INTERLOCK, SCXML
from interlock.definition.scxml.write import write_scxml
from interlock.model.document.actions import Block, Expression, GuardExpression
from interlock.model.document.document import Document, State


def scxml(inside: str, attributes: str = 'datamodel="python"') -> str:
    """A whole file around some elements."""
    return f'<scxml xmlns="{SCXML}" xmlns:interlock="{INTERLOCK}" version="1.0" {attributes}>{inside}</scxml>'


def read(inside: str, attributes: str = 'datamodel="python"', loader: SourceLoader | None = None) -> Document:
    """The document of a file that must be fine."""
    reading = read_scxml(scxml(inside, attributes), source="chart.scxml", loader=loader)
    assert () == reading.diagnostics
    assert reading.document is not None
    return reading.document


def codes(inside: str, attributes: str = "", loader: SourceLoader | None = None) -> list[str]:
    """The codes of all diagnostics about a file, errors without a mark, others with their severity."""
    found = read_scxml(scxml(inside, attributes), source="chart.scxml", loader=loader).diagnostics
    return [each.code if each.severity == "error" else f"{each.severity} {each.code}" for each in found]


def state(inside: str) -> State:
    """The one state of a file with this inside."""
    return read(f'<state id="s">{inside}</state>').root.states[0]


def block(inside: str) -> Block:
    """The block of actions that these elements are."""
    return state(f"<onentry>{inside}</onentry>").entry[0]


def back(document: Document) -> Document:
    """The document after it was written and read."""
    reading = read_scxml(write_scxml(document).text, source="back.scxml")
    assert reading.document is not None
    return reading.document


def chart(*states: State, **fields: Any) -> Document:
    """A document of these states; fields of the root and of the document by name."""
    root = {name: fields.pop(name) for name in ROOT if name in fields}
    return Document(kind="k", root=State(states=states, **root), **fields)


ROOT = ("transitions", "entry", "exit", "initial", "type", "context", "invokes", "id")


def expression(text: str) -> GuardExpression:
    """A guard of one expression."""
    return GuardExpression(expression=Expression(text))

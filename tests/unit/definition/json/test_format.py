"""Definitions as JSON in our own vocabulary: the same document comes back, as the same bytes, with positions."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings

from interlock.definition.json.format import FORMAT, canonical_json
from interlock.definition.yaml.format import FORMAT as YAML
from interlock.errors import UsageError
from interlock.model.document.document import Document, State
from interlock.model.limits import DEFINITION_BYTES_MAX, DEFINITION_STORED_BYTES_MAX
from tests.unit.definition.documents import documents

DOOR: dict[str, Any] = {"interlock": 1, "kind": "door", "states": {"open": {"on": {"push": "shut"}}, "shut": {}}}


def read(text: str | bytes) -> Document:
    """The document of a text without diagnostics."""
    reading = FORMAT.read(text, source="written")
    assert () == reading.diagnostics, text
    assert reading.document is not None
    return reading.document


@pytest.mark.slow
@given(documents())
@settings(max_examples=100)
def test_a_written_document_reads_back_equal(document: Document) -> None:
    """read(write(document)) == document for every class of the model; the bytes are canonical and agree with YAML."""
    data, text = canonical_json(document), FORMAT.write(document).text

    assert document == read(data) == read(text)
    assert data == canonical_json(read(text))
    assert text == FORMAT.write(read(data)).text
    assert json.loads(text) == json.loads(data)
    assert document == YAML.read(YAML.write(read(data)).text, source="x").document


def test_version_kind_and_dialect_come_first() -> None:
    """The dialect is written although it is the default; other defaults are left out."""
    document = read(json.dumps({**DOOR, "unhandled": "reject", "binding": "early"}))

    assert b'{"interlock":1,"kind":"door","dialect":"interlock","unhandled":"reject","states":' in canonical_json(
        document
    )


def test_the_order_of_states_is_kept() -> None:
    states: dict[str, Any] = {"z": {}, "a": {}, "m": {"states": {"2": {}, "1": {}}}}
    tree = json.loads(canonical_json(read(json.dumps({**DOOR, "states": states}))))

    assert ["z", "a", "m"] == list(tree["states"])
    assert ["2", "1"] == list(tree["states"]["m"]["states"])


def test_findings_have_positions() -> None:
    """Of keys, of values, and inside expressions."""
    text = """{
  "interlock": 1, "kind": "door",
  "states": {
    "open": {"on": {"push": {"target": "shut", "guard": "= context.n >"}}, "colour": "red"},
    "shut": {"type": "fnal"}
  }
}"""
    found = {each.code: (each.location.line, each.location.column, each.location.path) for each in _diagnostics(text)}

    assert (4, 76, "states.open.colour") == found["key.unknown"]
    assert (5, 22, "states.shut.type") == found["value.choice"]
    expression = FORMAT.read(text.replace(', "colour": "red"', ""), source="x").document
    assert expression is not None
    guard: Any = expression.root.states[0].transitions[0].guard
    assert (4, 60) == (guard.expression.location.line, guard.expression.location.column)


def _diagnostics(text: str) -> Any:
    return FORMAT.read(text, source="door.json").diagnostics


def test_a_definition_larger_than_a_text_may_be_is_stored_up_to_its_own_limit() -> None:
    """JSON of a text of 1 MiB can be longer than 1 MiB; what cannot be read again is not written."""
    large = Document(kind="k", root=State(description="x" * (DEFINITION_BYTES_MAX * 2), states=(State(key="a"),)))
    huge = Document(kind="k", root=State(description="x" * DEFINITION_STORED_BYTES_MAX, states=(State(key="a"),)))

    assert large == read(canonical_json(large))
    with pytest.raises(UsageError) as caught:
        FORMAT.write(huge)
    assert "json.size" == caught.value.code
    assert ["json.size"] == [each.code for each in _diagnostics(" " * (DEFINITION_STORED_BYTES_MAX + 1))]

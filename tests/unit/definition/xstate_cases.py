"""What the tests of the XState reader and writer share: short ways from JSON to a document and to codes."""

from __future__ import annotations

import json
from typing import Any, Literal

from interlock.definition.xstate.format import read_xstate, write_xstate
from interlock.model.document.document import Document, State

Json = dict[str, Any]


def simple(a: Json | None = None, **more: Any) -> Json:
    """A definition with the states `a`, as given, and `b`."""
    return {"id": "m", "initial": "a", "states": {"a": a or {}, "b": {}}, **more}


def read(definition: Any, version: Literal[4, 5] = 5) -> Document:
    """The document; any diagnostic that is an error fails the test."""
    reading = read_xstate(json.dumps(definition), source="m.json", xstate=version)
    assert [] == [str(each) for each in reading.diagnostics if each.severity == "error"]
    assert reading.document is not None
    return reading.document


def read_state(a: Json, **more: Any) -> State:
    """The state `a` of a definition."""
    return next(each for each in read(simple(a, **more)).root.states if each.key == "a")


def codes(definition: Any, version: Literal[4, 5] = 5) -> list[str]:
    """The codes of all diagnostics, in the order of their places."""
    return [each.code for each in read_xstate(json.dumps(definition), source="m.json", xstate=version).diagnostics]


def written(document: Document) -> Json:
    """The document as XState JSON."""
    made: Json = json.loads(write_xstate(document).text)
    return made


def losses(document: Document) -> list[str]:
    """The codes that writing gives."""
    return [each.code for each in write_xstate(document).diagnostics]


def again(document: Document) -> Document:
    """The document written and read."""
    return read(written(document))

"""Whatever JSON comes in, the reader answers with diagnostics, never with an exception."""

from __future__ import annotations

import json
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interlock.compiler.build import compile_document
from interlock.definition.xstate.format import read_xstate, write_xstate

KEYS = st.sampled_from(
    [
        "id", "type", "initial", "states", "on", "always", "after", "onDone", "entry", "exit", "invoke", "history",
        "target", "output", "tags", "meta", "interlock", "context", "version", "guard", "actions", "reenter", "src",
        "input", "onError", "params", "event", "guards", "stateValue", "delay", "values", "branches", "fields",
        "assigns", "events", "saga", "expect", "a", "b", "1", "m", "*", "cond", "in", "internal", "data", "activities",
        "conds", "10", "= x", "",
    ]
)  # fmt: skip
TEXTS = st.sampled_from(
    [
        "a", "b", ".a", "#m", "#m.a", "#", ".", "a.b", "parallel", "final", "history", "deep", "xstate.raise",
        "xstate.assign", "xstate.choose", "xstate.and", "xstate.stateIn", "interlock.if", "interlock.foreach",
        "interlock.assign", "interlock.expression", "= context.a", "\\=", "x", "",
    ]
)  # fmt: skip
VALUES: st.SearchStrategy[Any] = st.recursive(
    TEXTS | st.none() | st.booleans() | st.integers(-5, 2000) | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=25,
)
STATES = st.dictionaries(st.sampled_from(["a", "b", "1", "x y"]), st.dictionaries(KEYS, VALUES, max_size=5), max_size=3)


@pytest.mark.slow
@pytest.mark.parametrize("version", [4, 5])
@given(root=st.dictionaries(KEYS, VALUES, max_size=4), states=STATES)
@settings(max_examples=100)
def test_no_definition_breaks_the_reader(version: Literal[4, 5], root: dict[str, Any], states: dict[str, Any]) -> None:
    """A document that came out without errors can be compiled and written, or refused with diagnostics."""
    text = json.dumps({**root, "states": states})
    reading = read_xstate(text, source="m.json", xstate=version)
    if reading.document is None or any(each.severity == "error" for each in reading.diagnostics):
        assert reading.diagnostics
        return
    compile_document(reading.document)
    again = read_xstate(write_xstate(reading.document).text, source="m.json")

    assert reading.document == again.document


def test_deep_nesting_is_an_error() -> None:
    text = '{"states":{"a":' * 60 + "{}" + "}}" * 60
    reading = read_xstate(text, source="m.json")

    assert reading.document is None
    assert reading.diagnostics

"""Documents to YAML: reads back as the same document, keeps the order of transitions, quotes what others mistype."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from interlock.definition.vocabulary.chart import SCHEMA_LINE
from interlock.definition.yaml.format import FORMAT
from interlock.definition.yaml.parse import parse_yaml
from interlock.definition.yaml.print import print_yaml, scalar_text
from interlock.model.diagnostics import Diagnostics
from interlock.model.document.actions import Expression
from interlock.model.document.document import Document, State, Transition
from tests.unit.definition.documents import DESCRIPTORS, PLAIN, TEXTS, documents, transitions, tuples


def read(text: str) -> Document:
    """The document of a text without diagnostics."""
    reading = FORMAT.read(text, source="written")
    assert () == reading.diagnostics, text
    assert reading.document is not None
    return reading.document


def chart(*tried: Transition) -> Document:
    """A chart of one state with these transitions."""
    return Document(kind="k", root=State(states=(State(key="a", transitions=tried),)))


def body(*tried: Transition) -> Any:
    """What is written of a state with these transitions, as plain values."""
    text = FORMAT.write(chart(*tried)).text
    located = parse_yaml(text, source="x", diagnostics=Diagnostics())
    assert located is not None
    return located.plain()["states"]["a"]


def on(*events: str, **parts: Any) -> Transition:
    """A transition of `on`."""
    return Transition(events=events, **parts)


@pytest.mark.slow
@given(documents())
@settings(max_examples=100)
def test_a_written_document_reads_back_equal(document: Document) -> None:
    """read(write(document)) == document for every class of the model, and rewriting changes nothing."""
    writing = FORMAT.write(document)
    assert () == writing.diagnostics
    again = read(writing.text)
    assert document == again
    assert writing.text == FORMAT.write(again).text
    assert writing.text.startswith(f"{SCHEMA_LINE}\ninterlock: 1\nkind: ")


EVENTLESS = st.one_of(transitions(origin="always"), transitions(origin="transitions"))
EVENTED = tuples(DESCRIPTORS, 1).flatmap(
    lambda events: st.one_of(transitions(events=events), transitions(origin="transitions", events=events))
)


@pytest.mark.slow
@given(st.lists(EVENTLESS | EVENTED, max_size=6))
@settings(max_examples=100)
def test_transitions_in_any_order_keep_the_order_in_which_they_are_tried(tried: list[Transition]) -> None:
    """Evented ones keep their order, and so do eventless ones; between the two kinds order means nothing."""
    again = read(FORMAT.write(chart(*tried)).text).root.states[0].transitions

    def meaning(found: list[Transition], *, evented: bool) -> list[Transition]:
        return [replace(each, origin="on") for each in found if bool(each.events) == evented]

    for evented in (False, True):
        assert meaning(tried, evented=evented) == meaning(list(again), evented=evented)


def test_neighbours_of_one_descriptor_become_a_list() -> None:
    assert {"on": {"e": ["b", {}], "f, g.*": "c"}} == body(
        on("e", targets=("b",)), on("e"), on("f", "g.*", targets=("c",))
    )


def test_a_descriptor_that_comes_back_later_is_listed() -> None:
    """`on` cannot say e, f, e: from the return on everything is listed, so that the order stays."""
    expected = {
        "on": {"e": "b", "f": "c"},
        "transitions": [{"event": "e", "target": "d"}, {"event": "g", "target": "b"}, {"event": "x, y"}],
    }
    listed = Transition(origin="transitions", events=("x", "y"))
    assert expected == body(
        on("e", targets=("b",)), on("f", targets=("c",)), on("e", targets=("d",)), on("g", targets=("b",)), listed
    )


def test_what_follows_a_listed_transition_is_listed_too() -> None:
    """An `on` behind a listed transition would be tried before it, and so would an `always` behind an eventless one."""
    listed, eventless = (
        Transition(origin="transitions", events=("e",)),
        Transition(origin="transitions", targets=("b",)),
    )
    always = Transition(origin="always", targets=("c",))
    assert {"transitions": [{"event": "e"}, {"event": "f"}]} == body(listed, on("f"))
    assert {"transitions": [{"target": "b"}, {"target": "c"}]} == body(eventless, always)
    assert {"always": "c", "transitions": [{"event": "e"}]} == body(listed, always)
    assert {"transitions": [{"target": "c"}]} == body(Transition(origin="on", targets=("c",)))


def test_a_timer_behind_a_wildcard_is_listed() -> None:
    """The keys `after` and `onDone` are tried first; where that changes what happens, `transitions` keeps the order."""
    after, done = Transition(origin="after", delay="1s", restore="restart"), Transition(origin="onDone")
    computed = Transition(origin="after", delay=Expression("context.wait"))
    assert {"after": {"1s": {"onRestore": "restart"}}, "on": {"e, x.done": {}}} == body(on("e", "x.done"), after)
    for wildcard in (on("*"), on("after.*")):
        found = body(wildcard, after, computed)["transitions"]
        assert [{"after": "1s", "onRestore": "restart"}, {"after": "= context.wait"}] == found
    assert [{"onDone": True}, {"event": "f"}] == body(on("done"), done, on("f"))["transitions"]
    for tried in ((on("*"), after, done, computed, after), (on("done.*"), done, done)):
        assert chart(*tried) == read(FORMAT.write(chart(*tried)).text)


def test_white_space_around_an_expression_is_not_kept() -> None:
    """`=  x ` and `= x` are the same expression; what is written reads back without it."""
    written = FORMAT.write(chart(on("e"), Transition(origin="after", delay=Expression(" x\n"))))
    assert Expression("x") == read(written.text).root.states[0].transitions[0].delay


@given(TEXTS | st.text())
def test_no_reader_mistypes_a_string(text: str) -> None:
    """Every string reads back as itself by our reader (YAML 1.2) and by PyYAML's (YAML 1.1), in and out of brackets."""
    for line in (f"- {scalar_text(text)}", f"[{scalar_text(text)}]", f"- {{a: {scalar_text(text)}}}"):
        located = parse_yaml(line, source="x", diagnostics=Diagnostics())
        assert located is not None
        assert text == _only(located.plain())
        assert text == _only(yaml.safe_load(line))


def _only(value: Any) -> Any:
    (inner,) = value
    return inner["a"] if isinstance(inner, dict) else inner


@pytest.mark.slow
@given(st.dictionaries(TEXTS, PLAIN, max_size=3))
def test_plain_values_read_back_in_both_versions_of_yaml(tree: dict[str, Any]) -> None:
    """The layout never changes a value; only keys are typed by YAML 1.1."""
    text = print_yaml({"x": {"y": tree}})
    located = parse_yaml(text, source="x", diagnostics=Diagnostics())
    assert located is not None
    assert {"x": {"y": tree}} == located.plain()
    assert [tree] == yaml.safe_load(print_yaml({"x": [tree]}))["x"] or any(key == "on" for key in _keys(tree))


def _keys(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [*value, *(key for each in value.values() for key in _keys(each))]
    return [key for each in value for key in _keys(each)] if isinstance(value, list) else []


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("paid", "paid"),
        ("1s..30s", "1s..30s"),
        ("3.1.0", "3.1.0"),
        ("resize failed", "resize failed"),
        ("= a", '"= a"'),
        ('= a == "b"', "'= a == \"b\"'"),
        ("it's", "it's"),
        ('"it\'s"', "'\"it''s\"'"),
        ("#id", '"#id"'),
        ("on", '"on"'),
        ("y", '"y"'),
        ("12:30", '"12:30"'),
        ("1_000", '"1_000"'),
        ("0o17", '"0o17"'),
        ("2026-11-15", '"2026-11-15"'),
        ("", '""'),
        ("a ", '"a "'),
        ("...", '"..."'),
        ("a\tb\r\0", '"a\\tb\\r\\0"'),
        ("\x85\u2028\x1b\\", '"\\x85\\u2028\\x1b\\\\"'),
        (1e16, "1.0e+16"),
        (1.5e-7, "1.5e-07"),
        (0.5, "0.5"),
        (None, "null"),
        (True, "true"),
        (-7, "-7"),
    ],
)
def test_scalars_have_quotes_only_where_needed(value: Any, expected: str) -> None:
    """Plain where every reader agrees; double quotes else; single ones where that saves escapes."""
    assert expected == scalar_text(value)


def test_layout_is_for_people() -> None:
    """Short values share a line, long ones and `states` are blocks, texts of several lines are literal."""
    long = "x" * 90
    tree = {
        "context": {"a": {"type": "string"}, "b": "any"},
        "events": {"e": {}},
        "on": {"e": [{"target": "b"}, {"target": long}]},
        "states": {"a": {}, "b": {"states": {"c": {"on": {"e": "a"}}}}},
        "list": [["x", {"deep": {"deeper": {"deepest": {"end": [1]}}}}], "two\nlines\n"],
        "empty": [],
        "text": "two\nlines",
        "odd": "two \nlines",
        "key": {"k" * 1_001: [1]},
    }
    expected = f"""context:
  a: {{type: string}}
  b: any
events: {{e: {{}}}}
on:
  e:
    - {{target: b}}
    - target: {long}
states:
  a: {{}}
  b:
    states:
      c: {{on: {{e: a}}}}
list:
  - - x
    - deep: {{deeper: {{deepest: {{end: [1]}}}}}}
  - |
    two
    lines
empty: []
text: |-
  two
  lines
odd: "two \\nlines"
key:
  ? {"k" * 1_001}
  : [1]
"""
    assert expected == print_yaml(tree)
    located = parse_yaml(expected, source="x", diagnostics=Diagnostics())
    assert located is not None
    assert tree == located.plain()

"""YAML to documents: all problems are reported together, with place and path, and valid parts are kept."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interlock.assemble.charts import compile_reading
from interlock.definition.yaml.format import FORMAT
from interlock.errors import Diagnostic
from interlock.model.document import actions as act
from interlock.model.document.document import Invoke, Transition

HEAD = "interlock: 1\nkind: order\n"


def diagnostics(text: str) -> list[Diagnostic]:
    """All diagnostics of a text."""
    return list(FORMAT.read(text, source="order.yaml").diagnostics)


def diagnostic(body: str) -> Diagnostic:
    """The only diagnostic of a chart whose first state has this body."""
    (found,) = diagnostics(f"{HEAD}states: {{a: {body}}}")
    return found


def errors(text: str) -> list[str]:
    """The codes of all errors of reader and compiler."""
    diagnostics = compile_reading(FORMAT.read(text, source="order.yaml")).diagnostics
    return [each.code for each in diagnostics if each.severity == "error"]


def test_all_problems_are_reported_in_order_of_position() -> None:
    """Nothing stops at the first problem, and what is left still makes a document that others can check further."""
    text = f"""{HEAD}revision: 3.1
colour: red
states:
  paid:
    entri: [a]
    on: {{order.canceled: {{traget: x, guard: 5}}, "a b": c}}
    after: {{30: paid}}
  broken: 7
"""
    reading = FORMAT.read(text, source="order.yaml")
    found = [(each.location.line, each.location.column, each.code, each.location.path) for each in reading.diagnostics]

    assert [
        (3, 11, "value.type", "revision"),
        (4, 1, "key.unknown", "colour"),
        (7, 5, "key.unknown", "states.paid.entri"),
        (8, 27, "key.unknown", "states.paid.on[order.canceled].traget"),
        (8, 45, "value.type", "states.paid.on[order.canceled].guard"),
        (8, 49, "name.invalid", "states.paid.on[a b]"),
        (9, 13, "duration.invalid", "states.paid.after.30"),
        (10, 11, "value.type", "states.broken"),
    ] == found
    assert reading.document is not None
    assert ["paid", "broken"] == [each.key for each in reading.document.root.states]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("[]", "value.type"),
        ("interlock: 2\nkind: a\nstates: {a: {}}", "value.type"),
        ("interlock: one\nkind: a\nstates: {a: {}}", "value.choice"),
        ("kind: a\nstates: {a: {}}", "key.missing"),
        ("interlock: 1\nstates: {a: {}}", "key.missing"),
        ("interlock: 1\nkind: a", "key.missing"),
        ("interlock: 1\nkind: a b\nstates: {a: {}}", "name.invalid"),
        ("interlock: 1\nkind: a\nstates: {}", "value.empty"),
        ("a: *b", "yaml.alias"),
    ],
)
def test_without_the_frame_of_a_chart_there_is_not_a_document(text: str, code: str) -> None:
    """What is not even `interlock: 1`, a kind and states makes no document."""
    reading = FORMAT.read(text, source="x")
    assert reading.document is None
    assert [code] == [each.code for each in reading.diagnostics]


@pytest.mark.parametrize(
    ("body", "code", "has_hint"),
    [
        ("null", "value.type", True),
        ("{on: null}", "value.type", True),
        ("{entry: n}", "value.type", False),
        ("{on: {e: {actions: n}}}", "value.type", True),
        ("{entry: [[a], b]}", "value.type", True),
        ("{entry: ['= x']}", "name.invalid", True),
        ("{entry: [{sned: {event: e}}]}", "key.missing", True),
        ("{entry: [{}]}", "key.missing", False),
        ("{entry: [{raise: e, log: x}]}", "key.unknown", True),
        ("{entry: [{assign: {a: 1}, with: 1}]}", "key.unknown", True),
        ("{on: {e: {cond: g}}}", "key.unknown", True),
        ("{output: 1}", "key.unknown", True),
        ("{type: parallel, initial: b}", "key.unknown", True),
        ("{type: compound}", "value.choice", True),
        ("{type: finale}", "value.choice", True),
        ("{type: 5}", "value.type", False),
        ("{type: history, history: depp}", "value.choice", True),
        ("{sensitive: false}", "value.type", False),
        ("{invoke: {src: h, type: handle}}", "value.choice", True),
        ("{invoke: {src: h, timeout: 30}}", "value.type", True),
        ("{invoke: {src: h, retry: {max: 1.5}}}", "value.type", False),
        ("{invoke: {src: h, retry: {max: 1, tries: 3}}}", "key.unknown", True),
        ("{invoke: {src: h, retry: {max: -1}}}", "value.range", False),
        ("{invoke: {src: h, autoforward: 1}}", "value.type", False),
        ("{context: {x: {default: 1, min: true}}}", "value.type", False),
        ("{always: []}", "value.empty", False),
        ("{on: {e: 'a b'}}", "name.invalid", True),
        (f"{{id: {'x' * 300}}}", "name.invalid", False),
        ("{description: [x]}", "value.type", False),
        ("{always: {guard: {al: [g]}}}", "key.missing", True),
    ],
)
def test_a_wrong_shape_has_a_code(body: str, code: str, has_hint: bool) -> None:
    found = diagnostic(body)

    assert (code, has_hint) == (found.code, found.hint is not None)


@pytest.mark.parametrize(
    ("body", "word"),
    [
        ("{entry: [{sned: {event: e}}]}", "send"),
        ("{entry: [{raise: e, log: x}]}", "a log"),
        ("{on: {e: {cond: g}}}", "guard"),
        ("{output: 1}", "a final state"),
        ("{type: finale}", "final"),
        ("{type: history, history: depp}", "deep"),
        ("{invoke: {src: h, type: handle}}", "handler"),
        ("{invoke: {src: h, retry: {max: 1, tries: 3}}}", "backoff"),
        ("{always: {guard: {al: [g]}}}", "all"),
    ],
)
def test_the_hint_names_the_likely_word(body: str, word: str) -> None:
    """The nearest known word, our word for another tool's, or the place where a key belongs."""
    assert word in (diagnostic(body).hint or "")


@pytest.mark.parametrize("key", ["a b", "a.b", "", "é!", "#a", "x" * 257])
def test_keys_of_states_are_letters_digits_underscore_and_dash(key: str) -> None:
    """Ids are made of keys, so keys hold no dots, spaces or signs, and stay short (V6)."""
    (found,) = diagnostics(f"{HEAD}states: {{a: {{}}, '{key}': {{}}}}")
    assert "name.invalid" == found.code
    assert () == FORMAT.read(f"{HEAD}states: {{été-1_x: {{}}}}", source="x").diagnostics


@pytest.mark.parametrize("event", ["a b", "a..b", ".a", "a.*.b", "*.a", "a,", "=a", ""])
def test_bad_descriptors_are_refused(event: str) -> None:
    assert "name.invalid" == diagnostic(f"{{on: {{'{event}': b}}}}").code


@pytest.mark.parametrize("text", ["30", "1.5s", "-1s", "30m1h", "1h1h", "1s 2ms", "s", "1s..2s", "forever"])
def test_durations_need_falling_units(text: str) -> None:
    """V7: a number with a unit, joined falling; ranges only in `backoff`, forever only in `expect`."""
    assert "duration.invalid" == diagnostic(f"{{invoke: {{src: h, timeout: '{text}'}}}}").code


RESERVED = [
    "{entry: [{raise: error.custom}]}",
    "{exit: [{if: g, then: [{send: {event: done.x}}]}]}",
    "{initial: {target: b, actions: [{raise: _x}]}, states: {b: {}}}",
    "{type: history, actions: [{raise: after.x}]}",
    "{invoke: {src: h, finalize: [{raise: _x}]}}",
    "{invoke: {src: h, onError: {actions: [{raise: _x}]}}}",
    "{saga: {steps: [{id: s, do: {src: h}}], onCompensated: {actions: [{raise: _x}]}}}",
    "{context: {_x: any}}",
    "{states: {_b: {}}}",
    "{invoke: {src: {states: {_b: {}}}}}",
]


@pytest.mark.parametrize("body", RESERVED)
def test_reserved_names_are_refused(body: str) -> None:
    """Some names belong to the kernel (V6), in every block."""
    assert "name.reserved" in errors(f"{HEAD}states: {{a: {body}}}")


def test_converted_charts_may_carry_reserved_names() -> None:
    """Another dialect's chart may raise `error.x` or name a state `_b`; every chart may listen to them."""
    states = "states: {_a: {entry: [{raise: error.x}], invoke: {id: i}}}"
    assert [] == errors(f"{HEAD}dialect: scxml\nevents: {{error.x: {{}}}}\n{states}")
    listening = "on: {error.*: b}, entry: [{raise: '= event.name'}]"
    assert [] == errors(f"{HEAD}states: {{a: {{{listening}}}, b: {{}}}}")
    assert ["name.reserved"] == errors(f"{HEAD}events: {{error.x: {{}}}}\nstates: {{a: {{}}}}")


def test_a_field_of_the_context_must_say_how_it_starts() -> None:
    """One of default, required and nullable must be there; `any` starts null."""
    fields = "x: string, y: any, z: {type: string, nullable: true}"
    assert ["context.no_value"] == errors(f"{HEAD}states: {{a: {{context: {{{fields}}}}}}}")
    fields = "x: {type: string, required: false, nullable: false}"
    assert ["context.no_value"] == errors(f"{HEAD}states: {{a: {{context: {{{fields}}}}}}}")


def test_what_an_invoke_must_say() -> None:
    """An invoke has a source; an inline chart is a chart; a backoff rises, in sagas too."""
    retry = "retry: {max: 1, backoff: 30s..1s}"
    assert ["invoke.no_src"] == errors(f"{HEAD}states: {{a: {{invoke: {{id: i}}}}}}")
    inline = "{type: handler, src: {states: {a: {}}}}"
    assert ["invoke.type"] == errors(f"{HEAD}states: {{a: {{invoke: {inline}}}}}")
    assert ["duration.range"] == errors(f"{HEAD}states: {{a: {{invoke: {{src: h, {retry}}}}}}}")
    assert ["duration.range"] == errors(
        f"{HEAD}states: {{a: {{saga: {{steps: [{{id: s, do: {{src: h}}, {retry}}}]}}}}}}"
    )


def test_a_broken_part_does_not_affect_the_others() -> None:
    """A bad list item, a bad required key and a bad value are left out; their neighbours stay."""
    text = f"""{HEAD}states:
  a: {{entry: [x, 5, y], invoke: [{{src: h}}, {{src: 5}}], on: {{e: [b, 5], f: 5}}, saga: {{onDone: b}}}}"""
    reading = FORMAT.read(text, source="x")
    assert ["value.type"] * 4 + ["key.missing"] == [each.code for each in reading.diagnostics]
    assert reading.document is not None
    kept = reading.document.root.states[0]
    assert ((act.Do(name="x"), act.Do(name="y")),) == kept.entry
    assert (Invoke(src="h"), Invoke()) == kept.invokes
    assert (Transition(events=("e",), targets=("b",)),) == kept.transitions
    assert kept.saga is None


EXAMPLES = [path.read_text() for path in sorted((Path(__file__).parents[4] / "examples").glob("*.interlock.yaml"))]


@pytest.mark.slow
@given(
    st.sampled_from(EXAMPLES), st.lists(st.tuples(st.integers(0, 9_999), st.text(max_size=3)), min_size=1, max_size=4)
)
@settings(max_examples=60)
def test_no_text_makes_the_reader_raise(text: str, changes: list[tuple[int, str]]) -> None:
    """Any damaged definition gives a document or diagnostics, and the document can be written again."""
    for number, inserted in changes:
        position = number % len(text)
        text = text[:position] + inserted + text[position + 2 :]
    reading = FORMAT.read(text, source="spoiled")
    assert reading.document is not None or reading.diagnostics != ()
    if reading.document is not None:
        FORMAT.write(reading.document)

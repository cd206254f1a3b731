"""The name of a behaviour: what changes it and what does not, from the table of the vocabulary."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interlock.assemble.charts import get_format, read_file, read_text
from interlock.compiler.resolve import parse_descriptor
from interlock.definition.shapes import Key, Record
from interlock.definition.vocabulary.chart import DOCUMENT, SHAPES, STATE
from interlock.evolve.identity import behaviour_name, collapse_space, normalize
from interlock.model.charts.chart import Descriptor
from interlock.model.document.actions import Expression
from interlock.model.document.document import Document, State, Transition
from interlock.model.document.field import Field
from tests.conformance.roundtrip.trips import chart_of
from tests.conformance.roundtrip.twins import Tally, Twins
from tests.conformance.xstate.definitions import generated
from tests.properties.charts import document as random_document
from tests.unit.definition.documents import documents
from tests.unit.model.test_content_hash import document as everything

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"

Path_ = tuple[str | int, ...]


def name(text: str) -> str:
    """The name of a chart in YAML, without its first lines."""
    found = read_text(f"interlock: 1\nkind: k\n{text}", format="yaml", source="x")
    assert () == found.diagnostics
    assert found.document is not None
    return behaviour_name(found.document)


# Metamorphic tests from the table


def records() -> Iterator[tuple[type[Any], Key]]:
    """Every key of the vocabulary that fills a field, with the class of the model that has the field."""
    whole = [each.whole or each for each in SHAPES.values() if isinstance(each, Record) and each.makes is not None]
    chart = SHAPES["chart"]
    assert isinstance(chart, Record)
    kind = next(each for each in chart.keys if each.name == "kind")
    keys = [(each.makes, key) for each in (DOCUMENT, STATE, *whole) for key in each.keys] + [(Document, kind)]
    for makes, key in dict.fromkeys((makes, key) for makes, key in keys if makes is not None):
        if any(each.name == key.attribute for each in fields(makes)):
            yield makes, key


def find(value: Any, makes: type[Any], attribute: str, path: Path_ = ()) -> Path_ | None:
    """The path of an attribute in the first value of a class in which it is not the default."""
    default = next((each.default for each in fields(makes) if each.name == attribute), None)
    if isinstance(value, makes) and getattr(value, attribute) != default:
        return (*path, attribute)
    inner: list[tuple[str | int, Any]] = []
    if is_dataclass(value):
        inner = [(each.name, getattr(value, each.name)) for each in fields(value)]
    elif isinstance(value, dict):
        inner = list(value.items())
    elif isinstance(value, list | tuple):
        inner = list(enumerate(value))
    found = (find(each, makes, attribute, (*path, step)) for step, each in inner)
    return next((each for each in found if each is not None), None)


def edit(value: Any, path: Path_, change: Callable[[Any], Any]) -> Any:
    """The value with the part at a path changed."""
    if not path:
        return change(value)
    step, rest = path[0], path[1:]
    if isinstance(value, dict):
        return {**value, step: edit(value[step], rest, change)}
    if isinstance(value, list | tuple):
        assert isinstance(step, int)
        changed = [*value[:step], edit(value[step], rest, change), *value[step + 1 :]]
        return changed if isinstance(value, list) else tuple(changed)
    assert isinstance(step, str)
    return replace(value, **{step: edit(getattr(value, step), rest, change)})


def another(value: Any) -> Any:
    """Another value of the same type, as far as that matters to a hash."""
    match value:
        case bool():
            return not value
        case "scxml":
            return "xstate"
        case str():
            return f"{value}z"
        case int() | float():
            return value + 1
        case Expression():
            return Expression(f"{value.text} + 1")
        case tuple() if value and isinstance(value[0], str):
            return (another(value[0]), *value[1:])
        case tuple():
            return value[1:]
        case Field():
            return replace(value, type="number")
        case _:
            return second(value) if is_dataclass(value) else None


def second(value: Any) -> Any:
    """A value for the second place of a list."""
    if isinstance(value, str):
        return f"{value}z"
    if isinstance(value, tuple):
        return (second(value[0]), *value[1:]) if value else (Transition(),)
    if isinstance(value, dict):
        return {**value, "z": 1}
    label = next((each.name for each in fields(value) if each.name in ("name", "key", "id", "targets")), None)
    first = fields(value)[0].name
    return replace(value, **{label or first: another(getattr(value, label or first))})


ROWS = list(records())
IDS = [f"{makes.__name__}.{key.name}" for makes, key in ROWS]


@pytest.mark.parametrize(("makes", "key"), ROWS, ids=IDS)
def test_an_edit_changes_the_name_exactly_if_the_key_is_in(makes: type[Any], key: Key) -> None:
    before = everything(inline=everything())
    path = find(before, makes, key.attribute)
    assert path is not None
    after = edit(before, path, another)
    is_same, was, now = after == before, behaviour_name(before), behaviour_name(after)

    assert not is_same
    assert (key.identity == "in") == (was != now)


def value_of(makes: type[Any], key: Key) -> Any:
    """The value of a key in the document that says everything."""
    value: Any = everything()
    for step in find(value, makes, key.attribute) or ("kind",):
        value = getattr(value, step) if isinstance(step, str) and is_dataclass(value) else value[step]
    return value


LISTS = [(makes, key) for makes, key in ROWS if isinstance(value_of(makes, key), tuple) and value_of(makes, key)]


@pytest.mark.parametrize(("makes", "key"), LISTS, ids=[f"{makes.__name__}.{key.name}" for makes, key in LISTS])
def test_a_changed_order_changes_the_name_exactly_if_the_order_is_kept(makes: type[Any], key: Key) -> None:
    document = everything()
    path = find(document, makes, key.attribute)
    assert path is not None
    forward = behaviour_name(edit(document, path, lambda value: (value[0], second(value[0]))))
    backward = behaviour_name(edit(document, path, lambda value: (second(value[0]), value[0])))

    assert (key.identity == "in" and key.order == "kept") == (forward != backward)


def test_every_key_of_the_table_is_tested() -> None:
    """But for those whose value the codec composes, which the tests below change: branches, transitions, the mark."""
    named = {key.name for shape in SHAPES.values() if isinstance(shape, Record) for key in shape.keys}
    composed = {"interlock", "elif", "else", "always", "after", "transitions"}
    inner = {"raise", "send", "emit", "log", "foreach"}

    assert named - {key.name for _, key in ROWS} == composed | inner


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("states: {a: {on: {e: b}}, b: {}}", "states: {a: {on: {f: b}}, b: {}}"),
        ("states: {a: {on: {e: b}}, b: {}}", "states: {a: {always: b}, b: {}}"),
        ("states: {a: {after: {60s: b}}, b: {}}", "states: {a: {after: {1m: b}}, b: {}}"),
        ("states: {a: {after: {1s: b, 2s: b}}, b: {}}", "states: {a: {after: {2s: b, 1s: b}}, b: {}}"),
        ("states: {a: {}, b: {}}", "states: {b: {}, a: {}}"),
        ("states: {a: {on: {e: {target: b, roles: []}}}, b: {}}", "states: {a: {on: {e: b}}, b: {}}"),
        ("events: {e: {payload: {}}}\nstates: {a: {}}", "events: {e: {}}\nstates: {a: {}}"),
        ("events: {}\nstates: {a: {}}", "states: {a: {}}"),
        ("context: {n: {default: 1}}\nstates: {a: {}}", "context: {n: {default: 1.0}}\nstates: {a: {}}"),
        ("context: {n: {default: null}}\nstates: {a: {}}", "context: {n: any}\nstates: {a: {}}"),
        (
            "context: {a: {default: 1}, b: {default: '= context.a'}}\nstates: {a: {}}",
            "context: {b: {default: '= context.a'}, a: {default: 1}}\nstates: {a: {}}",
        ),
        (
            "states: {a: {entry: [{if: g, then: [x]}]}}",
            "states: {a: {entry: [{if: g, then: [x], else: [y]}]}}",
        ),
        (
            "states: {a: {entry: [{if: g, then: [x], elif: [{if: h, then: [x]}]}]}}",
            "states: {a: {entry: [{if: g, then: [x], elif: [{if: h, then: [y]}]}]}}",
        ),
        ("states: {a: {entry: [[x], [y]]}}", "states: {a: {entry: [x, y]}}"),
        ("states: {a: {entry: [{do: x, with: {p: 1, q: 2}}]}}", "states: {a: {entry: [{do: x, with: {q: 2, p: 1}}]}}"),
        (
            "states: {a: {entry: [{assign: {p: 1, q: 2}}]}}",
            "states: {a: {entry: [{assign: {q: 2, p: 1}}]}}",
        ),
        ("states: {a: {invoke: {src: s, retry: {max: 1, backoff: 1s}}}}",
         "states: {a: {invoke: {src: s, retry: {max: 1, backoff: 1000ms}}}}"),
        ("states: {a: {on: {e: {guard: \"= 'a b'\"}}}}", "states: {a: {on: {e: {guard: \"= 'a  b'\"}}}}"),
        ("states: {a: {on: {e.x: b, e: c}}, b: {}, c: {}}", "states: {a: {on: {e: c, e.x: b}}, b: {}, c: {}}"),
        ("states: {a: {on: {e: b, '*': c}}, b: {}, c: {}}", "states: {a: {on: {'*': c, e: b}}, b: {}, c: {}}"),
    ],
)  # fmt: skip
def test_two_behaviours_have_two_names(before: str, after: str) -> None:
    assert name(before) != name(after)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("states: {a: {on: {e: b, f: c}}, b: {}, c: {}}", "states: {a: {on: {f: c, e: b}}, b: {}, c: {}}"),
        ("states: {a: {on: {e: b}}, b: {}}", "states: {a: {transitions: [{event: e, target: '#b'}]}, b: {}}"),
        ("states: {a: {always: b}, b: {}}", "states: {a: {transitions: [{target: b}]}, b: {}}"),
        ("states: {a: {after: {1s: b}}, b: {}}", "states: {a: {transitions: [{after: 1s, target: b}]}, b: {}}"),
        ("states: {a: {}, b: {}}", "initial: a\nstates: {a: {}, b: {}}"),
        ("states: {a: {states: {c: {}}}}", "states: {a: {initial: '#a.c', states: {c: {id: a.c}}}}"),
        ("states: {a: {states: {c: {on: {e: b}}}}, b: {}}", "states: {a: {states: {c: {on: {e: '#b'}}}}, b: {}}"),
        ("states: {a: {on: {e: {guard: '= x  >  1'}}}}", "states: {a: {on: {e: {guard: '=x > 1 '}}}}"),
        ("states: {a: {on: {e: {guard: {in: b}}}}, b: {}}", "states: {a: {on: {e: {guard: {in: '#b'}}}}, b: {}}"),
        ("states: {a: {}}", "unhandled: reject\nerrors: event\nbinding: early\nstates: {a: {entry: []}}"),
        ("states: {a: {invoke: {src: s}}}", "states: {a: {invoke: {src: s, type: handler, onRestore: keep}}}"),
        ("states: {a: {invoke: {src: s, timeout: 60s}}}", "states: {a: {invoke: {src: s, timeout: 1m}}}"),
        ("states: {a: {after: {1s: b}}, b: {}}", "states: {a: {after: {1s: {target: b, onRestore: deadline}}}, b: {}}"),
        ("events: {e: {roles: [x]}}\nstates: {a: {}}", "events: {e: {permit: '= true'}}\nstates: {a: {}}"),
        (
            "states: {a: {invoke: {src: {states: {x: {}}}}}}",
            "states: {a: {invoke: {src: {interlock: 1, kind: k.a, description: d, states: {x: {}}}}}}",
        ),
        ("states: {a: {}}", "# a comment\ntags: [t]\nstates: {a: {meta: 1}}"),
    ],
)
def test_spellings_of_one_behaviour_have_one_name(before: str, after: str) -> None:
    assert name(before) == name(after)


def test_white_space_inside_quotes_is_kept() -> None:
    assert 'f(\'a  b\', "c\\"  d") + 1' == collapse_space(' f(\'a  b\',\n\t"c\\"  d")  + 1 ')
    assert "x + 'open  " == collapse_space("x  + 'open  ") + "  "


def test_a_malformed_expression_of_scxml_counts_as_written() -> None:
    def scxml(text: str) -> str:
        timer = Transition(origin="after", delay=Expression(text))
        return behaviour_name(Document(kind="k", dialect="scxml", root=State(transitions=(timer,))))

    assert scxml("context.a  + 1") == scxml("context.a + 1")
    assert scxml("a  +") != scxml("a +")


GOLDEN = {
    "player": "b1.ebe1c8ba9ba9b8ef9a4b",
    "delivery": "b1.83bba8c721e9acd91a0c",
    "subscription": "b1.ce378f786f73808a981a",
    "door": "b1.cc09d7c26f2ff8dfc232",
    "survey": "b1.54c097adcbcf7f3fcc48",
    "payout": "b1.8e32ee8003bac59e922f",
    "vm": "b1.e2d3eb936c0e2f5644d2",
    "order": "b1.8f9a1e1ecd3ea5d01792",
    "trip": "b1.4b37131e08ebe29019b7",
    "customer": "b1.1f2a9f5811d2af69dfae",
}


def test_names_stay_what_they_were() -> None:
    """They are in journals permanently: a change here needs a new scheme (`b2`), never another value."""
    found = [read_file(path).document for path in sorted(EXAMPLES.glob("*.interlock.yaml"))]

    assert GOLDEN == {each.kind: behaviour_name(each) for each in found if each is not None}
    whole = everything(personal=False)
    (event,) = whole.events or ()
    before = replace(whole, create=None, read=None, events=(replace(event, approvals=None),))
    assert "b1.56b292b5dee7c63d2932" == behaviour_name(before)
    assert "b1.4fdb480f224b3f5c3b81" == behaviour_name(whole)
    inner = everything(inline=everything(personal=False), personal=False)
    assert "b1.8212916359bb6b2d8989" == behaviour_name(inner)
    assert "b1.d2e12227c2cff4c4a0cf" == behaviour_name(everything())


# Order of transitions


def overlap(one: Transition, other: Transition) -> bool:
    """Whether two transitions of a state must keep their order, by trying all pairs."""
    if "after" in (one.origin, other.origin) or "onDone" in (one.origin, other.origin):
        return True  # rarely so, but always safe to leave in order
    if not one.events or not other.events:
        return not one.events and not other.events

    def common(first: Descriptor, then: Descriptor) -> bool:
        short, long = sorted((first, then), key=lambda each: len(each.tokens))
        is_prefix = long.tokens[: len(short.tokens)] == short.tokens
        return is_prefix and (not short.exact or short.tokens == long.tokens)

    mine, theirs = ([parse_descriptor(text, "interlock") for text in each.events] for each in (one, other))
    return any(common(first, then) for first in mine for then in theirs)


TRANSITIONS = st.lists(
    st.builds(
        Transition,
        events=st.lists(st.sampled_from(["a", "b", "a.b", "a.b.c", "b.c", "*", "c", "a.c"]), max_size=2).map(tuple),
        origin=st.just("transitions"),
        targets=st.sampled_from([("x",), ("y",), ()]),
    ),
    max_size=7,
)


@given(TRANSITIONS, st.randoms(use_true_random=False))
def test_neighbours_that_match_no_common_event_can_be_swapped(written: list[Transition], random: Random) -> None:
    """And two that match a common event cannot, unless they are equal."""

    def named(transitions: list[Transition]) -> str:
        return behaviour_name(Document(kind="k", root=State(states=(State(key="s", transitions=tuple(transitions)),))))

    swapped = list(written)
    for _ in range(20):
        if len(swapped) > 1:
            at = random.randrange(len(swapped) - 1)
            if not overlap(swapped[at], swapped[at + 1]):
                swapped[at : at + 2] = swapped[at + 1], swapped[at]
    assert named(written) == named(swapped)
    for at in range(len(written) - 1):
        if overlap(written[at], written[at + 1]) and written[at] != written[at + 1]:
            assert named(written) != named([*written[:at], written[at + 1], written[at], *written[at + 2 :]])


def test_the_order_of_many_transitions_takes_little_work() -> None:
    """Wildcards over and over, and as many names: the work grows with the number, not with its square."""
    many = [Transition(events=(f"e.{number}", "*") if number % 2 else (f"f.{number}",)) for number in range(4_000)]
    made = Document(kind="k", root=State(states=(State(key="s", transitions=tuple(many)),)))

    assert behaviour_name(made) == behaviour_name(normalize(made))


# Totality


@pytest.mark.slow
@given(documents())
@settings(max_examples=60)
def test_a_document_keeps_its_name_in_json(document: Document) -> None:
    form = get_format("json")
    back = form.read(form.write(document).text, source="x").document

    assert back is not None
    assert behaviour_name(document) == behaviour_name(back) == behaviour_name(normalize(document))


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 60, 20))
def test_random_charts_keep_their_name_and_behave_like_their_normal_form(first: int) -> None:
    """Through every format that carries everything; so equal names mean equal behaviour."""
    for seed in range(first, first + 20):
        made = random_document(Random(seed))
        for form in map(get_format, ("json", "yaml", "scxml")):
            back = form.read(form.write(made).text, source="x").document
            assert back is not None
            assert behaviour_name(made) == behaviour_name(back), (seed, form.name)
        assert None is Twins(chart_of(made), chart_of(normalize(made))).difference(seed, Tally()), seed


def test_definitions_of_xstate_keep_their_name_in_json() -> None:
    """As many random definitions as the comparison with XState itself starts with."""
    ours, theirs = get_format("json"), get_format("xstate")
    for seed in range(40):
        made = theirs.read(json.dumps(generated(seed)[0]), source="x").document
        assert made is not None
        back = ours.read(ours.write(made).text, source="x").document
        assert back is not None
        assert behaviour_name(made) == behaviour_name(back), seed

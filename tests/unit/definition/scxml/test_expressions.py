"""Names of SCXML's datamodels and ours: there, back, and what stays a mistake."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.definition.scxml.expressions import (
    PROCESSORS,
    Datamodel,
    from_scxml,
    read_path,
    read_value,
    round_trips,
    to_scxml,
    write_value,
)
from interlock.errors import NOWHERE
from interlock.expression.parser import parse
from interlock.model.document.actions import Expression


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Var1 + 1", "context.Var1 + 1"),
        ("a.b['c d'].a", "context.a.b['c d'].a"),
        ("_event.data.a == _name", "event.data.a == entity.kind"),
        ("'#_scxml_' + _sessionid", "'#_scxml_' + entity.id"),
        ("In('s1') and not true or None", "In('s1') and not true or None"),
        ("_event.data.get('a')", "get(event.data, 'a')"),
        ("a.get('b', c).startswith(d)", "starts_with(get(context.a, 'b', context.c), context.d)"),
        ("(a + b).lower()", "lower((context.a + context.b))"),
        ("not (a).lower()", "not lower((context.a))"),
        ("[f(a)[0].upper()]", "[upper(f(context.a)[0])]"),
        ("'A'.lower() in b", "lower('A') in context.b"),
        ("hasattr(_event, 'name')", "has(event, 'name')"),
        ("len(a.lower)", "len(context.a.lower)"),
        (" a ", "context.a"),
        ("1 = 1", "1 = 1"),
        ("return", "return"),
        (".get(", "get("),
        (").get(1)", "get(), 1)"),
        (".a.get(1)", ".get(a, 1)"),
    ],
)
def test_python_is_read_with_our_names(text: str, expected: str) -> None:
    """Fields, system variables and the common methods have another spelling here; mistakes stay mistakes."""
    assert expected == from_scxml(text, "python")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("!a && b === 1 || c !== 'x'", "not context.a and context.b == 1 or context.c != 'x'"),
        ("a&&b", "context.a and context.b"),
        ("a.length > 0", "len(context.a) > 0"),
        ("a == undefined", "context.a == null"),
        ("typeof a === 'undefined'", "get(context, 'a') == null"),
        ("typeof _event.data !== 'undefined'", "event.data != null"),
        ('typeof a.b == "undefined"', "context.a.b == null"),
        ("a.startsWith('x')", "starts_with(context.a, 'x')"),
        ("a.hasOwnProperty('x')", "has(context.a, 'x')"),
        ("_event.name.toLowerCase()", "lower(event.name)"),
    ],
)
def test_the_common_part_of_ecmascript_is_translated(text: str, expected: str) -> None:
    assert expected == from_scxml(text, "ecmascript")
    assert expected == parse(expected).text


def test_what_is_only_ecmascript_stays_and_fails_when_evaluated() -> None:
    assert "(function(context.x) {return context.x;})(1)" == from_scxml("(function(x) {return x;})(1)", "ecmascript")


def test_the_processors_are_a_constant_mapping_of_the_entity() -> None:
    """`_ioprocessors` is an expression of our language, under both names, and comes back."""
    text = from_scxml("_ioprocessors['scxml'].location", "python")

    assert f"{PROCESSORS}['scxml'].location" == text
    assert text == parse(text).text
    assert "_ioprocessors['scxml'].location" == to_scxml(text, "python")


def test_our_own_datamodel_is_our_language_as_it_is() -> None:
    text = "context.a + event.data.b"

    assert text == from_scxml(text, "interlock") == to_scxml(text, "interlock")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("context.a + event.data.context.b", True),
        ("entity.id + entity.kind", True),
        ("context.event == context.len", True),
        ("lambda context.x: context.x", True),
        ("'context.a' + 'event'", True),
        ("context", False),
        ("get(context, 'a')", False),
        ("context['a b']", False),
        ("event.entity.id", False),
        ("context._event", False),
        ("'entity.id'", False),
        ("a.get(1)", False),
        ("context.true", False),
    ],
)
def test_a_text_survives_a_datamodel_when_it_comes_back_as_it_was(text: str, expected: bool) -> None:
    """The writer uses SCXML's names only where nothing is lost by it."""
    assert expected == round_trips(text, "python")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1", 1),
        ("-2.5", -2.5),
        ("'foo'", "foo"),
        ("[1, -1, ('a', None)]", [1, -1, ["a", None]]),
        ("{'a': true, 'b': {}}", {"a": True, "b": {}}),
    ],
)
def test_a_literal_is_a_value_not_an_expression(text: str, expected: object) -> None:
    assert expected == read_value(text, "python", NOWHERE)


@pytest.mark.parametrize("text", ["1 + 1", "not 1", "-'a'", "len('a')", "[1, a]", "{'a': a}", "-(1 + 1)", "1 = 1", ""])
def test_everything_else_stays_an_expression(text: str) -> None:
    """Nothing is evaluated when a file is read; malformed expressions are left to the compiler."""
    assert Expression(from_scxml(text, "python")) == read_value(text, "python", NOWHERE)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(value=JSON, datamodel=st.sampled_from(["python", "interlock"]))
def test_a_literal_that_can_be_written_is_read_back(value: object, datamodel: Datamodel) -> None:
    """Whatever `expr` text the writer chooses means the same value, type by type."""
    text = write_value(value, datamodel)
    if text is not None:
        assert repr(value) == repr(read_value(text, datamodel, NOWHERE))


@given(
    text=st.text("abcontextevn._()[]'\"& !=|+,get{}:1 typeof", max_size=30),
    datamodel=st.sampled_from(["python", "ecmascript"]),
)
def test_any_text_can_be_read_and_written(text: str, datamodel: Datamodel) -> None:
    again = to_scxml(from_scxml(text, datamodel), datamodel)

    assert isinstance(again, str)
    assert isinstance(round_trips(text, datamodel), bool)


def test_what_has_no_expression_has_no_text() -> None:
    """A number of more than 64 bits, and a text longer than an expression may be."""
    assert write_value(2**70, "python") is None
    assert write_value("x" * 3_000, "python") is None
    assert write_value(Expression("get(context, 'a')"), "python") is None
    assert "1 = 1" == write_value(Expression("1 = 1"), "python")
    assert write_value(Expression("context +"), "python") is None


@pytest.mark.parametrize(
    ("location", "datamodel", "expected"),
    [
        ("Var1", "python", "Var1"),
        (" a.b ", "python", "a.b"),
        ("a['b'][\"c-d\"]", "python", "a.b.c-d"),
        ("context.a", "python", "context.a"),
        ("context.a", "interlock", "a"),
        ("a[b]", "python", "a[b]"),
    ],
)
def test_a_location_is_a_dotted_path(location: str, datamodel: Datamodel, expected: str) -> None:
    """Simple subscripts become dots; other texts are kept, and assigning to them fails."""
    assert expected == read_path(location, datamodel)

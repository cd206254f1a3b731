"""What of a chart is sealed, and how data is sealed by it."""

from typing import Any

import pytest

from interlock.errors import RejectedError
from interlock.model.charts.personal_plan import is_personal, plan_of, seal_fields, seal_result, unsealed_fields
from interlock.model.document.field import Field
from interlock.model.personal_token import TOKEN_KEY
from tests.unit.compiler.diagnostics import chart_of

EMAIL = Field(name="email", type="string", personal=True)
ZIP = Field(name="zip", type="string", personal=True)
HOME = Field(name="home", type="object", fields=(ZIP, Field(name="land", type="string")))
FIELDS = {"email": EMAIL, "home": HOME}


def seal(value: Any) -> dict[str, str]:
    return {TOKEN_KEY: f"sealed {value}"}


def test_a_plan_lists_personal_fields_of_context_payloads_and_results() -> None:
    chart = chart_of("""\
context: {email: {type: string, nullable: true, personal: true}, n: {default: 1}}
events:
  a: {payload: {email: {type: string, personal: true}, n: integer}}
  b: {payload: {n: integer}}
  out: {direction: out, payload: {email: {type: string, personal: true}}}
states:
  x:
    on: {a: y, b: y}
    invoke: {id: i, src: s, personal: [iban], onDone: y, onError: y}
    exit: [{emit: {type: out, data: {email: = context.email}}}]
  y: {}
""")
    plan = plan_of(chart)

    assert plan is not None
    assert set(plan.context) == {"email"}
    assert {name: set(fields) for name, fields in plan.payloads.items()} == {"a": {"email"}}
    assert dict(plan.results) == {"i": ("iban",)}


def test_values_are_sealed_at_the_outermost_marked_field() -> None:
    data = {"email": "a", "home": {"zip": "1", "land": "DE"}, "other": 1}

    sealed = seal_fields(data, FIELDS, seal)

    assert sealed == {"email": seal("a"), "home": {"zip": seal("1"), "land": "DE"}, "other": 1}
    assert data["email"] == "a"
    assert seal_fields(sealed, FIELDS, seal) == sealed
    assert list(unsealed_fields(data, FIELDS)) == ["email", "home.zip"]
    assert list(unsealed_fields(sealed, FIELDS)) == []


@pytest.mark.parametrize("data", [None, 1, {}, {"email": None}, {"home": None}, {"home": 3}, {"other": "x"}])
def test_what_is_absent_or_null_or_malformed_stays(data: Any) -> None:
    assert seal_fields(data, FIELDS, seal) == data
    assert list(unsealed_fields(data, FIELDS)) == []


def test_a_value_that_does_not_fit_is_refused_before_it_is_sealed() -> None:
    with pytest.raises(RejectedError) as caught:
        seal_fields({"email": 7}, FIELDS, seal)

    assert caught.value.code == "payload.personal"
    assert "7" not in caught.value.message


def test_a_result_is_sealed_by_field_or_as_a_whole() -> None:
    result = {"iban": "DE1", "ok": True, "none": None}

    assert seal_result(result, ("iban", "none", "missing"), seal) == {"iban": seal("DE1"), "ok": True, "none": None}
    assert seal_result(result, True, seal) == seal(result)
    assert seal_result(None, True, seal) is None
    assert seal_result(seal("x"), True, seal) == seal("x")
    assert seal_result({"ok": 1}, ("iban",), seal) == {"ok": 1}


def test_a_result_of_another_shape_is_sealed_as_a_whole() -> None:
    """The fields cannot be found in it, so all of it may be personal."""
    assert seal_result("DE1", ("iban",), seal) == seal("DE1")
    assert seal_result(["DE1"], ("iban",), seal) == seal(["DE1"])


def test_a_field_that_contains_a_personal_one_is_personal() -> None:
    assert is_personal(HOME)
    assert not is_personal(Field(name="land", type="string"))

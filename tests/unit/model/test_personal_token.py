"""Tokens: how they are recognized, found, and refused in what comes from outside."""

import pytest

from interlock.errors import UsageError
from interlock.model.document.field import Field, field_problem
from interlock.model.encoding.codec import encode
from interlock.model.encoding.json_value import json_payload, payload_problem
from interlock.model.personal_token import ERASED, TOKEN_KEY, contains_token, is_token, tokens_in
from interlock.model.refusal_text import value_text

TOKEN = {TOKEN_KEY: "AUxy"}


@pytest.mark.parametrize("value", [{}, {TOKEN_KEY: 1}, {TOKEN_KEY: "x", "more": 1}, "$personal", [TOKEN], None])
def test_only_a_mapping_with_the_one_key_is_a_token(value: object) -> None:
    assert is_token(TOKEN)
    assert is_token(ERASED)
    assert not is_token(value)


def test_tokens_are_found_at_any_depth() -> None:
    value = {"a": [1, {"b": TOKEN}], "c": ({"d": ERASED},)}

    assert sorted(each[TOKEN_KEY] for each in tokens_in(value)) == ["", "AUxy"]
    assert contains_token(value)
    assert not contains_token({"a": [1, {"b": "$personal"}]})


@pytest.mark.parametrize("value", [TOKEN, {"a": {"b": [TOKEN]}}, {TOKEN_KEY: None}, {"x": {TOKEN_KEY: 1, "y": 2}}])
def test_the_key_of_a_token_is_refused_from_outside(value: object) -> None:
    with pytest.raises(UsageError) as caught:
        json_payload(value, what="the payload", code="event.payload")

    assert caught.value.code == "payload.reserved"


@pytest.mark.parametrize(
    "value", ["$personal", {"a": "$personal"}, ["$personal"], {"$personal2": 1}, {"a": '"$personal"'}]
)
def test_a_text_that_only_looks_like_the_key_is_fine(value: object) -> None:
    assert payload_problem(value) is None


def test_the_reserved_key_is_found_in_escaped_text_too() -> None:
    """The encoder writes the key in one way only, so the search of bytes cannot be avoided by another spelling."""
    assert encode({"\u0024personal": 1}) == b'{"$personal":1}'
    assert payload_problem({"\u0024personal": "x"}) is not None


def test_a_personal_field_takes_a_token_or_a_valid_value() -> None:
    field = Field(name="email", type="string", length_max=5, personal=True)

    assert field_problem(TOKEN, field) is None
    assert field_problem("short", field) is None
    assert field_problem("too long", field) is not None
    assert field_problem(TOKEN, Field(name="email", type="string")) is not None


def test_texts_for_people_never_show_a_token() -> None:
    assert value_text(TOKEN, 80) == "(sealed)"
    assert value_text(ERASED, 80) == "(erased)"

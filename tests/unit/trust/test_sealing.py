"""Sealing: deterministic tokens of one data key, and what happens to altered ones."""

from base64 import urlsafe_b64decode
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.errors import CorruptionError
from interlock.model.encoding.codec import encode
from interlock.model.personal_token import ERASED, TOKEN_KEY, is_token
from interlock.trust.sealing import DATA_KEY_BYTES, DataCipher, kid_of, replace_tokens

KID = "0123456789abcdef"
CIPHER = DataCipher(bytes(range(DATA_KEY_BYTES)), kid=KID, tenant="")

VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@given(VALUES)
def test_what_is_sealed_can_be_opened(value: Any) -> None:
    token = CIPHER.seal(value)

    assert is_token(token)
    assert kid_of(token) == KID
    assert encode(CIPHER.open(token)) == encode(value)
    assert CIPHER.seal(value) == token


def test_equal_values_have_equal_tokens_of_one_key_only() -> None:
    other = DataCipher(bytes(DATA_KEY_BYTES), kid="00" * 8, tenant="")

    assert CIPHER.seal("ada@example.org") == CIPHER.seal("ada@example.org")
    assert CIPHER.seal("ada@example.org") != CIPHER.seal("ada@example.com")
    assert CIPHER.seal("ada@example.org") != other.seal("ada@example.org")


def test_the_length_shows_a_class_only() -> None:
    sizes = {len(CIPHER.seal("x" * length)[TOKEN_KEY]) for length in range(31)}
    large = {len(CIPHER.seal("x" * length)[TOKEN_KEY]) for length in range(1100, 1200)}

    assert len(sizes) == 1
    assert len(large) == 1


def test_no_plain_byte_is_in_a_token() -> None:
    raw = urlsafe_b64decode(CIPHER.seal("ada@example.org")[TOKEN_KEY] + "==")

    assert b"ada" not in raw
    assert b"example" not in raw


@pytest.mark.parametrize("text", ["", "A", "AQ", "!!!!", "AgEjRWeJq83vAAAA", "AQEjRWeJq83v"])
def test_a_damaged_token_is_corruption(text: str) -> None:
    token = {TOKEN_KEY: text}
    if token == ERASED:
        assert kid_of(token) is None
    with pytest.raises(CorruptionError) as caught:
        CIPHER.open(token)

    assert caught.value.code == "personal.token"


def test_a_token_of_another_tenant_or_key_does_not_open() -> None:
    token = CIPHER.seal("x")
    tenant = DataCipher(bytes(range(DATA_KEY_BYTES)), kid=KID, tenant="other")
    text = token[TOKEN_KEY]
    altered = {TOKEN_KEY: text[:-1] + ("A" if text[-1] != "A" else "B")}

    for cipher, each in ((tenant, token), (CIPHER, altered)):
        with pytest.raises(CorruptionError):
            cipher.open(each)


def test_tokens_are_replaced_at_any_depth_and_nothing_else_is_copied() -> None:
    token, other = CIPHER.seal("a"), CIPHER.seal("b")
    value = {"x": token, "y": [1, {"z": other}], "w": ({"v": token},), "same": {"k": [1]}}

    found = replace_tokens(value, {token[TOKEN_KEY]: "A"})

    assert found == {"x": "A", "y": [1, {"z": other}], "w": ({"v": "A"},), "same": {"k": [1]}}
    assert found["same"] is value["same"]
    assert found["y"] is value["y"]
    assert replace_tokens(value, {}) is value

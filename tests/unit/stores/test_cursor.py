"""Cursors: what a page ended with, handed out and taken back."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.errors import UsageError
from interlock.stores.cursor import decode_cursor, encode_cursor

MILLISECONDS = st.integers(-(2**63), 2**63 - 1)


@given(MILLISECONDS, st.text(st.characters(exclude_categories=["Cs"])))
def test_a_cursor_is_what_it_was_made_of(entered_ms: int, entity: str) -> None:
    """Any place, any id; and the text needs no escaping in an address."""
    cursor = encode_cursor(entered_ms, entity)

    assert (entered_ms, entity) == decode_cursor(cursor)
    assert cursor.replace("-", "").replace("_", "").isalnum()


OTHERS = (
    b"", b"[]", b"[1]", b'["a",1]', b'[1,"a",2]', b"{}", b'[1e400,""]', b'[9223372036854775808,""]', b'[1,"\\ud800"]',
    b"\xff",
)  # fmt: skip


@pytest.mark.parametrize("body", OTHERS)
def test_other_bytes_are_no_cursor(body: bytes) -> None:
    """Any other content is the caller's mistake."""
    with pytest.raises(UsageError) as raised:
        decode_cursor(urlsafe_b64encode(body).decode())

    assert "cursor.malformed" == raised.value.code


@given(st.text(max_size=40))
def test_any_text_is_a_cursor_or_a_mistake(text: str) -> None:
    """No other error is raised."""
    with suppress(UsageError):
        decode_cursor(text)

"""Text of others made storable: whatever it holds, it encodes, is of bounded length, and says that it was cut."""

from __future__ import annotations

import pytest

from interlock.model.encoding.codec import encode
from interlock.model.encoding.storable import CUT, describe, storable_code, storable_text
from interlock.model.limits import FAILURE_CODE_LENGTH_MAX, FAILURE_TEXT_LENGTH_MAX


class Odd(str):
    """A string that overrides what is asked of it."""

    __slots__ = ()

    def encode(self, encoding: str = "utf-8", errors: str = "strict") -> bytes:
        raise LookupError("no")

    def __getitem__(self, index: object) -> str:
        raise LookupError("no")


class Mute:
    """A value that cannot be shown."""

    def __str__(self) -> str:
        raise LookupError("detached")


@pytest.mark.parametrize(
    ("text", "stored"),
    [
        ("declined", "declined"),
        ("", ""),
        ("declined 💶", "declined 💶"),
        ("bank.\ud83d", "bank.\\ud83d"),
        ("a\0b", "a\\x00b"),
    ],
)
def test_only_what_cannot_be_stored_is_replaced(text: str, stored: str) -> None:
    """Lone surrogates and NUL are written as escapes, so that a person still sees what was there."""
    found = storable_text(text)

    assert stored == found
    assert encode(found)


def test_a_string_that_overrides_its_methods_is_stored_as_the_characters_it_has() -> None:
    """`__str__` may return one."""
    assert "odd" == storable_text(Odd("odd"))


@pytest.mark.parametrize("unit", ["x", "\ud83d", "\0", "💶"])
def test_a_long_text_is_cut_with_a_mark(unit: str) -> None:
    found = storable_text(unit * 1_000_000)

    assert FAILURE_TEXT_LENGTH_MAX == len(found)
    assert found.endswith(CUT)


def test_a_text_of_the_full_length_is_not_cut() -> None:
    assert "x" * 7 == storable_text("x" * 7, 7)
    assert "x" * 6 + CUT == storable_text("x" * 8, 7)


def test_a_value_that_cannot_be_shown_is_named_by_its_class() -> None:
    """Whatever `__str__` raises."""
    assert "3" == describe(3)
    assert "'a'" == describe("a", repr)
    assert "Mute, which cannot be shown" == describe(Mute())


@pytest.mark.parametrize(
    ("code", "stored"), [("card.declined", "card.declined"), ("", "x"), (None, "x"), (7, "x"), (["a"], "x")]
)
def test_an_invalid_code_is_replaced(code: object, stored: str) -> None:
    assert stored == storable_code(code, "x")


def test_a_code_is_shorter_than_a_message() -> None:
    assert FAILURE_CODE_LENGTH_MAX == len(storable_code("x" * 10_000, "x"))

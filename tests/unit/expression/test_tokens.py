"""What the tokens alone decide: characters, signs, keywords, numbers, strings, size and nesting."""

from __future__ import annotations

import warnings

import pytest

from interlock.expression.parser import parse
from interlock.expression.tokens import find_token_error
from tests.unit.expression.evaluation import evaluate, refusal


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0x1F", 31),
        ("0o17", 15),
        ("0b1_01", 5),
        ("1_000", 1_000),
        ("0xe+1", 15),
        ("1.", 1.0),
        (".5", 0.5),
        ("1.5e3", 1500.0),
        ("1.e-1", 0.1),
        ("2E+1", 20.0),
        ("--1", 1),
        ("'\\n\\t\\\\\\'\\x41\\u00e9\\U0001f600'", "\n\t\\'A\u00e9\U0001f600"),
        ("'\u00e9\U0001f600'", "\u00e9\U0001f600"),
        ('"\'"', "'"),
        ("'a'if 1 else'b'", "a"),
        ("1 if'a'else 2", 1),
    ],
)
def test_numbers_and_strings_are_pythons(text: str, value: object) -> None:
    """Numbers and strings are written as in Python, less what Python itself frowns upon."""
    assert value == evaluate(text)


@pytest.mark.parametrize(
    "text", ["1is 1", "0x1for", "1and 2", "1.2.3", "1_", "1__0", "0x", "1e", "12abc", "1..a", "007", "1if 1 else 2"]
)
def test_malformed_numbers_are_refused_without_a_warning(text: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        error = refusal(text)

    assert error.code == "expression.syntax"


def test_a_long_malformed_number_is_shown_in_part() -> None:
    error = find_token_error("1" * 1_000 + "z")

    assert error is not None
    assert ("expression.syntax", 0, 1_001) == (error.code, error.offset, error.end)
    assert len(error.message) < 100


@pytest.mark.parametrize(
    ("text", "code", "offset", "end", "has_hint"),
    [
        ("", "expression.syntax", 0, 0, False),
        (" \n ", "expression.syntax", 0, 3, False),
        ("a && b", "expression.node", 2, 4, True),
        ("a || b", "expression.node", 2, 4, True),
        ("!a", "expression.node", 0, 1, True),
        ("a === b", "expression.node", 2, 5, True),
        ("a = b", "expression.node", 2, 3, True),
        ("a ? b : c", "expression.node", 2, 3, True),
        ("a ** b", "expression.node", 2, 4, True),
        ("a -> b", "expression.node", 2, 4, False),
        ("\u2264", "expression.syntax", 0, 1, False),
        ("f'x'", "expression.node", 0, 4, True),
        ("r'x'", "expression.node", 0, 4, True),
        ("'a' 'b'", "expression.syntax", 0, 7, True),
        ("'a", "expression.syntax", 0, 2, True),
        ("'\\d'", "expression.constant", 1, 3, True),
        ("'\x01'", "expression.constant", 1, 2, True),
        ("'\ud800'", "expression.constant", 1, 2, False),
        ("1\n+ 1", "expression.syntax", 1, 2, True),
        ("\x00", "expression.syntax", 0, 1, False),
        ("context.class", "expression.syntax", 8, 13, True),
        ("context.in", "expression.syntax", 8, 10, True),
        ("global x", "expression.node", 0, 6, False),
    ],
)
def test_an_error_has_a_code_a_position_and_a_hint_if_there_is_a_fix(
    text: str, code: str, offset: int, end: int, has_hint: bool
) -> None:
    error = find_token_error(text)

    assert error is not None
    assert (code, offset, end, has_hint) == (error.code, error.offset, error.end, error.hint is not None)


def test_comprehensions_are_pointed_to_the_functions() -> None:
    """`for` is the sign of a comprehension: the hint names what there is instead."""
    assert "any, all, sum" in str(refusal("[x for x in context.a]").hint)


@pytest.mark.parametrize(
    "text",
    [
        " " * 2_001,
        "1" + " " * 2_000,
        "(" * 31 + "1" + ")" * 31,
        "[" * 31 + "]" * 31,
        "not " * 31 + "1",
        "-" * 31 + "1",
        "+-" * 16 + "1",
        "[" + "1," * 301 + "]",
        "context" + ".a" * 300,
        "len" + "()" * 301,
        "1" + "[0]" * 200,
        "a()" * 200,
        "(" * 1_999,
        "{" * 1_999,
    ],
)
def test_oversized_texts_never_reach_the_parser(text: str) -> None:
    """Length, nesting and number of parts are bounded on tokens: a deep text could exhaust Python's parser."""
    error = find_token_error(text)

    assert error is not None
    assert error.code == "expression.limit"


@pytest.mark.parametrize("text", ["1" + " " * 1_999, "(" * 30 + "1" + ")" * 30, "not " * 29 + "1", "-" * 29 + "1"])
def test_texts_at_the_limit_are_scanned_and_parsed(text: str) -> None:
    """2,000 characters and 30 levels are allowed; grouping brackets cost no level of the tree."""
    assert find_token_error(text) is None
    assert parse(text).constant


def test_brackets_side_by_side_are_not_deep() -> None:
    assert parse("+".join(["(1)"] * 29)).constant
    assert parse(" and ".join(["(1)"] * 100)).constant

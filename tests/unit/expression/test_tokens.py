"""What the tokens alone decide: characters, signs, keywords, numbers, strings, size and nesting."""

from __future__ import annotations

import warnings

import pytest

from interlock.expression.parser import parse
from interlock.expression.tokens import Trouble, scan
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
    """Python warns about some of these; we refuse them before it sees them."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        error = refusal(text)

    assert error.code == "expression.syntax"


def test_a_long_malformed_number_is_shown_in_part() -> None:
    """The message does not repeat a thousand digits."""
    trouble = scan("1" * 1_000 + "z")

    assert trouble == Trouble("expression.syntax", f'"{"1" * 40}" is not a number', 0, 1_001, None)


@pytest.mark.parametrize(
    ("text", "trouble"),
    [
        ("", ("expression.syntax", "the expression is empty", 0, 0, None)),
        (" \n ", ("expression.syntax", "the expression is empty", 0, 3, None)),
        ("a && b", ("expression.node", '"&&" is not part of the language', 2, 4, "write and")),
        ("a || b", ("expression.node", '"||" is not part of the language', 2, 4, "write or")),
        ("!a", ("expression.node", '"!" is not part of the language', 0, 1, "write not")),
        ("a === b", ("expression.node", '"===" is not part of the language', 2, 5, "write ==")),
        ("a = b", ("expression.node", '"=" is not part of the language', 2, 3, "write == to compare")),
        ("a ? b : c", ("expression.node", '"?" is not part of the language', 2, 3, "write a if test else b")),
        ("a ** b", ("expression.node", '"**" is not part of the language', 2, 4, "write a product; there is no power")),
        ("a -> b", ("expression.node", '"->" is not part of the language', 2, 4, None)),
        ("\u2264", ("expression.syntax", '"\u2264" is not part of the language', 0, 1, None)),
        ("f'x'", ("expression.node", "texts have no prefix, such as f here", 0, 4, "join texts with + and str()")),
        ("r'x'", ("expression.node", "texts have no prefix, such as r here", 0, 4, "write it without the prefix")),
        ("'a' 'b'", ("expression.syntax", "two texts side by side", 0, 7, "put a comma or + between them")),
        ("'a", ("expression.syntax", "the text is not closed", 0, 2, "close it with '")),
        (
            "'\\d'",
            ("expression.constant", '"\\d" is not an escape of the language', 1, 3, "write \\\\ for a backslash"),
        ),
        ("'\x01'", ("expression.constant", "the unseen character U+0001 stands in a text", 1, 2, "write \\u0001")),
        ("'\ud800'", ("expression.constant", "the unseen character U+D800 stands in a text", 1, 2, None)),
        (
            "1\n+ 1",
            (
                "expression.syntax",
                "the character U+000A cannot stand in an expression",
                1,
                2,
                "write the expression on one line, with spaces",
            ),
        ),
        ("\x00", ("expression.syntax", "the character U+0000 cannot stand in an expression", 0, 1, None)),
        ("context.class", ("expression.syntax", '"class" cannot stand after a dot', 8, 13, "write ['class'] instead")),
        ("context.in", ("expression.syntax", '"in" cannot stand after a dot', 8, 10, "write ['in'] instead")),
        ("global x", ("expression.node", '"global" is not part of the language', 0, 6, None)),
    ],
)
def test_trouble_says_what_where_and_what_to_write(text: str, trouble: tuple[object, ...]) -> None:
    """The scanner names the code, the characters and, for known habits, the cure."""
    assert trouble == scan(text)


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
    trouble = scan(text)

    assert trouble is not None
    assert trouble.code == "expression.limit"


@pytest.mark.parametrize("text", ["1" + " " * 1_999, "(" * 30 + "1" + ")" * 30, "not " * 29 + "1", "-" * 29 + "1"])
def test_texts_at_the_limit_are_scanned_and_parsed(text: str) -> None:
    """2,000 characters and 30 levels are allowed; grouping brackets cost no level of the tree."""
    assert scan(text) is None
    assert parse(text).constant


def test_brackets_side_by_side_are_not_deep() -> None:
    """Closing brackets give their level back."""
    assert parse("+".join(["(1)"] * 29)).constant
    assert parse(" and ".join(["(1)"] * 100)).constant

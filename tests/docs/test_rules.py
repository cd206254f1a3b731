"""Numbered rules and limits: the pages and the code agree."""

import re

import pytest

from interlock.model import limits
from tests.tidy.tracked import ROOT, name, python_files, read

PAGES = {"S": "internals/semantics.md", "X": "internals/semantics.md", "P": "internals/semantics.md"}
PAGES |= {"V": "reference/vocabulary.md"}

_CITED = re.compile(r"(?<![\w'\"/#-])([SXPV])([1-9][0-9]?)(?![\w'\"-])")


def numbered(letter: str) -> set[int]:
    """Returns the numbers of the rules that a page defines: in bold, or in the first cell of a row."""
    text = (ROOT / "docs" / PAGES[letter]).read_text(encoding="utf-8")
    return {int(found) for found in re.findall(rf"^(?:- \*\*|\| ){letter}([0-9]+)(?:\*\*| \|)", text, re.MULTILINE)}


@pytest.mark.parametrize(("letter", "last"), [("S", 39), ("X", 24), ("P", 10), ("V", 7)])
def test_rules_are_numbered_without_a_gap(letter: str, last: int) -> None:
    assert set(range(1, last + 1)) == numbered(letter)


def test_a_cited_rule_exists() -> None:
    known = {letter: numbered(letter) for letter in PAGES}
    lost = [
        f"{name(path)}: {letter}{number}"
        for path in python_files("src/interlock/")
        for letter, number in _CITED.findall(read(path) or "")
        if int(number) not in known[letter]
    ]

    assert [] == lost


def test_every_limit_is_documented_with_its_value() -> None:
    text = (ROOT / "docs" / PAGES["S"]).read_text(encoding="utf-8")
    found = re.findall(r"^\| `([A-Z_]+)` \| ([\d,]+) \|", text, re.MULTILINE)
    shown = {key: int(value.replace(",", "")) for key, value in found}
    real = {key: value for key, value in vars(limits).items() if key.isupper()}

    assert real == shown

"""The page on shared memory shows what the explorer finds: diagrams are drawn here, numbers are counted here."""

import re

import pytest

from tests.docs.pages import blocks
from tests.model.catalogue import clean_models, fault_models, long_models
from tests.model.explorer import find_violation
from tests.model.picture import sequence_diagram
from tests.tidy.tracked import ROOT

PAGE = ROOT / "docs" / "internals" / "shared-memory.md"
TEXT = PAGE.read_text(encoding="utf-8")
DRAWN = re.findall(r"^<!-- drawn: (.+) -->$", TEXT, re.MULTILINE)


@pytest.mark.parametrize("number", range(len(DRAWN)), ids=DRAWN)
def test_a_diagram_is_the_interleaving_it_is_named_after(number: int) -> None:
    """What is drawn is a shortest way to what goes wrong, step by step."""
    each = next(each for each in fault_models() if each.name == DRAWN[number])
    found = find_violation(each.model(), each.wrong)
    shown = [block.text.strip() for block in blocks(PAGE) if block.language == "mermaid"]

    assert found is not None
    assert sequence_diagram(found) == shown[number]


def test_every_diagram_is_drawn() -> None:
    """None is made by hand."""
    assert len(DRAWN) == sum(block.language == "mermaid" for block in blocks(PAGE))
    assert len(DRAWN) >= 3


def test_the_numbers_of_states_on_the_page_are_those_that_are_asserted() -> None:
    """One row for each clean, long ones included, and no other."""
    shown = dict(re.findall(r"^\| ([\w ]+: [^|`]+?) \| ([\d,]+) \|$", TEXT, re.MULTILINE))

    assert {clean.name: f"{clean.states:,}" for clean in (*clean_models(), *long_models())} == shown


def test_every_rule_that_is_left_out_stands_on_the_page() -> None:
    """One row for each fault, with what goes wrong."""
    shown = dict(re.findall(r"^\| `([^`]+)` \| ([^|]+?) \|$", TEXT, re.MULTILINE))

    assert {each.name: each.wrong for each in fault_models()} == shown

"""The page on shared memory shows the results of the explorer: diagrams and numbers of states."""

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
    """A shortest path to the violation, step by step."""
    each = next(each for each in fault_models() if each.name == DRAWN[number])
    found = find_violation(each.model(), each.wrong)
    shown = [block.text.strip() for block in blocks(PAGE) if block.language == "mermaid"]

    assert found is not None
    assert sequence_diagram(found) == shown[number]


def test_every_diagram_is_generated() -> None:
    assert len(DRAWN) == sum(block.language == "mermaid" for block in blocks(PAGE))
    assert len(DRAWN) >= 3


def test_the_page_has_the_number_of_states_of_every_model() -> None:
    shown = dict(re.findall(r"^\| ([\w ]+: [^|`]+?) \| ([\d,]+) \|$", TEXT, re.MULTILINE))

    assert {clean.name: f"{clean.states:,}" for clean in (*clean_models(), *long_models())} == shown


def test_the_page_lists_every_fault() -> None:
    shown = dict(re.findall(r"^\| `([^`]+)` \| ([^|]+?) \|$", TEXT, re.MULTILINE))

    assert {each.name: each.wrong for each in fault_models()} == shown

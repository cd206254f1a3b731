"""Every automatic test of the W3C's plan for SCXML, one by one. What is expected to fail says so, with the reason."""

from __future__ import annotations

import pytest

from interlock.expression.language import SAFE
from tests.conformance.w3c.suite import PLACES, TRUSTED, Case, cases, data_folder, file_verdict, neutral_files, verdict
from tests.conformance.w3c.trusted import TrustedLanguage

FOLDER = data_folder()
CASES = () if FOLDER is None else tuple(each for each in cases(FOLDER) if each.group in ("mandatory", "optional"))
EXPECTED = {"201": "it asks for the BasicHTTP event processor, which does not exist"}

pytestmark = [
    pytest.mark.conformance,
    pytest.mark.skipif(FOLDER is None, reason=f"SKIPPED: no W3C files; looked for {PLACES}"),
]


@pytest.mark.parametrize("case", CASES or [None], ids=lambda case: case.id if case else "absent")
def test_the_published_test_ends_in_pass(case: Case) -> None:
    """The entity ends in the final state `pass`."""
    assert FOLDER is not None
    problem = verdict(FOLDER, case)

    assert (case.id in EXPECTED) == (problem is not None), problem


@pytest.mark.parametrize(
    "case", [each for each in CASES if each.mandatory] or [None], ids=lambda case: case.id if case else "absent"
)
def test_the_neutral_form_of_a_mandatory_test_passes_too(case: Case) -> None:
    """The same requirement in the W3C's own wording, its macros expanded by us, has the same result."""
    assert FOLDER is not None
    language = TrustedLanguage() if case.id in TRUSTED else SAFE
    problems = {name: file_verdict(FOLDER, name, language) for name in neutral_files(FOLDER, case)}

    assert dict.fromkeys(problems) == problems


def test_the_plan_is_whole() -> None:
    """All 158 mandatory and 22 optional automatic tests are there, so a passing run means something."""
    counts = {group: sum(each.group == group for each in CASES) for group in ("mandatory", "optional")}

    assert {"mandatory": 158, "optional": 22} == counts

"""The W3C's files go from SCXML to YAML and JSON and back: they still pass, and behave alike under random events."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from interlock.definition.scxml.format import FORMAT as SCXML
from interlock.errors import InterlockError
from interlock.evolve.identity import behaviour_name
from interlock.expression.language import SAFE, Language
from interlock.model.document.document import Document
from tests.conformance.roundtrip.trips import LostError, chart_of, trip
from tests.conformance.roundtrip.twins import Tally, Twins
from tests.conformance.w3c.suite import (
    PLACES,
    TRUSTED,
    Case,
    cases,
    data_folder,
    definition,
    file_verdict,
    read_document,
)
from tests.conformance.w3c.trusted import TrustedLanguage

FOLDER = data_folder()
CASES = () if FOLDER is None else tuple(each for each in cases(FOLDER) if each.group in ("mandatory", "optional"))
BATCH = 20
FAILS = {"201"}
"""Asks for the BasicHTTP event processor, so it fails without a trip too."""

pytestmark = [
    pytest.mark.conformance,
    pytest.mark.skipif(FOLDER is None, reason=f"SKIPPED: no W3C files; looked for {PLACES}"),
]


def through_yaml(document: Document) -> str:
    """The document as SCXML, after it was YAML, SCXML and JSON."""
    return SCXML.write(trip(document, ("yaml", "scxml", "json")).document).text


def language_of(case: Case) -> Language:
    """Python itself for the few tests that need it."""
    return TrustedLanguage() if case.id in TRUSTED else SAFE


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, max(1, len(CASES)), BATCH))
def test_published_tests_still_end_in_pass_after_the_trip(
    first: int, record_property: Callable[[str, Any], None]
) -> None:
    """Every automatic test, mandatory and optional, children written in place included."""
    assert FOLDER is not None
    failed, files = {}, 0
    for case in CASES[first : first + BATCH]:
        for name in case.files:
            files += 1
            problem = file_verdict(FOLDER, f"{case.form}/{name}", language_of(case), through_yaml)
            if problem is not None:
                failed[case.id] = problem
    record_property("passed", files - len(failed))

    assert {} == {name: problem for name, problem in failed.items() if name not in FAILS}


@pytest.mark.slow
@pytest.mark.parametrize("form", ["python", "null", "ecma", "txml"])
def test_files_behave_alike_after_the_trip(form: str, record_property: Callable[[str, Any], None]) -> None:
    """Whatever events come: same configuration, context, effects and timers at every step."""
    assert FOLDER is not None
    tally, found = Tally(), []
    for path in sorted(each for each in (FOLDER / form).iterdir() if each.suffix in (".scxml", ".txml")):
        trusted = path.stem.removeprefix("test")[:3] in TRUSTED
        try:
            problem = _compared(path, TrustedLanguage if trusted and form == "python" else lambda: SAFE, tally)
        except LostError as error:
            problem = str(error)
            tally.differences += 1
        if problem is not None:
            found.append(f"{path.name}: {problem}")
    record_property("roundtrip", (tally.charts, tally.steps, tally.differences))

    assert [] == found
    assert tally.charts > 0


def _compared(path: Path, language: Callable[[], Language], tally: Tally) -> str | None:
    """What a trip changed; None also for a file that does not compile here, which is no matter of the trip."""

    def resolved(src: str) -> str:
        return definition(path.parent / src.removeprefix("file:").replace(".scxml", path.suffix))

    try:
        document = read_document(definition(path), path.name, resolved)
        original = chart_of(document, language())
    except (InterlockError, LostError, OSError):
        return None
    back = trip(document, ("yaml", "json", "scxml"))
    if back.document != document:
        return "the document is not the same"
    if behaviour_name(back.document) != behaviour_name(document):
        return "the name of the behaviour is not the same"
    found = Twins(original, chart_of(back.document, language()), language=language).difference(path.name, tally)
    return None if found is None else str(found)

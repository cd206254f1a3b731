"""Every automatic test of the W3C's plan for SCXML, one by one. What is expected to fail says so, with the reason."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from interlock.definition.scxml.format import FORMAT as SCXML
from interlock.definition.scxml.write import write_scxml
from interlock.definition.yaml.format import FORMAT as YAML
from interlock.expression.language import SAFE
from interlock.model.document.document import Document
from tests.conformance.w3c.suite import (
    PLACES,
    TRUSTED,
    Case,
    cases,
    data_folder,
    definition,
    file_verdict,
    neutral_files,
    read_document,
    verdict,
)
from tests.conformance.w3c.trusted import TrustedLanguage

FOLDER = data_folder()
CASES = () if FOLDER is None else tuple(each for each in cases(FOLDER) if each.group in ("mandatory", "optional"))
MANDATORY: list[Case | None] = [each for each in CASES if each.mandatory] or [None]
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


@pytest.mark.parametrize("case", MANDATORY, ids=lambda case: case.id if case else "absent")
def test_the_neutral_form_of_a_mandatory_test_passes_too(case: Case) -> None:
    """The same requirement in the W3C's own wording, its macros expanded by us, has the same result."""
    assert FOLDER is not None
    language = TrustedLanguage() if case.id in TRUSTED else SAFE
    problems = {name: file_verdict(FOLDER, name, language) for name in neutral_files(FOLDER, case)}

    assert dict.fromkeys(problems) == problems


def without_extension(document: Document) -> str:
    """The document as SCXML for a tool that does not know our namespace."""
    text = re.sub(r" (?:xmlns:)?interlock(?::\w+)?=(?:\"[^\"]*\"|'[^']*')", "", write_scxml(document).text)
    return re.sub(r"<interlock:\w+[^>]*/>", "", text)


@pytest.mark.parametrize("case", MANDATORY, ids=lambda case: case.id if case else "absent")
def test_what_we_write_passes_too_for_a_tool_without_our_namespace(case: Case) -> None:
    """Read, written as SCXML, stripped of everything that is ours and read again, a test still ends in `pass`."""
    assert FOLDER is not None
    language = TrustedLanguage() if case.id in TRUSTED else SAFE
    names = [f"{case.form}/{each}" for each in case.files]
    problems = {name: file_verdict(FOLDER, name, language, without_extension) for name in names}

    assert dict.fromkeys(problems) == problems


@pytest.mark.parametrize("form", ["python", "ecma", "null", "txml"])
def test_every_file_goes_through_yaml_and_scxml_and_comes_back_equal(form: str) -> None:
    """SCXML to YAML to SCXML to YAML: the same document, so the same revision and the same behaviour."""
    assert FOLDER is not None
    paths = sorted(each for each in (FOLDER / form).iterdir() if each.suffix in (".scxml", ".txml"))
    for path in paths:

        def resolved(src: str, folder: Path = path.parent, suffix: str = path.suffix) -> str:
            return definition(folder / src.removeprefix("file:").replace(".scxml", suffix))

        document = read_document(definition(path), path.name, resolved)
        yaml = YAML.read(YAML.write(document).text, source=path.name).document
        assert yaml is not None, path.name
        scxml = SCXML.read(SCXML.write(yaml).text, source=path.name).document
        assert scxml is not None, path.name
        again = YAML.read(YAML.write(scxml).text, source=path.name).document

        assert document == yaml == scxml == again, path.name

    assert paths


def test_the_plan_is_whole() -> None:
    """All 158 mandatory and 22 optional automatic tests are there, so a passing run means something."""
    counts = {group: sum(each.group == group for each in CASES) for group in ("mandatory", "optional")}

    assert {"mandatory": 158, "optional": 22} == counts

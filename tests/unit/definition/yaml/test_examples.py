"""The examples: read without diagnostics, compile, survive a rewrite, and their regular form differs only in layout."""

from __future__ import annotations

from pathlib import Path

import pytest

from interlock.compiler.build import compile_document
from interlock.definition.vocabulary.chart import SCHEMA_LINE
from interlock.definition.yaml.format import FORMAT

EXAMPLES = sorted((Path(__file__).parents[4] / "examples").glob("*.interlock.yaml"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda each: each.name)
def test_an_example_reads_without_diagnostics_and_survives_a_rewrite(path: Path) -> None:
    text = path.read_text()
    reading = FORMAT.read(text.encode(), source=path.name)
    assert () == reading.diagnostics
    assert reading.document is not None
    assert SCHEMA_LINE == text.splitlines()[0]
    writing = FORMAT.write(reading.document)
    assert () == writing.diagnostics
    assert reading.document == FORMAT.read(writing.text, source="again").document


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda each: each.name)
def test_an_example_compiles_without_warnings(path: Path) -> None:
    document = FORMAT.read(path.read_bytes(), source=path.name).document
    assert document is not None
    assert [] == [str(each) for each in compile_document(document).diagnostics if each.severity != "info"]


def test_the_examples_are_there() -> None:
    assert ["customer", "delivery", "door", "order", "payout", "player", "subscription", "survey", "trip", "vm"] == [
        path.name.removesuffix(".interlock.yaml") for path in EXAMPLES
    ]


def test_the_format_is_found_by_its_suffixes() -> None:
    """Any `.yaml` file is read; `.interlock.yaml` is what we write."""
    assert "yaml" == FORMAT.name
    assert ".yaml" == FORMAT.suffixes[0]

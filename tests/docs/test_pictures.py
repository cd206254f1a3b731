"""Mermaid diagrams in the documentation are drawn from the charts on the same page."""

from pathlib import Path

import pytest

import interlock
from interlock.render.diagram.mermaid import mermaid
from tests.docs.pages import blocks, pages
from tests.tidy.tracked import name

# The diagrams of these pages do not show charts: packages, and interleavings drawn by tests/model.
NO_CHARTS = frozenset({"docs/internals/architecture.md", "docs/internals/shared-memory.md"})


def pictured() -> list[Path]:
    """Returns the pages with a Mermaid diagram of a chart."""
    return [
        page
        for page in pages()
        if name(page) not in NO_CHARTS and any(block.language == "mermaid" for block in blocks(page))
    ]


@pytest.mark.parametrize("page", pictured(), ids=name)
def test_a_diagram_shows_the_chart_of_its_page(page: Path) -> None:
    text = ""
    for block in blocks(page):
        if block.language == "yaml" and block.file:
            text = block.text
        elif block.language == "mermaid":
            assert mermaid(interlock.loads(text).chart).strip() == block.text.strip()


def test_the_tutorial_has_a_diagram() -> None:
    assert ["docs/start.md"] == [name(page) for page in pictured() if page.name == "start.md"]

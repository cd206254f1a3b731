"""Pictures in the documentation are drawn from charts on the same page, never by hand."""

from pathlib import Path

import pytest

import interlock
from interlock.render.diagram.mermaid import mermaid
from tests.docs.pages import blocks, pages
from tests.tidy.tracked import name

# A flow of folders is no chart, and has no definition to be drawn from; interleavings are drawn by tests/model.
NO_CHARTS = frozenset({"docs/internals/architecture.md", "docs/internals/shared-memory.md"})


def pictured() -> list[Path]:
    """Gives the pages that show a Mermaid diagram of a chart."""
    return [
        page
        for page in pages()
        if name(page) not in NO_CHARTS and any(block.language == "mermaid" for block in blocks(page))
    ]


@pytest.mark.parametrize("page", pictured(), ids=name)
def test_a_picture_is_the_chart_of_its_page(page: Path) -> None:
    """The text of every diagram is what the last definition before it draws as."""
    text = ""
    for block in blocks(page):
        if block.language == "yaml" and block.file:
            text = block.text
        elif block.language == "mermaid":
            assert mermaid(interlock.loads(text).chart).strip() == block.text.strip()


def test_there_is_a_picture() -> None:
    """A test over no page would prove nothing."""
    assert ["docs/start.md"] == [name(page) for page in pictured() if page.name == "start.md"]

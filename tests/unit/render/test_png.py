"""A PNG carries its own font: every label is drawn on a machine without any."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import interlock
from interlock.render.svg.png import font_files, png

EXAMPLES = sorted(Path("examples").rglob("*.interlock.yaml"))
TEXT = re.compile(r"<text\b.*?</text>", re.DOTALL)
DRAWN = re.compile(r"<(rect|path|circle|polygon|line|ellipse|polyline)\b[^>]*?(/>|>.*?</\1>)", re.DOTALL)
SIZE = re.compile(r'(?<=\s)(width|height)="([\d.]+)"')
MARKS = "…→·≥≤≠"


def only(svg: str, text: str) -> str:
    """The drawing with one of its labels and nothing else, much smaller."""
    small = SIZE.sub(lambda found: f'{found[1]}="{float(found[2]) / 8}"', svg, count=2)
    blank = DRAWN.sub("", TEXT.sub("\0", small))
    return blank.replace("\0", text, 1).replace("\0", "")


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_label_is_drawn_without_a_font_of_the_machine(path: Path) -> None:
    svg = interlock.load(path).draw(theme="light").svg
    labels = TEXT.findall(svg)
    nothing = png(only(svg, ""), system_fonts=False)

    assert labels
    assert [] == [each for each in set(labels) if png(only(svg, each), system_fonts=False) == nothing]


def test_a_png_does_not_depend_on_the_fonts_of_the_machine() -> None:
    svg = interlock.load("examples/order.interlock.yaml").draw(theme="light").svg

    assert png(svg) == png(svg, system_fonts=False)


def test_the_font_has_the_marks_that_drawings_use() -> None:
    def drawn(text: str) -> bytes:
        svg = f"<svg xmlns='http://www.w3.org/2000/svg' width='40' height='20'><text x='4' y='14'>{text}</text></svg>"
        return png(svg, system_fonts=False)

    missing = drawn("\U0010fffd")

    assert "" == "".join(each for each in MARKS if drawn(each) in (missing, drawn("")))


def test_the_font_is_shipped_with_its_licence() -> None:
    folder = Path(font_files()[0]).parent

    assert "SIL Open Font License" in (folder / "LICENSE.txt").read_text(encoding="utf-8")

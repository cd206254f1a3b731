"""The stored diagrams and their scores. `python -m tests.scenarios.diagrams.goldens` writes them again.

Look at the pictures before you commit them. A score may fall; a rise needs a reason in the commit message.
"""

import json
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path

import interlock
from interlock.render.drawing import lay_out
from interlock.render.shapes.boxes import make_box_tree
from interlock.render.shapes.collapse import collapse_boxes
from interlock.render.shapes.geometry import Picture
from interlock.render.svg.painter import Look, svg
from interlock.render.svg.theme import theme_named
from tests.docs.pages import blocks
from tests.scenarios.diagrams.samples import FOLDER, SAMPLES
from tests.scenarios.diagrams.score import scored
from tests.tidy.tracked import ROOT

GOLDENS = FOLDER / "goldens"
IMAGES = ROOT / "docs" / "img"
SCORES = FOLDER / "scores.json"


@cache
def picture_of(name: str) -> Picture:
    """Lays a sample out."""
    return lay_out(collapse_boxes(make_box_tree(SAMPLES[name]())))


def text_of(picture: Picture) -> str:
    """Gives the SVG as it is kept: with colours written out, so that any viewer shows it."""
    return svg(picture, Look(theme="light"))


def golden(name: str) -> Path:
    """Gives the file of a sample's drawing."""
    return GOLDENS / f"{name}.svg"


def kept_scores() -> dict[str, float]:
    """Reads the scores that drawings had when they were kept."""
    found: dict[str, float] = json.loads(SCORES.read_text(encoding="utf-8"))
    return found


def images() -> dict[Path, str]:
    """Gives the pictures of the documentation: the door of the README and the player, each light and dark."""
    door = next(block.text for block in blocks(ROOT / "README.md") if block.file == "door.interlock.yaml")
    player = interlock.load(ROOT / "examples" / "player.interlock.yaml")
    shown = {"door": interlock.loads(door).draw("closed"), "player": player.draw()}
    found = {}
    for name, picture in shown.items():
        for theme in ("light", "dark"):
            options = replace(picture.options, theme=theme_named(theme))
            found[IMAGES / f"{name}-{theme}.svg"] = replace(picture, options=options).svg
    return found


def main() -> int:
    """Writes every drawing and the scores; says what rose."""
    GOLDENS.mkdir(exist_ok=True)
    before = kept_scores() if SCORES.exists() else {}
    scores = {}
    for name in SAMPLES:
        picture = picture_of(name)
        golden(name).write_text(text_of(picture), encoding="utf-8")
        scores[name] = round(scored(picture).total, 1)
        if scores[name] > before.get(name, scores[name]):
            sys.stdout.write(f"{name}: {before[name]} -> {scores[name]}: say why in the commit\n")
    for path, text in images().items():
        path.write_text(text, encoding="utf-8")
    SCORES.write_text(json.dumps(scores, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Drawings of charts that show everything a drawing can show: kept, judged by the hard rules, never getting worse."""

import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest

from interlock.render.layout.invariants import broken_rules
from interlock.render.shapes.geometry import Path
from interlock.render.svg.painter import encoded
from tests.scenarios.diagrams.goldens import IMAGES, golden, images, kept_scores, picture_of, text_of
from tests.scenarios.diagrams.samples import SAMPLES
from tests.scenarios.diagrams.score import Score, scored
from tests.tidy.tracked import ROOT

NAMES = sorted(SAMPLES)
RULES = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize("name", NAMES)
def test_a_drawing_equals_its_golden_file(name: str) -> None:
    """`python -m tests.scenarios.diagrams.goldens` writes them again, and the diff is the review."""
    assert golden(name).read_text(encoding="utf-8") == text_of(picture_of(name))


@pytest.mark.parametrize("name", NAMES)
def test_a_golden_drawing_keeps_every_invariant(name: str) -> None:
    """Nothing overlaps, every line is straight and ends where it should; none of them is an outline."""
    picture = picture_of(name)

    assert "" == picture.fallback_reason
    assert [] == list(broken_rules(picture))


@pytest.mark.parametrize("name", NAMES)
def test_a_drawing_does_not_get_worse(name: str) -> None:
    """The score of a drawing may fall; when it falls it is kept, so that it cannot rise again unseen."""
    assert kept_scores()[name] == round(scored(picture_of(name)).total, 1)


def test_a_score_counts_crossings_bends_and_jogs() -> None:
    picture = picture_of("non_ascii")
    wire = picture.paths[0].wire
    one = Path(wire=wire, points=((0.0, 5.0), (10.0, 5.0)))
    other = Path(wire=wire, points=((5.0, 0.0), (5.0, 10.0), (9.0, 10.0), (9.0, 30.0)))
    score = scored(replace(picture, paths=(one, other), width=140.0, height=100.0))

    assert Score(crossings=1, bends=2, jogs=1, length=44.0, width=140.0, height=100.0) == score
    assert pytest.approx(40 + 8 + 12 + 0.44) == score.total


def test_every_sample_is_kept_and_nothing_else() -> None:
    """A drawing without a chart would be compared with nothing."""
    assert set(NAMES) == set(kept_scores())
    assert set(NAMES) == {path.stem for path in golden("x").parent.glob("*.svg")}


@pytest.mark.parametrize("name", NAMES)
def test_every_id_is_there_once_and_every_text_is_there(name: str) -> None:
    """A page finds each state and transition by its id; a reader, or a search, finds each name and label."""
    chart = SAMPLES[name]()
    picture = picture_of(name)
    root = ET.fromstring(text_of(picture))
    ids = [each.attrib["id"] for each in root.iter() if "id" in each.attrib]
    words = " ".join("".join(root.itertext()).split())

    assert len(ids) == len(set(ids))
    for box in picture.tree.boxes.values():
        if box.state is not None and box.parent is not None:
            assert f"s-{encoded(box.state)}" in ids
            assert box.name in words
    if not any(box.hidden for box in picture.tree.boxes.values()):
        assert len(chart.transitions) == sum(1 for each in ids if re.match(r"t-", each))
    for wire in picture.tree.wires:
        for label in wire.labels:
            assert " ".join(label.text.split()) in words


def test_the_pictures_of_the_documentation_are_drawn_from_its_charts() -> None:
    drawn = images()

    assert drawn == {path: path.read_text(encoding="utf-8") for path in drawn}
    assert set(drawn) == set(IMAGES.glob("*.svg"))


def test_the_bytes_do_not_depend_on_the_process() -> None:
    code = "import sys; from tests.scenarios.diagrams.goldens import *; sys.stdout.write(text_of(picture_of('nested')))"
    texts = []
    for seed in ("1", "77"):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8"}
        ended = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, check=True)
        texts.append(ended.stdout.decode())

    assert [golden("nested").read_text(encoding="utf-8")] * 2 == texts

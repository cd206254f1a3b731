"""The hard rules see every breach: each is made on purpose, in a picture that kept them all."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from interlock.model.document.document import State
from interlock.render.layout.invariants import broken_rules, outline_distance, overlap
from interlock.render.shapes.boxes import Box, BoxKind
from interlock.render.shapes.geometry import Area, Frame, Picture, Point
from tests.unit.render.charts import on
from tests.unit.render.pictures import frame_of, picture_of


def good() -> Picture:
    """Lays out two states and a compound, with lines between them."""
    inner = State(key="g", states=(State(key="x", transitions=(on("in", "y"),)), State(key="y")))
    start = State(key="a", transitions=(on("go", "b"), on("into", "g.y"), on("to", "g")))
    return picture_of(start, State(key="b", transitions=(on("on", "g"),)), inner)


def shifted(picture: Picture, key: str, by: Point) -> Picture:
    """Moves one frame, and nothing else."""
    frames = [
        replace(frame, area=replace(frame.area, x=frame.area.x + by[0], y=frame.area.y + by[1]))
        if frame.box.key == key
        else frame
        for frame in picture.frames
    ]
    return replace(picture, frames=tuple(frames))


def led(picture: Picture, number: int, points: tuple[Point, ...]) -> Picture:
    """Leads one line another way."""
    paths = list(picture.paths)
    paths[number] = replace(paths[number], points=points)
    return replace(picture, paths=tuple(paths))


def labelled(picture: Picture, number: int, change: Callable[[Area], Area]) -> Picture:
    """Puts one label elsewhere."""
    paths = list(picture.paths)
    area = paths[number].label
    assert area is not None
    paths[number] = replace(paths[number], label=change(area))
    return replace(picture, paths=tuple(paths))


def line(picture: Picture, event: str) -> int:
    """The number of the line of an event."""
    return next(
        number for number, path in enumerate(picture.paths) if event in [label.event for label in path.wire.labels]
    )


def said(picture: Picture) -> str:
    """All breaches in one text."""
    return "; ".join(broken_rules(picture))


def test_a_good_picture_breaks_none() -> None:
    """Else the tests below would prove nothing."""
    assert "" == said(good())


def test_overlapping_boxes_break_an_invariant() -> None:
    picture = good()
    other, area = frame_of(picture, "s/b").area, frame_of(picture, "s/a").area

    assert "s/a overlaps s/b" in said(shifted(picture, "s/a", (other.x - area.x, other.y - area.y)))


def test_a_box_outside_of_its_parent_breaks_an_invariant() -> None:
    assert "s/g.x sticks out of s/g" in said(shifted(good(), "s/g.x", (-500.0, 0.0)))


def test_a_slanted_line_breaks_an_invariant() -> None:
    picture = good()
    number = line(picture, "go")
    points = picture.paths[number].points

    assert "is slanted" in said(
        led(picture, number, (points[0], (points[-1][0] + 7.0, points[-1][1] - 9.0), points[-1]))
    )


def test_a_line_without_length_breaks_an_invariant() -> None:
    """There is nothing to look at, and an arrow would point nowhere."""
    picture = good()
    number = line(picture, "go")

    assert "has no length" in said(led(picture, number, picture.paths[number].points[:1]))


def test_a_missing_label_breaks_an_invariant() -> None:
    picture = good()
    number = line(picture, "go")
    paths = list(picture.paths)
    paths[number] = replace(paths[number], label=None)

    assert "has lost its label" in said(replace(picture, paths=tuple(paths)))


def test_a_line_that_ends_nowhere_breaks_an_invariant() -> None:
    picture = good()
    number = line(picture, "go")
    points = picture.paths[number].points
    short = (
        (points[-1][0] - 3.0, points[-1][1]) if points[-2][1] == points[-1][1] else (points[-1][0], points[-1][1] - 3.0)
    )

    assert "does not end at s/b" in said(led(picture, number, (*points[:-1], short)))


def test_a_line_through_another_state_breaks_an_invariant() -> None:
    picture = good()
    number = line(picture, "go")
    area = frame_of(picture, "s/g.x").area
    middle = (area.x + area.width / 2, area.y + area.height / 2)
    points = picture.paths[number].points
    detour = (points[0], (middle[0], points[0][1]), middle, (middle[0], points[-1][1]), points[-1])

    assert "passes through s/g.x" in said(led(picture, number, detour))


def test_a_line_through_its_own_state_or_a_title_breaks_an_invariant() -> None:
    picture = good()
    number, area = line(picture, "go"), frame_of(picture, "s/b").area
    points = picture.paths[number].points
    through = (
        (*points[:-1], (points[-1][0], area.bottom))
        if points[-1][1] == area.y
        else (
            *points[:-1],
            (area.right, points[-1][1]),
        )
    )
    group = frame_of(picture, "s/g")
    title = (group.area.x + group.title + 5.0, group.area.y + 14.0)
    across = (points[0], (points[0][0], title[1]), title)

    assert "passes through s/b" in said(led(picture, number, through))
    assert "passes through a title" in said(led(picture, line(picture, "into"), across))


@pytest.mark.parametrize(
    ("onto", "words"), [("s/b", "overlaps s/b"), ("s/g.x", "overlaps s/g.x"), ("title", "overlaps a title")]
)
def test_a_label_over_something_breaks_an_invariant(onto: str, words: str) -> None:
    picture = good()
    group = frame_of(picture, "s/g")
    area = frame_of(picture, onto).area if onto != "title" else replace(group.area, x=group.area.x + group.title)

    assert words in said(labelled(picture, line(picture, "go"), lambda label: replace(label, x=area.x, y=area.y + 8.0)))


def test_overlapping_labels_and_labels_far_from_their_line_break_an_invariant() -> None:
    picture = good()
    other = picture.paths[line(picture, "to")].label
    assert other is not None
    moved = said(labelled(picture, line(picture, "go"), lambda _: other))

    assert "overlaps the label of line" in moved
    assert "away from it" in moved
    assert (
        "is nearer to line"
        in said(labelled(picture, line(picture, "go"), lambda label: replace(label, x=other.x, y=other.y - 9.0)))
        or "is nearer to line" in moved
    )


@pytest.mark.parametrize(
    ("kind", "aside", "point"),
    [
        ("initial", False, (5.5, 0.0)),
        ("history", False, (0.0, 11.0)),
        ("final", False, (30.0, 0.0)),
        ("final", True, (0.0, 20.0)),
        ("choice", False, (0.0, 20.0)),
        ("choice", False, (13.0, 0.0)),
        ("state", False, (60.0, 12.0)),
    ],
)
def test_the_outline_of_every_shape_is_known(kind: BoxKind, aside: bool, point: Point) -> None:
    box = Box(key="s/a", kind=kind, name="a", state="a")
    frame = Frame(box=box, area=Area(x=0.0, y=0.0, width=60.0, height=40.0), title=13.0, aside=aside)

    assert outline_distance(frame, point) < 0.1
    assert outline_distance(frame, (-30.0, -30.0)) > 10.0


def test_touching_boxes_do_not_overlap() -> None:
    area = Area(x=0.0, y=0.0, width=10.0, height=10.0)

    assert not overlap(area, Area(x=10.0, y=0.0, width=5.0, height=5.0))
    assert overlap(area, Area(x=5.0, y=-5.0, width=0.0, height=20.0))
    assert not overlap(area, Area(x=12.0, y=-5.0, width=0.0, height=20.0))

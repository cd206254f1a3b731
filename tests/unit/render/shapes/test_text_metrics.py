"""Widths, lines and sizes."""

import pytest

from interlock.render.shapes.boxes import Box, BoxKind, Label, Note
from interlock.render.shapes.text_metrics import (
    BADGE,
    LABEL_LINES_MAX,
    LABEL_WIDTH_MAX,
    MERGED_WIDTH_MAX,
    badge_room,
    box_size,
    header_size,
    label_lines,
    note_text,
    shortened,
    title_text,
    width,
    wrapped,
)


def box(kind: BoxKind = "state", name: str = "paid", **fields: object) -> Box:
    """Return a single box."""
    return Box(key=f"s/{name}", kind=kind, name=name, state=name, **fields)  # type: ignore[arg-type]  # the tests know the fields


def test_wide_characters_count_full_and_combining_ones_nothing() -> None:
    assert width("状") > width("W") > width("i") > 0
    assert width("é") == width("e\u0301") or width("e\u0301") == width("e")
    assert width("bold", bold=True) > width("bold")


def test_a_short_text_stays_and_a_long_one_ends_in_an_ellipsis() -> None:
    assert "short" == shortened("short", 100.0)
    assert shortened("a long text that does not fit", 60.0).endswith("…")
    assert width(shortened("a long text that does not fit", 60.0)) <= 60.0
    assert "…" == shortened("wide", 1.0)


def test_a_text_is_broken_at_spaces_and_a_long_word_inside() -> None:
    """No line is wider than the limit, and nothing is lost."""
    text = "one two " + "x" * 60 + " three"
    lines = wrapped(text, 100.0)

    assert text.replace(" ", "") == "".join(lines).replace(" ", "")
    assert all(width(line) <= 100.0 for line in lines)
    assert "one two" == lines[0]
    assert [] == wrapped("  ", 100.0)
    assert ["i", "i"] == wrapped("ii", 0.1)
    assert ["xxxx"] == wrapped("xxxx", width("xxxx"))


def test_one_label_has_its_event_first_and_its_actions_below() -> None:
    lines = label_lines((Label(event="pay", guard="[ok]", actions="/ act"),))

    assert [(("event", "pay"), ("guard", "[ok]")), (("actions", "/ act"),)] == [line.parts for line in lines]


def test_a_long_label_has_at_most_four_lines() -> None:
    lines = label_lines((Label(event="e" * 30, guard=f"[{'g ' * 200}]", actions="/ " + "act " * 90),))

    assert LABEL_LINES_MAX == len(lines)
    assert lines[-1].parts[-1][1].endswith("…")
    assert all(line.width <= LABEL_WIDTH_MAX for line in lines)


def test_several_labels_have_a_line_each_and_the_rest_is_counted() -> None:
    lines = label_lines(tuple(Label(event=f"e{number}") for number in range(9)))

    assert ["e0", "e1", "e2", "e3", "e4", "+4"] == [line.parts[0][1] for line in lines]
    assert lines[-1].label is None
    assert () == label_lines(())


def test_a_line_of_several_is_cut_where_it_is_too_wide() -> None:
    """In the part that does not fit, or, when nothing of that fits, behind the one before."""
    long, full = Label(event="e", guard="[" + "g" * 90 + "]"), Label(event="e" * 38, guard="[ggg]")
    lines = label_lines((long, full, Label(event="x", guard="[y]", actions="/ z")))

    assert ["event", "guard"] == [role for role, _ in lines[0].parts]
    assert lines[0].parts[1][1].endswith("…")
    assert ("more", "…") == lines[1].parts[-1]
    assert ("x", "[y]", "/ z") == tuple(text for _, text in lines[2].parts)
    assert all(line.width <= MERGED_WIDTH_MAX + width("  …") for line in lines)


def test_a_mark_is_written_before_what_it_marks() -> None:
    assert "+ pay" == label_lines((Label(event="pay", mark="added"),))[0].parts[0][1]
    assert "- gone" == note_text(Note(text="gone", mark="removed"))
    assert "~ paid" == title_text(box(mark="changed"))
    assert () == label_lines((Label(mark="added"),))


def test_a_closed_box_shows_its_number_of_states() -> None:
    assert "paid  +7" == title_text(box(hidden=7))


def test_a_state_keeps_a_slot_for_its_badge() -> None:
    """Its title and the slot fit side by side; notes make it higher, and wider when they must."""
    plain, noted = box(), box(notes=(Note(text="entry / " + "act " * 20),))

    assert header_size(plain)[0] >= width("paid", 13.0, bold=True) + BADGE[0]
    assert header_size(noted)[0] > header_size(plain)[0]
    assert header_size(noted)[1] > header_size(plain)[1]
    assert (0.0, 0.0) == header_size(box("niche"))


@pytest.mark.parametrize("kind", ["initial", "history", "fork", "final", "choice", "state"])
def test_every_box_has_a_size(kind: BoxKind) -> None:
    assert all(side > 0 for side in box_size(box(kind), across=True))
    if kind == "fork":
        assert box_size(box(kind), across=True) == box_size(box(kind), across=False)[::-1]


def test_the_caption_of_a_final_state_may_stand_aside() -> None:
    final = box("final", "done", notes=(Note(text="output 1"),))

    assert box_size(final, across=True, aside=True)[1] < box_size(final, across=True)[1]
    assert badge_room(final) > 0.0
    assert 0.0 == badge_room(box("final", "a final state with a very long name")) == badge_room(box())

"""The width of texts, line breaks, and the size of a box without content.

Rule 1: widths come from one table for a common sans-serif font, with a safety margin, never from an installed font. The
        same chart has the same size everywhere, and the text fits in all usual fonts.
Rule 2: every state has room for a badge at the right end of its title, so that live counts cover nothing.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass

from interlock.render.shapes.boxes import Box, Label, Mark, Note

TITLE_SIZE = 13.0
TEXT_SIZE = 11.0
LINE_HEIGHT = 15.0
HEADER = 28.0
NOTES_MARGIN = 9.0
MARGIN = 13.0
BADGE = (40.0, 16.0)
LABEL_WIDTH_MAX = 190.0
LABEL_LINES_MAX = 4
MERGED_LINES_MAX = 6
MERGED_WIDTH_MAX = 250.0
NOTE_WIDTH_MAX = 300.0
TITLE_WIDTH_MAX = 260.0
DOT = 5.5
RING = 9.0
HISTORY = 11.0
SLANT = 13.0
_SAFETY = 1.06
_BOLD = 1.08
_ELLIPSIS = "…"

# Advances of the printable ASCII characters in thousandths of the font size, space first.
_ADVANCES = (
    *(278, 278, 355, 556, 556, 889, 667, 191, 333, 333, 389, 584, 278, 333, 278, 278),
    *(556, 556, 556, 556, 556, 556, 556, 556, 556, 556, 278, 278, 584, 584, 584, 556),
    *(1015, 667, 667, 722, 722, 667, 611, 778, 722, 278, 500, 667, 556, 833, 722, 778),
    *(667, 778, 722, 667, 611, 722, 667, 944, 667, 667, 611, 278, 278, 278, 469, 556),
    *(333, 556, 556, 500, 556, 556, 278, 556, 556, 222, 222, 500, 222, 833, 556, 556),
    *(556, 556, 333, 500, 278, 556, 500, 722, 500, 500, 500, 334, 260, 334, 584),
)
_OTHER, _WIDE = 600, 1000


def width(text: str, size: float = TEXT_SIZE, *, bold: bool = False) -> float:
    """Return the width of a text in pixels, rounded up."""
    total = 0
    for each in text:
        code = ord(each) - 32
        if 0 <= code < len(_ADVANCES):
            total += _ADVANCES[code]
        elif not unicodedata.combining(each):
            total += _WIDE if unicodedata.east_asian_width(each) in "WF" else _OTHER
    return total * size / 1000 * _SAFETY * (_BOLD if bold else 1.0)


def shortened(text: str, limit: float, size: float = TEXT_SIZE, *, bold: bool = False) -> str:
    """Return the text, truncated with an ellipsis if it is wider than the limit."""
    if width(text, size, bold=bold) <= limit:
        return text
    while text and width(text + _ELLIPSIS, size, bold=bold) > limit:
        text = text[:-1]
    return text.rstrip() + _ELLIPSIS


def wrapped(text: str, limit: float) -> list[str]:
    """Return the text in lines no wider than the limit, broken at spaces, and inside words that are too wide."""
    lines: list[str] = []
    line = ""
    for word in text.split():
        longer = f"{line} {word}" if line else word
        if width(longer) <= limit:
            line = longer
            continue
        if line:
            lines.append(line)
        line = word
        while width(line) > limit:
            fits = max(1, next(count for count in range(len(line), -1, -1) if width(line[:count]) <= limit))
            lines.append(line[:fits])
            line = line[fits:]
    return [*lines, line] if line else lines


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of a label: texts with their roles (`event`, `guard`, `actions`, `more`), and their transition."""

    parts: tuple[tuple[str, str], ...]
    label: Label | None = None
    mark: Mark = ""

    @property
    def width(self) -> float:
        """The width of the whole line."""
        return width(" ".join(text for _, text in self.parts))


SIGNS: dict[Mark, str] = {"": "", "added": "+ ", "removed": "- ", "changed": "~ "}
"""The prefix of a text that differs between two revisions, because colour must not be the only sign."""


def label_lines(labels: tuple[Label, ...]) -> tuple[Line, ...]:
    """Return the lines of a wire's label: several lines for one transition, or one line for each of several."""
    if len(labels) == 1:
        return _broken(labels[0])
    shown = labels if len(labels) <= MERGED_LINES_MAX else labels[: MERGED_LINES_MAX - 1]
    lines = [_single(label) for label in shown]
    if len(shown) < len(labels):
        lines.append(Line(parts=(("more", f"+{len(labels) - len(shown)}"),)))
    return tuple(lines)


def _parts(label: Label) -> list[tuple[str, str]]:
    parts = [("event", label.event), ("guard", label.guard), ("actions", label.actions)]
    present = [(role, text) for role, text in parts if text]
    if present:
        present[0] = (present[0][0], SIGNS[label.mark] + present[0][1])
    return present


def _single(label: Label) -> Line:
    """Return a label on one line, truncated if it is too wide."""
    parts: list[tuple[str, str]] = []
    for role, text in _parts(label):
        used = width(" ".join(each for _, each in parts) + " ") if parts else 0.0
        cut = shortened(text, MERGED_WIDTH_MAX - used)
        if cut == _ELLIPSIS and parts:
            parts.append(("more", _ELLIPSIS))
            break
        parts.append((role, cut))
        if cut != text:
            break
    return Line(parts=tuple(parts), label=label, mark=label.mark)


def _broken(label: Label) -> tuple[Line, ...]:
    """Return a label on several lines: the event with its guard, then the actions."""
    lines: list[tuple[tuple[str, str], ...]] = []
    parts = _parts(label)
    head = [each for each in parts if each[0] != "actions"]
    if head and width(" ".join(text for _, text in head)) <= LABEL_WIDTH_MAX:
        lines.append(tuple(head))
        head = []
    for role, text in [*head, *(each for each in parts if each[0] == "actions")]:
        lines += [((role, line),) for line in wrapped(text, LABEL_WIDTH_MAX)]
    if len(lines) > LABEL_LINES_MAX:
        role, text = lines[LABEL_LINES_MAX - 1][-1]
        last = shortened(text + " " + _ELLIPSIS, LABEL_WIDTH_MAX)
        lines = [*lines[: LABEL_LINES_MAX - 1], ((role, last),)]
    return tuple(Line(parts=line, label=label, mark=label.mark) for line in lines)


def note_text(note: Note) -> str:
    """Return the text of a note: with the sign of its mark, truncated if it is too wide."""
    return shortened(SIGNS[note.mark] + note.text, NOTE_WIDTH_MAX)


def title_text(box: Box) -> str:
    """Return the title of a box, with the number of states it hides."""
    name = shortened(SIGNS[box.mark] + box.name, TITLE_WIDTH_MAX, TITLE_SIZE, bold=True)
    return f"{name}  +{box.hidden}" if box.hidden else name


def title_width(box: Box) -> float:
    """Return the width of a title with its badge."""
    return width(title_text(box), TITLE_SIZE, bold=True) + 8.0 + BADGE[0]


def header_size(box: Box) -> tuple[float, float]:
    """Return the width and height of a box's title and notes, with their margins."""
    if box.kind == "niche":
        return 0.0, 0.0
    notes = [width(note_text(note)) for note in box.notes]
    height = HEADER + (len(notes) * LINE_HEIGHT + NOTES_MARGIN if notes else 0.0)
    return max([title_width(box) + MARGIN + 5.0, *(each + 2 * MARGIN for each in notes)]), height


def badge_room(box: Box) -> float:
    """Return how far the badge extends beyond a box: that of a final state is next to the ring."""
    if box.kind != "final":
        return 0.0
    return max(RING + 5.0 + BADGE[0] - box_size(box, across=True)[0] / 2, 0.0)


def box_size(box: Box, *, across: bool, aside: bool = False) -> tuple[float, float]:
    """Return the width and height of a box without children. A bar is across the flow; a caption may be next to it."""
    match box.kind:
        case "initial":
            return 2 * DOT, 2 * DOT
        case "history":
            return 2 * HISTORY, 2 * HISTORY
        case "fork":
            return (44.0, 4.0) if across else (4.0, 44.0)
        case "final":
            texts = [title_text(box), *map(note_text, box.notes)]
            if aside:
                wide = max(width(texts[0]) + 6.0 + BADGE[0], *map(width, texts))
                return 2 * RING + 6.0 + wide, max(2 * RING, LINE_HEIGHT * len(texts))
            return max(2 * RING, *(width(text) + 6.0 for text in texts)), 2 * RING + 4.0 + LINE_HEIGHT * len(texts)
        case "choice":
            return width(title_text(box)) + 8.0 + BADGE[0] + 2 * SLANT, 30.0
        case _:
            return header_size(box)

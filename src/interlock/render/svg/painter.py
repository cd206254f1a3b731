"""A picture as SVG text: frames outside in, then lines, then labels, then the slots of badges.

Rule 1: ids are `<prefix>s-<state>` and `<prefix>t-<state>-<ordinal>`, escaped. A page with several drawings gives
        each a prefix. Highlighting is by class, so a page changes classes and never the geometry.
Rule 2: an arrowhead is a separate path, not a marker, so that one class colours both.
Rule 3: the same picture gives the same bytes: one decimal, fixed order of attributes, no scripts, fonts or clock.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from interlock.render.layout.outline import outline_text
from interlock.render.shapes.boxes import Label
from interlock.render.shapes.geometry import Area, Frame, Path, Picture, Point
from interlock.render.shapes.text_metrics import (
    BADGE,
    DOT,
    HEADER,
    HISTORY,
    LINE_HEIGHT,
    RING,
    SLANT,
    TITLE_SIZE,
    Line,
    note_text,
    title_text,
    width,
)
from interlock.render.svg.theme import Theme, style

_RADIUS = 8.0
_HEAD_LENGTH = 8.0
_HEAD_WIDTH = 3.6
_BASELINE = 11.3
_CORNER = 8.0
_MIDDLE = ' text-anchor="middle"'
_PLAIN = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-")


@dataclass(frozen=True, slots=True, kw_only=True)
class SvgOptions:
    """How a picture is painted: the theme, the prefix of ids, classes by state id or (state id, ordinal), and the texts
    of badges by state id.
    """

    theme: Theme = "vars"
    prefix: str = ""
    states: dict[str, str] | None = None
    transitions: dict[tuple[str, int], str] | None = None
    badges: dict[str, str] | None = None
    role: Literal["img", "group"] = "img"


def svg(picture: Picture, svg_options: SvgOptions) -> str:
    """Return the picture as an SVG document."""
    return "\n".join(_Painter(picture, svg_options).document()) + "\n"


def encoded(text: str) -> str:
    """Return a text as part of an XML id: letters, digits and hyphens, every other byte as `_hh`."""
    return "".join(chr(byte) if byte in _PLAIN else f"_{byte:02x}" for byte in text.encode("utf-8", "surrogatepass"))


def escaped(text: str) -> str:
    """Return a text as content of XML. Characters that XML does not allow are shown by their number."""
    kept = "".join(each if _is_legal(ord(each)) else f"\\x{ord(each):02x}" for each in text)
    return kept.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;")


def _is_legal(code: int) -> bool:
    if code < 0xA0:
        return code in (9, 10, 13) or 32 <= code < 127
    return not 0xD800 <= code <= 0xDFFF and code & 0xFFFE != 0xFFFE


def _number(value: float) -> str:
    text = f"{value:.1f}"
    return text.removesuffix(".0")


class _Painter:
    """Paints one picture."""

    def __init__(self, picture: Picture, svg_options: SvgOptions) -> None:
        self.picture = picture
        self.options = svg_options
        self.states = svg_options.states or {}
        self.transitions = svg_options.transitions or {}

    def document(self) -> Iterator[str]:
        picture, prefix = self.picture, self.options.prefix
        size = f"{_number(picture.width)} {_number(picture.height)}"
        wide, high = size.split()
        label = f' aria-labelledby="{escaped(prefix)}title {escaped(prefix)}desc"'
        yield (
            f'<svg xmlns="http://www.w3.org/2000/svg" xml:space="preserve" class="interlock" viewBox="0 0 {size}" '
            f'width="{wide}" height="{high}" role="{self.options.role}"{label}>'
        )
        yield f'<title id="{escaped(prefix)}title">{escaped(picture.tree.title)}</title>'
        note = f"Drawn as an outline: {picture.fallback_reason}.\n" if picture.fallback_reason else ""
        yield f'<desc id="{escaped(prefix)}desc">{escaped(note + outline_text(picture.tree))}</desc>'
        sheet = style(self.options.theme)
        if sheet:
            yield f"<style>{sheet}</style>"
        yield f'<rect class="bg" width="{wide}" height="{high}" rx="8"/>'
        depths: dict[str, int] = {}
        areas: dict[str, Area] = {}
        for frame in picture.frames:
            # Regions share the colour of the state around them.
            depths[frame.box.key] = depths.get(frame.box.parent or "", -1) + (not frame.box.region)
            areas[frame.box.key] = frame.area
            if not frame.bare:
                yield from self._frame(frame, depths[frame.box.key], areas.get(frame.box.parent or ""))
        for number, path in enumerate(picture.paths):
            yield from self._wire(path, number)
        for path in picture.paths:
            yield from self._label(path)
        for frame in picture.frames:
            yield from self._badge(frame)
        yield "</svg>"

    def _state_id(self, state: str) -> str:
        return f"{escaped(self.options.prefix)}s-{encoded(state)}"

    def _transition_id(self, transition: tuple[str, int]) -> str:
        return f"{escaped(self.options.prefix)}t-{encoded(transition[0])}-{transition[1]}"

    def _frame(self, frame: Frame, depth: int, around: Area | None) -> Iterator[str]:
        box = frame.box
        words: list[str] = [box.kind if box.kind != "parallel" else "group parallel"]
        words += ["region"] * box.region + ["root"] * (box.parent is None) + ["deep"] * (depth % 2 == 0)
        lit = "" if box.state is None else self.states.get(box.state, "")
        words += [each for each in (box.mark, lit) if each]
        ident = f' id="{self._state_id(box.state)}"' if box.state is not None else ""
        if self.options.role == "group" and box.state is not None:
            # An interactive page moves the focus through the states and extends the label.
            ident += f' tabindex="-1" aria-label="{escaped(box.state or box.name)}"'
        yield f'<g{ident} class="{" ".join(words)}">'
        if box.state is not None:
            hidden = f", {box.hidden} states inside" if box.hidden else ""
            yield f"<title>{escaped(box.state or box.name)}{hidden}</title>"
        if box.region and around is not None:
            yield from _divider(frame.area, around)
        match box.kind:
            case "initial":
                yield _circle("dot", *_centre(frame.area), DOT)
            case "fork":
                yield _rectangle("bar", frame.area, 2.0)
            case "history":
                x, y = _centre(frame.area)
                yield _circle("ring", x, y, HISTORY)
                yield _text("caption", x, y + 4.0, box.name, ident=_MIDDLE)
            case "final":
                yield from self._final(frame)
            case "choice":
                yield from self._choice(frame)
            case "niche":
                pass
            case _:
                yield from self._box(frame)
        yield "</g>"

    def _box(self, frame: Frame) -> Iterator[str]:
        """Paint a rounded box with its title and notes. A region has only lines to its neighbours."""
        area, box = frame.area, frame.box
        yield _rectangle("box", area, _RADIUS if not box.children else _RADIUS + 2.0)
        x = area.x + frame.title
        yield _text("name", x, _title_middle(frame) + 4.6, title_text(box))
        y = area.y + HEADER
        if box.notes and not box.children:
            yield f'<path class="rule" d="M{_number(area.x)} {_number(y)}H{_number(area.right)}"/>'
        for number, note in enumerate(box.notes):
            words = f"note {note.mark}" if note.mark else "note"
            baseline = y + 4.0 + number * LINE_HEIGHT + _BASELINE
            ident = f' id="{self._transition_id(note.id)}"' if note.id is not None else ""
            took = self.transitions.get(note.id, "") if note.id is not None else ""
            yield _text(f"{words} {took}".rstrip(), x, baseline, note_text(note), ident=ident, full=note.text)

    def _final(self, frame: Frame) -> Iterator[str]:
        """Paint two rings with a caption below, or at the side if a line arrives from below."""
        area = frame.area
        x, y = ring_centre(frame)
        yield _circle("ring", x, y, RING)
        yield _circle("dot", x, y, RING - 4.0)
        texts = [("caption", title_text(frame.box))]
        texts += [(f"note {note.mark}".rstrip(), note_text(note)) for note in frame.box.notes]
        left = x + RING + 6.0
        top = area.y + (area.height - LINE_HEIGHT * len(texts)) / 2 if frame.aside else y + RING + 3.0
        for number, (words, text) in enumerate(texts):
            baseline = top + number * LINE_HEIGHT + _BASELINE
            if frame.aside:
                yield _text(words, left, baseline, text)
            else:
                yield _text(words, x, baseline, text, ident=_MIDDLE)

    def _choice(self, frame: Frame) -> Iterator[str]:
        area = frame.area
        y = area.y + area.height / 2
        corners = (
            (area.x, y),
            (area.x + SLANT, area.y),
            (area.right - SLANT, area.y),
            (area.right, y),
            (area.right - SLANT, area.bottom),
            (area.x + SLANT, area.bottom),
        )
        points = " ".join(f"{_number(px)},{_number(py)}" for px, py in corners)
        yield f'<polygon class="box" points="{points}"/>'
        yield _text("caption", area.x + SLANT, y + 4.0, title_text(frame.box))

    def _wire(self, path: Path, number: int) -> Iterator[str]:
        wire = path.wire
        marks = [label.mark for label in wire.labels]
        mark = wire.mark or (marks[0] if marks and len(dict.fromkeys(marks)) == 1 else "")
        lit = " ".join(dict.fromkeys(self.transitions.get(each.id, "") for each in wire.labels if each.id is not None))
        words = " ".join(filter(None, ["wire", "dashed" * wire.dashed, mark, lit.strip()]))
        named = " ".join(self._transition_id(each.id) for each in wire.labels if each.id is not None)
        listed = f' data-transitions="{named}"' if named else ""
        yield f'<g id="{escaped(self.options.prefix)}w-{number}" class="{words}"{listed}>'
        if wire.labels:
            yield f"<title>{escaped(chr(10).join(label.text for label in wire.labels))}</title>"
        yield f'<path class="line" d="{_line(path.points, arrow=wire.arrow)}"/>'
        if wire.arrow:
            yield f'<path class="head" d="{_head(path.points[-2], path.points[-1])}"/>'
        yield "</g>"

    def _label(self, path: Path) -> Iterator[str]:
        area = path.label
        if area is None:
            return
        yield '<g class="label">'
        shown: list[Label] = []
        for number, line in enumerate(path.lines):
            first = line.label is not None and line.label not in shown
            if line.label is not None and first:
                shown.append(line.label)
            yield self._label_line(line, area.x, area.y + number * LINE_HEIGHT + _BASELINE, first=first)
        for label in path.wire.labels:
            if label.id is not None and label not in shown:
                yield f'<g id="{self._transition_id(label.id)}"/>'
        yield "</g>"

    def _label_line(self, line: Line, x: float, y: float, *, first: bool) -> str:
        parts: list[str] = []
        for role, text in line.parts:
            content = escaped((" " if parts else "") + text)
            parts.append(content if role == "event" else f'<tspan class="{role}">{content}</tspan>')
        ident = ""
        words: str = line.mark
        if line.label is not None and line.label.id is not None:
            ident = f' id="{self._transition_id(line.label.id)}"' if first else ""
            words = " ".join(filter(None, (words, self.transitions.get(line.label.id, ""))))
        kind = f' class="{words}"' if words else ""
        return f'<text{ident}{kind} x="{_number(x)}" y="{_number(y)}">{"".join(parts)}</text>'

    def _badge(self, frame: Frame) -> Iterator[str]:
        """Paint the group in which a page can show a count; empty if the options have none."""
        box, area = frame.box, frame.area
        if box.state is None or box.kind == "history" or frame.bare:
            return
        if box.kind == "final":
            x, y = ring_centre(frame)
            x += RING + 5.0 + (width(title_text(box)) + 6.0 if frame.aside else 0.0)
            y -= BADGE[1] / 2
        elif box.kind == "choice":
            x, y = area.right - SLANT - BADGE[0], area.y + (area.height - BADGE[1]) / 2
        else:
            x = area.x + frame.title + width(title_text(box), TITLE_SIZE, bold=True) + 8.0
            x = max(x, area.right - BADGE[0] - 5.0) if not box.children else x
            y = _title_middle(frame) - BADGE[1] / 2
        ident = f"{escaped(self.options.prefix)}b-{encoded(box.state)}"
        group = f'<g id="{ident}" class="badge" transform="translate({_number(x)} {_number(y)})"'
        text = (self.options.badges or {}).get(box.state, "")
        if not text:
            yield f"{group}/>"
            return
        wide = max(20.0, len(text) * 6.2 + 10.0)
        left = max(0.0, BADGE[0] - wide)
        plate = f'x="{_number(left)}" width="{_number(wide)}" height="{_number(BADGE[1])}" rx="8" fill="#1f2937"'
        place = f'x="{_number(left + wide / 2)}" y="11.6" text-anchor="middle" font-size="10.5" fill="#fff"'
        yield f"{group}><rect {plate}/><text {place}>{escaped(text)}</text></g>"


def _title_middle(frame: Frame) -> float:
    """Return the height of a title: in the header, or in the middle of a box without other text."""
    alone = not frame.box.children and not frame.box.notes
    return frame.area.y + (frame.area.height if alone else HEADER) / 2


def _divider(area: Area, around: Area) -> Iterator[str]:
    """Return the line between a region and the region or header before it."""
    if area.x > around.x + 1.0:
        yield f'<path class="divider" d="M{_number(area.x)} {_number(area.y)}V{_number(area.bottom)}"/>'
    if area.x <= around.x + 1.0 and area.y > around.y + 1.0:
        end = around.right
        yield f'<path class="divider" d="M{_number(around.x)} {_number(area.y)}H{_number(end)}"/>'


def ring_centre(frame: Frame) -> Point:
    """Return the middle of a final state's rings."""
    area = frame.area
    if frame.aside:
        return area.x + RING, area.y + area.height / 2
    return area.x + area.width / 2, area.y + RING


def _centre(area: Area) -> Point:
    return area.x + area.width / 2, area.y + area.height / 2


def _circle(word: str, x: float, y: float, radius: float) -> str:
    return f'<circle class="{word}" cx="{_number(x)}" cy="{_number(y)}" r="{_number(radius)}"/>'


def _rectangle(word: str, area: Area, radius: float) -> str:
    place = f'x="{_number(area.x)}" y="{_number(area.y)}"'
    size = f'width="{_number(area.width)}" height="{_number(area.height)}"'
    return f'<rect class="{word}" {place} {size} rx="{_number(radius)}"/>'


def _text(words: str, x: float, y: float, text: str, *, ident: str = "", full: str = "") -> str:
    title = f"<title>{escaped(full)}</title>" if full and full != text else ""
    return f'<text{ident} class="{words}" x="{_number(x)}" y="{_number(y)}">{title}{escaped(text)}</text>'


def _line(points: tuple[Point, ...], *, arrow: bool) -> str:
    """Return a path through the points with round corners, which ends under its arrowhead."""
    way = list(points)
    if arrow:
        way[-1] = _toward(way[-1], way[-2], _HEAD_LENGTH - 2.0)
    commands = [f"M{_number(way[0][0])} {_number(way[0][1])}"]
    for before, here, after in zip(way, way[1:], way[2:], strict=False):
        radius = min(_CORNER, _distance(before, here) / 2, _distance(here, after) / 2)
        one, other = _toward(here, before, radius), _toward(here, after, radius)
        commands.append(f"L{_number(one[0])} {_number(one[1])}")
        commands.append(f"Q{_number(here[0])} {_number(here[1])} {_number(other[0])} {_number(other[1])}")
    commands.append(f"L{_number(way[-1][0])} {_number(way[-1][1])}")
    return "".join(commands)


def _distance(one: Point, other: Point) -> float:
    return abs(one[0] - other[0]) + abs(one[1] - other[1])


def _toward(start: Point, end: Point, by: float) -> Point:
    """Return the point at this distance from the start, toward the end."""
    whole = _distance(start, end)
    part = min(by / whole, 1.0) if whole else 0.0
    return start[0] + (end[0] - start[0]) * part, start[1] + (end[1] - start[1]) * part


def _head(before: Point, tip: Point) -> str:
    """Return the arrowhead at the end of a line from a point."""
    base = _toward(tip, before, _HEAD_LENGTH)
    if abs(base[0] - tip[0]) < abs(base[1] - tip[1]):
        sides = ((base[0] - _HEAD_WIDTH, base[1]), (base[0] + _HEAD_WIDTH, base[1]))
    else:
        sides = ((base[0], base[1] - _HEAD_WIDTH), (base[0], base[1] + _HEAD_WIDTH))
    points = (tip, *sides)
    return "M" + "L".join(f"{_number(x)} {_number(y)}" for x, y in points) + "Z"

"""The outline of a chart: as text, and as the picture to fall back to when a layout fails.

Rule 1: it cannot fail. Boxes are packed in rows in document order, without lines. Each box lists its transitions and
        their targets.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from interlock.render.layout.box_layout import PADDING, BoxLayout
from interlock.render.shapes.boxes import Box, BoxTree, Note
from interlock.render.shapes.geometry import Area, Frame, Picture
from interlock.render.shapes.text_metrics import MARGIN, header_size

_GAP = 16.0
_SHAPE = 1.6
_INDENT = "  "


def outline_text(tree: BoxTree, *, active: frozenset[str] = frozenset(), visited: frozenset[str] = frozenset()) -> str:
    """Return the chart as an indented tree of names with their transitions. `●` is active, `○` was visited."""
    lines = []
    leading = _leading(tree)
    for key, box in tree.boxes.items():
        if box.state is None:
            continue
        depth = sum(1 for each in tree.above(key) if tree.boxes[each].kind != "niche")
        mark = "● " if box.state in active else "○ " if box.state in visited else ""
        lines.append(_INDENT * depth + mark + box.name + _kind(box))
        lines += [_INDENT * (depth + 1) + "· " + each.text for each in (*box.notes, *leading.get(key, ()))]
    return "\n".join(lines)


def _kind(box: Box) -> str:
    hidden = f" (+{box.hidden})" if box.hidden else ""
    words = {"final": " (final)", "parallel": " (parallel)", "choice": " (choice)"}
    return words.get(box.kind, "") + hidden


def _leading(tree: BoxTree) -> dict[str, list[Note]]:
    """Return the transitions of every box as notes. Those of a dot or a bar belong to the box around it."""
    ends: dict[str, list[str]] = {}
    for wire in tree.wires:
        ends.setdefault(wire.source, []).append(tree.boxes[wire.target].name)
    found: dict[str, list[Note]] = {}
    for wire in tree.wires:
        source = tree.boxes[wire.source]
        target = tree.boxes[wire.target]
        names = ", ".join(ends.get(wire.target, ())) if target.kind == "fork" else target.name
        if source.kind == "fork":
            continue
        key = source.parent or "" if source.kind == "initial" else wire.source
        texts = [(label.text, label.id, label.mark) for label in wire.labels] or [("", None, wire.mark)]
        for text, ident, mark in texts:
            word = "initial " if source.kind == "initial" else ""
            note = Note(text=f"{word}{text}{' ' if text else ''}→ {names}", id=ident, mark=mark)
            found.setdefault(key, []).append(note)
    return found


def outline(tree: BoxTree, fallback_reason: str) -> Picture:
    """Return the chart as nested boxes without lines. `fallback_reason` says why."""
    leading = _leading(tree)
    layouts: dict[str, BoxLayout] = {}
    for key, box in reversed(tree.boxes.items()):
        if box.kind in ("initial", "fork"):
            continue
        kind = box.kind if box.children else "state"
        listed = replace(box, notes=(*box.notes, *leading.get(key, ())), kind=kind, region=False)
        layouts[key] = _packed(listed, [layouts[child] for child in box.children if child in layouts])
    root = layouts[tree.root.key]
    frames = tuple(_frames(root))
    return Picture(
        tree=tree,
        width=root.width + 2 * MARGIN,
        height=root.height + 2 * MARGIN,
        frames=frames,
        paths=(),
        fallback_reason=fallback_reason,
    )


def _packed(box: Box, inside: list[BoxLayout]) -> BoxLayout:
    """Return a box with its children in rows."""
    width, height = header_size(box)
    if not inside:
        return BoxLayout(box=box, width=width, height=height)
    layout = BoxLayout(box=box, width=0.0, height=0.0)
    area = math.fsum((each.width + _GAP) * (each.height + _GAP) for each in inside)
    limit = max(math.sqrt(area * _SHAPE), *(each.width for each in inside))
    x, y, row, right = PADDING, height + _GAP, 0.0, 0.0
    for each in inside:
        if x > PADDING and x + each.width > PADDING + limit:
            x, y, row = PADDING, y + row + _GAP, 0.0
        layout.inside.append((x, y, each))
        x, row, right = x + each.width + _GAP, max(row, each.height), max(right, x + each.width)
    layout.width, layout.height = max(right + PADDING, width), y + row + PADDING
    return layout


def _frames(root: BoxLayout) -> Iterator[Frame]:
    stack = [(MARGIN, MARGIN, root)]
    while stack:
        x, y, layout = stack.pop()
        area = Area(x=x, y=y, width=layout.width, height=layout.height)
        yield Frame(box=layout.box, area=area, title=MARGIN)
        stack += [(x + dx, y + dy, inner) for dx, dy, inner in reversed(layout.inside)]

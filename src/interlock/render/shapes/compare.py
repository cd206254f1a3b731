"""Two revisions of a chart as one box tree, with a mark on everything that differs.

Rule 1: states are the same if their ids are equal, wires if their ends and style are, labels if their texts are.
Rule 2: the tree is the new one, with removed boxes at their old place if that place still exists.
Rule 3: removed labels have no transition id: ids are those of the new revision.
"""

from __future__ import annotations

from dataclasses import replace

from interlock.render.shapes.boxes import Box, BoxKind, BoxTree, Label, Mark, Wire, drop_undrawable_wires

_HOLDERS = ("group", "parallel", "niche")
_RINGS = ("group", "niche")
_PARENTS = {"initial": ("group",), "fork": ("group",), "niche": ("parallel",), "final": _RINGS, "history": _RINGS}
"""The boxes that can contain a special box. If the box around it has become another kind, it is left out."""


def compare_trees(old: BoxTree, new: BoxTree) -> BoxTree:
    """Return both trees as one."""
    keys = [*new.boxes, *(key for key in old.boxes if key not in new.boxes)]
    boxes = {key: _box(old.boxes.get(key), new.boxes.get(key)) for key in keys}
    for key in keys:
        listed = [*_children(new, key), *(each for each in _children(old, key) if each not in _children(new, key))]
        children = tuple(each for each in listed if boxes[each].parent == key)
        boxes[key] = replace(boxes[key], children=children, kind=_kind(boxes[key], old.boxes.get(key), children))
    fitting = _fitting(boxes, new.root.key)
    wires = tuple(wire for wire in _wires(old, new) if wire.source in fitting and wire.target in fitting)
    return drop_undrawable_wires(BoxTree(title=new.title, boxes=fitting, wires=wires))


def _children(tree: BoxTree, key: str) -> tuple[str, ...]:
    return tree.boxes[key].children if key in tree.boxes else ()


def _box(before: Box | None, after: Box | None) -> Box:
    """Return one box of both revisions."""
    if after is None:
        assert before is not None
        notes = tuple(replace(note, id=None, mark="removed") for note in before.notes)
        return replace(before, mark="removed", notes=notes)
    if before is None:
        return replace(after, mark="added")
    removed = [note for note in before.notes if note.text not in {each.text for each in after.notes}]
    known = {note.text for note in before.notes}
    notes = tuple(replace(note, mark="" if note.text in known else "added") for note in after.notes)
    notes += tuple(replace(note, id=None, mark="removed") for note in removed)
    same = before.kind == after.kind and before.parent == after.parent and not any(note.mark for note in notes)
    return replace(after, notes=notes, mark="" if same or after.parent is None else "changed")


def _kind(box: Box, before: Box | None, children: tuple[str, ...]) -> BoxKind:
    """Return the kind of a box with these children: it changes if the box has none, or has some again."""
    if children and box.kind not in _HOLDERS and before is not None:
        return before.kind
    return box.kind


def _fitting(boxes: dict[str, Box], root: str) -> dict[str, Box]:
    """Return the boxes in document order, without those that fit nowhere. Children of a parallel state are regions."""
    found: dict[str, Box] = {}
    stack = [root]
    while stack:
        key = stack.pop()
        kind = boxes[key].kind
        kept = [each for each in boxes[key].children if kind in _PARENTS.get(boxes[each].kind, _HOLDERS)]
        kept = [each for each in kept if boxes[each].kind != "niche" or boxes[each].children]
        found[key] = replace(boxes[key], children=tuple(kept))
        for each in kept:
            boxes[each] = replace(boxes[each], region=kind == "parallel")
        stack += reversed(kept)
    return found


def _wires(old: BoxTree, new: BoxTree) -> list[Wire]:
    """Return the wires of both trees, those of the new one first."""
    before = {_ends(wire): wire for wire in old.wires}
    after = {_ends(wire): wire for wire in new.wires}
    found = []
    for ends, wire in after.items():
        if ends not in before:
            found.append(replace(wire, mark="added", labels=_marked(wire.labels, "added")))
        else:
            found.append(replace(wire, labels=_labels(before[ends].labels, wire.labels)))
    for ends, wire in before.items():
        if ends not in after:
            found.append(replace(wire, mark="removed", labels=_marked(wire.labels, "removed")))
    return found


def _ends(wire: Wire) -> tuple[str, str, bool, bool]:
    return wire.source, wire.target, wire.dashed, wire.arrow


def _marked(labels: tuple[Label, ...], mark: Mark) -> tuple[Label, ...]:
    return tuple(replace(label, mark=mark, id=label.id if mark == "added" else None) for label in labels)


def _labels(before: tuple[Label, ...], after: tuple[Label, ...]) -> tuple[Label, ...]:
    """Return the labels of one wire in both revisions. If the text for an event changed, both are shown."""
    olds, news = {label.text for label in before}, {label.text for label in after}
    removed = [label for label in before if label.text not in news]
    come = {label.event for label in after if label.text not in olds}
    lost = {label.event for label in removed}
    found: list[Label] = []
    for label in after:
        mark: Mark = "" if label.text in olds else "changed" if label.event in lost else "added"
        found.append(replace(label, mark=mark))
    removed = [replace(label, id=None, mark="changed" if label.event in come else "removed") for label in removed]
    return (*found, *removed)

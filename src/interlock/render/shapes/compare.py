"""Two revisions of a chart as one drawing tree, with a mark on everything that differs.

Rule 1: a state is the same when its id is; a wire when its ends and style are; a label when its text is.
Rule 2: the tree is the new one, with what was removed at its old place, as long as that place can still hold it.
Rule 3: what is removed has no transition id: ids are those of the new revision.
"""

from __future__ import annotations

from dataclasses import replace

from interlock.render.shapes.boxes import Box, BoxKind, BoxTree, Label, Mark, Wire, drop_undrawable_wires

_HOLDERS = ("group", "parallel", "niche")
_RINGS = ("group", "niche")
_HOMES = {"initial": ("group",), "fork": ("group",), "niche": ("parallel",), "final": _RINGS, "history": _RINGS}
"""What is no plain state fits into some boxes only; where the box around it has become another, it is left out."""


def compare_trees(old: BoxTree, new: BoxTree) -> BoxTree:
    """Both trees in one."""
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
    """One box of both revisions."""
    if after is None:
        assert before is not None
        notes = tuple(replace(note, id=None, mark="removed") for note in before.notes)
        return replace(before, mark="removed", notes=notes)
    if before is None:
        return replace(after, mark="added")
    gone = [note for note in before.notes if note.text not in {each.text for each in after.notes}]
    known = {note.text for note in before.notes}
    notes = tuple(replace(note, mark="" if note.text in known else "added") for note in after.notes)
    notes += tuple(replace(note, id=None, mark="removed") for note in gone)
    same = before.kind == after.kind and before.parent == after.parent and not any(note.mark for note in notes)
    return replace(after, notes=notes, mark="" if same or after.parent is None else "changed")


def _kind(box: Box, before: Box | None, children: tuple[str, ...]) -> BoxKind:
    """What a box is with these children: one that has lost or regained all of them changes its look."""
    if children and box.kind not in _HOLDERS and before is not None:
        return before.kind
    return box.kind


def _fitting(boxes: dict[str, Box], root: str) -> dict[str, Box]:
    """The boxes in document order, without those that fit nowhere; what lies in a parallel state is a region."""
    found: dict[str, Box] = {}
    stack = [root]
    while stack:
        key = stack.pop()
        kind = boxes[key].kind
        kept = [each for each in boxes[key].children if kind in _HOMES.get(boxes[each].kind, _HOLDERS)]
        kept = [each for each in kept if boxes[each].kind != "niche" or boxes[each].children]
        found[key] = replace(boxes[key], children=tuple(kept))
        for each in kept:
            boxes[each] = replace(boxes[each], region=kind == "parallel")
        stack += reversed(kept)
    return found


def _wires(old: BoxTree, new: BoxTree) -> list[Wire]:
    """The wires of both trees, those of the new one first."""
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
    """The labels of one wire in both revisions: the same event with other words has changed, and both are shown."""
    olds, news = {label.text for label in before}, {label.text for label in after}
    gone = [label for label in before if label.text not in news]
    come = {label.event for label in after if label.text not in olds}
    lost = {label.event for label in gone}
    found: list[Label] = []
    for label in after:
        mark: Mark = "" if label.text in olds else "changed" if label.event in lost else "added"
        found.append(replace(label, mark=mark))
    gone = [replace(label, id=None, mark="changed" if label.event in come else "removed") for label in gone]
    return (*found, *gone)

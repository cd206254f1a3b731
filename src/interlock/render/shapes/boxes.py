"""The box tree of a chart: its nested boxes, and the wires between them.

Rule 1: everything is in document order. The key of a box shows its kind: `s/<state id>` is a state, `i/<state id>` the
        initial dot of a compound state, `f/...` the bar of a transition with several targets, `h/...` a niche. A niche
        is a region that is not a state: it contains the histories of a parallel state, or a final state that is a
        region.
Rule 2: a wire joins two boxes. Transitions with the same ends and style are one wire with a label for each.
Rule 3: a transition that cannot be a line between two boxes is a note inside one: without target, from or to the root,
        from a region to a whole other region, or to several targets inside one parallel state. Regions touch each other
        and the border, so a line that runs only in parallel states would have no length.
Rule 4: boxes and wires have no sizes or coordinates.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Literal

from interlock.model.charts.chart import Chart, State, Transition
from interlock.model.document.actions import Block
from interlock.model.document.wording import block_text, guard_text, value_text
from interlock.render.labels import blocks_lines, clipped, event_text, invoke_line
from interlock.render.saga_bookkeeping import hide_bookkeeping

BoxKind = Literal["state", "group", "parallel", "niche", "final", "history", "initial", "choice", "fork"]
Mark = Literal["", "added", "removed", "changed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """A line inside a box. `id` is its transition, if it has one."""

    text: str
    id: tuple[str, int] | None = None
    mark: Mark = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """The label of one transition of a wire. `id` is the transition; None for an initial or a default."""

    event: str = ""
    guard: str = ""
    actions: str = ""
    id: tuple[str, int] | None = None
    mark: Mark = ""

    @property
    def text(self) -> str:
        """The whole label on one line."""
        return " ".join(filter(None, (self.event, self.guard, self.actions)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """A state, a region, a dot or a bar."""

    key: str
    kind: BoxKind
    name: str = ""
    state: str | None = None
    parent: str | None = None
    children: tuple[str, ...] = ()
    notes: tuple[Note, ...] = ()
    region: bool = False
    hidden: int = 0
    mark: Mark = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wire:
    """A line with an arrow from one box to another."""

    source: str
    target: str
    labels: tuple[Label, ...] = ()
    dashed: bool = False
    arrow: bool = True
    mark: Mark = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BoxTree:
    """Boxes by key in document order, the root first, and the wires between them."""

    title: str
    boxes: dict[str, Box]
    wires: tuple[Wire, ...]

    @property
    def root(self) -> Box:
        """The outermost box."""
        return next(iter(self.boxes.values()))

    def above(self, key: str) -> Iterator[str]:
        """Yield the boxes around a box, inner ones first."""
        parent = self.boxes[key].parent
        while parent is not None:
            yield parent
            parent = self.boxes[parent].parent

    def container(self, source: str, target: str) -> str:
        """Return the box of a wire's middle segment: an end that contains the other, else the innermost around both."""
        outer = [source, *self.above(source)]
        if target in outer:
            return target
        return next(each for each in (target, *self.above(target)) if each in outer)


def state_key(state: str) -> str:
    """Return the key of a state's box."""
    return f"s/{state}"


def make_box_tree(chart: Chart) -> BoxTree:
    """Return the boxes and wires of a chart."""
    chart = hide_bookkeeping(chart)
    boxes: dict[str, Box] = {}
    for state in chart.states:
        for box in _boxes(chart, state):
            boxes[box.key] = box
    made = BoxTree(title=clipped(f"{chart.kind} {chart.label or ''}"), boxes=boxes, wires=())
    wires: list[Wire] = []
    for state in chart.states:
        for source, targets, label, dashed in _arrows(chart, state):
            wires += _wired(made, source, targets, label, dashed=dashed)
    return replace(made, wires=merge_wires(wires))


def _boxes(chart: Chart, state: State) -> Iterator[Box]:
    """Yield the box of a state, with its initial dot, the niche of its histories and the niche around itself."""
    key, histories = state_key(state.id), _histories(chart, state)
    inside = [chart.states[each] for each in state.children if each not in histories]
    children = [f"h/{each.id}" if _has_niche(chart, each) else state_key(each.id) for each in inside]
    kind = _kind(chart, state)
    if kind == "group" and state.initial:
        children.insert(0, f"i/{state.id}")
    if histories:
        children.append(f"h/{state.id}")
    parent = None if state.parent < 0 else _parent(chart, state)
    alone = _has_niche(chart, state)
    if alone:
        yield Box(key=f"h/{state.id}", kind="niche", parent=parent, children=(key,), region=True)
        parent = f"h/{state.id}"
    yield Box(
        key=key,
        kind=kind,
        name=_name(chart, state),
        state=state.id,
        parent=parent,
        children=tuple(children),
        notes=tuple(_notes(chart, state)),
        region=not alone and state.history is None and _is_region(chart, state),
    )
    if kind == "group" and state.initial:
        yield Box(key=f"i/{state.id}", kind="initial", parent=key)
    if histories:
        kept = tuple(state_key(chart.states[each].id) for each in histories)
        yield Box(key=f"h/{state.id}", kind="niche", parent=key, children=kept, region=True)


def _is_region(chart: Chart, state: State) -> bool:
    return state.parent >= 0 and chart.states[state.parent].type == "parallel"


def _has_niche(chart: Chart, state: State) -> bool:
    """Return whether a state has its own niche: a final state is a ring, which cannot be as large as a region."""
    return state.type == "final" and _is_region(chart, state)


def _histories(chart: Chart, state: State) -> tuple[int, ...]:
    """Return the histories of a parallel state, which need a niche."""
    if state.type != "parallel":
        return ()
    return tuple(each for each in state.children if chart.states[each].history is not None)


def _parent(chart: Chart, state: State) -> str:
    parent = chart.states[state.parent]
    return f"h/{parent.id}" if state.index in _histories(chart, parent) else state_key(parent.id)


def _kind(chart: Chart, state: State) -> BoxKind:
    if state.history is not None:
        return "history"
    if state.type == "final":
        return "final"
    if state.children:
        return "parallel" if state.type == "parallel" else "group"
    return "choice" if _is_choice(chart, state) else "state"


def _is_choice(chart: Chart, state: State) -> bool:
    """Return whether a state is a choice: it has only eventless transitions with guards.

    The last transition may have no guard.
    """
    leaving = [chart.transitions[each] for each in state.transitions]
    if len(leaving) < 2 or any(state.entry) or any(state.exit) or state.invokes or state.after:
        return False
    if any(each.descriptors or len(each.targets) != 1 or each.targets[0] in (0, state.index) for each in leaving):
        return False
    return all(each.guard is not None for each in leaving[:-1])


def _name(chart: Chart, state: State) -> str:
    if state.history is not None:
        return "H*" if state.history == "deep" else "H"
    return clipped(state.key if state.parent >= 0 else chart.kind)


def _notes(chart: Chart, state: State) -> Iterator[Note]:
    """Yield the notes of a state: its actions, and its transitions that have no target or that no wire can show."""
    for text in (*blocks_lines("entry", state.entry), *blocks_lines("exit", state.exit)):
        yield Note(text=text)
    for invoke in state.invokes:
        yield Note(text=invoke_line(invoke))
    for number in state.transitions:
        transition = chart.transitions[number]
        label = _label(chart, state, transition)
        if not transition.targets:
            yield Note(text=label.text, id=label.id)
        elif not _is_wired(chart, state, transition.targets):
            yield Note(text=f"{label.text} → {_names(chart, transition.targets)}", id=label.id)
    for child in _histories(chart, state):
        history = chart.states[child]
        if history.default and not _is_wired(chart, history, history.default):
            yield Note(text=f"{_name(chart, history)} → {_names(chart, history.default)}")
    if state.output is not None:
        yield Note(text=clipped(f"output {value_text(state.output)}"))


def _names(chart: Chart, targets: Iterable[int]) -> str:
    return ", ".join(clipped(chart.states[each].key or chart.kind) for each in targets)


def _is_wired(chart: Chart, state: State, targets: tuple[int, ...]) -> bool:
    """Return whether a transition can be a line between boxes."""
    if state.index == 0 or 0 in targets:
        return False
    if targets == (state.index,):
        return chart.states[state.parent].type != "parallel"
    common = chart.common_ancestor(state.index, *targets)
    if chart.states[common].type != "parallel":
        return True
    if len(targets) > 1:
        return False
    if state.index == common:
        return chart.states[targets[0]].parent != common and _has_room(chart, targets[0], common)
    return _has_room(chart, state.index, common)


def _has_room(chart: Chart, inner: int, outer: int) -> bool:
    """Return whether a box between a state and a state around it has layers, and so room for a line and its label.

    A niche has.
    """
    state = chart.states[inner]
    if state.history is not None or state.type == "final":
        return True
    while state.parent != outer:
        state = chart.states[state.parent]
        if state.type != "parallel":
            return True
    return False


def _label(chart: Chart, state: State, transition: Transition) -> Label:
    guard = "" if transition.guard is None else clipped(f"[{guard_text(transition.guard)}]")
    event = event_text(transition)
    if _is_choice(chart, state):
        event = "" if guard else "else"
    return Label(
        event=clipped(event),
        guard=guard,
        actions=clipped(f"/ {block_text(transition.block)}") if transition.block else "",
        id=(state.id, state.transitions.index(transition.index)),
    )


Arrow = tuple[str, tuple[str, ...], Label | None, bool]


def _arrows(chart: Chart, state: State) -> Iterator[Arrow]:
    """Yield the arrows that start at a state or its initial dot: source, targets, label, whether dashed."""
    if state.type == "compound" and state.children and state.initial:
        yield f"i/{state.id}", _keys(chart, state.initial), _content(state.initial_block), False
    if state.default and _is_wired(chart, state, state.default):
        yield state_key(state.id), _keys(chart, state.default), _content(state.default_block), True
    for number in state.transitions:
        transition = chart.transitions[number]
        if transition.targets and _is_wired(chart, state, transition.targets):
            yield state_key(state.id), _keys(chart, transition.targets), _label(chart, state, transition), False


def _keys(chart: Chart, targets: Iterable[int]) -> tuple[str, ...]:
    return tuple(state_key(chart.states[each].id) for each in targets)


def _content(block: Block) -> Label | None:
    return Label(actions=clipped(f"/ {block_text(block)}")) if block else None


def _wired(
    made: BoxTree, source: str, targets: tuple[str, ...], label: Label | None, *, dashed: bool
) -> Iterator[Wire]:
    """Yield the wires of one arrow. With several targets it runs to a bar, and from there to each of them."""
    labels = () if label is None else (label,)
    if len(targets) == 1:
        yield Wire(source=source, target=targets[0], labels=labels, dashed=dashed)
        return
    container = source
    for target in targets:
        container = made.container(container, target)
    fork = f"f/{source}/{'' if label is None or label.id is None else label.id[1]}"
    made.boxes[fork] = Box(key=fork, kind="fork", parent=container)
    made.boxes[container] = replace(made.boxes[container], children=(*made.boxes[container].children, fork))
    yield Wire(source=source, target=fork, labels=labels, dashed=dashed, arrow=False)
    for target in targets:
        yield Wire(source=fork, target=target, dashed=dashed)


def merge_wires(wires: Iterable[Wire]) -> tuple[Wire, ...]:
    """Return the wires, with those of the same ends and style merged at the position of the first."""
    found: dict[tuple[str, str, bool, bool], Wire] = {}
    for wire in wires:
        key = (wire.source, wire.target, wire.dashed, wire.arrow)
        first = found.get(key)
        found[key] = wire if first is None else replace(first, labels=first.labels + wire.labels)
    return tuple(found.values())


def drop_undrawable_wires(made: BoxTree) -> BoxTree:
    """Return the tree with notes instead of wires that cannot be drawn, as closed or merged boxes may leave them."""
    boxes, wires = dict(made.boxes), []
    for wire in made.wires:
        if _has_way(made, wire):
            wires.append(wire)
            continue
        name = made.boxes[wire.target].name
        notes = tuple(Note(text=f"{label.text} → {name}", id=label.id, mark=label.mark) for label in wire.labels)
        boxes[wire.source] = replace(boxes[wire.source], notes=boxes[wire.source].notes + notes)
    return replace(made, boxes=boxes, wires=tuple(wires))


def _has_way(made: BoxTree, wire: Wire) -> bool:
    """Return whether a wire can be drawn: in the level of a parallel state it must start or end inside a region.

    As in `_has_room`, a box that it crosses must have layers.
    """
    source = made.boxes[wire.source]
    if source.kind == "final":
        return False
    if wire.source == wire.target:
        return not source.region and source.kind in ("state", "group", "parallel")
    container = made.container(wire.source, wire.target)
    if made.boxes[container].kind != "parallel":
        return True
    around = made.above(wire.target if wire.source == container else wire.source)
    return any(made.boxes[each].kind != "parallel" for each in takewhile(lambda each: each != container, around))

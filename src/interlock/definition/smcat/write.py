"""A `Document` as smcat, for drawing and for tools that read it; reports everything that smcat cannot express.

Rule 1: `type=` is always set, because smcat guesses types from names.
Rule 2: smcat has one flat space of names: a state is named by as much of its path as makes it unique.
Rule 3: every label is read back; a difference is a diagnostic `export.<what>`.
Rule 4: several targets are a fork; no target is an internal self-loop; the transitions and actions of the root are in
        an outer state.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from interlock.definition.format import WriteResult
from interlock.definition.shapes import Record, extras_of
from interlock.definition.smcat.labels import (
    Label,
    LabelReader,
    fold_lines,
    guard_expression,
    label_actions,
    label_guard,
    label_value,
    quote,
    quote_activities,
    quote_label,
    quote_state_name,
)
from interlock.definition.smcat.parse import TextSpan
from interlock.definition.source.node import SourceLines
from interlock.definition.vocabulary.chart import DOCUMENT, STATE
from interlock.definition.vocabulary.parts import TRANSITION
from interlock.errors import SourceLocation
from interlock.model.diagnostics import Diagnostics
from interlock.model.document.actions import Block, Expression, Guard, GuardExpression, Value
from interlock.model.document.document import TRANSITION_ORDER, Document, Initial, Invoke, State, Transition
from interlock.model.document.targets import TargetIndex, Unresolved

_INDENT = "  "
_WIDTH_MAX = 1_000_000  # of a line in a drawing, in any unit
_CLASS = re.compile(r"[A-Za-z0-9_\- ]+")


def write_smcat(document: Document) -> WriteResult:
    """The document as smcat text, and a diagnostic for everything that it cannot express."""
    return SmcatWriter(document).writing()


@dataclass(slots=True)
class _Body:
    """The content of one pair of braces."""

    states: list[str] = field(default_factory=list)
    arrows: list[str] = field(default_factory=list)

    def text(self) -> str:
        states = ",\n".join(self.states) + ";\n" if self.states else ""
        gap = "\n" if self.states and self.arrows else ""
        return states + gap + "".join(f"{arrow};\n" for arrow in self.arrows)


class SmcatWriter:
    """Writes one document."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.tree = TargetIndex(document)
        self.diagnostics = Diagnostics()
        self.lost: dict[str, SourceLocation] = {}
        self.names = _names(self.tree)
        self.used_names = set(self.names)
        self.numbers: Counter[str] = Counter()
        # An arrow without a label that leaves one of these would be read as its completion.
        self.completing = {
            index
            for index, state in enumerate(self.tree.states)
            if state.type == "parallel" or any(child.type == "final" for child in state.states)
        }

    def writing(self) -> WriteResult:
        root = self.document.root
        title = " ".join(filter(None, (self.document.kind, self.document.revision)))
        head = f"// {fold_lines(title)}\n"
        self._losses_of_document()
        body = _Body()
        if _needs_outer_state(root):
            message = "the root is written as an outer state, which also contains its final states"
            self.diagnostics.warning("export.root", message, root.location)
            self.names[0] = self._unique_name(self.document.kind)
            self._initial(body, "initial", [0], (), "")
            self._state(body, 0, "")
        else:
            self._children(body, 0, "")
        if self.lost:
            message = f"smcat cannot express {', '.join(self.lost)}"
            self.diagnostics.warning("export.extensions", message, next(iter(self.lost.values())))
        return WriteResult(text=head + body.text(), diagnostics=self.diagnostics.sorted())

    def _unique_name(self, wanted: str) -> str:
        name = wanted
        while name in self.used_names:  # ends: only finitely many names are used
            self.numbers[wanted] += 1
            name = f"{wanted}_{self.numbers[wanted] + 1}"
        self.used_names.add(name)
        return name

    def _children(self, body: _Body, parent: int, indent: str) -> None:
        state = self.tree.states[parent]
        if state.type != "parallel" and state.states:
            self._write_initial(body, parent, state.initial, indent)
        for child in self.tree.children[parent]:
            self._state(body, child, indent)

    def _write_initial(self, body: _Body, parent: int, initial: Initial | None, indent: str) -> None:
        targets = self.tree.children[parent][:1]
        actions: Block = ()
        if initial is not None:
            found = [self.tree.resolve_child(parent, text) for text in initial.targets]
            targets, actions = self._resolved(found, initial.location), initial.actions
        if targets:
            owner = self.names[parent]
            self._initial(body, f"{owner}.initial" if owner else "initial", targets, actions, indent)

    def _initial(self, body: _Body, wanted: str, targets: list[int], actions: Block, indent: str) -> None:
        name = self._unique_name(wanted)
        body.states.append(f"{indent}{quote_state_name(name)} [type=initial]")
        transition = Transition(origin="always", actions=actions, location=self.tree.states[targets[0]].location)
        self._arrow(body, name, targets, transition, indent)

    def _state(self, body: _Body, index: int, indent: str) -> None:
        state, name = self.tree.states[index], self.names[index]
        self._losses_of_state(index, state)
        lines = self._activities(state)
        inner = ""
        if state.states:
            children = _Body()
            self._children(children, index, indent + _INDENT)
            inner = f" {{\n{children.text()}{indent}}}"
        lines_text = f": {quote_activities(lines, indent + _INDENT)}" if lines else ""
        tags = [fold_lines(f"tags: {', '.join(state.tags)}")] if state.tags else []
        notes = _notes([*(state.description or "").splitlines(), *tags], indent)
        body.states.append(
            f"{notes}{indent}{quote_state_name(name)} [{self._attributes(index, state)}]{lines_text}{inner}"
        )
        self._arrows(body, index, state, indent)

    def _attributes(self, index: int, state: State) -> str:
        types = {"state": "regular", "history": "deephistory" if state.history == "deep" else "history"}
        attributes = [f"type={types.get(state.type, state.type)}"]
        if index and state.key != self.names[index]:
            attributes.append(f"label={quote(state.key)}")
        return " ".join([*attributes, *self._drawing(state.meta, ("color", "class", "active"), state.location)])

    def _drawing(self, meta: Value, known: tuple[str, ...], location: SourceLocation) -> list[str]:
        """The drawing attributes, as the reader keeps them; any other `meta` is lost."""
        drawing = meta.get("smcat") if isinstance(meta, dict) else None
        attributes = []
        for name, value in drawing.items() if isinstance(drawing, dict) else ():
            if name not in known:
                continue
            if name == "active" and value is True:
                attributes.append("active")
            elif name == "width" and type(value) in {int, float} and 0 <= value < _WIDTH_MAX:
                attributes.append(f"width={value:.9f}".rstrip("0").rstrip("."))
            elif name == "color" and isinstance(value, str):
                attributes.append(f"color={quote(value)}")
            elif name == "class" and isinstance(value, str) and _CLASS.fullmatch(value):
                attributes.append(f"class={quote(value)}")
        if meta is not None and (not isinstance(drawing, dict) or len(attributes) != len(drawing) or len(meta) > 1):
            self.diagnostics.warning("export.meta", "smcat cannot express `meta`", location)
        return attributes

    def _activities(self, state: State) -> list[str]:
        lines = [f"{word}/ {label_actions((action,))}" for word, block in _blocks(state) for action in block]
        if len(state.entry) > 1 or len(state.exit) > 1:
            self.diagnostics.warning("export.blocks", "several blocks are merged into one", state.location)
        reader = self._reader()
        back = reader.activities(TextSpan("\n".join(lines), 0))
        wanted = [tuple(action for block in blocks for action in block) for blocks in (state.entry, state.exit)]
        if wanted != [back[0], back[1]]:
            self.diagnostics.warning("export.actions", "these actions are written as text only", state.location)
        for invoke in state.invokes:
            self.diagnostics.warning("export.invoke", "this invoke is written as an activity only", invoke.location)
            lines.append(f"do/ {_invoke_text(invoke)}")
        return lines

    def _arrows(self, body: _Body, index: int, state: State, indent: str) -> None:
        name = self.names[index]
        if state.type == "history":
            found = [self.tree.resolve_child(self.tree.parents[index], text) for text in state.targets]
            targets = self._resolved(found, state.location)
            if targets:
                content = Transition(origin="always", actions=state.actions, location=state.location)
                self._arrow(body, name, targets, content, indent)
        if state.type == "final" and state.transitions:
            self.diagnostics.warning(
                "export.transitions", "transitions of a final state are not written", state.location
            )
        for transition in state.transitions if state.type != "final" else ():
            self._transition(body, index, transition, indent)
        for invoke in state.invokes:
            suffix = f".{invoke.id}" if invoke.id else ""
            for transition in invoke.done:
                self._transition(body, index, replace(transition, events=(f"done.invoke{suffix}",)), indent)
            for transition in invoke.error:
                self._transition(body, index, replace(transition, events=(f"error.invoke{suffix}",)), indent)
        if state.saga is not None:
            for transition in state.saga.done:
                self._transition(body, index, replace(transition, origin="onDone"), indent)
            for event, answers in (("onCompensated", state.saga.compensated), ("onError", state.saga.error)):
                for transition in answers:
                    self._transition(body, index, replace(transition, events=(event,)), indent)

    def _transition(self, body: _Body, index: int, transition: Transition, indent: str) -> None:
        found = [self.tree.resolve_target(index, text) for text in transition.targets]
        targets = self._resolved(found, transition.location)
        if not targets and transition.targets:
            return
        around = any(target == index or self.tree.is_descendant(target, index) for target in targets)
        inside = self.document.dialect == "xstate" and transition.reenter is None and around
        internal = transition.reenter is False or inside or not targets
        if inside and index in targets and self.tree.states[index].states:
            message = "an internal transition to the state itself is written without a target"
            self.diagnostics.warning("export.internal", message, transition.location)
        completing = index in self.completing
        targets = targets or [index]
        self._arrow(body, self.names[index], targets, transition, indent, internal=internal, completing=completing)

    def _arrow(
        self,
        body: _Body,
        source: str,
        targets: list[int],
        transition: Transition,
        indent: str,
        *,
        internal: bool = False,
        completing: bool = False,
    ) -> None:
        drawing = self._drawing(transition.meta, ("color", "class", "width"), transition.location)
        attributes = " ".join([*(["type=internal"] if internal else []), *drawing])
        notes = _notes((transition.description or "").splitlines(), indent)
        label = self._label(transition, completing=completing)
        target = self.names[targets[0]]
        if len(targets) > 1:
            target = self._unique_name(f"]{source.removeprefix(']')}")
            body.states.append(f"{indent}{quote_state_name(target)} [type=fork]")
        text = f"{notes}{indent}{quote_state_name(source)} -> {quote_state_name(target)}"
        body.arrows.append(
            text + (f" [{attributes}]" if attributes else "") + (f": {quote_label(label)}" if label else "")
        )
        if len(targets) > 1:
            body.arrows += [
                f"{indent}{quote_state_name(target)} -> {quote_state_name(self.names[each])}" for each in targets
            ]

    def _label(self, transition: Transition, *, completing: bool) -> str:
        """The label's text; reports what cannot be read back."""
        guard = "" if transition.guard is None else f"[{label_guard(transition.guard)}]"
        actions = f"/ {label_actions(transition.actions)}" if transition.actions else ""
        label = " ".join(filter(None, (self._event(transition, completing=completing), guard, actions)))
        back = self._reader().label(TextSpan(label, 0))
        for what, message in _differences(transition, back):
            self.diagnostics.warning(f"export.{what}", message, transition.location)
        self._lose(TRANSITION, transition, transition.location)
        return label

    def _event(self, transition: Transition, *, completing: bool) -> str:
        if transition.events:
            return ", ".join(transition.events)
        if transition.origin == "after":
            delay = transition.delay
            return f"after = {label_value(delay)}" if isinstance(delay, Expression) else f"after {delay}"
        if transition.origin == "onDone":
            return "onDone"
        return "always" if completing else ""

    def _resolved(self, found: Iterable[int | Unresolved], location: SourceLocation) -> list[int]:
        targets = []
        for each in found:
            if isinstance(each, Unresolved):
                self.diagnostics.warning(
                    "export.target", f"{each.message}; this transition is not written", location, each.hint
                )
            else:
                targets.append(each)
        return targets

    def _reader(self) -> LabelReader:
        return LabelReader(SourceLines("", self.document.source), Diagnostics())

    def _lose(self, record: Record, value: object, location: SourceLocation) -> None:
        for key in extras_of(record, value, "smcat"):
            self.lost.setdefault(f"`{key.name}`", location)

    def _losses_of_document(self) -> None:
        document, location = self.document, self.document.root.location
        self._lose(DOCUMENT, document, location)
        if document.events is not None:
            self.diagnostics.warning("export.events", "declared events and their payloads are not written", location)
        self._losses_of_values(0, document.root)

    def _losses_of_state(self, index: int, state: State) -> None:
        if index:
            self._losses_of_values(index, state)
        ranks = [
            TRANSITION_ORDER[each.origin] if each.events or each.origin != "transitions" else 0
            for each in state.transitions
        ]
        if ranks != sorted(ranks):
            message = "when this text is read again, eventless transitions are tried first"
            self.diagnostics.warning("export.order", message, state.location)

    def _losses_of_values(self, index: int, state: State) -> None:
        location = state.location
        self._lose(STATE, state if index else replace(state, id=None), location)
        if state.context:
            self.diagnostics.warning("export.context", "the fields of the context are not written", location)
        if state.output is not None:
            self.diagnostics.warning("export.output", "the output of a final state is not written", location)
        if state.tags:
            self.diagnostics.info("export.tags", "tags are written as a note", location)


def _names(tree: TargetIndex) -> list[str]:
    """A name for every state: the shortest suffix of its path that is unique; the root has none."""
    ends: list[list[str]] = [[""]]
    for index in range(1, len(tree.states)):
        keys = [tree.states[index].key, *(tree.states[each].key for each in tree.ancestors(index))][:-1]
        ends.append([".".join(reversed(keys[:length])) for length in range(1, len(keys) + 1)])
    uses = Counter(end for each in ends for end in each)
    return [next((end for end in each if uses[end] == 1), each[-1]) for each in ends]


def _needs_outer_state(root: State) -> bool:
    return bool(root.transitions or root.entry or root.exit or root.invokes or root.saga or root.type == "parallel")


def _blocks(state: State) -> list[tuple[str, Block]]:
    return [*(("entry", block) for block in state.entry), *(("exit", block) for block in state.exit)]


def _notes(lines: Iterable[str], indent: str) -> str:
    return "".join(f"{indent}# {line.strip()}\n" for line in lines)


def _invoke_text(invoke: Invoke) -> str:
    match invoke.src:
        case Document():
            return invoke.src.kind
        case None:
            return "nothing"
        case _:
            return label_value(invoke.src)


def _readable_guard(guard: Guard | None) -> Guard | None:
    """The guard that a label can express: conditions without functions become one expression."""
    if guard is None:
        return None
    expression = guard_expression(guard)
    return guard if expression is None else GuardExpression(expression=Expression(expression))


def _differences(transition: Transition, back: Label) -> Iterable[tuple[str, str]]:
    if back.events != transition.events or back.delay != transition.delay:
        yield "descriptors", "the trigger of this transition is written as text only"
    if back.guard != _readable_guard(transition.guard):
        yield "guards", "this guard is written as text only"
    if back.actions != transition.actions:
        yield "actions", "these actions are written as text only"

"""Document to XState 5 JSON.

Rule 1: states, transitions and invokes are written by the keys of XState; everything else goes to
        `meta.interlock`, and a diagnostic `export.<what>` reports that XState ignores it.
Rule 2: a document of another dialect is translated: descriptors to wildcards, exits to `reenter`. `differences` reports
        where the same JSON still behaves differently.
Rule 3: keys have a fixed order, so a document has one text.
"""

from __future__ import annotations

import json
from typing import Any

from interlock.definition.codec import write_value
from interlock.definition.xstate.differences import report_differences
from interlock.definition.xstate.events import to_xstate
from interlock.definition.xstate.extension import DOCUMENT_FIELDS, INVOKE_FIELDS, STATE_FIELDS, TRANSITION_FIELDS
from interlock.definition.xstate.source import in_javascript_order
from interlock.definition.xstate.write_actions import ActionWriter
from interlock.model.diagnostics import Diagnostics
from interlock.model.document.actions import AssignCall, Block, Do, Expression
from interlock.model.document.document import Document, Initial, Invoke, State, Transition
from interlock.model.document.field import UNSET, Field
from interlock.model.document.targets import TargetIndex, Unresolved
from interlock.model.document.walk import block_actions, state_blocks, state_transitions
from interlock.model.duration import format_duration, parse_duration

Json = dict[str, Any]


def write_document(document: Document, diagnostics: Diagnostics) -> str:
    """The document as JSON text, indented by two spaces."""
    return json.dumps(XStateWriter(document, diagnostics).document_json(), indent=2, ensure_ascii=False) + "\n"


def is_hidden_root(document: Document) -> bool:
    """Whether the document's root is the synthetic state above XState's own root (X3)."""
    return document.dialect == "xstate" and len(document.root.states) == 1


def _without_none(content: Json) -> Json:
    return {key: each for key, each in content.items() if each is not None}


class XStateWriter:
    """Writes one document."""

    def __init__(self, document: Document, diagnostics: Diagnostics) -> None:
        self.document = document
        self.diagnostics = diagnostics
        self.tree = TargetIndex(document)
        self.top = 1 if is_hidden_root(document) else 0
        self.native = document.dialect == "xstate"
        self.written_ids = self._written_ids()
        self.foreign_ids = [self._foreign_id(index) for index in range(len(self.tree.states))]
        self.exported = {
            own: far.removeprefix("#").replace("\\", "")
            for own, far in zip(self.tree.ids, self.foreign_ids, strict=True)
        }
        self.assigns = _assign_names(self.tree)
        self.actions = ActionWriter(self._inside, self.assigns)
        self.carried: set[str] = set()
        self.source = 0

    def _written_ids(self) -> list[str | None]:
        """The id written for each state.

        If the reader will hide the root (X3), every path gets one key longer, so all states have an id: ids
        are in snapshots, in `In()` and in `meta.interlock`, and must not change.
        """
        tree, root = self.tree, self.document.root
        acts = root.transitions or root.entry or root.exit or root.invokes
        moved = self.top == 0 and (acts or root.type == "parallel" or len(root.states) < 2 or _names_root(tree))
        return [tree.ids[index] if moved else state.id for index, state in enumerate(tree.states)]

    def _foreign_id(self, index: int) -> str:
        """`#id` by which any state can be a target in XState: its own id, else its path from the root."""
        tree = self.tree
        written = self.written_ids[index]
        if written is not None and index != self.top:
            return f"#{_escaped(written)}"
        keys = []
        while index > self.top:
            keys.append(tree.states[index].key)
            index = tree.parents[index]
        return f"#{'.'.join([_escaped(self.document.kind), *reversed(keys)])}"

    def _inside(self, text: str) -> str:
        """XState's `#id` for a state that a guard of the current state names."""
        index = self.tree.resolve_in_state(self.source, text)
        return text if isinstance(index, Unresolved) else self.foreign_ids[index]

    def document_json(self) -> Json:
        """The whole definition as JSON."""
        document = self.document
        content: Json = {"id": document.kind, "version": document.revision or None}
        fields = document.root.context
        values = {each.name: write_value(each.default) for each in fields if each.default is not UNSET}
        content["context"] = values or None
        content |= self.state(self.top)
        extra: Json = {"assigns": sorted(self.assigns) or None}
        if any(each != Field(name=each.name, default=each.default) or each.default is UNSET for each in fields):
            extra["fields"] = [_typed(each) for each in self.actions.field(document.root, "context")]
            self.carried.add("typed context")
        for name in DOCUMENT_FIELDS:
            value = getattr(document, name)
            if value not in (None, (), "early") and not (name == "unhandled" and value == "ignore"):
                extra[name] = self.actions.field(document, name)
                self.carried.add(name)
        self._add_extra(content, extra)
        report_differences(document, self.tree, self.diagnostics, carried=self.carried, foreign=self.actions.foreign)
        return _without_none(content)

    def _add_extra(self, content: Json, extra: Json) -> None:
        extra = _without_none(extra)
        if extra:
            meta = dict(content.get("meta") or {})
            meta["interlock"] = meta.get("interlock", {}) | extra
            content["meta"] = meta

    def state(self, index: int) -> Json:
        """One state with its content."""
        tree, state = self.tree, self.tree.states[index]
        is_top = index == self.top
        children = {tree.states[each].key: self.state(each) for each in tree.children[index]}
        self.source = index
        content: Json = {}
        if self.written_ids[index] is not None and not is_top:
            content["id"] = self.written_ids[index]
        content["description"] = state.description
        content["tags"] = list(state.tags) or None
        content["type"] = state.type if state.type != "state" else None
        if state.type == "history":
            self._history(index, state, content)
        content["initial"] = self._initial(index, state)
        content["entry"] = self._blocks(state.entry)
        content["exit"] = self._blocks(state.exit)
        content["invoke"] = [self._invoke(index, each) for each in state.invokes] or None
        self._transitions(index, state, content)
        content["output"] = self._output(index, state)
        if in_javascript_order(children) != list(children):
            message = "XState enters states with numeric keys first, in ascending order"
            self.diagnostics.warning("export.order", message, state.location)
        content["states"] = children or None
        content["meta"] = self._meta(state)
        self._state_extra(state, content, is_root=index == 0)
        return _without_none(content)

    def _meta(self, owner: State | Transition) -> Json | None:
        """The author's own `meta`. XState accepts a mapping only, in which we use the key `interlock`."""
        if isinstance(owner.meta, dict) and "interlock" not in owner.meta:
            return dict(owner.meta) or None
        if owner.meta is not None:
            message = "`meta` must be a mapping without the key `interlock` in XState; it is not written"
            self.diagnostics.warning("export.meta", message, owner.location)
        return None

    def _state_extra(self, state: State, content: Json, *, is_root: bool) -> None:
        extra: Json = {}
        for name in STATE_FIELDS:
            value = getattr(state, name)
            if (
                value in (None, ())
                or (name == "context" and is_root)
                or (name == "actions" and "actions" not in content)
            ):
                continue
            extra[name] = self.actions.field(state, name)
            self.carried.add("content of a history" if name == "actions" else name)
        content.pop("actions", None)
        for name, blocks in (("entry", state.entry), ("exit", state.exit)):
            if len(blocks) > 1 or blocks == ((),):
                extra[name] = [len(block) for block in blocks]
                self.carried.add("blocks")
        self._add_extra(content, extra)

    def _history(self, index: int, state: State, content: Json) -> None:
        """Write a default only if it is not the initial state of the parent, to which XState falls back (X17)."""
        content["history"] = state.history if state.history == "deep" else None
        parent = self.tree.parents[index]
        above = self.tree.states[parent]
        found = [self.tree.resolve_child(parent, text) for text in state.targets]
        targets = [each for each in found if not isinstance(each, Unresolved)]
        if above.type == "parallel":
            falls_back = targets == [parent] and not state.actions
        else:
            falls_back = targets == self._begin(parent) and state.actions == (
                above.initial.actions if above.initial else ()
            )
        if not falls_back:
            names = [self.foreign_ids[each] for each in targets]
            content["target"] = names[0] if len(names) == 1 else names or None
            content["actions"] = state.actions or None

    def _begin(self, index: int) -> list[int]:
        """The initial states of a compound state: those of `initial` inside it, else its first child."""
        initial = self.tree.states[index].initial
        if initial is None:
            return [each for each in self.tree.children[index] if self.tree.states[each].type != "history"][:1]
        found = [self.tree.resolve_child(index, text) for text in initial.targets]
        return [each for each in found if not isinstance(each, Unresolved) and self.tree.is_descendant(each, index)]

    def _initial(self, index: int, state: State) -> Any:
        targets = self._begin(index) if state.type == "state" and state.states else []
        if not targets:
            return None
        child = targets[0]
        while self.tree.parents[child] != index:
            child = self.tree.parents[child]
        key = self.tree.states[child].key
        initial = state.initial or Initial(targets=(key,))
        content: Json = {"target": key, "actions": self.actions.block(initial.actions) or None}
        if targets != [child]:
            message = "XState supports one direct child as initial state; other parts of this `initial` are ignored"
            self.diagnostics.warning("export.initial", message, initial.location)
            self._add_extra(content, {"targets": list(initial.targets)})
        content = _without_none(content)
        return key if len(content) == 1 else content

    def _blocks(self, blocks: tuple[Block, ...]) -> list[Any] | None:
        return [action for block in blocks for action in self.actions.block(block)] or None

    def _output(self, index: int, state: State) -> Any:
        """The output of the root is that of the entity, so all its finals must agree; deeper ones have their own."""
        finals = [self.tree.states[each] for each in self.tree.children[self.top]]
        outputs = [each.output for each in finals if each.type == "final"]
        # Compared as texts: True equals 1 in Python, but is a different output.
        shared = outputs[:1] not in ([], [None]) and len({json.dumps(write_value(each)) for each in outputs}) == 1
        if index == self.top:
            return write_value(outputs[0]) if shared else None
        if state.type != "final" or state.output is None or (self.tree.parents[index] == self.top and shared):
            return None
        if self.tree.parents[index] == self.top:
            message = (
                f'XState gives no output for "{state.key}": only the root can have one, and the final states differ'
            )
            self.diagnostics.warning("export.output", message, state.location)
        return write_value(state.output)

    # Transitions

    def _transitions(self, index: int, state: State, content: Json) -> None:
        always: list[Any] = []
        after: dict[str, list[Any]] = {}
        done: list[Any] = []
        on: dict[str, list[Any]] = {}
        for each in state.transitions:
            written = self._transition(index, each)
            if each.origin == "after":
                after.setdefault(self._after_key(each), []).append(written)
            elif each.origin == "onDone":
                done.append(written)
            elif not each.events:
                always.append(written)
            for text in each.events:
                on.setdefault(self._descriptor(text), []).append(written)
        content["always"] = _shortest(always)
        content["after"] = {key: _shortest(each) for key, each in after.items()} or None
        content["onDone"] = _shortest(done)
        content["on"] = {key: _shortest(each) for key, each in on.items()} or None

    def _descriptor(self, text: str) -> str:
        """XState's descriptor: our `foo` matches `foo.bar` too, so it becomes `foo.*`."""
        if not self.native and text != "*":
            text = f"{text.removesuffix('*').removesuffix('.')}.*"
        return to_xstate(text, self.exported)

    def _after_key(self, transition: Transition) -> str:
        if isinstance(transition.delay, Expression):
            message = f'XState needs an implementation of the delay "= {transition.delay.text}"'
            self.diagnostics.warning("export.after", message, transition.location)
            return f"= {transition.delay.text}"
        ms = parse_duration(str(transition.delay))
        return str(transition.delay if ms is None else ms)

    def _transition(self, index: int, transition: Transition) -> Json:
        found = [self.tree.resolve_target(index, text) for text in transition.targets]
        targets = [each for each in found if not isinstance(each, Unresolved)]
        names = [self._target(index, each) for each in targets]
        content: Json = {
            "target": names[0] if len(names) == 1 else names or None,
            "guard": None if transition.guard is None else self.actions.guard(transition.guard),
            "actions": self.actions.block(transition.actions) or None,
            "reenter": self._reenter(index, transition, targets),
            "description": transition.description,
            "meta": self._meta(transition),
        }
        extra: Json = {}
        for name in TRANSITION_FIELDS:
            value = getattr(transition, name)
            if value is not None:
                extra[name] = self.actions.field(transition, name)
                self.carried.add(name)
        ms = parse_duration(transition.delay) if isinstance(transition.delay, str) else None
        if ms is not None and format_duration(ms) != transition.delay:
            extra["delay"] = transition.delay
        self._add_extra(content, extra)
        return _without_none(content)

    def _reenter(self, index: int, transition: Transition, targets: list[int]) -> bool | None:
        """XState stays in the source if possible; SCXML and YAML exit it by default."""
        if self.native:
            return transition.reenter
        inward = bool(targets) and all(each == index or self.tree.is_descendant(each, index) for each in targets)
        compound = bool(self.tree.children[index]) and self.tree.states[index].type == "state"
        internal = transition.reenter is False and compound and index not in targets
        return True if inward and not internal and index > 0 else None

    def _target(self, source: int, target: int) -> str:
        tree = self.tree
        key = tree.states[target].key
        if tree.parents[target] == source:
            return f".{key}"
        if source > self.top and tree.parents[target] == tree.parents[source]:
            return key
        return self.foreign_ids[target]

    # Invokes

    def _invoke(self, index: int, invoke: Invoke) -> Json:
        content: Json = {"id": invoke.id, "src": invoke.src, "input": write_value(invoke.input)}
        extra: Json = {}
        if isinstance(invoke.src, Document):
            content["src"] = XStateWriter(invoke.src, self.diagnostics).document_json()
            message = "XState accepts an inline chart as a JavaScript object only, not as JSON"
            self.diagnostics.warning("export.invoke", message, invoke.location)
        elif isinstance(invoke.src, Expression):
            content["src"] = "interlock.expression"
            extra["src"] = write_value(invoke.src)
            self.carried.add("computed src")
        for key, found in (("onDone", invoke.done), ("onError", invoke.error)):
            content[key] = _shortest([self._transition(index, each) for each in found])
        inline = isinstance(invoke.src, Document)
        for name in INVOKE_FIELDS:
            value = getattr(invoke, name)
            usual = ("chart" if inline else "handler") if name == "type" else False if name == "autoforward" else None
            if value != usual:
                extra[name] = self.actions.field(invoke, name)
                self.carried.add(name)
        self._add_extra(content, extra)
        return _without_none(content)


def _names_root(tree: TargetIndex) -> bool:
    """Whether the root is the target of a transition."""
    for index, state in enumerate(tree.states):
        for each in state_transitions(state):
            if any(tree.resolve_target(index, text) == 0 for text in each.targets):
                return True
    return False


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace(".", "\\.")


def _shortest(written: list[Any]) -> Any:
    """A single transition without a list, and as its target if that is its only key."""
    if len(written) != 1:
        return written or None
    only = written[0]
    return only["target"] if list(only) == ["target"] and isinstance(only["target"], str) else only


def _typed(field: Json) -> Json:
    """A field without its default, which is in `context`."""
    return {key: each for key, each in field.items() if key != "default"}


def _assign_names(tree: TargetIndex) -> frozenset[str]:
    """Names used by assigns only: they can be written like any named action of XState."""
    calls: set[str] = set()
    handlers: set[str] = set()
    for state in tree.states:
        for block in state_blocks(state):
            for action in block_actions(block):
                if isinstance(action, AssignCall):
                    calls.add(action.name)
                elif isinstance(action, Do):
                    handlers.add(action.name)
    return frozenset(calls - handlers)

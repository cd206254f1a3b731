"""A document as SCXML: states, transitions, context, invokes.

Rule 1: other tools get SCXML that behaves alike: `after` as send and cancel, `onDone` as `done.state`, transitions of
        the root in a synthetic outer state. Our reader finds a mark at each and puts the original back.
Rule 2: expressions are written with SCXML's names (datamodel `python`); one that would not come back puts the whole
        file into our own spelling (datamodel `interlock`).
"""

from __future__ import annotations

import re
from dataclasses import replace

from interlock.definition.format import Writing
from interlock.definition.scxml.expressions import Datamodel
from interlock.definition.scxml.extension import field_json, model_json, plain_json, written_extras
from interlock.definition.scxml.ids import default_key
from interlock.definition.scxml.structure import INTERLOCK, SCXML
from interlock.definition.scxml.write_content import ContentWriter, Losses, Untranslatable, element
from interlock.definition.scxml.write_parts import PartWriter
from interlock.definition.source.xml import Element, print_xml, xml_clean
from interlock.definition.vocabulary.chart import DOCUMENT, STATE
from interlock.model.diagnostics import Findings
from interlock.model.document.document import Document, Initial, Invoke, State
from interlock.model.document.field import UNSET, Field
from interlock.model.document.targets import Tree, Unresolved

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")


def write_scxml(document: Document) -> Writing:
    """The document as SCXML text, with a finding `export.<what>` for everything that other tools will not see."""
    findings = Findings()
    root = written_root(document, findings)
    names = {("", "xmlns"): SCXML}
    if _uses_extension(root, findings):
        names["", "xmlns:interlock"] = INTERLOCK
    root.attributes = names | root.attributes
    return Writing(text=print_xml(root), diagnostics=findings.sorted())


def _uses_extension(root: Element, findings: Findings) -> bool:
    """Whether a name of our namespace is used. On the way, what XML cannot hold is taken out and told."""
    used, stack = False, [root]
    while stack:
        each = stack.pop()
        used = used or each.name.startswith("interlock:")
        for key, text in each.attributes.items():
            used = used or key[1].startswith("interlock:")
            each.attributes[key] = _clean(text, f"{key[1]} of <{each.name}>", findings)
        each.children = [
            _clean(one, f"<{each.name}>", findings) if isinstance(one, str) else one for one in each.children
        ]
        stack += each.elements
    return used


def _clean(text: str, where: str, findings: Findings) -> str:
    clean = xml_clean(text)
    if clean != text:
        findings.error("export.characters", f"{where} holds characters that XML cannot; they are left out")
    return clean


def written_root(document: Document, findings: Findings) -> Element:
    """The `<scxml>` element of a document, in the first datamodel that gives its expressions back."""
    attempt = Findings()
    try:
        root = DocumentWriter(document, "python", attempt).root()
    except Untranslatable:
        attempt = Findings()
        root = DocumentWriter(document, "interlock", attempt).root()
    findings.items += attempt.items
    return root


class DocumentWriter:
    """Writes one document; an inline chart gets a writer of its own."""

    def __init__(self, document: Document, datamodel: Datamodel, findings: Findings) -> None:
        self.document, self.findings = document, findings
        self.tree = Tree(document)
        self.losses = Losses(findings)
        self.content = ContentWriter(datamodel, self.losses)
        self.outer = self._outer_id()
        self.parts = PartWriter(self.tree, self.content, findings, self.outer or "")

    def _outer_id(self) -> str | None:
        """The id of the synthetic state that carries what a root of SCXML cannot; None when it has nothing to carry."""
        root = self.document.root
        carried = (root.transitions, root.entry, root.exit, root.invokes, root.saga, root.type == "parallel")
        if not any(carried) and not (root.initial and root.initial.actions) and not self._root_is_target():
            return None
        name = root.id or "_root"
        while name in self.tree.by_id and self.tree.by_id[name] > 0:
            name = f"{name}_"
        return name

    def _root_is_target(self) -> bool:
        found = (
            self.tree.target(index, text)
            for index, state in enumerate(self.tree.states)
            for each in state.transitions
            for text in each.targets
        )
        return any(each == 0 for each in found)

    # The whole

    def root(self) -> Element:
        document = self.document
        self._tell_document()
        attributes: dict[str, str | None] = {
            "version": "1.0",
            "name": document.kind,
            "datamodel": self.content.datamodel,
            "binding": None if document.binding == "early" else document.binding,
            "interlock:dialect": None if document.dialect == "scxml" else document.dialect,
        }
        attributes |= {f"interlock:{name}": text for name, text in written_extras(DOCUMENT, document)}
        children = self._datamodel(document.root)
        if document.events is not None:
            children.append(element("interlock:events", children=[model_json(document.events)]))
        if document.script is not None:
            children.append(element("script", children=[document.script] if document.script else []))
        attributes |= self._notes(document.root)
        if self.outer is None:
            attributes |= {"interlock:id": document.root.id} | self._initial_attributes(0)
            return element("scxml", attributes, children + self._states(self.tree.children[0]))
        attributes["initial"] = self.outer
        return element("scxml", attributes, children + self._outer_state(self.outer))

    def _tell_document(self) -> None:
        document, tell = self.document, self.losses.tell
        if document.dialect == "xstate":
            tell("dialect", "the chart follows the rules of XState, other tools will run it by those of SCXML")
        if document.unhandled in ("reject", "defer") or (document.dialect == "interlock" and not document.unhandled):
            tell("unhandled", "an event that no transition takes is not ignored here", severity="info")
        if document.events is not None:
            tell("events", "events are declared, with payloads and roles", severity="info")

    def _outer_state(self, name: str) -> list[Element]:
        """The synthetic state with everything inside, but for finals, which end the entity only at the top."""
        state = self.document.root
        finals = [each for each in self.tree.children[0] if self.tree.states[each].type == "final"]
        inside = [each for each in self.tree.children[0] if each not in finals]
        if state.type == "parallel" and (state.transitions or state.exit or state.entry):
            self.losses.tell("root", "other tools leave and enter the parallel root where we do not")
        order = [each.key for each in state.states] if finals else None
        attributes: dict[str, str | None] = {"id": name, "interlock:root": "true", "interlock:id": state.id}
        attributes["interlock:order"] = None if order is None else plain_json(order)
        tag = "parallel" if state.type == "parallel" else "state"
        outer = element(tag, attributes | self._initial_attributes(0), self._inside(0) + self._states(inside))
        return [outer, *self._states(finals)]

    # States

    def _states(self, indices: list[int]) -> list[Element]:
        return [self._state(index) for index in indices]

    def _state(self, index: int) -> Element:
        tree, state = self.tree, self.tree.states[index]
        name = tree.ids[index]
        if not _NAME.fullmatch(name):
            message = f'"{name}" is not a name of XML; other tools may refuse it'
            self.findings.warning("export.id", message, state.place)
        attributes: dict[str, str | None] = {"id": name}
        parent = self._path(tree.parents[index])
        if default_key(name, parent) != state.key:
            attributes["interlock:key"] = state.key
        if state.id == (f"{parent}.{state.key}" if parent else state.key):
            attributes["interlock:id"] = state.id
        attributes |= self._notes(state)
        if state.type == "history":
            attributes["type"] = state.history
            return element("history", attributes, [self._default(index, state)])
        children = self._datamodel(state) + self._inside(index) + self._states(tree.children[index])
        if state.output is not None:
            children.append(element("donedata", children=self.content.payload(state.output)))
        return element(state.type, attributes | self._initial_attributes(index), children)

    def _path(self, index: int) -> str:
        keys = []
        while index > 0:
            keys.append(self.tree.states[index].key)
            index = self.tree.parents[index]
        return ".".join(reversed(keys))

    def _default(self, index: int, state: State) -> Element:
        """The default of a history; SCXML wants one, so a missing one is where its parent begins."""
        parent = self.tree.parents[index]
        if state.targets:
            return self.parts.default(parent, Initial(targets=state.targets, actions=state.actions))
        initial = self.tree.states[parent].initial
        first = next((each for each in self.tree.children[parent] if self.tree.states[each].type != "history"), index)
        targets = initial.targets if initial else (f"#{self.tree.ids[first]}",)
        made = self.parts.default(parent, Initial(targets=targets, actions=state.actions))
        made.attributes["", "interlock:target"] = "[]"
        return made

    def _notes(self, state: State) -> dict[str, str | None]:
        """What only our namespace can say about a state."""
        known = dict(written_extras(STATE, state))
        for name in known:
            if name != "description":
                self.losses.tell(name, f"`{name}` is an extension", state.place, "info")
        return {f"interlock:{name}": text for name, text in known.items()}

    def _datamodel(self, state: State) -> list[Element]:
        return [element("datamodel", children=map(self._field, state.context))] if state.context else []

    def _field(self, field: Field) -> Element:
        typed = replace(field, name="", default=UNSET)
        text = None
        if typed != Field(name=""):
            self.losses.tell("types", "fields have types and bounds", field.place, "info")
            text = field_json(typed)
        value = {} if field.default is UNSET else self.content.value(field.default)
        return element("data", {"id": field.name} | value | {"interlock:field": text})

    def _initial_attributes(self, index: int) -> dict[str, str | None]:
        state = self.tree.states[index]
        initial = state.initial
        if initial is None or initial.actions or state.type != "state" or not state.states:
            return {}
        names, texts = self.parts.inner(index, initial)
        return {"initial": names, "interlock:initial": texts}

    def _inside(self, index: int) -> list[Element]:
        """What a state holds beside its context and its states."""
        state, content = self.tree.states[index], self.content
        content.inside = lambda text: self._inside_id(index, text)
        children = []
        if state.initial is not None and state.initial.actions and state.type == "state" and state.states:
            children.append(element("initial", children=[self.parts.default(index, state.initial)]))
        children += [element("onentry", children=content.actions(block)) for block in state.entry]
        children += [element("onexit", children=content.actions(block)) for block in state.exit]
        children += self.parts.timers(index)
        children += self.parts.transitions(index)
        for position, invoke in enumerate(state.invokes):
            children.append(self._invoke(index, position, invoke))
        if state.saga is not None:
            self.losses.tell("saga", "a saga is ours; other tools see a state without its steps", state.saga.place)
            children.append(self.parts.saga(index, state.saga))
        return children

    def _invoke(self, index: int, position: int, invoke: Invoke) -> Element:
        made = self.parts.invoke(index, position, invoke)
        if isinstance(invoke.src, Document):
            made.children.append(element("content", children=[written_root(invoke.src, self.findings)]))
        return made

    def _inside_id(self, index: int, text: str) -> str:
        found = self.tree.inside(index, text)
        return text if isinstance(found, Unresolved) else self.tree.ids[found]

"""SCXML elements to a document: states, transitions, context, invokes.

Rule 1: the structure was checked before (`scxml_structure`); what is missing here was told there.
Rule 2: meaning that differs from YAML's is rewritten here, once (vocabulary.md 8): names, ids, targets, durations.
Rule 3: attributes of our namespace bring back what the writer could not say in SCXML.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import cast, get_args

from interlock.definition.format import Resolver
from interlock.definition.scxml.expressions import Datamodel
from interlock.definition.scxml.ids import KEEP, Keys, with_targets, written_ids
from interlock.definition.scxml.read_content import ContentReader, parsed_text
from interlock.definition.scxml.read_invokes import InvokeReader
from interlock.definition.scxml.structure import (
    DATAMODELS,
    INTERLOCK,
    STATE_TAGS,
    check_structure,
    own,
    tag,
)
from interlock.definition.source.xml import Element
from interlock.definition.vocabulary.chart import DOCUMENT, STATE
from interlock.definition.vocabulary.parts import TRANSITION
from interlock.model.diagnostics import Findings, suggestion
from interlock.model.document.document import (
    DialectName,
    Document,
    Initial,
    Origin,
    State,
    StateType,
    Transition,
)
from interlock.model.document.field import UNSET, Field

_DESCRIPTOR = re.compile(r"\*|[^\s.,*=#]+(?:\.[^\s.,*=#]+)*(?:\.\*?)?")
_ID = re.compile(r"[^\s.,*=#]+(?:\.[^\s.,*=#]+)*")
_FIELD = re.compile(r"[^\s.]+")
_NOT_KIND = re.compile(r"[^\w.-]+")


class DocumentReader:
    """Reads one `<scxml>` element; an inline chart gets a reader of its own."""

    def __init__(self, root: Element, *, kind: str, source: str, findings: Findings, resolver: Resolver | None) -> None:
        self.root, self.source, self.findings, self.resolver = root, source, findings, resolver
        self.kind = self._kind(kind)
        self.content = ContentReader(self._datamodel(), findings, resolver)
        self.extension = self.content.extension
        self.dialect = cast(DialectName, self.extension.choice(root, "dialect", get_args(DialectName), "scxml"))
        self.ids = written_ids(root)
        self.invokes = InvokeReader(self.content, source=source, transition=self._result, nested=self._nested)

    def _datamodel(self) -> Datamodel:
        name = self.root.get("datamodel") or "python"
        if name not in DATAMODELS:
            message = f'the datamodel "{name}" is not known'
            hint = suggestion(name, DATAMODELS) or f"known are {', '.join(DATAMODELS)}"
            self.findings.error("scxml.datamodel", message, self.root.at("datamodel"), hint)
            return "python"
        return cast(Datamodel, name)

    # The whole

    def document(self) -> Document:
        root, extension = self.root, self.extension
        events = own(root, "interlock:events")
        scripts = own(root, "script")
        binding = self.extension.choice(root, "binding", ("early", "late"), "early", "")
        document = Document(
            kind=self.kind,
            root=self._root(),
            dialect=self.dialect,
            binding=binding,
            events=extension.events(events[0]) if events else None,
            script="\n".join(self.content.script(each) or "" for each in scripts) if scripts else None,
            source=self.source,
            **extension.extras(root, DOCUMENT),
        )
        return with_targets(document)

    def _kind(self, otherwise: str) -> str:
        """The name of the chart; a kind is a dotted name of letters, digits, `_` and `-`."""
        name = (self.root.get("name") or "").strip() or otherwise
        kind = ".".join(filter(None, _NOT_KIND.sub("_", name).split(".")))
        if kind != name:
            self.findings.warning("scxml.name", f'the chart is called "{kind or "chart"}" here', self.root.at("name"))
        return kind or "chart"

    def _root(self) -> State:
        """The root state; a synthetic outer state that the writer put below it is taken away again."""
        children = own_states(self.root)
        outer = next((each for each in children if each.get("root", INTERLOCK) is not None), None)
        if outer is None:
            return self._state(self.root, kind="state", key="", path="", children=children)
        kind: StateType = "parallel" if tag(outer) == "parallel" else "state"
        inside = own_states(outer) + [each for each in children if each is not outer]
        state = self._state(outer, kind=kind, key="", path="", children=inside)
        order = self.extension.plain(outer, "order", list[str]) or []
        places = {key: number for number, key in enumerate(order)}
        states = sorted(state.states, key=lambda each: places.get(each.key, len(places)))
        notes = self._with_notes(state, self.root)
        return replace(notes, states=tuple(states), context=self._fields(self.root), place=self.root.place)

    # States

    def _states(self, elements: list[Element], parent: str) -> tuple[State, ...]:
        keys = Keys(parent, self.ids)
        made = []
        for element in elements:
            name, kind = element.get("id"), cast(StateType, tag(element))
            if name is not None and not _ID.fullmatch(name):
                message = f'"{name}" is no id: dotted words without white space, comma, *, = or #'
                self.findings.error("name.invalid", message, element.at("id"))
            key = keys.anonymous(kind) if name is None else keys.named(name, self.extension.text(element, "key"))
            path = f"{keys.prefix}{key}"
            state = self._state(element, kind=kind, key=key, path=path, children=own_states(element))
            made.append(state if name in (None, path) else replace(state, id=name))
        return tuple(made)

    def _state(self, element: Element, *, kind: StateType, key: str, path: str, children: list[Element]) -> State:
        content = self.content
        transitions, results = ((), {}) if kind == "history" else self._transitions(element)
        invokes = [
            self.invokes.invoke(each, key, results.get(f"done {number}", ()), results.get(f"error {number}", ()))
            for number, each in enumerate(own(element, "invoke"))
        ]
        default = self._default(element) if kind == "history" else None
        state = State(
            key=key,
            id=self.extension.text(element, "id"),
            type=kind,
            initial=self._initial(element, children),
            states=self._states(children, path),
            transitions=transitions,
            entry=content.blocks(element, "onentry"),
            exit=content.blocks(element, "onexit"),
            invokes=tuple(invokes),
            context=self._fields(element),
            history=self.extension.choice(element, "type", ("shallow", "deep"), "shallow", "")
            if default
            else "shallow",
            targets=default.targets if default else (),
            actions=default.actions if default else (),
            output=next((content.payload(each) for each in own(element, "donedata")), None),
            saga=next((self.invokes.saga(each) for each in own(element, "interlock:saga")), None),
            place=element.place,
        )
        return self._with_notes(state, element)

    def _with_notes(self, state: State, element: Element) -> State:
        """The state with what only our namespace can say about it."""
        return replace(state, **self.extension.extras(element, STATE))

    def _fields(self, element: Element) -> tuple[Field, ...]:
        return tuple(self._field(data) for model in own(element, "datamodel") for data in own(model, "data"))

    def _field(self, data: Element) -> Field:
        name = data.get("id") or ""
        if not _FIELD.fullmatch(name):
            message = f'"{name}" cannot be a field of the context: a name has no blanks and no dots'
            self.findings.error("scxml.data", message, data.at("id"))
        value = self.content.inline(data)
        if data.get("src") is not None:
            text = self.content.resolved(data, "src")
            value = UNSET if text is None else parsed_text(text)
        return replace(self.extension.field(name, data), default=value)

    # Transitions

    def _targets(self, element: Element) -> tuple[str, ...]:
        hints = self.extension.plain(element, "target", list[str])
        if hints is not None:
            return tuple(f"{KEEP}{each}" for each in hints)
        return tuple(f"#{each}" for each in (element.get("target") or "").split())

    def _initial(self, element: Element, children: list[Element]) -> Initial | None:
        elements, text = own(element, "initial"), element.get("initial")
        if text is not None and elements:
            self.findings.error("scxml.exclusive", "initial is an attribute or an element, not both", element.place)
        if (text is not None or elements) and not children:
            message = "initial needs states inside"
            self.findings.error("scxml.initial", message, element.place)
            return None
        if elements:
            return self._default(elements[0])
        if text is None:
            return None
        hints = self.extension.plain(element, "initial", list[str])
        texts = [f"#{each}" for each in text.split()] if hints is None else [f"{KEEP}{each}" for each in hints]
        return Initial(targets=tuple(texts), place=element.at("initial"))

    def _default(self, element: Element) -> Initial:
        """The transition inside `initial` or `history`: targets and content, nothing else."""
        found = own(element, "transition")
        targets = self._targets(found[0]) if found else ()
        if len(found) != 1 or found[0].get("target") is None:
            message = f"<{element.name}> needs one transition with a target"
            self.findings.error("scxml.default", message, element.place)
        elif found[0].get("event") is not None or found[0].get("cond") is not None:
            message = f"the transition of <{element.name}> has neither event nor cond"
            self.findings.error("scxml.default", message, found[0].place)
        actions = self.content.block(found[0]) if found else ()
        return Initial(targets=targets, actions=actions, place=element.place)

    def _transitions(self, element: Element) -> tuple[tuple[Transition, ...], dict[str, tuple[Transition, ...]]]:
        """The transitions of a state, and apart from them those that belong to its invokes."""
        made: list[Transition] = []
        results: dict[str, tuple[Transition, ...]] = {}
        for each in own(element, "transition"):
            result = self.extension.text(each, "result")
            if result is not None:
                results[result] = (*results.get(result, ()), self._result(each))
                continue
            transition = self._transition(each)
            unmatched = bool(each.get("event")) and not transition.events
            if not unmatched or transition.origin not in ("on", "transitions"):
                made.append(transition)
        return tuple(made), results

    def _result(self, element: Element) -> Transition:
        """A transition for the result of an invoke or a saga; the compiler makes its descriptor."""
        origin = self.extension.choice(element, "origin", get_args(Origin), "on")
        return replace(self._transition(element), origin=origin, events=())

    def _events(self, element: Element) -> tuple[str, ...]:
        """The descriptors of a transition; what is none takes no event, so it is passed over and told."""
        found = (element.get("event") or "").split()
        for each in found:
            if not _DESCRIPTOR.fullmatch(each):
                message = f'"{each}" is not an event descriptor; it takes no event'
                self.findings.warning("scxml.event", message, element.at("event"), "to take every event write *")
        return tuple(each for each in found if _DESCRIPTOR.fullmatch(each))

    def _transition(self, element: Element) -> Transition:
        extension = self.extension
        events = self._events(element)
        usual = "transitions" if self.dialect == "scxml" else "on" if events else "always"
        origin = cast(Origin, self.extension.choice(element, "origin", get_args(Origin), usual))
        kind = self.extension.choice(element, "type", ("internal", "external"), None, "")
        reenter = {"internal": False, "external": None if self.dialect == "scxml" else True}.get(kind)
        if extension.text(element, "reenter") is not None:
            reenter = extension.plain(element, "reenter", bool | None)
        return Transition(
            origin=origin,
            events=events if origin in ("on", "transitions") else (),
            targets=self._targets(element),
            guard=self.content.guard(element),
            actions=self.content.block(element),
            reenter=reenter,
            delay=extension.value(element, "delay"),
            place=element.place,
            **extension.extras(element, TRANSITION),
        )

    def _nested(self, root: Element, source: str, name: str) -> Document | None:
        return read_root(
            root, kind=f"{self.kind}.{name}", source=source, findings=self.findings, resolver=self.resolver
        )


def own_states(element: Element) -> list[Element]:
    """The children that are states."""
    return [each for each in element.elements if tag(each) in STATE_TAGS]


def read_root(
    root: Element, *, kind: str, source: str, findings: Findings, resolver: Resolver | None
) -> Document | None:
    """The document of a root element; None when there is no use in going on."""
    if not check_structure(root, findings):
        return None
    return DocumentReader(root, kind=kind, source=source, findings=findings, resolver=resolver).document()

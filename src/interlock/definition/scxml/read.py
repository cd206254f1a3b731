"""SCXML elements to a document: states, transitions, context, invokes and sagas.

Rule 1: `structure` has checked the elements and attributes; what is missing here was reported there.
Rule 2: meaning that differs from YAML's is rewritten here (vocabulary.md 8): names, ids, targets, durations.
Rule 3: attributes of our namespace restore what the writer could not express in SCXML.
Rule 4: keys and ids are read first, for all states, because the text of a target depends on them.
Rule 5: a chart that is written inline, or that the source loader can give, is read now; a computed one stays an
        expression.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import cast, get_args

from interlock.definition.format import SourceLoader
from interlock.definition.scxml.expressions import Datamodel, read_path
from interlock.definition.scxml.ids import Keys, child_target_text, state_ids, target_text
from interlock.definition.scxml.read_content import ALLOW_SRC_HINT, ContentReader, parse_text
from interlock.definition.scxml.structure import (
    CHART_TYPES,
    DATAMODELS,
    HANDLER_TYPE,
    INTERLOCK,
    STATE_TAGS,
    check_structure,
    children_named,
    tag,
)
from interlock.definition.source.xml import Element, parse_xml
from interlock.definition.vocabulary.chart import DOCUMENT, STATE
from interlock.definition.vocabulary.parts import INVOKE, TRANSITION
from interlock.model.diagnostics import Diagnostics, suggestion
from interlock.model.document.actions import Assign, Block, Expression, GuardExpression, If, Value
from interlock.model.document.document import (
    DialectName,
    Document,
    Initial,
    Invoke,
    Origin,
    Saga,
    SagaCall,
    SagaStep,
    State,
    StateType,
    Transition,
)
from interlock.model.document.field import UNSET, Field
from interlock.model.document.targets import TargetIndex

_DESCRIPTOR = re.compile(r"\*|[^\s.,*=#]+(?:\.[^\s.,*=#]+)*(?:\.\*?)?")
_ID = re.compile(r"[^\s.,*=#]+(?:\.[^\s.,*=#]+)*")
_FIELD = re.compile(r"[^\s.]+")
_NOT_KIND = re.compile(r"[^\w.-]+")


TargetWriter = Callable[[TargetIndex, int, int], str]
"""Returns the text by which a state is a target in the scope of another one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Outline:
    """The element of a state with its key and id in the document, and those of the states inside it."""

    element: Element
    key: str
    id: str | None
    children: list[_Outline]

    def state(self) -> State:
        """A state with keys and ids only."""
        return State(key=self.key, id=self.id, states=tuple(each.state() for each in self.children))


class DocumentReader:
    """Reads one `<scxml>` element; an inline chart gets another reader."""

    def __init__(
        self, root: Element, *, kind: str, source: str, diagnostics: Diagnostics, loader: SourceLoader | None
    ) -> None:
        self.root, self.source, self.diagnostics, self.loader = root, source, diagnostics, loader
        self.kind = self._kind(kind)
        self.content = ContentReader(self._datamodel(), diagnostics, loader)
        self.extension = self.content.extension
        self.dialect = cast(DialectName, self.extension.choice(root, "dialect", get_args(DialectName), "scxml"))
        self.outer = next((each for each in child_states(root) if each.get("root", INTERLOCK) is not None), None)
        self.outline = self._root_outline()
        self.tree = TargetIndex(Document(kind=self.kind, dialect=self.dialect, root=self.outline.state()))

    def _datamodel(self) -> Datamodel:
        name = self.root.get("datamodel") or "python"
        if name not in DATAMODELS:
            message = f'unknown datamodel "{name}"'
            hint = suggestion(name, DATAMODELS) or f"use one of {', '.join(DATAMODELS)}"
            self.diagnostics.error("scxml.datamodel", message, self.root.at("datamodel"), hint)
            return "python"
        return cast(Datamodel, name)

    # Document

    def document(self) -> Document:
        root, extension = self.root, self.extension
        events = children_named(root, "interlock:events")
        scripts = children_named(root, "script")
        binding = self.extension.choice(root, "binding", ("early", "late"), "early", "")
        return Document(
            kind=self.kind,
            root=self._root(),
            dialect=self.dialect,
            binding=binding,
            events=extension.events(events[0]) if events else None,
            script="\n".join(self.content.script(each) or "" for each in scripts) if scripts else None,
            source=self.source,
            **extension.extras(root, DOCUMENT),
        )

    def _kind(self, otherwise: str) -> str:
        """The kind: a dotted name of letters, digits, `_` and `-`."""
        name = (self.root.get("name") or "").strip() or otherwise
        kind = ".".join(filter(None, _NOT_KIND.sub("_", name).split(".")))
        if kind != name:
            self.diagnostics.warning(
                "scxml.name", f'the name is not a valid kind and becomes "{kind or "chart"}"', self.root.at("name")
            )
        return kind or "chart"

    # Keys and ids, which targets need

    def _root_outline(self) -> _Outline:
        """The outline of all states. The synthetic outer state that the writer put below the root is the root."""
        ids, children = state_ids(self.root), child_states(self.root)
        if self.outer is None:
            return self._outline(self.root, "", "", self._children(children, "", ids))
        inside = child_states(self.outer) + [each for each in children if each is not self.outer]
        order = self.extension.plain(self.outer, "order", list[str]) or []
        positions = {key: number for number, key in enumerate(order)}
        found = sorted(self._children(inside, "", ids), key=lambda each: positions.get(each.key, len(positions)))
        return self._outline(self.outer, "", "", found)

    def _outline(self, element: Element, key: str, path: str, children: list[_Outline]) -> _Outline:
        name = element.get("id") if path else None
        state_id = self.extension.text(element, "id") if name in (None, path) else name
        return _Outline(element=element, key=key, id=state_id, children=children)

    def _children(self, elements: list[Element], parent: str, ids: set[str]) -> list[_Outline]:
        keys = Keys(parent, ids)
        made = []
        for element in elements:
            name = element.get("id")
            if name is not None and not _ID.fullmatch(name):
                message = f'"{name}" is not an id: expected dotted words without white space, comma, *, = or #'
                self.diagnostics.error("name.invalid", message, element.at("id"))
            key = (
                keys.anonymous(str(tag(element)))
                if name is None
                else keys.named(name, self.extension.text(element, "key"))
            )
            path = f"{keys.prefix}{key}"
            made.append(self._outline(element, key, path, self._children(child_states(element), path, ids)))
        return made

    # States

    def _root(self) -> State:
        state = self._state(self.outline, 0)
        if self.outer is None:
            return state
        notes = self._with_notes(state, self.root)
        return replace(notes, context=self._fields(self.root), location=self.root.location)

    def _state(self, outline: _Outline, index: int) -> State:
        element, key = outline.element, outline.key
        kind: StateType = "state" if index == 0 and tag(element) != "parallel" else cast(StateType, tag(element))
        content = self.content
        transitions, results = ((), {}) if kind == "history" else self._transitions(element, index)
        invokes = [
            self._invoke(each, key, results.get(f"done {number}", ()), results.get(f"error {number}", ()))
            for number, each in enumerate(children_named(element, "invoke"))
        ]
        default = self._default(element, max(self.tree.parents[index], 0)) if kind == "history" else None
        state = State(
            key=key,
            id=outline.id,
            type=kind,
            initial=self._initial(element, index),
            states=tuple(map(self._state, outline.children, self.tree.children[index])),
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
            output=next((content.payload(each) for each in children_named(element, "donedata")), None),
            saga=next((self._saga(each, index) for each in children_named(element, "interlock:saga")), None),
            location=element.location,
        )
        return self._with_notes(state, element)

    def _with_notes(self, state: State, element: Element) -> State:
        """The state with the attributes of our namespace."""
        return replace(state, **self.extension.extras(element, STATE))

    def _fields(self, element: Element) -> tuple[Field, ...]:
        return tuple(
            self._field(data)
            for model in children_named(element, "datamodel")
            for data in children_named(model, "data")
        )

    def _field(self, data: Element) -> Field:
        name = data.get("id") or ""
        if not _FIELD.fullmatch(name):
            message = f'"{name}" is not a valid field name: it must not be empty or contain white space or a dot'
            self.diagnostics.error("scxml.data", message, data.at("id"))
        value = self.content.inline(data)
        if data.get("src") is not None:
            text = self.content.load(data, "src")
            value = UNSET if text is None else parse_text(text)
        return replace(self.extension.field(name, data), default=value)

    # Transitions

    def _targets(self, element: Element, scope: int, write: TargetWriter) -> tuple[str, ...]:
        """The targets of an element: the original texts if the writer kept them, else texts made from the ids."""
        texts = self.extension.plain(element, "target", list[str])
        return self._target_texts(element.get("target"), scope, write) if texts is None else tuple(texts)

    def _target_texts(self, ids: str | None, scope: int, write: TargetWriter) -> tuple[str, ...]:
        """Ids as targets of a document; `scope` is the state in which they are written."""
        found = [(name, self.tree.by_id.get(name)) for name in (ids or "").split()]
        return tuple(f"#{name}" if index is None else write(self.tree, scope, index) for name, index in found)

    def _initial(self, element: Element, index: int) -> Initial | None:
        elements, text = children_named(element, "initial"), element.get("initial")
        if text is not None and elements:
            self.diagnostics.error(
                "scxml.exclusive", "`initial` must be an attribute or an element, not both", element.location
            )
        if (text is not None or elements) and not self.tree.children[index]:
            message = "`initial` is only allowed in a state with child states"
            self.diagnostics.error("scxml.initial", message, element.location)
            return None
        if elements:
            return self._default(elements[0], index)
        if text is None:
            return None
        texts = self.extension.plain(element, "initial", list[str])
        targets = self._target_texts(text, index, child_target_text) if texts is None else tuple(texts)
        return Initial(targets=targets, location=element.at("initial"))

    def _default(self, element: Element, parent: int) -> Initial:
        """The transition inside `initial` or `history`: targets and actions only."""
        found = children_named(element, "transition")
        targets = self._targets(found[0], parent, child_target_text) if found else ()
        if len(found) != 1 or found[0].get("target") is None:
            message = f"<{element.name}> must have exactly one transition, with a target"
            self.diagnostics.error("scxml.default", message, element.location)
        elif found[0].get("event") is not None or found[0].get("cond") is not None:
            message = f"the transition of <{element.name}> must not have `event` or `cond`"
            self.diagnostics.error("scxml.default", message, found[0].location)
        actions = self.content.block(found[0]) if found else ()
        return Initial(targets=targets, actions=actions, location=element.location)

    def _transitions(
        self, element: Element, index: int
    ) -> tuple[tuple[Transition, ...], dict[str, tuple[Transition, ...]]]:
        """The transitions of a state, and separately those for the results of its invokes."""
        made: list[Transition] = []
        results: dict[str, tuple[Transition, ...]] = {}
        for each in children_named(element, "transition"):
            result = self.extension.text(each, "result")
            if result is not None:
                results[result] = (*results.get(result, ()), self._result(each, index))
                continue
            transition = self._transition(each, index)
            unmatched = bool(each.get("event")) and not transition.events
            if not unmatched or transition.origin not in ("on", "transitions"):
                made.append(transition)
        return tuple(made), results

    def _result(self, element: Element, index: int) -> Transition:
        """A transition for the result of an invoke or a saga; the compiler creates its descriptor."""
        origin = self.extension.choice(element, "origin", get_args(Origin), "on")
        return replace(self._transition(element, index), origin=origin, events=())

    def _events(self, element: Element) -> tuple[str, ...]:
        """The descriptors of a transition. An invalid one is reported and left out, because it matches no event."""
        found = (element.get("event") or "").split()
        for each in found:
            if not _DESCRIPTOR.fullmatch(each):
                message = f'"{each}" is not an event descriptor; it matches no event'
                self.diagnostics.warning("scxml.event", message, element.at("event"), "to match every event, write *")
        return tuple(each for each in found if _DESCRIPTOR.fullmatch(each))

    def _transition(self, element: Element, index: int) -> Transition:
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
            targets=self._targets(element, index, target_text),
            guard=self.content.guard(element),
            actions=self.content.block(element),
            reenter=reenter,
            delay=extension.value(element, "delay"),
            location=element.location,
            **extension.extras(element, TRANSITION),
        )

    # Invokes and sagas

    def _invoke(
        self, element: Element, key: str, done: tuple[Transition, ...], error: tuple[Transition, ...]
    ) -> Invoke:
        content, extension = self.content, self.extension
        kind = self._invoke_type(element)
        name = element.get("id") if extension.text(element, "auto") is None else None
        takes_chart = kind != "handler" and bool(children_named(element, "content"))
        src = self._content_chart(element, name or key) if takes_chart else self._src(element, name or key, kind)
        params = element if not takes_chart else _without_content(element)
        given = extension.text(element, "input") is not None
        return Invoke(
            src=src,
            id=name,
            id_location=content.id_location(element),
            type=kind,
            input=extension.value(element, "input") if given else content.payload(params),
            autoforward=self.extension.choice(element, "autoforward", ("true", "false"), "false", "") == "true",
            finalize=self._finalize(element),
            done=done,
            error=error,
            location=element.location,
            **extension.extras(element, INVOKE),
        )

    def _invoke_type(self, element: Element) -> Value:
        kind = self.content.either(element, "type", "typeexpr")
        if kind is None or kind in CHART_TYPES:
            return "chart"
        return "handler" if kind == HANDLER_TYPE else kind

    def _src(self, element: Element, name: str, kind: Value) -> str | Expression | Document | None:
        """The value of `src` or `srcexpr`: a handler, a chart by name, or a file, which is read now if possible."""
        src = self.content.either(element, "src", "srcexpr")
        if not isinstance(src, str) or kind != "chart":
            return cast(str | Expression | None, src)
        if src.startswith("interlock:"):
            return src.removeprefix("interlock:")
        if self.loader is None:
            message = f'"{src}" is not loaded; it is used as the name of a registered chart'
            self.diagnostics.warning("scxml.src", message, element.at("src"), ALLOW_SRC_HINT)
            return src
        text = self.content.load(element, "src")
        return None if text is None else self._nested_text(text, src, name)

    def _nested_text(self, text: str, source: str, name: str) -> Document | None:
        root = parse_xml(text, source=source, diagnostics=self.diagnostics)
        return None if root is None else self._nested(root, source, name)

    def _content_chart(self, element: Element, name: str) -> Expression | Document | str | None:
        inside = children_named(element, "content")[0]
        if element.get("src") is not None or element.get("srcexpr") is not None:
            self.diagnostics.error(
                "scxml.exclusive", "<invoke> must have `src` or <content>, not both", element.location
            )
        charts = children_named(inside, "scxml")
        if charts:
            return self._nested(charts[0], self.source, name)
        value = self.content.inline(inside)
        if isinstance(value, Expression):
            return value
        self.diagnostics.error("scxml.invoke", "the <content> of this invoke contains no <scxml>", inside.location)
        return None

    def _finalize(self, element: Element) -> Block | None:
        """The block of `finalize`. An empty one assigns every location of the invoke from the result."""
        found = children_named(element, "finalize")
        if not found:
            return None
        block = self.content.block(found[0])
        names = [(name, name) for name in (element.get("namelist") or "").split()]
        located = [each for each in children_named(element, "param") if each.get("location") is not None]
        names += [(each.get("name") or "", each.get("location") or "") for each in located]
        return block or tuple(self._assign_result(name, location, found[0]) for name, location in names)

    def _assign_result(self, name: str, location: str, element: Element) -> If:
        answered = Expression(f"event.data != null and has(event.data, {name!r})", element.location)
        value = Expression(f"get(event.data, {name!r})", element.location)
        path = read_path(location, self.content.datamodel)
        guard = GuardExpression(expression=answered, location=element.location)
        return If(
            branches=((guard, (Assign(values=((path, value),), location=element.location),)),),
            location=element.location,
        )

    def _saga(self, element: Element, index: int) -> Saga:
        def inside(name: str) -> tuple[Transition, ...]:
            found = (
                each
                for group in children_named(element, f"interlock:{name}")
                for each in children_named(group, "transition")
            )
            return tuple(self._result(each, index) for each in found)

        return Saga(
            steps=tuple(self._saga_step(each) for each in children_named(element, "interlock:step")),
            compensation=self.extension.choice(element, "compensation", ("reverse", "parallel", "none"), "reverse", ""),
            done=inside("done"),
            compensated=inside("compensated"),
            error=inside("error"),
            location=element.location,
        )

    def _saga_step(self, element: Element) -> SagaStep:
        def call(name: str) -> SagaCall | None:
            found = children_named(element, name)
            return self._saga_call(found[0]) if found else None

        do = call("interlock:call")
        if do is None:
            self.diagnostics.error("scxml.required", "a step of a saga must have <interlock:call>", element.location)
        return SagaStep(
            id=element.get("id") or "",
            do=do or SagaCall(src=""),
            guard=self.content.guard(element),
            compensate=call("interlock:compensate"),
            retry=self.extension.model(element, "retry", SagaStep),
            timeout=element.get("timeout"),
            location=element.location,
        )

    def _saga_call(self, element: Element) -> SagaCall:
        return SagaCall(
            src=element.get("src") or "",
            input=self.content.payload(element),
            output=element.get("output"),
            key=self.extension.value(element, "idempotency"),
            location=element.location,
        )

    def _nested(self, root: Element, source: str, name: str) -> Document | None:
        return read_root(
            root, kind=f"{self.kind}.{name}", source=source, diagnostics=self.diagnostics, loader=self.loader
        )


def child_states(element: Element) -> list[Element]:
    """The children that are states."""
    return [each for each in element.elements if tag(each) in STATE_TAGS]


def read_root(
    root: Element, *, kind: str, source: str, diagnostics: Diagnostics, loader: SourceLoader | None
) -> Document | None:
    """The document of a root element; None if the structure is unusable."""
    if not check_structure(root, diagnostics):
        return None
    return DocumentReader(root, kind=kind, source=source, diagnostics=diagnostics, loader=loader).document()


def _without_content(element: Element) -> Element:
    return replace(element, children=[each for each in element.elements if tag(each) != "content"])

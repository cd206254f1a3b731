"""A document as SCXML: states, transitions, timers, context, invokes and sagas.

Rule 1: other tools get SCXML that behaves alike: `after` as send and cancel, `onDone` as `done.state`, transitions of
        the root in a synthetic outer state. An attribute of our namespace marks each, and the reader restores the
        original.
Rule 2: expressions are written with SCXML's names (datamodel `python`). If one of them cannot be read back, the whole
        file uses our own names (datamodel `interlock`).
Rule 3: generated events (`after`, `onDone`, results) are exact here and prefixes in SCXML. Where one such name is a
        prefix of another, a condition on the event's name is added, and the original guard is kept in our namespace.
"""

from __future__ import annotations

import re
from dataclasses import replace

from interlock.definition.format import WriteResult
from interlock.definition.scxml.expressions import Datamodel, expression_text, to_scxml
from interlock.definition.scxml.extension import (
    extra_attributes,
    field_json,
    guard_json,
    model_json,
    plain_json,
    value_json,
)
from interlock.definition.scxml.ids import child_target_text, default_key, target_text
from interlock.definition.scxml.structure import CHART_TYPES, HANDLER_TYPE, INTERLOCK, SCXML
from interlock.definition.scxml.write_content import ContentWriter, Losses, Untranslatable, element
from interlock.definition.source.xml import Element, print_xml, remove_invalid_characters
from interlock.definition.vocabulary.chart import DOCUMENT, STATE
from interlock.definition.vocabulary.parts import INVOKE, TRANSITION
from interlock.model.diagnostics import Diagnostics
from interlock.model.document.actions import Expression, Guard, Value
from interlock.model.document.document import Document, Initial, Invoke, Saga, SagaCall, SagaStep, State, Transition
from interlock.model.document.field import UNSET, Field
from interlock.model.document.targets import TargetIndex, Unresolved

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")

Attributes = dict[str, str | None]


def write_scxml(document: Document) -> WriteResult:
    """The document as SCXML text, with a diagnostic `export.<what>` for everything that other tools ignore."""
    diagnostics = Diagnostics()
    root = write_root(document, diagnostics)
    names = {("", "xmlns"): SCXML}
    if _uses_extension(root, diagnostics):
        names["", "xmlns:interlock"] = INTERLOCK
    root.attributes = names | root.attributes
    return WriteResult(text=print_xml(root), diagnostics=diagnostics.sorted())


def _uses_extension(root: Element, diagnostics: Diagnostics) -> bool:
    """Whether a name of our namespace is used. Removes and reports characters that XML cannot represent."""
    used, stack = False, [root]
    while stack:
        each = stack.pop()
        used = used or each.name.startswith("interlock:")
        for key, text in each.attributes.items():
            used = used or key[1].startswith("interlock:")
            each.attributes[key] = _clean(text, f"{key[1]} of <{each.name}>", diagnostics)
        each.children = [
            _clean(one, f"<{each.name}>", diagnostics) if isinstance(one, str) else one for one in each.children
        ]
        stack += each.elements
    return used


def _clean(text: str, where: str, diagnostics: Diagnostics) -> str:
    clean = remove_invalid_characters(text)
    if clean != text:
        diagnostics.error(
            "export.characters", f"{where} contains characters that XML cannot represent; they are removed"
        )
    return clean


def write_root(document: Document, diagnostics: Diagnostics) -> Element:
    """The `<scxml>` element of a document, in the first datamodel that can represent its expressions."""
    attempt = Diagnostics()
    try:
        root = DocumentWriter(document, "python", attempt).root()
    except Untranslatable:
        attempt = Diagnostics()
        root = DocumentWriter(document, "interlock", attempt).root()
    diagnostics.items += attempt.items
    return root


class DocumentWriter:
    """Writes one document; an inline chart gets another writer."""

    def __init__(self, document: Document, datamodel: Datamodel, diagnostics: Diagnostics) -> None:
        self.document, self.diagnostics = document, diagnostics
        self.tree = TargetIndex(document)
        self.losses = Losses(diagnostics)
        self.content = ContentWriter(datamodel, self.losses)
        self.outer = self._outer_id()
        self.event_names = self._generated()

    def _outer_id(self) -> str | None:
        """The id of the synthetic state for what a root of SCXML cannot have; None if it is not needed."""
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
            self.tree.resolve_target(index, text)
            for index, state in enumerate(self.tree.states)
            for each in state.transitions
            for text in each.targets
        )
        return any(each == 0 for each in found)

    # Document

    def root(self) -> Element:
        document = self.document
        self._report_losses()
        attributes: Attributes = {
            "version": "1.0",
            "name": document.kind,
            "datamodel": self.content.datamodel,
            "binding": None if document.binding == "early" else document.binding,
            "interlock:dialect": None if document.dialect == "scxml" else document.dialect,
        }
        attributes |= {f"interlock:{name}": text for name, text in extra_attributes(DOCUMENT, document)}
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

    def _report_losses(self) -> None:
        document, report = self.document, self.losses.report
        if document.dialect == "xstate":
            report("dialect", "the chart follows the rules of XState; other tools use the rules of SCXML")
        if document.unhandled in ("reject", "defer") or (document.dialect == "interlock" and not document.unhandled):
            report("unhandled", "Interlock does not ignore an event that no transition takes", severity="info")
        if document.events is not None:
            report("events", "declared events, with payloads and roles, are an extension", severity="info")

    def _outer_state(self, name: str) -> list[Element]:
        """The synthetic state with all states except finals, which end the entity only at the top level."""
        state = self.document.root
        finals = [each for each in self.tree.children[0] if self.tree.states[each].type == "final"]
        inside = [each for each in self.tree.children[0] if each not in finals]
        if state.type == "parallel" and (state.transitions or state.exit or state.entry):
            self.losses.report("root", "other tools exit and enter the parallel root where Interlock does not")
        order = [each.key for each in state.states] if finals else None
        attributes: Attributes = {"id": name, "interlock:root": "true", "interlock:id": state.id}
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
            message = f'"{name}" is not an XML name; other tools may refuse it'
            self.diagnostics.warning("export.id", message, state.location)
        attributes: Attributes = {"id": name}
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
        """The default of a history. SCXML requires one, so the initial state of its parent replaces a missing one."""
        parent = self.tree.parents[index]
        if state.targets:
            return self._default_transition(parent, Initial(targets=state.targets, actions=state.actions))
        initial = self.tree.states[parent].initial
        first = next((each for each in self.tree.children[parent] if self.tree.states[each].type != "history"), index)
        targets = initial.targets if initial else (f"#{self.tree.ids[first]}",)
        made = self._default_transition(parent, Initial(targets=targets, actions=state.actions))
        made.attributes["", "interlock:target"] = "[]"
        return made

    def _notes(self, state: State) -> Attributes:
        """The attributes of our namespace for a state."""
        known = dict(extra_attributes(STATE, state))
        for name in known:
            if name != "description":
                self.losses.report(name, f"`{name}` is an extension", state.location, "info")
        return {f"interlock:{name}": text for name, text in known.items()}

    def _datamodel(self, state: State) -> list[Element]:
        return [element("datamodel", children=map(self._field, state.context))] if state.context else []

    def _field(self, field: Field) -> Element:
        typed = replace(field, name="", default=UNSET)
        text = None
        if typed != Field(name=""):
            self.losses.report("types", "types and bounds of fields are an extension", field.location, "info")
            text = field_json(typed)
        value = {} if field.default is UNSET else self.content.value(field.default)
        return element("data", {"id": field.name} | value | {"interlock:field": text})

    def _initial_attributes(self, index: int) -> Attributes:
        state = self.tree.states[index]
        initial = state.initial
        if initial is None or initial.actions or state.type != "state" or not state.states:
            return {}
        names, texts = self._inner_targets(index, initial)
        return {"initial": names, "interlock:initial": texts}

    def _inside(self, index: int) -> list[Element]:
        """The content of a state without its context and its child states."""
        state, content = self.tree.states[index], self.content
        content.inside = lambda text: self._inside_id(index, text)
        children = []
        if state.initial is not None and state.initial.actions and state.type == "state" and state.states:
            children.append(element("initial", children=[self._default_transition(index, state.initial)]))
        children += [element("onentry", children=content.actions(block)) for block in state.entry]
        children += [element("onexit", children=content.actions(block)) for block in state.exit]
        children += self._timers(index)
        children += self._transitions(index)
        for position, invoke in enumerate(state.invokes):
            children.append(self._invoke(index, position, invoke))
        if state.saga is not None:
            self.losses.report(
                "saga", "a saga is an extension; other tools see a state without its steps", state.saga.location
            )
            children.append(self._saga(index, state.saga))
        return children

    # Names

    def _generated(self) -> frozenset[str]:
        """Every event name that the chart generates."""
        found = set()
        for index, state in enumerate(self.tree.states):
            name = self._name(index)
            found.add(f"done.state.{name}")
            found.update(event for _, event in self._delays(index))
            for position, invoke in enumerate(state.invokes):
                found.add(f"done.invoke.{self._invoke_id(index, position, invoke) or f'{name}.auto'}")
        return frozenset(found | {each.replace("done.invoke", "error.invoke") for each in found})

    def _name(self, index: int) -> str:
        """The id of a state in the file."""
        return self.tree.ids[index] if index > 0 else self.outer or ""

    # Targets

    def _targets(self, index: int, texts: tuple[str, ...]) -> Attributes:
        """A transition's targets: ids, and the original texts if the reader would write others."""
        found = [self.tree.resolve_target(index, text) for text in texts]
        usual = [None if isinstance(each, Unresolved) else target_text(self.tree, index, each) for each in found]
        names, written = self._named(texts, found, usual)
        return {"target": names, "interlock:target": written}

    def _inner_targets(self, index: int, initial: Initial) -> tuple[str | None, str | None]:
        """The same for the initial state, or for the default of a history."""
        found = [self.tree.resolve_child(index, text) for text in initial.targets]
        usual = [None if isinstance(each, Unresolved) else child_target_text(self.tree, index, each) for each in found]
        return self._named(initial.targets, found, usual)

    def _named(
        self, texts: tuple[str, ...], found: list[int | Unresolved], usual: list[str | None]
    ) -> tuple[str | None, str | None]:
        names = []
        for text, each in zip(texts, found, strict=True):
            if isinstance(each, Unresolved):
                self.diagnostics.error("export.target", f'the target "{text}" cannot be resolved: {each.message}')
                names.append(text.lstrip("#."))
            else:
                names.append(self._name(each))
        exact = list(texts) == usual and 0 not in found
        return " ".join(names) or None, None if exact else plain_json(list(texts))

    def _default_transition(self, index: int, initial: Initial) -> Element:
        """The transition inside `initial` or `history`."""
        names, texts = self._inner_targets(index, initial)
        return element(
            "transition", {"target": names, "interlock:target": texts}, self.content.actions(initial.actions)
        )

    # Transitions

    def _transitions(self, index: int) -> list[Element]:
        """Every transition of a state in the order in which they are tried: results of its invokes, then its own."""
        state = self.tree.states[index]
        made = []
        for position, invoke in enumerate(state.invokes):
            name = self._invoke_id(index, position, invoke)
            for word, found in (("done", invoke.done), ("error", invoke.error)):
                event, mark = f"{word}.invoke.{name}", f"{word} {position}"
                made += [self._result_transition(index, each, event, {"interlock:result": mark}) for each in found]
        made += [self._own_transition(index, each) for each in state.transitions]
        return made

    def _result_transition(self, index: int, transition: Transition, event: str | None, marks: Attributes) -> Element:
        origin = None if transition.origin == "on" else transition.origin
        return self._transition(index, transition, event, marks | {"interlock:origin": origin})

    def _own_transition(self, index: int, transition: Transition) -> Element:
        match transition.origin:
            case "after":
                marks: Attributes = {
                    "interlock:origin": "after",
                    "interlock:delay": value_json(transition.delay),
                }
                return self._transition(index, transition, self._after_event(index, transition.delay), marks)
            case "onDone":
                return self._transition(
                    index, transition, f"done.state.{self._name(index)}", {"interlock:origin": "onDone"}
                )
            case origin:
                usual = "transitions" if self.document.dialect == "scxml" else "on" if transition.events else "always"
                return self._transition(
                    index, transition, None, {"interlock:origin": None if origin == usual else origin}
                )

    def _transition(self, index: int, transition: Transition, event: str | None, marks: Attributes) -> Element:
        """One transition; `event` is the generated name, if it has one."""
        if transition.roles is not None:
            self.losses.report("roles", "other tools do not check roles", transition.location)
        name = event or " ".join(transition.events) or None
        attributes: Attributes = {"event": name} | self._guard(transition.guard, event)
        attributes |= self._targets(index, transition.targets) | self._type(index, transition)
        attributes |= marks | {f"interlock:{key}": text for key, text in extra_attributes(TRANSITION, transition)}
        return element("transition", attributes, self.content.actions(transition.actions))

    def _guard(self, guard: Guard | None, event: str | None) -> Attributes:
        if event is None or not any(each.startswith(f"{event}.") for each in self.event_names):
            return self.content.guard(guard)
        text = f"event.name == {event!r}"
        if guard is not None:
            text = f"{text} and ({self.content.condition(guard)})"
        return {"cond": to_scxml(text, self.content.datamodel), "interlock:guard": guard_json(guard)}

    def _type(self, index: int, transition: Transition) -> Attributes:
        """`type`. The root is never exited, so its transitions are internal to the synthetic state."""
        reenter = transition.reenter
        if index == 0 and transition.targets and reenter is not False:
            return {"type": "internal", "interlock:reenter": plain_json(reenter)}
        if reenter and self.document.dialect == "scxml":
            return {"type": "external", "interlock:reenter": "true"}
        return {} if reenter is None else {"type": "external" if reenter else "internal"}

    # Timers

    def _delays(self, index: int) -> list[tuple[Value, str]]:
        """The delays of a state's `after`, one timer each, with the events they send (S38)."""
        found: dict[str, tuple[Value, str]] = {}
        number = 0
        for each in self.tree.states[index].transitions:
            text = expression_text(each.delay)
            if each.origin != "after" or text in found:
                continue
            mark = each.delay
            if isinstance(mark, Expression):
                mark, number = number, number + 1
            found[text] = (each.delay, f"after.{mark}.{self._name(index)}")
        return list(found.values())

    def _after_event(self, index: int, delay: Value) -> str:
        return next(event for known, event in self._delays(index) if expression_text(known) == expression_text(delay))

    def _timers(self, index: int) -> list[Element]:
        """The timers of `after` for other tools: a send on entry, a cancel on exit."""
        made, mark = [], {"interlock:generated": "after"}
        for delay, event in self._delays(index):
            attributes: Attributes = {"event": event, "id": event}
            sent = element("send", attributes | self.content.delay(delay))
            made.append(element("onentry", {**mark}, [sent]))
            made.append(element("onexit", {**mark}, [element("cancel", {"sendid": event})]))
        return made

    # Invokes and sagas

    def _invoke_id(self, index: int, position: int, invoke: Invoke) -> str | None:
        """The id of an invoke; an invoke with transitions for its result always has one."""
        if invoke.id is not None or not (invoke.done or invoke.error):
            return invoke.id
        return f"{self._name(index)}.{position}"

    def _invoke(self, index: int, position: int, invoke: Invoke) -> Element:
        kind = (
            {"chart": CHART_TYPES[0], "handler": HANDLER_TYPE}.get(invoke.type)
            if isinstance(invoke.type, str)
            else None
        )
        if invoke.type == "handler":
            self.losses.report("invoke", "a handler is called by name", invoke.location)
        src = f"interlock:{invoke.src}" if invoke.type == "chart" and isinstance(invoke.src, str) else invoke.src
        name = self._invoke_id(index, position, invoke)
        attributes: Attributes = self.content.id_location(invoke.id_location, name) | {
            "id": name,
            "interlock:auto": "true" if name != invoke.id else None,
            "autoforward": "true" if invoke.autoforward else None,
        }
        attributes |= self.content.either(kind or invoke.type, "type", "typeexpr")
        if not isinstance(src, Document):
            attributes |= self.content.either(src, "src", "srcexpr")
        attributes |= self._delivery_attributes(invoke)
        children = []
        if (invoke.input and isinstance(invoke.input, dict)) or invoke.type == "handler":
            children += self.content.payload(invoke.input)
        elif invoke.input is not None:
            attributes["interlock:input"] = value_json(invoke.input)
        if invoke.finalize is not None:
            children.append(element("finalize", children=self.content.actions(invoke.finalize)))
        if isinstance(invoke.src, Document):
            children.append(element("content", children=[write_root(invoke.src, self.diagnostics)]))
        return element("invoke", attributes, children)

    def _delivery_attributes(self, invoke: Invoke) -> Attributes:
        known = dict(extra_attributes(INVOKE, invoke))
        for name in known:
            self.losses.report(name, f"`{name}` of an invoke is an extension", invoke.location)
        return {f"interlock:{name}": text for name, text in known.items()}

    def _saga(self, index: int, saga: Saga) -> Element:
        """A saga, in our namespace only."""
        children = [self._saga_step(each) for each in saga.steps]
        for name, found in (("done", saga.done), ("compensated", saga.compensated), ("error", saga.error)):
            if found:
                inside = [self._result_transition(index, each, None, {}) for each in found]
                children.append(element(f"interlock:{name}", children=inside))
        compensation = None if saga.compensation == "reverse" else saga.compensation
        return element("interlock:saga", {"compensation": compensation}, children)

    def _saga_step(self, step: SagaStep) -> Element:
        attributes = {"id": step.id} | self.content.guard(step.guard) | {"timeout": step.timeout}
        attributes["interlock:retry"] = None if step.retry is None else model_json(step.retry)
        children = [self._saga_call("call", step.do)]
        if step.compensate is not None:
            children.append(self._saga_call("compensate", step.compensate))
        return element("interlock:step", attributes, children)

    def _saga_call(self, name: str, call: SagaCall) -> Element:
        key = None if call.key is None else value_json(call.key)
        attributes: Attributes = {"src": call.src, "output": call.output, "interlock:idempotency": key}
        return element(f"interlock:{name}", attributes, self.content.payload(call.input))

    def _inside_id(self, index: int, text: str) -> str:
        found = self.tree.resolve_in_state(index, text)
        return text if isinstance(found, Unresolved) else self.tree.ids[found]

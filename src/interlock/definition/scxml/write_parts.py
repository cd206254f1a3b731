"""Transitions, timers, invokes and sagas as SCXML elements.

Rule 1: what we make events for (`after`, `onDone`, results) is exact here and a prefix in SCXML; where one such name is
        a prefix of another, a condition on the event's name is added, and the guard as written stands beside it.
Rule 2: every mark that the reader looks for is set in this file and in `scxml_write`, nowhere else.
"""

from __future__ import annotations

from interlock.definition.scxml.expressions import exported, source
from interlock.definition.scxml.extension import guard_json, model_json, plain_json, value_json, written_extras
from interlock.definition.scxml.ids import inner_text, target_text
from interlock.definition.scxml.structure import CHART_TYPES, HANDLER_TYPE
from interlock.definition.scxml.write_content import ContentWriter, element
from interlock.definition.source.xml import Element
from interlock.definition.vocabulary.parts import INVOKE, TRANSITION
from interlock.model.diagnostics import Findings
from interlock.model.document.actions import Expression, Guard, Value
from interlock.model.document.document import Document, Initial, Invoke, Saga, SagaCall, SagaStep, Transition
from interlock.model.document.targets import Tree, Unresolved

Attributes = dict[str, str | None]


class PartWriter:
    """Writes what stands in the states of one document. `outer`: the id by which the root is a target."""

    def __init__(self, tree: Tree, content: ContentWriter, findings: Findings, outer: str) -> None:
        self.tree, self.content, self.findings, self.outer = tree, content, findings, outer
        self.losses = content.losses
        self.dialect = tree.document.dialect
        self.names = self._generated()

    def _generated(self) -> frozenset[str]:
        """Every event name that the chart may make by itself."""
        found = set()
        for index, state in enumerate(self.tree.states):
            name = self.name(index)
            found.add(f"done.state.{name}")
            found.update(event for _, event in self.delays(index))
            for position, invoke in enumerate(state.invokes):
                found.add(f"done.invoke.{self.invoke_id(index, position, invoke) or f'{name}.auto'}")
        return frozenset(found | {each.replace("done.invoke", "error.invoke") for each in found})

    def name(self, index: int) -> str:
        """The id by which a state is known in the file."""
        return self.tree.ids[index] if index > 0 else self.outer

    # Targets

    def targets(self, index: int, texts: tuple[str, ...]) -> Attributes:
        """A transition's targets: ids, and the texts as written where the reader would write others."""
        found = [self.tree.target(index, text) for text in texts]
        usual = [None if isinstance(each, Unresolved) else target_text(self.tree, index, each) for each in found]
        names, written = self._named(texts, found, usual)
        return {"target": names, "interlock:target": written}

    def inner(self, index: int, initial: Initial) -> tuple[str | None, str | None]:
        """The same for where a state begins, or a history in it."""
        found = [self.tree.inner(index, text) for text in initial.targets]
        usual = [None if isinstance(each, Unresolved) else inner_text(self.tree, index, each) for each in found]
        return self._named(initial.targets, found, usual)

    def _named(
        self, texts: tuple[str, ...], found: list[int | Unresolved], usual: list[str | None]
    ) -> tuple[str | None, str | None]:
        names = []
        for text, each in zip(texts, found, strict=True):
            if isinstance(each, Unresolved):
                self.findings.error("export.target", f'the target "{text}" means no state: {each.message}')
                names.append(text.lstrip("#."))
            else:
                names.append(self.name(each))
        exact = list(texts) == usual and 0 not in found
        return " ".join(names) or None, None if exact else plain_json(list(texts))

    def default(self, index: int, initial: Initial) -> Element:
        """The transition inside `initial` or `history`."""
        names, texts = self.inner(index, initial)
        return element(
            "transition", {"target": names, "interlock:target": texts}, self.content.actions(initial.actions)
        )

    # Transitions

    def transitions(self, index: int) -> list[Element]:
        """Every transition of a state in the order in which it is tried: results of its invokes, then its own."""
        state = self.tree.states[index]
        made = []
        for position, invoke in enumerate(state.invokes):
            name = self.invoke_id(index, position, invoke)
            for word, found in (("done", invoke.done), ("error", invoke.error)):
                event, mark = f"{word}.invoke.{name}", f"{word} {position}"
                made += [self._result(index, each, event, {"interlock:result": mark}) for each in found]
        made += [self._own(index, each) for each in state.transitions]
        return made

    def _result(self, index: int, transition: Transition, event: str | None, marks: Attributes) -> Element:
        origin = None if transition.origin == "on" else transition.origin
        return self.transition(index, transition, event, marks | {"interlock:origin": origin})

    def _own(self, index: int, transition: Transition) -> Element:
        match transition.origin:
            case "after":
                marks: Attributes = {
                    "interlock:origin": "after",
                    "interlock:delay": value_json(transition.delay),
                }
                return self.transition(index, transition, self._after_event(index, transition.delay), marks)
            case "onDone":
                return self.transition(
                    index, transition, f"done.state.{self.name(index)}", {"interlock:origin": "onDone"}
                )
            case origin:
                usual = "transitions" if self.dialect == "scxml" else "on" if transition.events else "always"
                return self.transition(
                    index, transition, None, {"interlock:origin": None if origin == usual else origin}
                )

    def transition(self, index: int, transition: Transition, event: str | None, marks: Attributes) -> Element:
        """One transition; `event` is the name that we make for it, if we do."""
        if transition.roles is not None:
            self.losses.tell("roles", "roles are not checked by other tools", transition.place)
        name = event or " ".join(transition.events) or None
        attributes: Attributes = {"event": name} | self._guard(transition.guard, event)
        attributes |= self.targets(index, transition.targets) | self._type(index, transition)
        attributes |= marks | {f"interlock:{key}": text for key, text in written_extras(TRANSITION, transition)}
        return element("transition", attributes, self.content.actions(transition.actions))

    def _guard(self, guard: Guard | None, event: str | None) -> Attributes:
        if event is None or not any(each.startswith(f"{event}.") for each in self.names):
            return self.content.guard(guard)
        text = f"event.name == {event!r}"
        if guard is not None:
            text = f"{text} and ({self.content.condition(guard)})"
        return {"cond": exported(text, self.content.datamodel), "interlock:guard": guard_json(guard)}

    def _type(self, index: int, transition: Transition) -> Attributes:
        """`type`. The root is never left, so its transitions are internal to the synthetic state that stands for it."""
        reenter = transition.reenter
        if index == 0 and transition.targets and reenter is not False:
            return {"type": "internal", "interlock:reenter": plain_json(reenter)}
        if reenter and self.dialect == "scxml":
            return {"type": "external", "interlock:reenter": "true"}
        return {} if reenter is None else {"type": "external" if reenter else "internal"}

    # Timers

    def delays(self, index: int) -> list[tuple[Value, str]]:
        """The delays of a state's `after`, one timer each, with the events they send (S38)."""
        found: dict[str, tuple[Value, str]] = {}
        number = 0
        for each in self.tree.states[index].transitions:
            text = source(each.delay)
            if each.origin != "after" or text in found:
                continue
            mark = each.delay
            if isinstance(mark, Expression):
                mark, number = number, number + 1
            found[text] = (each.delay, f"after.{mark}.{self.name(index)}")
        return list(found.values())

    def _after_event(self, index: int, delay: Value) -> str:
        return next(event for known, event in self.delays(index) if source(known) == source(delay))

    def timers(self, index: int) -> list[Element]:
        """What other tools need for `after`: a send when the state is entered, a cancel when it is left."""
        made, mark = [], {"interlock:generated": "after"}
        for delay, event in self.delays(index):
            attributes: Attributes = {"event": event, "id": event}
            sent = element("send", attributes | self.content.delay(delay))
            made.append(element("onentry", {**mark}, [sent]))
            made.append(element("onexit", {**mark}, [element("cancel", {"sendid": event})]))
        return made

    # Invokes and sagas

    def invoke_id(self, index: int, position: int, invoke: Invoke) -> str | None:
        """The id of an invoke; one that results are waited for has one in any case."""
        if invoke.id is not None or not (invoke.done or invoke.error):
            return invoke.id
        return f"{self.name(index)}.{position}"

    def invoke(self, index: int, position: int, invoke: Invoke) -> Element:
        """An invoke; an inline chart is put in by the caller."""
        kind = (
            {"chart": CHART_TYPES[0], "handler": HANDLER_TYPE}.get(invoke.type)
            if isinstance(invoke.type, str)
            else None
        )
        if invoke.type == "handler":
            self.losses.tell("invoke", "a handler is asked by name", invoke.place)
        src = f"interlock:{invoke.src}" if invoke.type == "chart" and isinstance(invoke.src, str) else invoke.src
        name = self.invoke_id(index, position, invoke)
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
        return element("invoke", attributes, children)

    def _delivery_attributes(self, invoke: Invoke) -> Attributes:
        known = dict(written_extras(INVOKE, invoke))
        for name in known:
            self.losses.tell(name, f"`{name}` of an invoke is an extension", invoke.place)
        return {f"interlock:{name}": text for name, text in known.items()}

    def saga(self, index: int, saga: Saga) -> Element:
        """A saga, in our namespace only."""
        children = [self._saga_step(each) for each in saga.steps]
        for name, found in (("done", saga.done), ("compensated", saga.compensated), ("error", saga.error)):
            if found:
                inside = [self._result(index, each, None, {}) for each in found]
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

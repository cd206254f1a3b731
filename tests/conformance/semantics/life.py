"""One entity as a trace of its states and actions: the language of the suite of numbered rules.

A definition is YAML without its first two lines. Every state is marked: `+key` is logged first on entry and `-key`
first on exit. The reference interpreter runs next to the kernel and must agree at every step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from textwrap import dedent
from typing import Any

from interlock.compiler.build import compile_document
from interlock.definition.yaml.format import FORMAT
from interlock.kernel.step import Kernel
from interlock.model.charts.chart import Chart
from interlock.model.document.actions import Log
from interlock.model.document.document import Document, State
from interlock.model.effect import Effect
from interlock.model.event import Event
from interlock.model.snapshot import Invocation, Parent, Timer
from interlock.model.step import Step
from tests.properties.agreement import difference, seen
from tests.properties.reference.interpreter import Interpreter

PARENT = Parent(entity="boss/1", invokeid="child", key="boss/1/1/0")


def read(text: str) -> Document:
    """The document of a definition that must be readable."""
    reading = FORMAT.read(f"interlock: 1\nkind: tale\n{dedent(text)}", source="tale.yaml")

    assert reading.document is not None, [str(each) for each in reading.diagnostics]
    return reading.document


def codes(text: str) -> set[str]:
    """The codes of the errors that a definition is refused for."""
    return {each.code for each in compile_document(read(text)).diagnostics if each.severity == "error"}


def compiled(document: Document) -> Chart:
    """The chart of a document that must be right."""
    compilation = compile_document(document)

    assert compilation.chart is not None, [str(each) for each in compilation.diagnostics]
    return compilation.chart


def marked(state: State) -> State:
    """The state and all below it with marks on entry and exit."""
    if state.type == "history":
        return state
    came, left = ((Log(value=f"{sign}{state.key}"),) for sign in "+-")
    inner = tuple(marked(each) for each in state.states)
    return replace(state, states=inner, entry=(came, *state.entry), exit=(left, *state.exit))


class Life:
    """An entity from its start on; each call is one step and answers with its trace."""

    def __init__(
        self,
        text: str,
        context: Mapping[str, Any] | None = None,
        *,
        parent: Parent | None = None,
        guards: Mapping[str, Callable[..., Any]] | None = None,
        assigns: Mapping[str, Callable[..., Any]] | None = None,
        time_ms: int = 0,
    ) -> None:
        document = read(text)
        root = replace(document.root, states=tuple(marked(each) for each in document.root.states))
        self.chart = compiled(replace(document, root=root))
        self.kernel = Kernel(self.chart, guards=guards, assigns=assigns)
        self.reference = Interpreter(self.chart, guards=guards, assigns=assigns)
        self.time_ms = time_ms
        arguments: dict[str, Any] = {"entity": "tale/1", "time_ms": time_ms, "parent": parent}
        self.step = self.kernel.start(context or {}, **arguments)
        self._compare(self.reference.start(context or {}, **arguments))

    def _compare(self, expected: Step) -> None:
        assert difference(seen(expected), seen(self.step)) is None, (seen(expected), seen(self.step))

    def give(self, event: Event) -> str:
        """Step by an event as the driver made it."""
        snapshot = self.step.snapshot
        self.step = self.kernel.step(snapshot, event)
        self._compare(self.reference.step(snapshot, event))
        return self.trace

    def send(self, name: str, data: Any = None, **fields: Any) -> str:
        """Step by an event from outside."""
        return self.give(Event(name, data=data, time_ms=self.time_ms, **fields))

    def send_all(self, *names: str) -> str:
        """Step by several events; the trace of the last."""
        return [self.send(each) for each in names][-1]

    def timer(self, name: str) -> Timer:
        """The pending timer of this name."""
        return next(each for each in self.step.snapshot.timers if each.name == name)

    def fire(self, timer: Timer) -> str:
        """Step by a timer that has come due."""
        self.time_ms = max(self.time_ms, timer.due_ms)
        source = f"timer/{timer.name}/{timer.version}"
        return self.give(Event(timer.event, data=timer.data, sendid=timer.id, time_ms=self.time_ms, source=source))

    def invoke(self, name: str) -> Invocation:
        """The active invoke of this id."""
        return next(each for each in self.step.snapshot.invokes if each.id == name)

    def answer(self, invocation: Invocation, name: str = "done", data: Any = None, **fields: Any) -> str:
        """Step by what an invoke says: `done`, `error`, or any other event name."""
        full = name
        if name in ("done", "error"):
            full, fields = f"{name}.invoke.{invocation.id}", {"type": "platform", **fields}
        source = f"invoke/{invocation.key}"
        event = Event(full, data=data, invokeid=invocation.id, source=source, time_ms=self.time_ms, **fields)
        return self.give(event)

    @property
    def trace(self) -> str:
        """Marks, logs and named actions of the last step, in order."""
        words = {"log": "value", "call": "name"}
        return " ".join(str(each.payload[words[each.type]]) for each in self.step.effects if each.type in words)

    @property
    def states(self) -> str:
        """The atomic states, by key, in document order."""
        return " ".join(each.rsplit(".", 1)[-1] for each in self.step.snapshot.configuration)

    @property
    def context(self) -> dict[str, Any]:
        """The context now."""
        return self.step.snapshot.context

    @property
    def verdict(self) -> str:
        """Outcome and reason of the last step."""
        return f"{self.step.outcome} {self.step.reason}"

    @property
    def faults(self) -> list[str]:
        """The codes of the last step's faults."""
        return [each.code for each in self.step.faults]

    def effects(self, type: str) -> list[Effect]:
        """The effects of one type in the last step."""
        return [each for each in self.step.effects if each.type == type]

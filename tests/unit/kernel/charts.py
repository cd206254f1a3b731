"""Small charts made runnable, and the few steps that the tests of the kernel are about."""

from __future__ import annotations

from collections.abc import Mapping
from textwrap import dedent
from typing import Any

from interlock.assemble.charts import compile_reading, loads, read_text
from interlock.compiler.build import compile_document
from interlock.expression.language import Language
from interlock.kernel.step import Kernel
from interlock.model.charts.chart import Chart
from interlock.model.effect import Effect
from interlock.model.event import Event
from interlock.model.snapshot import Parent, Snapshot
from interlock.model.step import Step

HEAD = "interlock: 1\nkind: test\n"
"""What stands before every definition of these tests."""

ENTITY = "test/1"
PARENT = Parent(entity="boss/1", invokeid="child", key="boss/1/1/0")


def chart_of(text: str, *, language: Language | None = None) -> Chart:
    """The chart of a definition without its first two lines; it must have no errors."""
    if language is None:
        return loads(HEAD + dedent(text)).chart
    reading = read_text(HEAD + dedent(text), format="yaml", source="test.yaml")

    assert reading.document is not None, [str(each) for each in reading.diagnostics]
    compilation = compile_document(reading.document, language=language)

    assert compilation.chart is not None, [str(each) for each in compilation.diagnostics]
    return compilation.chart


class CheckedKernel(Kernel):
    """A kernel that runs every step by both paths: the general one, then the compiled one. The results are equal."""

    def step(self, snapshot: Snapshot, event: Event | str, data: Any = None, time_ms: int = 0) -> Step:
        expected = self._general_step(snapshot, event, data, time_ms)
        configuration = self.planner.configuration(snapshot.configuration)
        name = event if isinstance(event, str) else event.name
        if configuration is not None and name in self.selector.named and snapshot.ended is None:
            for by_name in (True, False):
                self.accelerator.compile(configuration, name, by_name=by_name)
        for given in (event, Event(event, data, time_ms=time_ms) if isinstance(event, str) else event):
            actual = super().step(snapshot, given, data, time_ms)
            assert (expected, repr(expected)) == (actual, repr(actual))  # the text has the order of the keys, too
        return expected


def kernel_of(text: str, **settings: Any) -> Kernel:
    """A definition made runnable. Without settings, every step is compared with its compiled form."""
    chart = chart_of(text, language=settings.get("language"))
    return Kernel(chart, **settings) if settings else CheckedKernel(chart)


def xstate_kernel(text: str, **settings: Any) -> Kernel:
    """An XState definition made runnable, as `kernel_of` does it."""
    compilation = compile_reading(read_text(dedent(text), format="xstate", source="test.json"))

    assert compilation.chart is not None, [str(each) for each in compilation.diagnostics]
    return Kernel(compilation.chart, **settings) if settings else CheckedKernel(compilation.chart)


def started(kernel: Kernel, context: Mapping[str, Any] | None = None, *, parent: Parent | None = None) -> Snapshot:
    """The first snapshot of an entity."""
    return kernel.start(context, entity=ENTITY, parent=parent).snapshot


def event_of(event: Event | str) -> Event:
    """An event, or a sender's plain one of this name."""
    return Event(event) if isinstance(event, str) else event


def last_step(kernel: Kernel, *events: Event | str, context: Mapping[str, Any] | None = None) -> Step:
    """The step of the last event, after all those before it; without events, the first step of the entity."""
    step = kernel.start(context, entity=ENTITY)
    for event in events:
        step = kernel.step(step.snapshot, event_of(event))
    return step


def payloads(step: Step, type: str) -> list[dict[str, Any]]:
    """The payloads of a step's effects of one type, in order."""
    return [effect.payload for effect in step.effects if effect.type == type]


def calls(step: Step) -> list[str | None]:
    """The names of the handlers that a step asks, in order."""
    return [effect.name for effect in step.effects if effect.type == "call"]


def faults(step: Step) -> list[str]:
    """The codes of a step's faults, in order."""
    return [each.code for each in step.faults]


def effect_of(step: Step, type: str) -> Effect:
    """The only effect of a type."""
    (found,) = (effect for effect in step.effects if effect.type == type)
    return found


def fired(snapshot: Snapshot, name: str) -> Event:
    """The event by which the timer of this name fires."""
    (timer,) = (each for each in snapshot.timers if each.name == name)
    source = f"timer/{timer.name}/{timer.version}"
    return Event(timer.event, timer.data, time_ms=timer.due_ms, sendid=timer.id, source=source)


def result_of(snapshot: Snapshot, id: str, data: Any = None, *, word: str = "done", **fields: Any) -> Event:
    """The event by which the active invoke of this id ends."""
    (invoke,) = (each for each in snapshot.invokes if each.id == id)
    fields.setdefault("source", f"invoke/{invoke.key}")
    return Event(f"{word}.invoke.{id}", data, type="platform", invokeid=id, **fields)

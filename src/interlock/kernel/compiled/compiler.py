"""Compile one event in one configuration to Python functions.

There are two forms of the same step:

- **straight**: the timers and invokes of the snapshot are those of the active states, in the order in which the states
  are entered. Then the writer knows each of them, and every ordinal is a constant.
- **counted**: any timers and invokes, in loops, with a list of effects. The straight form calls it when the snapshot
  has others. It is also used for effects inside `if` or `foreach`, for `cancel`, and for a `send` with a delay.

And three variants of the straight form: `step` takes an event, `named` the name of an event with its payload and time,
and `plain` the values that a plain step changes, for `Kernel.fold`. `named` makes an Event only if something reads it.

For the states `a: {after: {48h: b}, on: {go: {target: b, actions: [{assign: {n: "= context.n + 1"}}]}}}` and
`b: {after: {48h: a}}`, the source of `named` is, with long lines broken:

    def named(snapshot, data, time_ms):
        if time_ms.__class__ is not x_integer or (data is not None and not is_plain(data)): return None
        if snapshot.ended is not None or snapshot.deferred or snapshot.kind != kind: return None
        timers = snapshot.timers
        if len(timers) != 1 or (t0 := timers[0]).state != 'a':
            return counted(snapshot, Event('go', data, None, None, None, time_ms))
        context, id, version = snapshot.context, snapshot.entity, snapshot.version + 1
        base = f'{id}/{version}/'
        effect_0 = Effect('timer_cancel', 0, base + '0', {'name': t0.name, 'version': t0.version})
        context = context.copy()
        v1 = context['n']
        if v1.__class__ is not x_integer: return None
        v = v1 + 1
        if not -9223372036854775807 <= v <= 9223372036854775807: return None
        context['n'] = v
        due_ms_1 = time_ms + 172800000
        timer_2 = Timer('after.48h.b', 'after.48h.b', due_ms_1, version, 1, 'after.48h.b', None, None, None,
            'deadline', 'b')
        effect_1 = Effect('timer', 1, base + '1', {'name': 'after.48h.b', 'event': 'after.48h.b',
            'due_ms': due_ms_1, 'version': version})
        return Step(Snapshot(kind, id, version, revision, to_2, context, snapshot.history, (timer_2,),
            snapshot.invokes, (), snapshot.entered, None, None, snapshot.parent, snapshot.moved), (effect_0, effect_1,),
            'applied', None, (1,))

`to_2` is the configuration `('b',)`. The names in the globals of the source are those of `StepCompiler.globals`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from interlock.kernel.codegen import ActionCompiler
from interlock.kernel.compiled import calls
from interlock.kernel.compiled.branch import (
    Cause,
    NotCompiled,
    NotStraight,
    Variant,
    has_defaults,
    invokeid_of,
    known_invokes,
    known_timers,
)
from interlock.kernel.compiled.function_writer import FunctionWriter
from interlock.kernel.compiled.step_writer import StepWriter
from interlock.kernel.driver_events import find_invocation, forwarded_event
from interlock.kernel.plan import Configuration, Planner
from interlock.kernel.run import delay_of, send_address
from interlock.kernel.select import Selector, is_permitted
from interlock.model.charts.chart import Chart
from interlock.model.document.actions import Block, Foreach, If, Send
from interlock.model.document.document import EventType
from interlock.model.document.field import Field
from interlock.model.effect import Effect
from interlock.model.event import INVOKE_RESULTS, Event, is_reserved
from interlock.model.snapshot import Invocation, Snapshot, Timer
from interlock.model.step import Step


@dataclass(frozen=True, slots=True)
class CompiledStep:
    """The function of one event in one configuration, with its source.

    It takes a snapshot and an event, or with `by_name` a snapshot, payload and time. `plain` is None unless the step
    changes nothing but states and context.
    """

    function: Callable[..., Step | None]
    plain: Callable[..., Any] | None
    source: str


class StepCompiler:
    """Compiles the steps of one chart."""

    def __init__(self, chart: Chart, planner: Planner, selector: Selector, actions: ActionCompiler) -> None:
        self.chart = chart
        self.planner = planner
        self.selector = selector
        self.actions = actions
        self.events: Mapping[str, EventType] | None = None
        if chart.events is not None:
            self.events = {each.name: each for each in chart.events}
        self.delayed = _delayed_names(chart)
        self.globals: Mapping[str, Any] = {
            **{name: each for name, each in vars(calls).items() if getattr(each, "__module__", "") == calls.__name__},
            "Effect": Effect,
            "Event": Event,
            "Invocation": Invocation,
            "Snapshot": Snapshot,
            "Step": Step,
            "Timer": Timer,
            "delay_of": delay_of,
            "dict": dict,
            "enumerate": enumerate,
            "find_invocation": find_invocation,
            "forwarded_event": forwarded_event,
            "is_permitted": is_permitted,
            "send_address": send_address,
            "tuple": tuple,
            "meter": None,  # a long operand needs it, and so falls back
            "kind": chart.kind,
            "revision": chart.revision,
        }

    def compile(self, configuration: Configuration, name: str, *, by_name: bool = False) -> CompiledStep:
        """Return the function of an event. Raises NotCompiled when it needs the general path."""
        cause = self._cause(configuration, name)
        is_internal = cause == "sender" and self._is_internal(name)
        if by_name and (is_internal or cause != "sender"):
            raise NotCompiled("only the driver or the entity itself sends the event")
        namespace = dict(self.globals)
        functions: dict[str, FunctionWriter] = {}

        def write(variant: Variant) -> FunctionWriter:
            functions[variant] = self._write(configuration, name, cause, variant, namespace)
            return functions[variant]

        variant: Variant = "named" if by_name else "step"
        try:
            straight = write(variant)
            if straight.calls_counted:
                write("counted")
            if not (by_name or is_internal or straight.out.reads_snapshot) and cause == "sender":
                write("plain")
            sources = {name: each.lines() for name, each in functions.items() if each.step.returns}
        except NotStraight:
            counted = write("counted")
            sources = {"counted": counted.lines()}
            if by_name:
                sources["named"] = counted.named_wrapper()
        text = "\n".join(line for lines in sources.values() for line in lines)
        # As in `codegen`: our own source over checked trees, without builtins.
        exec(compile(text, "<step>", "exec"), namespace)  # noqa: S102
        function = namespace[variant if variant in sources else "counted"]
        return CompiledStep(function, namespace["plain"] if "plain" in sources else None, text)

    def _write(
        self, configuration: Configuration, name: str, cause: Cause, variant: Variant, namespace: dict[str, Any]
    ) -> FunctionWriter:
        is_delayed = cause == "sender" and name in self.delayed
        step = StepWriter(
            self.chart,
            self.planner,
            self.selector,
            self.actions,
            configuration=configuration,
            name=name,
            cause=cause,
            variant=variant,
            from_timer=is_delayed and variant == "counted",
            namespace=namespace,
        )
        payload = self._payload(name) if cause == "sender" else None
        # The head makes an event with the defaults of its payload.
        step.out.branch.event_is_made = payload is not None and has_defaults(payload)
        step.write()
        is_internal = cause == "sender" and self._is_internal(name)
        return FunctionWriter(step, payload=payload, is_delayed=is_delayed, is_internal=is_internal)

    def _is_internal(self, name: str) -> bool:
        return self.events is not None and self.events[name].direction == "internal"

    def _payload(self, name: str) -> tuple[Field, ...] | None:
        return None if self.events is None else self.events[name].payload

    def _cause(self, configuration: Configuration, name: str) -> Cause:
        """Return where an event of this name comes from. Raises NotCompiled for one that is not compiled."""
        if any(each.name == name for each in known_timers(self.chart, configuration)):
            return "timer"
        if not is_reserved(name):
            known = None if self.events is None else self.events.get(name)
            if self.events is not None and (known is None or known.direction == "out"):
                raise NotCompiled("the chart does not declare that it receives the event")
            return "sender"
        if not self.is_expected(configuration, name):
            raise NotCompiled("no active state has the timer or invoke of the event")
        if any(invoke.finalize for state in configuration.invoking for invoke in state.invokes):
            raise NotCompiled("an active invoke has `finalize`")
        return "invoke"

    def is_expected(self, configuration: Configuration, name: str) -> bool:
        """Return whether an active state has the timer, or the invoke, whose event has this name."""
        if name.startswith(INVOKE_RESULTS):
            return any(each.name == invokeid_of(name) for each in known_invokes(configuration))
        return any(each.name == name for each in known_timers(self.chart, configuration))


def _delayed_names(chart: Chart) -> frozenset[str]:
    """Return the event names that the chart sends with a delay."""
    blocks: list[Block] = [each.block for each in chart.transitions]
    for state in chart.states:
        blocks += [*state.entry, *state.exit, state.initial_block, state.default_block]
    found = set()
    while blocks:
        for action in blocks.pop():
            if isinstance(action, Send) and action.delay is not None and isinstance(action.event, str):
                found.add(action.event)
            elif isinstance(action, If):
                blocks += [block for _, block in action.branches] + [action.otherwise]
            elif isinstance(action, Foreach):
                blocks.append(action.block)
    return frozenset(found)

"""Write the source of compiled steps: one event in one configuration, run to completion without a run.

The writer follows the step as `receive` and `microsteps` run it, from the parts of its plans, and writes a statement
for each thing that happens. Where a guard decides, the source branches, and each branch continues to its own end.
Whatever the writer cannot follow raises NotCompiled with the reason, and the step stays on the general path.

There are two forms of the same step:

- **straight**: the timers and invokes of the snapshot are those of the active states, in the order in which the states
  are entered. Then the writer knows each of them, and every ordinal is a constant.
- **counted**: any timers and invokes, in loops, with a list of effects. The straight form calls it when the snapshot
  has others. It is also used for effects inside an `if`, for `cancel`, and for a `send` with a delay.

And three entries: `step` takes an event, `named` the name of an event with payload and time, and `parts` the values
that a plain step changes, for `Kernel.fold`. `named` makes an Event only if something reads it.

For `a: {after: {48h: b}, on: {go: {target: b, actions: [{assign: {n: "= context.n + 1"}}]}}}` and `b: {after: {48h:
a}}` the straight form of `named` is:

@@GOLDEN@@
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from interlock.expression.codegen import Typed, compile_typed
from interlock.expression.language import SAFE
from interlock.expression.parser import parse
from interlock.kernel import compiled_calls
from interlock.kernel.codegen import ACTION_WORK, ActionCompiler, CodeWriter, Source, references
from interlock.kernel.driver_events import find_invocation
from interlock.kernel.errors import ActionError
from interlock.kernel.parts import (
    CancelAfter,
    CancelInvokes,
    Part,
    QueueDone,
    RunBlock,
    SetActive,
    SetAfter,
    StartInvoke,
    WaitToInvoke,
)
from interlock.kernel.plan import Configuration, Planner
from interlock.kernel.run import ADDRESS_LENGTH_MAX, delay_of, send_address
from interlock.kernel.select import EVENTLESS, Group, Selector, is_permitted
from interlock.model.chart import After, Chart, State, Transition
from interlock.model.document.actions import (
    Action,
    Assign,
    AssignCall,
    Block,
    Cancel,
    Do,
    Emit,
    Expression,
    Foreach,
    If,
    Log,
    Raise,
    Send,
    Value,
)
from interlock.model.document.document import EventType
from interlock.model.document.field import UNSET, Field, refusal
from interlock.model.effect import CHART_TYPES, Effect
from interlock.model.event import INVOKE_RESULTS, SCXML_PROCESSOR, Event, is_reserved
from interlock.model.limits import EFFECTS_MAX, INVOKES_MAX, NAME_BYTES_MAX, TIMERS_MAX, UNMEASURED_MAX
from interlock.model.snapshot import Invocation, Snapshot, Timer
from interlock.model.step import Step

WORK_MAX = 10_000
"""Units of work of one compiled step: beyond 100 evaluations, the general step charges it."""

MICROSTEPS_MAX = 16
"""Microsteps that are written one after the other: longer chains, and loops, run on the general path."""

BRANCHES_MAX = 64
"""Ends of one compiled step: each has its own statements."""

DEPTH_MAX = 40
"""Levels of indentation: Python allows 100."""

_SMALL = 2**63 - 1
"""The general step computes sums beyond this, and checks them against the real limit."""

Entry = Literal["step", "named", "parts", "counted"]
"""The function to write."""

Cause = Literal["sender", "timer", "invoke"]
"""Where the event comes from: a sender, the timer of an `after`, or an invoke that has ended."""


class NotCompiled(Exception):
    """The step stays on the general path. The text says why."""


class NotStraight(Exception):
    """The step has no straight form."""


@dataclass(frozen=True, slots=True)
class Known:
    """A timer or an invocation of the straight form: its source, its state, its event or id, whether it is new."""

    source: str
    state: str
    name: str
    new: bool = False


@dataclass(frozen=True, slots=True)
class Queued:
    """An internal event: its name, the source of its payload, and its other fields."""

    name: str
    data: str
    type: Literal["internal", "platform"]
    sendid: str | None = None


@dataclass(slots=True)
class Path:
    """What is known at one point of the source. Every branch has its own."""

    configuration: Configuration
    timers: list[Known]
    invokes: list[Known]
    event: Queued | None = None
    """The event that expressions read; None: the event of the step."""
    event_is_made: bool = False
    entity_is_made: bool = False
    owns_context: bool = False
    active: frozenset[str] = frozenset()
    active_in_source: frozenset[str] | None = None
    effects: list[str] = field(default_factory=list)
    changes_timers: bool = False
    changes_invokes: bool = False
    to_invoke: dict[int, State] = field(default_factory=dict)
    queue: list[Queued] = field(default_factory=list)
    chosen: tuple[int, ...] = ()
    records: dict[str, tuple[str, ...]] = field(default_factory=dict)
    handled: bool = False
    writes: int = 0
    references: int = 0
    measured: list[str] = field(default_factory=list)
    microsteps: int = 0
    is_eventless: bool = False
    ended: bool = False
    output: str = "None"

    def copy(self) -> Path:
        """Return a copy for a branch."""
        return replace(
            self,
            timers=self.timers.copy(),
            invokes=self.invokes.copy(),
            effects=self.effects.copy(),
            to_invoke=self.to_invoke.copy(),
            queue=self.queue.copy(),
            records=self.records.copy(),
            measured=self.measured.copy(),
        )


@dataclass(frozen=True, slots=True)
class CompiledStep:
    """The functions of one event in one configuration. `parts` is None unless the step is plain."""

    step: Callable[[Snapshot, Event], Step | None]
    named: Callable[[Snapshot, Any, int], Step | None] | None
    parts: Callable[..., Any] | None
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
        self.restricted = any(each.roles is not None for each in chart.transitions)
        self.delayed = _delayed_names(chart)
        self.types = {
            name: each.type
            for name, each in actions.fields.items()
            if each.type in ("integer", "string", "boolean") and not each.nullable
        }

    def compile(self, configuration: Configuration, name: str) -> CompiledStep:
        """Return the functions of an event. Raises NotCompiled when it needs the general path."""
        cause = self._cause(configuration, name)
        namespace = self._namespace()
        sources: dict[Entry, list[str]] = {}
        # The counted form is written first: what it cannot do, no other form can.
        counted = StepWriter(self, configuration, name, cause, "counted", namespace)
        counted.write()
        try:
            step = StepWriter(self, configuration, name, cause, "step", namespace)
            step.write()
            sources["step"] = step.lines()
            if step.needs_counted:
                sources["counted"] = counted.lines()
            if cause == "sender":
                sources["named"] = self._write("named", configuration, name, namespace)
                if not step.reads_snapshot:
                    sources["parts"] = self._write("parts", configuration, name, namespace)
        except NotStraight:
            sources = {"counted": counted.lines()}
            if cause == "sender":
                sources["named"] = counted.named_wrapper()
        text = "\n".join(line for lines in sources.values() for line in lines)
        # As in `codegen`: our own source over checked trees, without builtins.
        exec(compile(text, "<step>", "exec"), namespace)  # noqa: S102
        functions: dict[str, Any] = namespace
        return CompiledStep(
            functions["step" if "step" in sources else "counted"],
            functions["named"] if "named" in sources else None,
            functions["parts"] if "parts" in sources else None,
            text,
        )

    def _write(self, entry: Entry, configuration: Configuration, name: str, namespace: dict[str, Any]) -> list[str]:
        writer = StepWriter(self, configuration, name, "sender", entry, namespace)
        writer.write()
        return writer.lines()

    def _namespace(self) -> dict[str, Any]:
        calls = vars(compiled_calls).items()
        return {
            **{name: value for name, value in calls if getattr(value, "__module__", "") == compiled_calls.__name__},
            "Effect": Effect,
            "Event": Event,
            "Invocation": Invocation,
            "Snapshot": Snapshot,
            "Step": Step,
            "Timer": Timer,
            "delay_of": delay_of,
            "find_invocation": find_invocation,
            "is_permitted": is_permitted,
            "send_address": send_address,
            "tuple": tuple,
            "meter": None,  # a long operand needs it, and so falls back
            "kind": self.chart.kind,
            "revision": self.chart.revision,
        }

    def _cause(self, configuration: Configuration, name: str) -> Cause:
        """Return where an event of this name comes from. Raises NotCompiled for other reserved names."""
        if any(invoke.autoforward for state in configuration.invoking for invoke in state.invokes):
            raise NotCompiled("an active invoke forwards events")
        if any(each.name == name for each in known_timers(self.chart, configuration)):
            return "timer"
        if not is_reserved(name):
            self._check_declared(name)
            return "sender"
        if name.startswith(INVOKE_RESULTS):
            if any(invoke.finalize for state in configuration.invoking for invoke in state.invokes):
                raise NotCompiled("an active invoke has `finalize`")
            if any(each.name == _invokeid(name) for each in known_invokes(configuration)):
                return "invoke"
        raise NotCompiled("the name of the event is reserved")

    def _check_declared(self, name: str) -> None:
        known = None if self.events is None else self.events.get(name)
        if self.events is not None and (known is None or known.direction != "in"):
            raise NotCompiled("the chart does not declare the event as one that is sent to it")


class StepWriter(CodeWriter):
    """Writes one function of a compiled step. Raises NotCompiled, or NotStraight, for what it cannot write."""

    measure = "need_short"

    def __init__(
        self,
        compiler: StepCompiler,
        configuration: Configuration,
        name: str,
        cause: Cause,
        entry: Entry,
        namespace: dict[str, Any],
    ) -> None:
        super().__init__(compiler.actions)
        namespace |= self.namespace
        self.namespace = namespace
        self.compiler = compiler
        self.chart = compiler.chart
        self.configuration = configuration
        self.name = name
        self.cause = cause
        self.entry = entry
        self.straight = entry != "counted"
        self.from_timer = name in compiler.delayed and entry == "counted" and cause == "sender"
        """Whether the timer of a `send` may have fired with the event."""
        self.timers = known_timers(self.chart, configuration)
        self.invokes = known_invokes(configuration)
        self.path = Path(configuration, self.timers.copy(), self.invokes.copy())
        self.reads_timers = cause == "timer"
        self.reads_invokes = bool(configuration.invoking)
        self.reads_snapshot = self.reads_timers or self.reads_invokes
        self.reads_time = False
        self.sets_timers = False
        self.makes_effects = False
        self.makes_event = False
        self.nested = 0
        self.locals = 0
        self.ends = 0
        self.returns = 0

    # The function

    @property
    def needs_counted(self) -> bool:
        """Whether the straight form must ask whether the snapshot has the timers and invokes that it knows."""
        return self.reads_timers or self.reads_invokes or (self.name in self.compiler.delayed)

    def lines(self) -> list[str]:
        """Return the source of the function, with its head. The body must have been written."""
        head = Source()
        heads = {"step": self._step_head, "named": self._named_head, "parts": self._parts_head}
        heads.get(self.entry, self._counted_head)(head)
        parameters = {"named": "snapshot, data, time_ms", "parts": "context, event, id, version"}
        opening = f"def {self.entry}({parameters.get(self.entry, 'snapshot, event')}):"
        return [opening, *head.lines, *self.source.lines]

    def _step_head(self, head: Source) -> None:
        if self.cause == "sender":
            if self.name in self.compiler.delayed:
                head.add("if event.source is not None: return counted(snapshot, event)")
                head.add("if event.invokeid is not None: return None")
            else:
                head.add("if event.source is not None or event.invokeid is not None: return None")
        if self.sets_timers:
            head.add("if event.clock_ms is not None: return None")
        self._snapshot_head(head, "return counted(snapshot, event)")
        self._cause_head(head)
        self._payload_head(head, "event.data")
        self._values_head(head, "event.time_ms")

    def _named_head(self, head: Source) -> None:
        head.add("if time_ms.__class__ is not x_integer or (data is not None and not is_plain(data)): return None")
        self._snapshot_head(head, f"return counted(snapshot, {self._made_event()})")
        self._payload_head(head, "data")
        self._values_head(head, "")

    def _parts_head(self, head: Source) -> None:
        self._payload_head(head, "event.data")
        self._values_head(head, "event.time_ms")

    def named_wrapper(self) -> list[str]:
        """Return the source of `named` for a step that has only the counted form."""
        head = Source()
        head.add("if time_ms.__class__ is not x_integer or (data is not None and not is_plain(data)): return None")
        head.add(f"return counted(snapshot, {self._made_event()})")
        return ["def named(snapshot, data, time_ms):", *head.lines]

    def _made_event(self) -> str:
        return f"Event({self.name!r}, data, None, None, None, time_ms)"

    def _counted_head(self, head: Source) -> None:
        if self.cause == "sender":
            checks = (
                "event.invokeid is not None"
                if self.from_timer
                else ("event.source is not None or event.invokeid is not None")
            )
            head.add(f"if {checks}: return None")
        if self.sets_timers:
            head.add("if event.clock_ms is not None: return None")
        head.add("if snapshot.ended is not None or snapshot.deferred or snapshot.kind != kind: return None")
        head.add("timers, invokes = snapshot.timers, snapshot.invokes")
        head.add(f"if len(timers) > {compiled_calls.TIMERS_LISTED_MAX}: return None")
        if self.reads_invokes:
            counts = {state.id: len(state.invokes) for state in self.configuration.invoking}
            head.add(f"check_invokes(invokes, {self.constant(counts)})")
        self._counted_cause_head(head)
        self._payload_head(head, "event.data")
        self._values_head(head, "event.time_ms")
        if self.makes_effects:
            head.add("effects = []")

    def _counted_cause_head(self, head: Source) -> None:
        if self.cause == "timer":
            head.add("timer = fired_timer(snapshot, event)")
            head.add("if timer.state is None: return None")
            head.add("timers = without(timers, timer)")
        elif self.cause == "invoke":
            invokeid = _invokeid(self.name)
            head.add(f"if event.type != 'platform' or event.forwarded or event.invokeid != {invokeid!r}: return None")
            head.add("invocation = find_invocation(snapshot, event)")
            head.add("if invocation is None: return None")
            head.add("invokes = without(invokes, invocation)")
        elif self.from_timer:
            with head.inside("if event.source is not None:"):
                head.add("timer = fired_timer(snapshot, event)")
                head.add("if timer.state is not None: return None")
                head.add("timers = without(timers, timer)")

    def _snapshot_head(self, head: Source, otherwise: str) -> None:
        """Write the checks of the snapshot, and that it has the timers and invokes that the source knows."""
        head.add("if snapshot.ended is not None or snapshot.deferred or snapshot.kind != kind: return None")
        for name, is_read, known in (
            ("timers", self.reads_timers, self.timers),
            ("invokes", self.reads_invokes, self.invokes),
        ):
            if is_read:
                head.add(f"{name} = snapshot.{name}")
                checks = [f"len({name}) != {len(known)}"] if known else [name]
                for position, each in enumerate(known):
                    checks.append(f"({each.source} := {name}[{position}]).state != {each.state!r}")
                    if name == "invokes":
                        checks.append(f"{each.source}.position != {self._position(position)}")
                head.add(f"if {' or '.join(checks)}: {otherwise}")

    def _position(self, number: int) -> int:
        """Return the position of an invoke in its state."""
        return sum(each.state == self.invokes[number].state for each in self.invokes[:number])

    def _cause_head(self, head: Source) -> None:
        """Write the checks that the event comes from its timer or invoke, the first one that it can come from."""
        if self.cause == "timer":
            mine = next(each for each in self.timers if each.name == self.name)
            timer = mine.source
            checks = ["event.forwarded", "event.invokeid is not None"]
            checks.append(f"event.source != f'timer/{{{timer}.name}}/{{{timer}.version}}'")
            checks += [f"{timer}.event != {self.name!r}", f"{timer}.to is not None"]
            earlier = self.timers[: self.timers.index(mine)]
            checks += [f"{each.source}.name == {timer}.name" for each in earlier]
            head.add(f"if {' or '.join(checks)}: return None")
        elif self.cause == "invoke":
            invokeid = _invokeid(self.name)
            mine = next(each for each in self.invokes if each.name == invokeid)
            checks = ["event.type != 'platform'", "event.forwarded", f"event.invokeid != {invokeid!r}"]
            checks.append(f"{mine.source}.id != {invokeid!r}")
            checks.append(f"(event.source is not None and event.source != 'invoke/' + {mine.source}.key)")
            earlier = self.invokes[: self.invokes.index(mine)]
            checks += [f"{each.source}.id == {invokeid!r}" for each in earlier]
            head.add(f"if {' or '.join(checks)}: return None")

    def _payload_head(self, head: Source, data: str) -> None:
        known = None if self.compiler.events is None or self.cause != "sender" else self.compiler.events[self.name]
        if known is None or known.payload is None:
            return
        fields = self.constant(known.payload)
        if any(each.default is not UNSET for each in known.payload):
            if self.entry == "named":
                head.add(f"event = with_defaults({self._made_event()}, {fields})")
            else:
                head.add(f"event = with_defaults(event, {fields})")
        else:
            head.add(f"if does_not_fit({data}, {fields}): return None")

    def _values_head(self, head: Source, time: str) -> None:
        if self.entry != "parts":
            head.add("context, id, version = snapshot.context, snapshot.entity, snapshot.version + 1")
        if self.reads_time and time:
            head.add(f"time_ms = {time}")
        if self.makes_effects:
            head.add("base = f'{id}/{version}/'")

    # The step

    def write(self) -> None:
        """Write the body: the selection for the event, and everything that follows from it."""
        self._remove_cause()
        compiler = self.compiler
        event_class = compiler.selector.event_class(self.name)
        driven = not compiler.selector.driven.isdisjoint(compiler.selector.members[event_class])
        if driven and self.cause == "sender":
            raise NotCompiled("a transition for events of the driver matches the name of the event")
        known = None if compiler.events is None or self.cause != "sender" else compiler.events[self.name]
        if known is not None and any(each.default is not UNSET for each in known.payload or ()):
            self.path.event_is_made = True  # with its defaults, by the head
        self._select(event_class, self._event_not_taken)
        if not self.returns:
            raise NotCompiled("no transition takes the event")

    def _remove_cause(self) -> None:
        path = self.path
        if self.cause == "timer":
            path.timers.remove(next(each for each in path.timers if each.name == self.name))
            path.changes_timers = True
        elif self.cause == "invoke":
            path.invokes.remove(next(each for each in path.invokes if each.name == _invokeid(self.name)))
            path.changes_invokes = True
        if self.from_timer:
            path.changes_timers = True

    def _event_not_taken(self) -> None:
        if self.name.startswith("error."):
            self.add("return None")  # it becomes a fault, or ends the entity
        else:
            self._settle(eventless=True)

    def _select(self, event_class: int, otherwise: Callable[[], None]) -> None:
        """Write the choice of transitions for an event class (`select.Selector`)."""
        self.path.is_eventless = event_class == EVENTLESS
        candidates = self.compiler.selector.candidates(self.path.configuration, event_class)
        self._charge(candidates.work)
        if candidates.enabled:
            self._take(candidates.enabled)
        elif candidates.enabled is not None:
            otherwise()
        else:
            inner_first = self.chart.dialect.select == "inner_first" and event_class != EVENTLESS
            if inner_first and len(candidates.by_state) > 1:
                raise NotCompiled("guards decide between parallel regions of an XState chart")
            self.path.active = self.path.configuration.ids
            self._decide(candidates.by_state, {}, (), otherwise)

    def _decide(
        self,
        by_state: tuple[tuple[Group, ...], ...],
        tried: dict[int, int | None],
        found: tuple[int, ...],
        otherwise: Callable[[], None],
    ) -> None:
        """Write the guards for the atomic states that are left. Each branch continues with the next atomic state."""
        if not by_state:
            if found:
                self._take(found)
            else:
                otherwise()
            return
        tried = tried.copy()
        for state, numbers in by_state[0]:
            if state not in tried:
                tried[state] = None
                for number in numbers:
                    condition = self._condition(self.chart.transitions[number])
                    if condition == "True":
                        tried[state] = number
                        break
                    with self._branch(f"if {condition}:"):
                        chosen = {**tried, state: number}
                        more = found if number in found else (*found, number)
                        self._decide(by_state[1:], chosen, more, otherwise)
            first = tried[state]
            if first is not None:
                found = found if first in found else (*found, first)
                break
        self._decide(by_state[1:], tried, found, otherwise)

    def _condition(self, transition: Transition) -> str:
        """Return the source of the roles and the guard of a transition; `True` if it has none."""
        conditions = []
        if transition.roles is not None:
            if self.path.is_eventless:
                conditions.append(repr("system" in transition.roles))
            else:
                self._need({"event"})
                conditions.append(f"is_permitted({transition.roles!r}, event)")
        if transition.guard is not None:
            conditions.append(self.guard(transition.guard))
        self._charge(0)
        return " and ".join(conditions) or "True"

    @contextmanager
    def _branch(self, head: str) -> Iterator[None]:
        """Write statements that run only sometimes. What they know is not known afterwards."""
        path = self.path
        self.path = path.copy()
        if self.source.depth > DEPTH_MAX:
            raise NotCompiled("guards are nested too deeply")
        with self.source.inside(head):
            yield
        self.path = path

    def _take(self, enabled: tuple[int, ...]) -> None:
        """Write one microstep, and what follows it. History decides which states are entered."""
        states = self.compiler.planner.state_sets
        reached = sorted({each for number in enabled for each in states.reaches[number]})
        unknown = [each for each in reached if self.chart.states[each].id not in self.path.records]
        if not unknown:
            self._apply(enabled, self.path.records)
            return
        if len(unknown) > 1 or self.entry == "parts":
            raise NotCompiled("it enters several history states")
        history = self.chart.states[unknown[0]]
        recorded = self._local("recorded")
        self.reads_snapshot = True
        self.add(f"{recorded} = None if snapshot.history is None else snapshot.history.get({history.id!r})")
        for names in self._recordable(history):
            memory = {**self.path.records} if names is None else {**self.path.records, history.id: names}
            test = "is None" if names is None else f"== {names!r}"
            with self._branch(f"if {recorded} {test}:"):
                self._apply(enabled, memory)
        self.add("return None")

    def _recordable(self, history: State) -> list[tuple[str, ...] | None]:
        """Return what a history may have recorded, and None: it recorded nothing yet."""
        chart, parent = self.chart, self.chart.states[history.parent]
        inside = chart.states[parent.index + 1 : parent.last + 1]
        if parent.type != "compound" or any(each.type == "parallel" for each in inside if history.history == "deep"):
            raise NotCompiled("it enters a history of parallel regions")
        if history.history == "deep":
            return [None, *((each.id,) for each in inside if each.type in ("atomic", "final"))]
        return [None, *((chart.states[each].id,) for each in chart.regions(parent.index))]

    def _apply(self, enabled: tuple[int, ...], memory: dict[str, tuple[str, ...]]) -> None:
        path = self.path
        plan = self.compiler.planner.plan(path.configuration, enabled, memory)
        path.microsteps += 1
        if path.microsteps > MICROSTEPS_MAX:
            raise NotCompiled(f"more than {MICROSTEPS_MAX} microsteps in one step")
        self._charge(plan.work)
        path.chosen += plan.chosen
        path.records.update(plan.records)
        path.handled |= plan.content
        before, writes = path.configuration.names, path.writes
        for part in plan.parts:
            self._part(part)
        path.configuration = plan.next
        if plan.ended:
            self._end()
        elif path.is_eventless and self.chart.dialect.eventless == "until_unchanged":
            self._settle(eventless=before != plan.next.names or writes != path.writes or bool(plan.records))
        else:
            self._settle(eventless=True)

    def _settle(self, *, eventless: bool) -> None:
        """Write what follows a microstep: eventless transitions, then internal events, then the end of the step."""
        path = self.path
        if eventless and not path.configuration.has_no_eventless:
            self._select(EVENTLESS, self._next_internal)
        else:
            self._next_internal()

    def _next_internal(self) -> None:
        path = self.path
        if not path.queue:
            self._finish()
            return
        event = path.event = path.queue.pop(0)
        path.event_is_made = False
        selector = self.compiler.selector
        event_class = selector.event_class(event.name)
        if event.type == "internal":
            event_class = selector.class_of(selector.members[event_class] - selector.driven)
        self._select(event_class, lambda: self._settle(eventless=True))

    def _charge(self, work: int) -> None:
        self.work += work
        if self.work > WORK_MAX:
            raise NotCompiled("its work must be charged")

    # The end of the step

    def _finish(self) -> None:
        """Write the end of a step that is stable: it starts invokes and returns."""
        path = self.path
        self.ends += 1
        if self.ends > BRANCHES_MAX:
            raise NotCompiled(f"guards decide between more than {BRANCHES_MAX} ways")
        path.active = path.configuration.ids
        for _, state in sorted(path.to_invoke.items()):
            for position in range(len(state.invokes)):
                self._start_invoke(state, position)
        pending = self.cause != "sender"
        if not path.handled and self.from_timer:
            self.add("return None")  # it depends on whether a timer fired
        elif not path.chosen and not path.handled:
            self._finish_unhandled(pending=pending)
        elif path.handled:
            self._return("'applied', None", path.chosen)
        elif pending:
            self._return("'ignored', 'no_content'", path.chosen)
        elif self.entry == "parts":
            self.add("return None")
        else:
            self.returns += 1
            self.add(f"return Step(snapshot, (), 'ignored', 'no_content', {path.chosen!r})")

    def _finish_unhandled(self, *, pending: bool) -> None:
        if pending:
            self._return("'ignored', 'no_transition'", (), effects="()")
        elif self.chart.unhandled == "ignore" and not self.compiler.restricted and self.entry != "parts":
            self.returns += 1
            self.add("return Step(snapshot, (), 'ignored', 'no_transition')")
        else:
            self.add("return None")

    def _return(self, outcome: str, chosen: tuple[int, ...], *, effects: str | None = None) -> None:
        path = self.path
        self.returns += 1
        effects = self._effects() if effects is None else effects
        self._need_short_if_many()
        names = path.configuration.names
        timers, invokes, ended = self._timers(), self._invokes(), "None, None, snapshot.parent"
        if path.ended:
            top = self.chart.top
            finals = (each for each in path.configuration.atomic if self.chart.states[each].parent == top)
            names = tuple(self.chart.states[each].id for each in finals) or names
            timers, invokes, ended = "()", "()", f"'done', {path.output}, None"
        if self.entry == "parts":
            self.add(f"return {self.constant(path.configuration)}, context, {effects}, {chosen!r}")
            return
        history = "snapshot.history"
        if path.records:
            self.reads_snapshot = True
            history = f"{{**({history} or {{}}), **{path.records!r}}}"
        rest = f"{history}, {timers}, {invokes}, (), snapshot.entered, {ended}"
        snapshot = f"Snapshot(kind, id, version, revision, {self._names(names)}, context, {rest})"
        transitions = f", {chosen!r}" if chosen else ""
        self.add(f"return Step({snapshot}, {effects}, {outcome}{transitions})")

    def _names(self, names: tuple[str, ...]) -> str:
        """Return the name of the constant for the names of a configuration: the object that is in the tables."""
        constant = "to_" + "_".join(str(self.compiler.planner.by_id[name]) for name in names)
        self.namespace[constant] = names
        return constant

    def _effects(self) -> str:
        if self.straight:
            return f"({', '.join(self.path.effects)},)" if self.path.effects else "()"
        return "tuple(effects)" if self.makes_effects else "()"

    def _timers(self) -> str:
        return self._items("timers", self.path.timers, changed=self.path.changes_timers)

    def _invokes(self) -> str:
        return self._items("invokes", self.path.invokes, changed=self.path.changes_invokes)

    def _items(self, name: str, known: list[Known], *, changed: bool) -> str:
        if not self.straight:
            return name
        if not changed:
            return f"snapshot.{name}"
        self.reads_snapshot = True
        return f"({', '.join(each.source for each in known)},)" if known else "()"

    def _need_short_if_many(self) -> None:
        """Write the checks for payloads that the general step would measure."""
        path = self.path
        if path.references > UNMEASURED_MAX:
            for value in path.measured:
                self.add(f"need_short({value})")
            if not self.straight and self.makes_effects:
                self.add("need_short_payloads(effects)")

    def _end(self) -> None:
        """Write the end of the entity (`Microsteps.end`): all states are exited, timers dropped."""
        path = self.path
        self._plain_only("it ends the entity")
        self.add("if snapshot.parent is not None: return None")  # the parent is notified
        path.queue.clear()
        path.to_invoke.clear()
        for state, parts in self.compiler.planner.ending(path.configuration):
            for part in parts:
                self._part(part)
            if state.type == "final" and state.parent == self.chart.top:
                path.active = frozenset(self.chart.states[each].id for each in self.chart.path(state.parent))
                path.output = self._output(state)
        if path.queue:
            path.queue.clear()  # internal events are dropped at the end
        self._drop_timers()
        path.ended = True
        self._finish()

    def _plain_only(self, reason: str) -> None:
        """Note that the step needs the whole snapshot, so that it has no `parts`."""
        self.reads_snapshot = True
        if self.entry == "parts":
            raise NotCompiled(reason)

    # Parts

    def _part(self, part: Part) -> None:
        match part:
            case RunBlock():
                self.write_block(part.block)
            case SetActive():
                self.path.active = part.ids
            case CancelAfter():
                self._cancel_after(part.state)
            case SetAfter():
                self._set_after(part.state, part.after)
            case CancelInvokes():
                self._cancel_invokes(part.state)
            case WaitToInvoke():
                self.path.to_invoke[part.state.index] = part.state
            case StartInvoke():
                self._start_invoke(part.state, part.position)
            case QueueDone():
                data = "None" if part.final is None or part.final.output is None else self._output(part.final)
                self.path.queue.append(Queued(part.name, data, "platform"))
            case _:
                raise NotCompiled("fields are bound at the first entry of their state")

    def _output(self, state: State) -> str:
        """Write the evaluation of a final state's output, and return its name."""
        if state.output is None:
            return "None"
        output = self._local("output")
        self.add(f"{output} = {self.value(state.output)}")
        self._measure(output, references(state.output))
        return output

    # Effects

    def _effect(self, type: str, payload: str, count: int = 0) -> str:
        """Write an effect and return the source of its key. `count`: how many expression results the payload has."""
        self.makes_effects = True
        self.path.references += count
        if not self.straight:
            self.add(f"add_effect(effects, base, {type!r}, {payload})")
            return "effects[-1].key"
        if self.nested:
            raise NotStraight
        ordinal = len(self.path.effects)
        if ordinal >= EFFECTS_MAX:
            raise NotCompiled(f"more than {EFFECTS_MAX:,} effects")
        effect = f"effect_{ordinal}"
        self.add(f"{effect} = Effect({type!r}, {ordinal}, base + '{ordinal}', {payload})")
        self.path.effects.append(effect)
        if count:
            self.path.measured.append(f"{effect}.payload")
        return f"{effect}.key"

    def _measure(self, value: str, count: int) -> None:
        self.path.references += count
        if count:
            self.path.measured.append(value)

    def _local(self, word: str) -> str:
        self.locals += 1
        return f"{word}_{self.locals}"

    # Timers

    def _touch_timers(self) -> None:
        self.reads_timers = self.reads_snapshot = self.path.changes_timers = True
        if self.entry == "parts":
            raise NotCompiled("it changes timers")

    def _cancel_after(self, state: State) -> None:
        self._touch_timers()
        if not self.straight:
            self.makes_effects = True
            self.add(f"timers = cancel_after(timers, effects, base, {state.id!r})")
            return
        for each in [each for each in self.path.timers if each.state == state.id]:
            self._drop_timer(each)

    def _drop_timer(self, timer: Known) -> None:
        self._effect("timer_cancel", f"{{'name': {timer.source}.name, 'version': {timer.source}.version}}")
        self.path.timers.remove(timer)

    def _drop_timers(self) -> None:
        self._touch_timers()
        if self.straight:
            for each in self.path.timers.copy():
                self._drop_timer(each)
        else:
            self.makes_effects = True
            self.add("drop_timers(timers, effects, base, timers)")

    def _set_after(self, state: State, after: After) -> None:
        self._touch_timers()
        self._charge(ACTION_WORK)
        self.reads_time = self.sets_timers = True
        delay = str(after.delay) if isinstance(after.delay, int) else f"delay_of({self.value(after.delay)}, None)"
        name = repr(after.event)
        due = self._local("due_ms")
        self.add(f"{due} = time_ms + {delay}")
        if not self.straight:
            self.makes_effects = True
            given = f"{name}, {name}, None, {due}, None, None, {after.restore!r}, {state.id!r}"
            self.add(f"timers = set_timer(timers, effects, base, version, {given})")
            return
        for each in self.path.timers:
            if each.new and each.name == after.event:
                raise NotCompiled(f"two timers have the name `{after.event}`")
            if not each.new:
                self.add(f"if {each.source}.name == {name}: return None")
        if len(self.path.timers) >= TIMERS_MAX:
            raise NotCompiled(f"more than {TIMERS_MAX:,} timers")
        timer = self._local("timer")
        ordinal = len(self.path.effects)
        fields = f"{name}, {name}, {due}, version, {ordinal}, {name}, None, None, None, {after.restore!r}, {state.id!r}"
        self.add(f"{timer} = Timer({fields})")
        self.path.timers.append(Known(timer, state.id, after.event, new=True))
        self._effect("timer", f"{{'name': {name}, 'event': {name}, 'due_ms': {due}, 'version': version}}")

    # Invokes

    def _touch_invokes(self) -> None:
        self.reads_invokes = self.reads_snapshot = self.path.changes_invokes = True
        if self.entry == "parts":
            raise NotCompiled("it changes invokes")

    def _cancel_invokes(self, state: State) -> None:
        self._touch_invokes()
        self.path.to_invoke.pop(state.index, None)
        if not self.straight:
            self.makes_effects = True
            self.add(f"invokes = cancel_invokes(invokes, effects, base, {state.id!r})")
            return
        for each in [each for each in self.path.invokes if each.state == state.id]:
            if each.new:
                raise NotCompiled("an invoke is started and cancelled in one step")
            self._effect("invoke_cancel", f"{{'id': {each.source}.id, 'key': {each.source}.key}}")
            self.path.invokes.remove(each)

    def _start_invoke(self, state: State, position: int) -> None:
        self._touch_invokes()
        self._charge(ACTION_WORK)
        invoke = state.invokes[position]
        if invoke.id_location is not None:
            raise NotCompiled("an invoke stores its id")
        if isinstance(invoke.src, Expression) or not isinstance(invoke.type, str):
            raise NotCompiled("the source or type of an invoke is computed")
        if len(self.path.invokes) >= INVOKES_MAX // 2:
            raise NotCompiled("too many invokes")
        ordinal = len(self.path.effects) if self.straight else "{len(effects)}"
        name = repr(invoke.id) if invoke.id is not None else f"{state.id + '.'!r} + f'{{version}}.{ordinal}'"
        invokeid = self._local("invokeid")
        self.add(f"{invokeid} = {name}")
        items = {"id": invokeid, "state": repr(state.id)}
        if invoke.src is not None:
            items["src"] = repr(invoke.src)
        items["type"] = repr(invoke.type)
        if invoke.input is not None:
            items["input"] = self.value(invoke.input)
        if invoke.key is not None:
            items["key"] = f"checked_key({self.value(invoke.key)})"
        if invoke.autoforward:
            items["autoforward"] = "True"
        if invoke.retry is not None:
            retry = invoke.retry
            on = repr(retry.on and list(retry.on))
            given = {
                "max": repr(retry.max),
                "backoff": self.constant(retry.backoff),
                "jitter": repr(retry.jitter),
                "on": on,
            }
            items["retry"] = _mapping(given)
        if invoke.timeout_ms is not None:
            items["timeout_ms"] = repr(invoke.timeout_ms)
        if invoke.restore != "keep":
            items["restore"] = repr(invoke.restore)
        if invoke.late is not None:
            items["late"] = "True"
        count = sum(references(each) for each in (invoke.src, invoke.type, invoke.input, invoke.key))
        key = self._effect("invoke", _mapping(items), count)
        invocation = f"Invocation({invokeid}, {state.id!r}, {position}, {key}, {invoke.type in CHART_TYPES})"
        if self.straight:
            started = self._local("invocation")
            self.add(f"{started} = {invocation}")
            self.path.invokes.append(Known(started, state.id, invoke.id or "", new=True))
        else:
            self.add(f"invokes = (*invokes, {invocation})")

    # Actions

    def action(self, action: Action) -> None:
        """Write the source of an action."""
        self._charge(ACTION_WORK)
        match action:
            case Do():
                given = "" if action.arguments is None else f", 'input': {self.value(action.arguments)}"
                self._effect("call", f"{{'name': {action.name!r}{given}}}", references(action.arguments))
            case Assign():
                for path, value in action.values:
                    self.assign(path, value)
            case AssignCall():
                self._own_context()  # a function that changes its argument must not change the snapshot
                result = self.call(action.name, self.actions.assigns, action.arguments)
                self.add(f"assign_all(context, {result}, {self.constant(self.actions.fields)})")
            case Raise():
                self._raise(action.event, self.value(action.data), references(action.data), None)
            case Send():
                self.send(action)
            case Cancel():
                self._cancel(action)
            case Emit():
                name = self._checked(action.type, "checked_type")
                payload = f"{{'type': {name}, 'data': {self.value(action.data)}}}"
                self._effect("message", payload, references(action.type) + references(action.data))
            case Log():
                payload = f"{{'label': {action.label!r}, 'value': {self.value(action.value)}}}"
                self._effect("log", payload, references(action.label) + references(action.value))
            case If():
                self.branches(action)
            case Foreach():
                raise NotCompiled("`foreach`")
            case _:
                raise NotCompiled("a script")

    def _checked(self, value: Value, check: str, *, names: bool = False) -> str:
        """Return the source of a name. A literal is checked now, a computed one by this function."""
        if isinstance(value, Expression):
            return f"{check}({self.value(value)})"
        fits = isinstance(value, str) and value and (not names or len(value) <= NAME_BYTES_MAX)
        if not fits or (names and is_reserved(value)):
            raise NotCompiled("a name that the chart may not use")
        return repr(value)

    def _raise(self, event: Value, data: str, count: int, sendid: str | None) -> None:
        if not isinstance(event, str):
            raise NotCompiled("the name of an internal event is computed")
        if self.nested:
            raise NotCompiled("an internal event inside `if`")
        self._checked(event, "", names=True)
        value = "None"
        if data != "None":
            value = self._local("data")
            self.add(f"{value} = {data}")
        self._measure(value, count)
        self.path.queue.append(Queued(event, value, "internal", sendid))

    def send(self, action: Send) -> None:
        """Write the source of a `send`: an internal event, an effect, or a timer."""
        if action.id_location is not None or action.type not in (None, "", "scxml", SCXML_PROCESSOR):
            raise NotCompiled("a `send` with a type, or one that stores its id")
        sendid = action.id
        if sendid is not None and not (isinstance(sendid, str) and len(sendid) <= NAME_BYTES_MAX):
            raise NotCompiled("the id of a `send` is computed")
        count = references(action.data)
        if action.to in ("internal", "#_internal"):
            if action.delay is not None:
                raise NotCompiled("an internal event with a delay")
            self._raise(action.event, self.value(action.data), count, sendid)
            return
        event = self._checked(action.event, "checked_name", names=True)
        address = self._address(action.to)
        if action.delay is None or _literal_delay(action.delay) == 0:
            self._send_now(event, address, action.data, sendid, count)
        else:
            self._send_later(event, address, action, count)

    def _address(self, to: Value) -> str:
        """Write the check of a target, and return the source of its address."""
        if to is None or to == "self":
            return "id"
        if to in ("parent", "#_parent"):
            self._plain_only("it sends to its parent")
            self.add("if snapshot.parent is None: return None")
            return "'#_parent'"
        if isinstance(to, str) and "/" in to and to[0] not in "#!" and len(to) <= ADDRESS_LENGTH_MAX:
            return repr(to)
        if not isinstance(to, Expression | str):
            raise NotCompiled("a target that is not an address")
        self._plain_only("the target of a `send` is computed")
        self.reads_invokes = True
        invokes = "invokes"
        if self.straight:
            known = self.path.invokes
            invokes = f"({', '.join(each.source for each in known)},)" if known else "()"
        address = self._local("address")
        self.add(f"{address} = send_address({self.value(to)}, id, snapshot.parent, {invokes}, None)")
        self.add(f"if {address} == '#_internal': return None")
        return address

    def _send_now(self, event: str, address: str, data: Value, id: str | None, count: int) -> None:
        items = {"event": event, "to": address}
        sendid = {} if id is None else {"sendid": repr(id)}
        if data is None:
            payload = _mapping({**items, **sendid})
        elif isinstance(data, Expression):
            value = self._local("data")
            self.add(f"{value} = {self.value(data)}")
            full = _mapping({**items, "data": value, **sendid})
            payload = f"{_mapping({**items, **sendid})} if {value} is None else {full}"
        else:
            payload = _mapping({**items, "data": self.value(data), **sendid})
        self._effect("send", payload, count)

    def _send_later(self, event: str, address: str, action: Send, count: int) -> None:
        if self.straight:
            raise NotStraight
        self._touch_timers()
        self.reads_time = self.sets_timers = self.makes_effects = True
        delay = _literal_delay(action.delay)
        if delay is None:
            delayed = self._local("delay_ms")
            self.add(f"{delayed} = delay_of({self.value(action.delay)}, None)")
            self.add(f"if not {delayed}: return None")
        else:
            delayed = str(delay)
        data = self._local("data")
        self.add(f"{data} = {self.value(action.data)}")
        self._measure(data, count)
        to = "None" if address == "id" else f"None if {address} == id else {address}"
        restore = action.restore or "deadline"
        given = f"{action.id!r}, {event}, {data}, time_ms + {delayed}, {to}, {action.type!r}, {restore!r}, None"
        self.add(f"timers = set_timer(timers, effects, base, version, {given})")

    def _cancel(self, action: Cancel) -> None:
        if self.straight:
            raise NotStraight
        self._touch_timers()
        self.makes_effects = True
        self.add(f"timers = cancel_id(timers, effects, base, {self.value(action.id)})")

    def branches(self, action: If) -> None:
        """Write the source of an `if`. A guard that fails raises, and so falls back."""
        if any(_writes(block) for _, block in action.branches) or _writes(action.otherwise):
            self._own_context()
        self.nested += 1
        self._alternatives(action.branches, action.otherwise)
        self.nested -= 1

    def _alternatives(self, branches: tuple[tuple[Any, Block], ...], otherwise: Block) -> None:
        if not branches:
            self.write_block(otherwise)
            return
        (guard, block), *others = branches
        with self._conditional(f"if {self.guard(guard)}:"):
            self.add("pass")
            self.write_block(block)
        if others or otherwise:
            with self._conditional("else:"):
                self.add("pass")
                self._alternatives(tuple(others), otherwise)

    @contextmanager
    def _conditional(self, head: str) -> Iterator[None]:
        """Write statements after which the step continues, whether they run or not."""
        path = self.path
        with self._branch(head):
            yield
            inner = self.path
        path.references, path.measured, path.writes = inner.references, inner.measured, inner.writes
        path.changes_timers, path.changes_invokes = inner.changes_timers, inner.changes_invokes

    # Values

    def _need(self, uses: set[str] | frozenset[str]) -> None:
        """Write the statements for the names that the next statement reads."""
        path = self.path
        if "event" in uses and not path.event_is_made:
            path.event_is_made = True
            if path.event is not None:
                self.reads_time = True
                queued = path.event
                sendid = "" if queued.sendid is None else f", {queued.sendid!r}"
                fields = f"{queued.name!r}, {queued.data}, None, None, None, time_ms, {queued.type!r}{sendid}"
                self.add(f"event = Event({fields})")
            elif self.entry == "named":
                self.add(f"event = {self._made_event()}")
        if "active" in uses and path.active_in_source != path.active:
            path.active_in_source = path.active
            self.add(f"active = {self.constant(path.active)}")
        if "entity" in uses and not path.entity_is_made:
            path.entity_is_made = True
            self.add("entity = Entity(id, kind, version)")

    def _own_context(self) -> None:
        """Write the copy of the context, before the first write of a path."""
        self.path.writes += 1
        if not self.path.owns_context:
            self.path.owns_context = True
            self.add("context = context.copy()")

    def expression(self, expression: Expression) -> str:
        """Return the source of an expression, after the statements that it needs."""
        if expression.malformed is not None:
            raise NotCompiled("a malformed expression")
        if self.actions.language is not SAFE:
            raise NotCompiled("an expression of another language")
        outside, self.uses = self.uses, set()
        source = super().expression(expression)
        self._need(self.uses)
        self.uses |= outside
        return source

    def guard(self, guard: Any) -> str:
        """Return the source of a guard, after the statements that it needs."""
        outside, self.uses = self.uses, set()
        source = super().guard(guard)
        self._need(self.uses)
        self.uses |= outside
        return source

    def call_source(self, function: str, name: str, arguments: str, *, by: str) -> str:  # noqa: ARG002  # errors need no name here
        """Return the source of a plain call."""
        self._need({"event"})
        return f"{function}({arguments})"

    def check_source(self, value: str, field: Field) -> str:
        """Return the source of a check that is not charged: the value is short."""
        return f"refuse({value}, {self.constant(field)})"

    def assign(self, path: str, value: Value) -> None:
        """Write one assignment. If its type is certain, the only check is that a sum is one of machine integers."""
        field = self.actions.fields.get(path)
        if field is None:
            parts = tuple(path.split("."))
            source = self.value(value)
            self._own_context()
            known = self.actions.fields.get(parts[0])
            given = "None" if known is None else self.constant(known)
            self.add(f"assign_path(context, {parts!r}, {source}, {given})")
            return
        typed = self._typed(value)
        if typed is None or typed.type != field.type or not _is_unbounded(field):
            if not isinstance(value, Expression | dict | list) and refusal(value, field) is not None:
                raise NotCompiled("a value that its field refuses")
            self._own_context()
            super().assign(path, value)
            return
        self._need(typed.uses)
        self._own_context()
        if not typed.operands:
            self.add(f"context[{path!r}] = {typed.source}")
            return
        names = []
        for position, operand in enumerate(typed.operands, start=1):
            if operand.isdecimal():
                names.append(operand)
                continue
            names.append(f"v{position}")
            self.add(f"v{position} = {operand}")  # looked up once, for the check and for the sum
            self.add(f"if v{position}.__class__ is not x_integer: return None")
        self.add(f"v = {typed.sign.join(names)}")
        self.add(f"if not -{_SMALL} <= v <= {_SMALL}: return None")
        self.add(f"context[{path!r}] = v")

    def _typed(self, value: Value) -> Typed | None:
        """Return the source of an expression with its type; None for other values and other languages."""
        if not isinstance(value, Expression) or value.malformed is not None or self.actions.language is not SAFE:
            return None
        return compile_typed(parse(value.text), inside=dict(value.inside), fields=self.compiler.types)


def known_timers(chart: Chart, configuration: Configuration) -> list[Known]:
    """Return the timers that a snapshot has if each active state was entered and none of its timers has fired."""
    afters = [
        (chart.states[index].id, after.event)
        for index in sorted(configuration.active)
        for after in chart.states[index].after
    ]
    return [Known(f"t{number}", state, event) for number, (state, event) in enumerate(afters)]


def known_invokes(configuration: Configuration) -> list[Known]:
    """Return the invocations that a snapshot has if none of the active states' invokes has ended."""
    found = [(state.id, invoke.id or "") for state in configuration.invoking for invoke in state.invokes]
    return [Known(f"i{number}", state, name) for number, (state, name) in enumerate(found)]


def _invokeid(name: str) -> str:
    """Return the id of the invoke that an event name is the result of."""
    return name.split(".", 2)[2]


def _mapping(items: Mapping[str, str]) -> str:
    """Return the source of a mapping."""
    return "{" + ", ".join(f"{key!r}: {value}" for key, value in items.items()) + "}"


def _literal_delay(delay: Value) -> int | None:
    """Return the milliseconds of a delay that is not computed; None for one that is. Raises NotCompiled for others."""
    if isinstance(delay, Expression):
        return None
    try:
        return delay_of(delay, None)
    except ActionError as error:
        raise NotCompiled("a delay that is not a duration") from error


def _writes(block: Block) -> bool:
    """Return whether a block writes to the context."""
    return any(
        isinstance(each, Assign | AssignCall)
        or (isinstance(each, If) and (any(_writes(block) for _, block in each.branches) or _writes(each.otherwise)))
        for each in block
    )


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


def _is_unbounded(field: Field) -> bool:
    bounds = (field.enum, field.min, field.max, field.length_max)
    return all(each is None for each in bounds)

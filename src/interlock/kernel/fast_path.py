"""The fast path: one generated function per configuration and event, for plain steps (P8).

A step is plain when it is one microstep of guards, assigns and named actions, and is stable afterwards: no history,
timer, invoke, raise, send, completion or eventless transition. A compiled step is optimistic: it has no error handling.
If it raises or returns None, the general step runs instead, which is harmless because a step is pure.

Rule 1: nothing here defines semantics. `codegen` writes guards and assigns, and the order comes from plans.
Rule 2: a step is compiled only after `COMPILE_AFTER_USES` uses, because compiling costs as much as hundreds of steps.
Rule 3: a compiled step has no meter. It is made only of short content, and it accepts only short values. All other
        steps are general steps, which charge everything.

For `a: {on: {go: {target: b, guard: "= event.data > 0", actions: [{assign: {n: "= context.n + 1"}}]}}}` the source is,
with the names of constants replaced:

    def step(snapshot, event):
        if event.source is not None or event.invokeid is not None or snapshot.ended is not None or snapshot.deferred:
            return None
        if snapshot.kind != kind: return None
        context, entity, version = snapshot.context, snapshot.entity, snapshot.version + 1
        if (event.data > 0):
            context = context.copy()
            v1 = context['n']
            if type(v1) is not int: fall_back()
            v = v1 + 1
            if not -9223372036854775807 <= v <= 9223372036854775807: fall_back()
            context['n'] = v
            return Step(Snapshot(kind, entity, version, revision, ('b',), context, ...), (), 'applied', None, (0,))

A second function, `parts`, has the same body without the snapshot around it. `Kernel.fold` uses it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from interlock.expression.codegen import Typed, compile_typed
from interlock.expression.language import SAFE
from interlock.expression.metering import SHORT_TEXT, measure_value
from interlock.expression.parser import parse
from interlock.kernel.codegen import ACTION_WORK, ActionCompiler, CodeWriter, references
from interlock.kernel.parts import RunBlock
from interlock.kernel.plan import Configuration, Planner
from interlock.kernel.select import Selector
from interlock.model.chart import Chart
from interlock.model.document.actions import Action, Assign, AssignCall, Do, Expression, If, Value
from interlock.model.document.field import UNSET, Field, fields_refusal, plain_refusal, refusal
from interlock.model.effect import Effect
from interlock.model.event import Event, is_reserved
from interlock.model.limits import EFFECTS_MAX, UNMEASURED_MAX
from interlock.model.snapshot import Snapshot
from interlock.model.step import Step

COMPILE_AFTER_USES = 64
"""Uses of a configuration and event before their step is compiled: they cost about as much as compiling."""

WORK_MAX = 10_000
"""Units of work of one compiled step: beyond 100 evaluations, the general step charges it."""

SHORT_BYTES_MAX = 16_384
"""Bytes of a value that a compiled step stores: so few that it cannot reach the limit of a step."""

_SMALL = 2**63 - 1
"""The general step computes sums beyond this, and checks them against the real limit."""

_UNCHANGED = "snapshot.history, snapshot.timers, snapshot.invokes, (), snapshot.entered, None, None, snapshot.parent"
"""The fields of a snapshot that a plain step does not change, in order."""

_STEP_HEAD = (
    "def step(snapshot, event):",
    "    if event.source is not None or event.invokeid is not None or snapshot.ended is not None or snapshot.deferred:",
    "        return None",
    "    if snapshot.kind != kind: return None",
    "    context, entity, version = snapshot.context, snapshot.entity, snapshot.version + 1",
)
_PARTS_HEAD = ("def parts(context, event, entity, version):",)

StepParts = tuple[Configuration, dict[str, Any], tuple[Effect, ...], tuple[int, ...]]
"""The results of a plain step: the next configuration, the context, the effects, the transitions taken."""

CompiledParts = Callable[[dict[str, Any], Event, str, int], StepParts | None]
"""(context, event, entity, version) to the results of a plain step; None: the general step applies."""

CompiledStep = Callable[[Snapshot, Event], Step | None]
"""The same over a snapshot, for `Kernel.step`."""


class NotPlain(Exception):
    """The step needs the general path."""


class Accelerator:
    """Compiles the plain steps of one chart."""

    def __init__(self, chart: Chart, planner: Planner, selector: Selector, actions: ActionCompiler) -> None:
        self.chart = chart
        self.planner = planner
        self.selector = selector
        self.actions = actions
        self.events = None if chart.events is None else {each.name: each for each in chart.events}

    def count_use(self, configuration: Configuration, name: str) -> None:
        """Count one use of a configuration and event name. Compile the step once there were enough."""
        count = configuration.uses.get(name, 0)
        if count < 0 or name not in self.selector.named or is_reserved(name):  # reserved names have further checks
            return
        if count == 0:
            self._set_step(configuration, name, not_compiled)
        configuration.uses[name] = count + 1
        if count >= COMPILE_AFTER_USES:
            configuration.uses[name] = -1
            if self._is_eligible(configuration, name):
                try:
                    configuration.compiled_parts[name], step = self._compile(configuration, name)
                except NotPlain:
                    return
                self._set_step(configuration, name, step)

    def _set_step(self, configuration: Configuration, name: str, step: CompiledStep) -> None:
        self.planner.compiled_steps.setdefault(configuration.names, {})[name] = step

    def _is_eligible(self, configuration: Configuration, name: str) -> bool:
        known = None if self.events is None else self.events.get(name)
        declared = self.events is None or (known is not None and known.direction == "in")
        defaults = known is not None and any(each.default is not UNSET for each in known.payload or ())
        return declared and not defaults and not configuration.invoking and configuration.has_no_eventless

    def _compile(self, configuration: Configuration, name: str) -> tuple[CompiledParts, CompiledStep]:
        candidates = self.selector.candidates(configuration, self.selector.event_class(name))
        writer = _PlainWriter(self.actions)
        known = None if self.events is None else self.events[name]
        if known is not None and known.payload is not None:
            writer.add(f"if does_not_fit(event.data, {writer.constant(known.payload)}): return None")
        if candidates.enabled is not None:
            self._write_plan(writer, configuration, candidates.enabled)
        elif len(configuration.atomic) == 1:
            for number in candidates.numbers():
                self._write_candidate(writer, configuration, number)
        else:
            raise NotPlain
        return writer.functions(configuration.ids, self.chart)

    def _write_candidate(self, writer: _PlainWriter, configuration: Configuration, number: int) -> None:
        transition = self.chart.transitions[number]
        if transition.roles is not None or writer.work > WORK_MAX:
            raise NotPlain
        writer.add("if True:" if transition.guard is None else f"if {writer.guard(transition.guard)}:")
        writer.indent += 1
        self._write_plan(writer, configuration, (number,))
        writer.indent -= 1

    def _write_plan(self, writer: _PlainWriter, configuration: Configuration, enabled: tuple[int, ...]) -> None:
        if not enabled or any(self.planner.state_sets.reaches[number] for number in enabled):
            raise NotPlain
        plan = self.planner.plan(configuration, enabled, None)
        if plan.records or plan.ended or not plan.content or not plan.next.has_no_eventless:
            raise NotPlain
        writer.start_plan()
        for part in plan.parts:
            if not isinstance(part, RunBlock):  # also before a block with `In()`
                raise NotPlain
            writer.write_block(part.block)
        writer.end_plan(plan.next, plan.chosen)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Return:
    """The end of one plan, in the two forms of the function. All fields are source text."""

    indent: str
    configuration: str
    names: str
    effects: str
    transitions: str

    def parts(self) -> str:
        return f"{self.indent}return {self.configuration}, context, {self.effects}, {self.transitions}"

    def step(self) -> str:
        snapshot = f"Snapshot(kind, entity, version, revision, {self.names}, context, {_UNCHANGED})"
        return f"{self.indent}return Step({snapshot}, {self.effects}, 'applied', None, {self.transitions})"


class _PlainWriter(CodeWriter):
    """Writes blocks over plain arguments instead of a run. Raises NotPlain for actions that need a run."""

    measure = "need_short"

    def __init__(self, actions: ActionCompiler) -> None:
        super().__init__(actions)
        self.namespace |= {"Effect": Effect, "Step": Step, "Snapshot": Snapshot}
        self.namespace |= {"does_not_fit": _does_not_fit, "fall_back": _fall_back, "assign_all": _assign_all}
        self.namespace |= {"need_short": _need_short}
        self.references = 0
        self.plans: list[tuple[list[str], _Return]] = []
        """The lines of each plan written so far, and how it returns. `lines` are those after the last of them."""
        self.effects: list[str] = []
        self.nested = False
        self.types = {
            name: field.type
            for name, field in actions.fields.items()
            if field.type in ("integer", "string", "boolean") and not field.nullable
        }

    def start_plan(self) -> None:
        """Start a plan: it has its own effects, and copies the context before its first write."""
        self.effects, self.references = [], 0
        self.plan_start, self.writes = len(self.lines), False

    def end_plan(self, configuration: Configuration, chosen: tuple[int, ...]) -> None:
        """End a plan: the function returns."""
        for name in self.effects if self.references > UNMEASURED_MAX else ():
            self.add(f"need_short({name}.payload)")  # the general step would measure them
        indent = "    " * self.indent
        if self.writes:
            self.lines.insert(self.plan_start, f"{indent}context = context.copy()")
        result = _Return(
            indent=indent,
            configuration=self.constant(configuration),
            names=self.constant(configuration.names),
            effects=f"({', '.join(self.effects)},)" if self.effects else "()",
            transitions=self.constant(chosen),
        )
        self.plans.append((self.lines, result))
        self.lines = []

    def functions(self, active: frozenset[str], chart: Chart) -> tuple[CompiledParts, CompiledStep]:
        """Return both forms of the function. A long operand needs the meter, which is None here, and so raises."""
        if "entity" in self.uses:
            raise NotPlain
        self.namespace |= {"kind": chart.kind, "revision": chart.revision}
        head = (["    meter = None"] if "meter" in self.uses else []) + (
            [f"    active = {self.constant(active)}"] if "active" in self.uses else []
        )
        parts = [line for lines, result in self.plans for line in (*lines, result.parts())]
        step = [line for lines, result in self.plans for line in (*lines, result.step())]
        source = "\n".join([*_PARTS_HEAD, *head, *parts, *_STEP_HEAD, *head, *step])
        # As in `codegen`: our own source over checked trees, without builtins.
        exec(compile(source, "<fast>", "exec"), self.namespace)  # noqa: S102
        compiled_parts: CompiledParts = self.namespace["parts"]  # type: ignore[assignment]  # the source defines it
        compiled_step: CompiledStep = self.namespace["step"]  # type: ignore[assignment]  # the source defines it
        return compiled_parts, compiled_step

    def action(self, action: Action) -> None:
        if self.work > WORK_MAX:
            raise NotPlain  # before more of it is written in vain
        match action:
            case Do() if not self.nested and len(self.effects) < EFFECTS_MAX:
                given = "" if action.arguments is None else f", 'input': {self.value(action.arguments)}"
                number = len(self.effects)
                name = f"effect_{number}"
                key = f"f'{{entity}}/{{version}}/{number}'"
                self.add(f"{name} = Effect('call', {number}, {key}, {{'name': {action.name!r}{given}}})")
                self.effects.append(name)
                self.work += ACTION_WORK
                self.references += references(action.arguments)
            case Assign():
                super().action(action)
            case AssignCall():
                self.writes = True
                self.uses.add("context")
                result = self.call(action.name, self.actions.assigns, action.arguments)
                self.add(f"assign_all(context, {result}, {self.constant(self.actions.fields)})")
            case If():
                outer, self.nested = self.nested, True
                super().action(action)
                self.nested = outer
            case _:
                raise NotPlain

    def call_source(self, function: str, name: str, arguments: str, *, by: str) -> str:  # noqa: ARG002  # errors need no name here
        """Return the source of a plain call."""
        return f"{function}({arguments})"

    def check_source(self, value: str, field: Field) -> str:
        """Return the source of a check that is not charged: the value is short."""
        return f"refuse({value}, {self.constant(field)})"

    def assign(self, path: str, value: Value) -> None:
        """Write one assignment. If its type is certain, the only check is that a sum is one of machine integers."""
        field = self.actions.fields.get(path)
        if field is None:
            raise NotPlain
        typed = self.typed(value)
        if typed is None or typed.type != field.type or not _is_unbounded(field):
            super().assign(path, value)
            return
        self.writes = True
        self.work += ACTION_WORK
        self.uses |= typed.uses
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
            self.add(f"if type(v{position}) is not {self.constant(int)}: fall_back()")
        self.add(f"v = {typed.sign.join(names)}")
        self.add(f"if not -{_SMALL} <= v <= {_SMALL}: fall_back()")
        self.add(f"context[{path!r}] = v")

    def typed(self, value: Value) -> Typed | None:
        """Return the source of an expression with its type; None for other values and other languages."""
        if not isinstance(value, Expression) or value.malformed is not None or self.actions.language is not SAFE:
            return None
        return compile_typed(parse(value.text), inside=dict(value.inside), fields=self.types)


def _assign_all(context: dict[str, Any], result: Any, fields: Mapping[str, Field]) -> None:
    """Write the result of a registered function. The general step reports whatever is wrong with it."""
    if type(result) is not dict or plain_refusal(result) is not None:
        raise NotPlain
    for name, value in result.items():
        if refusal(value, fields[name]) is not None:
            raise NotPlain
        kind = type(value)
        if kind is list or kind is dict or (kind is str and len(value) >= SHORT_TEXT):
            _need_short(value)
        context[name] = value


def _need_short(value: Any) -> None:
    """Fall back to the general step for a long string or a large tree, which it measures."""
    if type(value) is str or measure_value(value, None) > SHORT_BYTES_MAX:
        raise NotPlain


def not_compiled(snapshot: Snapshot, event: Event) -> None:
    """Replace a step that is not compiled yet: a lookup that succeeds is faster than a KeyError."""


def _fall_back() -> None:
    raise NotPlain


def _does_not_fit(data: Any, fields: tuple[Field, ...]) -> bool:
    """Return whether a payload does not fit as it is. The general step then completes or rejects it."""
    return type(data) is not dict or fields_refusal(data, fields) is not None


def _is_unbounded(field: Field) -> bool:
    bounds = (field.enum, field.min, field.max, field.length_max)
    return all(each is None for each in bounds)

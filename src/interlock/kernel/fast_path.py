"""The second tier: one generated function per configuration and event, for plain steps (P8).

A step qualifies when it is one microstep of guards, assigns and named actions, and settles at once: no history,
timer, invoke,
raise, send, completion or eventless transition. Such a function is optimistic: it has no error handling at all.
Whenever it
raises, or answers None, the step is run again by the general path, which is harmless because a step is pure.

Rule 1: nothing here has a meaning of its own: guards and assigns are written by `actions`, orders come from plans.
Rule 2: a function is made only after `COMPILE_AFTER_USES` uses, because making one costs as much as hundreds of steps.
Rule 3: a function has no meter. It is made only of content with a short text, and it accepts only short values.
        Every other step goes the general way, where everything is charged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from interlock.expression.codegen import Typed, compile_typed
from interlock.expression.language import SAFE
from interlock.expression.metering import SHORT_TEXT, weigh
from interlock.expression.parser import parse
from interlock.kernel.codegen import ACTION_WORK, ActionCompiler, CodeWriter, references
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
"""Uses of a configuration and event before a function is generated for them: about what making it costs."""

WORK_MAX = 10_000
"""Units of work of the content that one function is made of: beyond 100 evaluations the general path charges it."""

LIGHT_BYTES_MAX = 16_384
"""Bytes of a value that a function stores: so little that a step of it never comes near the limit of a step."""

_SMALL = 2**63 - 1
"""Sums beyond this go the general way, which checks them against the real limit."""

_CARRIED = "snapshot.history, snapshot.timers, snapshot.invokes, (), snapshot.entered, None, None, snapshot.parent"
"""What a plain step takes over from the snapshot, in the order of its fields."""

_WHOLE = (
    "def whole(snapshot, event):",
    "    if event.source is not None or event.invokeid is not None or snapshot.ended is not None or snapshot.deferred:",
    "        return None",
    "    if snapshot.kind != kind: return None",
    "    context, entity, version = snapshot.context, snapshot.entity, snapshot.version + 1",
)

Advanced = tuple[Configuration, dict[str, Any], tuple[Effect, ...], tuple[int, ...]]
"""What a fast step gives: the next configuration, the context, the effects, the transitions chosen."""

Fast = Callable[[dict[str, Any], Event, str, int], Advanced | None]
"""(context, event, entity, version) to what the step gives, or None: not this way."""

Whole = Callable[[Snapshot, Event], Step | None]
"""The same over a snapshot, for `step`: what the step gives is put together inside, which spares a hand-over."""


class NotPlain(Exception):
    """This step needs the general path."""


class Accelerator:
    """Makes fast functions for one chart."""

    def __init__(self, chart: Chart, planner: Planner, selector: Selector, actions: ActionCompiler) -> None:
        self.chart = chart
        self.planner = planner
        self.selector = selector
        self.actions = actions
        self.events = None if chart.events is None else {each.name: each for each in chart.events}

    def count_use(self, configuration: Configuration, name: str) -> None:
        """Count one use; when there were enough, make the function."""
        count = configuration.uses.get(name, 0)
        if count < 0 or name not in self.selector.named or is_reserved(name):  # those have checks of their own
            return
        if count == 0:
            self._set_step(configuration, name, not_compiled)
        configuration.uses[name] = count + 1
        if count >= COMPILE_AFTER_USES:
            configuration.uses[name] = -1
            if self._is_eligible(configuration, name):
                try:
                    configuration.compiled_parts[name], whole = self._made(configuration, name)
                except NotPlain:
                    return
                self._set_step(configuration, name, whole)

    def _set_step(self, configuration: Configuration, name: str, step: Whole) -> None:
        self.planner.compiled_steps.setdefault(configuration.names, {})[name] = step

    def _is_eligible(self, configuration: Configuration, name: str) -> bool:
        known = None if self.events is None else self.events.get(name)
        declared = self.events is None or (known is not None and known.direction == "in")
        defaults = known is not None and any(each.default is not UNSET for each in known.payload or ())
        return declared and not defaults and not configuration.invoking and configuration.has_no_eventless

    def _made(self, configuration: Configuration, name: str) -> tuple[Fast, Whole]:
        candidates = self.selector.candidates(configuration, self.selector.event_class(name))
        writer = _FastWriter(self.actions)
        known = None if self.events is None else self.events[name]
        if known is not None and known.payload is not None:
            writer.add(f"if is_refused(event.data, {writer.constant(known.payload)}): return None")
        if candidates.enabled is not None:
            self._write_plan(writer, configuration, candidates.enabled)
        elif len(configuration.atomic) == 1:
            for number in candidates.numbers():
                self._write_candidate(writer, configuration, number)
        else:
            raise NotPlain
        return writer.made(configuration.ids, self.chart)

    def _write_candidate(self, writer: _FastWriter, configuration: Configuration, number: int) -> None:
        transition = self.chart.transitions[number]
        if transition.roles is not None or writer.work > WORK_MAX:
            raise NotPlain
        writer.add("if True:" if transition.guard is None else f"if {writer.guard(transition.guard)}:")
        writer.indent += 1
        self._write_plan(writer, configuration, (number,))
        writer.indent -= 1

    def _write_plan(self, writer: _FastWriter, configuration: Configuration, enabled: tuple[int, ...]) -> None:
        if not enabled or any(self.planner.state_sets.reaches[number] for number in enabled):
            raise NotPlain
        plan = self.planner.plan(configuration, enabled, None)
        if plan.records or plan.ended or not plan.content or not plan.next.has_no_eventless or plan.blocks is None:
            raise NotPlain
        writer.begin()
        # No block asks `In()`, or the plan would not consist of blocks alone: it sees the configuration of its moment.
        for block in plan.blocks:
            writer.write_block(block)
        writer.finish(plan.next, plan.chosen)


class _FastWriter(CodeWriter):
    """Writes content over plain arguments instead of a run. What needs a run is refused."""

    keeper = "need_light"

    def __init__(self, actions: ActionCompiler) -> None:
        super().__init__(actions)
        self.namespace |= {"Effect": Effect, "Step": Step, "Snapshot": Snapshot}
        self.namespace |= {"is_refused": _is_refused, "go_general": _fall_back, "assign_all": _assign_all}
        self.namespace |= {"need_light": _need_light}
        self.references = 0
        self.answers: dict[str, tuple[str, str]] = {}
        self.effects: list[str] = []
        self.nested = False
        self.types = {
            name: field.type
            for name, field in actions.fields.items()
            if field.type in ("integer", "string", "boolean") and not field.nullable
        }

    def begin(self) -> None:
        """Begin one plan: its own copy of the context once it writes, its own effects."""
        self.effects, self.references = [], 0
        self.mark, self.writes = len(self.lines), False

    def finish(self, configuration: Configuration, chosen: tuple[int, ...]) -> None:
        """End one plan with its answer."""
        for name in self.effects if self.references > UNMEASURED_MAX else ():
            self.add(f"need_light({name}.payload)")  # the general path would have counted them
        if self.writes:
            self.lines.insert(self.mark, "    " * self.indent + "context = context.copy()")
        effects = f"({', '.join(self.effects)},)" if self.effects else "()"
        mark = f"answer {len(self.answers)}"
        names, transitions = self.constant(configuration.names), self.constant(chosen)
        snapshot = f"Snapshot(snapshot.kind, entity, version, revision, {names}, context, {_CARRIED})"
        advanced = f"return {self.constant(configuration)}, context, {effects}, {transitions}"
        self.answers[mark] = (advanced, f"return Step({snapshot}, {effects}, 'applied', None, {transitions})")
        self.add(mark)

    def made(self, active: frozenset[str], chart: Chart) -> tuple[Fast, Whole]:
        """Both forms of the function. Long operands find no meter, raise, and so go the general way."""
        if "entity" in self.uses:
            raise NotPlain
        self.namespace |= {"kind": chart.kind, "revision": chart.revision}
        names = (["    meter = None"] if "meter" in self.uses else []) + (
            [f"    active = {self.constant(active)}"] if "active" in self.uses else []
        )
        text = [
            "def fast(context, event, entity, version):",
            *names,
            *self._answered(0),
            *_WHOLE,
            *names,
            *self._answered(1),
        ]
        # As in `actions`: our own text over checked trees, without builtins.
        exec(compile("\n".join(text), "<fast>", "exec"), self.namespace)  # noqa: S102
        fast: Fast = self.namespace["fast"]  # type: ignore[assignment]  # what the text just defined
        whole: Whole = self.namespace["whole"]  # type: ignore[assignment]  # what the text just defined
        return fast, whole

    def _answered(self, form: int) -> list[str]:
        """The lines with each plan's answer in one of its two forms."""
        return [
            line.replace(mark, self.answers[mark][form]) if (mark := line.strip()) in self.answers else line
            for line in self.lines
        ]

    def action(self, action: Action) -> None:
        if self.work > WORK_MAX:
            raise NotPlain  # before more of it is compiled in vain
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

    def called(self, function: str, name: str, arguments: str, *, by: str) -> str:  # noqa: ARG002  # errors go the general way
        """A plain call."""
        return f"{function}({arguments})"

    def refused(self, value: str, field: Field) -> str:
        """A check that is not charged: the value is small."""
        return f"refuse({value}, {self.constant(field)})"

    def assign(self, path: str, value: Value) -> None:
        """One write. Where the type is certain, no check is left but that a sum is one of machine numbers."""
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
        source = typed.source
        read = [each for each in typed.operands if not each.isdecimal()]
        for position, each in enumerate(read, start=1):
            self.add(f"v{position} = {each}")  # looked up once: the check and the sum both need it
            self.add(f"if type(v{position}) is not {self.constant(int)}: go_general()")
            source = source.replace(each, f"v{position}", 1)
        if typed.operands:
            self.add(f"v = {source}")
            self.add(f"if not -{_SMALL} <= v <= {_SMALL}: go_general()")
            source = "v"
        self.add(f"context[{path!r}] = {source}")

    def typed(self, value: Value) -> Typed | None:
        """The source of an expression with what is known of its type; None for other values and other languages."""
        if not isinstance(value, Expression) or value.malformed is not None or self.actions.language is not SAFE:
            return None
        return compile_typed(parse(value.text), inside=dict(value.inside), fields=self.types)


def _assign_all(context: dict[str, Any], result: Any, fields: Mapping[str, Field]) -> None:
    """Write what a registered function returned. Whatever is wrong with it, the general path says."""
    if type(result) is not dict or plain_refusal(result) is not None:
        raise NotPlain
    for name, value in result.items():
        if refusal(value, fields[name]) is not None:
            raise NotPlain
        kind = type(value)
        if kind is list or kind is dict or (kind is str and len(value) >= SHORT_TEXT):
            _need_light(value)
        context[name] = value


def _need_light(value: Any) -> None:
    """Go the general way with a long string or a large tree: nothing counts them here."""
    if type(value) is str or weigh(value, None) > LIGHT_BYTES_MAX:
        raise NotPlain


def not_compiled(snapshot: Snapshot, event: Event) -> None:
    """Stand for a step that is not compiled. The lookup then finds something, which is faster than a KeyError."""


def _fall_back() -> None:
    raise NotPlain


def _is_refused(data: Any, fields: tuple[Field, ...]) -> bool:
    """Whether a payload is not plainly right: the general path then completes or refuses it."""
    return type(data) is not dict or fields_refusal(data, fields) is not None


def _is_unbounded(field: Field) -> bool:
    bounds = (field.enum, field.min, field.max, field.length_max)
    return all(each is None for each in bounds)

"""The second tier: one generated function per configuration and event, for plain steps (P8).

A step qualifies when it is one microstep of guards, assigns and named actions, and settles at once: no history,
timer, invoke,
raise, send, completion or eventless transition. Such a function is optimistic: it has no error handling at all.
Whenever it
raises, or answers None, the step is run again by the general path, which is harmless because a step is pure.

Rule 1: nothing here has a meaning of its own: guards and assigns are written by `actions`, orders come from plans.
Rule 2: a function is made only after `HITS` uses, because making one costs as much as hundreds of steps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from interlock.kernel.actions import Actions, Writer
from interlock.kernel.plan import Configuration, Planner
from interlock.kernel.select import Selector
from interlock.model.action import Action, Assign, Block, Do, If, Value
from interlock.model.chart import Chart
from interlock.model.effect import Effect
from interlock.model.event import Event

HITS = 64
"""Uses of a configuration and event before a function is generated for them: about what making it costs."""

Advanced = tuple[Configuration, dict[str, Any], tuple[Effect, ...], tuple[int, ...]]
"""What a fast step gives: the next configuration, the context, the effects, the transitions chosen."""

Fast = Callable[[dict[str, Any], Event, str, int], Advanced | None]
"""(context, event, entity, version) to what the step gives, or None: not this way."""


class _NotFast(Exception):
    """This step needs the general path."""


class Accelerator:
    """Makes fast functions for one chart."""

    def __init__(self, chart: Chart, planner: Planner, selector: Selector, actions: Actions) -> None:
        self.chart = chart
        self.planner = planner
        self.selector = selector
        self.actions = actions
        declared = chart.events or ()
        self.refused = {each.name for each in declared if each.payload is not None or each.direction != "in"}
        self.only = None if chart.events is None else {each.name for each in declared}

    def heat(self, configuration: Configuration, name: str) -> None:
        """Count one use; when there were enough, make the function."""
        count = configuration.heat.get(name, 0)
        if count < 0 or name not in self.selector.named:
            return
        configuration.heat[name] = count + 1
        if count >= HITS:
            configuration.heat[name] = -1
            if self._is_eligible(configuration, name):
                try:
                    configuration.fast[name] = self._made(configuration, name)
                except _NotFast:
                    return

    def _is_eligible(self, configuration: Configuration, name: str) -> bool:
        declared = self.only is None or name in self.only
        return declared and name not in self.refused and not configuration.invoking and configuration.quiet

    def _made(self, configuration: Configuration, name: str) -> Fast:
        candidates = self.selector.candidates(configuration, self.selector.event_class(name))
        writer = _FastWriter(self.actions)
        if candidates.enabled is not None:
            self._write_plan(writer, configuration, candidates.enabled)
        elif len(configuration.atoms) == 1:
            for number in candidates.walks[0]:
                self._write_candidate(writer, configuration, number)
        else:
            raise _NotFast
        return writer.made(configuration.ids)

    def _write_candidate(self, writer: _FastWriter, configuration: Configuration, number: int) -> None:
        transition = self.chart.transitions[number]
        if transition.roles is not None:
            raise _NotFast
        writer.add("if True:" if transition.guard is None else f"if {writer.guard(transition.guard)}:")
        writer.indent += 1
        self._write_plan(writer, configuration, (number,))
        writer.indent -= 1

    def _write_plan(self, writer: _FastWriter, configuration: Configuration, enabled: tuple[int, ...]) -> None:
        if not enabled or any(self.planner.structure.reaches[number] for number in enabled):
            raise _NotFast
        plan = self.planner.plan(configuration, enabled, None)
        if plan.records or plan.ended or not plan.content or not plan.next.quiet or plan.blocks is None:
            raise _NotFast
        writer.begin()
        for block in plan.blocks:
            writer.lines_of(block)
        writer.finish(plan.next, plan.chosen)


class _FastWriter(Writer):
    """Writes content over plain arguments instead of a run. What needs a run is refused."""

    def __init__(self, actions: Actions) -> None:
        super().__init__(actions)
        self.namespace["Effect"] = Effect
        self.effects: list[str] = []
        self.nested = False

    def begin(self) -> None:
        """Begin one plan: its own copy of the context once it writes, its own effects."""
        self.effects = []
        self.mark, self.writes = len(self.lines), False

    def finish(self, configuration: Configuration, chosen: tuple[int, ...]) -> None:
        """End one plan with its answer."""
        if self.writes:
            self.lines.insert(self.mark, "    " * self.indent + "context = context.copy()")
        effects = f"({', '.join(self.effects)},)" if self.effects else "()"
        self.add(f"return {self.constant(configuration)}, context, {effects}, {self.constant(chosen)}")

    def made(self, active: frozenset[str]) -> Fast:
        """The function. Long operands find no meter, raise, and so go the general way."""
        if "entity" in self.uses:
            raise _NotFast
        opening = ["def fast(context, event, entity, version):"]
        if "meter" in self.uses:
            opening.append("    meter = None")
        if "active" in self.uses:
            opening.append(f"    active = {self.constant(active)}")
        # As in `actions`: our own text over checked trees, without builtins.
        exec(compile("\n".join(opening + self.lines), "<fast>", "exec"), self.namespace)  # noqa: S102
        function: Fast = self.namespace["fast"]  # type: ignore[assignment]  # what the text just defined
        return function

    def lines_of(self, block: Block) -> None:
        before = "active" in self.uses
        super().lines_of(block)
        if "active" in self.uses and not before:
            raise _NotFast  # `In()` inside a block sees the configuration of its moment

    def action(self, action: Action) -> None:
        match action:
            case Do() if not self.nested:
                given = "" if action.arguments is None else f", 'input': {self.value(action.arguments)}"
                number = len(self.effects)
                name = f"effect_{number}"
                key = f"f'{{entity}}/{{version}}/{number}'"
                self.add(f"{name} = Effect('call', {number}, {key}, {{'name': {action.name!r}{given}}})")
                self.effects.append(name)
            case Assign():
                super().action(action)
            case If():
                outer, self.nested = self.nested, True
                super().action(action)
                self.nested = outer
            case _:
                raise _NotFast

    def assign(self, path: str, value: Value) -> None:
        if path not in self.actions.fields:
            raise _NotFast
        super().assign(path, value)

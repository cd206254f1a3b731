"""Explain why an event is accepted or not: the candidate transitions, the guards that failed, and what those read.

Rule 1: the step itself records nothing about guards. An explanation evaluates them again.
Rule 2: values are shown as they are in the context. The driver masks what a reader may not see.
Rule 3: an explanation takes no longer than a step may. It has its own budget, compiles guards once, and lists only the
        first guards that failed.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from interlock.expression.metering import measure_value, text_bytes
from interlock.expression.parser import ExpressionError
from interlock.kernel.codegen import ActionCompiler, Operation
from interlock.kernel.errors import describe_error
from interlock.kernel.plan import Configuration
from interlock.kernel.run import StepRun, run_from
from interlock.kernel.select import Selector, may_leave
from interlock.model.charts.chart import Chart, Transition
from interlock.model.document.actions import Expression, Guard
from interlock.model.document.walk import guard_expressions
from interlock.model.document.wording import guard_text
from interlock.model.event import Event
from interlock.model.snapshot import Snapshot
from interlock.model.step import FailedGuard

FAILED_GUARDS_MAX = 100
"""Failed guards that one rejection lists, each with the values that it read."""


VALUES_BYTES_MAX = 1_048_576
"""Bytes of values in one explanation (1 MiB): a hundred guards may read the same long list."""


class Candidate(Struct, frozen=True, omit_defaults=True):
    """A transition that an event could take now: its event, its state, and whether its guard holds."""

    event: str
    transition: int
    state: str
    accepted: bool
    guard: str | None = None
    values: dict[str, Any] = {}
    error: str | None = None


class Explainer:
    """Explains the transitions of one chart."""

    def __init__(self, chart: Chart, selector: Selector, actions: ActionCompiler) -> None:
        self.chart = chart
        self.selector = selector
        self.actions = actions
        self._paths: dict[str, dict[str, Operation]] = {}

    def candidates(
        self, snapshot: Snapshot, configuration: Configuration, event: Event | None
    ) -> tuple[Candidate, ...]:
        """Return the transitions of the active states that have an event, inner states first."""
        numbers = (
            number
            for state in configuration.atomic
            for index in self.chart.path(state)
            for number in self.chart.states[index].transitions
        )
        transitions = (self.chart.transitions[number] for number in dict.fromkeys(numbers))
        run = _run(snapshot, configuration, event, self.actions)
        return tuple(self._candidate(each, run) for each in transitions if each.descriptors)

    def _candidate(self, transition: Transition, run: StepRun) -> Candidate:
        guard = transition.guard
        held, error = self._evaluate(transition, run)
        return Candidate(
            event=", ".join(each.text for each in transition.descriptors),
            transition=transition.index,
            state=self.chart.states[transition.source].id,
            accepted=held,
            guard=None if guard is None else guard_text(guard),
            values={} if guard is None else self._values(guard, run),
            error=error,
        )

    def failed_guards(
        self, snapshot: Snapshot, configuration: Configuration, event: Event
    ) -> tuple[tuple[FailedGuard, ...], bool]:
        """Return the guards that failed for an event, and whether a transition was prevented only by its roles."""
        candidates = self.selector.candidates(configuration, self.selector.event_class(event.name))
        run = _run(snapshot, configuration, event, self.actions)
        failed: list[FailedGuard] = []
        denied = False
        for number in candidates.numbers():
            transition = self.chart.transitions[number]
            if not may_leave(transition, event, configuration.ids):
                continue  # as if the hidden state did not have it: its event may be deferred
            guard = transition.guard
            held, error = self._evaluate(transition, run)
            if guard is None or held:
                denied = True
            elif len(failed) < FAILED_GUARDS_MAX:
                failed.append(FailedGuard(number, guard_text(guard), self._values(guard, run), error))
        return tuple(failed), denied

    def _evaluate(self, transition: Transition, run: StepRun) -> tuple[bool, str | None]:
        """Return whether the guard holds, ignoring roles, and its error if it raised."""
        if transition.guard is None:
            return True, None
        try:
            return bool(self.selector.guard(transition, transition.guard)(run)), None
        except Exception as error:  # noqa: BLE001  # a guard may raise anything
            return False, describe_error(error)[1]

    def _values(self, guard: Guard, run: StepRun) -> dict[str, Any]:
        """Return the paths that a guard reads, with their values. Missing and long values are left out."""
        found: dict[str, Any] = {}
        for expression in guard_expressions(guard):
            for text, value in self._read(expression).items():
                try:
                    read = value(run)
                    run.stored += text_bytes(read) if type(read) is str else measure_value(read, run.meter)
                    if run.stored <= VALUES_BYTES_MAX:
                        found[text] = read
                except Exception:  # noqa: BLE001, S112  # the error of the guard itself is in `error`
                    continue
        return found

    def _read(self, expression: Expression) -> dict[str, Operation]:
        """Return the paths that an expression reads, each with the function of its value; compiled on first use."""
        found = self._paths.get(expression.text)
        if found is None:
            found = {text: self.actions.value(Expression(text)) for text in self._texts(expression)}
            self._paths[expression.text] = found
        return found

    def _texts(self, expression: Expression) -> Iterator[str]:
        try:
            parsed = self.actions.language.check(expression.text)
        except ExpressionError:
            return
        stack: list[ast.AST] = [] if parsed is None else [parsed.tree]
        while stack:
            node = stack.pop()
            if isinstance(node, ast.Attribute | ast.Subscript) and _is_path(node):
                yield ast.unparse(node)
            else:
                stack.extend(reversed(list(ast.iter_child_nodes(node))))


def _run(snapshot: Snapshot, configuration: Configuration, event: Event | None, actions: ActionCompiler) -> StepRun:
    run = run_from(snapshot, 0 if event is None else event.time_ms, actions.fields, raises=False)
    run.event = event
    run.active = configuration.ids
    return run


def _is_path(node: ast.AST) -> bool:
    while isinstance(node, ast.Attribute) or (isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant)):
        node = node.value
    return isinstance(node, ast.Name)

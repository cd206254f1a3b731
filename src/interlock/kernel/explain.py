"""Why an event is or is not accepted: which transitions were in question, which guards said no, and what those read.

Rule 1: asked only after the fact; the step itself keeps no record of guards.
Rule 2: values are as they are in the context; masking what a reader may not see is the driver's.
Rule 3: an answer takes no longer than a step may. It has a separate budget, functions are made once, and it lists
        only the first guards that failed.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from interlock.expression.metering import text_bytes, weigh
from interlock.expression.parser import ExpressionError
from interlock.kernel.codegen import ActionCompiler, Operation
from interlock.kernel.errors import describe_error
from interlock.kernel.plan import Configuration
from interlock.kernel.run import StepRun, run_from
from interlock.kernel.select import Selector
from interlock.model.chart import Chart, Transition
from interlock.model.document.actions import Expression, Guard, guard_expressions, guard_text
from interlock.model.event import Event
from interlock.model.snapshot import Snapshot
from interlock.model.step import FailedGuard

TRIALS_MAX = 100
"""Failed guards that one refusal lists. Each comes with the values that it read."""


TOLD_BYTES_MAX = 1_048_576
"""Bytes of values in one answer (1 MiB, counted as in a step): a hundred guards may read the same long list."""


class Candidate(Struct, frozen=True, omit_defaults=True):
    """A transition in question now: by which event, from which state, and whether it would be taken."""

    event: str
    transition: int
    state: str
    accepted: bool
    guard: str | None = None
    values: dict[str, Any] = {}
    error: str | None = None


class Explainer:
    """Answers for one chart."""

    def __init__(self, chart: Chart, selector: Selector, actions: ActionCompiler) -> None:
        self.chart = chart
        self.selector = selector
        self.actions = actions
        self._paths: dict[str, dict[str, Operation]] = {}

    def candidates(
        self, snapshot: Snapshot, configuration: Configuration, event: Event | None
    ) -> tuple[Candidate, ...]:
        """Every evented transition of the active states, inner first, with the verdict of its guard now."""
        numbers = (
            number
            for atom in configuration.atomic
            for index in self.chart.path(atom)
            for number in self.chart.states[index].transitions
        )
        transitions = (self.chart.transitions[number] for number in dict.fromkeys(numbers))
        run = _run(snapshot, configuration, event, self.actions)
        return tuple(self._candidate(each, run) for each in transitions if each.descriptors)

    def _candidate(self, transition: Transition, run: StepRun) -> Candidate:
        guard = transition.guard
        held, error = self._asked(transition, run)
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
        """The guards that said no to an event, and whether only roles stood in the way of a transition."""
        candidates = self.selector.candidates(configuration, self.selector.event_class(event.name))
        run = _run(snapshot, configuration, event, self.actions)
        trials: list[FailedGuard] = []
        denied = False
        for number in candidates.numbers():
            transition = self.chart.transitions[number]
            guard = transition.guard
            held, error = self._asked(transition, run)
            if guard is None or held:
                denied = True
            elif len(trials) < TRIALS_MAX:
                trials.append(FailedGuard(number, guard_text(guard), self._values(guard, run), error))
        return tuple(trials), denied

    def _asked(self, transition: Transition, run: StepRun) -> tuple[bool, str | None]:
        """Whether the guard holds, roles left out, or how it failed."""
        if transition.guard is None:
            return True, None
        try:
            return bool(self.selector.guard(transition, transition.guard)(run)), None
        except Exception as error:  # noqa: BLE001  # whatever a guard raises is what is to be told
            return False, describe_error(error)[1]

    def _values(self, guard: Guard, run: StepRun) -> dict[str, Any]:
        """What the expressions of a guard read: each path with its value, unless it leads nowhere or that is long."""
        found: dict[str, Any] = {}
        for expression in guard_expressions(guard):
            for text, value in self._read(expression).items():
                try:
                    read = value(run)
                    run.stored += text_bytes(read) if type(read) is str else weigh(read, run.meter)
                    if run.stored <= TOLD_BYTES_MAX:
                        found[text] = read
                except Exception:  # noqa: BLE001, S112  # the guard's own error is told beside it
                    continue
        return found

    def _read(self, expression: Expression) -> dict[str, Operation]:
        """The paths that an expression reads, each with the function that gives its value; made on first use."""
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

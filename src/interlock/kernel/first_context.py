"""How an entity begins: its context built and checked, its initial states entered (S5, S6)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from interlock.errors import RejectedError, UsageError
from interlock.kernel.codegen import ActionCompiler, Operation
from interlock.kernel.operations import first_value
from interlock.kernel.run import StepRun
from interlock.model.chart import Chart, State
from interlock.model.document.actions import value_expressions
from interlock.model.document.field import UNSET, Field, copied, plain_refusal, refusal


class FirstContext:
    """Builds the first context of entities of one chart."""

    def __init__(self, chart: Chart, actions: ActionCompiler) -> None:
        self.chart = chart
        self.actions = actions
        self.fields = {field.name: field for field in chart.states[0].context}
        self.required = tuple(field.name for field in chart.states[0].context if field.required)
        self._made: dict[tuple[int, str], Operation] = {}
        self.constant = self._constant()
        """The whole first context where no field of it has to be evaluated, else None."""
        self.shares = any(type(each) in (dict, list) for each in (self.constant or {}).values())

    def _constant(self) -> dict[str, Any] | None:
        if self.chart.script is not None or self.chart.binding == "late":
            return None
        found: dict[str, Any] = {}
        for state in self.chart.states:
            for field in state.context:
                value = None if field.default is UNSET else field.default
                refused = field.default is not UNSET and refusal(value, field) is not None
                if refused or any(True for _ in value_expressions(value)):
                    return None
                found[field.name] = value
        return found

    def given(self, context: Mapping[str, Any] | None) -> Mapping[str, Any]:
        """The context given at creation, checked against the root's fields; a copy, as the caller keeps his own."""
        context = context or {}
        fields = self.fields
        for name, value in context.items():
            field = fields.get(name)
            if field is None:
                known = ", ".join(fields) or "none"
                raise RejectedError(
                    f"`{name}` is not a field of chart `{self.chart.kind}`; its fields are {known}",
                    code="context.unknown",
                )
            problem = plain_refusal(value) or refusal(value, field)
            if problem is not None:
                raise RejectedError(f"the context is refused: {problem}", code="context.refused")
        for name in self.required:
            if name not in context:
                raise RejectedError(f"the field `{name}` must be given at creation", code="context.missing")
        return {name: copied(value) for name, value in context.items()}

    def first(self, constant: dict[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
        """The first context of one entity: the constant one with what was given on top. No other entity holds it."""
        return {**(copied(constant) if self.shares else constant), **given}

    def bind(self, run: StepRun, given: Mapping[str, Any]) -> None:
        """Build the context in document order: early binding all of it, late only the root's (S5)."""
        late = self.chart.binding == "late"
        run.context = {}
        for state in self.chart.states:
            if late and state.index > 0:
                break
            for field in state.context:
                if state.index == 0 and field.name in given:
                    run.context[field.name] = given[field.name]
                elif field.default is UNSET:
                    run.context[field.name] = None
                else:
                    self._bind_default(run, state, field)
        if self.chart.script is not None:
            self._run_script(run)

    def _bind_default(self, run: StepRun, state: State, field: Field) -> None:
        key = (state.index, field.name)
        value = self._made.get(key)
        if value is None:
            value = self._made[key] = first_value(field, self.actions)
        run.attempt(value, f"{state.id}.context.{field.name}")

    def _run_script(self, run: StepRun) -> None:
        script = self.actions.language.script(self.chart.script or "")
        if script is None:
            raise UsageError("scripts are refused: they run code", code="script.untrusted")
        run.attempt(lambda run: script(run.writable_context(), run.event, run, run.active, run.meter), "script")

"""Build and check the first context of an entity (S5, S6)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from interlock.errors import RejectedError, UsageError
from interlock.kernel.codegen import ActionCompiler, Operation
from interlock.kernel.parts import first_value
from interlock.kernel.run import StepRun
from interlock.model.charts.chart import Chart, State
from interlock.model.document.field import UNSET, Field, copy_json, field_problem, json_problem
from interlock.model.document.walk import value_expressions
from interlock.model.encoding.convert import to_json
from interlock.model.personal_token import KEY_FIELD


class FirstContext:
    """Builds the first contexts of one chart's entities."""

    def __init__(self, chart: Chart, actions: ActionCompiler, *, keeps_key: bool) -> None:
        self.chart = chart
        self.actions = actions
        hidden = chart.hidden_fields
        self.fields = {field.name: field for field in chart.states[0].context if field.name not in hidden}
        self.keeps_key = keeps_key
        self.required = tuple(field.name for field in chart.states[0].context if field.required)
        self._operations: dict[tuple[int, str], Operation] = {}
        self.constant = self._constant()
        """The first context if no field of it has to be evaluated, else None."""
        self._has_containers = any(type(each) in (dict, list) for each in (self.constant or {}).values())

    def _constant(self) -> dict[str, Any] | None:
        if self.chart.script is not None or self.chart.binding == "late":
            return None
        found: dict[str, Any] = {}
        for state in self.chart.states:
            for field in state.context:
                value = None if field.default is UNSET else field.default
                refused = field.default is not UNSET and field_problem(value, field) is not None
                if refused or any(True for _ in value_expressions(value)):
                    return None
                found[field.name] = value
        return found

    def given(self, context: Mapping[str, Any] | None) -> Mapping[str, Any]:
        """Return a copy of the given context as JSON.

        Raises RejectedError unless it fits the fields of the root, UsageError for a value without a JSON form.
        """
        found = dict(context or {})
        fields = self.fields
        for name, value in found.items():
            field = fields.get(name)
            if field is None and name == KEY_FIELD and self.keeps_key:
                continue  # the driver's
            if field is None:
                known = ", ".join(fields) or "none"
                raise RejectedError(
                    f"unknown field `{name}` in the context of chart `{self.chart.kind}`; its fields are {known}",
                    code="context.unknown",
                )
            if json_problem(value) is not None:
                value = to_json(value, what=f"the field `{name}` of the context", code="context.refused")  # noqa: PLW2901  # its JSON form
                found[name] = value
            problem = field_problem(value, field)
            if problem is not None:
                raise RejectedError(f"invalid context: {problem}", code="context.refused")
        for name in self.required:
            if name not in found:
                raise RejectedError(f"the field `{name}` is required to create an entity", code="context.missing")
        return {name: copy_json(value) for name, value in found.items()}

    def first(self, constant: dict[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the constant context overridden by the given values. Entities share no list or mapping."""
        return {**(copy_json(constant) if self._has_containers else constant), **given}

    def bind(self, run: StepRun, given: Mapping[str, Any]) -> None:
        """Build the context in document order (S5). With late binding, only the fields of the root."""
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
        if KEY_FIELD in given:
            run.context[KEY_FIELD] = given[KEY_FIELD]
        if self.chart.script is not None:
            self._run_script(run)

    def _bind_default(self, run: StepRun, state: State, field: Field) -> None:
        key = (state.index, field.name)
        value = self._operations.get(key)
        if value is None:
            value = self._operations[key] = first_value(field, self.actions)
        run.attempt(value, f"{state.id}.context.{field.name}")

    def _run_script(self, run: StepRun) -> None:
        script = self.actions.language.script(self.chart.script or "")
        if script is None:
            raise UsageError("scripts are not allowed, because they run code", code="script.untrusted")
        run.attempt(lambda run: script(run.writable_context(), run.event, run, run.active, run.meter), "script")

"""The fast path: when a step is compiled, and where the compiled functions are found (P8).

A compiled step is optimistic: it has no error handling. If it raises or returns None, the general step runs instead,
which is harmless because a step is pure.

Rule 1: nothing here defines semantics. `compiled` writes the source from the plans of the general step.
Rule 2: a step is compiled only after `COMPILE_AFTER_USES` uses, because compiling costs as much as hundreds of steps.
Rule 3: a compiled step has no meter. It is made only of short content, and it accepts only short values. All other
        steps are general steps, which charge everything.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from interlock.kernel.codegen import ActionCompiler
from interlock.kernel.compiled.branch import NotCompiled
from interlock.kernel.plan import CompiledFunction, Configuration, Planner
from interlock.kernel.select import Selector
from interlock.model.charts.chart import Chart

if TYPE_CHECKING:
    from interlock.kernel.compiled.compiler import StepCompiler

COMPILE_AFTER_USES = 64
"""Uses of a configuration and event before their step is compiled: they cost about as much as compiling."""


class Accelerator:
    """Compiles the steps of one chart that are used often."""

    def __init__(self, chart: Chart, planner: Planner, selector: Selector, actions: ActionCompiler) -> None:
        self.chart = chart
        self.planner = planner
        self.selector = selector
        self.actions = actions

    @cached_property
    def compiler(self) -> StepCompiler:
        """The compiler of the chart's steps."""
        from interlock.kernel.compiled.compiler import (
            StepCompiler,  # large, and most processes that load charts need none
        )

        return StepCompiler(self.chart, self.planner, self.selector, self.actions)

    def count_use(self, configuration: Configuration, name: str, *, by_name: bool) -> None:
        """Count one use of a configuration and event, given by its name or not. Compile it after enough uses."""
        key = (name, by_name)
        count = configuration.uses.get(key, 0)
        if count < 0 or name not in self.selector.named:
            return
        configuration.uses[key] = count + 1
        if count >= COMPILE_AFTER_USES:
            self.compile(configuration, name, by_name=by_name)
        elif count == 0:
            self._table(configuration, by_name=by_name)[name] = not_compiled

    def compile(self, configuration: Configuration, name: str, *, by_name: bool) -> None:
        """Compile a step, unless it needs the general path. This is not tried again."""
        configuration.uses[name, by_name] = -1
        table = self._table(configuration, by_name=by_name)
        try:
            compiled = self.compiler.compile(configuration, name, by_name=by_name)
        except NotCompiled:
            table[name] = not_compiled
            return
        table[name] = compiled.function
        if compiled.plain is not None:
            configuration.plain_steps[name] = compiled.plain

    def _table(self, configuration: Configuration, *, by_name: bool) -> dict[str, CompiledFunction]:
        tables = self.planner.named_steps if by_name else self.planner.compiled_steps
        return tables.setdefault(configuration.names, {})


def not_compiled(*_: object) -> None:
    """Replace a step that is not compiled: a lookup that succeeds is faster than a KeyError."""

"""The fast path: when a step is compiled, and where the compiled functions are found (P8).

A compiled step is optimistic: it has no error handling. If it raises or returns None, the general step runs instead,
which is harmless because a step is pure.

Rule 1: nothing here defines semantics. `compiled` writes the source from the plans of the general step.
Rule 2: a step is compiled only after `COMPILE_AFTER_USES` uses, because compiling costs as much as hundreds of steps.
Rule 3: a compiled step has no meter. It is made only of short content, and it accepts only short values. All other
        steps are general steps, which charge everything.
"""

from __future__ import annotations

from typing import Any

from interlock.kernel.codegen import ActionCompiler
from interlock.kernel.compiled.compiler import StepCompiler
from interlock.kernel.compiled.path import NotCompiled
from interlock.kernel.plan import Configuration, Planner
from interlock.kernel.select import Selector
from interlock.model.chart import Chart
from interlock.model.event import Event
from interlock.model.snapshot import Snapshot

COMPILE_AFTER_USES = 64
"""Uses of a configuration and event before their step is compiled: they cost about as much as compiling."""


class Accelerator:
    """Compiles the steps of one chart that are used often."""

    def __init__(self, chart: Chart, planner: Planner, selector: Selector, actions: ActionCompiler) -> None:
        self.planner = planner
        self.selector = selector
        self.compiler = StepCompiler(chart, planner, selector, actions)

    def count_use(self, configuration: Configuration, name: str) -> None:
        """Count one use of a configuration and event name. Compile the step once there were enough."""
        count = configuration.uses.get(name, 0)
        if count < 0 or name not in self.selector.named:
            return
        steps = self.planner.compiled_steps.setdefault(configuration.names, {})
        named = self.planner.named_steps.setdefault(configuration.names, {})
        if count == 0:
            steps[name], named[name] = not_compiled, not_compiled_by_name
        configuration.uses[name] = count + 1
        if count >= COMPILE_AFTER_USES:
            configuration.uses[name] = -1
            try:
                compiled = self.compiler.compile(configuration, name)
            except NotCompiled:
                return
            steps[name] = compiled.step
            if compiled.named is not None:
                named[name] = compiled.named
            if compiled.parts is not None:
                configuration.compiled_parts[name] = compiled.parts


def not_compiled(snapshot: Snapshot, event: Event) -> None:
    """Replace a step that is not compiled: a lookup that succeeds is faster than a KeyError."""


def not_compiled_by_name(snapshot: Snapshot, data: Any, time_ms: int) -> None:
    """Replace a step by name that is not compiled."""

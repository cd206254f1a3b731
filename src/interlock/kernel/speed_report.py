"""Which steps of a chart take the general path, and why.

The report is about the chart, not about what ran: it follows every transition from the initial configuration, without
guards, and compiles the step of each event that a configuration can receive. An event that no transition of the
configuration can take is not listed, and neither is one that the chart does not mention (a descriptor such as `*` takes
it): its step is always a general one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from interlock.kernel.compiled.branch import NeverTaken, NotCompiled
from interlock.kernel.compiled.compiler import StepCompiler
from interlock.kernel.plan import Configuration, Planner
from interlock.kernel.select import EVENTLESS, Selector
from interlock.model.event import is_reserved

CONFIGURATIONS_MAX = 500
"""Configurations that one report covers: about a second. Parallel regions can have many more."""


@dataclass(frozen=True, slots=True)
class GeneralStep:
    """An event in a configuration whose step is not compiled: the transitions that can take it, and the reason."""

    configuration: tuple[str, ...]
    event: str
    transitions: tuple[str, ...]
    reason: str

    def __str__(self) -> str:
        return f"{' '.join(self.configuration)}: {self.event}: {self.reason}"


@dataclass(frozen=True, slots=True)
class SpeedReport:
    """How many steps of a chart are compiled, and which are not. `is_complete`: it covers all configurations."""

    compiled: int
    general: tuple[GeneralStep, ...]
    is_complete: bool

    def __str__(self) -> str:
        total = self.compiled + len(self.general)
        covered = "" if self.is_complete else f" in the first {CONFIGURATIONS_MAX} configurations"
        lines = [f"{self.compiled} of {total} steps are compiled{covered}", *map(str, self.general)]
        return "\n".join(lines)


def speed_report(compiler: StepCompiler, planner: Planner, selector: Selector) -> SpeedReport:
    """Return the report of a chart."""
    compiled, general = 0, []
    seen: dict[tuple[str, ...], None] = {}
    waiting = [planner.start().next]
    while waiting and len(seen) < CONFIGURATIONS_MAX:
        configuration = waiting.pop()
        if configuration.names in seen:
            continue
        seen[configuration.names] = None
        waiting += _following(configuration, planner, selector)
        for name in sorted(selector.named):
            numbers = selector.candidates(configuration, selector.event_class(name)).numbers()
            if not numbers or not _can_arrive(compiler, configuration, name):
                continue
            try:
                compiler.compile(configuration, name)
                compiled += 1
            except NeverTaken:
                continue
            except NotCompiled as reason:
                places = tuple(planner.chart.transitions[each].display_name for each in numbers)
                general.append(GeneralStep(configuration.names, name, places, str(reason)))
    return SpeedReport(compiled, tuple(general), is_complete=not waiting)


def _can_arrive(compiler: StepCompiler, configuration: Configuration, name: str) -> bool:
    """Return whether an event of this name can come from outside: not one that only the kernel creates."""
    return not is_reserved(name) or compiler.is_expected(configuration, name)


def _following(configuration: Configuration, planner: Planner, selector: Selector) -> Iterator[Configuration]:
    """Return the configurations that each transition alone leads to."""
    classes = {EVENTLESS, *selector.named.values()}
    numbers = {each for event_class in classes for each in selector.candidates(configuration, event_class).numbers()}
    return (planner.build(configuration, (number,), {}).next for number in sorted(numbers))

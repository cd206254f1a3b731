"""Call the registered guards and assign functions of a chart on random walks, and report those that are not pure.

Rule 1: a walk sends declared and written events with made-up payloads, advances the clock, and completes or fails what
is pending. No handler runs.
Rule 2: walks are drawn from a fixed seed, so the same chart and functions give the same report.
Rule 3: what the walks did not call is reported too: it was not checked.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from interlock.assemble.charts import BoundChart
from interlock.errors import Diagnostic, ImpureFunctionError, InterlockError, SourceLocation
from interlock.model.charts.sites import event_names
from interlock.model.document.field import UNSET, Field
from interlock.testing.playback import Act, AdvanceClock, CompleteEffect, FailEffect, Playback, SendEvent
from interlock.testing.purity import HINT

WALKS = 40
ACTS = 40
"""Walks, and actions of each: 1,600 actions take about a second."""


def exercise(bound: BoundChart, *, seed: int = 0) -> tuple[Diagnostic, ...]:
    """Return an error for each function that is not pure, and a note that names those that were not called."""
    counted = _Counted(bound)
    random = Random(seed)
    problems: dict[str, str] = {}
    for _ in range(WALKS if counted.functions else 0):
        for problem in _walk(counted.bound, random):
            problems.setdefault(problem.function, problem.message)
    location = SourceLocation(file=bound.document.source)
    found = [
        Diagnostic(code="function.impure", message=message, severity="error", location=location, hint=HINT)
        for _, message in sorted(problems.items())
    ]
    missed = sorted(counted.functions - counted.called)
    if missed:
        message = f"random walks did not call {', '.join(f'`{each}`' for each in missed)}"
        found.append(Diagnostic(code="function.uncalled", message=message, severity="info", location=location))
    return tuple(found)


class _Counted:
    """A copy of a chart whose functions note that they were called."""

    def __init__(self, bound: BoundChart) -> None:
        self.bound = BoundChart(bound.chart, bound.document, bound.diagnostics)
        self.functions = {*bound.guards, *bound.assigns}
        self.called: set[str] = set()
        self.bound.guards = {name: self._noted(name, each) for name, each in bound.guards.items()}
        self.bound.assigns = {name: self._noted(name, each) for name, each in bound.assigns.items()}

    def _noted(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*arguments: Any) -> Any:
            self.called.add(name)
            return function(*arguments)

        return noted


def _walk(bound: BoundChart, random: Random) -> list[ImpureFunctionError]:
    """Take one walk; return the errors about functions that are not pure."""
    problems: list[ImpureFunctionError] = []
    fields = bound.chart.states[0].context
    given = {each.name: sample_value(each, random) for each in fields if each.required or random.random() < 0.3}
    try:
        playback = Playback(bound, given)
    except InterlockError as error:  # the function, or the chart refuses such a context or cannot start
        return [error] if isinstance(error, ImpureFunctionError) else []
    names = sorted(event_names(bound.chart))
    for _ in range(ACTS):
        if playback.snapshot.ended is not None:
            break
        try:
            playback.apply(_act(playback, names, random))
        except ImpureFunctionError as error:
            problems.append(error)
        except InterlockError:
            continue  # the chart refuses the event
    return problems


def _act(playback: Playback, names: list[str], random: Random) -> Act:
    pending, due = playback.pending(), playback.due_items()
    choice = random.random()
    if pending and choice < 0.3:
        effect = random.choice(pending)[1]
        return CompleteEffect(effect.key, _any_value(random)) if choice < 0.2 else FailEffect(effect.key)
    if due and choice < 0.4:
        return AdvanceClock()
    name = random.choice(names) if names else "unknown"
    declared = next((each for each in playback.chart.events or () if each.name == name), None)
    if declared is None or declared.payload is None:
        return SendEvent(name, _any_value(random) if random.random() < 0.5 else None)
    wanted = (each for each in declared.payload if each.required or random.random() < 0.7)
    return SendEvent(name, {each.name: sample_value(each, random) for each in wanted})


def sample_value(field: Field, random: Random, depth: int = 0) -> Any:
    """Return a random value that a field accepts, unless its bounds are unusual."""
    if field.enum:
        return random.choice(field.enum)
    if field.nullable and random.random() < 0.2:
        return None
    if field.default is not UNSET and random.random() < 0.2 and isinstance(field.default, int | str):
        return field.default
    low = 0 if field.min is None else field.min
    high = max(low, low + 100 if field.max is None else field.max)
    match field.type:
        case "integer":
            return random.randint(int(low), int(high))
        case "number":
            return random.uniform(low, high)
        case "boolean":
            return random.random() < 0.5
        case "string":
            return random.choice(("a", "b", "2026-01-01", ""))[: field.length_max]
        case "array":
            item = field.items or Field(name="")
            return [sample_value(item, random, depth + 1) for _ in range(random.randint(0, 3) if depth < 3 else 0)]
        case "object":
            inner = field.fields or ()
            return {each.name: sample_value(each, random, depth + 1) for each in inner}
        case _:
            return _any_value(random)


def _any_value(random: Random) -> Any:
    return random.choice((None, 0, 7, "a", True, {}, {"id": "a", "amount": 5}, []))

"""A simulation as lines and as JSON: its steps with their causes and effects, then what can happen next.

Rule 1: every function here turns values into lines; none changes the simulation.
Rule 2: colour is never the only mark: ● active, ○ visited, ✓ accepted, ✗ not accepted, ? depends on the event.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from interlock.cli.output import entity as output
from interlock.cli.output.terminal import Line, Part
from interlock.model.charts.chart import Chart
from interlock.model.duration import format_duration
from interlock.model.encoding.codec import to_builtins
from interlock.model.snapshot import Snapshot
from interlock.testing.playback import Playback
from interlock.testing.simulation import SimulationRecord

_HELP = (
    ("EVENT [JSON | name=value ...]", 'send an event: order.paid {"id": "p1"}, or order.paid id=p1'),
    ("send EVENT ...", "send an event that has the name of a command"),
    ("advance [30s]", "advance the clock; without a duration to the next timer"),
    ("done ID [JSON]", "complete a pending invoke or call"),
    ("fail ID [CODE [TEXT]]", "let a pending invoke or call fail"),
    ("guard NAME true|false", "set a guard whose code is not loaded"),
    ("context, timers, effects, events, tree", "show, without changing anything"),
    ("back", "undo the last line"),
    ("help, quit", "show this list; quit (or Ctrl-D)"),
)


# Steps


def record_lines(records: list[SimulationRecord], playback: Playback, before: dict[str, Snapshot]) -> Iterator[Line]:
    """The steps of one act, in order; steps of other entities with the name of the entity."""
    earlier = dict(before)
    for record in records:
        is_other = record.entity != playback.entity
        chart = playback.chart_of(record.entity)
        yield from _step_lines(record, chart, earlier.get(record.entity), f" of {record.entity}" if is_other else "")
        if not is_other and record.event is not None and record.step.outcome == "rejected":
            yield from output.rejection_lines(playback.chart, record.event.name, record.step.reason)
        earlier[record.entity] = record.step.snapshot


def _step_lines(record: SimulationRecord, chart: Chart, before: Snapshot | None, owner: str) -> Iterator[Line]:
    step = record.step
    after = step.snapshot
    name = "start" if record.event is None else record.event.name
    reason = f" ({step.reason})" if step.reason else ""
    head: list[Part] = [(f"{format_duration(record.time_ms)} ", "dim"), (name, "bold"), owner, " "]
    head += [(step.outcome, output.OUTCOME_STYLES[step.outcome]), reason]
    if step.outcome == "applied":
        head.append(f": {_state_change(before, after)} (version {after.version})")
    yield tuple(head)
    context_before = {} if before is None else chart.visible_context(before.context)
    yield from output.context_changes(context_before, chart.visible_context(after.context))
    for effect in step.effects:
        yield ("  effect   ", *output.effect_parts(effect, format_duration))
    yield from output.problem_lines(step.failed_guards, step.faults)
    if after.ended is not None and (before is None or before.ended is None):
        yield output.ended_line(after)


def _state_change(before: Snapshot | None, after: Snapshot) -> str:
    """The atomic states that were left and entered."""
    was = () if before is None else before.configuration
    left = [name for name in was if name not in after.configuration]
    entered = [name for name in after.configuration if name not in was]
    if not entered:
        return f"left {', '.join(left)}" if left else f"no state change ({', '.join(was)})"
    return f"{', '.join(left)} → {', '.join(entered)}" if left else ", ".join(entered)


# The simulation now


def status_lines(playback: Playback) -> Iterator[Line]:
    """The active states, timers and pending invokes, and the events."""
    yield from output.tree_lines(playback.chart, playback.active())
    yield from waiting_lines(playback)
    yield from event_lines(playback)


def waiting_lines(playback: Playback) -> Iterator[Line]:
    """What the clock or a result will continue."""
    now_ms = playback.simulation.time_ms
    for each in playback.due_items():
        label = "  timeout  " if each.is_timeout else "  timer    "
        when = f"due at {format_duration(each.due_ms)} (in {format_duration(each.due_ms - now_ms)})"
        yield ((label, "dim"), f"{each.name}{_owner(playback, each.entity)}, {when}")
    for entity, effect in playback.pending():
        if effect.type == "invoke":
            name = effect.payload["id"]
            yield (("  invoke   ", "dim"), f"{name}{_owner(playback, entity)}; complete it with: done {name} [JSON]")


def _owner(playback: Playback, entity: str) -> str:
    return "" if entity == playback.entity else f" of {entity}"


def effect_lines(playback: Playback) -> Iterator[Line]:
    """Every effect so far except timers; … marks those without a result."""
    pending = {effect.key for _, effect in playback.pending()}
    effects = [effect for record in playback.simulation.trace for effect in record.step.effects]
    shown = [each for each in effects if each.type not in {"timer", "timer_cancel"}]
    for effect in shown:
        yield ("  … " if effect.key in pending else "  ✓ ", *output.effect_parts(effect, format_duration))
    if not shown:
        yield ("  no effects so far",)


def event_lines(playback: Playback) -> Iterator[Line]:
    """The events that the active states know, then the names of the others."""
    if playback.snapshot.ended is not None:
        yield (f"  {output.ENDED}",)
        return
    events = playback.acceptances()
    yield from output.acceptance_lines([each for each in events if each.why != "elsewhere"])
    others = [each.event for each in events if each.why == "elsewhere"]
    if others:
        yield (("  · ", "dim"), (f"not accepted in this state: {', '.join(others)}", "dim"))


def assumption_lines(playback: Playback) -> Iterator[Line]:
    """The functions whose code is not loaded."""
    if playback.guards:
        values = ", ".join(f"{name} = {'true' if value else 'false'}" for name, value in playback.guards.items())
        yield (("  assumed  ", "dim"), f"guards {values} (change with: guard NAME false)")
    if playback.assumed_assigns:
        yield (("  assumed  ", "dim"), f"assigns {', '.join(playback.assumed_assigns)} write nothing")


def help_lines() -> Iterator[Line]:
    """The commands of a simulation."""
    width = max(len(command) for command, _ in _HELP)
    for command, meaning in _HELP:
        yield ((f"  {command:<{width}}", "bold"), f"  {meaning}")


# For programs


def turn_json(playback: Playback, line: str, records: list[SimulationRecord]) -> dict[str, Any]:
    """One line of a simulation and the steps it led to, as JSON."""
    return {
        "line": line,
        "time_ms": playback.simulation.time_ms,
        "steps": [
            {
                "time_ms": record.time_ms,
                "entity": record.entity,
                "event": None if record.event is None else to_builtins(record.event),
                "outcome": record.step.outcome,
                "reason": record.step.reason,
                "effects": to_builtins(record.step.effects),
                "faults": to_builtins(record.step.faults),
                "failed_guards": to_builtins(record.step.failed_guards),
            }
            for record in records
        ],
        "snapshot": to_builtins(playback.snapshot),
        "events": to_builtins(playback.acceptances()),
        "pending": [{"entity": entity, "effect": to_builtins(effect)} for entity, effect in playback.pending()],
    }

"""What a play looks like: steps with their causes and effects, the active states, what is awaited, what is accepted.

Rule 1: every function here turns values into lines; none changes the play.
Rule 2: colour is never the only sign: ● active, ○ visited, ✓ accepted, ✗ refused, ? depends on the event.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

from interlock.cli.output.terminal import Part
from interlock.cli.play import COMMANDS, Playback, active_ids, instant
from interlock.kernel.explain import Candidate
from interlock.model.chart import Chart, State
from interlock.model.codec import plain
from interlock.model.document.field import same_value
from interlock.model.effect import Effect
from interlock.model.snapshot import Snapshot
from interlock.model.step import FailedGuard, Fault
from interlock.testing.simulation import SimulationRecord

Line = tuple[Part, ...]

OUTCOMES = {"applied": "green", "ignored": "yellow", "rejected": "red", "denied": "red", "duplicate": "yellow"}
_VALUE_LENGTH_MAX = 200
_HELP = (
    ("EVENT [JSON | name=value ...]", 'send an event: order.paid {"id": "p1"}, or order.paid id=p1'),
    ("send EVENT ...", "the same, for an event that is called like a command"),
    ("advance [30s]", "move the clock; without a duration to the next timer"),
    ("done ID [JSON]", "answer a pending invoke or call"),
    ("fail ID [CODE [TEXT]]", "let a pending invoke or call fail"),
    ("guard NAME true|false", "decide for a guard whose code is not here"),
    ("context, timers, effects, events, tree", "look, without changing anything"),
    ("back", "take the last line back"),
    ("help, quit", "this list; the end (or Ctrl-D)"),
)


def value_text(value: Any) -> str:
    """A value as JSON on one line, cut where it is too long."""
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= _VALUE_LENGTH_MAX else text[: _VALUE_LENGTH_MAX - 1] + "…"


# Steps


def record_lines(
    records: list[SimulationRecord], entity: str, before: dict[str, Snapshot], chart: Chart
) -> Iterator[Line]:
    """The steps that one line led to, in order; those of others than this one, of the chart, with their name."""
    earlier = dict(before)
    for record in records:
        whose = "" if record.entity == entity else f" of {record.entity}"
        yield from step_lines(record, earlier.get(record.entity), whose)
        if not whose and record.event is not None and record.step.outcome == "rejected":
            yield from refusal_lines(chart, record.event.name, record.step.reason)
        earlier[record.entity] = record.step.snapshot


def step_lines(record: SimulationRecord, before: Snapshot | None, whose: str) -> Iterator[Line]:
    """One step: the event and how it was taken, then what changed, what was asked for, what went wrong."""
    step = record.step
    after = step.snapshot
    name = "start" if record.event is None else record.event.name
    reason = f" ({step.reason})" if step.reason else ""
    head: list[Part] = [(f"{instant(record.time_ms)} ", "dim"), (name, "bold"), whose, " "]
    head += [(step.outcome, OUTCOMES[step.outcome]), reason]
    if step.outcome == "applied":
        head.append(f": {_change(before, after)} (version {after.version})")
    yield tuple(head)
    yield from context_changes({} if before is None else before.context, after.context)
    for effect in step.effects:
        yield ("  effect   ", *effect_parts(effect))
    yield from problem_lines(step.trials, step.faults)
    if after.ended is not None and (before is None or before.ended is None):
        output = "" if after.output is None else f", output {value_text(after.output)}"
        yield (("  ended    ", "bold"), f"{after.ended}{output}")


def _change(before: Snapshot | None, after: Snapshot) -> str:
    """The atomic states left and entered; of a step that changes none, those it stays in."""
    was = () if before is None else before.configuration
    left = [name for name in was if name not in after.configuration]
    entered = [name for name in after.configuration if name not in was]
    if not entered:
        return f"left {', '.join(left)}" if left else f"stays in {', '.join(was)}"
    return f"{', '.join(left)} → {', '.join(entered)}" if left else ", ".join(entered)


def context_changes(before: dict[str, Any], after: dict[str, Any], path: str = "") -> Iterator[Line]:
    """What differs, a line each; inside a mapping that was there before only what differs in it."""
    for key in dict.fromkeys([*before, *after]):
        name, old, new = path + key, before.get(key), after.get(key)
        if key not in after:
            yield ("  context  ", f"{name}: gone")
        elif key not in before:
            yield ("  context  ", f"{name}: ", (value_text(new), "green"))
        elif isinstance(old, dict) and isinstance(new, dict):
            yield from context_changes(old, new, f"{name}.")
        elif not same_value(old, new):
            yield ("  context  ", f"{name}: ", (value_text(old), "red"), " → ", (value_text(new), "green"))


def refusal_lines(chart: Chart, event: str, reason: str | None, near: str | None = None) -> Iterator[Line]:
    """Why an event was refused of which no guard and no fault tells: where it is taken, or what it is near."""
    taking = states_taking(chart, event)
    if reason == "no_transition" and taking:
        yield ("  why      ", f"not accepted here, but in {', '.join(taking)}")
    elif reason in ("no_transition", "undeclared"):
        yield ("  why      ", f"no state of {chart.kind} takes it from outside{f'; {near}' if near else ''}")


def states_taking(chart: Chart, name: str) -> list[str]:
    """The states with a transition for an event, in document order."""
    taking = (
        chart.states[each.source].id
        for each in chart.transitions
        if any(descriptor.matches(name) or descriptor.text == name for descriptor in each.descriptors)
    )
    return list(dict.fromkeys(taking))


def problem_lines(trials: Iterable[FailedGuard], faults: Iterable[Fault]) -> Iterator[Line]:
    """The guards that said no, with what they read, and what went wrong."""
    for trial in trials:
        yield ("  guard    ", *_no(trial.guard, trial.values, trial.error))
    for fault in faults:
        place = f" at {fault.place}" if fault.place else ""
        yield (("  fault    ", "red"), f"{fault.code}: {fault.message}{place}")


def _no(guard: str, values: dict[str, Any], error: str | None) -> list[Part]:
    """Why a guard let nothing pass: what it read, or how it failed."""
    if error is not None:
        return [f'"{guard}" failed: {error}']
    read = "".join(f"; {path} = {value_text(value)}" for path, value in values.items())
    return [f'"{guard}" said no{read}']


def effect_parts(effect: Effect, when: Callable[[int], str] = instant) -> list[Part]:
    """An effect: its type, what it names, and its key. `when` tells a time; by default one of the virtual clock."""
    return [(effect.type, "cyan"), f" {_effect_text(effect, when)}", (f"  key {effect.key}", "dim")]


def _effect_text(effect: Effect, when: Callable[[int], str]) -> str:
    payload = effect.payload
    match effect.type:
        case "call":
            return f"{effect.name}{_given(effect.input)}"
        case "invoke":
            return f"{payload['id']}: {effect.name or 'a computed chart'}{_given(effect.input)}"
        case "timer":
            return f"{payload['event']} due at {when(payload['due_ms'])}"
        case "timer_cancel":
            return str(payload["name"])
        case "send":
            return f"{payload['event']} to {payload['to']}{_given(payload.get('data'))}"
        case "message":
            return f"{payload['type']}{_given(payload.get('data'))}"
        case "log":
            return " ".join(filter(None, (payload.get("label"), value_text(payload.get("value")))))
        case "forward":
            return f"{payload['event']['name']} to invoke {payload['id']}"
        case "invoke_cancel":
            return str(payload["id"])
        case "done":
            return value_text(payload.get("data"))


def _given(value: Any) -> str:
    return "" if value is None else f" {value_text(value)}"


# The play as it stands


def status_lines(play: Playback) -> Iterator[Line]:
    """The active states, what is awaited, and the events: what a player looks at after every step."""
    yield from tree_lines(play.chart, play.snapshot)
    yield from waiting_lines(play)
    yield from event_lines(play)


def tree_lines(chart: Chart, snapshot: Snapshot, visited: set[str] | None = None) -> Iterator[Line]:
    """The active states as an indented tree; with `visited`, all states, each with its mark."""
    active = active_ids(chart, snapshot)
    for state in chart.states[1:]:
        if state.id in active:
            yield ("  " * (state.depth - 1), ("● ", "green"), (state.key, "bold"), _state_note(state))
        elif visited is not None:
            mark = "○" if state.id in visited else "·"
            yield ("  " * (state.depth - 1), (f"{mark} ", "dim"), state.key, _state_note(state))


def _state_note(state: State) -> Part:
    note = {"final": " (final)", "parallel": " (parallel)", "history": f" ({state.history} history)"}.get(
        state.type, ""
    )
    return (note, "dim")


def context_lines(chart: Chart, snapshot: Snapshot) -> Iterator[Line]:
    """The context, a field to a line, in the order of the chart."""
    declared = (field.name for state in chart.states for field in state.context)
    for name in dict.fromkeys([*declared, *snapshot.context]):
        if name in snapshot.context:
            yield (f"  {name}: ", value_text(snapshot.context[name]))
    if not snapshot.context:
        yield ("  the context is empty",)


def waiting_lines(play: Playback) -> Iterator[Line]:
    """What the clock or an answer will bring."""
    now = play.simulation.time_ms
    for each in play.waiting():
        whose = "" if each.entity == play.entity else f" of {each.entity}"
        yield (
            ("  waits    ", "dim"),
            f"{each.text}{whose}, due at {instant(each.due_ms)} (in {instant(each.due_ms - now)})",
        )
    for entity, effect in play.pending():
        if effect.type == "invoke":
            whose = "" if entity == play.entity else f" of {entity}"
            yield (
                ("  waits    ", "dim"),
                f"invoke {effect.payload['id']}{whose}, for: done {effect.payload['id']} [JSON]",
            )


def effect_lines(play: Playback) -> Iterator[Line]:
    """Every effect so far but those of timers, marked while it has no answer."""
    pending = {effect.key for _, effect in play.pending()}
    found = False
    for record in play.simulation.trace:
        for effect in record.step.effects:
            if effect.type not in {"timer", "timer_cancel"}:
                found = True
                yield ("  … " if effect.key in pending else "  ✓ ", *effect_parts(effect))
    if not found:
        yield ("  no effects so far",)


def event_lines(play: Playback) -> Iterator[Line]:
    """The events: accepted, refused and why, and those that no active state takes."""
    if play.snapshot.ended is not None:
        yield ("  ended: no event is accepted any more",)
        return
    candidates = play.candidates()
    width = max((len(each.event) for each in candidates), default=0)
    for each in candidates:
        yield ("  ", *candidate_parts(play.chart, each, width))
    taken = {name.strip() for each in candidates for name in each.event.split(",")}
    others = [name for name in play.events() if not _matched(play.chart, candidates, name) and name not in taken]
    if others:
        yield (("  · ", "dim"), (f"not accepted here: {', '.join(others)}", "dim"))


def _matched(chart: Chart, candidates: Iterable[Candidate], name: str) -> bool:
    return any(
        descriptor.matches(name) for each in candidates for descriptor in chart.transitions[each.transition].descriptors
    )


def candidate_parts(chart: Chart, each: Candidate, width: int) -> list[Part]:
    """A transition in question: its event, where it leads, and the verdict of its guard now."""
    transition = chart.transitions[each.transition]
    targets = ", ".join(chart.states[index].id for index in transition.targets) or "stays"
    name = f"{each.event:<{width}}  → {targets}"
    if each.accepted:
        return [("✓ ", "green"), name]
    if each.error is not None and reads_event(each):
        return [("? ", "yellow"), name, f'  if "{each.guard}"']
    return [("✗ ", "red"), name, "  guard ", *_no(each.guard or "", each.values, each.error)]


def reads_event(candidate: Candidate) -> bool:
    """Whether a guard failed only because it reads the event, which is not there yet."""
    return candidate.guard is not None and "event" in candidate.guard


def assumption_lines(play: Playback) -> Iterator[Line]:
    """What is assumed for code that the chart names and that is not here."""
    if play.verdicts:
        said = ", ".join(f"{name} = {'true' if held else 'false'}" for name, held in play.verdicts.items())
        yield (("  assumed  ", "dim"), f"guards {said} (change with: guard NAME false)")
    if play.assumed_assigns:
        yield (("  assumed  ", "dim"), f"assigns {', '.join(play.assumed_assigns)} write nothing")


def help_lines() -> Iterator[Line]:
    """The commands of a play."""
    width = max(len(words) for words, _ in _HELP)
    for words, meaning in _HELP:
        yield ((f"  {words:<{width}}", "bold"), f"  {meaning}")


def words(play: Playback) -> list[str]:
    """What may be typed now: events and commands, for completion."""
    return sorted({*play.events(), *COMMANDS})


# For programs


def turn(play: Playback, line: str, records: list[SimulationRecord]) -> dict[str, Any]:
    """One line of a play and all it led to, as plain JSON."""
    candidates = play.candidates()
    return {
        "line": line,
        "time_ms": play.simulation.time_ms,
        "steps": [
            {
                "time_ms": record.time_ms,
                "entity": record.entity,
                "event": None if record.event is None else plain(record.event),
                "outcome": record.step.outcome,
                "reason": record.step.reason,
                "effects": plain(record.step.effects),
                "faults": plain(record.step.faults),
                "trials": plain(record.step.trials),
            }
            for record in records
        ],
        "snapshot": plain(play.snapshot),
        "candidates": plain(candidates),
        "pending": [{"entity": entity, "effect": plain(effect)} for entity, effect in play.pending()],
    }

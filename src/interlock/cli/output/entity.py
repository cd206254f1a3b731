"""An entity as lines: its states, context and timers, its entries, receipts, accepted events, and lists of entities.

Rule 1: every function here turns values into lines; none reads a store.
Rule 2: colour is never the only mark: ● active, ✓ accepted, ✗ not accepted, ? depends on the event.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any

from interlock.cli.output.terminal import Line, Part
from interlock.cli.output.values import age_text, time_text, value_text
from interlock.model.charts.chart import Chart, State
from interlock.model.charts.sites import event_names
from interlock.model.diagnostics import suggestion
from interlock.model.document.field import same_value
from interlock.model.effect import Effect
from interlock.model.held import Held, held_of
from interlock.model.journal.attempts import PastAttempt
from interlock.model.journal.entry import Entry, Receipt
from interlock.model.refusal_text import EXISTS, elsewhere_text, guard_text, roles_text
from interlock.model.snapshot import Snapshot
from interlock.model.step import FailedGuard, Fault
from interlock.observe.acceptance import Acceptance
from interlock.ports.store import EntityRow
from interlock.runtime.charts.upgrades import UpgradePreview

OUTCOME_STYLES = {"applied": "green", "ignored": "yellow", "rejected": "red", "denied": "red", "duplicate": "yellow"}
ENDED = "ended; no events accepted"

_STATE_NOTES = {"final": " (final)", "parallel": " (parallel)"}


# The entity


def head_line(snapshot: Snapshot, note: str = "", *, label: str | None = None) -> Line:
    """The entity, its version and its revision: the label, if it is not in the name, and the name."""
    shown = "" if label is None or snapshot.revision.startswith(f"{label}+") else f"{label} "
    return ((snapshot.entity, "bold"), f"  version {snapshot.version}  revision {shown}{snapshot.revision}{note}")


def entity_lines(
    chart: Chart, snapshot: Snapshot, *, active: Collection[str], now_ms: int, all_states: bool
) -> Iterator[Line]:
    """The active states, or all states, then the context, timers and invokes."""
    yield from tree_lines(chart, active, () if all_states else None)
    yield from context_lines(chart, snapshot)
    yield from _pending_lines(snapshot, now_ms)


def hold_lines(snapshot: Snapshot, of_kind: Held | None) -> Iterator[Line]:
    """Since when an operator holds the entity, or all entities of its kind, by whom and why."""
    for held, what in ((held_of(snapshot.context), ""), (of_kind, f"all of {snapshot.kind}, ")):
        if held is not None:
            by = "" if held.by is None else f" by {held.by}"
            reason = "" if held.reason is None else f": {held.reason}"
            yield (("  held     ", "yellow"), f"{what}since {time_text(held.at_ms)}{by}{reason}")


def raw_lines(snapshot: Snapshot, *, now_ms: int) -> Iterator[Line]:
    """What the snapshot itself says, when the definition of its revision cannot be read."""
    for name in snapshot.configuration:
        yield (("  ● ", "green"), name)
    for name, value in snapshot.context.items():
        yield (("  context  ", "dim"), f"{name} = {value_text(value)}")
    yield from _pending_lines(snapshot, now_ms)


def _pending_lines(snapshot: Snapshot, now_ms: int) -> Iterator[Line]:
    for timer in snapshot.timers:
        left = timer.due_ms - now_ms
        when = f"in {age_text(left)}" if left >= 0 else f"{age_text(-left)} ago"
        yield (("  timer    ", "dim"), f"{timer.event}, due at {time_text(timer.due_ms)} ({when})")
    for invoke in snapshot.invokes:
        yield (("  invoke   ", "dim"), invoke.id, (f"  key {invoke.key}", "dim"))
    if snapshot.deferred:
        yield (("  deferred ", "dim"), ", ".join(each.name for each in snapshot.deferred))
    if snapshot.ended is not None:
        yield ended_line(snapshot)


def upgrade_lines(preview: UpgradePreview | None) -> Iterator[Line]:
    """Whether the next step would first move the entity to a newer chart, and if not, why."""
    if preview is None:
        return
    if preview.would_move:
        yield (("  upgrade  ", "dim"), f"moves to {preview.revision} before its next step")
        for each in preview.dropped:
            yield ("           ", (f"ends {each}", "dim"))
        return
    yield (("  upgrade  ", "dim"), (f"stays, and does not move to {preview.revision}:", "yellow"))
    for each in preview.reasons:
        yield ("           ", each)


def ended_line(snapshot: Snapshot) -> Line:
    """How an entity ended, and its output."""
    output = "" if snapshot.output is None else f", output {value_text(snapshot.output)}"
    return (("  ended    ", "bold"), f"{snapshot.ended}{output}")


def tree_lines(chart: Chart, active: Collection[str], visited: Collection[str] | None = None) -> Iterator[Line]:
    """The active states as an indented tree; with `visited` all states, each with its mark."""
    for state in chart.states[1:]:
        if state.id in active:
            yield ("  " * (state.depth - 1), ("● ", "green"), (state.key, "bold"), _state_note(state))
        elif visited is not None:
            mark = "○" if state.id in visited else "·"
            yield ("  " * (state.depth - 1), (f"{mark} ", "dim"), state.key, _state_note(state))


def _state_note(state: State) -> Part:
    is_history = state.type == "history"
    return (f" ({state.history} history)" if is_history else _STATE_NOTES.get(state.type, ""), "dim")


def context_lines(chart: Chart, snapshot: Snapshot) -> Iterator[Line]:
    """The context, one field per line, in the order of the chart."""
    declared = (field.name for state in chart.states for field in state.context)
    context = chart.visible_context(snapshot.context)
    for name in dict.fromkeys([*declared, *context]):
        if name in context:
            yield (f"  {name}: ", value_text(context[name]))
    if not context:
        yield ("  the context is empty",)


def context_changes(before: dict[str, Any], after: dict[str, Any], path: str = "") -> Iterator[Line]:
    """The fields that differ, one per line; of a mapping that existed before only the fields that differ in it."""
    for key in dict.fromkeys([*before, *after]):
        name, old, new = path + key, before.get(key), after.get(key)
        if key not in after:
            yield ("  context  ", f"{name}: removed")
        elif key not in before:
            yield ("  context  ", f"{name}: ", (value_text(new), "green"))
        elif isinstance(old, dict) and isinstance(new, dict):
            yield from context_changes(old, new, f"{name}.")
        elif not same_value(old, new):
            yield ("  context  ", f"{name}: ", (value_text(old), "red"), " → ", (value_text(new), "green"))


# Receipts


def receipt_lines(receipt: Receipt, event: str, *, chart: Chart | None = None, dry: bool = False) -> Iterator[Line]:
    """The outcome of an event, the state of the entity, effects and problems; with the chart also the reason."""
    outcome = f"would be {receipt.outcome}" if dry else receipt.outcome
    reason = f" ({receipt.reason})" if receipt.reason else ""
    snapshot = None if receipt.outcome == "duplicate" else receipt.snapshot  # a duplicate has that of now, not of then
    states = "" if snapshot is None else f": {', '.join(snapshot.configuration)}"
    head: list[Part] = [(receipt.entity, "bold"), f" {event} ", (outcome, OUTCOME_STYLES[receipt.outcome]), reason]
    version = f" (version {receipt.version})" if receipt.version else ""  # a denial without the role has none
    yield (*head, f"{states}{version}")
    for effect in receipt.effects:
        yield ("  effect   ", *effect_parts(effect, time_text))
    yield from problem_lines(receipt.failed_guards, receipt.faults)
    if receipt.reason == "entity.exists":
        yield ("  why      ", EXISTS)
    elif receipt.outcome == "denied" and receipt.explanation is not None:
        yield ("  why      ", receipt.explanation.partition(": ")[2])
    elif chart is not None and receipt.outcome == "rejected":
        yield from rejection_lines(chart, event, receipt.reason, suggestion(event, event_names(chart)))


def rejection_lines(chart: Chart, event: str, reason: str | None, hint: str | None = None) -> Iterator[Line]:
    """Why an event without a false guard or a fault was rejected: the states that accept it, or a similar name."""
    why = elsewhere_text(chart, event, reason, hint=hint)
    if why is not None:
        yield ("  why      ", why)


def problem_lines(failed_guards: Iterable[FailedGuard], faults: Iterable[Fault]) -> Iterator[Line]:
    """The guards that were false, with the values they read, and the faults."""
    for each in failed_guards:
        yield ("  guard    ", guard_text(each.guard, each.values, each.error))
    for fault in faults:
        place = f" at {fault.place}" if fault.place else ""
        yield (("  fault    ", "red"), f"{fault.code}: {fault.message}{place}")


def effect_parts(effect: Effect, when: Callable[[int], str]) -> list[Part]:
    """An effect: its type, its name and its key. `when` formats a time."""
    return [(effect.type, "cyan"), f" {_effect_text(effect, when)}", (f"  key {effect.key}", "dim")]


def _effect_text(effect: Effect, when: Callable[[int], str]) -> str:
    payload = effect.payload
    match effect.type:
        case "call":
            return f"{effect.name}{_input_text(effect.input)}"
        case "invoke":
            return f"{payload['id']}: {effect.name or 'a computed chart'}{_input_text(effect.input)}"
        case "timer":
            return f"{payload['event']} due at {when(payload['due_ms'])}"
        case "timer_cancel":
            return str(payload["name"])
        case "send":
            return f"{payload['event']} to {payload['to']}{_input_text(payload.get('data'))}"
        case "message":
            return f"{payload['type']}{_input_text(payload.get('data'))}"
        case "log":
            return " ".join(filter(None, (payload.get("label"), value_text(payload.get("value")))))
        case "forward":
            return f"{payload['event']['name']} to invoke {payload['id']}"
        case "invoke_cancel":
            return str(payload["id"])
        case "done":
            return value_text(payload.get("data"))


def _input_text(value: Any) -> str:
    return "" if value is None else f" {value_text(value)}"


# Accepted events


def acceptance_lines(events: Sequence[Acceptance]) -> Iterator[Line]:
    """Each event: where it leads, the guard that is false, the states that accept it, or the missing role."""
    width = max((len(each.event) for each in events), default=0)
    for each in events:
        yield ("  ", *_acceptance_parts(each, width))


def _acceptance_parts(each: Acceptance, width: int) -> Iterator[Part]:
    name = f"{each.event:<{width}}"
    if each.accepted:
        yield from (("✓ ", "green"), f"{name}  → {_targets_text(each.targets)}")
    elif each.why == "guard":
        conditional = next((guard for guard in each.guards if guard.needs_event), None)
        first = conditional or each.guards[0]
        yield ("? ", "yellow") if conditional is not None else ("✗ ", "red")
        yield f"{name}  → {_targets_text(first.targets)}"
        if conditional is not None:
            yield f"  if {conditional.guard}"
        else:
            yield f"  guard {'; '.join(guard_text(one.guard, one.values, one.error) for one in each.guards)}"
    elif each.why == "roles":
        yield from (("✗ ", "red"), f"{name}  denied: {roles_text(each.roles)}")
    elif each.why == "permit":
        yield from (("✗ ", "red"), f"{name}  denied: the `permit` does not allow it to this sender")
    elif each.approvals is not None:
        found = each.approvals
        yield from (("✗ ", "red"), f"{name}  denied: needs {found.count} approvals by `{found.of}`, has {found.has}")
    else:
        states = f"; accepted in {', '.join(each.states)}" if each.states else ""
        yield from (("✗ ", "red"), f"{name}  not accepted in {'this' if each.states else 'any'} state{states}")


def _targets_text(targets: Sequence[str]) -> str:
    return ", ".join(targets) or "no state change"


# Entries


def entry_line(entry: Entry) -> Line:
    """One entry: version, time, event, change of state, principal."""
    outcome = "" if entry.outcome == "applied" else f" {entry.outcome}"
    reason = f" ({entry.reason})" if entry.reason else ""
    principal = entry.event.principal
    who = f"  by {principal['id']}" if isinstance(principal, dict) and principal.get("id") is not None else ""
    return (
        f"{entry.version:>5}  ",
        (time_text(entry.event.time_ms), "dim"),
        "  ",
        (entry.event.name, "bold"),
        f"{outcome}{reason}  {_entry_change(entry)}{who}",
        (f"  after {len(entry.attempts)} attempts" if len(entry.attempts) > 1 else "", "yellow"),
    )


def entry_details(entry: Entry) -> Iterator[Line]:
    """The reason that the sender gave, the payload, the key, for whom, the attempts before it, and the effects."""
    if entry.reason_given is not None:
        yield ("         reason   ", entry.reason_given)
    if entry.event.data is not None:
        yield ("         data     ", value_text(entry.event.data))
    yield ("         key      ", (entry.key, "dim"))
    if entry.originator is not None:
        yield ("         for      ", entry.originator.id)
    for attempt in entry.attempts:
        yield ("         ", *attempt_parts(attempt))
    for effect in entry.effects:
        yield ("         effect   ", *effect_parts(effect, time_text))


def attempt_parts(attempt: PastAttempt) -> list[Part]:
    """An attempt: when it started, how long it ran, its error, and when the next one was due."""
    parts: list[Part] = [f"attempt {attempt.number}  {time_text(attempt.started_ms)} "]
    after = f" after {age_text(attempt.duration_ms)}"
    if attempt.code is None:
        return [*parts, ("succeeded", "green"), after]
    why = f": {attempt.code}{f': {attempt.message}' if attempt.message else ''}".replace("\n", "\\n")
    due = "" if attempt.next_ms is None else f"; next {time_text(attempt.next_ms)}"
    return [*parts, ("failed", "red"), f"{after}{why}{due}"]


def _entry_change(entry: Entry) -> str:
    if entry.before == entry.after:
        return f"no state change ({', '.join(entry.after)})"
    return f"{', '.join(entry.before)} → {', '.join(entry.after)}".strip()


# Lists


def row_lines(rows: Sequence[EntityRow], now_ms: int) -> Iterator[Line]:
    """Entities with their version, their states, and the time in those states."""
    width = max((len(each.entity) for each in rows), default=0)
    states_width = max((len(", ".join(each.configuration)) for each in rows), default=0)
    for each in rows:
        states = ", ".join(each.configuration)
        ended = f"  ended {each.ended}" if each.ended is not None else ""
        age = age_text(now_ms - each.entered_ms)
        yield ((f"{each.entity:<{width}}", "bold"), f"  v{each.version:<6} {states:<{states_width}}  {age}{ended}")
        for name, value in (each.context or {}).items():
            yield (f"  {name}: ", value_text(value))

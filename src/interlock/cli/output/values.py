"""What kept entities look like: an entity as it stands, its journal, a receipt, a list.

Rule 1: every function here turns values into lines; none asks a store.
Rule 2: times are UTC to the millisecond, so that lines of two machines can be compared and sorted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

import msgspec

from interlock.cli.output import scene
from interlock.cli.output.scene import Line
from interlock.cli.output.terminal import Part
from interlock.cli.play import event_names, sendable
from interlock.kernel.explain import Candidate
from interlock.model.chart import Chart
from interlock.model.diagnostics import suggestion
from interlock.model.duration import format_duration
from interlock.model.journal.entry import Entry, Receipt
from interlock.model.snapshot import Snapshot
from interlock.ports.store import EntityRow
from interlock.runtime.history.replay import EPOCH


def time_text(ms: int) -> str:
    """A time as ISO 8601 in UTC; of a time that no calendar has, its number."""
    try:
        return (EPOCH + timedelta(milliseconds=ms)).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except OverflowError:
        return f"{ms} ms"


def age_text(ms: int) -> str:
    """How long something lasts, in its two largest units at most: a day and some hours, not milliseconds too."""
    if ms < 1000:
        return f"{max(0, ms)}ms"
    for floor in (86_400_000, 3_600_000, 60_000, 1_000):
        if ms >= floor:
            unit = {86_400_000: 3_600_000, 3_600_000: 60_000, 60_000: 1_000, 1_000: 1_000}[floor]
            return format_duration(ms // unit * unit)
    return ""


def json_line(value: Any) -> str:
    """A value as one line of JSON."""
    return msgspec.json.encode(value).decode() + "\n"


def json_text(value: Any) -> str:
    """A value as an indented JSON document."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n"


def counted(count: int, one: str, many: str) -> str:
    """So many of something."""
    return f"{count:,} {one if count == 1 else many}"


# A receipt


def receipt_lines(receipt: Receipt, event: str, *, chart: Chart | None = None, dry: bool = False) -> Iterator[Line]:
    """How an event was taken, where the entity is now, and what was asked for or went wrong; with its chart, why."""
    outcome = f"would be {receipt.outcome}" if dry else receipt.outcome
    reason = f" ({receipt.reason})" if receipt.reason else ""
    where = f": {', '.join(receipt.snapshot.configuration)}" if receipt.snapshot is not None else ""
    head: list[Part] = [(receipt.entity, "bold"), f" {event} ", (outcome, scene.OUTCOMES[receipt.outcome]), reason]
    yield (*head, f"{where} (version {receipt.version})")
    for effect in receipt.effects:
        yield ("  effect   ", *scene.effect_parts(effect, time_text))
    yield from scene.problem_lines(receipt.trials, receipt.faults)
    if receipt.reason == "entity.exists":
        yield ("  why      ", "there is one of this id: send it an event, or take another id")
    elif chart is not None and receipt.reason == "roles":
        yield ("  why      ", _roles(chart, event))
    elif chart is not None and receipt.outcome == "rejected":
        near = suggestion(event, event_names(chart))
        yield from scene.refusal_lines(chart, event, receipt.reason, near)


# An entity


def head_line(snapshot: Snapshot, note: str = "") -> Line:
    """The entity, its version and revision, and since when."""
    return ((snapshot.entity, "bold"), f"  version {snapshot.version}  revision {snapshot.revision}{note}")


def entity_lines(chart: Chart, snapshot: Snapshot, *, now_ms: int, whole: bool) -> Iterator[Line]:
    """The active states, or with `whole` all of them, then the context, and what is awaited."""
    yield from scene.tree_lines(chart, snapshot, set() if whole else None)
    yield from scene.context_lines(chart, snapshot)
    for timer in snapshot.timers:
        left = timer.due_ms - now_ms
        when = f"in {age_text(left)}" if left >= 0 else f"{age_text(-left)} ago"
        yield (("  waits    ", "dim"), f"timer {timer.event}, due at {time_text(timer.due_ms)} ({when})")
    for invoke in snapshot.invokes:
        yield (("  waits    ", "dim"), f"invoke {invoke.id}", (f"  key {invoke.key}", "dim"))
    if snapshot.deferred:
        yield (("  deferred ", "dim"), ", ".join(each.name for each in snapshot.deferred))
    if snapshot.ended is not None:
        output = "" if snapshot.output is None else f", output {scene.value_text(snapshot.output)}"
        yield (("  ended    ", "bold"), f"{snapshot.ended}{output}")


def can_lines(
    chart: Chart, snapshot: Snapshot, candidates: Sequence[Candidate], denied: Sequence[str]
) -> Iterator[Line]:
    """Each event: accepted, refused by which guard with which values, or not accepted here but in which states."""
    if snapshot.ended is not None:
        yield ("  ended: no event is accepted any more",)
        return
    found = sendable(candidates)
    others = [name for name in event_names(chart) if not _is_taken(chart, found, name)]
    width = max((len(each) for each in (*(each.event for each in found), *others)), default=0)
    for each in found:
        if each.event in denied:
            yield ("  ", ("✗ ", "red"), f"{each.event:<{width}}  denied: {_roles(chart, each.event)}")
        else:
            yield ("  ", *scene.candidate_parts(chart, each, width))
    for name in others:
        where = f"not accepted here, but in {', '.join(scene.states_taking(chart, name)) or 'no state'}"
        why = f"denied: {_roles(chart, name)}" if name in denied else where  # who may not send it learns no more
        yield ("  ", ("✗ ", "red"), f"{name:<{width}}  {why}")


def can_json(chart: Chart, snapshot: Snapshot, candidates: Sequence[Candidate], denied: Sequence[str]) -> Any:
    """The same, as plain JSON."""
    found = sendable(candidates)
    others = [name for name in event_names(chart) if not _is_taken(chart, found, name)]
    return {
        "entity": snapshot.entity,
        "version": snapshot.version,
        "configuration": snapshot.configuration,
        "candidates": [
            {**msgspec.to_builtins(each), "accepted": each.accepted and each.event not in denied} for each in found
        ],
        "denied": sorted(denied),
        "not_accepted": {name: scene.states_taking(chart, name) for name in others if name not in denied},
    }


def _is_taken(chart: Chart, candidates: Sequence[Candidate], name: str) -> bool:
    return any(
        descriptor.matches(name) or descriptor.text == name
        for each in candidates
        for descriptor in chart.transitions[each.transition].descriptors
    )


def _roles(chart: Chart, event: str) -> str:
    roles = next((each.roles for each in chart.events or () if each.name == event), None)
    return f"needs the role {' or '.join(roles)}" if roles else "no role may send it"


# A journal


def entry_line(entry: Entry) -> Line:
    """One entry: version, time, event, where it led, by whom."""
    change = _change(entry)
    outcome = "" if entry.outcome == "applied" else f" {entry.outcome}"
    reason = f" ({entry.reason})" if entry.reason else ""
    principal = entry.event.principal
    who = f"  by {principal['id']}" if isinstance(principal, dict) and principal.get("id") is not None else ""
    return (
        f"{entry.version:>5}  ",
        (time_text(entry.event.time_ms), "dim"),
        "  ",
        (entry.event.name, "bold"),
        f"{outcome}{reason}  {change}{who}",
    )


def entry_details(entry: Entry) -> Iterator[Line]:
    """What the event carried, under which key, and what the step asked for."""
    if entry.event.data is not None:
        yield ("         data     ", scene.value_text(entry.event.data))
    yield ("         key      ", (entry.key, "dim"))
    for effect in entry.effects:
        yield ("         effect   ", *scene.effect_parts(effect, time_text))


def _change(entry: Entry) -> str:
    if entry.before == entry.after:
        return f"stays in {', '.join(entry.after)}"
    return f"{', '.join(entry.before)} → {', '.join(entry.after)}".strip()


# A list


def row_lines(rows: Sequence[EntityRow], now_ms: int) -> Iterator[Line]:
    """Entities with their version, their states, and how long they have been there."""
    width = max((len(each.entity) for each in rows), default=0)
    states = max((len(", ".join(each.configuration)) for each in rows), default=0)
    for each in rows:
        where = ", ".join(each.configuration)
        ended = f"  ended {each.ended}" if each.ended is not None else ""
        age = age_text(now_ms - each.entered_ms)
        yield ((f"{each.entity:<{width}}", "bold"), f"  v{each.version:<6} {where:<{states}}  {age}{ended}")

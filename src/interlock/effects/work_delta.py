"""What a step leaves to do, and what it puts an end to: pure, so that one write can hold it with its entry.

Rule 1: timers are the net difference of two snapshots: one that was set and cancelled in one step was never there.
Rule 2: whatever goes to another entity is an event made here, with its sender and the system as principal; who it
goes to is an address that the relay resolves.
Rule 3: of a cancelled invoke the work goes, or is told to stop; a child is told by an event of its own, after all that
was sent to it before, and its work goes with that.
Rule 4: without a bus a message leaves no work: it would only pile up. The journal holds it. With one, every applied
entry is a message, after the chart's own; but nothing tells of a step into, in or out of a hidden state.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from interlock.model.codec import plain
from interlock.model.effect import CHART_TYPES, Effect
from interlock.model.event import SCXML_PROCESSOR, Event
from interlock.model.journal.entry import Entry
from interlock.model.journal.message import change_message, message_body
from interlock.model.journal.work import BUS_WORK, CHILD_WORK, Lane, Work, WorkDelta, WorkId
from interlock.model.snapshot import Snapshot
from interlock.model.step import Step

CANCEL = "_cancel"
"""The event that ends a child whose parent has left it."""


def work_delta(
    before: Snapshot | None, step: Step, time_ms: int, *, told: Entry | None = None, hidden: bool = False
) -> WorkDelta:
    """The work that this step leaves. `told`: there is a bus, and this entry, unless it is `hidden`, goes out."""
    after = step.snapshot
    stood = () if before is None else before.invokes
    children = {each.key for each in stood if each.child}
    invokes = {each.id: each.key for each in stood}  # as they stand when an effect was asked for: ids are used again
    born = [*_timers(after)]
    cancelled = []
    for effect in step.effects:
        if effect.type == "invoke_cancel":
            if effect.payload["key"] in children:
                born.append(_cancel(after.version, effect, time_ms))
            else:
                cancelled.append(work_id_of("effect", effect.payload["key"]))
        else:
            if effect.type == "invoke":
                invokes[effect.payload["id"]] = effect.key
            born += _born(after, effect, invokes, time_ms, told)
    born += _closing(before, step, time_ms, None if hidden else told)
    kept = {(each.name, each.version) for each in after.timers}
    gone = () if before is None else (each for each in before.timers if (each.name, each.version) not in kept)
    ended = tuple(WorkId("timer", each.version, each.ordinal) for each in gone)
    return WorkDelta(tuple(born), ended, tuple(cancelled))


def work_id_of(lane: Lane, key: str) -> WorkId:
    """The place of the work whose effect has this key."""
    _, version, ordinal = key.rsplit("/", 2)
    return WorkId(lane, int(version), int(ordinal))


def child_address(key: str) -> str:
    """The address of the child that the invoke with this key began."""
    _, version, ordinal = key.rsplit("/", 2)
    return f"child/{version}/{ordinal}"


def _timers(after: Snapshot) -> Iterator[Work]:
    for timer in after.timers:
        if timer.version == after.version:
            yield Work(WorkId("timer", timer.version, timer.ordinal), timer.name, {"event": timer.event}, timer.due_ms)


def _born(
    after: Snapshot, effect: Effect, invokes: Mapping[str, str], time_ms: int, told: Entry | None
) -> Iterator[Work]:
    place = WorkId("outbox", after.version, effect.ordinal)
    payload = effect.payload
    match effect.type:
        case "call":
            yield Work(WorkId("effect", after.version, effect.ordinal), payload["name"], payload, time_ms)
        case "invoke":
            child = payload["type"] in CHART_TYPES
            name = CHILD_WORK if child else str(payload.get("src"))
            yield Work(WorkId("effect", after.version, effect.ordinal), name, payload, time_ms)
        case "send":
            address = _address(after, payload["to"], invokes)
            if address is not None:
                yield _sent(after, place, payload, address, time_ms)
        case "forward":
            event = {**payload["event"], "forwarded": True}
            yield Work(place, child_address(invokes[payload["id"]]), {"event": event}, time_ms)
        case "done":
            yield _to_parent(after, place, "done", payload.get("data"), time_ms)
        case "message":
            if told is not None:
                yield _message(effect.ordinal, told, str(payload["type"]), payload.get("data"))
        case _:  # timers are read from the snapshots, and a log leaves nothing to do
            return


def _address(after: Snapshot, to: str, invokes: Mapping[str, str]) -> str | None:
    """Where a send goes; None for an invoke that was withdrawn in the very step that began it: nobody is there."""
    if to == "#_parent":
        assert after.parent is not None  # the kernel refuses such a send of an entity without one
        return f"entity/{after.parent.entity}"
    if not to.startswith("#_"):
        return f"entity/{to}"
    key = invokes.get(to[2:])
    return None if key is None else child_address(key)


def _sent(after: Snapshot, place: WorkId, payload: dict[str, Any], address: str, time_ms: int) -> Work:
    """An event to an entity, the parent or a child. A deferred one comes back with all that it had."""
    fields: dict[str, Any] = {name: payload[name] for name in ("sendid", "id", "key", "principal") if name in payload}
    fields.setdefault("principal", _system(after.entity))
    if payload["to"] == "#_parent":
        fields |= _as_invoked(after, last=after.ended == "done")
    event = Event(payload["event"], payload.get("data"), **_from(after.entity), **fields)
    return Work(place, address, {"event": plain(event)}, time_ms)


def _to_parent(after: Snapshot, place: WorkId, word: str, data: Any, time_ms: int) -> Work:
    """The last that a parent hears of a child: its result, or that it failed."""
    assert after.parent is not None  # only what was invoked has a result to give
    event = Event(
        f"{word}.invoke.{after.parent.invokeid}",
        data,
        type="platform",
        principal=_system(after.entity),
        **_from(after.entity),
        **_as_invoked(after, last=True),
    )
    return Work(place, f"entity/{after.parent.entity}", {"event": plain(event)}, time_ms)


def _closing(before: Snapshot | None, step: Step, time_ms: int, told: Entry | None) -> Iterator[Work]:
    """What no effect says: that a child has just failed, and the message of the entry itself."""
    after = step.snapshot
    ordinal = len(step.effects) if not step.effects else step.effects[-1].ordinal + 1
    # Entries may follow the end: a deed of a saga that turns out to be done is still answered.
    if after.ended == "failed" and after.parent is not None and (before is None or before.ended is None):
        problem = {"code": "child_failed", "message": f"`{after.entity}` failed", "attempts": 1, "done": "unknown"}
        yield _to_parent(after, WorkId("outbox", after.version, ordinal), "error", problem, time_ms)
        ordinal += 1
    if told is not None and step.outcome == "applied":
        word, data = change_message(told, after.ended)
        yield _message(ordinal, told, f"{after.kind}.{word}", data)


def _message(ordinal: int, told: Entry, type: str, data: Any) -> Work:
    return Work(WorkId("message", told.version, ordinal), BUS_WORK, message_body(told, type, data), told.event.at_ms)


def _cancel(version: int, effect: Effect, time_ms: int) -> Work:
    body = {"event": plain(Event(CANCEL, type="platform"))}
    return Work(WorkId("outbox", version, effect.ordinal), child_address(effect.payload["key"]), body, time_ms)


def _from(entity: str) -> dict[str, Any]:
    return {"origin": f"#_scxml_{entity}", "origintype": SCXML_PROCESSOR}


def _as_invoked(after: Snapshot, *, last: bool) -> dict[str, Any]:
    assert after.parent is not None
    return {"invokeid": after.parent.invokeid, "source": f"invoke/{after.parent.key}", "last": last}


def _system(entity: str) -> dict[str, Any]:
    return {"id": entity, "kind": "system", "roles": ["system"]}

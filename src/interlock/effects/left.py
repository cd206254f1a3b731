"""What a step leaves to do, and what it puts an end to: pure, so that one write can hold it with its entry.

Rule 1: timers are the net difference of two snapshots: one that was set and cancelled in one step was never there.
Rule 2: whatever goes to another entity is an event made here, with its sender and the system as principal; who it
goes to is an address that the relay resolves.
Rule 3: of a cancelled invoke the work goes, or is told to stop; a child is told by an event of its own, after all that
was sent to it before, and its work goes with that.
Rule 4: without a bus a message leaves no work: it would only pile up. The journal holds it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from interlock.model.codec import plain
from interlock.model.effect import CHART_TYPES, Effect
from interlock.model.event import SCXML_PROCESSOR, Event
from interlock.model.snapshot import Invocation, Snapshot
from interlock.model.step import Step
from interlock.model.work import BUS, CHILD, Lane, Left, Place, Work

CANCEL = "_cancel"
"""The event that ends a child whose parent has left it."""


def left(before: Snapshot | None, step: Step, time_ms: int, *, messages: bool = False) -> Left:
    """The work that this step leaves. `messages`: there is a bus, so what the entry says goes out."""
    after = step.snapshot
    invokes = {each.id: each for each in (*(() if before is None else before.invokes), *after.invokes)}
    born = [*_timers(after)]
    cancelled = []
    for effect in step.effects:
        if effect.type == "invoke_cancel":
            if invokes[effect.payload["id"]].child:
                born.append(_cancel(after.version, effect, time_ms))
            else:
                cancelled.append(place_of("effect", effect.payload["key"]))
        else:
            born += _born(after, effect, invokes, time_ms, messages=messages)
    born += _closing(after, step, time_ms, messages=messages)
    kept = {(each.name, each.version) for each in after.timers}
    gone = () if before is None else (each for each in before.timers if (each.name, each.version) not in kept)
    ended = tuple(Place("timer", each.version, each.ordinal) for each in gone)
    return Left(tuple(born), ended, tuple(cancelled))


def place_of(lane: Lane, key: str) -> Place:
    """The place of the work whose effect has this key."""
    _, version, ordinal = key.rsplit("/", 2)
    return Place(lane, int(version), int(ordinal))


def child_address(key: str) -> str:
    """The address of the child that the invoke with this key began."""
    _, version, ordinal = key.rsplit("/", 2)
    return f"child/{version}/{ordinal}"


def _timers(after: Snapshot) -> Iterator[Work]:
    for timer in after.timers:
        if timer.version == after.version:
            yield Work(Place("timer", timer.version, timer.ordinal), timer.name, {"event": timer.event}, timer.due_ms)


def _born(
    after: Snapshot, effect: Effect, invokes: Mapping[str, Invocation], time_ms: int, *, messages: bool
) -> Iterator[Work]:
    place = Place("outbox", after.version, effect.ordinal)
    payload = effect.payload
    match effect.type:
        case "call":
            yield Work(Place("effect", after.version, effect.ordinal), payload["name"], payload, time_ms)
        case "invoke":
            child = payload["type"] in CHART_TYPES
            name = CHILD if child else str(payload.get("src"))
            yield Work(Place("effect", after.version, effect.ordinal), name, payload, time_ms)
        case "send":
            yield _sent(after, place, payload, invokes, time_ms)
        case "forward":
            event = {**payload["event"], "forwarded": True}
            yield Work(place, child_address(invokes[payload["id"]].key), {"event": event}, time_ms)
        case "done":
            yield _to_parent(after, place, "done", payload.get("data"), time_ms)
        case "message":
            if messages:
                yield Work(place, BUS, {"message": payload}, time_ms)
        case _:  # timers are read from the snapshots, and a log leaves nothing to do
            return


def _sent(
    after: Snapshot, place: Place, payload: dict[str, Any], invokes: Mapping[str, Invocation], time_ms: int
) -> Work:
    """An event to an entity, the parent or a child. A deferred one comes back with all that it had."""
    fields: dict[str, Any] = {name: payload[name] for name in ("sendid", "id", "key", "principal") if name in payload}
    fields.setdefault("principal", _system(after.entity))
    to = payload["to"]
    if to == "#_parent":
        assert after.parent is not None  # the kernel refuses such a send of an entity without one
        fields |= _as_invoked(after, last=after.ended == "done")
        address = f"entity/{after.parent.entity}"
    elif to.startswith("#_"):
        address = child_address(invokes[to[2:]].key)
    else:
        address = f"entity/{to}"
    event = Event(payload["event"], payload.get("data"), **_from(after.entity), **fields)
    return Work(place, address, {"event": plain(event)}, time_ms)


def _to_parent(after: Snapshot, place: Place, word: str, data: Any, time_ms: int) -> Work:
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


def _closing(after: Snapshot, step: Step, time_ms: int, *, messages: bool) -> Iterator[Work]:
    """What no effect says: that a child failed, and the message of the entry itself."""
    ordinal = len(step.effects) if not step.effects else step.effects[-1].ordinal + 1
    if after.ended == "failed" and after.parent is not None:
        problem = {"code": "child_failed", "message": f"`{after.entity}` failed", "attempts": 1, "done": "unknown"}
        yield _to_parent(after, Place("outbox", after.version, ordinal), "error", problem, time_ms)
        ordinal += 1
    if messages and step.outcome == "applied":
        yield Work(Place("outbox", after.version, ordinal), BUS, {"entry": True}, time_ms)


def _cancel(version: int, effect: Effect, time_ms: int) -> Work:
    body = {"event": plain(Event(CANCEL, type="platform"))}
    return Work(Place("outbox", version, effect.ordinal), child_address(effect.payload["key"]), body, time_ms)


def _from(entity: str) -> dict[str, Any]:
    return {"origin": f"#_scxml_{entity}", "origintype": SCXML_PROCESSOR}


def _as_invoked(after: Snapshot, *, last: bool) -> dict[str, Any]:
    assert after.parent is not None
    return {"invokeid": after.parent.invokeid, "source": f"invoke/{after.parent.key}", "last": last}


def _system(entity: str) -> dict[str, Any]:
    return {"id": entity, "kind": "system", "roles": ["system"]}

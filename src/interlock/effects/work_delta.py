"""The work that a step creates, finishes and cancels. Pure, so that one write can contain it and the entry.

Rule 1: timers are the difference of two snapshots: one that was set and cancelled in the same step never existed.
Rule 2: an event to another entity is built here, with its sender and the system as principal, and `for` whom it was
sent, which gives no right. Its target is an address that the relay resolves.
Rule 3: the work of a cancelled invoke is removed, or marked as cancelled. A child gets a separate event, after
everything that was sent to it before, and its work is removed with that.
Rule 4: without a bus a message creates no work, since that would only pile up; the journal contains it. With a bus,
every applied entry is a message, after the chart's own messages; but not a step of a hidden state. If such a step leads
to a visible change, the message says only that, and the chart's own messages are not published.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from interlock.model.actor import Actor
from interlock.model.effect import CHART_TYPES, Effect
from interlock.model.encoding.codec import to_builtins
from interlock.model.event import SCXML_PROCESSOR, Event
from interlock.model.journal.cause import CAUSE, Cause, cause_body
from interlock.model.journal.entry import Entry, shown_change, visible_version
from interlock.model.journal.message import change_message, message_body
from interlock.model.journal.work import BUS_WORK, CHILD_WORK, EPOCH, PLACE, Lane, Work, WorkDelta, WorkId
from interlock.model.snapshot import Snapshot
from interlock.model.step import Step

CANCEL = "_cancel"
"""The event that ends a child whose parent left the state that invoked it."""

_CHILD = "child/"
"""The prefix of the address of a child, before the version and the ordinal of its invoke."""


def work_delta(
    before: Snapshot | None,
    step: Step,
    time_ms: int,
    *,
    published: Entry | None = None,
    hidden: bool = False,
    epoch: int = 0,
    cause: Cause | None = None,
) -> WorkDelta:
    """Return the work of a step. `published`: the entry, if there is a bus; it is published unless it is `hidden`.

    `epoch` is the restore epoch of the step's event. `cause` is that of the work: what the step sends says for whom.
    """
    whom = None if cause is None else cause.whom
    after = step.snapshot
    active = () if before is None else before.invokes
    children = {each.key for each in active if each.child}
    invokes = {each.id: each.key for each in active}  # at the time of each effect: ids are used again
    emitted = None if published is not None and published.shown != "whole" else published
    created = [*_timers(after)]
    cancelled = []
    for effect in step.effects:
        if effect.type == "invoke_cancel":
            if effect.payload["key"] in children:
                created.append(_cancel(after.version, effect, time_ms))
            else:
                cancelled.append(work_id_of("effect", effect.payload["key"]))
        else:
            if effect.type == "invoke":
                invokes[effect.payload["id"]] = effect.key
            created += _created(after, effect, invokes, time_ms, emitted, whom)
    created += _end_of_step(before, step, time_ms, None if hidden else published, whom)
    waiting = {(each.name, each.version) for each in after.timers}
    removed = () if before is None else (each for each in before.timers if (each.name, each.version) not in waiting)
    finished = tuple(WorkId("timer", each.version, each.ordinal) for each in removed)
    if epoch:
        created = [replace(each, body={**each.body, EPOCH: epoch}) for each in created]
    if cause is not None and created:
        stored = cause_body(cause)
        created = [
            each
            if each.id.lane == "message"
            else Work(each.id, each.name, {**each.body, CAUSE: stored}, each.due_ms)  # faster than `replace`
            for each in created
        ]
    return WorkDelta(tuple(created), finished, tuple(cancelled))


def work_id_of(lane: Lane, key: str) -> WorkId:
    """Return the id of the work whose effect has this key."""
    _, version, ordinal = key.rsplit("/", 2)
    return WorkId(lane, int(version.partition(".")[0]), int(ordinal))


def child_address(key: str) -> str:
    """Return the address of the child that the invoke with this key started."""
    invoke = work_id_of("effect", key)
    return f"{_CHILD}{invoke.version}/{invoke.ordinal}"


def invoke_of_address(address: str) -> WorkId | None:
    """Return the invoke of the sender whose child an address names; None for the address of an entity."""
    return work_id_of("effect", address) if address.startswith(_CHILD) else None


def outbox_event(work: Work) -> Event:
    """Return the event that work of the outbox delivers."""
    return msgspec.convert(work.body["event"], Event)


def is_answer(event: Event) -> bool:
    """Whether the sender expects no error event if the receiver no longer exists."""
    return event.name == CANCEL or event.last or event.forwarded


def _timers(after: Snapshot) -> Iterator[Work]:
    for timer in after.timers:
        if timer.version == after.version:
            yield Work(WorkId("timer", timer.version, timer.ordinal), timer.name, {"event": timer.event}, timer.due_ms)


def _created(
    after: Snapshot,
    effect: Effect,
    invokes: Mapping[str, str],
    time_ms: int,
    published: Entry | None,
    whom: Actor | None,
) -> Iterator[Work]:
    work_id = WorkId("outbox", after.version, effect.ordinal)
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
                yield _send(after, work_id, payload, address, time_ms, whom)
        case "forward":
            event = {**payload["event"], "forwarded": True}
            yield Work(work_id, child_address(invokes[payload["id"]]), {"event": event}, time_ms)
        case "done":
            yield _to_parent(after, work_id, "done", payload.get("data"), time_ms, whom)
        case "message":
            if published is not None:
                yield _message(effect.ordinal, published, str(payload["type"]), payload.get("data"))
        case _:  # timers come from the snapshots, and a log creates no work
            return


def _address(after: Snapshot, to: str, invokes: Mapping[str, str]) -> str | None:
    """Return the address of a send; None for an invoke that was cancelled in the step that started it."""
    if to == "#_parent":
        assert after.parent is not None  # the kernel refuses such a send in an entity without a parent
        return f"entity/{after.parent.entity}"
    if not to.startswith("#_"):
        return f"entity/{to}"
    key = invokes.get(to[2:])
    return None if key is None else child_address(key)


def _send(
    after: Snapshot, work_id: WorkId, payload: dict[str, Any], address: str, time_ms: int, whom: Actor | None
) -> Work:
    """Return the work for an event to an entity, the parent or a child. A deferred event keeps all its fields."""
    fields: dict[str, Any] = {name: payload[name] for name in ("sendid", "id", "key", "principal") if name in payload}
    fields.setdefault("principal", _system(after.entity, whom))
    if payload["to"] == "#_parent":
        fields |= _as_invoked(after, last=after.ended == "done")
    event = Event(payload["event"], payload.get("data"), **_from(after.entity), **fields)
    return Work(work_id, address, {"event": to_builtins(event)}, time_ms)


def _to_parent(after: Snapshot, work_id: WorkId, word: str, data: Any, time_ms: int, whom: Actor | None) -> Work:
    """Return the last event of a child to its parent: its result, or that it failed."""
    assert after.parent is not None  # only an invoked entity has a result
    event = Event(
        f"{word}.invoke.{after.parent.invokeid}",
        data,
        type="platform",
        principal=_system(after.entity, whom),
        **_from(after.entity),
        **_as_invoked(after, last=True),
    )
    return Work(work_id, f"entity/{after.parent.entity}", {"event": to_builtins(event)}, time_ms)


def _end_of_step(
    before: Snapshot | None, step: Step, time_ms: int, published: Entry | None, whom: Actor | None
) -> Iterator[Work]:
    """Yield the work that no effect states: the failure of a child, and the message of the entry itself."""
    after = step.snapshot
    ordinal = len(step.effects) if not step.effects else step.effects[-1].ordinal + 1
    # Entries may follow the end: a step of a saga that turns out to be done is still compensated.
    if after.ended == "failed" and after.parent is not None and (before is None or before.ended is None):
        problem = {"code": "child_failed", "message": f"`{after.entity}` failed", "attempts": 1, "done": "unknown"}
        yield _to_parent(after, WorkId("outbox", after.version, ordinal), "error", problem, time_ms, whom)
        ordinal += 1
    if published is not None and (step.outcome == "applied" or published.shown == "change"):
        shown = visible_entry(published, before)
        word, data = change_message(shown, after.ended)
        yield _message(ordinal, shown, f"{after.kind}.{word}", data)


def visible_entry(entry: Entry, before: Snapshot | None) -> Entry:
    """Return an entry as others see it who see something of it."""
    if entry.shown != "change":
        return entry
    cover = None if before is None or before.sight is None else before.sight.cover
    return shown_change(entry, () if before is None else (cover or before).configuration)


def _message(ordinal: int, entry: Entry, type: str, data: Any) -> Work:
    body = message_body(entry, type, data)
    if entry.unseen or entry.shown == "change":  # numbers that count the unseen entries would reveal them
        body[PLACE] = [visible_version(entry), 0 if entry.shown == "change" else ordinal]
    return Work(WorkId("message", entry.version, ordinal), BUS_WORK, body, entry.event.at_ms)


def _cancel(version: int, effect: Effect, time_ms: int) -> Work:
    body = {"event": to_builtins(Event(CANCEL, type="platform"))}
    return Work(WorkId("outbox", version, effect.ordinal), child_address(effect.payload["key"]), body, time_ms)


def _from(entity: str) -> dict[str, Any]:
    return {"origin": f"#_scxml_{entity}", "origintype": SCXML_PROCESSOR}


def _as_invoked(after: Snapshot, *, last: bool) -> dict[str, Any]:
    assert after.parent is not None
    return {"invokeid": after.parent.invokeid, "source": f"invoke/{after.parent.key}", "last": last}


def _system(entity: str, whom: Actor | None) -> dict[str, Any]:
    """Return the principal of what an entity sends: itself, for whom it was caused, without the roles of that one."""
    system = {"id": entity, "kind": "system", "roles": ["system"]}
    return system if whom is None else {**system, "for": {"id": whom.id, "kind": whom.kind}}

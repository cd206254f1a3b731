"""The events by which things come back to an entity: what it invoked, what it called, and its timers.

Rule 1: `source` says which invoke or timer of the snapshot an event belongs to; the kernel takes it only if that is
still pending.
Rule 2: the code and the message of a failure are made storable here as well: this is where every failure becomes an
event, whoever reports it.
"""

from __future__ import annotations

from typing import Any, Literal

from interlock.model.event import Event
from interlock.model.snapshot import Timer
from interlock.model.storable import storable_code, storable_text

Done = Literal["no", "unknown"]
"""Whether what failed was perhaps done all the same: a saga compensates what was perhaps done."""

UNNAMED = "error"
"""The code of a failure that has none."""

COMPENSATION_FAILED = "compensation_failed"
"""Why an ended entity refuses the failure of a compensation: nobody is there to take it but a person."""


TIMER_SOURCE = "timer/"
"""How `source` begins in the event of a timer; the timer's name and the version that set it follow."""


def is_result(event: Event, invokeid: str | None) -> bool:
    """Whether the driver created this event as the end of the invoke with this id; which one, `source` says."""
    return event.type == "platform" and event.name in (f"done.invoke.{invokeid}", f"error.invoke.{invokeid}")


def invoke_done(invokeid: str, key: str, data: Any, *, time_ms: int = 0) -> Event:
    """The result of an invoke, by its id and the key of its effect."""
    return _invoked("done", invokeid, key, data, time_ms)


def invoke_failed(
    invokeid: str, key: str, code: str, message: str, *, done: Done, attempts: int = 1, time_ms: int = 0
) -> Event:
    """The failure of an invoke, for good."""
    told = {"code": storable_code(code, UNNAMED), "message": storable_text(message)}
    data = {**told, "attempts": attempts, "done": done}
    return _invoked("error", invokeid, key, data, time_ms)


def call_failed(name: str | None, key: str, code: str, *, sendid: str | None = None, time_ms: int = 0) -> Event:
    """The failure of a named action or of a send (`name` is then `send`), for good."""
    data = {"effect": name, "key": key, "code": storable_code(code, UNNAMED)}
    return Event("error.communication", data, time_ms=time_ms, type="platform", sendid=sendid)


def timer_fired(timer: Timer, *, time_ms: int) -> Event:
    """The event that a timer sets off."""
    source = f"{TIMER_SOURCE}{timer.name}/{timer.version}"
    return Event(timer.event, timer.data, id=source, time_ms=time_ms, sendid=timer.id, source=source)


def timer_moved(timer: Timer, *, due_ms: int, since_ms: int) -> Event:
    """The event that moves a timer after downtime: when it is due now, and from when it counts."""
    data = {"name": timer.name, "version": timer.version, "due_ms": due_ms, "since_ms": since_ms}
    return Event("_timer.moved", data, type="platform")


def _invoked(word: str, invokeid: str, key: str, data: Any, time_ms: int) -> Event:
    name = f"{word}.invoke.{invokeid}"
    return Event(name, data, time_ms=time_ms, type="platform", invokeid=invokeid, source=f"invoke/{key}")

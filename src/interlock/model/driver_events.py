"""The events that a driver sends back to an entity: results, failures, timers, overdue states.

Rule 1: `source` names the invoke or timer of the snapshot that an event belongs to. The kernel accepts the event only
        while that is pending.
Rule 2: the event of an overdue state belongs to nothing that is pending; the driver sends it on the condition of the
        version in which the entity is in the state.
Rule 3: codes and messages of failures are made storable here, because every failure becomes an event here.
"""

from __future__ import annotations

from typing import Any, Literal

from interlock.model.encoding.storable import storable_code, storable_text
from interlock.model.event import Event
from interlock.model.snapshot import Timer

Done = Literal["no", "unknown"]
"""Whether a failed invoke may have had its effect. A saga compensates steps that may have."""

UNNAMED = "error"
"""The code of a failure without code."""

COMPENSATION_FAILED = "compensation_failed"
"""The reason with which an ended entity rejects the failure of a compensation: an operator must act."""


TIMER_SOURCE = "timer/"
"""The prefix of `source` in the event of a timer, before the timer's name and the version that set it."""


EXPECT_SOURCE = "expect"
"""The `source` of the event of `expect.then`. It does not name the state, which may be hidden."""


def is_result(event: Event, invokeid: str | None) -> bool:
    """Return whether the driver created this event as the result of an invoke with this id. `source` says which one."""
    return event.type == "platform" and event.name in (f"done.invoke.{invokeid}", f"error.invoke.{invokeid}")


def invoke_done(invokeid: str, key: str, data: Any, *, time_ms: int = 0) -> Event:
    """Return the result of an invoke, by its id and the key of its effect."""
    return _invoke_result("done", invokeid, key, data, time_ms)


def invoke_failed(
    invokeid: str, key: str, code: str, message: str, *, done: Done, attempts: int = 1, time_ms: int = 0
) -> Event:
    """Return the final failure of an invoke."""
    failure = {"code": storable_code(code, UNNAMED), "message": storable_text(message)}
    data = {**failure, "attempts": attempts, "done": done}
    return _invoke_result("error", invokeid, key, data, time_ms)


def call_failed(name: str | None, key: str, code: str, *, sendid: str | None = None, time_ms: int = 0) -> Event:
    """Return the final failure of a named action, or of a send (`name` is then `send`)."""
    data = {"effect": name, "key": key, "code": storable_code(code, UNNAMED)}
    return Event("error.communication", data, time_ms=time_ms, type="platform", sendid=sendid)


def timer_fired(timer: Timer, *, time_ms: int) -> Event:
    """Return the event of a timer that fires."""
    source = f"{TIMER_SOURCE}{timer.name}/{timer.version}"
    return Event(timer.event, timer.data, id=source, time_ms=time_ms, sendid=timer.id, source=source)


def state_overdue(name: str, key: str) -> Event:
    """Return the event of `expect.then`, for an entity that has been in a state for too long."""
    return Event(name, id=key, key=key, source=EXPECT_SOURCE)


def timer_moved(timer: Timer, *, due_ms: int, since_ms: int) -> Event:
    """Return the event that moves a timer after downtime: its new due time, and the time from which it counts."""
    data = {"name": timer.name, "version": timer.version, "due_ms": due_ms, "since_ms": since_ms}
    return Event("_timer.moved", data, type="platform")


def _invoke_result(word: str, invokeid: str, key: str, data: Any, time_ms: int) -> Event:
    name = f"{word}.invoke.{invokeid}"
    return Event(name, data, time_ms=time_ms, type="platform", invokeid=invokeid, source=f"invoke/{key}")

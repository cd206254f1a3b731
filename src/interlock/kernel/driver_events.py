"""Match the events that a driver sends back with the snapshot: results of invokes, timers, our own control events.

The name of an event proves nothing: an event named like a result counts only if the driver created it and the snapshot
still waits for it (S9, S30-S39).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from interlock.model.driver_events import TIMER_SOURCE, is_result
from interlock.model.event import INVOKE_RESULTS, Event
from interlock.model.snapshot import Invocation, Snapshot, Timer


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """The timer that fired or the invoke that finished with an event.

    Every step of the event removes it from the snapshot, even one that fails or changes nothing else.
    """

    timer: Timer | None = None
    invoke: Invocation | None = None

    @property
    def is_pending(self) -> bool:
        """Whether the snapshot has something to remove."""
        return self.timer is not None or self.invoke is not None


NO_CAUSE = Cause()
"""The cause of an event that a caller sent."""


def is_genuine(snapshot: Snapshot, event: Event, *, imported: bool) -> bool:
    """Return whether an event with the name of a result, an error or a timer comes from the driver.

    An entity of an imported chart may also send such a name to itself, where the chart spells it out. The event is then
    an ordinary one. What another entity sends or forwards never counts.
    """
    if event.forwarded:
        return False
    if event.type == "platform":
        return not event.name.startswith(INVOKE_RESULTS) or is_result(event, event.invokeid)
    if (event.source or "").startswith(TIMER_SOURCE):
        return True
    sent_to_itself = event.origin == f"#_scxml_{snapshot.entity}" and event.source is None and event.invokeid is None
    return sent_to_itself and imported


def is_from(event: Event, invocation: Invocation) -> bool:
    """Return whether an event comes from this invocation.

    Two may have the same id, one after the other or at the same time.
    """
    return event.invokeid == invocation.id and event.source in (None, f"invoke/{invocation.key}")


def find_invocation(snapshot: Snapshot, event: Event) -> Invocation | None:
    """Return the active invocation that an event comes from, or None."""
    return next((each for each in snapshot.invokes if is_from(event, each)), None)


def find_fired_timer(snapshot: Snapshot, event: Event) -> Timer | None:
    """Return the pending timer that fired with an event, or None."""
    name, _, version = (event.source or "").removeprefix(TIMER_SOURCE).rpartition("/")
    timer = next((each for each in snapshot.timers if each.name == name and str(each.version) == version), None)
    return None if timer is None or timer.event != event.name else timer


def find_moved_timer(snapshot: Snapshot, data: dict[str, Any]) -> Timer | None:
    """Return the pending timer that a `_timer.moved` event names, or None."""
    wanted = (data.get("name"), data.get("version"))
    return next((each for each in snapshot.timers if (each.name, each.version) == wanted), None)


def forwarded_event(event: Event) -> dict[str, Any]:
    """Return an event as the effect that forwards it to a child carries it."""
    fields = {"name": event.name, "data": event.data, "sendid": event.sendid, "origin": event.origin}
    fields |= {"origintype": event.origintype, "invokeid": event.invokeid}
    return {name: value for name, value in fields.items() if value is not None}

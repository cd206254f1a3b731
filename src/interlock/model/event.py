"""An event: the input of a step. A hot value, checked where it is received, not where it is made."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

EventKind = Literal["external", "internal", "platform"]

SCXML_PROCESSOR = "http://www.w3.org/TR/scxml/#SCXMLEventProcessor"
"""The origintype of every event that one entity sends to another."""


RESERVED_NAMES = ("_", "done.", "error.", "after.")
"""Beginnings of event names that belong to the kernel: no sender and no chart may use them for its own events."""


class Event(Struct, frozen=True, gc=False, omit_defaults=True):
    """A fact given to an entity: a dotted name and a payload, with who sent it, when, and by which way.

    `time_ms` is stamped by the driver before the step: the kernel reads no clock. It never goes back from one event of
    an entity to the next. `clock_ms` is the driver's clock where that is behind `time_ms`: another clock was ahead when
    it stamped an event before this one. Timers and work count from `at_ms`. `key` is the idempotency key.
    `principal` is a mapping (`id`, `kind`, `roles`, ...). The fields after `type` are SCXML's.
    `source` is set by the driver for what it brings back: `timer/<name>/<version set>` for a firing, `invoke/<effect
    key>` for a
    result or a message of an invoke; None for a sender's event. `last`: sent by a child in the step in which it ended
    by itself. `forwarded`: autoforwarded by a parent, so its invokeid is not one of ours.
    """

    name: str
    data: Any = None
    id: str | None = None
    key: str | None = None
    principal: Any = None
    time_ms: int = 0
    type: EventKind = "external"
    sendid: str | None = None
    origin: str | None = None
    origintype: str | None = None
    invokeid: str | None = None
    source: str | None = None
    last: bool = False
    forwarded: bool = False
    clock_ms: int | None = None

    @property
    def at_ms(self) -> int:
        """The driver's clock when it took the event."""
        return self.time_ms if self.clock_ms is None else self.clock_ms

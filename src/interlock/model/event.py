"""An event: the input of a step. It is checked where it is received, not where it is made.

This module owns the rule for reserved names. Every entry point that takes an event name from a caller applies
`check_sendable`, and the kernel applies `is_reserved` to names that a chart computes.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

from interlock.errors import UsageError

EventKind = Literal["external", "internal", "platform"]

SCXML_PROCESSOR = "http://www.w3.org/TR/scxml/#SCXMLEventProcessor"
"""The origintype of every event that one entity sends to another."""


RESERVED_WORDS = frozenset({"done", "error", "after"})
"""First words of the names of results, errors and timers: only the kernel and the driver create such events."""

RESULT_NAMES = ("done.", "error.", "after.")
"""Prefixes of the event names that the kernel accepts from the driver only."""

INVOKE_RESULTS = ("done.invoke.", "error.invoke.")
"""Prefixes of the event names that end an invoke, before the id of the invoke."""

RESERVED_HINT = "names that start with `_`, and `done`, `error`, `after` alone or before a dot, are reserved"


def is_reserved(name: str) -> bool:
    """Return whether an event name is reserved: it starts with `_`, or its first word is done, error or after.

    A bare word counts, because the descriptor `error.*` matches `error` too. Spellings that Unicode compatibility
    normalization (NFKC) makes equal count as well, without spaces around the word and without invisible characters.
    Upper and lower case differ, as they do in descriptors.

        >>> [is_reserved(name) for name in ("error", "error.x", "_x", "errors", "order.error")]
        [True, True, True, False, False]
    """
    if not name.isascii():
        import unicodedata  # large, and most names are ASCII

        visible = "".join(each for each in name if unicodedata.category(each) != "Cf")
        name = unicodedata.normalize("NFKC", visible)
    word = name.partition(".")[0].strip()
    return word[:1] == "_" or word in RESERVED_WORDS


def check_sendable(name: str) -> None:
    """Raise UsageError (`event.reserved`) for an event name that no caller may send."""
    if is_reserved(name):
        message = f"the event name `{name[:80]}` is reserved for the kernel and cannot be sent"
        raise UsageError(message, code="event.reserved", hint=f"use another name: {RESERVED_HINT}")


class Event(Struct, frozen=True, gc=False, omit_defaults=True):
    """A fact sent to an entity: a dotted name and a payload, with its sender, time and origin.

    The driver sets `time_ms` before the step, because the kernel reads no clock. It never decreases from one event of
    an entity to the next. `clock_ms` is the driver's clock if that is behind `time_ms`, because another clock was
    ahead when it stamped an earlier event. Timers and work count from `at_ms`. `key` is the idempotency key.
    `principal` is a mapping (`id`, `kind`, `roles`, ...). The fields after `type` are those of SCXML.

    `source` is set by the driver on what it sends back: `timer/<name>/<version>` for a timer, `invoke/<effect key>`
    for the result or a message of an invoke; None for the event of a sender. `last`: a child sent it in the step in
    which it ended. `forwarded`: a parent forwarded it, so its invokeid is not one of this entity.

    `epoch` is the restore epoch of the store when the driver accepted the event. It is part of the keys of effects, so
    that a store which was restored from an old copy does not use a key again.
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
    epoch: int = 0

    @property
    def at_ms(self) -> int:
        """The driver's clock when it accepted the event."""
        return self.time_ms if self.clock_ms is None else self.clock_ms

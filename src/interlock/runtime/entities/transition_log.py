"""One log line per transition, for programs that ask for it.

    logging.getLogger("interlock.transitions").setLevel(logging.INFO)    # before the runtime is opened

Rule 1: it is on when that logger has a level of its own that lets INFO pass: a program that only sets the level of the
        root logger gets no line per event. It is decided once, when the runtime is opened.
Rule 2: the message is constant. Fields: entity_id, kind, state_from, state_to, event, duration_ms (since the entry
        before), actor, trace_id, version and outcome. No payload, no context and no reason is logged.
Rule 3: a line shows what readers see who may not see what the chart calls sensitive: computed names are masked, a
        hidden step has no line, and a change out of a hidden state is logged as others see it.
Rule 4: a line is written when its entry is durable; in a transaction of the caller, after the COMMIT.
"""

from __future__ import annotations

import logging
from typing import Any

from msgspec import Struct

from interlock.effects.work_delta import visible_entry
from interlock.kernel.step import Kernel
from interlock.model.audit import actor_of_event
from interlock.model.journal.cause import trace_id
from interlock.model.journal.entry import visible_version
from interlock.model.visible import ChartMask, is_sensitive
from interlock.ports.store import Append
from interlock.runtime.entities.append_builder import is_concealed

LOGGER = "interlock.transitions"
"""The name of the logger."""


class Line(Struct, frozen=True):
    """A line: its fields, and by which version and key its entry is found."""

    version: int
    key: str
    fields: dict[str, Any]


def open_transition_log() -> TransitionLog | None:
    """Return the log if the program has turned it on."""
    logger = logging.getLogger(LOGGER)
    return TransitionLog(logger) if logger.level != logging.NOTSET and logger.isEnabledFor(logging.INFO) else None


class TransitionLog:
    """Writes transitions to a logger."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger

    def line(self, kernel: Kernel, append: Append, previous_ms: int | None) -> Line | None:
        """Return the fields of a durable entry; None if others do not see it. `previous_ms`: of the one before."""
        entry, before = append.entry, append.before
        if entry.shown != "change" and is_concealed(kernel, before, append.snapshot):
            return None
        if before is not None and before.sight is not None:
            previous_ms = before.sight.time_ms  # of the last entry that others see
        shown = visible_entry(entry, before)
        event, name = shown.event, shown.event.name
        if (event.origin is not None or event.sendid is not None) and is_sensitive(kernel.chart):
            name = ChartMask(kernel.chart).name(name)  # an entity sent it, and may have computed its name
        fields = {
            "entity_id": append.entity,
            "kind": append.kind,
            "state_from": ",".join(shown.before),
            "state_to": ",".join(shown.after),
            "event": printable(name),
            "duration_ms": None if previous_ms is None else max(0, event.time_ms - previous_ms),
            "actor": printable(actor_of_event(event).id),
            "trace_id": trace_id(shown.trace),
            "version": visible_version(entry),
            "outcome": shown.outcome,
        }
        return Line(entry.version, entry.key, fields)

    def write(self, line: Line) -> None:
        """Write a line."""
        self._logger.info("transition", extra=line.fields)


def printable(text: str) -> str:
    """Return text without control characters, which could forge a line or move the cursor of a terminal."""
    return text if text.isprintable() else "".join(each if each.isprintable() else "\ufffd" for each in text)

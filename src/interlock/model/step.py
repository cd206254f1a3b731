"""The result of a step: the next snapshot, the effects, and the outcome of the event."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

from interlock.model.effect import Effect
from interlock.model.snapshot import Snapshot

Outcome = Literal["applied", "ignored", "rejected", "denied", "duplicate"]


class Fault(Struct, frozen=True, gc=False, omit_defaults=True):
    """An error inside a step that no transition handled: its code, message and place in the chart."""

    code: str
    message: str
    place: str = ""


class FailedGuard(Struct, frozen=True, gc=False, omit_defaults=True):
    """A guard that did not hold: its transition, its text, the values it read, and its error if it raised."""

    transition: int
    guard: str
    values: dict[str, Any]
    error: str | None = None


class Step(Struct, frozen=True, gc=False, omit_defaults=True):
    """One event run to completion.

    `transitions` are the numbers of the transitions taken, in order, over all microsteps. If the outcome is not
    `applied`, `reason` says why; for the reason `guard`, `trials` has the guards that did not hold.
    """

    snapshot: Snapshot
    effects: tuple[Effect, ...] = ()
    outcome: Outcome = "applied"
    reason: str | None = None
    transitions: tuple[int, ...] = ()
    faults: tuple[Fault, ...] = ()
    failed_guards: tuple[FailedGuard, ...] = ()

"""A step's answer: the next snapshot, the effects, and how the event was taken."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

from interlock.model.effect import Effect
from interlock.model.snapshot import Snapshot

Outcome = Literal["applied", "ignored", "rejected", "denied", "duplicate"]


class Fault(Struct, frozen=True, gc=False, omit_defaults=True):
    """An error inside a step that no transition took: what went wrong, and where in the chart."""

    code: str
    message: str
    place: str = ""


class FailedGuard(Struct, frozen=True, gc=False, omit_defaults=True):
    """A guard that was asked and said no: the transition, the guard as written, and the values it read."""

    transition: int
    guard: str
    values: dict[str, Any]
    error: str | None = None


class Step(Struct, frozen=True, gc=False, omit_defaults=True):
    """One event run to completion.

    `transitions` are the numbers of those chosen, in the order chosen, over all microsteps. When the outcome is not
    `applied`, `reason` says why; for reason `guard`, `trials` says which guards said no and what they read.
    """

    snapshot: Snapshot
    effects: tuple[Effect, ...] = ()
    outcome: Outcome = "applied"
    reason: str | None = None
    transitions: tuple[int, ...] = ()
    faults: tuple[Fault, ...] = ()
    trials: tuple[FailedGuard, ...] = ()

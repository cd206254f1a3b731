"""Refusals: attempts that changed nothing, recorded apart from journals, and read back where the store can.

A store that reads them back chains them by hash, as a journal does.
"""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct


class Refusal(Struct, frozen=True):
    """An attempt that changed nothing: who, what, when, and why not. Stored apart from journals."""

    entity: str
    event: str
    outcome: str
    reason: str
    time_ms: int
    principal: str | None = None
    trace: str | None = None


class RefusalRow(Struct, frozen=True):
    """A refusal with its sequence number in the chain."""

    sequence: int
    refusal: Refusal


class RefusalVerification(Struct, frozen=True):
    """How many refusals are linked, and the sequence number of the first that is not."""

    linked: int
    broken: int | None = None


class RefusalLog(Protocol):
    """Where a store records refused attempts."""

    async def refuse(self, refusals: tuple[Refusal, ...]) -> None:
        """Record refusals. Losing some under load is allowed; blocking a step is not."""


class RefusalHistory(Protocol):
    """The refusals that a store recorded, to be read back."""

    async def refusals_before(
        self, sequence: int | None, *, principal: str | None = None, limit: int = 50
    ) -> tuple[RefusalRow, ...]:
        """Return the refusals before a sequence number (None: the newest), newest first."""

    async def prove_refusals(self) -> RefusalVerification:
        """Verify the chain of refusals from its start."""

"""Facts about a store as a whole, by name: settings that every process of the store follows.

Rule 1: a fact is a short text. It is written rarely, when the store is configured, and read by every process.
Rule 2: writing is durable when it returns. It is never part of the write of a step.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from interlock.model.audit import AuditRow

FACT_BYTES_MAX = 4_096
"""Bytes of a fact: an address or a number, never data."""


class StoreFacts(Protocol):
    """The facts of a store."""

    async def read_facts(self) -> Mapping[str, str]:
        """Return all facts, by name."""

    async def save_fact(self, name: str, value: str | None, *, audit: AuditRow | None = None) -> None:
        """Set a fact; None removes it. Raises UnavailableError when it cannot be written.

        `audit` is the row about who did it, which is written with it: both or neither.
        """

"""What a driver reports to the one who counts: each call adds to integers, and none may wait or raise.

A runtime has no meter unless its process has an exporter, and then pays for one comparison.
"""

from __future__ import annotations

from typing import Literal, Protocol

AttemptResult = Literal["ok", "retry", "failed", "paused"]
"""How an attempt to run an effect ended: with a result, to be tried again, for good, or because its handler asked to
be called later."""


class Meter(Protocol):
    """Counts what one process does."""

    def received(self, kind: str, event: str, outcome: str, reason: str | None) -> None:
        """Count an event that an entity received, by the outcome and the reason of its receipt."""

    def refused(self, kind: str, reason: str) -> None:
        """Count an event that was refused by an error, by its code."""

    def lost(self, kind: str) -> None:
        """Count a step that lost its swap and is repeated."""

    def appended(self, duration_ns: int) -> None:
        """Count an append, and how long the store took to answer."""

    def attempted(self, kind: str, handler: str, result: AttemptResult, duration_ms: int) -> None:
        """Count an attempt to run an effect."""

    def fired(self, kind: str, late_ms: int) -> None:
        """Count a timer that was fired, and how late it was."""

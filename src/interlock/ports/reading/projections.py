"""Projections: tables of a program that are filled from the feed, in the transaction that moves their position.

Rule 1: the function and the new position are one transaction, in the database of the store. After a crash neither is
there, or both are: each entry takes effect exactly once in tables of that database.
Rule 2: the position moves only from where the runner read it: of two runners, the later one writes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from msgspec import Struct

from interlock.ports.reading.journal_feed import FeedEntry


class ProjectionStatus(Struct, frozen=True):
    """A projection: its cursor in the feed, how many entries it has taken, and how often it has failed there in a row.

    `error` is that of the last failure. `stopped`: it failed too often, and is tried again when a runtime starts.
    """

    name: str
    cursor: str | None = None
    entries: int = 0
    failures: int = 0
    error: str | None = None
    stopped: bool = False


class Projector(Protocol):
    """A function that writes what entries mean, with the connection of the transaction: plain on SQLite, a coroutine
    function on PostgreSQL.
    """

    def __call__(self, connection: Any, entries: Sequence[FeedEntry], /) -> Any:
        """Write; the runner commits. Raise to repeat the same entries later."""


class Projections(Protocol):
    """The projections of a store."""

    is_async: bool
    """Whether a projector is a coroutine function."""

    async def projections(self) -> tuple[ProjectionStatus, ...]:
        """Return all projections, by name."""

    async def project(
        self, name: str, projector: Projector, entries: tuple[FeedEntry, ...], *, before: str | None, after: str
    ) -> bool:
        """Run a projector and move its cursor in one transaction; False when the cursor is no longer `before`.

        Without entries only the cursor moves. Raises what the projector raises.
        """

    async def record_failure(self, name: str, *, cursor: str | None, error: str, stopped: bool) -> None:
        """Count a failure at this cursor."""

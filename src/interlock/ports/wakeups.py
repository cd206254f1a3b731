"""How the processes of a store wake each other: there is work, a worker has died, or there are new entries.

Rule 1: a signal only means "look now". It may be lost, come late or come twice: the poll finds the work too.
Rule 2: it is given after the commit, and costs the sender microseconds. It never waits for another process.
Rule 3: signals are coalesced. They name lanes, never entities. Entries are signalled only while another process
follows the feed; a sender notices that within `FOLLOWER_SECONDS`.
Rule 4: a worker counts as dead when the operating system of this host says so, never because it is silent. Its claims
are then due immediately; their fence, the number of the attempt, keeps a late result of it out as it always does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from interlock.model.journal.work import Lane

FOLLOWER_SECONDS = 1.0
"""How often a process that sends looks whether another one follows the feed."""

OnWakeup = Callable[[frozenset[Lane]], None]
"""Called in the event loop of the listener: these lanes may have work."""


class Listening(Protocol):
    """One worker that listens."""

    @property
    def held_file(self) -> str | None:
        """The file that is locked while the worker runs; processes that run its handlers lock it, too (shared)."""

    async def close(self) -> None:
        """Stop listening, and sign off: the worker has ended in good order, and its claims keep their leases."""


class Following(Protocol):
    """One reader that follows the feed."""

    async def close(self) -> None:
        """Stop following."""


class Wakeups(Protocol):
    """The signals of a store."""

    def ring(self, lanes: frozenset[Lane]) -> None:
        """Wake the workers of other processes that listen. Called in an event loop, after the commit; does not wait."""

    async def listen(self, owner: str, on_wakeup: OnWakeup) -> Listening | None:
        """Call a function at each signal, until closed. None when signals are not possible here; the poll remains."""

    def ring_entries(self) -> None:
        """Wake the readers of other processes that follow the feed. Called after each commit; does not wait."""

    async def follow(self, on_entries: Callable[[], None]) -> Following | None:
        """Call a function when another process writes entries, until closed. None when that is not possible here."""

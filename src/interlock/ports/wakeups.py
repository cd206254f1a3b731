"""How the processes of a store wake each other: a signal that there is work, and that a worker has died.

Rule 1: a signal only means "look now". It may be lost, come late or come twice: the poll finds the work too.
Rule 2: it is given after the commit, and costs the sender microseconds. It never waits for another process.
Rule 3: signals are coalesced. They name lanes, never entities.
Rule 4: a worker counts as dead when the operating system of this host says so, never because it is silent. Its claims
are then due at once; their fence, the number of the attempt, keeps a late result of it out as it always does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from interlock.model.journal.work import Lane

OnWakeup = Callable[[frozenset[Lane]], None]
"""Called in the event loop of the listener: these lanes may have work."""


class Listening(Protocol):
    """One worker that listens."""

    @property
    def held_file(self) -> str | None:
        """The file that is locked while the worker lives; processes that run its handlers lock it, too (shared)."""

    async def close(self) -> None:
        """Stop listening, and sign off: the worker has ended in good order, and its claims keep their leases."""


class Wakeups(Protocol):
    """The signals of a store."""

    def ring(self, lanes: frozenset[Lane]) -> None:
        """Wake the workers of other processes that listen. Called in an event loop, after the commit; does not wait."""

    async def listen(self, owner: str, on_wakeup: OnWakeup) -> Listening | None:
        """Call a function at each signal, until closed. None when signals are not possible here; the poll remains."""

"""What reconcilers and timers need of a store: a lease by name, and the times in which no worker was alive.

Rule 1: a lease ends at its time, whatever became of its owner. Its fence rises each time the owner changes, so that
a write of a former owner can be distinguished from a write of the present one.
Rule 2: downtime is the time in which no worker was alive. The first worker that returns records it.
Rule 3: `now_ms` is the clock of the runtime. A store on a server that many hosts share uses the server's clock.
Rule 4: a clock may have been wrong. A lease that ends more than `LEASE_MS_MAX` after now is invalid: no lease is that
long. A heartbeat more than `CLOCK_AHEAD_MS_MAX` after now is ignored.
"""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct


class Lease(Struct, frozen=True):
    """A name that an owner holds until a time; the fence counts the changes of owner."""

    name: str
    owner: str
    fence: int
    until_ms: int


class Downtime(Struct, frozen=True, rename={"started_ms": "began_ms"}):
    """A time in which no worker was alive.

    One that ends before it starts, which `alive` may return and no store keeps, means that the last heartbeat is in the
    future: a clock was ahead.
    """

    started_ms: int
    ended_ms: int


class Leases(Protocol):
    """The leases and downtimes of a store."""

    async def acquire_lease(self, name: str, *, owner: str, now_ms: int, until_ms: int) -> Lease | None:
        """Acquire a name, or extend its lease. Returns None while another owner holds it."""

    async def release_lease(self, lease: Lease) -> bool:
        """Release a name. Returns False when its lease was lost."""

    async def record_heartbeat(self, *, now_ms: int, gap_ms: int) -> Downtime | None:
        """Record a heartbeat. Returns the downtime that ends with it, when the last one is older than `gap_ms`.

        When the last heartbeat is in the future (rule 4) nothing is recorded, and the result is from that time to now.
        """

    async def downtimes(self, *, since_ms: int) -> tuple[Downtime, ...]:
        """Return the downtimes that ended after a time, in order."""

    async def correct_clock(self, *, now_ms: int) -> None:
        """Delete heartbeats, downtimes and statistics that are stamped in the future, and record a heartbeat now."""


class ClockStamps(Protocol):
    """Finds the entities whose time is ahead, in a store that can.

    `server_clock`: due times use the clock of a server, so that no runtime's clock can delay them. Otherwise the query
    below uses an index, and a worker may run it when it starts.
    """

    server_clock: bool

    async def entities_stamped_after(self, time_ms: int, *, limit: int) -> tuple[str, ...]:
        """Return entities with an entry that is stamped after a time, sorted, at most `limit`."""

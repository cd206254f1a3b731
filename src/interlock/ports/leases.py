"""What those who must be alone need of a store: a lease by name, and to know when nobody was there.

Rule 1: a lease is held until a time and no longer, whatever became of its holder. Its fence rises each time it changes
hands, so that what a former holder still does can be told from what the present one does.
Rule 2: downtime is the time in which no worker was alive. It is noticed by the first one that comes back, and kept.
Rule 3: `now_ms` is the driver's clock. A store on a server that many hosts share goes by the server's.
Rule 4: a clock may have been wrong. A lease that ends more than `LEASE_MS_MAX` after now is not valid, whoever holds
it: no lease is that long. A sign of life more than `CLOCK_AHEAD_MS_MAX` after now is not believed.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from msgspec import Struct


class Lease(Struct, frozen=True):
    """A name held by an owner until a time; the fence is how often it changed hands."""

    name: str
    owner: str
    fence: int
    until_ms: int


class Downtime(Struct, frozen=True):
    """A time in which no worker was alive.

    One that ends before it began, as `alive` may answer and no store keeps, says that the last sign of life is in the
    future: a clock was ahead.
    """

    began_ms: int
    ended_ms: int


@runtime_checkable
class LeaseStore(Protocol):
    """A store that keeps leases and downtimes."""

    async def lease(self, name: str, *, owner: str, now_ms: int, until_ms: int) -> Lease | None:
        """Take a name, or hold it longer; None while another holds it."""

    async def give_back(self, lease: Lease) -> bool:
        """Give a name back; False when it was no longer ours."""

    async def alive(self, *, now_ms: int, gap_ms: int) -> Downtime | None:
        """Note that a worker is alive; the downtime that ends with this, when the last note is older than `gap_ms`.

        When the last note is in the future (rule 4) nothing is noted, and the answer is from that time to now.
        """

    async def downtimes(self, *, since_ms: int) -> tuple[Downtime, ...]:
        """The downtimes that ended after a time, in order."""


@runtime_checkable
class ClockCorrection(Protocol):
    """A store whose own notes can be put right after a clock was ahead."""

    async def correct_clock(self, *, now_ms: int) -> None:
        """Forget signs of life, downtimes and statistics that are stamped in the future; now is a sign of life."""


@runtime_checkable
class StampSight(Protocol):
    """A store that finds the entities whose time is ahead.

    `server_clock`: what is due there goes by the clock of a server, so that no driver's clock can put it off. Where it
    does not, this is a look into an index, and a worker may ask when it starts.
    """

    server_clock: bool

    async def stamped_after(self, time_ms: int, *, limit: int) -> tuple[str, ...]:
        """Entities with an entry that is stamped after a time; at most so many, sorted."""

"""Leases and downtimes in memory: the reference for the other stores.

Rule 1: a lease that was released keeps its fence: the next owner gets a higher one.
Rule 2: the last heartbeat never goes back automatically. A clock that goes back a little is harmless: nothing is
recorded until it has caught up. After a clock that was far ahead, `correct` repairs it.
Rule 3: a lease that ends later than any lease can is not valid: it was acquired under a wrong clock.
Rule 4: not safe for threads: the owner of the table holds a lock.
"""

from __future__ import annotations

from bisect import bisect_right

from interlock.model.limits import CLOCK_AHEAD_MS_MAX, DOWNTIMES_MAX, LEASE_MS_MAX
from interlock.ports.leases import Downtime, Lease

RELEASED_OWNER = ""
"""The owner of a released lease: no worker has this name."""


class LeaseTable:
    """Leases by name, the last heartbeat, and downtimes."""

    def __init__(self) -> None:
        self._leases: dict[str, Lease] = {}
        self._alive_ms: int | None = None
        self._downtimes: list[Downtime] = []

    def acquire_lease(self, name: str, *, owner: str, now_ms: int, until_ms: int) -> Lease | None:
        """Acquire or extend a lease; None while another owner holds it."""
        held = self._leases.get(name)
        if held is not None and held.owner != owner and now_ms < held.until_ms <= now_ms + LEASE_MS_MAX:
            return None
        fence = 0 if held is None else held.fence
        lease = Lease(name, owner, fence + (held is None or held.owner != owner), until_ms)
        self._leases[name] = lease
        return lease

    def release_lease(self, lease: Lease) -> bool:
        """Release a lease; False when it was no longer held."""
        held = self._leases.get(lease.name)
        if held is None or (held.owner, held.fence) != (lease.owner, lease.fence):
            return False
        self._leases[lease.name] = Lease(lease.name, RELEASED_OWNER, lease.fence, 0)
        return True

    def record_heartbeat(self, *, now_ms: int, gap_ms: int) -> Downtime | None:
        """Record that a worker is alive; return the downtime that ends with this, if any."""
        last_ms = self._alive_ms
        if last_ms is not None and last_ms > now_ms + CLOCK_AHEAD_MS_MAX:
            return Downtime(last_ms, now_ms)
        self._alive_ms = max(now_ms, last_ms or now_ms)
        if last_ms is None or now_ms - last_ms <= gap_ms:
            return None
        ended = Downtime(last_ms, now_ms)
        self._downtimes = [*self._downtimes, ended][-DOWNTIMES_MAX:]
        return ended

    def correct(self, *, now_ms: int) -> None:
        """Delete downtimes with a time in the future; now counts as a heartbeat."""
        latest_ms = now_ms + CLOCK_AHEAD_MS_MAX
        if self._alive_ms is not None and self._alive_ms > latest_ms:
            self._alive_ms = now_ms
        self._downtimes = [each for each in self._downtimes if each.ended_ms <= latest_ms]

    def downtimes(self, *, since_ms: int) -> tuple[Downtime, ...]:
        """Return the downtimes that ended after a time, in order."""
        return tuple(self._downtimes[bisect_right(self._downtimes, since_ms, key=lambda each: each.ended_ms) :])

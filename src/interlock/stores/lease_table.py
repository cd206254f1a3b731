"""Leases and downtimes in memory. The memory store keeps one; it is the reference for others.

Rule 1: a name that was given back keeps its fence: whoever takes it next has a higher one.
Rule 2: the last sign of life never goes back. A clock that does is harmless: nothing is noted until it has caught up.
Rule 3: not safe for threads by itself: its owner holds a lock.
"""

from __future__ import annotations

from bisect import bisect_right

from interlock.model.limits import DOWNTIMES_MAX
from interlock.ports.lease import Downtime, Lease

NOBODY = ""
"""The owner of a name that was given back: no worker is called so."""


class LeaseTable:
    """Who holds which name, and when nobody was there."""

    def __init__(self) -> None:
        self._leases: dict[str, Lease] = {}
        self._alive_ms: int | None = None
        self._downtimes: list[Downtime] = []

    def lease(self, name: str, *, owner: str, now_ms: int, until_ms: int) -> Lease | None:
        """Take a name, or hold it longer; None while another holds it."""
        held = self._leases.get(name)
        if held is not None and held.owner != owner and held.until_ms > now_ms:
            return None
        fence = 0 if held is None else held.fence
        lease = Lease(name, owner, fence + (held is None or held.owner != owner), until_ms)
        self._leases[name] = lease
        return lease

    def give_back(self, lease: Lease) -> bool:
        """Let go of a name at once; False when it was no longer ours."""
        held = self._leases.get(lease.name)
        if held is None or (held.owner, held.fence) != (lease.owner, lease.fence):
            return False
        self._leases[lease.name] = Lease(lease.name, NOBODY, lease.fence, 0)
        return True

    def alive(self, *, now_ms: int, gap_ms: int) -> Downtime | None:
        """Note that a worker is alive; the downtime that ends with this, if it does."""
        last_ms, self._alive_ms = self._alive_ms, max(now_ms, self._alive_ms or now_ms)
        if last_ms is None or now_ms - last_ms <= gap_ms:
            return None
        ended = Downtime(last_ms, now_ms)
        self._downtimes = [*self._downtimes, ended][-DOWNTIMES_MAX:]
        return ended

    def downtimes(self, *, since_ms: int) -> tuple[Downtime, ...]:
        """The downtimes that ended after a time, in order."""
        return tuple(self._downtimes[bisect_right(self._downtimes, since_ms, key=lambda each: each.ended_ms) :])

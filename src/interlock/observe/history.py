"""Entities at an earlier version, replayed from the nearest cached snapshot.

Rule 1: a page that loads without a request of the user replays at most `REPLAY_ENTRIES_MAX` entries. A longer replay
runs only on request, one page of the journal at a time, so that other requests are served in between.
Rule 2: a replay caches a snapshot every `SNAPSHOT_INTERVAL` versions, so the next one for a nearby version is short.
Rule 3: snapshots are a cache. The store verifies entries, and a step that does not lead where its entry says is
corruption, whether the replay started from a cached snapshot or from the first entry.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right, insort
from collections import OrderedDict

from interlock.model.encoding.codec import decode_snapshot, encode
from interlock.model.journal.entry import Entry
from interlock.model.snapshot import Snapshot
from interlock.ports.store import PAGE_MAX
from interlock.runtime.history.replay import replay
from interlock.runtime.runtime import Runtime

REPLAY_ENTRIES_MAX = 1_000
"""Entries that a page replays without being asked: some ten milliseconds."""

SNAPSHOT_INTERVAL = 500
"""Versions between two snapshots that a replay caches."""

CACHE_BYTES_MAX = 32 * 1_048_576
"""Size of all cached snapshots, encoded: some ten thousand snapshots of a small entity."""


class HistoryCache:
    """Cached snapshots of entities of one runtime, and the replay from them."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._snapshots: OrderedDict[tuple[str, int], bytes] = OrderedDict()
        self._versions: dict[str, list[int]] = {}
        self._bytes = 0

    def keep(self, snapshot: Snapshot) -> None:
        """Cache a snapshot; the least recently used ones are dropped when the cache is full."""
        place = (snapshot.entity, snapshot.version)
        if place in self._snapshots:
            self._snapshots.move_to_end(place)
            return
        encoded = encode(snapshot)
        self._snapshots[place] = encoded
        self._bytes += len(encoded)
        insort(self._versions.setdefault(snapshot.entity, []), snapshot.version)
        while self._bytes > CACHE_BYTES_MAX:
            (entity, version), dropped = self._snapshots.popitem(last=False)
            self._bytes -= len(dropped)
            self._versions[entity].remove(version)
            if not self._versions[entity]:
                del self._versions[entity]

    def distance(self, entity: str, version: int) -> int:
        """Return how many entries must be replayed to get an entity at a version."""
        return version - self._nearest(entity, version)

    async def at(self, entity: str, version: int) -> Snapshot | None:
        """Return an entity at a version; None at version 0. Raises NotFoundError and CorruptionError."""
        reached = self._nearest(entity, version)
        found = self._cached(entity, reached)
        while reached < version:
            limit = min(PAGE_MAX, version - reached)
            records = await self._runtime.store.read(entity, after=reached, limit=limit)
            if not records:  # archived in the meantime
                return None
            found = await self._replay(entity, found, tuple(each.entry for each in records))
            reached = records[-1].version
            await asyncio.sleep(0)  # serve other requests
        if found is not None:
            self.keep(found)
        return found

    async def version_at(self, entity: str, time_ms: int, *, latest: int) -> int:
        """Return the version of the last entry not after a time; 0 if all entries are later.

        Times in a journal never decrease, so this is a binary search.
        """
        low, high = 0, latest
        while low < high:
            middle = (low + high + 1) // 2
            entries = await self._runtime.journal(entity, after=middle - 1, limit=1)
            if entries and entries[0].event.time_ms <= time_ms:
                low = middle
            else:
                high = middle - 1
        return low

    async def _replay(self, entity: str, found: Snapshot | None, entries: tuple[Entry, ...]) -> Snapshot | None:
        for entry in entries:
            found = await replay(self._runtime.revisions, entity, found, (entry,))
            if found is not None and entry.version % SNAPSHOT_INTERVAL == 0:
                self.keep(found)
        return found

    def _nearest(self, entity: str, version: int) -> int:
        """The version of the last cached snapshot that is not after this version; 0 if there is none."""
        versions = self._versions.get(entity, [])
        at = bisect_right(versions, version)
        return versions[at - 1] if at else 0

    def _cached(self, entity: str, version: int) -> Snapshot | None:
        encoded = self._snapshots.get((entity, version))
        if encoded is None:
            return None
        self._snapshots.move_to_end((entity, version))
        return decode_snapshot(encoded)

"""Entities as they were: replayed from the nearest snapshot that is remembered, and only so far unless it is asked for.

Rule 1: a page that opens by itself replays `NEAR_MAX` entries at most, however long the journal is; what lies further
is replayed when somebody asks for it, a page of the journal at a time, so that other requests go on.
Rule 2: whatever is replayed leaves a snapshot every `EVERY` versions behind, and so does whatever is shown: what was
far once is near from then on.
Rule 3: what is remembered is a cache. Entries are verified by the store, and a step that does not lead where its entry
says is corruption, from here as from the beginning.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right, insort
from collections import OrderedDict

from interlock.model.codec import decode_snapshot, encode
from interlock.model.journal.entry import Entry
from interlock.model.snapshot import Snapshot
from interlock.ports.store import PAGE_MAX
from interlock.runtime.history.replay import replay
from interlock.runtime.runtime import Runtime

NEAR_MAX = 1_000
"""Entries that a page replays unasked: some ten milliseconds."""

EVERY = 500
"""Versions between two snapshots that a replay leaves behind."""

KEPT_BYTES_MAX = 32 * 1_048_576
"""Bytes of all snapshots that are remembered, encoded: of a small entity some ten thousand."""


class HistoryCache:
    """Snapshots of some entities of one runtime, and the way from them to others."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._kept: OrderedDict[tuple[str, int], bytes] = OrderedDict()
        self._versions: dict[str, list[int]] = {}
        self._bytes = 0

    def keep(self, snapshot: Snapshot) -> None:
        """Remember a snapshot; those used longest ago make room."""
        place = (snapshot.entity, snapshot.version)
        if place in self._kept:
            self._kept.move_to_end(place)
            return
        encoded = encode(snapshot)
        self._kept[place] = encoded
        self._bytes += len(encoded)
        insort(self._versions.setdefault(snapshot.entity, []), snapshot.version)
        while self._bytes > KEPT_BYTES_MAX:
            (entity, version), dropped = self._kept.popitem(last=False)
            self._bytes -= len(dropped)
            self._versions[entity].remove(version)
            if not self._versions[entity]:
                del self._versions[entity]

    def distance(self, entity: str, version: int) -> int:
        """How many entries must be replayed to know an entity at a version."""
        return version - self._nearest(entity, version)

    async def at(self, entity: str, version: int) -> Snapshot | None:
        """An entity at a version of its journal; None at 0. Raises NotFoundError, CorruptionError."""
        reached = self._nearest(entity, version)
        found = self._remembered(entity, reached)
        while reached < version:
            limit = min(PAGE_MAX, version - reached)
            records = await self._runtime.store.read(entity, after=reached, limit=limit)
            if not records:  # somebody let go of it meanwhile
                return None
            found = self._folded(entity, found, tuple(each.entry for each in records))
            reached = records[-1].version
            await asyncio.sleep(0)  # requests go before
        if found is not None:
            self.keep(found)
        return found

    async def version_at(self, entity: str, time_ms: int, *, latest: int) -> int:
        """The version of the last entry not after a time; 0 when it began later. Times of a journal do not go back."""
        low, high = 0, latest
        while low < high:
            middle = (low + high + 1) // 2
            entries = await self._runtime.journal(entity, after=middle - 1, limit=1)
            if entries and entries[0].event.time_ms <= time_ms:
                low = middle
            else:
                high = middle - 1
        return low

    def _folded(self, entity: str, found: Snapshot | None, entries: tuple[Entry, ...]) -> Snapshot | None:
        for entry in entries:
            found = replay(self._runtime.charts, entity, found, (entry,))
            if found is not None and entry.version % EVERY == 0:
                self.keep(found)
        return found

    def _nearest(self, entity: str, version: int) -> int:
        """The version of the last snapshot that is remembered and not after this one; 0: none."""
        versions = self._versions.get(entity, [])
        at = bisect_right(versions, version)
        return versions[at - 1] if at else 0

    def _remembered(self, entity: str, version: int) -> Snapshot | None:
        encoded = self._kept.get((entity, version))
        if encoded is None:
            return None
        self._kept.move_to_end((entity, version))
        return decode_snapshot(encoded)

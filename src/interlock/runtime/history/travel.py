"""Time travel: an entity as it was at a version or at a time, replayed from its journal.

Rule 1: a time means the last entry not after it: that is what was known then.
Rule 2: what the store loads is a shortcut only. Where its snapshot is not after the wanted place, replay begins there;
otherwise at the first entry. Both give the same snapshot.
Rule 3: what was before some damage can be had; what may have been after it cannot.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from datetime import UTC, datetime, timedelta

from msgspec import Struct

from interlock.errors import NotFoundError, UsageError
from interlock.model.journal.entry import Entry
from interlock.model.snapshot import Snapshot
from interlock.ports.store import PAGE_MAX, Loaded, Store
from interlock.runtime.chart_registry import ChartRegistry
from interlock.runtime.history.readable import read_until_damage
from interlock.runtime.history.replay import replay

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

At = int | str | datetime
"""A version, or a time: ISO 8601 with its zone, or an aware datetime."""


class Moment(Struct, frozen=True):
    """Where to stop: at a version, or at a time."""

    version: int | None = None
    time_ms: int | None = None

    def is_passed_by(self, entry: Entry) -> bool:
        """Whether an entry lies after this moment."""
        if self.version is not None:
            return entry.version > self.version
        return self.time_ms is not None and entry.event.time_ms > self.time_ms

    def is_reached_by(self, entry: Entry) -> bool:
        """Whether nothing after this entry is wanted. Of a time, only a later entry tells."""
        return entry.version == self.version or self.is_passed_by(entry)


def moment(at: At) -> Moment:
    """The moment that a caller means. Raises UsageError for a time without a zone, and for what is neither."""
    if isinstance(at, bool) or not isinstance(at, int | str | datetime):
        raise UsageError(f"`at` is a version or a time, not {at!r:.60}", code="at.type")
    if isinstance(at, int):
        return Moment(version=at)
    return Moment(time_ms=time_ms(at))


def time_ms(time: str | datetime) -> int:
    """A time in whole milliseconds since 1970. Raises UsageError when it has no zone, or is no time."""
    if isinstance(time, str):
        time = _parsed(time)
    if time.tzinfo is None:
        hint = "add it: 2026-11-15T12:00:00Z, or +01:00"
        raise UsageError(f"the time {time.isoformat()} has no zone", code="at.zone", hint=hint)
    return (time - EPOCH) // timedelta(milliseconds=1)


def _parsed(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        hint = "write a version such as 7, or a time such as 2026-11-15T12:00:00Z"
        raise UsageError(f"`{text[:60]}` is no time of ISO 8601", code="at.malformed", hint=hint) from None


async def state_at(store: Store, charts: ChartRegistry, entity: str, loaded: Loaded | None, at: At) -> Snapshot:
    """The entity as it was. Raises NotFoundError when there was nothing then, CorruptionError when that is damaged."""
    wanted = moment(at)
    found: Snapshot | None = None
    if loaded is not None and _begins_before(loaded, wanted):
        found = _until(charts, entity, loaded.snapshot, wanted, (each.entry for each in loaded.records))
    else:
        async for page in pages(store, entity):
            found = _until(charts, entity, found, wanted, page)
            if wanted.is_reached_by(page[-1]):
                break
    if found is None or (wanted.version is not None and found.version != wanted.version):
        where = f"version {at}" if wanted.version is not None else f"{at}"
        raise NotFoundError(f"`{entity}` has nothing at {where}", code="entity.not_then")
    return found


async def pages(store: Store, entity: str, *, after: int = 0) -> AsyncIterator[tuple[Entry, ...]]:
    """The whole journal after a version, as many entries at a time as the store gives; then its damage, if any."""
    async for records in read_until_damage(store, entity, after=after):
        yield tuple(each.entry for each in records)


async def entries_after(store: Store, entity: str, *, after: int, limit: int | None) -> tuple[Entry, ...]:
    """So many entries after a version, or all of them, read page by page."""
    found: list[Entry] = []
    while limit is None or len(found) < limit:  # ends with the page that is not full
        wanted = PAGE_MAX if limit is None else min(PAGE_MAX, limit - len(found))
        records = await store.read(entity, after=after, limit=wanted)
        found += (each.entry for each in records)
        if len(records) < wanted:
            break
        after = records[-1].version
    return tuple(found)


def _begins_before(loaded: Loaded, wanted: Moment) -> bool:
    """Whether the snapshot that was loaded is known to be not after the moment."""
    if loaded.snapshot is None:
        return False
    if wanted.version is not None:
        return loaded.snapshot.version <= wanted.version
    # The time of a snapshot is the time of its last entry. It is known when that is the entity's last; otherwise the
    # entry after it must lie before the moment.
    first_ms = loaded.records[0].entry.event.time_ms if loaded.records else loaded.time_ms
    return wanted.time_ms is not None and first_ms <= wanted.time_ms


def _until(
    charts: ChartRegistry, entity: str, snapshot: Snapshot | None, wanted: Moment, entries: Iterable[Entry]
) -> Snapshot | None:
    for entry in entries:
        if wanted.is_passed_by(entry):
            break
        snapshot = replay(charts, entity, snapshot, (entry,))
    return snapshot

"""Replay and time travel: fold the entries of a journal through the step, and discard the effects.

Rule 1: a replayed entry must lead to the version and configuration it records. A difference is corruption when the
chart that wrote the entry shows it. A chart that is only compatible with that one may lead elsewhere; then this process
cannot judge the entry.
    The digest of an entry, a hash of the snapshot after it, covers the rest, such as the context. When an entity is
    loaded, only the last one is compared, because a wrong result remains wrong; `verify` compares each.
Rule 2: a time means the last entry at or before it.
Rule 3: the snapshot that the store loads is only a shortcut. Replay starts there when the snapshot is not after the
wanted moment, otherwise at the first entry. Both give the same result.
Rule 4: a damaged journal can be read up to the damage. The reader then gets the store's error. A store refuses the
whole page that contains a bad record, so the readable part of the page is found by asking for fewer records.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from interlock.errors import CompactedError, CorruptionError, NotFoundError, UnavailableError, UsageError
from interlock.evolve.move import is_move, repeat_move
from interlock.kernel.step import Kernel
from interlock.model.encoding.codec import digested_json, snapshot_digest
from interlock.model.entity_id import kind_of
from interlock.model.journal.entry import CREATE, Entry
from interlock.model.journal.record import JournalRecord
from interlock.model.snapshot import Parent, Sight, Snapshot
from interlock.model.step import Step
from interlock.ports.store import PAGE_MAX, Loaded, Store
from interlock.runtime.charts.revisions import Revisions, missing_functions
from interlock.runtime.history.removed import beginning

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

DIGEST = "snapshot.digest"
"""The code of a snapshot that is not the one which its entry records."""

DIGEST_HINT = (
    "a guard or assign function changed since, or is not a pure function of its arguments; otherwise the journal is "
    "damaged"
)

At = int | str | datetime
"""A version, or a time: ISO 8601 with its zone, or an aware datetime."""


# Replay


async def replay(
    revisions: Revisions, entity: str, snapshot: Snapshot | None, entries: Iterable[Entry]
) -> Snapshot | None:
    """Return the snapshot after these entries, each stepped by the revision that wrote it, or by a compatible one.

    Raises CorruptionError at a divergence; UnavailableError when a definition or a function is missing here, and when
    only a compatible revision diverges.
    """
    kind = kind_of(entity)
    recorded: tuple[Entry, Snapshot] | None = None
    other: tuple[Entry, Kernel] | None = None
    for entry in entries:
        kernel = await kernel_of_entry(revisions, kind, entry)
        snapshot = as_recorded(repeat_step(kernel, entity, snapshot, entry).snapshot, entry)
        if kernel is not None:
            missing = revisions.missing_call(kernel)
            if missing is not None:
                raise missing_functions(kernel.chart, (missing,))
            if other is None and not kernel.chart.is_revision(entry.revision):
                other = entry, kernel
        if entry.digest is not None:
            recorded = entry, snapshot
        if snapshot.version != entry.version or snapshot.configuration != entry.after:
            if kernel is not None and not kernel.chart.is_revision(entry.revision):
                raise unproven(entity, entry, kernel)
            found = f"version {snapshot.version} in {', '.join(snapshot.configuration)}"
            written = f"version {entry.version} in {', '.join(entry.after)}"
            message = f"replay of `{entity}` diverges: the journal records {written}, the chart gives {found}"
            raise CorruptionError(message, code="journal.divergence")
    if recorded is not None and (problem := digest_problem(*recorded)) is not None:
        if other is not None:
            raise unproven(entity, *other)
        raise CorruptionError(f"replay of `{entity}` diverges: {problem}", code=DIGEST, hint=DIGEST_HINT)
    return snapshot


def as_recorded(snapshot: Snapshot, entry: Entry) -> Snapshot:
    """Return a replayed snapshot under the name of the revision that the entry records, with the sight that it records.

    A compatible chart, or one that is known by two names, writes its own name. An entry of an earlier release does not
    record that it is unseen; then others see nothing up to it, and there is no cover.
    """
    sight = snapshot.sight
    if sight is not None and (sight.unseen, sight.shown) != (entry.unseen, entry.shown):
        sight = Sight(entry.unseen, sight.time_ms, entry.shown, None, entry.version + 1, sight.entered_ms)
        snapshot = replace(snapshot, sight=sight)
    return snapshot if snapshot.revision == entry.revision else replace(snapshot, revision=entry.revision)


def digest_problem(entry: Entry, snapshot: Snapshot) -> str | None:
    """Return how a snapshot differs from the one that the entry led to; None if it does not, or it is not known."""
    if entry.digest is None:
        return None
    found = snapshot_digest(digested_json(snapshot))
    if found == entry.digest:
        return None
    return f"the snapshot at version {entry.version} has the hash {found}, but the journal records {entry.digest}"


def unproven(entity: str, entry: Entry, kernel: Kernel) -> UnavailableError:
    """Return the error for an entry on which a compatible chart, not its own, gives a different result."""
    message = (
        f"version {entry.version} of `{entity}` was written by revision {entry.revision}, which is not loaded; "
        f"the compatible revision {kernel.chart.revision} gives a different result"
    )
    return UnavailableError(message, code="revision.unknown", hint="load the chart of that revision too")


async def kernel_of_entry(revisions: Revisions, kind: str, entry: Entry) -> Kernel | None:
    """Return the chart that replays an entry; None for a move, which needs none (`evolve.move`).

    Raises UnavailableError as `Revisions.for_reading` does.
    """
    if is_move(entry):
        return None
    return revisions.known(kind, entry.revision) or await revisions.for_reading(kind, entry.revision)


class _Creation(msgspec.Struct):
    """The data of the event that creates an entity."""

    context: dict[str, Any] | None = None
    parent: Parent | None = None


def repeat_step(kernel: Kernel | None, entity: str, snapshot: Snapshot | None, entry: Entry) -> Step:
    """Repeat the step of an entry on the snapshot before it; of a move without its chart.

    Raises CorruptionError when that snapshot is missing, or is not the one before a move, and for a creation whose data
    is invalid.
    """
    event = entry.event
    if is_move(entry):
        return repeat_move(entity, snapshot, entry)
    assert kernel is not None  # only a move needs none
    if event.name == CREATE:
        try:
            created = msgspec.convert(event.data or {}, _Creation)
        except msgspec.ValidationError as error:
            message = f"the creation of `{entity}` has invalid data: {error}"
            raise CorruptionError(message, code="journal.creation") from error
        return kernel.start(
            created.context, entity=entity, time_ms=event.time_ms, parent=created.parent, epoch=event.epoch
        )
    if snapshot is None:
        raise CorruptionError(f"the journal of `{entity}` does not start with its creation", code="journal.beginning")
    return kernel.step(snapshot, event)


# Reading


async def read_until_damage(store: Store, entity: str, *, after: int = 0) -> AsyncIterator[tuple[JournalRecord, ...]]:
    """Yield the records after a version, page by page. In a damaged journal: up to the damage, then CorruptionError."""
    while True:  # ends with the journal, or with its damage
        try:
            records = await store.read(entity, after=after, limit=PAGE_MAX)
        except CorruptionError:
            records = await read_before_damage(store, entity, after=after)
            if records:
                yield records
            raise
        if not records:
            return
        yield records
        after = records[-1].version


async def read_before_damage(store: Store, entity: str, *, after: int) -> tuple[JournalRecord, ...]:
    """Return the records of a page up to the first one that cannot be read."""
    good: tuple[JournalRecord, ...] = ()
    low, high = 0, PAGE_MAX
    while low < high - 1:  # `low` records can be read, `high` cannot
        middle = (low + high) // 2
        try:
            found = await store.read(entity, after=after, limit=middle)
        except CorruptionError:
            high = middle
        else:
            if len(found) < middle:  # it was repaired meanwhile
                return found
            good, low = found, middle
    return good


async def pages(store: Store, entity: str, *, after: int = 0) -> AsyncIterator[tuple[Entry, ...]]:
    """Yield all entries after a version, page by page. In a damaged journal: up to the damage, then CorruptionError."""
    async for records in read_until_damage(store, entity, after=after):
        yield tuple(each.entry for each in records)


async def entries_after(store: Store, entity: str, *, after: int, limit: int | None) -> tuple[Entry, ...]:
    """Return the entries after a version: the first `limit`, or all of them, read page by page."""
    found: list[Entry] = []
    while limit is None or len(found) < limit:  # ends with the page that is not full
        wanted = PAGE_MAX if limit is None else min(PAGE_MAX, limit - len(found))
        records = await store.read(entity, after=after, limit=wanted)
        found += (each.entry for each in records)
        if len(records) < wanted:
            break
        after = records[-1].version
    return tuple(found)


# Time travel


class Moment(Struct, frozen=True):
    """Where to stop: at a version, or at a time."""

    version: int | None = None
    time_ms: int | None = None

    def is_before(self, version: int, time_ms: int) -> bool:
        """Whether this moment is before the entry of a version and a time."""
        return self.version < version if self.version is not None else (self.time_ms or 0) < time_ms

    def is_at(self, snapshot: Snapshot | None) -> bool:
        """Whether a snapshot is the wanted one for sure."""
        return snapshot is not None and snapshot.version == self.version

    def is_passed_by(self, entry: Entry) -> bool:
        """Whether an entry lies after this moment."""
        if self.version is not None:
            return entry.version > self.version
        return self.time_ms is not None and entry.event.time_ms > self.time_ms

    def is_reached_by(self, entry: Entry) -> bool:
        """Whether no later entry can be wanted. For a time, only a later entry shows that."""
        return entry.version == self.version or self.is_passed_by(entry)


def parse_moment(at: At) -> Moment:
    """Return the moment that a caller means. Raises UsageError for a time without a zone and for other types."""
    if isinstance(at, bool) or not isinstance(at, int | str | datetime):
        raise UsageError(f"`at` must be a version or a time, got {at!r:.60}", code="at.type")
    if isinstance(at, int):
        return Moment(version=at)
    return Moment(time_ms=time_ms(at))


def time_ms(time: str | datetime) -> int:
    """Return a time in whole milliseconds since 1970. Raises UsageError for an invalid time or one without a zone."""
    if isinstance(time, str):
        time = _parse_time(time)
    if time.tzinfo is None:
        hint = "add the zone: 2026-11-15T12:00:00Z, or +01:00"
        raise UsageError(f"the time {time.isoformat()} has no zone", code="at.zone", hint=hint)
    return (time - EPOCH) // timedelta(milliseconds=1)


def _parse_time(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        hint = "write a version such as 7, or a time such as 2026-11-15T12:00:00Z"
        raise UsageError(f"`{text[:60]}` is not an ISO 8601 time", code="at.malformed", hint=hint) from None


async def state_at(store: Store, revisions: Revisions, entity: str, loaded: Loaded | None, at: At) -> Snapshot:
    """Return the entity as it was. Raises NotFoundError if it did not exist, CorruptionError if that is damaged."""
    wanted = parse_moment(at)
    found: Snapshot | None = None
    if loaded is not None and _starts_before(loaded, wanted):
        found = await _replay_until(revisions, entity, loaded.snapshot, wanted, (each.entry for each in loaded.records))
    else:
        after = 0
        try:
            await store.read(entity, limit=1)
        except CompactedError as error:
            base = await beginning(store, error, entity)
            if wanted.is_before(base.version, base.time_ms):
                raise
            after, found = base.version, base.snapshot
        except CorruptionError:
            pass  # it is raised where the damage is
        if not wanted.is_at(found):
            async for page in pages(store, entity, after=after):
                found = await _replay_until(revisions, entity, found, wanted, page)
                if wanted.is_reached_by(page[-1]):
                    break
    if found is None or (wanted.version is not None and found.version != wanted.version):
        where = f"version {at}" if wanted.version is not None else f"{at}"
        raise NotFoundError(f"`{entity}` has no entry at {where}", code="entity.not_then")
    return found


def _starts_before(loaded: Loaded, wanted: Moment) -> bool:
    """Whether the loaded snapshot is known to be not after the moment."""
    if loaded.snapshot is None:
        return False
    if wanted.version is not None:
        return loaded.snapshot.version <= wanted.version
    # The time of a snapshot is the time of its last entry. It is known when that is the entity's last entry; otherwise
    # the entry after it must lie before the moment.
    first_ms = loaded.records[0].entry.event.time_ms if loaded.records else loaded.time_ms
    return wanted.time_ms is not None and first_ms <= wanted.time_ms


async def _replay_until(
    revisions: Revisions, entity: str, snapshot: Snapshot | None, wanted: Moment, entries: Iterable[Entry]
) -> Snapshot | None:
    return await replay(revisions, entity, snapshot, takewhile(lambda each: not wanted.is_passed_by(each), entries))

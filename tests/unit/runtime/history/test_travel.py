"""An entity as it was: by version and by time, with and without a stored snapshot."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from interlock.errors import NotFoundError, UnavailableError, UsageError
from interlock.model.journal.record import JournalRecord
from interlock.ports.store import PAGE_MAX, Duplicate, Loaded
from interlock.runtime.history.replay import EPOCH, time_ms
from interlock.runtime.runtime import Runtime
from interlock.stores.memory import MemoryStore
from tests.unit.runtime.scene import DOOR, StillClock, WithoutDefinitions, runtime

TIMES = (1_000, 2_000, 2_000, 3_000, 5_000)
"""When the entries of the life below were kept: two in the same millisecond."""


class Lagging(MemoryStore):
    """Loads an older snapshot with the records after it, as a file store does; counts what is read."""

    def __init__(self, behind: int) -> None:
        super().__init__()
        self.behind = behind
        self.reads = 0
        self.older: dict[int, Any] = {}

    async def append(self, append: Any) -> Any:
        """As the memory store; the snapshots are remembered."""
        self.older[append.snapshot.version] = append.snapshot
        return await super().append(append)

    async def load(self, entity: str, *, key: str | None = None) -> Loaded | Duplicate | None:
        """The snapshot some versions ago, and the records since."""
        found = await super().load(entity, key=key)
        if not isinstance(found, Loaded):
            return found
        version = max(0, found.version - self.behind)
        return Loaded(found.version, found.time_ms, self.older.get(version), await super().read(entity, after=version))

    async def read(self, entity: str, *, after: int = 0, limit: int = PAGE_MAX) -> tuple[JournalRecord, ...]:
        """As the memory store, counted."""
        self.reads += 1
        return await super().read(entity, after=after, limit=min(limit, 2))


async def life(store: MemoryStore) -> Runtime:
    """A door with an entry at each of the times."""
    clock = StillClock()
    doors = runtime(store=store, clock=clock)
    await doors.create("door/1")
    for number, when in enumerate(TIMES[1:]):
        clock.time_ms = when
        await doors.send("door/1", "closed" if number % 2 else "opened")
    return doors


@pytest.mark.parametrize("behind", [0, 1, 3, 5])
async def test_the_past_is_the_same_whatever_snapshot_is_stored(behind: int) -> None:
    """Every version, and every time around every entry, from stores that lag more and less."""
    reference = await life(MemoryStore())
    doors = await life(Lagging(behind))
    for version in range(1, 6):
        then = await reference.state("door/1", at=version)

        assert then == await doors.state("door/1", at=version)
        assert version == then.version
    for when in range(1_000, 6_000, 500):
        expected = max(number for number, each in enumerate(TIMES, start=1) if each <= when)
        at = (EPOCH + timedelta(milliseconds=when)).isoformat()

        assert expected == (await doors.state("door/1", at=at)).version


async def test_a_moment_after_the_stored_snapshot_reads_no_journal() -> None:
    store = Lagging(2)
    doors = await life(store)
    store.reads = 0
    await doors.state("door/1", at=4)
    await doors.state("door/1", at="1970-01-01T00:00:04Z")

    assert 0 == store.reads
    await doors.state("door/1", at=2)
    assert store.reads > 0


@pytest.mark.parametrize(
    ("time", "expected"),
    [
        ("1970-01-01T00:00:02Z", 2_000),
        ("1970-01-01T01:00:02+01:00", 2_000),
        ("1970-01-01T00:00:00.0015+00:00", 1),
        (datetime(1970, 1, 1, 0, 0, 2, tzinfo=UTC), 2_000),
        (datetime(1969, 12, 31, 23, 59, 59, 999_500, tzinfo=timezone(timedelta(0))), -1),
    ],
)
def test_a_time_is_cut_to_whole_milliseconds(time: str | datetime, expected: int) -> None:
    assert expected == time_ms(time)


@pytest.mark.parametrize(
    ("at", "code"),
    [
        ("2026-11-15T12:00:00", "at.zone"),
        (datetime(2026, 11, 15), "at.zone"),  # noqa: DTZ001 - that is the mistake
        ("yesterday", "at.malformed"),
        ("", "at.malformed"),
        (True, "at.type"),
        (1.5, "at.type"),
    ],
)
async def test_an_invalid_moment_is_a_usage_error(at: Any, code: str) -> None:
    doors = await life(MemoryStore())
    with pytest.raises(UsageError) as raised:
        await doors.state("door/1", at=at)

    assert code == raised.value.code


async def test_an_unknown_entity_has_no_past() -> None:
    with pytest.raises(NotFoundError) as raised:
        await runtime().state("door/1", at=1)

    assert "entity.unknown" == raised.value.code


async def test_a_past_on_which_a_compatible_chart_diverges_is_unavailable() -> None:
    store = WithoutDefinitions()
    await life(store)
    newer = DOOR.replace("revision: 1.0.0", 'revision: 1.1.0\ncompatible: ">=1.0 <2"')
    later = runtime(newer.replace("initial: closed", "initial: open"), store=store)
    with pytest.raises(UnavailableError) as raised:
        await later.state("door/1", at=1)

    assert "revision.unknown" == raised.value.code
    assert "gives a different result" in raised.value.message

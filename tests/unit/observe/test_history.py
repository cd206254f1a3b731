"""Entities at earlier versions: long journals open without a replay, and a replay is not repeated."""

from typing import Any

import pytest

import interlock
from interlock.model.codec import encode
from interlock.model.journal.entry import Entry
from interlock.model.snapshot import Snapshot
from interlock.observe import history
from interlock.observe.history import REPLAY_ENTRIES_MAX, SNAPSHOT_INTERVAL, HistoryCache
from interlock.runtime.history.replay import replay
from interlock.testing.clock import VirtualClock
from tests.unit.web.consoles import Client, opened

COUNTER = """
interlock: 1
kind: counter
revision: 1.0.0
context: {sum: {type: integer, default: 0}}
events: {more: {}}
initial: open
states:
  open: {expect: {within: forever}, on: {more: {actions: [{assign: {sum: "= context.sum + 1"}}]}}}
"""

BEGIN_MS = 1_000_000_000_000
LONG = REPLAY_ENTRIES_MAX + 2 * SNAPSHOT_INTERVAL + 7
"""The version of an entity that is too long to be replayed unasked."""


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The versions that were replayed."""
    versions: list[int] = []

    def counted(charts: Any, entity: str, snapshot: Snapshot | None, entries: tuple[Entry, ...]) -> Snapshot | None:
        versions.extend(each.version for each in entries)
        return replay(charts, entity, snapshot, entries)

    monkeypatch.setattr(history, "replay", counted)
    return versions


async def counted_to(client: Client, version: int, clock: VirtualClock | None = None) -> None:
    """Makes `counter/1`, whose sum is its version less one, an entry each second."""
    await client.runtime.create("counter/1")
    for _ in range(version - 1):
        if clock is not None:
            clock.time_ms += 1_000
        await client.runtime.send("counter/1", "more")


async def test_a_long_journal_opens_without_being_replayed(seen: list[int]) -> None:
    async with opened(charts=(interlock.loads(COUNTER),)) as client:
        await counted_to(client, LONG)
        page = await client.json("entity/counter/1")

    assert [] == seen
    assert (LONG, {"sum": LONG - 1}, None, LONG - 1) == (
        page["version"],
        page["context"],
        page["context_before"],
        page["far"],
    )
    assert ("more", LONG) == (page["entry"]["event"], page["entry"]["version"])


async def test_a_distant_version_is_replayed_on_request_and_only_once(seen: list[int]) -> None:
    async with opened(charts=(interlock.loads(COUNTER),)) as client:
        await counted_to(client, LONG)
        asked = await client.json("entity/counter/1?far=true")
        first = len(seen)
        again = await client.json("entity/counter/1")
        second = len(seen)
        between = await client.json(f"entity/counter/1?version={SNAPSHOT_INTERVAL + 3}")

    assert (LONG - 1, 0) == (first, second - first)
    assert [({"sum": LONG - 2}, None)] * 2 == [(each["context_before"], each["far"]) for each in (asked, again)]
    assert ([{"source": "open", "ordinal": 0}], asked["took"]) == (asked["took"], again["took"])
    assert {"sum": SNAPSHOT_INTERVAL + 2} == between["context"]
    assert {"sum": SNAPSHOT_INTERVAL + 1} == between["context_before"]
    assert len(seen) - second <= SNAPSHOT_INTERVAL


async def test_an_open_page_replays_nothing_for_a_new_entry(seen: list[int]) -> None:
    async with opened(charts=(interlock.loads(COUNTER),)) as client:
        await counted_to(client, LONG)
        await client.json("entity/counter/1")
        await client.runtime.send("counter/1", "more")
        page = await client.json("entity/counter/1")

    assert ([], {"sum": LONG - 1}, None) == (seen, page["context_before"], page["far"])


async def test_a_short_journal_is_replayed_automatically(seen: list[int]) -> None:
    async with opened(charts=(interlock.loads(COUNTER),)) as client:
        await counted_to(client, REPLAY_ENTRIES_MAX + 1)
        page = await client.json("entity/counter/1")

    assert REPLAY_ENTRIES_MAX == len(seen)
    assert ({"sum": REPLAY_ENTRIES_MAX - 1}, None) == (page["context_before"], page["far"])


async def test_a_cached_version_equals_that_of_the_runtime(seen: list[int]) -> None:
    clock = VirtualClock(BEGIN_MS)
    async with opened(charts=(interlock.loads(COUNTER),), clock=clock) as client:
        await counted_to(client, 60, clock)
        for version in (40, 17, 41, 60, 1, 17):
            expected = await client.runtime.state("counter/1", at=version)
            assert expected == await client.console.past.at("counter/1", version)
        second = await client.json("entity/counter/1?at=2001-09-09T01:46:44.500Z")
        codes = [
            (await client.get(f"entity/counter/1?{each}")).json()["code"]
            for each in ("at=2001-09-09T01:46:39Z", "version=61", "at=yesterday", "at=2001-09-09T01:46:44")
        ]

    assert 5 == second["version"]
    assert ["entity.not_then", "entity.not_then", "at.malformed", "at.zone"] == codes


async def test_a_time_is_found_by_halves_and_not_by_reading_all() -> None:
    clock = VirtualClock(BEGIN_MS)
    async with opened(charts=(interlock.loads(COUNTER),), clock=clock) as client:
        await counted_to(client, 200, clock)
        looks = 0
        read = client.runtime.journal

        async def journal(*given: Any, **named: Any) -> Any:
            nonlocal looks
            looks += 1
            return await read(*given, **named)

        client.runtime.journal = journal  # type: ignore[method-assign]  # the real one is called by it
        found = await client.console.past.version_at("counter/1", BEGIN_MS + 77_000, latest=200)

    assert (78, True) == (found, looks <= 8)


async def test_the_cache_drops_the_least_recently_used_snapshot() -> None:
    async with opened(charts=(interlock.loads(COUNTER),)) as client:
        await counted_to(client, 30)
        size = len(encode(await client.runtime.state("counter/1")))
        remembered = HistoryCache(client.runtime, bytes_max=3 * size)
        for version in range(1, 31):
            await remembered.at("counter/1", version)
        near, far = remembered.distance("counter/1", 30), remembered.distance("counter/1", 20)
        found = await remembered.at("counter/1", 20)

    assert (0, 20) == (near, far)
    assert found is not None
    assert {"sum": 19} == found.context

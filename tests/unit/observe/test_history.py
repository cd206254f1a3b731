"""Entities at an earlier version: long journals open quickly, and a replayed snapshot is cached."""

from typing import Any

import pytest

import interlock
from interlock.model.encoding.codec import encode
from interlock.model.journal.entry import Entry
from interlock.model.snapshot import Snapshot
from interlock.observe import history
from interlock.observe.history import REPLAY_ENTRIES_MAX, SNAPSHOT_INTERVAL, HistoryCache
from interlock.runtime.history.replay import replay
from interlock.testing.clock import VirtualClock
from tests.unit.web.consoles import Client, open_console

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

    async def counted(
        revisions: Any, entity: str, snapshot: Snapshot | None, entries: tuple[Entry, ...]
    ) -> Snapshot | None:
        versions.extend(each.version for each in entries)
        return await replay(revisions, entity, snapshot, entries)

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
    async with open_console(charts=(interlock.loads(COUNTER),)) as client:
        await counted_to(client, LONG)
        page = await client.json("entity/counter/1")

    assert [] == seen
    assert (LONG, {"sum": LONG - 1}, None, LONG - 1) == (
        page["version"],
        page["context"],
        page["context_before"],
        page["replay_distance"],
    )
    assert ("more", LONG) == (page["entry"]["event"], page["entry"]["version"])


async def test_what_is_far_is_replayed_when_it_is_asked_for_and_once_only(seen: list[int]) -> None:
    async with open_console(charts=(interlock.loads(COUNTER),)) as client:
        await counted_to(client, LONG)
        asked = await client.json("entity/counter/1?replay=true")
        first = len(seen)
        again = await client.json("entity/counter/1")
        second = len(seen)
        between = await client.json(f"entity/counter/1?version={SNAPSHOT_INTERVAL + 3}")

    assert (LONG - 1, 0) == (first, second - first)
    assert [({"sum": LONG - 2}, None)] * 2 == [
        (each["context_before"], each["replay_distance"]) for each in (asked, again)
    ]
    assert ([{"source": "open", "ordinal": 0}], asked["transitions"]) == (asked["transitions"], again["transitions"])
    assert {"sum": SNAPSHOT_INTERVAL + 2} == between["context"]
    assert {"sum": SNAPSHOT_INTERVAL + 1} == between["context_before"]
    assert len(seen) - second <= SNAPSHOT_INTERVAL


async def test_a_page_that_is_open_replays_nothing_when_an_entry_comes(seen: list[int]) -> None:
    async with open_console(charts=(interlock.loads(COUNTER),)) as client:
        await counted_to(client, LONG)
        await client.json("entity/counter/1")
        await client.runtime.send("counter/1", "more")
        page = await client.json("entity/counter/1")

    assert ([], {"sum": LONG - 1}, None) == (seen, page["context_before"], page["replay_distance"])


async def test_a_short_journal_is_replayed_unasked(seen: list[int]) -> None:
    async with open_console(charts=(interlock.loads(COUNTER),)) as client:
        await counted_to(client, REPLAY_ENTRIES_MAX + 1)
        page = await client.json("entity/counter/1")

    assert REPLAY_ENTRIES_MAX == len(seen)
    assert ({"sum": REPLAY_ENTRIES_MAX - 1}, None) == (page["context_before"], page["replay_distance"])


async def test_a_version_is_what_the_runtime_says_it_was(seen: list[int]) -> None:
    clock = VirtualClock(BEGIN_MS)
    async with open_console(charts=(interlock.loads(COUNTER),), clock=clock) as client:
        await counted_to(client, 60, clock)
        for version in (40, 17, 41, 60, 1, 17):
            expected = await client.runtime.state("counter/1", at=version)
            assert expected == await client.console.history.at("counter/1", version)
        second = await client.json("entity/counter/1?at=2001-09-09T01:46:44.500Z")
        codes = [
            (await client.get(f"entity/counter/1?{each}")).json()["code"]
            for each in ("at=2001-09-09T01:46:39Z", "version=61", "at=yesterday", "at=2001-09-09T01:46:44")
        ]

    assert 5 == second["version"]
    assert ["entity.not_then", "entity.not_then", "at.malformed", "at.zone"] == codes


async def test_a_time_is_found_by_halves_and_not_by_reading_all() -> None:
    """So few entries are read that a journal of a hundred thousand takes seventeen looks."""
    clock = VirtualClock(BEGIN_MS)
    async with open_console(charts=(interlock.loads(COUNTER),), clock=clock) as client:
        await counted_to(client, 200, clock)
        looks = 0
        read = client.runtime.journal

        async def journal(*given: Any, **named: Any) -> Any:
            nonlocal looks
            looks += 1
            return await read(*given, **named)

        client.runtime.journal = journal  # type: ignore[method-assign]  # the real one is called by it
        found = await client.console.history.version_at("counter/1", BEGIN_MS + 77_000, latest=200)

    assert (78, True) == (found, looks <= 8)


async def test_the_cache_drops_the_least_recently_used_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_console(charts=(interlock.loads(COUNTER),)) as client:
        await counted_to(client, 30)
        size = len(encode(await client.runtime.state("counter/1")))
        monkeypatch.setattr(history, "CACHE_BYTES_MAX", 3 * size)
        remembered = HistoryCache(client.runtime)
        for version in range(1, 31):
            await remembered.at("counter/1", version)
        near, far = remembered.distance("counter/1", 30), remembered.distance("counter/1", 20)
        found = await remembered.at("counter/1", 20)

    assert (0, 20) == (near, far)
    assert found is not None
    assert {"sum": 19} == found.context

"""The feed of a SQLite file: places by number and by time, for one tenant, along the key."""

from __future__ import annotations

from pathlib import Path

import pytest

import interlock
from interlock.stores.sqlite.store import SqliteStore
from interlock.testing.clock import VirtualClock

LAMP = "interlock: 1\nkind: lamp\ninitial: dark\nstates: {dark: {on: {press: bright}}, bright: {on: {press: dark}}}"


@pytest.fixture
async def lamps(tmp_path: Path) -> str:
    """A file with one lamp, pressed every second; and one of another tenant."""
    url = f"sqlite:///{tmp_path}/lamps.db"
    clock = VirtualClock(0)
    async with (
        interlock.open(url, charts=[interlock.loads(LAMP)], clock=clock, work=False) as ours,
        interlock.open(f"{url}?tenant=other", charts=[interlock.loads(LAMP)], clock=clock, work=False) as theirs,
    ):
        await theirs.create("lamp/9")
        await ours.create("lamp/1")
        for number in range(1, 20):
            clock.time_ms = number * 1_000
            await ours.send("lamp/1", "press")
    return url


async def test_entries_come_in_the_order_of_their_commits_page_by_page(lamps: str) -> None:
    """And none of another tenant."""
    store = SqliteStore(Path(lamps.removeprefix("sqlite:///")))
    assert store.journal_feed is not None
    seen, after = [], None
    while True:
        page = await store.feed(after, limit=7)
        seen += [(each.entity, each.entry.version) for each in page.entries]
        if page.is_last:
            break
        after = page.after
    await store.close()

    assert [("lamp/1", version) for version in range(1, 21)] == seen


async def test_a_place_is_found_by_its_time(lamps: str) -> None:
    """Before all, behind all, and anywhere between."""
    store = SqliteStore(Path(lamps.removeprefix("sqlite:///")))
    firsts = []
    for time_ms in (-5, 0, 1, 7_000, 7_001, 19_000, 19_001):
        page = await store.feed(await store.cursor_at(time_ms), limit=1_000)
        firsts.append(page.entries[0].entry.event.time_ms if page.entries else None)
    await store.close()

    assert [0, 0, 1_000, 7_000, 8_000, 19_000, None] == firsts


async def test_an_empty_file_has_nothing_to_tell(tmp_path: Path) -> None:
    """And starts at the first entry."""
    store = SqliteStore(tmp_path / "new.db")
    found = (await store.cursor_at(5), (await store.feed(None, limit=5)).entries)
    await store.close()

    assert ("sqlite.0", ()) == found

"""A feed that is followed on PostgreSQL: entries of other processes come by a notification."""

from __future__ import annotations

import pytest

import interlock
from interlock.stores.postgres import wakeups
from tests.support.postgres_server import store_or_skip
from tests.unit.runtime.reading.test_feed import lamp
from tests.unit.runtime.test_feed_signals import MOST_READS, entries_come_by_signals, reads_of_an_idle_minute


@pytest.fixture
def url() -> str:
    return store_or_skip()


async def test_entries_of_another_process_come_by_notifications(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wakeups, "FOLLOWER_SECONDS", 0)  # the sender looks for readers at each entry
    await entries_come_by_signals(url)


async def test_an_idle_reader_asks_the_store_seldom(url: str) -> None:
    assert await reads_of_an_idle_minute(url) <= MOST_READS


async def test_a_process_without_readers_sends_no_notification(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wakeups, "FOLLOWER_SECONDS", 0)
    async with interlock.open(url, charts=[lamp()], work=False) as writer:
        rung: list[int] = []
        vars(writer.store.wakeups)["_ring"] = rung.append
        await writer.create("lamp/1")
        await writer.send("lamp/1", "press")
    assert [] == rung

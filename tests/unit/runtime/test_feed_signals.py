"""A feed that is followed: entries of other processes come by a signal, and an idle reader asks the store seldom.

Two runtimes on one store behave like two processes.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import interlock
from interlock.ports.clock import SystemClock
from interlock.runtime.reading.feed import POLL_MS, SETTLING_POLLS, SIGNALLED_POLL_MS
from interlock.runtime.runtime import Runtime
from interlock.stores import wakeup_pipes
from tests.support.eventually import eventually
from tests.unit.runtime.reading.test_feed import lamp

MINUTE_MS = 60_000


class EndlessPolls(SystemClock):
    """A clock whose polls never end, so that only signals end the wait for entries."""

    def __init__(self) -> None:
        self.polls = 0

    async def wait_to_poll(
        self, every_ms: float, *, due_ms: float | None = None, at_most_ms: float | None = None
    ) -> float:
        self.polls += 1
        await asyncio.Event().wait()
        return every_ms


class OneMinute(SystemClock):
    """A clock whose polls end immediately until they add up to a minute; later ones do not end."""

    def __init__(self) -> None:
        self.passed_ms = 0.0

    async def wait_to_poll(
        self, every_ms: float, *, due_ms: float | None = None, at_most_ms: float | None = None
    ) -> float:
        self.passed_ms += every_ms
        if self.passed_ms > MINUTE_MS:
            await asyncio.Event().wait()
        await asyncio.sleep(0)
        return every_ms


class CountedFeed:
    """The feed of a store, with the number of its reads."""

    def __init__(self, runtime: Runtime) -> None:
        self.reads = 0
        self._feed: Any = runtime.store.journal_feed
        vars(runtime.store)["journal_feed"] = self

    async def feed(self, *given: Any, **named: Any) -> Any:
        self.reads += 1
        return await self._feed.feed(*given, **named)


async def entries_come_by_signals(url: str) -> None:
    """No poll ends, and each entry of the other process arrives; between entries nothing is read."""
    clock = EndlessPolls()
    async with (
        interlock.open(url, charts=[lamp()], work=False) as writer,
        interlock.open(url, charts=[lamp()], work=False, clock=clock) as reader,
    ):
        await writer.create("lamp/1")
        counted = CountedFeed(reader)
        feed = reader.feed()
        assert 1 == (await anext(feed)).entry.version
        for version in range(2, 6):
            coming = asyncio.ensure_future(anext(feed))
            await eventually(lambda: clock.polls)
            await writer.send("lamp/1", "press")
            assert version == (await coming).entry.version
            clock.polls = 0
        assert counted.reads <= 16
        await feed.aclose()


async def reads_of_an_idle_minute(url: str) -> int:
    """How often a reader asks the store during a minute without entries."""
    clock = OneMinute()
    async with interlock.open(url, charts=[lamp()], work=False, clock=clock) as reader:
        counted = CountedFeed(reader)
        waiting = asyncio.ensure_future(anext(reader.feed()))
        await eventually(lambda: clock.passed_ms > MINUTE_MS)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        return counted.reads


MOST_READS = 2 + SETTLING_POLLS + MINUTE_MS // SIGNALLED_POLL_MS


@pytest.fixture(params=["sqlite:///{}/lamps.db", "file://{}/lamps"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    found: str = request.param
    return found.format(tmp_path)


async def test_entries_of_another_process_come_by_signals(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wakeup_pipes, "FOLLOWER_SECONDS", 0)  # the sender looks for readers at each entry
    await entries_come_by_signals(url)


async def test_an_idle_reader_asks_the_store_seldom(url: str) -> None:
    assert await reads_of_an_idle_minute(url) <= MOST_READS


async def test_without_signals_a_reader_polls_as_before(tmp_path: Path) -> None:
    (tmp_path / "lamps.db-wakeups").write_text("not a folder")
    assert await reads_of_an_idle_minute(f"sqlite:///{tmp_path}/lamps.db") >= MINUTE_MS // POLL_MS


async def test_a_process_without_readers_writes_no_signal(tmp_path: Path) -> None:
    async with interlock.open(f"sqlite:///{tmp_path}/lamps.db", charts=[lamp()], work=False) as writer:
        rung: list[int] = []
        vars(writer.store.wakeups)["_ring"] = rung.append
        await writer.create("lamp/1")
        await writer.send("lamp/1", "press")
        assert [] == rung

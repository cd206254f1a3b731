"""The feed of all entries: in order, from any cursor, followed while others write."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import interlock
from interlock import UsageError
from interlock.assemble.charts import BoundChart
from interlock.ports.reading.journal_feed import FeedEntry
from interlock.runtime.runtime import Runtime
from interlock.stores.memory import MemoryStore

LAMP = """
interlock: 1
kind: {kind}
initial: dark
states:
  dark: {{on: {{press: bright}}}}
  bright: {{on: {{press: dark, ended: end}}}}
  end: {{type: final}}
"""
STORES = ("memory:", "sqlite:///{folder}/lamps.db", "file://{folder}/lamps")


def lamp(kind: str = "lamp") -> BoundChart:
    return interlock.loads(LAMP.format(kind=kind))


@pytest.fixture(params=STORES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    found: str = request.param
    return found.format(folder=tmp_path)


async def _read(runtime: Runtime, **options: Any) -> list[FeedEntry]:
    return [each async for each in runtime.feed(follow=False, **options)]


def _names(entries: list[FeedEntry]) -> list[tuple[str, int]]:
    return [(each.entity, each.entry.version) for each in entries]


async def _filled(runtime: Runtime) -> list[tuple[str, int]]:
    """Write entries of three entities in turn; return their order."""
    wanted = []
    for entity in ("lamp/1", "lamp/2", "torch/1"):
        await runtime.create(entity)
        wanted.append((entity, 1))
    for version in range(2, 8):
        for entity in ("lamp/2", "torch/1", "lamp/1"):
            await runtime.send(entity, "press")
            wanted.append((entity, version))
    return wanted


def _ordered(url: str, entries: list[tuple[str, int]]) -> list[tuple[str, int]]:
    """Files promise the order of one entity's entries only; a stable sort keeps it."""
    return sorted(entries, key=lambda each: each[0]) if url.startswith("file:") else entries


async def test_a_feed_has_every_entry_in_the_order_of_commits(url: str) -> None:
    async with interlock.open(url, charts=[lamp(), lamp("torch")]) as runtime:
        assert [] == await _read(runtime)
        wanted = await _filled(runtime)
        found = await _read(runtime)

    assert _ordered(url, wanted) == _ordered(url, _names(found))
    assert len(found) == len({each.cursor for each in found})


async def test_a_feed_continues_after_any_entry(url: str) -> None:
    async with interlock.open(url, charts=[lamp(), lamp("torch")]) as runtime:
        await _filled(runtime)
        found = await _read(runtime)
        wanted = _names(found)
        for number, each in enumerate(found, start=1):
            assert wanted[number:] == _names(await _read(runtime, after=each.cursor))


async def test_a_feed_of_some_kinds_passes_over_the_others(url: str) -> None:
    async with interlock.open(url, charts=[lamp(), lamp("torch")]) as runtime:
        wanted = await _filled(runtime)
        for kinds in (["lamp"], ("torch",), ["lamp", "torch"], [], ["nothing"]):
            chosen = [each for each in wanted if each[0].partition("/")[0] in kinds]
            assert _ordered(url, chosen) == _ordered(url, _names(await _read(runtime, kinds=kinds)))


async def test_a_followed_feed_gives_new_entries_of_this_and_other_processes(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/lamps.db"
    async with (
        interlock.open(url, charts=[lamp()]) as runtime,
        interlock.open(url, charts=[lamp()]) as other,
    ):
        await runtime.create("lamp/1")
        feed = runtime.feed()
        assert ("lamp/1", 1) == _names([await anext(feed)])[0]
        waiting = asyncio.ensure_future(anext(feed))
        await other.create("lamp/2")
        assert ("lamp/2", 1) == _names([await waiting])[0]
        waiting = asyncio.ensure_future(anext(feed))
        await runtime.send("lamp/1", "press")
        assert ("lamp/1", 2) == _names([await waiting])[0]
        await feed.aclose()


async def test_a_followed_feed_ends_when_the_runtime_closes(url: str) -> None:
    runtime = await interlock.open(url, charts=[lamp()])
    await runtime.create("lamp/1")
    feed = runtime.feed()
    await anext(feed)
    waiting = asyncio.ensure_future(anext(feed, None))
    await runtime.close()

    assert await waiting is None


async def test_a_position_is_never_given_twice(url: str) -> None:
    """The newest journals go to an archive; a reader that has read them misses no later entry (trap 14)."""
    async with interlock.open(url, charts=[lamp()]) as runtime:
        await runtime.create("lamp/1")
        for number in range(2, 5):
            for event in (None, "press", "ended"):
                entity = f"lamp/{number}"
                await (runtime.create(entity) if event is None else runtime.send(entity, event))
        cursor = (await _read(runtime))[-1].cursor
        release = runtime.store.journal_release
        assert release is not None
        for number in (4, 3):
            assert await release.release_journal(f"lamp/{number}", version=3, archive="file:///x")
        assert [] == await _read(runtime, after=cursor)
        await runtime.send("lamp/1", "press")
        assert [("lamp/1", 2)] == _names(await _read(runtime, after=cursor))
        assert [("lamp/1", 1), *(("lamp/2", each) for each in (1, 2, 3)), ("lamp/1", 2)] == _names(await _read(runtime))
        assert [None] * 4 == [each.problem async for each in runtime.verify_all()]


@pytest.mark.parametrize("after", ["", "x", "5", "sqlite.", "sqlite.-1", "sqlite.1.0", "other.5", "memory.é"])
async def test_a_cursor_of_another_store_is_refused(url: str, after: str) -> None:
    async with interlock.open(url, charts=[lamp()]) as runtime:
        with pytest.raises(UsageError) as raised:
            await _read(runtime, after=after)
        assert "feed.cursor" == raised.value.code


async def test_a_cursor_that_is_ahead_of_the_store_is_refused(url: str) -> None:
    """The store was restored from an older copy: its next entries have numbers that the reader has passed."""
    async with interlock.open(url, charts=[lamp()]) as runtime:
        await runtime.create("lamp/1")
        scheme, _, _ = (await _read(runtime))[0].cursor.partition(".")
        with pytest.raises(UsageError) as raised:
            await _read(runtime, after=f"{scheme}.99")
        assert "feed.ahead" == raised.value.code


async def test_a_store_without_an_order_of_entries_has_no_feed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MemoryStore, "journal_feed", None)
    async with interlock.open("memory:", charts=[lamp()]) as runtime:
        with pytest.raises(UsageError) as raised:
            await _read(runtime)
        assert "feed.unsupported" == raised.value.code


@pytest.mark.parametrize("kinds", ["lamp", 5, [1]])
async def test_the_kinds_of_a_feed_are_a_list_of_strings(url: str, kinds: Any) -> None:
    async with interlock.open(url, charts=[lamp()]) as runtime:
        with pytest.raises(UsageError) as raised:
            await _read(runtime, kinds=kinds)
        assert "feed.kinds" == raised.value.code


async def test_a_blocking_runtime_reads_the_feed(tmp_path: Path) -> None:
    def read(url: str) -> list[tuple[str, int]]:
        with interlock.connect(url, charts=[lamp()]) as lamps:
            lamps.create("lamp/1")
            lamps.send("lamp/1", "press")
            return _names(list(lamps.feed(follow=False)))

    found = await asyncio.to_thread(partial(read, f"sqlite:///{tmp_path}/lamps.db"))
    assert [("lamp/1", 1), ("lamp/1", 2)] == found

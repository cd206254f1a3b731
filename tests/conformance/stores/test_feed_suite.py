"""The suite of the feed, on every store; and the faults that it must find."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from interlock.errors import InterlockError
from interlock.stores import memory
from interlock.stores.files import store as files
from interlock.stores.files.feed.file_feed import FileFeed
from interlock.stores.files.feed.hints import HintReader
from interlock.stores.files.feed.order_log import OrderLog
from interlock.stores.sqlite import feed as sqlite_feed
from interlock.stores.sqlite import store as sqlite
from interlock.testing.store_suite.suite import Case, StoreSubject, feed_cases
from tests.conformance.stores.test_store_suite import opened_postgres
from tests.support.postgres_server import store_or_skip

ALL = feed_cases(durable=True, shared=True)


def _named(case: Case) -> str:
    return getattr(case, "__name__", repr(case))


@pytest.mark.parametrize("case", feed_cases(durable=False, shared=False), ids=_named)
async def test_the_memory_store_has_a_feed(case: Case) -> None:
    await case(StoreSubject(open=partial(memory.open_store, "memory:")))


@pytest.mark.parametrize("case", ALL, ids=_named)
async def test_the_file_store_has_a_feed(case: Case, tmp_path: Path) -> None:
    await case(_files(tmp_path))


@pytest.mark.parametrize("case", ALL, ids=_named)
async def test_the_sqlite_store_has_a_feed(case: Case, tmp_path: Path) -> None:
    await case(_sqlite(tmp_path))


@pytest.mark.parametrize("case", ALL, ids=_named)
async def test_the_postgres_store_has_a_feed(case: Case) -> None:
    await case(StoreSubject(open=partial(opened_postgres, store_or_skip())))


class _WithoutFeed(memory.MemoryStore):
    journal_feed = None  # type: ignore[assignment]  # a store that cannot


async def test_a_store_without_a_feed_fails_the_suite() -> None:
    for case in feed_cases(durable=True, shared=True):
        with pytest.raises(AssertionError, match="has no feed"):
            await case(StoreSubject(open=_WithoutFeed))


def _files(folder: Path) -> StoreSubject:
    return StoreSubject(open=partial(files.open_store, f"file://{folder}/x"))


def _sqlite(folder: Path) -> StoreSubject:
    return StoreSubject(open=partial(sqlite.open_store, f"sqlite:///{folder}/x.db"))


def _trust_hints_at_once(patch: pytest.MonkeyPatch) -> None:
    """Writers that opened the store before the feed existed give no hints yet."""
    take = HintReader.take

    def trusting(self: Any, directory: int) -> Any:
        found = take(self, directory)
        self.is_trusted = True
        return found

    patch.setattr(HintReader, "take", trusting)
    patch.setattr(FileFeed, "_walk", lambda _: [])


def _number_from_one_in_each_handle(patch: pytest.MonkeyPatch) -> None:
    """The order is not shared: lines of other handles are not read."""
    patch.setattr(OrderLog, "_catch_up", lambda self: setattr(self, "_end", self._fs.size(self._file)))


def _repeat_versions(patch: pytest.MonkeyPatch) -> None:
    new_lines = OrderLog._new_lines

    def from_one(self: Any, growths: Any) -> Any:
        return [replace(each, a=1) for each in new_lines(self, growths)]

    patch.setattr(OrderLog, "_new_lines", from_one)
    patch.setattr(OrderLog, "_learn", _learn_anything)


def _learn_anything(self: Any, line: Any, end: int) -> None:
    self.versions[line.e] = line.b
    self.last, self._newest_ms, self._end = line.last, line.m, end


def _cut_pages_at_lines(patch: pytest.MonkeyPatch) -> None:
    """A page that ends within a line continues with the next line."""
    read = FileFeed.read

    def reading(self: Any, after: Any, kinds: Any, limit: int) -> Any:
        page = read(self, after, kinds, limit)
        if not page.entries or page.is_last:
            return page
        position = int(page.after.rpartition(".")[2])
        line = self._log.read(position, 1)[0]
        return replace(page, after=f"files-{self._log.id}.{line.last}", is_last=line.last >= self._log.last)

    patch.setattr(FileFeed, "read", reading)


def _order_by_entity(patch: pytest.MonkeyPatch) -> None:
    text = sqlite_feed.SELECT_AFTER.replace("ORDER BY position", "ORDER BY id, position")
    patch.setattr(sqlite_feed, "SELECT_AFTER", text)


FILE_FAULTS = (_trust_hints_at_once, _number_from_one_in_each_handle, _repeat_versions, _cut_pages_at_lines)


@pytest.mark.parametrize(
    ("fault", "subject"),
    [*((each, _files) for each in FILE_FAULTS), (_order_by_entity, _sqlite)],
    ids=lambda each: each.__name__.strip("_"),
)
async def test_the_suite_finds_a_feed_that_is_wrong(
    fault: Any, subject: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault(monkeypatch)
    for number, case in enumerate(ALL):
        folder = tmp_path / str(number)
        folder.mkdir()
        try:
            await case(subject(folder))
        except (AssertionError, InterlockError):
            return
    pytest.fail("no case finds the fault")

"""Projections on SQLite: every entry takes effect once, errors are retried and then shown, nothing is skipped."""

from __future__ import annotations

import asyncio
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import interlock
from interlock import UsageError
from interlock.model.backoff import Backoff
from interlock.ports.reading.journal_feed import FeedEntry
from interlock.ports.reading.projections import ProjectionStatus
from interlock.runtime.reading import projection
from interlock.runtime.runtime import Runtime
from tests.support.eventually import eventually

LAMP = """
interlock: 1
kind: {kind}
context: {{presses: {{type: integer, default: 0}}}}
initial: dark
states: {{dark: {{}}}}
on: {{press: {{actions: [{{assign: {{presses: "= context.presses + 1"}}}}]}}}}
"""
TABLE = "CREATE TABLE {name} (entity TEXT PRIMARY KEY, version INTEGER NOT NULL, entries INTEGER NOT NULL)"
UPSERT = """
    INSERT INTO {name} VALUES (?, ?, 1)
    ON CONFLICT (entity) DO UPDATE SET version = excluded.version, entries = entries + 1"""


def counting(name: str = "lamp_versions") -> Callable[[sqlite3.Connection, Sequence[FeedEntry]], None]:
    """Return a projector that counts the entries of each entity; twice the same entry would be seen."""

    def project(connection: sqlite3.Connection, entries: Sequence[FeedEntry]) -> None:
        for each in entries:
            connection.execute(UPSERT.format(name=name), (each.entity, each.entry.version))

    return project


class Lamps:
    """A store with lamps, and a table that projections fill."""

    def __init__(self, path: Path, runtime: Runtime) -> None:
        self.path = path
        self.runtime = runtime
        self.sent: Counter[str] = Counter()

    async def press(self, count: int) -> None:
        for number in range(count):
            entity = f"lamp/{number % 5}"
            await (self.runtime.send(entity, "press") if self.sent[entity] else self.runtime.create(entity))
            self.sent[entity] += 1

    def rows(self, name: str = "lamp_versions") -> dict[str, tuple[int, int]]:
        with closing(sqlite3.connect(self.path)) as connection:
            return {row[0]: (row[1], row[2]) for row in connection.execute(f"SELECT * FROM {name}")}

    async def is_filled(self, name: str = "lamp_versions") -> bool:
        return self.rows(name) == {entity: (count, count) for entity, count in self.sent.items()}

    async def status(self, name: str = "counts") -> ProjectionStatus | None:
        return next((each for each in await self.runtime.projections() if each.name == name), None)


def _create(path: Path, name: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(TABLE.format(name=name))


@pytest.fixture
async def lamps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Lamps]:
    """A store with five lamps; errors are retried without a wait."""
    path = tmp_path / "lamps.db"
    charts = [interlock.loads(LAMP.format(kind=each)) for each in ("lamp", "torch")]
    monkeypatch.setattr(projection, "RETRY", Backoff(1, 2))
    async with interlock.open(f"sqlite:///{path}", charts=charts, work=False) as runtime:
        _create(path, "lamp_versions")
        yield Lamps(path, runtime)


async def test_a_projection_takes_what_was_there_and_what_comes(lamps: Lamps) -> None:
    await lamps.press(12)
    lamps.runtime.projection("counts", batch=5)(counting())
    await eventually(lamps.is_filled)
    await lamps.press(13)
    await eventually(lamps.is_filled)

    status = await lamps.status()
    assert status is not None
    assert (25, 0, None, False) == (status.entries, status.failures, status.error, status.stopped)


async def test_kinds_are_passed_over(lamps: Lamps) -> None:
    await lamps.press(3)
    for number in range(3):
        await lamps.runtime.create(f"torch/{number}")
    lamps.runtime.projection("counts", kinds=["lamp"])(counting())
    await eventually(lamps.is_filled)


async def test_a_projection_continues_in_another_runtime(lamps: Lamps) -> None:
    await lamps.press(7)
    url = f"sqlite:///{lamps.path}"
    charts = [interlock.loads(LAMP.format(kind="lamp"))]
    async with interlock.open(url, charts=charts, work=False) as first:
        first.projection("counts", batch=2)(counting())
        await eventually(lamps.is_filled)
    await lamps.press(8)
    async with interlock.open(url, charts=charts, work=False) as second:
        second.projection("counts", batch=2)(counting())
        await eventually(lamps.is_filled)


async def test_a_rebuild_is_a_second_name(lamps: Lamps) -> None:
    await lamps.press(10)
    lamps.runtime.projection("counts")(counting())
    await eventually(lamps.is_filled)
    _create(lamps.path, "lamp_versions_2")
    lamps.runtime.projection("counts 2")(counting("lamp_versions_2"))
    await lamps.press(5)
    await eventually(lambda: lamps.is_filled("lamp_versions_2"))
    await eventually(lamps.is_filled)


async def test_an_error_undoes_the_batch_and_the_same_entries_come_again(lamps: Lamps) -> None:
    await lamps.press(10)
    failures = iter(range(3))

    def project(connection: sqlite3.Connection, entries: Sequence[FeedEntry]) -> None:
        counting()(connection, entries)
        if next(failures, None) is not None:
            raise ValueError("not now")

    lamps.runtime.projection("counts", batch=4)(project)
    await eventually(lamps.is_filled)
    status = await lamps.status()
    assert status is not None
    assert (10, 0, None) == (status.entries, status.failures, status.error)


async def test_a_projection_that_fails_again_and_again_stops_and_says_why(
    lamps: Lamps, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(projection, "FAILURES_MAX", 3)
    await lamps.press(2)
    calls: list[int] = []

    def project(connection: sqlite3.Connection, entries: Sequence[FeedEntry]) -> None:
        calls.append(len(entries))
        counting()(connection, entries)
        raise ValueError("a bad entry")

    lamps.runtime.projection("counts")(project)

    async def has_stopped() -> bool:
        status = await lamps.status()
        return status is not None and status.stopped

    await eventually(has_stopped)
    status = await lamps.status()
    assert status is not None
    assert ([2, 2, 2], 3, None, 0) == (calls, status.failures, status.cursor, status.entries)
    assert "a bad entry" in (status.error or "")
    assert {} == lamps.rows()


async def test_a_late_runner_writes_nothing(lamps: Lamps) -> None:
    """Its lease was lost while it read the entries: the position has moved."""
    await lamps.press(6)
    store: Any = lamps.runtime.store
    page = await store.feed(None, limit=3)
    assert await store.projections.project("counts", counting(), page.entries, before=None, after=page.after)
    before = lamps.rows()
    assert not await store.projections.project("counts", counting(), page.entries, before=None, after=page.after)
    assert before == lamps.rows()


async def test_two_runners_of_one_name_take_each_entry_once(lamps: Lamps) -> None:
    url = f"sqlite:///{lamps.path}"
    async with interlock.open(url, charts=[interlock.loads(LAMP.format(kind="lamp"))], work=False) as other:
        for each in (lamps.runtime, other):
            each.projection("counts", batch=2)(counting())
        await lamps.press(20)
        await eventually(lamps.is_filled)


async def test_a_projection_that_commits_fails(lamps: Lamps, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(projection, "FAILURES_MAX", 1)
    await lamps.press(1)

    def project(connection: sqlite3.Connection, _: Sequence[FeedEntry]) -> None:
        connection.commit()

    lamps.runtime.projection("counts")(project)

    async def has_stopped() -> bool:
        status = await lamps.status()
        return status is not None and status.stopped and "transaction" in (status.error or "")

    await eventually(has_stopped)


async def _coroutine(connection: Any, entries: Any) -> None:
    """A projector of the wrong form."""


@pytest.mark.parametrize(
    ("name", "options", "projector", "code"),
    [
        ("", {}, counting(), "projection.name"),
        ("a\nb", {}, counting(), "projection.name"),
        ("x" * 101, {}, counting(), "projection.name"),
        (5, {}, counting(), "projection.name"),
        ("counts", {"batch": 0}, counting(), "projection.batch"),
        ("counts", {"batch": 10_001}, counting(), "projection.batch"),
        ("counts", {"kinds": "lamp"}, counting(), "feed.kinds"),
        ("counts", {}, _coroutine, "projection.function"),
        ("counts", {}, "text", "projection.function"),
    ],
)
async def test_a_wrong_registration_is_refused(
    lamps: Lamps, name: Any, options: dict[str, Any], projector: Any, code: str
) -> None:
    with pytest.raises(UsageError) as raised:
        lamps.runtime.projection(name, **options)(projector)
    assert code == raised.value.code


async def test_a_name_is_registered_once(lamps: Lamps) -> None:
    lamps.runtime.projection("counts")(counting())
    with pytest.raises(UsageError) as raised:
        lamps.runtime.projection("counts")(counting())
    assert "projection.twice" == raised.value.code


@pytest.mark.parametrize("url", ["memory:", "file:{folder}/lamps"])
async def test_a_store_without_projections_refuses(url: str, tmp_path: Path) -> None:
    chart = interlock.loads(LAMP.format(kind="lamp"))
    async with interlock.open(url.format(folder=tmp_path), charts=[chart]) as runtime:
        with pytest.raises(UsageError) as raised:
            runtime.projection("counts")(counting())
        assert "projection.unsupported" == raised.value.code


async def test_a_blocking_runtime_runs_projections(tmp_path: Path) -> None:
    path = tmp_path / "lamps.db"

    def use() -> None:
        with interlock.connect(f"sqlite:///{path}", charts=[interlock.loads(LAMP.format(kind="lamp"))]) as lamps:
            _create(path, "lamp_versions")
            lamps.create("lamp/1")
            lamps.projection("counts")(counting())
            for each in lamps.feed():
                lamps.send("lamp/1", "press")
                if any(status.entries >= 2 for status in lamps.projections()) or each.entry.version > 10_000:
                    break

    await asyncio.to_thread(use)
    with closing(sqlite3.connect(path)) as connection:
        ((version, entries),) = connection.execute("SELECT version, entries FROM lamp_versions").fetchall()
    assert version == entries >= 2

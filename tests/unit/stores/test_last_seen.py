"""What a store says about when states, events and timers of a kind were last seen."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

import interlock
from interlock.model.audit import AuditRow
from interlock.model.event import Event
from interlock.model.limits import SEEN_DAYS, SEEN_NAMES_MAX
from interlock.ports.reading.statistics import DAY_MS, OTHER_NAMES
from interlock.ports.store import Store
from interlock.runtime.runtime import Runtime
from interlock.stores.sql.statistics import last_seen, write_statistics
from interlock.stores.sqlite.connection import open_writer, run_questions
from interlock.stores.sqlite.statements import STATEMENTS
from interlock.stores.statistics_buffer import StatisticsBuffer
from interlock.testing.clock import VirtualClock
from tests.support.eventually import eventually
from tests.support.old_stores import return_sqlite_to_schema

BELL = """
interlock: 1
kind: bell
events: {ring: {}, mute: {}, lost: {}}
states:
  quiet:
    on: {ring: loud}
  loud:
    initial: first
    after: {1m: quiet}
    states:
      first: {on: {mute: second}}
      second: {}
"""

START_MS = 20_000 * DAY_MS

Seen = dict[tuple[str, str], tuple[int, int, int]]
"""First day, count and last time, by what was seen."""


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of an empty store."""
    return "memory:" if request.param == "memory" else f"sqlite:///{tmp_path}/bells.db"


@asynccontextmanager
async def bells(url: str, clock: VirtualClock, *, work: bool = True) -> AsyncIterator[Runtime]:
    """A runtime for bells on a store."""
    async with interlock.open(url, charts=[interlock.loads(BELL)], clock=clock, work=work) as runtime:
        yield runtime


async def seen_of(store: Store, *, total: int, kind: str = "bell") -> Seen:
    """What a store has seen of a kind, once so much is written."""
    statistics = store.statistics
    assert statistics is not None

    async def written() -> Seen | None:
        rows = await statistics.last_seen(kind)
        assert [(each.what, each.name) for each in rows] == sorted((each.what, each.name) for each in rows)
        if sum(each.count for each in rows) < total:
            return None
        return {(each.what, each.name): (each.first_day_ms, each.count, each.last_ms) for each in rows}

    found: Seen = await eventually(written, "the statistics of the store")
    return found


async def test_states_events_refusals_and_timers_are_seen(url: str) -> None:
    clock = VirtualClock(START_MS)
    async with bells(url, clock) as runtime:
        await runtime.create("bell/1")
        await runtime.create("bell/2")
        await runtime.send("bell/1", "ring")
        await clock.advance(60_000)
        await eventually(lambda: _is_quiet(runtime))
        rung_ms = clock.now_ms()
        await clock.advance(DAY_MS)
        for _ in range(2):
            await runtime.send("bell/2", "lost")
        await runtime.send("bell/2", "ring")
        await runtime.send("bell/2", "mute")
        found = await seen_of(runtime.store, total=13)

    last_ms = START_MS + 60_000 + DAY_MS
    (timer,) = [name for what, name in found if what == "timer"]
    assert timer.startswith("after.")
    assert found == {
        ("state", "quiet"): (START_MS, 3, rung_ms),
        ("state", "loud"): (START_MS, 2, last_ms),
        ("state", "loud.first"): (START_MS, 2, last_ms),
        ("state", "loud.second"): (START_MS + DAY_MS, 1, last_ms),
        ("event", "ring"): (START_MS, 2, last_ms),
        ("event", "mute"): (START_MS + DAY_MS, 1, last_ms),
        ("refused", "lost"): (START_MS + DAY_MS, 2, last_ms),
        ("timer", timer): (START_MS, 1, rung_ms),
    }


async def _is_quiet(runtime: Runtime) -> bool:
    return (await runtime.state("bell/1")).configuration == ("quiet",)


async def test_what_a_closed_store_has_seen_is_kept(tmp_path: Path) -> None:
    clock, url = VirtualClock(START_MS), f"sqlite:///{tmp_path}/bells.db"
    for day in range(2):
        clock.time_ms = START_MS + day * DAY_MS
        async with bells(url, clock, work=False) as runtime:
            await runtime.create(f"bell/{day}")
    async with bells(url, clock, work=False) as runtime:
        assert runtime.store.statistics is not None
        found = await runtime.store.statistics.last_seen("bell")
        other = await runtime.store.statistics.last_seen("gong")

    assert [("quiet", START_MS, 2, START_MS + DAY_MS)] == [
        (each.name, each.first_day_ms, each.count, each.last_ms) for each in found
    ]
    assert () == other


# The tables of a SQL store, over more days and names than a runtime would step through


def ring(buffer: StatisticsBuffer, day: int, name: str = "ring") -> None:
    """Note an event on a day."""
    buffer.count_step("bell", (), (), Event(name, time_ms=START_MS + day * DAY_MS))


def written(path: Path, *buffers: StatisticsBuffer) -> Seen:
    """What a store says after these buffers were written to it, one after the other."""
    with closing(open_writer(path)) as connection:
        for each in buffers:
            run_questions(connection, write_statistics(STATEMENTS, "", each))
        rows = run_questions(connection, last_seen(STATEMENTS, "", "bell"))
    return {(each.what, each.name): (each.first_day_ms, each.count, each.last_ms) for each in rows}


def test_days_that_are_too_old_are_forgotten_but_never_the_last(tmp_path: Path) -> None:
    buffers = [StatisticsBuffer() for _ in range(3)]
    for day in (0, 1):
        ring(buffers[0], day)
        ring(buffers[0], day, "old")
    ring(buffers[1], SEEN_DAYS + 1)
    ring(buffers[2], SEEN_DAYS + 2)
    found = written(tmp_path / "bells.db", *buffers)

    assert {
        ("event", "ring"): (START_MS + (SEEN_DAYS + 1) * DAY_MS, 2, START_MS + (SEEN_DAYS + 2) * DAY_MS),
        ("event", "old"): (START_MS + DAY_MS, 1, START_MS + DAY_MS),
    } == found


def test_a_store_in_memory_forgets_the_same_days() -> None:
    buffer = StatisticsBuffer()
    for day in (0, 1):
        ring(buffer, day)
        ring(buffer, day, "old")
    ring(buffer, SEEN_DAYS + 2)
    first = {each.name: (each.first_day_ms, each.count) for each in buffer.last_seen("bell")}

    assert {"ring": (START_MS + (SEEN_DAYS + 2) * DAY_MS, 1), "old": (START_MS + DAY_MS, 1)} == first
    assert () == buffer.last_seen("gong")


def test_names_that_senders_invent_do_not_fill_the_store(tmp_path: Path) -> None:
    """Names that are known are counted under their names; further ones together, in the buffer and in the store."""
    buffers = [StatisticsBuffer() for _ in range(3)]
    ring(buffers[0], 0)
    for number in range(SEEN_NAMES_MAX - 1):
        ring(buffers[1], 0, f"x{number}")
    for number in range(SEEN_NAMES_MAX + 50):
        ring(buffers[2], 1, f"y{number}")
    buffers[2].count_refusal(AuditRow("bell/1", "ring", "rejected", "guard", START_MS))
    found = written(tmp_path / "bells.db", *buffers)

    events = {name: each for (what, name), each in found.items() if what == "event"}
    assert SEEN_NAMES_MAX + 1 == len(events)
    assert (START_MS + DAY_MS, SEEN_NAMES_MAX + 50, START_MS + DAY_MS) == events[OTHER_NAMES]
    assert (START_MS, 1, START_MS) == events["ring"] == found["refused", "ring"]


def test_counts_of_two_processes_add_up_and_the_later_time_wins(tmp_path: Path) -> None:
    one, other = StatisticsBuffer(), StatisticsBuffer()
    ring(other, 0)
    one.count_step("bell", (), (), Event("ring", time_ms=START_MS + 5_000))
    found = written(tmp_path / "bells.db", one, other)

    assert {("event", "ring"): (START_MS, 2, START_MS + 5_000)} == found


def test_days_after_a_corrected_clock_are_forgotten() -> None:
    buffer = StatisticsBuffer()
    ring(buffer, 0)
    ring(buffer, 30)
    buffer.forget_after(START_MS + DAY_MS)

    assert [START_MS] == [place.day_ms for place in buffer.seen]


def test_an_upgraded_store_has_seen_nothing_yet(tmp_path: Path) -> None:
    path = tmp_path / "bells.db"
    open_writer(path).close()
    return_sqlite_to_schema(path, 10)
    found = written(path)
    with closing(sqlite3.connect(path)) as connection:
        (count,) = connection.execute("SELECT count(*) FROM seen").fetchone()

    assert ({}, 0) == (found, count)

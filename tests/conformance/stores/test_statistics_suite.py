"""The statistics suite on every store that has statistics, and on a migrated database of an earlier release."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from interlock.ports.reading.statistics import StateCount
from interlock.ports.reading.visible_names import visible_names
from interlock.ports.store import Append, EntityQuery
from interlock.stores import memory
from interlock.stores.postgres.opening import open_store as open_postgres
from interlock.stores.sql import commit_plan
from interlock.stores.sqlite import store as sqlite
from interlock.stores.sqlite.connection import open_writer
from interlock.testing.store_suite.samples import SampleEntity
from interlock.testing.store_suite.subject import append_all, list_all
from interlock.testing.store_suite.suite import Case, StoreSubject, statistics_cases
from tests.conformance.stores.test_store_suite import opened_postgres
from tests.support.old_stores import return_postgres_to_schema, return_sqlite_to_schema
from tests.support.postgres_server import asked, store_or_skip


def _named(case: Case) -> str:
    return getattr(case, "__name__", repr(case))


@pytest.mark.parametrize("case", statistics_cases(), ids=_named)
async def test_the_memory_store_is_seen(case: Case) -> None:
    await case(StoreSubject(open=partial(memory.open_store, "memory:")))


@pytest.mark.parametrize("case", statistics_cases(), ids=_named)
async def test_the_sqlite_store_is_seen(case: Case, tmp_path: Path) -> None:
    await case(StoreSubject(open=partial(sqlite.open_store, f"sqlite:///{tmp_path}/x.db")))


@pytest.mark.parametrize("case", statistics_cases(), ids=_named)
async def test_the_postgres_store_is_seen(case: Case) -> None:
    await case(StoreSubject(open=partial(opened_postgres, store_or_skip())))


async def test_a_store_that_cannot_be_seen_fails_the_suite() -> None:
    class Narrow(memory.MemoryStore):
        statistics = None  # type: ignore[assignment]  # the point

    with pytest.raises(AssertionError, match="has no counters"):
        await statistics_cases()[0](StoreSubject(open=Narrow))


class KeepsTheEnded(memory.MemoryStore):
    """Counts ended entities in their last state."""

    async def append(self, append: Append) -> Any:
        answer = await super().append(append)
        life = self._entities[append.entity]
        life.entered_ms = dict.fromkeys(append.states, append.entry.event.time_ms)
        return answer


class ForgetsTheEnded(memory.MemoryStore):
    """Does not count ended entities."""

    async def append(self, append: Append) -> Any:
        answer = await super().append(append)
        if append.snapshot.ended == "cancelled":
            self._entities[append.entity].entered_ms = {}
        return answer


class KeepsTheTags(memory.MemoryStore):
    """Lists ended entities by the tags of their last states."""

    async def append(self, append: Append) -> Any:
        answer = await super().append(append)
        self._entities[append.entity].tags = append.tags
        return answer


class MovesTheEnded(memory.MemoryStore):
    """Counts each event of an ended entity as its end."""

    async def append(self, append: Append) -> Any:
        answer = await super().append(append)
        if append.snapshot.ended == "cancelled":
            self._entities[append.entity].entered_ms = {":cancelled": append.entry.event.time_ms}
        return answer


class CallsAllCancelled(memory.MemoryStore):
    """Counts failed entities as cancelled."""

    async def count_states(self, kind: str) -> tuple[StateCount, ...]:
        found = await super().count_states(kind)
        return tuple(
            StateCount(each.revision, each.state.replace("failed", "cancelled"), each.entities) for each in found
        )


class ShowsOthersTheTruth(memory.MemoryStore):
    """Lists entities for others where they are."""

    async def append(self, append: Append) -> Any:
        others = visible_names(append.states, append.tags) if append.others else ()
        return await super().append(replace(append, others=others))


class MovesInTheListsOfOthers(memory.MemoryStore):
    """Each step moves an entity in the lists for others."""

    async def append(self, append: Append) -> Any:
        answer = await super().append(append)
        times = self._entities[append.entity].entered_ms
        times.update(dict.fromkeys(append.others, append.entry.event.time_ms))
        return answer


FAULTY = (
    KeepsTheEnded,
    ForgetsTheEnded,
    KeepsTheTags,
    MovesTheEnded,
    CallsAllCancelled,
    ShowsOthersTheTruth,
    MovesInTheListsOfOthers,
)


@pytest.mark.parametrize("faulty", FAULTY)
async def test_the_suite_finds_the_fault(faulty: type[memory.MemoryStore]) -> None:
    found = []
    for case in statistics_cases():
        try:
            await case(StoreSubject(open=faulty))
        except AssertionError:
            found.append(_named(case))

    assert [] != found


# Databases of an earlier release

Reopen = Callable[[], Any]


def _as_before(append: Append) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return where an entity was listed before ended entities had a separate state."""
    return append.states, append.tags


@pytest.fixture(params=["sqlite", "postgres"])
async def old(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Reopen]:
    """Open a store first as the release before, with its schema and lists, then as this release."""
    last = 6 if request.param == "sqlite" else 3
    url = f"sqlite:///{tmp_path}/x.db" if request.param == "sqlite" else store_or_skip()
    monkeypatch.setattr(commit_plan, "listed_under", _as_before)
    opened: list[Any] = []

    async def opening() -> Any:
        if opened:
            await opened[-1].close()
            monkeypatch.undo()
            if request.param == "sqlite":
                return_sqlite_to_schema(tmp_path / "x.db", last)
            else:
                await return_postgres_to_schema(url, last)
        opened.append(sqlite.open_store(url) if request.param == "sqlite" else await open_postgres(url))
        return opened[-1]

    yield opening
    await opened[-1].close()


async def _lived(store: Any, lives: list[SampleEntity]) -> None:
    """Some who are cancelled, one at its very last change, others who are done or live, on two revisions."""
    for number, sample in enumerate(lives):
        await append_all(store, sample.create(), sample.step("shipped", key="s"))
        if number % 3 == 0:
            await append_all(
                store, sample.step(key="n", after_ms=70), sample.cancel(key="off", after_ms=0 if number else 30)
            )
        if number % 3 == 1:
            await append_all(store, sample.step("delivered", key="d"))


def _lives() -> list[SampleEntity]:
    return [SampleEntity(f"parcel/{n}", revision="2.0.0" if n % 2 else "1.0.0", time_ms=100 + n) for n in range(8)]


async def test_a_database_of_an_earlier_release_tells_the_same_once_it_is_migrated(old: Reopen) -> None:
    """Counts, lists, tags and ages are those of a store that never was old; nothing differs from the journals."""
    reference = memory.MemoryStore()
    await _lived(reference, _lives())
    lives = _lives()
    await _lived(await old(), lives)
    store = await old()

    assert await reference.count_states("parcel") == tuple(sorted(await store.count_states("parcel"), key=_place))
    for query in (
        EntityQuery(kind="parcel"),
        *(
            EntityQuery(kind="parcel", state=each)
            for each in ("moving", "moving.road", "delivered", ":cancelled", "packed")
        ),
        EntityQuery(kind="parcel", tag="outside"),
        EntityQuery(kind="parcel", prefix="3"),
    ):
        assert await list_all(reference, query) == await list_all(store, query), str(query)
    assert await reference.count_overdue("parcel", "moving", before_ms=10**9) == await store.count_overdue(
        "parcel", "moving", before_ms=10**9
    )
    assert () == await store.differences()
    assert [()] * len(lives) == [await store.differences(each.entity) for each in lives]


async def test_entities_of_an_earlier_release_continue_after_migration(old: Reopen) -> None:
    lives = _lives()
    await _lived(await old(), lives)
    store = await old()
    await append_all(store, lives[2].step("boarded", key="b"), lives[5].cancel(key="off"))
    counts: dict[str, int] = {}
    for each in await store.count_states("parcel"):
        counts[each.state] = counts.get(each.state, 0) + each.entities

    assert {":cancelled": 4, "delivered": 3, "moving": 1, "moving.sea": 1} == counts
    assert () == await store.differences()


async def test_a_database_in_which_nobody_was_cancelled_stays_as_it_was(old: Reopen) -> None:
    lives = [SampleEntity("parcel/1"), SampleEntity("letter/1")]
    before = await old()
    for sample in lives:
        await append_all(before, sample.create(), sample.step("shipped", key="s"))
    counts = await before.count_states("parcel")
    store = await old()

    assert counts == await store.count_states("parcel")
    assert () == await store.differences()


def test_a_file_keeps_nothing_that_the_migration_put_aside(tmp_path: Path) -> None:
    connection = open_writer(tmp_path / "x.db")
    try:
        tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    finally:
        connection.close()

    assert (True, set()) == ("entity_state" in tables, tables & {"entity_ended", "entity_stood"})


async def test_a_server_keeps_nothing_that_the_migration_put_aside() -> None:
    url = store_or_skip()
    await (await open_postgres(url)).close()
    tables = {row[0] for row in asked(url, "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()")}

    assert (True, set()) == ("entity_state" in tables, tables & {"entity_ended", "entity_stood"})


def _place(count: StateCount) -> tuple[str, str]:
    return count.revision, count.state

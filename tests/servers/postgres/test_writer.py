"""The commit queue of a PostgreSQL store: batches, their failures, and an answer for every caller."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import asyncpg  # type: ignore[import-untyped]  # it ships no types
import pytest
from msgspec.structs import replace

from interlock.errors import InterlockError, InternalError, UnavailableError, UsageError
from interlock.model.backoff import Backoff
from interlock.ports.store import Append, Appended, Conflict, Duplicate
from interlock.stores.postgres import writer
from interlock.stores.postgres.commit import (
    COMMIT_CREATIONS,
    COMMIT_STEP,
    COMMIT_STEP_WITH_LISTS,
    COMMIT_STEPS,
    COMMIT_STEPS_WITH_LISTS,
    SELECT_TIPS,
)
from interlock.stores.postgres.opening import open_store
from interlock.stores.postgres.store import PostgresStore
from interlock.testing.store_suite.samples import SampleEntity
from interlock.testing.store_suite.subject import append_all, journal, snapshot
from tests.support.eventually import eventually
from tests.support.postgres_server import asked, database_or_skip, private_server, store_or_skip


@pytest.fixture
def url() -> str:
    """The address of an empty store."""
    return store_or_skip()


@pytest.fixture
async def store(url: str) -> AsyncIterator[PostgresStore]:
    """A store, closed at the end."""
    opened = await open_store(url)
    yield opened
    await opened.close()


NAMES = {
    COMMIT_CREATIONS: "creations",
    COMMIT_STEP: "step",
    COMMIT_STEP_WITH_LISTS: "listed step",
    COMMIT_STEPS: "steps",
    COMMIT_STEPS_WITH_LISTS: "listed steps",
    SELECT_TIPS: "tips",
}


class Wire:
    """Records the statements of a store, and can break the connection before or after one is executed."""

    def __init__(self, store: PostgresStore) -> None:
        self.statements: list[str] = []
        self.before: Callable[[str], None] = lambda statement: None
        self.after: Callable[[str], None] = lambda statement: None
        link = store.database.connections().pool
        real = link.connection
        wire = self

        class Connection:
            """A connection whose statements are recorded."""

            def __init__(self, connection: Any) -> None:
                self.connection = connection

            async def fetch(self, statement: str, *values: Any) -> Any:
                if not re.search("kind_minute|state_dwell|seen|field_index", statement):  # now and then
                    wire.statements.append(NAMES.get(statement, statement))
                wire.before(statement)
                rows = await self.connection.fetch(statement, *values)
                wire.after(statement)
                return rows

            def __getattr__(self, name: str) -> Any:
                return getattr(self.connection, name)

        @asynccontextmanager
        async def connection() -> AsyncIterator[Any]:
            async with real() as found:
                yield Connection(found)

        link.connection = connection  # type: ignore[method-assign]  # the wire is tapped


def breaks(times: int) -> Callable[[str], None]:
    """Break the connection at the first writing statements."""
    left = [times]

    def lost(statement: str) -> None:
        if "INSERT" in statement and left[0] > 0:
            left[0] -= 1
            raise asyncpg.ConnectionDoesNotExistError("connection was closed in the middle of operation")

    return lost


async def born(store: PostgresStore, count: int) -> list[SampleEntity]:
    """So many entities, created together."""
    lives = [SampleEntity(f"parcel/{each}") for each in range(count)]
    await asyncio.gather(*(append_all(store, sample.create()) for sample in lives))
    return lives


async def together(store: PostgresStore, *appends: Append) -> list[Any]:
    """Return the answers to appends that are sent in one iteration of the event loop."""
    return await asyncio.gather(*map(store.append, appends), return_exceptions=True)


def kinds_of(answers: list[Any]) -> list[type]:
    """Return the class of each answer."""
    return [type(each) for each in answers]


# Batches


async def test_what_arrives_together_goes_in_one_statement(store: PostgresStore) -> None:
    """One statement for many, another, shorter one for a step alone; nothing else is asked."""
    await append_all(store, SampleEntity("parcel/first").create())  # the writer reads which fields have an index
    wire = Wire(store)
    lives = await born(store, 20)
    await together(store, *(sample.step(key="a") for sample in lives))
    await append_all(store, lives[0].step(key="b"))
    await append_all(store, lives[0].step("shipped", key="c"))

    assert ["creations", "steps", "step", "listed step"] == wire.statements


async def test_a_batch_is_what_arrived_during_the_flush_before(store: PostgresStore) -> None:
    lives = await born(store, 30)
    wire = Wire(store)
    tasks = []
    for sample in lives:
        tasks.append(asyncio.ensure_future(store.append(sample.step(key="a"))))
        await asyncio.sleep(0)
    assert {Appended} == set(kinds_of(await asyncio.gather(*tasks)))

    assert "step" == wire.statements[0]
    assert "steps" in wire.statements
    assert len(wire.statements) < 20


@pytest.mark.parametrize(("commit", "statements"), [("one", 6), ("group", 1)])
async def test_the_way_to_commit_can_be_fixed(url: str, commit: str, statements: int) -> None:
    store = await open_store(f"{url}&commit={commit}")
    lives = await born(store, 6)
    wire = Wire(store)
    await together(store, *(sample.step(key="a") for sample in lives))
    await append_all(store, lives[0].step(key="b"))
    await store.close()

    assert statements == len(wire.statements) - 1
    assert {"step" if commit == "one" else "steps"} == set(wire.statements)


async def test_a_batch_has_a_bound_in_bytes(store: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Large steps are spread over several statements, and one that is larger still goes alone."""
    monkeypatch.setattr(writer, "BATCH_BYTES_MAX", 20_000)
    lives = await born(store, 10)
    wire = Wire(store)
    answers = await together(store, *(sample.step("written", {"text": "x" * 4_000}, key="a") for sample in lives))

    assert {Appended} == set(kinds_of(answers))
    assert 5 == len(wire.statements)


async def test_steps_of_one_entity_wait_for_each_other(store: PostgresStore) -> None:
    """Sent in one turn, each builds on the one before; the other entities do not wait for them."""
    sample, other = await born(store, 2)
    wire = Wire(store)
    appends = [sample.step(key=f"k{each}") for each in range(5)]
    answers = await together(store, *appends, other.step(key="o"))

    assert [2, 3, 4, 5, 6, 2] == [each.version for each in answers]
    assert 5 == len(wire.statements)
    assert {} == store.database.connections().writer._behind


async def test_one_of_each_in_a_batch_gets_its_own_answer(store: PostgresStore) -> None:
    """Kept, known by its key, behind, ahead, not there, and there already: none takes another with it."""
    lives = await born(store, 6)
    behind, ahead = SampleEntity("parcel/1"), SampleEntity("parcel/2")
    behind.create(), ahead.create()
    await append_all(store, lives[0].step(key="a"), lives[1].step(key="a"))
    ahead.step(key="x")
    ghost = SampleEntity("parcel/ghost")
    ghost.create()
    answers = await together(
        store,
        lives[0].step(key="a"),
        behind.step(key="b"),
        ahead.step(key="b"),
        ghost.step(key="b"),
        SampleEntity("parcel/3").create("again"),
        SampleEntity("parcel/4").create(),
        lives[5].step(key="b"),
        SampleEntity("parcel/new").create(),
    )

    expected: list[Any] = [Duplicate(2), Conflict(2), Conflict(1), Conflict(0), Conflict(1), Duplicate(1)]
    assert expected == answers[:6]
    assert [Appended, Appended] == kinds_of(answers[6:])


async def test_a_step_that_cannot_be_written_is_found_and_fails_alone(store: PostgresStore) -> None:
    lives = await born(store, 32)
    appends = [sample.step(key="a") for sample in lives]
    for bad in (5, 20):
        event = replace(appends[bad].entry.event, time_ms=2**70)
        appends[bad] = replace(appends[bad], entry=replace(appends[bad].entry, event=event))
    answers = await together(store, *appends)

    assert {5, 20} == {n for n, each in enumerate(answers) if isinstance(each, InternalError)}
    assert 30 == sum(isinstance(each, Appended) for each in answers)
    assert str(2**70) not in str(answers[5])
    assert store.database.connections().writer.splits >= 5


async def test_an_entry_that_skips_a_version_is_refused(store: PostgresStore) -> None:
    """Entry n+1 follows version n; anything else is a mistake of the caller."""
    sample = SampleEntity("parcel/1")
    with pytest.raises(UsageError):
        await store.append(replace(sample.create(), expected=4))


# Lost connections


@pytest.mark.parametrize("count", [1, 8])
@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_connection_lost_in_the_middle_keeps_each_step_once(
    store: PostgresStore, when: str, count: int
) -> None:
    """Whether the statement was carried out or not, it is kept once and acknowledged as kept."""
    lives = await born(store, count)
    wire = Wire(store)
    setattr(wire, when, breaks(2))
    answers = await together(store, *(sample.step("shipped", key="a") for sample in lives))
    again = await together(store, *(sample.step(key="b") for sample in lives))

    assert {Appended} == set(kinds_of(answers)) == set(kinds_of(again))
    for sample in lives:
        assert ["born", "a", "b"] == [each.key for each in await journal(store, sample.entity)]


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_creation_in_doubt_is_kept_once(store: PostgresStore, when: str) -> None:
    wire = Wire(store)
    setattr(wire, when, breaks(1))
    answers = await together(store, *(SampleEntity(f"parcel/{each}").create() for each in range(3)))

    assert {Appended} == set(kinds_of(answers))
    assert 1 == len(await journal(store, "parcel/1"))


async def test_a_key_that_another_kept_meanwhile_is_a_duplicate(
    store: PostgresStore, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In doubt, a record under the same key that is not ours is not taken for ours."""
    monkeypatch.setattr(writer, "TRIES_MAX", 1_000)
    rival = await open_store(url)
    (sample,) = await born(store, 1)
    theirs = SampleEntity("parcel/0", time_ms=2_000)
    theirs.create()
    wire = Wire(store)
    wire.before = breaks(10**9)
    pending = asyncio.ensure_future(store.append(sample.step(key="same")))
    await eventually(lambda: bool(wire.statements))
    await append_all(rival, theirs.step(key="same", after_ms=99))
    wire.before = breaks(0)
    answer = await pending
    await rival.close()

    assert Duplicate(2) == answer
    assert 2 == len(await journal(store, "parcel/0"))


async def test_every_caller_is_answered_if_the_connection_stays_lost(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After some tries each caller hears that the store is not available; the same keys work later."""
    monkeypatch.setattr(writer, "RETRY", Backoff(1, 1))
    lives = await born(store, 4)
    appends = [sample.step(key="a") for sample in lives]
    wire = Wire(store)
    wire.after = breaks(10**9)
    lost = await together(store, *appends)
    wire.after = breaks(0)
    later = await together(store, *appends)

    assert {UnavailableError} == set(kinds_of(lost))
    assert len(lost) == len({id(each) for each in lost}), "each raises its own"
    assert [Duplicate(2)] * 4 == later


async def test_a_backend_that_is_ended_in_the_middle_of_a_batch_loses_nothing(store: PostgresStore, url: str) -> None:
    """The statement waits for a table; its server process is ended there; the batch is sent again and kept once."""
    lives = await born(store, 6)
    bare, _, options = url.partition("?")
    holder = await asyncpg.connect(bare, server_settings={"search_path": options.partition("=")[2]})
    transaction = holder.transaction()
    await transaction.start()
    await holder.execute("LOCK TABLE event_key IN SHARE MODE")
    pending = asyncio.ensure_future(together(store, *(sample.step(key="a") for sample in lives)))
    own = await holder.fetchval("SELECT pg_backend_pid()")
    blocked = "SELECT pid FROM pg_stat_activity WHERE $1 = ANY (pg_blocking_pids(pid))"
    victim = await eventually(lambda: holder.fetchval(blocked, own))
    ended = await holder.fetchval("SELECT pg_terminate_backend($1, 5000)", victim)
    await transaction.rollback()
    answers = await pending
    await holder.close()

    assert ended
    assert {Appended} == set(kinds_of(answers))
    assert [2] * 6 == [len(await journal(store, sample.entity)) for sample in lives]


async def test_a_locked_entity_is_tried_again(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "BUSY_MS_MAX", 600_000)
    store = await open_store(url)
    (sample,) = await born(store, 1)
    bare, _, options = url.partition("?")
    holder = await asyncpg.connect(bare, server_settings={"search_path": options.partition("=")[2]})
    transaction = holder.transaction()
    await transaction.start()
    await holder.execute("SELECT FROM entity FOR UPDATE")
    wire = Wire(store)
    pending = asyncio.ensure_future(store.append(sample.step(key="a")))
    await eventually(lambda: len(wire.statements) >= 4)
    await transaction.rollback()
    answer = await pending
    await holder.close()
    await store.close()

    assert isinstance(answer, Appended)
    assert ["step", "tips"] * 2 == wire.statements[:4]  # the tips show that nothing has changed


@pytest.mark.slow
async def test_a_server_that_restarts_is_over_when_it_is_over() -> None:
    """An immediate stop under load: who hears UnavailableError sends the same key again; nothing is lost or doubled."""
    with private_server() as server:
        store = await open_store(server.url())
        lives = await born(store, 8)
        appends = [[sample.step(key=f"k{each}") for each in range(30)] for sample in lives]
        half = asyncio.Event()

        async def insist(steps: list[Append]) -> None:
            for number, each in enumerate(steps):
                if number == 10:
                    half.set()
                while True:  # until the server is back
                    try:
                        answer = await store.append(each)
                    except UnavailableError:
                        await asyncio.sleep(0.01)
                        continue
                    assert answer.version == each.entry.version
                    break

        tasks = [asyncio.ensure_future(insist(steps)) for steps in appends]
        await half.wait()
        await asyncio.to_thread(server.stop, immediate=True)
        await asyncio.to_thread(server.start)
        await asyncio.gather(*tasks)
        for sample in lives:
            assert ["born", *(f"k{each}" for each in range(30))] == [
                each.key for each in await journal(store, sample.entity)
            ]
            assert sample.snapshot == await snapshot(store, sample.entity)
        await store.close()


# Together with others


@pytest.mark.slow
async def test_batches_that_overlap_never_wait_in_a_circle() -> None:
    """Four handles swap the same entities in any order: no deadlock, and every version is won once."""
    url = database_or_skip()
    seed = random.randrange(2**32)
    chance = random.Random(seed)
    stores = [await open_store(f"{url}?commit=group") for _ in range(4)]
    lives = await born(stores[0], 20)
    won = 0
    for _ in range(12):
        rivals = [[SampleEntity(sample.entity) for sample in lives] for _ in stores]
        batches = []
        for number, rival in enumerate(rivals):
            for sample, truth in zip(rival, lives, strict=True):
                sample.snapshot, sample.time_ms = truth.snapshot, truth.time_ms
            chance.shuffle(rival)
            batches.append([sample.step(key=f"{number}.{sample.time_ms}") for sample in rival])
        answers = await asyncio.gather(*(together(store, *batch) for store, batch in zip(stores, batches, strict=True)))
        won += sum(isinstance(each, Appended) for answer in answers for each in answer)
        winners = {sample.entity: sample for rival in rivals for sample in rival}
        for sample in lives:
            sample.snapshot, sample.time_ms = winners[sample.entity].snapshot, winners[sample.entity].time_ms
    for each in stores:
        await each.close()
    (deadlocks,) = asked(url, "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")[0]

    assert 12 * 20 == won, seed
    assert 0 == deadlocks, seed


async def test_a_database_that_was_put_back_breaks_no_chain(store: PostgresStore, url: str) -> None:
    """After a restore another process wrote another version 2: the version is the same and the head is not."""
    (sample,) = await born(store, 1)
    row = asked(url, "SELECT encode(snapshot, 'hex'), head, journal_bytes FROM entity")[0]
    await append_all(store, sample.step(key="lost"))
    asked(url, "DELETE FROM journal WHERE version = 2")
    asked(url, "DELETE FROM event_key WHERE version = 2")
    asked(
        url, f"UPDATE entity SET version = 1, snapshot = decode('{row[0]}', 'hex'), head = '{row[1]}',"
        f" journal_bytes = {row[2]}"
    )  # fmt: skip
    rival = await open_store(url)
    theirs = SampleEntity("parcel/0")
    theirs.create()
    await append_all(rival, theirs.step(key="theirs"))
    await rival.close()
    answer = await store.append(sample.step(key="mine"))

    assert isinstance(answer, Appended)
    assert ["born", "theirs", "mine"] == [each.key for each in await journal(store, "parcel/0")]


# Callers


async def test_a_full_queue_sends_writer_away(store: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> None:
    lives = await born(store, 5)
    monkeypatch.setattr(writer, "QUEUE_MAX", 3)
    answers = await together(store, *(sample.step(key="a") for sample in lives))
    later = await together(store, lives[3].step(key="b"))

    assert [Appended] * 3 + [UnavailableError] * 2 == kinds_of(answers)
    assert [Conflict(1)] == later
    assert 0 == store.database.connections().writer._waiting


async def test_a_cancelled_caller_does_not_undo_its_step(store: PostgresStore) -> None:
    """It went away while its batch was under way: its step is kept, and so are the others."""
    lives = await born(store, 3)
    wire = Wire(store)
    tasks = [asyncio.ensure_future(store.append(sample.step(key="a"))) for sample in lives]

    def leave(_: str) -> None:
        tasks[1].cancel()

    wire.before = leave
    answers = await asyncio.gather(*tasks, return_exceptions=True)
    await store.database.connections().writer.drain()

    assert [Appended, asyncio.CancelledError, Appended] == kinds_of(answers)
    assert [2, 2, 2] == [len(await journal(store, sample.entity)) for sample in lives]


async def test_a_caller_that_goes_before_its_batch_does_is_not_sent(store: PostgresStore) -> None:
    lives = await born(store, 3)
    tasks = [asyncio.ensure_future(store.append(sample.step(key="a"))) for sample in lives]
    await asyncio.sleep(0)
    tasks[1].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)

    assert [2, 1, 2] == [len(await journal(store, sample.entity)) for sample in lives]
    assert (0, {}) == (store.database.connections().writer._waiting, store.database.connections().writer._behind)


async def test_a_cancelled_reader_spoils_no_connection(store: PostgresStore) -> None:
    await born(store, 3)
    for _ in range(5):
        task = asyncio.ensure_future(store.read("parcel/1"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert ("parcel",) == await store.kinds()


async def test_every_caller_is_answered_after_an_exception_in_the_writer(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    lives = await born(store, 3)
    appends = [sample.step(key="a") for sample in lives]
    with monkeypatch.context() as patched:
        patched.setattr(writer, "values_of_steps", lambda *_, **__: 1 / 0)
        answers = await together(store, *appends)

    assert [InternalError] * 3 == kinds_of(answers)
    assert [Appended] * 3 == kinds_of(await together(store, *appends))


def test_waiting_callers_are_answered_if_the_event_loop_ends(url: str) -> None:
    seen: list[InterlockError] = []

    async def main() -> None:
        store = await open_store(url)
        waiting = store.database.connections().writer.submit(SampleEntity("parcel/1").create())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        (flight,) = store.database.connections().writer._commits
        flight.cancel()
        await asyncio.wait([waiting])
        error = waiting.exception()
        assert isinstance(error, InterlockError)
        seen.append(error)
        await store.close()

    asyncio.run(main())

    assert [UnavailableError] == kinds_of(seen)


async def test_one_connection_is_enough(url: str) -> None:
    store = await open_store(f"{url}&connections=1")
    lives = await born(store, 5)
    store.database.connections().writer._housekeeping_at = 0
    first = asyncio.ensure_future(together(store, *(sample.step(key="a") for sample in lives)))
    reads = [asyncio.ensure_future(store.read(sample.entity)) for sample in lives]
    await asyncio.sleep(0)
    second = await together(store, *(sample.step(key="b") for sample in lives))
    await asyncio.gather(*reads)
    await store.close()

    assert {Appended} == set(kinds_of(await first)) == set(kinds_of(second))


async def test_tips_have_a_bound(store: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "TIPS_MAX", 2)
    lives = await born(store, 5)
    wire = Wire(store)
    answers = await together(store, *(sample.step(key="a") for sample in lives))

    assert [Appended] * 5 == kinds_of(answers)
    assert ["tips", "steps"] == wire.statements
    assert 2 == len(store.database.connections().writer._tips)

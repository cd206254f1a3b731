"""The PostgreSQL store beyond the suite: refusals, corruption, forks and event loops."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from threading import Thread
from typing import Any

import asyncpg  # type: ignore[import-untyped]  # it ships no types
import pytest
from msgspec.structs import replace

from interlock.errors import (
    CorruptionError,
    NotFoundError,
    UnavailableError,
    UsageError,
)
from interlock.model.audit import AuditRow
from interlock.model.journal.record import decode_record
from interlock.ports.store import Appended, Conflict, EntityQuery
from interlock.stores.postgres.opening import open_store
from interlock.stores.postgres.store import PostgresStore
from interlock.stores.sql.schema import migrations
from interlock.testing.store_suite.samples import SampleEntity, kernel
from interlock.testing.store_suite.subject import append_all, journal, list_all, snapshot
from tests.support.eventually import PATIENCE_SECONDS
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


async def _some(store: PostgresStore, count: int = 3) -> SampleEntity:
    """One entity of some entries."""
    sample = SampleEntity("parcel/1")
    await append_all(store, sample.create(), *(sample.step(key=f"k{each}") for each in range(count - 1)))
    return sample


# The schema


async def test_many_may_open_a_new_database_at_once() -> None:
    url = database_or_skip()
    stores = await asyncio.gather(*(open_store(url) for _ in range(8)))
    for number, each in enumerate(stores):
        await append_all(each, SampleEntity(f"parcel/{number}").create())
        await each.close()

    numbers = [(each.number,) for each in migrations("postgres")]
    assert numbers == asked(url, "SELECT version FROM interlock.schema_version ORDER BY version")


async def test_a_newer_schema_is_refused(store: PostgresStore, url: str) -> None:
    asked(url, "INSERT INTO schema_version (version, name) VALUES (999, 'later')")
    with pytest.raises(UsageError, match="999") as raised:
        await open_store(url)

    assert "schema.newer" == raised.value.code


async def test_partitions_are_there_before_their_month(store: PostgresStore, url: str) -> None:
    """This month and three more; entries go into this month's, none into the one for everything else."""
    await _some(store)
    partitions = asked(url, "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = 'journal'::regclass")
    where = asked(url, "SELECT DISTINCT tableoid::regclass::text FROM journal")
    this = asked(url, "SELECT to_char(now() AT TIME ZONE 'UTC', '\"journal_\"YYYY_MM')")

    assert 5 == len(partitions)
    assert this == where
    assert [(0,)] == asked(url, "SELECT keep_partitions(3)")


async def test_a_month_without_a_partition_loses_nothing(store: PostgresStore, url: str) -> None:
    """Without its partition an entry goes into the one for everything else, and is read from there."""
    for (name,) in asked(url, "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = 'journal'::regclass"):
        if name != "journal_default":
            asked(url, f"DROP TABLE {name}")
    await _some(store)

    await (await open_store(url)).close()  # creates the partitions that do not overlap

    assert 3 == len(await journal(store, "parcel/1"))
    assert [(3,)] == asked(url, "SELECT count(*) FROM journal_default")
    assert [(4,)] == asked(url, "SELECT count(*) FROM pg_inherits WHERE inhparent = 'journal'::regclass")


async def test_a_user_that_may_only_write_rows_can_use_the_store() -> None:
    url = database_or_skip()
    await (await open_store(url)).close()
    name = url.rpartition("/")[2]
    months = (
        "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = 'interlock.journal'::regclass ORDER BY 1"
    )
    month = asked(url, months)[3][0]
    for statement in (
        f"CREATE ROLE {name} LOGIN PASSWORD 'guest'",
        f"GRANT USAGE ON SCHEMA interlock TO {name}",
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA interlock TO {name}",
        f"DROP TABLE {month}",
    ):
        asked(url, statement)
    store = await open_store(f"postgresql://{name}:guest@" + url.rpartition("@")[2])
    await _some(store)
    await store.append_audit((AuditRow("parcel/1", "noted", "denied", "roles", 1, actor="ada"),))
    await store.close()

    assert [(3, 1)] == asked(
        url, "SELECT (SELECT count(*) FROM interlock.journal), (SELECT count(*) FROM interlock.audit)"
    )


async def test_a_server_clock_set_back_hides_no_entry(store: PostgresStore, url: str) -> None:
    """An entry is never before the one before it on the server's clock, which bounds every read."""
    sample = await _some(store)
    asked(url, "UPDATE entity SET last_at = now() + interval '10 days'")
    await append_all(store, sample.step(key="after"), sample.step("shipped", key="later"))

    assert 5 == len(await journal(store, "parcel/1"))
    assert [(True,)] == asked(url, "SELECT min(at) > now() + interval '9 days' FROM journal WHERE version > 3")


async def test_tenants_do_not_see_each_other(url: str) -> None:
    first, second = [await open_store(f"{url}&tenant={each}") for each in "ab"]
    await append_all(first, SampleEntity("parcel/1").create())

    assert await second.load("parcel/1") is None
    assert () == await second.kinds()
    assert (1, 0) == (
        len(await list_all(first, EntityQuery(kind="parcel"))),
        len(await list_all(second, EntityQuery(kind="parcel"))),
    )
    await append_all(second, SampleEntity("parcel/1").create())
    assert 1 == len(await first.read("parcel/1"))
    await first.close()
    await second.close()


# Damage


DAMAGE = {
    "a byte of a record": "UPDATE journal SET record = overlay(record placing 'X' from 40) WHERE version = 2",
    "a record is gone": "DELETE FROM journal WHERE version = 2",
    "the last record is gone": "DELETE FROM journal WHERE version = 3",
    "two records swapped": "UPDATE journal SET version = 5 - version WHERE version IN (2, 3)",
    "another head": "UPDATE entity SET head = repeat('0', 32)",
    "a forged entry": "UPDATE journal SET"
    " record = convert_to(replace(convert_from(record, 'UTF8'), 'noted', 'notes'), 'UTF8') WHERE version = 3",
}


@pytest.mark.parametrize("damage", DAMAGE)
async def test_a_damaged_journal_is_noticed_when_read(store: PostgresStore, url: str, damage: str) -> None:
    await _some(store)
    asked(url, DAMAGE[damage])
    with pytest.raises(CorruptionError):
        await store.read("parcel/1")


async def test_a_missing_record_is_noticed_by_a_page_behind_it(store: PostgresStore, url: str) -> None:
    """The record that a page would follow must be there."""
    await _some(store)
    asked(url, "DELETE FROM journal WHERE version = 2")
    with pytest.raises(CorruptionError, match="missing"):
        await store.read("parcel/1", after=2)


@pytest.mark.parametrize("value", ["'{}'", "convert_to('{\"version\": 7}', 'UTF8')"])
async def test_a_damaged_snapshot_is_noticed_when_loaded(store: PostgresStore, url: str, value: str) -> None:
    await _some(store)
    asked(url, f"UPDATE entity SET snapshot = {value}")
    with pytest.raises(CorruptionError):
        await store.load("parcel/1")


async def test_a_snapshot_of_another_is_noticed_when_loaded(store: PostgresStore, url: str) -> None:
    await append_all(store, SampleEntity("parcel/1").create(), SampleEntity("parcel/2").create())
    asked(url, "UPDATE entity SET snapshot = (SELECT snapshot FROM entity WHERE id = '2') WHERE id = '1'")
    with pytest.raises(CorruptionError) as raised:
        await store.load("parcel/1")

    assert "snapshot.version" == raised.value.code


async def test_a_row_that_does_not_read_stops_its_list(store: PostgresStore, url: str) -> None:
    """What a list would show of it cannot be known."""
    await _some(store)
    asked(url, "UPDATE entity SET configuration = 'x'")
    with pytest.raises(CorruptionError):
        await store.find(EntityQuery(kind="parcel"))


@pytest.mark.parametrize("column", ["active", "tags"])
async def test_a_damaged_row_stops_its_own_entity_only(store: PostgresStore, url: str, column: str) -> None:
    lives = [SampleEntity(f"parcel/{each}") for each in range(4)]
    await append_all(store, *(sample.create() for sample in lives))
    await store.close()
    asked(url, f"UPDATE entity SET {column} = 'x' WHERE id = '2'")
    again = await open_store(url)
    answers = await asyncio.gather(*(again.append(sample.step(key="k")) for sample in lives), return_exceptions=True)
    await again.close()

    assert [Appended, Appended, CorruptionError, Appended] == [type(each) for each in answers]


# Counts, refusals, release


async def _counts(url: str) -> dict[tuple[str, str], int]:
    rows = asked(
        url, "SELECT revision, state, sum(entities)::bigint FROM state_count GROUP BY 1, 2 HAVING sum(entities) <> 0"
    )
    names = {kernel().chart.revision: "1.0.0"}
    return {
        (names.get(str(revision), str(revision).partition("+")[0]), str(state)): int(str(count))
        for revision, state, count in rows
    }


@pytest.mark.parametrize("together", [False, True])
async def test_counts_and_lists_follow_what_entities_leave_and_enter(
    store: PostgresStore, url: str, together: bool
) -> None:
    """Every active state is counted and listed, compounds too, alone and in batches."""
    lives = [SampleEntity(f"parcel/{each}") for each in range(5)]

    async def keep(appends: list[Any]) -> None:
        if together:
            await asyncio.gather(*(append_all(store, each) for each in appends))
        else:
            await append_all(store, *appends)

    await keep([sample.create() for sample in lives])
    await keep([sample.step("shipped", key="s") for sample in lives[1:]])
    await keep([sample.step("boarded", key="b") for sample in lives[2:]])
    await keep([sample.step("delivered", key="d") for sample in lives[4:]])
    active = asked(url, "SELECT state, count(*) FROM entity_state WHERE state <> '' GROUP BY 1 ORDER BY 1")
    tags = asked(url, "SELECT tag, count(*) FROM entity_tag GROUP BY 1 ORDER BY 1")

    expected = {"packed": 1, "moving": 3, "moving.road": 1, "moving.sea": 2, "delivered": 1}
    assert {("1.0.0", state): count for state, count in expected.items()} == await _counts(url)
    assert expected == dict(active)
    assert [("inside", 1), ("outside", 3), ("wet", 2)] == tags
    assert [(0,)] == asked(
        url, "SELECT count(*) FROM entity e JOIN entity_state s USING (tenant, kind, id)"
        " WHERE s.state = '' AND s.entered_ms <> e.entered_ms"
    )  # fmt: skip


async def test_counts_follow_a_change_of_revision(store: PostgresStore, url: str) -> None:
    sample = SampleEntity("parcel/1")
    await append_all(store, sample.create(), sample.step("shipped", key="s"))
    step = sample.step(key="n")
    await append_all(store, replace(step, snapshot=replace(step.snapshot, revision="2.0.0+x")))

    assert {("2.0.0", "moving"): 1, ("2.0.0", "moving.road"): 1} == await _counts(url)


async def test_a_row_that_cannot_be_written_takes_no_other_with_it(store: PostgresStore, url: str) -> None:
    good = AuditRow("parcel/1", "noted", "denied", "roles", 1, actor="ada")
    found = await asyncio.gather(
        *(store.append_audit((each,)) for each in (good, replace(good, time_ms=2**70), good)), return_exceptions=True
    )
    await store.close()

    assert [True, False, True] == [each is None for each in found]
    assert [(1,), (2,)] == asked(url, "SELECT sequence FROM audit ORDER BY sequence")


async def test_a_lost_server_is_an_error_for_every_sender_of_a_row() -> None:
    """No refusal is returned whose row may be lost, and no sender waits for it forever."""
    row = AuditRow("parcel/1", "noted", "denied", "roles", 1, actor="ada")
    with private_server() as server:
        store = await open_store(server.url())
        await store.append_audit((row,))
        server.stop(immediate=True)
        found = await asyncio.gather(*(store.append_audit((row,)) for _ in range(5)), return_exceptions=True)
        await store.close()

    assert [UnavailableError] * 5 == [type(each) for each in found]


async def test_rows_of_the_audit_are_never_changed_or_deleted(store: PostgresStore, url: str) -> None:
    """Not by the owner of the table, either; but a gate lets retention delete a range."""
    rows = tuple(AuditRow("parcel/1", "noted", "denied", "roles", each, actor="ada") for each in range(4))
    await store.append_audit(rows)
    for statement in ("UPDATE audit SET time_ms = 0", "DELETE FROM audit WHERE sequence = 3", "TRUNCATE audit"):
        with pytest.raises(asyncpg.RestrictViolationError):
            asked(url, statement)
    asked(url, "INSERT INTO audit_gate VALUES (1, '', 3)")
    asked(url, "DELETE FROM audit WHERE sequence < 3")
    with pytest.raises(asyncpg.RestrictViolationError):
        asked(url, "DELETE FROM audit WHERE sequence = 3")

    assert [(3,), (4,)] == asked(url, "SELECT sequence FROM audit ORDER BY sequence")


async def test_a_released_journal_names_its_archive(store: PostgresStore) -> None:
    sample = SampleEntity("parcel/1")
    await append_all(store, sample.create(), sample.step("shipped", key="s"))
    early = await store.release_journal("parcel/1", version=2, archive="file:///archive")
    end = sample.step("delivered", key="d")
    await append_all(store, end)
    other = await store.release_journal("parcel/1", version=2, archive="file:///archive")
    released = [await store.release_journal("parcel/1", version=3, archive=f"file:///archive{n}") for n in (1, 2)]
    with pytest.raises(NotFoundError) as raised:
        await store.read("parcel/1")
    with pytest.raises(NotFoundError):
        await store.read("parcel/1", after=1)

    assert store.journal_release is not None
    assert (False, False, [True, True]) == (early, other, released)
    assert ("journal.archived", True) == (raised.value.code, "file:///archive1" in str(raised.value))
    assert () == await store.read("parcel/1", after=3)
    assert sample.snapshot == await snapshot(store, "parcel/1")
    assert 3 == (await store.append(end)).version
    assert Conflict(3) == await store.append(SampleEntity("parcel/1").create("again"))
    assert not await store.release_journal("parcel/none", version=1, archive="file:///archive")


async def test_what_follows_a_released_journal_is_chained_to_it(store: PostgresStore, url: str) -> None:
    sample = SampleEntity("parcel/1")
    await append_all(store, sample.create(), sample.step("shipped", key="s"), sample.step("delivered", key="d"))
    before = await store.read("parcel/1")
    await store.release_journal("parcel/1", version=3, archive="file:///archive")
    rival = SampleEntity("parcel/1")
    rival.snapshot, rival.time_ms = replace(sample.snapshot, ended=None), sample.time_ms  # type: ignore[type-var]  # it is there
    await append_all(store, rival.step(key="late"))
    after = await store.read("parcel/1", after=3)

    assert ["late"] == [each.key for each in after]
    assert after[0] == decode_record(after[0].line, previous=before[-1].head, version=4)
    with pytest.raises(NotFoundError):
        await store.read("parcel/1", after=2)


@pytest.mark.parametrize(
    "query",
    [
        EntityQuery(kind="a\0"),
        EntityQuery(kind="\ud800"),
        EntityQuery(kind="parcel", entered_before_ms=2**70),
        EntityQuery(kind="parcel", tag="\0"),
        EntityQuery(kind="parcel", prefix="\0"),
    ],
)
async def test_a_question_that_cannot_be_asked_is_the_callers_mistake(query: EntityQuery, store: PostgresStore) -> None:
    with pytest.raises(UsageError):
        await store.find(query)

    assert () == await store.kinds()


@pytest.mark.parametrize("text", ["parcel/a\0b", "parcel/\ud800"])
async def test_what_no_text_holds_is_refused(store: PostgresStore, text: str) -> None:
    with pytest.raises(UsageError):
        await store.load(text)
    with pytest.raises(UsageError):
        await store.load("parcel/1", key=text)
    with pytest.raises(UsageError):
        await store.append(SampleEntity("parcel/1").create(key=text))


# Readers


@pytest.mark.parametrize(
    ("after", "limit", "versions"),
    [
        (0, 3, [1, 2, 3]),
        (2, 3, [3, 4, 5]),
        (6, 9, [7]),
        (7, 1, []),
        (2**70, 1, []),
        (-5, 1, [1]),
        (3, 0, []),
        (0, -1, []),
    ],
)
async def test_a_page_is_a_range_of_versions(store: PostgresStore, after: int, limit: int, versions: list[int]) -> None:
    await _some(store, 7)

    assert versions == [each.version for each in await store.read("parcel/1", after=after, limit=limit)]


async def test_a_reader_continues_after_all_connections_were_ended(store: PostgresStore, url: str) -> None:
    await _some(store)
    await asyncio.gather(*(store.kinds() for _ in range(5)))
    ended = asked(
        url,
        "SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity"
        " WHERE application_name = 'interlock' AND datname = current_database()",
    )

    assert ended[0][0] >= 1
    assert ("parcel",) == await store.kinds()
    assert 3 == len(await store.read("parcel/1"))


async def test_a_reader_gets_an_error_if_the_server_is_unavailable(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked_times = 0

    async def lost(connection: object) -> None:
        nonlocal asked_times
        asked_times += 1
        raise asyncpg.ConnectionDoesNotExistError("connection was closed in the middle of operation")

    with pytest.raises(UnavailableError):
        await store.database._read(lost)

    assert 2 == asked_times
    assert () == await store.kinds()


# Loops and processes


async def test_a_store_may_be_used_in_several_event_loops(store: PostgresStore) -> None:
    await _some(store)
    other = asyncio.new_event_loop()
    thread = Thread(target=other.run_forever)
    thread.start()

    async def elsewhere() -> int:
        await append_all(store, SampleEntity("parcel/2").create())
        return len(await store.read("parcel/1"))

    read = await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(elsewhere(), other))
    link = store.database.loops[other].pool
    connections = list(link._idle)
    await store.close()
    other.call_soon_threadsafe(other.stop)
    await asyncio.to_thread(thread.join)
    other.close()

    assert (3, 1) == (read, len(connections))
    assert connections[0].is_closed()


async def test_a_loop_that_is_gone_is_forgotten(store: PostgresStore) -> None:
    """Its connections are let go when another loop comes, and closing the store does not wait for it."""

    class Gone:
        """A connection of a closed event loop."""

        def terminate(self) -> None:
            raise RuntimeError("Event loop is closed")

    await _some(store)
    mine = store.database.connections()
    other = asyncio.new_event_loop()
    other.close()

    def leave() -> None:
        line = store.database.loops[other] = type(mine)(store.database.address, store.database.stays)
        line.pool.loop = other
        line.pool._idle.append(Gone())  # type: ignore[arg-type]  # it is one in all that matters

    leave()
    del store.database.loops[mine.pool.loop]
    read = await store.read("parcel/1")
    forgotten = other not in store.database.loops
    leave()
    await store.close()
    await mine.close()

    assert (3, True) == (len(read), forgotten)
    assert {} == store.database.loops


FORKED = """
import asyncio, os, sys
from interlock.errors import UsageError
from interlock.stores.postgres.opening import open_store

async def main(url):
    store = await open_store(url)
    await store.kinds()
    child = os.fork()
    if child == 0:
        async def used():
            try:
                await store.kinds()
            except UsageError as error:
                os._exit(0 if error.code == "store.forked" else 1)
            os._exit(2)
        asyncio._set_running_loop(None)
        asyncio.new_event_loop().run_until_complete(used())
    ending = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    await store.kinds()
    await store.close()
    return ending

sys.exit(asyncio.run(main(sys.argv[1])))
"""


def test_a_forked_process_must_open_its_own_store(url: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORKED, url], check=False, capture_output=True, timeout=PATIENCE_SECONDS
    )

    assert (0, b"") == (done.returncode, done.stderr)


INHERITED = """
import gc, os, sys, threading
import interlock

chart = interlock.loads("interlock: 1\\nkind: door\\ninitial: open\\nstates: {open: {on: {push: {}}}}")
doors = interlock.open(sys.argv[1], charts=[chart], work=False).__enter__()
doors.create("door/1")
is_over = threading.Event()

def push():
    while not is_over.is_set():
        doors.send("door/1", "push")

pushing = threading.Thread(target=push)
pushing.start()
endings = []
for way in ("collected", "exits", "own"):
    child = os.fork()
    if child == 0:
        doors.close()
        if way == "own":
            with interlock.open(sys.argv[1], charts=[chart], work=False) as own:
                own.send("door/1", "push")
        del doors, pushing
        gc.collect()
        if way == "collected":
            os._exit(0)
        sys.exit(0)
    endings.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    for number in range(20):
        doors.send("door/1", "push")
is_over.set()
pushing.join()
doors.close()
print(endings, flush=True)
"""


def test_a_parent_continues_while_its_children_exit_or_open_their_own(url: str) -> None:
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", INHERITED, url]
    done = subprocess.run(command, check=False, capture_output=True, text=True)

    assert (0, "[0, 0, 0]\n", "") == (done.returncode, done.stdout, done.stderr)


DROPPED = """
import asyncio, gc, os, sys
from interlock.stores.postgres.opening import open_store

async def session(store):
    return await store.database.connections().pool.ask_with_retry(lambda each: each.fetchval("SELECT pg_backend_pid()"))

with asyncio.Runner() as runner:
    store = runner.run(open_store(sys.argv[1]))
    before = runner.run(session(store))
    child = os.fork()
    if child == 0:
        del store
        gc.collect()
        os._exit(0)
    os.waitpid(child, 0)
    after = runner.run(session(store))
    runner.run(store.close())
print(before == after)
"""


def test_a_child_that_drops_a_store_leaves_the_connections_of_its_parent_alone(url: str) -> None:
    """Finalizing one would take its socket out of the epoll instance that both share: the parent would hear nothing."""
    command = [sys.executable, "-W", "error", "-c", DROPPED, url]
    done = subprocess.run(command, check=False, capture_output=True, text=True)

    assert (0, "True\n", "") == (done.returncode, done.stdout, done.stderr)


def test_a_runtime_without_an_event_loop_works_too(url: str) -> None:
    """`with interlock.open(...)` has its own loop in a thread."""
    import interlock

    chart = interlock.loads("interlock: 1\nkind: door\ninitial: open\nstates: {open: {on: {shut: shut}}, shut: {}}")
    with interlock.open(url, charts=[chart]).blocking() as doors:
        doors.create("door/1")
        receipt = doors.send("door/1", "shut", key="k")
        again = doors.send("door/1", "shut", key="k")
        states = [row.configuration for row in doors.list(EntityQuery(kind="door")).rows]

    assert ("applied", "duplicate") == (receipt.outcome, again.outcome)
    assert [("shut",)] == states

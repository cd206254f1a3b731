"""The work queue of the file store: compared with other stores, and its journals, markers and one worker process."""

from __future__ import annotations

import errno
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from interlock.errors import CorruptionError, UnavailableError, UsageError
from interlock.model.journal.work import Lane, Work, WorkDelta, WorkId
from interlock.ports.store import Append, Appended, StaleAttempt
from interlock.ports.work import Claim, Settlement, WorkQuery, WorkRow
from interlock.stores.files.blocking_store import BlockingFileStore
from interlock.stores.files.durable_io import Settings
from interlock.stores.files.journal.line_formats import BLANKS, sign_line
from interlock.stores.files.names import JOURNAL, directory_name
from interlock.stores.files.work.dispatcher import MARKER_IDLE_MS, SCAN_MS, Dispatcher
from interlock.stores.work_table import WorkTable
from tests.conformance.stores.files_tables import FilesTable
from tests.conformance.stores.test_work_table import compare_tables
from tests.crash.life import ENTITY, opened, step
from tests.crash.simulated.file_system import Directory, File, Killed, Simulated, World

CHARGE = WorkId("effect", 1, 0)
PLAIN = Settings()


def charge(version: int = 1, **body: object) -> Work:
    """Work for a handler."""
    return Work(WorkId("effect", version, 0), "charge", body, 0)


def other(lane: Lane, version: int = 1, ordinal: int = 0) -> Work:
    """Work in another lane."""
    return Work(WorkId(lane, version, ordinal), lane, {}, 0)


def leaving(version: int, *works: Work, entity: str = ENTITY, **left: tuple[WorkId, ...]) -> Append:
    """An entry that creates work."""
    return replace(step(version, f"k{version}", entity=entity), work=WorkDelta(works, **left))


class Process:
    """One process of a store."""

    def __init__(self, world: World, number: int) -> None:
        self.fs = Simulated(world, process=number)
        self.journals: BlockingFileStore = opened(self.fs, PLAIN)
        self.dispatch: Dispatcher = self.journals.dispatcher()

    def take(self, lane: Lane = "effect", now_ms: int = 0) -> tuple[Claim, ...]:
        """Claim what is due."""
        return self.dispatch.claim(lane, None, owner="w", now_ms=now_ms, until_ms=now_ms + 30_000, limit=9)

    def rows(self) -> tuple[WorkRow, ...]:
        """All work that it lists."""
        return self.dispatch.list_work(WorkQuery()).rows


class Pair:
    """Two processes of one store: the first runs work."""

    def __init__(self) -> None:
        self.world = World()
        self.one, self.two = Process(self.world, 1), Process(self.world, 2)
        self.one.take()

    def markers(self) -> list[str]:
        """The names of the entities that have a marker."""
        number = self.world.found("store", "pending")
        node = None if number is None else self.world.nodes[number]
        assert isinstance(node, Directory)
        return sorted(node.cache)


def test_work_that_waited_and_then_expired_is_due_at_its_retry_time() -> None:
    """Not from its creation on."""
    tables = (WorkTable(), FilesTable())
    for table in tables:
        table.apply(ENTITY, WorkDelta((charge(),)))
        (claim,) = table.claim("effect", None, owner="w", now_ms=0, until_ms=7, limit=1)
        table.settle((Settlement(claim, "wait"),), now_ms=0)
        table.settle((Settlement(claim, "again", 5, without_failure=True),), now_ms=0)

    assert [5, 5] == [table.next_due_ms("effect", None) for table in tables]


@pytest.mark.slow
@given(st.data())
def test_memory_and_files_do_the_same(data: st.DataObject) -> None:
    """Created, claimed, renewed, settled, revived and deleted in any order."""
    compare_tables(data, WorkTable(), FilesTable())


def test_a_list_says_that_it_is_partial_while_a_takeover_is_in_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    """The new owner reads some entities at each poll. Before, it lists what the journals have: all of it."""
    monkeypatch.setattr("interlock.stores.files.work.dispatcher.POLLED_MAX", 1)
    pair = Pair()
    for number in range(2):
        pair.one.journals.append(leaving(1, charge(), entity=f"order/{number}"))
    pages = [pair.two.dispatch.list_work(WorkQuery())]
    pair.one.dispatch.close()
    for _ in range(2):
        pair.two.take(now_ms=-1)
        pages.append(pair.two.dispatch.list_work(WorkQuery()))

    assert [(2, False), (1, True), (2, False)] == [(len(each.rows), each.is_partial) for each in pages]


# What survives the one who performs


def test_attempts_failures_and_their_reason_survive() -> None:
    """The next process continues the count, and waits until the retry."""
    table = FilesTable()
    table.apply(ENTITY, WorkDelta((charge(),)))
    (claim,) = table.claim("effect", None, owner="w", now_ms=0, until_ms=9, limit=9)
    table.settle((Settlement(claim, "again", 500, error={"code": "busy"}),), now_ms=0)
    table.restart()

    assert () == table.claim("effect", None, owner="w", now_ms=499, until_ms=999, limit=9)
    (again,) = table.claim("effect", None, owner="w", now_ms=500, until_ms=999, limit=9)
    assert (2, 1) == (again.attempt, again.failures)
    assert {"code": "busy"} == table.list_work(WorkQuery()).rows[0].error


def test_claimed_work_of_a_dead_process_is_claimed_immediately_as_another_attempt() -> None:
    """There is no lease to wait for: the lock is free, so its holder is dead."""
    table = FilesTable()
    table.apply(ENTITY, WorkDelta((charge(), other("timer"), other("outbox"))))
    for lane in ("effect", "timer", "outbox"):
        assert table.claim(lane, None, owner="w", now_ms=0, until_ms=10**6, limit=9)
    table.restart()

    (effect,) = table.claim("effect", None, owner="w", now_ms=0, until_ms=9, limit=9)
    assert (2, 0) == (effect.attempt, effect.failures)
    assert table.claim("timer", None, owner="w", now_ms=0, until_ms=9, limit=9)
    assert table.claim("outbox", None, owner="w", now_ms=0, until_ms=9, limit=9)


def test_an_attempt_that_was_not_started_does_not_count_for_work_that_runs_once() -> None:
    """A worker without its chart releases it, and dies. Nothing was done."""
    table = FilesTable()
    table.apply(ENTITY, WorkDelta((charge(restore="fail"),)))
    (claim,) = table.claim("effect", None, owner="w", now_ms=0, until_ms=9, limit=9)
    table.settle((Settlement(claim, "again", 0, without_failure=True, started=False),), now_ms=0)
    table.restart()

    assert [1] == [each.attempt for each in table.claim("effect", None, owner="w", now_ms=0, until_ms=9, limit=9)]


def test_work_that_is_released_again_and_again_does_not_fill_the_journal() -> None:
    """A worker without its chart claims it every second, for days."""
    table = FilesTable()
    table.apply(ENTITY, WorkDelta((charge(),)))

    def put_back() -> int:
        (claim,) = table.claim("effect", None, owner="w", now_ms=0, until_ms=9, limit=9)
        error = {"code": "kind.unknown"}
        table.settle((Settlement(claim, "again", 0, without_failure=True, started=False, error=error),), now_ms=0)
        return len(_journal(table.world))

    put_back()

    assert put_back() == put_back()


def test_a_dead_letter_survives_and_can_be_revived() -> None:
    """From its first attempt, under its key, by the next process."""
    table = FilesTable()
    table.apply(ENTITY, WorkDelta((other("outbox"), other("outbox", 1, 1))))
    (claim,) = table.claim("outbox", None, owner="w", now_ms=0, until_ms=9, limit=9)
    table.settle((Settlement(claim, "dead", error="refused"),), now_ms=7)
    table.restart()

    (row,) = table.list_work(WorkQuery(dead=True)).rows
    assert (7, "refused") == (row.dead_ms, row.error)
    assert [1] == [
        each.work.id.ordinal for each in table.claim("outbox", None, owner="w", now_ms=0, until_ms=9, limit=9)
    ]
    assert table.requeue_dead_letter(ENTITY, claim.work.id, now_ms=8)
    table.restart()
    assert 2 == len(table.list_work(WorkQuery(dead=False)).rows)


def test_a_cancelled_step_of_a_saga_that_was_claimed_is_not_forgotten() -> None:
    """Its outcome must become known."""
    table = FilesTable()
    table.apply(ENTITY, WorkDelta((charge(late=True),)))
    table.claim("effect", None, owner="w", now_ms=0, until_ms=9, limit=9)
    table.apply(ENTITY, WorkDelta(cancelled=(CHARGE,)))
    table.restart()

    (again,) = table.claim("effect", None, owner="w", now_ms=0, until_ms=9, limit=9)
    assert (2, True) == (again.attempt, again.cancelled)


def test_work_that_waits_for_another_still_waits_after_a_restart() -> None:
    """A child that was started sends its result later."""
    table = FilesTable()
    table.apply(ENTITY, WorkDelta((charge(),)))
    (claim,) = table.claim("effect", None, owner="w", now_ms=0, until_ms=9, limit=9)
    table.settle((Settlement(claim, "wait"),), now_ms=0)
    table.restart()

    assert () == table.claim("effect", None, owner="w", now_ms=10**6, until_ms=10**7, limit=9)
    assert 1 == len(table.list_work(WorkQuery()).rows)


# One process performs


def test_one_process_runs_work_until_it_dies_and_then_the_next() -> None:
    """Other processes claim nothing."""
    pair = Pair()
    pair.two.journals.append(leaving(1, charge()))

    assert ((), None) == (pair.two.take(), pair.two.dispatch.next_due_ms("effect", None))
    assert [CHARGE] == [each.work.id for each in pair.one.take()]
    pair.one.fs.die()
    assert [2] == [each.attempt for each in pair.two.take()]


def test_work_of_another_process_is_found_at_the_next_poll() -> None:
    """Created, finished and cancelled work, by hints."""
    pair = Pair()
    pair.two.journals.append(leaving(1, charge(), other("timer")))
    (claim,) = pair.one.take()
    pair.two.journals.append(leaving(2, charge(2), cancelled=(CHARGE,), finished=(WorkId("timer", 1, 0),)))
    (renewed,) = pair.one.dispatch.renew((claim,), until_ms=50_000)

    assert renewed is not None
    assert renewed.cancelled
    assert ([2], ()) == ([each.work.id.version for each in pair.one.take()], pair.one.take("timer"))


def test_work_without_a_hint_is_found_by_the_next_scan() -> None:
    """Its writer died between the append and the hint."""
    pair = Pair()
    fs = pair.two.fs
    pair.two.journals.append(leaving(1, other("timer")))
    assert pair.one.take("timer")
    before = len(fs.calls)
    fs.watch = lambda name: kill(fs) if "fdatasync" in fs.calls[before:-1] else None
    with pytest.raises(Killed):
        pair.two.journals.append(leaving(2, charge(2)))

    assert () == pair.one.take(now_ms=SCAN_MS - 1)
    assert [2] == [each.work.id.version for each in pair.one.take(now_ms=SCAN_MS)]


def test_a_clock_that_goes_back_far_is_followed() -> None:
    """Scans and the removal of markers use the current time."""
    pair = Pair()
    pair.one.journals.append(leaving(1, other("outbox")))
    pair.one.dispatch.settle((Settlement(pair.one.take("outbox", now_ms=10**9)[0], "done"),), now_ms=10**9)
    leave_silently(pair.two, leaving(1, charge(), entity="order/2"))

    assert ["order/2"] == [each.entity for each in pair.one.take(now_ms=1)]
    pair.one.take(now_ms=1 + MARKER_IDLE_MS)
    assert ["order.2"] == pair.markers()


def test_a_scan_opens_no_journal_that_did_not_grow() -> None:
    """Opening a journal flushes it. One that grew without a hint is found."""
    world = World()
    fs = Simulated(world, process=1)
    journals = BlockingFileStore("store", fs, PLAIN, open_max=1, shard_digits=0)
    dispatch = journals.dispatcher()
    later = Work(WorkId("timer", 1, 0), "timer", {}, 10**9)
    for number in range(5):
        journals.append(leaving(1, later, entity=f"order/{number}"))

    def walk(number: int) -> tuple[int, list[str]]:
        before, now_ms = len(fs.calls), number * SCAN_MS
        claims = dispatch.claim("effect", None, owner="w", now_ms=now_ms, until_ms=10**9, limit=9)
        return sum("sync" in call for call in fs.calls[before:]), [each.entity for each in claims]

    first, second = walk(1), walk(2)
    leave_silently(Process(world, 2), leaving(2, charge(2), entity="order/3"))

    assert (True, [], (0, [])) == (first[0] > 5, first[1], second)
    assert ["order/3"] == walk(3)[1]


def test_hints_beyond_the_limit_are_dropped() -> None:
    """The process that runs work scans instead."""
    pair = Pair()
    number = pair.world.found("store", "changed")
    assert number is not None
    full = b"order.%41-1\n" * 100_000
    pair.world.nodes[number] = File(full, full, ())
    pair.two.journals.append(leaving(1, charge()))

    assert len(full) == len(_bytes(pair.world.nodes[number]))
    assert 1 == len(pair.one.take(now_ms=1))
    assert b"" == _bytes(pair.world.nodes[number])


def test_a_lock_of_hints_that_cannot_be_released_blocks_no_process() -> None:
    """It closes the descriptor: the hints of others are read, and its own next one too."""
    pair = Pair()
    fs = pair.two.fs
    pair.two.journals.append(leaving(1))
    before = len(fs.calls)
    fs.watch = lambda name: (
        fail(fs) if name == "unlock" and "write" == fs.calls[-2] and len(fs.calls) > before else None
    )
    pair.two.journals.append(leaving(2, charge(2)))

    assert "unlock" == fs.fired
    assert [2] == [each.work.id.version for each in pair.one.take()]
    fs.watch = None
    pair.two.journals.append(leaving(3, charge(3)))
    assert [3] == [each.work.id.version for each in pair.one.take()]


def test_a_process_that_runs_no_work_lists_retries_and_deletes_it() -> None:
    """An operator at a command line; the running worker gets a hint."""
    pair = Pair()
    pair.one.journals.append(leaving(1, charge(), charge(2)))
    claims = pair.one.take()
    pair.one.dispatch.settle(tuple(Settlement(each, "dead") for each in claims), now_ms=1)
    desk = pair.two.dispatch

    assert [1, 1] == [each.dead_ms for each in pair.two.rows()]
    assert (True, False) == (
        desk.requeue_dead_letter(ENTITY, CHARGE, now_ms=5),
        desk.requeue_dead_letter(ENTITY, CHARGE, now_ms=5),
    )
    assert (True, False) == (desk.delete_work(ENTITY, charge(2).id), desk.delete_work(ENTITY, charge(2).id))
    assert [CHARGE] == [each.work.id for each in pair.one.take(now_ms=5)]
    assert not desk.delete_work("order/nobody", CHARGE)


def test_a_listing_shows_what_the_next_worker_will_find() -> None:
    """After snapshots, in sealed segments and after marks; a listing flushes nothing."""
    table, seen = FilesTable(), tuple[WorkRow, ...]()
    for version in range(1, 16):
        table.apply(
            ENTITY,
            WorkDelta((charge(version),), finished=(WorkId("effect", version - 1, 0),) if version % 3 == 0 else ()),
        )
        claims = table.claim("effect", None, owner="w", now_ms=version, until_ms=10**9, limit=1)
        verdict: Literal["dead", "again"] = "dead" if version % 5 == 0 else "again"
        table.settle(tuple(Settlement(each, verdict, 10**6) for each in claims), now_ms=version)
        fs = Simulated(table.world, process=100 + version)
        onlooker = opened(fs, table.SETTINGS).dispatcher()
        before = len(fs.calls)
        seen = onlooker.list_work(WorkQuery()).rows
        flushes = [each for each in fs.calls[before:] if "sync" in each or each == "lock"]
        world = table.world.copy()
        world.locks.clear()
        heir = opened(Simulated(world, process=99), table.SETTINGS).dispatcher()
        heir.claim("effect", None, owner="w", now_ms=0, until_ms=0, limit=0)

        assert (heir.list_work(WorkQuery()).rows, []) == (seen, flushes)
    assert len(seen) > 5


def test_a_query_for_one_entity_reads_its_journal() -> None:
    """Whatever was published: a delivery must know whether the work still exists."""
    pair = Pair()
    pair.two.journals.append(leaving(1, charge()))
    query = WorkQuery(entity=ENTITY, id=CHARGE)

    assert 1 == len(pair.one.dispatch.list_work(query).rows)
    pair.two.journals.append(leaving(2, finished=(CHARGE,)))
    assert () == pair.one.dispatch.list_work(query).rows


def test_a_stale_attempt_cannot_append_its_result() -> None:
    """The fence is in the journal."""
    pair = Pair()
    pair.one.journals.append(leaving(1, charge()))
    (claim,) = pair.one.take()
    answer = leaving(2, finished=(CHARGE,))

    assert isinstance(pair.two.journals.append(replace(answer, fence=(CHARGE, 2))), StaleAttempt)
    assert isinstance(pair.two.journals.append(replace(answer, fence=(CHARGE, claim.attempt))), Appended)
    late = replace(leaving(3), fence=(CHARGE, claim.attempt))
    assert isinstance(pair.one.journals.append(late), StaleAttempt)


# When something is wrong


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_without_its_marker_no_entry_creates_work(code: int) -> None:
    """Nothing was written. After a full disk the next attempt succeeds; after a failed flush none does."""
    process = Process(World(), 1)
    process.journals.append(leaving(1))
    fs = process.fs
    fs.fault = code
    fs.watch = lambda name: fail(fs) if name == "sync_directory" else None
    size = len(_journal(fs.world))
    with pytest.raises(UnavailableError):
        process.journals.append(leaving(2, charge(2)))

    assert size == len(_journal(fs.world))
    fs.watch = None
    with pytest.raises(UnavailableError) as caught:
        process.journals.append(leaving(2, charge(2)))
    assert "store.poisoned" == caught.value.code
    assert isinstance(process.journals.append(leaving(2)), Appended)


def test_work_whose_start_cannot_be_written_is_not_handed_out() -> None:
    """It stays in line, and is handed out when there is space again."""
    process = Process(World(), 1)
    process.journals.append(leaving(1, charge()))
    fs = process.fs
    fs.fault = errno.ENOSPC
    process.take("timer")
    fs.watch = lambda name: fail(fs) if name == "write_at" else None
    with pytest.raises(UnavailableError) as caught:
        process.take()

    assert "store.full" == caught.value.code
    fs.watch = None
    assert [1] == [each.attempt for each in process.take()]


def test_a_damaged_journal_stops_the_work_of_its_own_entity_only(caplog: pytest.LogCaptureFixture) -> None:
    """The others run, and a log line names the damaged one."""
    pair = Pair()
    pair.two.journals.append(leaving(1, charge()))
    pair.two.journals.append(leaving(1, charge(), entity="order/B-2"))
    pair.two.journals.append(leaving(2, entity="order/B-2"))
    pair.two.fs.die()
    number = pair.world.found("store", "resources", directory_name("order/B-2"), JOURNAL)
    assert number is not None
    data = _bytes(pair.world.nodes[number]).replace(b'"name":"charge"', b'"name":"change"', 1)
    pair.world.nodes[number] = File(data, data, ())

    assert [ENTITY] == [each.entity for each in pair.one.take()]
    assert ["order/B-2"] == [each.__dict__["entity_id"] for each in caplog.records]


def test_work_of_a_newer_release_is_refused_and_not_cut_off() -> None:
    """An intact line of an unknown format is not a torn tail: nothing is appended after it, nothing is lost."""
    process = Process(World(), 1)
    process.journals.append(leaving(1, charge()))
    process.fs.die()
    world = process.fs.world
    number = world.found("store", "resources", directory_name(ENTITY), JOURNAL)
    assert number is not None
    data = _bytes(world.nodes[number]).rstrip(BLANKS) + b"\n"
    head = data[-35:-3].decode()
    data += sign_line(b'{"t":"mark","d":0,"p":{"lane":"dream","version":1,"ordinal":0}', head, b"")
    world.nodes[number] = File(data, data, ())
    other = Process(world, 2)
    for ask in (lambda: other.journals.append(leaving(2)), lambda: other.dispatch.list_work(WorkQuery(entity=ENTITY))):
        with pytest.raises(UsageError) as caught:
            ask()
        assert "store.format" == caught.value.code

    assert data == _journal(world)


def test_every_flipped_byte_of_a_work_line_is_damage() -> None:
    """A work line is as safe as a record: damaged bytes that were durable are never a torn tail."""
    process = Process(World(), 1)
    process.journals.append(leaving(1, charge(restore="fail")))
    process.take()
    process.journals.append(leaving(2, finished=(CHARGE,)))
    process.journals.append(leaving(3))
    world = process.fs.world
    number = world.found("store", "resources", directory_name(ENTITY), JOURNAL)
    assert number is not None
    data = _bytes(world.nodes[number])
    last = data.rindex(b'{"t":"work"')
    silent = []
    for place in range(last):
        changed = data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]
        after = world.copy()
        after.locks = {}
        after.nodes[number] = File(changed, changed, ())
        for ask in (BlockingFileStore.read, _attended):
            try:
                ask(opened(Simulated(after.copy(), process=9), PLAIN), ENTITY)
                silent.append(place)
            except CorruptionError:
                pass

    assert [] == silent


def test_work_survives_the_release_of_its_entity_s_records() -> None:
    """The entity has ended, an archive has its journal, and its last events are still to be delivered."""
    pair = Pair()
    pair.one.journals.append(leaving(1, other("outbox"), other("outbox", 1, 1), charge()))
    pair.one.dispatch.settle((Settlement(pair.one.take("outbox")[0], "done"),), now_ms=0)
    pair.one.take()
    end = replace(step(2, "k2", ended=True), work=WorkDelta(finished=(CHARGE,)))
    pair.one.journals.append(end)
    pair.one.dispatch.settle((Settlement(pair.one.take("outbox")[0], "again", 5),), now_ms=0)

    assert pair.one.journals.release_journal(ENTITY, version=2, archive="file:///archive")
    pair.one.fs.die()
    (claim,) = pair.two.take("outbox", now_ms=5)
    assert (1, 1) == (claim.work.id.ordinal, claim.failures)
    assert (True,) == pair.two.dispatch.settle((Settlement(claim, "done"),), now_ms=5)
    pair.two.fs.die()
    assert () == Process(pair.world, 3).take("outbox", now_ms=9)


def _attended(journals: BlockingFileStore, entity: str) -> object:
    return journals.dispatcher().list_work(WorkQuery(entity=entity))


def leave_silently(process: Process, append: Append) -> None:
    """Append, and die between the flush of the entry and the hint."""
    fs = process.fs
    before = len(fs.calls)
    fs.watch = lambda name: kill(fs) if "write_at" in fs.calls[before:-2] and fs.calls[-2] == "fdatasync" else None
    with pytest.raises(Killed):
        process.journals.append(append)


def fail(fs: Simulated) -> None:
    """Make this call fail."""
    fs.fail_at = fs.count


def kill(fs: Simulated) -> None:
    """Kill the process at this call."""
    fs.kill_at = fs.count


def _journal(world: World) -> bytes:
    number = world.found("store", "resources", directory_name(ENTITY), JOURNAL)
    assert number is not None
    return _bytes(world.nodes[number])


def _bytes(node: object) -> bytes:
    assert isinstance(node, File)
    return node.cache

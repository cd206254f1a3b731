"""Inline appends: when a lone caller waits for the disk itself, when a thread does, and that nothing else changes."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from interlock.errors import UnavailableError
from interlock.model.journal.work import Work
from interlock.ports.store import Append, Appended, Conflict, Duplicate, Loaded, StaleAttempt
from interlock.stores.files import store as files
from interlock.stores.files.blocking_store import BlockingFileStore
from interlock.stores.files.durable_io import Settings
from interlock.stores.files.filesystem import OperatingSystem
from interlock.stores.files.journal.journal_file import JournalFile
from interlock.stores.files.journal.recent_keys import RecentKeys
from interlock.stores.files.journal.snapshot_file import KnownConfigurations
from interlock.stores.files.journal.unfinished_work import UnfinishedWork
from interlock.stores.files.names import directory_name
from interlock.stores.files.store import FileStore
from interlock.stores.files.work.dispatcher import SCAN_MS
from interlock.stores.files.work.table import PublishedWork
from interlock.stores.threads import inline_policy
from interlock.stores.work_table import WorkTable
from tests.crash.life import ENTITY, opened, step
from tests.crash.simulated.file_system import Simulated, World
from tests.support.disk_speed import Quick, Slow
from tests.unit.stores.files.work.test_dispatcher import CHARGE, Pair, Process, charge, leaving, other

SELDOM = Settings(snapshot_every=1_000)


class Watched(OperatingSystem):
    """The real file system, with the threads that flushed journals."""

    def __init__(self) -> None:
        super().__init__()
        self.flushed_by: list[int] = []
        self.is_dying = False

    def fdatasync(self, file: int) -> None:
        """Record which thread waits for the disk."""
        self.flushed_by.append(threading.get_ident())
        if self.is_dying:
            raise OSError(errno.EIO, "the disk is dying")
        super().fdatasync(file)


async def started(tmp_path: Path) -> tuple[FileStore, Watched]:
    """A store with an open journal."""
    fs = Watched()
    store = FileStore(tmp_path / "store", fs=fs)
    await store.append(step(1, "k1"))
    await store.append(step(1, "k1", entity="order/B"))
    fs.flushed_by.clear()
    return store, fs


@pytest.fixture
async def quick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[FileStore, Watched]]:
    """A store on a quick disk."""
    monkeypatch.setattr(files, "InlinePolicy", Quick)
    store, fs = await started(tmp_path)
    yield store, fs
    await store.close()


async def test_a_lone_caller_waits_for_a_quick_disk_itself(quick: tuple[FileStore, Watched]) -> None:
    """A thread would take longer than the flush."""
    store, fs = quick
    answers = [await store.append(step(version, f"k{version}")) for version in range(2, 6)]

    assert [2, 3, 4, 5] == [answer.version for answer in answers if isinstance(answer, Appended)]
    assert [threading.get_ident()] * 4 == fs.flushed_by


async def test_many_callers_are_served_by_threads(
    quick: tuple[FileStore, Watched], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In parallel their flushes share the disk, and no event loop waits for them one by one."""
    store, fs = quick
    monkeypatch.setattr(inline_policy, "TURN_NS", 0)
    answers = await asyncio.gather(*(store.append(step(2, "k2", entity=each)) for each in (ENTITY, "order/B")))

    assert [2, 2] == [answer.version for answer in answers]
    assert threading.get_ident() not in fs.flushed_by


async def test_a_slow_disk_is_waited_for_by_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The event loop continues meanwhile."""
    monkeypatch.setattr(files, "InlinePolicy", Slow)
    store, fs = await started(tmp_path)
    await store.append(step(2, "k2"))
    await store.close()

    assert 1 == len(fs.flushed_by)
    assert threading.get_ident() not in fs.flushed_by


async def test_every_flush_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a thread or inline, and one that fails; an answer without a flush is not."""
    took = list[int]()

    class Noting(Quick):
        def record(self, ns: int) -> None:
            took.append(ns)

    monkeypatch.setattr(files, "InlinePolicy", Noting)
    store, fs = await started(tmp_path)
    by_threads = len(took)
    await store.append(step(2, "k2"))
    await store.append(step(2, "k2"))
    await store.append(step(2, "other"))
    answered = len(took)
    fs.is_dying = True
    with pytest.raises(UnavailableError):
        await store.append(step(3, "k3"))
    await store.close()

    assert (2, 3, 4, True) == (by_threads, answered, len(took), min(took) > 0)


async def test_others_get_their_turn_between_appends(
    quick: tuple[FileStore, Watched], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A caller that never stops appending blocks no other: the event loop runs after a millisecond at most."""
    store, _ = quick
    monkeypatch.setattr(inline_policy, "TURN_NS", 0)
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.ensure_future(other())
    for version in range(2, 12):
        await store.append(step(version, f"k{version}"))
    task.cancel()

    assert turns >= 10


async def test_a_lock_of_another_process_is_waited_for_by_a_thread(
    quick: tuple[FileStore, Watched], tmp_path: Path
) -> None:
    """The event loop does not wait for a lock."""
    store, fs = quick
    path = next((tmp_path / "store" / "resources").glob(f"*/{directory_name(ENTITY)}"))
    held = os.open(path, os.O_RDONLY)
    OperatingSystem().lock(held, 0)
    waiting = asyncio.ensure_future(store.append(step(2, "k2")))
    while store._threads._unfinished == 0:  # noqa: ASYNC110 - a store has no signal that it waits
        await asyncio.sleep(0)
    os.close(held)

    assert 2 == (await waiting).version
    assert threading.get_ident() not in fs.flushed_by


async def test_a_caller_that_is_cancelled_before_its_turn_has_done_nothing(
    quick: tuple[FileStore, Watched], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And does not count as an append in progress."""
    store, fs = quick
    monkeypatch.setattr(inline_policy, "TURN_NS", 0)
    task = asyncio.ensure_future(store.append(step(2, "k2")))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    answer = await store.append(step(2, "k2b"))

    assert ([threading.get_ident()], True) == (fs.flushed_by, isinstance(answer, Appended))


async def test_a_forked_child_counts_its_own_callers(quick: tuple[FileStore, Watched]) -> None:
    """An append in progress in its parent is not in progress in it, nor is a mutex held."""
    store, fs = quick
    store._pace.running = 1
    store._pace.guard.acquire()
    store._after_fork()
    await store.append(step(2, "k2"))
    fs.flushed_by.clear()
    await store.append(step(3, "k3"))

    assert [threading.get_ident()] == fs.flushed_by


# What may be done immediately


def journal_of(
    *, settings: Settings = SELDOM, versions: int = 1
) -> tuple[World, Simulated, Callable[[Append], object]]:
    """An open journal, and its inline append."""
    world = World()
    fs = Simulated(world)
    journals = opened(fs, settings)
    for version in range(1, versions + 1):
        journals.append(step(version, f"k{version}"))
    return world, fs, journals.append_inline


def test_an_inline_append_is_one_write_and_one_flush() -> None:
    """Its calls, in order."""
    _, fs, append = journal_of()
    before = len(fs.calls)

    assert isinstance(append(step(2, "k2")), Appended)
    assert ["lock", "read", "write_at", "fdatasync", "unlock"] == fs.calls[before:]


def test_an_inline_append_gives_the_same_answers() -> None:
    """A known key, another version, an older attempt."""
    process = Process(World(), 1)
    process.take()
    process.journals.append(leaving(1, charge(1)))
    append = process.journals.append_inline
    late = replace(leaving(2), fence=(CHARGE, 7))

    assert Duplicate(1) == append(step(1, "k1"))
    assert Conflict(1) == append(step(5, "k5"))
    assert StaleAttempt(1) == append(late)


def test_an_inline_append_does_nothing_where_more_is_to_do() -> None:
    """A closed journal, a snapshot or rotation that is due, the end of an entity, a marker to create."""
    fresh = opened(Simulated(World()), SELDOM)
    _, _, due = journal_of(settings=Settings(snapshot_every=2))
    _, _, full = journal_of(settings=Settings(snapshot_every=1_000, segment_bytes_max=1))
    world, _, ending = journal_of()
    image = world.image()
    process = Process(World(), 1)
    process.take()
    process.journals.append(step(1, "k1"))

    assert fresh.append_inline(step(1, "k1")) is None
    assert due(step(2, "k2")) is None
    assert full(step(2, "k2")) is None
    assert ending(step(2, "k2", ended=True)) is None
    assert process.journals.append_inline(leaving(2, charge(2))) is None
    assert image == world.image()


def test_an_inline_append_does_nothing_while_another_process_writes() -> None:
    """Its lock would be waited for, and its entries read first."""
    world, _, append = journal_of()
    node = world.found("store", "resources", directory_name(ENTITY))
    assert node is not None
    world.locks[node] = (2, 1)
    held = append(step(2, "k2"))
    del world.locks[node]
    opened(Simulated(world, process=2), SELDOM).append(step(2, "other"))
    image = world.image()

    assert (None, None) == (held, append(step(3, "k3")))
    assert image == world.image()


def test_an_inline_append_does_nothing_where_another_process_needs_a_hint() -> None:
    """A hint may wait for a lock."""
    pair = Pair()
    pair.two.journals.append(leaving(1, charge(1)))
    append = pair.two.journals.append_inline

    assert append(leaving(2, charge(2))) is None
    assert append(leaving(2, finished=(CHARGE,))) is None
    assert isinstance(append(step(2, "k2")), Appended)


def test_an_inline_append_does_nothing_while_a_thread_uses_the_journal() -> None:
    """Its flush would be waited for."""
    fs = Simulated(World())
    journals = opened(fs, SELDOM)
    journals.append(step(1, "k1"))
    journal = journals.journals.peek(journals.root.address(ENTITY))
    assert journal is not None
    with journal._mutex:
        answer = journals.append_inline(step(2, "k2"))

    assert answer is None


@pytest.mark.parametrize("call", [3, 4])
def test_a_failure_is_the_same_as_in_any_append(call: int) -> None:
    """A failed write leaves the journal usable; a failed flush poisons it; nothing was acknowledged."""
    _, fs, append = journal_of()
    fs.fail_at, fs.fault = fs.count + call, errno.EIO
    with pytest.raises(UnavailableError) as failed:
        append(step(2, "k2"))
    name = fs.fired
    try:
        after: object = append(step(2, "k2"))
    except UnavailableError as error:
        after = error.code

    expected = {"write_at": ("store.write", True), "fdatasync": ("store.flush", "store.poisoned")}
    assert expected[name] == (failed.value.code, after if isinstance(after, str) else isinstance(after, Appended))


def test_work_is_published_inline_when_its_marker_exists() -> None:
    """The worker of this process can claim it immediately."""
    process = Process(World(), 1)
    process.take()
    process.journals.append(leaving(1, charge(1)))

    answer = process.journals.append_inline(leaving(2, charge(2)))

    assert isinstance(answer, Appended)
    assert [1, 2] == [claim.work.id.version for claim in process.take()]
    assert isinstance(process.journals.load(ENTITY), Loaded)


def sent(version: int) -> Work:
    """What an entity sends, in order."""
    return other("outbox", version)


CALLS = ("lock", "read", "write_at", "fdatasync", "unlock")
CUTS: list[tuple[type, str]] = [
    *((Simulated, name) for name in CALLS),
    *(
        (RecentKeys, "remember"),
        (KnownConfigurations, "after_append"),
        (UnfinishedWork, "apply"),
        (UnfinishedWork, "changes"),
        (UnfinishedWork, "mark_published"),
        (JournalFile, "append_record"),
        (JournalFile, "flush"),
    ),
    *((WorkTable, "delete_work"), (WorkTable, "apply"), (PublishedWork, "apply")),
]
"""The functions of an inline append, from reading the disk to publishing work."""


@pytest.mark.parametrize(("owner", "name"), CUTS)
def test_ctrl_c_at_any_moment_loses_and_doubles_nothing(
    owner: type, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is raised in the main thread, which may be the one that appends: the next caller finds what the disk has."""
    world = World()
    process, rival = Process(world, 1), Process(world, 2)
    process.take()
    process.journals.append(leaving(1, charge(1), sent(1)))
    call = getattr(owner, name)

    def cut(*args: object, **facts: object) -> None:
        monkeypatch.undo()
        call(*args, **facts)
        raise KeyboardInterrupt

    monkeypatch.setattr(owner, name, cut)
    with pytest.raises(KeyboardInterrupt):
        process.journals.append_inline(leaving(2, charge(2), sent(2), finished=(CHARGE, sent(1).id)))
    beside = rival.journals.append(step(9, "k9"))
    answer = process.journals.append(leaving(2, charge(2), sent(2), finished=(CHARGE, sent(1).id)))
    process.take(now_ms=SCAN_MS)
    rows = [row.work.id for row in process.rows()]
    process.journals.append(leaving(3, finished=(charge(2).id, sent(2).id)))
    left = process.rows()
    process.journals.close()
    records = opened(Simulated(world, process=3)).read(ENTITY)

    assert isinstance(beside, Conflict)
    assert isinstance(answer, Appended | Duplicate)
    assert (2, ["k1", "k2", "k3"]) == (answer.version, [record.key for record in records])
    assert ([charge(2).id, sent(2).id], ()) == (rows, left)


def test_no_journal_is_closed_inline() -> None:
    """A thread closes it: that may need a lock, a snapshot and its flush."""
    journals = BlockingFileStore("store", Simulated(World()), SELDOM, open_max=1, shard_digits=0)
    journals.append(step(1, "k1"))
    address = journals.root.address(ENTITY)
    with journals.journals.using(journals.root.address("order/B")):
        answer = journals.append_inline(step(2, "k2"))
        stays = journals.journals.peek(address)

    assert (True, True) == (isinstance(answer, Appended), stays is not None)


def test_an_inline_append_counts_as_use() -> None:
    """Otherwise the busiest journal would be closed first."""
    journals = BlockingFileStore("store", Simulated(World()), SELDOM, open_max=2, shard_digits=0)
    for entity in (ENTITY, "order/B"):
        journals.append(step(1, "k1", entity=entity))
    journals.append_inline(step(2, "k2"))
    journals.append(step(1, "k1", entity="order/C"))

    assert journals.journals.peek(journals.root.address(ENTITY)) is not None

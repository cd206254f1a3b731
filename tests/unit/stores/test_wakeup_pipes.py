"""Wake-ups between the processes of a host. Two objects on one folder behave like two processes."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path

import pytest

from interlock.model.journal.work import LANES, Lane
from interlock.stores.wakeup_pipes import (
    ALL_LANES,
    SignalSchedule,
    WakeupPipes,
    decode_lanes,
    encode_lanes,
    hold_worker_lock,
    is_held,
    make_private_folder,
)
from tests.support.eventually import eventually

OUTBOX: frozenset[Lane] = frozenset({"outbox"})
EFFECT: frozenset[Lane] = frozenset({"effect"})


class Process:
    """One process of a store: its signals, and what it received."""

    def __init__(self, store: Path, tenant: str = "") -> None:
        self.released: list[str] = []
        self.heard: list[frozenset[Lane]] = []
        self.pipes = WakeupPipes(store, tenant, self._release)

    async def _release(self, owner: str) -> int:
        self.released.append(owner)
        return 1

    async def listen(self, owner: str) -> None:
        """Start a worker."""
        assert await self.pipes.listen(owner, self.heard.append) is not None

    def lanes(self) -> frozenset[Lane]:
        """All lanes that were signalled so far."""
        return frozenset(each for lanes in self.heard for each in lanes)


StartProcess = Callable[..., Process]


@pytest.fixture
async def start(tmp_path: Path) -> AsyncIterator[StartProcess]:
    """Starts processes of one store, which end with the test."""
    started: list[Process] = []

    def start_process(tenant: str = "") -> Process:
        started.append(Process(tmp_path / "orders.db", tenant))
        return started[-1]

    yield start_process
    for each in started:
        await each.pipes.close()


def die(owner: str, process: Process) -> None:
    """Close all files of a worker, as the system does when its process is killed."""
    process.pipes._members.pop(owner)._close_files()


def fill(pipe: Path) -> None:
    """Write to a pipe until it is full."""
    writer = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
    with suppress(BlockingIOError):
        while True:
            os.write(writer, b"\x01" * 4_096)
    os.close(writer)


def names_in(folder: Path) -> list[str]:
    """The names in a folder."""
    return sorted(each.name for each in folder.iterdir())


@pytest.mark.parametrize("lanes", [frozenset(), EFFECT, OUTBOX, ALL_LANES])
def test_lanes_are_bits(lanes: frozenset[Lane]) -> None:
    assert lanes == decode_lanes(encode_lanes(lanes))
    assert lanes == decode_lanes(encode_lanes(lanes) | 1 << 7 | 1 << len(LANES))


async def test_a_signal_reaches_the_workers_of_other_processes_only(start: StartProcess) -> None:
    sender, worker, other = start(), start(), start()
    await sender.listen("s" * 32)
    await worker.listen("w" * 32)
    await other.listen("o" * 32)
    sender.pipes.ring(OUTBOX)
    await eventually(lambda: worker.heard and other.heard)

    assert (OUTBOX, OUTBOX, []) == (worker.lanes(), other.lanes(), sender.heard)


async def test_a_worker_that_starts_later_is_found(start: StartProcess) -> None:
    sender, first, second = start(), start(), start()
    sender.pipes.ring(EFFECT)  # no worker is running
    await first.listen("f" * 32)
    sender.pipes.ring(EFFECT)
    await eventually(lambda: first.heard)
    await second.listen("s" * 32)
    sender.pipes.ring(EFFECT)
    await eventually(lambda: second.heard)


async def test_tenants_of_one_file_do_not_wake_each_other(start: StartProcess) -> None:
    sender, mine, other = start("a"), start("a"), start("b")
    await mine.listen("m" * 32)
    await other.listen("o" * 32)
    sender.pipes.ring(EFFECT)
    await eventually(lambda: mine.heard)

    assert [] == other.heard


async def test_a_full_pipe_is_a_signal_already(start: StartProcess) -> None:
    sender, worker = start(), start()
    await worker.listen("w" * 32)
    fill(worker.pipes.folder / f"{'w' * 32}.pipe")
    sender.pipes.ring(OUTBOX)  # returns, and starts nothing that could fail later

    await eventually(lambda: worker.lanes() >= EFFECT)
    assert [] == sender.released


async def test_a_worker_that_signs_off_leaves_no_file_and_is_not_taken_for_dead(
    start: StartProcess, tmp_path: Path
) -> None:
    first, second = start(), start()
    await first.listen("f" * 32)
    await second.listen("s" * 32)
    await first.pipes.close()
    second.pipes.ring(EFFECT)
    await second.pipes.close()

    assert ([], []) == (first.released, second.released)
    assert [] == names_in(tmp_path)


async def test_the_claims_of_a_dead_worker_are_released_once_by_those_that_watch_it(start: StartProcess) -> None:
    dying, first, second = start(), start(), start()
    await first.listen("f" * 32)
    await dying.listen("d" * 32)
    await second.listen("s" * 32)
    await eventually(lambda: dying.pipes.owners() == {"f" * 32, "d" * 32, "s" * 32})
    await asyncio.sleep(0)  # the first one hears that others have joined
    die("d" * 32, dying)
    await eventually(lambda: first.released or second.released)
    await eventually(lambda: first.lanes() == second.lanes() == ALL_LANES)

    assert ["d" * 32] == [*first.released, *second.released]
    assert {"f" * 32, "s" * 32} == first.pipes.owners()


async def test_a_sender_finds_a_dead_worker(start: StartProcess, tmp_path: Path) -> None:
    dead, sender = start(), start()
    await dead.listen("d" * 32)
    die("d" * 32, dead)
    sender.pipes.ring(EFFECT)
    await eventually(lambda: sender.released)

    assert ["d" * 32] == sender.released
    assert [] == names_in(sender.pipes.folder)


async def test_a_worker_that_starts_finds_those_that_died_before(start: StartProcess) -> None:
    first, second, worker = start(), start(), start()
    await first.listen("a" * 32)
    await second.listen("b" * 32)
    die("a" * 32, first)
    die("b" * 32, second)
    await worker.listen("w" * 32)
    await eventually(lambda: len(worker.released) == 2)

    assert {"a" * 32, "b" * 32} == set(worker.released)
    assert {"w" * 32} == worker.pipes.owners()


async def test_a_worker_whose_pool_still_runs_an_attempt_is_not_dead(start: StartProcess) -> None:
    dying, watcher = start(), start()
    await watcher.listen("w" * 32)
    await dying.listen("d" * 32)
    lock = dying.pipes.folder / f"{'d' * 32}.lock"
    await eventually(lambda: watcher.pipes._members["w" * 32]._watched)
    with hold_worker_lock(str(lock)):
        die("d" * 32, dying)
        watcher.pipes.check("d" * 32)
        await asyncio.gather(*watcher.pipes._burials.values())
        assert ([], True) == (watcher.released, is_held(lock))
    await eventually(lambda: watcher.released)

    assert ["d" * 32] == watcher.released


async def test_claims_that_cannot_be_released_are_left_to_their_lease(
    start: StartProcess, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(owner: str) -> int:
        raise RuntimeError("the store is away")

    dead, sender = start(), start()
    await dead.listen("d" * 32)
    die("d" * 32, dead)
    sender.pipes._release = fail
    sender.pipes.ring(EFFECT)
    await eventually(lambda: caplog.records)

    assert {"d" * 32} == sender.pipes.owners()
    assert not is_held(sender.pipes.folder / f"{'d' * 32}.lock")


@pytest.mark.parametrize("hold", [None, "/no/such/folder/w.lock"])
def test_a_process_without_the_lock_of_its_worker_runs_all_the_same(hold: str | None) -> None:
    with hold_worker_lock(hold):
        pass


async def test_without_a_usable_folder_there_are_no_signals(tmp_path: Path) -> None:
    (tmp_path / "orders.db-wakeups").write_text("a file is in the way")
    process = Process(tmp_path / "orders.db")
    assert await process.pipes.listen("w" * 32, process.heard.append) is None
    process.pipes.ring(EFFECT)
    await process.pipes.close()


def test_a_folder_that_is_open_to_others_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    (tmp_path / "link").symlink_to(tmp_path)
    for name in ("open", "link"):
        with pytest.raises(PermissionError):
            make_private_folder(tmp_path / name)


async def test_signals_are_coalesced_and_none_is_lost() -> None:
    sent: list[int] = []
    schedule = SignalSchedule(0.001, sent.append)
    for bits in (1, 2, 4, 1):
        schedule.add(bits)
    assert [1] == sent  # the first immediately
    await eventually(lambda: len(sent) == 2)
    assert 1 | 2 | 4 == sent[1]  # the others together
    schedule.add(8)
    schedule.flush()
    schedule.flush()
    assert 8 == sent[-1]


async def test_readers_of_the_feed_get_the_signals_of_entries_and_workers_do_not(start: StartProcess) -> None:
    sender, worker, reader = start(), start(), start()
    entries: list[None] = []
    await worker.listen("w" * 32)
    following = await reader.pipes.follow(lambda: entries.append(None))
    assert following is not None
    sender.pipes.ring_entries()
    await eventually(lambda: entries)
    sender.pipes.ring(OUTBOX)
    await eventually(lambda: worker.heard)
    assert (1, OUTBOX) == (len(entries), worker.lanes())
    await following.close()
    assert [f"{'w' * 32}.lock"] == [each for each in names_in(sender.pipes.folder) if each.endswith(".lock")]


async def test_a_reader_that_died_is_removed_and_wakes_no_worker(start: StartProcess) -> None:
    sender, worker, reader = start(), start(), start()
    await worker.listen("w" * 32)
    following = await reader.pipes.follow(lambda: None)
    assert following is not None
    die(following.owner, reader)
    sender.pipes.ring_entries()
    await eventually(lambda: not any(each.startswith("feed-") for each in names_in(sender.pipes.folder)))
    assert [] == worker.heard
    assert [] == worker.released

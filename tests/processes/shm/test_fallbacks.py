"""The fallback: when it is used, and its lock when holders die, stop, fork or are interrupted."""

import sys
import threading
from collections.abc import Callable

import pytest

from interlock.errors import UnavailableError, UsageError
from interlock.shm.memory import fallback
from interlock.shm.memory.fallback import FileLock, LockedWords
from interlock.shm.memory.region import MemoryRegion
from tests.processes.shm.processes import Child, Line, Work
from tests.support.descriptors import opened
from tests.support.missing import run_without

Start = Callable[[Work], Child]


@pytest.fixture
def words(monkeypatch: pytest.MonkeyPatch) -> LockedWords:
    """The words of a region whose operations take a lock."""
    monkeypatch.setenv("INTERLOCK_SHM", "flock")
    made = MemoryRegion.create().words
    assert isinstance(made, LockedWords)
    return made


@pytest.mark.parametrize("name", ["fast", "NATIVE", " native", "mutex"])
def test_an_unknown_mode_is_refused(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("INTERLOCK_SHM", name)
    with pytest.raises(UsageError) as caught:
        MemoryRegion.create()

    assert "shm.mode_unknown" == caught.value.code


def test_the_c_core_is_not_replaced_if_it_was_requested() -> None:
    code = (
        "import os\nos.environ['INTERLOCK_SHM'] = 'native'\n"
        "from interlock.errors import MissingExtraError\n"
        "from interlock.shm.memory.region import MemoryRegion\n"
        "try:\n    MemoryRegion.create()\n"
        "except MissingExtraError as error:\n    print(error.code)"
    )
    ended = run_without("interlock.shm._core", code=code)

    assert ("shm.mode_missing\n", "") == (ended.stdout, ended.stderr)


def test_an_install_without_the_c_core_uses_the_fallback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("INTERLOCK_SHM", raising=False)
    code = (
        "from interlock.shm.memory.region import MemoryRegion\n"
        "with MemoryRegion.create() as region:\n"
        "    print(region.mode, region.word('w').add(1))"
    )
    ended = run_without("interlock.shm._core", code=code)

    assert ("flock 0\n", "") == (ended.stdout, ended.stderr)


def test_an_unsupported_machine_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Big-endian and 32-bit machines, and systems other than Linux."""
    monkeypatch.setattr(sys, "byteorder", "big")
    with pytest.raises(UsageError) as caught:
        MemoryRegion.create()

    assert "shm.machine" == caught.value.code


def test_a_lock_whose_holder_was_killed_is_free(child: Start, words: LockedWords) -> None:
    """The word has the old or the new value."""
    words.store(64, 5)

    def work(line: Line) -> None:
        with words.lock:
            line.send("locked")
            line.recv()

    for reap in (True, False, True):
        started = child(work)
        started.receive()
        started.kill(reap=reap)

        assert 5 == words.load(64)


def test_the_wait_for_a_stopped_holder_is_bounded(
    child: Start, words: LockedWords, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the holder continues, operations work again."""
    monkeypatch.setattr(fallback, "LOCK_SECONDS_MAX", 0.05)

    def work(line: Line) -> None:
        with words.lock:
            line.send("locked")
            line.recv()
        line.send("free")
        line.recv()

    started = child(work)
    started.receive()
    started.stop()
    calls: list[Callable[[], object]] = [
        lambda: words.load(64),
        lambda: words.store(64, 1),
        lambda: words.swap(64, 0, 1),
        lambda: words.add(64, 1),
        lambda: words.find_occupied(128, 4, 0),
    ]
    for call in calls:
        with pytest.raises(UnavailableError) as caught:
            call()
        assert "shm.lock_held" == caught.value.code
    started.resume()
    started.send()
    assert "free" == started.receive()

    assert 0 == words.load(64)


def test_threads_of_one_process_exclude_each_other(words: LockedWords, monkeypatch: pytest.MonkeyPatch) -> None:
    """They share one file description."""
    monkeypatch.setattr(fallback, "LOCK_SECONDS_MAX", 0.05)
    refused: list[str] = []

    def other() -> None:
        with pytest.raises(UnavailableError) as caught:
            words.load(64)
        refused.append(caught.value.code)

    with words.lock:
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()

    assert ["shm.lock_held"] == refused
    assert 0 == words.load(64)


def test_a_forked_child_has_its_own_lock(child: Start, words: LockedWords) -> None:
    """Through its parent's description it would already hold the lock."""

    def work(line: Line) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(fallback, "LOCK_SECONDS_MAX", 0.05)
            with pytest.raises(UnavailableError):
                words.load(64)
        line.send("refused")
        line.recv()
        line.send(words.load(64))

    with words.lock:
        started = child(work)
        assert "refused" == started.receive()
    started.send()

    assert 0 == started.receive()


def test_an_exception_releases_the_lock(words: LockedWords) -> None:
    with pytest.raises(KeyboardInterrupt), words.lock:
        raise KeyboardInterrupt

    assert 0 == words.load(64)


def test_repeated_kills_never_leave_a_lock_held(child: Start, words: LockedWords) -> None:
    """At any instruction of an operation."""

    def work(line: Line) -> None:
        line.send("ready")
        while True:
            words.add(64, 1)

    for _ in range(15):
        started = child(work)
        started.receive()
        before = words.load(64)
        while words.load(64) < before + 20:
            pass
        started.kill(reap=False)

        assert words.load(64) >= before


def test_a_system_without_futexes_polls(shared: MemoryRegion, monkeypatch: pytest.MonkeyPatch) -> None:
    """The value decides, not the wake."""
    words = shared.words
    if shared.mode == "native":
        return  # the C core has its own naps, compiled only where there are no futexes
    monkeypatch.setattr(words, "_futex", None)
    words.wait(68, 0, 0.002)
    words.wait(68, 1, 60.0)
    words.wake(68)
    timer = threading.Timer(0.01, lambda: words.store(64, 4 << 32))
    timer.start()
    while words.load(64) >> 32 == 0:
        words.wait(68, 0, 0.25)
    timer.join()

    assert 4 == words.load(64) >> 32


def test_a_file_lock_closes_its_descriptor() -> None:
    with MemoryRegion.create() as region:
        before = opened()
        lock = FileLock(f"/proc/self/fd/{region.fd}")
        with lock:
            pass
        del lock

        assert set() == opened() - before

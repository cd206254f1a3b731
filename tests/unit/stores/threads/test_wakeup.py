"""How threads and event loops wake each other: nothing is lost, nothing is written where it does not belong."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from threading import Thread
from typing import Any

import pytest

from interlock.stores.threads.wakeup import LoopEntryQueue, WakeupPipe
from tests.support.eventually import PATIENCE_SECONDS


@pytest.fixture
def bell() -> Iterator[WakeupPipe]:
    """One that is closed in the end."""
    made = WakeupPipe()
    yield made
    made.close()


@pytest.fixture
def loops() -> Iterator[LoopEntryQueue]:
    """Those of one store."""
    made = LoopEntryQueue()
    yield made
    made.close()


def in_thread(function: Callable[[], object]) -> None:
    """Call a function in a thread, and wait for its end."""
    thread = Thread(target=function)
    thread.start()
    thread.join()


def is_open(descriptor: int) -> bool:
    """Whether a number is that of an open file."""
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def reader_of(loops: LoopEntryQueue, loop: asyncio.AbstractEventLoop) -> int:
    """The descriptor by which a loop is rung for."""
    way = loops._pipes[loop]
    assert way is not None
    return way._wakeup.descriptor


async def heard(count: int, values: list[Any]) -> None:
    """Wait until so many values are there."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while len(values) < count:  # noqa: ASYNC110 - a list says nothing when it grows
            await asyncio.sleep(0)


class Readerless(asyncio.SelectorEventLoop):
    """An event loop that cannot watch descriptors, as there are some."""

    def add_reader(self, *_: object) -> None:
        """Not here."""
        raise NotImplementedError


# One bell


def test_each_ring_lets_one_wait_return(bell: WakeupPipe) -> None:
    """Also one that came before; when none comes in time, the wait says so."""
    bell.wake()
    bell.wake()

    assert [True, True, False] == [bell.wait(PATIENCE_SECONDS), bell.wait(), bell.wait(0.0)]


def test_a_ring_wakes_whoever_waits(bell: WakeupPipe) -> None:
    """In another thread, with a time and without."""
    for seconds in (None, PATIENCE_SECONDS):
        found: list[bool] = []
        thread = Thread(target=lambda seconds=seconds, found=found: found.append(bell.wait(seconds)))
        thread.start()
        bell.wake()
        thread.join(PATIENCE_SECONDS)

        assert [True] == found


def test_a_closed_bell_writes_to_nobody_elses_file(bell: WakeupPipe) -> None:
    """The numbers of its descriptors are given away again, to files that a stray byte would damage."""
    numbers = (bell.descriptor, bell._write)
    bell.close()
    others = os.pipe()
    os.set_blocking(others[0], False)
    bell.wake()
    bell.close()
    with pytest.raises(BlockingIOError):
        os.read(others[0], 1)

    assert set(numbers) == set(others)
    for each in others:
        os.close(each)


def test_a_bell_that_nobody_has_any_more_keeps_no_descriptors() -> None:
    """Also if no caller could close it."""
    bell = WakeupPipe()
    numbers = (bell.descriptor, bell._write)
    del bell

    assert [False, False] == [is_open(each) for each in numbers]


def test_a_bell_that_the_system_refuses_is_the_callers_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """And leaves nothing behind that fails a second time."""

    def refused() -> None:
        raise OSError(24, "too many open files")

    monkeypatch.setattr(os, "pipe", refused)
    with pytest.raises(OSError, match="too many"):
        WakeupPipe()


# Into event loops


async def test_a_call_is_made_in_the_loop_that_it_is_for(loops: LoopEntryQueue) -> None:
    """One alone, and the next one after it."""
    loop, found = asyncio.get_running_loop(), list[asyncio.AbstractEventLoop]()
    loops.listen(loop)
    for count in (1, 2):
        in_thread(lambda: loops.call(loop, lambda: found.append(asyncio.get_running_loop())))
        await heard(count, found)

    assert [loop, loop] == found


async def test_calls_of_many_threads_are_all_made_in_the_order_of_each(loops: LoopEntryQueue) -> None:
    """None is lost between the one who looks and the one who has just come."""
    loop, found = asyncio.get_running_loop(), list[tuple[int, int]]()
    loops.listen(loop)

    def calls(number: int) -> None:
        for each in range(500):
            loops.call(loop, found.append, (number, each))

    threads = [Thread(target=calls, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    await heard(2_000, found)
    for thread in threads:
        thread.join()

    for number in range(4):
        assert list(range(500)) == [each for who, each in found if who == number]


async def test_a_call_that_fails_takes_no_other_with_it(loops: LoopEntryQueue) -> None:
    """The loop hears of it, as of any other callback."""
    loop, found, told = asyncio.get_running_loop(), list[int](), list[object]()
    loop.set_exception_handler(lambda _, context: told.append(context["exception"]))
    loops.listen(loop)

    def calls() -> None:
        loops.call(loop, [].pop)
        loops.call(loop, found.append, 1)

    in_thread(calls)
    await heard(1, found)
    loop.set_exception_handler(None)

    assert [IndexError] == [type(each) for each in told]


def test_a_loop_without_readers_is_called_in_its_own_way(loops: LoopEntryQueue) -> None:
    """So is one that nobody said to listen in."""
    found: list[str] = []

    async def listening() -> None:
        loops.listen(asyncio.get_running_loop())
        await called("listening")

    async def called(text: str) -> None:
        loop = asyncio.get_running_loop()
        in_thread(lambda: loops.call(loop, found.append, text))
        await heard(1, found)

    with asyncio.Runner(loop_factory=Readerless) as runner:
        runner.run(listening())
    first = found.copy()
    found.clear()
    asyncio.run(called("silent"))

    assert (["listening"], ["silent"]) == (first, found)


def test_a_loop_without_readers_is_asked_once(loops: LoopEntryQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not for every call: each would make a pipe for nothing."""
    made: list[tuple[int, int]] = []

    def counted(pipe: Callable[[], tuple[int, int]] = os.pipe) -> tuple[int, int]:
        made.append(pipe())
        return made[-1]

    async def listen() -> None:
        for _ in range(3):
            loops.listen(asyncio.get_running_loop())

    with asyncio.Runner(loop_factory=Readerless) as runner:
        runner.get_loop()
        monkeypatch.setattr(os, "pipe", counted)
        runner.run(listen())
    loops.close()

    assert 1 == len(made)


async def test_without_descriptors_a_loop_is_called_in_its_own_way(
    loops: LoopEntryQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody's answer is lost for want of a pipe; as soon as there is one again, it is used."""

    def refused() -> None:
        raise OSError(24, "too many open files")

    loop, found = asyncio.get_running_loop(), list[int]()
    with monkeypatch.context() as patch:
        patch.setattr(os, "pipe", refused)
        loops.listen(loop)
    in_thread(lambda: loops.call(loop, found.append, 1))
    await heard(1, found)
    before = loop in loops._pipes
    loops.listen(loop)

    assert (False, True) == (before, is_open(reader_of(loops, loop)))


def test_loops_that_are_gone_leave_nothing_behind(loops: LoopEntryQueue) -> None:
    """A call into one is dropped; its pipe goes when the next loop comes, and the last one with the store."""
    found: list[int] = []

    async def listen() -> tuple[asyncio.AbstractEventLoop, int]:
        loop = asyncio.get_running_loop()
        loops.listen(loop)
        loops.listen(loop)
        return loop, reader_of(loops, loop)

    first, first_reader = asyncio.run(listen())
    in_thread(lambda: loops.call(first, found.append, 1))
    was_open = is_open(first_reader)
    second, second_reader = asyncio.run(listen())
    known = list(loops._pipes)
    loops.close()

    assert [] == found
    assert (True, [second], False) == (was_open, known, is_open(second_reader))


async def test_what_was_called_before_the_end_is_heard_after_it(loops: LoopEntryQueue) -> None:
    """Whoever closes a store does so in a thread, while answers are on their way."""
    loop, found = asyncio.get_running_loop(), list[int]()
    loops.listen(loop)
    reader = reader_of(loops, loop)

    def ending() -> None:
        loops.call(loop, found.append, 1)
        loops.close()
        loops.call(loop, found.append, 2)  # nobody listens any more: in the loop's own way

    in_thread(ending)
    await heard(2, found)
    loops.listen(loop)

    assert ([1, 2], False, {}) == (found, is_open(reader), loops._pipes)
    assert not loop.remove_reader(reader)

"""The blocking runtime: threads that wait while another one closes it."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Event, Thread, get_ident
from threading import enumerate as enumerate_threads
from types import FrameType
from typing import Any

import pytest

from interlock.errors import NotFoundError, UnavailableError, UsageError
from interlock.ports.store import (
    Append,
    AppendResult,
)
from interlock.runtime import blocking
from interlock.runtime.blocking import BlockingRuntime
from interlock.runtime.runtime import Runtime
from interlock.stores.memory import MemoryStore
from tests.support.eventually import PATIENCE_SECONDS
from tests.unit.runtime.scene import Patient, runtime

ABOUT = ContextVar("ABOUT", default="nothing")
REPEAT_SECONDS = 0.05
"""Between two signals, until the first one is handled."""


class Endless(MemoryStore):
    """Takes an append and never answers."""

    def __init__(self) -> None:
        super().__init__()
        self.reached = Event()
        self.stuck = False
        self.cancelled = Event()
        self.seen = ""

    async def append(self, append: Append) -> AppendResult:
        """As the memory store, unless it is set to hang."""
        self.seen = ABOUT.get()
        if self.stuck:
            self.reached.set()
            try:
                await asyncio.Event().wait()
            finally:
                self.cancelled.set()
        return await super().append(append)


def _opened(store: MemoryStore | None = None) -> BlockingRuntime:
    async def make() -> Runtime:
        return runtime(store=store, clock=Patient())

    return BlockingRuntime(make)


def test_closing_again_does_nothing_and_later_calls_are_refused() -> None:
    doors = _opened()
    doors.close()
    doors.close()
    with pytest.raises(UnavailableError) as raised:
        doors.state("door/1")

    assert "runtime.closed" == raised.value.code


def test_a_waiting_call_raises_when_another_thread_closes() -> None:
    store = Endless()
    doors = _opened(store)
    doors.create("door/1")
    store.stuck = True
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(doors.send, "door/1", "opened")
        store.reached.wait()
        doors.close()
        with pytest.raises(UnavailableError) as raised:
            waiting.result()

    assert "runtime.closed" == raised.value.code


def test_a_watch_ends_when_another_thread_closes() -> None:
    doors = _opened()
    doors.create("door/1")
    heard = Event()
    versions = []

    def watch() -> None:
        for entry in doors.watch("door/1"):
            versions.append(entry.version)
            heard.set()

    with ThreadPoolExecutor(1) as pool:
        watching = pool.submit(watch)
        heard.wait()
        doors.close()
        watching.result()

    assert [1] == versions


def test_many_threads_send_through_one_loop() -> None:
    doors = _opened()
    doors.create("door/1")
    with ThreadPoolExecutor(8) as pool:
        receipts = list(pool.map(lambda each: doors.send("door/1", "noted", {"text": str(each)}), range(40)))
    doors.close()

    assert list(range(2, 42)) == sorted(each.version for each in receipts)


def test_a_call_runs_in_the_context_of_its_caller() -> None:
    store = Endless()
    doors = _opened(store)
    doors.create("door/1")
    before = store.seen
    token = ABOUT.set("a trace")
    doors.send("door/1", "noted", {"text": "x"})
    ABOUT.reset(token)
    doors.close()

    assert ("nothing", "a trace") == (before, store.seen)


def test_an_exception_reaches_only_its_own_caller() -> None:
    doors = _opened()
    doors.create("door/1")
    for _ in range(3):
        with pytest.raises(NotFoundError):
            doors.state("door/2")

        assert 1 == doors.state("door/1").version
    doors.close()


@contextmanager
def _interrupted(handler: Callable[[int, FrameType | None], None], when: Event) -> Iterator[None]:
    """Has this thread handle a signal in the moment after an event, once.

    The signal is repeated until the handler runs: one that arrives just before a system call does not interrupt it.
    """
    me = get_ident()
    arrived: list[int] = []
    handled = Event()

    def handle_once(number: int, frame: FrameType | None) -> None:
        arrived.append(number)
        if len(arrived) == 1:
            handled.set()
            handler(number, frame)

    def interrupt() -> None:
        when.wait(PATIENCE_SECONDS)
        signal.pthread_kill(me, signal.SIGUSR1)
        while not handled.wait(REPEAT_SECONDS):
            signal.pthread_kill(me, signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, handle_once)
    thread = Thread(target=interrupt)
    thread.start()
    try:
        yield
    finally:
        thread.join()
        signal.signal(signal.SIGUSR1, before)


def test_an_interrupted_call_is_cancelled_and_the_next_gets_its_own_result() -> None:
    def interrupt(_: int, __: FrameType | None) -> None:
        raise KeyboardInterrupt

    store = Endless()
    doors = _opened(store)
    doors.create("door/1")
    store.stuck = True
    with _interrupted(interrupt, store.reached), pytest.raises(KeyboardInterrupt):
        doors.send("door/1", "opened")
    given_up = store.cancelled.wait(PATIENCE_SECONDS)
    store.stuck = False
    receipts = [doors.send("door/1", "noted", {"text": str(each)}) for each in range(3)]
    doors.close()

    assert given_up
    assert [2, 3, 4] == [each.version for each in receipts]


def test_a_call_interrupted_before_the_wait_is_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Endless()
    doors = _opened(store)
    doors.create("door/1")
    store.stuck = True
    hand_over = doors._loop.call_soon_threadsafe

    def interrupted(*arguments: Any) -> None:
        monkeypatch.undo()
        hand_over(*arguments)
        store.reached.wait(PATIENCE_SECONDS)
        raise KeyboardInterrupt

    monkeypatch.setattr(doors._loop, "call_soon_threadsafe", interrupted)
    with pytest.raises(KeyboardInterrupt):
        doors.send("door/1", "opened")
    given_up = store.cancelled.wait(PATIENCE_SECONDS)
    doors.close()

    assert given_up


def test_a_signal_handler_may_call_while_its_thread_waits() -> None:
    store = Endless()
    doors = _opened(store)
    doors.create("door/1")
    inner: list[int] = []

    def look(_: int, __: FrameType | None) -> None:
        inner.append(doors.state("door/1").version)
        closing.start()

    closing = Thread(target=doors.close)  # which is the error of the outer call
    store.stuck = True
    with _interrupted(look, store.reached), pytest.raises(UnavailableError) as raised:
        doors.send("door/1", "opened")
    closing.join()

    assert ([1], "runtime.closed") == (inner, raised.value.code)


# What a process has few of, and what is not its own


@pytest.mark.parametrize("is_refused", [False, True])
def test_callers_beyond_the_pipes_are_answered_without_one(monkeypatch: pytest.MonkeyPatch, is_refused: bool) -> None:
    """Threads may be many and descriptors few: also when the system has none left, every caller gets an answer."""

    def refused() -> None:
        raise OSError(24, "too many open files")

    monkeypatch.setattr(blocking, "PIPES_MAX", 2)
    doors = _opened()
    doors.create("door/1")
    if is_refused:
        monkeypatch.setattr(os, "pipe", refused)
    all_there = asyncio.Barrier(6)

    async def together() -> None:
        await asyncio.wait_for(all_there.wait(), PATIENCE_SECONDS)

    with ThreadPoolExecutor(6) as pool:
        waiting = [pool.submit(doors._wait, together()) for _ in range(6)]
        for each in waiting:
            each.result()
    kept = [each is not None for each in doors._pipes]
    version = doors.state("door/1").version
    doors.close()

    assert ([not is_refused, True], 1) == (kept, version)


def test_interrupted_calls_leak_no_pipes(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(_: int, __: FrameType | None) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(blocking, "PIPES_MAX", 1)
    store = Endless()
    doors = _opened(store)
    doors.create("door/1")
    for _ in range(3):
        store.stuck = True
        with _interrupted(interrupt, store.reached), pytest.raises(KeyboardInterrupt):
            doors.send("door/1", "opened")
        store.stuck = False
        store.reached.clear()
    doors.state("door/1")
    kept = [each is not None for each in doors._pipes]
    doors.close()

    assert [True] == kept


def test_closing_answers_the_caller_of_a_call_that_ignores_its_cancellation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocking, "STOP_MS_MAX", 10)
    doors = _opened()
    started = Event()

    async def stubborn() -> None:
        asyncio.current_task()._log_destroy_pending = False  # type: ignore[union-attr]  # it is left alone on purpose
        while True:
            try:
                started.set()
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                continue

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(doors._wait, stubborn())
        started.wait(PATIENCE_SECONDS)
        doors.close()
        with pytest.raises(UnavailableError) as raised:
            waiting.result(PATIENCE_SECONDS)

    assert "runtime.closed" == raised.value.code


def test_code_in_the_loop_that_means_to_end_the_program_ends_itself() -> None:
    doors = _opened()
    doors.create("door/1")

    async def leave() -> None:
        sys.exit(3)

    with pytest.raises(SystemExit):
        doors._wait(leave())
    version = doors.state("door/1").version
    doors.close()

    assert 1 == version


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")  # of processes with threads; that is what is tested
def test_a_coroutine_of_its_own_loop_is_refused_and_does_not_hang() -> None:
    """A coroutine handler that calls a waiting method would stop the loop that has to answer it."""

    async def opened() -> Runtime:
        return runtime()

    async def inside() -> str:
        with pytest.raises(UsageError) as raised:
            doors.create("door/2")
        with pytest.raises(UsageError):
            next(doors.watch("door/1"))
        with pytest.raises(UsageError):
            doors.close()
        return raised.value.code

    doors = BlockingRuntime(opened)
    doors.create("door/1")
    code = asyncio.run_coroutine_threadsafe(inside(), doors._loop).result(PATIENCE_SECONDS)  # where handlers run
    alive = doors.state("door/1").configuration
    doors.close()

    assert ("runtime.loop", ("closed",)) == (code, alive)


def test_a_call_inside_a_running_event_loop_is_refused_before_anything_is_sent() -> None:
    async def opened() -> Runtime:
        return runtime()

    async def inside() -> set[str]:
        codes = set()
        calls = (
            lambda: doors.create("door/2"),
            lambda: doors.send("door/1", "opened"),
            lambda: next(doors.watch("door/1")),
        )
        for each in calls:
            with pytest.raises(UsageError) as raised:
                each()
            codes.add(raised.value.code)
        await asyncio.to_thread(doors.create, "door/3")  # a separate thread may wait
        return codes

    doors = BlockingRuntime(opened)
    doors.create("door/1")
    codes = asyncio.run(inside())
    with pytest.raises(NotFoundError):
        doors.state("door/2")
    versions = doors.state("door/1").version, doors.state("door/3").version
    doors.close()

    assert ({"runtime.running_loop"}, (1, 1)) == (codes, versions)


def test_a_runtime_can_be_closed_inside_a_running_event_loop() -> None:
    async def opened() -> Runtime:
        return runtime()

    async def inside() -> None:
        doors.close()

    doors = BlockingRuntime(opened)
    asyncio.run(inside())

    with pytest.raises(UnavailableError):
        doors.create("door/1")


def test_opening_inside_a_running_event_loop_is_refused_and_leaves_no_thread() -> None:
    async def opened() -> Runtime:
        return runtime()

    async def inside() -> str:
        with pytest.raises(UsageError) as raised:
            BlockingRuntime(opened)
        return raised.value.code

    before = {each.ident for each in enumerate_threads()}

    assert "runtime.running_loop" == asyncio.run(inside())
    assert before >= {each.ident for each in enumerate_threads() if each.name == "interlock"}

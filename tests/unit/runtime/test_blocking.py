"""The runtime whose methods wait: threads that wait while another one closes it."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from threading import Event, Thread, get_ident
from types import FrameType
from typing import Any

import pytest

from interlock.errors import NotFoundError, UnavailableError, UsageError
from interlock.ports.store import Append, Appended, Conflict, Duplicate, StaleAttempt
from interlock.runtime import blocking
from interlock.runtime.blocking import BlockingRuntime
from interlock.runtime.runtime import Runtime
from interlock.stores.memory import MemoryStore
from tests.support.eventually import PATIENCE_SECONDS
from tests.unit.runtime.scene import Patient, runtime

ABOUT = ContextVar("ABOUT", default="nothing")


class Endless(MemoryStore):
    """Takes an append and never answers."""

    def __init__(self) -> None:
        super().__init__()
        self.reached = Event()
        self.stuck = False
        self.cancelled = Event()
        self.seen = ""

    async def append(self, append: Append) -> Appended | Duplicate | Conflict | StaleAttempt:
        """As the memory store, until it is told to be stuck."""
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


def test_closing_again_is_nothing_and_calls_afterwards_say_so() -> None:
    """Nobody hangs on a loop that has stopped."""
    doors = _opened()
    doors.close()
    doors.close()
    with pytest.raises(UnavailableError) as raised:
        doors.state("door/1")

    assert "runtime.closed" == raised.value.code


def test_a_thread_that_waits_is_answered_when_another_closes() -> None:
    """Its send was not acknowledged; it hears that the runtime was closed."""
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


def test_a_thread_that_watches_comes_to_the_end_when_another_closes() -> None:
    """The iterator ends; no thread and no task is left."""
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
    """Every event is taken once."""
    doors = _opened()
    doors.create("door/1")
    with ThreadPoolExecutor(8) as pool:
        receipts = list(pool.map(lambda each: doors.send("door/1", "noted", {"text": str(each)}), range(40)))
    doors.close()

    assert list(range(2, 42)) == sorted(each.version for each in receipts)


def test_a_call_sees_the_context_of_its_caller() -> None:
    """As of a function that is called: a trace that is begun around a send goes on in the store."""
    store = Endless()
    doors = _opened(store)
    doors.create("door/1")
    before = store.seen
    token = ABOUT.set("a trace")
    doors.send("door/1", "noted", {"text": "x"})
    ABOUT.reset(token)
    doors.close()

    assert ("nothing", "a trace") == (before, store.seen)


def test_what_a_call_raises_reaches_its_caller_and_nobody_else() -> None:
    """The next call is answered by its own answer."""
    doors = _opened()
    doors.create("door/1")
    for _ in range(3):
        with pytest.raises(NotFoundError):
            doors.state("door/2")

        assert 1 == doors.state("door/1").version
    doors.close()


@contextmanager
def _interrupted(handler: Callable[[int, FrameType | None], None], when: Event) -> Iterator[None]:
    """Has this thread handle a signal in the moment after an event."""
    me = get_ident()

    def interrupt() -> None:
        when.wait(PATIENCE_SECONDS)
        signal.pthread_kill(me, signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, handler)
    thread = Thread(target=interrupt)
    thread.start()
    try:
        yield
    finally:
        thread.join()
        signal.signal(signal.SIGUSR1, before)


def test_an_interrupted_call_is_given_up_and_the_next_one_is_not_mistaken_for_it() -> None:
    """As by Ctrl-C: what the first one was about to be told reaches nobody."""

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


def test_a_call_that_is_interrupted_before_its_caller_waits_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop may have it already: nobody would ever hear of it."""
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
    """The inner call is answered first, by its own answer; the outer one goes on waiting for its own."""
    store = Endless()
    doors = _opened(store)
    doors.create("door/1")
    inner: list[int] = []

    def look(_: int, __: FrameType | None) -> None:
        inner.append(doors.state("door/1").version)
        closing.start()

    closing = Thread(target=doors.close)  # which is what the outer call hears of
    store.stuck = True
    with _interrupted(look, store.reached), pytest.raises(UnavailableError) as raised:
        doors.send("door/1", "opened")
    closing.join()

    assert ([1], "runtime.closed") == (inner, raised.value.code)


# What a process has few of, and what is not its own


@pytest.mark.parametrize("is_refused", [False, True])
def test_callers_beyond_the_pipes_are_answered_without_one(monkeypatch: pytest.MonkeyPatch, is_refused: bool) -> None:
    """Threads may be many and descriptors few: also when the system has none left, everybody is answered."""

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


def test_interrupted_calls_use_up_no_pipes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pipe of one that was given up is let go, and the next call may have another."""

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


def test_a_caller_whose_call_does_not_let_itself_be_cancelled_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Closing waits for it for a while; then it is left to itself, and its caller is not."""
    monkeypatch.setattr(blocking, "STOP_MS_MAX", 10)
    doors = _opened()
    begun = Event()

    async def stubborn() -> None:
        asyncio.current_task()._log_destroy_pending = False  # type: ignore[union-attr]  # it is left alone on purpose
        while True:
            try:
                begun.set()
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                continue

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(doors._wait, stubborn())
        begun.wait(PATIENCE_SECONDS)
        doors.close()
        with pytest.raises(UnavailableError) as raised:
            waiting.result(PATIENCE_SECONDS)

    assert "runtime.closed" == raised.value.code


def test_code_in_the_loop_that_means_to_end_the_program_ends_itself() -> None:
    """Whoever waits for the loop is answered, then and later."""
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


def test_a_forked_child_is_told_to_open_its_own() -> None:
    """What it would wait by is its parent's; the parent goes on, and a close in the child closes nothing."""
    doors = _opened()
    doors.create("door/1")
    child = os.fork()
    if child == 0:
        signal.alarm(int(PATIENCE_SECONDS))  # ends it, should it wait
        code = 1
        try:
            doors.state("door/1")
        except UsageError as error:
            doors.close()
            code = 0 if error.code == "runtime.forked" else 2
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    versions = [doors.state("door/1").version for _ in range(3)]
    doors.close()

    assert (0, [1, 1, 1]) == (os.waitstatus_to_exitcode(status), versions)


@pytest.mark.parametrize("url", ["sqlite:///doors.db", "file:doors"])
def test_a_runtime_may_be_closed_when_python_ends(url: str, tmp_path: Path) -> None:
    """In `atexit` no thread can be begun any more; it closes all the same, and says nothing."""
    program = f"""
import atexit
import interlock

door = interlock.loads("{{interlock: 1, kind: door, states: {{closed: {{}}}}}}")
doors = interlock.open({url!r}, charts=[door]).__enter__()
atexit.register(print, "closed")
atexit.register(doors.close)
doors.create("door/1")
"""
    ended = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )

    assert (0, "closed\n", "") == (ended.returncode, ended.stdout, ended.stderr)

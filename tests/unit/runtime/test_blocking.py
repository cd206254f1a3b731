"""The runtime whose methods wait: threads that wait while another one closes it."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest

from interlock.errors import UnavailableError
from interlock.ports.store import Append, Appended, Conflict, Duplicate, Stale
from interlock.runtime.blocking import BlockingRuntime
from interlock.runtime.send import Runtime
from interlock.stores.memory import MemoryStore
from tests.unit.runtime.scene import Patient, runtime


class Endless(MemoryStore):
    """Takes an append and never answers."""

    def __init__(self) -> None:
        super().__init__()
        self.reached = Event()
        self.stuck = False

    async def append(self, append: Append) -> Appended | Duplicate | Conflict | Stale:
        """As the memory store, until it is told to be stuck."""
        if self.stuck:
            self.reached.set()
            await asyncio.Event().wait()
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

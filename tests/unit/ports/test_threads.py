"""A system that refuses threads: every caller gets an error with a code, and nothing is half started."""

from __future__ import annotations

import asyncio
import threading
from contextvars import ContextVar
from pathlib import Path

import pytest

import interlock
from interlock.errors import UnavailableError
from interlock.ports.store import Appended
from interlock.ports.threads import in_thread, in_thread_or_here, start_thread
from interlock.stores.files.store import FileStore
from interlock.stores.sqlite.store import SqliteStore
from interlock.testing.store_suite.samples import SampleEntity
from interlock.testing.store_suite.subject import append_all
from tests.crash.life import step
from tests.support.eventually import PATIENCE_SECONDS

DOOR = "interlock: 1\nkind: door\ninitial: open\nstates: {open: {on: {shut: shut}}, shut: {}}"


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """From now on the system starts no thread, as at a limit of a container; `undo` ends that."""

    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    return monkeypatch


@pytest.mark.usefixtures("refused")
def test_a_refused_thread_is_an_unavailable_error_with_a_hint() -> None:
    with pytest.raises(UnavailableError) as caught:
        start_thread(threading.Thread(name="mine"))

    assert ("process.threads", True) == (caught.value.code, "ulimit" in (caught.value.hint or ""))


def test_starting_a_thread_twice_raises_runtime_error() -> None:
    thread = threading.Thread()
    start_thread(thread)
    thread.join()
    with pytest.raises(RuntimeError):
        start_thread(thread)


async def test_a_call_in_a_thread_returns_or_raises_as_the_function() -> None:
    here: ContextVar[int] = ContextVar("here")
    here.set(3)
    before = threading.active_count()
    answer = await in_thread(here.get)

    def fail() -> None:
        raise KeyError("lost")

    with pytest.raises(KeyError):
        await in_thread(fail)
    with pytest.raises(RuntimeError, match="StopIteration"):
        await in_thread(lambda: next(iter(())))

    assert (3, before) == (answer, threading.active_count())


async def test_a_cancelled_call_continues_in_its_thread() -> None:
    go, done = threading.Event(), threading.Event()

    def work() -> None:
        go.wait(PATIENCE_SECONDS)
        done.set()

    call = asyncio.ensure_future(in_thread(work))
    await asyncio.sleep(0)
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    go.set()

    assert await asyncio.to_thread(done.wait, 60)


async def test_in_thread_or_here_calls_the_function_once(refused: pytest.MonkeyPatch) -> None:
    done = []
    await in_thread_or_here(lambda: done.append(threading.current_thread().name))
    refused.undo()
    await in_thread_or_here(lambda: done.append(threading.current_thread().name), name="apart")

    def fail() -> None:
        done.append("failed")
        raise UnavailableError("no", code="process.threads")

    with pytest.raises(UnavailableError):
        await in_thread_or_here(fail)

    assert [threading.current_thread().name, "apart", "failed"] == done


@pytest.mark.parametrize("url", ["sqlite:///{}/x.db", "file://{}/x", "memory:"])
def test_a_runtime_that_gets_no_thread_is_unavailable(tmp_path: Path, url: str, refused: pytest.MonkeyPatch) -> None:
    address, chart = url.format(tmp_path), interlock.loads(DOOR)
    with pytest.raises(UnavailableError) as caught, interlock.open(address, charts=[chart]).blocking():
        pass
    refused.undo()
    with interlock.open(address, charts=[chart]).blocking() as doors:
        receipt = doors.create("door/1")

    assert ("process.threads", 1) == (caught.value.code, receipt.version)


async def test_an_async_runtime_that_gets_no_thread_is_unavailable(tmp_path: Path, refused: pytest.MonkeyPatch) -> None:
    chart = interlock.loads(DOOR)
    with pytest.raises(UnavailableError) as caught:
        async with interlock.open(f"sqlite:///{tmp_path}/x.db", charts=[chart]):
            pass
    with pytest.raises(UnavailableError) as own:
        SqliteStore(tmp_path / "y.db")
    refused.undo()
    store = SqliteStore(tmp_path / "y.db")
    await append_all(store, SampleEntity("parcel/1").create())
    await store.close()

    assert ["process.threads"] * 2 == [caught.value.code, own.value.code]
    assert (True, False) == ((tmp_path / "y.db").exists(), (tmp_path / "y.db-wal").exists())


async def test_a_file_store_that_gets_no_thread_loses_nothing(tmp_path: Path, refused: pytest.MonkeyPatch) -> None:
    """The step is refused, and kept when it is sent again; the store closes without a thread."""
    store = FileStore(tmp_path / "store")
    with pytest.raises(UnavailableError) as caught:
        await store.append(step(1, "k1"))
    start = threading.Thread.start
    refused.undo()
    answer = await store.append(step(1, "k1"))
    refused.setattr(threading.Thread, "start", start)
    await store.close()

    assert "process.threads" == caught.value.code
    assert isinstance(answer, Appended)

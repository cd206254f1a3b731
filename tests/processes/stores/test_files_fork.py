"""The file store after a fork: the locks of a child, and what it waits for."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from interlock.errors import UnavailableError, UsageError
from interlock.ports.store import Appended, Conflict
from interlock.stores.files.filesystem import OperatingSystem
from interlock.stores.files.store import FileStore
from interlock.stores.memory import MemoryStore
from tests.crash.life import step
from tests.processes.shm.processes import Child, Line
from tests.support.eventually import PATIENCE_SECONDS

ENTITY = "order/A-1"

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*fork.*:DeprecationWarning"
)  # about forks with threads, which the tests does


@pytest.fixture
def children() -> Iterator[list[Child]]:
    """Child processes of a test, which end with it."""
    made: list[Child] = []
    yield made
    for each in made:
        each.end()


def test_a_child_does_not_keep_the_locks_of_a_dead_parent(tmp_path: Path, children: list[Child]) -> None:
    """A lock belongs to the open file description, which a child shares: the child releases it."""

    def parent(line: Line) -> None:
        system = OperatingSystem()
        directory = os.open(tmp_path, os.O_RDONLY)
        system.lock(directory, 0)
        grandchild = Child(lambda inner: inner.recv())
        line.send(grandchild.pid)
        line.recv()

    children.append(Child(parent))
    grandchild = children[0].receive()
    system, directory = OperatingSystem(), os.open(tmp_path, os.O_RDONLY)
    try:
        with pytest.raises(TimeoutError):
            system.lock(directory, 0)
        children[0].kill()
        os.kill(grandchild, 0)  # it is alive

        system.lock(directory, 0)
    finally:
        os.kill(grandchild, 9)
        system.close(directory)


def test_a_child_leaves_a_descriptor_whose_lock_was_released_alone(tmp_path: Path, children: list[Child]) -> None:
    system = OperatingSystem()
    for free in (system.unlock, lambda _: None):
        directory = os.open(tmp_path, os.O_RDONLY)
        system.lock(directory, 0)
        free(directory)
        system.close(directory)
    file = os.open(tmp_path / "other", os.O_RDWR | os.O_CREAT)

    def child(line: Line) -> None:
        os.write(file, b"here")
        line.send((tmp_path / "other").read_bytes())

    children.append(Child(child))
    said = children[0].receive()
    os.close(file)

    assert b"here" == said


def test_a_child_does_not_wait_for_a_thread_of_its_parent(tmp_path: Path, children: list[Child]) -> None:
    store = FileStore(tmp_path / "store")
    asyncio.run(store.append(step(1, "k1")))
    journals = store._store
    guards = (journals._reader._guard, journals._list._guard, journals.journals._guard)
    held, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with guards[0], guards[1], guards[2]:
            held.set()
            leave.wait(PATIENCE_SECONDS)

    holding = threading.Thread(target=hold)
    holding.start()
    held.wait(PATIENCE_SECONDS)

    def child(line: Line) -> None:
        line.send(len(asyncio.run(store.read(ENTITY))))

    children.append(Child(child))
    said = children[0].receive()
    leave.set()
    holding.join()
    asyncio.run(store.close())

    assert 1 == said


def test_a_child_is_refused_a_store_in_memory(children: list[Child]) -> None:
    """It has a copy, and its parent would never see what it appends. No thread of the parent is waited for."""
    store = MemoryStore()
    asyncio.run(store.append(step(1, "k1")))

    def child(line: Line) -> None:
        for use in (store.append(step(2, "k2")), store.load(ENTITY), store.kinds(), store.append_audit(())):
            with pytest.raises(UsageError) as caught:
                asyncio.run(use)
            line.send(caught.value.code)

    with store._lock:
        children.append(Child(child))
        said = [children[0].receive() for _ in range(4)]
    answer = asyncio.run(store.append(step(2, "k2")))

    assert ["store.forked"] * 4 == said
    assert isinstance(answer, Appended)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")  # of processes with threads; that is what is tested
async def test_a_forked_child_opens_its_journals_again(tmp_path: Path) -> None:
    """Parent and child exclude each other: an inherited descriptor would share the lock."""
    store = FileStore(tmp_path / "store")
    await store.append(step(1, "a"))
    child = os.fork()
    if child == 0:
        answer = store._store.append(step(2, "child"))
        os._exit(0 if isinstance(answer, Appended) else 1)
    _, status = await asyncio.to_thread(os.waitpid, child, 0)
    answer = await store.append(step(2, "parent"))
    await store.close()

    assert (0, Conflict(2)) == (os.waitstatus_to_exitcode(status), answer)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")  # of processes with threads; that is what is tested
async def test_a_child_forked_without_free_descriptors_has_closed_stores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise it would use descriptors and locks of its parent."""

    def refused() -> None:
        raise OSError(24, "too many open files")

    stores = [FileStore(tmp_path / name) for name in ("one", "two")]
    for each in stores:
        await each.append(step(1, "a"))
    with monkeypatch.context() as patch:
        patch.setattr(os, "pipe", refused)
        child = os.fork()
    if child == 0:
        codes = []
        for each in stores:
            try:
                each.load(ENTITY).send(None)
            except UnavailableError as error:
                codes.append((error.code, len(each._store.journals._journals)))
        os._exit(0 if codes == [("store.closed", 0)] * 2 else 1)
    _, status = await asyncio.to_thread(os.waitpid, child, 0)
    answers = [await each.append(step(2, "b")) for each in stores]
    for each in stores:
        await each.close()

    assert (0, [2, 2]) == (os.waitstatus_to_exitcode(status), [each.version for each in answers])

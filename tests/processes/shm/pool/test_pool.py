"""The pool: results and errors, stealing, crashes, poisoned tasks, draining, and wrong calls."""

from __future__ import annotations

import asyncio
import importlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from interlock.errors import (
    ConflictError,
    CorruptionError,
    DeniedError,
    RejectedError,
    UnavailableError,
    UsageError,
)
from interlock.shm.lifecycle.lifecycle import Lifecycle
from interlock.shm.lifecycle.permits import Phase
from interlock.shm.memory.region import MemoryRegion
from interlock.shm.pool.pool import TaskPool
from interlock.shm.pool.values import decode_error, decode_value, encode_error, encode_value
from interlock.shm.pool.worker import spawn
from tests.processes.shm import pool_handlers
from tests.processes.shm.queues import working_modes
from tests.support.eventually import PATIENCE_SECONDS, eventually

OBEY = "tests.processes.shm.pool_handlers:obey"


@pytest.fixture
def region() -> Iterator[MemoryRegion]:
    """A region in the fastest mode."""
    with MemoryRegion.create(slots=8) as made:
        yield made


@pytest.mark.parametrize("mode", working_modes())
async def test_results_and_errors_are_returned(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In every mode."""
    monkeypatch.setenv("INTERLOCK_SHM", mode)
    values: list[Any] = [b"", b"bytes", None, 5, 2.5, "text", [1, [2]], {"a": {"b": None}}]
    with MemoryRegion.create(slots=4) as made:
        async with TaskPool(made, OBEY, workers=1, tasks_max=8) as pool:
            with pytest.raises(RejectedError, match="LookupError: lost") as caught:
                await pool.submit(["raise", "lost"])
            assert "task.failed" == caught.value.code
            assert "pool_handlers" in caught.value.__notes__[0]
        assert 0 == len(pool)
    with MemoryRegion.create(slots=4) as made:
        async with TaskPool(made, pool_handlers.echo, workers=2, tasks_max=8) as pool:
            assert values == await asyncio.gather(*(pool.submit(value) for value in values))


async def test_errors_of_interlock_keep_their_class(region: MemoryRegion) -> None:
    """With code and hint."""
    async with TaskPool(region, OBEY, workers=1) as pool:
        with pytest.raises(DeniedError) as denied:
            await pool.submit(["deny"])
        assert ("test.denied", "ask an administrator") == (denied.value.code, denied.value.hint)
        with pytest.raises(RejectedError, match="SystemExit"):
            await pool.submit(["exit"])
        with pytest.raises(RejectedError, match="KeyboardInterrupt"):
            await pool.submit(["interrupt"])
        with pytest.raises(RejectedError, match=r"ValueError: half \\udcff"):
            await pool.submit(["half a character"])
        with pytest.raises(RejectedError, match="ValueError: "):
            await pool.submit(["mute"])
        assert 0 == pool.restarts
        with pytest.raises(UsageError) as large:
            await pool.submit(["large", 5_000])
        assert "pool.result_bytes" == large.value.code
        with pytest.raises(UsageError) as strange:
            await pool.submit(["strange"])
        assert "pool.value" == strange.value.code
        assert isinstance(await pool.submit(["pid"]), int)
        assert 0 == pool.restarts


async def test_run_waits_while_the_pool_is_full(region: MemoryRegion) -> None:
    """In order; `submit` refuses."""
    async with TaskPool(region, pool_handlers.echo, workers=2, tasks_max=16) as pool:
        tasks = [pool.submit(number) for number in range(16)]
        with pytest.raises(UnavailableError) as full:
            pool.submit(16)
        assert "pool.full" == full.value.code
        results = await asyncio.gather(*tasks, *(pool.run(number) for number in range(16, 500)))

    assert list(range(500)) == results


async def test_a_cancelled_wait_wakes_the_next_waiter(region: MemoryRegion, tmp_path: Path) -> None:
    started, mark = tmp_path / "started", tmp_path / "go"
    async with TaskPool(region, OBEY, workers=1, tasks_max=1) as pool:
        first = pool.submit(["hold", str(started), str(mark)])
        waiting = [asyncio.create_task(pool.run(["pid"])) for _ in range(3)]
        await eventually(started.exists)
        waiting[0].cancel()
        mark.touch()
        await first

        assert [int, int] == [type(await each) for each in waiting[1:]]


async def test_a_cancelled_future_frees_its_cell_when_the_task_ends(region: MemoryRegion, tmp_path: Path) -> None:
    """Cancelling does not stop the handler."""
    started, mark = tmp_path / "started", tmp_path / "go"
    async with TaskPool(region, OBEY, workers=1, tasks_max=1) as pool:
        task = pool.submit(["hold", str(started), str(mark)])
        await eventually(started.exists)
        task.cancel()
        with pytest.raises(UnavailableError):
            pool.submit(["pid"])
        mark.touch()

        assert isinstance(await pool.run(["pid"]), int)


async def test_a_killed_workers_task_runs_again(region: MemoryRegion, tmp_path: Path) -> None:
    """In another worker, and the dead one is replaced."""
    async with TaskPool(region, OBEY, workers=2) as pool:
        assert "survived" == await asyncio.wait_for(pool.submit(["die once", str(tmp_path / "mark")]), PATIENCE_SECONDS)
        await eventually(lambda: len(pool.pids) == 2)

        assert 1 == pool.restarts


async def test_a_poisoned_task_is_given_up(region: MemoryRegion) -> None:
    """After three workers; other tasks finish."""
    async with TaskPool(region, OBEY, workers=2) as pool:
        tasks = [pool.submit(["pid"]) for _ in range(10)]
        poison = pool.submit(["die"])
        tasks += [pool.submit(["pid"]) for _ in range(10)]
        with pytest.raises(UnavailableError) as caught:
            await asyncio.wait_for(poison, PATIENCE_SECONDS)

        assert "task.poisoned" == caught.value.code
        assert 20 == len(await asyncio.wait_for(asyncio.gather(*tasks), PATIENCE_SECONDS))
        assert pool.restarts >= 3


async def test_a_stopped_worker_keeps_its_task(
    region: MemoryRegion, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stopped process is alive, so the task does not run again; other workers continue."""
    started, mark = tmp_path / "started", tmp_path / "go"
    async with TaskPool(region, OBEY, workers=2) as pool:
        rounds: list[None] = []
        recover = pool._recover
        monkeypatch.setattr(pool._session, "_recover", lambda: rounds.append(recover()))
        held = pool.submit(["hold", str(started), str(mark)])
        await eventually(lambda: started.exists() and started.read_text())
        holder = int(started.read_text())
        os.kill(holder, signal.SIGSTOP)
        try:
            others = [await asyncio.wait_for(pool.submit(["pid"]), PATIENCE_SECONDS) for _ in range(5)]
            await eventually(lambda: len(rounds) >= 3)
        finally:
            os.kill(holder, signal.SIGCONT)
        mark.touch()

        assert set(pool.pids) - {holder} == set(others)
        assert holder == await asyncio.wait_for(held, PATIENCE_SECONDS)
        assert 0 == pool.restarts


async def test_handlers_spawn_and_idle_workers_steal(region: MemoryRegion, tmp_path: Path) -> None:
    """All workers run a tree of tasks, each task once."""
    depth = 6
    async with TaskPool(region, OBEY, workers=2) as pool:
        await pool.submit(["spawn", str(tmp_path), depth])
        await eventually(lambda: len(_marks(tmp_path)) == 2 ** (depth + 1) - 1)
        await pool.drain()
    marks = _marks(tmp_path)

    assert [2 ** (depth - each) for each in range(depth + 1)] == [
        len([mark for mark in marks if mark.split("-")[1] == str(each)]) for each in range(depth + 1)
    ]


def _marks(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if path.name.count("-") == 2]


async def test_a_drain_finishes_tasks_and_refuses_new_ones(region: MemoryRegion, tmp_path: Path) -> None:
    """Then the workers have ended and the region is closed."""
    started, mark = tmp_path / "started", tmp_path / "go"
    pool = TaskPool(region, OBEY, workers=2)
    await pool.start()
    tasks = [pool.submit(["hold", str(started), str(mark)]), *(pool.submit(["pid"]) for _ in range(20))]
    await eventually(started.exists)
    draining = asyncio.create_task(pool.drain(timeout=PATIENCE_SECONDS))
    await asyncio.sleep(0)
    with pytest.raises(RejectedError) as refused:
        pool.submit(["pid"])
    assert "gate.not_running" == refused.value.code
    mark.touch()
    report = await draining

    assert report.closed
    assert all(task.done() for task in tasks)
    assert {} == dict(pool.pids)
    await pool.close()
    with pytest.raises(UsageError):
        pool.submit(["pid"])


async def test_a_drain_that_times_out_reports_it(region: MemoryRegion, tmp_path: Path) -> None:
    """`close` then ends the workers and fails the tasks."""
    started, mark = tmp_path / "started", tmp_path / "never"
    pool = TaskPool(region, OBEY, workers=1)
    await pool.start()
    task = pool.submit(["hold", str(started), str(mark)])
    await eventually(started.exists)
    report = await pool.drain(timeout=0.01)
    assert not report.closed
    assert Phase.DRAINING == report.phase
    assert 1 == report.permits
    await pool.close()

    with pytest.raises(UnavailableError) as caught:
        await task
    assert "pool.closed" == caught.value.code
    assert {} == dict(pool.pids)


async def test_an_error_in_the_block_does_not_wait_for_tasks(region: MemoryRegion, tmp_path: Path) -> None:
    """The workers are ended immediately."""
    pool = TaskPool(region, OBEY, workers=1)
    tasks = []

    async def left() -> None:
        async with pool:
            tasks.append(pool.submit(["hold", str(tmp_path / "started"), str(tmp_path / "never")]))
            raise KeyError("mine")

    with pytest.raises(KeyError):
        await left()

    assert {} == dict(pool.pids)
    assert isinstance(tasks[0].exception(), UnavailableError)


@pytest.fixture
def missing_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], object]]:
    """A handler's module that workers cannot import until the returned function is called."""
    file = tmp_path / "fragile_handler.py"
    file.write_text("def echo(value):\n    return value\n", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.import_module("fragile_handler")
    yield partial(file.rename(tmp_path / "away.py").rename, file)
    del sys.modules["fragile_handler"]


async def test_a_pool_whose_workers_cannot_start_gives_up_and_starts_again(
    region: MemoryRegion, missing_module: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not start processes without end, and its futures raise. After the delay the next task starts it again,
    also if the tasks of the time before fill the pool.
    """
    monkeypatch.setattr("interlock.shm.pool.pool.DEATHS_MAX", 2)
    async with TaskPool(region, "fragile_handler:echo", workers=2, tasks_max=1) as pool:
        with pytest.raises(UnavailableError) as caught:
            await asyncio.wait_for(pool.submit(b"lost"), PATIENCE_SECONDS)
        with pytest.raises(UnavailableError) as resting:
            pool.submit(b"too early")
        missing_module()
        monkeypatch.setattr("interlock.shm.pool.pool.RESTART_DELAY_SECONDS", 0.0)
        with pytest.raises(UnavailableError) as full:
            pool.submit(b"no room")
        await eventually(lambda: not _is_full(pool))
        answer = await asyncio.wait_for(pool.run(b"found"), PATIENCE_SECONDS)

        assert ["pool.workers", "pool.workers", "pool.full"] == [each.value.code for each in (caught, resting, full)]
        assert "seconds" in str(resting.value.hint)
        assert b"found" == answer
        await eventually(lambda: len(pool.pids) == 2)


def _is_full(pool: TaskPool) -> bool:
    try:
        pool.submit(b"asked")
    except UnavailableError as error:
        return error.code == "pool.full"
    return False


@pytest.mark.usefixtures("missing_module")
async def test_a_pool_that_gave_up_starts_no_worker_during_the_delay(
    region: MemoryRegion, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Closing it works."""
    monkeypatch.setattr("interlock.shm.pool.pool.DEATHS_MAX", 1)
    pool = TaskPool(region, "fragile_handler:echo", workers=2)
    await pool.start()
    with pytest.raises(UnavailableError):
        await asyncio.wait_for(pool.submit(b"lost"), PATIENCE_SECONDS)
    await eventually(lambda: not pool.pids and not pool._starting)
    depths = []
    for _ in range(3):
        with pytest.raises(UnavailableError) as early:
            await pool.run(b"too early")
        depths.append(len(early.traceback))

    assert (0, set()) == (len(pool.pids), pool._starting)
    assert 1 == len(set(depths)), "each error has its own traceback"
    await pool.close()
    with pytest.raises(UsageError):
        pool.submit(b"too late")


async def test_poisoned_tasks_do_not_make_the_pool_give_up(
    region: MemoryRegion, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many there are: workers that died with a task do not count."""
    monkeypatch.setattr("interlock.shm.pool.pool.DEATHS_MAX", 1)
    async with TaskPool(region, OBEY, workers=2, claims_max=2) as pool:
        poison = [pool.submit(["die"], priority=1) for _ in range(3)]
        fine = pool.submit(["pid"], priority=2)
        ended = await asyncio.wait_for(asyncio.gather(*poison, return_exceptions=True), PATIENCE_SECONDS)

        assert ["task.poisoned"] * 3 == [getattr(each, "code", each) for each in ended]
        assert isinstance(await asyncio.wait_for(fine, PATIENCE_SECONDS), int)
        assert 6 == pool.restarts


async def test_a_start_that_is_cancelled_leaves_no_worker(region: MemoryRegion) -> None:
    pool = TaskPool(region, OBEY, workers=3)
    entering = asyncio.create_task(pool.__aenter__())
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not pool._starting:  # noqa: ASYNC110  # looked at in every round of the loop: it lasts for milliseconds
            await asyncio.sleep(0)
    entering.cancel()
    with pytest.raises(asyncio.CancelledError):
        await entering

    assert {} == dict(pool.pids)
    assert set() == pool._starting
    async with TaskPool(region, OBEY, workers=3) as another:  # the owner has left
        assert isinstance(await another.submit(["pid"]), int)


async def test_an_idle_worker_that_dies_is_replaced(region: MemoryRegion) -> None:
    async with TaskPool(region, OBEY, workers=1) as pool:
        await pool.submit(["pid"])
        for deaths in (1, 2, 3):
            (pid,) = pool.pids
            os.kill(pid, signal.SIGKILL)
            await eventually(partial(_replaced, pool, deaths, pid))

        assert isinstance(await asyncio.wait_for(pool.submit(["pid"]), PATIENCE_SECONDS), int)


def _replaced(pool: TaskPool, deaths: int, pid: int) -> bool:
    return pool.restarts == deaths and bool(pool.pids) and pid not in pool.pids


async def test_a_region_without_a_free_slot_is_refused() -> None:
    """The pool then has no owner."""
    with MemoryRegion.create(slots=1) as crowded:
        life = Lifecycle(crowded)
        with pytest.raises(UnavailableError):
            await TaskPool(crowded, OBEY, workers=1).start()
        life.leave()
        async with TaskPool(crowded, OBEY, workers=1) as pool:
            assert isinstance(await pool.submit(["pid"]), int)


OWNER = f"""\
import asyncio, sys
from interlock.shm.pool.pool import TaskPool
from interlock.shm.memory.region import MemoryRegion

async def main():
    with MemoryRegion.create("owned", slots=4) as region:
        async with TaskPool(region, {OBEY!r}, workers=2) as pool:
            pool.submit(["hold", sys.argv[1], sys.argv[2]])
            print(*pool.pids, flush=True)
            await asyncio.sleep(60)

if __name__ == "__main__":
    asyncio.run(main())
"""


async def test_workers_end_when_their_owner_is_killed(tmp_path: Path) -> None:
    """A new owner can start the pool."""
    script, started, mark = tmp_path / "owner.py", tmp_path / "started", tmp_path / "mark"
    script.write_text(OWNER)
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(script),
        str(started),
        str(mark),
        stdout=-1,
        env={**os.environ, "PYTHONPATH": str(Path.cwd())},
    )
    assert process.stdout is not None
    pids = [int(word) for word in (await process.stdout.readline()).split()]
    assert 2 == len(pids)
    await eventually(started.exists)
    process.kill()
    # `wait` would wait for the workers, too: they have its output.
    await eventually(lambda: process.returncode is not None)
    with MemoryRegion.attach("owned") as region:
        async with TaskPool(region, OBEY, workers=2) as pool:  # the old workers are still members
            mark.touch()
            answers = await asyncio.wait_for(asyncio.gather(*(pool.run(["pid"]) for _ in range(300))), PATIENCE_SECONDS)
            await eventually(lambda: not any(_lives(pid) for pid in pids))
            assert await asyncio.wait_for(pool.submit(["pid"]), PATIENCE_SECONDS) in pool.pids
            assert set(answers) <= {*pids, *pool.pids}
            assert 0 == pool.restarts
    await asyncio.wait_for(process.wait(), PATIENCE_SECONDS)
    MemoryRegion.unlink("owned")


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def test_a_new_owner_takes_over_a_named_pool(tmp_path: Path) -> None:
    """A second owner is refused while the first one is alive."""
    with MemoryRegion.create("shared", slots=8) as region:
        async with TaskPool(region, pool_handlers.echo, workers=1) as pool:
            with pytest.raises(ConflictError):
                await TaskPool(region, pool_handlers.echo, workers=1).start()
            assert b"x" == await pool.submit(b"x")
        with pytest.raises(
            RejectedError
        ):  # the region's lifecycle is closed by the drain: a closed region stays closed
            await TaskPool(region, pool_handlers.echo, workers=1).start()


async def test_wrong_calls_are_refused(region: MemoryRegion) -> None:
    """Each with its own code, before a process is started."""
    wrong: list[tuple[str, Callable[[], object]]] = [
        ("pool.workers", lambda: TaskPool(region, OBEY, workers=0)),
        ("pool.handler", lambda: TaskPool(region, "no colon")),
        ("pool.handler", lambda: TaskPool(region, "no.such.module:thing")),
        ("pool.handler", lambda: TaskPool(region, "tests.processes.shm.pool_handlers:nothing")),
        ("pool.handler", lambda: TaskPool(region, "tests.processes.shm.pool_handlers:not_callable")),
        ("pool.handler", lambda: TaskPool(region, pool_handlers.never)),
        ("pool.handler", lambda: TaskPool(region, lambda value: value)),
        ("pool.handler", lambda: TaskPool(region, 5)),  # type: ignore[arg-type]  # wrong on purpose
        ("slab.priorities", lambda: TaskPool(region, OBEY, name="a", priorities=9)),
        ("slab.range", lambda: TaskPool(region, OBEY, name="a", tasks_max=0)),
        ("slab.payload_max", lambda: TaskPool(region, OBEY, name="a", payload_bytes_max=-2)),
        ("pool.not_running", lambda: TaskPool(region, OBEY).submit(b"")),
        ("pool.not_inside", lambda: spawn(b"")),
    ]
    for code, call in wrong:
        with pytest.raises(UsageError) as caught:
            call()
        assert code == caught.value.code
    async with TaskPool(region, OBEY, name="one", workers=1) as pool:
        wrong = [
            ("pool.priority", lambda: pool.submit(b"", priority=3)),
            ("pool.priority", lambda: pool.submit(b"", priority=-1)),
            ("pool.payload_bytes", lambda: pool.submit(b"x" * 10_000)),
            ("pool.value", lambda: pool.submit(object())),
            ("pool.value", lambda: pool.submit({"deep": {1, object}})),
        ]
        for code, call in wrong:
            with pytest.raises(UsageError) as caught:
                call()
            assert code == caught.value.code
        with pytest.raises(UsageError) as caught:
            await pool.start()
        assert "pool.started" == caught.value.code
        with pytest.raises((UsageError, RuntimeError)):
            await asyncio.to_thread(pool.submit, b"")
        assert 0 == len(pool)


def test_encoded_errors_fit_into_any_size() -> None:
    """However long the message and the traceback are."""
    for size in (0, 10, 2_000, 100_000):
        data = encode_error(ValueError("é" * size), 1024)

        assert len(data) <= 1024
        assert isinstance(decode_error(data), RejectedError)
    assert "long" in str(decode_error(encode_error(DeniedError("\U0001f512" * 5_000, hint="\U0001f512" * 5_000), 1024)))


@pytest.mark.parametrize("data", [b"", b"\3", b"\1\xc1", b"\1", b"\2", b"\2\x80", b"\2\xa1x", b"\1" + b"\x91" * 5_000])
def test_invalid_bytes_are_corrupt(data: bytes) -> None:
    with pytest.raises(CorruptionError):
        decode_value(data)

    assert isinstance(decode_error(data), CorruptionError)


def test_values_are_decoded_as_encoded() -> None:
    values: list[object] = [b"", b"\0", None, 0, "", [], {}, [{"a": [None, True, 1.5]}]]
    for value in values:
        assert value == decode_value(encode_value(value))
    assert b"ab" == decode_value(encode_value(memoryview(b"ab")))


INHERITED = """
import asyncio, os, sys, warnings
from interlock.shm.pool.pool import TaskPool
from interlock.shm.memory.region import MemoryRegion

warnings.simplefilter("ignore", DeprecationWarning)

async def main():
    with MemoryRegion.create(slots=4) as region:
        async with TaskPool(region, "tests.processes.shm.pool_handlers:echo", workers=1, tasks_max=4) as pool:
            await pool.submit(1)
            pids = list(pool.pids)
            for way in ("closes", "exits"):
                child = os.fork()
                if child == 0:
                    if way == "closes":
                        closing = pool.close()
                        try:
                            closing.send(None)
                        except StopIteration:
                            pass
                        os._exit(0)
                    asyncio._set_running_loop(None)
                    region.close()
                    raise SystemExit(0)
                ending = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
                assert ending == 0, (way, ending)
                assert await pool.submit(2) == 2
            assert (list(pool.pids), pool.restarts) == (pids, 0), "its workers were ended"

asyncio.run(main())
"""


def test_a_forked_child_ends_no_worker_of_its_parent() -> None:
    """Neither when it closes the pool nor when it exits."""
    root = Path(__file__).parents[4]
    paths = os.pathsep.join([str(root / "src"), str(root)])
    done = subprocess.run(
        [sys.executable, "-c", INHERITED],
        check=False,
        capture_output=True,
        timeout=120,
        text=True,
        env=os.environ | {"PYTHONPATH": paths},
    )

    assert 0 == done.returncode, done.stderr

"""CPU handlers in a pool of processes."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import interlock
from interlock.effects.handlers import Attempt
from interlock.effects.retry import HandlerFailed
from interlock.errors import UsageError
from interlock.runtime.worker.process_heartbeats import HeartbeatListener, heartbeat_sender
from interlock.runtime.worker.process_pool import ProcessPool, RunningAttempts, address_of, attempt_connection
from tests.support.eventually import PATIENCE_SECONDS, eventually
from tests.unit.runtime import busy

CHART = """
interlock: 1
kind: sum
context: {square: {type: integer, default: 0}, pid: {type: integer, default: 0}}
initial: working
states:
  working:
    invoke:
      id: w
      src: squared
      input: {number: 12}
      onDone: {target: done, actions: [{assign: {square: "= event.data.square", pid: "= event.data.pid"}}]}
  done: {type: final}
"""

SPIN = """
interlock: 1
kind: sum
initial: spinning
states:
  spinning:
    invoke:
      {id: s, src: spins, input: {mark: MARK}, timeout: 2s, retry: {max: 20, backoff: 1ms}, onDone: done, onError: lost}
  done: {type: final}
  lost: {type: final}
"""

BOOK = """
interlock: 1
kind: sum
initial: reading
states:
  reading: {invoke: {id: r, src: pages, retry: {max: 1, backoff: 1ms}, onDone: done}}
  done: {type: final}
"""


@pytest.fixture
async def processes() -> AsyncIterator[ProcessPool]:
    """Processes that end with the test."""
    found = ProcessPool()
    yield found
    await found.close()


def attempt(**given: Any) -> Attempt:
    """One attempt."""
    return Attempt("sum/1", "squared", given, "k", 1, None, asyncio.Event())


async def test_a_cpu_handler_runs_in_another_process() -> None:
    chart = interlock.loads(CHART)
    chart.handler("squared", cpu=True)(busy.squared)
    async with asyncio.timeout(PATIENCE_SECONDS), interlock.open("memory:", charts=[chart]) as sums:
        await sums.create("sum/1")
        async for entry in sums.watch("sum/1"):
            if entry.after == ("done",):
                break
        context = (await sums.state("sum/1")).context

    assert 144 == context["square"]
    assert context["pid"] not in (0, os.getpid())


async def test_errors_come_back_with_their_meaning(processes: ProcessPool) -> None:
    answers = []
    for function in (busy.refused, busy.lost, busy.garbage, busy.leaves, busy.interrupts):
        with pytest.raises(HandlerFailed) as raised:
            await asyncio.wait_for(processes.run(function, attempt()), PATIENCE_SECONDS)
        answers.append((raised.value.failure.code, raised.value.failure.done))

    assert [("card.unknown", "no"), ("ConnectionError", "unknown"), ("result.malformed", "unknown")] == answers[:3]
    assert [("SystemExit", "unknown"), ("KeyboardInterrupt", "unknown")] == answers[3:]


async def test_a_pause_comes_back_from_another_process(processes: ProcessPool) -> None:
    with pytest.raises(HandlerFailed) as raised:
        await asyncio.wait_for(processes.run(busy.paused, attempt()), PATIENCE_SECONDS)
    failure = raised.value.failure

    assert ("paused", "429", 5_000) == (failure.code, failure.message, failure.pause_ms)


async def test_a_process_that_dies_has_its_attempt_run_again(processes: ProcessPool, tmp_path: Path) -> None:
    """Under the same key: kill -9 in the middle of it."""
    answer = await asyncio.wait_for(
        processes.run(busy.killed_once, attempt(mark=str(tmp_path / "m"))), PATIENCE_SECONDS
    )

    assert "done" == answer


async def test_a_pool_that_never_started_can_be_closed() -> None:
    await ProcessPool().close()


def test_a_function_that_cannot_be_imported_is_refused() -> None:
    def inner(attempt: Attempt) -> None:
        return None

    assert "tests.unit.runtime.busy:squared" == address_of(busy.squared)
    with pytest.raises(UsageError, check=lambda error: error.code == "handler.cpu"):
        address_of(inner)
    chart = interlock.loads(CHART)
    chart.handler("squared", cpu=True)(inner)
    with pytest.raises(UsageError, check=lambda error: error.code == "handler.cpu"):
        interlock.connect("memory:", charts=[chart], work=True)


async def test_the_heartbeat_details_of_a_cpu_handler_reach_the_next_attempt() -> None:
    chart = interlock.loads(BOOK)
    chart.handler("pages", cpu=True, heartbeat="30s")(busy.pages)
    async with asyncio.timeout(PATIENCE_SECONDS), interlock.open("memory:", charts=[chart]) as sums:
        await sums.create("sum/1")
        async for entry in sums.watch("sum/1"):
            if entry.after == ("done",):
                break

    assert [3, 4] == entry.event.data


async def test_a_cpu_handler_that_exceeds_its_timeout_is_killed_and_retried(tmp_path: Path) -> None:
    mark = tmp_path / "m"
    chart = interlock.loads(SPIN.replace("MARK", str(mark)))
    chart.handler("spins", cpu=True)(busy.spins)
    async with asyncio.timeout(PATIENCE_SECONDS), interlock.open("memory:", charts=[chart]) as sums:
        await sums.create("sum/1")
        async for entry in sums.watch("sum/1"):
            if entry.after == ("done",):
                break
        killed = int(mark.read_text(encoding="utf-8"))

    assert killed != entry.event.data
    assert not _is_alive(killed)


async def test_a_cpu_handler_without_tries_left_has_failed(tmp_path: Path) -> None:
    mark = tmp_path / "m"
    chart = interlock.loads(SPIN.replace("MARK", str(mark)).replace("max: 20", "max: 0"))
    chart.handler("spins", cpu=True)(busy.spins)
    async with asyncio.timeout(PATIENCE_SECONDS), interlock.open("memory:", charts=[chart]) as sums:
        await sums.create("sum/1")
        async for entry in sums.watch("sum/1"):
            if entry.after == ("lost",):
                break

    assert ("timeout", "unknown") == (entry.event.data["code"], entry.event.data["done"])
    assert not mark.exists() or not _is_alive(int(mark.read_text(encoding="utf-8")))


async def test_killing_one_attempt_leaves_the_others_running(processes: ProcessPool, tmp_path: Path) -> None:
    mark = tmp_path / "m"
    spinning = asyncio.ensure_future(processes.run(busy.spins, attempt(mark=str(mark))))
    async with asyncio.timeout(PATIENCE_SECONDS):
        await eventually(mark.exists)
        spinning.cancel()
        await asyncio.wait({spinning})
        alive = _is_alive(int(mark.read_text(encoding="utf-8")))
        answers = await asyncio.gather(*(processes.run(busy.squared, attempt(number=each)) for each in range(8)))

    assert (True, False) == (spinning.cancelled(), alive)
    assert [each**2 for each in range(8)] == [each["square"] for each in answers]


async def test_an_attempt_given_up_before_it_started_never_starts(processes: ProcessPool, tmp_path: Path) -> None:
    marks = [tmp_path / str(each) for each in range(4)]
    given_up = [asyncio.ensure_future(processes.run(busy.spins, attempt(mark=str(mark)))) for mark in marks]
    await asyncio.sleep(0)
    for each in given_up:
        each.cancel()
    await asyncio.wait(given_up)
    answer = await asyncio.wait_for(processes.run(busy.squared, attempt(number=3)), PATIENCE_SECONDS)

    assert 9 == answer["square"]
    assert [] == [each for each in marks if each.exists()]


async def test_a_process_does_not_start_an_attempt_that_is_not_expected() -> None:
    holds = RunningAttempts("t")
    try:
        with holds.expect(7):
            asked = [await asyncio.to_thread(_asked, holds.address, number) for number in (7, 8)]
        late = await asyncio.to_thread(_asked, holds.address, 7)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as stranger:
            stranger.connect(holds.address)
            stranger.sendall(b"x")
            stranger.setblocking(False)
            assert b"" == await asyncio.wait_for(asyncio.get_running_loop().sock_recv(stranger, 1), PATIENCE_SECONDS)
    finally:
        holds.close()

    assert ([True, False], False) == (asked, late)
    assert not await asyncio.to_thread(_asked, holds.address, 7)


def _asked(address: str, number: int) -> bool:
    with attempt_connection(address, number) as wanted:
        return wanted


def _is_alive(pid: int) -> bool:
    """Whether a process runs; one that is dead and not yet buried does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


async def test_heartbeats_from_strangers_are_dropped() -> None:
    beats, told = HeartbeatListener("t"), list[object]()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as stranger:
        try:
            with beats.listen(told.append) as number:
                for text in (b"", b"\xff", b"[1]", b"[77,3]", b'["x",3]', b"[%d,3]" % number):
                    stranger.sendto(text, beats.address)
            with heartbeat_sender(beats.address, number) as tell:
                tell("late")
            with beats.listen(None), heartbeat_sender(beats.address, 9) as nobody:
                nobody("listens")
        finally:
            beats.close()
    with heartbeat_sender(beats.address, 1) as gone:
        gone("nobody is there")

    assert [3] == told

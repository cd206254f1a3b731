"""Handlers in processes of their own."""

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
from interlock.runtime.beats import Beats, telling
from interlock.runtime.cpu import Processes, address_of
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

BOOK = """
interlock: 1
kind: sum
initial: reading
states:
  reading: {invoke: {id: r, src: pages, retry: {max: 1, backoff: 1ms}, onDone: done}}
  done: {type: final}
"""


@pytest.fixture
async def processes() -> AsyncIterator[Processes]:
    """Processes that end with the test."""
    found = Processes()
    yield found
    await found.close()


def attempt(**given: Any) -> Attempt:
    """One attempt."""
    return Attempt("sum/1", "squared", given, "k", 1, None, asyncio.Event())


async def test_a_busy_handler_runs_in_another_process_and_its_result_comes_back() -> None:
    """Through the whole runtime."""
    chart = interlock.loads(CHART)
    chart.handler("squared", cpu=True)(busy.squared)
    async with asyncio.timeout(50), interlock.open("memory:", charts=[chart]) as sums:
        await sums.create("sum/1")
        async for entry in sums.watch("sum/1"):
            if entry.after == ("done",):
                break
        context = (await sums.state("sum/1")).context

    assert 144 == context["square"]
    assert context["pid"] not in (0, os.getpid())


async def test_errors_come_back_as_what_they_say(processes: Processes) -> None:
    """Refused: not done. Anything else, and what cannot be kept: perhaps done."""
    answers = []
    for function in (busy.refused, busy.lost, busy.garbage):
        with pytest.raises(HandlerFailed) as raised:
            await asyncio.wait_for(processes.run(function, attempt()), 50)
        answers.append((raised.value.failed.code, raised.value.failed.done))

    assert [("card.unknown", "no"), ("ConnectionError", "unknown"), ("result.malformed", "unknown")] == answers


async def test_a_process_that_dies_has_its_attempt_run_again(processes: Processes, tmp_path: Path) -> None:
    """Under the same key: kill -9 in the middle of it."""
    answer = await asyncio.wait_for(processes.run(busy.killed_once, attempt(mark=str(tmp_path / "m"))), 50)

    assert "done" == answer


async def test_processes_that_never_began_are_closed_without_ado() -> None:
    """No handler was busy."""
    await Processes().close()


def test_a_function_that_no_other_process_finds_is_refused() -> None:
    """At once, with what to do."""

    def inner(attempt: Attempt) -> None:
        return None

    assert "tests.unit.runtime.busy:squared" == address_of(busy.squared)
    with pytest.raises(UsageError, match="no other process can find"):
        address_of(inner)
    chart = interlock.loads(CHART)
    chart.handler("squared", cpu=True)(inner)
    with pytest.raises(UsageError, match="no other process can find"):
        interlock.open("memory:", charts=[chart]).__enter__()


async def test_a_busy_handler_tells_how_far_it_is_and_the_next_attempt_goes_on_there() -> None:
    """From another process, and to another: nothing told before the end is missed."""
    chart = interlock.loads(BOOK)
    chart.handler("pages", cpu=True, heartbeat="30s")(busy.pages)
    async with asyncio.timeout(50), interlock.open("memory:", charts=[chart]) as sums:
        await sums.create("sum/1")
        async for entry in sums.watch("sum/1"):
            if entry.after == ("done",):
                break

    assert [3, 4] == entry.event.data


async def test_what_strangers_send_is_not_heard() -> None:
    """Garbage, numbers of nobody, and what comes after the end: dropped, and the next is heard."""
    beats, told = Beats("t"), list[object]()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as stranger:
        try:
            with beats.heard(told.append) as number:
                for text in (b"", b"\xff", b"[1]", b"[77,3]", b'["x",3]', b"[%d,3]" % number):
                    stranger.sendto(text, beats.address)
            with telling(beats.address, number) as tell:
                tell("late")
            with beats.heard(None), telling(beats.address, 9) as nobody:
                nobody("listens")
        finally:
            beats.close()
    with telling(beats.address, 1) as gone:
        gone("nobody is there")

    assert [3] == told

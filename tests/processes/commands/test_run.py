"""`interlock run` as a process: work, signals, and what it prints."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import interlock
from interlock.ports.work import WorkQuery
from interlock.stores.sqlite.store import open_store
from tests.support.eventually import PATIENCE_SECONDS, eventually
from tests.support.old_stores import forget_definitions
from tests.unit.cli.commands.operation.test_run import URL

ORDER = """
interlock: 1
kind: order
revision: 1.0.0
initial: unpaid
states:
  unpaid: {on: {pay: charging}}
  charging: {invoke: {id: charge, src: payment.charge, onDone: paid, onError: declined}}
  paid: {}
  declined: {}
"""


APP = """
import asyncio, os, pathlib
import interlock

order = interlock.load("order.yaml")
how = os.environ["HOW"]


def say(attempt):
    print("started", attempt.key, flush=True)


if how == "thread":
    @order.handler("payment.charge")
    def charge(attempt):
        say(attempt)
        pathlib.Path("gate").read_text()  # a pipe: it waits until the test writes
elif how == "hangs":
    @order.handler("payment.charge")
    async def charge(attempt):
        attempt.heartbeat({"page": 41 + attempt.number})
        say(attempt)
        await asyncio.Event().wait()
elif how == "stubborn":
    @order.handler("payment.charge")
    async def charge(attempt):
        say(attempt)
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                continue


def charts():
    return [order]
"""


@pytest.fixture
def orders(folder: Path) -> Path:
    """A folder with an application, and an order that waits to be charged."""
    (folder / "order.yaml").write_text(ORDER, encoding="utf-8")
    (folder / "orders_app.py").write_text(APP, encoding="utf-8")
    os.mkfifo(folder / "gate")
    with interlock.open(URL, charts=[interlock.load("order.yaml")], work=False).blocking() as sender:
        sender.create("order/1")
        sender.send("order/1", "pay")
    return folder


class Worker:
    """A process of `interlock run`."""

    def __init__(self, folder: Path, how: str, *options: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-u", "-m", "interlock", "run", "orders_app:charts", "--store", URL, *options],
            cwd=folder,
            env={**os.environ, "HOW": how, "PYTHONPATH": str(folder)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def wait_for_start(self) -> str:
        """Wait until a handler has started; return its key."""
        assert self.process.stdout is not None
        word, key = self.process.stdout.readline().split()

        assert "started" == word
        return key

    def wait_for_line(self, word: str) -> str:
        """Wait for a line that starts with a word."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if line.startswith(word):
                return line
        raise AssertionError(f"no line `{word}`")

    def ended(self) -> tuple[int, str]:
        """Its code and its last report."""
        out, _ = self.process.communicate(timeout=PATIENCE_SECONDS)
        return self.process.returncode, out


@contextmanager
def worker(folder: Path, how: str, *options: str) -> Iterator[Worker]:
    """A process that ends with the test."""
    found = Worker(folder, how, *options)
    try:
        yield found
    finally:
        found.process.kill()
        found.process.communicate()


async def settled() -> tuple[list[str], tuple[str, ...]]:
    """Charge the rest in this process; return the keys, and the last state of the order."""
    chart, asked = interlock.load("order.yaml"), list[str]()

    @chart.handler("payment.charge")
    async def charge(attempt: interlock.Attempt) -> None:
        asked.append(attempt.key)

    async with asyncio.timeout(PATIENCE_SECONDS), interlock.open(URL, charts=[chart]) as runtime:
        async for entry in runtime.watch("order/1", poll_ms=50):
            if "paid" in entry.after:
                break
        assert runtime.store.work is not None
        assert () == (await runtime.store.work.list_work(WorkQuery())).rows
        return asked, (await runtime.state("order/1")).configuration


def test_running_work_finishes_before_the_process_ends(orders: Path) -> None:
    with worker(orders, "thread") as process:
        running = process.wait_for_line("running")
        process.wait_for_start()
        process.process.send_signal(signal.SIGTERM)
        draining = process.wait_for_line("draining")
        (orders / "gate").write_text("go")
        code, said = process.ended()

    assert ": order 1.0.0 b1." in running
    assert "1 handler" in running
    assert "SIGTERM" in draining
    assert (0, "stopped: 1 finished, 0 requeued") == (code, said.partition(" (")[0])
    assert ([], ("paid",)) == asyncio.run(settled())


def test_work_that_does_not_finish_is_requeued(orders: Path) -> None:
    with worker(orders, "hangs", "--drain", "100ms") as process:
        key = process.wait_for_start()
        process.process.send_signal(signal.SIGINT)
        code, said = process.ended()

    assert (0, "stopped: 0 finished, 1 requeued") == (code, said.partition(" (")[0])
    assert ([key], ("paid",)) == asyncio.run(settled())


def test_the_key_prefix_comes_from_the_option_or_the_project(orders: Path) -> None:
    (orders / "interlock.toml").write_text('key_prefix = "eu/"\n')
    keys = []
    for options in ((), ("--key-prefix", "us/"), ("--key-prefix", "")):
        with worker(orders, "hangs", "--drain", "100ms", *options) as process:
            keys.append(process.wait_for_start())
            process.process.send_signal(signal.SIGTERM)
            process.ended()

    assert ["eu/order/1/2/0", "us/order/1/2/0", "order/1/2/0"] == keys


def test_a_thread_that_does_not_stop_is_abandoned_with_its_lease(orders: Path) -> None:
    with worker(orders, "thread", "--drain", "100ms", "--lease", "2s") as process:
        key = process.wait_for_start()
        process.process.send_signal(signal.SIGTERM)
        code, said = process.ended()

    assert (0, True) == (code, "1 abandoned" in said)
    assert ([key], ("paid",)) == asyncio.run(settled())


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGKILL, -9)], ids=["term", "int", "kill"]
)
def test_a_second_signal_or_a_kill_stops_it_at_once_and_loses_nothing(
    orders: Path, number: signal.Signals, code: int
) -> None:
    with worker(orders, "stubborn", "--lease", "1s") as process:
        key = process.wait_for_start()
        if number is not signal.SIGKILL:
            process.process.send_signal(number)
            process.wait_for_line("draining")
        process.process.send_signal(number)
        ended, _ = process.ended()

    assert code == ended
    assert ([key], ("paid",)) == asyncio.run(settled())


def test_entries_of_a_killed_process_are_found_by_the_next(orders: Path) -> None:
    with worker(orders, "hangs", "--lease", "600ms") as process:
        process.wait_for_start()
        found = asyncio.run(_has_note())
        process.process.kill()
    chart, seen = interlock.load("order.yaml"), list[object]()

    @chart.handler("payment.charge")
    async def charge(attempt: interlock.Attempt) -> None:
        seen.append(attempt.details)

    asyncio.run(_paid(chart))

    assert ({"details": {"page": 42}}, [{"page": 42}]) == (found, seen)


async def _has_note() -> object:
    """Wait until the work has a note."""
    store = open_store(URL)
    try:

        async def error() -> Any:
            (row,) = (await store.list_work(WorkQuery())).rows
            return row.error

        return await eventually(error)
    finally:
        await store.close()


async def _paid(chart: interlock.BoundChart) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS), interlock.open(URL, charts=[chart]) as runtime:
        async for entry in runtime.watch("order/1", poll_ms=50):
            if "paid" in entry.after:
                return


def test_processes_of_one_lifecycle_stop_together(orders: Path) -> None:
    life = ("--lifecycle", f"test-run-{os.getpid()}")
    with worker(orders, "nothing", *life) as idle, worker(orders, "hangs", *life, "--drain", "100ms") as busy:
        idle.wait_for_line("running")
        key = busy.wait_for_start()
        busy.process.send_signal(signal.SIGTERM)
        ends = busy.ended(), idle.ended()

    assert [(0, "stopped: 0 finished, 1 requeued"), (0, "stopped; no work in progress")] == [
        (code, said.partition(" (")[0]) for code, said in ends
    ]
    assert ([key], ("paid",)) == asyncio.run(settled())


def test_missing_handlers_are_reported_at_the_start(orders: Path) -> None:
    with worker(orders, "nothing") as process:
        missing = process.wait_for_line("warning")
        advice = process.wait_for_line("  handlers")
        process.process.send_signal(signal.SIGTERM)
        code, said = process.ended()

    assert "no handler for `payment.charge` of `order`" in missing
    assert "interlock run MODULE:NAME" in advice
    assert (0, True) == (code, said.startswith("stopped; no work in progress ("))


def test_entities_of_a_missing_revision_are_reported_at_the_start(orders: Path) -> None:
    """The file has changed, and the store is of a release that stored no definitions."""
    revision = interlock.load(orders / "order.yaml").chart.revision
    (orders / "order.yaml").write_text(ORDER.replace("paid: {}", "paid: {on: {refund: declined}}"), encoding="utf-8")
    forget_definitions(orders / "orders.db")
    with worker(orders, "quick") as process:
        found = process.wait_for_line("warning: entities")

    assert found.startswith(f"warning: entities of order {revision} wait")

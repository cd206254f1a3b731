"""`interlock run --probe` as processes: probes from the start to the end, and one exporter for a store."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

import interlock
from interlock.observe.metrics.exporter import LEASE_MS
from tests.support.eventually import PATIENCE_SECONDS, eventually_blocking
from tests.support.missing import run_without

ORDER = """
interlock: 1
kind: order
revision: 1.0.0
initial: unpaid
states:
  unpaid: {on: {pay: charging}}
  charging: {invoke: {id: charge, src: payment.charge, onDone: paid, onError: unpaid}}
  paid: {}
"""
APP = """
import asyncio, pathlib
import interlock

order = interlock.load("order.yaml")


@order.handler("payment.charge")
async def charge(attempt):
    print("started", flush=True)
    while not pathlib.Path("go").exists():
        await asyncio.sleep(0.01)


def charts():
    return [order]
"""
URL = "sqlite:///orders.db"


@pytest.fixture
def orders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with an application and a store."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "order.yaml").write_text(ORDER, encoding="utf-8")
    (tmp_path / "orders_app.py").write_text(APP, encoding="utf-8")
    with interlock.open(URL, charts=[interlock.load("order.yaml")], work=False).blocking() as sender:
        sender.create("order/1")
    return tmp_path


class Worker:
    """A process of `interlock run --probe`, and a client of its probes."""

    def __init__(self, folder: Path) -> None:
        words = ["run", "orders_app:charts", "--store", URL, "--probe", "127.0.0.1:0"]
        self.process = subprocess.Popen(
            [sys.executable, "-u", "-m", "interlock", *words],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(folder)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        line = self.line("probes")
        found = re.search(r"http://[0-9.]+:[0-9]+", line)
        assert found is not None, line
        self.base = found[0]

    def line(self, word: str) -> str:
        """Wait for a line of messages that starts with a word."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if line.startswith(word):
                return line
        raise AssertionError(f"no line `{word}`")

    def get(self, path: str) -> httpx.Response:
        """Ask a probe."""
        return httpx.get(self.base + path, timeout=PATIENCE_SECONDS)

    def metric(self, name: str) -> float | None:
        """One sample without labels, or with the given ones in its name."""
        lines = (line.rpartition(" ") for line in self.get("/metrics").text.splitlines())
        return next((float(value) for found, _, value in lines if found == name), None)


@contextmanager
def working(folder: Path) -> Iterator[Worker]:
    """A worker that is ended in any case."""
    worker = Worker(folder)
    try:
        yield worker
    finally:
        worker.process.kill()
        worker.process.communicate()


def test_a_process_is_ready_until_the_first_signal_and_live_until_its_end(orders: Path) -> None:
    with working(orders) as worker:
        worker.line("running")
        before: list[Any] = [worker.get("/livez").status_code, worker.get("/readyz").json()]
        with interlock.open(URL, charts=[interlock.load("order.yaml")], work=False).blocking() as sender:
            sender.send("order/1", "pay")
        assert worker.process.stdout is not None
        assert "started\n" == worker.process.stdout.readline()  # its handler waits, so the drain does
        worker.process.send_signal(signal.SIGTERM)
        worker.line("draining")
        draining, live, metrics = (worker.get(each) for each in ("/readyz", "/livez", "/metrics"))
        (orders / "go").touch()
        output, _ = worker.process.communicate(timeout=PATIENCE_SECONDS)

    assert [200, {"ready": True, "reasons": []}] == before
    assert (503, ["draining"]) == (draining.status_code, [each["code"] for each in draining.json()["reasons"]])
    assert (200, 200) == (live.status_code, metrics.status_code)
    assert 'interlock_effect_attempts_total{handler="payment.charge"' not in metrics.text  # it has not ended yet
    assert (0, True) == (worker.process.returncode, "1 finished" in output)
    with pytest.raises(httpx.ConnectError):
        worker.get("/livez")


def test_a_killed_exporter_is_replaced_and_no_gauge_is_doubled(orders: Path) -> None:
    """The lease of the killed process must end first. The test moves its end instead of waiting for half a minute."""
    population = 'interlock_entities{kind="order",state="unpaid"}'
    with working(orders) as first, working(orders) as second:
        first.line("running")
        second.line("running")
        both = [(each.metric(population), each.metric("interlock_exporter_leader")) for each in (first, second)]
        leader, other = (first, second) if both[0][1] else (second, first)
        leader.process.kill()
        leader.process.wait()
        end_lease(orders / "orders.db")

        eventually_blocking(lambda: other.metric("interlock_exporter_leader") == 1, "another exporter")
        after = other.metric(population)

    assert sorted([(1.0, 1.0), (None, 0.0)], key=str) == sorted(both, key=str)
    assert 1 == after


def end_lease(path: Path) -> None:
    """Let the lease of the exporter end now."""
    import sqlite3
    from contextlib import closing

    with closing(sqlite3.connect(path, timeout=30)) as connection, connection:
        changed = connection.execute("UPDATE lease SET until_ms = until_ms - ? WHERE name = 'exporter'", (LEASE_MS,))
        assert 1 == changed.rowcount


def test_without_the_extra_metrics_the_other_probes_answer(orders: Path) -> None:
    code = f"""
import asyncio
import interlock
from interlock.cli.output.terminal import Terminal
from interlock.cli.probing import probing
from interlock.observe.metrics.exporter import MetricsExporter

async def main():
    chart = interlock.load("order.yaml")
    async with interlock.open("{URL}", charts=[chart], work=False) as runtime:
        async with probing(Terminal(), "127.0.0.1:0", "{URL}") as probes, probes.watching(runtime) as exporter:
            assert exporter is None
            found = [await probes._server.answer(b"GET %s HTTP/1.1" % each) for each in (b"/readyz", b"/metrics")]
            print([each.status for each in found], found[1].body.decode())

asyncio.run(main())
"""
    ended = run_without("prometheus_client", code=code, cwd=orders)

    assert 0 == ended.returncode, ended.stderr
    assert ended.stdout.startswith("[200, 501]"), ended.stdout
    assert "pip install 'interlock[metrics]'" in ended.stdout
    assert "warning" in ended.stderr

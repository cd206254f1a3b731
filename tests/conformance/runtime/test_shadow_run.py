"""A shadow run compares live steps with a new chart. Whatever that chart does, sends continue as without it."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import interlock
from interlock.assemble.charts import BoundChart
from interlock.errors import UsageError
from interlock.evolve.step_comparison import ERROR
from interlock.operate.shadow_follower import ShadowFollower
from interlock.runtime.charts.registry import ChartRegistry
from interlock.runtime.runtime import Runtime
from interlock.runtime.trials.reports import StoredReport, read_reports
from interlock.runtime.trials.shadow_run import ShadowRun
from tests.support.cli import Caller
from tests.support.postgres_server import store_or_skip

ORDER = """
interlock: 1
kind: order
context: {total: {type: integer, default: 0}}
events: {add: {payload: {price: integer}}, pay: {}, ship: {}}
states:
  open:
    after: {2d: late}
    on:
      add: {actions: [{assign: {total: "= context.total + event.data.price"}}]}
      pay: paid
  late: {expect: {within: forever}, on: {pay: paid}}
  paid: {expect: {within: 2d}, on: {ship: done}}
  done: {type: final}
"""
SAME = ORDER.replace("after: {2d: late}", "after: {48h: late}")
WRONG = ORDER.replace("total + event", "total - event")
ASKING = ORDER.replace("pay: paid\n  late", "pay: {guard: may_pay, target: paid}\n  late")
ADDRESSES = pytest.mark.parametrize(
    "address",
    ["memory:", "sqlite:///{}/x.db", "file://{}/x", "postgresql:"],
    ids=["memory", "sqlite", "file", "postgresql"],
)


@asynccontextmanager
async def orders(address: str, folder: Path) -> AsyncIterator[Runtime]:
    """Return a runtime of the old chart on an empty store."""
    url = store_or_skip() if address == "postgresql:" else address.format(folder)
    async with interlock.open(url, charts=[interlock.loads(ORDER)], work=False) as runtime:
        yield runtime


async def life(runtime: Runtime, name: str, *, ends: bool = True) -> None:
    """One order, paid and shipped."""
    await runtime.create(f"order/{name}")
    await runtime.send(f"order/{name}", "add", {"price": 5})
    await runtime.send(f"order/{name}", "pay")
    if ends:
        await runtime.send(f"order/{name}", "ship")


def asking(guard: Any) -> BoundChart:
    """The new chart with a guard in Python."""
    chart = interlock.loads(ASKING)
    chart.guard("may_pay")(guard)
    return chart


@ADDRESSES
async def test_a_chart_that_keeps_behaviour_has_no_difference(address: str, tmp_path: Path) -> None:
    async with orders(address, tmp_path) as runtime:
        await life(runtime, "before")
        run = runtime.shadow(interlock.loads(SAME), share=1)
        for number in range(5):
            await life(runtime, str(number))
        report = await run.settled()

    assert (0, (), 20, 5) == (report.divergences, report.groups, report.evidence.entries, report.evidence.entities)
    assert (5, 0, "none") == (report.evidence.ended, run.dropped, report.verdict)
    assert ("add", "pay", "ship") == tuple(sorted(report.evidence.events_seen))
    assert any("after 48h" in each for each in report.evidence.never_taken)


@ADDRESSES
async def test_differences_are_grouped_and_the_entities_are_as_without_it(address: str, tmp_path: Path) -> None:
    async with orders(address, tmp_path) as runtime:
        await life(runtime, "old", ends=False)  # its next steps start from a snapshot that the run has not seen
        run = runtime.shadow(interlock.loads(WRONG), share=1)
        for number in range(4):
            await life(runtime, str(number))
        shipped = await runtime.send("order/old", "ship")
        report = await run.settled()
        states = [(await runtime.state(f"order/{number}")).context for number in range(4)]
        proofs = [each.problem async for each in runtime.verify_all()]
        kinds = await runtime.store.kinds()

    (group,) = report.groups
    assert ("divergent", 4, ("add", ("context.total",), 4)) == (
        report.verdict,
        report.divergences,
        (group.event, group.parts, group.count),
    )
    assert ("context.total: 5 -> -5",) == group.samples[0].differences
    assert "applied" == shipped.outcome
    assert [{"total": 5}] * 4 == states
    assert {None} == set(proofs)
    assert {"order"} == {*kinds} - {"interlock-report"}
    assert report.evidence.longest_ms is not None


@pytest.mark.parametrize("error", [ValueError, SystemExit, KeyboardInterrupt, RecursionError])
async def test_an_exception_of_the_new_chart_reaches_no_sender(error: type[BaseException], tmp_path: Path) -> None:
    def guard(context: Any, event: Any) -> bool:
        raise error

    async with orders("memory:", tmp_path) as runtime:
        run = runtime.shadow(asking(guard), share=1)
        for number in range(3):
            await life(runtime, str(number))
        report = await run.settled()
        ended = [(await runtime.state(f"order/{number}")).ended for number in range(3)]

    assert ["done"] * 3 == ended
    assert "divergent" == report.verdict
    assert {"pay"} == {each.event for each in report.groups}
    assert 3 == sum(each.count for each in report.groups)
    if not issubclass(error, Exception):
        assert {(ERROR,)} == {each.parts for each in report.groups}


@ADDRESSES
async def test_a_slow_new_chart_and_a_full_queue_delay_no_sender(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new chart does not return until all sends have: they wait for nothing, and what does not fit is counted."""
    monkeypatch.setattr("interlock.runtime.trials.shadow_run.SHADOW_QUEUE_MAX", 4)
    entered, release = threading.Event(), threading.Event()

    def guard(context: Any, event: Any) -> bool:
        entered.set()
        release.wait()
        return True

    async with orders(address, tmp_path) as runtime:
        run = runtime.shadow(asking(guard), share=1)
        try:
            await life(runtime, "first")
            while not entered.is_set():
                await runtime.clock.sleep_ms(1)
            outcomes = []
            for number in range(6):
                await runtime.create(f"order/{number}")
                outcomes.append((await runtime.send(f"order/{number}", "pay")).outcome)
            waiting, dropped = run.waiting, run.dropped
        finally:
            release.set()
        report = await run.settled()

    assert ["applied"] * 6 == outcomes
    assert (4, 9) == (waiting, dropped)  # of 13 steps behind the one that does not return
    assert ("unknown", 0) == (report.verdict, report.divergences)
    assert [("queue.full", dropped)] == [(each.code, each.count) for each in report.gaps]


async def test_a_new_chart_that_never_returns_does_not_stop_the_close(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("interlock.runtime.trials.shadow_run.STOP_MS_MAX", 20)
    monkeypatch.setattr("interlock.runtime.trials.shadow_run.SHADOW_STUCK_MS", 0)
    entered, release = threading.Event(), threading.Event()

    def guard(context: Any, event: Any) -> bool:
        entered.set()
        release.wait()
        return True

    try:
        async with orders("memory:", tmp_path) as runtime:
            run = runtime.shadow(asking(guard))
            await life(runtime, "1")
            while not entered.is_set():
                await runtime.clock.sleep_ms(1)
            report = await run.stop()
        assert "shadow.stuck" in [each.code for each in report.gaps]
    finally:
        release.set()


async def test_no_effect_of_the_new_chart_is_performed(tmp_path: Path) -> None:
    text = ORDER.replace("  paid: {expect: {within: 2d}, ", "  paid: {invoke: {src: bank, input: {sum: 1}}, ")
    old, new = interlock.loads(text), interlock.loads(text.replace("sum: 1", "sum: 2"))
    called: list[str] = []
    old.handler("bank")(lambda effect: called.append("old"))
    new.handler("bank")(lambda effect: called.append("new"))
    async with interlock.open(f"sqlite:///{tmp_path}/x.db", charts=[old]) as runtime:
        run = runtime.shadow(new, share=1)
        await life(runtime, "1", ends=False)
        while not called:
            await runtime.clock.sleep_ms(1)
        report = await run.settled()

    assert ["old"] == called
    assert [("pay", 1)] == [(each.event, each.count) for each in report.groups]
    assert report.groups[0].parts[0].startswith("effects.invoke")


@ADDRESSES
async def test_other_processes_can_read_the_report(address: str, tmp_path: Path) -> None:
    async with orders(address, tmp_path) as runtime:
        run = runtime.shadow(interlock.loads(WRONG), share=1)
        await life(runtime, "1")
        await run.settled()
        await run.save(is_running=True)
        other = Runtime(runtime.store, runtime.charts, runtime.clock)
        (current,) = await read_reports(other.entities)
        await life(runtime, "2")
        await run.settled()
        await run.stop()
        (last,) = await read_reports(other.entities)
        proofs = [each.problem async for each in runtime.verify_all()]

    assert ("shadow.run", "order", True, 1) == (
        current.what,
        current.kind,
        current.running,
        current.report["divergences"],
    )
    assert (False, 2) == (last.running, last.report["divergences"])
    assert ["context.total: 5 -> -5"] == last.report["groups"][0]["samples"][0]["differences"]
    assert {None} == set(proofs)


async def test_sensitive_values_are_not_in_the_saved_report(tmp_path: Path) -> None:
    text = WRONG.replace("  open:\n", "  open:\n    sensitive: [total]\n")
    async with orders("memory:", tmp_path) as runtime:
        run = runtime.shadow(interlock.loads(text), share=1)
        await life(runtime, "1")
        await run.settled()
        await run.stop()
        (saved,) = await read_reports(runtime.entities)

    assert ["context.total: (sensitive)"] == saved.report["groups"][0]["samples"][0]["differences"]


async def test_what_a_run_remembers_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("interlock.runtime.trials.shadow_run.SHADOW_ENTITIES_MAX", 3)
    async with orders("memory:", tmp_path) as runtime:
        run = runtime.shadow(interlock.loads(SAME), share=1)
        for number in range(8):
            await life(runtime, str(number), ends=False)
        await runtime.send("order/0", "ship")  # it is carried again, and its creation is asked of the store
        report = await run.settled()

    assert 3 >= len(run._next)
    assert 3 >= len(run._created_ms)
    assert (0, 25, 1) == (report.divergences, report.evidence.entries, report.evidence.ended)
    assert report.evidence.longest_ms is not None


async def test_a_wrong_share_is_refused(tmp_path: Path) -> None:
    async with orders("memory:", tmp_path) as runtime:
        for share in (0, -1, 2):
            with pytest.raises(UsageError):
                runtime.shadow(interlock.loads(SAME), share=share)


def test_the_blocking_runtime_has_it(tmp_path: Path) -> None:
    with interlock.connect(f"sqlite:///{tmp_path}/x.db", charts=[interlock.loads(ORDER)], work=False) as runtime:
        run: ShadowRun = runtime.shadow(interlock.loads(WRONG), share=1)
        runtime.create("order/1")
        runtime.send("order/1", "add", {"price": 1})
        while run.report().evidence.entries < 2:
            pass
        report = run.report()

    assert 1 == report.divergences


# In a separate process


@ADDRESSES
async def test_a_follower_compares_what_other_processes_write(address: str, tmp_path: Path) -> None:
    async with orders(address, tmp_path) as runtime:
        await life(runtime, "old", ends=False)  # before it starts
        reader = Runtime(runtime.store, ChartRegistry([]), runtime.clock)
        await runtime.clock.sleep_ms(2)
        follower = ShadowFollower(reader, interlock.loads(WRONG).kernel, share=1, who="ada")
        following = asyncio.ensure_future(follower.follow())
        for number in range(3):
            await life(runtime, str(number))
        await runtime.send("order/old", "ship")
        async with asyncio.timeout(120):
            while follower.run.report().evidence.entries < 13:
                await runtime.clock.sleep_ms(10)
        following.cancel()
        report = await follower.run.stop()
        (saved,) = await read_reports(runtime.entities)

    assert (3, ("context.total",), 13, ()) == (
        report.divergences,
        report.groups[0].parts,
        report.evidence.entries,
        report.gaps,
    )
    assert ("ada", False) == (saved.who, saved.running)
    assert 4 == report.evidence.ended


@pytest.mark.parametrize("ends_by", ["signal", "time"])
def test_the_command_follows_until_it_is_stopped(folder: Path, ends_by: str) -> None:
    url = f"sqlite:///{folder}/x.db"
    Path("wrong.yaml").write_text(WRONG, encoding="utf-8")
    command = [sys.executable, "-m", "interlock", "shadow", "run", url, "--chart", "wrong.yaml", "--json"]
    command += ["--for", "1s"] if ends_by == "time" else []
    with interlock.connect(url, charts=[interlock.loads(ORDER)], work=False) as runtime:
        runtime.create("order/0")
        running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            assert running.stderr is not None
            assert "running" in running.stderr.readline()
            runtime.create("order/1")
            runtime.send("order/1", "add", {"price": 5})
            if ends_by == "signal":
                while not _saved(runtime):
                    pass
                running.send_signal(signal.SIGTERM)
            out, _ = running.communicate(timeout=120)
        finally:
            running.kill()
            running.wait()
        saved = _saved(runtime)

    report = json.loads(out)
    if ends_by == "signal":
        assert (1, "divergent", 2) == (running.returncode, report["verdict"], report["evidence"]["entries"])
        assert 1 == saved[0].report["divergences"]
    else:  # the time may have passed before the first entry was read
        assert running.returncode in (1, 12)
    assert [False] == [each.running for each in saved]


def _saved(runtime: interlock.BlockingRuntime) -> tuple[StoredReport, ...]:
    found = asyncio.run_coroutine_threadsafe(read_reports(runtime.runtime.entities), runtime._loop).result()
    return tuple(each for each in found if each.report["evidence"]["entries"] > 1 or not each.running)


def test_replays_and_refolds_are_saved_on_request(call: Caller, folder: Path) -> None:
    url = f"sqlite:///{folder}/x.db"
    Path("order.yaml").write_text(ORDER, encoding="utf-8")
    Path("wrong.yaml").write_text(WRONG, encoding="utf-8")
    call("create", url, "order/1", "--chart", "order.yaml")
    call("send", url, "order/1", "add", '{"price": 5}', "--chart", "order.yaml")
    for _ in range(2):
        assert 1 == call("shadow", "replay", url, "--chart", "wrong.yaml", "--save").code
    assert 1 == call("refold", url, "--chart", "wrong.yaml", "--save").code
    with interlock.connect(url, charts=[interlock.loads(ORDER)], work=False) as runtime:
        saved = _saved_all(runtime)
        problems = [each.problem for each in runtime.verify_all()]

    assert {"refold", "shadow.replay"} == {each.what for each in saved}
    assert 2 == len(saved)
    assert all("context.total: 5 -> -5" in str(each.report) for each in saved)
    assert {None} == set(problems)


def _saved_all(runtime: interlock.BlockingRuntime) -> tuple[StoredReport, ...]:
    return asyncio.run_coroutine_threadsafe(read_reports(runtime.runtime.entities), runtime._loop).result()

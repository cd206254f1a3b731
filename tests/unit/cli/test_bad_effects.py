"""Effects that go wrong, as a person finds them: what the journal says, what `effects ls` says, and what to do next."""

from __future__ import annotations

import asyncio
import re
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import interlock
from interlock.ports.work import WorkQuery, WorkRow
from interlock.runtime.charts.registry import child_entity
from tests.support.cli import Caller, Ended
from tests.support.eventually import PATIENCE_SECONDS, eventually

STORE = "sqlite:///orders.db"
NETWORK = "{interlock: 1, kind: network, states: {making: {}}}"


def order(invoke: str) -> interlock.BoundChart:
    """An order that asks for one thing."""
    return interlock.loads(
        f"""
interlock: 1
kind: order
revision: 1.0.0
initial: charging
states:
  charging: {{{invoke}}}
  paid: {{}}
  declined: {{}}
"""
    )


def invoked(**options: str) -> interlock.BoundChart:
    """An order that invokes a handler."""
    rest = "".join(f", {name}: {value}" for name, value in options.items())
    return order(f"invoke: {{id: charge, src: payment.charge{rest}, onDone: paid, onError: declined}}")


async def run_until(until: Callable[[interlock.Runtime], Any], *charts: interlock.BoundChart) -> None:
    """An order's life until something is so."""
    async with interlock.open(STORE, charts=charts) as orders:
        await orders.create("order/1")
        await eventually(partial(until, orders))


async def _rows(orders: interlock.Runtime) -> tuple[WorkRow, ...]:
    assert orders.store.work is not None
    return (await orders.store.work.list_work(WorkQuery())).rows


async def is_declined(orders: interlock.Runtime) -> bool:
    """The chart heard of it."""
    return (await orders.state("order/1")).configuration == ("declined",)


async def has_failed(orders: interlock.Runtime) -> bool:
    """It failed once, or for good."""
    return any(each.error is not None for each in await _rows(orders))


async def is_left(orders: interlock.Runtime) -> bool:
    """Its work is there."""
    return len(await _rows(orders)) == 1


async def has_a_child(orders: interlock.Runtime) -> bool:
    """Whether it started its child and waits for it."""
    return any(each.next_ms is None for each in await _rows(orders))


def journal_and_work(call: Caller) -> tuple[str, Ended]:
    """The last entry with what it carried, and the list of work."""
    journal = call("journal", STORE, "order/1", "-v").out
    return journal, call("effects", "ls", STORE)


def plain(text: str) -> str:
    """The list without what depends on the time of day."""
    return re.sub(r"\b(\d+(ms|s|m|h)|\d{4}-\d\d-\d\dT[\d:.]+Z)+\b", "T", text)


async def _raises(attempt: interlock.Attempt) -> None:
    raise ConnectionError("the bank is away")


async def _hangs(attempt: interlock.Attempt) -> None:
    await asyncio.Event().wait()


_GATE = threading.Event()


def _hangs_in_a_thread(attempt: interlock.Attempt) -> None:
    _GATE.wait(PATIENCE_SECONDS)


async def _garbage(attempt: interlock.Attempt) -> object:
    return {"receipt": object()}


def test_a_handler_that_raises_is_listed_with_its_next_attempt(call: Caller, folder: Path) -> None:
    chart = invoked(retry="{max: 3, backoff: 1h, jitter: none}")
    chart.handler("payment.charge")(_raises)
    asyncio.run(run_until(has_failed, chart))
    journal, listed = journal_and_work(call)

    assert "order/1/1/0  payment.charge  retry 1/3 in T  T old  ConnectionError: the bank is away\n" == plain(
        listed.out
    )
    assert "error." not in journal


@pytest.mark.parametrize(
    ("handler", "options", "code"),
    [
        (_raises, {}, "ConnectionError"),
        (_hangs, {"timeout": "20ms"}, "timeout"),
        (_hangs_in_a_thread, {"timeout": "20ms"}, "timeout"),
        (_garbage, {}, "result.malformed"),
    ],
    ids=["raises", "hangs", "hangs-in-a-thread", "garbage"],
)
def test_a_handler_that_fails_permanently_is_in_the_journal(
    call: Caller, folder: Path, handler: Any, options: dict[str, str], code: str
) -> None:
    chart = invoked(**options)
    chart.handler("payment.charge")(handler)
    _GATE.clear()
    asyncio.run(run_until(is_declined, chart))
    _GATE.set()
    journal, listed = journal_and_work(call)

    assert "error.invoke.charge  charging → declined" in journal
    assert f'"code":"{code}"' in journal
    assert '"done":"unknown"' in journal
    assert ("", "no pending work\n") == (listed.out, listed.err)


def test_a_silent_handler_is_in_the_journal(call: Caller, folder: Path) -> None:
    chart = invoked()
    chart.handler("payment.charge", heartbeat="20ms")(_hangs)
    asyncio.run(run_until(is_declined, chart))

    assert '"code":"heartbeat"' in journal_and_work(call)[0]


def test_a_failed_action_without_error_transition_is_a_dead_letter(call: Caller, folder: Path) -> None:
    chart = order("entry: [payment.charge]")

    @chart.handler("payment.charge")
    async def refuse(attempt: interlock.Attempt) -> None:
        raise interlock.RejectedError("no such card", code="card.unknown")

    asyncio.run(run_until(has_failed, chart))
    _, listed = journal_and_work(call)
    dropped = call("effects", "drop", STORE, "order/1/1/0")

    assert "order/1/1/0  payment.charge  dead letter for T  T old  card.unknown: no such card\n" == plain(listed.out)
    assert "1 dead letter needs attention: interlock effects retry KEY, or drop KEY\n" == listed.err
    assert (0, "") == (dropped.code, call("effects", "ls", STORE).out)


def test_a_missing_handler_is_shown_if_the_charts_are_given(
    call: Caller, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asyncio.run(run_until(is_left, invoked()))
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
    (folder / "bare_order.py").write_text(
        "import interlock\norder = interlock.loads("
        '"{interlock: 1, kind: order, states: {a: {entry: [other]}}}")\n'
        'order.handler("other")(print)\n'
    )
    bare = call("effects", "ls", STORE)
    listed = call("effects", "ls", STORE, "--chart", "bare_order:order")

    assert "order/1/1/0  payment.charge  pending  T old\n" == plain(bare.out)
    assert "order/1/1/0  payment.charge  pending; no handler  T old\n" == plain(listed.out)
    assert "no handler for payment.charge: start a worker that has it, with interlock run\n" == listed.err


def test_a_child_that_never_answers_is_seen_waiting(call: Caller, folder: Path) -> None:
    child = "invoke: {id: net, type: chart, src: network, onDone: paid, onError: declined}"
    asyncio.run(run_until(has_a_child, order(child), interlock.loads(NETWORK)))
    _, listed = journal_and_work(call)
    name = child_entity("network", "net", "order/1/1/0")

    assert f"order/1/1/0  child network  waiting for child {name}  T old\n" == plain(listed.out)
    assert call("journal", STORE, name).out.endswith("_create  → making\n")


def test_a_chart_written_in_place_has_a_child_without_a_name_in_the_list(call: Caller, folder: Path) -> None:
    child = f"invoke: {{id: net, type: chart, src: {NETWORK}, onDone: paid, onError: declined}}"
    asyncio.run(run_until(has_a_child, order(child)))
    _, listed = journal_and_work(call)

    assert "order/1/1/0  child charging.0  waiting for child  T old\n" == plain(listed.out)


def test_a_child_that_takes_too_long_is_in_the_journal(call: Caller, folder: Path) -> None:
    child = "invoke: {id: net, type: chart, src: network, timeout: 20ms, onDone: paid, onError: declined}"
    asyncio.run(run_until(is_declined, order(child), interlock.loads(NETWORK)))
    journal, listed = journal_and_work(call)

    assert "error.invoke.net  charging → declined" in journal
    assert '"code":"timeout"' in journal
    assert "" == listed.out


def test_a_child_without_a_chart_is_listed_as_missing_its_handler(call: Caller, folder: Path) -> None:
    child = "invoke: {id: net, type: chart, src: network, onDone: paid, onError: declined}"
    asyncio.run(run_until(has_failed, order(child)))
    _, listed = journal_and_work(call)

    assert "no handler" in listed.out
    assert "kind.unknown: unknown kind `network`" in listed.out
    assert "no handler for network: start a worker that has it, with interlock run\n" == listed.err


def test_an_entity_stuck_on_a_result_points_to_its_work(call: Caller, folder: Path) -> None:
    text = """\
interlock: 1
kind: order
initial: charging
states:
  charging:
    expect: {within: 1ms}
    invoke: {id: charge, src: payment.charge, timeout: 1h, onDone: paid, onError: declined}
  paid: {}
  declined: {}
"""
    (folder / "order.yaml").write_text(text, encoding="utf-8")
    asyncio.run(run_until(is_left, interlock.loads(text)))
    ended = call("stuck", STORE, "--chart", "order.yaml")
    lines = ended.out.splitlines()

    assert 0 == ended.code, ended.err
    assert lines[1].endswith("accepts no external event")
    assert "  next: interlock show order/1, then interlock effects ls --entity order/1" == lines[2]


def test_show_lists_work_that_needs_attention(call: Caller, folder: Path) -> None:
    text = """\
interlock: 1
kind: order
initial: charging
states:
  charging:
    invoke: {id: charge, src: payment.charge, retry: {max: 9, backoff: 1h, jitter: none}, onDone: paid, onError: paid}
  paid: {}
"""
    (folder / "order.yaml").write_text(text, encoding="utf-8")
    chart = interlock.loads(text)
    chart.handler("payment.charge")(_raises)
    asyncio.run(run_until(has_failed, chart))
    ended = call("show", STORE, "order/1", "--chart", "order.yaml")
    past = call("show", STORE, "order/1", "--chart", "order.yaml", "--at", "1")

    assert 0 == ended.code, ended.err
    assert [
        "  work     order/1/1/0  payment.charge  retry 1/9 in T  T old  ConnectionError: the bank is away",
        "           attempt 1  T failed after T: ConnectionError: the bank is away; next T",
        "  next     interlock effects ls --entity order/1",
    ] == plain(ended.out).splitlines()[-3:]
    assert "work" not in past.out

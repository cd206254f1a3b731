"""The attempts of an invoke: in the journal once there is a result, with the work until then, and never of a secret."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

import pytest

import interlock
from interlock.cli.main import main
from interlock.ports.clock import SystemClock
from interlock.ports.work import WorkQuery, WorkQueue
from interlock.testing import VirtualClock
from tests.support.eventually import eventually
from tests.unit.web.consoles import console_of, make_user

ORDER = """
interlock: 1
kind: order
sensitive: [card]
context: {card: {type: string, default: "4111"}}
states:
  unpaid: {on: {pay: charging}}
  charging:
    invoke: {id: charge, src: payment.charge, retry: {max: 2, backoff: 10s, jitter: none}}
    on: {done.invoke.charge: paid, error.invoke.charge: unpaid}
  paid: {}
"""


def _chart(failing: int) -> interlock.BoundChart:
    order = interlock.loads(ORDER)

    @order.handler("payment.charge")
    async def charge(attempt: interlock.Attempt) -> None:
        if attempt.number <= failing:
            raise ConnectionError("the bank refused 4111")

    return order


async def _paid(url: str, failing: int, until: str) -> None:
    """Pay an order with a handler that fails some times."""
    clock = VirtualClock(SystemClock().now_ms())
    async with interlock.open(url, charts=[_chart(failing)], clock=clock) as orders:
        await orders.create("order/1")
        await orders.send("order/1", "pay")

        async def is_there() -> bool:
            await clock.advance(10_000)
            return (await orders.state("order/1")).configuration == (until,)

        await eventually(is_there, until)


async def test_the_entry_of_a_result_has_the_attempts_before_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"sqlite:///{tmp_path}/orders.db"
    await _paid(url, 1, "paid")
    async with interlock.open(url, charts=[_chart(0)], work=False) as orders:
        entries = await orders.journal("order/1")

    assert [(), (), (1, 2)] == [tuple(each.number for each in entry.attempts) for entry in entries]
    first, second = entries[-1].attempts
    assert ("ConnectionError", "the bank refused 4111", None) == (first.code, first.message, second.code)
    assert first.next_ms == first.started_ms + first.duration_ms + 10_000
    assert second.started_ms >= first.next_ms

    assert 0 == await _command("journal", url, "order/1")
    assert "  after 2 attempts" in capsys.readouterr().out
    assert 0 == await _command("journal", url, "order/1", "-v")
    printed = capsys.readouterr().out
    assert re.search(r"attempt 1 .* failed after .*: ConnectionError: the bank refused 4111; next \d{4}-", printed)
    assert re.search(r"attempt 2 .* succeeded after ", printed)
    assert 0 == await _command("journal", url, "order/1", "--json")
    assert [1, 2] == [each["number"] for each in json.loads(capsys.readouterr().out.splitlines()[-1])["attempts"]]


async def test_the_entry_of_a_failure_has_every_attempt(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/orders.db"
    await _paid(url, 9, "unpaid")
    async with interlock.open(url, charts=[_chart(0)], work=False) as orders:
        last = (await orders.journal("order/1"))[-1]

    assert [(1, True), (2, True), (3, False)] == [(each.number, each.next_ms is not None) for each in last.attempts]


async def test_a_result_at_the_first_attempt_adds_nothing_to_its_entry(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/orders.db"
    await _paid(url, 0, "paid")
    async with interlock.open(url, charts=[_chart(0)], work=False) as orders:
        assert () == (await orders.journal("order/1"))[-1].attempts


async def test_attempts_of_pending_work_are_listed_with_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    url, clock = f"sqlite:///{tmp_path}/orders.db", VirtualClock(SystemClock().now_ms())
    async with interlock.open(url, charts=[_chart(9)], clock=clock) as orders:
        await orders.create("order/1")
        await orders.send("order/1", "pay")
        work = orders.store.work
        assert work is not None
        await eventually(lambda: _failures(work))

    assert 0 == await _command("effects", "ls", url, "-v")
    printed = capsys.readouterr().out
    assert re.search(r"attempt 1 .* failed after .*: ConnectionError: the bank refused 4111; next \d{4}-", printed)


async def _failures(work: WorkQueue) -> int:
    return sum(row.failures for row in (await work.list_work(WorkQuery())).rows)


@pytest.mark.parametrize(("rights", "shown"), [(("read", "read:sensitive"), True), (("read",), False)])
async def test_the_console_shows_attempts_and_masks_their_errors(
    tmp_path: Path, rights: tuple[str, ...], shown: bool
) -> None:
    url = f"sqlite:///{tmp_path}/orders.db"
    await _paid(url, 1, "paid")
    async with (
        interlock.open(url, charts=[_chart(0)], work=False) as orders,
        console_of(orders, who=make_user(rights=rights)) as client,
    ):
        journal = await client.get("journal/order/1")

    attempts = journal.json()["entries"][-1]["attempts"]
    assert [1, 2] == [each["number"] for each in attempts]
    assert shown == ("4111" in journal.text)
    assert shown == (attempts[0]["code"] == "ConnectionError")


async def _command(*words: str) -> int:
    return await asyncio.to_thread(main, list(words))

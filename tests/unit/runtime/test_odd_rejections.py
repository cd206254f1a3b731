"""Rejections whose text cannot be stored: the handler is called once, and the chart takes `onError`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import interlock
from interlock.effects.handlers import Attempt
from interlock.errors import RejectedError
from tests.support.eventually import PATIENCE_SECONDS
from tests.unit.runtime import busy

ORDER = """
interlock: 1
kind: order
context: {why: {type: string, default: ""}}
initial: paying
states:
  paying:
    invoke:
      id: pay
      src: pay.charge
      retry: {max: 3, backoff: 1ms}
      timeout: 50s
      onDone: paid
      onError: {target: declined, actions: [{assign: {why: "= event.data.code"}}]}
  paid: {type: final}
  declined: {type: final}
"""

SAGA = """
interlock: 1
kind: order
initial: buying
states:
  buying:
    saga:
      steps:
        - {id: reserve, do: {src: stock.reserve}, compensate: {src: stock.release}}
        - {id: pay, do: {src: pay.charge}}
      onDone: bought
      onCompensated: refused
      onError: unsettled
  bought: {type: final}
  refused: {type: final}
  unsettled: {type: final}
"""


def _deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def _circle() -> Any:
    value: list[Any] = []
    value.append(value)
    return value


CODES = ["bank.\ud83d", "a\0b", "x" * 1_000_000, 402]


@pytest.fixture(params=["memory", "sqlite", "file"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of an empty store that keeps work."""
    return {"memory": "memory:", "sqlite": f"sqlite:///{tmp_path}/o.db", "file": f"file://{tmp_path}/o"}[request.param]


async def _ended(orders: interlock.Runtime) -> Any:
    """The entity once it has ended."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        async for _ in orders.watch("order/1", poll_ms=20):
            snapshot = await orders.state("order/1")
            if snapshot.ended is not None:
                return snapshot
    raise AssertionError("it did not end")


@pytest.mark.parametrize("code", CODES, ids=["surrogate", "nul", "megabyte", "number"])
async def test_the_chart_takes_on_error_at_the_first_attempt(store: str, code: Any) -> None:
    chart, calls = interlock.loads(ORDER), list[str]()

    @chart.handler("pay.charge")
    async def charge(attempt: Attempt) -> None:
        calls.append(attempt.key)
        raise RejectedError("declined \udcff", code=code)

    async with interlock.open(store, charts=[chart]) as orders:
        await orders.create("order/1")
        snapshot = await _ended(orders)

        assert (1, ("declined",)) == (len(calls), snapshot.configuration)
        assert snapshot.context["why"].startswith(("bank.", "a", "x", "rejected"))
        assert (await orders.verify("order/1")).problem is None


async def test_a_thread_and_a_process_reject_alike(tmp_path: Path) -> None:
    chart = interlock.loads(ORDER)
    chart.handler("pay.charge", cpu=True)(busy.odd)

    async with interlock.open(f"sqlite:///{tmp_path}/o.db", charts=[chart]) as orders:
        await orders.create("order/1")
        snapshot = await _ended(orders)

    assert ("declined",) == snapshot.configuration
    assert snapshot.context["why"].startswith("bank.\\ud83dx")


@pytest.mark.parametrize(("is_released", "state"), [(True, "refused"), (False, "unsettled")])
async def test_an_odd_rejection_of_a_saga_step_compensates_the_others(
    tmp_path: Path, is_released: bool, state: str
) -> None:
    """And an odd rejection of the compensation is the saga's `onError`."""
    chart, released = interlock.loads(SAGA), list[str]()

    @chart.handler("stock.reserve")
    async def reserve(attempt: Attempt) -> int:
        return 1

    @chart.handler("pay.charge")
    def charge(attempt: Attempt) -> None:
        raise RejectedError("\0", code="\udcff")

    @chart.handler("stock.release")
    async def release(attempt: Attempt) -> None:
        released.append(attempt.key)
        if not is_released:
            raise RejectedError("\ud83d", code="\0")

    async with interlock.open(f"sqlite:///{tmp_path}/o.db", charts=[chart]) as orders:
        await orders.create("order/1")
        snapshot = await _ended(orders)

    assert ((state,), 1) == (snapshot.configuration, len(released))


@pytest.mark.parametrize(
    "returned",
    [lambda: "\ud83d", lambda: {1: 2}, object, lambda: "x" * 2_000_000, lambda: _deep(500), _circle],
    ids=["surrogate", "number as key", "object", "huge", "deep", "circle"],
)
async def test_an_invalid_result_is_an_error_of_its_invoke(
    returned: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("interlock.effects"), "disabled", True)
    chart, calls = interlock.loads(ORDER), list[str]()

    @chart.handler("pay.charge")
    async def charge(attempt: Attempt) -> Any:
        calls.append(attempt.key)
        return returned()

    async with interlock.open("memory:", charts=[chart]) as orders:
        await orders.create("order/1")
        snapshot = await _ended(orders)

    assert (1, ("declined",), "result.malformed") == (len(calls), snapshot.configuration, snapshot.context["why"])

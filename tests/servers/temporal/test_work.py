"""Effects, retries, timers, messages, children and sagas on Temporal: the journals are those of the memory store."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import interlock
from interlock.runtime.runtime import Runtime
from tests.servers.temporal.lives import Ledger, charts, in_state, journals
from tests.support.eventually import eventually
from tests.support.temporal_server import server_or_skip

pytestmark = [pytest.mark.xdist_group("temporal")]

Life = Callable[[Runtime, Ledger], Awaitable[tuple[str, ...]]]


async def retried_effect(runtime: Runtime, ledger: Ledger) -> tuple[str, ...]:
    await runtime.create("shop/1", {}, key="c")
    (await runtime.send("shop/1", "charge", key="a")).expect()
    await in_state(runtime, "shop/1", "open", version=3)
    assert ledger.performed("charge") == ["shop/1/2/0"] * 3
    return ("shop/1",)


async def exhausted_effect(runtime: Runtime, ledger: Ledger) -> tuple[str, ...]:
    ledger.fails = 99
    await runtime.create("shop/1", {}, key="c")
    (await runtime.send("shop/1", "charge", key="a")).expect()
    await in_state(runtime, "shop/1", "open", version=3)
    assert len(ledger.performed("charge")) == 4
    return ("shop/1",)


async def call_without_a_result(runtime: Runtime, ledger: Ledger) -> tuple[str, ...]:
    await runtime.create("shop/1", {}, key="c")
    (await runtime.send("shop/1", "notify", key="a")).expect()
    await eventually(lambda: ledger.performed("notify") == ["shop/1/2/0"])
    return ("shop/1",)


async def fired_timer(runtime: Runtime, ledger: Ledger) -> tuple[str, ...]:
    await runtime.create("shop/1", {}, key="c")
    (await runtime.send("shop/1", "wait", key="a")).expect()
    await in_state(runtime, "shop/1", "open", version=3)
    (await runtime.send("shop/1", "wait", key="b")).expect()
    (await runtime.send("shop/1", "charge", key="d")).expect()  # clears the timer
    (await runtime.send("shop/1", "wait", key="e")).expect()
    await in_state(runtime, "shop/1", "open", version=7)
    return ("shop/1",)


async def cancelled_effect(runtime: Runtime, ledger: Ledger) -> tuple[str, ...]:
    await runtime.create("shop/1", {}, key="c")
    (await runtime.send("shop/1", "leave", key="a")).expect()
    await ledger.started.wait()
    (await runtime.send("shop/1", "close", key="b")).expect()
    return ("shop/1",)


async def message(runtime: Runtime, ledger: Ledger) -> tuple[str, ...]:
    await runtime.create("shop/1", {}, key="c")
    await runtime.create("shop/2", {}, key="c")
    (await runtime.send("shop/1", "tell", {"to": "shop/2"}, key="a")).expect()
    await in_state(runtime, "shop/2", "open", version=2)
    (await runtime.send("shop/1", "tell", {"to": "shop/1"}, key="b")).expect()
    await in_state(runtime, "shop/1", "open", version=4)
    (await runtime.send("shop/2", "close", key="d")).expect()
    (await runtime.send("shop/1", "tell", {"to": "shop/2"}, key="e")).expect()
    return "shop/1", "shop/2"


async def lost_message(runtime: Runtime, ledger: Ledger) -> tuple[str, ...]:
    await runtime.create("shop/1", {}, key="c")
    (await runtime.send("shop/1", "unsent", key="a")).expect()
    await in_state(runtime, "shop/1", "open", version=3)
    return ("shop/1",)


async def child(runtime: Runtime, ledger: Ledger) -> tuple[str, ...]:
    await runtime.create("shop/1", {}, key="c")
    receipt = (await runtime.send("shop/1", "survey", key="a")).expect()
    (invoke,) = [each for each in receipt.effects if each.type == "invoke"]
    entity = child_of(receipt, invoke.key)
    await in_state(runtime, entity, "asked")
    (await runtime.send("shop/1", "answered", key="b")).expect()
    await in_state(runtime, "shop/1", "open", version=4)
    return "shop/1", entity


async def cancelled_child(runtime: Runtime, ledger: Ledger) -> tuple[str, ...]:
    await runtime.create("shop/1", {}, key="c")
    receipt = (await runtime.send("shop/1", "survey", key="a")).expect()
    (invoke,) = [each for each in receipt.effects if each.type == "invoke"]
    entity = child_of(receipt, invoke.key)
    await in_state(runtime, entity, "asked")
    (await runtime.send(entity, "answered", key="x")).expect()
    await in_state(runtime, "shop/1", "open", version=3)
    return "shop/1", entity


async def compensated_saga(runtime: Runtime, ledger: Ledger) -> tuple[str, ...]:
    await runtime.create("tour/1", {}, key="c")
    (await runtime.send("tour/1", "ordered", key="a")).expect()
    await in_state(runtime, "tour/1", "refused")
    assert [name for name, _ in ledger.calls] == [
        "flight.book",
        "hotel.book",
        "car.rent",
        "hotel.cancel",
        "flight.cancel",
    ]
    return ("tour/1",)


def child_of(receipt: Any, key: str) -> str:
    """The id of the child that an invoke starts."""
    from interlock.runtime.charts.registry import child_entity

    (invoke,) = [each for each in receipt.snapshot.invokes if each.key == key]
    return child_entity("shop.survey", invoke.id, key)


LIVES: list[Life] = [
    retried_effect,
    exhausted_effect,
    call_without_a_result,
    fired_timer,
    cancelled_effect,
    message,
    lost_message,
    child,
    cancelled_child,
    compensated_saga,
]


async def _lived(life: Life, url: str) -> tuple[dict[str, Any], list[tuple[str, str]]]:
    ledger = Ledger()
    async with interlock.open(url, charts=charts(ledger), lease_ms=2_000) as runtime:
        entities = await life(runtime, ledger)
        return await journals(runtime, *entities), ledger.calls


@pytest.mark.parametrize("life", LIVES, ids=lambda each: each.__name__)
async def test_work_leads_to_the_same_entries_as_in_memory(life: Life, tmp_path: Any) -> None:
    """Events, keys, outcomes, states and effects of every entry, and what the handlers did."""
    from tests.support.temporal_server import private_namespace

    expected = await _lived(life, "memory:")
    actual = await _lived(life, await private_namespace(server_or_skip()))

    assert actual == expected

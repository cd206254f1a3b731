"""Holds over HTTP: what an operator does, what a reader sees, and what a sender gets meanwhile."""

from __future__ import annotations

import asyncio
from typing import Any

from interlock.testing.clock import VirtualClock
from interlock.trust.users import RIGHTS
from tests.support.accounts import account
from tests.unit.web.consoles import Client, console_of, make_user, open_console

READER = make_user("eve", rights=("read", "send"))


async def act(client: Client, clock: VirtualClock, path: str, body: Any) -> Any:
    """Return the answer to a request that waits until all processes know of the hold."""
    task = asyncio.create_task(client.post(path, body))
    while not task.done():
        await clock.advance(1_000)
    response = task.result()
    assert response.status_code == 200, response.text
    return response.json()


async def test_a_send_to_what_is_held_is_503_with_a_time_to_try_again() -> None:
    clock = VirtualClock(1_000_000_000_000)
    async with open_console(clock=clock) as client:
        await client.runtime.create("order/A-1", {"amount": 5})
        sent = {"event": "order.cancelled", "key": "k-1"}
        answers = []
        for held in ({"entity": "order/A-1"}, {"kind": "order"}):
            await act(client, clock, "hold", {**held, "reason": "case 118"})
            response = await client.post("send/order/A-1", sent)
            answers.append((response.status_code, response.headers["Retry-After"], response.json()["code"]))
            assert "case 118" not in response.text
            await act(client, clock, "resume", {**held, "reason": "cleared"})
        after = await client.post("send/order/A-1", sent)

    assert [(503, "30", "entity.held"), (503, "30", "kind.held")] == answers
    assert (200, "applied") == (after.status_code, after.json()["outcome"])


async def test_holds_of_an_entity_are_its_own_and_that_of_its_kind() -> None:
    clock = VirtualClock(1_000_000_000_000)
    async with open_console(clock=clock) as client:
        for name in ("A-1", "A-2"):
            await client.runtime.create(f"order/{name}", {"amount": 5})
        free = await client.json("holds?entity=order/A-1")
        await act(client, clock, "hold", {"entity": "order/A-1", "reason": "case 118"})
        await act(client, clock, "hold", {"kind": "order", "reason": "charges are lost"})
        own = await client.json("holds?entity=order/A-1")
        other = await client.json("holds?entity=order/A-2")
        await act(client, clock, "resume", {"kind": "order", "reason": "mended"})
        left = await client.json("holds?entity=order/A-1")
        both = await client.get("holds?entity=order/A-1&kind=order")
        unknown = await client.get("holds?entity=order/A-9")

    def brief(view: Any) -> list[Any]:
        return [(each["name"], each["by"], each["reason"]) for each in view["holds"]]

    assert (True, []) == (free["may_hold"], free["holds"])
    assert [("order", "ada", "charges are lost"), ("order/A-1", "ada", "case 118")] == brief(own)
    assert [("order", "ada", "charges are lost")] == brief(other)
    assert [("order/A-1", "ada", "case 118")] == brief(left)
    assert ("hold.what", 404) == (both.json()["code"], unknown.status_code)


async def test_only_an_operator_sees_why_something_is_held() -> None:
    clock = VirtualClock(1_000_000_000_000)
    async with open_console(clock=clock) as client:
        await client.runtime.create("order/A-1", {"amount": 5})
        await act(client, clock, "hold", {"entity": "order/A-1", "reason": "case 118"})
        paths = ("holds", "holds?entity=order/A-1", "entity/order/A-1", "journal/order/A-1")
        seen = [(await client.get(each)).text for each in paths]
        async with console_of(client.runtime, who=READER) as reader:
            read = [(await reader.get(each)).text for each in paths]
            refused = await reader.post("resume", {"entity": "order/A-1", "reason": "mine"})

    assert [True] * 4 == ["case 118" in each for each in seen]
    assert [False] * 4 == ["case 118" in each for each in read]
    assert [True] * 4 == ["order/A-1" in each or "_hold" in each for each in read]
    assert 403 == refused.status_code


async def test_a_job_of_the_console_cannot_be_held() -> None:
    async with open_console() as client:
        job = await client.job("verify", {})
        view = await client.json(f"holds?entity=interlock-job/{job['id']}")

    assert (False, []) == (view["may_hold"], view["holds"])


async def test_a_user_who_may_not_see_hidden_states_sees_no_hold() -> None:
    clock = VirtualClock(1_000_000_000_000)
    ada = make_user("ada", roles=("customer",), rights=tuple(each for each in RIGHTS if each != "read:sensitive"))
    async with open_console(charts=(account(),), clock=clock) as client:
        await client.runtime.create("account/1", principal=ada.principal)
        await act(client, clock, "hold", {"entity": "account/1", "reason": "case 118"})
        own = await client.json("holds?entity=account/1")
        async with console_of(client.runtime, who=ada) as covered:
            view = await covered.json("holds?entity=account/1")

    assert 1 == len(own["holds"])
    assert (False, []) == (view["may_hold"], view["holds"])

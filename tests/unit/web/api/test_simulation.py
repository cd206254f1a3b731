"""Simulations of a chart, sagas, and dead letters."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

import interlock
from interlock.assemble.charts import BoundChart
from interlock.model.limits import LAB_BYTES_MAX, LAB_RUNNING_MAX, LAB_WAITING_MAX, LAB_WAITING_PERSON_MAX
from interlock.web.api.simulation import ACT_STEPS_MAX, STEPS_MAX
from interlock.web.http.console import SimulationQueue
from tests.tidy.tracked import ROOT
from tests.unit.web.consoles import KEY, Client, create_orders, open_console


async def played(client: Client, *acts: dict[str, Any], context: Any = None) -> Any:
    """Return the simulation of these acts."""
    response = await client.post("kinds/order/simulate", {"acts": acts, "context": context or {"amount": 10}})
    assert response.status_code == 200, response.text
    return response.json()


async def test_simulation_returns_each_step_and_stores_nothing() -> None:
    async with open_console() as client:
        view = await played(client, {"event": "payment.confirmed", "payload": {"id": "p"}})
        kinds = await client.json("kinds/order/entities")

    assert (["paid"], ["create", "payment.confirmed"]) == (
        view["configuration"],
        [each["event"] for each in view["turns"]],
    )
    assert ["send_receipt"] == [each["name"] for each in view["pending"]]
    assert [] == kinds["rows"]


async def test_simulation_advances_its_clock() -> None:
    async with open_console() as client:
        view = await played(client, {"advance_ms": 2 * 86_400_000})

    assert (["expired"], "done") == (view["configuration"], view["ended"])


async def test_simulation_reports_why_an_event_was_refused() -> None:
    async with open_console() as client:
        view = await played(client, {"event": "order.cancelled"}, context={"amount": 9_999})

    last = view["turns"][-1]
    assert ("rejected", "guard", {"context.amount": 9_999}) == (
        last["outcome"],
        last["reason"],
        last["guards"][0]["values"],
    )


async def test_impossible_act_is_reported_and_the_simulation_continues() -> None:
    async with open_console() as client:
        view = await played(client, {"done": "order/lab/9/9"}, {"event": "payment.confirmed", "payload": {"id": "p"}})

    assert view["problem"]
    assert ["paid"] == view["configuration"]


async def test_simulation_is_limited_in_acts_and_time() -> None:
    async with open_console() as client:
        many = await client.post("kinds/order/simulate", {"acts": [{"advance_ms": 1}] * 201, "context": {"amount": 1}})
        far = await client.post("kinds/order/simulate", {"acts": [{"advance_ms": 10**15}], "context": {"amount": 1}})
        wrong = await client.post("kinds/order/simulate", {"context": {"amount": 0}})

    assert ["body.malformed", "body.malformed", "context.refused"] == [
        each.json()["code"] for each in (many, far, wrong)
    ]


CLOCK = """
interlock: 1
kind: clock
initial: ticking
states:
  ticking: {after: {1s: {target: ticking, reenter: true}}}
"""


async def test_simulation_with_endless_timers_is_limited_in_steps() -> None:
    async with open_console(charts=(interlock.loads(CLOCK),)) as client:
        far = (await client.post("kinds/clock/simulate", {"acts": [{"advance_ms": 31_536_000_000}]})).json()
        often = (await client.post("kinds/clock/simulate", {"acts": [{"advance_ms": 60_000}] * 200})).json()

    turns = [len(each["turns"]) for each in (far, often)]
    assert ["steps" in each["problem"] for each in (far, often)] == [True, True]
    assert (ACT_STEPS_MAX + 1, True) == (turns[0], STEPS_MAX <= turns[1] < STEPS_MAX + 100)


GROWING = """
interlock: 1
kind: pile
context: {items: {type: array, default: []}}
initial: growing
states:
  growing:
    on: {add: {actions: [{assign: {items: "= context.items + [event.data]"}}]}}
"""


async def test_simulation_is_limited_in_bytes() -> None:
    act = {"event": "add", "payload": "x" * 1_000}
    async with open_console(charts=(interlock.loads(GROWING),)) as client:
        response = await client.post("kinds/pile/simulate", {"acts": [act] * 200})
        short = await client.post("kinds/pile/simulate", {"acts": [act] * 20})

    view = response.json()
    assert (200, 200, None) == (response.status_code, short.status_code, short.json()["problem"])
    assert "bytes" in view["problem"]
    assert 20 < len(view["turns"]) < 200
    assert LAB_BYTES_MAX * 0.9 < len(response.content) < LAB_BYTES_MAX * 1.5


async def test_running_and_waiting_simulations_are_limited_per_user() -> None:
    by_key = {"Authorization": f"Bearer {KEY}"}
    async with open_console() as client:
        acts = {"acts": [{"advance_ms": 1}] * 50, "context": {"amount": 10}}
        mine = [client.post("kinds/order/simulate", acts) for _ in range(20)]
        theirs = [client.post("kinds/order/simulate", acts, by_key) for _ in range(2)]
        answers = await asyncio.gather(*mine, *theirs)
        again = await client.post("kinds/order/simulate", acts)

    statuses = [each.status_code for each in answers]
    assert [200] * LAB_WAITING_PERSON_MAX + [429] * (20 - LAB_WAITING_PERSON_MAX) == sorted(statuses[:20])
    assert [200, 200, 200] == [*statuses[20:], again.status_code]
    assert {("lab.full", "1")} == {
        (each.json()["code"], each.headers["retry-after"]) for each in answers if each.status_code == 429
    }


async def test_full_simulation_queue_refuses_every_user() -> None:
    queue = SimulationQueue()
    going = asyncio.Event()
    running = 0

    async def wait(who: str) -> None:
        nonlocal running
        async with queue.turn(who):
            running += 1
            await going.wait()

    waiting = [asyncio.ensure_future(wait(f"p{number}")) for number in range(LAB_RUNNING_MAX + LAB_WAITING_MAX)]
    await asyncio.sleep(0)
    with pytest.raises(interlock.UnavailableError) as caught:
        await wait("late")
    most = running
    waiting[-1].cancel()
    await asyncio.wait([waiting.pop()])
    waiting.append(asyncio.ensure_future(wait("late")))
    going.set()
    await asyncio.gather(*waiting)

    assert ("lab.full", LAB_RUNNING_MAX) == (caught.value.code, most)
    assert LAB_RUNNING_MAX + LAB_WAITING_MAX == running


def vm() -> BoundChart:
    """Return the example with sagas."""
    return interlock.load(ROOT / "examples" / "vm.interlock.yaml")


async def test_saga_reports_the_status_of_each_step() -> None:
    boss = {"id": "boss", "roles": ["system"]}
    async with open_console(charts=(vm(),)) as client:
        await client.runtime.create("vm/1", {"image": "debian"})
        await client.runtime.send("vm/1", "quota.granted", principal=boss)
        listed = await client.json("sagas")
        acts: list[dict[str, Any]] = [{"event": "quota.granted"}]
        key = await pending(client, acts)
        acts.append({"done": key, "result": "10.0.0.7"})
        acts.append({"failed": await pending(client, acts)})
        back = await client.post("kinds/vm/simulate", {"acts": acts, "context": {"image": "debian"}})

    setup = next(each for each in listed["sagas"] if each["state"] == "setup")
    (saga,) = setup["entities"][0]["sagas"]
    assert ("forward", ["running", "waiting", "waiting"]) == (saga["phase"], [each["status"] for each in saga["steps"]])
    assert [["address", "volume", "boot"], ["power", "disk", "address"]] == [each["steps"] for each in listed["sagas"]]
    assert "compensation" in back.json()["configuration"][0]


async def test_states_and_fields_named_like_those_of_a_saga_are_not_one() -> None:
    text = """
interlock: 1
kind: film
context: {saga_title: {type: string, default: Dune}}
states: {made: {context: {saga_crew: {type: any}}, states: {shot: {invoke: {src: f}}, completed: {type: final}}}}
"""
    async with open_console(charts=(interlock.loads(text),)) as client:
        listed, kind = await client.json("sagas"), await client.json("kinds/film")

    assert [] == listed["sagas"]
    assert "saga_title" in json.dumps(kind)


async def test_skipped_step_of_a_saga_is_reported() -> None:
    boss = {"id": "boss", "roles": ["system"]}
    async with open_console(charts=(vm(),)) as client:
        await client.runtime.create("vm/1", {"image": "debian", "address": "10.0.0.7"})
        await client.runtime.send("vm/1", "quota.granted", principal=boss)
        listed = await client.json("sagas")

    (saga,) = listed["sagas"][0]["entities"][0]["sagas"]
    assert ["skipped", "running", "waiting"] == [each["status"] for each in saga["steps"]]


async def pending(client: Client, acts: list[dict[str, Any]]) -> str:
    """Return the key of the pending effect of a simulation."""
    view = (await client.post("kinds/vm/simulate", {"acts": acts, "context": {"image": "debian"}})).json()
    key: str = view["pending"][0]["key"]
    return key


async def test_dead_letter_is_listed_retried_and_dropped(tmp_path: Path) -> None:
    async with open_console(f"sqlite:///{tmp_path}/o.db", work=True) as client:
        await create_orders(client)
        row = await died(client)
        by_error = await client.json("kinds/order/entities?error=send_receipt")
        place = {each: row[each] for each in ("entity", "lane", "version", "ordinal")}
        silent = await client.post("work/retry", place)
        retried = await client.post("work/retry", {**place, "reason": "the mailbox is back"})
        row = await died(client)
        dropped = await client.post("work/drop", {**place, "reason": "it never will be"})
        again = await client.post("work/drop", {**place, "reason": "it never will be"})
        left = await client.json("work?dead=true")

    assert ["order/A-2"] == [each["entity"] for each in by_error["rows"]]
    assert ("body.malformed", 200, 200, "work.unknown") == (
        silent.json()["code"], retried.status_code, dropped.status_code, again.json()["code"],
    )  # fmt: skip
    assert [] == left["rows"]


async def died(client: Client) -> Any:
    """Return the dead letter once there is one."""
    for _ in range(2_000):
        rows = (await client.json("work?dead=true"))["rows"]
        if rows:
            return rows[0]
        advance = getattr(client.runtime.clock, "advance", None)
        assert advance is not None
        await advance(1_000)
    raise AssertionError("it does not die")


async def test_work_that_is_not_a_dead_letter_cannot_be_dropped(tmp_path: Path) -> None:
    async with open_console(f"sqlite:///{tmp_path}/o.db") as client:
        await create_orders(client)
        row = (await client.json("work"))["rows"][0]
        place = {each: row[each] for each in ("entity", "lane", "version", "ordinal")}
        answers = [await client.post(f"work/{act}", {**place, "reason": "why not"}) for act in ("drop", "retry")]
        left = (await client.json("work"))["rows"]

    assert [(422, "work.alive")] * 2 == [(each.status_code, each.json()["code"]) for each in answers]
    assert place in [{name: each[name] for name in place} for each in left]

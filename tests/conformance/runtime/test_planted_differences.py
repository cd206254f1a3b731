"""Planted differences, from a store to the output of the command: each is found, with a sample."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

import interlock
from interlock.model.driver_events import invoke_done, invoke_failed, timer_fired
from interlock.runtime.runtime import Runtime
from tests.support.cli import Caller
from tests.unit.evolve.pair_files import HEAD
from tests.unit.evolve.test_shadow import PLANTED, SHOP


class Life:
    """One entity of the shop on a store, driven as a worker would."""

    def __init__(self, runtime: Runtime, entity: str) -> None:
        self.runtime = runtime
        self.entity = entity
        self.steps = 0

    async def send(self, event: str, data: Any = None) -> None:
        """Send an event."""
        (await self.runtime.send(self.entity, event, data)).expect()

    async def deliver(self, event: interlock.Event) -> None:
        """Deliver a timer or a result."""
        self.steps += 1
        receipt = await self.runtime.sender.deliver(self.entity, event, key=f"_result{self.steps}")
        assert "applied" == receipt.outcome, receipt

    async def fire(self, index: int = 0) -> None:
        """Fire a pending timer."""
        snapshot = await self.runtime.state(self.entity)
        await self.deliver(timer_fired(snapshot.timers[index], time_ms=snapshot.timers[index].due_ms))

    async def finish(self, *, fails: bool = False) -> None:
        """Finish the running invoke, or let it fail."""
        (found,) = (await self.runtime.state(self.entity)).invokes
        now_ms = self.runtime.clock.now_ms()
        done = invoke_done(found.id, found.key, None, time_ms=now_ms)
        failed = invoke_failed(found.id, found.key, "broken", "x", done="no", time_ms=now_ms)
        await self.deliver(failed if fails else done)


async def lives(url: str) -> None:
    """Three lives through the whole chart, one of them to its end."""
    async with interlock.open(url, charts=[interlock.loads(HEAD + SHOP)], work=False) as runtime:
        one, two, three = (Life(runtime, f"k/{number}") for number in (1, 2, 3))
        for each in (one, two, three):
            await runtime.create(each.entity)
        await one.send("add", {"price": 15})
        await one.send("pay")
        await one.finish()
        await one.send("ship")
        await two.send("add", {"price": 5})
        await two.send("pay")
        await two.send("add", {"price": 20})
        await two.send("pay")
        await two.finish(fails=True)
        await three.fire()
        await three.send("add", {"price": 1})
        await three.send("add", {"price": 30})
        await three.send("pay")
        await three.finish()
        await three.send("undo")
        await three.fire(1)


@pytest.fixture(scope="module", params=["sqlite:///{}/shop.db", "file://{}/shop"], ids=["sqlite", "file"])
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A store with the lives, which every test reads only."""
    found: str = request.param.format(tmp_path_factory.mktemp("shop"))
    asyncio.run(lives(found))
    return found


def test_the_same_chart_has_no_difference(call: Caller, folder: Path, url: str) -> None:
    Path("same.yaml").write_text(HEAD + SHOP, encoding="utf-8")
    found = call("shadow", "replay", url, "--chart", "same.yaml", "--json")

    assert (0, "none") == (found.code, json.loads(found.out)["verdict"]), found


@pytest.mark.parametrize(("what", "old", "new", "event", "part"), PLANTED, ids=[each[0] for each in PLANTED])
def test_a_planted_difference_is_printed_with_a_sample(
    call: Caller, folder: Path, url: str, what: str, old: str, new: str, event: str, part: str
) -> None:
    assert old in SHOP, what
    Path("new.yaml").write_text(HEAD + SHOP.replace(old, new), encoding="utf-8")
    found = call("shadow", "replay", url, "--chart", "new.yaml", "--json")
    report = json.loads(found.out)
    group = next(each for each in report["groups"] if each["event"] == event and part in each["parts"])

    assert (1, "divergent", []) == (found.code, report["verdict"], report["gaps"])
    assert [each for each in group["samples"][0]["differences"] if each.startswith(f"{part}: ")]
    assert group["samples"][0]["entity"] in {"k/1", "k/2", "k/3"}

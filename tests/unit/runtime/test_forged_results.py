"""No entity and no caller can forge the result of an invoke or the firing of a timer."""

from __future__ import annotations

import pytest

import interlock
from interlock.errors import UsageError
from interlock.testing.clock import VirtualClock
from interlock.testing.simulation import Simulation

ORDER = interlock.loads("""
interlock: 1
kind: order
initial: paying
states:
  paying:
    invoke: {id: charge, src: pay.charge, onDone: paid, onError: failed}
    after: {48h: expired}
  paid: {type: final}
  failed: {type: final}
  expired: {type: final}
""")
EVIL = interlock.loads("""
interlock: 1
kind: evil
initial: a
states:
  a:
    on:
      attack: {actions: [{send: {event: "= event.data.event", to: "= event.data.to"}}]}
      error.execution: refused
  refused: {on: {again: a}}
""")
IMPORTED = interlock.loads(
    """<scxml xmlns="http://www.w3.org/2005/07/scxml" version="1.0" name="imported">
<state id="a"><transition event="attack"><send event="done.invoke.charge" target="#_scxml_order/1"/></transition>
<transition event="error.execution" target="refused"/></state><state id="refused"/></scxml>""",
    format="scxml",
)
WILD = interlock.loads("""
interlock: 1
kind: wild
initial: a
states:
  a: {on: {"error.*": taken, "done.*": taken, "after.*": taken}}
  taken: {}
""")
NAMES = ["error", "done", "after", "error.x", "done.x", "after.1s.a", "_x", "error\u200b.x", "\uff45rror"]


@pytest.mark.parametrize("event", ["done.invoke.charge", "error.invoke.charge", "after.48h.paying"])
async def test_a_computed_send_cannot_end_the_invoke_or_fire_the_timer_of_another_entity(event: str) -> None:
    async with interlock.open("memory:", charts=[ORDER, EVIL]) as runtime:
        await runtime.create("order/1")
        await runtime.create("evil/1")
        receipt = await runtime.send("evil/1", "attack", {"event": event, "to": "order/1"})

        assert receipt.snapshot is not None
        assert ("refused",) == receipt.snapshot.configuration
        assert () == receipt.effects
        assert 1 == (await runtime.state("order/1")).version


async def test_a_written_send_of_an_imported_chart_cannot_either() -> None:
    """It loads, with a warning, and sending fails."""
    assert ["name.reserved"] == [each.code for each in IMPORTED.diagnostics if each.severity == "warning"]
    async with interlock.open("memory:", charts=[ORDER, IMPORTED]) as runtime:
        await runtime.create("imported/1")
        receipt = await runtime.send("imported/1", "attack")

        assert receipt.snapshot is not None
        assert ("refused",) == receipt.snapshot.configuration


@pytest.mark.parametrize("name", NAMES, ids=ascii)
async def test_every_door_refuses_a_reserved_name_with_the_same_code(name: str) -> None:
    """A runtime's `send` and `rehearse`, a chart's `step`, and a simulation."""
    play = Simulation(WILD)
    play.create("wild/1")
    async with interlock.open("memory:", charts=[WILD], clock=VirtualClock()) as runtime:
        await runtime.create("wild/1")
        for door in (runtime.send, runtime.dry_run):
            with pytest.raises(UsageError) as caught:
                await door("wild/1", name)
            assert "event.reserved" == caught.value.code
    with pytest.raises(UsageError) as caught:
        play.send("wild/1", name)
    assert "event.reserved" == caught.value.code
    with pytest.raises(UsageError) as caught:
        WILD.step(WILD.start(entity="wild/1").snapshot, name)
    assert "event.reserved" == caught.value.code


def test_a_simulation_accepts_events_of_the_runtime() -> None:
    play = Simulation(WILD)
    play.create("wild/1")

    assert ("taken",) == play.send("wild/1", "error.communication", type="platform").snapshot.configuration

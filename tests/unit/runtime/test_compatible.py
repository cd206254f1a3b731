"""A compatible chart that lacks the state of an entity: the entity waits, undamaged."""

from __future__ import annotations

import pytest

import interlock
from interlock.errors import CorruptionError, UnavailableError
from interlock.model.limits import ATTEMPTS_MAX
from interlock.runtime.charts.registry import ChartRegistry
from interlock.runtime.charts.revisions import Revisions
from interlock.runtime.runtime import Runtime
from interlock.runtime.worker.worker import Worker
from interlock.stores.memory import MemoryStore
from interlock.testing.clock import VirtualClock
from tests.unit.runtime.scene import WithoutDefinitions

OLD = """
interlock: 1
kind: lamp
revision: 1.0.0
initial: dark
states: {dark: {on: {pressed: bright, broken: lost}, after: {1m: bright}}, bright: {}, lost: {type: final}}
"""
NEW = """
interlock: 1
kind: lamp
revision: 1.1.0
compatible: ">=1 <2"
initial: black
states: {black: {on: {pressed: bright}}, bright: {}}
"""


def lamps(store: MemoryStore, clock: VirtualClock, *texts: str) -> Runtime:
    """A runtime with these charts."""
    return Runtime(store, ChartRegistry([interlock.loads(each).kernel for each in texts]), clock)


async def test_an_entity_in_a_removed_state_is_unavailable_and_not_damaged() -> None:
    store, clock = WithoutDefinitions(), VirtualClock()
    await lamps(store, clock, OLD).create("lamp/1")
    newer = lamps(store, clock, NEW)
    with pytest.raises(UnavailableError) as sent:
        await newer.send("lamp/1", "pressed")
    with pytest.raises(UnavailableError) as rehearsed:
        await newer.dry_run("lamp/1", "pressed")
    with pytest.raises(UnavailableError) as asked:
        await newer.can("lamp/1")
    here = await newer.entities.has_chart("lamp/1")
    both = await lamps(store, clock, OLD, NEW).send("lamp/1", "pressed")

    assert {"revision.unknown"} == {each.value.code for each in (sent, rehearsed, asked)}
    assert "`lamp/1` is in `dark`" in sent.value.message
    assert (False, True) == (here, await newer.entities.has_chart("lamp/2"))
    assert "applied" == both.outcome


async def test_a_timer_waits_for_a_chart_that_has_its_state() -> None:
    store, clock = WithoutDefinitions(), VirtualClock()
    older, newer = lamps(store, clock, OLD), lamps(store, clock, NEW)
    await older.create("lamp/1")
    worker = Worker(newer, {})
    await worker.start()
    await clock.advance(60_000)
    for _ in range(2 * ATTEMPTS_MAX):
        await clock.advance(1_000)
    waiting = (await newer.state("lamp/1")).configuration
    await worker.stop()
    worker = Worker(older, {})
    await worker.start()
    await clock.advance(2_000)
    await worker.stop()

    assert (("dark",), ("bright",)) == (waiting, (await older.state("lamp/1")).configuration)


async def test_an_entity_whose_history_has_a_removed_state_is_unavailable() -> None:
    text = """
interlock: 1
kind: radio
revision: 1.0.0
initial: off
states:
  off: {on: {power: on.last}}
  on:
    on: {power: off}
    initial: news
    states: {news: {on: {next: music}}, music: {}, last: {type: history, target: news}}
"""
    newer = text.replace("revision: 1.0.0", 'revision: 1.1.0\ncompatible: ">=1 <2"').replace("music", "jazz")
    store, clock = WithoutDefinitions(), VirtualClock()
    radios = lamps(store, clock, text)
    for number in (1, 2):
        await radios.create(f"radio/{number}")
        await radios.send(f"radio/{number}", "power")
    for event in ("next", "power"):
        await radios.send("radio/1", event)
    with pytest.raises(UnavailableError) as raised:
        await lamps(store, clock, newer).send("radio/1", "power")
    other = await lamps(store, clock, newer).send("radio/2", "next")

    assert ("revision.unknown", "applied") == (raised.value.code, other.outcome)


async def test_a_snapshot_with_states_unknown_to_its_own_revision_is_damage() -> None:
    store, clock = WithoutDefinitions(), VirtualClock()
    older = lamps(store, clock, OLD)
    receipt = await older.create("lamp/1")
    assert receipt.snapshot is not None
    kernel = interlock.loads(OLD.replace("dark", "black")).kernel
    charts = ChartRegistry([kernel])
    false = interlock.decode_snapshot(
        interlock.encode(receipt.snapshot).replace(receipt.snapshot.revision.encode(), kernel.chart.revision.encode())
    )

    assert kernel is await Revisions(charts, store, clock).for_preview(false)
    with pytest.raises(CorruptionError):
        kernel.candidates(false)


async def test_an_entity_that_ended_in_a_removed_state_is_not_shown_by_the_wrong_chart() -> None:
    store, clock = WithoutDefinitions(), VirtualClock()
    older = lamps(store, clock, OLD)
    await older.create("lamp/1")
    ended = (await older.send("lamp/1", "broken")).snapshot
    assert ended is not None
    kept = ChartRegistry([interlock.loads(NEW.replace("bright: {}}", "bright: {}, lost: {type: final}}")).kernel])

    assert "1.1.0" == (await Revisions(kept, store, clock).for_preview(ended)).chart.label
    with pytest.raises(UnavailableError):
        await Revisions(ChartRegistry([interlock.loads(NEW).kernel]), store, clock).for_preview(ended)

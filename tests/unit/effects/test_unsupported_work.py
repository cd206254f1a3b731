"""The work that a chart, a step or a loaded entity needs a worker for."""

from __future__ import annotations

import pytest

import interlock
from interlock.effects.unsupported_work import work_outstanding, work_requested, work_used_by
from interlock.ports.store import Loaded
from interlock.stores.memory import MemoryStore
from tests.unit.runtime.scene import runtime

HEAD = "interlock: 1\nkind: lamp\n"

CHARTS = {
    "{dark: {on: {press: bright}}, bright: {on: {press: {target: dark, actions: [{raise: pressed}, {log: x}]}}}}": (),
    "{dark: {after: {10m: bright}}, bright: {}}": ("timers",),
    "{dark: {entry: [ring]}}": ("handlers",),
    "{dark: {invoke: {src: bulb, type: chart}}}": ("invokes",),
    "{dark: {invoke: {src: bulb}}}": ("handlers", "invokes"),
    "{dark: {exit: [{send: {event: lit, to: lamp/2}}], on: {press: bright}}, bright: {}}": ("sends",),
    "{dark: {on: {press: {actions: [{send: {event: lit}}]}}}}": ("sends",),
    "{dark: {on: {press: {actions: [{send: {event: lit, to: internal}}]}}}}": (),
    "{dark: {on: {press: {actions: [{send: {event: lit, delay: 5s}}]}}}}": ("timers",),
    "{dark: {entry: [{if: '= 1 > 0', then: [ring, {send: {event: lit, to: lamp/2}}]}]}}": (
        "handlers",
        "sends",
    ),
}


@pytest.mark.parametrize("states", CHARTS)
def test_a_chart_shows_the_work_that_its_entities_may_request(states: str) -> None:
    chart = interlock.loads(f"{HEAD}states: {states}").chart

    assert ({"lamp": CHARTS[states]} if CHARTS[states] else {}) == work_used_by([chart])


def test_a_chart_that_defers_events_needs_sends() -> None:
    chart = interlock.loads(f"{HEAD}unhandled: defer\nstates: {{dark: {{on: {{press: bright}}}}, bright: {{}}}}").chart

    assert {"lamp": ("sends",)} == work_used_by([chart])


def test_revisions_of_a_kind_are_reported_together() -> None:
    texts = ("{dark: {after: {10m: bright}}, bright: {}}", "{dark: {entry: [ring]}}")
    charts = [interlock.loads(f"{HEAD}states: {each}").chart for each in texts]

    assert {"lamp": ("timers", "handlers")} == work_used_by(charts)


def test_the_effects_of_a_step_show_the_requested_work() -> None:
    lamp = interlock.loads(
        f"{HEAD}states: {{dark: {{entry: [ring], after: {{10m: bright}}, on: {{press: bright}}}}, bright: {{}}}}"
    )
    started = lamp.start(entity="lamp/1")
    pressed = lamp.step(started.snapshot, "press")

    assert ("timers", "handlers") == work_requested(started.effects)
    assert ["timer_cancel"] == [each.type for each in pressed.effects]
    assert () == work_requested(pressed.effects)


async def test_a_loaded_entity_shows_its_outstanding_work() -> None:
    text = f"{HEAD}revision: 1.0.0\nstates: {{dark: {{entry: [ring], after: {{10m: bright}}}}, bright: {{}}}}"
    store = MemoryStore()
    await runtime(text, store=store).create("lamp/1")
    loaded = await store.load("lamp/1")
    assert isinstance(loaded, Loaded)
    records = await store.read("lamp/1")

    assert ("timers",) == work_outstanding(Loaded(1, 0, loaded.snapshot))
    assert ("timers", "handlers") == work_outstanding(Loaded(1, 0, None, records))
    assert () == work_outstanding(Loaded(1, 0, None))

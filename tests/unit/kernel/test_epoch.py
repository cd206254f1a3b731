"""The restore epoch of an event is part of the keys of effects, in compiled steps as in the general step."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from interlock.assemble.charts import loads
from interlock.kernel.step import Kernel
from interlock.model.driver_events import invoke_done, timer_fired
from interlock.model.encoding.codec import encode
from interlock.model.event import Event
from interlock.model.snapshot import Snapshot
from interlock.model.step import Step

CHART = """
interlock: 1
kind: k
context: {key: {type: string, default: ""}, whole: {type: object, default: {}}}
states:
  a:
    after: {1m: b}
    on:
      go: {target: b, actions: [x, {assign: {key: "= entity.id + '/' + str(entity.epoch)"}}]}
      later: {actions: [{send: {event: go, delay: 5s}}]}
      raised: {actions: [{raise: go}]}
  b: {invoke: {id: i, src: work, onDone: s}, exit: [{log: left}], on: {back: a}}
  s:
    saga: {steps: [{id: one, do: {src: x}, compensate: {src: u}}], onDone: a, onError: a}
    on: {whole: {actions: [{assign: {whole: "= entity"}}]}}
"""


def kernels() -> tuple[Kernel, Kernel]:
    """The chart with compiled steps, and without."""
    chart = loads(CHART).chart
    return Kernel(chart), Kernel(chart, fast=False)


def life(kernel: Kernel, epoch: int) -> list[Step]:
    """A life through every kind of effect, with events of one epoch."""
    steps = [kernel.start(entity="k/1", time_ms=1, epoch=epoch)]

    def now() -> Snapshot:
        return steps[-1].snapshot

    def send(event: Event | str) -> None:
        made = event if isinstance(event, Event) else Event(event, time_ms=2)
        steps.append(kernel.step(now(), replace(made, epoch=epoch)))

    def finish() -> None:
        send(invoke_done(now().invokes[0].id, now().invokes[0].key, None, time_ms=3))

    send("later")
    send("raised")
    finish()
    send("whole")
    finish()
    send(timer_fired(now().timers[-1], time_ms=90_000))
    send("back")
    send("go")
    return steps


@pytest.mark.parametrize("epoch", [0, 1, 12])
def test_compiled_and_general_steps_have_the_same_keys(epoch: int) -> None:
    fast, general = kernels()
    expected = [encode(each) for each in life(general, epoch)]
    for _ in range(40):
        assert expected == [encode(each) for each in life(fast, epoch)]


def test_the_epoch_changes_only_keys() -> None:
    _, kernel = kernels()
    for before, after in zip(life(kernel, 0), life(kernel, 3), strict=True):
        version = after.snapshot.version
        expected = [each.key.replace(f"k/1/{version}/", f"k/1/{version}.3/") for each in before.effects]
        assert expected == [each.key for each in after.effects]
        assert [each.type for each in before.effects] == [each.type for each in after.effects]
    saga = next(each for step in life(kernel, 3) for each in step.effects if each.payload.get("state") == "s.one")

    assert saga.payload["key"].endswith(".3/s.one")
    assert {"id": "k/1", "kind": "k"} == {
        name: value for name, value in life(kernel, 3)[-1].snapshot.context["whole"].items() if name != "version"
    }

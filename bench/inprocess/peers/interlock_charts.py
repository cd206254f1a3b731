"""Interlock, written as users write it: YAML charts through `interlock.loads`, guards and assigns as expressions.

| way | what is timed |
|---|---|
| `inner` | the inner step: the generated function, found by event and called as `fold` does it, over plain values |
| `step` | `chart.step(snapshot, event)`, the public step with its Step and Snapshot values |
| `bare` | as `step`, with the name of the event instead of an `Event`; results of invokes are always an `Event` |
| `fold` | `chart.fold(snapshot, events)`, replay |
| `functions` | as `step`, with registered Python functions as guards and assign |
| `general` | as `step`, with the fast tier off: what a step with timers, invokes or history pays at least |
| `written` | W5 only: an entity made, started and stepped once, so that it has its own context |

The inner step takes (context, event, entity, version) and gives (configuration, context, effects, transitions), without
a Step or a Snapshot. A chart is loaded once and kept, as a user keeps it; entities are new in every repeat. Every
function warms up the compiled steps before the measurement, which shows the steady state.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from importlib.metadata import version
from itertools import count as numbers
from pathlib import Path
from typing import Any

import interlock
from bench.inprocess.peer import Drive, Make, Peer
from bench.inprocess.workloads import (
    ENTITY,
    NESTED_EVENTS,
    ORDER_EVENTS,
    SCENARIOS,
    Given,
    check_effects,
    check_nested,
    check_order,
    check_regions,
    check_toggle,
    clock_ns,
    given_events,
)
from interlock.kernel.fast_path import COMPILE_AFTER_USES
from interlock.kernel.step import Kernel
from interlock.model.driver_events import invoke_done, invoke_failed, timer_fired

CHARTS = Path(__file__).resolve().parents[2] / "charts"
HEAT = COMPILE_AFTER_USES + 2
"""Cycles of events after which every configuration and event of a workload has its fast function."""


def chart_of(name: str) -> interlock.BoundChart:
    """The chart of that name in the bench folder."""
    path = CHARTS / f"{name}.interlock.yaml"
    return interlock.loads(path.read_text(encoding="utf-8"), source=path.name)


TOGGLE = chart_of("toggle")
ORDER = chart_of("order")
NESTED = chart_of("nested")
REGIONS = chart_of("regions")
FUNCTIONS = chart_of("order_functions")

Context = Mapping[str, Any]


@FUNCTIONS.guard("has_items")
def has_items(context: Context, event: interlock.Event) -> bool:
    """There is something to sell."""
    return bool(context["items"] > 0)


@FUNCTIONS.guard("enough")
def enough(context: Context, event: interlock.Event) -> bool:
    """The money covers the total."""
    return bool(event.data["amount"] >= context["total"])


@FUNCTIONS.guard("positive")
def positive(context: Context, event: interlock.Event) -> bool:
    """There is some money."""
    return bool(event.data["amount"] > 0)


@FUNCTIONS.guard("in_time")
def in_time(context: Context, event: interlock.Event) -> bool:
    """It came back soon enough."""
    return bool(event.data["days"] <= 30)


@FUNCTIONS.assign("counted")
def counted(context: Context, event: interlock.Event) -> dict[str, Any]:
    """The one action of the workload."""
    return {"count": context["count"] + 1, "last": event.name}


CYCLES: dict[str, list[interlock.Event]] = {
    "W1": [interlock.Event("TOGGLE")] * 2,
    "W2": [interlock.Event(name, data) for name, data in ORDER_EVENTS],
    "W3": [interlock.Event(name) for name in NESTED_EVENTS],
    "W4": [interlock.Event("TICK")] * 2,
}
CHART_OF = {"W1": TOGGLE, "W2": ORDER, "W3": NESTED, "W4": REGIONS}


def events_of(workload: str, count: int) -> list[interlock.Event]:
    """So many events of a workload."""
    cycle = CYCLES[workload]
    return (cycle * (count // len(cycle) + 1))[:count]


def started(workload: str, chart: interlock.BoundChart) -> interlock.Snapshot:
    """A new entity, once the plans of the chart are warm."""
    first = snapshot = chart.start(entity="order/1").snapshot
    for event in CYCLES[workload] * HEAT:
        snapshot = chart.step(snapshot, event).snapshot
    return first


def check(workload: str, first: interlock.Snapshot, last: interlock.Snapshot, count: int) -> None:
    """Whether the entity is where it must be: each event one version, and the workload's own check."""
    assert last.version == first.version + count
    leaves = [name.rpartition(".")[2] for name in last.configuration]
    context = last.context
    match workload:
        case "W1":
            check_toggle(leaves[0], count)
        case "W2":
            check_order(leaves[0], context["count"], context["last"], count)
        case "W3":
            entries, exits = (context[name] - first.context[name] for name in ("entries", "exits"))
            check_nested(leaves[0], entries, exits, count)
        case _:
            check_regions(leaves, count)


def inner(workload: str) -> Drive:
    """The inner step: plain values in and out."""

    def drive(count: int) -> int:
        chart = CHART_OF[workload]
        first = started(workload, chart)
        entity, version = first.entity, first.version
        configuration, context = chart.kernel.planner.configuration(first.configuration), first.context
        assert configuration is not None
        events = events_of(workload, count)
        start_ns = clock_ns()
        for event in events:
            version += 1
            # A step that is not compiled raises KeyError or TypeError, and the repeat ends as an error.
            configuration, context, _, _ = configuration.plain_steps[event.name](context, event, entity, version)
        ns = clock_ns() - start_ns
        last = interlock.Snapshot(first.kind, entity, version, first.revision, configuration.names, context)
        check(workload, first, last, count)
        return ns

    return drive


def step(workload: str, chart: interlock.BoundChart | None = None) -> Drive:
    """The public step."""

    def drive(count: int) -> int:
        bound = chart or CHART_OF[workload]
        first = snapshot = started(workload, bound)
        events = events_of(workload, count)
        start_ns = clock_ns()
        for event in events:
            snapshot = bound.step(snapshot, event).snapshot
        ns = clock_ns() - start_ns
        check(workload, first, snapshot, count)
        return ns

    return drive


def fold(count: int) -> int:
    """Replay."""
    first = started("W2", ORDER)
    events = events_of("W2", count)
    start_ns = clock_ns()
    last = ORDER.fold(first, events)
    ns = clock_ns() - start_ns
    check("W2", first, last, count)
    return ns


def general(workload: str) -> Drive:
    """The step without its fast tier."""
    kernel = Kernel(CHART_OF[workload].chart, fast=False)

    def drive(count: int) -> int:
        first = snapshot = kernel.start(entity="order/1").snapshot
        step, events = kernel.step, events_of(workload, count)
        start_ns = clock_ns()
        for event in events:
            snapshot = step(snapshot, event).snapshot
        ns = clock_ns() - start_ns
        check(workload, first, snapshot, count)
        return ns

    return drive


def create() -> Make:
    """A started entity: its snapshot, with its own id; the defaults of its context are shared until written."""
    ids = numbers(1)
    start = ORDER.start
    return lambda: start(entity=f"order/{next(ids)}").snapshot


def create_written() -> Make:
    """A started entity after its first event: its snapshot with its own context."""
    started("W2", ORDER)
    make, step, event = create(), ORDER.step, CYCLES["W2"][0]
    return lambda: step(make(), event).snapshot  # type: ignore[arg-type]  # what `create` makes


# W7 to W10: charts with effects.

EFFECT_CHARTS = {
    "W7": chart_of("reminder"),
    "W8": chart_of("payment"),
    "W9": chart_of("fulfilment"),
    "W10": chart_of("notices"),
}
SAGA = "fulfilment_pending."


def result(workload: str, given: Given) -> interlock.Event:
    """Return the event with which the driver reports the result of an invoke."""
    assert given.key is not None
    word, _, name = given.name.partition(".")
    invoke = SAGA + name if workload == "W9" else name
    if word == "done":
        return invoke_done(invoke, given.key, given.data, time_ms=given.time_ms)
    data = given.data
    return invoke_failed(invoke, given.key, data["code"], data["message"], done=data["done"], time_ms=given.time_ms)


def effect_events(workload: str, count: int, *, bare: bool) -> list[tuple[interlock.Event | str, int]]:
    """Return the events of a workload with their times; `bare`: by name, except for results of invokes."""
    return [
        (
            result(workload, each)
            if each.key is not None
            else each.name
            if bare
            else interlock.Event(each.name, each.data, time_ms=each.time_ms),
            each.time_ms,
        )
        for each in given_events(workload, count)
    ]


def effects(workload: str, *, bare: bool, fast: bool = True) -> Drive:
    """The public step of a chart with effects. The entity is new in every round, and the chart is warm."""
    chart = EFFECT_CHARTS[workload]
    cycle = len(SCENARIOS[workload].events)

    def drive(count: int) -> int:
        step = chart.step if fast else Kernel(chart.chart, fast=False).step
        snapshot = chart.start(entity=ENTITY).snapshot
        for event, time_ms in effect_events(workload, HEAT * cycle, bare=bare):
            snapshot = step(snapshot, event, None, time_ms).snapshot
        first = snapshot = chart.start(entity=ENTITY).snapshot
        events = effect_events(workload, count + cycle, bare=bare)
        timed, last = events[:count], events[count:]
        outputs = 0
        start_ns = clock_ns()
        for event, time_ms in timed:
            done = step(snapshot, event, None, time_ms)
            snapshot = done.snapshot
            outputs += len(done.effects)
        ns = clock_ns() - start_ns
        types: Counter[str] = Counter()
        for event, time_ms in last:
            done = step(snapshot, event, None, time_ms)
            snapshot = done.snapshot
            types.update(effect.type for effect in done.effects)
        assert snapshot.version == first.version + count + cycle
        check_effects(workload, snapshot.configuration[0], snapshot.context["n"], outputs, dict(types), count)
        return ns

    return drive


def bare_step(workload: str) -> Drive:
    """The public step by the name of the event."""

    def drive(count: int) -> int:
        chart = CHART_OF[workload]
        first = snapshot = started(workload, chart)
        events = [(each.name, each.data) for each in events_of(workload, count)]
        start_ns = clock_ns()
        for name, data in events:
            snapshot = chart.step(snapshot, name, data).snapshot
        ns = clock_ns() - start_ns
        check(workload, first, snapshot, count)
        return ns

    return drive


# W11 and W12: the order of the demo.

DEMO = interlock.load(Path(interlock.__file__).parent / "demo" / "order.interlock.yaml")
DEMO_CONTEXT = {"amount": 4_990, "item": "lamp"}


def demo_life() -> tuple[interlock.Snapshot, list[interlock.Event]]:
    """Return an order of the demo after its creation, and its events until it is delivered."""
    first = snapshot = DEMO.start(DEMO_CONTEXT, entity=ENTITY, time_ms=0).snapshot
    results = iter([{"charge": "c-1"}, "r-1", "p-1"])
    events = [interlock.Event("order.placed", time_ms=1)]
    while snapshot.ended is None:
        snapshot = DEMO.step(snapshot, events[-1]).snapshot
        time_ms = len(events) + 1
        if snapshot.invokes:
            (invoke,) = snapshot.invokes
            events.append(invoke_done(invoke.id, invoke.key, next(results), time_ms=time_ms))
        elif snapshot.timers:
            (timer,) = snapshot.timers
            events.append(timer_fired(timer, time_ms=timer.due_ms))
    assert (snapshot.configuration, snapshot.context["parcel"], len(events)) == (("delivered",), "p-1", 5)
    return first, events


def demo_create(count: int) -> int:
    """W11."""
    start = DEMO.start
    entities = [f"order/{number}" for number in range(count)]
    timers = 0
    start_ns = clock_ns()
    for entity in entities:
        timers += len(start(DEMO_CONTEXT, entity=entity, time_ms=1).effects)
    ns = clock_ns() - start_ns
    assert timers == count
    return ns


def demo_fold(count: int) -> int:
    """W12 by `fold`."""
    first, events = demo_life()
    for _ in range(HEAT):
        DEMO.fold(first, events)
    delivered = 0
    start_ns = clock_ns()
    for _ in range(count // len(events)):
        delivered += DEMO.fold(first, events).ended == "done"
    ns = clock_ns() - start_ns
    assert delivered == count // len(events)
    return ns


def demo_step(*, fast: bool) -> Drive:
    """W12 by `step`, which also returns the effects."""

    def drive(count: int) -> int:
        first, events = demo_life()
        kernel = Kernel(DEMO.chart, fast=fast)
        step = kernel.step
        for _ in range(HEAT):
            snapshot = first
            for event in events:
                snapshot = step(snapshot, event).snapshot
        delivered = 0
        start_ns = clock_ns()
        for _ in range(count // len(events)):
            snapshot = first
            for event in events:
                snapshot = step(snapshot, event).snapshot
            delivered += snapshot.ended == "done"
        ns = clock_ns() - start_ns
        assert delivered == count // len(events)
        return ns

    return drive


VERSION = version("interlock")
STEPS: dict[str, Callable[[int], int]] = {workload: step(workload) for workload in CHART_OF}
PEERS = {
    "inner": Peer(
        name="interlock, inner step",
        version=VERSION,
        drives={workload: inner(workload) for workload in CHART_OF},
    ),
    "step": Peer(
        name="interlock, public step()",
        version=VERSION,
        drives={
            **STEPS,
            "W6": step("W2"),
            **{workload: effects(workload, bare=False) for workload in EFFECT_CHARTS},
            "W11": demo_create,
            "W12": demo_step(fast=True),
        },
        create=create,
    ),
    "bare": Peer(
        name="interlock, public step(), by event name",
        version=VERSION,
        drives={
            **{workload: bare_step(workload) for workload in CHART_OF},
            **{workload: effects(workload, bare=True) for workload in EFFECT_CHARTS},
        },
    ),
    "fold": Peer(name="interlock, fold()", version=VERSION, drives={"W6": fold, "W12": demo_fold}),
    "functions": Peer(
        name="interlock, public step(), Python functions",
        version=VERSION,
        drives={"W2": step("W2", FUNCTIONS), "W6": step("W2", FUNCTIONS)},
    ),
    "general": Peer(
        name="interlock, general path",
        version=VERSION,
        drives={
            **{workload: general(workload) for workload in CHART_OF},
            "W6": general("W2"),
            **{workload: effects(workload, bare=False, fast=False) for workload in EFFECT_CHARTS},
            "W12": demo_step(fast=False),
        },
    ),
    "written": Peer(name="interlock, started and stepped once", version=VERSION, create=create_written),
}

"""Interlock, written as users write it: YAML charts through `interlock.loads`, guards and assigns as expressions.

| way | what is timed |
|---|---|
| `inner` | the inner step: the generated function, found by event and called as `fold` does it, over plain values |
| `step` | `chart.step(snapshot, event)`, the public step with its Step and Snapshot values |
| `fold` | `chart.fold(snapshot, events)`, replay |
| `functions` | as `step`, with registered Python functions as guards and assign |
| `general` | as `step`, with the fast tier off: what a step with timers, invokes or history pays at least |
| `written` | W5 only: an entity made, started and stepped once, so that it has its own context |

The inner step takes (context, event, entity, version) and gives (configuration, context, effects, transitions), without
a Step or a Snapshot. A chart is loaded once and kept, as a user keeps it; entities are new in every repeat. Every
function warms up the compiled steps before the measurement, which shows the steady state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.metadata import version
from itertools import count as numbers
from pathlib import Path
from typing import Any

import interlock
from bench.inprocess.peer import Drive, Make, Peer
from bench.inprocess.workloads import (
    NESTED_EVENTS,
    ORDER_EVENTS,
    check_nested,
    check_order,
    check_regions,
    check_toggle,
    clock_ns,
)
from interlock.kernel.fast_path import COMPILE_AFTER_USES
from interlock.kernel.step import Kernel

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
            configuration, context, _, _ = configuration.compiled_parts[event.name](context, event, entity, version)
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
        drives={**STEPS, "W6": step("W2")},
        create=create,
    ),
    "fold": Peer(name="interlock, fold()", version=VERSION, drives={"W6": fold}),
    "functions": Peer(
        name="interlock, public step(), Python functions",
        version=VERSION,
        drives={"W2": step("W2", FUNCTIONS), "W6": step("W2", FUNCTIONS)},
    ),
    "general": Peer(
        name="interlock, general path",
        version=VERSION,
        drives={**{workload: general(workload) for workload in CHART_OF}, "W6": general("W2")},
    ),
    "written": Peer(name="interlock, started and stepped once", version=VERSION, create=create_written),
}

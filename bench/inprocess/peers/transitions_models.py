"""transitions: `Machine` for the flat workloads, `HierarchicalMachine` for W3 and W4.

W5 is one `Machine` with many models, the cheap way that its manual gives.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from transitions import Machine
from transitions.extensions import HierarchicalMachine

from bench.inprocess.peer import Make, Peer
from bench.inprocess.workloads import (
    NESTED_TRANSITIONS,
    NESTED_TREE,
    ORDER_STATES,
    ORDER_TRANSITIONS,
    REGIONS,
    check_nested,
    check_order,
    check_regions,
    check_toggle,
    clock_ns,
    nested_events,
    order_events,
)


class Bare:
    """A model that the library fills with its own attributes."""

    state: Any
    trigger: Any


class Order(Bare):
    """W2, W5 and W6."""

    def __init__(self) -> None:
        self.items = 3
        self.total = 100
        self.count = 0
        self.last = ""

    def has_items(self, **given: Any) -> bool:
        return self.items > 0

    def enough(self, amount: int = 0, **given: Any) -> bool:
        return amount >= self.total

    def positive(self, amount: int = 0, **given: Any) -> bool:
        return amount > 0

    def in_time(self, days: int = 0, **given: Any) -> bool:
        return days <= 30

    def bump(self, **given: Any) -> None:
        self.count += 1
        self.last = given["name"]


class Nested(Bare):
    """W3."""

    entries = 0
    exits = 0

    def enter(self) -> None:
        self.entries += 1

    def exit(self) -> None:
        self.exits += 1


def _order_chart(model: Order) -> Any:
    edges = [
        {"trigger": event, "source": source, "dest": target, "conditions": guard, "before": "bump"}
        for source, event, guard, target in ORDER_TRANSITIONS
    ]
    return Machine(model, states=ORDER_STATES, initial="draft", auto_transitions=False, transitions=edges)


def toggle(count: int) -> int:
    """W1."""
    model = Bare()
    edges = [["TOGGLE", "off", "on"], ["TOGGLE", "on", "off"]]
    Machine(model, states=["off", "on"], initial="off", auto_transitions=False, transitions=edges)
    events = ["TOGGLE"] * count
    start_ns = clock_ns()
    for event in events:
        model.trigger(event)
    ns = clock_ns() - start_ns
    check_toggle(model.state, count)
    return ns


def order(count: int) -> int:
    """W2 and W6."""
    model = Order()
    _order_chart(model)
    events = order_events(count)
    start_ns = clock_ns()
    for name, data in events:
        model.trigger(name, name=name, **data)
    ns = clock_ns() - start_ns
    check_order(model.state, model.count, model.last, count)
    return ns


def _nested_states() -> tuple[list[dict[str, Any]], dict[str, str]]:
    """The states as the library wants them, and the full path of each by its name."""
    moved = {"on_enter": "enter", "on_exit": "exit"}
    paths: dict[str, str] = {}
    states = []
    for top, middles in NESTED_TREE.items():
        paths[top] = top
        children = []
        for middle, leaves in middles.items():
            paths[middle] = f"{top}_{middle}"
            paths |= {leaf: f"{top}_{middle}_{leaf}" for leaf in leaves}
            inner = [{"name": leaf, **moved} for leaf in leaves]
            children.append({"name": middle, "initial": leaves[0], "children": inner, **moved})
        states.append({"name": top, "initial": next(iter(middles)), "children": children, **moved})
    return states, paths


def nested(count: int) -> int:
    """W3."""
    states, paths = _nested_states()
    edges = [[event, paths[source], paths[target]] for source, event, target in NESTED_TRANSITIONS]
    model = Nested()
    HierarchicalMachine(model, states=states, initial="A", auto_transitions=False, transitions=edges)
    model.entries = model.exits = 0
    events = nested_events(count)
    start_ns = clock_ns()
    for event in events:
        model.trigger(event)
    ns = clock_ns() - start_ns
    check_nested(model.state.rsplit("_", 1)[1], model.entries, model.exits, count)
    return ns


def regions(count: int) -> int:
    """W4."""
    edges = [["TICK", "off", "on"], ["TICK", "on", "off"]]
    parts = [{"name": name, "initial": "off", "children": ["off", "on"], "transitions": edges} for name in REGIONS]
    model = Bare()
    HierarchicalMachine(model, states=[{"name": "p", "parallel": parts}], initial="p", auto_transitions=False)
    events = ["TICK"] * count
    start_ns = clock_ns()
    for event in events:
        model.trigger(event)
    ns = clock_ns() - start_ns
    check_regions([state.rsplit("_", 1)[1] for state in model.state], count)
    return ns


def create() -> Make:
    """W5."""
    chart = _order_chart(Order())

    def make() -> Order:
        model = Order()
        chart.add_model(model)
        return model

    return make


PEERS = {
    "models": Peer(
        name="transitions",
        version=version("transitions"),
        drives={"W1": toggle, "W2": order, "W3": nested, "W4": regions, "W6": order},
        create=create,
    )
}

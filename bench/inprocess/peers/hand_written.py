"""Careful hand-written code: the base of every ratio.

`mutable` is a dictionary by state and event, and one object that changes. `pure` keeps the contract of Interlock (its
arguments do not change): a state and a copied dictionary go in and out. That is the limit for a pure step in Python.
"""

from __future__ import annotations

import platform
from collections.abc import Callable
from typing import Any

from bench.inprocess.peer import Peer, effect_drives
from bench.inprocess.peers.hand_written_effects import MUTABLE, PURE
from bench.inprocess.workloads import (
    NESTED_TREE,
    ORDER_CONTEXT,
    ORDER_TRANSITIONS,
    check_nested,
    check_order,
    check_regions,
    check_toggle,
    clock_ns,
    nested_events,
    order_events,
)

FLIPPED = {("off", "TOGGLE"): "on", ("on", "TOGGLE"): "off"}
TICKED = {("off", "TICK"): "on", ("on", "TICK"): "off"}


class Toggle:
    """W1."""

    __slots__ = ("state",)

    def __init__(self) -> None:
        self.state = "off"

    def send(self, event: str) -> None:
        self.state = FLIPPED[self.state, event]


class Order:
    """W2, W5 and W6."""

    __slots__ = ("count", "items", "last", "state", "total")

    def __init__(self) -> None:
        self.state = "draft"
        self.items = 3
        self.total = 100
        self.count = 0
        self.last = ""

    def bump(self, name: str) -> None:
        self.count += 1
        self.last = name

    def send(self, name: str, data: dict[str, int]) -> None:
        ORDER[self.state, name](self, name, data)


OrderEvent = Callable[[Order, str, dict[str, int]], None]


def _with_items(target: str) -> OrderEvent:
    def take(order: Order, name: str, data: dict[str, int]) -> None:
        if order.items > 0:
            order.bump(name)
            order.state = target

    return take


def _pay(order: Order, name: str, data: dict[str, int]) -> None:
    if data["amount"] >= order.total:
        order.bump(name)
        order.state = "paid"
    elif data["amount"] > 0:
        order.bump(name)
        order.state = "review"


def _return(order: Order, name: str, data: dict[str, int]) -> None:
    if data["days"] <= 30:
        order.bump(name)
        order.state = "returned"


ORDER: dict[tuple[str, str], OrderEvent] = {
    (source, event): _with_items(target) for source, event, guard, target in ORDER_TRANSITIONS if guard == "has_items"
}
ORDER["submitted", "PAY"] = _pay
ORDER["delivered", "RETURN"] = _return


class Nested:
    """W3."""

    __slots__ = ("entries", "exits", "leaf")

    def __init__(self) -> None:
        self.leaf = "A1a"
        self.entries = 0
        self.exits = 0

    def enter(self) -> None:
        self.entries += 1

    def exit(self) -> None:
        self.exits += 1

    def send(self, event: str) -> None:
        NESTED[self.leaf, event](self)


def _across_one(target: str) -> Callable[[Nested], None]:
    def take(nested: Nested) -> None:
        nested.exit()
        nested.leaf = target
        nested.enter()

    return take


def _across_two(target: str) -> Callable[[Nested], None]:
    def take(nested: Nested) -> None:
        nested.exit()
        nested.exit()
        nested.enter()
        nested.leaf = target
        nested.enter()

    return take


def _across_three(target: str) -> Callable[[Nested], None]:
    def take(nested: Nested) -> None:
        nested.exit()
        nested.exit()
        nested.exit()
        nested.enter()
        nested.enter()
        nested.leaf = target
        nested.enter()

    return take


def _nested_targets() -> dict[tuple[str, str], tuple[int, str]]:
    """By leaf and event: how many levels are crossed, and the leaf that is entered."""
    found = {}
    for middles in NESTED_TREE.values():
        for first, second in middles.values():
            found[first, "NEXT"] = (1, second)
            found[second, "NEXT"] = (1, first)
    for letter in "ab":
        found["A1" + letter, "HOP"] = (2, "A2a")
        found["A2" + letter, "HOP"] = (2, "A1a")
        found["A1" + letter, "JUMP"] = found["A2" + letter, "JUMP"] = (3, "B1a")
        found["B1" + letter, "JUMP"] = (3, "A1a")
    return found


_ACROSS = {1: _across_one, 2: _across_two, 3: _across_three}
NESTED = {key: _ACROSS[levels](target) for key, (levels, target) in _nested_targets().items()}


class Regions:
    """W4."""

    __slots__ = ("r1", "r2", "r3", "r4")

    def __init__(self) -> None:
        self.r1 = self.r2 = self.r3 = self.r4 = "off"

    def send(self, event: str) -> None:
        table = TICKED
        self.r1 = table[self.r1, event]
        self.r2 = table[self.r2, event]
        self.r3 = table[self.r3, event]
        self.r4 = table[self.r4, event]


def toggle(count: int) -> int:
    """W1."""
    entity = Toggle()
    events = ["TOGGLE"] * count
    start_ns = clock_ns()
    for event in events:
        entity.send(event)
    ns = clock_ns() - start_ns
    check_toggle(entity.state, count)
    return ns


def order(count: int) -> int:
    """W2 and W6."""
    entity = Order()
    events = order_events(count)
    start_ns = clock_ns()
    for name, data in events:
        entity.send(name, data)
    ns = clock_ns() - start_ns
    check_order(entity.state, entity.count, entity.last, count)
    return ns


def nested(count: int) -> int:
    """W3."""
    entity = Nested()
    events = nested_events(count)
    start_ns = clock_ns()
    for event in events:
        entity.send(event)
    ns = clock_ns() - start_ns
    check_nested(entity.leaf, entity.entries, entity.exits, count)
    return ns


def regions(count: int) -> int:
    """W4."""
    entity = Regions()
    events = ["TICK"] * count
    start_ns = clock_ns()
    for event in events:
        entity.send(event)
    ns = clock_ns() - start_ns
    check_regions([entity.r1, entity.r2, entity.r3, entity.r4], count)
    return ns


# The same, pure: (state, context, event) in, (state, context) out.

Context = dict[str, Any]
Pure = tuple[str, Context]


def _pure_with_items(source: str, target: str) -> Callable[[Context, str, dict[str, int]], Pure]:
    def take(context: Context, name: str, data: dict[str, int]) -> Pure:
        if context["items"] > 0:
            context = context.copy()
            context["count"] += 1
            context["last"] = name
            return target, context
        return source, context

    return take


def _pure_pay(context: Context, name: str, data: dict[str, int]) -> Pure:
    if data["amount"] >= context["total"]:
        target = "paid"
    elif data["amount"] > 0:
        target = "review"
    else:
        return "submitted", context
    context = context.copy()
    context["count"] += 1
    context["last"] = name
    return target, context


def _pure_return(context: Context, name: str, data: dict[str, int]) -> Pure:
    if data["days"] > 30:
        return "delivered", context
    context = context.copy()
    context["count"] += 1
    context["last"] = name
    return "returned", context


PURE_ORDER = {
    (source, event): _pure_with_items(source, target)
    for source, event, guard, target in ORDER_TRANSITIONS
    if guard == "has_items"
}
PURE_ORDER["submitted", "PAY"] = _pure_pay
PURE_ORDER["delivered", "RETURN"] = _pure_return


def pure_order_step(state: str, context: Context, name: str, data: dict[str, int]) -> Pure:
    """One event of W2 and W6."""
    return PURE_ORDER[state, name](context, name, data)


PURE_NESTED = _nested_targets()


def pure_nested_step(state: str, context: Context, event: str) -> Pure:
    """One event of W3: as many exits and entries as levels are crossed."""
    levels, target = PURE_NESTED[state, event]
    context = context.copy()
    for _ in range(levels):
        context["exits"] += 1
    for _ in range(levels):
        context["entries"] += 1
    return target, context


def pure_toggle_step(state: str, event: str) -> str:
    """One event of W1."""
    return FLIPPED[state, event]


def pure_regions_step(states: tuple[str, str, str, str], event: str) -> tuple[str, str, str, str]:
    """One event of W4."""
    first, second, third, fourth = states
    table = TICKED
    return table[first, event], table[second, event], table[third, event], table[fourth, event]


def pure_toggle(count: int) -> int:
    """W1."""
    state = "off"
    events = ["TOGGLE"] * count
    start_ns = clock_ns()
    for event in events:
        state = pure_toggle_step(state, event)
    ns = clock_ns() - start_ns
    check_toggle(state, count)
    return ns


def pure_order(count: int) -> int:
    """W2 and W6."""
    state, context = "draft", ORDER_CONTEXT
    events = order_events(count)
    start_ns = clock_ns()
    for name, data in events:
        state, context = pure_order_step(state, context, name, data)
    ns = clock_ns() - start_ns
    check_order(state, context["count"], context["last"], count)
    return ns


def pure_nested(count: int) -> int:
    """W3."""
    state: str = "A1a"
    context: Context = {"entries": 0, "exits": 0}
    events = nested_events(count)
    start_ns = clock_ns()
    for event in events:
        state, context = pure_nested_step(state, context, event)
    ns = clock_ns() - start_ns
    check_nested(state, context["entries"], context["exits"], count)
    return ns


def pure_regions(count: int) -> int:
    """W4."""
    states = ("off", "off", "off", "off")
    events = ["TICK"] * count
    start_ns = clock_ns()
    for event in events:
        states = pure_regions_step(states, event)
    ns = clock_ns() - start_ns
    check_regions(states, count)
    return ns


PEERS = {
    "mutable": Peer(
        name="hand-written",
        version=platform.python_version(),
        drives={"W1": toggle, "W2": order, "W3": nested, "W4": regions, "W6": order, **effect_drives(MUTABLE)},
        create=lambda: Order,
    ),
    "pure": Peer(
        name="hand-written, pure",
        version=platform.python_version(),
        drives={
            "W1": pure_toggle,
            "W2": pure_order,
            "W3": pure_nested,
            "W4": pure_regions,
            "W6": pure_order,
            **effect_drives(PURE),
        },
    ),
}

"""python-statemachine 3: `StateChart` classes."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from statemachine import State, StateChart

from bench.inprocess.peer import Make, Peer
from bench.inprocess.workloads import (
    REGIONS,
    check_nested,
    check_order,
    check_regions,
    check_toggle,
    clock_ns,
    nested_events,
    order_events,
)

# The library ships no types that are seen here, so to mypy its base classes are Any.


class Toggle(StateChart):  # type: ignore[misc]  # see above
    """W1."""

    off = State(initial=True)
    on = State()
    TOGGLE = off.to(on) | on.to(off)


class Order(StateChart):  # type: ignore[misc]  # see above
    """W2, W5 and W6."""

    catch_errors_as_events = False
    draft = State(initial=True)
    submitted = State()
    review = State()
    paid = State()
    picking = State()
    packed = State()
    shipped = State()
    delivered = State()
    returned = State()
    closed = State()

    SUBMIT = draft.to(submitted, cond="has_items", on="bump")
    PAY = submitted.to(paid, cond="enough", on="bump") | submitted.to(review, cond="positive", on="bump")
    APPROVE = review.to(paid, cond="has_items", on="bump")
    PICK = paid.to(picking, cond="has_items", on="bump")
    PACK = picking.to(packed, cond="has_items", on="bump")
    SHIP = packed.to(shipped, cond="has_items", on="bump")
    DELIVER = shipped.to(delivered, cond="has_items", on="bump")
    RETURN = delivered.to(returned, cond="in_time", on="bump")
    CLOSE = returned.to(closed, cond="has_items", on="bump")
    REOPEN = closed.to(draft, cond="has_items", on="bump")

    def __init__(self) -> None:
        self.items = 3
        self.total = 100
        self.count = 0
        self.last = ""
        super().__init__()

    def has_items(self) -> bool:
        return self.items > 0

    def enough(self, amount: int) -> bool:
        return amount >= self.total

    def positive(self, amount: int) -> bool:
        return amount > 0

    def in_time(self, days: int) -> bool:
        return days <= 30

    def bump(self, name: str) -> None:
        self.count += 1
        self.last = name


class Nested(StateChart):  # type: ignore[misc]  # see above
    """W3. Compound states take their entry and exit actions by naming convention."""

    catch_errors_as_events = False
    entries = 0
    exits = 0

    class A(State.Compound):  # type: ignore[misc]  # see above
        class A1(State.Compound):  # type: ignore[misc]  # see above
            A1a = State(initial=True, enter="entered", exit="exited")
            A1b = State(enter="entered", exit="exited")
            NEXT = A1a.to(A1b) | A1b.to(A1a)

        class A2(State.Compound):  # type: ignore[misc]  # see above
            A2a = State(initial=True, enter="entered", exit="exited")
            A2b = State(enter="entered", exit="exited")
            NEXT = A2a.to(A2b) | A2b.to(A2a)

        HOP = A1.to(A2) | A2.to(A1)

    class B(State.Compound):  # type: ignore[misc]  # see above
        class B1(State.Compound):  # type: ignore[misc]  # see above
            B1a = State(initial=True, enter="entered", exit="exited")
            B1b = State(enter="entered", exit="exited")
            NEXT = B1a.to(B1b) | B1b.to(B1a)

    JUMP = A.to(B) | B.to(A)

    def entered(self) -> None:
        self.entries += 1

    def exited(self) -> None:
        self.exits += 1

    on_enter_A = on_enter_A1 = on_enter_A2 = on_enter_B = on_enter_B1 = entered  # noqa: N815  # its convention
    on_exit_A = on_exit_A1 = on_exit_A2 = on_exit_B = on_exit_B1 = exited  # noqa: N815  # its convention


class Parallel(StateChart):  # type: ignore[misc]  # see above
    """W4."""

    class p(State.Parallel):  # type: ignore[misc]  # noqa: N801  # see above; the state's name
        class r1(State.Compound):  # type: ignore[misc]  # noqa: N801  # see above; the state's name
            off1 = State(initial=True)
            on1 = State()
            TICK = off1.to(on1) | on1.to(off1)

        class r2(State.Compound):  # type: ignore[misc]  # noqa: N801  # see above; the state's name
            off2 = State(initial=True)
            on2 = State()
            TICK = off2.to(on2) | on2.to(off2)

        class r3(State.Compound):  # type: ignore[misc]  # noqa: N801  # see above; the state's name
            off3 = State(initial=True)
            on3 = State()
            TICK = off3.to(on3) | on3.to(off3)

        class r4(State.Compound):  # type: ignore[misc]  # noqa: N801  # see above; the state's name
            off4 = State(initial=True)
            on4 = State()
            TICK = off4.to(on4) | on4.to(off4)


def _leaf(entity: Any) -> str:
    return str(list(entity.configuration_values)[-1])


def toggle(count: int) -> int:
    """W1."""
    entity = Toggle()
    events = ["TOGGLE"] * count
    start_ns = clock_ns()
    for event in events:
        entity.send(event)
    ns = clock_ns() - start_ns
    check_toggle(_leaf(entity), count)
    return ns


def order(count: int) -> int:
    """W2 and W6."""
    entity = Order()
    events = order_events(count)
    start_ns = clock_ns()
    for name, data in events:
        entity.send(name, name=name, **data)
    ns = clock_ns() - start_ns
    check_order(_leaf(entity), entity.count, entity.last, count)
    return ns


def nested(count: int) -> int:
    """W3."""
    entity = Nested()
    entity.entries = entity.exits = 0
    events = nested_events(count)
    start_ns = clock_ns()
    for event in events:
        entity.send(event)
    ns = clock_ns() - start_ns
    check_nested(_leaf(entity), entity.entries, entity.exits, count)
    return ns


def regions(count: int) -> int:
    """W4."""
    entity = Parallel()
    events = ["TICK"] * count
    start_ns = clock_ns()
    for event in events:
        entity.send(event)
    ns = clock_ns() - start_ns
    active = set(entity.configuration_values)
    check_regions(["on" if f"on{name[1:]}" in active else "off" for name in REGIONS], count)
    return ns


def create() -> Make:
    """W5."""
    return Order


PEERS = {
    "charts": Peer(
        name="python-statemachine",
        version=version("python-statemachine"),
        drives={"W1": toggle, "W2": order, "W3": nested, "W4": regions, "W6": order},
        create=create,
    )
}

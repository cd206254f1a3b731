"""automat, `TypeMachineBuilder`: flat charts only; inputs are methods.

It has no guards: a plain check is in the action (the state changes whatever it says), and a real choice is an
input whose action enters again by a private input. W3 and W4 are not expressible.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, Protocol

from automat import TypeMachineBuilder

from bench.inprocess.peer import Make, Peer
from bench.inprocess.workloads import (
    ORDER_STATES,
    ORDER_TRANSITIONS,
    check_order,
    check_toggle,
    clock_ns,
    order_events,
)


class ToggleInputs(Protocol):
    """W1."""

    def TOGGLE(self) -> None: ...  # noqa: N802  # the inputs are the workload's event names
    def where(self) -> str: ...


class Nothing:
    """W1 keeps no data."""


@dataclass
class Order:
    """What W2 keeps."""

    items: int = 3
    total: int = 100
    count: int = 0
    last: str = ""


class OrderInputs(Protocol):
    """W2."""

    # The inputs are the workload's event names.
    def SUBMIT(self) -> None: ...  # noqa: N802
    def PAY(self, amount: int) -> None: ...  # noqa: N802  # as above
    def APPROVE(self) -> None: ...  # noqa: N802  # as above
    def PICK(self) -> None: ...  # noqa: N802  # as above
    def PACK(self) -> None: ...  # noqa: N802  # as above
    def SHIP(self) -> None: ...  # noqa: N802  # as above
    def DELIVER(self) -> None: ...  # noqa: N802  # as above
    def RETURN(self, days: int) -> None: ...  # noqa: N802  # as above
    def CLOSE(self) -> None: ...  # noqa: N802  # as above
    def REOPEN(self) -> None: ...  # noqa: N802  # as above
    def paid(self, amount: int) -> None: ...
    def reviewed(self, amount: int) -> None: ...
    def returned(self, days: int) -> None: ...
    def where(self) -> str: ...
    def read(self) -> Order: ...


def _toggle() -> Any:
    builder = TypeMachineBuilder(ToggleInputs, Nothing)
    off, on = builder.state("off"), builder.state("on")
    off.upon(ToggleInputs.TOGGLE).to(on).returns(None)
    on.upon(ToggleInputs.TOGGLE).to(off).returns(None)
    off.upon(ToggleInputs.where).loop().returns("off")
    on.upon(ToggleInputs.where).loop().returns("on")
    return builder.build()


def _bump(name: str) -> Callable[[OrderInputs, Order], None]:
    def act(inputs: OrderInputs, order: Order) -> None:
        if order.items > 0:
            order.count += 1
            order.last = name

    return act


def _pay(inputs: OrderInputs, order: Order, amount: int) -> None:
    if amount >= order.total:
        inputs.paid(amount)
    elif amount > 0:
        inputs.reviewed(amount)


def _bump_paid(inputs: OrderInputs, order: Order, amount: int) -> None:
    order.count += 1
    order.last = "PAY"


def _return(inputs: OrderInputs, order: Order, days: int) -> None:
    if days <= 30:
        inputs.returned(days)


def _bump_returned(inputs: OrderInputs, order: Order, days: int) -> None:
    order.count += 1
    order.last = "RETURN"


def _read(inputs: OrderInputs, order: Order) -> Order:
    return order


def _order() -> Any:
    builder = TypeMachineBuilder(OrderInputs, Order)
    states = {name: builder.state(name) for name in ORDER_STATES}
    for name, state in states.items():
        state.upon(OrderInputs.where).loop().returns(name)
        state.upon(OrderInputs.read).loop()(_read)
    for source, event, guard, target in ORDER_TRANSITIONS:
        if guard == "has_items":
            states[source].upon(getattr(OrderInputs, event)).to(states[target])(_bump(event))
    submitted, delivered = states["submitted"], states["delivered"]
    submitted.upon(OrderInputs.PAY).loop()(_pay)
    submitted.upon(OrderInputs.paid).to(states["paid"])(_bump_paid)
    submitted.upon(OrderInputs.reviewed).to(states["review"])(_bump_paid)
    delivered.upon(OrderInputs.RETURN).loop()(_return)
    delivered.upon(OrderInputs.returned).to(states["returned"])(_bump_returned)
    return builder.build()


TOGGLE, ORDER = _toggle(), _order()


def toggle(count: int) -> int:
    """W1."""
    entity = TOGGLE(Nothing())
    events = ["TOGGLE"] * count
    start_ns = clock_ns()
    for event in events:
        getattr(entity, event)()
    ns = clock_ns() - start_ns
    check_toggle(entity.where(), count)
    return ns


def order(count: int) -> int:
    """W2 and W6."""
    entity = ORDER(Order())
    events = order_events(count)
    start_ns = clock_ns()
    for name, data in events:
        getattr(entity, name)(**data)
    ns = clock_ns() - start_ns
    kept = entity.read()
    check_order(entity.where(), kept.count, kept.last, count)
    return ns


def create() -> Make:
    """W5."""
    return lambda: ORDER(Order())


PEERS = {
    "builder": Peer(
        name="automat",
        version=version("automat"),
        drives={"W1": toggle, "W2": order, "W6": order},
        create=create,
    )
}

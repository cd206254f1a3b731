"""python-statemachine 3: `StateChart` classes.

W7 to W10 use callbacks, in its favour: `send(delay=...)` blocks the caller until the event is due, and `invoke` starts
a thread. It has no saga.
"""

from __future__ import annotations

from functools import partial
from importlib.metadata import version
from typing import Any

from statemachine import State, StateChart

from bench.inprocess.peer import Make, Peer, effect_drives
from bench.inprocess.peers.outputs import Outputs
from bench.inprocess.workloads import (
    REGIONS,
    Given,
    Output,
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


class Effects(Outputs):
    """What the charts of W7 to W10 share. Names of events have no dots."""

    def __init__(self) -> None:
        Outputs.__init__(self)
        super(Outputs, self).__init__()  # the StateChart, which enters the first state

    def bump(self) -> None:
        self.count("")

    def keep_stock(self) -> None:
        self.keep("stock")

    def keep_charge(self) -> None:
        self.keep("charge")

    def send_given(self, event: Given) -> list[Output]:
        self.given = event
        self.send(event.name.replace(".", "_"))  # type: ignore[attr-defined]  # of StateChart
        return self.take()


class Reminder(Effects, StateChart):  # type: ignore[misc]  # see above
    """W7."""

    open = State(initial=True)
    checked = State()
    go = open.to(checked, on="bump") | checked.to(open, on="bump")

    def on_enter_open(self) -> None:
        self.set_timer("open")

    def on_enter_checked(self) -> None:
        self.set_timer("checked")

    def on_exit_open(self) -> None:
        self.cancel_timer("open")

    def on_exit_checked(self) -> None:
        self.cancel_timer("checked")


class Payment(Effects, StateChart):  # type: ignore[misc]  # see above
    """W8."""

    idle = State(initial=True)
    charge_pending = State()
    pay = idle.to(charge_pending, on="bump")
    done_charge = charge_pending.to(idle, on="keep_charge")

    def on_enter_charge_pending(self) -> None:
        self.invoke("charge")


class Fulfilment(Effects, StateChart):  # type: ignore[misc]  # see above
    """W9."""

    idle = State(initial=True)
    stock_pending = State()
    charge_pending = State()
    parcel_pending = State()
    stock_compensation = State()
    start = idle.to(stock_pending, on="bump")
    done_stock = stock_pending.to(charge_pending, on="keep_stock")
    done_charge = charge_pending.to(parcel_pending, on="keep_charge")
    error_parcel = parcel_pending.to(stock_compensation)
    done_stock_compensation = stock_compensation.to(idle)

    def on_enter_stock_pending(self) -> None:
        self.invoke("stock")

    def on_enter_charge_pending(self) -> None:
        self.invoke("charge")

    def on_enter_parcel_pending(self) -> None:
        self.invoke("parcel")

    def on_enter_stock_compensation(self) -> None:
        self.compensate("stock_compensation")


class Notices(Effects, StateChart):  # type: ignore[misc]  # see above
    """W10."""

    shipped = State(initial=True)
    paid = State()
    pay = shipped.to(paid, on="bump")
    ship = paid.to(shipped, on="bump")

    def on_enter_shipped(self) -> None:
        self.notify("shipped")

    def on_enter_paid(self) -> None:
        self.notify("paid")


class EffectEntity:
    """A chart of W7 to W10 as the workloads expect it."""

    def __init__(self, chart: Any) -> None:
        self._chart = chart()
        self._chart.outputs.clear()
        self.send = self._chart.send_given

    @property
    def state(self) -> str:
        return _leaf(self._chart)

    @property
    def n(self) -> int:
        found: int = self._chart.n
        return found


EFFECT_CHARTS = {"W7": Reminder, "W8": Payment, "W9": Fulfilment, "W10": Notices}


def create() -> Make:
    """W5."""
    return Order


PEERS = {
    "charts": Peer(
        name="python-statemachine",
        version=version("python-statemachine"),
        drives={
            "W1": toggle,
            "W2": order,
            "W3": nested,
            "W4": regions,
            "W6": order,
            **effect_drives({name: partial(EffectEntity, chart) for name, chart in EFFECT_CHARTS.items()}),
        },
        create=create,
    )
}

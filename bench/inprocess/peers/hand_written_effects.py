"""W7 to W10 by hand: the same outputs as Interlock, with the same keys and payloads, as plain tuples.

The mutable classes change in place; the pure functions take and return a tuple of state, context, version and what is
pending, and copy the context. Results of invokes are accepted only with the key of the pending invoke.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bench.inprocess.workloads import ENTITY, Given, Output

Outputs = tuple[Output, ...]
DAY_MS = 86_400_000
TIMERS = {"open": ("after.24h.open", DAY_MS), "checked": ("after.48h.checked", 2 * DAY_MS)}


class Reminder:
    """W7."""

    __slots__ = ("entity", "n", "state", "timer", "version")

    def __init__(self) -> None:
        self.entity, self.version = ENTITY, 1
        self.state = "open"
        self.n = 0
        self.timer = ("after.24h.open", 1)

    def send(self, event: Given) -> Outputs:
        return REMINDER[self.state, event.name](self, event)


def _remind(target: str) -> Callable[[Reminder, Given], Outputs]:
    name, delay_ms = TIMERS[target]

    def take(self: Reminder, event: Given) -> Outputs:
        version = self.version = self.version + 1
        key = f"{self.entity}/{version}/"
        old, since = self.timer
        self.n += 1
        self.state = target
        self.timer = (name, version)
        return (
            ("timer_cancel", 0, key + "0", {"name": old, "version": since}),
            (
                "timer",
                1,
                key + "1",
                {"name": name, "event": name, "due_ms": event.time_ms + delay_ms, "version": version},
            ),
        )

    return take


REMINDER = {("open", "go"): _remind("checked"), ("checked", "go"): _remind("open")}


class Payment:
    """W8."""

    __slots__ = ("charge", "entity", "invoke", "n", "state", "version")

    def __init__(self) -> None:
        self.entity, self.version = ENTITY, 1
        self.state = "idle"
        self.n = 0
        self.charge: str | None = None
        self.invoke: str | None = None

    def send(self, event: Given) -> Outputs:
        return PAYMENT[self.state, event.name](self, event)

    def pay(self, event: Given) -> Outputs:
        self.version += 1
        self.n += 1
        self.state = "charge_pending"
        self.invoke = key = f"{self.entity}/{self.version}/0"
        return (("invoke", 0, key, _invoke("charge", "charge_pending", "payment.charge", {"n": self.n})),)

    def charged(self, event: Given) -> Outputs:
        if event.key == self.invoke:
            self.version += 1
            self.charge = event.data["charge"]
            self.state = "idle"
            self.invoke = None
        return ()


PAYMENT = {("idle", "pay"): Payment.pay, ("charge_pending", "done.charge"): Payment.charged}


def _invoke(id: str, state: str, src: str, input: dict[str, Any]) -> dict[str, Any]:
    return {"id": id, "state": state, "src": src, "type": "handler", "input": input, "timeout_ms": 5_000}


SAGA = "fulfilment_pending."
SOURCES = {"stock": "stock.reserve", "charge": "payment.charge", "parcel": "carrier.book"}


class Fulfilment:
    """W9. `keys` are the keys of the steps that are done."""

    __slots__ = ("charge", "entity", "invoke", "keys", "n", "state", "stock", "version")

    def __init__(self) -> None:
        self.entity, self.version = ENTITY, 1
        self.state = "idle"
        self.n = 0
        self.stock: str | None = None
        self.charge: str | None = None
        self.invoke: str | None = None
        self.keys: dict[str, str] = {}

    def send(self, event: Given) -> Outputs:
        if event.key != self.invoke:
            return ()
        return FULFILMENT[self.state, event.name](self, event)

    def started(self, event: Given) -> Outputs:
        self.n += 1
        self.keys = {}
        return self._run("stock")

    def reserved(self, event: Given) -> Outputs:
        self.stock = event.data
        return self._run("charge")

    def charged(self, event: Given) -> Outputs:
        self.charge = event.data
        return self._run("parcel")

    def failed(self, event: Given) -> Outputs:
        self.version += 1
        self.state = SAGA + "stock_compensation"
        self.invoke = key = f"{self.entity}/{self.version}/0"
        payload = _invoke(self.state, self.state, "stock.release", {"compensates": self.keys["stock"]})
        return (("invoke", 0, key, payload),)

    def compensated(self, event: Given) -> Outputs:
        self.version += 1
        self.state = "idle"
        self.stock = self.invoke = None
        return ()

    def _run(self, step: str) -> Outputs:
        self.version += 1
        self.state = state = SAGA + step
        base = f"{self.entity}/{self.version}/"
        self.invoke = key = base + "0"
        self.keys[step] = base + state
        payload = _invoke(state, state, SOURCES[step], {"n": self.n})
        payload["key"] = base + state
        if step == "stock":
            payload["late"] = True
        return (("invoke", 0, key, payload),)


FULFILMENT = {
    ("idle", "start"): Fulfilment.started,
    (SAGA + "stock", "done.stock"): Fulfilment.reserved,
    (SAGA + "charge", "done.charge"): Fulfilment.charged,
    (SAGA + "parcel", "error.parcel"): Fulfilment.failed,
    (SAGA + "stock_compensation", "done.stock_compensation"): Fulfilment.compensated,
}


class Notices:
    """W10."""

    __slots__ = ("amount", "entity", "n", "state", "version")

    def __init__(self) -> None:
        self.entity, self.version = ENTITY, 1
        self.state = "shipped"
        self.n = 0
        self.amount = 5

    def send(self, event: Given) -> Outputs:
        return NOTICES[self.state, event.name](self)


def _notify(target: str, call: str, event: str, to: str, message: str) -> Callable[[Notices], Outputs]:
    def take(self: Notices) -> Outputs:
        self.version += 1
        self.n += 1
        self.state = target
        return _notices(f"{self.entity}/{self.version}/", self.n, self.amount, call, event, to, message)

    return take


def _notices(key: str, n: int, amount: int, call: str, event: str, to: str, message: str) -> Outputs:
    return (
        ("call", 0, key + "0", {"name": call, "input": {"amount": amount}}),
        ("send", 1, key + "1", {"event": event, "to": to, "data": {"n": n}}),
        ("message", 2, key + "2", {"type": message, "data": {"amount": amount}}),
    )


PAID = ("paid", "receipt.send", "goods.wanted", "stock/main", "order.paid")
SHIPPED = ("shipped", "customer.notify", "parcel.ready", "carrier/main", "order.shipped")
NOTICES = {("shipped", "pay"): _notify(*PAID), ("paid", "ship"): _notify(*SHIPPED)}

MUTABLE: dict[str, Callable[[], Any]] = {"W7": Reminder, "W8": Payment, "W9": Fulfilment, "W10": Notices}


# The same, pure.

Context = dict[str, Any]
Pure = tuple[str, Context, int, Any]
"""State, context, version, and what is pending: the timer of W7, the key of an invoke."""
PureStep = Callable[[Pure, Given], tuple[Pure, Outputs]]


class PureEntity:
    """Holds the value between two steps."""

    __slots__ = ("_step", "_value")

    def __init__(self, first: Pure, step: PureStep) -> None:
        self._value, self._step = first, step

    @property
    def state(self) -> str:
        return self._value[0]

    @property
    def n(self) -> int:
        found: int = self._value[1]["n"]
        return found

    def send(self, event: Given) -> Outputs:
        self._value, outputs = self._step(self._value, event)
        return outputs


PURE_REMINDER = {("open", "go"): ("checked", *TIMERS["checked"]), ("checked", "go"): ("open", *TIMERS["open"])}


def remind(value: Pure, event: Given) -> tuple[Pure, Outputs]:
    """W7."""
    state, context, version, (old, since) = value
    target, name, delay_ms = PURE_REMINDER[state, event.name]
    version += 1
    key = f"{ENTITY}/{version}/"
    context = context.copy()
    context["n"] += 1
    return (target, context, version, (name, version)), (
        ("timer_cancel", 0, key + "0", {"name": old, "version": since}),
        ("timer", 1, key + "1", {"name": name, "event": name, "due_ms": event.time_ms + delay_ms, "version": version}),
    )


def pay(value: Pure, event: Given) -> tuple[Pure, Outputs]:
    """W8."""
    state, context, version, invoke = value
    if event.key != invoke:
        return value, ()
    version += 1
    context = context.copy()
    if (state, event.name) == ("idle", "pay"):
        context["n"] += 1
        key = f"{ENTITY}/{version}/0"
        payload = _invoke("charge", "charge_pending", "payment.charge", {"n": context["n"]})
        return ("charge_pending", context, version, key), (("invoke", 0, key, payload),)
    assert (state, event.name) == ("charge_pending", "done.charge")
    context["charge"] = event.data["charge"]
    return ("idle", context, version, None), ()


def fulfil(value: Pure, event: Given) -> tuple[Pure, Outputs]:
    """W9."""
    state, context, version, invoke = value
    if event.key != invoke:
        return value, ()
    context = context.copy()
    return PURE_FULFILMENT[state, event.name](context, version + 1, event)


def _pure_run(context: Context, version: int, step: str) -> tuple[Pure, Outputs]:
    state = SAGA + step
    base = f"{ENTITY}/{version}/"
    key = base + "0"
    context["keys"] = {**context["keys"], step: base + state}
    payload = _invoke(state, state, SOURCES[step], {"n": context["n"]})
    payload["key"] = base + state
    if step == "stock":
        payload["late"] = True
    return (state, context, version, key), (("invoke", 0, key, payload),)


def _pure_started(context: Context, version: int, event: Given) -> tuple[Pure, Outputs]:
    context["n"] += 1
    context["keys"] = {}
    return _pure_run(context, version, "stock")


def _pure_reserved(context: Context, version: int, event: Given) -> tuple[Pure, Outputs]:
    context["stock"] = event.data
    return _pure_run(context, version, "charge")


def _pure_charged(context: Context, version: int, event: Given) -> tuple[Pure, Outputs]:
    context["charge"] = event.data
    return _pure_run(context, version, "parcel")


def _pure_failed(context: Context, version: int, event: Given) -> tuple[Pure, Outputs]:
    state = SAGA + "stock_compensation"
    key = f"{ENTITY}/{version}/0"
    payload = _invoke(state, state, "stock.release", {"compensates": context["keys"]["stock"]})
    return (state, context, version, key), (("invoke", 0, key, payload),)


def _pure_compensated(context: Context, version: int, event: Given) -> tuple[Pure, Outputs]:
    context["stock"] = None
    return ("idle", context, version, None), ()


PURE_FULFILMENT = {
    ("idle", "start"): _pure_started,
    (SAGA + "stock", "done.stock"): _pure_reserved,
    (SAGA + "charge", "done.charge"): _pure_charged,
    (SAGA + "parcel", "error.parcel"): _pure_failed,
    (SAGA + "stock_compensation", "done.stock_compensation"): _pure_compensated,
}

PURE_NOTICES = {("shipped", "pay"): PAID, ("paid", "ship"): SHIPPED}


def notify(value: Pure, event: Given) -> tuple[Pure, Outputs]:
    """W10."""
    state, context, version, pending = value
    target, call, sent, to, message = PURE_NOTICES[state, event.name]
    version += 1
    context = context.copy()
    context["n"] += 1
    outputs = _notices(f"{ENTITY}/{version}/", context["n"], context["amount"], call, sent, to, message)
    return (target, context, version, pending), outputs


PURE: dict[str, Callable[[], PureEntity]] = {
    "W7": lambda: PureEntity(("open", {"n": 0}, 1, ("after.24h.open", 1)), remind),
    "W8": lambda: PureEntity(("idle", {"n": 0, "charge": None}, 1, None), pay),
    "W9": lambda: PureEntity(("idle", {"n": 0, "stock": None, "charge": None, "keys": {}}, 1, None), fulfil),
    "W10": lambda: PureEntity(("shipped", {"n": 0, "amount": 5}, 1, None), notify),
}

"""xstate-statemachine (Python): definitions in XState's shape, its `SyncInterpreter`.

It logs in every step; logging is switched off here, in its favour. W7 uses its `after` on its simulated clock. Its
`invoke` runs the handler and processes the result within the same `send`, so that W8 needs one call for two events and
W9 one call for five. Its saga pattern runs functions and not states, so W9 is written with states. The actions of W10
are callbacks.
"""

from __future__ import annotations

import logging
from functools import partial
from importlib.metadata import version
from typing import Any

from xstate_statemachine import MachineLogic, SyncInterpreter, create_machine
from xstate_statemachine.clock import SimulatedClock

from bench.inprocess.peer import Make, Peer, effect_drives
from bench.inprocess.peers.outputs import Outputs
from bench.inprocess.workloads import (
    NESTED_TRANSITIONS,
    NESTED_TREE,
    ORDER_CONTEXT,
    ORDER_STATES,
    ORDER_TRANSITIONS,
    REGIONS,
    SCENARIOS,
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

logging.disable(logging.CRITICAL)


def _leaves(entity: Any) -> list[str]:
    return sorted(name.rsplit(".", 1)[1] for name in entity.current_state_ids)


def toggle(count: int) -> int:
    """W1."""
    states = {"off": {"on": {"TOGGLE": "on"}}, "on": {"on": {"TOGGLE": "off"}}}
    entity = SyncInterpreter(create_machine({"id": "t", "initial": "off", "states": states})).start()
    events = ["TOGGLE"] * count
    start_ns = clock_ns()
    for event in events:
        entity.send(event)
    ns = clock_ns() - start_ns
    check_toggle(_leaves(entity)[0], count)
    return ns


def _bump(interpreter: Any, context: Any, event: Any, action: Any) -> None:
    context["count"] += 1
    context["last"] = event.type


def _order_chart() -> Any:
    states: dict[str, Any] = {name: {"on": {}} for name in ORDER_STATES}
    for source, event, guard, target in ORDER_TRANSITIONS:
        edge = {"target": target, "guard": guard, "actions": ["bump"]}
        states[source]["on"].setdefault(event, []).append(edge)
    guards = {
        "has_items": lambda context, event: context["items"] > 0,
        "enough": lambda context, event: event.payload["amount"] >= context["total"],
        "positive": lambda context, event: event.payload["amount"] > 0,
        "in_time": lambda context, event: event.payload["days"] <= 30,
    }
    definition = {"id": "order", "initial": "draft", "context": dict(ORDER_CONTEXT), "states": states}
    return create_machine(definition, logic=MachineLogic(actions={"bump": _bump}, guards=guards))


def order(count: int) -> int:
    """W2 and W6."""
    entity = SyncInterpreter(_order_chart()).start()
    events = order_events(count)
    start_ns = clock_ns()
    for name, data in events:
        entity.send(name, **data)
    ns = clock_ns() - start_ns
    check_order(_leaves(entity)[0], entity.context["count"], entity.context["last"], count)
    return ns


def _nested_state(name: str, children: dict[str, Any] | None = None) -> dict[str, Any]:
    edges = {event: f"#{target}" for source, event, target in NESTED_TRANSITIONS if source == name}
    state: dict[str, Any] = {"id": name, "entry": ["entered"], "exit": ["exited"], "on": edges}
    if children:
        state |= {"initial": next(iter(children)), "states": children}
    return state


def nested(count: int) -> int:
    """W3."""
    moves = [0, 0]

    def entered(interpreter: Any, context: Any, event: Any, action: Any) -> None:
        moves[0] += 1

    def exited(interpreter: Any, context: Any, event: Any, action: Any) -> None:
        moves[1] += 1

    states = {}
    for top, middles in NESTED_TREE.items():
        inner = {
            middle: _nested_state(middle, {leaf: _nested_state(leaf) for leaf in leaves})
            for middle, leaves in middles.items()
        }
        states[top] = _nested_state(top, inner)
    logic = MachineLogic(actions={"entered": entered, "exited": exited})
    entity = SyncInterpreter(create_machine({"id": "n", "initial": "A", "states": states}, logic=logic)).start()
    moves[:] = [0, 0]
    events = nested_events(count)
    start_ns = clock_ns()
    for event in events:
        entity.send(event)
    ns = clock_ns() - start_ns
    check_nested(_leaves(entity)[-1], moves[0], moves[1], count)
    return ns


def regions(count: int) -> int:
    """W4."""
    states = {"off": {"on": {"TICK": "on"}}, "on": {"on": {"TICK": "off"}}}
    parts = {name: {"initial": "off", "states": states} for name in REGIONS}
    entity = SyncInterpreter(create_machine({"id": "p", "type": "parallel", "states": parts})).start()
    events = ["TICK"] * count
    start_ns = clock_ns()
    for event in events:
        entity.send(event)
    ns = clock_ns() - start_ns
    check_regions([name for name in _leaves(entity) if name in ("on", "off")], count)
    return ns


class CountingClock(SimulatedClock):  # type: ignore[misc]  # the library ships no types
    """Adds each timer that is set or cancelled to the outputs."""

    def __init__(self, outputs: Outputs) -> None:
        super().__init__()
        self._outputs = outputs

    def set_timeout(self, fn: Any, delay_sec: float, **options: Any) -> Any:
        self._outputs.add("timer", {"delay_s": delay_sec})
        return super().set_timeout(fn, delay_sec, **options)

    def clear_timeout(self, handle: Any) -> None:
        self._outputs.add("timer_cancel", {})
        super().clear_timeout(handle)


class EffectEntity:
    """W7 to W10. Events that are results of invokes have been processed already, inside the `send` before."""

    def __init__(self, workload: str) -> None:
        self._outputs = outputs = Outputs()

        def charge(interpreter: Any, context: Any, event: Any) -> dict[str, str]:
            outputs.invoke("charge")
            return {"charge": "c-1"}

        def reserve(interpreter: Any, context: Any, event: Any) -> str:
            outputs.invoke("stock")
            return "s-1"

        def book(interpreter: Any, context: Any, event: Any) -> None:
            outputs.invoke("parcel")
            raise RefusedError("no van")

        def release(interpreter: Any, context: Any, event: Any) -> None:
            outputs.stock = context["stock"]
            outputs.compensate("stock")

        def keep(field: str) -> Any:
            def action(interpreter: Any, context: Any, event: Any, action: Any) -> None:
                context[field] = event.data["charge"] if isinstance(event.data, dict) else event.data

            return action

        def bump(interpreter: Any, context: Any, event: Any, action: Any) -> None:
            context["n"] += 1
            outputs.n = context["n"]

        actions = {
            "bump": bump,
            "keep_charge": keep("charge"),
            "keep_stock": keep("stock"),
            "notify_paid": lambda *_: outputs.notify("paid"),
            "notify_shipped": lambda *_: outputs.notify("shipped"),
        }
        services = {"charge": charge, "reserve": reserve, "book": book, "release": release}
        context = {"n": 0, "stock": None, "charge": None}
        definition = {"id": "e", "initial": SCENARIOS[workload].home, "context": context}
        chart = create_machine(
            {**definition, "states": EFFECT_STATES[workload]}, logic=MachineLogic(actions=actions, services=services)
        )
        self._entity = SyncInterpreter(chart, clock=CountingClock(outputs)).start()
        outputs.outputs.clear()

    def send(self, event: Given) -> list[Output]:
        if event.key is None:
            self._entity.send(event.name)
        return self._outputs.take()

    @property
    def state(self) -> str:
        return _leaves(self._entity)[0]

    @property
    def n(self) -> int:
        found: int = self._entity.context["n"]
        return found


class RefusedError(Exception):
    """The failure of the third step of the saga."""


def _to(target: str, *actions: str) -> dict[str, Any]:
    return {"target": target, "actions": list(actions)}


def _step(src: str, done: Any, error: Any = "idle") -> dict[str, Any]:
    return {"invoke": {"id": src, "src": src, "onDone": done, "onError": error}}


EFFECT_STATES: dict[str, dict[str, Any]] = {
    "W7": {
        "open": {"after": {"86400000": "expired"}, "on": {"go": _to("checked", "bump")}},
        "checked": {"after": {"172800000": "expired"}, "on": {"go": _to("open", "bump")}},
        "expired": {},
    },
    "W8": {
        "idle": {"on": {"pay": _to("charge_pending", "bump")}},
        "charge_pending": _step("charge", _to("idle", "keep_charge")),
    },
    "W9": {
        "idle": {"on": {"start": _to("stock", "bump")}},
        "stock": _step("reserve", _to("charge", "keep_stock")),
        "charge": _step("charge", _to("parcel", "keep_charge"), "stock_compensation"),
        "parcel": _step("book", "idle", "stock_compensation"),
        "stock_compensation": _step("release", "idle"),
    },
    "W10": {
        "paid": {"entry": ["notify_paid"], "on": {"ship": _to("shipped", "bump")}},
        "shipped": {"entry": ["notify_shipped"], "on": {"pay": _to("paid", "bump")}},
    },
}


def create() -> Make:
    """W5."""
    chart = _order_chart()
    return lambda: SyncInterpreter(chart).start()


PEERS = {
    "sync": Peer(
        name="xstate-statemachine",
        version=version("xstate-statemachine"),
        drives={
            "W1": toggle,
            "W2": order,
            "W3": nested,
            "W4": regions,
            "W6": order,
            **effect_drives({workload: partial(EffectEntity, workload) for workload in EFFECT_STATES}),
        },
        create=create,
    )
}

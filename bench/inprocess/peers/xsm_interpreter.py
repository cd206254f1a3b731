"""xstate-statemachine (Python): definitions in XState's shape, its `SyncInterpreter`.

It logs on the hot path; logging is switched off here, to its advantage.
"""

from __future__ import annotations

import logging
from importlib.metadata import version
from typing import Any

from xstate_statemachine import MachineLogic, SyncInterpreter, create_machine

from bench.inprocess.peer import Make, Peer
from bench.inprocess.workloads import (
    NESTED_TRANSITIONS,
    NESTED_TREE,
    ORDER_CONTEXT,
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


def create() -> Make:
    """W5."""
    chart = _order_chart()
    return lambda: SyncInterpreter(chart).start()


PEERS = {
    "sync": Peer(
        name="xstate-statemachine",
        version=version("xstate-statemachine"),
        drives={"W1": toggle, "W2": order, "W3": nested, "W4": regions, "W6": order},
        create=create,
    )
}

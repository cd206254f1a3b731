"""sismic: statecharts as data; guards are Python source that it compiles once, actions call Python functions."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from sismic.interpreter import Event, Interpreter
from sismic.io.datadict import import_from_dict

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

GUARDS = {
    "has_items": "items > 0",
    "enough": "event.amount >= total",
    "positive": "event.amount > 0",
    "in_time": "event.days <= 30",
}


def _chart(root: dict[str, Any], preamble: str = "") -> Any:
    return import_from_dict({"statechart": {"name": "chart", "preamble": preamble, "root state": root}})


def _leaves(entity: Any) -> list[str]:
    return [name for name in entity.configuration if not entity.statechart.children_for(name)]


def _drive(entity: Any, events: list[tuple[str, dict[str, int]]]) -> int:
    queue, step = entity.queue, entity.execute_once
    start_ns = clock_ns()
    for name, data in events:
        queue(Event(name, **data))
        step()
    return clock_ns() - start_ns


def toggle(count: int) -> int:
    """W1."""
    states = [
        {"name": "off", "transitions": [{"event": "TOGGLE", "target": "on"}]},
        {"name": "on", "transitions": [{"event": "TOGGLE", "target": "off"}]},
    ]
    entity = Interpreter(_chart({"name": "root", "initial": "off", "states": states}))
    entity.execute()
    ns = _drive(entity, [("TOGGLE", {})] * count)
    check_toggle(_leaves(entity)[0], count)
    return ns


def _order_chart() -> Any:
    states: dict[str, Any] = {name: {"name": name, "transitions": []} for name in ORDER_STATES}
    for source, event, guard, target in ORDER_TRANSITIONS:
        edge = {"event": event, "guard": GUARDS[guard], "target": target, "action": "bump(event)"}
        states[source]["transitions"].append(edge)
    preamble = "\n".join(f"{name} = {value!r}" for name, value in ORDER_CONTEXT.items())
    return _chart({"name": "root", "initial": "draft", "states": list(states.values())}, preamble)


ORDER = _order_chart()


def _started_order() -> Any:
    entity = Interpreter(ORDER, initial_context={})
    context = entity.context

    def bump(event: Any) -> None:
        context["count"] += 1
        context["last"] = event.name

    context["bump"] = bump
    entity.execute()
    return entity


def order(count: int) -> int:
    """W2 and W6."""
    entity = _started_order()
    ns = _drive(entity, order_events(count))
    check_order(_leaves(entity)[0], entity.context["count"], entity.context["last"], count)
    return ns


def _nested_state(name: str, children: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    edges = [{"event": event, "target": target} for source, event, target in NESTED_TRANSITIONS if source == name]
    state: dict[str, Any] = {"name": name, "on entry": "entered()", "on exit": "exited()", "transitions": edges}
    if children:
        state |= {"initial": children[0]["name"], "states": children}
    return state


def nested(count: int) -> int:
    """W3."""
    moves = [0, 0]

    def entered() -> None:
        moves[0] += 1

    def exited() -> None:
        moves[1] += 1

    tops = []
    for top, middles in NESTED_TREE.items():
        inner = [_nested_state(middle, [_nested_state(leaf) for leaf in leaves]) for middle, leaves in middles.items()]
        tops.append(_nested_state(top, inner))
    chart = _chart({"name": "root", "initial": "A", "states": tops})
    entity = Interpreter(chart, initial_context={"entered": entered, "exited": exited})
    entity.execute()
    moves[:] = [0, 0]
    ns = _drive(entity, [(name, {}) for name in nested_events(count)])
    check_nested(_leaves(entity)[0], moves[0], moves[1], count)
    return ns


def regions(count: int) -> int:
    """W4. Names are unique in a chart of sismic, so each state carries its region's."""
    parts = []
    for name in REGIONS:
        states = [
            {"name": f"{name}off", "transitions": [{"event": "TICK", "target": f"{name}on"}]},
            {"name": f"{name}on", "transitions": [{"event": "TICK", "target": f"{name}off"}]},
        ]
        parts.append({"name": name, "initial": f"{name}off", "states": states})
    entity = Interpreter(_chart({"name": "root", "parallel states": parts}))
    entity.execute()
    ns = _drive(entity, [("TICK", {})] * count)
    check_regions([name[2:] for name in sorted(_leaves(entity))], count)
    return ns


def create() -> Make:
    """W5."""
    return _started_order


PEERS = {
    "interpreter": Peer(
        name="sismic",
        version=version("sismic"),
        drives={"W1": toggle, "W2": order, "W3": nested, "W4": regions, "W6": order},
        create=create,
    )
}

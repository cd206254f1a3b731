"""The workloads: their data, their event cycles, and the result that every implementation must reach.

| | chart | one event |
|---|---|---|
| W1 | `off` and `on`, no guard, no action | one change of state |
| W2 | 10 flat states, each transition with a guard and one action (`count += 1`, `last = event`) | PAY comes with too \
little money: the first candidate is refused, the second taken |
| W3 | 3 levels, an entry and an exit action on every state | inherited transitions: 11 exits, 11 entries in 6 events |
| W4 | 4 parallel regions of 2 states | moves all four |
| W5 | creates and starts an entity of the chart of W2 | (an entity) |
| W6 | folds the events of W2 over one entity | as W2, nothing kept |
| W7 | two states, each with a timer; one assign per step | cancels one timer and sets one |
| W8 | a state that invokes a handler; its result leads back | an invoke, or its result |
| W9 | a saga of three steps; the third fails, the first is compensated | 4 invokes in 5 events |
| W10 | two states whose entry calls a handler, sends to another entity and publishes | a call, a send, a message |
| W11 | creates an order of the demo, with its timer | (an entity) |
| W12 | folds the events of whole orders of the demo, from the draft to the delivery | one of 5 events |

The data is in `workloads.json`, which the libraries on Node.js read too.
Rule: every round ends in one of the checks below, so an implementation that does less work fails instead of looking
fast. In W7 to W10, the outputs (effects: timers set and cancelled, invokes, calls, sends, messages) are counted while
the time is measured, and their types are checked in one more cycle.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from time import process_time_ns as clock_ns
from typing import Any, NamedTuple, Protocol

__all__ = ["clock_ns"]  # CPU time: a busy neighbour does not count

_DATA: dict[str, Any] = json.loads(Path(__file__).with_name("workloads.json").read_text(encoding="utf-8"))

WORKLOADS = tuple(f"W{number}" for number in range(1, 13))

Events = list[tuple[str, dict[str, int]]]

ORDER_CONTEXT: dict[str, Any] = _DATA["order"]["context"]
ORDER_STATES: list[str] = _DATA["order"]["states"]
ORDER_TRANSITIONS: list[tuple[str, str, str, str]] = [tuple(row) for row in _DATA["order"]["transitions"]]
"""(source, event, guard, target), in the order in which they are tried."""
ORDER_EVENTS: Events = [(name, data) for name, data in _DATA["order"]["events"]]

NESTED_TREE: dict[str, dict[str, list[str]]] = _DATA["nested"]["tree"]
NESTED_TRANSITIONS: list[tuple[str, str, str]] = [tuple(row) for row in _DATA["nested"]["transitions"]]
NESTED_EVENTS: list[str] = _DATA["nested"]["events"]
NESTED_MOVES: int = _DATA["nested"]["moves_per_cycle"]

REGIONS: list[str] = _DATA["regions"]


class Scenario(NamedTuple):
    """A workload with effects: the first and last state, and per cycle the assigns of `n` and the outputs by type.

    `states` (with their entry and exit actions) and `edges` (event, source, target, action) are the chart for libraries
    whose actions are callbacks.
    """

    home: str
    counted: int
    totals: dict[str, int]
    events: list[tuple[str, Any]]
    states: dict[str, tuple[str | None, str | None]]
    edges: list[tuple[str, str, str, str | None]]


class Given(NamedTuple):
    """An event of such a workload. `key` is that of the invoke effect whose result it is."""

    name: str
    data: Any
    key: str | None
    time_ms: int


SCENARIOS: dict[str, Scenario] = {name: Scenario(**each) for name, each in _DATA["effects"].items()}
ENTITY = "order/1"

_CYCLES = {name: len(each.events) for name, each in SCENARIOS.items()} | {"W11": 1, "W12": 5}
_CYCLES |= {"W1": 2, "W2": len(ORDER_EVENTS), "W3": len(NESTED_EVENTS), "W4": 2, "W5": 1, "W6": len(ORDER_EVENTS)}


def fitting(workload: str, count: int) -> int:
    """The count of events nearest below that the workload's check allows.

    Whole cycles, so that the end is known; odd for W1 and W4, so that a peer that never moves is caught.
    """
    cycle = _CYCLES[workload]
    whole = max(cycle, count // cycle * cycle)
    return whole - 1 if workload in ("W1", "W4") else whole


def order_events(count: int) -> Events:
    """The events of W2 and W6."""
    return ORDER_EVENTS * (count // len(ORDER_EVENTS))


def nested_events(count: int) -> list[str]:
    """The events of W3."""
    return NESTED_EVENTS * (count // len(NESTED_EVENTS))


def given_events(workload: str, count: int) -> list[Given]:
    """Return events for an entity at version 1; each is one version, so the keys of invokes are known."""
    cycle = SCENARIOS[workload].events
    events = []
    for position in range(count):
        name, data = cycle[position % len(cycle)]
        key = f"{ENTITY}/{position + 1}/0" if name.startswith(("done.", "error.")) else None
        events.append(Given(name, data, key, position + 1))
    return events


class WrongResultError(AssertionError):
    """A peer did not do the work it was timed for."""


def check_toggle(state: str, count: int) -> None:
    """W1 ends in `on` after an odd count."""
    _expect("on" if count % 2 else "off", state)


def check_order(state: str, counted: int, last: str, count: int) -> None:
    """W2 and W6 end in the first state, having counted every event."""
    _expect(("draft", count, ORDER_EVENTS[-1][0]), (state, counted, last))


def check_nested(leaf: str, entries: int, exits: int, count: int) -> None:
    """W3 ends in the first state, having run every entry and exit action since the start."""
    moves = count // len(NESTED_EVENTS) * NESTED_MOVES
    _expect(("A1a", moves, moves), (leaf, entries, exits))


def check_regions(states: Iterable[str], count: int) -> None:
    """W4 ends with all regions `on` after an odd count."""
    _expect(["on" if count % 2 else "off"] * len(REGIONS), list(states))


Output = tuple[str, int, str, dict[str, Any]]
"""Type, ordinal, key and payload of an effect."""

Send = Callable[[Given], Sequence[Output]]


def drive_effects(workload: str, entity: Entity, count: int) -> int:
    """Send events to an entity, count its outputs, check the result, and return the nanoseconds of CPU time."""
    scenario = SCENARIOS[workload]
    cycle = len(scenario.events)
    events = given_events(workload, count + cycle)
    timed, last = events[:count], events[count:]
    send, outputs = entity.send, 0
    start_ns = clock_ns()
    for event in timed:
        outputs += len(send(event))
    ns = clock_ns() - start_ns
    types = Counter(output[0] for event in last for output in send(event))
    check_effects(workload, entity.state, entity.n, outputs, dict(types), count)
    return ns


class Entity(Protocol):
    """An entity of W7 to W10; `send` returns the outputs of an event."""

    @property
    def state(self) -> str: ...
    @property
    def n(self) -> int: ...
    @property
    def send(self) -> Send: ...


def check_effects(workload: str, state: str, counted: int, outputs: int, types: dict[str, int], count: int) -> None:
    """W7 to W10 end in the first state, after every assign and output; `types` are those of one more cycle."""
    scenario = SCENARIOS[workload]
    cycles = count // len(scenario.events)
    wanted = (scenario.home, scenario.counted * (cycles + 1), sum(scenario.totals.values()) * cycles, scenario.totals)
    _expect(wanted, (state, counted, outputs, types))


def _expect(wanted: object, found: object) -> None:
    if wanted != found:
        raise WrongResultError(f"expected {wanted!r}, got {found!r}")

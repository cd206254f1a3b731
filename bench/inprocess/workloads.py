"""The six workloads: their data, their event cycles, and the result that every peer must reach.

| | chart | one event |
|---|---|---|
| W1 | `off` and `on`, no guard, no action | one change of state |
| W2 | 10 flat states, each transition with a guard and one action (`count += 1`, `last = event`) | PAY comes with too \
little money: the first candidate is refused, the second taken |
| W3 | 3 levels, an entry and an exit action on every state | inherited transitions: 11 exits, 11 entries in 6 events |
| W4 | 4 parallel regions of 2 states | moves all four |
| W5 | makes and starts an entity of W2's chart | (an entity) |
| W6 | folds the events of W2 over one entity | as W2, nothing kept |

The data is in `workloads.json`, which the libraries on Node.js read too.
Rule: every repeat ends in one of the checks below, so a peer that does less work fails instead of looking fast.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from time import process_time_ns as clock_ns
from typing import Any

__all__ = ["clock_ns"]  # CPU time: a busy neighbour does not count

_DATA: dict[str, Any] = json.loads(Path(__file__).with_name("workloads.json").read_text(encoding="utf-8"))

WORKLOADS = ("W1", "W2", "W3", "W4", "W5", "W6")

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

_CYCLES = {"W1": 2, "W2": len(ORDER_EVENTS), "W3": len(NESTED_EVENTS), "W4": 2, "W5": 1, "W6": len(ORDER_EVENTS)}


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


def _expect(wanted: object, found: object) -> None:
    if wanted != found:
        raise WrongResultError(f"wanted {wanted!r}, found {found!r}")

"""The durable workloads: one order with one caller, and a fleet of orders with many callers.

Rule 1: `create` and `send` of an engine return once the step is durable, by that engine's own definition of durable.
Rule 2: every engine runs the same chart. Engines without charts use `step`, a table.
Rule 3: every answer is checked; an engine that is in the wrong state has failed, it is not fast.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

EVENTS = ("submit", "pay", "pack", "ship", "deliver")
STATES = ("created", "submitted", "paid", "packed", "shipped", "delivered")
TABLE = {(before, event): after for before, event, after in zip(STATES, EVENTS, STATES[1:], strict=False)}
TABLE["delivered", "submit"] = "submitted"
EFFECTS = {"pay": ("charge_card",)}

STEPS_EACH = 1 + len(EVENTS)
"""Durable steps of one order of the fleet: its creation, and its events."""

EFFECTS_EACH = 10
"""Effects of one order in the workload `effects`, one after the other."""

CLIENTS = 64
"""Concurrent callers of the fleet."""


class WrongStateError(Exception):
    """An engine answered with another state than the chart has."""


def step(state: str, event: str) -> tuple[str, tuple[str, ...]]:
    """Return the next state and the effects. Raises KeyError if the state does not accept the event."""
    return TABLE[state, event], EFFECTS.get(event, ())


class Engine(Protocol):
    """Something that stores orders."""

    async def start(self) -> None:
        """Open it, empty."""

    async def stop(self) -> None:
        """Close it, and delete its data."""

    async def create(self, order: str) -> None:
        """Create an order."""

    async def send(self, order: str, event: str, key: str) -> str:
        """Send an event with an idempotency key to an order, and return the new state."""


class Runner(Protocol):
    """Something that runs whole orders, with the work that they cause."""

    async def start(self) -> None:
        """Open it, empty."""

    async def stop(self) -> None:
        """Close it, and delete its data."""

    async def run(self, order: str) -> int:
        """Run an order to its end, and return the number of its steps or effects."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """What an engine gets: an empty folder, and the servers that the run has started."""

    folder: Path
    postgres: str | None = None
    temporal: str | None = None
    restate: str | None = None
    server_pids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of the tables: its name, and functions that create the engine, and a runner for other workloads."""

    name: str
    version: str
    make: Callable[[Place], Engine]
    engine_workloads: tuple[str, ...] = ("seq1", "fleet")
    runners: Mapping[str, Callable[[Place], Runner]] = field(default_factory=dict)

    @property
    def workloads(self) -> tuple[str, ...]:
        """Return the workloads that this line can do."""
        return (*self.engine_workloads, *self.runners)


@dataclass(slots=True)
class Meter:
    """Wall time, and CPU time of this process and of servers. CPU time moves less when others use the machine."""

    server_pids: Sequence[int]
    latencies: list[float] = field(default_factory=list)
    _wall: float = 0.0
    _own: float = 0.0
    _servers: float = 0.0

    def start(self) -> None:
        """Start the measurement."""
        self._servers = tree_cpu_s(self.server_pids)
        self._own = time.process_time()
        self._wall = time.perf_counter()

    def answer(self, units: int | None = None) -> dict[str, float]:
        """Return the measures: steps per second, CPU time per step, latencies. `units` is the number of steps."""
        wall = time.perf_counter() - self._wall
        own = time.process_time() - self._own
        servers = tree_cpu_s(self.server_pids) - self._servers
        ordered = sorted(self.latencies)
        answers = len(ordered)
        steps = answers if units is None else units
        return {
            "rate": steps / wall,
            "seconds": wall,
            "cpu_us": 1e6 * own / steps,
            "server_cpu_us": 1e6 * servers / steps,
            "all_cpu_us": 1e6 * (own + servers) / steps,
            "p50_ms": 1e3 * ordered[answers // 2],
            "p99_ms": 1e3 * ordered[min(answers - 1, answers * 99 // 100)],
        }


async def sequence(engine: Engine, count: int, server_pids: Sequence[int]) -> dict[str, float]:
    """One order, one caller, so many events one after the other. The first five are not measured."""
    order = f"seq-{os.getpid()}-{time.monotonic_ns()}"
    await engine.create(order)
    for position, event in enumerate(EVENTS):
        await engine.send(order, event, f"{order}:w{position}")
    meter = Meter(server_pids)
    meter.start()
    for position in range(count):
        start_s = time.perf_counter()
        state = await engine.send(order, EVENTS[position % 5], f"{order}:{position}")
        meter.latencies.append(time.perf_counter() - start_s)
        _check(state, position % 5)
    return meter.answer()


async def fleet(engine: Engine, count: int, server_pids: Sequence[int], clients: int = CLIENTS) -> dict[str, float]:
    """Create `count` orders and send five events to each, with `clients` concurrent callers."""
    meter = Meter(server_pids)
    run = f"o-{os.getpid()}-{time.monotonic_ns()}"
    numbers = iter(range(count))

    async def client() -> None:
        for number in numbers:
            order = f"{run}-{number}"
            start_s = time.perf_counter()
            await engine.create(order)
            meter.latencies.append(time.perf_counter() - start_s)
            for position, event in enumerate(EVENTS):
                start_s = time.perf_counter()
                state = await engine.send(order, event, f"{order}:{position}")
                meter.latencies.append(time.perf_counter() - start_s)
                _check(state, position)

    meter.start()
    await asyncio.gather(*[client() for _ in range(min(clients, count))])
    answer = meter.answer()
    if len(meter.latencies) != count * STEPS_EACH:
        raise WrongStateError(f"{len(meter.latencies)} steps were done, not {count * STEPS_EACH}")
    return answer


async def whole_orders(runner: Runner, count: int, server_pids: Sequence[int]) -> dict[str, float]:
    """Run `count` orders to their end with concurrent callers; the latency is that of a whole order."""
    meter = Meter(server_pids)
    run = f"o-{os.getpid()}-{time.monotonic_ns()}"
    numbers = iter(range(count))
    units = 0

    async def client() -> None:
        nonlocal units
        for number in numbers:
            start_s = time.perf_counter()
            done = await runner.run(f"{run}-{number}")
            units += done  # not in one expression: other clients count while this one waits
            meter.latencies.append(time.perf_counter() - start_s)

    meter.start()
    await asyncio.gather(*[client() for _ in range(min(CLIENTS, count))])
    return meter.answer(units)


DRIVES: dict[str, Callable[[Engine, int, Sequence[int]], Awaitable[dict[str, float]]]] = {
    "seq1": sequence,
    "fleet": fleet,
}


def _check(state: str, position: int) -> None:
    if state != STATES[position + 1]:
        raise WrongStateError(f"{EVENTS[position]} led to {state}, not to {STATES[position + 1]}")


def tree_cpu_s(roots: Sequence[int]) -> float:
    """CPU seconds of these processes and all below them, with children that have ended."""
    if not roots:
        return 0.0
    below: dict[int, list[int]] = {}
    used: dict[int, int] = {}
    for each in Path("/proc").iterdir():
        if not each.name.isdigit():
            continue
        try:
            text = (each / "stat").read_text(encoding="ascii", errors="replace")
        except OSError:
            continue  # it ended meanwhile
        fields = text.rpartition(")")[2].split()
        below.setdefault(int(fields[1]), []).append(int(each.name))
        used[int(each.name)] = sum(int(part) for part in fields[11:15])
    found, waiting = 0, list(roots)
    while waiting:
        process = waiting.pop()
        found += used.get(process, 0)
        waiting += below.get(process, [])
    return found / os.sysconf("SC_CLK_TCK")

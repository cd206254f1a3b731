"""The wake-ups suite: work that one process creates and another runs, on each store that processes share."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.durable.servers import Servers
from bench.measure import Measurement, PeerUnavailableError, file_system, report, run_module, stores_folder
from bench.results import Figure, Line
from bench.suite import Goal, Suite, Workload, median, value

SECONDS_MAX = 600
STORES = {"sqlite": "SQLite", "files": "files", "postgres": "PostgreSQL"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How many orders are sent one by one, and how many workers are killed."""

    orders: int
    kills: int
    rounds: int = 1


def run(measurement: Measurement[Effort]) -> None:
    """Measure the chosen stores."""
    chosen = measurement.chosen(STORES) or list(STORES)
    effort = measurement.effort
    with stores_folder() as folder, _servers(folder, chosen) as servers:
        measurement.facts.append(f"Files on {file_system(folder)}.")
        for name in chosen:
            report(f"bench: wakeups, {STORES[name]} ...")
            with measurement.or_left_out(name):
                url = _url(name, folder, servers)
                found = run_module("bench.wakeups.workload", url, effort.orders, effort.kills, seconds_max=SECONDS_MAX)
                figure = Figure(count=effort.orders, samples={measure: [each] for measure, each in found.items()})
                measurement.add("wakeups", name, figure, Line(name=STORES[name]))


@contextlib.contextmanager
def _servers(folder: Path, chosen: list[str]) -> Iterator[Servers]:
    servers = Servers(folder)
    try:
        servers.start({"postgres"} & set(chosen))
        yield servers
    finally:
        servers.stop()


def _url(name: str, folder: Path, servers: Servers) -> str:
    if name == "sqlite":
        return f"sqlite:///{folder}/orders.db"
    if name == "files":
        return f"file://{folder}/orders"
    if name not in servers.addresses:
        raise PeerUnavailableError(servers.left_out.get(name, "no server"))
    return servers.addresses[name]


WAKEUPS = Suite(
    name="wakeups",
    title="Wake-ups",
    introduction="Work that one process creates and another runs. A signal wakes the worker; it polls once a second.",
    method="""\
- A sender without handlers and one worker, each in its own process, opened as users open them.
- From the receipt of the event to the first line of the handler; orders are sent one by one, with a pause in between.
- `killed`: from the kill -9 of a worker in the middle of an attempt to the start of that attempt in another worker.""",
    run=run,
    efforts=(Effort(orders=200, kills=10), Effort(orders=5, kills=1)),
    choices=tuple(STORES),
    workloads=(
        Workload(
            name="wakeups",
            title="wakeups: work of another process",
            label="store",
            columns=(
                median("orders", "orders", ",.0f"),
                median("start p50 ms", "start_p50_ms", ",.1f"),
                median("p99 ms", "start_p99_ms", ",.1f"),
                median("kills", "kills", ",.0f"),
                median("killed p50 ms", "killed_p50_ms", ",.1f"),
                median("max ms", "killed_max_ms", ",.1f"),
            ),
        ),
    ),
    goals=tuple(
        Goal(
            f"{title}: work of another process starts, p50",
            "<= 50 ms",
            value("wakeups", name, "start_p50_ms", "ms"),
        )
        for name, title in STORES.items()
    ),
)

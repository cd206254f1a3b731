"""The metrics suite: what an exporter adds to a send, and what a scrape costs, on each store with counters."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.durable.servers import Servers
from bench.measure import Measurement, PeerUnavailableError, file_system, report, run_module, stores_folder
from bench.results import Figure, Line
from bench.suite import Suite, Workload, median

SECONDS_MAX = 600
STORES = {"memory": "memory", "sqlite": "SQLite", "postgres": "PostgreSQL"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How many events a block has, how many blocks there are of each kind, and how many scrapes."""

    sends: int
    blocks: int
    scrapes: int
    rounds: int = 1


def run(measurement: Measurement[Effort]) -> None:
    """Measure the chosen stores."""
    chosen = measurement.chosen(STORES) or list(STORES)
    effort = measurement.effort
    with stores_folder() as folder, _servers(folder, chosen) as servers:
        measurement.facts.append(f"Files on {file_system(folder)}.")
        for name in chosen:
            report(f"bench: metrics, {STORES[name]} ...")
            with measurement.or_left_out(name):
                sizes = (effort.sends, effort.blocks, effort.scrapes)
                found = run_module(
                    "bench.metrics.workload", _url(name, folder, servers), *sizes, seconds_max=SECONDS_MAX
                )
                figure = Figure(count=effort.sends, samples={measure: [each] for measure, each in found.items()})
                measurement.add("metrics", name, figure, Line(name=STORES[name]))


@contextlib.contextmanager
def _servers(folder: Path, chosen: list[str]) -> Iterator[Servers]:
    servers = Servers(folder)
    try:
        servers.start({"postgres"} & set(chosen))
        yield servers
    finally:
        servers.stop()


def _url(name: str, folder: Path, servers: Servers) -> str:
    if name == "memory":
        return "memory:"
    if name == "sqlite":
        return f"sqlite:///{folder}/lamps.db"
    if name not in servers.addresses:
        raise PeerUnavailableError(servers.left_out.get(name, "no server"))
    return servers.addresses[name]


METRICS = Suite(
    name="metrics",
    title="Metrics",
    introduction="What counting for Prometheus adds to a send, and what a scrape costs.",
    method="""\
- One process, one caller, 100 entities. Blocks of sends without and with an exporter take turns.
- CPU time of the whole process for one send: the median of the blocks, and the median of the ratios of neighbours.
- A scrape asks the store and makes the text; it uses no cached one.""",
    run=run,
    efforts=(Effort(sends=5_000, blocks=15, scrapes=5), Effort(sends=50, blocks=1, scrapes=1)),
    choices=tuple(STORES),
    workloads=(
        Workload(
            name="metrics",
            title="metrics: sends without and with an exporter",
            label="store",
            columns=(
                median("off, CPU us/send", "off_us", ",.1f"),
                median("on, CPU us/send", "on_us", ",.1f"),
                median("added %", "added_percent", ",.1f"),
                median("scrape ms", "scrape_ms", ",.1f"),
            ),
        ),
    ),
    goals=(),
)

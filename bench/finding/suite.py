"""The finding suite: indexed queries among many entities, the feed, and projections, on each store that has them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.durable.servers import Servers
from bench.measure import Measurement, PeerUnavailableError, file_system, report, run_module, stores_folder
from bench.results import Figure, Line
from bench.suite import Suite, Workload, median

SECONDS_MAX = 3_600
STORES = {"sqlite": "SQLite", "files": "files", "postgres": "PostgreSQL"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How many entities are searched, how often, and how many entries the feed has."""

    entities: int
    queries: int
    entries: int
    rounds: int = 1


def run(measurement: Measurement[Effort]) -> None:
    """Measure the chosen stores."""
    chosen = measurement.chosen(STORES) or list(STORES)
    effort = measurement.effort
    with stores_folder() as folder, _servers(folder, chosen) as servers:
        measurement.facts.append(f"Files on {file_system(folder)}.")
        for name in chosen:
            report(f"bench: finding, {STORES[name]} ...")
            with measurement.or_left_out(name):
                url = _url(name, folder, servers)
                sizes = (effort.entities, effort.queries, effort.entries)
                found = run_module("bench.finding.workload", url, *sizes, seconds_max=SECONDS_MAX)
                count = effort.entities if "query_p50_ms" in found else effort.entries
                figure = Figure(count=count, samples={measure: [each] for measure, each in found.items()})
                measurement.add("finding", name, figure, Line(name=STORES[name]))


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


FINDING = Suite(
    name="finding",
    title="Finding and following",
    introduction="An indexed query among many entities, the feed read from its start, and a projection built from it.",
    method="""\
- The entities that are searched are copies of one that the store wrote, with other ids and customers, made by one
  statement of the database. Files have no index.
- A query is one call of the runtime: the orders of one customer, four each, chosen at random.
- The entries of the feed are written by the runtime before. A projection writes one row for each entity and updates it
  for each entry.""",
    run=run,
    efforts=(
        Effort(entities=1_000_000, queries=2_000, entries=20_000),
        Effort(entities=2_000, queries=20, entries=320),
    ),
    choices=tuple(STORES),
    workloads=(
        Workload(
            name="finding",
            title="finding: indexed queries, the feed, projections",
            label="store",
            columns=(
                median("entities", "entities", ",.0f"),
                median("query p50 ms", "query_p50_ms", ",.3f"),
                median("p99 ms", "query_p99_ms", ",.3f"),
                median("entries", "entries", ",.0f"),
                median("feed entries/s", "feed_per_s", ",.0f"),
                median("projection entries/s", "projection_per_s", ",.0f"),
            ),
        ),
    ),
    goals=(),
)

"""The evolve suite: what it costs to change charts under live entities."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bench.durable.servers import Servers
from bench.measure import Measurement, PeerUnavailableError, file_system, report, run_module, stores_folder
from bench.results import Figure, Line
from bench.suite import Goal, Suite, Workload, count, median, value

SECONDS_MAX = 600
STORES = {"sqlite": "SQLite", "files": "files", "postgres": "PostgreSQL"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How many old revisions a store has, how often each measure is taken, and how many entities are migrated."""

    revisions: int
    takes: int
    entities: int
    rounds: int = 1


def run(measurement: Measurement[Effort]) -> None:
    """Measure the chosen stores."""
    chosen = measurement.chosen(STORES) or list(STORES)
    with stores_folder() as folder:
        servers = Servers(folder)
        try:
            servers.start({"postgres"} & set(chosen))
            (folder / "moves").mkdir()
            measurement.facts.append(f"Files on {file_system(folder)}.")
            for name in chosen:
                report(f"bench: evolve, {STORES[name]} ...")
                with measurement.or_left_out(name):
                    _measure(measurement, name, _url(name, folder, servers))
                with measurement.or_left_out(name):
                    _measure_moves(measurement, name, _url(name, folder / "moves", servers))
        finally:
            servers.stop()


def _measure(measurement: Measurement[Effort], name: str, url: str) -> None:
    effort = measurement.effort
    found = run_module("bench.evolve.revisions", url, effort.revisions, effort.takes, seconds_max=SECONDS_MAX)
    figure = Figure(count=effort.takes, samples={measure: [each] for measure, each in found.items()})
    measurement.add("revisions", name, figure, Line(name=STORES[name]))


def _measure_moves(measurement: Measurement[Effort], name: str, url: str) -> None:
    entities = measurement.effort.entities
    found = run_module("bench.evolve.moves", url, entities, seconds_max=SECONDS_MAX)
    figure = Figure(count=entities, samples={measure: [each] for measure, each in found.items()})
    measurement.add("moves", name, figure, Line(name=STORES[name]))


def _url(name: str, folder: Path, servers: Servers) -> str:
    if name == "sqlite":
        return f"sqlite:///{folder}/charts.db"
    if name == "files":
        return f"file://{folder}/charts"
    if name not in servers.addresses:
        raise PeerUnavailableError(servers.left_out.get(name, "no server"))
    return servers.addresses[name]


EVOLVE = Suite(
    name="evolve",
    title="Changed charts",
    introduction="What old revisions cost a process that has only the newest chart.",
    method="""\
- Each revision was written by a separate program; one entity is on each. The chart is a saga of three steps.
- `open`: a runtime is opened, and creates one entity; with one revision in the store, and with all.
- `first touch`: the first event to an entity of an old revision, less an event to one of the newest. The definition is
  read and compiled.
- `moves`: a migration by a mapping without a limit of its rate, next to plain sends of one process to the same
  entities, 64 at the same time.""",
    run=run,
    efforts=(Effort(revisions=50, takes=25, entities=20_000), Effort(revisions=3, takes=2, entities=50)),
    choices=tuple(STORES),
    workloads=(
        Workload(
            name="revisions",
            title="revisions: a store with many definitions",
            label="store",
            columns=(
                median("revisions", "revisions", ",.0f"),
                median("open, one ms", "open_one_ms", ",.1f"),
                median("open, all ms", "open_many_ms", ",.1f"),
                median("more ms", "open_more_ms", ",.1f"),
                median("first touch ms", "touch_ms", ",.1f"),
                median("processor ms", "touch_cpu_ms", ",.1f"),
            ),
        ),
        Workload(
            name="moves",
            title="moves: a migration of all entities",
            label="store",
            columns=(
                count("entities"),
                median("sends per second", "sends_per_second", ",.0f"),
                median("moves per second", "moves_per_second", ",.0f"),
                median("send, processor us", "send_cpu_us", ",.0f"),
                median("move, processor us", "move_cpu_us", ",.0f"),
            ),
        ),
    ),
    goals=tuple(
        goal
        for name, title in STORES.items()
        for goal in (
            Goal(f"{title}: open with 50 revisions, more", "<= 50 ms", value("revisions", name, "open_more_ms", "ms")),
            Goal(f"{title}: first touch of an old revision", "<= 30 ms", value("revisions", name, "touch_ms", "ms")),
        )
    ),
)

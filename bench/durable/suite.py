"""The durable suite: steps on stores, next to the limits of the machine and to other engines; recovery; scale.

Rule 1: goals are ratios between engines of one run, round by round, wherever possible.
Rule 2: Temporal and Restate are shown and not judged, because a networked server is not comparable.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench.durable.servers import Servers, started
from bench.measure import Measurement, PeerUnavailableError, file_system, report, run_module, run_rounds, stores_folder
from bench.results import Figure, Line, Run, paired
from bench.suite import Column, Found, Goal, Suite, Workload, count, median, ratio, spread, value

WORKLOADS = ("seq1", "fleet", "demo", "effects", "refused")
LARGE = ("recovery-file", "recovery-sqlite", "scale", "shadow")
LARGE_SECONDS_MAX = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """An engine: its module and variant, the server that it needs, and the size of its rounds."""

    module: str
    way: str
    server: str | None = None
    events: int = 1_000
    orders: int = 1_000
    whole: int = 500
    """Orders of the workloads `demo` and `effects`."""
    refused: int = 5_000
    """Refused events."""


COMMANDS: dict[str, Command] = {
    "raw-file": Command(module="raw", way="file"),
    "interlock-file": Command(module="interlock_stores", way="file"),
    "interlock-file-inline": Command(module="interlock_stores", way="file-inline"),
    "raw-sqlite": Command(module="raw", way="sqlite"),
    "raw-sqlite-group": Command(module="group_commit", way="sqlite"),
    "interlock-sqlite": Command(module="interlock_stores", way="sqlite"),
    "interlock-sqlite-each": Command(module="interlock_stores", way="sqlite-each"),
    "eventsourcing-sqlite": Command(module="eventsourcing_orders", way="sqlite", events=200, orders=200),
    "dbos-sqlite": Command(module="dbos_orders", way="sqlite", events=60, orders=64, whole=64),
    "raw-postgres": Command(module="raw", way="postgres", server="postgres"),
    "raw-postgres-group": Command(module="group_commit", way="postgres", server="postgres"),
    "interlock-postgres": Command(module="interlock_stores", way="postgres", server="postgres"),
    "interlock-postgres-each": Command(module="interlock_stores", way="postgres-each", server="postgres"),
    "raw-postgres-step": Command(module="raw", way="postgres-step", server="postgres"),
    "eventsourcing-postgres": Command(
        module="eventsourcing_orders", way="postgres", server="postgres", events=100, orders=100
    ),
    "dbos-postgres": Command(module="dbos_orders", way="postgres", server="postgres", events=60, orders=64, whole=64),
    "restate": Command(module="restate_orders", way="object", server="restate", events=100, orders=100, whole=64),
    "temporal": Command(module="temporal_orders", way="update", server="temporal", events=40, orders=48, whole=48),
    "temporal-by-hand": Command(module="temporal_orders", way="by-hand", server="temporal", events=40, orders=48),
    "interlock-temporal": Command(module="interlock_temporal", way="temporal", server="temporal", events=40, orders=48),
}
"""Every engine, in the order of the tables. Slow engines do less in a round; the number is shown."""

MORE_ROUNDS = {"seq1": 3}
"""A single caller waits for every flush and notices each slow moment, so this workload has more rounds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How much work a run does for each figure."""

    rounds: int
    share: float
    """Of the events and orders of a whole run."""
    entries: int
    """Of the journal whose recovery is measured."""
    entities: tuple[int, ...]
    """Sizes of the stores in which steps are measured."""
    steps: int
    """Steps of one sample at each of those sizes."""
    shadowed: int
    """Entries that a new chart is compared with."""


FULL = Effort(
    rounds=5, share=1.0, entries=100_000, entities=(1_000, 10_000, 100_000, 1_000_000), steps=2_000, shadowed=1_000_000
)
QUICK = Effort(rounds=1, share=0.01, entries=300, entities=(100, 300), steps=64, shadowed=600)


def run(measurement: Measurement[Effort]) -> None:
    """Measure the chosen engines and workloads; all of them without names."""
    workloads, engines, large = (measurement.chosen(each) for each in (WORKLOADS, COMMANDS, LARGE))
    if not measurement.names:
        large = list(LARGE)
    with stores_folder() as folder:
        measurement.facts.append(f"Files on {file_system(folder)}.")
        if workloads or engines or not measurement.names:
            _run_engines(measurement, folder, workloads or list(WORKLOADS), engines or list(COMMANDS))
        for each in large:
            report(f"bench: durable {each} ...")
            with measurement.or_left_out(each):
                _run_large(measurement, folder, each)


def _run_engines(measurement: Measurement[Effort], folder: Path, workloads: list[str], engines: list[str]) -> None:
    effort = measurement.effort
    wanted = {server for key in engines if (server := COMMANDS[key].server) is not None}
    with started(folder, wanted) as servers:
        measurement.facts += [f"Server: {version}." for version in servers.versions.values()]
        commands = {key: partial(command, COMMANDS[key], servers, folder) for key in engines}
        with measurement.processes(commands) as running:
            for workload in workloads:
                report(f"bench: durable {workload} ...")
                asks = {
                    key: partial(each.ask, workload) for key, each in running.items() if workload in each.line.workloads
                }
                rounds = effort.rounds * MORE_ROUNDS.get(workload, 1)
                counts = {key: _count(COMMANDS[key], workload, effort) for key in asks}
                measurement.figures[workload] = run_rounds(asks, counts, rounds)


def command(engine: Command, servers: Servers, folder: Path) -> list[str]:
    """Return the command of an engine. Raises PeerUnavailableError if its server is missing."""
    if engine.server is not None and engine.server not in servers.addresses:
        raise PeerUnavailableError(servers.left_out.get(engine.server, f"no server of {engine.server}"))
    worker = [sys.executable, "-W", "ignore", "-m", "bench.durable.worker"]
    module = f"bench.durable.engines.{engine.module}"
    return [*worker, module, engine.way, str(folder), servers.arguments(engine.server)]


def _count(engine: Command, workload: str, effort: Effort) -> int:
    sizes = {"seq1": engine.events, "fleet": engine.orders, "refused": engine.refused}
    return max(5, int(effort.share * sizes.get(workload, engine.whole)))


def _run_large(measurement: Measurement[Effort], folder: Path, workload: str) -> None:
    """Measure recovery or scale in its own process."""
    effort = measurement.effort
    sizes = {"scale": effort.entities, "shadow": (effort.shadowed,)}.get(workload, (effort.entries,))
    numbers = (effort.steps, effort.rounds, *sizes)
    found = run_module("bench.durable.large", workload, folder, *numbers, seconds_max=LARGE_SECONDS_MAX)
    for size, samples in zip(sizes, found, strict=True):
        figure = Figure(count=size, samples=samples)
        if workload == "scale":
            measurement.add("scale", f"scale-{size}", figure, Line(name=f"{size:,}"))
        elif workload == "shadow":
            measurement.add("shadow", workload, figure, Line(name="SQLite"))
        else:
            measurement.add("recovery", workload, figure, Line(name=workload.removeprefix("recovery-")))


# Tables


def _columns(counted: str, unit: str = "step") -> tuple[Column, ...]:
    def cpu(run: Run, workload: str, figure: Figure) -> str:
        server = figure.median("server_cpu_us")
        return f"{figure.median('cpu_us'):,.0f}" + (f" + {server:,.0f}" if server else "")

    return (
        median(f"{unit}s/s", "rate", ",.0f"),
        spread("rate", ",.0f"),
        median("p50 ms", "p50_ms", ".2f"),
        median("p99 ms", "p99_ms", ".2f"),
        Column(f"CPU us per {unit}, own + server", cpu),
        count(f"{counted} in a round"),
    )


# Goals

ENTRIES_MIN = 100_000
ENTITIES_MIN = 1_000_000


def _rates(workload: str, key: str, to: str) -> Callable[[Run], Found]:
    return ratio(workload, key, to, "rate", form=",.0f", unit="steps/s")


def _recovery(store: str, measure: str) -> Callable[[Run], Found]:
    find = value("recovery", f"recovery-{store}", measure, "ms")

    def large_enough(run: Run) -> Found:
        figure = run.figure("recovery", f"recovery-{store}", measure)
        return Found(None) if figure is None or figure.count < ENTRIES_MIN else find(run)

    return large_enough


def _flat(run: Run) -> Found:
    """Compare the largest store with the smallest, round by round."""
    sizes = list(run.figures.get("scale", {}).values())
    if len(sizes) < 2 or sizes[-1].count < ENTITIES_MIN:
        return Found(None, run.left_out.get("scale", ""))
    few, many = sizes[0].samples, sizes[-1].samples
    recent, anywhere = (paired(many[each], few[each]) for each in ("recent_us", "anywhere_us"))
    return Found(recent, f"{recent:.2f}x (entities picked anywhere {anywhere:.2f}x)")


GOALS = (
    Goal(
        "Temporal, 64 callers: CPU of a step, with the server, to a workflow by hand",
        "<= 1.1x",
        ratio("fleet", "interlock-temporal", "temporal-by-hand", "all_cpu_us", form=",.0f", unit="us"),
    ),
    Goal("files, one caller, to raw write + fdatasync", ">= 0.85x", _rates("seq1", "interlock-file", "raw-file")),
    Goal(
        "SQLite, one caller, to a raw insert per transaction",
        ">= 0.75x",
        _rates("seq1", "interlock-sqlite", "raw-sqlite"),
    ),
    Goal(
        "SQLite, 64 callers, to a raw group commit of the same rows",
        ">= 0.6x",
        _rates("fleet", "interlock-sqlite", "raw-sqlite-group"),
    ),
    Goal("SQLite, 64 callers: CPU of a step", "<= 50 us", value("fleet", "interlock-sqlite", "cpu_us", "us")),
    Goal(
        "SQLite, 64 callers, to a commit per step",
        ">= 4x",
        _rates("fleet", "interlock-sqlite", "interlock-sqlite-each"),
    ),
    Goal("SQLite, 64 callers, to DBOS on SQLite", ">= 100x", _rates("fleet", "interlock-sqlite", "dbos-sqlite")),
    Goal(
        "SQLite, effects of one worker", ">= 5,000 effects/s", value("effects", "interlock-sqlite", "rate", "effects/s")
    ),
    Goal(
        "SQLite, effects of one worker, to steps of DBOS on SQLite",
        ">= 50x",
        _rates("effects", "interlock-sqlite", "dbos-sqlite"),
    ),
    Goal(
        "PostgreSQL, 64 callers, to a statement per step",
        ">= 2.5x",
        _rates("fleet", "interlock-postgres", "interlock-postgres-each"),
    ),
    Goal(
        "PostgreSQL, 64 callers, to a raw group commit of the same rows",
        ">= 0.6x",
        _rates("fleet", "interlock-postgres", "raw-postgres-group"),
    ),
    *[
        Goal(f"{store}: {ENTRIES_MIN:,} entries recovered from the {source}", bar, _recovery(store, f"{source}_ms"))
        for store in ("file", "sqlite")
        for source, bar in (("journal", "< 2,000 ms"), ("snapshot", "< 50 ms"))
    ],
    Goal(
        f"SQLite: CPU of a step of the newest entities, {ENTITIES_MIN:,} in the file to 1,000",
        "<= 1.25x",
        _flat,
    ),
)

METHOD = """\
- In each round every engine opens an empty store. Ratios are taken round by round.
- These are wall times, because a flush is not CPU time. A disk that flushes more slowly favours group commit.
- "raw" lines write one small record per durable write and keep states in memory: no chart can be faster.
- A single step on a fast disk is flushed without a thread, on files and on SQLite; concurrent steps are written by a
  thread. "in the caller's thread" is the same file store without an event loop.
- "a commit per step" is Interlock on the same SQLite tables, with each step committed in the caller's thread.
  "a statement per step" is its PostgreSQL store with `?commit=one`, on sixteen connections.
- "group commit, the same rows" is the limit of the fleet: the rows that Interlock writes, recorded from one order, for
  all waiting callers in one transaction. No chart, no encoding, no hash, no check of versions and keys.
- "raw: PostgreSQL step" is one statement that swaps a row and inserts entry, key and effects: no chart, no encoding, no
  hash chain, no lists.
- Engines that run in the caller's thread ("raw", "a commit per step", eventsourcing on SQLite) have latencies without
  a queue.
- DBOS runs a workflow per event and keeps the states of orders in memory, to its advantage; its SQLite file is in the
  journal mode that it chooses. eventsourcing folds the whole journal of an order for each event: in seq1 a longer one
  each time.
- Temporal (its development server, on a SQLite file) and Restate are networked servers: they are not comparable, and no
  goal depends on them. The CPU time of their servers is shown next to the caller's, for Restate with its service.
- demo runs the order of the demo (`make demo`) until it is on its way: created, placed, charged, reserved, booked.
  The worker claims each effect, runs a handler that does nothing, and writes the result, in the same process. The
  latency is that of a whole order, and the CPU time that of a step with its part of this work.
- effects counts claimed, run and recorded effects: invokes of Interlock, steps of a DBOS workflow, activities of a
  Temporal workflow, runs of a Restate handler. The functions do nothing. The latency is that of ten effects.
- recovery opens the store again for each sample. From the journal: every record is read, verified by its hash, replayed
  through the chart, and compared with the entry.
- shadow fills a store with one recorded journal under many names, and replays all of it: each record is read, verified
  by its hash, stepped by its own chart and by the new one, and compared.
- scale sends five events to each of 400 entities with 64 callers, in stores of several sizes. "Newest" entities are
  those created last, as in a shop where old orders do not change; "anywhere" are drawn from all of them, so that nearly
  each one is on another page of the file."""

DURABLE = Suite(
    name="durable",
    title="Durable steps",
    introduction="""\
Each step is durable, by the engine's own definition, before its caller gets the answer.
Interlock runs as users run it: `interlock.open`, the whole runtime, a key for every event, effects in the entries.""",
    method=METHOD,
    run=run,
    efforts=(FULL, QUICK),
    choices=(*WORKLOADS, *LARGE, *COMMANDS),
    workloads=(
        Workload(
            name="seq1", title="seq1: one order, one caller, one event after the other", columns=_columns("events")
        ),
        Workload(name="fleet", title="fleet: orders of six steps each, 64 callers", columns=_columns("orders")),
        Workload(
            name="demo",
            title="demo: orders of the demo's chart, five steps and four effects each, 64 callers and a worker",
            columns=_columns("orders"),
        ),
        Workload(
            name="effects",
            title="effects: ten effects of an order one after the other, 64 callers and a worker",
            columns=_columns("orders", "effect"),
        ),
        Workload(
            name="refused",
            title="refused: events of senders without the role, each with a durable row of the audit, 64 callers",
            columns=_columns("events", "row"),
        ),
        Workload(
            name="recovery",
            title="recovery: one entity with a long journal",
            label="store",
            columns=(
                count("entries"),
                median("from the journal, ms", "journal_ms", ",.0f"),
                median("from the snapshot, ms", "snapshot_ms", ",.1f"),
            ),
        ),
        Workload(
            name="shadow",
            title="shadow: recorded journals of six entries, compared with a new chart",
            label="store",
            columns=(
                count("entries"),
                median("a refactoring, entries/s", "same_rate", ",.0f"),
                median("CPU us per entry", "same_cpu_us", ",.0f"),
                median("a difference in each journal, entries/s", "different_rate", ",.0f"),
                median("CPU us per entry", "different_cpu_us", ",.0f"),
            ),
        ),
        Workload(
            name="scale",
            title="scale: SQLite, a step in a store with many entities",
            label="entities",
            columns=(
                median("file, MB", "megabytes", ",.0f"),
                median("newest entities, CPU us per step", "recent_us", ",.0f"),
                median("entities anywhere, CPU us per step", "anywhere_us", ",.0f"),
            ),
        ),
    ),
    goals=GOALS,
)

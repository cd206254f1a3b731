"""The timers suite: files of several sizes, each filled with pending timers and measured in its own process.

Lateness is judged with a million pending timers; the smaller sizes are shown for comparison.
"""

from __future__ import annotations

from dataclasses import dataclass

from bench.measure import Measurement, file_system, report, run_module, stores_folder
from bench.results import Figure, Line
from bench.suite import Goal, Suite, Workload, median, value

SECONDS_MAX = 900
LARGEST = "1000000"


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """One file: entities, pending timers of each, and how many timers become due at which rate."""

    entities: int
    timers_each: int
    due: int
    per_second: int

    @property
    def name(self) -> str:
        """Return the number of timers, as `--only timers,...` accepts it."""
        return str(self.entities * self.timers_each)


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """The sizes of a run; each is measured once, with many timers."""

    sizes: tuple[Size, ...]
    rounds: int = 1


FULL = Effort(
    sizes=(
        Size(entities=1_000, timers_each=10, due=1_000, per_second=200),
        Size(entities=10_000, timers_each=10, due=6_000, per_second=200),
        Size(entities=100_000, timers_each=10, due=6_000, per_second=200),
    )
)
QUICK = Effort(sizes=(Size(entities=200, timers_each=10, due=100, per_second=200),))


def run(measurement: Measurement[Effort]) -> None:
    """Measure the chosen sizes."""
    sizes = {each.name: each for each in measurement.effort.sizes}
    with stores_folder() as folder:
        measurement.facts.append(f"Files on {file_system(folder)}.")
        for name in measurement.chosen(sizes) or list(sizes):
            report(f"bench: timers, {int(name):,} pending ...")
            with measurement.or_left_out(name):
                size = sizes[name]
                numbers = (size.entities, size.timers_each, size.due, size.per_second)
                found = run_module("bench.timers.workload", folder, *numbers, seconds_max=SECONDS_MAX)
                figure = Figure(count=int(name), samples={measure: [value] for measure, value in found.items()})
                measurement.add("timers", name, figure, Line(name=f"{int(name):,}"))


PENDING = f"{int(LARGEST):,} timers pending"

TIMERS = Suite(
    name="timers",
    title="Timers",
    introduction="Pending timers are rows of the store: no process keeps them in memory; an index finds the due ones.",
    method="""\
- One process with one worker, as `interlock.open` creates it, on a file in which every entity has ten pending timers.
- The timers that become due are spread evenly over the time, and over the entities in another order.
- Lateness is from the due time until the entry of the firing is durable.
- Memory is the resident memory of the process after the last timer has fired.""",
    run=run,
    efforts=(FULL, QUICK),
    choices=tuple(each.name for each in (*FULL.sizes, *QUICK.sizes)),
    workloads=(
        Workload(
            name="timers",
            title="timers: firings while many timers are pending, SQLite",
            label="pending timers",
            columns=(
                median("entities", "entities", ",.0f"),
                median("due", "due", ",.0f"),
                median("per second", "per_second", ",.0f"),
                median("late p50 ms", "late_p50_ms", ",.0f"),
                median("p99 ms", "late_p99_ms", ",.0f"),
                median("max ms", "late_max_ms", ",.0f"),
                median("CPU us per firing", "cpu_us", ",.0f"),
                median("memory, MB", "resident_after_mb", ",.0f"),
                median("file, MB", "megabytes", ",.0f"),
            ),
        ),
    ),
    goals=(
        Goal(f"{PENDING}: lateness of a firing, p50", "<= 50 ms", value("timers", LARGEST, "late_p50_ms", "ms")),
        # Timers are set in minutes, and Temporal's development server was 30 ms late with a single timer.
        Goal(f"{PENDING}: lateness of a firing, p99", "<= 500 ms", value("timers", LARGEST, "late_p99_ms", "ms")),
        Goal(
            f"{PENDING}: memory of the process that fires",
            "<= 256 MB",
            value("timers", LARGEST, "resident_after_mb", "MB"),
        ),
    ),
)

"""The traces suite: what traces and the log of transitions cost a send, each next to a runtime without them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from bench.measure import Measurement, report, run_module, run_rounds
from bench.results import Line
from bench.suite import Goal, Suite, Workload, median, ratio, relative, spread
from bench.traces.modes import MODES

SECONDS_MAX = 300
NAMES = {
    "off": "off",
    "passed": "trace of the sender, no provider",
    "log": "log of transitions as JSON",
    "unsampled": "spans, not sampled",
    "spans": "spans, sampled, no exporter",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How many events are sent in a round, and how many rounds there are."""

    sends: int
    rounds: int


def run(measurement: Measurement[Effort]) -> None:
    """Measure the chosen modes, in turn in each round."""
    chosen = measurement.chosen(MODES) or list(MODES)
    effort = measurement.effort
    report(f"bench: traces, {', '.join(chosen)} ...")
    asks = {each: partial(_ask, each) for each in chosen}
    figures = run_rounds(asks, dict.fromkeys(chosen, effort.sends), effort.rounds)
    for name, figure in figures.items():
        measurement.add("traces", name, figure, Line(name=NAMES[name]))


def _ask(mode: str, sends: int) -> Any:
    return run_module("bench.traces.modes", mode, sends, seconds_max=SECONDS_MAX)


TRACES = Suite(
    name="traces",
    title="Traces and logs",
    introduction="One send on the store in memory, so that the cost is not hidden by a disk.",
    method="""\
- Each mode is measured in its own process, in turn in each round: an event of an entity with two states, awaited.
- Spans are made by the SDK of OpenTelemetry and go to no exporter; lines of the log are not kept.""",
    run=run,
    efforts=(Effort(sends=20_000, rounds=5), Effort(sends=200, rounds=1)),
    choices=tuple(MODES),
    workloads=(
        Workload(
            name="traces",
            title="traces: one send",
            label="mode",
            columns=(
                median("µs per send", "us", ",.1f"),
                spread("us", ",.1f"),
                relative("to off", "us", "off", lambda found: f"{found:.2f}x"),
            ),
        ),
    ),
    goals=(
        Goal(
            "Passing a trace on, without a provider",
            "<= 1.2x",
            ratio("traces", "passed", "off", "us", form=",.1f", unit="µs"),
        ),
    ),
)

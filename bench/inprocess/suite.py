"""The in-process suite: steps in memory, by Interlock, by hand-written code and by other libraries.

Rule 1: times are CPU time of the process that did the work.
Rule 2: W5 gets a fresh process for every round; otherwise resident memory would mean nothing.
Rule 3: the realistic workloads (W7 to W10) have goals for the public step, called with the name of the event.
Rule 4: the simple workloads have goals for the inner step (W6: the fold), and show the public step next to it.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from bench.inprocess.workloads import fitting
from bench.measure import ROOT, Measurement, PeerUnavailableError, Process, ask_fresh, environment, report, run_rounds
from bench.report import times
from bench.results import Figure, Line, Run
from bench.suite import Column, Found, Goal, Overview, Suite, Workload, count, median, relative, spread

FOLD_COUNT = 1_000_000
CREATE_COUNT = 100_000
CREATE_BYTES_MAX = 1_500 * 2**20
"""Memory of all entities of one round: a library with 60 kB per entity would otherwise need 6 GB."""
PROBE_COUNT = 500
PROBE_FACTOR = 4
IMPORT_ROUNDS_MIN = 7
BASE = "hand-written"

COMMANDS: dict[str, tuple[str, str]] = {
    "hand-written": ("hand_written", "mutable"),
    "hand-written-pure": ("hand_written", "pure"),
    "interlock-inner": ("interlock_charts", "inner"),
    "interlock-step": ("interlock_charts", "step"),
    "interlock-bare": ("interlock_charts", "bare"),
    "interlock-fold": ("interlock_charts", "fold"),
    "interlock-functions": ("interlock_charts", "functions"),
    "interlock-general": ("interlock_charts", "general"),
    "interlock-written": ("interlock_charts", "written"),
    "automat": ("automat_builder", "builder"),
    "transitions": ("transitions_models", "models"),
    "xstate-statemachine": ("xsm_interpreter", "sync"),
    "sismic": ("sismic_interpreter", "interpreter"),
    "python-statemachine": ("statemachine_charts", "charts"),
    "xstate-actor": ("xstate.mjs", "actor"),
    "xstate-pure": ("xstate.mjs", "pure"),
    "scion": ("scion.mjs", "interpreter"),
}
"""Every implementation, in the order of the tables: its module or script, and the variant."""

IMPORTS = {
    "import interlock": "import interlock",
    "first chart loaded": "import interlock; interlock.loads('{interlock: 1, kind: a, states: {b: {}}}')",
    "msgspec alone": "import msgspec",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How much work a run does for each figure."""

    rounds: int
    seconds: float
    """Target time of one round of a workload with a free number of events."""
    seconds_max: float
    """A round of W5 or W6 that would take longer does fewer entities or events; the number is shown."""
    warm_seconds: float
    warm_node_seconds: float
    """The compiler of V8 needs about a second."""
    fold_count: int = FOLD_COUNT
    create_count: int = CREATE_COUNT


FULL = Effort(rounds=5, seconds=0.3, seconds_max=3.0, warm_seconds=0.2, warm_node_seconds=1.0)
QUICK = Effort(
    rounds=2,
    seconds=0.01,
    seconds_max=0.05,
    warm_seconds=0.002,
    warm_node_seconds=0.05,
    fold_count=20_000,
    create_count=2_000,
)


def run(measurement: Measurement[Effort]) -> None:
    """Measure the chosen workloads and implementations; hand-written code is always included."""
    effort = measurement.effort
    workloads = measurement.chosen(WORKLOADS) or list(WORKLOADS)
    keys = measurement.chosen(COMMANDS) or list(COMMANDS)
    with measurement.processes({key: partial(command, key) for key in dict.fromkeys([BASE, *keys])}) as running:
        for workload in workloads:
            report(f"bench: {workload} ...")
            able = {key: process for key, process in running.items() if workload in process.line.workloads}
            if workload == "W5":
                counts = {key: _create_count(key, effort) for key in able}
                asks = {key: partial(ask_fresh, command(key), workload) for key in able}
            else:
                counts = {key: _warm_up(workload, key, process, effort) for key, process in able.items()}
                asks = {key: partial(process.ask, workload) for key, process in able.items()}
            measurement.figures[workload] = run_rounds(asks, counts, effort.rounds, warm_up=False)
    if "W6" in workloads and "interlock-fold" in running:
        growth = Figure(count=effort.fold_count)
        growth.add(ask_fresh(command("interlock-fold"), "memory", effort.fold_count))
        measurement.add("memory", "interlock-fold", growth)
    if "interlock-step" in running and workloads == list(WORKLOADS):
        _measure_imports(measurement)


def command(key: str) -> list[str]:
    """Return the command of an implementation. Raises PeerUnavailableError without Node.js."""
    module, way = COMMANDS[key]
    if not module.endswith(".mjs"):
        worker = [sys.executable, "-W", "ignore", "-m", "bench.inprocess.worker"]
        return [*worker, f"bench.inprocess.peers.{module}", way]
    node = shutil.which("node")
    if node is None:
        raise PeerUnavailableError("Node.js is not installed")
    return [node, "--expose-gc", str(ROOT / "bench" / "inprocess" / "peers" / module), way]


def _warm_up(workload: str, key: str, process: Process, effort: Effort) -> int:
    """Warm up, and return the number of events that fits the time. A failure is found again in the first round."""
    enough = 1e9 * (effort.warm_node_seconds if COMMANDS[key][0].endswith(".mjs") else effort.warm_seconds)
    count = fitting(workload, 60)
    while True:
        answer = process.ask(workload, count)
        if "error" in answer:
            return count
        if answer["ns"] * count >= enough or count >= 3 * FOLD_COUNT:
            break
        count = fitting(workload, count * 5)
    each = max(answer["ns"], 1)
    if workload == "W6":
        return fitting(workload, min(effort.fold_count, int(1e9 * effort.seconds_max / each)))
    return fitting(workload, int(1e9 * effort.seconds / each))


def _create_count(key: str, effort: Effort) -> int:
    """Return how many entities fit; found by trying more and more, because the cost of one may grow with the number."""
    count = PROBE_COUNT
    while True:
        answer = ask_fresh(command(key), "W5", count)
        if "error" in answer:
            return count
        limit = min(effort.create_count, int(CREATE_BYTES_MAX / max(answer["bytes"], 1)))
        room = 1e9 * effort.seconds_max / max(answer["ns"] * count, 1)  # times the work of this answer
        if count * PROBE_FACTOR >= limit or room < PROBE_FACTOR**2:
            return max(PROBE_COUNT, min(limit, int(count * room**0.5)))
        count *= PROBE_FACTOR


def _measure_imports(measurement: Measurement[Effort]) -> None:
    """Measure the CPU time of each import beyond that of the bare interpreter, in fresh processes, in rounds."""
    report("bench: imports ...")
    for code in ("pass", *IMPORTS.values()):
        _cpu_ms(code)  # compiles modules that were never imported, which is not part of the cost of an import
    figures = {name: Figure(count=1) for name in IMPORTS}
    for _ in range(max(measurement.effort.rounds, IMPORT_ROUNDS_MIN)):
        bare = _cpu_ms("pass")
        for name, code in IMPORTS.items():
            figures[name].add({"ms": _cpu_ms(code) - bare})
    for name, figure in figures.items():
        measurement.add("imports", name, figure, Line(name=name))


def _cpu_ms(code: str) -> float:
    process = subprocess.Popen([sys.executable, "-c", code], env=environment(), cwd=ROOT)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)  # or Popen would wait for it again
    if process.returncode != 0:
        raise RuntimeError(f"python -c {code!r} ended with {process.returncode}")
    return 1e3 * (usage.ru_utime + usage.ru_stime)


# Tables

TITLES = {
    "W7": "W7 timers: each step cancels one timer, sets one, and assigns once",
    "W8": "W8 invoke: a state that invokes a handler, and its result",
    "W9": "W9 saga: three steps and one compensation",
    "W10": "W10 effects: each entry calls a handler, sends to another entity and publishes a message",
    "W11": "W11 create: create an order of the demo, with its timer",
    "W12": "W12 replay: fold the events of whole orders of the demo",
    "W1": "W1 toggle: two states, no guard, no action",
    "W2": "W2 order: ten states, a guard and an action on every transition",
    "W3": "W3 nested: three levels, an entry and an exit action on every state",
    "W4": "W4 regions: one event moves four parallel regions",
    "W5": "W5 create: create and start an entity of the chart of W2",
    "W6": "W6 replay: fold the events of W2 over one entity",
}
WORKLOADS = tuple(TITLES)
REALISTIC = ("W7", "W8", "W9", "W10")
SIMPLE = ("W1", "W2", "W3", "W4", "W6")
OURS = "interlock-bare"


def _columns(what: str) -> tuple[Column, ...]:
    return (
        median(f"ns per {what}", "ns", ",.0f"),
        spread("ns", ",.0f"),
        relative("to hand-written", "ns", BASE, times),
        relative("to Interlock by event name", "ns", OURS, times),
        count(),
        median("bytes per entity", "bytes", ",.0f"),
    )


# Goals

INNER = {each: "interlock-fold" if each == "W6" else "interlock-inner" for each in SIMPLE}
"""The line that is judged, by workload."""
HAND_RATIO_MAX = {"W1": 2.0, "W2": 2.0, "W3": 2.5, "W4": 2.0, "W6": 2.0}
PYTHON_PEERS = ("transitions", "xstate-statemachine", "sismic", "python-statemachine")
"""The Python libraries with hierarchy."""

Find = Callable[[Run], Found]


def _ns(run: Run, workload: str, *keys: str) -> list[float] | None:
    """Return the medians of these lines, or None if one is missing."""
    found = [run.median(workload, key, "ns") for key in keys]
    return None if None in found else [each for each in found if each is not None]


def _inner_to_hand(workload: str) -> Find:
    def find(run: Run) -> Found:
        found = _ns(run, workload, BASE, INNER[workload])
        if found is None:
            return Found(None, run.missing(workload, BASE, INNER[workload]))
        hand, ours = found
        public = run.median(workload, "interlock-step", "ns")
        also = "" if public is None else f" (public step {public / hand:.2f}x)"
        return Found(ours / hand, f"{ours / hand:.2f}x{also}")

    return find


def _public_overhead(workload: str) -> Find:
    """Find the difference round by round: one line is asked right after the other."""

    def find(run: Run) -> Found:
        inner, public = (run.figure(workload, key, "ns") for key in ("interlock-inner", "interlock-step"))
        if inner is None or public is None:
            return Found(None, run.missing(workload, "interlock-inner", "interlock-step"))
        pairs = zip(inner.samples["ns"], public.samples["ns"], strict=True)
        more = statistics.median(after - before for before, after in pairs)
        return Found(more, f"{more:.0f} ns")

    return find


def _faster_than(key: str) -> Find:
    """Find the ratio in the workload in which Interlock is least ahead."""

    def find(run: Run) -> Found:
        ratios, public = [], []
        for workload, inner in INNER.items():
            found = _ns(run, workload, key, inner, "interlock-step")
            if found is None:
                return Found(None, run.missing(workload, key))
            theirs, ours, step = found
            ratios.append((theirs / ours, workload))
            public.append(theirs / step)
        worst, where = min(ratios)
        return Found(worst, f"{worst:.1f}x on {where} (public step {min(public):.1f}x)")

    return find


def _bare_to_hand(workload: str) -> Find:
    def find(run: Run) -> Found:
        found = _ns(run, workload, BASE, OURS)
        if found is None:
            return Found(None, run.missing(workload, BASE, OURS))
        hand, ours = found
        by_event = run.median(workload, "interlock-step", "ns")
        also = "" if by_event is None else f" (by Event {by_event / hand:.2f}x)"
        return Found(ours / hand, f"{ours / hand:.2f}x{also}")

    return find


def _bare_us(workload: str) -> Find:
    def find(run: Run) -> Found:
        ns = run.median(workload, OURS, "ns")
        return Found(None, run.missing(workload, OURS)) if ns is None else Found(ns / 1e3, f"{ns / 1e3:.2f} us")

    return find


def _bare_faster_than(key: str) -> Find:
    """Find the ratio in the realistic workload in which Interlock is least ahead."""

    def find(run: Run) -> Found:
        ratios = []
        for workload in REALISTIC:
            found = _ns(run, workload, key, OURS)
            if found is None:
                return Found(None, run.missing(workload, key, OURS))
            ratios.append((found[0] / found[1], workload))
        worst, where = min(ratios)
        return Found(worst, f"{worst:.1f}x on {where} (best {max(ratios)[0]:.1f}x)")

    return find


def _create_us(run: Run) -> Found:
    ns = run.median("W5", "interlock-step", "ns")
    return Found(None) if ns is None else Found(ns / 1e3, f"{ns / 1e3:.2f} us")


def _create_bytes(run: Run) -> Found:
    each, written = (run.median("W5", key, "bytes") for key in ("interlock-step", "interlock-written"))
    if each is None:
        return Found(None)
    return Found(each, f"{each:.0f} bytes" + ("" if written is None else f" ({written:.0f} after its first step)"))


def _folded(run: Run) -> Found:
    figure = run.figure("W6", "interlock-fold", "ns")
    if figure is None:
        return Found(None)
    return Found(figure.count, f"{figure.count:,} in {figure.median('ns') * figure.count / 1e9:.2f} s")


def _fold_memory(run: Run) -> Found:
    figure = run.figure("memory", "interlock-fold", "peak")
    if figure is None:
        return Found(None)
    resident, peak = (figure.median(each) / 1024 for each in ("resident", "peak"))
    return Found(max(resident, peak) / 1024, f"{resident:+.0f} KiB, peak {peak:+.0f} KiB over {figure.count:,} events")


def _import_ms(run: Run) -> Found:
    cost, first = (run.median("imports", name, "ms") for name in ("import interlock", "first chart loaded"))
    if cost is None:
        return Found(None)
    return Found(cost, f"{cost:.1f} ms" + ("" if first is None else f" (with the first chart loaded {first:.0f} ms)"))


GOALS = (
    *[Goal(f"{each}: public step by event name, to hand-written", "<= 3x", _bare_to_hand(each)) for each in REALISTIC],
    Goal("W7: public step by event name", "<= 1.7 us", _bare_us("W7")),
    *[Goal(f"faster than {each}, on the worst of W7-W10", ">= 20x", _bare_faster_than(each)) for each in PYTHON_PEERS],
    Goal("faster than xstate, actor.send, on the worst of W7-W10", ">= 4x", _bare_faster_than("xstate-actor")),
    *[
        Goal(f"{each}: inner step to hand-written", f"<= {bar:g}x", _inner_to_hand(each))
        for each, bar in HAND_RATIO_MAX.items()
    ],
    *[Goal(f"{each}: public step beyond the inner one", "< 150 ns", _public_overhead(each)) for each in SIMPLE[:4]],
    *[Goal(f"faster than {each}, on the worst of W1-W4 and W6", ">= 20x", _faster_than(each)) for each in PYTHON_PEERS],
    Goal("faster than xstate, actor.send, on the worst of W1-W4 and W6", ">= 5x", _faster_than("xstate-actor")),
    Goal("W5: create an entity", "<= 3 us", _create_us),
    Goal("W5: resident memory per entity", "<= 600 bytes", _create_bytes),
    Goal("W6: events folded without a break", f">= {FOLD_COUNT:,}", _folded),
    # A million events kept would be 8 MB of references alone; the pages of an allocator are far below this.
    Goal("W6: growth of memory", "< 1 MiB", _fold_memory),
    Goal("`import interlock` beyond the interpreter", "< 60 ms CPU", _import_ms),
)

METHOD = """\
- Times are CPU time of the process; garbage is collected before every round; the first seconds are warm-up.
- Every round ends with a check of the configuration, of the context, and of the number of entry and exit actions.
- In W7 to W10 every implementation produces the same outputs: timers set and cancelled, invokes, calls, sends and
  messages. They are counted while the time is measured, and their types are checked in one more cycle. Hand-written
  code returns them as plain tuples with the same keys and payloads as Interlock's. XState's clock only counts, and its
  invoked actors do nothing. transitions and python-statemachine use callbacks: their own timers and invokes start
  threads or block. xstate-statemachine runs an invoke and its result within one call.
- In W7 to W10 transitions runs flat callbacks that change one object: no snapshot, no hierarchy. Hand-written code is
  only 13 to 22 times faster than it, so a step that returns a new value cannot be 20 times faster.
- "By event name" is `chart.step(snapshot, "go", time_ms=...)`. Results of invokes are always an `Event`.
- W11 and W12 use the chart of the demo. The other libraries have no fold, so these have lines of Interlock only.
- W5 has a fresh process for each round; its bytes are the growth of resident memory divided by the entities kept.
- W6 folds 1,000,000 events, W5 creates 100,000 entities; slow libraries do fewer, as "in a round" shows.
- "Inner step" is the generated function of the kernel over plain values, found by event and called as `fold()` does.
  "Public step()" is `chart.step(snapshot, event)`, with the Step and Snapshot values that it creates.
  "General path" is the step without generated functions.
- Interlock's guards and assigns are expressions, checked against the declared types of the fields;
  the other libraries use functions of their host language. One line of Interlock uses Python functions too.
- An entity of Interlock shares the defaults of its context until it writes; "started and stepped once" has a copy.
- Time on Node.js includes the threads of V8, so those figures are upper bounds.
- automat has neither guards nor hierarchy: its choices enter again by a private input.
- xstate-statemachine logs in every step; logging is switched off. transitions creates entities with `add_model`."""

IN_PROCESS = Suite(
    name="inprocess",
    title="Steps in memory",
    introduction="Steps of a chart in memory, without a store, next to hand-written code and to other libraries.",
    method=METHOD,
    run=run,
    efforts=(FULL, QUICK),
    choices=(*WORKLOADS, *COMMANDS),
    overviews=(
        Overview(
            title="Realistic workloads",
            introduction="""\
Charts with timers, invokes, sagas and messages. Nanoseconds of CPU per event, the median; in brackets the ratio to
hand-written code with the same outputs in the same run.""",
            workloads=REALISTIC,
            measure="ns",
            base=BASE,
        ),
        Overview(
            title="Simple workloads",
            introduction="""\
Nanoseconds of CPU per event, the median; in brackets the ratio to hand-written code in the same run.
`-`: the implementation cannot express the workload, or the line does not apply to it.""",
            workloads=SIMPLE,
            measure="ns",
            base=BASE,
        ),
    ),
    workloads=(
        *[
            Workload(name=each, title=title, columns=_columns("entity" if each in {"W5", "W11"} else "event"))
            for each, title in TITLES.items()
        ],
        Workload(
            name="imports",
            title="Imports",
            label="CPU beyond the bare interpreter",
            columns=(median("ms", "ms", ".1f"), spread("ms", ".1f")),
        ),
    ),
    goals=GOALS,
)

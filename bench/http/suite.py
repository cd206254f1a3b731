"""The HTTP suite: `interlock serve` and a minimal application in rounds, a whole minute, and a kill under load.

Rule 1: durability is judged by counting: no acknowledged event may be lost or stored twice, on any machine.
Rule 2: speed is judged by the ratio to the minimal application of the same run, and by the latency of clients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from itertools import count as numbers
from pathlib import Path

import msgspec
import uvicorn

from bench.http import servers
from bench.http.kill import killed
from bench.http.load import Answer, Question
from bench.http.servers import BEARER, Running, prepared, sent
from bench.measure import Measurement, PeerUnavailableError, file_system, report, run_rounds, stores_folder
from bench.results import Figure, Line, Run
from bench.suite import Column, Found, Goal, Suite, Workload, median, relative, spread
from interlock.web.server import uvicorn_config

LINES = {
    "hello": Line(name="minimal Starlette application, a small JSON"),
    "serve": Line(name="interlock serve, a durable event on SQLite"),
    "minute": Line(name="the same, 60 s without a pause"),
}
ROUNDS = ("hello", "serve")
SHARES = {"0.5": "p50_ms", "0.9": "p90_ms", "0.99": "p99_ms", "0.999": "p999_ms", "1.0": "max_ms"}
"""The measure of each share of the latencies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How long each part takes. The rounds of a line take a minute together."""

    rounds: int
    seconds: float
    minute_seconds: float
    kill_seconds: float
    warm_seconds: float
    clients: int = 64
    hot: int = 4


FULL = Effort(rounds=5, seconds=12.0, minute_seconds=60.0, kill_seconds=60.0, warm_seconds=2.0)
QUICK = Effort(rounds=2, seconds=0.5, minute_seconds=1.0, kill_seconds=2.0, warm_seconds=0.2)


def run(measurement: Measurement[Effort]) -> None:
    """Measure the chosen parts: hello, serve, minute, kill."""
    parts = measurement.chosen((*LINES, "kill")) or [*LINES, "kill"]
    effort = measurement.effort
    with stores_folder() as folder:
        measurement.facts += [f"Served by {stack()}.", f"Files on {file_system(folder)}."]
        _run_rounds(measurement, folder, [each for each in ROUNDS if each in parts])
        if "minute" in parts:
            report("bench: http minute ...")
            with measurement.or_left_out("minute"), _started("minute", folder, effort) as server:
                figure = Figure(count=1)
                figure.add(measures(sent(_question(server, effort, "minute", effort.minute_seconds))))
                measurement.add("http", "minute", figure, LINES["minute"])
        if "kill" in parts:
            report("bench: http kill ...")
            with measurement.or_left_out("kill"):
                place = folder / "kill"
                place.mkdir()
                found = killed(place, clients=effort.clients, seconds=effort.kill_seconds, hot=effort.hot)
                numbers = {
                    name: float(each) for name, each in msgspec.structs.asdict(found).items() if each is not None
                }
                figure = Figure(count=1)
                figure.add(numbers)
                measurement.add("kill", "kill", figure, Line(name=f"{found.seconds:.0f} s, killed after half"))


def stack() -> str:
    """Name what serves both lines, with versions: uvicorn parses HTTP with the parser that is installed."""
    loaded: uvicorn.Config = uvicorn_config(_no_application)
    loaded.load()
    parser = "httptools" if "HttpTools" in getattr(loaded.http_protocol_class, "__name__", "") else "h11"
    return ", ".join([*(f"{each} {version(each)}" for each in ("starlette", "uvicorn", parser)), "asyncio"])


async def _no_application(scope: object, receive: object, send: object) -> None:
    """Do nothing; uvicorn needs an application to load its settings."""


def _run_rounds(measurement: Measurement[Effort], folder: Path, keys: list[str]) -> None:
    effort = measurement.effort
    with ExitStack() as stack:
        asks = {}
        for key in keys:
            with measurement.or_left_out(key):
                asks[key] = partial(_ask, stack.enter_context(_started(key, folder, effort)), numbers(), effort)
                measurement.lines[key] = LINES[key]
        measurement.figures["http"] = run_rounds(asks, dict.fromkeys(asks, 0), effort.rounds, warm_up=False)


def _ask(server: Running, numbers: Iterator[int], effort: Effort, count: int) -> dict[str, float]:
    """Measure one round; its number makes the keys of the events unique."""
    return measures(sent(_question(server, effort, f"round{next(numbers)}", effort.seconds)))


@contextmanager
def _started(key: str, folder: Path, effort: Effort) -> Iterator[Running]:
    if key == "hello":
        with servers.hello() as server:
            yield server
        return
    place = folder / key
    place.mkdir()
    prepared(place, effort.clients, effort.hot)
    with servers.serve(place) as server:
        yield server


def _question(server: Running, effort: Effort, name: str, seconds: float) -> Question:
    return Question(
        port=server.port,
        server_pid=server.pid,
        bearer=BEARER,
        name=name,
        clients=effort.clients,
        seconds=seconds,
        warm_seconds=effort.warm_seconds,
        hot=effort.hot,
    )


def measures(answer: Answer) -> dict[str, float]:
    """Return the measures of a load, per request. Raises PeerUnavailableError without any answer."""
    if not answer.answers:
        raise PeerUnavailableError("the server answered no request")
    found = {
        "rate": answer.answers / answer.wall_s,
        "seconds": answer.wall_s,
        "cpu_us": 1e6 * answer.server_cpu_s / answer.answers,
        "load_cpu_us": 1e6 * answer.own_cpu_s / answer.answers,
        "load_share": answer.own_cpu_s / answer.wall_s,
    }
    for prefix, latencies in (
        ("", answer.latencies_ms),
        ("own_", answer.own_latencies_ms),
        ("shared_", answer.hot_latencies_ms),
    ):
        found |= {prefix + SHARES[share]: each for share, each in latencies.items()}
    return found


# Goals

CLIENTS = 64
MINUTE_S_MIN = 60.0


def _slowest(whose: str) -> Callable[[Run], Found]:
    def find(run: Run) -> Found:
        figure = run.figure("http", "minute", f"{whose}_p99_ms")
        if figure is None or figure.median("seconds") < MINUTE_S_MIN:
            return Found(None, run.missing("http", "minute"))
        found = figure.median(f"{whose}_p99_ms")
        return Found(found, f"{found:,.1f} ms (of all {figure.median('p99_ms'):,.1f} ms)")

    return find


def _to_minimal(run: Run) -> Found:
    found = run.ratio("http", "serve", "hello", "rate")
    return Found(None, "; ".join(run.left_out.values())) if found is None else Found(found, f"{found:.2f}x")


def _load_share(run: Run) -> Found:
    figure = run.figure("http", "hello", "load_share")
    if figure is None:
        return Found(None, run.missing("http", "hello"))
    return Found(max(figure.samples["load_share"]), f"{max(figure.samples['load_share']):.2f}")


def _killed(count: Callable[[dict[str, int]], tuple[int, str]]) -> Callable[[Run], Found]:
    def find(run: Run) -> Found:
        figure = run.figure("kill", "kill", "acknowledged")
        if figure is None or figure.median("seconds") < MINUTE_S_MIN or not figure.median("in_doubt"):
            return Found(None, run.left_out.get("kill", ""))
        return Found(*count({name: int(samples[0]) for name, samples in figure.samples.items()}))

    return find


def _lost(found: dict[str, int]) -> tuple[int, str]:
    return found["lost"], "{lost} of {acknowledged:,} ({in_doubt} in doubt, {in_doubt_kept} of them stored)".format(
        **found
    )


def _wrong(found: dict[str, int]) -> tuple[int, str]:
    wrong = found["doubled"] + found["unsent"] + found["damaged"]
    return wrong, str(wrong)


GOALS = (
    # With 64 clients that wait for their answer, the mean is 64 divided by the rate: this requires more than 1,280
    # durable events per second, and that no client waits much longer than the others.
    Goal(f"{CLIENTS} clients for a minute: p99 of durable sends to own entities", "<= 50 ms", _slowest("own")),
    # An entity does one step at a time, so a client of a shared one waits for the flushes of the clients before it: a
    # tenth of them, some ten milliseconds each.
    Goal(f"{CLIENTS} clients for a minute: p99 of durable sends to shared entities", "<= 200 ms", _slowest("shared")),
    # The cost of a flush, a journal and a chart in addition to HTTP, which httptools parses for both: the minimal
    # application needs some 60 us of processor time for an answer.
    Goal("durable sends to answers of the minimal application, per second", ">= 0.2x", _to_minimal),
    # Above this, the clients would measure themselves. The minimal application is the one that they are fastest with.
    Goal("share of a processor used by the clients, with the minimal application", "<= 0.8", _load_share),
    Goal("server killed in the middle of a minute: acknowledged events lost", "<= 0", _killed(_lost)),
    Goal("the same: entries stored twice, never sent, or not verified", "<= 0", _killed(_wrong)),
)


def _count_of(heading: str, measure: str) -> Column:
    return median(heading, measure, ",.0f")


HTTP = Suite(
    name="http",
    title="HTTP",
    introduction="""\
Events sent to `interlock serve` by 64 concurrent clients, each acknowledged after its entry is durable.
The limit is a minimal application on the same server, which stores nothing.""",
    method="""\
- `interlock serve` is started as users start it, on a new SQLite file with a key file. The minimal application takes
  the same requests and answers with a small JSON. Each is one process, served by uvicorn with the same settings.
- The clients are another process on the same machine. Each has one connection, sends an event with a new key, and sends
  the next when the receipt has arrived. Every eighth event goes to one of four entities that all clients share; the
  others go to the client's own entity. An entity does one step at a time, and the next after that is durable: a shared
  one is a second queue after the queue of the server.
- With 64 clients that wait for their answers, the mean latency is 64 divided by the rate: it shows the length of the
  queue, not the time of a single event.
- A latency is from the first byte sent to the last byte read.
- CPU time is per request: of the server's process, and of the clients' process.
- Kill: SIGKILL after half of the time, then the same server on the same file again. A client whose connection breaks
  sends its event again with the same key. At the end, each receipt is looked up in the journals: an entry with that key
  at that version; and every journal is verified, link by link and step by step.""",
    run=run,
    efforts=(FULL, QUICK),
    choices=(*LINES, "kill"),
    workloads=(
        Workload(
            name="http",
            title=f"http: {CLIENTS} clients, each with its own connection",
            columns=(
                median("per second", "rate", ",.0f"),
                spread("rate", ",.0f"),
                relative("to minimal", "rate", "hello", "{:.2f}x".format),
                median("p50 ms", "p50_ms", ",.1f"),
                median("p99 ms", "p99_ms", ",.1f"),
                median("max ms", "max_ms", ",.1f"),
                median("own p99 ms", "own_p99_ms", ",.1f"),
                median("shared p99 ms", "shared_p99_ms", ",.1f"),
                median("CPU us of the server", "cpu_us", ",.0f"),
                median("of the clients", "load_cpu_us", ",.0f"),
            ),
        ),
        Workload(
            name="kill",
            title="kill: the server is killed under load",
            columns=(
                _count_of("acknowledged", "acknowledged"),
                _count_of("lost", "lost"),
                _count_of("stored twice", "doubled"),
                _count_of("never sent", "unsent"),
                _count_of("not verified", "damaged"),
                _count_of("in doubt", "in_doubt"),
                _count_of("of them stored", "in_doubt_kept"),
                median("back after s", "back_s", ".1f"),
            ),
        ),
    ),
    goals=GOALS,
)

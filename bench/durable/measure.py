"""Measure durable steps: every engine is a process of its own, asked round after round in turn.

Rule 1: in each round every engine is asked once: raw, ours, peers; a slow spell of the machine hits all of them.
Rule 2: only figures of one run are compared, as ratios within a round.
Rule 3: an engine that is missing, fails or is in the wrong state is reported, and ends nothing.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path

from bench.durable.results import Figure, Sample
from bench.durable.servers import Servers
from bench.measure import PeerUnavailableError, Process, tell

WORKLOADS = ("seq1", "fleet")

_FOLDERS = re.compile(r"(?<![\w:/.])/(?:[^\s/'\"():]+/)+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """An engine: its module and way, the server that it needs, and how much it does in a round."""

    module: str
    way: str
    server: str | None = None
    events: int = 1_000
    orders: int = 1_000


COMMANDS: dict[str, Command] = {
    "raw-file": Command(module="raw", way="file"),
    "interlock-file": Command(module="interlock_stores", way="file"),
    "interlock-file-inline": Command(module="interlock_stores", way="file-inline"),
    "raw-sqlite": Command(module="raw", way="sqlite"),
    "interlock-sqlite": Command(module="interlock_stores", way="sqlite"),
    "interlock-sqlite-each": Command(module="interlock_stores", way="sqlite-each"),
    "eventsourcing-sqlite": Command(module="eventsourcing_orders", way="sqlite", events=200, orders=200),
    "dbos-sqlite": Command(module="dbos_orders", way="sqlite", events=60, orders=64),
    "raw-postgres": Command(module="raw", way="postgres", server="postgres"),
    "interlock-postgres": Command(module="interlock_stores", way="postgres", server="postgres"),
    "interlock-postgres-each": Command(module="interlock_stores", way="postgres-each", server="postgres"),
    "raw-postgres-step": Command(module="raw", way="postgres-step", server="postgres"),
    "eventsourcing-postgres": Command(
        module="eventsourcing_orders", way="postgres", server="postgres", events=100, orders=100
    ),
    "dbos-postgres": Command(module="dbos_orders", way="postgres", server="postgres", events=60, orders=64),
    "restate": Command(module="restate_orders", way="object", server="restate", events=100, orders=100),
    "temporal": Command(module="temporal_orders", way="update", server="temporal", events=40, orders=48),
}
"""Every engine, in the order of the tables and of the rounds. Slow ones do less in a round; the count is reported."""


MORE = {"seq1": 3}
"""A workload gets so many times as many rounds: one caller waits for every single flush, and feels each slow spell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How much work a run puts into each figure."""

    rounds: int
    share: float
    """Of the events and orders of a whole run."""
    entries: int
    """Of the journal whose recovery is measured."""
    entities: tuple[int, ...]
    """Sizes of the store in which steps are measured."""
    steps: int
    """Steps of one sample at each of those sizes."""

    def rounds_of(self, workload: str) -> int:
        """How many rounds a workload gets."""
        return self.rounds * MORE.get(workload, 1)


FULL = Effort(rounds=5, share=1.0, entries=100_000, entities=(1_000, 10_000, 100_000, 1_000_000), steps=2_000)
QUICK = Effort(rounds=1, share=0.01, entries=300, entities=(100, 300), steps=64)


def without_folders(text: str) -> str:
    """The text with the last part of each path only: results are kept, and the machine's folders mean nothing there."""
    return _FOLDERS.sub("", text)


def started(keys: list[str], servers: Servers, folder: Path) -> tuple[dict[str, Process], dict[str, str]]:
    """The engines that could be started, and why the others could not."""
    running: dict[str, Process] = {}
    left_out: dict[str, str] = {}
    for key in keys:
        command = COMMANDS[key]
        try:
            if command.server is not None and command.server not in servers.addresses:
                raise PeerUnavailableError(servers.left_out.get(command.server, f"no server of {command.server}"))
            running[key] = Process(key, command_of(command, servers, folder))
        except PeerUnavailableError as error:
            left_out[key] = without_folders(str(error))
            tell(f"LEFT OUT: {key}: {error}")
    return running, left_out


def command_of(command: Command, servers: Servers, folder: Path) -> list[str]:
    """How an engine is started."""
    module = f"bench.durable.engines.{command.module}"
    worker = [sys.executable, "-W", "ignore", "-m", "bench.durable.worker"]
    return [*worker, module, command.way, str(folder), servers.arguments(command.server)]


def driven(workload: str, running: dict[str, Process], effort: Effort) -> dict[str, Figure]:
    """A workload by all engines, in turn. The first round is not kept: it warms caches, connections and files."""
    figures = {key: Figure(count=_count(workload, key, effort)) for key in running}
    for number in range(effort.rounds_of(workload) + 1):
        for key, figure in figures.items():
            if figure.error is None:
                warming = number == 0
                count = max(5, figure.count // 4) if warming else figure.count
                _add(figure, running[key].ask(workload, count), key, warming=warming)
    return figures


def _count(workload: str, key: str, effort: Effort) -> int:
    command = COMMANDS[key]
    return max(5, int(effort.share * (command.events if workload == "seq1" else command.orders)))


def _add(figure: Figure, answer: dict[str, float | str], key: str, *, warming: bool) -> None:
    error = answer.get("error")
    if error is not None:
        tell(f"FAILED: {key}: {error}")
        figure.error = without_folders(str(error))
        figure.samples = []
    elif not warming:
        found = {name: float(value) for name, value in answer.items()}
        figure.samples.append(
            Sample(
                rate=1e9 * found["steps"] / found["ns"],
                p50_ms=found["p50_ms"],
                p99_ms=found["p99_ms"],
                cpu_us=found["cpu_us"],
                server_cpu_us=found["server_cpu_us"],
            )
        )

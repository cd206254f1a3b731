"""Measure: processes of peers asked in turn, so that a slow spell of the machine hits all of them alike.

Rule 1: every implementation is a process of its own, asked round robin (A B C, A B C, ...), warmed up before.
Rule 2: times are CPU time of the process that did the work; a busy neighbour does not count.
Rule 3: W5 gets a fresh process for every repeat, or resident memory would mean nothing.
Rule 4: a peer that cannot be started, or gives a wrong result, is reported and ends nothing.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from bench.results import Figure, Line
from bench.workloads import fitting

ROOT = Path(__file__).resolve().parents[1]
PEERS = ROOT / "bench" / "peers"

FOLD_COUNT = 1_000_000
CREATE_COUNT = 100_000
CREATE_BYTES_MAX = 1_500 * 2**20
"""Entities kept at once: a peer of 60 kB each would otherwise need 6 GB."""
PROBED = 500
PROBED_FACTOR = 4
IMPORT_REPEATS_MIN = 7

COMMANDS: dict[str, tuple[str, str]] = {
    "hand-written": ("hand_written", "mutable"),
    "hand-written-pure": ("hand_written", "pure"),
    "interlock-inner": ("interlock_charts", "inner"),
    "interlock-step": ("interlock_charts", "step"),
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
"""Every implementation, in the order of the tables: its module or script, and which way of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How much work a run puts into each figure."""

    repeats: int
    seconds: float
    """Aim for one repeat of W1 to W4."""
    seconds_max: float
    """A repeat of W5 or W6 that would take longer does fewer entities or events; the count is reported."""
    warm_seconds: float
    warm_node_seconds: float
    """V8's compiler needs about a second to settle."""
    fold_count: int = FOLD_COUNT
    create_count: int = CREATE_COUNT


FULL = Effort(repeats=5, seconds=0.3, seconds_max=3.0, warm_seconds=0.2, warm_node_seconds=1.0)
QUICK = Effort(
    repeats=2,
    seconds=0.01,
    seconds_max=0.05,
    warm_seconds=0.002,
    warm_node_seconds=0.05,
    fold_count=20_000,
    create_count=2_000,
)


class PeerUnavailableError(Exception):
    """A peer could not be started; the text says why."""


class Process:
    """A running peer. It greets when it starts, then answers questions."""

    def __init__(self, key: str, command: list[str] | None = None) -> None:
        self.key = key
        self.on_node = key in COMMANDS and COMMANDS[key][0].endswith(".mjs")
        command = command or command_of(key)
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  # open as long as the process is
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=environment(),
            cwd=ROOT,
        )
        greeting = self._read()
        if "error" in greeting:
            self.close()
            raise PeerUnavailableError(greeting["error"])
        self.line = Line(**greeting)

    def ask(self, workload: str, count: int) -> dict[str, Any]:
        """What the peer answers: `ns` and perhaps `bytes`, or `error`."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"workload": workload, "count": count}) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            return {"error": self._last_words()}
        return self._read()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            return {"error": self._last_words()}
        found: dict[str, Any] = json.loads(line)
        return found

    def _last_words(self) -> str:
        self._process.wait()
        self._errors.seek(0)
        lines = [line for line in self._errors.read().decode(errors="replace").splitlines() if line.strip()]
        told = next((line for line in lines if "Error" in line), lines[-1] if lines else "it ended without a word")
        return told.strip()[:200]

    def close(self) -> None:
        """End it, and wait for its end."""
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            stream.close()
        self._process.wait()
        self._errors.close()


def command_of(key: str) -> list[str]:
    """How an implementation is started. Raises PeerUnavailableError without Node.js."""
    module, way = COMMANDS[key]
    if not module.endswith(".mjs"):
        return [sys.executable, "-W", "ignore", "-m", "bench.worker", f"bench.peers.{module}", way]
    node = shutil.which("node")
    if node is None:
        raise PeerUnavailableError("no Node.js here")
    return [node, "--expose-gc", str(PEERS / module), way]


def environment() -> dict[str, str]:
    """The environment of every process: this tree first, and the same hash seed for all."""
    paths = [str(ROOT), str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONHASHSEED": "0"}


def tell(text: str) -> None:
    """Say on the error stream what goes on; the tables have the output to themselves."""
    print(text, file=sys.stderr, flush=True)


def started(keys: list[str]) -> tuple[dict[str, Process], dict[str, str]]:
    """The implementations that could be started, and why the others could not."""
    running: dict[str, Process] = {}
    left_out: dict[str, str] = {}
    for key in keys:
        try:
            running[key] = Process(key)
        except PeerUnavailableError as error:
            left_out[key] = str(error)
            tell(f"LEFT OUT: {key}: {error}")
    return running, left_out


def driven(workload: str, running: Mapping[str, Process], effort: Effort) -> dict[str, Figure]:
    """A workload other than W5, by all that can express it, in turn."""
    figures = {
        key: _warmed(workload, process, effort)
        for key, process in running.items()
        if workload in process.line.workloads
    }
    for _ in range(effort.repeats):
        for key, figure in figures.items():
            if figure.error is None:
                _add(figure, running[key].ask(workload, figure.count), key)
    return figures


def _warmed(workload: str, process: Process, effort: Effort) -> Figure:
    """A figure without samples yet: warmed up, with a count that fits the time."""
    enough = 1e9 * (effort.warm_node_seconds if process.on_node else effort.warm_seconds)
    count = fitting(workload, 60)
    while True:
        answer = process.ask(workload, count)
        if "error" in answer:
            tell(f"FAILED: {process.key} {workload}: {answer['error']}")
            return Figure(error=answer["error"])
        if answer["ns"] >= enough or count >= 3 * FOLD_COUNT:
            break
        count = fitting(workload, count * 5)
    each = max(answer["ns"], 1) / count
    if workload == "W6":
        return Figure(count=fitting(workload, min(effort.fold_count, int(1e9 * effort.seconds_max / each))))
    return Figure(count=fitting(workload, int(1e9 * effort.seconds / each)))


def created(running: Mapping[str, Process], effort: Effort) -> dict[str, Figure]:
    """W5 by all that can express it, in turn, each time in a fresh process."""
    figures = {key: _probed(key, effort) for key, process in running.items() if "W5" in process.line.workloads}
    for _ in range(effort.repeats):
        for key, figure in figures.items():
            if figure.error is None:
                _add(figure, _asked_afresh(key, "W5", figure.count), key)
    return figures


def _probed(key: str, effort: Effort) -> Figure:
    """How many entities fit, found by trying more and more: what one costs may grow with those that are there."""
    count = PROBED
    while True:
        answer = _asked_afresh(key, "W5", count)
        if "error" in answer:
            tell(f"FAILED: {key} W5: {answer['error']}")
            return Figure(error=answer["error"])
        limit = min(effort.create_count, int(CREATE_BYTES_MAX / max(answer["bytes"], 1)))
        room = 1e9 * effort.seconds_max / max(answer["ns"], 1)  # times the work of this answer
        if count * PROBED_FACTOR >= limit or room < PROBED_FACTOR**2:
            return Figure(count=max(PROBED, min(limit, int(count * room**0.5))))
        count *= PROBED_FACTOR


def _add(figure: Figure, answer: dict[str, Any], key: str) -> None:
    if "error" in answer:
        tell(f"FAILED: {key}: {answer['error']}")
        figure.error = answer["error"]
        figure.samples, figure.bytes = [], []
        return
    figure.samples.append(answer["ns"] / figure.count)
    if "bytes" in answer:
        figure.bytes.append(answer["bytes"])


def _asked_afresh(key: str, workload: str, count: int) -> dict[str, Any]:
    process = Process(key)
    try:
        return process.ask(workload, count)
    finally:
        process.close()


def folded_memory(effort: Effort) -> dict[str, Any]:
    """How far memory grows in one fold, in a fresh process."""
    return _asked_afresh("interlock-fold", "memory", effort.fold_count) | {"count": effort.fold_count}


IMPORTS = {
    "import interlock": "import interlock",
    "first chart loaded": "import interlock; interlock.loads('{interlock: 1, kind: a, states: {b: {}}}')",
    "msgspec alone": "import msgspec",
}


def imports(repeats: int) -> dict[str, list[float]]:
    """CPU milliseconds of each import beyond those of the bare interpreter, paired in turn, in fresh processes."""
    found: dict[str, list[float]] = {name: [] for name in IMPORTS}
    for code in ("pass", *IMPORTS.values()):
        _cpu_ms(code)  # what was never imported is compiled first; that is not what an import costs
    for _ in range(repeats):
        bare = _cpu_ms("pass")
        for name, code in IMPORTS.items():
            found[name].append(_cpu_ms(code) - bare)
    return found


def _cpu_ms(code: str) -> float:
    process = subprocess.Popen([sys.executable, "-c", code], env=environment(), cwd=ROOT)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)  # or Popen would wait for it once more
    if process.returncode != 0:
        raise RuntimeError(f"python -c {code!r} ended with {process.returncode}")
    return 1e3 * (usage.ru_utime + usage.ru_stime)

"""How suites measure: lines in their own processes, in rounds; and what a run collects.

Rule 1: every line is its own process. In each round every line is asked once (A B C, A B C, ...), so that a slow moment
of the machine affects all lines.
Rule 2: a line that does not start, fails or returns a wrong result is reported, and the run continues without it.
Rule 3: results contain no paths of this machine.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Generic, Protocol, TypeVar

from bench.results import Figure, Line, Machine, Run

ROOT = Path(__file__).resolve().parents[1]
ERROR_LENGTH_MAX = 200
MEMORY_FILE_SYSTEMS = frozenset({"tmpfs", "ramfs"})
_FOLDERS = re.compile(r"(?<![\w:/.])/(?:[^\s/'\"():]+/)+")

Answer = dict[str, float]
"""The measures of one round, by name."""

Ask = Callable[[int], Mapping[str, Any]]
"""Does a workload so many times and returns an `SqlAppendResult`, or `error` with the reason."""


class PeerUnavailableError(Exception):
    """A line, a server or a part of a suite could not run. The message is the reason."""


class Effort(Protocol):
    """How much work a run does; each suite has its own fields besides the number of rounds."""

    @property
    def rounds(self) -> int: ...


E = TypeVar("E", bound=Effort)


@dataclass(slots=True, kw_only=True)
class Measurement(Generic[E]):
    """What a suite fills while it runs: figures, their lines, what was left out, and facts about the run.

    `names` select a part of the suite, as `--only` gives them; without names, everything.
    """

    names: list[str]
    effort: E
    figures: dict[str, dict[str, Figure]] = field(default_factory=dict)
    lines: dict[str, Line] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    facts: list[str] = field(default_factory=list)

    def chosen(self, options: tuple[str, ...] | Mapping[str, object]) -> list[str]:
        """Return the options that the names select."""
        return [each for each in options if any(selects(name, each) for name in self.names)]

    def add(self, workload: str, key: str, figure: Figure, line: Line | None = None) -> None:
        """Add one figure, and its line if it has no process."""
        self.figures.setdefault(workload, {})[key] = figure
        if line is not None:
            self.lines[key] = line

    def leave_out(self, key: str, reason: str) -> None:
        """Report that a line or a part is missing, and why."""
        self.left_out[key] = without_folders(reason)[:ERROR_LENGTH_MAX]
        report(f"LEFT OUT: {key}: {self.left_out[key]}")

    @contextmanager
    def or_left_out(self, key: str) -> Iterator[None]:
        """Leave out `key` if the block raises PeerUnavailableError or OSError."""
        try:
            yield
        except (PeerUnavailableError, OSError) as error:
            self.leave_out(key, str(error))

    @contextmanager
    def processes(self, commands: Mapping[str, Callable[[], list[str]]]) -> Iterator[dict[str, Process]]:
        """Start the lines for a block. A command may raise PeerUnavailableError."""
        running: dict[str, Process] = {}
        try:
            for key, command in commands.items():
                with self.or_left_out(key):
                    running[key] = Process(command())
                    self.lines[key] = running[key].line
            yield running
        finally:
            for process in running.values():
                process.close()

    def run(self, suite: str, *, quick: bool, load_before: float) -> Run:
        """Return what was measured."""
        return Run(
            suite=suite,
            date=dt.datetime.now(dt.UTC).date().isoformat(),
            quick=quick,
            partial=bool(self.names),
            rounds=self.effort.rounds,
            python=platform.python_version(),
            commit=commit(),
            machine=machine(load_before),
            facts=self.facts,
            lines=self.lines,
            left_out=self.left_out,
            figures={workload: row for workload, row in self.figures.items() if row},
        )


def selects(name: str, option: str) -> bool:
    """Whether a name of `--only` selects an option: the option starts with it, and no number is cut."""
    return re.match(re.escape(name) + (r"(?!\d)" if name[-1:].isdigit() else ""), option) is not None


class Process:
    """A running line. It sends its name, version and workloads when it starts, then answers questions."""

    def __init__(self, command: list[str]) -> None:
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  # closed with the process
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
        """Return the answer of the line: measures, or `error`."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"workload": workload, "count": count}) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            return {"error": self._last_error()}
        return self._read()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            return {"error": self._last_error()}
        found: dict[str, Any] = json.loads(line)
        return found

    def _last_error(self) -> str:
        self._process.wait()
        self._errors.seek(0)
        return last_error(self._errors.read())

    def close(self) -> None:
        """End the process and wait for it."""
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            stream.close()
        self._process.wait()
        self._errors.close()


def ask_fresh(command: list[str], workload: str, count: int) -> dict[str, Any]:
    """Return the answer of a process that is started for this question only."""
    process = Process(command)
    try:
        return process.ask(workload, count)
    finally:
        process.close()


def run_rounds(
    asks: Mapping[str, Ask], counts: Mapping[str, int], rounds: int, *, warm_up: bool = True
) -> dict[str, Figure]:
    """Ask every line once in each round. With `warm_up`, a first round of a quarter of the size is not counted."""
    figures = {key: Figure(count=counts[key]) for key in asks}
    for number in range(0 if warm_up else 1, rounds + 1):
        for key, figure in figures.items():
            if figure.error is not None:
                continue
            try:
                answer = asks[key](max(5, figure.count // 4) if number == 0 else figure.count)
            except PeerUnavailableError as error:
                answer = {"error": str(error)}
            if "error" in answer:
                figure.fail(without_folders(str(answer["error"]))[:ERROR_LENGTH_MAX])
                report(f"FAILED: {key}: {figure.error}")
            elif number > 0:
                figure.add({measure: float(value) for measure, value in answer.items()})
    return figures


def run_module(module: str, *arguments: object, seconds_max: float) -> Any:
    """Return the JSON that a module of the benchmarks prints. Raises PeerUnavailableError if it fails or hangs."""
    command = [sys.executable, "-m", module, *map(str, arguments)]
    try:
        done = subprocess.run(
            command, env=environment(), cwd=ROOT, capture_output=True, timeout=seconds_max, check=False
        )
    except subprocess.TimeoutExpired:
        raise PeerUnavailableError(f"it took more than {seconds_max:g} s") from None
    if done.returncode != 0:
        raise PeerUnavailableError(last_error(done.stderr))
    return json.loads(done.stdout) if done.stdout.strip() else None


def last_error(errors: bytes) -> str:
    """Return the error of a process from what it printed: the last line that names an error, else the last line."""
    lines = [line.strip() for line in errors.decode(errors="replace").splitlines() if line.strip()]
    found = next((line for line in reversed(lines) if "Error" in line), lines[-1] if lines else "it printed no error")
    return found[:ERROR_LENGTH_MAX]


def environment() -> dict[str, str]:
    """Return the environment of every process: this tree first on the path, and the same hash seed."""
    paths = [str(ROOT), str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONHASHSEED": "0"}


def report(text: str) -> None:
    """Print progress on the error stream; the output contains only the tables."""
    print(text, file=sys.stderr, flush=True)


def without_folders(text: str) -> str:
    """Return the text on one line, with only the last part of each path."""
    return _FOLDERS.sub("", " ".join(text.split()))


def disk() -> Path:
    """Return the folder for stores: the one for temporary files, or the repository if that is in memory."""
    folder = Path(tempfile.gettempdir())
    return ROOT if file_system(folder) in MEMORY_FILE_SYSTEMS else folder


def file_system(path: Path, mounts: str = "/proc/self/mounts") -> str:
    """Return the type of the file system of a path, or `unknown`."""
    best, found = -1, "unknown"
    try:
        lines = Path(mounts).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return found
    for line in lines:
        fields = line.split(" ")
        if len(fields) >= 3 and path.resolve().is_relative_to(fields[1]) and len(fields[1]) >= best:
            best, found = len(fields[1]), fields[2]
    return found


@contextmanager
def stores_folder() -> Iterator[Path]:
    """Create a folder for stores, and delete it at the end."""
    with tempfile.TemporaryDirectory(dir=disk(), prefix="bench-", ignore_cleanup_errors=True) as name:
        yield Path(name)


def machine(load_before: float) -> Machine:
    """Describe this machine."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return Machine(
        system=platform.system(),
        architecture=platform.machine(),
        processors=os.cpu_count() or 1,
        memory_gib=round(memory / 2**30, 1),
        load_before=round(load_before, 2),
        load_after=round(os.getloadavg()[0], 2),
    )


def commit() -> str:
    """Return the measured commit, with a plus if the sources have changes; `unknown` outside a repository."""
    git = ["git", "-C", str(ROOT)]
    try:
        found = subprocess.run([*git, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
        changed = subprocess.run(
            [*git, "status", "--porcelain", "--untracked-files=no", "src"], capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        return "unknown"
    if found.returncode != 0:
        return "unknown"
    return found.stdout.strip() + ("+" if changed.stdout.strip() else "")

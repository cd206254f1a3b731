"""Each system call of a run fails once, or kills the process: acknowledged entries stay, once.

strace injects the fault into the k-th call of its kind on the files of the store (`-P`), and its output shows whether
the fault fired: one that did not fire proves nothing. A run without faults first counts how often each call is made.
Counting is per thread, as in strace, so the same k may fire once in each thread.

There are two runs: `begin` (a new store, its first entries, a snapshot) and `go on` (a store that a killed process
left, with a torn tail and a temporary file, or a write-ahead log: recovery, entries, a snapshot or checkpoint, close).
`rotating` is the file store with segments of two entries.

Without `--seccomp-bpf` on purpose: with it strace 6.1 sends no signal. `Sweep.silent` would notice.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from interlock.errors import InterlockError
from interlock.model.journal.record import JournalRecord
from interlock.ports.store import Appended, Duplicate
from interlock.stores.files.names import JOURNAL, NEXT, SNAPSHOT, TEMPORARY, directory_name
from tests.crash.disks.failing_life import NAME, Plain, opened, sent
from tests.crash.life import ENTITY, Ledger, StuckError, record_violations
from tests.support.eventually import PATIENCE_SECONDS

ROOT = Path(__file__).parents[3]
KILL = "kill"
FAULTS = ("EIO", "ENOSPC", KILL)
CALLS = (
    "openat", "write", "pwrite64", "fdatasync", "fsync", "ftruncate", "rename", "renameat", "renameat2", "link",
    "linkat", "unlink", "unlinkat", "flock", "fcntl", "mkdir", "mkdirat",
)  # fmt: skip
"""What is made to fail. Reading is left to the simulated file system, which fails every call."""

HANG_MS = 60_000
"""The longest that a call may take, successful or not. SQLite alone takes 10 s to
say `locking protocol` when the release of a lock failed; the rest is for a busy machine."""

PROCESS_SECONDS_MAX = PATIENCE_SECONDS
RUNS_MAX = 3
"""Tries for a fault that did not fire: a slow moment can put one more or one less idle checkpoint into a life."""

SEGMENTS = 40
_TRACED = re.compile(r"^(\d+) +(\w+)\(")


class Life(NamedTuple):
    """A run to trace: which store, its initial state, and the keys that it sends."""

    store: str
    name: str
    before: tuple[str, ...]
    keys: tuple[str, ...]


LIVES = {
    f"{life.store}, {life.name}": life
    for life in (
        Life("files", "begin", (), ("k1", "k2", "k3", "k4")),
        Life("files", "go on", ("k1", "k2", "k3", "k4"), ("k4", "k5", "k6", "k7")),
        Life("rotating", "begin", (), ("k1", "k2", "k3", "k4")),
        Life("rotating", "go on", ("k1", "k2", "k3", "k4"), ("k4", "k5", "k6", "k7")),
        Life("sqlite", "begin", (), ("k1", "k2")),
        Life("sqlite", "go on", ("k1", "k2"), ("k2", "k3", "k4", "k5", "k6", "k7")),
    )
}
"""In `go on` the first key is one that was kept before: its answer must be `duplicate`."""


@dataclass
class Sweep:
    """The results of all faults of one run."""

    name: str
    calls: Counter[str] = field(default_factory=Counter)
    fired: int = 0
    silent: list[str] = field(default_factory=list)
    found: list[str] = field(default_factory=list)
    refused: int = 0
    ms_max: int = 0

    def count(self, word: str) -> int:
        """Return how many findings are of a kind."""
        return sum(f": {word}" in each for each in self.found)


class Fault(NamedTuple):
    """The k-th call of a kind fails in one way."""

    call: str
    number: int
    way: str

    def __str__(self) -> str:
        return f"{self.call} #{self.number} {self.way}"

    def injection(self) -> str:
        """Return the option for strace."""
        how = "signal=SIGKILL" if self.way == KILL else f"error={self.way}"
        return f"inject={self.call}:{how}:when={self.number}"


class RunReport(NamedTuple):
    """The output of a process, and how it ended."""

    ledger: Ledger
    refused: int
    ms_max: int
    ended: bool
    code: int
    errors: str
    trace: str


def is_possible() -> str | None:
    """Return why no fault can be injected here; None if it can."""
    if shutil.which("strace") is None:
        return "strace is not installed: no system call can be made to fail"
    probe = subprocess.run(["strace", "-o", os.devnull, "true"], check=False, capture_output=True, text=True)
    return None if probe.returncode == 0 else f"strace may not trace here: {probe.stderr.strip()}"


def faults_of(calls: Counter[str], ways: Iterable[str] = FAULTS) -> Iterator[Fault]:
    """Return every fault of every call."""
    for call, count in sorted(calls.items()):
        for number in range(1, count + 1):
            for way in ways:
                yield Fault(call, number, way)


def swept(name: str, folder: Path, *, every: int = 1, workers: int = 1, only: Iterable[str] = CALLS) -> Sweep:
    """Run once without faults, then once for each fault of these calls, or for every n-th of them."""
    life = LIVES[name]
    sweep = Sweep(name)
    prepared = folder / "prepared"
    prepared.mkdir()
    ledger = prepare(life, prepared)
    sweep.calls = calls_of(life, prepared, folder, ledger)
    wanted = frozenset(only)
    faults = [each for each in faults_of(sweep.calls) if each.call in wanted][::every]
    with ThreadPoolExecutor(workers) as threads:
        for fault, report, found in threads.map(
            lambda fault: _run_with_fault(life, prepared, folder, ledger, fault), faults
        ):
            if not _has_fired(fault, report):
                sweep.silent.append(str(fault))
                continue
            sweep.fired += 1
            sweep.refused += report.refused
            sweep.ms_max = max(sweep.ms_max, report.ms_max)
            sweep.found += [f"{fault}: {each}" for each in found]
    return sweep


def calls_of(life: Life, prepared: Path, folder: Path, ledger: Ledger) -> Counter[str]:
    """Return how often a run makes each call if nothing fails."""
    clean = _run_life(life, _copied(prepared, folder), ledger, None)
    if not clean.ended:
        raise ValueError(f"the life did not come to its end: {clean.errors}")
    return _counted(clean.trace)


def _run_with_fault(
    life: Life, prepared: Path, folder: Path, ledger: Ledger, fault: Fault
) -> tuple[Fault, RunReport, list[str]]:
    place = _copied(prepared, folder)
    report = _run_life(life, place, ledger, fault)
    for _ in range(RUNS_MAX - 1):
        if _has_fired(fault, report):
            break
        shutil.rmtree(place)
        place = _copied(prepared, folder)
        report = _run_life(life, place, ledger, fault)
    found = _ending_violations(fault, report, HANG_MS) + examined(life.store, place, report.ledger)
    shutil.rmtree(place)
    return fault, report, found


def _copied(prepared: Path, folder: Path) -> Path:
    place = Path(tempfile.mkdtemp(dir=folder))
    shutil.copytree(prepared, place, dirs_exist_ok=True)
    return place


def prepare(life: Life, place: Path) -> Ledger:
    """Create the files that a killed process leaves; return its receipts."""
    ledger = Ledger()
    if not life.before:
        return ledger
    store = opened(life.store, place)
    for key in life.before:
        ledger.asked.add(key)
        ledger.acknowledged[key] = sent(store, key).version
    left = place.with_name(f"{place.name}.left")
    shutil.copytree(place, left, ignore=shutil.ignore_patterns("*-shm"))  # SQLite creates that one again
    store.close()
    shutil.rmtree(place)
    left.rename(place)
    _tear(life.store, place / NAME)
    return ledger


def _tear(store: str, root: Path) -> None:
    """Add an incomplete line and a temporary file."""
    if store == "sqlite":
        return
    entity = root / "resources" / directory_name(ENTITY)
    with (entity / JOURNAL).open("ab") as file:
        file.write(b'{"v":5,"k":"torn","d":0,"e":{"version":5')
    (entity / f"{SNAPSHOT}{TEMPORARY}left").write_bytes(b"{")


def _paths(store: str, place: Path) -> list[Path]:
    """Return the files and folders of the store, also those that it will create."""
    if store == "sqlite":
        return [place, *(place / f"{NAME}{ending}" for ending in ("", "-wal", "-shm", "-journal"))]
    root = place / NAME
    entity = root / "resources" / directory_name(ENTITY)
    tokens = [f"t{number}" for number in range(1, SEGMENTS)]
    sealed = [f"events-{number:020}.log" for number in range(SEGMENTS)]
    following = [f"{JOURNAL}{NEXT}{token}" for token in tokens]
    tops = _whole("format.json", tokens)
    names = [JOURNAL, *_whole(SNAPSHOT, tokens), *sealed, *following]
    folders = [place, root, root / "resources", entity]
    return folders + [at / each for at, of in ((root, tops), (entity, names)) for each in of]


def _whole(name: str, tokens: list[str]) -> list[str]:
    """Return a file that is replaced by rename, with its temporary names."""
    return [name, *(f"{name}{TEMPORARY}{token}" for token in tokens)]


def _run_life(life: Life, place: Path, before: Ledger, fault: Fault | None) -> RunReport:
    trace = place.with_name(f"{place.name}.trace")
    command = ["strace", "-f", "-qq", "-o", str(trace), "-e", "trace=" + ",".join(f"?{call}" for call in CALLS)]
    if fault is not None:
        command += ["-e", fault.injection()]
    for path in _paths(life.store, place):
        command += ["-P", str(path)]
    command += [sys.executable, "-m", "tests.crash.disks.failing_life", life.store, str(place), *life.keys]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE")}  # traced twice
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    try:
        answer = subprocess.run(
            command, cwd=ROOT, env=environment, check=False, capture_output=True, timeout=PROCESS_SECONDS_MAX
        )
        code, output, errors = answer.returncode, answer.stdout, answer.stderr.decode(errors="replace")
    except subprocess.TimeoutExpired as error:
        code, output, errors = -1, error.stdout or b"", f"hang: no end after {PROCESS_SECONDS_MAX:g} s"
    text = trace.read_text(encoding="utf-8", errors="replace")
    trace.unlink()
    return _parse_output(output.decode(), before, code, errors, text)


def _parse_output(output: str, before: Ledger, code: int, errors: str, trace: str) -> RunReport:
    ledger, refused, ms_max, ended = before.copy(), 0, 0, False
    for line in output.splitlines():
        match line.split():
            case ["asked", key]:
                ledger.asked.add(key)
            case ["kept", key, version]:
                ledger.acknowledged[key] = int(version)
            case ["refused", _, _]:
                refused += 1
            case ["ended", ms]:
                ms_max, ended = int(ms), True
            case _:
                raise ValueError(f"not a line of a life: {line!r}")
    return RunReport(ledger, refused, ms_max, ended, code, errors, trace)


def _counted(trace: str) -> Counter[str]:
    """Return how often each call was made, in the thread that made it most often."""
    made = Counter((match[1], match[2]) for match in map(_TRACED.match, trace.splitlines()) if match)
    calls: Counter[str] = Counter()
    for (_, call), count in made.items():
        calls[call] = max(calls[call], count)
    return calls


def _has_fired(fault: Fault, report: RunReport) -> bool:
    return ("+++ killed by SIGKILL +++" if fault.way == KILL else "(INJECTED)") in report.trace


def _ending_violations(fault: Fault, report: RunReport, ms_max: int) -> list[str]:
    """Check that a run is killed if requested, else ends normally, and that no call takes too long."""
    found = []
    if fault.way != KILL and (report.code != 0 or not report.ended):
        found.append(f"crashed: {report.errors.strip().splitlines()[-1:]}")
    if report.ms_max > ms_max:
        found.append(f"hang: an answer took {report.ms_max} ms")
    return found


def examined(store: str, place: Path, ledger: Ledger) -> list[str]:
    """Return what another process finds wrong. It also sends the keys without an answer again, and a new one."""
    after = ledger.copy()
    try:
        handle = opened(store, place)
        try:
            before = _records(handle)
            found = record_violations(before, ledger)
            there = {record.key for record in before}
            doubtful = sorted(ledger.asked - set(ledger.acknowledged))
            for key in (*doubtful, "new"):
                after.asked.add(key)
                answer = sent(handle, key)
                if not isinstance(answer, Duplicate if key in there else Appended):
                    found.append(f"doubled: {key} gave {answer}")
                after.acknowledged[key] = answer.version
            found += record_violations(_records(handle), after)
        finally:
            handle.close()
    except (InterlockError, OSError, StuckError) as error:
        return [f"unusable: {type(error).__name__}: {error}"]
    return found


def _records(handle: Plain) -> tuple[JournalRecord, ...]:
    records: list[JournalRecord] = []
    while page := handle.read(ENTITY, after=len(records)):
        records += page
    return tuple(records)

"""Throw hostile input at every parser: `python -m tests.fuzz --count 1000000 --seed 7`, or `make fuzz`.

Seven parsers, one form: a target makes inputs from a seed and tries them (`target`), a process runs batches of them
under limits of time and memory (`worker`), and this module starts the processes and counts.

For every input: no crash (a documented error, or a result that holds what the target checks), less than a second of
processor time, less than 256 MiB of memory. One batch in sixteen runs again in a process with another hash seed: its
verdicts must be the same. A batch depends on the seed and its number only, so `--start N --count 500 --only yaml`
repeats the batch of input N. `--save FOLDER` writes each found input to a file; `--try FILE --only yaml` tries a file.
"""

from __future__ import annotations

import argparse
import os
import selectors
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from hashlib import blake2b
from itertools import islice
from pathlib import Path

from msgspec import json

from tests.fuzz.targets.table import TARGETS, get_target
from tests.fuzz.worker import BATCH, PLACE, Batch, Finding, attempt, batch_inputs, limits

BATCHES_PER_PROCESS = 20
REPEATED_EVERY = 16
SILENCE_SECONDS_MAX = 900.0
"""How long a process may print nothing. A batch takes seconds, also on a busy machine."""
SHOWN = 20
WORKER = ("-m", "tests.fuzz.worker")


class TargetRun:
    """One parser: the inputs that were tried, and what was found."""

    def __init__(self, name: str, seed: int) -> None:
        self.name = name
        self.seed = seed
        self.inputs = 0
        self.accepted = 0
        self.findings: list[Finding] = []

    def run(self, count: int, *, start: int = 0) -> None:
        """Try `count` inputs, from the batch of input `start` on, and repeat some batches."""
        first, batches = start // BATCH, -(-count // BATCH)
        size = min(BATCH, count)
        found: dict[int, str] = {}
        for chunk in range(first, first + batches, BATCHES_PER_PROCESS):
            last = min(chunk + BATCHES_PER_PROCESS, first + batches) - 1
            found |= {each.number: each.digest for each in self._run_process(chunk, last, size, hash_seed=0)}
        for number in [each for each in found if each % REPEATED_EVERY == first % REPEATED_EVERY]:
            again = [each.digest for each in self._run_process(number, number, size, hash_seed=1, counted=False)]
            if again != [found[number]]:
                text = "the verdicts of a batch differ in another process"
                self.findings.append(Finding("crash", "not deterministic", f"{text}: --start {number * BATCH}", b""))

    def _run_process(
        self, first: int, last: int, size: int, *, hash_seed: int, counted: bool = True
    ) -> Iterator[Batch]:
        """Run batches in a process, and continue in another one when it dies."""
        while first <= last:
            with tempfile.NamedTemporaryFile() as place:
                place.write(bytes(PLACE.size))
                place.flush()
                words = [self.name, str(self.seed), str(first), str(last), str(size), place.name]
                environment = {**os.environ, "PYTHONHASHSEED": str(hash_seed)}
                process = subprocess.Popen([sys.executable, *WORKER, *words], stdout=subprocess.PIPE, env=environment)
                for line in _lines(process):
                    batch = json.decode(line, type=Batch)
                    first = batch.number + 1
                    if counted:
                        self._count(batch)
                    yield batch
                code = process.wait()
                if first <= last:
                    self._died(code, PLACE.unpack(Path(place.name).read_bytes())[0])
                    first += 1

    def _count(self, batch: Batch) -> None:
        self.inputs += batch.inputs
        self.accepted += batch.accepted
        self.findings += batch.findings

    def _died(self, code: int, number: int) -> None:
        """Add the input at which a process died, or hung outside of Python."""
        inputs = batch_inputs(get_target(self.name), self.seed, number // BATCH)
        data = next(islice(inputs, number % BATCH, None))
        kind, text = ("hang", "no answer") if code == -9 else ("crash", f"the process ended with {code}")
        self.findings.append(Finding("hang" if kind == "hang" else "crash", f"process {code}", text, data))


def _lines(process: subprocess.Popen[bytes]) -> Iterator[bytes]:
    """The lines that a process prints. It is killed when it is silent for too long."""
    assert process.stdout is not None
    with selectors.DefaultSelector() as selector, closing(process.stdout) as stdout:
        selector.register(stdout, selectors.EVENT_READ)
        while selector.select(SILENCE_SECONDS_MAX):
            line = stdout.readline()
            if not line:
                return
            yield line
        process.kill()


def report(runs: list[TargetRun], count: int) -> str:
    """Return the last line."""
    kinds = Counter(each.kind for run in runs for each in run.findings)
    found = f"{kinds['crash']} crashes, {kinds['hang']} hangs, {kinds['memory']} over memory"
    parsers = "1 parser" if len(runs) == 1 else f"{len(runs)} parsers"
    return f"fuzz: {parsers}, {count:,} inputs each, {found}"


def print_run(run: TargetRun, folder: Path | None) -> None:
    """Print the figures of a parser, and each cause with its shortest input."""
    print(f"{run.name}: {run.inputs:,} inputs, {run.accepted:,} accepted, {len(run.findings)} findings", flush=True)
    causes: dict[str, list[Finding]] = {}
    for each in run.findings:
        causes.setdefault(f"{each.kind} {each.group}", []).append(each)
    for cause, found in list(causes.items())[:SHOWN]:
        shortest = min(found, key=lambda each: len(each.data))
        print(f"  {cause} ({len(found)} times): {shortest.text}\n    {shortest.data[:200]!r}", flush=True)
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            name = f"{run.name}-{blake2b(shortest.data, digest_size=6).hexdigest()}"
            (folder / name).write_bytes(shortest.data)


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=10_000, help="inputs of each parser")
    parser.add_argument("--seed", type=int, default=7, help="repeats a run")
    parser.add_argument("--start", type=int, default=0, help="start with the batch of this input")
    parser.add_argument("--only", action="append", choices=list(TARGETS), help="this parser; may be repeated")
    parser.add_argument("--save", type=Path, metavar="FOLDER", help="write found inputs to this folder")
    parser.add_argument("--try", type=Path, metavar="FILE", dest="file", help="try this file instead")
    given = parser.parse_args()
    names = given.only or list(TARGETS)
    if given.file is not None:
        return _try_file(names, given.file)
    runs = []
    for name in names:
        run = TargetRun(name, given.seed)
        run.run(given.count, start=given.start)
        print_run(run, given.save)
        runs.append(run)
    print(report(runs, min(each.inputs for each in runs)))
    return 1 if any(each.findings for each in runs) else 0


def _try_file(names: list[str], file: Path) -> int:
    with limits():
        results = [(name, attempt(get_target(name), file.read_bytes())) for name in names]
    for name, found in results:
        print(f"{name}: {found}")
    return 1 if any(isinstance(found, Finding) for _, found in results) else 0


if __name__ == "__main__":
    raise SystemExit(main())

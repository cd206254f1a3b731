"""A short run of each parser, the inputs that were once found, and proof that findings are noticed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from tests.fuzz import __main__ as fuzz
from tests.fuzz import worker
from tests.fuzz.seeds import ROOT
from tests.fuzz.target import ACCEPTED
from tests.fuzz.targets.table import TARGETS, get_target
from tests.fuzz.worker import Finding

FOUND = sorted((Path(__file__).parent / "found").iterdir())
"""Inputs on which a parser once failed: `<target>-<what happened>`."""

COUNT = 1_000


@pytest.mark.slow
@pytest.mark.parametrize("name", TARGETS)
def test_a_thousand_hostile_inputs_are_survived(name: str) -> None:
    """The same run as `make fuzz`, and short; enough inputs are accepted to reach what is behind the parser."""
    run = fuzz.TargetRun(name, seed=11)
    run.run(COUNT)

    assert [] == [f"{each.kind} {each.group}: {each.text} {each.data[:200]!r}" for each in run.findings]
    assert COUNT == run.inputs
    assert 20 < run.accepted < COUNT


@pytest.mark.parametrize("path", FOUND, ids=lambda each: each.name)
def test_an_input_that_was_found_once_is_survived(path: Path) -> None:
    """Every finding stays in the corpus."""
    name = path.name.partition("-")[0]

    with worker.limits():
        found = worker.attempt(get_target(name), path.read_bytes())

    assert isinstance(found, str)


class Planted:
    """A target with one input in ten that fails in some way."""

    name = "planted"

    def inputs(self, random: Random) -> Iterator[bytes]:
        """Yield a byte each."""
        while True:
            yield bytes([random.randrange(10)])

    def attempt(self, data: bytes) -> str:
        """Fail as the input says."""
        if data == b"\x00":
            raise ValueError("a crash")
        if data == b"\x01":
            raise MemoryError
        if data == b"\x02":
            while True:
                pass
        return f"{ACCEPTED} {data[0]}"


@pytest.mark.parametrize(("data", "kind"), [(b"\x00", "crash"), (b"\x01", "memory"), (b"\x02", "hang")])
def test_a_failure_is_a_finding(data: bytes, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "SECONDS_MAX", 0.05)
    with worker.limits():
        found = worker.attempt(Planted(), data)

    assert isinstance(found, Finding)
    assert (kind, data) == (found.kind, found.data)


def test_a_batch_is_repeated_by_its_seed_and_number() -> None:
    target = get_target("message")
    first, again, other = (worker.run_batch(target, 7, number, 50) for number in (3, 3, 4))

    assert first == again
    assert other.digest != first.digest


def test_a_process_that_dies_is_a_finding_with_its_input(monkeypatch: pytest.MonkeyPatch) -> None:
    """A parser that ends the whole process: the parent finds the input again, and continues with the next batch."""
    script = "import sys,os,struct;open(sys.argv[-1],'r+b').write(struct.pack('<Q',502));os.abort()"
    monkeypatch.setattr(fuzz, "WORKER", ("-c", script))
    run = fuzz.TargetRun("message", seed=7)
    run.run(500, start=500)

    (finding, *_) = run.findings
    assert "crash" == finding.kind
    assert finding.data == list(worker.batch_inputs(get_target("message"), 7, 1))[2]


def test_the_last_line_counts_every_kind() -> None:
    run = fuzz.TargetRun("message", seed=7)
    run.findings = [Finding("crash", "", "", b""), Finding("hang", "", "", b""), Finding("hang", "", "", b"")]

    assert "fuzz: 1 parser, 1,000 inputs each, 1 crashes, 2 hangs, 0 over memory" == fuzz.report([run], 1_000)


def test_a_process_may_use_no_more_than_its_memory() -> None:
    """The limit is that of the operating system: it also ends what C code allocates.

    In a new process: one that has freed much memory would use that again, within its limit.
    """
    script = """
from tests.fuzz import worker
from tests.fuzz.seeds import ROOT
worker.limit_memory()
try:
    bytearray(worker.MEMORY_BYTES_MAX + 2**20)
except MemoryError:
    print("refused")
"""
    ended = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)

    assert (0, "refused\n") == (ended.returncode, ended.stdout), ended.stderr

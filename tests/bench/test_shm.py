"""The shared-memory part of the benchmarks: verdicts, tables, choices, and a quick run with real processes."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bench.measure import PeerUnavailableError, Process
from bench.results import Line
from bench.run import main
from bench.shm import report, results
from bench.shm.line import WrongResultError, check, children
from bench.shm.lines import c_loop
from bench.shm.lines.lock_gate import LockGate
from bench.shm.lines.queues import drives, name_of
from bench.shm.measure import COMMANDS, FULL, QUICK, WORKLOADS, driven, started


def test_every_line_is_asked_once_in_each_short_round() -> None:
    """In turn, after a round that warms up; every answer but that one is kept."""
    asked: list[tuple[str, int]] = []

    class Asked:
        line = Line(name="", version="", workloads=["wake"])

        def __init__(self, key: str) -> None:
            self.key = key

        def ask(self, workload: str, count: int) -> dict[str, object]:
            asked.append((self.key, count))
            return {"value": float(len(asked))}

    keys = ["interlock-inbox", "threadsafe"]
    figures = driven("wake", {key: Asked(key) for key in keys}, FULL)  # type: ignore[misc]  # asks as a process does

    assert [(key, 31) for key in keys] + [(key, 125) for _ in range(80) for key in keys] == asked
    assert [float(number) for number in range(3, 163, 2)] == figures["interlock-inbox"].samples
    assert (125, 80) == (figures["threadsafe"].count, len(figures["threadsafe"].samples))


def test_a_line_that_cannot_start_is_left_out_loudly(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its reason is kept without folders; the others run."""
    monkeypatch.setitem(COMMANDS, "missing", COMMANDS["pipe"].__class__(module="no_such", way="x", counts={}))
    running, left_out = started(["missing", "lock-gate"])
    for process in running.values():
        process.close()

    assert ["lock-gate"] == list(running)
    assert {"missing": "ModuleNotFoundError: No module named 'bench.shm.lines.no_such'"} == left_out
    assert "LEFT OUT: missing" in capsys.readouterr().err


def test_without_a_compiler_the_c_loop_is_left_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its reason says what is missing."""
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(PeerUnavailableError, match="no C compiler here"):
        c_loop.compiled(tmp_path)


def test_a_failure_in_any_round_takes_the_samples_with_it() -> None:
    """A half-broken line is not measured."""

    class Failing:
        line = Line(name="pipe", version="1", workloads=["lanes-64-1"])
        asked = 0

        def ask(self, workload: str, count: int) -> dict[str, object]:
            self.asked += 1
            return {"error": "boom"} if self.asked == 2 else {"value": 1.0, "p99": 2.0}

    failing = Failing()
    figures = driven("lanes-64-1", {"pipe": failing}, QUICK)  # type: ignore[dict-item]  # asks as a process does

    assert ("boom", [], {}) == (figures["pipe"].error, figures["pipe"].samples, figures["pipe"].beside)


def test_children_that_fail_fail_the_line() -> None:
    """A producer that ended badly makes no figure."""

    def broken() -> None:
        raise SystemExit(3)

    with pytest.raises(WrongResultError, match="wanted 0, found 3"), children([broken]) as let_go:
        let_go()


def test_children_of_a_block_that_fails_are_ended() -> None:
    """They wait for their start, which never comes, and do not outlive the block."""
    with pytest.raises(ZeroDivisionError), children([lambda: None] * 2):
        raise ZeroDivisionError


@pytest.mark.parametrize(("size", "producers"), [(64, 1), (1024, 2)])
def test_messages_have_their_size_and_their_share(size: int, producers: int) -> None:
    """Each producer sends its part of the count, in messages of the workload's size."""
    seen: list[tuple[int, int, int]] = []

    def carry(message: bytes, many: int, each: int) -> int:
        seen.append((len(message), many, each))
        return 1_000_000

    found = drives(carry)[name_of(size, producers)](100)

    assert [(size, producers, 100 // producers)] == seen
    assert 100.0 == found["value"]


def test_the_gate_with_a_lock_is_a_gate() -> None:
    """The peer refuses and closes as ours does, or it would be too cheap a peer."""
    gate = LockGate()
    with gate:
        assert 1 == gate.inside
        gate._phase = "draining"
        with pytest.raises(RuntimeError, match="not running"):
            gate.__enter__()

    assert (0, "closed") == (gate.inside, gate._phase)


def test_a_wrong_result_is_an_error() -> None:
    """Equal passes, different raises."""
    check(1, 1)
    with pytest.raises(WrongResultError, match="wanted 1, found 2"):
        check(1, 2)


def test_a_worker_answers_errors_and_lives_on() -> None:
    """A question it cannot do comes back as an error; the next one is answered."""
    process = Process("lock-gate", [sys.executable, "-m", "bench.shm.worker", "bench.shm.lines.lock_gate", "lock"])
    try:
        wrong, right = process.ask("lanes-64-1", 10), process.ask("with", 10)
    finally:
        process.close()

    assert "KeyError: 'lanes-64-1'" == wrong["error"]
    assert right["value"] > 0


def test_the_c_loop_ends_right(tmp_path: Path) -> None:
    """The program checks its own answers; a wrong call is refused."""
    if shutil.which("cc") is None and shutil.which("gcc") is None and shutil.which("clang") is None:
        pytest.skip("SKIPPED: no C compiler; the C loop of the benchmarks is NOT checked here")
    program, version = c_loop.compiled(tmp_path)
    runs = [subprocess.run([program, *words], capture_output=True, text=True, check=False) for words in CALLS]

    assert [0, 0, 2] == [each.returncode for each in runs]
    assert all(float(each.stdout) > 0 for each in runs[:2])
    assert version


CALLS: list[list[str]] = [["gate", "1000"], ["life", "1000"], []]


@pytest.mark.slow
def test_a_quick_run_measures_interlock_beside_the_standard_library(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Real processes, tiny sizes: every workload has an answer and every answer was right."""
    names = "shm,interlock,lock-gate,pipe,queue,threadsafe,executor"
    page = tmp_path / "page.md"

    assert 0 == main(["--quick", "--only", names, "--results", str(tmp_path), "--page", str(page), "--judge"])
    assert not page.exists()

    (kept,) = tmp_path.glob("*-shm-partial.json")
    run = results.read(kept)
    errors = {f"{workload} {key}": each.error for workload, row in run.figures.items() for key, each in row.items()}

    assert {} == {name: error for name, error in errors.items() if error is not None}
    assert list(WORKLOADS) == list(run.figures)
    assert {"interlock-lanes", "pipe", "queue"} == set(run.figures["lanes-1024-2"])
    assert report.text(run).strip() == capsys.readouterr().out.strip()

"""The shared-memory part of the benchmarks: verdicts, tables, choices, and a quick run with real processes."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from bench.measure import PeerUnavailableError, Process
from bench.run import is_missed, main, parts, sections
from bench.shm import report, results, suite
from bench.shm.goals import FALLBACKS, LANES, verdicts
from bench.shm.line import WrongResultError, check, children
from bench.shm.lines import c_loop
from bench.shm.lines.lock_gate import LockGate
from bench.shm.lines.queues import drives, name_of
from bench.shm.measure import COMMANDS, FULL, QUICK, SHORTER, WORKLOADS, driven, started
from bench.shm.results import Figure
from tests.unit.bench.shm_runs import FIGURES, good_run

# Goals


def test_bars_are_met_exactly() -> None:
    """A figure on the bar passes, and nothing is left unjudged."""
    judged = verdicts(good_run())

    assert [] == [each.goal for each in judged if each.met is not True]
    assert not is_missed(good_run())


@pytest.mark.parametrize(
    ("workload", "key", "value", "goal"),
    [
        ("pair", "interlock-lifecycle-bare", 50.1, "enter and exit, lifecycle, to the C loop"),
        ("pair", "interlock-gate-bare", 50.1, "enter and exit, gate, to the C loop"),
        ("pair", "atomicshm", 45.0, "enter and exit, gate, to two operations of atomicshm"),
        ("with", "interlock-lifecycle", 35.1, "`with` permit, lifecycle, to a gate with threading.Lock"),
        ("with", "interlock-gate", 35.1, "`with` permit, gate, to a gate with threading.Lock"),
        ("wake", "threadsafe", 24.9, "process to event loop, p50, to call_soon_threadsafe"),
        ("wake", "threadsafe-task", 29.9, "the same, to call_soon_threadsafe with a task behind it"),
        ("wake", "executor-queue", 99.0, "the same, to Queue.get in an executor"),
        ("callback", "interlock-callback", 1_001.0, "CPU of the longest callback under saturation, to its budget"),
        ("operations", "interlock-mutex", 2.01, "an operation of the fallback mutex"),
        ("operations", "raw-flock", 0.99, "an operation of the fallback flock, to its two system calls"),
        *[(each, "queue", 201.0, "lanes to queue, on the worst of sizes and producers") for each in LANES],
        *[(each, "faster-fifo", 601.0, "lanes to faster fifo, on the worst of sizes and producers") for each in LANES],
        *[(each, "pipe", 1_501.0, "lanes to pipe, on the worst of sizes and producers") for each in LANES],
    ],
)
def test_a_figure_beyond_its_bar_is_a_miss(workload: str, key: str, value: float, goal: str) -> None:
    """One bad figure makes its goal a miss, in whichever workload it stands."""
    run = good_run()
    run.figures[workload][key].samples = [value] * 3

    assert goal in [each.goal for each in verdicts(run) if each.met is False]
    assert is_missed(run)


def test_ratios_are_taken_round_by_round() -> None:
    """A slow spell that hit both in one round does not move the ratio."""
    run = good_run()
    run.figures["with"]["interlock-gate"].samples = [30.0, 300.0, 30.0]
    run.figures["with"]["lock-gate"].samples = [100.0, 1_000.0, 100.0]

    assert 0.3 == run.ratio("with", "interlock-gate", "lock-gate")


def test_a_slow_spell_of_one_line_spoils_a_round_and_not_the_ratio() -> None:
    """Of many short rounds it hits a few; of five long ones it would hit one, and drag the others along."""
    run = good_run()
    run.figures["wake"]["interlock-inbox"].samples = [22.0] * 30 + [66.0] * 10
    run.figures["wake"]["threadsafe"].samples = [20.0] * 40

    assert 1.1 == run.ratio("wake", "interlock-inbox", "threadsafe")


@pytest.mark.parametrize("key", ["atomicshm", "faster-fifo", "c-gate", "interlock-flock", "interlock-callback"])
def test_what_was_left_out_is_not_a_pass(key: str) -> None:
    """Its goals are not measured, say why, and a whole run is not met; a partial one asked for no more."""
    run = good_run()
    for row in run.figures.values():
        row.pop(key, None)
    run.left_out[key] = "ModuleNotFoundError: not here"
    unjudged = [each for each in verdicts(run) if each.met is None]

    assert unjudged
    assert {"ModuleNotFoundError: not here"} == {each.figure for each in unjudged}
    assert is_missed(run)

    run.partial = True

    assert not is_missed(run)


def test_a_line_that_failed_is_not_measured() -> None:
    """The verdict says how it failed."""
    run = good_run()
    run.figures["operations"]["interlock-mutex"] = Figure(count=1, error="OSError: boom")
    (unjudged,) = [each for each in verdicts(run) if each.met is None]

    assert ("an operation of the fallback mutex", "OSError: boom") == (unjudged.goal, unjudged.figure)


def test_a_quick_run_is_not_judged() -> None:
    """Its sizes say nothing."""
    run = good_run()
    run.quick = True

    assert [] == verdicts(run)


# Tables


def test_a_run_survives_its_file(tmp_path: Path) -> None:
    """What was kept is what was measured; a quick or partial one never stands for a whole."""
    run, quick, partial = good_run(), good_run(), good_run()
    run.figures["wake"]["interlock-inbox"].beside = {"p99": [80.0, 90.0, 100.0]}
    quick.date, quick.quick = "2026-02-01", True
    partial.date, partial.partial = "2026-02-02", True

    assert results.newest(tmp_path) is None

    for each in (partial, quick):
        results.write(each, tmp_path)

    assert results.newest(tmp_path) is None
    assert run == results.read(results.write(run, tmp_path))
    assert "2026-01-31-shm.json" == getattr(results.newest(tmp_path), "name", None)


def test_the_page_has_every_workload_with_unit_and_spread(tmp_path: Path) -> None:
    """The section holds verdicts and a table for each workload; the page is written from the kept run."""
    run = good_run()
    run.figures["wake"]["interlock-inbox"] = Figure(count=500, samples=[31.0, 29.0, 30.0], beside={"p99": [90.0] * 3})
    results.write(run, tmp_path)
    page = "\n".join(sections(tmp_path))

    assert "## Shared memory" in page
    assert all(f"### {report.TITLES[each][0]}" in page for each in WORKLOADS)
    assert "|  | p50 us | spread | p99 us | in a round |" in page
    assert "| interlock inbox 1.0 | 30.0 | 29.0..31.0 | 90.0 | 500 |" in page
    assert "| threadsafe 1.0 | 25.0 | 25.0..25.0 |  | 100 |" in page
    assert "| `with` permit, gate, to a gate with threading.Lock | <= 0.35x | 0.35x (35.0 to 100.0 ns) | pass |" in page


def test_the_rounds_are_told() -> None:
    """Those of all, and of the workloads that had more."""
    run = good_run()

    assert "Median of 3 rounds." in report.facts(run)

    run.figures["wake"]["threadsafe"].samples *= 8

    assert "Median of 3 rounds, of wake 24." in report.facts(run)


def test_a_failure_stands_in_its_line() -> None:
    """A wrong result is not a time."""
    run = good_run()
    run.figures["with"]["lock-gate"] = Figure(count=5, error="WrongResultError: wanted 0, found 1")

    assert "FAILED: WrongResultError: wanted 0, found 1" in report.text(run)


def test_what_was_left_out_is_told() -> None:
    """Loudly enough to be read."""
    run = good_run()
    run.left_out["c-gate"] = "no C compiler here"

    assert "Left out: c-gate (no C compiler here)." in report.text(run)


# Choices


def test_only_shm_chooses_the_part() -> None:
    """Further names narrow it, and stand for all that begin with them."""
    assert {"shm": []} == parts("shm")
    assert {"shm": ["lanes", "pipe"]} == parts("shm, lanes,pipe")
    assert (list(WORKLOADS), list(COMMANDS)) == suite.chosen([])
    assert (list(LANES), ["pipe"]) == suite.chosen(["lanes", "pipe"])
    assert (list(WORKLOADS), ["atomicshm", "atomicshm-add"]) == suite.chosen(["atomicshm"])


def test_an_unknown_name_ends_the_run_before_it_begins() -> None:
    """The error lists what there is."""
    with pytest.raises(SystemExit, match="nothing of shared memory is named 'lane5'; there are pair, with"):
        suite.chosen(["lane5"])


def test_every_workload_has_a_title_and_every_goal_its_lines() -> None:
    """Nothing is judged that nobody measures."""
    assert list(WORKLOADS) == list(report.TITLES)
    assert set(COMMANDS) == {key for row in FIGURES.values() for key in row}
    assert {f"interlock-{mode}" for mode in FALLBACKS} <= set(COMMANDS)
    assert all(COMMANDS[key].count(workload) > 0 for workload, row in FIGURES.items() for key in row)


@pytest.mark.parametrize("workload", WORKLOADS)
def test_rounds_may_be_shorter_but_then_there_are_more(workload: str) -> None:
    """No line does less of a workload for it, all do as much as each other, and one repeat asked for is still many."""
    keys = list(FIGURES[workload])
    plain = [FULL.rounds * COMMANDS[key].count(workload) for key in keys]
    times = SHORTER.get(workload, 1)

    assert plain == [FULL.rounds_of(workload) * FULL.count(key, workload) for key in keys]
    assert (times * FULL.rounds, times) == (FULL.rounds_of(workload), replace(FULL, rounds=1).rounds_of(workload))
    assert all(QUICK.count(key, workload) >= 10 for key in keys)


def test_every_line_is_asked_once_in_each_short_round() -> None:
    """In turn, after a round that warms up; every answer but that one is kept."""
    asked: list[tuple[str, int]] = []

    class Asked:
        line = good_run().lines["threadsafe"].__class__(name="", version="", workloads=["wake"])

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


# Processes


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
        line = good_run().lines["pipe"].__class__(name="pipe", version="1", workloads=["lanes-64-1"])
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

"""One quick run per suite from end to end: real processes, tiny sizes, no check of speed."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import report, results
from bench.inprocess import suite as inprocess
from bench.measure import Measurement, Process
from bench.run import SUITES, main

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (
            "interlock",
            {
                "W1": {"hand-written", "interlock-inner", "interlock-step"},
                "W7": {"hand-written", "interlock-bare", "interlock-step"},
                "W9": {"hand-written", "interlock-bare", "interlock-step"},
                "W12": {"interlock-fold"},
                "imports": set(inprocess.IMPORTS),
            },
        ),
        (
            "durable,raw-sqlite,interlock-sqlite,recovery-sqlite,scale",
            {
                "fleet": {"raw-sqlite", "raw-sqlite-group", "interlock-sqlite", "interlock-sqlite-each"},
                "demo": {"interlock-sqlite"},
                "effects": {"interlock-sqlite"},
                "recovery": {"recovery-sqlite"},
                "scale": {"scale-100", "scale-300"},
            },
        ),
        (
            "shm,interlock,lock-gate,pipe,queue,threadsafe,executor",
            {"rings-1024-2": {"interlock-rings", "pipe", "queue"}, "pair": {"interlock-gate", "interlock-lifecycle"}},
        ),
        ("timers,2000", {"timers": {"2000"}}),
        ("wakeups,sqlite,files", {"wakeups": {"sqlite", "files"}}),
        ("evolve,sqlite,files", {"revisions": {"sqlite", "files"}, "moves": {"sqlite", "files"}}),
        ("finding,sqlite,files", {"finding": {"sqlite", "files"}}),
        ("metrics,memory,sqlite", {"metrics": {"memory", "sqlite"}}),
        ("http", {"http": {"hello", "serve", "minute"}, "kill": {"kill"}}),
        ("traces,log,spans", {"traces": {"log", "spans"}}),
        ("pages,2000", {"pages": {"entity", "work"}}),
    ],
)
def test_a_quick_run_measures(
    names: str, expected: dict[str, set[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every expected line has samples, every answer was right, and the run is stored and printed."""
    page = tmp_path / "page.md"
    arguments = ["--quick", "--rounds", "1", "--only", names, "--results", str(tmp_path), "--page", str(page)]

    assert 0 == main([*arguments, "--judge"])

    (path,) = tmp_path.glob("*.json")
    run = results.read(path)
    errors = {f"{workload} {key}": each.error for workload, row in run.figures.items() for key, each in row.items()}
    printed = report.text(SUITES[run.suite], run)
    assert {} == {name: error for name, error in errors.items() if error is not None}
    assert {} == run.left_out
    assert {} == {
        workload: missing for workload, keys in expected.items() if (missing := keys - set(run.figures[workload]))
    }
    assert printed.strip() == capsys.readouterr().out.strip()
    assert not page.exists()


def test_a_library_that_cannot_start_is_left_out_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One that is not installed, or ends immediately, does not affect the others."""
    monkeypatch.setitem(inprocess.COMMANDS, "missing", ("no_such_peer", "way"))
    measurement = Measurement(names=["missing", "hand-written-pure", "W1"], effort=inprocess.QUICK)
    inprocess.run(measurement)

    assert ["hand-written", "hand-written-pure"] == list(measurement.figures["W1"])
    reason = "ModuleNotFoundError: No module named 'bench.inprocess.peers.no_such_peer'"
    assert {"missing": reason} == measurement.left_out
    assert "LEFT OUT: missing" in capsys.readouterr().err


def test_without_node_its_libraries_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Node.js is optional."""
    monkeypatch.setattr("shutil.which", lambda name: None)
    measurement = Measurement(names=["scion", "W1"], effort=inprocess.QUICK)
    inprocess.run(measurement)

    assert {"scion": "Node.js is not installed"} == measurement.left_out


def test_a_wrong_answer_is_a_failure_not_a_time() -> None:
    """A question that the line cannot answer correctly is an error, and the process continues."""
    process = Process(inprocess.command("hand-written"))
    try:
        wrong = process.ask("W2", 15)  # not a whole cycle: ten events are sent, fifteen were asked for
        right = process.ask("W2", 20)
    finally:
        process.close()

    assert wrong["error"].startswith("WrongResultError")
    assert right["ns"] > 0

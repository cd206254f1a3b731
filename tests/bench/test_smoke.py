"""A quick run from end to end: real processes, tiny sizes, no judgement of speed."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import measure, report, results
from bench.run import main

pytestmark = pytest.mark.slow


def test_a_quick_run_measures_every_way_of_interlock(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """All workloads by hand and by interlock end in the right place, and the run is kept with all its samples."""
    page = tmp_path / "page.md"
    arguments = ["--quick", "--repeats", "1", "--only", "interlock", "--results", str(tmp_path), "--page", str(page)]

    assert 0 == main([*arguments, "--judge"])
    assert not page.exists()

    (kept,) = tmp_path.glob("*-partial.json")
    run = results.read(kept)
    errors = {f"{workload} {key}": each.error for workload, row in run.figures.items() for key, each in row.items()}

    assert {} == {name: error for name, error in errors.items() if error is not None}
    assert {"hand-written", "interlock-inner", "interlock-step"} <= set(run.figures["W1"])
    assert run.memory is not None
    assert set(measure.IMPORTS) == set(run.imports)
    assert report.text(run).strip() == capsys.readouterr().out.strip()


def test_a_peer_that_cannot_start_is_left_out_loudly(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One that is not installed, or ends at once, leaves the others alone; the reason is told."""
    monkeypatch.setitem(measure.COMMANDS, "missing", ("no_such_peer", "way"))
    running, left_out = measure.started(["missing", "hand-written-pure"])
    for process in running.values():
        process.close()

    assert ["hand-written-pure"] == list(running)
    assert "ModuleNotFoundError: No module named 'bench.peers.no_such_peer'" == left_out["missing"]
    assert "LEFT OUT: missing" in capsys.readouterr().err


def test_without_node_its_peers_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Node.js is optional."""
    monkeypatch.setattr("shutil.which", lambda name: None)

    assert ({}, {"scion": "no Node.js here"}) == measure.started(["scion"])


def test_a_wrong_answer_is_a_failure_not_a_time() -> None:
    """A question that the peer cannot do right comes back as an error, and the process lives on."""
    process = measure.Process("hand-written")
    try:
        wrong = process.ask("W2", 15)  # not a whole cycle: one is driven, fifteen were asked for
        right = process.ask("W2", 20)
    finally:
        process.close()

    assert wrong["error"].startswith("WrongResultError: wanted ('draft', 15, 'REOPEN')")
    assert right["ns"] > 0

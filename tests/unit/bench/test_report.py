"""What is printed and written: every figure with its spread, and no quick run that looks like a real one."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import msgspec
import pytest

from bench import report, results
from bench.goals import verdicts
from bench.results import Figure
from bench.run import chosen, main
from bench.workloads import WORKLOADS, WrongResultError, check_regions, check_toggle, fitting
from tests.unit.bench.runs import figure, good_run


def test_a_run_survives_its_file(tmp_path: Path) -> None:
    """What was kept is what was measured, every sample of it."""
    run = good_run()

    assert run == results.read(results.write(run, tmp_path))


def test_a_whole_run_outranks_a_later_quick_one(tmp_path: Path) -> None:
    """The page shows the newest whole run; a partial one never."""
    whole, older, quick, partial = good_run(), good_run(), good_run(), good_run()
    older.date, quick.date, quick.quick = "2025-12-31", "2026-02-01", True
    partial.date, partial.partial = "2026-02-02", True
    for run in (partial, quick):
        results.write(run, tmp_path)

    assert "2026-02-01-inprocess-quick.json" == getattr(results.newest(tmp_path), "name", None)

    for run in (whole, older):
        results.write(run, tmp_path)

    assert "2026-01-31-inprocess.json" == getattr(results.newest(tmp_path), "name", None)


def test_the_page_gives_verdicts_ratios_and_spread() -> None:
    """Median, low and high, ratio to hand-written, and the verdict of each goal."""
    run = good_run()
    run.figures["W1"]["interlock-inner"].samples = [150.0, 200.0, 300.0]
    page = report.page(run)

    assert "| W1: inner step to hand-written | <= 2x | 2.00x (public step 3.49x) | pass |" in page
    assert "| interlock inner | 200 | 150..300 | 2.0x | 1,000,000 |" in page
    assert "quick run" not in page


def test_a_quick_page_says_so_and_judges_nothing() -> None:
    """Nobody may quote it by mistake."""
    run = good_run()
    run.quick = True
    page = report.page(run)

    assert "**This is a quick run**" in page
    assert "## Goals" not in page
    assert "nothing was judged" in report.text(run)


def test_a_busy_machine_is_named() -> None:
    """Figures of a busy machine carry their warning wherever they go."""
    run = good_run()
    run.machine = msgspec.structs.replace(run.machine, load_before=1.5)

    assert "The machine was busy (load 1.5 on 2 processors" in report.text(run)
    assert "**The machine was busy**" in report.page(run)


def test_a_line_that_failed_says_why() -> None:
    """A wrong result stands in the table in place of a time."""
    run = good_run()
    run.figures["W2"]["sismic"] = Figure(error="wanted 10, found 9")
    run.left_out = {"scion": "no Node.js here"}

    assert "FAILED: wanted 10, found 9" in report.text(run)
    assert "Left out: scion (no Node.js here)." in report.page(run)


def test_a_summary_counts_the_verdicts() -> None:
    """The last line of the output is the one to look at."""
    run = good_run()
    run.figures["W5"]["interlock-step"] = figure(9_000, bytes=100)
    run.memory = None

    assert report.text(run).endswith(f"\nbench: {len(verdicts(run)) - 2} pass, 1 MISS, 1 not measured\n")


def test_counts_fit_the_checks() -> None:
    """Whole cycles, and odd where a peer that never moves would otherwise pass."""
    assert {"W1": 99, "W2": 100, "W3": 96, "W4": 99, "W5": 100, "W6": 100} == {
        each: fitting(each, 100) for each in WORKLOADS
    }
    assert {"W1": 1, "W2": 10, "W3": 6} == {each: fitting(each, 0) for each in ("W1", "W2", "W3")}


def test_a_peer_that_never_moves_is_caught() -> None:
    """The check after every repeat is what makes the figures mean something."""
    with pytest.raises(WrongResultError, match="wanted 'on', found 'off'"):
        check_toggle("off", fitting("W1", 100))
    with pytest.raises(WrongResultError):
        check_regions(["on", "on", "on", "off"], fitting("W4", 100))


def test_only_takes_workloads_and_implementations() -> None:
    """A name stands for all that begin with it; the base of every ratio is always there."""
    assert (["W2"], ["hand-written", "sismic"]) == chosen("sismic,W2")
    assert (list(WORKLOADS), ["hand-written", "xstate-statemachine", "xstate-actor", "xstate-pure"]) == chosen("xstate")
    with pytest.raises(SystemExit, match="no workload or implementation 'W9'"):
        chosen("W9")


def test_a_page_needs_results(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without any run there is nothing to write, and the exit code says so."""
    page = tmp_path / "page.md"

    assert 2 == main(["--page-only", "--results", str(tmp_path), "--page", str(page)])
    assert not page.exists()

    results.write(good_run(), tmp_path)

    assert 0 == main(["--page-only", "--results", str(tmp_path), "--page", str(page)])
    assert page.read_text(encoding="utf-8") == report.page(good_run())
    assert "no results" in capsys.readouterr().err


def test_effort_is_a_value() -> None:
    """`--repeats` changes the number of samples and nothing else."""
    from bench.measure import FULL

    assert 5 == FULL.repeats
    assert FULL == dataclasses.replace(dataclasses.replace(FULL, repeats=9), repeats=5)

"""The timers part of the benchmark: its goals, its table, its choices, and what it does when a part fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.results import Machine
from bench.run import is_missed, main, parts
from bench.timers import report, results, suite
from bench.timers.goals import verdicts
from bench.timers.results import Firing, TimersRun, shares


def firing(**changes: float) -> Firing:
    """A firing exactly at the bars."""
    late = {"0.5": changes.pop("p50", 50.0), "0.9": 80.0, "0.99": changes.pop("p99", 500.0), "1.0": 900.0}
    sizes = {"entities": 100_000, "timers": 1_000_000, "resident_after_mb": 256.0} | changes
    return Firing(
        entities=int(sizes["entities"]),
        timers=int(sizes["timers"]),
        due=6_000,
        per_second=200,
        fill_s=40.0,
        megabytes=500.0,
        resident_before_mb=40.0,
        resident_after_mb=sizes["resident_after_mb"],
        cpu_us=900.0,
        late_ms=late,
    )


def run_of(*firings: Firing, quick: bool = False) -> TimersRun:
    """A whole run."""
    machine = Machine(
        system="Linux", architecture="x86_64", processors=2, memory_gib=8.0, load_before=0.1, load_after=0.2
    )
    return TimersRun(
        date="2026-11-16",
        quick=quick,
        partial=False,
        python="3.11.7",
        commit="abc",
        file_system="ext4",
        machine=machine,
        left_out={},
        firings=list(firings),
    )


def test_a_run_at_the_bars_passes_every_goal() -> None:
    """A bar is met by its own value."""
    assert ["pass"] * 3 == [each.word for each in verdicts(run_of(firing()))]
    assert not is_missed(run_of(firing()))


@pytest.mark.parametrize("change", [{"p50": 50.1}, {"p99": 500.1}, {"resident_after_mb": 256.1}])
def test_each_goal_can_be_missed(change: dict[str, float]) -> None:
    """By a little more than its bar."""
    run = run_of(firing(**change))

    assert 1 == sum(each.met is False for each in verdicts(run))
    assert is_missed(run)


@pytest.mark.parametrize("change", [{"timers": 999_999}, {"entities": 99_999}])
def test_a_small_file_says_nothing_about_a_million_timers(change: dict[str, float]) -> None:
    """What was not measured is not a pass."""
    run = run_of(firing(**change))

    assert {None} == {each.met for each in verdicts(run)}
    assert is_missed(run)
    assert [] == verdicts(run_of(firing(), quick=True))


def test_the_latenesses_that_are_kept_are_those_of_the_samples() -> None:
    """The last share is the worst of all."""
    assert {"0.5": 50, "0.9": 90, "0.99": 99, "1.0": 99} == shares([float(each) for each in reversed(range(100))])
    assert {7.0} == set(shares([7.0]).values())


def test_a_run_comes_back_as_it_was_kept(tmp_path: Path) -> None:
    """And a quick or partial one never stands for a whole."""
    whole, quick = run_of(firing()), run_of(firing(), quick=True)
    paths = [results.write(each, tmp_path) for each in (whole, quick)]

    assert whole == results.read(paths[0])
    assert paths[0] == results.newest(tmp_path)
    assert ["2026-11-16-timers.json", "2026-11-16-timers-quick.json"] == [each.name for each in paths]


def test_the_table_shows_every_size() -> None:
    """In the text and on the page."""
    run = run_of(firing(timers=10_000, entities=1_000), firing())

    assert ["pending timers", "10,000", "1,000,000"] == [row[0] for row in report.table(run)]
    assert "| 1,000,000 | 100,000 |" in "\n".join(report.section(run))
    assert "bench: 3 pass, 0 MISS, 0 not measured" in report.text(run)


def test_only_chooses_the_part_and_its_sizes() -> None:
    """A name of no size ends the run before anything is filled."""
    assert {"timers": []} == parts("timers")
    assert {"timers": ["1000000"]} == parts("timers, 1000000")
    with pytest.raises(SystemExit, match="no size '7' of timers"):
        suite.measured(["7"], quick=False, commit="", computer=lambda: run_of().machine)


def test_a_size_that_fails_is_left_out_loudly(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its last words are kept, without the machine's folders."""
    left_out: dict[str, str] = {}
    size = suite.Size(entities=1, timers_each=1, due=0, per_second=1)

    assert None is suite._fired(str(tmp_path), size, left_out)
    assert "ZeroDivisionError" in left_out["1"]
    assert "FAILED: timers" in capsys.readouterr().err


def test_a_quick_run_fires_real_timers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In a process of its own, on a real file; nothing is judged."""
    page = tmp_path / "page.md"

    assert 0 == main(["--quick", "--only", "timers", "--results", str(tmp_path), "--page", str(page)])

    (kept,) = tmp_path.glob("*-timers-quick.json")
    (found,) = results.read(kept).firings
    assert (200, 2_000, 100) == (found.entities, found.timers, found.due)
    assert "nothing was judged" in capsys.readouterr().out

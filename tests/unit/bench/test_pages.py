"""The pages part of the benchmark: its goal, its table, its choices, and what it does when a part fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.fleet import report, results, suite
from bench.fleet.goals import verdicts
from bench.fleet.results import Fleet, PagesRun
from bench.http.servers import ServerFailedError
from bench.results import Machine
from bench.run import is_missed, main, parts


def run_of(*fleets: Fleet, quick: bool = False, partial: bool = False) -> PagesRun:
    """A whole run."""
    machine = Machine(
        system="Linux", architecture="x86_64", processors=2, memory_gib=8.0, load_before=0.1, load_after=0.2
    )
    return PagesRun(
        date="2026-11-16",
        quick=quick,
        partial=partial,
        python="3.11.7",
        commit="abc",
        file_system="ext4",
        machine=machine,
        left_out={},
        fleets=list(fleets),
    )


def fleet(*taken: float, entities: int = 10_000_000) -> Fleet:
    """A fleet whose list took so many milliseconds."""
    return Fleet(entities=entities, fill_s=900.0, gigabytes=14.3, pages={"fleet": [1.0], "list": list(taken)})


def test_a_run_at_the_bar_passes() -> None:
    """A bar is met by its own value; the first time counts."""
    assert ["pass"] == [each.word for each in verdicts(run_of(fleet(100.0, 2.0)))]
    assert ["MISS"] == [each.word for each in verdicts(run_of(fleet(100.1, 2.0, 2.0)))]
    assert is_missed(run_of(fleet(100.1)))


def test_a_small_fleet_says_nothing_about_ten_million() -> None:
    """What was not measured is not a pass."""
    small = fleet(1.0, entities=9_999_999)

    assert [None] == [each.met for each in verdicts(run_of(small))]
    assert (True, False) == (is_missed(run_of(small)), is_missed(run_of(small, partial=True)))
    assert [] == verdicts(run_of(fleet(500.0), quick=True))


def test_the_table_shows_sizes_beside_each_other() -> None:
    """The median and the most; a question that only one size was asked is empty in the other."""
    other = Fleet(entities=100_000, fill_s=9.0, gigabytes=0.1, pages={"fleet": [3.0, 1.0, 2.0]})
    rows = report.table(run_of(other, fleet(4.0, 6.0)))

    assert [
        ("", "100,000 entities", "10,000,000 entities"),
        ("fleet", "2.0 (3.0)", "1.0 (1.0)"),
        ("list", "", "5.0 (6.0)"),
    ] == rows
    assert "1 pass, 0 MISS, 0 not measured" in report.text(run_of(other, fleet(4.0)))
    assert "a quick run; nothing was judged" in report.text(run_of(fleet(4.0), quick=True))
    assert "10,000,000 entities: 14.3 GB, written in 900 s." in "\n".join(report.section(run_of(fleet(4.0))))


def test_a_run_comes_back_from_its_file(tmp_path: Path) -> None:
    """A partial one never stands for a whole."""
    results.write(run_of(fleet(4.0), partial=True), tmp_path)

    assert results.newest(tmp_path) is None
    assert run_of(fleet(4.0)) == results.read(results.write(run_of(fleet(4.0)), tmp_path))


def test_a_size_that_is_none_is_refused() -> None:
    """With those that there are."""
    assert {"pages": ["7"]} == parts("pages,7")
    with pytest.raises(SystemExit, match="there is no size '7' of pages; there are 100000, 10000000"):
        main(["--only", "pages,7"])


def test_a_disk_without_room_leaves_it_out_loudly(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before anything is written."""
    monkeypatch.setattr(suite, "BYTES_EACH", 2**60)
    run = suite.measured([], quick=True, commit="abc", computer=lambda: run_of().machine)

    assert ([], ["2,000 entities"]) == (run.fleets, list(run.left_out))
    assert "GB are free" in run.left_out["2,000 entities"]
    assert "FAILED: pages: " in capsys.readouterr().err


@pytest.mark.slow
def test_every_question_is_answered_and_a_wrong_one_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a small store that stays where it was; a question that the console does not know fails the size."""
    monkeypatch.setattr(suite, "FULL", (300,))
    monkeypatch.setattr(suite, "TIMES", 2)
    suite._fill(tmp_path / "fleet.db", 300)
    monkeypatch.setenv("BENCH_FLEET", str(tmp_path / "fleet.db"))
    run = suite.measured([], quick=False, commit="abc", computer=lambda: run_of().machine)
    monkeypatch.setattr(suite, "questions", lambda _: {"nothing": "/api/v1/nothing"})

    assert ({}, 300) == (run.left_out, run.fleets[0].entities)
    assert {2} == {len(each) for each in run.fleets[0].pages.values()}
    assert (tmp_path / "fleet.db").exists()
    with pytest.raises(ServerFailedError, match="/api/v1/nothing answered 404"):
        suite._measured(300)

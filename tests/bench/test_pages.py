"""The pages part of the benchmark: its goal, its table, its choices, and what it does when a part fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.fleet import suite
from bench.fleet.results import Fleet, PagesRun
from bench.http.servers import ServerFailedError
from bench.results import Machine


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

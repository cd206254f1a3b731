"""The timers part of the benchmark: its goals, its table, its choices, and what it does when a part fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.run import main
from bench.timers import results, suite


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

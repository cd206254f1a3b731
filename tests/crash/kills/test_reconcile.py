"""The process that runs a reconciler is killed: another one continues, and the entity gets one answer."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import interlock
from tests.crash.kills.reconcile_runner import chart

ROOT = Path(__file__).resolve().parents[3]


@contextmanager
def runner(url: str, notes: Path, mode: str) -> Iterator[subprocess.Popen[str]]:
    """Start a process that runs the reconciler, wait until its store is open, and kill it at the end."""
    command = [sys.executable, "-m", "tests.crash.kills.reconcile_runner", url, str(notes), mode]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert "open" == heard(process)
            yield process
        finally:
            process.kill()


def heard(process: subprocess.Popen[str]) -> str:
    """Return the next line of a process; empty if it has ended."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_another_process_continues_when_the_runner_is_killed(tmp_path: Path) -> None:
    """It was asked, and hung; once it is dead its lease lapses, and the other is asked and answers."""
    url, notes = f"sqlite:///{tmp_path}/orders.db", tmp_path / "notes"
    with interlock.open(url, charts=[chart(notes, answers=True)], work=False).blocking() as orders:
        orders.create("order/1")
        with runner(url, notes, "hang") as first:
            assert "asked" == heard(first)
            with runner(url, notes, "answer") as second:
                first.kill()

                assert ["asked", "_reconcile/stuck/1 charged"] == [heard(second), heard(second)]
        assert 2 == orders.state("order/1").version
    assert {str(first.pid), str(second.pid)} == set(notes.read_text(encoding="ascii").split())

"""The lines of the shared-memory suite: their processes, their children, and the peers."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from bench.measure import PeerUnavailableError, Process
from bench.shm.line import WrongResultError, check, children
from bench.shm.lines import c_loop
from bench.shm.lines.lock_gate import LockGate
from bench.shm.lines.queues import drives, name_of
from bench.shm.suite import COMMANDS, command


def test_without_a_compiler_the_c_loop_is_left_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its reason says what is missing."""
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(PeerUnavailableError, match="no C compiler here"):
        c_loop.compiled(tmp_path)


def test_children_that_fail_fail_the_line() -> None:
    """A producer that ended badly makes no figure."""

    def broken() -> None:
        raise SystemExit(3)

    with pytest.raises(WrongResultError), children([broken]) as let_go:
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
    with pytest.raises(WrongResultError):
        check(1, 2)


def test_a_worker_answers_errors_and_lives_on() -> None:
    """A question it cannot do comes back as an error; the next one is answered."""
    process = Process(command(COMMANDS["lock-gate"]))
    try:
        wrong, right = process.ask("rings-64-1", 10), process.ask("with", 10)
    finally:
        process.close()

    assert "KeyError: 'rings-64-1'" == wrong["error"]
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

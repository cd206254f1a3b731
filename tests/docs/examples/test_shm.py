"""The examples of the shared memory run, and say what their documentation says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.eventually import PATIENCE_SECONDS

ROOT = Path(__file__).parents[3]

EXPECTED = {
    "worker_service.py": """\
3 workers at work
a worker was killed; another has its place
enough was read: True; alarms were heard: True
drained: closed=True, still inside: 0
""",
    "task_scheduler.py": """\
60 tasks, each found 2262 primes below 20000
urgent tasks ended before the others: True
an error comes back: ValueError: no such task: nonsense
a crash is contained: the task was abandoned: 3 workers died while running it
and the pool goes on: 25 primes below 100
drained: every task has ended, no worker is left
""",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_an_example_says_what_it_promises(name: str, tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    environment = {**os.environ, "INTERLOCK_RUNTIME_DIR": str(tmp_path)}
    command = [sys.executable, "-W", "error", str(ROOT / "examples" / name)]
    ended = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=PATIENCE_SECONDS, env=environment
    )

    assert (EXPECTED[name], "", 0) == (ended.stdout, ended.stderr, ended.returncode)
    assert [] == list(tmp_path.iterdir())

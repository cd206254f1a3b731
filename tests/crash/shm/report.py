"""Prints the results of the kill storms of shared memory, as one table.

Usage: python -m tests.crash.shm.report [KILLS] [SEED]
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.crash.shm.storm import Outcome
from tests.processes.shm.queues import working_modes
from tests.support.eventually import PATIENCE_SECONDS

ROOT = Path(__file__).parents[3]
STORMS = ("lifecycle", "reclaim", "rings", "deque", "task_table", "pool")
MODES = ("native", "flock")
SHARE = {"lifecycle": 0.2, "reclaim": 0.04, "rings": 0.4, "deque": 0.15, "task_table": 0.23, "pool": 0.02}
"""Of all kills in the C core; a fallback gets a tenth of that. A worker of the pool is a whole interpreter."""

BATCH = 500
"""Kills of one storm: each has a fresh region, and an end that is checked."""


def run_storm(name: str, *, mode: str, kills: int, seed: int, mutant: str = "") -> Outcome:
    """Run one storm in its own process and mode, with a faulty queue if one is named. Returns its outcome."""
    environment = {**os.environ, "INTERLOCK_SHM": mode, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    command = [sys.executable, "-m", f"tests.crash.shm.{name}", str(kills), str(seed), *([mutant] if mutant else [])]
    ended = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env=environment,
        timeout=PATIENCE_SECONDS + 2 * kills,
    )
    if ended.returncode:
        return Outcome(name, notes=[f"seed {seed}: the storm failed: {ended.stderr[-500:]}"])
    outcome = Outcome(**json.loads(ended.stdout))
    if ended.stderr:
        outcome.note(ended.stderr[-500:])
    return outcome


def main(kills: int, seed: int) -> int:
    """Run every storm. Returns 1 if anything was lost, doubled, torn or unexpected."""
    print(f"seed {seed}\n{'storm':<26}{'mode':<11}{'kills':>7}{'inside':>8}{'work':>12}  lost  doubled  torn")
    total, bad = 0, 0
    for name in STORMS:
        for mode in MODES:
            if mode not in working_modes():
                print(f"{name:<26}{mode:<11}SKIPPED: does not work here")
                continue
            wanted = max(2, int(kills * SHARE[name] * (1.0 if mode == "native" else 0.1)))
            found = _row(name, mode, wanted, seed)
            total += found.kills
            bad += not found.clean
    print(f"{'all':<26}{'':<11}{total:>7}")
    return int(bool(bad))


def _row(name: str, mode: str, wanted: int, seed: int) -> Outcome:
    """Run storms of one kind and mode until there were enough kills, and print one line."""
    sum_of = Outcome(name)
    while sum_of.kills < wanted and len(sum_of.notes) < 5:
        seed += 1
        one = run_storm(name, mode=mode, kills=min(BATCH, wanted - sum_of.kills), seed=seed)
        sum_of.name = one.name
        for count in ("kills", "inside", "work", "lost", "doubled", "torn"):
            setattr(sum_of, count, getattr(sum_of, count) + getattr(one, count))
        sum_of.notes += one.notes
        sum_of.pidfd_us += one.pidfd_us
        sum_of.timer_us += one.timer_us
    counts = f"{sum_of.kills:>7,}{sum_of.inside:>8,}{sum_of.work:>12,}"
    print(
        f"{sum_of.name:<26}{mode:<11}{counts}  {sum_of.lost:>4}  {sum_of.doubled:>7}  {sum_of.torn:>4}"
        f"{'  ' + '; '.join(sum_of.notes) if sum_of.notes else ''}",
        flush=True,
    )
    for way, waits_us in (("by pidfd", sum_of.pidfd_us), ("by timer", sum_of.timer_us)):
        if waits_us:
            print(f"  {way + ', noticed after':<35}{_times(waits_us)}", flush=True)
    return sum_of


def _times(waits_us: list[int]) -> str:
    ordered = sorted(waits_us)
    named = (("p50", len(ordered) // 2), ("p99", len(ordered) * 99 // 100), ("max", len(ordered) - 1))
    return "  ".join(f"{name} {ordered[index] / 1e3:.1f} ms" for name, index in named)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 400, int(sys.argv[2]) if len(sys.argv) > 2 else 1))

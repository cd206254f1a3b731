"""Prints what the crash tests of the file store come to, as one table.

Usage: python -m tests.crash.report [KILLS]
"""

from __future__ import annotations

import logging
import os
import sys
import tempfile
from pathlib import Path

from tests.crash.mutants import INTERLEAVED, SWEPT
from tests.crash.rivals import SCENES, SEED
from tests.crash.storm import storm
from tests.crash.sweep import FAMILIES, Tally, swept, wanderings

WANDERINGS = 20


def main(kills: int) -> None:
    """Runs everything once."""
    logging.disable(logging.WARNING)  # snapshots fail on purpose here
    print(f"{'kind':<44}{'count':>18}  lost  doubled  other")
    for family in FAMILIES:
        _line(swept(family))
    wanted = int(os.environ.get("INTERLOCK_CRASH_STATES", "0"))
    total = Tally("random lives")
    seed = 0
    while seed < WANDERINGS or total.states < wanted:
        seed += 1
        tally = swept(wanderings(seed), seed=seed)
        total.states += tally.states
        total.found += tally.found
    _line(total)
    for name, scene in SCENES.items():
        result = scene.explored()
        note = "" if result.complete else " (not all)"
        print(f"{'schedules: ' + name + note:<44}{result.schedules:>18,}  {result.bad:>4}  {'':>7}")
    control = SEED.explored()
    print(f"{'schedules: compare and rename (control)':<44}{control.schedules:>18,}  {control.bad:>4}  must not be 0")
    _mutants()
    with tempfile.TemporaryDirectory() as folder:
        outcome = storm(Path(folder) / "store", kills=kills, seed=1)
    label = f"kill -9, 4 writers, {len(outcome.kept):,} receipts"
    print(f"{label:<44}{outcome.kills:>18,}  {len(outcome.lost):>4}  {len(outcome.doubled):>7}")


def _line(tally: Tally) -> None:
    lost, doubled = tally.count("lost"), tally.count("doubled")
    other = len(tally.found) - lost - doubled
    print(f"{'crash states: ' + tally.name:<44}{tally.states:>18,}  {lost:>4}  {doubled:>7}  {other:>5}")


def _mutants() -> None:
    found = []
    for name, mutant in SWEPT.items():
        with mutant.patched():
            if any(swept(each, processes=mutant.processes, stop_at_first=True).found for each in FAMILIES):
                found.append(name)
    for name, (mutant, scene) in INTERLEAVED.items():
        with mutant.patched():
            if SCENES[scene].explored(mutant.processes).bad:
                found.append(name)
    total = len(SWEPT) + len(INTERLEAVED)
    missed = sorted({*SWEPT, *INTERLEAVED} - set(found))
    print(f"{'faulty stores found out':<44}{f'{len(found)} of {total}':>18}  {', '.join(missed)}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 50)

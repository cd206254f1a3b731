"""SIGKILL at any time, in every mode: nothing is lost, doubled or torn. `make torture-shm` runs it longer."""

from __future__ import annotations

import pytest

from tests.crash.shm.mutants import MUTANTS
from tests.crash.shm.report import STORMS, run_storm
from tests.processes.shm.queues import working_modes

STORMS_MAX = 8
KILLS = {"rings": 40, "deque": 40, "task_table": 60, "lifecycle": 20, "reclaim": 8, "pool": 4}


@pytest.mark.slow
@pytest.mark.parametrize("mode", working_modes())
@pytest.mark.parametrize("name", STORMS)
def test_a_storm_of_kills_loses_nothing(name: str, mode: str) -> None:
    """Of a few storms at least one kills inside an operation."""
    kills = KILLS[name] if mode == "native" else KILLS[name] // 2
    inside = 0
    for seed in range(1, STORMS_MAX + 1):
        outcome = run_storm(name, mode=mode, kills=kills, seed=seed)
        inside += outcome.inside

        assert outcome.clean, outcome
        assert outcome.kills >= kills
        assert outcome.work > 0
        if inside > 0 or mode != "native":
            break
    assert inside > 0 or mode != "native"


@pytest.mark.slow
@pytest.mark.parametrize("mutant", sorted(MUTANTS))
def test_a_storm_finds_a_faulty_queue(mutant: str) -> None:
    """Each broken rule is found within a few storms."""
    name, _ = MUTANTS[mutant]
    found = any(not run_storm(name, mode="flock", kills=60, seed=seed, mutant=mutant).clean for seed in range(1, 6))

    assert found

"""SIGKILL at any moment, in every mode: nothing lost, doubled or torn. `make torture-shm` runs it long."""

from __future__ import annotations

import pytest

from tests.crash.shm.mutants import MUTANTS
from tests.crash.shm.report import STORMS, stormed
from tests.processes.shm.queues import working_modes

STORMS_MAX = 8
KILLS = {"rings": 40, "deque": 40, "task_table": 60, "lifecycle": 20, "reclaim": 8, "pool": 4}


@pytest.mark.slow
@pytest.mark.parametrize("mode", working_modes())
@pytest.mark.parametrize("name", STORMS)
def test_a_storm_of_kills_leaves_everything_whole(name: str, mode: str) -> None:
    """Victims die in the middle of their work: of a few storms at least one strikes there, as chance will have it."""
    kills = KILLS[name] if mode == "native" else KILLS[name] // 2
    inside = 0
    for seed in range(1, STORMS_MAX + 1):
        outcome = stormed(name, mode=mode, kills=kills, seed=seed)
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
    """A storm that cannot fail proves nothing: each rule, broken, is found out within a few storms."""
    name, _ = MUTANTS[mutant]
    found = any(not stormed(name, mode="flock", kills=60, seed=seed, mutant=mutant).clean for seed in range(1, 6))

    assert found

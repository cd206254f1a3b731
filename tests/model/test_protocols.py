"""The protocols of shared memory hold in every interleaving, and every rule of them is needed."""

import os

import pytest

from tests.model import gate, lifecycle_models, notifier, ring, seed_protocol, task_table_models
from tests.model.catalogue import PARTS, STATES, CleanModel, FaultModel, clean_models, fault_models, long_models
from tests.model.explorer import explore, find_violation

LONG = os.environ.get("INTERLOCK_MODELS") == "long"


@pytest.mark.parametrize("clean", [pytest.param(clean, id=clean.name) for clean in clean_models()])
def test_no_interleaving_has_a_violation(clean: CleanModel) -> None:
    """The number of states is exact."""
    seen = explore(clean.model())

    assert ([], True, clean.states) == (list(map(str, seen.violations.values())), seen.complete, seen.states)


@pytest.mark.slow
@pytest.mark.skipif(not LONG, reason="takes minutes; set INTERLOCK_MODELS=long")
@pytest.mark.parametrize("clean", [pytest.param(clean, id=clean.name) for clean in long_models()])
def test_no_interleaving_of_a_large_model_has_a_violation(clean: CleanModel) -> None:
    seen = explore(clean.model())

    assert ([], True, clean.states) == (list(map(str, seen.violations.values())), seen.complete, seen.states)


@pytest.mark.parametrize("each", [pytest.param(each, id=each.name) for each in fault_models()])
def test_a_fault_is_found(each: FaultModel) -> None:
    """Without the rule some interleaving has the violation of the catalogue."""
    found = find_violation(each.model(), each.wrong)

    assert found is not None


def test_the_configuration_of_a_fault_is_also_explored_without_it() -> None:
    """So the violation comes from the missing rule."""
    explored = {f"{part}: {configuration}" for part, module in PARTS.items() for configuration in module.CONFIGURATIONS}
    used = {
        f"{part}: {configuration}"
        for part, module in PARTS.items()
        for configuration, _ in getattr(module, "FAULTS", {}).values()
    }

    assert set() == used - explored
    assert {clean.name for clean in (*clean_models(), *long_models())} == set(STATES)


def test_the_two_word_protocol_has_all_three_violations() -> None:
    """Two workers, a drainer and a waiter are enough."""
    seen = explore(seed_protocol.model(workers=2, repaired=False))

    assert {
        "draining forever: no process is left that would close",
        "closed while a worker is inside",
        "lost wake-up: the waiter still sleeps, the service is closed",
    } == set(seen.violations)
    assert 6_081 == seen.states


def test_a_kill_inside_leaks_a_count_of_the_gate() -> None:
    """The known weakness of the gate; without kills it has no violation."""
    killed = explore(gate.model(workers=1, waiter=True, kills=1))
    alive = explore(gate.model(workers=1, waiter=True))

    assert "DRAINING forever: no process is left that would close" in killed.violations
    assert {} == alive.violations


def test_the_wake_of_a_process_without_a_cleanup_can_be_missed() -> None:
    """It changes no phase; the limit of the sleep covers it."""
    roles = lifecycle_models.Roles(waiters=1, cleaners=frozenset({"waiter 0"}))
    unbounded = explore(lifecycle_models.model(roles._replace(bounded=False)))
    bounded = explore(lifecycle_models.model(roles))

    assert ["DRAINING forever: no process is left that would close"] == list(unbounded.violations)
    assert {} == bounded.violations


def test_clearing_in_the_producer_is_wrong_only_under_a_kill() -> None:
    """Without kills this usual form has no violation."""
    alive = explore(notifier.model(producers=2, messages=2, fault="producer clears"))
    killed = explore(notifier.model(producers=2, messages=2, kills=1, fault="producer clears"))

    assert (0, 1) == (len(alive.violations), len(killed.violations))


def test_the_ring_model_wraps_fills_and_skips() -> None:
    assert ring.RING % (1 + ring.PARTS) != 0
    assert ring.RING < 4 * (1 + ring.PARTS)


def test_the_claimed_id_recovers_a_task_of_a_live_process() -> None:
    """The path to the loss contains the thief's swap and its kill."""
    configuration = task_table_models.CONFIGURATIONS["1 submitter, thief, 2 kills"]
    found = find_violation(
        configuration("id is not recorded before it leaves"), "stuck: no settled end can be reached any more"
    )

    assert found is not None
    assert "SIGKILL" in str(found)
    assert "CAS top 1 0 -> 1: won" in str(found)

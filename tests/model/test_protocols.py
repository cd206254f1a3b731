"""The protocols of shared memory hold in every interleaving, and every rule of them is needed."""

import os

import pytest

from tests.model import doorbell, gate, lane, lifecycle_models, seed_protocol, slab_models
from tests.model.catalogue import PARTS, STATES, Hunt, Walk, hunts, long_walks, walks
from tests.model.explorer import explore, hunt

LONG = os.environ.get("INTERLOCK_MODELS") == "long"


@pytest.mark.parametrize("walk", [pytest.param(walk, id=walk.name) for walk in walks()])
def test_nothing_goes_wrong_in_any_interleaving(walk: Walk) -> None:
    """All states are visited, exactly so many, and none is unsafe or stuck."""
    seen = explore(walk.model())

    assert ([], True, walk.states) == (list(map(str, seen.violations.values())), seen.complete, seen.states)


@pytest.mark.slow
@pytest.mark.skipif(not LONG, reason="takes minutes; INTERLOCK_MODELS=long walks these stages")
@pytest.mark.parametrize("walk", [pytest.param(walk, id=walk.name) for walk in long_walks()])
def test_nothing_goes_wrong_in_any_interleaving_of_many(walk: Walk) -> None:
    """The same, for the larger stages."""
    seen = explore(walk.model())

    assert ([], True, walk.states) == (list(map(str, seen.violations.values())), seen.complete, seen.states)


@pytest.mark.parametrize("each", [pytest.param(each, id=each.name) for each in hunts()])
def test_a_rule_left_out_is_found_out(each: Hunt) -> None:
    """Without the rule some interleaving does what the catalogue says; a harness that missed it would prove nothing."""
    found = hunt(each.model(), each.wrong)

    assert found is not None


def test_a_fault_is_hunted_where_nothing_is_wrong_without_it() -> None:
    """The stage of every hunt is also walked clean, so what is found comes from the rule left out."""
    stages = {f"{part}: {stage}" for part, module in PARTS.items() for stage in module.STAGES}
    used = {f"{part}: {stage}" for part, module in PARTS.items() for stage, _ in getattr(module, "HUNTS", {}).values()}

    assert set() == used - stages
    assert {walk.name for walk in (*walks(), *long_walks())} == set(STATES)


def test_the_first_protocol_breaks_in_all_three_ways() -> None:
    """Two workers, a drainer and a waiter are enough to see every race of the service with two words."""
    seen = explore(seed_protocol.model(workers=2, repaired=False))

    assert {
        "draining for ever: nobody is left who would close",
        "closed while a worker is inside",
        "lost wake-up: the waiter sleeps on, the service is closed",
    } == set(seen.violations)
    assert 6_081 == seen.states


def test_a_kill_inside_leaks_a_count_of_the_gate() -> None:
    """The known weakness of the packed word, and why processes use the lifecycle: without kills it is clean."""
    killed = explore(gate.model(workers=1, waiter=True, kills=1))
    alive = explore(gate.model(workers=1, waiter=True))

    assert "DRAINING for ever: nobody is left who would close" in killed.violations
    assert {} == alive.violations


def test_the_wake_of_one_without_a_cleanup_can_be_missed() -> None:
    """It changes no phase, so a waiter about to sleep does not notice it; the bound of its sleep saves it."""
    cast = lifecycle_models.Cast(waiters=1, cleaners=frozenset({"waiter 0"}))
    unbounded = explore(lifecycle_models.model(cast._replace(bounded=False)))
    bounded = explore(lifecycle_models.model(cast))

    assert ["DRAINING for ever: nobody is left who would close"] == list(unbounded.violations)
    assert {} == bounded.violations


def test_clearing_in_the_producer_is_wrong_only_under_a_kill() -> None:
    """The usual form of the doorbell passes every test that kills nobody."""
    alive = explore(doorbell.model(producers=2, messages=2, fault="producer clears"))
    killed = explore(doorbell.model(producers=2, messages=2, kills=1, fault="producer clears"))

    assert (0, 1) == (len(alive.violations), len(killed.violations))


def test_a_lane_wraps_fills_and_skips_in_its_walk() -> None:
    """The ring is smaller than what goes through it, and its end does not fit a message: the marks are written."""
    assert lane.RING % (1 + lane.PARTS) != 0
    assert lane.RING < 4 * (1 + lane.PARTS)


def test_a_task_of_a_live_process_dropped_by_a_dead_thief_is_found_by_its_hand() -> None:
    """No sweep of the dead one's range finds it: the way to the loss has the thief's swap and its kill in it."""
    stage = slab_models.STAGES["1 submitter, thief, 2 kills"]
    found = hunt(stage("no hand"), "stuck: no settled end can be reached any more")

    assert found is not None
    assert "SIGKILL" in str(found)
    assert "CAS top 1 0 -> 1: won" in str(found)

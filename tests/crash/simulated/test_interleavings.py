"""Whatever the order of their calls, processes that share an entity get linearizable answers."""

import pytest

from tests.crash.simulated.concurrent_calls import SCENES, SEED, explains
from tests.crash.simulated.interleave import Event, linearizable
from tests.crash.simulated.mutants import INTERLEAVED


@pytest.mark.parametrize("name", SCENES)
def test_every_schedule_is_linearizable(name: str) -> None:
    """All schedules of the scene are explored, and each history has an order that explains it."""
    result = SCENES[name].explored()

    assert (True, []) == (result.complete, result.examples[:1])


def test_comparing_and_renaming_loses_entries() -> None:
    """The negative control: two writers that compare and then rename both succeed, and the search finds it."""
    result = SEED.explored()

    assert (3_432, True) == (result.schedules, result.bad > 0)


@pytest.mark.parametrize("name", INTERLEAVED)
def test_a_faulty_store_is_found_out(name: str) -> None:
    """Without the lock, or with a decision from one read, some schedule gives an answer that no order explains."""
    mutant, scene = INTERLEAVED[name]
    with mutant.patched():
        result = SCENES[scene].explored(mutant.processes)

    assert result.bad > 0


def test_the_checker_respects_the_order_of_operations() -> None:
    late = (
        Event(0, "asked", ("append", 0, "a")),
        Event(0, "given", ("Appended", 1)),
        Event(1, "asked", ("read",)),
        Event(1, "given", ()),
    )
    overlapping = (late[2], late[0], late[1], late[3])

    assert (False, True) == (linearizable(late, explains(0)), linearizable(overlapping, explains(0)))

"""The explorer: it visits every state, merges equal states only, and shows a shortest path to a violation."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from tests.model import deque, gate, notifier, ring, seed_protocol
from tests.model.explorer import STUCK, Cells, Explorer, Model, Process, explore, find_violation
from tests.model.operations import (
    FREE,
    Script,
    add,
    cas,
    futex_wait,
    held,
    load,
    lock,
    pause,
    store,
    take,
    until_not,
    wake,
)


def model(*scripts: Callable[[], Script], memory: dict[str, Any], **others: Any) -> Model:
    """Return a model of generator functions without arguments, with the given properties only."""
    processes = tuple(Process(script.__name__, script) for script in scripts)
    settings: dict[str, Any] = {"unsafe": lambda cells, where: None, "unsettled": lambda cells, results: None}
    return Model(memory=memory, processes=processes, **(settings | others))


def three_pauses() -> Script:
    """Has four positions."""
    yield pause()
    yield pause()
    yield pause()


def other_three() -> Script:
    """Has four positions, too."""
    yield from three_pauses()


def test_every_interleaving_of_independent_steps_is_visited() -> None:
    """Two processes with four positions each have sixteen states and one end."""
    seen = explore(model(three_pauses, other_three, memory={}))

    assert (16, 1, True) == (seen.states, seen.ends, seen.complete)


def test_a_lost_update_is_found() -> None:
    """A load and a store are two steps; an add is one."""

    def apart() -> Script:
        value = yield load("n")
        yield store("n", value + 1)

    def again() -> Script:
        yield from apart()

    def at_once() -> Script:
        yield add("n", 1)

    def at_once_again() -> Script:
        yield from at_once()

    def unsettled(cells: dict[str, int], results: object) -> str | None:
        return None if cells["n"] == 2 else "lost update"

    lost = explore(model(apart, again, memory={"n": 0}, unsettled=unsettled))
    kept = explore(model(at_once, at_once_again, memory={"n": 0}, unsettled=unsettled))

    assert (["lost update"], []) == (list(lost.violations), list(kept.violations))


def test_the_path_shown_is_a_shortest_one() -> None:
    """No other process moves in it, and it ends at the violation."""

    def writer() -> Script:
        yield store("n", 1)

    found = find_violation(
        model(three_pauses, writer, memory={"n": 0}, unsafe=lambda cells, where: "written" if cells["n"] else None),
        "written",
    )

    assert "writer: store n = 1\n=> written" == str(found)


def test_a_loop_that_can_never_end_is_stuck() -> None:
    """No settled end can be reached."""

    def spinner() -> Script:
        while (yield load("n")) == 0:
            pass

    seen = explore(model(spinner, memory={"n": 0}))

    assert ([STUCK], 0) == (list(seen.violations), seen.ends)


def test_a_loop_that_another_process_ends_is_not_stuck() -> None:

    def spinner() -> Script:
        while (yield load("n")) == 0:
            pass

    def writer() -> Script:
        yield store("n", 1)

    assert {} == explore(model(spinner, writer, memory={"n": 0})).violations


def test_an_excused_state_counts_as_an_end() -> None:

    def spinner() -> Script:
        while True:
            yield load("n")

    seen = explore(model(spinner, memory={"n": 0}, excused=lambda cells, where: True))

    assert {} == seen.violations


def test_a_kill_ends_all_threads_and_frees_the_locks_of_one_process() -> None:
    """Shared memory stays as it is, and so do the locks of other processes."""

    def holder() -> Script:
        yield lock("byte", "family")
        yield store("n", 1)
        yield until_not("n", 1)

    def sibling() -> Script:
        yield until_not("n", 1)

    def bystander() -> Script:
        yield lock("other", "bystander")

    ends: list[tuple[object, ...]] = []

    def unsettled(cells: Cells, results: Mapping[str, Any]) -> str | None:
        ends.append((cells["byte"], cells["other"], cells["n"], results["holder"], results["sibling"]))
        return None

    family = (Process("holder", holder, "family"), Process("sibling", sibling, "family"))
    explore(
        Model(
            memory={"byte": FREE, "other": FREE, "n": 0},
            processes=(*family, Process("bystander", bystander)),
            unsafe=lambda cells, where: None,
            unsettled=unsettled,
            locks=("byte", "other"),
            mortal=frozenset({"family"}),
            kills=1,
        )
    )

    assert {
        ("family", "bystander", 1, "waiting", None),
        (FREE, "bystander", 1, "dead", "dead"),
        (FREE, "bystander", 0, "dead", "dead"),
        ("family", "bystander", 1, "waiting", "waiting"),
    } >= set(ends)
    assert (FREE, "bystander", 1, "dead", "dead") in ends


def test_a_kill_does_not_excuse_a_deadlock() -> None:

    def spinner() -> Script:
        while (yield load("n")) == 0:
            pass

    seen = explore(model(spinner, memory={"n": 0}, mortal=frozenset({"spinner"}), kills=1))

    assert STUCK in seen.violations


def test_no_more_than_the_allowed_kills_happen() -> None:
    dead: list[int] = []

    def unsettled(cells: object, results: dict[str, object]) -> str | None:
        dead.append(list(results.values()).count("dead"))
        return None

    both = frozenset({"three_pauses", "other_three"})
    explore(model(three_pauses, other_three, memory={}, unsettled=unsettled, mortal=both, kills=1))

    assert {0, 1} == set(dead)


@pytest.mark.parametrize(("bounded", "expected"), [(False, ["sleeps"]), (True, [])])
def test_a_sleep_without_a_wake_ends_only_at_its_limit(bounded: bool, expected: list[str]) -> None:
    """Even if the value has changed."""

    def sleeper() -> Script:
        while (yield load("n")) == 0:
            yield from futex_wait("sleeper", "n", 0, bounded=bounded)

    def silent() -> Script:
        yield store("n", 1)

    def unsettled(cells: object, results: dict[str, object]) -> str | None:
        return "sleeps" if results["sleeper"] == "waiting" else None

    assert expected == list(explore(model(sleeper, silent, memory={"n": 0}, unsettled=unsettled)).violations)


def test_a_wake_reaches_all_sleepers_of_its_cell_and_a_changed_value_refuses_sleep() -> None:
    """With the store before the wake, no order leaves a sleeper."""

    def sleeper() -> Script:
        while (yield load("n")) == 0:
            yield from futex_wait("sleeper", "n", 0, bounded=False)

    def second() -> Script:
        while (yield load("n")) == 0:
            yield from futex_wait("second", "n", 0, bounded=False)

    def waker() -> Script:
        yield store("n", 1)
        yield wake("n")

    def unsettled(cells: object, results: dict[str, object]) -> str | None:
        return "sleeps" if "waiting" in results.values() else None

    assert {} == explore(model(sleeper, second, waker, memory={"n": 0}, unsettled=unsettled)).violations


def test_a_notifier_is_read_once() -> None:
    """Reading sets it to zero: of two readers one waits."""

    def reader() -> Script:
        yield take("notifier")

    def other() -> Script:
        yield take("notifier")

    waiting: list[int] = []

    def unsettled(cells: object, results: dict[str, object]) -> str | None:
        waiting.append(list(results.values()).count("waiting"))
        return None

    explore(model(reader, other, memory={"notifier": 1}, unsettled=unsettled))

    assert {1} == set(waiting)


def test_the_own_lock_looks_free_to_a_query() -> None:
    """As with locks of one file description."""

    def owner() -> Script:
        mine = yield held("byte", "owner")
        theirs = yield held("byte", "stranger")
        return mine, theirs

    found: list[object] = []

    def unsettled(cells: object, results: dict[str, object]) -> str | None:
        found.append(results["owner"])
        return None

    explore(model(owner, memory={"byte": "owner"}, unsettled=unsettled))

    assert [(False, True)] == found


def test_an_exploration_that_is_too_large_is_incomplete() -> None:
    """It makes no statement about stuck states."""
    seen = explore(gate.model(workers=3), states_max=100)

    assert (False, {}) == (seen.complete, seen.violations)


def test_a_variable_that_cannot_be_compared_is_refused() -> None:
    """The variables of a process are its position, so they must be hashable."""

    def careless() -> Script:
        seen = []
        seen.append((yield load("n")))
        yield pause()

    with pytest.raises(TypeError, match="unhashable"):
        explore(model(careless, memory={"n": 0}))


@pytest.mark.parametrize(
    "small",
    [
        pytest.param(lambda: seed_protocol.model(workers=2, repaired=False, waiter=False), id="seed"),
        pytest.param(lambda: gate.model(workers=2), id="gate"),
        pytest.param(lambda: ring.model(messages=3), id="ring"),
        pytest.param(lambda: deque.model(program="uuoo", thieves=1), id="deque"),
        pytest.param(lambda: notifier.model(producers=1, messages=1, fault="no second check"), id="notifier"),
    ],
)
def test_merging_states_loses_no_violation(small: Callable[[], Model]) -> None:
    """Exploring every history separately shows the same violations, and no fewer states."""
    made = small()
    merged = Explorer(made).explore()
    apart = Explorer(made, merged=False, states_max=300_000).explore()

    assert apart.complete
    assert set(merged.violations) == set(apart.violations)
    assert merged.states <= apart.states


def test_the_ghost_of_a_cas_is_written_only_if_it_succeeds() -> None:

    def winner() -> Script:
        yield cas("n", 0, 1, ghost={"ghost": "winner"})

    def loser() -> Script:
        yield cas("n", 2, 3, ghost={"ghost": "loser"})

    ghosts: set[object] = set()

    def unsettled(cells: dict[str, object], results: object) -> str | None:
        ghosts.add(cells["ghost"])
        return None

    explore(model(winner, loser, memory={"n": 0, "ghost": ""}, unsettled=unsettled))

    assert {"winner"} == ghosts

"""The explorer itself: it visits everything, merges only what is the same, and shows the way to what is wrong."""

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
    """Gives a model of generator functions without arguments, with no properties but those given."""
    processes = tuple(Process(script.__name__, script) for script in scripts)
    settings: dict[str, Any] = {"unsafe": lambda cells, where: None, "unsettled": lambda cells, results: None}
    return Model(memory=memory, processes=processes, **(settings | others))


def three_pauses() -> Script:
    """Stands at four places."""
    yield pause()
    yield pause()
    yield pause()


def other_three() -> Script:
    """Stands at four places, too."""
    yield from three_pauses()


def test_every_interleaving_of_independent_steps_is_visited() -> None:
    """Two processes with four places each have sixteen states and one end."""
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


def test_the_way_shown_is_a_shortest_one() -> None:
    """Breadth first: nobody else moves in it, and it ends where the property broke."""

    def writer() -> Script:
        yield store("n", 1)

    found = find_violation(
        model(three_pauses, writer, memory={"n": 0}, unsafe=lambda cells, where: "written" if cells["n"] else None),
        "written",
    )

    assert "writer: store n = 1\n=> written" == str(found)


def test_a_loop_that_can_never_end_is_stuck() -> None:
    """Busy is not alive: no settled end can be reached."""

    def spinner() -> Script:
        while (yield load("n")) == 0:
            pass

    seen = explore(model(spinner, memory={"n": 0}))

    assert ([STUCK], 0) == (list(seen.violations), seen.ends)


def test_a_loop_that_another_process_ends_is_not_stuck() -> None:
    """Waiting by looking again is fine as long as somebody will write."""

    def spinner() -> Script:
        while (yield load("n")) == 0:
            pass

    def writer() -> Script:
        yield store("n", 1)

    assert {} == explore(model(spinner, writer, memory={"n": 0})).violations


def test_an_excused_state_counts_as_an_end() -> None:
    """A loop that nobody wants to end is no violation."""

    def spinner() -> Script:
        while True:
            yield load("n")

    seen = explore(model(spinner, memory={"n": 0}, excused=lambda cells, where: True))

    assert {} == seen.violations


def test_a_kill_ends_all_threads_and_frees_the_locks_of_one_process() -> None:
    """Shared memory stays as the dead left it; another's lock stays held."""

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


def test_a_kill_is_no_way_out_of_being_stuck() -> None:
    """That a deadlock would end with a kill does not excuse it."""

    def spinner() -> Script:
        while (yield load("n")) == 0:
            pass

    seen = explore(model(spinner, memory={"n": 0}, mortal=frozenset({"spinner"}), kills=1))

    assert STUCK in seen.violations


def test_no_more_than_the_allowed_kills_happen() -> None:
    """With one kill, never are two dead."""
    dead: list[int] = []

    def unsettled(cells: object, results: dict[str, object]) -> str | None:
        dead.append(list(results.values()).count("dead"))
        return None

    both = frozenset({"three_pauses", "other_three"})
    explore(model(three_pauses, other_three, memory={}, unsettled=unsettled, mortal=both, kills=1))

    assert {0, 1} == set(dead)


@pytest.mark.parametrize(("bounded", "expected"), [(False, ["sleeps"]), (True, [])])
def test_a_sleep_without_a_wake_ends_only_by_its_bound(bounded: bool, expected: list[str]) -> None:
    """The value has changed, nobody rang."""

    def sleeper() -> Script:
        while (yield load("n")) == 0:
            yield from futex_wait("sleeper", "n", 0, bounded=bounded)

    def silent() -> Script:
        yield store("n", 1)

    def unsettled(cells: object, results: dict[str, object]) -> str | None:
        return "sleeps" if results["sleeper"] == "waiting" else None

    assert expected == list(explore(model(sleeper, silent, memory={"n": 0}, unsettled=unsettled)).violations)


def test_a_wake_reaches_all_sleepers_of_its_cell_and_a_changed_value_refuses_sleep() -> None:
    """With the store before the wake, no order leaves anybody asleep."""

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


def test_a_bell_is_taken_once() -> None:
    """Reading zeroes it: of two readers one waits on."""

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


def test_ones_own_lock_looks_free_to_a_probe() -> None:
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


def test_a_walk_that_is_too_large_says_so() -> None:
    """It is incomplete, and claims nothing about what is stuck."""
    seen = explore(gate.model(workers=3), states_max=100)

    assert (False, {}) == (seen.complete, seen.violations)


def test_a_variable_that_cannot_be_compared_is_refused() -> None:
    """Where a process stands is told by its variables, so they have to be hashable."""

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
def test_merging_of_histories_loses_nothing(small: Callable[[], Model]) -> None:
    """Taking every history for itself shows the same violations, and never fewer states."""
    made = small()
    merged = Explorer(made).explore()
    apart = Explorer(made, merged=False, states_max=300_000).explore()

    assert apart.complete
    assert set(merged.violations) == set(apart.violations)
    assert merged.states <= apart.states


def test_what_a_cas_writes_besides_is_written_only_when_it_wins() -> None:
    """A ghost records what happened, not what was tried."""

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

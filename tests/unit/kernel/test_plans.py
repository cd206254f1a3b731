"""Plans are cached and limited, and never change a result (P1-P9); invalid snapshots are corruption."""

from dataclasses import replace
from itertools import product
from random import Random

import pytest

from interlock.errors import CorruptionError
from interlock.kernel import plan
from interlock.kernel.step import Kernel
from interlock.model.encoding.codec import encode
from interlock.model.event import Event
from interlock.model.snapshot import Snapshot
from tests.unit.kernel.charts import ENTITY, kernel_of, last_step, started

REGIONS = """
type: parallel
states:
  one: {initial: a, states: {a: {on: {x: b}}, b: {on: {x: c, y: a}}, c: {on: {y: a}}}}
  two: {initial: d, states: {d: {on: {x: e}}, e: {on: {y: f}}, f: {on: {x: d, y: e}}}}
  three: {initial: g, states: {g: {on: {y: h}}, h: {on: {x: g, z: g}}}}
"""


def kept(kernel: Kernel) -> int:
    """How many plans hang on the table."""
    return sum(len(each.plans) for each in kernel.planner.table.values())


def walk(kernel: Kernel, seed: int, length: int = 200) -> list[bytes]:
    """The encoded steps of a random sequence."""
    random, snapshot, found = Random(seed), started(kernel), []
    for _ in range(length):
        step = kernel.step(snapshot, Event(random.choice("xyz")))
        found.append(encode(step))
        snapshot = step.snapshot
    return found


def test_a_plan_is_made_once() -> None:
    """P1: the second step of the same kind finds it."""
    kernel = kernel_of("states: {a: {on: {go: b}}, b: {on: {go: a}}}", fast=False)
    step = last_step(kernel, "go", "go", "go", "go")

    assert (5, 2, 4) == (step.snapshot.version, kept(kernel), kernel.planner.lookups)


@pytest.mark.parametrize("limit", [1, 2, 5, 8])
def test_a_small_bound_changes_no_answer(monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    """P6: dropping everything, and running uncached for a while, are invisible."""
    expected = walk(kernel_of(REGIONS), seed=limit)
    monkeypatch.setattr(plan, "PLANS_MAX", limit)
    kernel = kernel_of(REGIONS)

    assert expected == walk(kernel, seed=limit)
    assert kept(kernel) <= limit
    assert len(kernel.planner.table) <= 2 * limit


def test_a_full_table_is_dropped_and_filled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """P6: while most lookups are hits, caching continues."""
    monkeypatch.setattr(plan, "PLANS_MAX", 2)
    kernel = kernel_of("states: {a: {on: {go: b, jump: c}}, b: {on: {go: a}}, c: {on: {jump: a}}}", fast=False)
    step = last_step(kernel, *["go"] * 10)
    assert (2, 0) == (kept(kernel), kernel.planner.uncached)

    kernel.step(step.snapshot, Event("jump"))
    assert (0, 0, 0) == (kernel.planner.uncached, kernel.planner.count, kernel.planner.lookups)
    assert kept(kernel) <= 2


def test_after_mostly_misses_nothing_is_kept_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """P6: a chart with more plans than fit would only make and drop them."""
    monkeypatch.setattr(plan, "PLANS_MAX", 3)
    kernel = kernel_of(
        "states: {a: {on: {go: b}}, b: {on: {go: c}}, c: {on: {go: d}}, d: {on: {go: e}}, e: {on: {go: a}}}",
        fast=False,
    )
    step = last_step(kernel, "go", "go", "go", "go")
    assert 3 == kernel.planner.uncached

    dropped = kept(kernel)
    for left in (2, 1, 0):
        step = kernel.step(step.snapshot, Event("go"))
        assert (left, dropped) == (kernel.planner.uncached, kept(kernel))

    kernel.step(step.snapshot, Event("go"))
    assert dropped + 1 == kept(kernel)


def test_configurations_in_which_nothing_happens_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Events refused in ever new configurations make no plan, and still do not fill the memory."""
    monkeypatch.setattr(plan, "PLANS_MAX", 3)
    kernel = kernel_of(REGIONS)
    first = started(kernel)
    sizes = set()
    for names in product(("one.a", "one.b", "one.c"), ("two.d", "two.e", "two.f"), ("three.g", "three.h")):
        snapshot = Snapshot(first.kind, first.entity, 1, first.revision, names, {})
        assert "rejected" == kernel.step(snapshot, Event("nobody")).outcome
        sizes.add(len(kernel.planner.table))

    assert 6 == max(sizes)


def test_foreign_names_fill_no_cache() -> None:
    """P2: a sender cannot make the kernel grow by inventing names."""
    kernel = kernel_of("states: {a: {on: {order.*: {actions: [x]}, pay: b}}, b: {}}")
    snapshot = last_step(kernel, "order.first", "nobody").snapshot
    configuration = kernel.planner.configuration(("a",))
    assert configuration is not None

    def sizes() -> tuple[int, ...]:
        return (
            len(kernel.selector.named),
            len(kernel.selector.classes),
            len(kernel.selector.members),
            len(configuration.candidates),
            len(configuration.plans),
            len(configuration.uses),
            len(kernel.planner.table),
        )

    before = sizes()
    for number in range(500):
        kernel.step(snapshot, Event(f"order.{number}"))
        kernel.step(snapshot, Event(f"stranger.{number}"))

    assert before == sizes()


def test_a_plan_depends_on_the_history_it_can_reach() -> None:
    """P4: the same transition leads elsewhere once something else was recorded."""
    kernel = kernel_of("""
        states:
          a: {initial: x, states: {x: {on: {go: y}}, y: {}, h: {type: history, target: x}}, on: {out: b}}
          b: {on: {back: a.h}}
    """)

    assert ("a.x",) == last_step(kernel, "out", "back").snapshot.configuration
    assert ("a.y",) == last_step(kernel, "go", "out", "back").snapshot.configuration
    assert ("a.x",) == last_step(kernel, "out", "back").snapshot.configuration


def test_a_kernel_shares_nothing_with_its_chart() -> None:
    """P9: plans are absent from a chart's equality."""
    kernel = kernel_of(REGIONS)
    before = replace(kernel.chart)
    walk(kernel, seed=1)

    assert before == kernel.chart


@pytest.mark.parametrize(
    "names",
    [
        ("one.a", "two.d", "gone"),
        ("one.a", "two.d"),
        ("one.a", "one.b", "two.d", "three.g"),
        ("two.d", "one.a", "three.g"),
        ("one.a", "one.a", "two.d", "three.g"),
        ("one", "two.d", "three.g"),
        (),
    ],
    ids=["unknown", "missing", "too many", "out of order", "twice", "not atomic", "none"],
)
def test_a_snapshot_with_an_illegal_configuration_is_corrupt(names: tuple[str, ...]) -> None:
    """The hint names the revision that wrote it."""
    kernel = kernel_of(REGIONS)
    snapshot = Snapshot("test", ENTITY, 1, "7+abc", names, {})
    for act in (
        lambda: kernel.step(snapshot, Event("x")),
        lambda: kernel.fold(snapshot, [Event("x")]),
        lambda: kernel.candidates(snapshot),
    ):
        with pytest.raises(CorruptionError) as caught:
            act()

        assert "snapshot.configuration" == caught.value.code
        assert "7+abc" in (caught.value.hint or "")


HISTORY = """
states:
  a: {initial: x, states: {x: {}, y: {}, h: {type: history, target: x}}, on: {out: b}}
  b: {on: {back: a.h}}
"""


def remembering(**history: tuple[str, ...]) -> Snapshot:
    """An entity outside `a`, with this memory."""
    return Snapshot(
        "test", ENTITY, 3, "7", ("b",), {}, {name.replace("_", "."): kept for name, kept in history.items()}
    )


def test_a_history_of_unknown_states_is_corruption() -> None:
    kernel = kernel_of(HISTORY)

    with pytest.raises(CorruptionError) as caught:
        kernel.step(remembering(a_h=("a.gone",)), Event("back"))

    assert "snapshot.history" == caught.value.code
    assert f"a history remembers states that chart `test` {kernel.chart.revision} does not have: a.gone" == (
        caught.value.message
    )
    assert caught.value.hint is not None


def test_a_history_of_states_that_cannot_be_together_is_corruption() -> None:
    """It would bring the entity into a configuration that the chart does not have, and keep it there."""
    kernel = kernel_of(HISTORY)
    for _ in range(2):
        with pytest.raises(CorruptionError) as caught:
            kernel.step(remembering(a_h=("a.x", "a.y")), Event("back"))

        assert "snapshot.history" == caught.value.code
    assert None is kernel.planner.configuration(("a.x", "a.y"))


def test_recorded_states_of_an_unknown_history_are_kept() -> None:
    """Nothing can lead to it; it is carried along."""
    step = kernel_of(HISTORY).step(remembering(a_h=("a.y",), a_old=("a.gone",)), Event("back"))

    assert ("a.y",) == step.snapshot.configuration
    assert {"a.h": ("a.y",), "a.old": ("a.gone",)} == step.snapshot.history


@pytest.mark.parametrize("kept", [("a.h",), ("b",), ("",), ("a",), ()], ids=repr)
def test_a_history_of_states_it_cannot_have_recorded_is_corruption(kept: tuple[str, ...]) -> None:
    with pytest.raises(CorruptionError) as caught:
        kernel_of(HISTORY).step(remembering(a_h=kept), Event("back"))

    assert "snapshot.history" == caught.value.code
    assert "does not have there" in caught.value.message


def test_recorded_states_of_a_removed_history_are_kept() -> None:
    """Another revision had a history of that name; nothing asks for it now."""
    assert ("a.x",) == kernel_of(HISTORY).step(remembering(a_y=("b",)), Event("back")).snapshot.configuration


def test_sets_of_transitions_met_at_the_same_time_get_numbers_of_their_own() -> None:
    """Two threads may match two new names at the same time; each class must have its own transitions (P9)."""
    selector = kernel_of("states: {a: {on: {x: b}}, b: {}}").selector
    first, second = frozenset({7}), frozenset({8})
    numbers = {}

    class Late(dict[frozenset[int], int]):
        """A table in which the second set arrives while the first is on its way."""

        def setdefault(self, key: frozenset[int], default: int = 0) -> int:
            if key == first:
                numbers[second] = selector.class_of(second)
            return super().setdefault(key, default)

    selector.classes = Late(selector.classes)
    numbers[first] = selector.class_of(first)

    assert {first: first, second: second} == {each: selector.members[numbers[each]] for each in numbers}

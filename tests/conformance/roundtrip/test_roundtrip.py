"""Charts that were written in another format and read again behave as before, event by event.

`INTERLOCK_ROUNDTRIPS` sets how many random documents are tried (200), `INTERLOCK_SEED` where their seeds start.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import pytest

from interlock.assemble.charts import read_file
from interlock.model.document.document import Document, State, Transition
from tests.conformance.roundtrip.plain_charts import plain_document
from tests.conformance.roundtrip.trips import LostError, chart_of, trip
from tests.conformance.roundtrip.twins import Tally, Twins
from tests.properties.charts import document

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
COUNT = int(os.environ.get("INTERLOCK_ROUNDTRIPS", "200"))
SEED = int(os.environ.get("INTERLOCK_SEED", "20261115"))
SHARD = 25
SHARDS = range(SEED, SEED + max(SHARD, COUNT), SHARD)

YAML_SCXML = ("yaml", "json", "scxml", "yaml")
SCXML_YAML = ("scxml", "yaml", "json", "scxml")
BOTH_WAYS = ("yaml", "scxml", "json", "scxml")
XSTATE = ("json", "xstate", "yaml")
SMCAT = ("yaml", "smcat", "yaml")

Record = Callable[[str, Any], None]


@cache
def examples() -> dict[str, Document]:
    """Every chart of the examples, by name."""
    paths = sorted(EXAMPLES.glob("*.interlock.yaml"))
    found = {path.name.split(".")[0]: read_file(path).document for path in paths}
    return {name: made for name, made in found.items() if made is not None}


def compared(name: object, made: Document, route: tuple[str, ...], tally: Tally, lossy: Counter[str]) -> str | None:
    """Return what a round trip changed, or None; a chart with a reported loss of behaviour is only counted."""
    try:
        back = trip(made, route)
        if back.losses:
            lossy.update(back.losses)
            lossy["charts"] += 1
            return None
        twins = Twins(chart_of(made), chart_of(back.document))
        if "xstate" in route and twins.reads_event_at_start():
            lossy["charts"] += 1
            return None
        found = twins.difference(name, tally)
    except LostError as error:
        tally.differences += 1
        return f"{name}: {error}"
    return None if found is None else f"{name}: {found}"


def all_compared(made: Iterable[tuple[object, Document]], route: tuple[str, ...], record: Record) -> Counter[str]:
    """Compare many charts, count them, and fail with every difference; return the reported losses."""
    tally, lossy = Tally(), Counter[str]()
    problems = [compared(name, each, route, tally, lossy) for name, each in made]
    found = [each for each in problems if each is not None]
    record("roundtrip", (tally.charts, tally.steps, tally.differences))

    assert [] == found
    return lossy


# YAML, JSON and SCXML carry everything


@pytest.mark.parametrize("route", [YAML_SCXML, SCXML_YAML], ids="-".join)
def test_every_example_comes_back_the_same(route: tuple[str, ...], record_property: Record) -> None:
    """Equal as a document, which makes its revision the same, and alike under random events."""
    lossy = all_compared(examples().items(), route, record_property)

    assert 8 <= len(examples())
    assert Counter() == lossy
    assert examples() == {name: trip(made, route).document for name, made in examples().items()}


@pytest.mark.slow
@pytest.mark.parametrize("first", SHARDS)
def test_random_charts_come_back_with_the_same_behaviour(first: int, record_property: Record) -> None:
    record_property("seed", first)
    charts = [(seed, document(Random(seed))) for seed in range(first, first + SHARD)]
    assert Counter() == all_compared(charts, BOTH_WAYS, record_property)


# XState and smcat carry some


def is_silent(made: Document) -> Document:
    """The document with the two settings that XState cannot have otherwise."""
    return replace(made, unhandled="ignore", errors="raise")


@pytest.mark.parametrize("change", [lambda made: made, is_silent], ids=["as they are", "as XState has it"])
def test_examples_that_xstate_can_hold_come_back_with_the_same_behaviour(
    change: Callable[[Document], Document], record_property: Record, request: pytest.FixtureRequest
) -> None:
    charts = {name: change(made) for name, made in examples().items()}
    held = [name for name, made in charts.items() if not trip(made, XSTATE).losses]
    all_compared(charts.items(), XSTATE, record_property)
    how = request.node.callspec.id
    record_property("representable", f"XState holds {len(held)} of {len(charts)} examples {how}: {', '.join(held)}")

    assert (len(held) > 0) == (change is is_silent)


@pytest.mark.slow
@pytest.mark.parametrize("first", SHARDS[: len(SHARDS) // 2])
def test_random_charts_that_xstate_can_hold_come_back_with_the_same_behaviour(
    first: int, record_property: Record
) -> None:
    charts: list[tuple[object, Document]] = [(seed, document(Random(seed))) for seed in range(first, first + SHARD)]
    charts += [(f"{seed} silent", is_silent(made)) for seed, made in charts]
    lossy = all_compared(charts, ("xstate",), record_property)
    held = len(charts) - lossy["charts"]
    record_property("representable", f"XState holds {held} of {len(charts)} random charts from seed {first}")

    assert held > 0


def test_plain_charts_come_back_from_smcat_with_the_same_behaviour(record_property: Record) -> None:
    made = [(seed, plain_document(seed)) for seed in range(SEED, SEED + COUNT)]
    charts = [(seed, each) for seed, each in made if each is not None]
    lossy = all_compared(charts, SMCAT, record_property)
    held = len(charts) - lossy["charts"]
    record_property("representable", f"smcat holds {held} of {len(charts)} plain random charts")

    assert Counter() == lossy
    assert held > COUNT / 5


def test_every_example_loses_something_in_smcat_and_reports_it() -> None:
    """Fields of a context, payloads and invokes are not smcat's; a document that lost them silently would be a lie."""
    losses_of = {name: trip(made, ("smcat",)).losses for name, made in examples().items()}

    assert [] == [name for name, losses in losses_of.items() if "export.context" not in losses]


# The comparison can fail


def _spoiled(state: State, change: Callable[[Transition], Transition], place: list[int]) -> State:
    """The state with one transition changed: the one that the counter in `place` reaches."""
    transitions = []
    for each in state.transitions:
        place[0] -= 1
        transitions.append(change(each) if place[0] == 0 else each)
    return replace(
        state,
        transitions=tuple(transitions),
        states=tuple(_spoiled(child, change, place) for child in state.states),
    )


SPOILED: dict[str, tuple[Callable[[Transition], Transition], float]] = {
    "the target is lost": (lambda each: replace(each, targets=(), reenter=None), 0.5),
    "the event has another name": (lambda each: replace(each, events=("never.heard",)), 0.45),
    "the content is lost": (lambda each: replace(each, actions=()), 0.5),
    "the guard is lost": (lambda each: replace(each, guard=None), 0.1),
    "the delay is longer": (lambda each: replace(each, delay="9h" if each.delay is not None else None), 0.5),
}
"""What is done to one transition, and in which part of all cases it must be noticed: most guards stay true for long,
and events behind an invoke with a payload are rarely reached."""


@pytest.mark.parametrize("how", SPOILED)
def test_a_spoiled_transition_is_noticed(how: str) -> None:
    """The comparison can fail: with any one transition of an example changed, it mostly does."""
    spoil, share = SPOILED[how]
    noticed = tried = 0
    for name, made in examples().items():
        count = sum(len(each.transitions) for each in _every(made.root))
        for number in range(1, count + 1):
            spoiled = replace(made, root=_spoiled(made.root, spoil, [number]))
            if spoiled == made:
                continue
            try:
                twin = chart_of(spoiled)
            except LostError:
                continue
            tried += 1
            twins = Twins(chart_of(made), twin)
            noticed += any(twins.difference(f"{name} {seed}", Tally()) is not None for seed in range(5))

    assert tried > 0
    assert noticed >= tried * share, f"{noticed} of {tried}"


def _every(state: State) -> list[State]:
    return [state, *(each for child in state.states for each in _every(child))]

"""The kernel and the slow reference interpreter agree on every random chart and sequence.

`INTERLOCK_SEQUENCES` sets the number of sequences (2,000), `INTERLOCK_SEED` the first seed. A disagreement
names its seed: `run_seed(seed)` repeats it.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from interlock.kernel import fast_path
from interlock.model.charts.chart import Transition
from tests.properties.agreement import SEQUENCES_PER_CHART, Comparison, Disagreement, run_seed
from tests.properties.charts import document, documents
from tests.properties.features import features
from tests.properties.reference import algorithm, content, interpreter
from tests.properties.reference.structure import Structure

SEQUENCES = int(os.environ.get("INTERLOCK_SEQUENCES", "2000"))
SEED = int(os.environ.get("INTERLOCK_SEED", "20261115"))
CHARTS_PER_SHARD = 25
SHARDS = max(1, SEQUENCES // SEQUENCES_PER_CHART // CHARTS_PER_SHARD)


@pytest.fixture(autouse=True)
def hot(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every step is hot: its second run is made by the fast tier wherever that takes it."""
    monkeypatch.setattr(fast_path, "COMPILE_AFTER_USES", 0)


@pytest.mark.slow
@pytest.mark.parametrize("shard", range(SHARDS))
def test_kernel_agrees_with_the_reference(shard: int, record_property: Callable[[str, Any], None]) -> None:
    """Snapshot, effects, outcome, reason, transitions and faults are the same at every step."""
    statistics: Counter[str] = Counter()
    first = SEED + shard * CHARTS_PER_SHARD
    record_property("seed", first)

    for seed in range(first, first + CHARTS_PER_SHARD):
        run_seed(seed, statistics)

    record_property("sequences", statistics["sequences"])
    record_property("steps", statistics["steps"])
    assert CHARTS_PER_SHARD * SEQUENCES_PER_CHART == statistics["sequences"]


@pytest.mark.slow
@settings(max_examples=20, suppress_health_check=list(HealthCheck))
@given(made=documents(), seed=st.integers(0, 10**6))
def test_kernel_agrees_on_charts_that_shrink(made: Any, seed: int) -> None:
    """The same comparison on charts that hypothesis draws, so that a disagreement comes with a small chart."""
    Comparison(made, Random(seed), seed=seed).run()


ALWAYS = 60
"""Percent of charts in which a common feature must occur."""

EXPECTED = {
    "dialect interlock": 35,
    "dialect scxml": 15,
    "dialect xstate": 15,
    "binding late": 15,
    "unhandled defer": 25,
    "unhandled ignore": 10,
    "unhandled reject": 10,
    "errors raise": 3,
    "errors event": 8,
    "events declared": 4,
    "root transitions": 25,
    "depth 4": 15,
    "parallel": ALWAYS,
    "final": ALWAYS,
    "history deep": 30,
    "history shallow": 30,
    "history content": 30,
    "initial content": 40,
    "initial several": 1,
    "output": 50,
    "several blocks": ALWAYS,
    "state fields": ALWAYS,
    "invoke": ALWAYS,
    "invoke result": 50,
    "autoforward": 30,
    "finalize": 25,
    "always": ALWAYS,
    "after": ALWAYS,
    "onDone": 35,
    "targetless": ALWAYS,
    "several targets": 40,
    "internal": 40,
    "wildcard": ALWAYS,
    "guarded": ALWAYS,
    "GuardName": ALWAYS,
    "GuardIn": ALWAYS,
    "GuardAll": ALWAYS,
    "GuardNot": 40,
    "In('": ALWAYS,
    "Raise": ALWAYS,
    "Send": ALWAYS,
    "Cancel": ALWAYS,
    "If(": ALWAYS,
    "Foreach": ALWAYS,
    "AssignCall": ALWAYS,
    "delay='": ALWAYS,
    "1 / (": 20,
    "obj.nothing": 40,
}


def test_random_charts_contain_every_feature() -> None:
    """Each feature that the generator promises is in at least its share of 300 charts."""
    count: Counter[str] = Counter()
    for seed in range(SEED, SEED + 300):
        count.update(name for name, found in features(document(Random(seed))).items() if found)

    missing = {name: count[name] / 3 for name, percent in EXPECTED.items() if count[name] / 3 < percent}
    assert {} == missing


HAPPENING = {
    "applied None": 30,
    "applied deferred": 2,
    "applied sent": 1,
    "applied moved": 0.1,
    "ignored no_transition": 3,
    "ignored no_content": 0.2,
    "ignored timer_gone": 1,
    "ignored invoke_gone": 0.5,
    "rejected guard": 1,
    "rejected no_transition": 0.3,
    "rejected failed": 0.05,
    "several transitions": 15,
    "faults": 10,
    "history kept": 20,
    "timers pending": 20,
    "invokes active": 15,
    "regions": 20,
    "source timer": 5,
    "source invoke": 4,
    "ended done": 0.2,
    "ended cancelled": 0.05,
    "effect call": 20,
    "effect send": 4,
    "effect timer": 8,
    "effect timer_cancel": 5,
    "effect invoke": 8,
    "effect invoke_cancel": 5,
    "effect forward": 4,
    "effect message": 5,
    "effect log": 8,
    "effect done": 0.05,
}


@pytest.mark.slow
def test_random_sequences_make_interesting_things_happen() -> None:
    """Each outcome, effect and source of events is in at least its share of the steps."""
    statistics: Counter[str] = Counter()
    for seed in range(SEED, SEED + 100):
        random = Random(seed)
        Comparison(document(random), random, seed=seed, statistics=statistics).run()

    percent = 100 / statistics["steps"]
    missing = {
        name: statistics[name] * percent for name, least in HAPPENING.items() if statistics[name] * percent < least
    }
    assert {} == missing


def _first_wins(progress: Any, enabled: list[Transition]) -> list[Transition]:
    """A wrong S13: inner transitions do not preempt outer ones that come first."""
    kept: list[Transition] = []
    for each in enabled:
        exits = set(algorithm.compute_exit_set(progress, [each]))
        if all(not exits & set(algorithm.compute_exit_set(progress, [other])) for other in kept):
            kept.append(each)
    return kept


def _by_prefix_text(tokens: tuple[str, ...], name: str, *, exact: bool) -> bool:
    """A wrong section 4: `a` takes `ax`."""
    return name.startswith(".".join(tokens))


def _one_region_is_enough(self: Structure, index: int, configuration: Any) -> bool:
    """A wrong S29: a parallel is complete with its first region."""
    return any(self.is_final_state(each) for each in configuration if self.is_descendant(each, index))


def _lca(self: Structure, source: int, targets: list[int]) -> int:
    """A wrong S15: the domain may be a parallel."""
    return next(
        each
        for each in self.get_proper_ancestors(source)
        if all(self.is_descendant(target, each) for target in targets)
    )


def _nothing(*_: Any, **__: Any) -> None:
    """A rule that is not kept at all."""


MUTATIONS: dict[str, tuple[Any, str, Any]] = {
    "S8 invokes never start": (algorithm, "start_invokes", _nothing),
    "S13 the first transition wins": (algorithm, "remove_conflicting_transitions", _first_wins),
    "S15 the domain may be a parallel": (Structure, "find_lcca", _lca),
    "S22 no late fields": (algorithm, "bind_late_fields", _nothing),
    "S23 errors are lost": (algorithm, "note_fault", _nothing),
    "S25 a cancel does nothing": (content, "cancel_timers", _nothing),
    "S28 no done events": (algorithm, "enqueue_done", _nothing),
    "S29 one region is enough": (Structure, "is_in_final_state", _one_region_is_enough),
    "S38 no timers of a state": (algorithm, "set_after_timers", _nothing),
    "section 4 a name matches by its letters": (algorithm, "name_match", _by_prefix_text),
    "S30 an invoke that is left goes on": (algorithm, "cancel_invoke", _nothing),
    "S5 fields have no first value": (interpreter, "bind_fields", _nothing),
}


@pytest.mark.slow
@pytest.mark.parametrize("mutation", MUTATIONS)
def test_a_wrong_rule_is_found(mutation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison can fail: with one rule of the reference broken, a disagreement is found within 150 charts."""
    where, name, wrong = MUTATIONS[mutation]
    monkeypatch.setattr(where, name, wrong)

    with pytest.raises(Disagreement):
        _run_all(range(SEED, SEED + 150))


def _run_all(seeds: range) -> None:
    for seed in seeds:
        run_seed(seed)

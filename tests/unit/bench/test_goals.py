"""The verdicts: each bar is kept, each miss is told with its figure, and what was not measured is not a pass."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bench.goals import verdicts
from bench.results import Figure, Memory, Run
from bench.run import is_missed
from tests.unit.bench.runs import figure, good_run


def words(run: Run) -> dict[str, str]:
    """The verdict of each goal, by its goal."""
    return {each.goal: each.word for each in verdicts(run)}


def test_a_run_at_the_bars_passes_every_goal() -> None:
    """A bar is met by its own value."""
    assert {"pass"} == set(words(good_run()).values())
    assert not is_missed(good_run())


def _slow_inner(run: Run) -> None:
    run.figures["W1"]["interlock-inner"] = figure(201)


def _slow_nested(run: Run) -> None:
    run.figures["W3"]["interlock-inner"] = figure(251)


def _slow_fold(run: Run) -> None:
    run.figures["W6"]["interlock-fold"] = figure(201, count=1_000_000)


def _slow_public(run: Run) -> None:
    run.figures["W4"]["interlock-step"] = figure(350)


def _quick_peer(run: Run) -> None:
    run.figures["W2"]["sismic"] = figure(3_999)


def _quick_xstate(run: Run) -> None:
    run.figures["W6"]["xstate-actor"] = figure(999)


def _slow_create(run: Run) -> None:
    run.figures["W5"]["interlock-step"] = figure(3_001, bytes=600)


def _large_create(run: Run) -> None:
    run.figures["W5"]["interlock-step"] = figure(3_000, bytes=601)


def _short_fold(run: Run) -> None:
    run.figures["W6"]["interlock-fold"] = figure(200, count=999_990)


def _growing_fold(run: Run) -> None:
    run.memory = Memory(count=1_000_000, resident=0, peak=2**20)


def _slow_import(run: Run) -> None:
    run.imports["import interlock"] = [10.0, 60.0, 70.0]


@pytest.mark.parametrize(
    ("spoil", "goal"),
    [
        (_slow_inner, "W1: inner step to hand-written"),
        (_slow_nested, "W3: inner step to hand-written"),
        (_slow_fold, "W6: inner step to hand-written"),
        (_slow_public, "W4: public step beyond the inner one"),
        (_quick_peer, "faster than sismic, on the worst of W1-W4 and W6"),
        (_quick_xstate, "faster than xstate actor, on the worst of W1-W4 and W6"),
        (_slow_create, "W5: create an entity"),
        (_large_create, "W5: resident memory per entity"),
        (_short_fold, "W6: events folded in one go"),
        (_growing_fold, "W6: memory stays flat"),
        (_slow_import, "`import interlock` beyond the interpreter"),
    ],
)
def test_one_step_beyond_a_bar_is_a_miss(spoil: Callable[[Run], None], goal: str) -> None:
    """Each goal has a bar of its own, and the run as a whole is then not fine."""
    run = good_run()
    spoil(run)

    assert "MISS" == words(run)[goal]
    assert is_missed(run)


def test_a_failed_repeat_is_not_a_pass() -> None:
    """A line whose result was wrong has no samples; its goal is open, and a whole run is not fine then."""
    run = good_run()
    run.figures["W2"]["interlock-inner"] = Figure(count=10, error="wrong result")

    assert "not measured" == words(run)["W2: inner step to hand-written"]
    assert is_missed(run)


def test_what_was_not_asked_for_is_not_missed() -> None:
    """A partial run judges what it has."""
    run = good_run()
    run.partial = True
    run.figures = {"W1": run.figures["W1"]}
    run.memory, run.imports = None, {}

    assert not is_missed(run)
    assert "not measured" == words(run)["W6: memory stays flat"]


def test_a_peer_left_out_leaves_its_goal_open_and_says_why() -> None:
    """Faster than a peer that did not run is no claim."""
    run = good_run()
    run.left_out = {"sismic": "no such module"}
    for figures in run.figures.values():
        figures.pop("sismic", None)
    verdict = next(each for each in verdicts(run) if "sismic" in each.goal)

    assert ("not measured", "no such module") == (verdict.word, verdict.figure)


def test_a_quick_run_is_not_judged() -> None:
    """Its sizes say nothing about speed."""
    run = good_run()
    run.quick = True

    assert [] == verdicts(run)
    assert not is_missed(run)


def test_the_public_step_is_compared_repeat_by_repeat() -> None:
    """A slow spell that hits both lines of one repeat does not change their difference."""
    run = good_run()
    run.figures["W1"]["interlock-inner"].samples = [200.0, 900.0, 210.0]
    run.figures["W1"]["interlock-step"].samples = [300.0, 1_000.0, 310.0]
    verdict = next(each for each in verdicts(run) if each.goal.startswith("W1: public"))

    assert ("100 ns", True) == (verdict.figure, verdict.met)

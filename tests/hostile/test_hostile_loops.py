"""Charts with endless loops: the compiler finds the simple ones, and the limit of a step stops the others."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import interlock
from interlock.errors import DefinitionError, RejectedError
from tests.hostile.definitions import HEAD
from tests.hostile.processes import interlock as command

FIELDS = "context: {n: {type: integer, default: 1}}\n"
PLAIN = HEAD + "states: {rest: {on: {go: a}}, a: {always: b}, b: {always: c}, c: {always: a}}\n"
GUARDED = (
    HEAD + FIELDS + "states:\n"
    '  rest: {on: {go: a}, expect: {within: forever}}\n  a: {always: {target: b, guard: "= context.n > 0"}}\n'
    '  b: {always: {target: a, guard: "= context.n < 9"}}\n'
)
RAISING = HEAD + "states:\n  a: {on: {go: {actions: [{raise: go}]}}, expect: {within: forever}}\n"
EFFECTS = (
    HEAD + "context: {xs: {type: array, default: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]}}\nstates:\n"
    "  a: {on: {go: {actions: ["
    + "{foreach: {in: '= context.xs', item: i, do: [" * 4
    + "{log: x}"
    + "]}}" * 4
    + "]}}, expect: {within: forever}}\n"
)


def test_a_cycle_without_guards_is_no_chart() -> None:
    with pytest.raises(DefinitionError) as caught:
        interlock.loads(PLAIN)

    found = next(each for each in caught.value.diagnostics if each.code == "always.loop")
    assert '"a" -> "b" -> "c" -> "a"' in found.message


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        (GUARDED, "microsteps", ["a", "b"]),
        (RAISING, "microsteps", ["1,000"]),
        (EFFECTS, "effects", ["1,000"]),
    ],
    ids=["guards that stay true", "an event that raises itself", "effects without end"],
)
def test_a_step_that_does_not_end_is_given_back_unchanged(text: str, code: str, words: list[str]) -> None:
    """Rejected, with a fault that names the limit and the alternative; the entity continues."""
    chart = interlock.loads(text)
    before = chart.start(entity="e/1").snapshot

    step = chart.step(before, "go")

    assert ("rejected", before, ()) == (step.outcome, step.snapshot, step.effects)
    fault = step.faults[0]
    assert code in fault.code
    assert [] == [each for each in words if each not in fault.message + fault.place]


def test_an_entity_whose_first_step_never_ends_is_refused() -> None:
    chart = interlock.loads(GUARDED.replace("  rest: {on: {go: a}, expect: {within: forever}}\n", ""))

    with pytest.raises(RejectedError) as caught:
        chart.start(entity="e/1")

    assert "microsteps" in caught.value.code


@pytest.mark.slow
def test_a_simulation_continues_after_a_step_that_did_not_end(tmp_path: Path) -> None:
    (tmp_path / "loop.yaml").write_text(GUARDED)
    (tmp_path / "play.txt").write_text("go\ngo\n")

    ended = command("simulate", "loop.yaml", "--script", "play.txt", "--json", folder=tmp_path)

    assert "Traceback" not in ended.err
    outcomes = [json.loads(line) for line in ended.out.splitlines()]
    assert len(outcomes) > 2
    assert "microsteps" in ended.out

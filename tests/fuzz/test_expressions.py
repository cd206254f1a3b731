"""A short run of the fuzz script, and proof that it would notice what it looks for."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from tests.properties.expression_fuzz import Fuzz, fuzz

from tests.properties import expression_fuzz


def test_hostile_expressions_stay_within_their_bounds() -> None:
    """A few thousand inputs: no crash, no escape, nothing over budget, and enough accepted to mean something."""
    report = fuzz(count=3_000, seed=11)

    assert str(report) == "fuzz: 3,000 inputs, 0 crashes, 0 escapes, 0 over budget", vars(report)
    assert report.accepted > 500
    assert report.valued > 100


def test_every_known_escape_is_tried_as_it_stands() -> None:
    """The seeds of the mutations are inputs themselves."""
    run = Fuzz()
    for text in (*expression_fuzz.HOSTILE, *expression_fuzz.VALID):
        run.attempt(text, Random(1))

    assert run.report.clean, vars(run.report)
    assert run.report.accepted >= len(expression_fuzz.VALID)


def planted(function: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> Fuzz:
    """A run in which every expression does this instead."""
    run = Fuzz()
    compiled = type("Planted", (), {"function": staticmethod(function)})
    monkeypatch.setattr(expression_fuzz, "compile_parsed", lambda *_, **__: compiled)
    run.attempt("1", Random(1))
    return run


def test_a_code_object_made_while_running_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The audit hook sees what an escaped expression would do first."""
    run = planted(lambda *_: eval("1"), monkeypatch)

    assert not run.report.clean
    assert "compile" in run.report.escapes[0]


def test_a_foreign_attribute_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The entity sees attributes that are not fields."""
    run = planted(lambda _context, _event, entity, *_: entity.__class__ and 1, monkeypatch)

    assert run.report.escapes == ["'1': attribute __class__"]


@pytest.mark.parametrize(
    "value",
    [(1,), {1: 2}, object(), 2**256, float("inf"), "x" * 1_000_001, [0] * 100_000, [[[object()]]]],
    ids=["tuple", "key", "object", "bits", "infinite", "long", "wide", "inner"],
)
def test_a_value_outside_the_limits_is_noticed(value: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Results are looked at in depth."""
    run = planted(lambda *_: value, monkeypatch)

    assert len(run.report.crashes) == 1


def raises(error: Exception) -> Callable[..., Any]:
    """A function that does nothing else."""

    def function(*_: object) -> None:
        raise error

    return function


def test_an_unknown_exception_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what `explain` knows may come out of an evaluation."""
    assert planted(raises(TypeError()), monkeypatch).report.clean

    assert "ValueError" in planted(raises(ValueError()), monkeypatch).report.crashes[0]


def test_a_changed_context_is_noticed() -> None:
    """The values that were given must be what they were."""
    run = Fuzz()
    run.contexts[0]["list"].append(1)
    run.look(0)

    assert run.report.escapes == ["by batch 0 a context was changed"]


def test_endless_work_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The timer of processor time ends what no meter counts."""

    def endless(*_: object) -> None:
        while True:
            pass

    monkeypatch.setattr(expression_fuzz, "SECONDS_PER_INPUT", 0.05)
    compiled = type("Planted", (), {"function": staticmethod(endless)})
    monkeypatch.setattr(expression_fuzz, "compile_parsed", lambda *_, **__: compiled)
    monkeypatch.setattr(expression_fuzz, "inputs", lambda _: iter(["1"]))
    report = fuzz(count=1, seed=1)

    assert report.over_budget == ["'1'"]
